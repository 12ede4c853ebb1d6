"""partition_loops: hot loops carry no guard."""

from __future__ import annotations

import dataclasses

import pytest

from tensorir import te
from tensorir.expr import Const, IfThenElse, Var
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.partition_loops import partition_loops
from tensorir.passes.simplify_program import simplify_program
from tensorir.passes.tighten_loops import tighten_loops
from tensorir.stmt import Allocate, For, Func, If, Store, seq
from tensorir.visit import substitute_stmt, walk_exprs, walk_stmt
from tests.tensorir.passes.checking import MASKED, expected, loops, require_same_bits, scaled, split, text, with_kind


def lowered(func: Func) -> Func:
    return tighten_loops(lower_blocks(decompose_reductions(func)), MASKED)


def partitioned(func: Func) -> Func:
    return simplify_program(partition_loops(lowered(func)))


def require_whole_extents(func: Func) -> None:
    """No loop of a constant extent below 2 is left."""
    for s in walk_stmt(func.body):
        if isinstance(s, For) and isinstance(s.extent, Const):
            assert int(s.extent.value) >= 2, repr(s)


def padded(n: int, before: int, after: int) -> Func:
    a = te.placeholder((n,), name="A")
    b = te.compute(
        (n + before + after,),
        lambda i: te.if_then_else(te.logical_and(i >= before, i < n + before), a[i - before], 0.0),
        name="B",
    )
    return te.create_func([a, b], "padded")


def test_padding_has_an_unguarded_middle() -> None:
    func = padded(15, 1, 2)
    assert text(partitioned(func)) == expected("""
        B[0] = 0.0
        for i in 1..+15:
          B[i] = A[i - 1]
        for i_1 in 16..+2:
          B[i_1] = 0.0""")
    require_same_bits(func, partitioned(func))


@pytest.mark.parametrize("n, before, after", [(1, 1, 1), (2, 0, 3), (5, 4, 0), (3, 3, 3)])
def test_padding_of_any_width(n: int, before: int, after: int) -> None:
    func = padded(n, before, after)
    done = partitioned(func)
    assert not any(isinstance(e, IfThenElse) for e in walk_exprs(done.body))
    require_whole_extents(done)
    require_same_bits(func, done)


def test_two_dimensions() -> None:
    a = te.placeholder((6, 7), name="A")
    b = te.compute(
        (8, 9),
        lambda y, x: te.if_then_else(te.logical_and(y >= 1, y < 7, x >= 1, x < 8), a[y - 1, x - 1], 0.0),
        name="B",
    )
    func = te.create_func([a, b], "padded")
    done = partitioned(func)
    assert not any(isinstance(e, IfThenElse) for e in walk_exprs(done.body))
    require_same_bits(func, done)


@pytest.mark.parametrize("n, factor", [(17, 4), (60, 16), (64, 16), (3, 16), (1, 2), (33, 32)])
def test_split_tail(n: int, factor: int) -> None:
    """apache/tvm#4243, #3733: tails of splits that do not divide have no empty and no single loops."""
    _, func = scaled(n)
    done = partitioned(split(func, "i", factor))
    assert not any(isinstance(s, If) for s in walk_stmt(done.body))
    require_whole_extents(done)
    require_same_bits(func, done)


def test_two_conditions_in_a_loop() -> None:
    """apache/tvm#743, #762: i > 4 and i < 20 over 16 points."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: te.if_then_else(te.logical_and(i > 4, i < 20), a[i], -1.0), name="B")
    func = te.create_func([a, b], "f")
    done = partitioned(func)
    assert [repr(s.extent) for s in walk_stmt(done.body) if isinstance(s, For)] == ["5", "11"]
    require_same_bits(func, done)


@pytest.mark.parametrize("inner", [10, 32, 7, 3])
@pytest.mark.parametrize("outer", [32, 10, 7, 3])
def test_nested_tails(outer: int, inner: int) -> None:
    """apache/tvm#2898: guards of two splits that do not divide, one in the other."""
    for n in (1, 2, 9, 31, 32, 33, 48, 63, 64, 70):
        a = te.placeholder((n,), "float16", name="A")
        d = te.compute((n,), lambda i: a[i], name="D")  # noqa: B023
        func = te.create_func([a, d], "copy")
        twice = split(split(func, "i", outer), "i_i", inner)
        done = partitioned(twice)
        assert not any(isinstance(s, If) for s in walk_stmt(done.body))
        require_whole_extents(done)
        require_same_bits(func, done)


def test_symbolic_split_has_an_unguarded_main_part() -> None:
    """apache/tvm#762: n split by a constant."""
    n = Var("n")
    _, func = scaled(n)
    vector = with_kind(split(func, "i", 64), "i_i", "vectorized")
    done = simplify_program(partition_loops(lowered(vector)))
    first, second = loops(done, "i_i")
    assert not isinstance(first.body, If) and isinstance(second.body, If)
    for size in (1, 63, 64, 65, 127, 128):
        require_same_bits(func, done, {n: size})


def test_parallel_loop_stays_one() -> None:
    _, func = scaled(37)
    done = partitioned(with_kind(with_kind(split(func, "i", 8), "i_o", "parallel"), "i_i", "vectorized"))
    (outer,) = loops(done, "i_o")
    assert outer.kind == "parallel" and isinstance(outer.body, If)
    require_same_bits(func, done)


def test_guarded_init_is_peeled() -> None:
    a = te.placeholder((5, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    c = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="C")
    func = te.create_func([a, c], "rows")
    done = simplify_program(partition_loops(lower_blocks(func)))  # without decompose_reductions
    assert text(done) == expected("""
        for i in 0..5:
          C[i] = 0.0
          C[i] = C[i] + A[i, 0]
          for k in 1..+8:
            C[i] = C[i] + A[i, k]""")
    require_same_bits(func, done)


def test_growth_is_bounded() -> None:
    axes = 5
    a = te.placeholder((4,) * axes, name="A")
    b = te.compute(
        (6,) * axes,
        lambda *i: te.if_then_else(
            te.logical_and(*[c for v in i for c in (v >= 1, v < 5)]), a[tuple(v - 1 for v in i)], 0.0
        ),
        name="B",
    )
    done = partitioned(te.create_func([a, b], "padded"))
    assert sum(1 for _ in walk_stmt(done.body)) < 2000


def tiles(last: int) -> Func:
    """Tiles of 6 x 6 points of a padded image, taken by number, in a parallel loop of unrolled copies."""
    x = te.placeholder((12, 12, 4), name="X")

    def element(p: Var, r: Var, k: Var, lane: Var) -> object:
        row, column = p // 3 * 4 - 1 + r, p % 3 * 4 - 1 + k
        inside = te.logical_and(row >= 0, row < 12, column >= 0, column < 12)
        return te.if_then_else(inside, x[row, column, lane], 0.0)

    func = split(te.create_func([x, te.compute((last, 6, 6, 4), element, name="T")], "tiles"), "p", 4)
    for name, kind in (("p_o", "parallel"), ("r", "unrolled"), ("k", "unrolled"), ("lane", "vectorized")):
        func = with_kind(func, name, kind)
    return func


def test_quotients_are_tested_once_a_tile() -> None:
    for last in (8, 9):
        func = tiles(last)
        done = partition_loops(lowered(func))
        (outer,) = loops(done, "p_o")
        choices = [s for s in walk_stmt(outer.body) if isinstance(s, If) and s.otherwise is not None]
        assert choices and not any(isinstance(e, IfThenElse) for e in walk_exprs(choices[0].then))
        require_same_bits(func, done)


def test_test_stands_around_what_it_guards() -> None:
    x, y = te.placeholder((9, 64), name="X"), te.placeholder((9, 64), name="Y")
    padded = te.compute((9, 64), lambda i, j: te.if_then_else(i >= 1, x[i - 1, j], 0.0), name="P")
    out = te.compute((9, 64), lambda i, j: padded[i, j] * y[i, j], name="Out")
    func = te.create_func([x, y, out], "f")
    first, second = lowered(func).body.body.stmts  # type: ignore[attr-defined]
    together = dataclasses.replace(
        first, kind="parallel", body=seq(first.body, substitute_stmt(second.body, {second.var: first.var}))
    )
    func = dataclasses.replace(lowered(func), body=Allocate(func.body.buffer, together))  # type: ignore[attr-defined]
    done = partition_loops(func)
    (choice,) = [s for s in walk_stmt(done.body) if isinstance(s, If)]
    assert all(s.buffer.name == "P" for s in walk_stmt(choice) if isinstance(s, Store))
    require_same_bits(func, done)


def test_nothing_to_do_gives_the_same_object() -> None:
    _, func = scaled(16)
    low = lowered(func)
    assert partition_loops(low) is low
