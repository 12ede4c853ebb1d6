"""Scans: steps that read the steps before, on the interpreter, scheduled and in native code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, create_schedule
from targets.build import build
from tensorir import te
from tensorir.errors import ComputeError
from tensorir.stmt import Block, For
from tensorir.visit import walk_stmt
from tests.schedule.bits import require_same_bits

M, N = 7, 10


def cumulative() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """total[t] = 2 * total[t - 1] + x[t], and one more stage behind it."""
    x, state = te.placeholder((M, N), name="X"), te.placeholder((M, N), name="state")
    first = te.compute((1, N), lambda _, i: x[0, i], name="first")
    twice = te.compute((M, N), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    update = te.compute((M, N), lambda t, i: twice[t, i] + x[t, i], name="update")
    total = te.scan(first, update, state, inputs=[x], name="total")
    return x, first, twice, update, total, te.compute((M, N), lambda t, i: total[t, i] + 1.0, name="out")


def wanted(x: np.ndarray) -> np.ndarray:
    result = x.copy()
    for t in range(1, len(x)):
        result[t] = result[t - 1] * np.float32(2) + x[t]
    return result


def require_native(s: Schedule) -> None:
    x = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32)
    out = np.full((M, N), np.nan, np.float32)
    build(s.func(), target="llvm")(x, out)
    expected = wanted(x) + (0 if isinstance(s.outputs[0].op, te.ScanOp) else 1)
    assert out.tobytes() == expected.astype(np.float32).tobytes(), str(s)


def test_a_scan_as_it_is() -> None:
    x, _, _, _, total, out = cumulative()
    for tensor in (total, out):
        s = create_schedule(tensor)
        require_same_bits(s)
        require_native(s)
        assert [t.name for t in s.inputs] == ["X"]
        assert "verified" in s.verify()
    order = [b.name for b in walk_stmt(s.func().body) if isinstance(b, Block)]
    assert order == ["first", "total_init", "twice", "update", "out"]


def test_the_stages_of_a_step_are_scheduled() -> None:
    x, first, twice, update, total, out = cumulative()
    s = create_schedule(out)
    _, inner = s[first].split(first.op.axis[1], factor=4)
    s[first].vectorize(inner)
    outer, inner = s[update].split(update.op.axis[1], factor=4)
    s[update].vectorize(inner)
    s[update].parallel(outer)
    require_same_bits(s)
    require_native(s)
    s[twice].compute_at(s[update], outer)
    assert [repr(loop.extent) for loop in s[twice].loops] == ["1", "4"]
    require_same_bits(s)
    require_native(s)
    s[twice].compute_inline()
    require_same_bits(s)
    require_native(s)
    s[out].vectorize("i")
    require_native(s)


def test_two_states_and_a_reduction_in_a_step() -> None:
    n = 5
    x, w = te.placeholder((M, n), "int32", name="X"), te.placeholder((n, n), "int32", name="W")
    h, c = te.placeholder((M, n), "int32", name="h"), te.placeholder((M, n), "int32", name="c")
    k = te.reduce_axis(n, "k")
    zero = te.compute((2, n), lambda _, i: te.const(1, "int32"), name="zero")
    zero_c = te.compute((2, n), lambda _, i: te.const(2, "int32"), name="zero_c")
    product = te.compute((M, n), lambda t, i: te.sum(h[t - 1, k] * w[k, i], axis=k), name="product")
    next_c = te.compute((M, n), lambda t, i: c[t - 2, i] + product[t, i] % 7, name="next_c")
    next_h = te.compute((M, n), lambda t, i: next_c[t, i] + x[t, i], name="next_h")
    with pytest.raises(ComputeError, match="next_h reads next_c at step"):
        bad = te.compute((M, n), lambda t, i: next_c[t - 1, i] + x[t, i], name="next_h")
        te.scan((zero, zero_c), (bad, next_c), (h, c))
    hs, cs = te.scan((zero, zero_c), (next_h, next_c), (h, c), name="lstm")
    out = te.compute((M, n), lambda t, i: hs[t, i] - cs[t, i], name="out")
    s = create_schedule(out)
    with pytest.raises(ScheduleError):
        s[next_c].compute_root()
    require_same_bits(s)
    s[product].reorder(k, "i")
    s[product].vectorize("i")
    s[next_h].vectorize("i")
    require_same_bits(s)
    xs, ws = np.arange(M * n).reshape(M, n).astype(np.int32), np.arange(n * n).reshape(n, n).astype(np.int32) % 3
    hh, cc = np.ones((M, n), np.int32), np.full((M, n), 2, np.int32)
    for t in range(2, M):
        cc[t] = cc[t - 2] + (hh[t - 1] @ ws) % 7
        hh[t] = cc[t] + xs[t]
    found = np.full((M, n), 77, np.int32)
    build(s.func([x, w, out]), target="llvm")(xs, ws, found)
    assert (found == hh - cc).all()


def test_a_symbolic_number_of_steps() -> None:
    n = te.var("n")
    x, state = te.placeholder((n, 4), name="X"), te.placeholder((n, 4), name="state")
    first = te.compute((1, 4), lambda _, i: x[0, i], name="first")
    update = te.compute((n, 4), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    s = create_schedule(te.scan(first, update, state, name="total"))
    s[update].vectorize("i")
    for size in (1, 2, 6):
        require_same_bits(s, {n: size})


def test_results_of_a_step_are_collected_and_copied() -> None:
    x, first, twice, update, total, out = cumulative()
    for tensor in (twice, update, first):
        s = create_schedule(out)
        collected = s.cache_write(tensor, "register" if tensor is not first else "local")
        require_same_bits(s)
        if tensor is not first:
            outer, inner = s[tensor].split("i", factor=5)
            s[collected].compute_at(s[tensor], outer)
            s[collected].unroll(s[collected].axis[1])
            s[tensor].unroll(inner)
        require_same_bits(s)
        require_native(s)
    s = create_schedule(out)
    copied = s.cache_read(twice, "local")
    require_same_bits(s)
    s[copied].compute_at(s[update], "i")
    s[twice].compute_at(s[copied], s[copied].axis[0])
    require_same_bits(s)
    require_native(s)
    with refused("total is not a compute"):
        s.cache_write(total)


def test_a_printed_schedule_forgets_where_the_first_steps_were_stored() -> None:
    x, first, twice, update, total, out = cumulative()
    s = create_schedule(out)
    require_same_bits(s)  # as print(s) in a notebook does
    s[first].set_scope("local")
    require_same_bits(s)
    s[first].storage_align(0, 8, 1)
    require_same_bits(s)
    require_native(s)


def test_steps_are_not_padded() -> None:
    x, first, twice, update, total, out = cumulative()
    s = create_schedule(out)
    with refused("axis 0 of twice counts the steps of a scan"):
        s[twice].pad_dimension(0, 4)
    s[twice].pad_dimension(1, 4)
    require_same_bits(s)
    require_native(s)


def test_a_reduction_in_a_step_is_factored() -> None:
    n = 6
    x, w = te.placeholder((M, n), "int32", name="X"), te.placeholder((n, n), "int32", name="W")
    state = te.placeholder((M, n), "int32", name="state")
    k = te.reduce_axis(n, "k")
    first = te.compute((1, n), lambda _, i: x[0, i], name="first")
    product = te.compute((M, n), lambda t, i: te.sum(state[t - 1, k] * w[k, i], axis=k), name="product")
    update = te.compute((M, n), lambda t, i: product[t, i] + x[t, i], name="update")
    s = create_schedule(te.scan(first, update, state, inputs=[x], name="total"))
    outer, inner = s[product].split(k, factor=4)
    partial = s.rfactor(product, inner)
    require_same_bits(s)
    s[partial].compute_at(s[product], "i")
    s[product].compute_at(s[update], "i")
    require_same_bits(s)
    values = [np.random.default_rng(0).integers(-5, 6, z).astype(np.int32) for z in ((M, n), (n, n))]
    wanted = values[0].copy()
    for t in range(1, M):
        wanted[t] = wanted[t - 1] @ values[1] + values[0][t]
    found = np.full((M, n), 77, np.int32)
    build(s.func([x, w, *s.outputs]), target="llvm")(*values, found)
    assert (found == wanted).all()


def refused(message: str) -> object:
    return pytest.raises(ScheduleError, match=re.escape(message))


def test_what_a_scan_refuses() -> None:
    x, first, twice, update, total, out = cumulative()
    s = create_schedule(out)
    with refused("twice reads the earlier steps of total, so it must be computed at loop t of total or inside"):
        s[twice].compute_root()
    with refused("t is the loop over the steps of total: each reads those before it"):
        s[total].parallel("t")
    with refused("t is the loop over the steps of total: each reads those before it"):
        s[total].split("t", factor=2)
    with refused("the scan total reads update as a whole tensor"):
        s[update].compute_inline()
    with refused("update makes the steps of total and is stored there"):
        s[update].storage_align(0, 4)
    with refused("prefetch(state, i, 8): state stands for the earlier steps of the scan total and is no stage"):
        s[twice].prefetch(twice.op.bodies[0].a.buffer, "i", 8)
    with refused("twice has two copies in turn, but it reads the step before, which is not made one step ahead"):
        s[twice].double_buffer()
    with refused("total works on update as a plain tensor"):
        from tensorir.layout import Layout

        s[update].transform_layout(Layout.plain(2))
    with refused("update would be computed at loop i of out"):
        s[update].compute_at(s[out], "i")
    with refused("twice would be computed at loop t of total, but leak reads it outside that loop"):
        both = create_schedule([out, te.compute((M, N), lambda t, i: twice[t, i], name="leak")])
        require_same_bits(both)
    require_same_bits(s)


def test_what_te_scan_refuses() -> None:
    x, state = te.placeholder((M, N), name="X"), te.placeholder((M, N), name="state")
    first = te.compute((1, N), lambda _, i: x[0, i], name="first")
    two_back = te.compute((M, N), lambda t, i: state[t - 2, i] + x[t, i], name="update")
    with pytest.raises(ComputeError, match="reads the state state at step t - 2, but first gives 1 earlier steps"):
        te.scan(first, two_back, state)
    now = te.compute((M, N), lambda t, i: state[t, i] + x[t, i], name="update")
    with pytest.raises(ComputeError, match="reads the state state at step t, but first gives 1 earlier steps"):
        te.scan(first, now, state)
    with pytest.raises(ComputeError, match="there are 2 init, 1 update and 1 state tensors"):
        te.scan((first, first), two_back, state)
    with pytest.raises(ComputeError, match="the state update is not a placeholder"):
        te.scan(first, now, now)
    short = te.placeholder((M, N - 1), name="short")
    with pytest.raises(ComputeError, match="the shapes of init and state differ"):
        te.scan(first, now, short)
    with pytest.raises(ComputeError, match="state is read out of bounds: index 0, t - 2, runs from -2"):
        create_schedule(two_back)


def test_the_loop_over_steps_is_serial() -> None:
    s = create_schedule(cumulative()[5])
    loop = next(x for x in walk_stmt(s.func().body) if isinstance(x, For) and x.var.name == "t")
    assert loop.kind == "serial" and repr(loop.extent) == str(M - 1)
