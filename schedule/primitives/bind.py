"""bind: iterations become GPU threads."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.parallel import require_free, require_spatial
from schedule.replay import constant
from schedule.state import Annotate
from tensorir.te import ThreadAxis


@primitive
def bind(edit: Edit, loop: LoopReference, thread: ThreadAxis | str) -> None:
    """Runs the iterations of a loop as GPU threads of an axis (a name such as "threadIdx.x", or a `te.thread_axis`).

    for i in 0..64: B(i)
    # s[B].bind(i, "threadIdx.x")
    for i in 0..64 thread threadIdx.x: B(i)
    """
    chosen = edit.loop(loop)
    axis = thread if isinstance(thread, ThreadAxis) else ThreadAxis(str(thread))
    tag = axis.tag

    require_spatial(edit, chosen, "bound")
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

    edit.step(Annotate(chosen.var, "thread", axis, edit.call))


THREAD_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
