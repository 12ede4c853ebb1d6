"""Each primitive: the loops it makes, the bits it keeps, and how it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import Schedule, ScheduleError, create_schedule
from tensorir import te
from tensorir.layout import Layout
from tensorir.stmt import Allocate, Block, For, Func
from tensorir.visit import walk_stmt
from tests.schedule.bits import require_same_bits


def shape_of(s: Schedule, tensor: te.Tensor) -> list[tuple[str, str]]:
    return [(loop.name, repr(loop.extent)) for loop in s[tensor].loops]


def elementwise(n: object = 20, m: object = 8) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    return a, b, c


def matmul(n: int = 6, m: int = 8, depth: int = 5, dtype: str = "float32") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((n, depth), dtype, name="A"), te.placeholder((depth, m), dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def test_split_and_names() -> None:
    _, _, c = elementwise()
    s = create_schedule(c)
    i, j = s[c].op.axis
    i_o, i_i = s[c].split(i, factor=8)
    assert shape_of(s, c) == [("i_o", "3"), ("i_i", "8"), ("j", "8")]
    s[c].split("j", nparts=3)
    assert shape_of(s, c) == [("i_o", "3"), ("i_i", "8"), ("j_o", "3"), ("j_i", "3")]
    require_same_bits(s)


def test_a_factor_beyond_the_extent_makes_one_whole_loop() -> None:
    _, _, c = elementwise()
    s = create_schedule(c)
    s[c].split("i", factor=32)
    assert shape_of(s, c)[:2] == [("i_o", "1"), ("i_i", "20")]
    require_same_bits(s)


def test_divisible_splits_have_no_guard() -> None:
    _, _, c = elementwise()
    s = create_schedule(c)
    s[c].split("i", factor=4)
    s[c].split("j", nparts=2)
    assert " where " not in str(s)
    s[c].split("i_i", factor=3)
    assert " where " in str(s)
    require_same_bits(s)


@pytest.mark.parametrize("factor", [0, -3])
def test_split_refuses_factors_that_are_not_positive(factor: int) -> None:
    """apache/tvm#9805, halide/Halide#2812: factors 0 and -3."""
    _, _, c = matmul()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match=rf"split\(k, factor={factor}\): the factor for k must be at least 1"):
        s[c].split("k", factor=factor)
    with pytest.raises(ScheduleError, match="the nparts for k must be at least 1"):
        s[c].split("k", nparts=factor)
    with pytest.raises(ScheduleError, match="not both"):
        s[c].split("k")
    with pytest.raises(ScheduleError, match="must be an integer, not 2.5"):
        s[c].split("k", 2.5)


def test_a_reduction_splits_with_a_guard() -> None:
    """halide/Halide#7827: factors that do not divide a reduction."""
    for factor in (1, 2, 3, 4, 5, 6):
        _, _, c = matmul(3, 4, 5)
        s = create_schedule(c)
        k_o, k_i = s[c].split("k", factor=factor)
        s[c].reorder(k_o, "i", "j", k_i)
        require_same_bits(s)


def test_fuse_and_its_refusals() -> None:
    a, _, c = matmul()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="j is a spatial loop and k a reduce loop"):
        s[c].fuse("j", "k")
    with pytest.raises(ScheduleError, match="does not stand directly inside"):
        s[c].fuse("j", "i")
    f = s[c].fuse(*s[c].op.axis)
    assert shape_of(s, c) == [("i_j", "48"), ("k", "5")]
    s[c].split(f, factor=10)
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="j is no loop any more: it was fused into i_j by fuse"):
        s[c].split("j", factor=2)


def test_reorder_of_reduce_loops_needs_algebra() -> None:
    a = te.placeholder((4, 3, 3), "int32", name="A")
    k, r = te.reduce_axis(3, "k"), te.reduce_axis(3, "r")
    minus = te.comm_reducer(lambda x, y: x - y, lambda t: te.const(0, t), "minus", commutative=False, associative=False)
    c = te.compute((4,), lambda i: minus(a[i, k, r], axis=(k, r)), name="C")
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="the reducer minus is not associative"):
        s[c].reorder(r, k)
    s[c].reorder(k, r, "i")
    require_same_bits(s)
    d = te.compute((4,), lambda i: te.sum(a[i, k, r], axis=(k, r)), name="D")
    s = create_schedule(d)
    s[d].reorder(r, "i", k)
    require_same_bits(s)
    assert not s.state.reassociated


def test_reorder_refuses_a_loop_named_twice() -> None:
    _, _, c = matmul()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="i is named twice"):
        s[c].reorder("i", "j", "i")


def test_annotations_and_their_refusals() -> None:
    n = te.var("n")
    _, _, c = elementwise(n, 8)
    s = create_schedule(c)
    with pytest.raises(ScheduleError) as caught:
        s[c].vectorize("i")
    text = str(caught.value)
    assert text.startswith("vectorize(i): the loop must have a constant extent, but it runs to n")
    assert "^^^" in text and text.endswith("help: split i by a constant first, then vectorize the inner loop")
    with pytest.raises(ScheduleError, match=r"unroll\(i\): the loop must have a constant extent"):
        s[c].unroll("i")
    s[c].parallel("i")
    s[c].vectorize("j")
    with pytest.raises(ScheduleError, match="i is parallel already"):
        s[c].split("i", factor=2)
    with pytest.raises(ScheduleError, match="j is vectorized already"):
        s[c].unroll("j")
    require_same_bits(s, {n: 5})
    kinds = [f.kind for f in walk_stmt(s.func().body) if isinstance(f, For)]
    assert kinds == ["serial", "serial", "parallel", "vectorized"]


@pytest.mark.parametrize("name", ["parallel", "vectorize"])
def test_reduce_loops_stay_serial(name: str) -> None:
    _, _, c = matmul()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="k is a reduce loop: its iterations update the same elements of C"):
        getattr(s[c], name)("k")


def test_parallel_loops_do_not_nest() -> None:
    _, b, c = elementwise()
    s = create_schedule(c)
    s[c].parallel("i")
    with pytest.raises(ScheduleError, match="parallel loops do not nest: j of C is inside the parallel loop i of C"):
        s[c].parallel("j")
    s[b].parallel("j")
    with pytest.raises(ScheduleError, match="parallel loops do not nest.*j of B.*\n.*") as caught:
        s[b].compute_at(s[c], "i")
    assert "this breaks the earlier parallel(j) at " in str(caught.value)
    require_same_bits(s)


def test_bind_keeps_the_tag() -> None:
    _, _, c = elementwise()
    s = create_schedule(c)
    s[c].bind("i", "blockIdx.x")
    assert [f.thread for f in walk_stmt(s.func().body) if isinstance(f, For)][2] == "blockIdx.x"
    with pytest.raises(ScheduleError, match="the loop runs over 8 values, but the thread axis threadIdx.x has 4"):
        s[c].bind("j", te.thread_axis((0, 4), "threadIdx.x"))
    s[c].bind("j", te.thread_axis("threadIdx.x"))
    s.undo()
    with pytest.raises(ScheduleError, match="there is no thread axis 'core'"):
        s[c].bind("j", "core")


def test_pragma() -> None:
    _, _, c = elementwise()
    s = create_schedule(c)
    s[c].pragma("i", "prefetch", 64)
    s[c].pragma("i", "prefetch", 128)
    assert s[c].loops[0].pragmas == (("prefetch", 128),)
    with pytest.raises(ScheduleError, match="must be an identifier"):
        s[c].pragma("i", "two words")


def test_compute_at_follows_the_loop() -> None:
    a = te.placeholder((40,), name="A")
    b = te.compute((40,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((36,), lambda i: b[i] + b[i + 4], name="C")
    s = create_schedule(c)
    i_o, i_i = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    assert shape_of(s, b) == [("i", "12")]
    require_same_bits(s)
    s[b].vectorize("i")
    s[b].compute_root()
    assert shape_of(s, b) == [("i", "40")]
    s[b].compute_at(s[c], i_i)
    assert shape_of(s, b) == [("i", "5")]
    require_same_bits(s)


def test_history_is_replayed_whatever_the_order() -> None:
    def program(attach_first: bool) -> str:
        a, b, c = elementwise(40, 8)
        s = create_schedule(c)
        if attach_first:
            s[b].compute_at(s[c], "i")
            s[b].split("j", factor=4)
        else:
            s[b].split("j", factor=4)
            s[b].compute_at(s[c], "i")
        require_same_bits(s)
        return str(s)

    assert program(True) == program(False)


def test_a_replay_that_fails_names_the_earlier_call() -> None:
    n = te.var("n")
    a, b, c = elementwise(8, n)
    s = create_schedule(c)
    s[b].compute_at(s[c], "j")
    s[b].unroll("j")
    with pytest.raises(ScheduleError) as caught:
        s[b].compute_root()
    assert "compute_root(): the loop must have a constant extent" in str(caught.value)
    assert "this breaks the earlier unroll(j) at " in str(caught.value)
    assert "test_primitives.py:" in str(caught.value)
    require_same_bits(s, {n: 5})


def test_compute_at_needs_all_readers_inside() -> None:
    """halide/Halide#679, #86: a reader outside the loop."""
    a = te.placeholder((8, 8), name="A")
    p = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="p")
    q = te.compute((8, 8), lambda i, j: p[i, j] * 2.0, name="q")
    r = te.compute((8, 8), lambda i, j: p[i, j] + q[i, j], name="r")
    s = create_schedule(r)
    with pytest.raises(ScheduleError) as caught:
        s[p].compute_at(s[q], "i")
    text = str(caught.value)
    assert "p would be computed at loop i of q, but r reads it outside that loop" in text
    assert "p is read by q" in text and "p is read by r" in text and "the only legal place is root" in text
    s[q].compute_at(s[r], "j")
    with pytest.raises(ScheduleError, match="legal places are loop i of r, loop j of r and root"):
        s[p].compute_at(s[q], "i")
    s[p].compute_at(s[r], "i")
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="but q reads it outside that loop") as caught:
        s[q].compute_root()
    assert "this breaks the earlier compute_at(r, i)" in str(caught.value)


def test_compute_at_a_stage_that_does_not_read_it() -> None:
    a, b, c = elementwise()
    d = te.compute((20, 8), lambda i, j: a[i, j] - 1.0, name="D")
    s = create_schedule([c, d])
    with pytest.raises(ScheduleError, match="B would be computed at loop i of D, but C reads it outside that loop"):
        s[b].compute_at(s[d], "i")
    with pytest.raises(ScheduleError, match="C is an output of the program"):
        s[c].compute_at(s[d], "i")
    with pytest.raises(ScheduleError, match="A is an input of the program"):
        s[a].compute_at(s[d], "i")
    with pytest.raises(ScheduleError, match="B cannot be computed at its own loop"):
        s[b].compute_at(s[b], "i")


def test_nothing_is_computed_inside_a_vectorized_loop() -> None:
    """apache/tvm#15877: compute_at below a vectorized loop."""
    a, b, c = elementwise(48, 8)
    s = create_schedule(c)
    _, inner = s[c].split("j", factor=4)
    s[c].vectorize(inner)
    with pytest.raises(ScheduleError, match="B cannot be computed at or inside loop j_i of C: the loop is vectorized"):
        s[b].compute_at(s[c], inner)
    s.undo()
    s[b].compute_at(s[c], inner)
    with pytest.raises(ScheduleError, match="B cannot be computed at or inside loop j_i of C"):
        s[c].vectorize(inner)
    require_same_bits(s)


def test_inline_keeps_bits_and_refuses() -> None:
    """exo-lang/exo#612: an output is never inlined."""
    a = te.placeholder((6, 5), name="A")
    w = te.placeholder((6, 5), name="W")
    product = te.compute((6, 5), lambda i, j: a[i, j] * w[i, j], name="product")
    k = te.reduce_axis(5, "k")
    c = te.compute((6,), lambda i: te.sum(product[i, k], axis=k), name="C")
    d = te.compute((6,), lambda i: c[i] + 1.0, name="D")
    s = create_schedule(d)
    s[product].compute_inline()
    assert "fma" not in str(s)
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="C is a reduction: its value takes a loop"):
        s[c].compute_inline()
    with pytest.raises(ScheduleError, match="D is an output of the program: it must be stored"):  # B17
        s[d].compute_inline()
    with pytest.raises(ScheduleError, match="product is inlined and has no loops"):
        s[product].split("i", factor=2)
    s[product].compute_root()
    s[product].split("i", factor=4)
    require_same_bits(s)


def test_inline_refuses_a_host() -> None:
    a, b, c = elementwise()
    d = te.compute((20, 8), lambda i, j: c[i, j] + 1.0, name="D")
    s = create_schedule(d)
    s[b].compute_at(s[c], "i")
    with pytest.raises(ScheduleError, match="B is computed at a loop of C"):
        s[c].compute_inline()
    s[b].compute_root()
    s[c].compute_inline()
    s[b].compute_at(s[d], "i")
    require_same_bits(s)


def test_a_low_precision_value_is_rounded_when_inlined() -> None:
    """modular/modular#6159: a float16 product, inlined."""
    a = te.placeholder((33,), "float16", name="A")
    b = te.compute((33,), lambda i: a[i] * a[i], name="B")
    c = te.compute((33,), lambda i: b[i].astype("float32") + 1.0, name="C")
    s = create_schedule(c)
    s[b].compute_inline()
    require_same_bits(s)


def test_cache_write() -> None:
    a, b, c = matmul()
    s = create_schedule(c)
    cl = s.cache_write(c, "register")
    assert [x.name for x in s[cl].reduce_axis] == ["k"] and not s[c].reduce_axis
    i_o, j_o, i_i, j_i = s[c].tile(*s[c].op.axis, 4, 3)
    s[cl].compute_at(s[c], j_o)
    k = c.op.reduce_axis[0]
    s[cl].reorder(k, *s[cl].axis)
    s[cl].decompose_reduction(k)
    require_same_bits(s)
    scopes = [x.buffer.scope for x in walk_stmt(s.func().body) if isinstance(x, Allocate)]
    assert scopes == ["register"]


def test_cache_write_comes_first() -> None:
    a, b, c = matmul()
    s = create_schedule(c)
    s[c].split("i", factor=2)
    with pytest.raises(ScheduleError, match="cache_write must come first on C") as caught:
        s.cache_write(c, "local")
    assert "this breaks the earlier split(i, factor=2)" in str(caught.value)
    with pytest.raises(ScheduleError, match="there is no memory scope 'L1'"):
        create_schedule(matmul()[2])["C"].cache_write("L1")


def test_cache_write_of_several_outputs() -> None:
    """apache/tvm#2912: cache_write of two outputs of one compute."""
    a, b = te.placeholder((9,), name="A"), te.placeholder((9,), name="B")
    c = te.compute((9,), lambda i: a[i] + b[i], name="C")
    f, e = te.compute((9,), lambda i: (c[i] * b[i], c[i] + b[i]), name="FE")
    s = create_schedule([f, e])
    s.cache_read(a, "local", [c])
    s.cache_read(b, "local", [c])
    s.cache_write(c, "local")
    cached = s.cache_write([f, e], "local")
    assert len(cached) == 2
    s[c].compute_inline()
    require_same_bits(s)


def test_cache_read() -> None:
    a, b, c = matmul()
    s = create_schedule(c)
    al = s.cache_read(a, "local", [c])
    s[c].reorder("i", "k", "j")
    s[al].compute_at(s[c], "k")
    assert [repr(x.extent) for x in s[al].loops] == ["1", "1"]
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="nothing reads C"):
        s.cache_read(c, "local")
    with pytest.raises(ScheduleError, match="C does not read A"):
        s.cache_read(a, "local", [c])


def test_set_scope() -> None:
    a, b, c = elementwise()
    s = create_schedule(c)
    s[b].set_scope("local")
    assert "@local" in str(s)
    with pytest.raises(ScheduleError, match="C is an output of the program: the caller's memory is global"):
        s[c].set_scope("register")
    with pytest.raises(ScheduleError, match="use s.cache_read"):
        s[a].set_scope("local")
    require_same_bits(s)


def test_decompose_reduction() -> None:
    a, b, c = matmul(6, 8)
    s = create_schedule(c)
    s[c].split("i", factor=4)
    with pytest.raises(ScheduleError, match="C is not a reduction|has no loop named x"):
        s[c].decompose_reduction("x")
    s[c].reorder("i_o", "k", "i_i", "j")
    with pytest.raises(ScheduleError, match="the reduce loop k encloses j"):
        s[c].decompose_reduction("j")
    s[c].vectorize("j")
    s[c].decompose_reduction("k")
    blocks = [x for x in walk_stmt(s.func().body) if isinstance(x, Block)]
    assert [x.name for x in blocks] == ["C_init", "C"] and all(x.init is None for x in blocks)
    kinds = [x.kind for x in walk_stmt(s.func().body) if isinstance(x, For)]
    assert kinds == ["serial", "serial", "vectorized", "serial", "serial", "vectorized"]
    require_same_bits(s)
    k_o, k_i = s[c].split("k", factor=2)
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="must be stored outside every reduce loop, but k_i encloses k_o") as caught:
        s[c].reorder(k_i, k_o)
    assert "this breaks the earlier decompose_reduction(k)" in str(caught.value)


def test_loops_of_other_stages_are_named_so() -> None:
    a, b, c = elementwise()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match=r"i is a loop of stage C, not of B"):
        s[b].split(c.op.axis[0], factor=2)
    with pytest.raises(ScheduleError, match="B has no loop named z"):
        s[b].split("z", factor=2)
    i_o, i_i = s[b].split("i", factor=2)
    with pytest.raises(ScheduleError, match="i is no loop any more: it was split into i_o and i_i by split"):
        s[b].split(b.op.axis[0], factor=2)


def test_wrong_arguments_and_names() -> None:
    a, b, c = elementwise()
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="its arguments are"):
        s[b].split()
    with pytest.raises(AttributeError, match="there is no primitive rotate; the primitives are async_copy, bind"):
        s[b].rotate("i")
    with pytest.raises(ScheduleError, match="Z is no stage of this schedule"):
        s["Z"]
    with pytest.raises(ScheduleError, match="B is computed on the way and cannot be an argument"):
        s.func([a, b, c])
    with pytest.raises(ScheduleError, match=r"outputs come after all inputs(?s:.*)pass them as \[A, C\]"):
        s.func([c, a])
    with pytest.raises(ScheduleError, match="A is missing among the arguments"):
        s.func([c])
    with pytest.raises(ScheduleError, match="A is an input; there is nothing to compute"):
        create_schedule(a)
    with pytest.raises(ScheduleError, match="nothing to take back"):
        s.undo()


def test_an_extern_is_one_opaque_stage() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    e = te.extern([((4,), "float32")], [b], "numpy:sort", name="E")
    d = te.compute((4,), lambda i: e[i] * 2.0, name="D")
    s = create_schedule(d)
    s[d].vectorize("i")
    with pytest.raises(ScheduleError, match="E is an extern: its work is opaque and has no loops"):
        s[e].split("i", factor=2)
    with pytest.raises(ScheduleError, match="E is an extern, which works on whole tensors"):
        s[e].compute_at(s[d], "i")
    with pytest.raises(ScheduleError, match="the extern E reads B as a whole tensor"):
        s[b].compute_inline()
    with pytest.raises(ScheduleError, match="the extern E works on B as a plain tensor"):
        s[b].transform_layout(Layout.plain(1))
    with pytest.raises(ScheduleError, match="B would be computed at loop i of D, but E reads it outside that loop"):
        s[b].compute_at(s[d], "i")
    names = [x.name for x in walk_stmt(s.func().body) if isinstance(x, Block)]
    assert names == ["B", "E", "D"]


def test_forwarding_of_attach_points() -> None:
    a, b, c = elementwise(40, 8)
    s = create_schedule(c)
    s[b].compute_at(s[c], "i")
    i_o, i_i = s[c].split("i", factor=8)
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="B is computed between i_i and j"):
        s[c].fuse(i_i, "j")
    s[c].fuse(i_o, i_i)
    require_same_bits(s)
    assert [loop.name for loop in s[c].loops] == ["i_o_i_i", "j"]


def test_undo_and_trace() -> None:
    def make() -> Schedule:
        return create_schedule(matmul(7, 9)[2])

    s = make()
    c = s.outputs[0]
    before = str(s)
    cl = s.cache_write(c, "local")
    i_o, j_o, i_i, j_i = s[c].tile("i", "j", 4, 4)
    s[cl].compute_at(s[c], j_o)
    s[cl].reorder(c.op.reduce_axis[0], *s[cl].axis)
    s[cl].unroll(s[cl].axis[0])
    s[cl].decompose_reduction("k")
    s[c].vectorize(j_i)
    s[c].parallel(s[c].fuse(i_o))
    require_same_bits(s)
    replayed = make()
    exec("\n".join(s.trace), {"s": replayed})
    assert str(replayed) == str(s) and replayed.trace == s.trace
    while s.trace:
        s.undo()
    assert str(s) == before


def test_a_refused_call_changes_nothing() -> None:
    a, b, c = elementwise()
    s = create_schedule(c)
    before, trace = str(s), s.trace
    for attempt in (
        lambda: s[c].split("i", factor=0),
        lambda: s[c].compute_inline(),
        lambda: s[b].compute_at(s[b], "i"),
    ):
        with pytest.raises(ScheduleError):
            attempt()
    assert str(s) == before and s.trace == trace


def test_schedules_of_operations() -> None:
    a, b, c = elementwise()
    s = create_schedule(c.op)
    s[c].split(c.op.axis[0], factor=4)
    func = s.func([a, c])
    assert len(func.params) == 2 and func.outputs == 1
    require_same_bits(s)


def test_zero_dimensional_and_empty() -> None:
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a() * 2.0, name="B")
    s = create_schedule(b)
    require_same_bits(s)
    x = te.placeholder((3, 0), name="X")
    k = te.reduce_axis(0, "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = create_schedule(y)
    s[y].split("i", factor=2)
    from tests.schedule.bits import run

    assert run(s.func())[0].tolist() == [0.0, 0.0, 0.0]


def test_transform_layout() -> None:
    a = te.placeholder((20, 6), name="A")
    b = te.compute((20, 6), lambda c, h: a[c, h] + 1.0, name="B")
    d = te.compute((20, 6), lambda c, h: b[c, h] * b[19 - c, h], name="D")
    s = create_schedule(d)
    layout = Layout.parse("CH8c", logical="CH")
    c_o, h, c_i = s[b].transform_layout(layout)
    assert shape_of(s, b) == [("c_o", "3"), ("h", "6"), ("c_i", "8")]
    assert "alloc B: float32[3, 6, 8]" in str(s)
    require_same_bits(s)
    s[a].transform_layout(layout)
    s[d].transform_layout(layout)
    assert "A: float32[3, 6, 8]" in str(s) and "D: float32[3, 6, 8]" in str(s)
    require_same_bits(s)
    s[b].compute_at(s[d], s[d].loops[0])
    s[d].vectorize(s[d].loops[2])
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="D has the layout AB8a|D has the layout"):
        s[d].transform_layout(layout)


def test_transform_layout_refusals() -> None:
    _, _, c = matmul(6, 9)
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="is of 3 dimensions, but C has 2"):
        s[c].transform_layout(Layout.plain(3))
    with pytest.raises(ScheduleError, match="'NCHW16c' is no layout"):
        s[c].transform_layout("NCHW16c")
    with pytest.raises(ScheduleError, match="C is a reduction whose layout .* has padding lanes"):
        s[c].transform_layout(Layout.parse("MN8n", logical="MN"))
    s[c].transform_layout(Layout.parse("NM3m", logical="MN"))
    require_same_bits(s)
    s.undo()
    s[c].split("i", factor=3)
    with pytest.raises(ScheduleError, match="the loops of C are transformed already"):
        s[c].transform_layout(Layout.plain(2))


def test_verify() -> None:
    _, _, c = matmul()
    s = create_schedule(c)
    s[c].split("i", factor=4)
    assert s.verify() == "verified: 240 iterations of the unscheduled program give the same result"
    n = te.var("n")
    _, _, big = elementwise(n, 8)
    s = create_schedule(big)
    s[big].split("i", factor=4)
    assert "verified" in s.verify()
    with pytest.raises(ScheduleError, match="too many for the interpreter"):
        s.verify(dims={n: 1_000_000})


def test_verify_at_sampled_points() -> None:
    a, b = te.placeholder((200, 120), name="A"), te.placeholder((120, 200), name="B")
    k = te.reduce_axis(120, "k")
    c = te.compute((200, 200), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((200, 200), lambda i, j: te.maximum(c[i, j], c[j, i]), name="D")
    s = create_schedule(d)

    def right(func: Func, arrays: list[np.ndarray], dims: object) -> None:
        x, y, out = arrays
        total = np.zeros((200, 200), np.float32)
        for step in range(120):
            total = (x[:, step, None].astype(np.float64) * y[step] + total).astype(np.float32)
        out[...] = np.maximum(total, total.T)

    def wrong(func: Func, arrays: list[np.ndarray], dims: object) -> None:
        arrays[-1][...] = 0.5

    assert "8 sampled points" in s.verify(right)
    with pytest.raises(ScheduleError, match=r"verify\(\): D\[\d+, \d+\] is 0.5 when scheduled"):
        s.verify(wrong)


def test_prefetch() -> None:
    a, b, c = matmul(6, 8)
    s = create_schedule(c)
    s[c].reorder("i", "k", "j")
    s[c].prefetch(b, "k", 64)
    require_same_bits(s)
    assert "prefetch_B" in str(s)
    k_o, k_i = s[c].split("k", factor=2)
    s[c].vectorize("j")
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="the distance for i must be at least 1"):
        s[c].prefetch(b, "i", 0)
    a, b, c = elementwise()
    t = create_schedule(c)
    t[c].prefetch(b, "i", 8)
    with pytest.raises(ScheduleError, match=r"compute_at\(C, i\): B is prefetched and so must be in global memory"):
        t[b].compute_at(t[c], "i")
    with pytest.raises(ScheduleError, match=r"this breaks the earlier prefetch\(B, i, 8\)"):
        t[b].set_scope("local")
    c = s.outputs[0]
    with pytest.raises(ScheduleError, match="C does not read C"):
        s[c].prefetch(c, "i", 4)


def test_prefetch_with_a_distance_that_speaks_of_loops() -> None:
    a, b, c = matmul(6, 8)
    s = create_schedule(c)
    i, j = c.op.axis
    [k] = c.op.reduce_axis
    s[c].reorder(i, k, j)
    s[c].vectorize(j)
    s[c].prefetch(b, k, 64 + (i.var * 8 + k.var) * 16)
    assert "v_j + (64 + (i_1 * 8 + k_1) * 16)" in str(s)
    require_same_bits(s)
    with pytest.raises(ScheduleError, match="the distance must be an integer, not float32"):
        s[c].prefetch(b, k, te.const(1.0) + 1.0)
    with pytest.raises(ScheduleError, match="the distance speaks of j, which is no loop around B's prefetch"):
        s[c].prefetch(b, k, 64 + j.var)
    with pytest.raises(ScheduleError, match="the distance speaks of i, which is no loop around B's prefetch"):
        s[c].split(i, factor=2)
