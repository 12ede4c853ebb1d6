"""Sums of halves (float16, bfloat16) are taken in float32: in float16 2048 + 1 is 2048, in bfloat16 256 + 1 is 256, and
300 squared is no float16. An op rounds once, where its result is made."""

from __future__ import annotations

from tensorir import te
from tensorir.dtypes import DType
from tensorir.expr import Expr
from tensorir.te import Tensor


def is_half(dtype: DType) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype.is_float and dtype.bits == 16


def wide(e: Expr) -> Expr:
    """A half as float32; anything else as it is."""
    return e.astype("float32") if is_half(e.dtype) else e


def rounded(t: Tensor, dtype: DType) -> Tensor:
    """What was computed from `wide` operands, in the type of the op's result: `t` itself where that is its type."""
    if t.dtype is dtype or t.dtype == dtype:
        return t
    return te.compute(t.shape, lambda *i: t(*i).astype(dtype), name=f"{t.name}_rounded")
