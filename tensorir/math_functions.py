"""Math functions as Tensor IR: what stands in the place of `exp`, `log`, `pow`, ... on every target.

Each expansion is made of primitives only (Fma, comparisons, Select, integer operations, reinterpret, sqrt), has no
loads and no branches, and works for scalars and vectors alike. float32 functions are good to about 1 to 2 units in the
last place, float64 to a few; float16 and bfloat16 compute in float32 and round. `n = round(x)` is had without a
conversion by adding and subtracting 1.5 * 2^mantissa: the integer then stands in the low bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorir import dtypes, semantics
from tensorir import math_coefficients as coefficients
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import (
    EQ,
    LT,
    NE,
    And,
    Binary,
    Call,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    Let,
    Not,
    Or,
    Select,
    TruncDiv,
    TruncMod,
    Var,
    broadcast,
    cast,
    const,
)
from tensorir.intrinsics import INTRINSICS, expander, reinterpret

_LN2 = {32: (0.6931471824645996, -1.9046542121259336e-09), 64: (0.6931471805599453, 2.3190468138462996e-17)}
_LN2_SHORT = (0.6931467056274414, 4.7493250390316726e-07)  # the first has 32 bits: exact when multiplied by an exponent
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_HALF_PI_SHORT = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)  # 26, 26 and 53 bits
_PI_PARTS = {  # pi/4, pi/2 and pi, each in two parts
    32: ((0.7853981852531433, -2.1855694143368964e-08), (1.5707963705062866, -4.371138828673793e-08),
         (3.1415927410125732, -8.742277657347586e-08)),
    64: ((0.7853981633974483, 3.061616997868383e-17), (1.5707963267948966, 6.123233995736766e-17),
         (3.141592653589793, 1.2246467991473532e-16)),
}  # fmt: skip
_TRIG_LIMIT = 2.0**50  # from here on the result is NaN


class Builder:
    """Builds one expansion over the float type `t`: literals with its lanes, names for shared parts.

    `fused` is False for the float64 parts of float32 functions, whose extra bits need no Fma: a machine may lack it.
    """

    def __init__(self, t: DType, *, fused: bool = True) -> None:
        self.t = t
        self.fused = fused
        self.double = t.bits == 64
        self.mantissa = 52 if self.double else 23
        self.bias = 1023 if self.double else 127
        self.int = (dtypes.int64 if self.double else dtypes.int32).with_lanes(t.lanes)
        self.bool = dtypes.bool_.with_lanes(t.lanes)
        self.magic = 1.5 * 2.0**self.mantissa
        self.names: list[tuple[Var, Expr]] = []

    def let(self, name: str, e: Expr) -> Expr:
        """`e` under a name, so that it is computed once."""
        if isinstance(e, (Var, Const)):
            return e
        v = Var(name, e.dtype)
        self.names.append((v, e))
        return v

    def close(self, e: Expr) -> Expr:
        """The result with all names bound around it."""
        for v, value in reversed(self.names):
            e = Let(v, value, e, e.dtype)
        return e

    def k(self, value: float) -> Expr:
        """A float literal in every lane."""
        return broadcast(const(float(value), self.t.element), self.t.lanes)

    def i(self, value: int) -> Expr:
        """An integer literal of the float's width in every lane."""
        return broadcast(const(value, self.int.element), self.t.lanes)

    def pick(self, single: Any, double: Any) -> Any:
        """The first for float32, the second for float64."""
        return double if self.double else single

    def fma(self, a: Expr, b: Expr | float, c: Expr | float) -> Expr:
        """a * b + c, rounded once where `fused`."""
        y = b if isinstance(b, Expr) else self.k(b)
        z = c if isinstance(c, Expr) else self.k(c)
        return Fma(a, y, z, self.t) if self.fused else a * y + z

    def horner(self, table: Sequence[float], x: Expr) -> Expr:
        """The polynomial with these coefficients, lowest power first."""
        result = self.k(table[-1])
        for value in reversed(table[:-1]):
            result = self.fma(result, x, value)
        return result

    def select(self, condition: Expr, a: Expr | float, b: Expr | float) -> Expr:
        """condition ? a : b."""
        x = a if isinstance(a, Expr) else self.k(a)
        y = b if isinstance(b, Expr) else self.k(b)
        return Select(condition, x, y, x.dtype)

    def less(self, a: Expr | float, b: Expr | float) -> Expr:
        """a < b."""
        return LT(self._float(a), self._float(b), self.bool)

    def equal(self, a: Expr, b: Expr | float) -> Expr:
        """a == b."""
        return EQ(a, self._float(b), self.bool)

    def _float(self, a: Expr | float) -> Expr:
        return a if isinstance(a, Expr) else self.k(a)

    def clamp(self, x: Expr, low: float, high: float) -> Expr:
        """`x` in [low, high]; NaN stays."""
        y = self.let("y", self.select(self.less(x, low), low, x))
        return self.let("y", self.select(self.less(high, y), high, y))

    def abs(self, x: Expr) -> Expr:
        """The magnitude, under a name."""
        return self.let("a", Call("abs", (x,), self.t))

    def copysign(self, x: Expr, sign: Expr) -> Expr:
        """The magnitude of x with the sign of `sign`."""
        return Call("copysign", (x, sign), self.t)

    def sqrt(self, x: Expr) -> Expr:
        """Square root."""
        return Call("sqrt", (x,), self.t)

    def bits(self, x: Expr) -> Expr:
        """The bits of a float as a signed integer."""
        return reinterpret(x, self.int.element)

    def bits_of(self, value: float) -> int:
        """The bits of a literal."""
        return semantics.to_bits(value, self.t.element)

    def power_of_two(self, n: Expr) -> Expr:
        """2^n for an integer n in the range of normal numbers."""
        return reinterpret((n + self.i(self.bias)) << self.i(self.mantissa), self.t.element)


# ------------------------------------------------------------------------------------------------ exponential functions


def _reduce_exp(b: Builder, x: Expr, more: Expr | None = None) -> tuple[Expr, Expr]:
    """x (+ more) = n ln 2 + r with abs(r) <= ln(2)/2: (r, n as an integer)."""
    shifted = b.let("shifted", b.fma(x, math.log2(math.e), b.magic))
    n = b.let("n", shifted - b.k(b.magic))
    high, low = _LN2[b.t.bits]
    r = b.fma(n, -low, b.fma(n, -high, x))
    r = b.let("r", r if more is None else r + more)
    return r, b.let("e", b.bits(shifted) - b.i(b.bits_of(b.magic)))


def _scale(b: Builder, x: Expr, n: Expr) -> Expr:
    """x * 2^n, right also where the result is denormal or infinite."""
    half = b.let("half", n >> b.i(1))
    return x * b.power_of_two(half) * b.power_of_two(n - half)


def _exp_of(b: Builder, r: Expr) -> Expr:
    """exp(r) for a reduced r."""
    table = b.pick(coefficients.EXP_32, coefficients.EXP_64)
    return b.fma(b.fma(b.horner(table, r), r, 1.0), r, 1.0)


def _exp(b: Builder, x: Expr, halvings: int = 0) -> Expr:
    """exp(x) / 2^halvings."""
    y = b.clamp(x, b.pick(-105.0, -746.0), b.pick(89.0, 710.0) + halvings)
    r, n = _reduce_exp(b, y)
    return b.let("exp", _scale(b, _exp_of(b, r), n - b.i(halvings) if halvings else n))


def _exp2(b: Builder, x: Expr) -> Expr:
    y = b.clamp(x, b.pick(-152.0, -1080.0), b.pick(129.0, 1025.0))
    shifted = b.let("shifted", y + b.k(b.magic))
    fraction = b.let("fraction", y - (shifted - b.k(b.magic)))
    high, low = _LN2[b.t.bits]
    r = b.let("r", b.fma(fraction, high, fraction * b.k(low)))
    return _scale(b, _exp_of(b, r), b.let("e", b.bits(shifted) - b.i(b.bits_of(b.magic))))


def _expm1_core(b: Builder, x: Expr) -> Expr:
    """exp(x) - 1 but for the sign of zero: 2 (2^(n-1) (exp(r) - 1) + 2^(n-1) - 1/2)."""
    y = b.clamp(x, b.pick(-20.0, -40.0), b.pick(89.0, 710.0))
    r, n = _reduce_exp(b, y)
    q = b.fma(r * r, b.horner(b.pick(coefficients.EXP_32, coefficients.EXP_64), r), r)
    s = b.let("s", b.power_of_two(n - b.i(1)))
    return b.let("expm1", b.k(2.0) * b.fma(s, q, s - b.k(0.5)))


def _expm1(b: Builder, x: Expr) -> Expr:
    return b.copysign(_expm1_core(b, x), x)


def _sigmoid(b: Builder, x: Expr) -> Expr:
    z = _exp(b, b.k(-1.0) * b.abs(x))
    s = b.let("s", b.k(1.0) / (b.k(1.0) + z))
    return b.select(b.less(x, 0.0), z * s, s)


def _tanh(b: Builder, x: Expr) -> Expr:
    e = _expm1_core(b, b.k(2.0) * b.clamp(b.abs(x), 0.0, b.pick(10.0, 20.0)))
    return b.copysign(e / (e + b.k(2.0)), x)


def _sinh(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    h = _exp(b, a, 1)
    large = h - b.k(0.25) / h
    z = b.let("z", a * a)
    small = b.fma(a * z, b.horner(b.pick(coefficients.SINH_32, coefficients.SINH_64), z), a)
    return b.copysign(b.select(b.less(a, 1.0), small, large), x)


def _cosh(b: Builder, x: Expr) -> Expr:
    h = _exp(b, b.abs(x), 1)
    return h + b.k(0.25) / h


# ----------------------------------------------------------------------------------------------------------- logarithms


def _split_log(b: Builder, x: Expr) -> tuple[Expr, Expr]:
    """x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for a positive finite x: (k as a float, f)."""
    tiny = b.let("tiny", b.less(x, b.pick(2.0**-126, 2.0**-1022)))
    bits = b.bits(b.select(tiny, x * b.k(2.0**b.mantissa), x))
    root = b.bits_of(math.sqrt(0.5))
    j = b.let("j", bits - b.i(root))
    mantissa = reinterpret((j & b.i((1 << b.mantissa) - 1)) + b.i(root), b.t.element)
    f = b.let("f", mantissa - b.k(1.0))
    exponent = (j >> b.i(b.mantissa)) - Select(tiny, b.i(b.mantissa), b.i(0), b.int)
    if b.double:  # by the magic number: a vector conversion from int64 is not everywhere
        shifted = b.i(b.bits_of(b.magic)) + exponent
        return b.let("k", reinterpret(shifted, b.t.element) - b.k(b.magic)), f
    return b.let("k", cast(exponent, b.t)), f


def _log_positive(b: Builder, x: Expr) -> Expr:
    """log(x) of a positive finite x."""
    k, f = _split_log(b, x)
    if not b.double:
        high, low = _LN2[32]
        y = b.fma(f * f, b.fma(f, b.horner(coefficients.LOG_32, f), -0.5), k * b.k(low))
        return b.fma(k, high, f + y)
    high, low = _LN2[64]
    s = b.let("s", f / (b.k(2.0) + f))
    z = b.let("z", s * s)
    half_square = b.let("h", b.k(0.5) * f * f)
    y = b.fma(s, b.fma(z, b.horner(coefficients.LOG_64, z), half_square), k * b.k(low)) - half_square
    return b.fma(k, high, f + y)


def _log_domain(b: Builder, x: Expr, result: Expr) -> Expr:
    """`result` for positive finite x; the limits elsewhere, NaN for negative x and NaN."""
    outside = b.select(b.equal(x, 0.0), -math.inf, math.nan)
    return b.select(b.less(0.0, x), b.select(b.equal(x, math.inf), math.inf, result), outside)


def _log(b: Builder, x: Expr) -> Expr:
    return _log_domain(b, x, _log_positive(b, x))


def _log2(b: Builder, x: Expr) -> Expr:
    """k + log(1 + f) / ln 2, the product with the fraction of 1/ln 2 so that it loses less."""
    k, f = _split_log(b, x)
    one = Builder(b.t)
    y = b.let("y", one.close(_log_mantissa(one, f)))
    high = 1.4426950408889634 - 1.0
    return _log_domain(b, x, k + b.fma(y, high, y))


def _log_mantissa(b: Builder, f: Expr) -> Expr:
    """log(1 + f) for a reduced f."""
    if not b.double:
        return f + f * f * b.fma(f, b.horner(coefficients.LOG_32, f), -0.5)
    s = b.let("s", f / (b.k(2.0) + f))
    z = b.let("z", s * s)
    half_square = b.let("h", b.k(0.5) * f * f)
    return f + (s * b.fma(z, b.horner(coefficients.LOG_64, z), half_square) - half_square)


def _log1p_core(b: Builder, x: Expr) -> Expr:
    """log(1 + x) with what rounding 1 + x lost put back."""
    u = b.let("u", b.k(1.0) + x)
    lost = b.let("lost", x - (u - b.k(1.0)))
    return _log_domain(b, u, b.let("log", _log_positive(b, u)) + lost / u)


def _log1p(b: Builder, x: Expr) -> Expr:
    return b.copysign(_log1p_core(b, x), x)


def _asinh(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    big = b.let("big", b.less(b.pick(1e4, 1e9), a))
    z = b.select(big, a - b.k(1.0), a + a * a / (b.k(1.0) + b.sqrt(b.fma(a, a, 1.0))))
    result = _log1p_core(b, b.let("z", z))
    return b.copysign(result + b.select(big, _LN2[b.t.bits][0], 0.0), x)


def _acosh(b: Builder, x: Expr) -> Expr:
    big = b.let("big", b.less(b.pick(1e4, 1e9), x))
    t = b.let("t", x - b.k(1.0))
    z = b.select(big, t, t + b.sqrt(t * (t + b.k(2.0))))
    result = _log1p_core(b, b.let("z", z))
    return b.select(b.less(x, 1.0), math.nan, result + b.select(big, _LN2[b.t.bits][0], 0.0))


def _atanh(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    z = b.let("z", b.k(2.0) * a / (b.k(1.0) - a))
    return b.copysign(b.k(0.5) * _log1p_core(b, z), x)


# ------------------------------------------------------------------------------------------------------------------ erf


def _erf(b: Builder, x: Expr) -> Expr:
    limit = b.pick(0.92, 1.0)
    a = b.abs(x)
    z = b.let("z", a * a)
    small = b.fma(a, b.horner(b.pick(coefficients.ERF_32, coefficients.ERF_64), z), a)
    t = b.clamp(a, limit, b.pick(4.0, 6.0))
    variable = t - b.k(2.5) if b.double else t
    table = b.pick(coefficients.ERFC_32, coefficients.ERFC_64)
    large = b.k(1.0) - _exp(b, b.let("p", b.horner(table, b.let("v", variable))))
    return b.copysign(b.select(b.less(a, limit), small, large), x)


# --------------------------------------------------------------------------------------------------------- trigonometry


def _reduce_trig(b: Builder, x: Expr) -> tuple[Expr, Expr]:
    """x = n pi/2 + r: (r, n as an integer). float32 reduces in float64 and is good to 2^27; float64 to about 2^30."""
    if b.double:
        shifted = b.let("shifted", b.fma(x, 2.0 / math.pi, b.magic))
        n = b.let("n", shifted - b.k(b.magic))
        high, middle, low = _HALF_PI
        r = b.fma(n, -low, b.fma(n, -middle, b.fma(n, -high, x)))
        return b.let("r", r), b.let("q", b.bits(shifted))
    wide = Builder(dtypes.float64.with_lanes(b.t.lanes), fused=False)
    y = b.let("wide", cast(x, wide.t))
    shifted = b.let("shifted", wide.fma(y, 2.0 / math.pi, wide.magic))
    n = b.let("n", shifted - wide.k(wide.magic))
    for part in _HALF_PI_SHORT:
        y = wide.fma(n, -part, y)
    return b.let("r", cast(y, b.t)), b.let("q", cast(wide.bits(shifted), b.int))


def _sin_cos(b: Builder, r: Expr) -> tuple[Expr, Expr]:
    """sin and cos of a reduced r."""
    z = b.let("z", r * r)
    s = b.fma(r * z, b.horner(b.pick(coefficients.SIN_32, coefficients.SIN_64), z), r)
    c = b.fma(z * z, b.horner(b.pick(coefficients.COS_32, coefficients.COS_64), z), b.fma(z, -0.5, 1.0))
    return b.let("s", s), b.let("c", c)


def _bit(b: Builder, n: Expr, mask: int) -> Expr:
    return NE(n & b.i(mask), b.i(0), b.bool)


def _in_trig_range(b: Builder, x: Expr, result: Expr) -> Expr:
    return b.select(b.less(b.abs(x), _TRIG_LIMIT), result, math.nan)


def _sin(b: Builder, x: Expr) -> Expr:
    r, n = _reduce_trig(b, x)
    s, c = _sin_cos(b, r)
    y = b.let("y", b.select(_bit(b, n, 1), c, s))
    signed = b.select(_bit(b, n, 2), b.k(-1.0) * y, y)
    return b.select(b.equal(x, 0.0), x, _in_trig_range(b, x, signed))


def _cos(b: Builder, x: Expr) -> Expr:
    r, n = _reduce_trig(b, x)
    s, c = _sin_cos(b, r)
    y = b.let("y", b.select(_bit(b, n, 1), s, c))
    return _in_trig_range(b, x, b.select(_bit(b, n + b.i(1), 2), b.k(-1.0) * y, y))


def _tan(b: Builder, x: Expr) -> Expr:
    r, n = _reduce_trig(b, x)
    s, c = _sin_cos(b, r)
    odd = b.let("odd", _bit(b, n, 1))
    result = b.select(odd, b.k(-1.0) * c, s) / b.select(odd, s, c)
    return b.select(b.equal(x, 0.0), x, _in_trig_range(b, x, result))


def _asin_small(b: Builder, a: Expr, z: Expr) -> Expr:
    """asin(a) for 0 <= a <= 1/2 and z = a * a."""
    return b.fma(a * z, b.horner(b.pick(coefficients.ASIN_32, coefficients.ASIN_64), z), a)


def _asin(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    big = b.let("big", b.less(0.5, a))
    z = b.let("z", b.select(big, b.fma(a, -0.5, 0.5), a * a))
    y = b.let("y", b.select(big, b.sqrt(z), a))
    p = b.let("p", _asin_small(b, y, z))
    high, low = _PI_PARTS[b.t.bits][1]
    return b.copysign(b.select(big, b.k(high) - (b.k(2.0) * p - b.k(low)), p), x)


def _acos(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    big = b.let("big", b.less(0.5, a))
    z = b.let("z", b.select(big, b.fma(a, -0.5, 0.5), a * a))
    p = b.let("p", _asin_small(b, b.let("y", b.select(big, b.sqrt(z), a)), z))
    half, whole = _PI_PARTS[b.t.bits][1:]
    negative = b.let("negative", b.less(x, 0.0))
    near_one = b.select(negative, b.k(whole[0]) - (b.k(2.0) * p - b.k(whole[1])), b.k(2.0) * p)
    inner = b.k(half[0]) - (b.select(negative, b.k(-1.0) * p, p) - b.k(half[1]))
    return b.select(big, near_one, inner)


def _atan(b: Builder, x: Expr) -> Expr:
    a = b.abs(x)
    far = b.let("far", b.less(math.tan(3 * math.pi / 8), a))
    middle = b.let("middle", b.less(math.tan(math.pi / 8), a))
    numerator = b.select(far, b.k(-1.0), b.select(middle, a - b.k(1.0), a))
    denominator = b.select(far, a, b.select(middle, a + b.k(1.0), b.k(1.0)))
    y = b.let("y", numerator / denominator)
    z = b.let("z", y * y)
    table = b.pick(coefficients.ATAN_32, coefficients.ATAN_64)
    quarter, half = _PI_PARTS[b.t.bits][:2]
    high = b.select(far, half[0], b.select(middle, quarter[0], 0.0))
    low = b.select(far, half[1], b.select(middle, quarter[1], 0.0))
    return b.copysign(high + (y + b.fma(y * z, b.horner(table, z), low)), x)


def _rsqrt(b: Builder, x: Expr) -> Expr:
    return b.k(1.0) / b.sqrt(x)


# ------------------------------------------------------------------------------------------------------------------ pow


def _power_of_magnitude(b: Builder, a: Expr, y: Expr) -> Expr:
    """a^y for a >= 0 in float64: the logarithm in two parts, so that y times its error stays small."""
    k, f = _split_log(b, a)
    d = b.let("d", b.k(2.0) + f)
    s = b.let("s", f / d)
    left = b.fma(b.k(-1.0) * s, f - (d - b.k(2.0)), b.fma(b.k(-1.0) * s, d, f))
    z = b.let("z", s * s)
    u = s * z * b.horner(coefficients.LOG_64, z)
    large = b.let("large", k * b.k(_LN2_SHORT[0]))
    twice = b.let("twice", b.k(2.0) * s)
    total = b.let("total", large + twice)
    rest = (twice - (total - large)) + b.fma(k, _LN2_SHORT[1], b.fma(left / d, 2.0, u))
    finite = b.let("finite", And(b.less(0.0, a), b.less(a, math.inf), b.bool))
    limit = b.select(b.equal(a, 0.0), -math.inf, b.select(b.equal(a, math.inf), math.inf, math.nan))
    high = b.let("high", b.select(finite, total, limit))
    low = b.let("low", b.select(finite, rest, 0.0))
    product = b.let("product", y * high)
    error = b.let("error", b.fma(y, high, b.k(-1.0) * product) + y * low)
    moderate = b.let("moderate", b.less(Call("abs", (product,), b.t), 1e4))
    whole = b.let("whole", b.select(moderate, product + error, product))
    rounding = b.let("rounding", b.select(moderate, error - (whole - product), 0.0))
    limited = b.clamp(whole, -746.0, 710.0)
    r, n = _reduce_exp(b, limited, rounding)
    return _scale(b, _exp_of(b, r), n)


def _pow(b: Builder, x: Expr, y: Expr) -> Expr:
    """x^y with the special values of IEEE 754; float32 computes in float64."""
    wide = b if b.double else Builder(dtypes.float64.with_lanes(b.t.lanes), fused=False)
    p, q = (x, y) if b.double else (cast(x, wide.t), cast(y, wide.t))
    p, q = wide.let("x", p), wide.let("y", q)
    a = wide.abs(p)
    result = wide.let("power", _power_of_magnitude(wide, a, q))
    whole = wide.let("whole", wide.equal(q, Call("trunc", (q,), wide.t)))
    half = wide.let("half", wide.k(0.5) * q)
    odd = And(whole, NE(half, Call("trunc", (half,), wide.t), wide.bool), wide.bool)
    negative = wide.less(wide.copysign(wide.k(1.0), p), 0.0)
    result = wide.let("signed", wide.select(And(negative, odd, wide.bool), wide.k(-1.0) * result, result))
    between = And(wide.less(p, 0.0), wide.less(-math.inf, p), wide.bool)
    result = wide.select(And(between, Not(whole, wide.bool), wide.bool), math.nan, result)
    one = Or(wide.equal(q, 0.0), wide.equal(p, 1.0), wide.bool)
    unit = And(wide.equal(a, 1.0), wide.equal(Call("abs", (q,), wide.t), math.inf), wide.bool)
    result = wide.select(Or(one, unit, wide.bool), 1.0, result)
    return result if b.double else cast(wide.close(result), b.t)


def _integer_pow(x: Expr, y: Expr) -> Expr:
    """x^y by squaring, one step a bit of y; a negative y gives 1 for 1, -1 or 1 for -1, else 0."""
    t = x.dtype
    bits = t.bits - 1 if t.kind == "int" else t.bits
    names: list[tuple[Var, Expr]] = []

    def let(name: str, e: Expr) -> Expr:
        v = Var(name, e.dtype)
        names.append((v, e))
        return v

    def k(value: int) -> Expr:
        return broadcast(const(value, t.element), t.lanes)

    truth = dtypes.bool_.with_lanes(t.lanes)
    base, exponent, result = let("x", x), let("y", y), k(1)
    first, count = base, exponent
    for step in range(bits):
        taken = NE(exponent & k(1 << step), k(0), truth)
        result = let("power", Select(taken, result * base, result, t))
        if step + 1 < bits:
            base = let("square", base * base)
    if t.kind == "int":
        odd = NE(count & k(1), k(0), truth)
        minus = Select(odd, k(-1), k(1), t)
        inverse = Select(EQ(first, k(1), truth), k(1), Select(EQ(first, k(-1), truth), minus, k(0), t), t)
        result = Select(LT(count, k(0), truth), inverse, result, t)
    for v, value in reversed(names):
        result = Let(v, value, result, t)
    return result


# ------------------------------------------------------------------------------------- whole-number division of floats


def _trunc_mod(b: Builder, x: Expr, y: Expr) -> Expr:
    q = Call("trunc", (x / y,), b.t)
    r = b.let("r", b.fma(b.k(-1.0) * q, y, x))
    wrong = And(NE(r, b.k(0.0), b.bool), NE(b.less(r, 0.0), b.less(x, 0.0), b.bool), b.bool)
    r = b.let("r", b.select(wrong, r + b.copysign(y, x), r))
    r = b.select(b.equal(r, 0.0), b.copysign(r, x), r)
    infinite = Call("isinf", (y,), b.bool)
    finite = b.less(b.abs(x), math.inf)
    return b.let("m", b.select(And(infinite, finite, b.bool), x, r))


def _floor_mod(b: Builder, x: Expr, y: Expr) -> Expr:
    r = _trunc_mod(b, x, y)
    wrong = And(NE(r, b.k(0.0), b.bool), NE(b.less(r, 0.0), b.less(y, 0.0), b.bool), b.bool)
    r = b.let("r", b.select(wrong, r + y, r))
    return b.let("m", b.select(b.equal(r, 0.0), b.copysign(r, y), r))


def _floor_div(b: Builder, x: Expr, y: Expr) -> Expr:
    quotient = b.let("quotient", x / y)
    d = b.let("d", (x - _floor_mod(b, x, y)) / y)
    down = b.let("down", Call("floor", (d,), b.t))
    whole = b.let("whole", b.select(b.less(0.5, d - down), down + b.k(1.0), down))
    whole = b.select(b.equal(whole, 0.0), b.copysign(whole, quotient), whole)
    return b.select(b.equal(y, 0.0), quotient, whole)


def _trunc_div(b: Builder, x: Expr, y: Expr) -> Expr:
    return Call("trunc", (x / y,), b.t)


# ---------------------------------------------------------------------------------------------------------------- entry

_DIVISIONS: dict[type, Callable[[Builder, Expr, Expr], Expr]] = {
    FloorDiv: _floor_div, FloorMod: _floor_mod, TruncDiv: _trunc_div, TruncMod: _trunc_mod,
}  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "log": _log, "log2": _log2, "log1p": _log1p, "tanh": _tanh,
    "sigmoid": _sigmoid, "erf": _erf, "sin": _sin, "cos": _cos, "tan": _tan, "asin": _asin, "acos": _acos,
    "atan": _atan,
    "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh, "rsqrt": _rsqrt, "pow": _pow,
}  # fmt: skip


def _build(function: Callable[..., Expr], args: Sequence[Expr]) -> Expr:
    """One expansion; 16-bit floats go through float32."""
    t = args[0].dtype
    if t.bits == 16:
        wide = dtypes.float32.with_lanes(t.lanes)
        return cast(_build(function, [cast(a, wide) for a in args]), t)
    b = Builder(t)
    return b.close(function(b, *[b.let("x", a) for a in args]))


def expand(e: Call) -> Expr:
    """The expression over primitives that stands for a call of a non-primitive intrinsic."""
    entry = INTRINSICS.get(e.name)
    if entry is None or entry.expand is None:
        raise InternalError(f"the intrinsic {e.name} has no expansion")
    return entry.expand(*e.args)


def expand_division(e: Binary) -> Expr:
    """The expression over primitives of a FloorDiv, FloorMod, TruncDiv or TruncMod of floats."""
    return _build(_DIVISIONS[type(e)], (e.a, e.b))


def _attach(name: str, function: Callable[..., Expr]) -> None:
    def build(*args: Expr) -> Expr:
        if name == "pow" and args[0].dtype.is_integer:
            return _integer_pow(*args)
        return _build(function, args)

    expander(name)(build)


for _name, _function in _FUNCTIONS.items():
    _attach(_name, _function)
