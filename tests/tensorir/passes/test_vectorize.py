"""vectorize: lanes, masks and what has no vector form."""

from __future__ import annotations

import pytest

from tensorir import te
from tensorir.buffer import Buffer
from tensorir.dtypes import float32, int64
from tensorir.expr import Broadcast, Load, Ramp, Var, const, less
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.flatten import flatten
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.simplify_program import simplify_program
from tensorir.passes.unmask_registers import unmask_registers
from tensorir.passes.unroll import unroll
from tensorir.passes.vectorize import VectorizeError, vectorize
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Store, seq
from tensorir.target import Target
from tensorir.visit import walk_exprs, walk_stmt
from tests.tensorir.passes.checking import (
    MASKED,
    PLAIN,
    expected,
    loops,
    require_same_bits,
    scaled,
    split,
    text,
    with_kind,
)

TARGETS = [MASKED, PLAIN]


def flat(func: Func) -> Func:
    return flatten(lower_blocks(decompose_reductions(func)))


def vector(func: Func, target: Target = MASKED) -> Func:
    return simplify_program(unroll(vectorize(flat(func), target)))


def test_contiguous() -> None:
    _, func = scaled(16)
    func = with_kind(split(func, "i", 8), "i_i", "vectorized")
    done = vector(func)
    assert text(done) == expected("""
        for i_o in 0..2:
          B[ramp(i_o * 8, 1, 8)] = A[ramp(i_o * 8, 1, 8)] * broadcast(2.0, 8) + broadcast(1.0, 8)""")
    require_same_bits(func, done)


def test_guard_becomes_a_mask_where_masks_are_cheap() -> None:
    n = Var("n")
    _, func = scaled(n)
    func = with_kind(split(func, "i", 8), "i_i", "vectorized")
    done = vector(func)
    assert "mask=ramp(i_o * 8, 1, 8) < broadcast(n, 8)" in text(done) and not loops(done, "i_i")
    for size in (1, 7, 8, 9, 23):
        require_same_bits(func, done, {n: size})


def test_guard_becomes_main_and_tail_elsewhere() -> None:
    n = Var("n")
    _, func = scaled(n)
    func = with_kind(split(func, "i", 8), "i_i", "vectorized")
    done = vector(func, PLAIN)
    assert "mask" not in text(done) and loops(done, "i_i")[0].kind == "serial"
    assert any(isinstance(e, Ramp) for e in walk_exprs(done.body))
    for size in (1, 7, 8, 9, 23):
        require_same_bits(func, done, {n: size})


@pytest.mark.parametrize("target", TARGETS)
def test_strides_gathers_and_invariants(target: Target) -> None:
    a, table = te.placeholder((8, 6), name="A"), te.placeholder((6,), name="W")
    b = te.compute((6, 8), lambda i, j: a[j, i] + a[7 - j, 5 - i] * table[(i * 7 + j) % 6] + table[i], name="B")
    func = with_kind(te.create_func([a, table, b], "f"), "j", "vectorized")
    done = vector(func, target)
    assert "A[ramp(i, 6, 8)]" in text(done) and "broadcast(W[i], 8)" in text(done)
    require_same_bits(func, done)


@pytest.mark.parametrize("target", TARGETS)
def test_choice_between_lanes(target: Target) -> None:
    a = te.placeholder((10,), name="A")
    b = te.compute((12,), lambda i: te.if_then_else(te.logical_and(i >= 1, i < 11), a[i - 1] + 1.0, -1.0), name="B")
    func = with_kind(te.create_func([a, b], "f"), "i", "vectorized")
    done = vector(func, target)
    if target is MASKED:
        assert "select(" in text(done) and "mask=" in text(done)
    require_same_bits(func, done)


def test_choice_that_all_lanes_share_stays_a_choice() -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((5, 8), lambda i, j: te.if_then_else(i >= 1, a[i - 1, j], 0.0), name="B")
    func = with_kind(te.create_func([a, b], "f"), "j", "vectorized")
    done = vector(func)
    assert "if_then_else(1 <= i, A[ramp(" in text(done)
    require_same_bits(func, done)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 5, 8])
def test_else_branch(target: Target, n: int) -> None:
    a, b = Buffer("A", (const(8),), float32), Buffer("B", (const(8),), float32)
    i = Var("i")
    body = If(less(i, n), Store(b, (i,), a[i] * 2.0), Store(b, (i,), const(-1.0)))
    func = Func("f", (a, b), (), For(i, const(0), const(8), "vectorized", body))
    require_same_bits(func, vector(func, target))


@pytest.mark.parametrize("target", TARGETS)
def test_loop_inside_is_kept_and_its_body_vectorized(target: Target) -> None:
    a = te.placeholder((5, 8), name="A")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((8,), lambda j: te.sum(a[k, j], axis=k), name="C")
    func = with_kind(te.create_func([a, c], "columns"), "j", "vectorized")
    done = vector(func, target)
    assert text(done) == expected("""
        C[ramp(0, 1, 8)] = broadcast(0.0, 8)
        for k in 0..5:
          C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + A[ramp(k * 8, 1, 8)]""")
    require_same_bits(func, done)


def test_reduction_over_lanes_stays_in_order() -> None:
    a = te.placeholder((3, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C")
    func = with_kind(te.create_func([a, c], "rows"), "k", "vectorized")
    done = vector(func)
    assert loops(done, "k")[0].kind == "serial"
    require_same_bits(func, done)


@pytest.mark.parametrize("target", TARGETS)
def test_bound_by_the_lane_is_serial(target: Target) -> None:
    a = te.placeholder((6, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k, where=k < i), name="C")
    func = with_kind(te.create_func([a, c], "triangle"), "i", "vectorized")
    require_same_bits(func, vector(func, target))


@pytest.mark.parametrize("target", TARGETS)
def test_bindings_and_memory_of_each_lane(target: Target) -> None:
    a, b = Buffer("A", (const(24),), float32), Buffer("B", (const(8),), float32)
    t = Buffer("T", (const(3),), float32, "local")
    i, k, x = Var("i"), Var("k"), Var("x", float32)
    fill = For(k, const(0), const(3), "serial", Store(t, (k,), a[i * 3 + k]))
    use = LetStmt(x, t[const(0)] + t[const(2)], Store(b, (i,), x * t[const(1)]))
    func = Func("f", (a, b), (), For(i, const(0), const(8), "vectorized", Allocate(t, seq(fill, use))))
    done = vector(func, target)
    assert "T: float32[24]" in text(done)
    require_same_bits(func, done)


def test_scalar_reads_under_a_mask_need_an_active_lane() -> None:
    n = Var("n")
    a, w = te.placeholder((n,), name="A"), te.placeholder((1,), name="w")
    b = te.compute((n,), lambda i: a[i] * w[0], name="B")
    func = with_kind(split(te.create_func([a, w, b], "f"), "i", 8), "i_i", "vectorized")
    done = vector(func)
    assert "broadcast(w[0], 8)" in text(done)
    for size in (1, 8, 13):
        require_same_bits(func, done, {n: size})


def test_scalar_reads_of_a_tile_without_lanes_do_not_happen() -> None:
    a, w, b = Buffer("A", (const(8),), float32), Buffer("w", (const(1),), float32), Buffer("B", (const(8),), float32)
    o, i = Var("o"), Var("i")
    body = If(less(o * 8 + i, 8), Store(b, (o * 8 + i,), a[o * 8 + i] * w[o]))
    loop_o = For(o, const(0), const(3), "serial", For(i, const(0), const(8), "vectorized", body))
    func = Func("f", (a, w, b), (), loop_o)
    for target in TARGETS:
        require_same_bits(func, vector(func, target))


def test_registers_lose_masks_that_nobody_sees() -> None:
    n = Var("n")
    a, b = te.placeholder((5, n), name="A"), te.placeholder((n,), name="B")
    acc = Buffer("acc", (const(8),), float32, "register")
    o, i, k = Var("o"), [Var("i") for _ in range(3)], Var("k")
    guards = [less(o * 8 + v, n) for v in i]
    bodies = [
        Store(acc, (i[0],), const(0.0)),
        Store(acc, (i[1],), acc[i[1]] + a[k, o * 8 + i[1]]),
        Store(b, (o * 8 + i[2],), acc[i[2]]),
    ]
    nests = [For(v, const(0), const(8), "vectorized", If(g, s)) for v, g, s in zip(i, guards, bodies, strict=True)]
    tile = Allocate(acc, seq(nests[0], For(k, const(0), const(5), "serial", nests[1]), nests[2]))
    func = Func("f", (a, b), (n,), For(o, const(0), (n + 7) // 8, "serial", tile))
    masked = vectorize(flat(func), MASKED)
    done = unmask_registers(masked)
    assert "acc[ramp(0, 1, 8), mask" in text(masked) and "acc[ramp(0, 1, 8), mask" not in text(done)
    assert "A[ramp(o * 8 + k * n, 1, 8), mask=" in text(done) or "mask=" in text(done)
    for size in (1, 8, 11):
        require_same_bits(func, done, {n: size})


def test_registers_keep_masks_that_are_seen() -> None:
    acc, a, b = (
        Buffer("acc", (const(8),), float32, "register"),
        Buffer("A", (const(8),), float32),
        Buffer("B", (const(8),), float32),
    )
    i = [Var("i") for _ in range(3)]
    bodies = [
        Store(acc, (i[0],), const(0.0)),
        If(less(i[1], 5), Store(acc, (i[1],), acc[i[1]] + a[i[1]] + 1.0)),
        Store(b, (i[2],), acc[i[2]]),
    ]
    nests = [For(v, const(0), const(8), "vectorized", s) for v, s in zip(i, bodies, strict=True)]
    func = Func("f", (a, b), (), Allocate(acc, seq(*nests)))
    done = unmask_registers(vectorize(func, MASKED))
    assert "acc[ramp(0, 1, 8), mask=" in text(done)
    require_same_bits(func, done)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float64"])
def test_dtypes(target: Target, dtype: str) -> None:
    a = te.placeholder((19,), dtype, name="A")
    b = te.compute(
        (19,), lambda i: te.select(a[i] > te.const(1, dtype), a[i] - a[18 - i], a[i] + te.const(1, dtype)), name="B"
    )
    func = with_kind(split(te.create_func([a, b], "f"), "i", 8), "i_i", "vectorized")
    require_same_bits(func, vector(func, target))


def test_comparison_stored_as_bool() -> None:
    """apache/tvm#1808: A > B stored in vectors of bool."""
    a, b = te.placeholder((17,), name="A"), te.placeholder((17,), name="B")
    out = te.compute((17,), lambda i: a[i] > b[i], name="out")
    func = with_kind(split(te.create_func([a, b, out], "f"), "i", 8), "i_i", "vectorized")
    for target in TARGETS:
        require_same_bits(func, vector(func, target))


def test_gather_through_an_index() -> None:
    a, index = te.placeholder((30,), name="A"), te.placeholder((16,), "int64", name="index")
    b = te.compute((16,), lambda i: a[te.maximum(index[i], 0)], name="B")
    func = with_kind(te.create_func([a, index, b], "f"), "i", "vectorized")
    done = vector(func)
    assert any(isinstance(e, Load) and isinstance(e.indices[0], Broadcast) is False for e in walk_exprs(done.body))
    require_same_bits(func, done)


def test_loop_of_unknown_extent_is_refused() -> None:
    n = Var("n")
    _, func = scaled(n)
    with pytest.raises(
        VectorizeError, match=r"vectorize\(i\): the loop must have a constant extent, but it runs over n"
    ):
        vectorize(flat(with_kind(func, "i", "vectorized")), MASKED)


def test_long_sums_do_not_recurse() -> None:
    a = te.placeholder((8,), name="A")

    def long(i: Var) -> object:
        total = a[i]
        for _ in range(5000):
            total = total + a[i]
        return total

    func = with_kind(te.create_func([a, te.compute((8,), long, name="B")], "f"), "i", "vectorized")
    done = vectorize(flat(func), MASKED)
    assert not any(isinstance(s, For) for s in walk_stmt(done.body))


def test_nothing_to_do_gives_the_same_object() -> None:
    _, func = scaled(8)
    low = flat(func)
    assert vectorize(low, MASKED) is low and unmask_registers(low) is low
    assert int64.bits == 64
