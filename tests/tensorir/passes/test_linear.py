"""IndexScope: canonical forms keep values, proofs are true, on random expressions by brute force."""

from __future__ import annotations

import itertools
import random

import pytest

from tensorir import te
from tensorir.expr import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
    less,
    less_equal,
    ramp,
)
from tensorir.interpreter import evaluate
from tensorir.passes.linear import IndexScope, predicate_verdict

DIVISIONS = (FloorDiv, FloorMod, TruncDiv, TruncMod)


def random_expr(rng: random.Random, variables: list[Var], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(variables) if rng.random() < 0.7 else const(rng.randint(-9, 9))
    cls = rng.choice([Add, Sub, Add, Sub, Mul, Min, Max, *DIVISIONS])
    a = random_expr(rng, variables, depth - 1)
    if cls is Mul or cls in DIVISIONS:
        b: Expr = const(rng.choice([1, 2, 3, 4, 6, 8]) * (1 if cls in DIVISIONS else rng.choice([-1, 1])))
    else:
        b = random_expr(rng, variables, depth - 1)
    return cls(a, b, a.dtype)


@pytest.mark.parametrize("seed", range(40))
def test_simplified_expressions_keep_their_values(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        x, y, z = Var("x"), Var("y"), Var("z")
        scope = IndexScope()
        ranges = {}
        for v in (x, y, z):
            begin, extent = rng.randint(-3, 3), rng.randint(1, 5)
            scope.bind(v, const(begin), const(extent))
            ranges[v] = range(begin, begin + extent)
        e, other = random_expr(rng, [x, y, z], 4), random_expr(rng, [x, y, z], 2)
        simple = scope.simplify(e)
        low, high = scope.bounds(e)
        verdict = scope.prove(scope.simplify(less_equal(e, other)))
        for point in itertools.product(*ranges.values()):
            env = dict(zip(ranges, point, strict=True))
            value = evaluate(e, env)
            assert evaluate(simple, env) == value, (repr(e), repr(simple), env)
            assert (low is None or low <= value) and (high is None or value <= high), (repr(e), low, high, env)
            assert verdict is None or bool(value <= evaluate(other, env)) == verdict, (repr(e), repr(other), env)


@pytest.mark.parametrize("seed", range(20))
def test_facts_prove_only_what_is_true(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        x, y = Var("x"), Var("y")
        scope = IndexScope()
        scope.bind(x, const(0), const(6))
        scope.bind(y, const(0), const(6))
        given = less(random_expr(rng, [x, y], 2), random_expr(rng, [x, y], 2))
        asked = less_equal(random_expr(rng, [x, y], 2), random_expr(rng, [x, y], 2))
        if isinstance(given, Const) or isinstance(asked, Const):
            continue
        with scope.assume(given):
            verdict = scope.prove(scope.simplify(asked))
        for point in itertools.product(range(6), repeat=2):
            env = dict(zip((x, y), point, strict=True))
            if verdict is not None and evaluate(given, env):
                assert bool(evaluate(asked, env)) == verdict


def test_equal_expressions_are_one_object() -> None:
    scope = IndexScope()
    i, j = Var("i"), Var("j")
    scope.bind(i, const(0), const(4))
    scope.bind(j, const(0), const(8))
    assert scope.simplify((i * 4 + j) * 8 - i * 32) is scope.simplify(8 * j)
    assert scope.simplify((i * 8 + j) // 8) is i
    assert scope.simplify((i * 8 + j) % 8) is j
    f = Var("f")
    scope.bind(f, const(0), const(4 * 5 * 6))
    index = ((f // 30) * 5 + (f // 6) % 5) * 6 + f % 6
    assert scope.simplify(index) is f


def test_lanes_that_cross_a_block_stay_apart() -> None:
    """apache/tvm#8616: a remainder by 20 whose 8 lanes may wrap."""
    scope = IndexScope()
    t, o, s = Var("t"), Var("o"), Var("s")
    for v, n in ((t, 2), (o, 4), (s, 8)):
        scope.bind(v, const(0), const(n))
    index = scope.simplify((50 * t + 8 * o + s) % 20)
    for values in itertools.product(range(2), range(4), range(8)):
        env = dict(zip((t, o, s), values, strict=True))
        assert evaluate(index, env) == (50 * values[0] + 8 * values[1] + values[2]) % 20


def test_symbolic_proofs() -> None:
    n = Var("n")
    scope = IndexScope([n])
    i, io, ii = Var("i"), Var("io"), Var("ii")
    with scope.inside(i, const(0), n):
        assert scope.prove(less(i, n)) is True
        assert scope.prove(less(const(0), n)) is True
        assert scope.prove(less(i + 1, n)) is None
    with scope.inside(io, const(0), n // 64), scope.inside(ii, const(0), const(64)):
        assert scope.prove(scope.simplify(less(io * 64 + ii, n))) is True
        assert scope.prove(scope.simplify(less(io * 64 + ii, n - 1))) is None


def test_numbers_that_may_wrap_are_not_compared() -> None:
    a = te.placeholder((4,), "int64", name="A")
    i, x = Var("i"), Var("x")
    scope = IndexScope()
    scope.bind(i, const(0), const(4))
    for value in (a[i], x):
        assert scope.prove(scope.simplify(less(value, value + 1))) is None
        assert evaluate(scope.simplify((x * 4 + 8) // 4), {x: 1 << 61}) == evaluate((x * 4 + 8) // 4, {x: 1 << 61})
        assert repr(scope.simplify(value + 1 - value)) == "1"
    assert scope.prove(scope.simplify(less(i, i + 1))) is True


def test_verdict_on_lanes() -> None:
    scope = IndexScope()
    b = Var("b")
    scope.bind(b, const(0), const(3))
    lanes = ramp(b * 8, 1, 8)
    assert predicate_verdict(less(lanes, const(24)), scope) is True
    assert predicate_verdict(less(lanes, const(23)), scope) is None
    assert predicate_verdict(less(lanes, const(0)), scope) is False


def test_long_sums_do_not_recurse() -> None:
    scope = IndexScope()
    v = Var("v")
    total: Expr = const(0)
    scope.bind(v, const(0), const(2))
    for n in range(5000):
        total = Add(total, v if n % 2 else const(1), v.dtype)
    assert repr(scope.simplify(total)) == "v * 2500 + 2500"


def test_two_ways_to_write_the_digits_of_one_number_join() -> None:
    scope = IndexScope()
    x, i = Var("x"), Var("i")
    scope.bind(x, const(0), const(640))
    scope.bind(i, const(0), const(9))
    tile = scope.simplify(x % 32 * 9 + i)
    assert scope.simplify(tile // 96 * 96 + (x * 9 + i) % 96) is tile
    for other in (x % 16 * 9 + i, x % 32 * 9 + i + 1):  # not the same digit
        e = other // 96 * 96 + (x * 9 + i) % 96
        for point in itertools.product(range(64), range(9)):
            env = dict(zip((x, i), point, strict=True))
            assert evaluate(scope.simplify(e), env) == evaluate(e, env)


def test_a_remainder_by_zero_is_no_part_of_a_number() -> None:
    scope = IndexScope()
    x, y = Var("x"), Var("y")
    for e in (y + x % const(0), y + x // const(0) * 3 + x % const(0)):
        for point in itertools.product(range(-3, 4), range(3)):
            env = dict(zip((x, y), point, strict=True))
            assert evaluate(scope.simplify(e), env) == evaluate(e, env)
