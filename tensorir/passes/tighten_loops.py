"""Turns guards into loop bounds.

    for kh in 0..3:                                  for kh in max(0, 1 - h)..min(3, 57 - h):
      for w in 0..8:                            →      for w in 0..8:
        if 1 <= h + kh and h + kh < 57: update           update

A condition that does not ask about a loop moves out of it; a loop whose whole body is then an `If` over an affine
condition in its variable runs only where the condition holds. So padded taps of a reduction are never visited, and
the tail of a split that does not divide is a shorter loop instead of a test in each step. Extents stay at least 0.
A vectorized or unrolled loop keeps a constant extent, so it is tightened only to another constant; a vectorized one
where masked memory is cheap only to a power of two, since a mask serves odd counts better.
"""

from __future__ import annotations

from tensorir.expr import EQ, Const, Expr, Load, Var, maximum, minimum
from tensorir.passes.linear import Form, IndexScope, conjunction, conjuncts, is_index_type
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.target import Target
from tensorir.visit import walk_expr, walk_stmt, with_body

EMPTY = Seq(())
"""A statement that does nothing."""


def tighten_loops(func: Func, target: Target) -> Func:
    """`func` with guards hoisted out of loops and loops shortened to where their guard holds."""
    if not any(isinstance(s, If) for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            with scope.inside(s.var, s.begin, s.extent):
                body = visit(s.body)
                if not (isinstance(body, If) and body.otherwise is None):
                    return s if body is s.body else _with_body(s, body)
            return _tighten(s, body, scope, target)
        if isinstance(s, Seq):
            new = [visit(x) for x in s.stmts]
            return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
        if isinstance(s, If):
            with scope.assume(s.condition):
                then = visit(s.then)
            otherwise = None if s.otherwise is None else visit(s.otherwise)
            if otherwise is None and isinstance(then, If) and then.otherwise is None:
                return If(conjunction((*conjuncts(s.condition), *conjuncts(then.condition))), then.then)
            return s if then is s.then and otherwise is s.otherwise else If(s.condition, then, otherwise)
        if isinstance(s, LetStmt):
            scope.bind_value(s.var, s.value)
            body = visit(s.body)
            return s if body is s.body else LetStmt(s.var, s.value, body)
        if isinstance(s, Allocate):
            body = visit(s.body)
            return s if body is s.body else Allocate(s.buffer, body)
        return s

    return with_body(func, visit(func.body))


def _with_body(loop: For, body: Stmt) -> For:
    return For(loop.var, loop.begin, loop.extent, loop.kind, body, loop.thread, loop.pragmas)


def _tighten(loop: For, guard: If, scope: IndexScope, target: Target) -> Stmt:
    """The loop whose whole body is `guard`, with what can be said by bounds said by bounds."""
    outside: list[Expr] = []
    inside: list[Expr] = []
    lows: list[Form] = []
    ends: list[Form] = []
    for condition in conjuncts(scope.simplify(guard.condition)):
        if isinstance(condition, Const):
            if not condition.value:
                return EMPTY
            continue
        if loop.var not in scope.variables(condition):
            if any(isinstance(n, Load) for n in walk_expr(condition)):
                inside.append(condition)
            else:
                outside.append(condition)
            continue
        with scope.inside(loop.var, loop.begin, loop.extent):
            proved = scope.prove(condition)
        if proved is True:
            continue
        limits = loop_limits(condition, loop.var, scope)
        if limits is None or loop.kind == "thread":
            inside.append(condition)
        else:
            lows.extend(limits[0])
            ends.extend(limits[1])
    begin, extent, kept = loop.begin, loop.extent, True
    if lows or ends:
        begin, extent, kept = _shortened(loop, lows, ends, scope, target)
    if not kept:
        # A vectorized or unrolled loop whose new bounds are no constants keeps its guard.
        inside = [c for c in conjuncts(scope.simplify(guard.condition)) if not any(c is o for o in outside)]
        begin, extent = loop.begin, loop.extent
    body = If(conjunction(inside), guard.then) if inside else guard.then
    size = scope.form(extent)
    if size.is_const and size.constant <= 0:
        return EMPTY
    if begin is loop.begin and extent is loop.extent and inside and not outside:
        return _with_body(loop, body)
    result: Stmt = For(loop.var, begin, extent, loop.kind, body, loop.thread, loop.pragmas)
    return If(conjunction(outside), result) if outside else result


def loop_limits(condition: Expr, var: Var, scope: IndexScope) -> tuple[list[Form], list[Form]] | None:
    """(first values, past-the-end values) of `var` where `condition` holds exactly; None if it is not of that kind."""
    if isinstance(condition, EQ) and is_index_type(condition.a.dtype):
        difference = scope.form(condition.a).minus(scope.form(condition.b))
        c = difference.coefficient(var)
        rest = difference.without(var)
        if abs(c) != 1 or any(var in scope.variables(a) for a in rest.terms):
            return None
        value = rest.scaled(-c)
        return [value], [value.shifted(1)]
    margin = scope.margin(condition)
    if margin is None:
        return None
    c = margin.coefficient(var)
    rest = margin.without(var)
    if c == 0 or any(var in scope.variables(a) for a in rest.terms):
        return None
    if any(isinstance(n, Load) for a in rest.terms for n in walk_expr(a)):
        return None
    dtype = var.dtype
    quotient = scope.form(scope.simplify(scope.to_expr(rest, dtype) // abs(c)))
    if c > 0:  # var >= ceil(-rest / c) = -(rest // c)
        return [quotient.scaled(-1)], []
    return [], [quotient.shifted(1)]  # var <= rest // -c


def _shortened(
    loop: For, lows: list[Form], ends: list[Form], scope: IndexScope, target: Target
) -> tuple[Expr, Expr, bool]:
    """The begin and extent of the loop cut to the limits; False where its kind does not allow the new extent."""
    dtype = loop.var.dtype
    begin = loop.begin
    for low in lows:
        begin = scope.simplify(maximum(begin, scope.to_expr(low, dtype)))
    old_end = scope.to_expr(scope.form(loop.begin).plus(scope.form(loop.extent)), dtype)
    end = old_end
    for limit in ends:
        end = scope.simplify(minimum(end, scope.to_expr(limit, dtype)))
    size = scope.form(end).minus(scope.form(begin))
    extent = scope.to_expr(size, dtype)
    if not scope.nonnegative(size):
        extent = scope.simplify(maximum(extent, 0))
    if loop.kind in ("vectorized", "unrolled") and not isinstance(extent, Const):
        return loop.begin, loop.extent, False
    if loop.kind == "vectorized" and target.masked_memory and isinstance(extent, Const):
        lanes = int(extent.value)
        if lanes & (lanes - 1):
            return loop.begin, loop.extent, False
    return begin, extent, True
