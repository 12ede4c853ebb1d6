"""unroll: iterations stand one after the other."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.parallel import require_free
from schedule.state import Annotate


@primitive
def unroll(edit: Edit, loop: LoopReference) -> None:
    """Writes the iterations of a loop out one after the other.

        for i in 0..4: B(i)
        # s[B].unroll(i)
        for i in 0..4 unrolled: B(i)

    The loop must have a constant extent. The order of iterations is kept, so a reduce loop may be unrolled.
    """
    chosen = edit.loop(loop)

    require_free(edit, chosen)

    edit.step(Annotate(chosen.var, "unrolled", None, edit.call))
