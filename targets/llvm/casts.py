"""Conversions between types, by the semantics page: every result is defined, none is LLVM poison.

The 16-bit floats live in registers as `i16`. float16 uses the hardware's conversion where there is one and integer
arithmetic elsewhere; bfloat16 always uses integer arithmetic, because the hardware's instruction flushes denormals.
"""

from __future__ import annotations

from targets.llvm.text import FunctionWriter, integer_type, literal, register_type, vector_of
from tensorir import dtypes
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.target import Target


def is_narrow_float(dtype: DType) -> bool:
    """True for float16 and bfloat16, which are kept as integers in registers."""
    return dtype.is_float and dtype.bits == 16


def has_float16_conversion(target: Target) -> bool:
    """True where float16 to and from float32 is an instruction."""
    return target.arch == "aarch64" or bool({"f16c", "avx512f", "avx512fp16"} & target.features)


def convert(w: FunctionWriter, value: str, source: DType, result: DType, target: Target) -> str:
    """`value` of type `source` as a value of type `result`."""
    if source.lanes != result.lanes:
        raise InternalError(f"a cast from {source} to {result} changes the number of lanes")
    if source == result:
        return value
    if result.is_bool:
        return _to_bool(w, value, source)
    if is_narrow_float(source):
        wide = dtypes.float32.with_lanes(source.lanes)
        return convert(w, widen(w, value, source, target), wide, result, target)
    if source.is_float:
        return _from_float(w, value, source, result, target)
    if result.is_float:
        return _integer_to_float(w, value, source, result, target)
    return _integer_to_integer(w, value, source, result)


def _to_bool(w: FunctionWriter, value: str, source: DType) -> str:
    t = register_type(source)
    if is_narrow_float(source):
        magnitude = w.op(f"and {t} {value}, {_int(0x7FFF, source)}")
        return w.op(f"icmp ne {t} {magnitude}, zeroinitializer")
    if source.is_float:
        return w.op(f"fcmp une {t} {value}, zeroinitializer")
    return w.op(f"icmp ne {t} {value}, {_int(0, source)}")


def _from_float(w: FunctionWriter, value: str, source: DType, result: DType, target: Target) -> str:
    s, r = register_type(source), register_type(result)
    if not result.is_float:
        return float_to_integer(w, value, source, result)
    if is_narrow_float(result):
        return narrow(w, value, source, result, target)
    return w.op(f"{'fpext' if result.bits > source.bits else 'fptrunc'} {s} {value} to {r}")


def float_to_integer(w: FunctionWriter, value: str, source: DType, result: DType) -> str:
    """Truncation to an integer, wrapped into the type; NaN, infinities and what no 64-bit integer holds give 0."""
    s, bits = register_type(source), vector_of("i1", source.lanes)
    above = w.op(f"fcmp oge {s} {value}, {literal(-(2.0**63), source)}")
    inside = w.op(f"and {bits} {above}, {w.op(f'fcmp olt {s} {value}, {literal(2.0**63, source)}')}")
    safe = w.op(f"select {bits} {inside}, {s} {value}, {s} zeroinitializer")
    wide_type = vector_of("i64", source.lanes)
    wide = w.op(f"fptosi {s} {safe} to {wide_type}")
    if result.bits < 64:
        return w.op(f"trunc {wide_type} {wide} to {register_type(result)}")
    if result.kind == "int":
        return wide
    # [2**63, 2**64) as the lower half with the top bit set
    low = w.op(f"fcmp oge {s} {value}, {literal(2.0**63, source)}")
    high = w.op(f"fcmp olt {s} {value}, {literal(2.0**64, source)}")
    upper = w.op(f"and {bits} {low}, {high}")
    moved = w.op(f"fsub {s} {value}, {literal(2.0**63, source)}")
    moved = w.op(f"select {bits} {upper}, {s} {moved}, {s} zeroinitializer")
    top = w.op(f"xor {wide_type} {w.op(f'fptosi {s} {moved} to {wide_type}')}, {literal(-(1 << 63), result)}")
    return w.op(f"select {bits} {upper}, {wide_type} {top}, {wide_type} {wide}")


def _integer_to_float(w: FunctionWriter, value: str, source: DType, result: DType, target: Target) -> str:
    if is_narrow_float(result):
        wide = dtypes.float32.with_lanes(source.lanes)
        return narrow(w, _integer_to_float(w, value, source, wide, target), wide, result, target)
    instruction = "sitofp" if source.kind == "int" else "uitofp"
    return w.op(f"{instruction} {register_type(source)} {value} to {register_type(result)}")


def _integer_to_integer(w: FunctionWriter, value: str, source: DType, result: DType) -> str:
    source_bits = 1 if source.is_bool else source.bits
    if source_bits == result.bits:
        return value
    if source_bits > result.bits:
        instruction = "trunc"
    else:
        instruction = "sext" if source.kind == "int" else "zext"
    return w.op(f"{instruction} {register_type(source)} {value} to {register_type(result)}")


# -------------------------------------------------------------------------------------------------- 16-bit floats


def widen(w: FunctionWriter, value: str, source: DType, target: Target) -> str:
    """A 16-bit float, held as an integer, as float32."""
    n = source.lanes
    i16, i32, f32 = vector_of("i16", n), vector_of("i32", n), vector_of("float", n)
    word = dtypes.int32.with_lanes(n)
    if source.kind == "bfloat":
        bits = w.op(f"zext {i16} {value} to {i32}")
        return w.op(f"bitcast {i32} {w.op(f'shl {i32} {bits}, {_int(16, word)}')} to {f32}")
    if has_float16_conversion(target):
        half = w.op(f"bitcast {i16} {value} to {vector_of('half', n)}")
        return w.op(f"fpext {vector_of('half', n)} {half} to {f32}")
    bits = w.op(f"zext {i16} {value} to {i32}")
    sign = w.op(f"shl {i32} {w.op(f'and {i32} {bits}, {_int(0x8000, word)}')}, {_int(16, word)}")
    magnitude = w.op(f"shl {i32} {w.op(f'and {i32} {bits}, {_int(0x7FFF, word)}')}, {_int(13, word)}")
    # The exponent moves from bias 15 to 127 by one multiplication, which is exact for denormals too.
    scaled = w.op(
        f"fmul {f32} {w.op(f'bitcast {i32} {magnitude} to {f32}')}, {literal(2.0**112, dtypes.float32.with_lanes(n))}"
    )
    finite = w.op(f"bitcast {f32} {scaled} to {i32}")
    special = w.op(f"icmp uge {i32} {magnitude}, {_int(0x7C00 << 13, word)}")
    infinite = w.op(f"or {i32} {finite}, {_int(0x7F800000, word)}")
    chosen = w.op(f"select {vector_of('i1', n)} {special}, {i32} {infinite}, {i32} {finite}")
    return w.op(f"bitcast {i32} {w.op(f'or {i32} {chosen}, {sign}')} to {f32}")


def narrow(w: FunctionWriter, value: str, source: DType, result: DType, target: Target) -> str:
    """A float32 or float64 through float32 to a 16-bit float held as an integer, half to even."""
    if source.bits == 64:
        value = w.op(f"fptrunc {register_type(source)} {value} to {vector_of('float', source.lanes)}")
    return (
        _to_bfloat16(w, value, source.lanes) if result.kind == "bfloat" else _to_float16(w, value, source.lanes, target)
    )


def _to_bfloat16(w: FunctionWriter, value: str, n: int) -> str:
    i32, f32, word = vector_of("i32", n), vector_of("float", n), dtypes.int32.with_lanes(n)
    bits = w.op(f"bitcast {f32} {value} to {i32}")
    high = w.op(f"lshr {i32} {bits}, {_int(16, word)}")
    odd = w.op(f"and {i32} {high}, {_int(1, word)}")
    rounded = w.op(f"add {i32} {w.op(f'add {i32} {bits}, {_int(0x7FFF, word)}')}, {odd}")
    rounded = w.op(f"lshr {i32} {rounded}, {_int(16, word)}")
    quiet = w.op(f"or {i32} {high}, {_int(0x40, word)}")
    is_nan = w.op(f"fcmp uno {f32} {value}, zeroinitializer")
    chosen = w.op(f"select {vector_of('i1', n)} {is_nan}, {i32} {quiet}, {i32} {rounded}")
    return w.op(f"trunc {i32} {chosen} to {vector_of('i16', n)}")


def _to_float16(w: FunctionWriter, value: str, n: int, target: Target) -> str:
    i16, i32, f32 = vector_of("i16", n), vector_of("i32", n), vector_of("float", n)
    if has_float16_conversion(target):
        half = w.op(f"fptrunc {f32} {value} to {vector_of('half', n)}")
        return w.op(f"bitcast {vector_of('half', n)} {half} to {i16}")
    word, single, i1 = dtypes.int32.with_lanes(n), dtypes.float32.with_lanes(n), vector_of("i1", n)
    bits = w.op(f"bitcast {f32} {value} to {i32}")
    sign = w.op(f"and {i32} {bits}, {_int(-(1 << 31), word)}")
    magnitude = w.op(f"xor {i32} {bits}, {sign}")
    # Normal: move the bias, round half to even by adding. Denormal: let the float adder round at the right bit.
    odd = w.op(f"and {i32} {w.op(f'lshr {i32} {magnitude}, {_int(13, word)}')}, {_int(1, word)}")
    moved = w.op(f"add {i32} {magnitude}, {_int(((15 - 127) << 23) + 0xFFF, word)}")
    normal = w.op(f"lshr {i32} {w.op(f'add {i32} {moved}, {odd}')}, {_int(13, word)}")
    shifted = w.op(f"fadd {f32} {w.op(f'bitcast {i32} {magnitude} to {f32}')}, {literal(0.5, single)}")
    denormal = w.op(f"sub {i32} {w.op(f'bitcast {f32} {shifted} to {i32}')}, {_int(0x3F000000, word)}")
    is_denormal = w.op(f"icmp ult {i32} {magnitude}, {_int(113 << 23, word)}")
    finite = w.op(f"select {i1} {is_denormal}, {i32} {denormal}, {i32} {normal}")
    is_nan = w.op(f"icmp ugt {i32} {magnitude}, {_int(0x7F800000, word)}")
    special = w.op(f"select {i1} {is_nan}, {i32} {_int(0x7E00, word)}, {i32} {_int(0x7C00, word)}")
    is_special = w.op(f"icmp uge {i32} {magnitude}, {_int((127 + 16) << 23, word)}")
    chosen = w.op(f"select {i1} {is_special}, {i32} {special}, {i32} {finite}")
    signed = w.op(f"or {i32} {chosen}, {w.op(f'lshr {i32} {sign}, {_int(16, word)}')}")
    return w.op(f"trunc {i32} {signed} to {i16}")


def _int(value: int, dtype: DType) -> str:
    """An integer literal in the width and lanes of `dtype`."""
    return str(value) if dtype.lanes == 1 else f"splat (i{dtype.bits} {value})"


def as_integer_bits(w: FunctionWriter, value: str, dtype: DType) -> str:
    """The bits of a float as an integer of its width."""
    t, i = register_type(dtype), integer_type(dtype)
    return value if t == i else w.op(f"bitcast {t} {value} to {i}")
