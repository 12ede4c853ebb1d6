"""Scalar and vector types of Tensor IR.

A `DType` is a kind, a width in bits and a number of vector lanes. Booleans are stored as one byte holding 0 or 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

import ml_dtypes
import numpy as np

from tensorir.errors import ExpressionError

Kind = Literal["bool", "int", "uint", "float", "bfloat"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `kind`, `bits` of one lane and `lanes` (1 for a scalar)."""

    kind: Kind
    bits: int
    lanes: int = 1

    def __str__(self) -> str:
        base = {"bool": "bool", "bfloat": "bfloat16"}.get(self.kind, f"{self.kind}{self.bits}")
        return base if self.lanes == 1 else f"{base}x{self.lanes}"

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_float(self) -> bool:
        """True for float16, bfloat16, float32 and float64."""
        return self.kind in ("float", "bfloat")

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        """True for bool."""
        return self.kind == "bool"

    @property
    def nbytes(self) -> int:
        """Bytes that one lane takes in memory."""
        return self.bits // 8

    @property
    def element(self) -> DType:
        """The scalar type of one lane."""
        return self if self.lanes == 1 else scalar(self.kind, self.bits)

    def with_lanes(self, lanes: int) -> DType:
        """The same element type with another number of lanes."""
        return self if lanes == self.lanes else DType(self.kind, self.bits, lanes)

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype of one lane (bfloat16 through ml_dtypes)."""
        return _numpy_dtype(self.kind, self.bits)

    @property
    def min_value(self) -> int:
        """Smallest value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max_value(self) -> int:
        """Largest value of an integer type or bool."""
        if self.kind == "bool":
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1


@cache
def scalar(kind: Kind, bits: int) -> DType:
    """The scalar type of this kind and width."""
    return DType(kind, bits)


@cache
def _numpy_dtype(kind: str, bits: int) -> np.dtype:
    if kind == "bool":
        return np.dtype(np.bool_)
    if kind == "bfloat":
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(f"{kind}{bits}")


bool_ = scalar("bool", 8)
int8 = scalar("int", 8)
int16 = scalar("int", 16)
int32 = scalar("int", 32)
int64 = scalar("int", 64)
uint8 = scalar("uint", 8)
uint16 = scalar("uint", 16)
uint32 = scalar("uint", 32)
uint64 = scalar("uint", 64)
float16 = scalar("float", 16)
bfloat16 = scalar("bfloat", 16)
float32 = scalar("float", 32)
float64 = scalar("float", 64)

ALL_DTYPES = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
)  # fmt: skip

INDEX = int64
"""The type of loop variables, indices and dimensions until a target narrows them."""

_BY_NAME = {str(d): d for d in ALL_DTYPES}
_VECTOR = re.compile(r"^(.*?)x(\d+)$")


def dtype_of(value: DType | str | np.dtype | type) -> DType:
    """The `DType` meant by a DType, a name such as "float32" or "int8x4", a numpy dtype or a Python type.

    Raises `ExpressionError` naming the known types if it is none of ours.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        if value in _BY_NAME:
            return _BY_NAME[value]
        if (match := _VECTOR.match(value)) and match[1] in _BY_NAME:
            return _BY_NAME[match[1]].with_lanes(int(match[2]))
    if value is bool:
        return bool_
    if value is int:
        return INDEX
    if value is float:
        return float32
    try:
        name = np.dtype(value).name
    except TypeError:
        name = str(value)
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise ExpressionError(f"unknown dtype {value!r}", help=f"known dtypes are {', '.join(_BY_NAME)}")


def promote(a: DType, b: DType) -> DType:
    """The common type of two operands: equal kinds widen; an integer or bool meets a float in the float type.

    Signed with unsigned of the same or greater width, and float16 with bfloat16, have no implicit common type.
    Raises `ExpressionError`.
    """
    if a == b:
        return a
    lanes = max(a.lanes, b.lanes)
    if a.lanes != b.lanes and min(a.lanes, b.lanes) != 1:
        raise ExpressionError(f"operands have {a.lanes} and {b.lanes} lanes")
    x, y = a.element, b.element
    if x == y:
        return x.with_lanes(lanes)
    if x.kind == y.kind:
        return (x if x.bits >= y.bits else y).with_lanes(lanes)
    if x.is_bool:
        return y.with_lanes(lanes)
    if y.is_bool:
        return x.with_lanes(lanes)
    if x.is_float != y.is_float:
        return (x if x.is_float else y).with_lanes(lanes)
    if x.is_float:
        wide = x if x.bits > y.bits else y
        if x.bits != y.bits:
            return wide.with_lanes(lanes)
    elif x.kind != y.kind:
        signed, unsigned = (x, y) if x.kind == "int" else (y, x)
        if signed.bits > unsigned.bits:
            return signed.with_lanes(lanes)
    raise ExpressionError(f"{a} and {b} have no common type", help="cast one operand explicitly with .astype(...)")
