"""Ranges swept by indices: exact hulls by enumeration, symbolic begins, unions, and the sizes of known hard cases."""

from __future__ import annotations

import itertools
import random

import pytest

from tensorir import te
from tensorir.arith import Analyzer
from tensorir.arith.regions import constant_extent, covers, index_range, intersect_range, union_ranges
from tensorir.expr import Expr, Var, as_expr, const, maximum, minimum, select
from tests.tensorir.arith.evaluate import evaluate


def spelled(result) -> tuple[str, str]:
    return repr(result[0]), repr(result[1])


P, J, K, N = (Var(x) for x in "ijkn")


def hull(e: Expr, relaxed: dict[Var, tuple], bound: dict[Var, tuple] | None = None):
    analyzer = Analyzer()
    analyzer.assume(N >= 0)
    for v, (b, x) in {**(bound or {}), **relaxed}.items():
        analyzer.bind(v, b, x)
    return index_range(e, {v: (as_expr(b), as_expr(x)) for v, (b, x) in relaxed.items()}, analyzer)


def test_affine() -> None:
    assert spelled(hull(P * 4 + J, {J: (0, 6)})) == ("i * 4", "6")
    assert spelled(hull(P + J * 5, {J: (0, 3)}, {P: (0, 5)})) == ("i", "11")
    assert spelled(hull(P * 2 - J, {J: (0, 3)})) == ("i * 2 - 2", "3")
    assert spelled(hull(P * N + J, {P: (0, 4), J: (0, N)})) == ("0", "n * 4")
    assert spelled(hull(J, {J: (P * 8, 8)})) == ("i * 8", "8")
    assert spelled(hull(P, {J: (0, 3)})) == ("i", "1")


def test_stencils_do_not_grow() -> None:
    assert spelled(hull(P + K, {P: (0, 10), K: (0, 3)})) == ("0", "12")
    assert spelled(hull(J, {J: (0, 20)})) == ("0", "20")
    h, kh = Var("h"), Var("kh")
    assert spelled(hull(h + kh, {h: (0, 56), kh: (0, 3)})) == ("0", "58")


def test_guards_at_the_end_cancel() -> None:
    io, ii = Var("io"), Var("ii")
    inner = (as_expr(0), minimum(4, N - io * 4))
    analyzer = Analyzer()
    analyzer.bind(io, 0, (N + 3) // 4)
    analyzer.bind(ii, *inner)
    assert spelled(index_range(io * 4 + ii, {ii: inner}, analyzer)) == ("io * 4", "min(n - io * 4, 4)")
    whole = index_range(io * 4 + ii, {ii: inner, io: (as_expr(0), (N + 3) // 4)}, analyzer)
    assert whole is not None and repr(whole[0]) == "0"
    for n in range(1, 30):
        assert evaluate(whole[1], {N: n}) == n


def test_fused_loops() -> None:
    f = Var("f")
    assert spelled(hull(f // 7, {f: (0, 49)})) == ("0", "7")
    assert spelled(hull(f % 7, {f: (0, 49)})) == ("0", "7")
    assert spelled(hull((f + P * 16) // 4, {f: (0, 16)}, {P: (0, 4)})) == ("i * 4", "4")
    assert spelled(hull((f + P * 16) % 64 // 16, {f: (0, 16)}, {P: (0, 4)})) == ("i", "1")
    assert spelled(hull(f % 8 * 2 + J % 2, {f: (0, 64), J: (0, 6)})) == ("0", "16")


def test_clamped_and_data_dependent() -> None:
    assert spelled(hull(maximum(P - 1, 0), {P: (0, 8)})) == ("0", "7")
    assert spelled(hull(minimum(P + J, 5), {J: (0, 3)}, {P: (0, 8)})) == ("min(i, 5)", "min(i, 3) - min(i, 5) + 3")
    index = te.placeholder((8,), "int64", name="index")
    assert hull(index[P], {P: (0, 8)}) is None
    small = te.placeholder((8,), "uint8", name="index")
    assert spelled(hull(small[P].astype("int64"), {P: (0, 8)})) == ("0", "256")
    assert hull(select(P < 4, P, J), {P: (0, 8)}) is None


def test_unions() -> None:
    analyzer = Analyzer()

    def union(*items):
        return spelled(union_ranges([(as_expr(b), as_expr(x)) for b, x in items], analyzer))

    assert union((P * 4, 6), (P * 4 + 1, 6)) == ("i * 4", "7")
    assert union((P * 4 + 1, 2), (P * 4, 6), (P * 4 + 3, 9)) == ("i * 4", "12")
    assert union((N - 1, N), (N, N)) == ("n - 1", "n + 1")
    assert union((0, 3), (5, 2)) == ("0", "7")
    assert union_ranges([(P, const(1)), None], analyzer) is None


def test_intersections() -> None:
    analyzer = Analyzer()
    analyzer.bind(P, 0, 8)
    begin, extent = intersect_range((P * 4 - 1, as_expr(6)), (as_expr(0), as_expr(32)), analyzer)
    assert repr(begin) == "max(i * 4 - 1, 0)"
    for i in range(8):
        want = range(max(4 * i - 1, 0), min(4 * i + 5, 32))
        assert (evaluate(begin, {P: i}), evaluate(extent, {P: i})) == (want.start, len(want))
    assert constant_extent(extent, analyzer) == 6
    assert spelled(intersect_range(None, (as_expr(0), N), analyzer)) == ("0", "n")


def test_covering() -> None:
    analyzer = Analyzer()
    analyzer.assume(N >= 4)
    analyzer.bind(P, 0, N - 3)
    assert covers((as_expr(0), N), (P, as_expr(4)), analyzer)
    assert not covers((as_expr(0), N), (P, as_expr(5)), analyzer)
    assert not covers((as_expr(0), N), (P - 1, as_expr(2)), analyzer)


@pytest.mark.parametrize("seed", range(150))
def test_random_hulls(seed: int) -> None:
    """Every swept value lies in the range; for affine indices the ends are met."""
    rng = random.Random(seed)
    extents = {P: rng.randint(1, 6), J: rng.randint(1, 6), K: rng.randint(1, 5)}

    def index(depth: int) -> Expr:
        if depth == 0:
            return rng.choice([P, J, K]) * rng.choice([1, 1, 2, 3, 4, -1]) + rng.randint(-3, 3)
        a = index(depth - 1)
        return rng.choice(
            [
                lambda: a + index(depth - 1),
                lambda: a // rng.choice([2, 3, 4]),
                lambda: a % rng.choice([2, 3, 8]),
                lambda: minimum(a, rng.randint(0, 9)),
                lambda: maximum(a, index(0)),
                lambda: a * rng.choice([2, 3, -2]),
            ]
        )()

    affine = seed % 3 == 0
    e = P * rng.randint(-3, 4) + J * rng.randint(1, 4) + K if affine else index(3)
    relaxed = {v: (0, extents[v]) for v in ((J, K) if seed % 2 else (P, J, K))}
    result = hull(e, relaxed, {v: (0, x) for v, x in extents.items()})
    assert result is not None
    for i in range(extents[P]) if P not in relaxed else [0]:
        swept_values = []
        for point in itertools.product(*(range(x) for _, x in relaxed.values())):
            swept_values.append(evaluate(e, {P: i, **dict(zip(relaxed, point, strict=True))}))
        low, extent = evaluate(result[0], {P: i}), evaluate(result[1], {P: i})
        assert low <= min(swept_values) and max(swept_values) < low + extent, f"{e}: {result}"
        if affine:
            assert (low, extent) == (min(swept_values), max(swept_values) - min(swept_values) + 1)
