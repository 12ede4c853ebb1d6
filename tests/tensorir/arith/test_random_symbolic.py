"""Random conditions under symbolic ranges and facts: what is proved holds at every point, what is simplified agrees."""

from __future__ import annotations

import itertools
import random

import pytest

from tensorir.arith import Analyzer
from tensorir.arith.regions import index_range
from tensorir.expr import Const, Expr, Var, as_expr, maximum, minimum
from tests.tensorir.arith.evaluate import evaluate

N, M, A, B, C = (Var(x) for x in ("n", "m", "a", "b", "c"))


def points() -> list[dict[Var, int]]:
    """a in 0..n, b in a//2 .. a//2 + m, c in 0..4, for small n and m."""
    result = []
    for n, m in itertools.product(range(1, 5), range(1, 4)):
        for a in range(n):
            for b in range(a // 2, a // 2 + m):
                result += [{N: n, M: m, A: a, B: b, C: c} for c in range(4)]
    return result


POINTS = points()


def context() -> Analyzer:
    analyzer = Analyzer()
    analyzer.assume(N >= 1)
    analyzer.assume(M >= 1)
    analyzer.bind(A, 0, N)
    analyzer.bind(B, A // 2, M)
    analyzer.bind(C, 0, 4)
    return analyzer


def index(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        e: Expr = rng.choice([A, A, B, B, C, N, M])
        return e * rng.choice([1, 1, 1, 2, 4, -1]) + rng.choice([0, 0, 1, -1, 3])
    a, b = index(rng, depth - 1), index(rng, depth - 1)
    return rng.choice(
        [
            lambda: a + b,
            lambda: a - b,
            lambda: a * rng.choice([2, 4]),
            lambda: a * rng.choice([N, M]),
            lambda: a // rng.choice([2, 3, 4]),
            lambda: a % rng.choice([2, 3, 4]),
            lambda: a // rng.choice([N, M]),
            lambda: a % rng.choice([N, M]),
            lambda: minimum(a, b),
            lambda: maximum(a, b),
        ]
    )()


def check(seed: int) -> int:
    rng = random.Random(seed)
    analyzer = context()
    a, b = index(rng, rng.choice([0, 1, 1, 2])), index(rng, rng.choice([0, 1, 2]))
    condition = rng.choice([a < b, a <= b, a < b + rng.randint(0, 30), a * 2 < b])
    given = index(rng, 1) < index(rng, 0) if seed % 3 == 0 else None
    here = POINTS if given is None else [p for p in POINTS if evaluate(given, p)]
    if not here:
        return 0
    if given is None:
        results = [(e, analyzer.simplify(e)) for e in (a, b, condition)]
        bounds = analyzer.bounds(a)
    else:
        with analyzer.constraint(given):
            results = [(e, analyzer.simplify(e)) for e in (a, b, condition)]
            bounds = analyzer.bounds(a)
    for p in here:
        for e, result in results:
            want, got = evaluate(e, p), evaluate(result, p)
            assert want == got, f"seed {seed}: {e} is {want} at {p}, but {result} is {got} (given {given})"
        assert evaluate(a, p) in bounds, f"seed {seed}: {a} at {p} outside {bounds} (given {given})"
    if seed % 4 == 0 and given is None:
        swept(seed, a, rng)
    return isinstance(results[2][1], Const)


def swept(seed: int, e: Expr, rng: random.Random) -> None:
    """The range of e over some of the variables holds every value."""
    analyzer = context()
    ranges = {A: (as_expr(0), N), B: (A // 2, M), C: (as_expr(0), as_expr(4))}
    relaxed = rng.choice([(C,), (B,), (B, C), (A, B), (A, B, C)])
    result = index_range(e, {v: ranges[v] for v in relaxed}, analyzer)
    if result is None:
        return
    for p in POINTS:
        low, extent = evaluate(result[0], p), evaluate(result[1], p)
        assert low <= evaluate(e, p) < low + extent, f"seed {seed}: {e} over {relaxed} at {p}: {result}"


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_random(start: int) -> None:
    decided = sum(check(seed) for seed in range(start, start + 100))
    assert decided > 10  # the prover is not idle


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 7000, 1000))
def test_random_long(start: int) -> None:
    for seed in range(start, start + 1000):
        check(seed)
