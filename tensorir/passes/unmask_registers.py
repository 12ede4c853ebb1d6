"""Takes the mask off register tiles whose masked lanes nobody looks at.

    alloc acc[8] @register                        alloc acc[8] @register
    acc[ramp, mask=m] = 0                         acc[ramp] = 0
    for k: acc[ramp, mask=m] = fma(a,       →     for k: acc[ramp] = fma(a, W[.., mask=m], acc[ramp])
             W[.., mask=m], acc[ramp, mask=m])    C[.., mask=m] = acc[ramp]
    C[.., mask=m] = acc[ramp, mask=m]

If all stores to a buffer carry one and the same mask, made of what is known outside its allocation, then the other
lanes are never written, so no valid program reads them and they may hold anything. A masked access to a register
would force it into memory.
"""

from __future__ import annotations

from tensorir.buffer import Buffer
from tensorir.expr import Expr, Load, Var
from tensorir.stmt import Allocate, For, Func, LetStmt, Stmt, Store
from tensorir.visit import rewrite_expr, rewrite_stmt, stmt_exprs, walk_expr, walk_stmt, with_body


def unmask_registers(func: Func) -> Func:
    """`func` with register buffers accessed without masks where that cannot be observed."""
    masks: dict[Buffer, Expr] = {}
    for s in walk_stmt(func.body):
        if isinstance(s, Allocate) and s.buffer.scope == "register":
            mask = _only_mask(s)
            if mask is not None:
                masks[s.buffer] = mask
    if not masks:
        return func

    def rule(e: Expr) -> Expr:
        if isinstance(e, Load) and e.predicate is not None and masks.get(e.buffer) is not None:
            return Load(e.buffer, e.indices, e.dtype)
        return e

    def stmt(s: Stmt) -> Stmt:
        return Store(s.buffer, s.indices, s.value) if isinstance(s, Store) and s.buffer in masks else s

    memo: dict[Expr, Expr] = {}
    return with_body(func, rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, rule, memo), stmt=stmt))


def _only_mask(allocation: Allocate) -> Expr | None:
    """The mask that all accesses to the buffer carry; None if there is not exactly one, or it changes inside."""
    buffer = allocation.buffer
    inner = {s.var for s in walk_stmt(allocation.body) if isinstance(s, (For, LetStmt))}
    mask: Expr | None = None
    for s in walk_stmt(allocation.body):
        found: list[Expr | None] = []
        if isinstance(s, Store) and s.buffer is buffer:
            found.append(s.predicate)
        for e in stmt_exprs(s):
            found.extend(n.predicate for n in walk_expr(e) if isinstance(n, Load) and n.buffer is buffer)
        for predicate in found:
            if predicate is None or (mask is not None and predicate is not mask):
                return None
            mask = predicate
    if mask is None or any(isinstance(n, Load) or (isinstance(n, Var) and n in inner) for n in walk_expr(mask)):
        return None
    return mask
