"""Vectorized loops of a GPU: a copy of neighbouring elements becomes one wide access where alignment is proved, any
other loop is written out lane by lane.

    for v in 0..4 vectorized: S[i * 4 + v] = A[j * 4 + v]   →   S[ramp(i * 4, 1, 4)] = A[ramp(j * 4, 1, 4)]

Alignment is proved where the first index is a multiple of the lanes, whatever the variables are. Buffers begin aligned.
"""

from __future__ import annotations

from tensorir.expr import Call, Const, Expr, Load, Var, ramp
from tensorir.passes.accesses import bind_loops
from tensorir.passes.linear import Form, IndexScope
from tensorir.stmt import For, Func, If, Stmt, Store
from tensorir.visit import rewrite_stmt, substitute, walk_expr, walk_stmt, with_body

_LANES = (2, 4, 8, 16)
_MOST_BYTES = 16


def wide_copies(func: Func) -> Func:
    """`func`, flattened, without vectorized loops."""
    if not any(isinstance(s, For) and s.kind == "vectorized" for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)

    def rule(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind != "vectorized":
            return s
        wide = _wide(s, s.body, scope)
        return wide if wide is not None else For(s.var, s.begin, s.extent, "unrolled", s.body, None, s.pragmas)

    return with_body(func, rewrite_stmt(func.body, stmt=rule))


def _wide(loop: For, body: Stmt, scope: IndexScope) -> Stmt | None:
    if isinstance(body, If) and body.otherwise is None and not _uses(body.condition, loop.var):
        inner = _wide(loop, body.then, scope)
        return None if inner is None else If(body.condition, inner)
    if not isinstance(body, Store) or not isinstance(loop.extent, Const):
        return None
    begun = isinstance(body.value, Call) and body.value.name == "async_copy"
    load, lanes = body.value.args[0] if begun else body.value, int(loop.extent.value)  # type: ignore[attr-defined]
    if not isinstance(load, Load):
        return None
    if body.predicate is not None or load.predicate is not None or load.dtype != body.buffer.dtype:
        return None
    if lanes not in _LANES or lanes * load.dtype.nbytes > _MOST_BYTES or load.dtype.is_bool:
        return None
    target = _start(body.indices[0], loop, lanes, scope)
    source = _start(load.indices[0], loop, lanes, scope)
    if target is None or source is None:
        return None
    wide = Load(load.buffer, (ramp(source, 1, lanes),), load.dtype.with_lanes(lanes))
    value = Call("async_copy", (wide,), wide.dtype) if begun else wide
    return Store(body.buffer, (ramp(target, 1, lanes),), value)


def _start(index: Expr, loop: For, lanes: int, scope: IndexScope) -> Expr | None:
    """The index of the first lane if lanes are neighbours and it is a multiple of `lanes`; else None."""
    form: Form = scope.form(scope.simplify(index))
    if form.coefficient(loop.var) != 1 or any(_uses(a, loop.var) for a in form.terms if a is not loop.var):
        return None
    first = scope.form(scope.simplify(substitute(index, {loop.var: loop.begin})))
    if first.constant % lanes or any(k % lanes for k in first.terms.values()):
        return None
    return scope.to_expr(first, index.dtype)


def _uses(e: Expr, var: Var) -> bool:
    return any(n is var for n in walk_expr(e))
