"""Index arithmetic in 32 bits where the target prefers it and every value provably fits.

    A[(i: int64) * 4 + j]    →    A[(i: int32) * 4 + j]

An index is narrowed only if each of its parts stays within int32 for all values of its variables (the literal
multiplied in as well, not only the result). A function none of whose sizes is known to fit stays as it is.
"""

from __future__ import annotations

from tensorir import dtypes
from tensorir.expr import (
    Add,
    Binary,
    Broadcast,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Load,
    Max,
    Min,
    Mul,
    Ramp,
    Sub,
    Var,
    const,
)
from tensorir.passes.accesses import bind_loops
from tensorir.passes.linear import IndexScope
from tensorir.stmt import Func, Stmt, Store
from tensorir.target import Target
from tensorir.visit import rewrite_expr, rewrite_stmt, walk_expr, with_body

_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)


def narrow_indices(func: Func, target: Target) -> Func:
    """`func` with indices in int32 where `target.index_bits` is 32 and they fit."""
    if target.index_bits != 32:
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)

    def narrow(index: Expr) -> Expr:
        if index.dtype.element != dtypes.int64 or not _fits(index, scope):
            return index
        return _narrowed(index)

    def rule(e: Expr) -> Expr:
        if isinstance(e, Load):
            indices = tuple(narrow(i) for i in e.indices)
            same = all(a is b for a, b in zip(indices, e.indices, strict=True))
            return e if same else Load(e.buffer, indices, e.dtype, e.predicate)
        if isinstance(e, Compare) and e.a.dtype == dtypes.int64 and _fits(e.a, scope) and _fits(e.b, scope):
            return type(e)(_narrowed(e.a), _narrowed(e.b), e.dtype)
        return e

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            indices = tuple(narrow(i) for i in s.indices)
            same = all(a is b for a, b in zip(indices, s.indices, strict=True))
            return s if same else Store(s.buffer, indices, s.value, s.predicate)
        return s

    return with_body(func, rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, rule), stmt=stmt))


def _fits(index: Expr, scope: IndexScope) -> bool:
    """True if every part of the index is of a kind that narrows and stays within int32."""
    for n in walk_expr(index):
        if isinstance(n, Ramp):
            low, high = scope.bounds(n.base)
            stride = scope.bounds(n.stride)
            if low is None or high is None or stride[0] is None or stride[0] != stride[1]:
                return False
            reach = stride[0] * (n.lanes - 1)
            if not _in_range(min(low, low + reach), max(high, high + reach)):
                return False
        elif isinstance(n, Broadcast):
            continue
        elif isinstance(n, (Var, Const, *_ARITHMETIC)) and n.dtype.lanes == 1:
            if not _in_range(*scope.bounds(n)):
                return False
        else:
            return False
    return True


def _in_range(low: int | None, high: int | None) -> bool:
    return low is not None and high is not None and low >= -(1 << 31) and high < 1 << 31


def _narrowed(index: Expr) -> Expr:
    def rule(e: Expr) -> Expr:
        if isinstance(e, Var):
            return Cast(e, dtypes.int32)
        if isinstance(e, Const):
            return const(e.value, dtypes.int32)
        if isinstance(e, Ramp):
            return Ramp(e.base, e.stride, e.lanes, dtypes.int32.with_lanes(e.lanes))
        if isinstance(e, Broadcast):
            return Broadcast(e.value, e.lanes, dtypes.int32.with_lanes(e.lanes))
        assert isinstance(e, Binary)
        return type(e)(e.a, e.b, dtypes.int32)

    return rewrite_expr(index, rule)
