"""Arithmetic of float16 and bfloat16 in float32, rounded after every operation, where the target has no such type.

    C[i] = A[i] * B[i] + 1   →   C[i] = half(float(half(float(A[i]) * float(B[i]))) + 1.0)

Loads, stores, selection and conversions keep the narrow type. An Fma is always done in float32: the semantics page
rounds its float32 result once more.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorir import dtypes
from tensorir.dtypes import DType
from tensorir.expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    Binary,
    Call,
    Compare,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    Max,
    Min,
    Mul,
    Sub,
    TruncDiv,
    TruncMod,
    cast,
)
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.visit import children, rewrite_expr, rewrite_stmt, with_body, with_children


def legalize_half(func: Func, target: Target) -> Func:
    """`func` with 16-bit float arithmetic done in float32 unless `target` has it natively."""
    native = [dtypes.float16] if target.native_float16 else []
    native += [dtypes.bfloat16] if target.native_bfloat16 else []
    memo: dict[Expr, Expr] = {}

    def rule(e: Expr) -> Expr:
        widen = _WIDEN.get(type(e))
        return e if widen is None else widen(e, native)

    return with_body(func, rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, rule, memo)))


def _is_half(t: DType) -> bool:
    return t.is_float and t.bits == 16


def _in_float32(e: Expr) -> Expr:
    """The node on operands converted to float32, its result converted back."""
    wide = dtypes.float32.with_lanes(e.dtype.lanes)
    result = with_children(e, tuple(cast(c, wide) if _is_half(c.dtype) else c for c in children(e)))
    if not _is_half(e.dtype):
        return result
    return cast(_with_dtype(result, wide), e.dtype)


def _with_dtype(e: Expr, t: DType) -> Expr:
    if isinstance(e, Call):
        return Call(e.name, e.args, t)
    if isinstance(e, Fma):
        return Fma(e.a, e.b, e.c, t)
    assert isinstance(e, Binary)
    return type(e)(e.a, e.b, t)


def _binary(e: Expr, native: list[DType]) -> Expr:
    assert isinstance(e, Binary)
    operand = e.a.dtype if isinstance(e, Compare) else e.dtype
    return _in_float32(e) if _is_half(operand) and operand.element not in native else e


def _fma(e: Expr, native: list[DType]) -> Expr:
    return _in_float32(e) if _is_half(e.dtype) else e


def _call(e: Expr, native: list[DType]) -> Expr:
    assert isinstance(e, Call)
    if e.name in _BITWISE or e.name.startswith("extern:") or not e.args:
        return e
    operand = e.args[0].dtype
    return _in_float32(e) if _is_half(operand) and operand.element not in native else e


_BITWISE = ("reinterpret", "address", "prefetch", "shuffle", "shuffle_down", "async_copy")
_WIDEN: dict[type, Callable[[Expr, list[DType]], Expr]] = {
    **dict.fromkeys((Add, Sub, Mul, Div, Min, Max, EQ, NE, LT, LE, FloorDiv, FloorMod, TruncDiv, TruncMod), _binary),
    Fma: _fma,
    Call: _call,
}
