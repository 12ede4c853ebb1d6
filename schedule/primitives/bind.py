"""bind: iterations become GPU threads."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.parallel import require_free, require_spatial
from schedule.state import Annotate


@primitive
def bind(edit: Edit, loop: LoopReference, thread: Any) -> None:
    """Runs the iterations of a loop as GPU threads of an axis (a name such as "threadIdx.x", or a `thread_axis`).

    for i in 0..64: B(i)
    # s[B].bind(i, "threadIdx.x")
    for i in 0..64 thread threadIdx.x: B(i)
    """
    chosen = edit.loop(loop)
    tag = str(getattr(thread, "tag", thread))

    require_spatial(edit, chosen, "bound")
    require_free(edit, chosen)
    edit.require(
        tag in THREAD_TAGS or tag.startswith("vthread"), f"there is no thread axis {tag!r}", chosen,
        help=f"the axes are {', '.join(THREAD_TAGS)} and vthread",
    )  # fmt: skip

    edit.step(Annotate(chosen.var, "thread", thread, edit.call))


THREAD_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
