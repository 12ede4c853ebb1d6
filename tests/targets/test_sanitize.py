"""The sanitiser: silent on every golden kernel, and with a guard, a bound, an initial value or a piece of an allocation
removed it finds each change that alters the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from schedule import Schedule, create_schedule, tensor_intrinsic
from targets.build import build
from tensorir import expr as ir
from tensorir import te
from tensorir.buffer import Buffer
from tensorir.expr import And, Const, Expr, IfThenElse, IterVar, Load, Max, Min, Var, const
from tensorir.interpreter import SanitizerError, interpret
from tensorir.layout import Layout
from tensorir.parser import parse_func
from tensorir.stmt import Allocate, Block, For, Func, If, Stmt, Store, seq
from tensorir.visit import rewrite_expr, rewrite_stmt, walk_expr, walk_stmt, with_body
from tests.schedule.bits import make_arrays

# ----------------------------------------------------------------------------------------------------- golden kernels


def tail() -> Schedule:
    a = te.placeholder((37,), name="A")
    c = te.compute((37,), lambda i: a[i] * 2.0 + 1.0, name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=8)
    s[c].vectorize(inner)
    s[c].parallel(outer)
    return s


def symbolic_tail() -> Schedule:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=16)
    s[c].vectorize(inner)
    s[b].compute_at(s[c], outer)
    s[c].parallel(outer)
    return s


def two_splits() -> Schedule:
    a = te.placeholder((17, 13), name="A")
    c = te.compute((17, 13), lambda i, j: a[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[c].tile("i", "j", 4, 8)
    return s


def fused() -> Schedule:
    a = te.placeholder((7, 5), name="A")
    c = te.compute((7, 5), lambda i, j: a[i, j] - 1.0, name="C")
    s = create_schedule(c)
    one = s[c].fuse("i", "j")
    outer, inner = s[c].split(one, factor=8)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    return s


def matrix_product() -> Schedule:
    a, b = te.placeholder((9, 11), name="A"), te.placeholder((11, 13), name="B")
    k = te.reduce_axis(11, "k")
    c = te.compute((9, 13), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    i_o, _, i_i, j_i = s[c].tile("i", "j", 4, 8)
    k_o, k_i = s[c].split(k, factor=4)
    s[c].reorder(k_o, i_i, k_i, j_i)
    s[c].parallel(i_o)
    s[c].vectorize(j_i)
    return s


def cached_product() -> Schedule:
    a, b = te.placeholder((9, 6), name="A"), te.placeholder((6, 13), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((9, 13), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    local = s.cache_write(c, "local")
    i_o, j_o, _, j_i = s[c].tile("i", "j", 4, 8)
    s[local].compute_at(s[c], j_o)
    s[c].parallel(i_o)
    s[c].vectorize(j_i)
    return s


def padded_sum() -> Schedule:
    x = te.placeholder((10, 9), name="X")
    p = te.compute(
        (12, 11),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 11, j >= 1, j < 10), x[i - 1, j - 1], 0.0),
        name="P",
    )
    di, dj = te.reduce_axis(3, "di"), te.reduce_axis(3, "dj")
    c = te.compute((10, 9), lambda i, j: te.sum(p[i + di, j + dj], axis=[di, dj]), name="C")
    s = create_schedule(c)
    i_o, _ = s[c].split("i", factor=4)
    s[p].compute_at(s[c], i_o)
    s[c].parallel(i_o)
    return s


def inlined_padding() -> Schedule:
    x = te.placeholder((23,), "int32", name="X")
    zero = te.const(0, "int32")
    p = te.compute((27,), lambda i: te.if_then_else(te.all(i >= 2, i < 25), x[i - 2], zero), name="P")
    k = te.reduce_axis(5, "k")
    c = te.compute((23,), lambda i: te.sum(p[i + k], axis=k), name="C")
    s = create_schedule(c)
    s[p].compute_inline()
    s[c].split("i", factor=5)
    return s


def stencil() -> Schedule:
    a = te.placeholder((40,), name="A")
    b = te.compute((38,), lambda i: a[i] + a[i + 2], name="B")
    c = te.compute((34,), lambda i: b[i] * b[i + 4] - b[i + 1], name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=8)
    s[b].compute_at(s[c], outer)
    s[c].vectorize(inner)
    return s


def softmax() -> Schedule:
    x = te.placeholder((5, 11), name="X")
    k, q = te.reduce_axis(11, "k"), te.reduce_axis(11, "q")
    top = te.compute((5,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((5, 11), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((5,), lambda i: te.sum(e[i, q], axis=q), name="total")
    out = te.compute((5, 11), lambda i, j: e[i, j] / total[i], name="out")
    s = create_schedule(out)
    i_o, i_i = s[out].split("i", factor=2)
    s[out].parallel(i_o)
    for stage in (total, e, top):
        s[stage].compute_at(s[out], i_i)
    return s


def split_reduction() -> Schedule:
    a = te.placeholder((6, 21), name="A")
    k = te.reduce_axis(21, "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    k_o, _ = s[c].split(k, factor=4)
    s[c].reorder(k_o, "i")
    return s


def decomposed() -> Schedule:
    a = te.placeholder((6, 10), name="A")
    k = te.reduce_axis(10, "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    s[c].reorder(k, "i")
    s[c].decompose_reduction(k)
    return s


def blocked() -> Schedule:
    n = te.var("n")
    a = te.placeholder((n, 9), name="A")
    c = te.compute((9, n), lambda i, j: a[j, i] * 3.0, name="C")
    s = create_schedule(c)
    i_o, _, _, j_i = s[c].tile("i", "j", 4, 4)
    s[c].parallel(i_o)
    s[c].vectorize(j_i)
    return s


def partial_sums() -> Schedule:
    a = te.placeholder((5, 22), name="A")
    k = te.reduce_axis(22, "k")
    c = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    _, k_i = s[c].split(k, factor=4)
    partial = s[c].rfactor(k_i)
    s[partial].compute_at(s[c], "i")
    s[c].parallel("i")
    return s


def epilogue_in_tiles() -> Schedule:
    a, b = te.placeholder((9, 6), name="A"), te.placeholder((6, 13), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((9, 13), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((9, 13), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    s = create_schedule(d)
    i_o, j_o, _, _ = s[c].tile("i", "j", 4, 8)
    s[d].reverse_compute_at(s[c], j_o)
    s[c].parallel(i_o)
    return s


def aligned() -> Schedule:
    a = te.placeholder((9, 13), name="A")
    b = te.compute((9, 13), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((9, 12), lambda i, j: b[i, j] * b[i, j + 1], name="C")
    s = create_schedule(c)
    s[b].storage_align("i", 16, 1)
    i_o, _ = s[c].split("i", factor=4)
    s[b].compute_at(s[c], i_o)
    s[c].parallel(i_o)
    return s


def double_buffered() -> Schedule:
    a = te.placeholder((30,), name="A")
    b = te.compute((30,), lambda i: a[i] * 3.0, name="B")
    c = te.compute((26,), lambda i: b[i] + b[i + 4], name="C")
    s = create_schedule(c)
    i_o, _ = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    s[b].double_buffer()
    return s


def dot_products() -> Schedule:
    x = te.placeholder((6, 4), name="x")
    y = te.placeholder((4,), name="y")
    q = te.reduce_axis(4, "q")
    z = te.compute((6,), lambda i: te.sum(x[i, q] * y[q], axis=q), name="z")
    rows = tensor_intrinsic(
        [x, y],
        z,
        lambda x, y, z: seq(
            *[z.loop(0, lambda i, q=q: z.store(i, value=te.fma(x[i, q], y[q], z[i]))) for q in range(4)]
        ),
        name="rows_6x4",
    )
    a, b = te.placeholder((12, 20), name="A"), te.placeholder((20,), name="B")
    k = te.reduce_axis(20, "k")
    c = te.compute((12,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="C")
    s = create_schedule(c)
    i_o, i_i = s[c].split("i", factor=6)
    k_o, k_i = s[c].split(k, factor=4)
    s[c].reorder(i_o, k_o, i_i, k_i)
    s[c].decompose_reduction(k_o)
    s[c].tensorize(i_i, rows)
    s[c].parallel(i_o)
    return s


def running_total() -> Schedule:
    x, state = te.placeholder((6, 11), name="X"), te.placeholder((6, 11), name="state")
    first = te.compute((1, 11), lambda _, i: x[0, i], name="first")
    half = te.compute((6, 11), lambda t, i: state[t - 1, i] * 0.5, name="half")
    update = te.compute((6, 11), lambda t, i: half[t, i] + x[t, i], name="update")
    s = create_schedule(te.scan(first, update, state, inputs=[x], name="total"))
    outer, inner = s[update].split("i", factor=4)
    s[half].compute_at(s[update], outer)
    s[update].vectorize(inner)
    return s


def packed() -> Schedule:
    a = te.placeholder((5, 11), name="A")
    b = te.compute((5, 11), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((5, 11), lambda i, j: b[i, j] * 2.0, name="C")
    s = create_schedule(c)
    s[c].transform_layout(Layout.plain(2).split(1, 4))
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[c].parallel(s[c].op.axis[0])
    return s


def positive_terms() -> Schedule:
    a = te.placeholder((6, 7), name="A")
    k = te.reduce_axis(7, "k")
    b = te.compute((6,), lambda i: te.sum(a[i, k], axis=k, where=a[i, k] > 0.0), name="B")
    c = te.compute((6,), lambda i: b[i] + 1.0, name="C")
    s = create_schedule(c)
    s[b].pad_dimension(0, 4)
    _, inner = s[b].split(k, factor=4)
    partial = s[b].rfactor(inner)
    s[partial].compute_at(s[b], "i")
    return s


GOLDEN: dict[str, Callable[[], Schedule]] = {
    f.__name__: f
    for f in (
        tail, symbolic_tail, two_splits, fused, matrix_product, cached_product, padded_sum, inlined_padding, stencil,
        softmax, split_reduction, decomposed, blocked, partial_sums, epilogue_in_tiles, aligned, double_buffered,
        dot_products, running_total, packed, positive_terms,
    )
}  # fmt: skip

GUARDED_LOOP = """
func guarded(A: float32[21], C: float32[21]) outputs 1:
  for i_o in 0..6 parallel:
    for i_i in 0..4:
      if i_o * 4 + i_i < 21:
        C[i_o * 4 + i_i] = A[i_o * 4 + i_i] + 1.0
"""
CUT_LOOP = """
func cut(A: float32[21], C: float32[21]) outputs 1:
  for i_o in 0..6 parallel:
    for i_i in 0..min(4, 21 - i_o * 4):
      C[i_o * 4 + i_i] = A[i_o * 4 + i_i] + 1.0
"""


def programs() -> list[Func]:
    """Every golden kernel as a scheduled program."""
    made = [dataclasses.replace(make().func(), name=name) for name, make in GOLDEN.items()]
    return [*made, parse_func(GUARDED_LOOP), parse_func(CUT_LOOP)]


# ---------------------------------------------------------------------------------------------------------- mutations


def _conjuncts(e: Expr) -> list[Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, And) else [e]


def _without_one(condition: Expr) -> Iterator[tuple[str, Expr]]:
    """A condition with each of its conjuncts removed."""
    if isinstance(condition, Const):
        return
    parts = _conjuncts(condition)
    for skip, part in enumerate(parts):
        kept = [p for n, p in enumerate(parts) if n != skip]
        yield f"guard {part!r} removed", ir.logical_and(*kept) if kept else const(True)


def _less_bounded(e: Expr) -> Iterator[tuple[str, Expr]]:
    """An extent with each `min` or `max` in it removed."""
    if isinstance(e, (Min, Max)):
        yield f"bound {e.b!r} removed", e.a
        yield f"bound {e.a!r} removed", e.b


def statement_changes(s: Stmt) -> Iterator[tuple[str, Stmt]]:
    """What a statement becomes with one guard, bound or initial value removed."""
    if isinstance(s, Block):
        for what, condition in _without_one(s.predicate):
            yield f"{s.name}: {what}", dataclasses.replace(s, predicate=condition)
        if s.init is not None:
            yield f"{s.name}: init removed", dataclasses.replace(s, init=None)
    if isinstance(s, If):
        for what, condition in _without_one(s.condition):
            yield what, dataclasses.replace(s, condition=condition)
    if isinstance(s, For):
        for what, extent in _less_bounded(s.extent):
            yield f"loop {s.var.name}: {what}", dataclasses.replace(s, extent=extent)
    if isinstance(s, Store):
        for e in _distinct(s.value):
            for what, condition in _without_one(e.condition):
                weaker = IfThenElse(condition, e.a, e.b, e.dtype)
                yield what, dataclasses.replace(s, value=rewrite_expr(s.value, lambda n: n, {e: weaker}))


def _distinct(root: Expr) -> list[IfThenElse]:
    return list({id(e): e for e in walk_expr(root) if isinstance(e, IfThenElse)}.values())


def shrunk(func: Func, buffer: Buffer, axis: int) -> Func:
    """The program with one element less of an allocated buffer along an axis."""
    shape = tuple(e - 1 if n == axis else e for n, e in enumerate(buffer.shape))
    smaller = dataclasses.replace(buffer, shape=shape)
    body = rewrite_stmt(func.body, buffer=lambda b: smaller if b is buffer else b)
    return with_body(func, body)


def mutations(func: Func) -> Iterator[tuple[str, Func]]:
    """The program with each guard, bound, initial value and allocation weakened, one at a time."""
    for target in list(walk_stmt(func.body)):
        for what, changed in statement_changes(target):
            yield what, with_body(func, _swap(func.body, target, changed))
        if isinstance(target, Allocate):
            for axis in range(len(target.buffer.shape)):
                yield f"{target.buffer.name} one shorter along axis {axis}", shrunk(func, target.buffer, axis)


def _swap(body: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`body` with the statement `old` replaced; statements above it are rebuilt."""
    if body is old:
        return new
    if isinstance(body, (For, Allocate)) or type(body).__name__ == "LetStmt":
        return dataclasses.replace(body, body=_swap(body.body, old, new))  # type: ignore[attr-defined]
    if isinstance(body, If):
        other = None if body.otherwise is None else _swap(body.otherwise, old, new)
        return dataclasses.replace(body, then=_swap(body.then, old, new), otherwise=other)
    if isinstance(body, Block):
        init = None if body.init is None else _swap(body.init, old, new)
        return dataclasses.replace(body, init=init, body=_swap(body.body, old, new))
    if type(body).__name__ == "Seq":
        return dataclasses.replace(body, stmts=tuple(_swap(s, old, new) for s in body.stmts))  # type: ignore[attr-defined]
    return body


# -------------------------------------------------------------------------------------------------------------- tests


def _outputs(func: Func, mode: str) -> bytes | None:
    """The outputs' bytes on the inputs of the test; None where the run fails."""
    dims: dict[Var, int] = dict.fromkeys(func.dims, 21)
    arrays = make_arrays(func, dims)
    try:
        interpret(func, arrays, dims, mode=mode, complete=mode == "checked")
    except SanitizerError:
        return None
    return b"".join(a.tobytes() for a in arrays[len(arrays) - func.outputs :])


@pytest.mark.parametrize("func", programs(), ids=lambda f: f.name)
def test_removed_guards_are_found_and_originals_are_silent(func: Func) -> None:
    wanted = _outputs(func, "plain")
    assert wanted is not None
    assert _outputs(func, "checked") == wanted
    missed = []
    for what, changed in mutations(func):
        if _outputs(changed, "plain") != wanted and _outputs(changed, "checked") is not None:
            missed.append(what)
    assert not missed


def test_the_mutations_are_many_and_most_change_meaning() -> None:
    total = changing = 0
    for func in programs():
        wanted = _outputs(func, "plain")
        for _, changed in mutations(func):
            total += 1
            changing += _outputs(changed, "plain") != wanted
    print(f"{len(programs())} golden kernels, {total} changes of one guard, bound or initial value, {changing} matter")
    assert total >= 50
    assert changing >= 35


def _parallel_reductions(func: Func) -> Iterator[Func]:
    """The program with each loop that steers a reduction made parallel."""
    for loop in walk_stmt(func.body):
        if not isinstance(loop, For) or loop.kind != "serial":
            continue
        reduces = [
            iteration
            for block in walk_stmt(loop.body)
            if isinstance(block, Block)
            for iteration, binding in zip(block.iters, block.bindings, strict=True)
            if iteration.kind == "reduce" and any(e is loop.var for e in walk_expr(binding))
        ]
        if reduces:
            yield with_body(func, _swap(func.body, loop, dataclasses.replace(loop, kind="parallel")))


def test_a_parallel_reduction_is_a_race() -> None:
    found = 0
    for func in programs():
        for changed in _parallel_reductions(func):
            found += 1
            with pytest.raises(SanitizerError, match="race: "):
                interpret(
                    changed,
                    make_arrays(changed, {d: 21 for d in func.dims}),
                    {d: 21 for d in func.dims},
                    mode="checked",
                )
    assert found >= 8


def vector_sum(kind: str) -> Func:
    """Sums of rows, the loop over lanes of the reduction being of the given kind."""
    a, c = Buffer("A", (const(3), const(8)), te.var().dtype), Buffer("C", (const(3),), te.var().dtype)
    i, k, v, w = Var("i"), Var("k"), Var("v"), Var("w")
    iters = (IterVar(v, const(0), const(3), "spatial"), IterVar(w, const(0), const(8), "reduce"))
    update = Store(c, (v,), Load(c, (v,), c.dtype) + Load(a, (v, w), a.dtype))
    block = Block("C", iters, (i, k), const(True), (), (), Store(c, (v,), const(0, c.dtype)), update, ())
    body = For(i, const(0), const(3), "serial", For(k, const(0), const(8), kind, block))
    return Func("sums", (a, c), (), body, 1)


def test_a_vectorized_reduction_is_no_race() -> None:
    arrays: list[Any] = [np.arange(24).reshape(3, 8), np.full(3, -1)]
    interpret(vector_sum("vectorized"), arrays, mode="checked", complete=True)
    assert arrays[1].tolist() == [28, 92, 156]
    with pytest.raises(SanitizerError, match="race"):
        interpret(vector_sum("parallel"), arrays, mode="checked")


def test_a_kernel_is_sanitised_on_copies() -> None:
    s = tail()
    k = build(s, [*s.inputs, *s.outputs])
    a, c = np.ones(37, np.float32), np.full(37, np.nan, np.float32)
    assert k.sanitize(a, c) == "main: every access is in bounds and of written memory, no two iterations race"
    assert np.isnan(c).all()


def test_a_race_names_the_loop_and_both_accesses() -> None:
    k = build(
        parse_func(
            """
func racy(A: float32[8], C: float32[8]) outputs 1:
  for i in 0..8 parallel:
    for j in 0..2:
      C[(i + j) % 8] = A[i]
"""
        )
    )
    with pytest.raises(SanitizerError) as raised:
        k.sanitize(np.zeros(8, np.float32), np.zeros(8, np.float32))
    assert str(raised.value) == (
        "race: C[1] is written by two iterations: iterations 0 and 1 of the parallel loop i\n"
        "first:  write of C[(i + j) % 8], at i = 0\n"
        "second: write of C[(i + j) % 8], at i = 1\n"
        "in the program, at i = 1, j = 0"
    )


def test_an_output_left_out_is_named() -> None:
    k = build(parse_func("func most(A: float32[8], C: float32[8]) outputs 1:\n  for i in 0..7:\n    C[i] = A[i]\n"))
    with pytest.raises(SanitizerError, match=r"the output C\[7\] is never written"):
        k.sanitize(np.zeros(8, np.float32), np.zeros(8, np.float32))
