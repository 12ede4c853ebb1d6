"""Integer arithmetic that compilers of this kind got wrong, with the right answers."""

from __future__ import annotations

import itertools

import pytest

from tensorir import dtypes
from tensorir.arith import Analyzer, simplify
from tensorir.equality import structural_equal
from tensorir.expr import (
    Broadcast,
    Const,
    Ramp,
    Var,
    cast,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
    not_equal,
    ramp,
    truncdiv,
    truncmod,
)
from tests.tensorir.arith.evaluate import evaluate

X, Y = Var("x"), Var("y")
DIVISORS = [-5, -4, -3, -2, -1, 1, 2, 3, 4, 5]


def test_truncating_and_floor_division_are_kept_apart() -> None:
    """apache/tvm#2308: (240 + 48 x) / 16, (241 + 48 x) / 16 and (10 x + 5) / 10, truncating and by floor."""
    assert repr(simplify(truncdiv(240 + 48 * X, 16))) == "x * 3 + 15"
    for e in (truncdiv(241 + 48 * X, 16), truncdiv(10 * X + 5, 10)):
        assert type(simplify(e)).__name__ == "TruncDiv"
        assert evaluate(simplify(e), {X: -10}) == evaluate(e, {X: -10})
    assert evaluate(truncdiv(241 + 48 * X, 16), {X: -10}) == -14
    for constant in (240, 241):
        assert repr(simplify((constant + 48 * X) // 16)) == "x * 3 + 15"
    assert simplify((10 * X + 5) // 10) is X
    assert repr(simplify(truncdiv(241 + 48 * X, 16), {X: (0, 9)})) == "x * 3 + 15"


def test_remainder_of_a_vector_keeps_lanes_that_wrap() -> None:
    """apache/tvm#8616: (50 t + 8 o + lane) mod 20 over 8 lanes is no ramp."""
    t, o = Var("t"), Var("o")
    e = floormod(50 * t + 8 * o + ramp(const(0), const(1), 8), 20)
    analyzer = Analyzer()
    analyzer.bind(o, 0, 4)
    result = analyzer.simplify(e)
    assert type(result).__name__ == "FloorMod" and result.dtype.lanes == 8
    kept = analyzer.simplify(floormod(24 * t + 8 * o + ramp(const(0), const(1), 8), 8))
    assert isinstance(kept, Ramp) and repr(kept.base) == "0"
    block = analyzer.simplify(floordiv(32 * t + 8 * o + ramp(const(0), const(1), 8), 32))
    assert isinstance(block, Broadcast) and block.value is t
    assert isinstance(analyzer.simplify(floormod(4 * t + ramp(const(0), const(1), 8), 8)), type(e))


def test_one_round_reaches_the_fixpoint() -> None:
    """apache/tvm#5922: ((x0 - (0 - 5 x1) // 2) - 1) + (37 - 5 (x1 + 7)) // 2 is x0."""
    a, b = Var("x0"), Var("x1")
    e = ((a - floordiv(0 - 5 * b, 2)) - 1) + floordiv(37 + (b + 7) * (-5), 2)
    assert simplify(e) is a


@pytest.mark.parametrize("operation", [floordiv, floormod, truncdiv, truncmod])
def test_signs_of_division(operation) -> None:
    """Laws and non-laws alike: what simplify gives agrees everywhere."""
    forms = [
        lambda d, c: operation(X, d),
        lambda d, c: operation(operation(X, d), c),
        lambda d, c: operation(X * d + c, d),
        lambda d, c: operation(X * c, d) * d + X,
        lambda d, c: floordiv(X, d) * d + floormod(X, d) + operation(X, c),
        lambda d, c: truncdiv(X, d) * d + truncmod(X, d) - operation(X + c, d),
        lambda d, c: not_equal(operation(X, d), 0),
        lambda d, c: operation(X, d) < c,
        lambda d, c: operation(X - c, d) <= operation(X, d),
        lambda d, c: minimum(operation(X, d), c),
        lambda d, c: maximum(operation(X, d) * c, c - X),
    ]
    for form, d, c in itertools.product(forms, DIVISORS, DIVISORS):
        e = form(d, c)
        plain = simplify(e)
        positive = simplify(e, {X: (0, 21)})
        negative = simplify(e, {X: (-20, 20)})
        for x in range(-20, 21):
            want = evaluate(e, {X: x})
            assert evaluate(plain, {X: x}) == want, f"{e} at {x}: {plain}"
            side = positive if x >= 0 else negative
            assert evaluate(side, {X: x}) == want, f"{e} at {x}: {side}"


def test_narrow_types_wrap() -> None:
    """apache/tvm#12378, #12383: 127 * 127 of int8 is 1, 0 - 3 of uint32 is 4294967293."""
    k = const(127, "int8")
    assert simplify(k * k).value == 1
    u = Var("u", dtypes.uint32)
    e = const(0, "uint32") - u
    assert evaluate(simplify(e), {u: 3}) == 4294967293
    assert type(simplify((u + 1) // 2)).__name__ == "FloorDiv"
    assert repr(simplify(u - 1 < u)) != "True"
    b = Var("b", dtypes.int8)
    for e in ((b + 1) // 2 * 2, (b * 2) // 2, maximum(b + 1, b), b + 1 > b, truncdiv(b, const(-1, "int8"))):
        for value in (-128, -127, -1, 0, 1, 126, 127):
            assert evaluate(simplify(e), {b: value}) == evaluate(e, {b: value}), str(e)


def test_data_of_the_index_type_wraps_too() -> None:
    from tensorir import te

    a = te.placeholder((8,), "int64", name="A")
    i = Var("i")
    assert repr(simplify(a[i] + 1 > a[i])) != "True"
    assert type(simplify((a[i] + 1) * 2 // 2)).__name__ == "FloorDiv"
    assert isinstance(simplify(a[i] - a[i]), Const)


def test_equal_dimensions_compare_equal() -> None:
    n, m = Var("n"), Var("m")
    pairs = [
        (n * m + n, n * (m + 1)),
        ((n + 3) // 4 * 4 + m, m + (n + 3) // 4 * 4),
        (n * 2 - n - m, -m + n),
        (maximum(n, m) + 1, maximum(m + 1, n + 1)),
        ((n * m) // m, n + 0),
        (n % 4, n - n // 4 * 4),
    ]
    for a, b in pairs:
        assert structural_equal(simplify(a), simplify(b)), f"{simplify(a)} and {simplify(b)}"


def test_index_types_of_casts() -> None:
    i = Var("i", dtypes.int32)
    assert simplify(cast(cast(i, "int64"), "int32")) is i
    assert repr(simplify(cast(const(7, "int32"), "int64"))) == "7"
    assert type(simplify(cast(cast(i, "int8"), "int32"))).__name__ == "Cast"
