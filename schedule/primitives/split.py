"""split: one loop becomes two."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import Loop, Split
from tensorir.expr import Const, Var


@primitive
def split(edit: Edit, loop: LoopReference, factor: int | None = None, nparts: int | None = None) -> tuple[Var, Var]:
    """Splits a loop into an outer and an inner one; give the extent of the inner (`factor`) or the outer (`nparts`).

        for i in 0..20: B(i)
        # i_o, i_i = s[B].split(i, factor=8)
        for i_o in 0..3:
          for i_i in 0..8: B(i_o*8 + i_i) where i_o*8 + i_i < 20

    The guard is left out where the factor divides the extent. A factor beyond a constant extent is that extent.
    Raises `ScheduleError` for a factor that is not a positive integer.
    """
    old = edit.loop(loop)

    edit.require(
        (factor is None) != (nparts is None), f"give either factor or nparts to split {old.name}, and not both", old
    )
    word, size = ("factor", factor) if factor is not None else ("nparts", nparts)
    count = require_positive(edit, old, word, size)
    require_unannotated(edit, old, "split")

    outer, inner = Var(f"{old.name}_o", old.var.dtype), Var(f"{old.name}_i", old.var.dtype)
    edit.step(
        Split(
            old.var,
            outer,
            inner,
            count if factor is not None else None,
            count if nparts is not None else None,
            edit.call,
        )
    )

    edit.forward(old.var, inner)
    return outer, inner


def require_positive(edit: Edit, loop: Loop, word: str, value: Any) -> int:
    """`value` as a positive integer."""
    if isinstance(value, Const):
        value = value.value
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        edit.fail(f"the {word} for {loop.name} must be an integer, not {value!r}", loop)
    edit.require(
        int(value) > 0, f"the {word} for {loop.name} must be at least 1, but it is {int(value)}", loop,
        help=f"{loop.name} runs over {loop.extent!r} values: choose a {word} from 1 on",
    )  # fmt: skip
    return int(value)


def require_positive_count(edit: Edit, word: str, value: Any) -> int:
    """`value` as a positive integer that speaks of no loop."""
    if isinstance(value, Const):
        value = value.value
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or int(value) < 1:
        edit.fail(f"the {word} must be an integer of at least 1, not {value!r}")
    return int(value)


def require_unannotated(edit: Edit, loop: Loop, verb: str) -> None:
    """A loop that was made parallel, vectorized, unrolled or bound keeps its shape."""
    require_no_scan(edit, loop)
    edit.require(
        loop.annotation == "serial", f"{loop.name} is {loop.annotation} already", loop,
        help=f"{verb} it first, then annotate the loops that come out",
    )  # fmt: skip


def require_no_scan(edit: Edit, loop: Loop) -> None:
    """The steps of a scan run one after the other, as they are."""
    edit.require(
        loop.kind != "scan", f"{loop.name} is the loop over the steps of {edit.stage.name}: each reads those before it",
        loop, help="schedule the stages of a step: their loops are free",
    )  # fmt: skip
