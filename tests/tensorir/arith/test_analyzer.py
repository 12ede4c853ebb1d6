"""What the analyzer proves, bounds and prints."""

from __future__ import annotations

import pytest

from tensorir import te
from tensorir.arith import Analyzer, Interval, simplify
from tensorir.dtypes import INDEX
from tensorir.expr import (
    Const,
    Expr,
    Var,
    as_expr,
    const,
    equal,
    if_then_else,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    not_equal,
    select,
)
from tensorir.interpreter import evaluate

P, J, K, N, M, F = (Var(x) for x in "ijknmf")


def context(**ranges: tuple) -> Analyzer:
    analyzer = Analyzer()
    by_name = {v.name: v for v in (P, J, K, N, M, F)}
    for name, (begin, extent) in ranges.items():
        analyzer.bind(by_name[name], begin, extent)
    return analyzer


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((P * 4 + J) // 4, "i"),
        ((P * 4 + J) % 4, "j"),
        ((P * 4 + J) // 28 * 28 + (P * 4 + J) % 28, "i * 4 + j"),
        ((P * 4 + J) % 28, "i % 7 * 4 + j"),
        ((P * 4 + J) // 28, "i // 7"),
        ((16 * P + J) // 16, "i"),
        ((16 * P + K) // 16, "i + k // 16"),
        (K // 3 // 5, "k // 15"),
        ((K // 3 + 2) // 5, "(k + 6) // 15"),
        (K % 24 % 8, "k % 8"),
        (K % 24 // 4, "k // 4 % 6"),
        (K % 6 % 4, "k % 6 % 4"),
        (K // 7 * 7 + K % 7, "k"),
        (F // 12 * 12 + F % 12 // 3 * 3 + F % 3, "f"),
        ((9 * K) % 8, "k % 8"),
        ((K + 9) // 8, "(k + 1) // 8 + 1"),
        ((4 * K + 2) // 8, "k // 2"),
        ((P * 64 + J * 16 + K % 16) // 16 % 4, "j"),
        (J // 4, "0"),
        (J % 4, "j"),
        ((K * N + J * N) // N, "j + k"),
        (K % N + K // N * N, "k"),
        (K - K // N * N, "k % n"),
        ((K * N) % N, "0"),
        (minimum(J, 3), "j"),
        (minimum(J, 10), "j"),
        (maximum(J, 2) + 1, "max(j + 1, 3)"),
        (minimum(K + 3, N + 3), "min(k + 3, n + 3)"),
        (minimum(minimum(K, N), K), "min(k, n)"),
        (minimum(minimum(K, 7), 4), "min(k, 4)"),
        (maximum(K * 4, N * 4), "max(k, n) * 4"),
        (N - maximum(K, 0), "n - max(k, 0)"),
        (minimum(N - K * 4, 4), "min(n - k * 4, 4)"),
        (equal(K * 2, 5), "False"),
        (equal(K * 2, N * 2), "k == n"),
        (K + 1 < N + 1, "k < n"),
        (K * 4 + J < N * 4, "k < n"),
        (K * 4 + J >= 8, "1 < k"),
        (K // 4 < 3, "k < 12"),
        (K // 4 >= 3, "11 < k"),
        (less_equal(K, N), "k <= n"),
        (logical_not(K < N), "n <= k"),
        (logical_not(equal(K, N)), "k != n"),
        (logical_and(K < 5, K < 3), "k < 3"),
        (logical_or(K < 5, K < 3), "k < 5"),
        (logical_and(K < 2, K > 5), "False"),
        (logical_or(K < 5, K >= 2), "True"),
        (logical_and(K < N, logical_not(K < N)), "False"),
        (logical_and(J < 4, K < N), "k < n"),
        (select(J < 4, K, N), "k"),
        (if_then_else(K < N, F, F), "f"),
        (select(K < N, 1, 2) - select(K < N, 1, 2), "0"),
        (K * 0, "0"),
        (K - K, "0"),
        (N * (M + 1) - N * M, "n"),
        ((K % 32 * 9 + J) // 96 * 96 + (K * 9 + J) % 96, "k % 32 * 9 + j"),
        ((K % 64 * 9 + J) // 96 - (K * 9 + J) // 96, "k // 64 * -6"),
    ],
    ids=str,
)
def test_simplified(e: Expr, text: str) -> None:
    assert repr(context(j=(0, 4)).simplify(e)) == text


def test_floats_keep_their_bits() -> None:
    a = te.placeholder((8,), name="A")
    x = a[P]
    for e in (x * 0.0, x + 0.0, x - x, x / x, x * 2.0 / 2.0, (x + 1.0) + 2.0):
        assert type(simplify(e)) is type(e)
    assert simplify(x * 1.0) is not None and repr(simplify(x * 1.0)) == "A[i]"
    assert repr(simplify(x * -1.0 * -1.0)) == "A[i]"
    assert repr(simplify(x + const(-0.0))) == "A[i]"
    assert repr(simplify(x - 0.0)) == "A[i]"
    total = simplify(const(16777216.0) + const(1.0))
    assert isinstance(total, Const) and total.value == 16777216.0
    assert repr(simplify(a[P + 1 - 1 + J - J])) == "A[i]"


def test_symbolic_ranges() -> None:
    analyzer = Analyzer()
    analyzer.assume(N >= 1)
    analyzer.assume(M >= 1)
    analyzer.bind(P, 0, N)
    analyzer.bind(J, 0, 4)
    analyzer.bind(K, 0, M)
    analyzer.bind(F, 0, N * M)
    for condition in (
        P < N,
        P >= 0,
        P * 4 + J < N * 4,
        P * M + K < N * M,
        F // M < N,
        F % M < M,
        (N - 1) - P >= 0,
        N * M >= 1,
        minimum(P + 4, N) <= N,
        maximum(P - 4, 0) < N,
        (N + 3) // 4 * 4 >= N,
        minimum(P + 4, N) - P >= 1,
    ):
        assert analyzer.prove(condition), str(condition)
    for condition in (P < N - 1, P * 4 + J < N * 4 - 1, P > 0, K < N, F % M < M - 1, F // M < N - 1):
        assert not analyzer.prove(condition), str(condition)
    assert repr(analyzer.simplify((P * M + K) // M)) == "i"
    assert repr(analyzer.simplify((P * M + K) % M)) == "k"


def test_an_iteration_of_a_loop_knows_that_the_loop_is_not_empty() -> None:
    for extent in (N, (N + 15) // 16, N * M):
        analyzer = context()
        x = Var("x")
        analyzer.bind(x, const(0), extent)
        assert repr(analyzer.simplify(x // extent)) == "0"
        assert repr(analyzer.simplify(x % extent)) == "x"
        assert repr(analyzer.simplify((x - extent) // extent)) == "-1"
        assert repr(analyzer.simplify((x + 1) // extent)) != "0"


def test_split_with_a_tail() -> None:
    io, ii = Var("io"), Var("ii")
    analyzer = Analyzer()
    analyzer.assume(N >= 1)
    analyzer.bind(io, 0, (N + 31) // 32)
    analyzer.bind(ii, 0, 32)
    assert not analyzer.prove(io * 32 + ii < N)
    assert analyzer.prove(io * 32 < N)
    with analyzer.constraint(io * 32 + ii < N):
        assert analyzer.prove(io * 32 + ii < N)
        assert analyzer.prove(io * 32 + ii + 1 <= N)
        assert analyzer.prove((io * 32 + ii) * 4 + 3 < N * 4)
    assert not analyzer.prove(io * 32 + ii < N)


def test_triangular_ranges() -> None:
    analyzer = context(i=(0, 10))
    analyzer.bind(J, P, 10 - P)
    assert analyzer.prove(J >= P)
    assert analyzer.prove(J < 10)
    assert analyzer.bounds(J) == Interval(0, 9)
    assert analyzer.bounds(J - P) == Interval(-9, 9) or analyzer.prove(J - P >= 0)


def test_constraints_come_and_go() -> None:
    analyzer = context(i=(0, 8))
    assert repr(analyzer.simplify(P < 4)) == "i < 4"
    with analyzer.constraint(P < 4):
        assert analyzer.prove(P < 4)
        assert analyzer.bounds(P) == Interval(0, 3)
        assert repr(analyzer.simplify(P // 4)) == "0"
        with analyzer.constraint(P >= 3):
            assert repr(analyzer.simplify(P * 2)) == "6"
        with analyzer.constraint(not_equal(P, 0)):
            assert analyzer.bounds(P) == Interval(1, 3)
    assert repr(analyzer.simplify(P // 4)) == "i // 4"
    assert analyzer.bounds(P) == Interval(0, 7)
    flag = Var("flag", te.const(True).dtype)
    with analyzer.constraint(flag):
        assert analyzer.prove(flag)
        assert repr(analyzer.simplify(select(flag, P, J))) == "i"
    assert not analyzer.prove(flag)
    with analyzer.constraint(logical_not(logical_or(P < 2, P > 5))):
        assert analyzer.bounds(P) == Interval(2, 5)
    with analyzer.constraint(equal(P, 3)):
        assert repr(analyzer.simplify(P + J)) == "j + 3"


def test_memory_is_no_knowledge() -> None:
    """A store may follow the condition, so a condition on memory says nothing about a later read."""
    a = te.placeholder((8,), name="A")
    c = te.placeholder((8,), "int32", name="c")
    analyzer = context(i=(0, 8))
    with analyzer.constraint(logical_and(a[P] > 0.0, logical_and(c[P] > 0, P < 4))):
        assert not analyzer.prove(a[P] > 0.0)
        assert not analyzer.prove(c[P] > 0)


def test_bounds() -> None:
    analyzer = context(i=(0, 8), j=(-3, 7))
    cases = {
        P * 4 + 3: (3, 31),
        P - J: (-3, 10),
        P // 3: (0, 2),
        J // 2: (-2, 1),
        P % 5: (0, 4),
        J % 4: (0, 3),
        P * J: (-21, 21),
        minimum(P, J): (-3, 3),
        maximum(P, J): (0, 7),
        P * 8 % 16: (0, 8),
        select(P < 2, P, J): (-3, 7),
        K: (None, None),
        K % 8: (0, 7),
        minimum(K, 5): (None, 5),
    }
    for e, want in cases.items():
        assert tuple(analyzer.bounds(e)) == want, str(e)
    small = te.placeholder((8,), "uint8", name="T")
    assert tuple(analyzer.bounds(small[P])) == (0, 255)
    assert tuple(analyzer.bounds(small[P].astype("int64") + 1)) == (1, 256)


def test_extent_of_one_is_a_value() -> None:
    analyzer = context(i=(0, 1), j=(5, 1))
    assert repr(analyzer.simplify(P * 4 + J)) == "5"
    analyzer.bind(P, 0, 8)
    assert repr(analyzer.simplify(P * 4 + J)) == "i * 4 + 5"


def test_rebinding_forgets() -> None:
    analyzer = context(i=(0, 4))
    assert repr(analyzer.simplify(P // 4)) == "0"
    analyzer.bind(P, 0, 8)
    assert repr(analyzer.simplify(P // 4)) == "i // 4"


def test_same_object_for_equal_results() -> None:
    analyzer = Analyzer()
    a = te.placeholder((8,), name="A")
    assert analyzer.simplify(P + J) is analyzer.simplify(J + P)
    assert analyzer.simplify(a[P + J]) is analyzer.simplify(a[J + P])
    e = analyzer.simplify(a[P + J] * 2.0)
    assert analyzer.simplify(e) is e


def test_deep_expressions() -> None:
    total: Expr = as_expr(0)
    product: Expr = const(0.0)
    a = te.placeholder((5000,), name="A")
    nested: Expr = P + 0
    shared: Expr = P + 1
    for n in range(5000):
        total = total + (P + n)
        product = product + a[n] * 2.0
        nested = minimum(nested + 1, N) if n < 1000 else nested
    for _ in range(100):
        shared = shared + shared
    assert repr(simplify(total)) == f"i * 5000 + {5000 * 4999 // 2}"
    simplify(product)
    assert repr(simplify(nested)) == "min(n, i + 1000)" or repr(simplify(nested)) == "min(i + 1000, n)"
    assert repr(simplify(shared)) == f"i * {2**100}" or simplify(shared) is not None


def test_a_choice_between_one_and_zero_stays_a_number() -> None:
    """select(c, 1, 0) over integers is not the condition c: the literal 1 is no True."""
    x = Var("x")
    e = simplify(select(less(x, 3), const(1), const(0)))
    assert e.dtype == INDEX
    assert evaluate(e, {x: 2}) == 1 and evaluate(e, {x: 3}) == 0


def test_two_vector_variables_are_two() -> None:
    """Vector variables of one type are told apart."""
    a, b = Var("a", INDEX.with_lanes(4)), Var("b", INDEX.with_lanes(4))
    analyzer = Analyzer()
    assert analyzer.simplify(a) is a
    assert analyzer.simplify(b) is b
