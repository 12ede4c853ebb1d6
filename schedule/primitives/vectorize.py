"""vectorize: iterations become lanes."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.parallel import require_free, require_spatial
from schedule.state import Annotate


@primitive
def vectorize(edit: Edit, loop: LoopReference) -> None:
    """Runs the iterations of a loop as lanes of vector instructions.

        for j in 0..16: B(j)
        # s[B].vectorize(j)
        for j in 0..16 vectorized: B(j)

    The loop must be spatial with a constant extent; a guard inside becomes a mask or a scalar tail.
    """
    chosen = edit.loop(loop)

    require_spatial(edit, chosen, "vectorized")
    require_free(edit, chosen)

    edit.step(Annotate(chosen.var, "vectorized", None, edit.call))
