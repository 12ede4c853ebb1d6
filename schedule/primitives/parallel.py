"""parallel: iterations run on several threads."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_no_scan
from schedule.state import Annotate, Loop


@primitive
def parallel(edit: Edit, loop: LoopReference) -> None:
    """Runs the iterations of a loop on several threads, in any order.

        for i in 0..64: B(i)
        # s[B].parallel(i)
        for i in 0..64 parallel: B(i)

    Parallel loops do not nest; a reduce loop cannot be parallel.
    """
    chosen = edit.loop(loop)

    require_spatial(edit, chosen, "parallel")
    require_free(edit, chosen)

    edit.step(Annotate(chosen.var, "parallel", None, edit.call))


def require_spatial(edit: Edit, loop: Loop, word: str) -> None:
    """Iterations of a reduce loop add to the same elements and so depend on each other."""
    require_no_scan(edit, loop)
    edit.require(
        loop.kind == "spatial",
        f"{loop.name} is a reduce loop: its iterations update the same elements of {edit.stage.name}", loop,
        help=f"make a spatial loop {word}, or declare partial results as a compute of their own",
    )  # fmt: skip


def require_free(edit: Edit, loop: Loop) -> None:
    """A loop has one annotation."""
    edit.require(
        loop.annotation == "serial", f"{loop.name} is {loop.annotation} already", loop,
        help="a loop is one of parallel, vectorized, unrolled or bound; split it to have two",
    )  # fmt: skip
