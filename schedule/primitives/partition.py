"""partition: whether a loop is split where its guards change their answer."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import Pragma


@primitive
def partition(edit: Edit, loop: LoopReference, wanted: bool = True) -> None:
    """A hint for lowering: split the loop into parts that decide each guard, or (`wanted=False`) leave it whole.

        for i in 0..17: B[i] = if_then_else(1 <= i < 16, A[i - 1], 0)
        # s[B].partition(i)
        for i in 0..17 pragma(partition=True): B[i] = if_then_else(1 <= i < 16, A[i - 1], 0)

    Lowering then makes 0..1, 1..16 and 16..17 of it. Without a hint lowering decides by the size of the loop. No value
    changes. Loops that are vectorized, unrolled or bound have no parts of their own.
    """
    chosen = edit.loop(loop)

    edit.require(isinstance(wanted, bool), f"wanted is True or False, not {wanted!r}", chosen)
    edit.require(
        chosen.annotation in ("serial", "parallel"), f"{chosen.name} is {chosen.annotation} and is not split", chosen,
        help="hint at a serial or parallel loop outside it",
    )  # fmt: skip

    edit.step(Pragma(chosen.var, "partition", wanted, edit.call))
