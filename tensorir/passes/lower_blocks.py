"""Blocks become statements: bindings are put into the body, the predicate becomes an `If`.

    for i in 0..8:                                          for i in 0..8:
      block B(vi = i + 1) where i < 7: B[vi] = A[vi]   →      if i < 7: B[i + 1] = A[i + 1]

A predicate that the loop ranges prove is dropped. An init that is still in its block (see `decompose_reductions`)
becomes `if <every reduction variable is at its first value>: init` in front of the body.
"""

from __future__ import annotations

from tensorir.expr import Const, Expr, Load, Var, equal
from tensorir.passes.fresh import fresh_copy
from tensorir.passes.linear import IndexScope, conjunction, conjuncts
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import rewrite_expr, rewrite_stmt, walk_stmt, with_body


def lower_blocks(func: Func) -> Func:
    """`func` without blocks."""
    if not any(isinstance(s, Block) for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return _lower(s, scope, visit)
        if isinstance(s, Seq):
            return seq(*[visit(x) for x in s.stmts])
        if isinstance(s, For):
            with scope.inside(s.var, s.begin, s.extent):
                body = visit(s.body)
            return s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
        if isinstance(s, If):
            with scope.assume(s.condition):
                then = visit(s.then)
            return If(s.condition, then, None if s.otherwise is None else visit(s.otherwise))
        if isinstance(s, LetStmt):
            scope.bind_value(s.var, s.value)
            return LetStmt(s.var, s.value, visit(s.body))
        if isinstance(s, Allocate):
            return Allocate(s.buffer, visit(s.body))
        return s

    return with_body(func, visit(func.body))


def _lower(block: Block, scope: IndexScope, visit: object) -> Stmt:
    mapping: dict[Var, Expr] = {i.var: scope.simplify(b) for i, b in zip(block.iters, block.bindings, strict=True)}
    needed = [c for c in conjuncts(scope.simplify(block.predicate)) if scope.prove(c) is not True]
    body = substitute_simplified(block.body, mapping, scope)
    if block.init is not None:
        first: list[Expr] = []
        for i, b in zip(block.iters, block.bindings, strict=True):
            if i.kind == "reduce":
                first.extend(_at_first(b, i.begin, scope))
        init = substitute_simplified(block.init, mapping, scope)
        condition = conjunction(first)
        body = seq(init if isinstance(condition, Const) else If(condition, init), body)
    if any(isinstance(s, (For, Allocate, Block)) for s in walk_stmt(body)):
        body = visit(body)  # type: ignore[operator]
    if not needed:
        return body
    return If(conjunction(needed), body)


def _at_first(binding: Expr, begin: Expr, scope: IndexScope) -> list[Expr]:
    """`binding == begin`; for a sum of positive multiples of variables that start there, one condition a variable."""
    difference = scope.form(binding).minus(scope.form(begin))
    if difference.is_const:
        return [] if difference.constant == 0 else [equal(binding, begin)]
    lowest = scope.extreme(difference, frozenset(difference.terms), low=True)
    if (
        all(c > 0 for c in difference.terms.values())
        and lowest is not None
        and lowest.is_const
        and lowest.constant == 0
    ):
        result = []
        for atom in difference.terms:
            edge = scope.extreme(scope.form(atom), frozenset([atom]), low=True)
            if edge is None:
                return [equal(binding, begin)]
            if scope.prove(test := scope.simplify(equal(atom, scope.to_expr(edge, atom.dtype)))) is not True:
                result.append(test)
        return result
    test = scope.simplify(equal(binding, begin))
    return [] if scope.prove(test) is True else [test]


def substitute_simplified(s: Stmt, mapping: dict[Var, Expr], scope: IndexScope) -> Stmt:
    """A statement with variables replaced and its integer arithmetic in canonical form."""
    memo: dict[Expr, Expr] = {}

    def rule(e: Expr) -> Expr:
        if isinstance(e, Var):
            return mapping.get(e, e)
        if isinstance(e, Load):
            indices = tuple(scope.simplify(i) for i in e.indices)
            same = all(a is b for a, b in zip(indices, e.indices, strict=True))
            return e if same else Load(e.buffer, indices, e.dtype, e.predicate)
        return e

    def expr(e: Expr) -> Expr:
        e = rewrite_expr(e, rule, memo)
        return scope.simplify(e) if e.dtype.is_integer or e.dtype.is_bool else e

    if any(isinstance(x, (For, LetStmt, Allocate)) for x in walk_stmt(s)):
        s = fresh_copy(s, mapping) if not any(isinstance(x, Block) for x in walk_stmt(s)) else s
    return rewrite_stmt(s, expr=expr)
