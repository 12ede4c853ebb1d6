"""Casts: one that does nothing leaves, one after a value-preserving cast stands alone."""

from __future__ import annotations

from tensorir.dtypes import DType
from tensorir.expr import Cast, Expr, cast

_FLOAT_DIGITS = {("float", 16): 11, ("bfloat", 16): 8, ("float", 32): 24, ("float", 64): 53}
_FLOAT_RANGE = {("float", 16): 5, ("bfloat", 16): 8, ("float", 32): 8, ("float", 64): 11}


def keeps_value(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source.is_bool:
        return True
    if source.is_integer and target.is_integer:
        return source.min_value >= target.min_value and source.max_value <= target.max_value
    if source.is_integer and target.is_float:
        return source.bits - (source.kind == "int") <= _FLOAT_DIGITS[target.kind, target.bits]
    if source.is_float and target.is_float:
        s, t = (source.kind, source.bits), (target.kind, target.bits)
        return _FLOAT_DIGITS[s] <= _FLOAT_DIGITS[t] and _FLOAT_RANGE[s] <= _FLOAT_RANGE[t]
    return False


def _recast(e: Expr) -> Expr | None:
    """cast(cast(x, wide), t) -> cast(x, t)."""
    assert isinstance(e, Cast)
    inner = e.value
    if isinstance(inner, Cast) and keeps_value(inner.value.dtype.element, inner.dtype.element):
        source = inner.value.dtype
        if source.element == e.dtype.element:
            return inner.value
        if not e.dtype.is_bool:
            return cast(inner.value, e.dtype)
    return None


def simplify_cast(e: Expr, analyzer: object) -> Expr | None:
    """The rules of casts; they depend on three types, which patterns do not show."""
    assert isinstance(e, Cast)
    return e.value if e.value.dtype == e.dtype else _recast(e)
