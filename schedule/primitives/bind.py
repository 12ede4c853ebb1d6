"""bind: iterations become GPU threads."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.parallel import require_free
from schedule.primitives.split import require_no_scan
from schedule.replay import constant
from schedule.state import Annotate, Loop
from tensorir.te import ThreadAxis


@primitive
def bind(edit: Edit, loop: LoopReference, thread: ThreadAxis | str) -> None:
    """Runs the iterations of a loop as GPU threads of an axis (a name such as "threadIdx.x", or a `te.thread_axis`).

    for i in 0..64: B(i)
    # s[B].bind(i, "threadIdx.x")
    for i in 0..64 thread threadIdx.x: B(i)

    A reduce loop may be bound to threadIdx: each thread reduces what it has, then the threads of the block combine
    their results, which re-associates. The result is best kept in shared or global memory.
    """
    chosen = edit.loop(loop)
    axis = thread if isinstance(thread, ThreadAxis) else ThreadAxis(str(thread))
    tag = axis.tag

    require_no_scan(edit, chosen)
    if chosen.kind == "reduce":
        _require_combinable(edit, chosen, tag)
    require_free(edit, chosen)
    edit.require(
        tag in THREAD_TAGS or tag.startswith("vthread"), f"there is no thread axis {tag!r}", chosen,
        help=f"the axes are {', '.join(THREAD_TAGS)} and vthread",
    )  # fmt: skip
    known = constant(chosen.extent)
    edit.require(
        axis.extent is None or known is None or axis.extent == known,
        f"the loop runs over {known} values, but the thread axis {tag} has {axis.extent}", chosen,
        help=f"split {chosen.name} by {axis.extent} and bind the inner loop, or leave the extent of the axis out",
    )  # fmt: skip

    if chosen.kind == "reduce":
        edit.state = dataclasses.replace(edit.state, reassociated=(*edit.state.reassociated, edit.call))
    edit.step(Annotate(chosen.var, "thread", axis, edit.call))


def _require_combinable(edit: Edit, loop: Loop, tag: str) -> None:
    reduction = edit.stage.reduction
    reducer = None if reduction is None else reduction.reducer
    edit.require(
        tag.startswith("threadIdx"),
        f"{loop.name} is a reduce loop: its iterations update the same elements of {edit.stage.name}", loop,
        help="only the threads of one block can combine partial results: bind it to threadIdx",
    )  # fmt: skip
    edit.require(
        reducer is not None and reducer.associative and reducer.commutative,
        f"{loop.name} is a reduce loop whose reducer is not associative and commutative", loop,
        help="threads combine their partial results in an order of their own",
    )  # fmt: skip


THREAD_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
