"""set_scope: the memory that a tensor lives in."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, primitive
from tensorir.buffer import SCOPES
from tensorir.te import PlaceholderOp


@primitive
def set_scope(edit: Edit, scope: str) -> None:
    """Keeps the results of the stage in the memory `scope`: global, shared, local, register, warp or fragment.

        alloc B: float32[8]
        # s[B].set_scope("register")
        alloc B: float32[8] @register

    The caller's tensors are global. A register tensor needs constant indices once unrolled loops are expanded.
    """
    stage = edit.stage

    require_scope(edit, scope)
    if scope != "global" and (stage.is_output or isinstance(stage.op, PlaceholderOp)):
        kind = "an output" if stage.is_output else "an input"
        edit.fail(
            f"{stage.name} is {kind} of the program: the caller's memory is global",
            help=f"use s.cache_{'write' if stage.is_output else 'read'}({stage.name}, {scope!r}) for a copy",
        )

    edit.replace(buffers=tuple(dataclasses.replace(b, scope=scope) for b in stage.buffers))


def require_scope(edit: Edit, scope: str) -> None:
    """`scope` is one that exists."""
    edit.require(scope in SCOPES, f"there is no memory scope {scope!r}", help=f"the scopes are {', '.join(SCOPES)}")
