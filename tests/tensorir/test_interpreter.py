"""The interpreter at every stage of a program, and what its checked mode finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorir import dtypes, te
from tensorir import expr as ir
from tensorir.buffer import Buffer
from tensorir.expr import IterVar, Load, Var, const, ramp
from tensorir.interpreter import SanitizerError, compile_program, evaluate, interpret
from tensorir.interpreter.run import ArgumentError
from tensorir.interpreter.source import NotSupportedError
from tensorir.passes.pipeline import lower
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Stmt, Store, seq
from tensorir.target import Target
from tensorir.visit import free_vars

F32 = dtypes.float32


def index(value: Any) -> ir.Expr:
    return ir.as_expr(value)


def buffer(name: str, *shape: Any, dtype: dtypes.DType = F32) -> Buffer:
    return Buffer(name, tuple(index(s) for s in shape), dtype)


def loop(var: Var, extent: Any, body: Stmt, kind: str = "serial", begin: Any = 0, thread: str | None = None) -> For:
    return For(var, index(begin), index(extent), kind, body, thread)


def func(body: Stmt, *params: Buffer, outputs: int = 1) -> Func:
    return Func("f", tuple(params), te.shape_vars(params), body, outputs)


def run(f: Func, *arrays: np.ndarray) -> None:
    """Runs both modes and holds them to the same bits."""
    first = [a.copy() for a in arrays]
    interpret(f, first)
    interpret(f, arrays, mode="checked")
    for a, b in zip(first, arrays, strict=True):
        assert a.tobytes() == b.tobytes()


# ------------------------------------------------------------------------------------------------ unscheduled programs


@pytest.mark.parametrize(("n", "m", "k"), [(3, 5, 7), (1, 1, 1), (4, 0, 3), (3, 2, 0), (0, 2, 2)])
def test_matrix_product_with_symbolic_sizes(n: int, m: int, k: int) -> None:
    rows, columns, inner = te.var("n"), te.var("m"), te.var("k")
    a, b = te.placeholder((rows, inner), name="A"), te.placeholder((inner, columns), name="B")
    r = te.reduce_axis((0, inner), "r")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((rows, columns), lambda i, j: te.maximum(c[i, j], 0.0) + 1.0, name="D")
    f = te.create_func([a, b, d])
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, k), np.float32), rng.standard_normal((k, m), np.float32)
    out = np.full((n, m), np.nan, np.float32)
    run(f, x, y, out)
    np.testing.assert_allclose(out, np.maximum(x @ y, 0) + 1, rtol=1e-5, atol=1e-6)


def _reduce_rows(a: te.Tensor, r: IterVar, reduce: Callable[..., ir.Expr]) -> te.Tensor:
    return te.compute((3,), lambda i: reduce(a[i, r], axis=r), name="R")


def test_reductions_of_nothing_give_the_identity() -> None:
    a = te.placeholder((3, 0), "int8", "A")
    r = te.reduce_axis((0, 0), "r")
    for reduce, expected in ((te.sum, 0), (te.prod, 1), (te.max, -128), (te.min, 127)):
        out = np.full(3, 77, np.int8)
        run(te.create_func([a, _reduce_rows(a, r, reduce)]), np.zeros((3, 0), np.int8), out)
        assert out.tolist() == [expected] * 3


def test_argmax_with_ties_and_nan() -> None:
    a = te.placeholder((2, 5), name="A")
    r = te.reduce_axis((0, 5), "r")
    at, best = te.compute((2,), lambda i: te.argmax(r, a[i, r], axis=r), name="best")
    x = np.array([[1, 3, 2, 3, 0], [1, np.nan, 2, np.nan, 0]], np.float32)
    where, value = np.full(2, -7, np.int64), np.full(2, 9, np.float32)
    run(te.create_func([a, at, best]), x, where, value)
    assert where.tolist() == [1, 1]
    assert value[0] == 3 and np.isnan(value[1])


def test_maximum_over_nan_is_nan_in_any_order() -> None:
    """apache/tvm#19579: the maximum of [NaN, 1] and of [2, NaN]."""
    a = te.placeholder((2, 2), name="A")
    r = te.reduce_axis((0, 2), "r")
    out = np.zeros(2, np.float32)
    run(te.create_func([a, te.compute((2,), lambda i: te.max(a[i, r], axis=r))]),
        np.array([[np.nan, 1], [2, np.nan]], np.float32), out)  # fmt: skip
    assert np.isnan(out).all()


def test_bool_buffers_hold_0_and_1() -> None:
    """apache/tvm#1808: a bool is one byte, 0 or 1."""
    a, b = te.placeholder((5,), name="A"), te.placeholder((5,), name="B")
    out = np.ones(5, np.bool_)
    x, y = np.arange(5, dtype=np.float32), np.array([1, 1, 1, 9, np.nan], np.float32)
    run(te.create_func([a, b, te.compute((5,), lambda i: a[i] > b[i])]), x, y, out)
    assert out.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("t", ["float16", "bfloat16"])
def test_halves_round_after_every_operation(t: str) -> None:
    kind = dtypes.dtype_of(t).numpy
    a = te.placeholder((3, 3, 3), t, "X")
    c = te.compute((3, 3, 3, 3), lambda i, j, k, l: a[l, k, i] * te.sqrt(a[l, l, j]))  # noqa: E741
    x = (np.abs(np.random.default_rng(1).standard_normal((3, 3, 3))) * 8).astype(kind)
    out = np.zeros((3, 3, 3, 3), kind)
    run(te.create_func([a, c]), x, out)
    root = np.sqrt(x.astype(np.float32)).astype(kind)
    for i, j, k, m in np.ndindex(3, 3, 3, 3):
        expected = (x[m, k, i].astype(np.float32) * root[m, m, j].astype(np.float32)).astype(kind)
        assert out[i, j, k, m] == expected


def test_bfloat16_widens_by_value() -> None:
    """apache/tvm#18556: a bfloat16 stored as float32 is its value."""
    a = te.placeholder((2,), "bfloat16", "A")
    out = np.zeros(2, np.float32)
    run(te.create_func([a, te.compute((2,), lambda i: a[i].astype("float32") * 2.0)]),
        np.array([1 / 1024, 3], ml_dtypes.bfloat16), out)  # fmt: skip
    assert out.tolist() == [0.001953125, 6.0]


def test_if_then_else_guards_a_read_out_of_bounds() -> None:
    a = te.placeholder((4,), name="A")
    padded = te.compute((6,), lambda i: te.if_then_else(te.all(i >= 1, i < 5), a[i - 1], 0.0), name="P")
    out = np.full(6, np.nan, np.float32)
    run(te.create_func([a, padded]), np.arange(1, 5, dtype=np.float32), out)
    assert out.tolist() == [0, 1, 2, 3, 4, 0]


def test_zero_dimensional_tensors() -> None:
    """apache/tvm#3240: tensors without dimensions are scalars."""
    a, scale = te.placeholder((3,), name="A"), te.placeholder((), name="scale")
    r = te.reduce_axis((0, 3), "r")
    total = te.compute((), lambda: te.sum(a[r] * scale, axis=r), name="T")
    out = np.array(np.nan, np.float32)
    run(te.create_func([a, scale, total]), np.array([1, 2, 3], np.float32), np.array(2, np.float32), out)
    assert out == 12


def test_a_sum_of_5000_terms_and_40_nested_loops() -> None:
    a = te.placeholder((1,), name="A")
    total: ir.Expr = a[0]
    for _ in range(5000):
        total = total + a[0]
    out = np.zeros(1, np.float32)
    run(te.create_func([a, te.compute((1,), lambda i: total)]), np.ones(1, np.float32), out)
    assert out[0] == 5001
    c = buffer("C", 2)
    body: Stmt = Store(c, (const(1),), Load(c, (const(1),), F32) + 1.0)
    for level in range(40):
        body = loop(Var(f"i{level}"), 1, body)
    values = np.array([0, 3], np.float32)
    interpret(func(body, c), [values])
    assert values.tolist() == [0, 4]


# --------------------------------------------------------------------------------------------------- scheduled programs


def split_block(n: int, predicate: bool, kind: str = "serial") -> Func:
    a, b = buffer("A", n), buffer("B", n)
    outer, inner, v = Var("io"), Var("ii"), Var("v_i")
    at = outer * 4 + inner
    block = Block(
        "B", (IterVar(v, const(0), index(n), "spatial"),), (at,), ir.less(at, n) if predicate else const(True), (), (),
        None, Store(b, (v,), Load(a, (v,), F32) + 1.0),
    )  # fmt: skip
    return func(loop(outer, -(-n // 4), loop(inner, 4, block, kind)), a, b)


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
def test_block_with_predicate_under_split_loops(kind: str) -> None:
    out = np.full(10, np.nan, np.float32)
    run(split_block(10, True, kind), np.arange(10, dtype=np.float32), out)
    assert out.tolist() == [float(i + 1) for i in range(10)]


def test_a_block_variable_outside_its_domain_is_found() -> None:
    with pytest.raises(SanitizerError, match="block B: its variable v_i is 10, outside its domain"):
        interpret(split_block(10, False), [np.zeros(10, np.float32), np.zeros(10, np.float32)], mode="checked")


def test_the_init_runs_at_the_first_value_of_every_reduce_variable() -> None:
    a, b = buffer("A", 6), buffer("B", 1)
    ro, ri, v = Var("ro"), Var("ri"), Var("v")
    point = (const(0),)
    block = Block(
        "B", (IterVar(v, const(0), const(6), "reduce"),), (ro * 3 + ri,), const(True), (), (),
        Store(b, point, const(5.0)), Store(b, point, Load(b, point, F32) + Load(a, (v,), F32)),
    )  # fmt: skip
    out = np.full(1, np.nan, np.float32)
    run(func(loop(ro, 2, loop(ri, 3, block)), a, b), np.arange(6, dtype=np.float32), out)
    assert out[0] == 20


# ------------------------------------------------------------------------------------------------------- the flat form


def test_vector_access_with_ramps_predicates_and_lets() -> None:
    n = 11
    a, b = buffer("A", n), buffer("B", n)
    i, x = Var("i"), Var("x", F32.with_lanes(4))
    lanes = ramp(i * 4, const(1), 4)
    inside = ir.less(lanes, ir.broadcast(const(n), 4))
    value = ir.Mul(x, ir.broadcast(const(2.0), 4), x.dtype)
    f = func(loop(i, 3, LetStmt(x, ir.load(a, (lanes,), inside), Store(b, (lanes,), value, inside))), a, b)
    out = np.full(n, np.nan, np.float32)
    run(f, np.arange(n, dtype=np.float32), out)
    assert out.tolist() == [2.0 * j for j in range(n)]


def test_masked_lanes_of_a_load_give_zero() -> None:
    a, b = buffer("A", 3), buffer("B", 4)
    lanes = ramp(const(0), const(1), 4)
    f = func(Store(b, (lanes,), ir.load(a, (lanes,), ir.less(lanes, ir.broadcast(const(3), 4)))), a, b)
    out = np.full(4, np.nan, np.float32)
    run(f, np.ones(3, np.float32), out)
    assert out.tolist() == [1, 1, 1, 0]


def test_a_vector_store_reads_all_lanes_before_it_writes() -> None:
    b = buffer("B", 4)
    forward, backward = ramp(const(0), const(1), 4), ramp(const(3), const(-1), 4)
    values = np.arange(4, dtype=np.float32)
    interpret(func(Store(b, (forward,), ir.load(b, (backward,))), b), [values])
    assert values.tolist() == [3, 2, 1, 0]
    interpret(func(Store(b, (backward,), ir.load(b, (forward,))), b), [values])
    assert values.tolist() == [0, 1, 2, 3]


def test_gather_through_an_index_buffer_and_scatter_with_stride() -> None:
    a, at, b = buffer("A", 5), buffer("at", 3, dtype=dtypes.int32), buffer("B", 6)
    indices = ir.cast(ir.load(at, (ramp(const(0), const(1), 3),)), "int64")
    f = func(Store(b, (ramp(const(1), const(2), 3),), ir.load(a, (indices,))), a, at, b)
    out = np.full(6, -1, np.float32)
    interpret(f, [np.arange(5, dtype=np.float32), np.array([4, 0, 3], np.int32), out])
    assert out.tolist() == [-1, 4, -1, 0, -1, 3]


def test_a_let_bound_twice_in_one_expression_keeps_its_values_apart() -> None:
    x, y = Var("x"), Var("y")
    square = x * x
    total = ir.Let(x, y, square, x.dtype) + ir.Let(x, y + 1, square, x.dtype)
    assert evaluate(total, {y: 3}) == 9 + 16


def test_what_only_one_branch_computes_is_not_used_by_the_other() -> None:
    x = Var("x")
    shared = ir.floordiv(x * 3, Var("d"))
    chosen = ir.IfThenElse(ir.less(x, 0), shared + shared, shared * 2 + 1, x.dtype)
    names = {v.name: v for v in free_vars(chosen)}
    assert evaluate(chosen, {names["x"]: 4, names["d"]: 2}) == 13
    assert evaluate(chosen, {names["x"]: -4, names["d"]: 2}) == -12


# -------------------------------------------------------------------------------------------------------- the sanitiser


def test_reads_and_writes_out_of_bounds_are_named() -> None:
    a, b, i = buffer("A", 4), buffer("B", 4), Var("i")
    f = func(loop(i, 4, Store(b, (i,), Load(a, (i + 1,), F32))), a, b)
    with pytest.raises(SanitizerError, match=r"read out of bounds: A\[4\].*extent is 4\nin the program, at i = 3"):
        interpret(f, [np.zeros(4, np.float32), np.zeros(4, np.float32)], mode="checked")
    with pytest.raises(SanitizerError, match="access out of bounds"):
        interpret(f, [np.zeros(4, np.float32), np.zeros(4, np.float32)])
    g = func(loop(i, 4, Store(b, (i - 1,), const(0.0))), b)
    with pytest.raises(SanitizerError, match=r"write out of bounds: B\[-1\]"):
        interpret(g, [np.zeros(4, np.float32)], mode="checked")


def test_both_sides_of_a_select_are_checked() -> None:
    a, b, i = buffer("A", 4), buffer("B", 5), Var("i")
    f = func(loop(i, 5, Store(b, (i,), ir.select(ir.less(i, 4), Load(a, (i,), F32), const(0.0)))), a, b)
    with pytest.raises(SanitizerError, match=r"A\[4\]"):
        interpret(f, [np.zeros(4, np.float32), np.zeros(5, np.float32)], mode="checked")


def test_a_read_of_memory_never_written_is_found_and_poisoned() -> None:
    t, b, i = buffer("T", 4), buffer("B", 4), Var("i")
    body = seq(Store(t, (const(0),), const(1.0)), loop(i, 4, Store(b, (i,), Load(t, (i,), F32))))
    f = func(Allocate(t, body), b)
    with pytest.raises(SanitizerError, match=r"never written: T\[1\]"):
        interpret(f, [np.zeros(4, np.float32)], mode="checked")
    out = np.zeros(4, np.float32)
    interpret(f, [out])
    assert out[0] == 1 and np.isnan(out[1:]).all()
    g = func(Store(b, (const(0),), Load(b, (const(0),), F32)), b)
    with pytest.raises(SanitizerError, match=r"never written: B\[0\]"):
        interpret(g, [np.zeros(4, np.float32)], mode="checked")


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_two_iterations_writing_one_element_race(kind: str) -> None:
    b, i = buffer("B", 4), Var("i")
    f = func(loop(i, 4, Store(b, (ir.floordiv(i, 2),), const(0.0)), kind), b)
    with pytest.raises(SanitizerError, match=r"race: B\[0\] is written by two iterations"):
        interpret(f, [np.zeros(4, np.float32)], mode="checked")


def test_reading_what_another_iteration_writes_races() -> None:
    t, b, i = buffer("T", 5), buffer("B", 4), Var("i")
    ahead = loop(i, 4, seq(Store(b, (i,), Load(t, (i + 1,), F32)), Store(t, (i,), const(0.0))), "parallel")
    behind = loop(i, 4, seq(Store(t, (i + 1,), const(0.0)), Store(b, (i,), Load(t, (i,), F32))), "parallel")
    j = Var("j")
    for body, message in ((ahead, "written while another"), (behind, "read while another")):
        f = func(Allocate(t, seq(loop(j, 5, Store(t, (j,), const(1.0))), body)), b)
        with pytest.raises(SanitizerError, match=message):
            interpret(f, [np.zeros(4, np.float32)], mode="checked")
        interpret(f, [np.zeros(4, np.float32)])


def test_lanes_writing_one_element_race() -> None:
    b = buffer("B", 4)
    lanes = ramp(const(1), const(0), 4)
    f = func(Store(b, (lanes,), ir.broadcast(const(0.0), 4)), b)
    with pytest.raises(SanitizerError, match="race"):
        interpret(f, [np.zeros(4, np.float32)], mode="checked")


def test_private_memory_and_sequential_loops_do_not_race() -> None:
    t, b, i, k = buffer("T", 1), buffer("B", 3), Var("i"), Var("k")
    zero = (const(0),)
    inner = seq(Store(t, zero, const(1.0)), Store(b, (i,), Load(t, zero, F32) + ir.cast(k, "float32")))
    f = func(loop(k, 3, loop(i, 3, Allocate(t, inner), "parallel")), b)
    out = np.zeros(3, np.float32)
    run(f, out)
    assert out.tolist() == [3, 3, 3]


# -------------------------------------------------------------------------------------------------------------- misuse


def test_arrays_that_do_not_fit_are_named() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    f = te.create_func([a, te.compute((n,), lambda i: a[i, i], name="B")])
    good, out = np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    with pytest.raises(ArgumentError, match=r"takes 2 arrays \(A, B\), not 1"):
        interpret(f, [good])
    with pytest.raises(ArgumentError, match="A is float32, the array given is float64"):
        interpret(f, [np.zeros((2, 2)), out])
    with pytest.raises(ArgumentError, match="A has 2 dimensions, the array given 1"):
        interpret(f, [out, out])
    with pytest.raises(ArgumentError, match="A has 3 elements along axis 1, not 2"):
        interpret(f, [np.zeros((2, 3), np.float32), out])
    with pytest.raises(ArgumentError, match="unknown mode 'fast'"):
        interpret(f, [good, out], mode="fast")
    with pytest.raises(ArgumentError, match="no value is given for n"):
        evaluate(n + 1)


def test_outputs_that_are_views_are_written_in_place() -> None:
    a = te.placeholder((3,), name="A")
    f = te.create_func([a, te.compute((3,), lambda i: a[i] + 1.0)])
    whole = np.zeros((3, 2), np.float32)
    interpret(f, [np.arange(6, dtype=np.float32)[::2], whole[:, 1]])
    assert whole.tolist() == [[0, 1], [0, 3], [0, 5]]


def test_a_loop_bound_to_threads_says_that_it_cannot_run() -> None:
    b, i = buffer("B", 4), Var("i")
    f = func(loop(i, 4, Store(b, (i,), const(0.0)), "thread", thread="warp.x"), b)
    with pytest.raises(NotSupportedError, match="the loop i bound to warp.x"):
        interpret(f, [np.zeros(4, np.float32)])


def test_statement_conditions() -> None:
    b, i = buffer("B", 4), Var("i")
    f = func(loop(i, 4, If(ir.less(i, 2), Store(b, (i,), const(1.0)), Store(b, (i,), const(2.0)))), b)
    out = np.zeros(4, np.float32)
    run(f, out)
    assert out.tolist() == [1, 1, 2, 2]


def test_the_source_is_readable() -> None:
    source = compile_program(split_block(10, True), False).source
    assert "for io" in source and "if" in source


# -------------------------------------------------------------------------------------------------- thread-bound loops


def point_block(name: str, at: dict[Var, tuple[ir.Expr, int]], body: Stmt, init: Stmt | None = None) -> Block:
    iters = tuple(IterVar(v, const(0), const(n), "spatial") for v, (_, n) in at.items())
    return Block(name, iters, tuple(b for b, _ in at.values()), const(True), (), (), init, body)


def reversed_through_shared(scope: str) -> Func:
    """B[bx, 7 - t] = A[bx, t] by way of a buffer that all threads fill before any reads it."""
    a, b, t = buffer("A", 3, 8), buffer("B", 3, 8), Buffer("T", (const(8),), F32, scope)
    bx, tx, again, v, w, x = Var("bx"), Var("tx"), Var("again"), Var("v"), Var("w"), Var("x")
    fill = point_block("fill", {v: (bx, 3), w: (tx, 8)}, Store(t, (w,), Load(a, (v, w), F32)))
    drain = point_block("drain", {v: (bx, 3), x: (again, 8)}, Store(b, (v, x), Load(t, (7 - x,), F32)))
    inner = seq(fill, loop(again, 8, drain, "thread", thread="threadIdx.x"))
    nest = loop(tx, 8, inner, "thread", thread="threadIdx.x")
    return func(loop(bx, 3, Allocate(t, nest), "thread", thread="blockIdx.x"), a, b)


def test_each_statement_runs_for_all_threads_before_the_next() -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    out = np.full((3, 8), np.nan, np.float32)
    run(reversed_through_shared("shared"), x, out)
    assert out.tolist() == x[:, ::-1].tolist()


def test_local_buffers_are_one_for_each_thread() -> None:
    a, b, t = buffer("A", 4, 3), buffer("B", 4), Buffer("T", (const(1),), F32, "local")
    tx, k, v, w = Var("tx"), Var("k"), Var("v"), Var("w")
    zero = (const(0),)
    clear = point_block("clear", {}, Store(t, zero, const(0.0)))
    add = point_block("add", {v: (tx, 4), w: (k, 3)}, Store(t, zero, Load(t, zero, F32) + Load(a, (v, w), F32)))
    give = point_block("give", {v: (tx, 4)}, Store(b, (v,), Load(t, zero, F32)))
    body = Allocate(t, seq(clear, loop(k, 3, add), give))
    x, out = np.arange(12, dtype=np.float32).reshape(4, 3), np.full(4, np.nan, np.float32)
    run(func(loop(tx, 4, body, "thread", thread="threadIdx.x"), a, b), x, out)
    assert out.tolist() == x.sum(1).tolist()


def test_a_stage_on_fewer_threads_is_guarded() -> None:
    b, tx, few, v = buffer("B", 8), Var("tx"), Var("few"), Var("v")
    first = point_block("first", {v: (tx, 8)}, Store(b, (v,), const(1.0)))
    second = point_block("second", {v: (few, 3)}, Store(b, (v,), const(2.0)))
    odd = If(ir.equal(ir.floormod(tx, 2), 1), point_block("third", {v: (tx, 8)}, Store(b, (v,), const(3.0))))
    inner = seq(first, loop(few, 3, second, "thread", thread="threadIdx.x"), odd)
    out = np.full(8, np.nan, np.float32)
    run(func(loop(tx, 8, inner, "thread", thread="threadIdx.x"), b), out)
    assert out.tolist() == [2, 3, 2, 3, 1, 3, 1, 3]


def test_threads_of_one_statement_race() -> None:
    b, tx, v = buffer("B", 8), Var("tx"), Var("v")
    body = point_block("S", {v: (tx, 8)}, Store(b, (ir.floordiv(v, 2),), const(1.0)))
    f = func(loop(tx, 8, body, "thread", thread="threadIdx.x"), b)
    with pytest.raises(SanitizerError, match=r"(?s)race: B\[0\].*\nin block S, at threadIdx.x = 1"):
        interpret(f, [np.zeros(8, np.float32)], mode="checked")


def test_a_lowered_program_takes_arrays_of_any_shape() -> None:
    a = te.placeholder((3, 5), name="A")
    r = te.reduce_axis((0, 5), "r")
    f = te.create_func([a, te.compute((3, 2), lambda i, j: te.sum(a[i, r] + te.exp(a[i, j]), axis=r), name="B")])
    flat = lower(f, Target.parse("llvm -mcpu=znver4"))
    assert all(len(p.shape) == 1 for p in flat.params)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    first, second = np.full((3, 2), np.nan, np.float32), np.full((3, 2), np.nan, np.float32)
    interpret(f, [x, first])
    interpret(flat, [x, second], mode="checked")
    assert first.tobytes() == second.tobytes()


def double_and_sum(a: np.ndarray, doubled: np.ndarray, total: np.ndarray) -> None:
    """The host function of the next test."""
    doubled[...] = 2 * a
    total[...] = a.sum()


@pytest.mark.parametrize("mode", ["plain", "checked"])
def test_extern_blocks_call_the_host_function_on_whole_arrays(mode: str) -> None:
    a = te.placeholder((2, 3), name="A")
    shifted = te.compute((2, 3), lambda i, j: a[i, j] + 1.0, name="S")
    doubled, total = te.extern([((2, 3), "float32"), ((), "float32")], [shifted], f"{__name__}:double_and_sum")
    f = te.create_func([a, doubled, total])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, second = np.full((2, 3), np.nan, np.float32), np.array(np.nan, np.float32)
    interpret(f, [x, first, second], mode=mode)
    assert first.tolist() == (2 * (x + 1)).tolist()
    assert second == 21


def test_hundreds_of_allocations_around_one_another() -> None:
    b = buffer("B", 1)
    zero = (const(0),)
    temporaries = [buffer(f"T{i}", 1) for i in range(400)]
    steps = [Store(t, zero, Load(p, zero, F32) + 1.0) for p, t in zip(temporaries, temporaries[1:], strict=False)]
    body: Stmt = seq(Store(temporaries[0], zero, const(0.0)), *steps, Store(b, zero, Load(temporaries[-1], zero, F32)))
    for t in temporaries:
        body = Allocate(t, body)
    out = np.full(1, np.nan, np.float32)
    run(func(body, b), out)
    assert out[0] == 399
