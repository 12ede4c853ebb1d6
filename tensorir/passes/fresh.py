"""Copies of statements with names of their own: what a pass that duplicates code puts in the second place."""

from __future__ import annotations

from collections.abc import Mapping

from tensorir.buffer import Buffer
from tensorir.expr import Expr, Load, Var
from tensorir.stmt import Allocate, Evaluate, For, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.visit import rewrite_expr


def fresh_copy(s: Stmt, mapping: Mapping[Var, Expr]) -> Stmt:
    """`s` with variables replaced by `mapping`, and with new variables and buffers wherever it binds one.

    For statements after the blocks are lowered.
    """
    variables: dict[Var, Expr] = dict(mapping)
    buffers: dict[Buffer, Buffer] = {}
    memo: dict[Expr, Expr] = {}

    def rule(e: Expr) -> Expr:
        if isinstance(e, Var):
            return variables.get(e, e)
        if isinstance(e, Load) and e.buffer in buffers:
            return Load(buffers[e.buffer], e.indices, e.dtype, e.predicate)
        return e

    def expr(e: Expr) -> Expr:
        return rewrite_expr(e, rule, memo)

    def rename(v: Var) -> Var:
        if v in variables:
            memo.clear()  # two loops side by side may have one variable
        new = variables[v] = Var(v.name, v.dtype)
        return new

    def visit(n: Stmt) -> Stmt:
        if isinstance(n, Store):
            predicate = None if n.predicate is None else expr(n.predicate)
            return Store(buffers.get(n.buffer, n.buffer), tuple(map(expr, n.indices)), expr(n.value), predicate)
        if isinstance(n, Seq):
            return seq(*[visit(x) for x in n.stmts])
        if isinstance(n, For):
            begin, extent = expr(n.begin), expr(n.extent)
            var = rename(n.var)
            return For(var, begin, extent, n.kind, visit(n.body), n.thread, n.pragmas)
        if isinstance(n, If):
            return If(expr(n.condition), visit(n.then), None if n.otherwise is None else visit(n.otherwise))
        if isinstance(n, LetStmt):
            value = expr(n.value)
            var = rename(n.var)
            return LetStmt(var, value, visit(n.body))
        if isinstance(n, Allocate):
            old = n.buffer
            if old in buffers:
                memo.clear()
            buffers[old] = Buffer(old.name, tuple(map(expr, old.shape)), old.dtype, old.scope)
            return Allocate(buffers[old], visit(n.body))
        if isinstance(n, Evaluate):
            return Evaluate(expr(n.value))
        raise TypeError(f"fresh_copy: {type(n).__name__} is not expected after the blocks are lowered")

    return visit(s)
