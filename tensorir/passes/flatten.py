"""Buffers become one-dimensional, indices row-major.

    A: float32[4, 5]    A[i, j]   →   A: float32[20]    A[i * 5 + j]

Parameters too: a code generator sees only flat memory. A 0-d buffer has one element at index 0.
"""

from __future__ import annotations

import dataclasses

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import Expr, Load, cast, const
from tensorir.passes.accesses import bind_loops
from tensorir.passes.linear import IndexScope, strides_of
from tensorir.stmt import Allocate, Func, Stmt, Store
from tensorir.visit import rewrite_expr, rewrite_stmt, walk_exprs, walk_stmt


def flatten(func: Func) -> Func:
    """`func` with every buffer of rank one."""
    buffers = [*func.params, *(s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate))]
    scope = IndexScope(func.dims)
    if all(b.rank == 1 for b in buffers) and not any(_is_deep(e) for e in walk_exprs(func.body)):
        return func
    bind_loops(func.body, scope)
    flat: dict[Buffer, Buffer] = {}
    strides: dict[Buffer, tuple[Expr, ...]] = {}

    def to_flat(buffer: Buffer) -> Buffer:
        found = flat.get(buffer)
        if found is None:
            if buffer.rank == 1 and type(buffer) is Buffer:
                found = buffer
            else:
                size: Expr = const(1)
                for extent in buffer.shape:
                    size = size * cast(extent, dtypes.INDEX)
                found = Buffer(buffer.name, (scope.simplify(size),), buffer.dtype, buffer.scope)
            flat[buffer] = found
            strides[buffer] = strides_of(buffer)
        return found

    def index(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        total: Expr = const(0)
        for i, stride in zip(indices, strides[buffer], strict=True):
            total = total + cast(i, dtypes.INDEX) * cast(stride, dtypes.INDEX)
        return (scope.simplify(total),)

    def rule(e: Expr) -> Expr:
        if isinstance(e, Load):
            return Load(to_flat(e.buffer), index(e.buffer, e.indices), e.dtype, e.predicate)
        return scope.simplify(e) if e.dtype.is_bool else e

    memo: dict[Expr, Expr] = {}

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(to_flat(s.buffer), index(s.buffer, s.indices), s.value, s.predicate)
        if isinstance(s, Allocate):
            return Allocate(to_flat(s.buffer), s.body)
        return s

    for b in buffers:
        to_flat(b)
    body = rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, rule, memo), stmt=stmt)
    return dataclasses.replace(func, params=tuple(to_flat(p) for p in func.params), body=body)


def _is_deep(e: Expr) -> bool:
    return isinstance(e, Load) and len(e.indices) != 1
