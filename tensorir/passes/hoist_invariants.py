"""Names index parts that do not change in a loop, outside of it.

    for k in 0..9:                                  let base = i * 56 + j * 7
      B[i * 56 + j * 7 + k] = 0              →      for k in 0..9: B[base + k] = 0

Code generation hoists most of this by itself; what it cannot do cheaply is an integer division or remainder, or a sum
of many symbol products. So only an invariant part that holds a division, a remainder or a product of two variables is
named, at the outermost loop where it does not change.
"""

from __future__ import annotations

from tensorir.expr import Binary, Const, Expr, FloorDiv, FloorMod, Load, Mul, TruncDiv, TruncMod, Var
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children, rewrite_expr, rewrite_stmt, stmt_exprs, walk_expr, walk_stmt, with_body

_COSTLY = (FloorDiv, FloorMod, TruncDiv, TruncMod)


def hoist_invariants(func: Func) -> Func:
    """`func` with costly invariant index parts bound outside their loops."""
    dims = frozenset(func.dims)

    def visit(s: Stmt, bound: frozenset[Expr]) -> Stmt:
        if isinstance(s, For):
            inner = bound | {s.var}
            body = visit(s.body, inner)
            loop: Stmt = s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
            return _name_invariants(loop, bound) if s.kind in ("serial", "parallel") else loop
        if isinstance(s, Seq):
            new = tuple(visit(x, bound) for x in s.stmts)
            return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else Seq(new)
        if isinstance(s, If):
            then = visit(s.then, bound)
            otherwise = None if s.otherwise is None else visit(s.otherwise, bound)
            return s if then is s.then and otherwise is s.otherwise else If(s.condition, then, otherwise)
        if isinstance(s, LetStmt):
            body = visit(s.body, bound | {s.var})
            return s if body is s.body else LetStmt(s.var, s.value, body)
        if isinstance(s, Allocate):
            body = visit(s.body, bound)
            return s if body is s.body else Allocate(s.buffer, body)
        return s

    return with_body(func, visit(func.body, dims))


def _name_invariants(loop: Stmt, bound: frozenset[Expr]) -> Stmt:
    """The loop with its maximal costly invariant integer expressions named in front of it."""
    assert isinstance(loop, For)
    free: dict[Expr, bool] = {}
    costly: dict[Expr, bool] = {}

    def is_free(e: Expr) -> bool:
        stack = [e]
        while stack:
            top = stack[-1]
            if top in free:
                stack.pop()
                continue
            if isinstance(top, Var):
                free[top], costly[top] = top in bound, False
                continue
            kids = children(top)
            pending = [c for c in kids if c not in free]
            if pending:
                stack.extend(pending)
                continue
            free[top] = not isinstance(top, Load) and all(free[c] for c in kids)
            costly[top] = any(costly[c] for c in kids) or _is_costly(top)
        return free[e]

    found: dict[Expr, Var] = {}
    for s in walk_stmt(loop.body):
        for e in stmt_exprs(s):
            for n in walk_expr(e):
                indices = n.indices if isinstance(n, Load) else ()
                for index in indices:
                    _collect(index, is_free, costly, found)
        if isinstance(s, Store):
            for index in s.indices:
                _collect(index, is_free, costly, found)
    if not found:
        return loop
    body = rewrite_stmt(loop.body, expr=lambda e: rewrite_expr(e, lambda n: found.get(n, n)))
    result: Stmt = For(loop.var, loop.begin, loop.extent, loop.kind, body, loop.thread, loop.pragmas)
    for value, var in reversed(found.items()):
        result = LetStmt(var, value, result)
    return result


def _collect(e: Expr, is_free: object, costly: dict[Expr, bool], found: dict[Expr, Var]) -> None:
    stack = [e]
    while stack:
        top = stack.pop()
        if is_free(top):  # type: ignore[operator]
            if costly[top] and top.dtype.is_integer and top.dtype.lanes == 1 and top not in found:
                found[top] = Var("base", top.dtype)
            continue
        stack.extend(children(top))


def _is_costly(e: Expr) -> bool:
    if isinstance(e, _COSTLY):
        return not isinstance(e.b, Const) or int(e.b.value) & (int(e.b.value) - 1) != 0
    return isinstance(e, Mul) and isinstance(e, Binary) and not isinstance(e.a, Const) and not isinstance(e.b, Const)
