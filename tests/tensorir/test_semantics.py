"""The semantics page against numpy, exact fractions and brute force; the interpreter agrees with folding."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorir import dtypes, semantics
from tensorir import expr as ir
from tensorir.dtypes import ALL_DTYPES, DType
from tensorir.interpreter import evaluate
from tensorir.intrinsics import copysign, reinterpret

INTEGERS = [t for t in ALL_DTYPES if t.is_integer]
FLOATS = [t for t in ALL_DTYPES if t.is_float]


def integers(t: DType) -> st.SearchStrategy[int]:
    corners = [t.min_value, t.min_value + 1, 0, 1, 2, 3, t.max_value - 1, t.max_value]
    if t.kind == "int":
        corners += [-1, -2, -3]
    return st.one_of(st.sampled_from(corners), st.integers(t.min_value, t.max_value))


def floats(t: DType) -> st.SearchStrategy[float]:
    corners = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, math.inf, -math.inf, math.nan, -5.5, 3.0, 1e-40, 1e38, 1e18, 1e19]
    source = st.one_of(st.sampled_from(corners), st.floats(), st.floats(-100, 100), st.floats(width=32))
    return source.map(lambda x: semantics.cast(x, dtypes.float64, t))


def values(t: DType) -> st.SearchStrategy[Any]:
    return st.booleans() if t.is_bool else integers(t) if t.is_integer else floats(t)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and a != a:
        return b != b
    return type(a) is type(b) and a == b and math.copysign(1, a) == math.copysign(1, b)


def as_numpy(x: Any, t: DType) -> Any:
    return t.numpy.type(x)


# --------------------------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize("p", range(-20, 21))
def test_division_by_brute_force(p: int) -> None:
    """dmlc/HalideIR#52, apache/tvm#4127: quotients and remainders of both signs."""
    for q in (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5):
        exact = Fraction(p, q)
        for cls, rule in ((ir.FloorDiv, math.floor), (ir.TruncDiv, math.trunc)):
            assert semantics.fold(cls, (p, q), dtypes.int32) == rule(exact)
        assert semantics.fold(ir.FloorMod, (p, q), dtypes.int32) == p - q * math.floor(exact)
        assert semantics.fold(ir.TruncMod, (p, q), dtypes.int32) == p - q * math.trunc(exact)


def test_onnx_truncates_where_numpy_floors() -> None:
    """onnx/onnx#7570, microsoft/onnxruntime#26997: [8, -8, 7, -7] by [-3, 3, -2, 2]."""
    pairs = list(zip([8, -8, 7, -7], [-3, 3, -2, 2], strict=True))
    assert [semantics.fold(ir.TruncDiv, pq, dtypes.int32) for pq in pairs] == [-2, -2, -3, -3]
    assert [semantics.fold(ir.FloorDiv, pq, dtypes.int32) for pq in pairs] == [-3, -3, -4, -4]


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_division_by_zero_and_of_the_lowest_value(t: DType) -> None:
    for cls in (ir.FloorDiv, ir.FloorMod, ir.TruncDiv, ir.TruncMod):
        for x in (0, 1, t.min_value, t.max_value):
            assert semantics.fold(cls, (x, 0), t) == 0
    if t.kind == "int":
        assert semantics.fold(ir.FloorDiv, (t.min_value, -1), t) == t.min_value
        assert semantics.fold(ir.TruncDiv, (t.min_value, -1), t) == t.min_value
        assert semantics.fold(ir.TruncMod, (t.min_value, -1), t) == 0


_NUMPY: dict[type, Any] = {
    ir.Add: np.add, ir.Sub: np.subtract, ir.Mul: np.multiply, ir.FloorDiv: np.floor_divide, ir.FloorMod: np.mod,
    ir.TruncMod: np.fmod, ir.BitAnd: np.bitwise_and, ir.BitOr: np.bitwise_or, ir.BitXor: np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("t", INTEGERS, ids=str)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_integer_arithmetic_is_numpys(t: DType, data: st.DataObject) -> None:
    a, b = data.draw(integers(t)), data.draw(integers(t))
    x, y = np.array([a], t.numpy), np.array([b], t.numpy)
    with np.errstate(all="ignore"):
        for cls, function in _NUMPY.items():
            assert semantics.fold(cls, (a, b), t) == int(function(x, y)[0]), cls
    if 0 <= b < t.bits:
        assert semantics.fold(ir.ShiftLeft, (a, b), t) == int(np.left_shift(x, y)[0])
        assert semantics.fold(ir.ShiftRight, (a, b), t) == int(np.right_shift(x, y)[0])
    else:
        assert semantics.fold(ir.ShiftLeft, (a, b), t) == 0
        assert semantics.fold(ir.ShiftRight, (a, b), t) == (-1 if a < 0 else 0)


def test_unsigned_subtraction_wraps() -> None:
    """apache/tvm#12383: 0 - x of uint32."""
    got = [semantics.fold(ir.Sub, (0, x), dtypes.uint32) for x in (0, 3, 2, 0, 4)]
    assert got == [0, 4294967293, 4294967294, 0, 4294967292]


def test_int8_product_wraps_before_it_is_widened() -> None:
    """apache/tvm#12378: 127 * 127 of int8, then int64."""
    k = ir.const(127, "int8")
    e = ir.cast(ir.Mul(k, k, dtypes.int8), "int64") * ir.const(10, "int64")
    assert evaluate(e) == 10


def test_uint8_sum_wraps_before_it_is_widened() -> None:
    """pytorch/pytorch#105264: int16(x + x) of uint8 128."""
    x = ir.Var("x", dtypes.uint8)
    assert evaluate(ir.cast(x + x, "int16"), {x: 128}) == 0


# ------------------------------------------------------------------------------------------------------------ casts


def test_float_to_int8_is_the_onnx_cast() -> None:
    """apache/tvm#19542: 300, NaN and infinities to int8."""
    values = [300.0, math.nan, math.inf, -math.inf, 50.0, -50.0]
    got = [semantics.cast(v, dtypes.float32, dtypes.int8) for v in values]
    assert got == [44, 0, 0, 0, 50, -50]


@pytest.mark.parametrize("t", INTEGERS, ids=str)
@given(x=floats(dtypes.float64))
@settings(max_examples=80, deadline=None)
def test_float_to_integer(t: DType, x: float) -> None:
    got = semantics.cast(x, dtypes.float64, t)
    whole = math.trunc(x) if math.isfinite(x) else None
    if whole is None or not (-(2**63) <= whole < (2**64 if t == dtypes.uint64 else 2**63)):
        assert got == 0
    else:
        assert (got - whole) % (1 << t.bits) == 0
        assert t.min_value <= got <= t.max_value


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_integer_casts_are_numpys(source: DType, data: st.DataObject) -> None:
    x = data.draw(integers(source))
    array = np.array([x], source.numpy)
    for t in (*INTEGERS, dtypes.bool_, dtypes.float32, dtypes.float64):
        assert semantics.cast(x, source, t) == array.astype(t.numpy)[0]


def test_large_integer_to_float32_rounds_once() -> None:
    x = (1 << 60) + (1 << 36) + 1  # through float64 this would be a tie and go down
    assert semantics.cast(x, dtypes.int64, dtypes.float32) == float((1 << 60) + (1 << 37))


@given(x=st.floats(width=32))
@settings(max_examples=300, deadline=None)
def test_rounding_is_numpys_and_ml_dtypes(x: float) -> None:
    with np.errstate(all="ignore"):
        assert same(semantics.round_f16(x), float(np.float32(x).astype(np.float16)))
        assert same(semantics.round_bf16(x), float(np.float32(x).astype(ml_dtypes.bfloat16)))


def test_bfloat16_is_not_read_as_an_integer() -> None:
    """tile-ai/tvm#70: 1/1024 as bfloat16, doubled in float32."""
    bits = semantics.to_bits(1 / 1024, dtypes.bfloat16)
    assert bits == 0x3A80
    x = ir.Var("x", dtypes.bfloat16)
    assert evaluate(ir.cast(x, "float32") * 2.0, {x: 1 / 1024}) == 0.001953125


@given(x=st.floats())
@settings(max_examples=200, deadline=None)
def test_reinterpret_there_and_back(x: float) -> None:
    for t, bits in ((dtypes.float64, dtypes.int64), (dtypes.float32, dtypes.uint32), (dtypes.float16, dtypes.int16),
                    (dtypes.bfloat16, dtypes.uint16)):  # fmt: skip
        value = semantics.cast(x, dtypes.float64, t)
        assert same(semantics.reinterpret(semantics.reinterpret(value, t, bits), bits, t), value)


# ----------------------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("t", FLOATS, ids=str)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_float_arithmetic_rounds_after_every_operation(t: DType, data: st.DataObject) -> None:
    a, b = data.draw(floats(t)), data.draw(floats(t))
    wide = dtypes.float32 if t.bits == 16 else t
    with np.errstate(all="ignore"):
        x, y = as_numpy(a, wide), as_numpy(b, wide)
        for cls, result in ((ir.Add, x + y), (ir.Sub, x - y), (ir.Mul, x * y), (ir.Div, x / y)):
            assert same(semantics.fold(cls, (a, b), t), float(result.astype(t.numpy))), cls
        assert same(semantics.fold("sqrt", (a,), t), float(np.sqrt(x).astype(t.numpy)))
        for name, function in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.rint)):
            assert same(semantics.fold(name, (a,), t), float(function(x))), name
        for cls, function in ((ir.LT, np.less), (ir.LE, np.less_equal), (ir.EQ, np.equal), (ir.NE, np.not_equal)):
            assert semantics.fold(cls, (a, b), t) == bool(function(x, y))


@pytest.mark.parametrize("t", (dtypes.float32, dtypes.float64), ids=str)
@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_fma_rounds_once(t: DType, data: st.DataObject) -> None:
    a, b, c = data.draw(floats(t)), data.draw(floats(t)), data.draw(floats(t))
    if data.draw(st.booleans()):
        c = semantics.rounding(t)(-a * b)
    got = semantics.fma(a, b, c, t)
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        finite = [x if math.isfinite(x) else x for x in (a, b, c)]
        expected = finite[0] * finite[1] if not (math.isfinite(a) and math.isfinite(b)) else 0.0
        assert same(got, expected + c)
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        assert got == 0
        assert same(got, a * b + c) or a * b == 0 or c == 0 or math.copysign(1, got) > 0
        return
    assert math.isinf(got) or _is_nearest(got, exact, t)
    if math.isinf(got):
        top = Fraction(2) ** (128 if t.bits == 32 else 1024)
        assert abs(exact) >= top - top / 2 ** (25 if t.bits == 32 else 54)


def _is_nearest(got: float, exact: Fraction, t: DType) -> bool:
    x = as_numpy(got, t)
    with np.errstate(all="ignore"):
        down, up = np.nextafter(x, as_numpy(-np.inf, t)), np.nextafter(x, as_numpy(np.inf, t))
    distance = abs(Fraction(got) - exact)
    for other in (down, up):
        if np.isfinite(other):
            there = abs(Fraction(float(other)) - exact)
            if there < distance:
                return False
            if there == distance and semantics.to_bits(got, t) & 1:
                return False
    return True


def test_fma_breaks_false_ties() -> None:
    ulp = 2.0**-23
    a, b = 1.0 + ulp, 1.0 + 2.0**-12
    exact_tie = 1.0 + ulp / 2
    tiny = 2.0**-100
    assert semantics.fma_f32(exact_tie - ulp / 2, 1.0, ulp / 2) == 1.0  # a true tie, to even
    assert semantics.fma_f32(2.0**-50, 2.0**-50, 1.0) == 1.0
    assert semantics.fma_f32(1.0 + ulp, ulp / 2, 1.0) == 1.0 + ulp  # just above the tie, lost in double precision
    assert semantics.fma_f32(1.0 - ulp / 2, ulp / 2, 1.0 + ulp) == 1.0 + ulp  # just below the tie above an odd value
    assert semantics.fma_f32(a, b, -a * b) == float(Fraction(a) * Fraction(b) - Fraction(a * b))
    assert semantics.fma_f32(1.0, tiny, 1.0) == 1.0
    top = 2.0**128 - 2.0**104
    assert semantics.fma_f32(2.0**103, 1.0 - ulp / 2, top) == top  # below the tie with infinity
    assert semantics.fma_f32(2.0**103, 1.0, top) == math.inf


def test_fma_of_float64_keeps_what_two_roundings_lose() -> None:
    x = 1.0 + 2.0**-52
    assert semantics.fma_f64(x, x, -(1.0 + 2.0**-51)) == 2.0**-104
    assert same(semantics.fma_f64(-1e-200, 1e-200, -0.0), -0.0)
    assert semantics.fma_f64(1e200, 1e200, -math.inf) == -math.inf
    assert semantics.fma_f64(1e200, 1e200, 0.0) == math.inf


@given(a=floats(dtypes.float16), b=floats(dtypes.float16), c=floats(dtypes.float16))
@settings(max_examples=200, deadline=None)
def test_fma_of_halves_is_the_rounded_float32_fma(a: float, b: float, c: float) -> None:
    assert same(semantics.fma(a, b, c, dtypes.float16), semantics.round_f16(semantics.fma_f32(a, b, c)))


def test_mod_of_floats() -> None:
    """apache/tvm#20170, #17881: remainders of floats with the sign of either operand."""
    f32 = dtypes.float32
    assert semantics.fold(ir.TruncMod, (-5.5, 3.0), f32) == -2.5
    assert semantics.fold(ir.FloorMod, (-5.0, 3.0), f32) == 1.0
    for x, expected in ((5.3, -0.7), (-5.3, -1.3)):
        got = semantics.fold(ir.FloorMod, (float(np.float32(x)), -2.0), f32)
        assert got == pytest.approx(expected, abs=1e-6)
    assert semantics.fold(ir.FloorMod, (3.0, math.inf), f32) == 3.0
    assert math.isnan(semantics.fold(ir.FloorMod, (3.0, 0.0), f32))  # type: ignore[arg-type]


@pytest.mark.parametrize("t", (dtypes.float16, dtypes.float32, dtypes.float64), ids=str)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_float_division_with_remainder_is_numpys(t: DType, data: st.DataObject) -> None:
    a = semantics.cast(data.draw(st.floats(-1e3, 1e3)), dtypes.float64, t)
    b = semantics.cast(data.draw(st.floats(-1e3, 1e3)), dtypes.float64, t)
    if b == 0 or abs(b) < 1e-2:
        return
    with np.errstate(all="ignore"):
        x, y = as_numpy(a, t), as_numpy(b, t)
        assert same(semantics.fold(ir.TruncMod, (a, b), t), float(np.fmod(x, y)))
        assert same(semantics.fold(ir.FloorMod, (a, b), t), float(np.mod(x, y)))
        assert same(semantics.fold(ir.FloorDiv, (a, b), t), float(np.floor_divide(x, y)))


def test_min_and_max_propagate_nan() -> None:
    """apache/tvm#19579: NaN on either side."""
    nan = math.nan
    for cls in (ir.Min, ir.Max):
        for pair in ((nan, 1.0), (1.0, nan), (nan, nan), (nan, math.inf)):
            assert math.isnan(semantics.fold(cls, pair, dtypes.float32))  # type: ignore[arg-type]
    assert semantics.fold(ir.Max, (2.0, 1.0), dtypes.float32) == 2.0
    assert same(semantics.fold(ir.Max, (0.0, -0.0), dtypes.float32), -0.0)
    assert same(semantics.fold(ir.Min, (-0.0, 0.0), dtypes.float32), 0.0)


# ------------------------------------------------------------------------------------- the interpreter agrees with fold

_BINARY = (
    ir.Add, ir.Sub, ir.Mul, ir.Div, ir.FloorDiv, ir.FloorMod, ir.TruncDiv, ir.TruncMod, ir.Min, ir.Max, ir.BitAnd,
    ir.BitOr, ir.BitXor, ir.ShiftLeft, ir.ShiftRight, ir.EQ, ir.NE, ir.LT, ir.LE,
)  # fmt: skip
_INTEGER_ONLY = (ir.BitAnd, ir.BitOr, ir.BitXor, ir.ShiftLeft, ir.ShiftRight)


@pytest.mark.parametrize("t", [t for t in ALL_DTYPES if not t.is_bool], ids=str)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_interpreter_agrees_with_folding(t: DType, data: st.DataObject) -> None:
    x, y = ir.Var("x", t), ir.Var("y", t)
    a, b = data.draw(values(t)), data.draw(values(t))
    for cls in _BINARY:
        if (cls is ir.Div and not t.is_float) or (cls in _INTEGER_ONLY and t.is_float):
            continue
        dtype = dtypes.bool_ if issubclass(cls, ir.Compare) else t
        wanted = semantics.fold(cls, (a, b), t)
        assert same(evaluate(cls(x, y, dtype), {x: a, y: b}), wanted), cls
        literals = cls(ir.const(a, t), ir.const(b, t), dtype)
        assert same(evaluate(literals), wanted), cls
        folded = semantics.fold_expr(literals)
        assert folded is not None and same(folded.value, wanted), cls
    for target in ALL_DTYPES:
        wanted = semantics.cast(a, t, target)
        assert same(evaluate(ir.Cast(x, target), {x: a}), wanted), target
    if t.is_float:
        c = data.draw(values(t))
        assert same(evaluate(ir.Fma(x, y, ir.const(c, t), t), {x: a, y: b}), semantics.fma(a, b, c, t))
        assert same(evaluate(copysign(x, y), {x: a, y: b}), math.copysign(a, b))
    bits = next(u for u in ALL_DTYPES if u.kind == "int" and u.bits == t.bits)
    if a == a:
        assert evaluate(reinterpret(x, bits), {x: a}) == semantics.reinterpret(a, t, bits)


def test_vector_and_scalar_agree() -> None:
    base = ir.Var("base", dtypes.int8)
    vector = ir.ramp(base, ir.const(50, "int8"), 8)
    lanes = [semantics.wrap(100 + 50 * lane, dtypes.int8) for lane in range(8)]
    assert evaluate(vector, {base: 100}) == lanes
    product = ir.Mul(vector, ir.broadcast(base, 8), vector.dtype)
    assert evaluate(product, {base: 100}) == [semantics.wrap(v * 100, dtypes.int8) for v in lanes]
