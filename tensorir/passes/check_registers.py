"""Register buffers must have constant indices once unrolled loops are expanded; else an error names the index.

A register has no address, so `acc[i]` with a run-time `i` cannot be one.
"""

from __future__ import annotations

from tensorir.buffer import Buffer
from tensorir.errors import UserError
from tensorir.expr import Broadcast, Const, Expr, Load, Ramp
from tensorir.stmt import Allocate, For, Func, Stmt, Store
from tensorir.visit import free_vars, stmt_exprs, sub_stmts, walk_expr


class RegisterError(UserError):
    """A buffer in registers that is indexed by a value only known at run time."""


def check_registers(func: Func) -> Func:
    """`func` itself. Raises `RegisterError` naming the buffer, the index and the loops it depends on."""
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(func.body, ())]
    while stack:
        s, loops = stack.pop()
        if isinstance(s, Allocate) and s.buffer.scope == "register" and not isinstance(s.buffer.shape[0], Const):
            raise RegisterError(
                f"register buffer {s.buffer.name}: its size {s.buffer.shape[0]!r} is not constant",
                help="give the loops that fill it constant extents, or choose another scope",
            )
        if isinstance(s, Store):
            _require_constant(s.buffer, s.indices[0], loops)
        for e in stmt_exprs(s):
            for n in walk_expr(e):
                if isinstance(n, Load):
                    _require_constant(n.buffer, n.indices[0], loops)
        inner = (*loops, s) if isinstance(s, For) else loops
        stack.extend((c, inner) for c in reversed(sub_stmts(s)))
    return func


def _require_constant(buffer: Buffer, index: Expr, loops: tuple[For, ...]) -> None:
    if buffer.scope != "register" or _is_constant(index):
        return
    asked = [v for v in free_vars(index)]
    around = [loop.var.name for loop in loops if any(loop.var is v for v in asked)]
    what = f"depends on the loop {', '.join(around)}" if around else "is only known at run time"
    raise RegisterError(
        f"register buffer {buffer.name}: the index {index!r} {what}",
        notes=("registers have no address: once unrolled loops are expanded every index must be a constant",),
        help=f"unroll {around[0]}, or set the scope of {buffer.name} to local" if around else "set its scope to local",
    )


def _is_constant(index: Expr) -> bool:
    if isinstance(index, Ramp):
        return _is_constant(index.base) and _is_constant(index.stride)
    if isinstance(index, Broadcast):
        return _is_constant(index.value)
    return isinstance(index, Const)
