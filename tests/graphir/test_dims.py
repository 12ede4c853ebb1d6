"""Dimensions in canonical form."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphir import dims
from tensorir import expr
from tensorir.errors import ExpressionError
from tensorir.expr import Expr, const

N, M = dims.symbol("n"), dims.symbol("m")


def test_equal_sizes_are_the_same_object() -> None:
    assert dims.canonical(N * 4 + 4 - 4) is dims.canonical(2 * N + 2 * N)
    assert dims.canonical((N + 1) * M) is dims.canonical(M * N + M)
    assert dims.canonical((N * 64 * 49) // N) is dims.as_dim(64 * 49)
    assert dims.canonical((2 * N + 5) // 2) is dims.canonical(N + 2)
    assert dims.canonical(((N + 1) // 2 + 1) // 2) is dims.canonical((N + 3) // 4)
    assert dims.canonical(expr.maximum(N + 2, N)) is dims.canonical(N + 2)
    assert dims.canonical(N + 1) is not dims.canonical(N + 2)


def test_conditions_fold_by_sign() -> None:
    assert dims.constant(expr.equal(N, -1)) == 0
    assert dims.constant(expr.less(N, N + 1)) == 1
    assert dims.constant(expr.equal(N, M)) is None
    assert dims.same(expr.select(expr.equal(N, -1), M, N), N)


def test_truncating_division_of_a_negative_is_kept_apart() -> None:
    quotient = dims.canonical(expr.truncdiv(N - 10, 4))
    assert dims.evaluate(quotient, {"n": 3}) == -1
    assert dims.evaluate(dims.canonical((N - 10) // 4), {"n": 3}) == -2


EXPRS = st.recursive(
    st.one_of(st.sampled_from([N, M]), st.integers(-3, 9).map(const)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([expr.add, expr.sub, expr.mul, expr.minimum, expr.maximum]), inner, inner),
        st.tuples(
            st.sampled_from([expr.floordiv, expr.floormod, expr.truncdiv, expr.truncmod]),
            inner,
            st.integers(1, 5).map(const),
        ),
    ).map(lambda t: t[0](t[1], t[2])),
    max_leaves=8,
)


def value(e: Expr, env: dict[str, int]) -> int:
    """The value of an expression, straight from its nodes."""
    match e:
        case expr.Const():
            return int(e.value)
        case expr.Var():
            return env[e.name]
    a, b = value(e.a, env), value(e.b, env)  # type: ignore[attr-defined]
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    table = {
        expr.Add: a + b, expr.Sub: a - b, expr.Mul: a * b, expr.Min: min(a, b), expr.Max: max(a, b),
        expr.FloorDiv: a // b if b else 0, expr.FloorMod: a % b if b else 0, expr.TruncDiv: quotient,
        expr.TruncMod: a - b * quotient,
    }  # fmt: skip
    return table[type(e)]


@settings(max_examples=300, deadline=None)
@given(EXPRS)
def test_canonical_form_keeps_the_value_and_parses_back(e: Expr) -> None:
    made = dims.canonical(e)
    assert dims.parse(dims.text(made)) is made
    for n, m in itertools.product((0, 1, 2, 5, 7, 16), (0, 1, 3, 10)):
        env = {"n": n, "m": m}
        assert dims.evaluate(made, env) == value(e, env), dims.text(made)


def test_text_that_is_no_dimension() -> None:
    for text in ("n +", "f(n)", "'a'", "n if m else 2"):
        with pytest.raises(ExpressionError, match="is not a dimension"):
            dims.parse(text)
