"""Arithmetic, comparisons and primitive functions as LLVM instructions, by the semantics page.

Integers wrap: no nsw or nuw. Floats carry no fast-math flags. Whatever LLVM leaves undefined (division by zero, shift
amounts out of range) is guarded here, without a branch. Operations that LLVM would turn into library calls on the
target at hand are written out, since a kernel imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from targets.llvm import casts
from targets.llvm.text import FunctionWriter, integer_type, literal, register_type, suffix, vector_of
from tensorir import dtypes
from tensorir.dtypes import DType
from tensorir.errors import UserError
from tensorir.target import Target

_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARE_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole"}


def _bits(dtype: DType) -> str:
    return vector_of("i1", dtype.lanes)


def _select(w: FunctionWriter, condition: str, t: str, a: str, b: str, dtype: DType) -> str:
    return w.op(f"select {_bits(dtype)} {condition}, {t} {a}, {t} {b}")


def select(w: FunctionWriter, condition: str, condition_lanes: int, a: str, b: str, dtype: DType) -> str:
    """`condition ? a : b`; the condition is a scalar or has the lanes of the operands."""
    t = register_type(dtype)
    return w.op(f"select {vector_of('i1', condition_lanes)} {condition}, {t} {a}, {t} {b}")


def binary(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, target: Target) -> str:
    """add, sub, mul, div, and, or, xor."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (a, b), dtype, target, lambda x, y, t: binary(w, op, x, y, t, target))
    table = _FLOAT if dtype.is_float else _INTEGER
    return w.op(f"{table[op]} {register_type(dtype)} {a}, {b}")


def _through_wide(
    w: FunctionWriter, operands: tuple[str, ...], dtype: DType, target: Target, compute: Callable[..., str]
) -> str:
    """A float16 or bfloat16 operation: computed in float32, rounded once."""
    wide = dtypes.float32.with_lanes(dtype.lanes)
    result = compute(*(casts.widen(w, x, dtype, target) for x in operands), wide)
    return casts.narrow(w, result, wide, dtype, target)


def compare(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, target: Target) -> str:
    """eq, ne, lt, le of operands of `dtype`; gives i1 lanes."""
    if casts.is_narrow_float(dtype):
        a, b = casts.widen(w, a, dtype, target), casts.widen(w, b, dtype, target)
        dtype = dtypes.float32.with_lanes(dtype.lanes)
    if dtype.is_float:
        return w.op(f"fcmp {_COMPARE_FLOAT[op]} {register_type(dtype)} {a}, {b}")
    predicate = op if op in ("eq", "ne") else f"{'s' if dtype.kind == 'int' else 'u'}{op}"
    return w.op(f"icmp {predicate} {register_type(dtype)} {a}, {b}")


def extremum(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, target: Target, *, number: str = "") -> str:
    """min or max; NaN if either operand is, of equal operands the second. `number` names an operand ("a" or "b")
    that is a literal and not NaN, which makes one comparison enough."""
    t = register_type(dtype)
    if dtype.is_bool:
        return w.op(f"{'and' if op == 'min' else 'or'} {t} {a}, {b}")
    if not dtype.is_float:
        first, second = (a, b) if op == "min" else (b, a)
        return _select(w, compare(w, "lt", first, second, dtype, target), t, a, b, dtype)
    wide, x, y = dtype, a, b
    if casts.is_narrow_float(dtype):
        x, y = casts.widen(w, a, dtype, target), casts.widen(w, b, dtype, target)
        wide = dtypes.float32.with_lanes(dtype.lanes)
    order = "lt" if op == "min" else "gt"
    if number == "b":  # unordered: a NaN in a is kept
        return _select(w, w.op(f"fcmp u{order} {register_type(wide)} {x}, {y}"), t, a, b, dtype)
    result = _select(w, w.op(f"fcmp o{order} {register_type(wide)} {x}, {y}"), t, a, b, dtype)
    if number == "a":
        return result
    is_nan = w.op(f"fcmp uno {register_type(wide)} {x}, zeroinitializer")
    return _select(w, is_nan, t, a, result, dtype)


def fused_multiply_add(w: FunctionWriter, a: str, b: str, c: str, dtype: DType, target: Target) -> str:
    """a * b + c rounded once."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (a, b, c), dtype, target, lambda x, y, z, t: fused_multiply_add(w, x, y, z, t, target))
    t = register_type(dtype)
    if target.fma:
        return w.intrinsic(f"llvm.fma.{suffix(dtype)}", t, [(t, a), (t, b), (t, c)])
    if dtype.bits == 64:
        raise UserError(
            f"a float64 fused multiply-add is not available on {target}",
            help="choose a CPU with fma, such as -mcpu=x86-64-v3, or write a * b + c",
        )
    double = dtypes.float64.with_lanes(dtype.lanes)
    d = register_type(double)
    x, y, z = (w.op(f"fpext {t} {v} to {d}") for v in (a, b, c))
    total = _add_to_odd(w, w.op(f"fmul {d} {x}, {y}"), z, double)
    return w.op(f"fptrunc {d} {total} to {t}")


def _add_to_odd(w: FunctionWriter, x: str, y: str, double: DType) -> str:
    """x + y in float64 rounded to odd: the exact error of the sum (Knuth's two-sum) moves an even result."""
    d, i, n = register_type(double), integer_type(double), double.lanes
    total = w.op(f"fadd {d} {x}, {y}")
    part = w.op(f"fsub {d} {total}, {x}")
    error = w.op(
        f"fadd {d} {w.op(f'fsub {d} {x}, ' + w.op(f'fsub {d} {total}, {part}'))}, {w.op(f'fsub {d} {y}, {part}')}"
    )
    bits = w.op(f"bitcast {d} {total} to {i}")
    word = dtypes.int64.with_lanes(n)
    even = w.op(f"icmp eq {i} {w.op(f'and {i} {bits}, {literal(1, word)}')}, {literal(0, word)}")
    inexact = w.op(f"fcmp one {d} {error}, {literal(0.0, double)}")
    # The error points away from zero if its sign is that of the sum.
    signs = w.op(f"xor {i} {bits}, {w.op(f'bitcast {d} {error} to {i}')}")
    away = w.op(f"icmp sge {i} {signs}, {literal(0, word)}")
    step = _select(w, away, i, literal(1, word), literal(-1, word), double)
    adjust = w.op(f"and {_bits(double)} {even}, {inexact}")
    chosen = _select(w, adjust, i, w.op(f"add {i} {bits}, {step}"), bits, double)
    return w.op(f"bitcast {i} {chosen} to {d}")


# ------------------------------------------------------------------------------------------------------- division


def divide(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, divisor: int | None) -> str:
    """floordiv, floormod, truncdiv, truncmod of integers; by zero they give 0. `divisor` is b where it is a literal."""
    floor, remainder = op.startswith("floor"), op.endswith("mod")
    t = register_type(dtype)
    zero = literal(0, dtype)
    if divisor == 0:
        return zero
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0 and (floor or dtype.kind == "uint"):
        if remainder:
            return w.op(f"and {t} {a}, {literal(divisor - 1, dtype)}")
        shift = "ashr" if dtype.kind == "int" else "lshr"
        return a if divisor == 1 else w.op(f"{shift} {t} {a}, {literal(divisor.bit_length() - 1, dtype)}")
    if dtype.kind == "uint":
        return _divide_unsigned(w, a, b, dtype, remainder, divisor)
    if divisor == -1:
        return zero if remainder else w.op(f"sub {t} {zero}, {a}")
    safe = b
    is_zero = is_minus_one = None
    if divisor is None:
        # 0 would trap and the lowest value by -1 overflows: both divide by 1 instead and are put right after.
        is_zero = w.op(f"icmp eq {t} {b}, {zero}")
        is_minus_one = w.op(f"icmp eq {t} {b}, {literal(-1, dtype)}")
        special = w.op(f"or {_bits(dtype)} {is_zero}, {is_minus_one}")
        safe = _select(w, special, t, literal(1, dtype), b, dtype)
    if remainder:
        result = w.op(f"srem {t} {a}, {safe}")
        if floor:
            result = _select(
                w, _signs_differ(w, result, safe, dtype), t, w.op(f"add {t} {result}, {safe}"), result, dtype
            )
        return result  # by 1 in the special cases: 0
    result = w.op(f"sdiv {t} {a}, {safe}")
    if floor:
        rest = w.op(f"sub {t} {a}, {w.op(f'mul {t} {result}, {safe}')}")
        lower = w.op(f"sext {_bits(dtype)} {_signs_differ(w, rest, safe, dtype)} to {t}")
        result = w.op(f"add {t} {result}, {lower}")
    if divisor is None:
        assert is_zero is not None and is_minus_one is not None
        result = _select(w, is_minus_one, t, w.op(f"sub {t} {zero}, {a}"), result, dtype)
        result = _select(w, is_zero, t, zero, result, dtype)
    return result


def _signs_differ(w: FunctionWriter, rest: str, divisor: str, dtype: DType) -> str:
    """True where the remainder is not 0 and has not the divisor's sign."""
    t, zero = register_type(dtype), literal(0, dtype)
    differs = w.op(f"icmp slt {t} {w.op(f'xor {t} {rest}, {divisor}')}, {zero}")
    return w.op(f"and {_bits(dtype)} {differs}, {w.op(f'icmp ne {t} {rest}, {zero}')}")


def _divide_unsigned(w: FunctionWriter, a: str, b: str, dtype: DType, remainder: bool, divisor: int | None) -> str:
    t, instruction = register_type(dtype), "urem" if remainder else "udiv"
    if divisor is not None:
        return w.op(f"{instruction} {t} {a}, {b}")
    is_zero = w.op(f"icmp eq {t} {b}, {literal(0, dtype)}")
    safe = _select(w, is_zero, t, literal(1, dtype), b, dtype)
    return _select(w, is_zero, t, literal(0, dtype), w.op(f"{instruction} {t} {a}, {safe}"), dtype)


def float_remainder(w: FunctionWriter, a: str, b: str, dtype: DType, target: Target) -> str:
    """truncmod of floats: the remainder with the sign of a."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (a, b), dtype, target, lambda x, y, t: float_remainder(w, x, y, t, target))
    t, zero, bits = register_type(dtype), literal(0.0, dtype), _bits(dtype)
    quotient = rounding(w, "trunc", w.op(f"fdiv {t} {a}, {b}"), dtype, target)
    rest = fused_multiply_add(w, w.op(f"fneg {t} {quotient}"), b, a, dtype, target)
    differs = w.op(f"xor {bits} {w.op(f'fcmp olt {t} {rest}, {zero}')}, {w.op(f'fcmp olt {t} {a}, {zero}')}")
    beyond = w.op(f"and {bits} {differs}, {w.op(f'fcmp une {t} {rest}, {zero}')}")
    step = copy_sign(w, b, a, dtype)
    rest = _select(w, beyond, t, w.op(f"fadd {t} {rest}, {step}"), rest, dtype)
    is_zero = w.op(f"fcmp oeq {t} {rest}, {zero}")
    rest = _select(w, is_zero, t, copy_sign(w, rest, a, dtype), rest, dtype)
    finite = w.op(f"fcmp olt {t} {absolute(w, a, dtype)}, {literal(float('inf'), dtype)}")
    keep = w.op(f"and {bits} {is_infinite(w, b, dtype, target)}, {finite}")
    return _select(w, keep, t, a, rest, dtype)


def float_divide(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, target: Target) -> str:
    """floordiv, floormod, truncdiv and truncmod of floats."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (a, b), dtype, target, lambda x, y, t: float_divide(w, op, x, y, t, target))
    t, bits, zero, one = register_type(dtype), _bits(dtype), literal(0.0, dtype), literal(1.0, dtype)
    if op == "truncmod":
        return float_remainder(w, a, b, dtype, target)
    quotient = w.op(f"fdiv {t} {a}, {b}")
    if op == "truncdiv":
        return rounding(w, "trunc", quotient, dtype, target)
    rest = float_remainder(w, a, b, dtype, target)
    differs = w.op(f"xor {bits} {w.op(f'fcmp olt {t} {b}, {zero}')}, {w.op(f'fcmp olt {t} {rest}, {zero}')}")
    adjust = w.op(f"and {bits} {w.op(f'fcmp une {t} {rest}, {zero}')}, {differs}")
    rest = _select(w, adjust, t, w.op(f"fadd {t} {rest}, {b}"), rest, dtype)
    is_zero = w.op(f"fcmp oeq {t} {rest}, {zero}")
    rest = _select(w, is_zero, t, copy_sign(w, rest, b, dtype), rest, dtype)
    if op == "floormod":
        return rest
    whole = w.op(f"fdiv {t} {w.op(f'fsub {t} {a}, {rest}')}, {b}")
    down = rounding(w, "floor", whole, dtype, target)
    above = w.op(f"fcmp ogt {t} {w.op(f'fsub {t} {whole}, {down}')}, {literal(0.5, dtype)}")
    down = _select(w, above, t, w.op(f"fadd {t} {down}, {one}"), down, dtype)
    is_zero = w.op(f"fcmp oeq {t} {down}, {zero}")
    down = _select(w, is_zero, t, copy_sign(w, down, quotient, dtype), down, dtype)
    return _select(w, w.op(f"fcmp oeq {t} {b}, {zero}"), t, quotient, down, dtype)


# --------------------------------------------------------------------------------------------------------- shifts


def shift(w: FunctionWriter, op: str, a: str, b: str, dtype: DType, amount: int | None) -> str:
    """shift_left and shift_right; amounts outside the width give 0, or the sign for a signed right shift."""
    t = register_type(dtype)
    last = literal(dtype.bits - 1, dtype)
    arithmetic = op == "shift_right" and dtype.kind == "int"
    if amount is not None and 0 <= amount < dtype.bits:
        instruction = "shl" if op == "shift_left" else "ashr" if arithmetic else "lshr"
        return w.op(f"{instruction} {t} {a}, {b}")
    inside = w.op(f"icmp ule {t} {b}, {last}")
    if arithmetic:
        return w.op(f"ashr {t} {a}, {_select(w, inside, t, b, last, dtype)}")
    safe = _select(w, inside, t, b, literal(0, dtype), dtype)
    result = w.op(f"{'shl' if op == 'shift_left' else 'lshr'} {t} {a}, {safe}")
    return _select(w, inside, t, result, literal(0, dtype), dtype)


# ------------------------------------------------------------------------------------------------------ functions

_ROUND = {"floor": "llvm.floor", "ceil": "llvm.ceil", "trunc": "llvm.trunc", "round": "llvm.roundeven"}


def rounding(w: FunctionWriter, name: str, value: str, dtype: DType, target: Target) -> str:
    """floor, ceil, trunc, round (half to even) of a float."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (value,), dtype, target, lambda x, t: rounding(w, name, x, t, target))
    t = register_type(dtype)
    if target.arch != "x86_64" or {"sse4.1", "avx", "avx512f"} & target.features:
        return w.intrinsic(f"{_ROUND[name]}.{suffix(dtype)}", t, [(t, value)])
    # Without SSE4.1: adding and taking away 2**23 (2**52) rounds half to even; the others step from there.
    magic = literal(2.0 ** (23 if dtype.bits == 32 else 52), dtype)
    magnitude = w.intrinsic(f"llvm.fabs.{suffix(dtype)}", t, [(t, value)])
    near = w.op(f"fsub {t} {w.op(f'fadd {t} {magnitude}, {magic}')}, {magic}")
    near = w.intrinsic(f"llvm.copysign.{suffix(dtype)}", t, [(t, near), (t, value)])
    zero, one = literal(0.0, dtype), literal(1.0, dtype)
    result = near
    if name == "trunc":
        plain = w.intrinsic(f"llvm.fabs.{suffix(dtype)}", t, [(t, near)])
        beyond = w.op(f"fcmp ogt {t} {plain}, {magnitude}")
        result = w.op(f"fsub {t} {plain}, {_select(w, beyond, t, one, zero, dtype)}")
    elif name != "round":
        beyond = w.op(f"fcmp {'ogt' if name == 'floor' else 'olt'} {t} {near}, {value}")
        step = _select(w, beyond, t, one, zero, dtype)
        result = w.op(f"{'fsub' if name == 'floor' else 'fadd'} {t} {near}, {step}")
    result = w.intrinsic(f"llvm.copysign.{suffix(dtype)}", t, [(t, result), (t, value)])
    small = w.op(f"fcmp olt {t} {magnitude}, {magic}")
    return _select(w, small, t, result, value, dtype)


def square_root(w: FunctionWriter, value: str, dtype: DType, target: Target) -> str:
    """The correctly rounded square root."""
    if casts.is_narrow_float(dtype):
        return _through_wide(w, (value,), dtype, target, lambda x, t: square_root(w, x, t, target))
    t = register_type(dtype)
    return w.intrinsic(f"llvm.sqrt.{suffix(dtype)}", t, [(t, value)])


def absolute(w: FunctionWriter, value: str, dtype: DType) -> str:
    """abs; the lowest signed integer stays itself."""
    t = register_type(dtype)
    if dtype.kind == "uint":
        return value
    if dtype.kind == "int":
        zero = literal(0, dtype)
        negative = w.op(f"icmp slt {t} {value}, {zero}")
        return _select(w, negative, t, w.op(f"sub {t} {zero}, {value}"), value, dtype)
    if casts.is_narrow_float(dtype):
        return w.op(f"and {t} {value}, {_int16(0x7FFF, dtype)}")
    return w.intrinsic(f"llvm.fabs.{suffix(dtype)}", t, [(t, value)])


def copy_sign(w: FunctionWriter, value: str, sign: str, dtype: DType) -> str:
    """The magnitude of `value` with the sign of `sign`."""
    t = register_type(dtype)
    if casts.is_narrow_float(dtype):
        magnitude = w.op(f"and {t} {value}, {_int16(0x7FFF, dtype)}")
        return w.op(f"or {t} {magnitude}, {w.op(f'and {t} {sign}, {_int16(-0x8000, dtype)}')}")
    return w.intrinsic(f"llvm.copysign.{suffix(dtype)}", t, [(t, value), (t, sign)])


def is_nan(w: FunctionWriter, value: str, dtype: DType, target: Target) -> str:
    """True where the float is NaN."""
    if casts.is_narrow_float(dtype):
        value, dtype = casts.widen(w, value, dtype, target), dtypes.float32.with_lanes(dtype.lanes)
    return w.op(f"fcmp uno {register_type(dtype)} {value}, zeroinitializer")


def is_infinite(w: FunctionWriter, value: str, dtype: DType, target: Target) -> str:
    """True where the float is infinite."""
    if casts.is_narrow_float(dtype):
        value, dtype = casts.widen(w, value, dtype, target), dtypes.float32.with_lanes(dtype.lanes)
    magnitude = absolute(w, value, dtype)
    return w.op(f"fcmp oeq {register_type(dtype)} {magnitude}, {literal(float('inf'), dtype)}")


def reinterpret(w: FunctionWriter, value: str, source: DType, result: DType) -> str:
    """The same bits as another type of the same width."""
    s, r = register_type(source), register_type(result)
    return value if s == r else w.op(f"bitcast {s} {value} to {r}")


def pack4(w: FunctionWriter, values: list[str], source: DType) -> str:
    """Four 8-bit values as the bytes of an unsigned 32-bit word."""
    result = dtypes.uint32.with_lanes(source.lanes)
    s, r = register_type(source), register_type(result)
    word = ""
    for number, value in enumerate(values):
        part = w.op(f"zext {s} {value} to {r}")
        if number:
            part = w.op(f"shl {r} {part}, {literal(8 * number, result)}")
            word = w.op(f"or {r} {word}, {part}")
        else:
            word = part
    return word


def dot4(w: FunctionWriter, total: str, a: str, b: str, dtype: DType, target: Target) -> str:
    """`total` plus the products of the unsigned bytes of `a` with the signed ones of `b`: one instruction where the
    target has it for so many lanes."""
    t, lanes = register_type(dtype), dtype.lanes
    has_512 = "avx512vnni" in target.features
    if (lanes == 16 and has_512) or (lanes in (4, 8) and (has_512 or "avxvnni" in target.features)):
        name = f"llvm.x86.avx512.vpdpbusd.{lanes * 32}"
        return w.intrinsic(name, t, [(t, total), (t, a), (t, b)])
    return _dot4_by_bytes(w, total, a, b, dtype, signed=False)


def dot4_signed(w: FunctionWriter, total: str, a: str, b: str, dtype: DType) -> str:
    """`total` plus the products of the signed bytes of `a` and `b`."""
    return _dot4_by_bytes(w, total, a, b, dtype, signed=True)


def _dot4_by_bytes(w: FunctionWriter, total: str, a: str, b: str, dtype: DType, *, signed: bool) -> str:
    t = register_type(dtype)
    for shift in (0, 8, 16, 24):
        if signed:
            x = w.op(f"shl {t} {a}, {literal(24 - shift, dtype)}")
            x = w.op(f"ashr {t} {x}, {literal(24, dtype)}")
        else:
            x = w.op(f"lshr {t} {a}, {literal(shift, dtype)}")
            x = w.op(f"and {t} {x}, {literal(255, dtype)}")
        y = w.op(f"shl {t} {b}, {literal(24 - shift, dtype)}")
        y = w.op(f"ashr {t} {y}, {literal(24, dtype)}")
        total = w.op(f"add {t} {total}, {w.op(f'mul {t} {x}, {y}')}")
    return total


def _int16(value: int, dtype: DType) -> str:
    return str(value) if dtype.lanes == 1 else f"splat (i16 {value})"
