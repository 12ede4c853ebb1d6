"""Moves the init of each reduction out in front of its outermost reduction loop, as a block of its own.

    for k in 0..8:                     for j in 0..4:
      for j in 0..4:                     block C_init: C[j] = 0
        block C: init C[j] = 0    →    for k in 0..8:
                 C[j] += A[j, k]         for j in 0..4:
                                           block C: C[j] += A[j, k]

The reduction loop then carries no test for its first step, and a reduction over no elements gives the identity. Where
one loop both reduces and moves over outputs (a fused pair) the init stays, and `lower_blocks` guards it.
"""

from __future__ import annotations

import dataclasses

from tensorir.expr import Expr, Var
from tensorir.passes.linear import IndexScope
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import free_vars, sub_stmts, substitute, walk_exprs, walk_stmt, with_body


def decompose_reductions(func: Func) -> Func:
    """`func` with reductions split into an init block and an update block."""
    if not any(isinstance(s, Block) and s.init is not None for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)
    done: set[int] = set()
    kept: set[int] = set()

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return dataclasses.replace(s, init=None) if id(s) in done else s
        if isinstance(s, Seq):
            new = [visit(x) for x in s.stmts]
            return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
        if isinstance(s, For):
            inits = []
            for block in walk_stmt(s.body):
                if not isinstance(block, Block) or block.init is None or id(block) in done or id(block) in kept:
                    continue
                if s.var not in _vars_of(block, "reduce"):
                    continue
                nest = _init_nest(s, block, scope)
                if nest is None:
                    kept.add(id(block))  # an inner reduction loop would start it again and again
                else:
                    inits.append(nest)
                    done.add(id(block))
            body = visit(s.body)
            loop = s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
            return seq(*inits, loop) if inits else loop
        if isinstance(s, If):
            then, otherwise = visit(s.then), None if s.otherwise is None else visit(s.otherwise)
            return s if then is s.then and otherwise is s.otherwise else If(s.condition, then, otherwise)
        if isinstance(s, LetStmt):
            body = visit(s.body)
            return s if body is s.body else LetStmt(s.var, s.value, body)
        if isinstance(s, Allocate):
            body = visit(s.body)
            return s if body is s.body else Allocate(s.buffer, body)
        return s

    return with_body(func, visit(func.body))


def _vars_of(block: Block, kind: str) -> set[Var]:
    return {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == kind for v in free_vars(b)}


def _init_nest(outermost: For, block: Block, scope: IndexScope) -> Stmt | None:
    """The loops over outputs from `outermost` inward around the block of the init; None if it cannot be split off."""
    reduce, spatial = _vars_of(block, "reduce"), _vars_of(block, "spatial")
    assert block.init is not None
    asked = {e for e in walk_exprs(block.init) if isinstance(e, Var)}
    apart = {id(i.var) for i in block.iters if i.kind == "opaque" and i.var not in asked}
    opaque = {
        v
        for i, b in zip(block.iters, block.bindings, strict=True)
        if i.kind == "opaque" and id(i.var) not in apart
        for v in free_vars(b)
    }
    written = {id(r.buffer) for r in block.writes}
    around = _path(outermost, block)
    mapping: dict[Var, Expr] = {}
    kept: list[For | If | LetStmt] = []
    for s in around:
        if isinstance(s, For):
            if s.var in reduce:
                if s.var in spatial or s.var in opaque:
                    return None
                mapping[s.var] = substitute(s.begin, mapping)
            else:
                kept.append(s)
        elif isinstance(s, (If, LetStmt)):
            kept.append(s)
        elif isinstance(s, Allocate) and id(s.buffer) in written:
            return None
    iters = tuple(i for i in block.iters if i.kind != "reduce" and id(i.var) not in apart)
    bindings = [
        b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind != "reduce" and id(i.var) not in apart
    ]
    predicate = block.predicate
    # A loop around the block that neither places the output nor is asked by a condition would only repeat the init.
    needed: set[Var] = {v for e in (*bindings, predicate) for v in free_vars(e)}
    for s in reversed(kept):
        if isinstance(s, For) and s.var in needed:
            needed |= {v for e in (s.begin, s.extent) for v in free_vars(e)}
        elif isinstance(s, If):
            needed |= set(free_vars(s.condition))
        elif isinstance(s, LetStmt) and s.var in needed:
            needed |= set(free_vars(s.value))
    shells: list[For | If | LetStmt] = []
    for s in kept:
        if isinstance(s, For):
            if s.var in needed:
                var = Var(s.var.name, s.var.dtype)
                begin, extent = substitute(s.begin, mapping), substitute(s.extent, mapping)
                mapping[s.var] = var
                shells.append(For(var, begin, extent, s.kind, s.body, s.thread, s.pragmas))
        elif isinstance(s, If):
            shells.append(If(substitute(s.condition, mapping), s.then))
        elif s.var in needed:
            var = Var(s.var.name, s.var.dtype)
            value = substitute(s.value, mapping)
            mapping[s.var] = var
            shells.append(LetStmt(var, value, s.body))
    new_predicate = scope.simplify(substitute(predicate, mapping))
    result: Stmt = Block(
        f"{block.name}_init", iters, tuple(substitute(b, mapping) for b in bindings), new_predicate, (), block.writes,
        None, block.init, block.origins, block.pragmas,
    )  # fmt: skip
    for s in reversed(shells):
        if isinstance(s, For):
            result = For(s.var, s.begin, s.extent, s.kind, result, s.thread, s.pragmas)
        elif isinstance(s, If):
            result = If(s.condition, result)
        else:
            result = LetStmt(s.var, s.value, result)
    return result


def _path(top: Stmt, target: Stmt) -> list[Stmt]:
    """The statements from `top` down to, without, `target`."""
    stack: list[tuple[Stmt, tuple[Stmt, ...]]] = [(top, ())]
    while stack:
        s, above = stack.pop()
        if s is target:
            return list(above)
        stack.extend((child, (*above, s)) for child in sub_stmts(s))
    raise AssertionError("the block is not below the loop")
