"""Equal conditions side by side become one, and conditions that stand still in a loop move out of it.

    if t < 5: A[t] = 0                      if t < 5:
    for k in 0..8:                  →         A[t] = 0
      if t < 5: A[t] = A[t] + B[k]            for k in 0..8: A[t] = A[t] + B[k]

Undoes what moving conditions to single statements cost, once barriers stand: none is ever inside a condition.
"""

from __future__ import annotations

from tensorir.equality import structural_equal
from tensorir.expr import Const, Expr, Load
from tensorir.passes.linear import conjunction, conjuncts
from tensorir.stmt import For, Func, If, Seq, Stmt, seq
from tensorir.visit import rewrite_stmt, walk_expr, with_body


def merge_guards(func: Func) -> Func:
    """`func` with conditions merged."""
    return with_body(func, rewrite_stmt(func.body, stmt=_merge))


def _merge(s: Stmt) -> Stmt:
    if isinstance(s, Seq):
        return _sequence(s)
    if isinstance(s, For) and s.kind != "thread" and isinstance(s.body, If) and s.body.otherwise is None:
        parts = conjuncts(s.body.condition)
        still = [c for c in parts if _is_pure(c) and not any(n is s.var for n in walk_expr(c))]
        if still:
            moving = [c for c in parts if not any(c is x for x in still)]
            body = If(conjunction(moving), s.body.then) if moving else s.body.then
            return If(conjunction(still), For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas))
    return s


def _sequence(s: Seq) -> Stmt:
    done: list[Stmt] = []
    for child in s.stmts:
        last = done[-1] if done else None
        if isinstance(last, If) and isinstance(child, If) and last.otherwise is None and child.otherwise is None:
            a, b = conjuncts(last.condition), conjuncts(child.condition)
            n = 0
            while n < min(len(a), len(b)) and structural_equal(a[n], b[n]) and _is_pure(a[n]):
                n += 1
            if n == len(a) and (n == len(b) or n):
                then = child.then if n == len(b) else If(conjunction(b[n:]), child.then)
                done[-1] = If(last.condition, _merge(seq(last.then, then)))
                continue
        done.append(child)
    return s if len(done) == len(s.stmts) else seq(*done)


def _is_pure(c: Expr) -> bool:
    return not isinstance(c, Const) and not any(isinstance(n, Load) for n in walk_expr(c))
