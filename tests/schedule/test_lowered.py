"""Scheduled programs after lowering: random schedules keep their bits through every pass and in native code, and a
register tile comes out as it should."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from schedule import Schedule, create_schedule
from schedule.verify import run_packed
from targets.build import build
from tensorir import te
from tensorir.expr import Fma, Var
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import lower
from tensorir.stmt import Allocate, Evaluate, For, Func, Store
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, walk_expr, walk_stmt, with_body
from tests.schedule.bits import make_arrays, same, unbound
from tests.schedule.random_schedules import WEIGHTS, Sample, random_schedules

PRIMITIVES = tuple(name for name in WEIGHTS if name != "set_scope")  # registers need constant indices
TARGETS = ("llvm", "llvm -mcpu=x86-64")


def _check(sample: Sample, target: Target, native: bool) -> None:
    s = sample.schedule
    plain = te.create_func((*s.inputs, *s.outputs))
    arrays = make_arrays(plain, sample.dims)
    inputs, outputs = arrays[: len(s.inputs)], arrays[len(s.inputs) :]
    wanted = [a.copy() for a in outputs]
    interpret(plain, [*inputs, *wanted], sample.dims)
    func = s.func()
    func = with_body(func, rewrite_stmt(func.body, stmt=unbound))

    def on_interpreter(_: Func, given: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        interpret(lower(func, target, check=True), [a.reshape(-1) for a in given], sizes, mode="checked")

    def on_cpu(_: Func, given: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        build(func, target=target)(*given)

    found = run_packed(s, on_cpu if native else on_interpreter, func, inputs, outputs, sample.dims)
    for w, f in zip(wanted, found, strict=True):
        exact = np.array_equal(w, f, equal_nan=w.dtype.kind == "f")
        assert exact or (s.state.reassociated and same(s, w, f)), f"{s.trace}\n{s}"


@pytest.mark.parametrize("target", TARGETS)
def test_lowering_keeps_bits(target: str) -> None:
    for sample in random_schedules(7, 40, steps=10, only=PRIMITIVES):
        _check(sample, Target.parse(target), native=False)


@pytest.mark.parametrize("target", TARGETS[:1])
def test_native_code_keeps_bits(target: str) -> None:
    for sample in random_schedules(8, 25, steps=10, only=PRIMITIVES):
        _check(sample, Target.parse(target), native=True)


@pytest.mark.slow
def test_many_keep_bits() -> None:
    for number, sample in enumerate(random_schedules(9, 1000, steps=12, only=PRIMITIVES)):
        _check(sample, Target.parse(TARGETS[number % 2]), native=number % 4 == 0)


def tiled_matmul(n: int, m: int, depth: int) -> Schedule:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    bias = te.placeholder((m,), name="bias")
    k = te.reduce_axis(depth, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), name="D")
    s = create_schedule(d)
    i_o, j_o, i_i, j_i = s[d].tile("i", "j", 4, 16)
    s[d].vectorize(j_i)
    s[d].unroll(i_i)
    s[d].parallel(i_o)
    s[c].set_scope("register")
    s[c].compute_at(s[d], j_o)
    s[c].reorder(k, "i", "j")
    s[c].unroll("i")
    s[c].vectorize("j")
    s[c].decompose_reduction(k)
    return s


def test_a_register_tile() -> None:
    s = tiled_matmul(8, 32, 10)
    func = lower(s.func(), Target.parse("llvm -mcpu=znver4"))
    allocated = [x.buffer for x in walk_stmt(func.body) if isinstance(x, Allocate)]
    assert [(b.scope, int(b.shape[0].value)) for b in allocated] == [("register", 64)]
    loops = [x for x in walk_stmt(func.body) if isinstance(x, For)]
    assert [x.kind for x in loops] == ["parallel", "serial", "serial"]
    reduction = loops[-1]
    stores = [x for x in walk_stmt(reduction.body) if isinstance(x, Store)]
    assert len(stores) == 4 and all(x.buffer.scope == "register" and isinstance(x.value, Fma) for x in stores)
    assert all(x.value.dtype.lanes == 16 for x in stores)
    outside = [x for x in walk_stmt(func.body) if isinstance(x, Store) and all(x is not y for y in stores)]
    assert [x.buffer.name for x in outside] == ["C"] * 4 + ["D"] * 4
    assert not any(isinstance(e, Fma) for x in outside for e in walk_expr(x.value))


@pytest.mark.parametrize(("n", "m", "depth"), [(8, 32, 10), (7, 33, 5), (1, 1, 1), (4, 15, 3)])
def test_register_tiles_of_odd_sizes(n: int, m: int, depth: int) -> None:
    sample = Sample("matmul", tiled_matmul(n, m, depth), {})
    for target in TARGETS:
        _check(sample, Target.parse(target), native=False)
    _check(sample, Target.parse("llvm"), native=True)


def test_a_prefetch_stands_once_in_its_loop() -> None:
    s = tiled_matmul(8, 32, 10)
    a, b, bias = s.inputs
    s["C"].prefetch(b, "k", 512)
    func = lower(s.func(), Target.parse("llvm -mcpu=znver4"), check=True)
    reduction = [x for x in walk_stmt(func.body) if isinstance(x, For)][-1]
    assert len([x for x in walk_stmt(reduction.body) if isinstance(x, Evaluate)]) == 1
    _check(Sample("matmul", s, {}), Target.parse("llvm"), native=True)
