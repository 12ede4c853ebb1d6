"""What each operation of Tensor IR gives on single values: SEMANTICS.md as code.

Values are Python `bool`, `int` (already in the range of its type) and `float` (already representable in its type;
float16, bfloat16 and float32 values are held in Python floats). The interpreter, constant folding (`fold`) and the
tests of code generators use these functions and no others.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tensorir import dtypes
from tensorir import expr as ir
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.intrinsics import MATRIX, SHUFFLES

Value = bool | int | float

INF = math.inf
NAN = math.nan

_cell = memoryview(bytearray(8))
_f32 = _cell.cast("f")
_u32 = _cell.cast("I")
_f64 = _cell.cast("d")
_u64 = _cell.cast("Q")
_i32 = _cell.cast("i")
_i64 = _cell.cast("q")
_VIEWS: dict[DType, Any] = {
    dtypes.float32: _f32, dtypes.uint32: _u32, dtypes.int32: _i32,
    dtypes.float64: _f64, dtypes.uint64: _u64, dtypes.int64: _i64,
}  # fmt: skip
_pack_half = struct.Struct("<e").pack
_unpack_half = struct.Struct("<e").unpack
_F32_TIE_AT_MAX = 2.0**128 - 2.0**103  # halfway between the largest float32 and what would come next
_F32_MAX = 2.0**128 - 2.0**104


# -------------------------------------------------------------------------------------------------------- rounding


def round_f32(x: float) -> float:
    """`x` rounded to float32 (nearest even; overflow gives an infinity)."""
    _f32[0] = x
    return _f32[0]


def round_f16(x: float) -> float:
    """`x` rounded to float16."""
    try:
        return _unpack_half(_pack_half(x))[0]
    except OverflowError:
        return math.copysign(INF, x)


def round_bf16(x: float) -> float:
    """`x` rounded to float32, then to bfloat16 (nearest even)."""
    _f32[0] = x
    bits = _u32[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return NAN
    _u32[0] = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return _f32[0]


def round_f64(x: float) -> float:
    """`x` itself."""
    return x


_ROUND: dict[DType, Callable[[float], float]] = {
    dtypes.float64: round_f64,
    dtypes.float32: round_f32,
    dtypes.float16: round_f16,
    dtypes.bfloat16: round_bf16,
}


def rounding(t: DType) -> Callable[[float], float]:
    """The rounding of the float type `t`, for the result of one operation computed in double precision."""
    return _ROUND[t.element]


def wrap(x: int, t: DType) -> int:
    """`x` modulo 2**bits in the range of the integer type `t`."""
    x &= (1 << t.bits) - 1
    return x - (1 << t.bits) if t.kind == "int" and x >> (t.bits - 1) else x


# --------------------------------------------------------------------------------------------------- float operations


def divide(a: float, b: float) -> float:
    """IEEE division in double precision."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0.0 or a != a:
            return NAN
        return math.copysign(INF, a) * math.copysign(1.0, b)


def fma_f32(a: float, b: float, c: float) -> float:
    """a*b + c of float32 values with one rounding.

    The product is exact in double precision. Rounding the double sum to float32 goes wrong only where that sum lies
    exactly halfway between two float32 values while the true sum does not; then the sum's rounding error decides.
    """
    p = a * b
    s = p + c
    _f32[0] = s
    r = _f32[0]
    t = s - p
    error = (p - (s - t)) + (c - t)
    if error:
        distance = s - r
        if distance:
            other = s + distance
            _f32[0] = other
            if _f32[0] == other:
                return _break_tie(s, r, other, error)
    return r


def _break_tie(s: float, r: float, other: float, error: float) -> float:
    if r - r != 0.0:  # rounded to an infinity
        if abs(s) == _F32_TIE_AT_MAX and (error < 0.0) == (s > 0.0):
            return math.copysign(_F32_MAX, s)
        return r
    return max(r, other) if error > 0.0 else min(r, other)


def fma_f64(a: float, b: float, c: float) -> float:
    """a*b + c of float64 values with one rounding, through exact rational arithmetic."""
    product = a * b
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return product + c if not (math.isfinite(a) and math.isfinite(b)) else c
    if a == 0.0 or b == 0.0:
        return product + c
    an, ad = a.as_integer_ratio()
    bn, bd = b.as_integer_ratio()
    cn, cd = c.as_integer_ratio()
    numerator = an * bn * cd + cn * ad * bd
    if numerator == 0:
        return 0.0
    try:
        return numerator / (ad * bd * cd)
    except OverflowError:
        return INF if numerator > 0 else -INF


def fma(a: float, b: float, c: float, t: DType) -> float:
    """a*b + c of type `t`; float16 and bfloat16 round the float32 result."""
    if t.bits == 64:
        return fma_f64(a, b, c)
    result = fma_f32(a, b, c)
    return result if t.bits == 32 else rounding(t)(result)


def trunc_mod_float(a: float, b: float, t: DType) -> float:
    """Remainder with the sign of the dividend (see the page for its range)."""
    w = t if t.bits >= 32 else dtypes.float32
    if math.isinf(b) and math.isfinite(a):
        return a
    q = trunc(rounding(w)(divide(a, b)))
    r = fma(-q, b, a, w)
    if r != 0.0 and (r < 0.0) != (a < 0.0):
        r = rounding(w)(r + math.copysign(b, a))
    if r == 0.0:
        r = math.copysign(r, a)
    return rounding(t)(r)


def floor_mod_float(a: float, b: float, t: DType) -> float:
    """Remainder with the sign of the divisor."""
    w = t if t.bits >= 32 else dtypes.float32
    r = trunc_mod_float(a, b, w)
    if r != 0.0 and (r < 0.0) != (b < 0.0):
        r = rounding(w)(r + b)
    if r == 0.0:
        r = math.copysign(r, b)
    return rounding(t)(r)


def floor_div_float(a: float, b: float, t: DType) -> float:
    """floor(a / b) by numpy's rule."""
    w = t if t.bits >= 32 else dtypes.float32
    rnd = rounding(w)
    quotient = rnd(divide(a, b))
    if b == 0.0:
        return rounding(t)(quotient)
    d = rnd(divide(rnd(a - floor_mod_float(a, b, w)), b))
    down = floor(d)
    whole = rnd(down + 1.0) if rnd(d - down) > 0.5 else down
    if whole == 0.0:
        whole = math.copysign(whole, quotient)
    return rounding(t)(whole)


def trunc_div_float(a: float, b: float, t: DType) -> float:
    """trunc(a / b)."""
    w = t if t.bits >= 32 else dtypes.float32
    return rounding(t)(trunc(rounding(w)(divide(a, b))))


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN if either is; of equal ones the second."""
    return a if a != a or a < b else b


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN if either is; of equal ones the second."""
    return a if a != a or a > b else b


def sqrt(x: float) -> float:
    """Square root in double precision; NaN for negative numbers."""
    return math.sqrt(x) if x >= 0.0 else x if x != x else NAN


def floor(x: float) -> float:
    """Largest whole number not above `x`; zero keeps the sign of `x`."""
    return math.copysign(float(math.floor(x)), x) if x - x == 0.0 else x


def ceil(x: float) -> float:
    """Smallest whole number not below `x`; zero keeps the sign of `x`."""
    return math.copysign(float(math.ceil(x)), x) if x - x == 0.0 else x


def trunc(x: float) -> float:
    """`x` without its fraction; zero keeps the sign of `x`."""
    return math.copysign(float(int(x)), x) if x - x == 0.0 else x


def round_even(x: float) -> float:
    """The nearest whole number, halves to even; zero keeps the sign of `x`."""
    return math.copysign(float(round(x)), x) if x - x == 0.0 else x


# ------------------------------------------------------------------------------------------------- integer operations


def floor_div(a: int, b: int) -> int:
    """Quotient rounded to minus infinity, before wrapping; 0 for divisor 0."""
    return a // b if b else 0


def floor_mod(a: int, b: int) -> int:
    """Remainder with the sign of the divisor; 0 for divisor 0."""
    return a % b if b else 0


def trunc_div(a: int, b: int) -> int:
    """Quotient rounded to zero, before wrapping; 0 for divisor 0."""
    if not b:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """Remainder with the sign of the dividend; 0 for divisor 0."""
    if not b:
        return 0
    r = abs(a) % abs(b)
    return -r if a < 0 else r


def shift_left(a: int, b: int, bits: int) -> int:
    """a << b before wrapping; 0 for amounts outside [0, bits)."""
    return a << b if 0 <= b < bits else 0


def shift_right(a: int, b: int, bits: int) -> int:
    """a >> b; 0 or -1 for amounts outside [0, bits)."""
    return a >> b if 0 <= b < bits else -1 if a < 0 else 0


# -------------------------------------------------------------------------------------------------------------- casts


def float_to_int(x: float, t: DType) -> int:
    """Truncated to zero, wrapped through int64; 0 for NaN, infinities and what int64 (uint64) cannot hold."""
    if x - x != 0.0:
        return 0
    whole = int(x)
    if -(1 << 63) <= whole < (1 << 63) or (t.kind == "uint" and t.bits == 64 and 0 <= whole < 1 << 64):
        return wrap(whole, t)
    return 0


def int_to_f32(x: int) -> float:
    """An integer of up to 64 bits as float32 with one rounding."""
    if -(1 << 53) <= x <= 1 << 53:
        return round_f32(float(x))
    return float(np.float32(np.uint64(x) if x >= 0 else np.int64(x)))


def cast(x: Value, source: DType, target: DType) -> Value:
    """`x` of type `source` converted to `target`."""
    if target.is_bool:
        return x != 0
    if target.is_integer:
        return float_to_int(float(x), target) if source.is_float else wrap(int(x), target)
    if not source.is_float:
        if target.bits == 64:
            return float(x)
        single = int_to_f32(int(x))
    else:
        if target.bits == 64:
            return float(x)
        single = round_f32(float(x))
    return single if target.bits == 32 else rounding(target)(single)


def reinterpret(x: Value, source: DType, target: DType) -> Value:
    """The same bits as another type of the same width."""
    return reinterpreter(source, target)(x)


@cache
def reinterpreter(source: DType, target: DType) -> Callable[[Any], Any]:
    """The function that reads the bits of one type as another."""
    if source.bits in (32, 64):
        inward, outward = _VIEWS[source], _VIEWS[target]

        def through(x: Value) -> Value:
            inward[0] = x
            return outward[0]

        return through
    return lambda x: from_bits(to_bits(x, source), target)


def to_bits(x: Value, t: DType) -> int:
    """The bits of a value as a non-negative integer."""
    if not t.is_float:
        return int(x) & ((1 << t.bits) - 1)
    if t.bits == 64:
        _f64[0] = float(x)
        return _u64[0]
    if t.kind == "float" and t.bits == 16:
        return int.from_bytes(_pack_half(x), "little")
    _f32[0] = float(x)
    return _u32[0] if t.bits == 32 else _u32[0] >> 16


def from_bits(bits: int, t: DType) -> Value:
    """The value that a type's bits stand for."""
    if t.is_bool:
        return bool(bits)
    if t.is_integer:
        return wrap(bits, t)
    if t.bits == 64:
        _u64[0] = bits
        return _f64[0]
    if t.kind == "float" and t.bits == 16:
        return _unpack_half(bits.to_bytes(2, "little"))[0]
    _u32[0] = bits if t.bits == 32 else bits << 16
    return _f32[0]


# ------------------------------------------------------------------------------------------------------------ folding

_INTEGER: dict[type, Callable[[int, int, DType], int]] = {
    ir.Add: lambda a, b, t: wrap(a + b, t),
    ir.Sub: lambda a, b, t: wrap(a - b, t),
    ir.Mul: lambda a, b, t: wrap(a * b, t),
    ir.FloorDiv: lambda a, b, t: wrap(floor_div(a, b), t),
    ir.FloorMod: lambda a, b, t: floor_mod(a, b),
    ir.TruncDiv: lambda a, b, t: wrap(trunc_div(a, b), t),
    ir.TruncMod: lambda a, b, t: trunc_mod(a, b),
    ir.BitAnd: lambda a, b, t: a & b,
    ir.BitOr: lambda a, b, t: a | b,
    ir.BitXor: lambda a, b, t: a ^ b,
    ir.ShiftLeft: lambda a, b, t: wrap(shift_left(a, b, t.bits), t),
    ir.ShiftRight: lambda a, b, t: shift_right(a, b, t.bits),
}

_FLOAT: dict[type, Callable[[float, float, DType], float]] = {
    ir.Add: lambda a, b, t: rounding(t)(a + b),
    ir.Sub: lambda a, b, t: rounding(t)(a - b),
    ir.Mul: lambda a, b, t: rounding(t)(a * b),
    ir.Div: lambda a, b, t: rounding(t)(divide(a, b)),
    ir.FloorDiv: floor_div_float,
    ir.FloorMod: floor_mod_float,
    ir.TruncDiv: trunc_div_float,
    ir.TruncMod: trunc_mod_float,
}

_ANY: dict[type, Callable[[Any, Any], Any]] = {
    ir.Min: minimum,
    ir.Max: maximum,
    ir.EQ: lambda a, b: a == b,
    ir.NE: lambda a, b: a != b,
    ir.LT: lambda a, b: a < b,
    ir.LE: lambda a, b: a <= b,
    ir.And: lambda a, b: bool(a) and bool(b),
    ir.Or: lambda a, b: bool(a) or bool(b),
}

_INTRINSICS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda t, x: rounding(t)(sqrt(x)),
    "floor": lambda t, x: floor(x),
    "ceil": lambda t, x: ceil(x),
    "trunc": lambda t, x: trunc(x),
    "round": lambda t, x: round_even(x),
    "abs": lambda t, x: math.fabs(x) if t.is_float else wrap(abs(x), t),
    "copysign": lambda t, x, y: math.copysign(x, y),
    "isnan": lambda t, x: x != x,
    "isinf": lambda t, x: x in (INF, -INF),
}


def pack4(a: int, b: int, c: int, d: int) -> int:
    """Four 8-bit values as the bytes of a uint32, the first the lowest."""
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24


def dot4_i8(total: int, a: int, b: int) -> int:
    """`total` plus the dot product of four unsigned bytes with four signed ones, wrapped to int32."""
    for shift in (0, 8, 16, 24):
        y = b >> shift & 255
        total += (a >> shift & 255) * (y - 256 if y > 127 else y)
    return (total + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


def dot4_s8(total: int, a: int, b: int) -> int:
    """`total` plus the dot product of four signed bytes with four signed ones, wrapped to int32."""
    for shift in (0, 8, 16, 24):
        x, y = a >> shift & 255, b >> shift & 255
        total += (x - 256 if x > 127 else x) * (y - 256 if y > 127 else y)
    return (total + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


_INTRINSICS["async_copy"] = lambda t, x: x
_INTRINSICS["pack4"] = lambda t, *x: pack4(*x)
_INTRINSICS["dot4_i8"] = lambda t, *x: dot4_i8(*x)
_INTRINSICS["dot4_s8"] = lambda t, *x: dot4_s8(*x)

PRIMITIVES = frozenset(
    (
        *_INTRINSICS, "reinterpret", "address", "prefetch", "barrier", "copy_commit", "copy_wait", *SHUFFLES, *MATRIX,
    )
)  # fmt: skip
"""The intrinsics that are not expressions over others."""


def fold(op: type | str, values: Sequence[Value], dtype: DType, source: DType | None = None) -> Value:
    """The value of one node on literal operands.

    `op` is an expression class (Add, Select, Cast, Fma, ...) or the name of a primitive intrinsic; `dtype` is the type
    of its operands, for Cast and reinterpret the type of the result (then `source` is the operand's).
    """
    t = dtype.element
    if isinstance(op, str):
        if op == "reinterpret":
            assert source is not None
            return reinterpret(values[0], source.element, t)
        return _INTRINSICS[op](t, *values)
    if op is ir.Cast:
        assert source is not None
        return cast(values[0], source.element, t)
    if op is ir.Not:
        return not values[0]
    if op in (ir.Select, ir.IfThenElse):
        return values[1] if values[0] else values[2]
    if op is ir.Fma:
        return fma(values[0], values[1], values[2], t)
    if op in _ANY:
        return _ANY[op](*values)
    table: dict[type, Callable[..., Any]] = _FLOAT if t.is_float else _INTEGER
    if op not in table:
        raise InternalError(f"{op.__name__} has no meaning on {t}")
    return table[op](values[0], values[1], t)


def fold_expr(e: ir.Expr) -> ir.Const | None:
    """The literal that a scalar node with literal operands stands for; None if it is no such node."""
    if e.dtype.lanes != 1:
        return None
    if isinstance(e, ir.Binary):
        operands: tuple[ir.Expr, ...] = (e.a, e.b)
    elif isinstance(e, ir.Fma):
        operands = (e.a, e.b, e.c)
    elif isinstance(e, (ir.Select, ir.IfThenElse)):
        operands = (e.condition, e.a, e.b)
    elif isinstance(e, ir.Not):
        operands = (e.a,)
    elif isinstance(e, ir.Cast):
        operands = (e.value,)
    elif isinstance(e, ir.Call) and (e.name in _INTRINSICS or e.name == "reinterpret"):
        operands = e.args
    else:
        return None
    values: list[Any] = []
    for operand in operands:
        if not isinstance(operand, ir.Const):
            return None
        values.append(operand.value)
    op = e.name if isinstance(e, ir.Call) else type(e)
    first = operands[-1].dtype
    converts = isinstance(e, ir.Cast) or op == "reinterpret"
    return ir.Const(fold(op, values, e.dtype if converts else first, first), e.dtype)
