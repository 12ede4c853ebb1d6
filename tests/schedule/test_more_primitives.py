"""The primitives beyond loops and places: computed after, factored, aligned, padded, in two copies, tensorized."""

from __future__ import annotations

import re

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, Window, create_schedule, tensor_intrinsic
from schedule.verify import VerificationError, run_packed
from targets.build import build
from tensorir import te
from tensorir.interpreter import interpret
from tensorir.layout import Layout
from tensorir.passes.pipeline import lower
from tensorir.stmt import Allocate, Block, For, If, Stmt, seq
from tensorir.target import Target
from tensorir.visit import walk_stmt
from tests.schedule.bits import make_arrays, require_same_bits, run


def require_native(s: Schedule) -> None:
    """Native code gives the bits of the unscheduled program on the interpreter."""
    plain = te.create_func((*s.inputs, *s.outputs))
    arrays = make_arrays(plain, {})
    inputs, outputs = arrays[: len(s.inputs)], arrays[len(s.inputs) :]
    wanted = [a.copy() for a in outputs]
    interpret(plain, [*inputs, *wanted])
    found = run_packed(s, lambda f, given, sizes: build(f, target="llvm")(*given), s.func(), inputs, outputs, {})
    for w, f in zip(wanted, found, strict=True):
        assert w.tobytes() == f.tobytes(), str(s)


def refused(message: str) -> object:
    return pytest.raises(ScheduleError, match=re.escape(message))


def chain(n: int = 30, m: int = 6) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    return a, b, te.compute((n - 4, m), lambda i, j: b[i + 2, j] * 2.0, name="C")


def matmul(n: int = 6, m: int = 8, depth: int = 12, dtype: str = "int32") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((n, depth), dtype, name="A"), te.placeholder((depth, m), dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def order(s: Schedule) -> list[str]:
    return [x.name for x in walk_stmt(s.func().body) if isinstance(x, Block)]


# ------------------------------------------------------------------------------------------------ reverse_compute_at


def test_reverse_compute_at() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    i_o, _ = s[b].split("i", factor=8)
    s[c].reverse_compute_at(s[b], i_o)
    assert [repr(x.extent) for x in s[c].loops] == ["8", "6"]
    require_same_bits(s)
    s[c].vectorize("j")
    s[c].split("i", factor=4)
    s[b].parallel(i_o)
    require_same_bits(s)
    require_native(s)
    outer = next(x for x in walk_stmt(s.func().body) if isinstance(x, For))
    assert [x.name for x in walk_stmt(outer.body) if isinstance(x, Block)] == ["B", "C"]
    s[c].compute_root()
    require_same_bits(s)


def test_epilogues_behind_a_matmul_tile() -> None:
    _, _, m = matmul()
    bias = te.placeholder((8,), "int32", name="bias")
    y = te.compute((6, 8), lambda i, j: m[i, j] + bias[j], name="Y")
    z = te.compute((6, 8), lambda i, j: te.maximum(y[i, j], te.const(0, "int32")), name="Z")
    s = create_schedule([y, z])
    _, j_o, _, _ = s[m].tile("i", "j", 4, 4)
    s[y].reverse_compute_at(s[m], j_o)
    s[z].reverse_compute_at(s[m], j_o)
    assert order(s) == ["C", "Y", "Z"] and [repr(x.extent) for x in s[z].loops] == ["4", "4"]
    require_same_bits(s)
    require_native(s)


def test_rows_of_a_softmax_behind_their_exponents() -> None:
    x = te.placeholder((4, 6), "int32", name="X")
    k = te.reduce_axis(6, "k")
    e = te.compute((4, 6), lambda i, j: x[i, j] * 3, name="E")
    t = te.compute((4,), lambda i: te.sum(e[i, k], axis=k), name="T")
    o = te.compute((4, 6), lambda i, j: e[i, j] - t[i], name="O")
    s = create_schedule(o)
    s[t].reverse_compute_at(s[e], "i")
    s[o].reverse_compute_at(s[e], "i")
    assert order(s) == ["E", "T", "O"]
    require_same_bits(s)


def test_reverse_compute_at_refuses_what_is_not_ready() -> None:
    a, b, c = chain()
    s = create_schedule(c)
    i_o, i_i = s[b].split("i", factor=8)
    s[b].fuse(i_i, "j")
    s[c].reverse_compute_at(s[b], i_o)
    require_same_bits(s)
    d = te.compute((28, 6), lambda i, j: b[i, j] + b[i + 2, j], name="D")
    s = create_schedule(d)
    with refused("D reads more of B than loop i of B has made: dimension 0 is read on i + 2 .. i + 3, made on i .. i"):
        s[d].reverse_compute_at(s[b], "i")
    f = s[b].fuse("i", "j")
    f_o, _ = s[b].split(f, factor=4)
    with refused("D reads B inside loop i_j_o of B, but what it has made by then is no rectangle"):
        s[d].reverse_compute_at(s[b], f_o)
    with refused("A has no loops"):
        s[d].reverse_compute_at(s[a], "i")
    _, _, m = matmul()
    y = te.compute((6, 8), lambda i, j: m[i, j] + 1, name="Y")
    s = create_schedule(y)
    with refused("Y reads C inside loop k of C, but its reduce loop k is not over"):
        s[y].reverse_compute_at(s[m], "k")
    s[m].compute_at(s[y], "i")
    with refused("C is computed at a loop of Y itself"):
        s[y].reverse_compute_at(s[m], "j")


def test_a_tile_ends_where_an_inner_split_is_guarded() -> None:
    a = te.placeholder((6, 6), "int64", name="A")
    p = te.compute((6, 6), lambda i, j: a[i, j] * 3, name="P")
    q = te.compute((6, 6), lambda i, j: p[j, i] + 1, name="Q")
    s = create_schedule(q)
    i_o, i_i = s[p].split("i", factor=2)
    parts, _ = s[p].split(i_i, nparts=8)
    with refused("Q reads P inside loop i_i_o of P, but what it has made by then is no rectangle"):
        s[q].reverse_compute_at(s[p], parts)
    s[q].reverse_compute_at(s[p], i_o)
    require_same_bits(s)


def test_nests_that_would_wait_for_each_other() -> None:
    _, b, _ = chain()
    e = te.compute((30, 6), lambda i, j: b[29 - i, j] * 3.0, name="E")
    c = te.compute((30, 6), lambda i, j: b[i, j] + e[i, j], name="C")
    s = create_schedule(c)
    with refused("would each have to run before the other"):
        s[c].reverse_compute_at(s[b], "i")
    with refused("E reads more of B than loop i of B has made: dimension 0 is read on 29 - i .. 30 - i"):
        s[e].compute_at(s[c], "i")
        s[c].reverse_compute_at(s[b], "i")


# -------------------------------------------------------------------------------------------- reverse_compute_inline


def test_reverse_compute_inline() -> None:
    a = te.placeholder((6, 30), name="A")
    b = te.compute((6, 30), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((30, 6), lambda i, j: b[j, i] + 1.0, name="C")
    s = create_schedule(c)
    i_o, i_i = s[b].split("i", factor=4)
    s[b].vectorize("j")
    s[c].reverse_compute_inline()
    assert order(s) == ["C"] and [x.name for x in s[c].loops] == ["i_o", "i_i", "j"]
    require_same_bits(s)
    with refused("B is no stage of this schedule"):
        s[b].split("i", factor=2)


def test_reverse_compute_inline_keeps_what_was_attached() -> None:
    a, b, _ = chain()
    p = te.compute((30, 6), lambda i, j: b[i, j] * b[i, 5 - j], name="P")
    q = te.compute((30, 6), lambda i, j: te.exp(p[i, j]), name="Q")
    s = create_schedule(q)
    s[b].compute_at(s[p], "i")
    s[q].reverse_compute_inline()
    assert order(s) == ["B", "Q"]
    require_same_bits(s)


def test_reverse_compute_inline_refuses() -> None:
    _, _, m = matmul()
    y = te.compute((6, 8), lambda i, j: m[i, j] + 1, name="Y")
    s = create_schedule(y)
    with refused("C is a reduction: its value is not there before its loops are over"):
        s[y].reverse_compute_inline()
    _, b, c = chain()
    s = create_schedule(c)
    with refused("C reads no computed stage point by point: it reads B"):
        s[c].reverse_compute_inline()
    d = te.compute((30, 6), lambda i, j: b[i, j] - 1.0, name="D")
    s = create_schedule([c, d])
    with refused("B is read by C too"):
        s[d].reverse_compute_inline()
    s = create_schedule([b, d])
    with refused("B is an output of the program: it must be stored"):
        s[d].reverse_compute_inline()
    s = create_schedule(d)
    s[d].split("i", factor=2)
    with refused("D is scheduled already, and its loops would be lost"):
        s[d].reverse_compute_inline()
    with refused("C is not an elementwise compute"):
        create_schedule(m)["C"].reverse_compute_inline()


# ----------------------------------------------------------------------------------------------------------- rfactor


def test_rfactor_of_integers_keeps_bits() -> None:
    for axis in (0, 1, 2, -1):
        _, _, c = matmul(3, 4, 13)
        s = create_schedule(c)
        k_o, k_i = s[c].split("k", factor=4)
        s[c].reorder(k_o, "i", k_i)
        s[c].split("i", factor=2)
        part = s[c].rfactor(k_i, axis)
        assert [x.name for x in s[part].axis][axis] == "k_i"
        require_same_bits(s)
        assert not s.state.reassociated
        s[part].vectorize(s[part].axis[-1])
        s[c].unroll(s[c].op.reduce_axis[0])
        require_same_bits(s)
        require_native(s)


def test_rfactor_of_every_order_free_reducer() -> None:
    x = te.placeholder((5, 11), name="X")
    k = te.reduce_axis(11, "k")
    makers = [
        lambda i: te.max(x[i, k], axis=k),
        lambda i: te.min(x[i, k], axis=k),
        lambda i: te.any(x[i, k] > 1.0, axis=k),
        lambda i: te.argmax(k, x[i, k], axis=k),
        lambda i: te.max(x[i, k], axis=k, where=k % 3 != 0),
    ]
    for make in makers:
        made = te.compute((5,), make, name="R")
        first = made[0] if isinstance(made, tuple) else made
        for which in (0, 1):
            s = create_schedule(made)
            loops = s[first].split("k", factor=4)
            s[first].rfactor(loops[which])
            require_same_bits(s)
            assert not s.state.reassociated


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_rfactor_of_floats_stays_in_its_bound(name: str) -> None:
    n = 57
    x = te.placeholder((4, n), name="X")
    k = te.reduce_axis(n, "k")
    c = te.compute((4,), lambda i: getattr(te, name)(x[i, k], axis=k), name="C")
    s = create_schedule(c)
    _, k_i = s[c].split("k", factor=8)
    s[c].rfactor(k_i)
    assert [str(call).split(" at ")[0] for call in s.state.reassociated] == ["rfactor(k_i)"]
    array = np.random.default_rng(3).standard_normal((4, n)).astype(np.float32)
    found, plain = np.full(4, np.nan, np.float32), np.full(4, np.nan, np.float32)
    interpret(s.func(), [array, found])
    interpret(te.create_func([x, c]), [array, plain])
    wide = array.astype(np.float64)
    exact = wide.sum(1) if name == "sum" else wide.prod(1)
    bound = n * np.finfo(np.float32).eps * (np.abs(wide).sum(1) if name == "sum" else np.abs(exact))
    assert (np.abs(found - exact) <= bound).all() and (np.abs(found - plain) <= 2 * bound).all()
    assert "verified" in s.verify()


@pytest.mark.parametrize("factor", [1, 4, 5])
def test_rfactor_of_one_window_axis_under_uneven_splits(factor: int) -> None:
    """B7, halide/Halide#7890: init and update of the sum split by different factors that leave tails."""
    n = 13
    image = te.placeholder((n + 4, n + 4), name="in")
    dx, dy = te.reduce_axis(5, "dx"), te.reduce_axis(5, "dy")
    total = te.compute((n, n), lambda x, y: te.sum(image[x + dx, y + dy], axis=(dx, dy)), name="S")
    out = te.compute((n, n), lambda x, y: total[x, y] / 25.0, name="out")
    s = create_schedule(out)
    s[total].split("x", factor=factor)
    part = s[total].rfactor(dx)
    s[part].split("x", factor=4)
    s[total].decompose_reduction(s[total].op.reduce_axis[0])
    xs, ys = np.mgrid[-2 : n + 2, -2 : n + 2]
    array = (2 * xs + 5 * ys).astype(np.float32)
    wanted = (2 * xs + 5 * ys)[2:-2, 2:-2].astype(np.float32)
    for runner in (interpret, lambda f, arrays: build(f, target="llvm")(*arrays)):
        found = np.full((n, n), np.nan, np.float32)
        runner(s.func(), [array, found])
        assert (found == wanted).all()
    assert wanted[3, 4] == 26


def test_rfactor_refuses() -> None:
    """B6, apache/tvm#15209, #15196: a difference is no reducer that partial results could be made of."""
    a = te.placeholder((4, 9), "int32", name="A")
    k = te.reduce_axis(9, "k")
    minus = te.comm_reducer(lambda x, y: x - y, lambda t: te.const(0, t), "minus", associative=False)
    c = te.compute((4,), lambda i: minus(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    with refused("the reducer minus is not associative"):
        s[c].rfactor("k")
    _, _, m = matmul()
    s = create_schedule(m)
    with refused("i is a spatial loop: each of its iterations has results of its own"):
        s[m].rfactor("i")
    with refused("factor_axis 4 must be in 0..3"):
        s[m].rfactor("k", 4)
    s[m].unroll("k")
    with refused("k is unrolled already"):
        s[m].rfactor("k")
    _, b, d = chain()
    s = create_schedule(d)
    with refused("C is not a reduction: it has no partial results"):
        s[d].rfactor("i")


# ----------------------------------------------------------------------- storage_align, pad_dimension, double_buffer


def test_storage_align() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    s[b].storage_align("i", 4, 1)
    assert "alloc B: float32[30, 9]" in str(s)
    require_same_bits(s)
    i_o, _ = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    require_same_bits(s)
    require_native(s)
    flat = lower(s.func(), Target.parse("llvm"), check=True)
    assert [repr(x.buffer.shape[0]) for x in walk_stmt(flat.body) if isinstance(x, Allocate)] == ["72"]  # 8 rows of 9


def test_storage_align_refuses() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    with refused("axis 1 of B is the last one: its elements are neighbours"):
        s[b].storage_align("j", 4)
    with refused("the offset 4 must be in 0..4"):
        s[b].storage_align("i", 4, 4)
    with refused("the factor must be an integer of at least 1, not 0"):
        s[b].storage_align("i", 0)
    with refused("C is an output of the program and cannot be aligned"):
        s[c].storage_align("i", 4)
    with refused("z is no axis of the tensor B"):
        s[b].storage_align("z", 4)
    s[b].storage_align("i", 4)
    with refused("the storage of B is aligned already"):
        s[b].storage_align("i", 8)
    x = te.placeholder((3, 4, 6), name="X")
    p = te.compute((3, 4, 6), lambda i, j, k: x[i, j, k] + 1.0, name="P")
    q = te.compute((3, 4, 6), lambda i, j, k: p[i, j, k] + 1.0, name="Q")
    s = create_schedule(q)
    with refused("no size of axis 1 gives axis 0 of P a stride of 1 more than a multiple of 4"):
        s[p].storage_align(0, 4, 1)


def test_pad_dimension() -> None:
    a, b, c = chain(30, 6)
    s = create_schedule(c)
    s[b].pad_dimension("j", 4)
    _, j_i = s[b].split("j", factor=4)
    assert "alloc B: float32[30, 8]" in str(s) and " where " not in str(s)
    require_same_bits(s)
    i_o, _ = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    s[b].vectorize(j_i)
    require_same_bits(s)
    require_native(s)
    _, _, m = matmul(5, 7, 6)
    y = te.compute((5, 7), lambda i, j: m[i, j] + 1, name="Y")
    s = create_schedule(y)
    s[m].pad_dimension("j", 8)
    s[m].reorder("i", "k", "j")
    s[m].vectorize("j")
    require_same_bits(s)
    require_native(s)


def test_a_padded_copy_of_an_input() -> None:
    _, b, m = matmul(4, 7, 5)
    s = create_schedule(m)
    packed = s.cache_read(b, "global", [m])
    s[packed].pad_dimension(1, 8)
    assert "alloc B_global: int32[5, 8]" in str(s)
    require_same_bits(s)


def test_pad_dimension_refuses() -> None:
    a, b, c = chain()
    s = create_schedule(c)
    with refused("C is an output of the program and cannot be padded"):
        s[c].pad_dimension("i", 4)
    with refused("A is not a compute: its memory is the caller's"):
        s[a].pad_dimension(0, 4)
    with refused("the multiple must be an integer of at least 1, not 2.5"):
        s[b].pad_dimension("i", 2.5)
    s[b].pad_dimension("i", 4)
    with refused("B is padded already"):
        s[b].transform_layout(Layout.plain(2))
    s[b].split("i", factor=4)
    with refused("the loops of B are transformed already"):
        s[b].pad_dimension("j", 4)


def test_double_buffer() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    i_o, _ = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    s[b].double_buffer()
    s[b].vectorize("j")
    require_same_bits(s)
    require_native(s)
    assert "alloc B: float32[2, 8, 6]" in str(s)
    assert any(isinstance(x, If) for x in walk_stmt(s.func().body)) and order(s) == ["B", "B", "C"]
    s[c].split(i_o, factor=2)
    require_same_bits(s)


def test_double_buffer_of_a_reduction_with_its_init() -> None:
    _, _, m = matmul(8, 6, 5)
    y = te.compute((8, 6), lambda i, j: m[i, j] + m[i, 5 - j], name="Y")
    s = create_schedule(y)
    i_o, _ = s[y].split("i", factor=2)
    s[m].compute_at(s[y], i_o)
    s[m].decompose_reduction("k")
    s[m].double_buffer()
    require_same_bits(s)
    require_native(s)


def test_double_buffer_at_a_reduce_loop() -> None:
    x, w = te.placeholder((8, 7), "int32", name="X"), te.placeholder((3, 3), "int32", name="W")
    r, q = te.reduce_axis(3, "r"), te.reduce_axis(3, "q")
    p = te.compute((8, 7), lambda y, z: x[y, z] * 2, name="P")
    c = te.compute((6, 5), lambda y, z: te.sum(p[y + r, z + q] * w[r, q], axis=(r, q)), name="C")
    s = create_schedule(c)
    s[p].compute_at(s[c], r)
    s[p].double_buffer()
    require_same_bits(s)
    require_native(s)


def test_double_buffer_refuses() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    with refused("B has two copies in turn, one of which is filled while the other is read, so it must be computed at"):
        s[b].double_buffer()
    s[b].compute_at(s[c], "i")
    s[b].double_buffer()
    with refused("B has two copies already"):
        s[b].double_buffer()
    with pytest.raises(ScheduleError) as caught:
        s[c].parallel("i")
    assert "but i of C is parallel: there is no next iteration" in str(caught.value)
    assert "this breaks the earlier double_buffer()" in str(caught.value)
    with refused("B has two copies in turn"):
        s[b].compute_root()
    with refused("C is an output of the program: there is one of it"):
        s[c].double_buffer()


def test_partition() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((17,), lambda i: te.if_then_else(te.all(i >= 1, i < 16), a[i - 1], 0.0), name="B")

    def loops(wanted: bool | None) -> int:
        s = create_schedule(b)
        if wanted is not None:
            s[b].partition("i", wanted)
        require_same_bits(s)
        return sum(isinstance(x, For) for x in walk_stmt(lower(s.func(), Target.parse("llvm")).body))

    assert loops(False) == 1
    whole = lower(create_schedule(b).func(), Target.parse("llvm"))
    assert loops(None) == sum(isinstance(x, For) for x in walk_stmt(whole.body)) == loops(True)
    s = create_schedule(b)
    with refused("wanted is True or False, not 'no'"):
        s[b].partition("i", "no")
    s[b].vectorize("i")
    with refused("i is vectorized and is not split"):
        s[b].partition("i")


# ---------------------------------------------------------------------------------------------- blockize, tensorize


def test_blockize() -> None:
    for reduce_inside in (True, False):
        _, _, c = matmul(6, 10, 5)
        s = create_schedule(c)
        i_o, i_i = s[c].split("i", factor=4)
        if not reduce_inside:
            s[c].reorder(i_o, "k", i_i, "j")
        s[c].vectorize("j") if not reduce_inside else s[c].unroll("k")
        s[c].blockize("j" if reduce_inside else i_i)
        require_same_bits(s)
        require_native(s)
        block = next(x for x in walk_stmt(s.func().body) if isinstance(x, Block))
        assert (block.init is None) is reduce_inside
        with refused("i_i is in the block" if not reduce_inside else "j is in the block"):
            s[c].split("j" if reduce_inside else i_i, factor=2)
        with refused("are one block already"):
            s[c].blockize(i_o)
        s[c].split(i_o, factor=1)
        require_same_bits(s)


def test_blockize_refuses() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    s[c].parallel("j")
    with refused("j is parallel, so it must stand outside of blocks"):
        s[c].blockize("i")
    s = create_schedule(c)
    s[b].compute_at(s[c], "j")
    with refused("B is computed at loop j, inside the block"):
        s[c].blockize("j")
    s[b].compute_root()
    s[c].blockize("j")
    with refused("B cannot be computed inside the block of C that begins at loop j"):
        s[b].compute_at(s[c], "j")
    s[b].compute_at(s[c], "i")
    require_same_bits(s)


def dot_of_bytes() -> object:
    a, b = te.placeholder((4,), "uint8", name="a"), te.placeholder((16, 4), "int8", name="b")
    k = te.reduce_axis(4, "k")
    c = te.compute((16,), lambda i: te.sum(a[k].astype("int32") * b[i, k].astype("int32"), axis=k), name="c")

    def implement(a: Window, b: Window, c: Window) -> Stmt:
        def lane(i: te.Tensor) -> Stmt:
            words = [te.pack4(*[a[j] for j in range(4)]), te.pack4(*[b[i, j] for j in range(4)])]
            return c.store(i, value=te.dot4_i8(c[i], *words))

        return c.loop(0, lane)

    return tensor_intrinsic([a, b], c, implement, name="dot_16x4_u8i8")


def bytes_matmul(n: int, m: int, depth: int, last: int = 4) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, w = te.placeholder((n, depth), "uint8", name="A"), te.placeholder((depth // last, m, last), "int8", name="W")
    ko, ki = te.reduce_axis(depth // last, "ko"), te.reduce_axis(last, "ki")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, ko * last + ki].astype("int32") * w[ko, j, ki].astype("int32"), axis=(ko, ki)),
        name="C",
    )
    return a, w, c


def test_tensorize_with_the_dot_instruction() -> None:
    a, w, c = bytes_matmul(5, 32, 12)
    y = te.compute((5, 32), lambda i, j: c[i, j] + 1, name="Y")
    s = create_schedule(y)
    j_o, j_i = s[y].split("j", factor=16)
    s[c].set_scope("register")
    s[c].compute_at(s[y], j_o)
    s[c].reorder("i", "ko", "j", "ki")
    s[c].decompose_reduction("ko")
    s[c].tensorize("j", dot_of_bytes())
    s[y].vectorize(j_i)
    require_same_bits(s)
    require_native(s)
    assert "vpdpbusd.512" in build(s.func(), target="llvm -mcpu=znver4").source("llvm")
    assert "vpdpbusd" not in build(s.func(), target="llvm -mcpu=x86-64-v3").source("llvm")
    replayed = create_schedule(y)
    exec("\n".join(s.trace), {"s": replayed})
    assert str(replayed) == str(s)


def test_tensorize_with_axes_of_one() -> None:  # B26
    a, b = te.placeholder((1, 8), name="a"), te.placeholder((8, 1), name="b")
    k = te.reduce_axis(8, "k")
    c = te.compute((1, 1), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")

    def implement(a: Window, b: Window, c: Window) -> Stmt:
        return seq(*[c.store(0, 0, value=te.fma(a[0, k], b[k, 0], c[0, 0])) for k in range(8)])

    dot = tensor_intrinsic([a, b], c, implement, name="dot_1x8x1")
    x, f = te.placeholder((3, 5, 8), name="X"), te.placeholder((8, 4, 1, 1), name="F")
    ic, r, q = te.reduce_axis(8, "ic"), te.reduce_axis(1, "r"), te.reduce_axis(1, "q")
    conv = te.compute(
        (3, 5, 4), lambda y, z, o: te.sum(x[y + r, z + q, ic] * f[ic, o, r, q], axis=(r, q, ic)), name="conv"
    )
    s = create_schedule(conv)
    s[conv].tensorize("r", dot)
    require_same_bits(s)
    require_native(s)
    s = create_schedule(conv)
    s[conv].tensorize("ic", dot)
    require_same_bits(s)
    s = create_schedule(conv)
    o_o, o_i = s[conv].split("o", factor=1)
    s[conv].tensorize(o_i, dot)
    require_same_bits(s)


def test_tensorize_says_where_it_differs() -> None:
    dot = dot_of_bytes()
    _, _, c = bytes_matmul(5, 32, 12)
    s = create_schedule(c)
    with refused("C is not dot_16x4_u8i8 here: its spatial loops run over [32], those of the intrinsic over [16]"):
        s[c].reorder("i", "ko", "j", "ki")
        s[c].tensorize("j", dot)
    j_o, j_i = s[c].split("j", factor=16)
    s[c].reorder("i", "ko", j_o, "ki", j_i)
    s[c].tensorize("ki", dot)
    s.undo()
    with refused("its reduce loops run over [], those of the intrinsic over [4]"):
        s[c].tensorize(j_i, dot)
    with refused("there is no intrinsic 'dot_3'"):
        s[c].tensorize(j_i, "dot_3")
    _, _, odd = bytes_matmul(5, 20, 12)
    s = create_schedule(odd)
    _, j_i = s[odd].split("j", factor=16)
    s[odd].reorder("i", "ko", "j_o", j_i, "ki")
    with refused("a point is there only where"):
        s[odd].tensorize(j_i, dot)
    a, w = te.placeholder((5, 12), "uint8", name="A"), te.placeholder((3, 4, 32), "int8", name="W")
    ko, ki = te.reduce_axis(3, "ko"), te.reduce_axis(4, "ki")
    other = te.compute(
        (5, 32),
        lambda i, j: te.sum(a[i, ko * 4 + ki].astype("int32") * w[ko, ki, j].astype("int32"), axis=(ko, ki)),
        name="C",
    )
    s = create_schedule(other)
    _, j_i = s[other].split("j", factor=16)
    s[other].reorder("i", "ko", "j_o", j_i, "ki")
    with refused("which does not move like b[i, k] of the intrinsic"):
        s[other].tensorize(j_i, dot)
    minus = te.compute((5, 32), lambda i, j: te.max(a[i, ki].astype("int32"), axis=ki), name="C")
    s = create_schedule(minus)
    _, j_i = s[minus].split("j", factor=16)
    with refused("it reduces by max, the intrinsic by sum"):
        s[minus].tensorize(j_i, dot)


def test_a_wrong_implementation_is_found_when_declared() -> None:
    a = te.placeholder((4,), "int32", name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")
    with refused("tensor_intrinsic(inc): the implementation is not the compute: b[0] is"):
        tensor_intrinsic([a], b, lambda a, b: b.loop(0, lambda i: b.store(i, value=a[i] + 2)), "inc")
    with refused("tensor_intrinsic(inc): the implementation gives NoneType, not a statement"):
        tensor_intrinsic([a], b, lambda a, b: None, "inc")
    with refused("tensor_intrinsic(inc): b reads a, which is not among the inputs"):
        tensor_intrinsic([], b, lambda b: None, "inc")


# ------------------------------------------------------------------------------------------------ looking and checking


def test_explain_bounds() -> None:  # A14 (a)
    a = te.placeholder((15,), name="A")
    b = te.compute((15,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((5, 3), lambda i, j: b[i + 5 * j] * 2.0, name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], "i")
    assert s.explain_bounds() == (
        "B, at loop i of C:\n"
        "  i: i .. +11 of 0 .. +15\n"
        "    C reads B[i + 5 * j] on i .. +11\n"
        "  allocated float32[11], declared float32[15]\n"
        "C, at root:\n"
        "  i: 0 .. +5 of 0 .. +5\n"
        "  j: 0 .. +3 of 0 .. +3"
    )


def test_bounds_of_a_window() -> None:  # A14 (b)
    a = te.placeholder((12, 20), name="A")
    b = te.compute((12, 20), lambda i, j: a[i, j] + 1.0, name="B")
    k, r = te.reduce_axis(3, "k"), te.reduce_axis(20, "r")
    c = te.compute((10,), lambda i: te.sum(b[i + k, r], axis=(k, r)), name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], "i")
    assert "allocated float32[3, 20], declared float32[12, 20]" in s.explain_bounds()
    s[b].compute_root()
    assert "allocated float32[12, 20]" in s.explain_bounds()


def test_verified_after_each_primitive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTOR_VERIFY", "1")
    _, b, c = chain()
    s = create_schedule(c)
    s[b].compute_at(s[c], "i")

    def wrong(*args: object, **kwargs: object) -> str:
        raise VerificationError("C[0] is 1 when scheduled and 2 when not")

    monkeypatch.setattr("schedule.verify.verify", wrong)
    with pytest.raises(VerificationError, match=re.escape("after vectorize(j): C[0] is 1 when scheduled")):
        s[c].vectorize("j")


def test_runs_are_finite() -> None:
    _, b, c = chain()
    s = create_schedule(c)
    s[c].reverse_compute_at(s[b], "i")
    assert np.isfinite(run(s.func())[0]).all()


def test_the_condition_of_a_reduction_is_read_inside_the_tensors_only() -> None:
    """A padded axis and a factored loop with a guard enclose the condition, which reads memory too."""
    a = te.placeholder((6, 7), name="A")
    k = te.reduce_axis(7, "k")
    b = te.compute((6,), lambda i: te.sum(a[i, k], axis=k, where=a[i, k] > 0.0), name="B")
    c = te.compute((6,), lambda i: b[i] + 1.0, name="C")
    s = create_schedule(c)
    s[b].pad_dimension(0, 4)
    require_same_bits(s)
    s = create_schedule(c)
    _, inner = s[b].split(k, factor=4)
    s.rfactor(b, inner)
    require_same_bits(s)


def test_a_copy_of_what_one_point_reads() -> None:
    """B17, exo-lang/exo#614: only the diagonal is read, so a copy in the loop holds one element and not a window."""
    x = te.placeholder((10, 10, 10), name="x")
    b = te.compute((10,), lambda i: x[i, i, i] + x[i, 0, i], name="b")
    s = create_schedule(b)
    copy = s.cache_read(x, "local", [b])
    require_same_bits(s)
    s[copy].compute_at(s[b], "i")
    require_same_bits(s)
    s[copy].compute_inline()
    require_same_bits(s)


def test_a_window_that_is_copied_and_inlined() -> None:
    """B17, exo-lang/exo#593: the copy of a window at 16 io is written into its reader."""
    x = te.placeholder((70,), name="x")
    y = te.compute((64,), lambda i: x[i + 5] * 2.0, name="y")
    z = te.compute((64,), lambda i: y[i] - 1.0, name="z")
    s = create_schedule(z)
    outer, _ = s[z].split("i", factor=16)
    copy = s.cache_read(x, "local", [y])
    s[y].compute_at(s[z], outer)
    s[copy].compute_at(s[y], s[y].axis[0])
    require_same_bits(s)
    s[copy].compute_at(s[z], outer)
    s[y].compute_inline()
    require_same_bits(s)
    s[copy].compute_inline()
    require_same_bits(s)
