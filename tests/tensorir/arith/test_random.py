"""Random integer expressions: simplified and original agree at every point of the variables' ranges, bounds hold, and
what is proved is true."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tensorir import dtypes
from tensorir.arith import Analyzer
from tensorir.dtypes import DType
from tensorir.expr import (
    Const,
    Expr,
    Var,
    const,
    equal,
    floordiv,
    floormod,
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
    truncdiv,
    truncmod,
)
from tests.tensorir.arith.evaluate import evaluate

_COMPARE = (less, less_equal, equal, not_equal)


def number(rng: random.Random, variables: list[Var], depth: int, t: DType) -> Expr:
    """A random integer expression."""
    if depth == 0 or rng.random() < 0.1:
        return (
            rng.choice(variables) if rng.random() < 0.75 else const(rng.randint(0 if t.kind == "uint" else -9, 20), t)
        )
    choice = rng.random()
    a = number(rng, variables, depth - 1, t)
    if choice < 0.35:
        divisor = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, *([] if t.kind == "uint" else [-1, -2, -3, -4])])
        operation = rng.choice([floordiv, floormod, floordiv, floormod, truncdiv, truncmod])
        return operation(a, const(divisor, t))
    if choice < 0.5:
        return a * const(rng.choice([2, 3, 4, 8, 16] + ([] if t.kind == "uint" else [-1, -2, -4])), t)
    b = number(rng, variables, depth - 1, t)
    if choice < 0.55:
        return rng.choice([floordiv, floormod])(a, b)
    if choice < 0.75:
        return a + b
    if choice < 0.84:
        return a - b
    if choice < 0.94:
        return rng.choice([minimum, maximum])(a, b)
    return rng.choice([select, if_then_else])(condition(rng, variables, depth - 1, t), a, b)


def condition(rng: random.Random, variables: list[Var], depth: int, t: DType) -> Expr:
    """A random condition."""
    if depth > 0 and rng.random() < 0.4:
        a = condition(rng, variables, depth - 1, t)
        if rng.random() < 0.25:
            return logical_not(a)
        return rng.choice([logical_and, logical_or])(a, condition(rng, variables, depth - 1, t))
    a, b = number(rng, variables, max(depth - 1, 0), t), number(rng, variables, max(depth - 1, 0), t)
    return rng.choice(_COMPARE)(a, b)


def check(seed: int, t: DType, context: bool) -> None:
    """One expression in one context against every sampled point."""
    rng = random.Random(seed)
    variables = [Var(name, t) for name in "ijkn"]
    ranges = {v: (lo := rng.randint(0 if t.kind == "uint" else -5, 9), lo + rng.randint(0, 20)) for v in variables}
    analyzer = Analyzer()
    if context:
        for v, (lo, hi) in ranges.items():
            analyzer.bind(v, const(lo, t), const(hi - lo + 1, t))
    e: Expr = number(rng, variables, 4, t) if seed % 2 else condition(rng, variables, 3, t)
    given: Expr | None = condition(rng, variables, 1, t) if context and rng.random() < 0.4 else None
    points: list[dict[Var, Any]] = []
    for _ in range(60):
        if context:
            point = {v: rng.randint(lo, hi) for v, (lo, hi) in ranges.items()}
        else:
            span = (0, 60) if t.kind == "uint" else (-60, 60)
            point = {v: rng.randint(*span) for v in variables}
        if given is None or evaluate(given, point):
            points.append(point)
    if given is None:
        compare(analyzer, e, points, t, seed)
    else:
        before = analyzer.simplify(e)
        with analyzer.constraint(given):
            compare(analyzer, e, points, t, seed)
        assert analyzer.simplify(e) is before


def compare(analyzer: Analyzer, e: Expr, points: list[dict[Var, Any]], t: DType, seed: int) -> None:
    result = analyzer.simplify(e)
    assert analyzer.simplify(result) is result
    bounds = analyzer.bounds(e) if e.dtype.is_integer else None
    for point in points:
        want = evaluate(e, point)
        if t == dtypes.INDEX and divides_by_zero(e, point):
            continue
        got = evaluate(result, point)
        values = {v.name: x for v, x in point.items()}
        assert got == want, f"seed {seed}: {e} at {values} is {want}, but {result} is {got}"
        if bounds is not None:
            assert want in bounds, f"seed {seed}: {e} at {values} is {want}, outside {bounds}"


def divides_by_zero(e: Expr, point: dict[Var, Any]) -> bool:
    """Whether some divisor in e is 0: index arithmetic assumes that it is not."""
    from tensorir.expr import FloorDiv, FloorMod
    from tensorir.visit import walk_expr

    return any(isinstance(n, (FloorDiv, FloorMod)) and evaluate(n.b, point) == 0 for n in walk_expr(e))


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("t", [dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.uint32], ids=str)
def test_random(t: DType, context: bool) -> None:
    for seed in range(250 if t == dtypes.int64 else 120):
        check(seed, t, context)


@pytest.mark.slow
@pytest.mark.parametrize("t", [dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.uint32], ids=str)
def test_random_long(t: DType) -> None:
    for seed in range(1000, 6000):
        check(seed, t, seed % 3 != 0)


def test_result_is_const_when_it_must_be() -> None:
    i = Var("i")
    analyzer = Analyzer()
    analyzer.bind(i, 0, 8)
    assert isinstance(analyzer.simplify(i < 8), Const)
