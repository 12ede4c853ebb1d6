"""pragma: a note on a loop for later passes."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import Pragma


@primitive
def pragma(edit: Edit, loop: LoopReference, key: str, value: Any = True) -> None:
    """Puts a (key, value) pair on a loop; a later pair with the same key replaces it.

        for i in 0..64: B(i)
        # s[B].pragma(i, "prefetch", 4096)
        for i in 0..64 pragma(prefetch=4096): B(i)

    A pragma never changes what the program computes.
    """
    chosen = edit.loop(loop)

    edit.require(
        isinstance(key, str) and key.isidentifier(), f"the key {key!r} of a pragma must be an identifier", chosen
    )
    edit.require(isinstance(value, (bool, int, float, str)), f"the value of the pragma {key} must be a literal", chosen)

    edit.step(Pragma(chosen.var, key, value, edit.call))
