"""`from nestor import te`: the compute language, with the two functions that TE keeps beside it.

s = te.create_schedule(C.op)
print(te.lower(s, [A, B, C], simple_mode=True))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedule import create_schedule
from tensorir import te as _te
from tensorir.stmt import Func
from tensorir.te import *  # noqa: F403

__all__ = [*_te.__all__, "create_schedule", "lower"]  # noqa: PLE0604, PLE0605


def lower(s: Any, args: Sequence[Any], name: str = "main", simple_mode: bool = False) -> Func:
    """The scheduled program as it is now; printing it shows the loop nest. TE's `simple_mode` makes no difference."""
    del simple_mode
    made: Func = s.func(args, name)
    return made


def __getattr__(name: str) -> Any:
    return getattr(_te, name)
