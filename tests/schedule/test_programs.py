"""Whole schedules: tails, attached stages, blur, matrix product and convolution with their epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import create_schedule
from tensorir import te
from tensorir.stmt import Allocate, Block, For
from tensorir.visit import walk_stmt
from tests.schedule.bits import require_same_bits, run


@pytest.mark.parametrize("inner", [10, 7, 3])
@pytest.mark.parametrize("outer", [32, 10, 3])
def test_nested_tails(outer: int, inner: int) -> None:
    """apache/tvm#2898: n elements split by two factors, one stage computed at the other's outer loop."""
    for n in (*range(1, 12), 31, 32, 33, 47, 48, 63, 64, 65, 69, 70):
        a = te.placeholder((n,), "float16", name="A")
        c = te.compute((n,), lambda i: a[i], name="C")  # noqa: B023
        d = te.compute((n,), lambda i: c[i], name="D")  # noqa: B023
        s = create_schedule(d)
        s[c].split("i", factor=inner)
        d_o, _ = s[d].split("i", factor=outer)
        s[c].compute_at(s[d], d_o)
        require_same_bits(s)


@pytest.mark.parametrize(("n", "factor"), [(17, 4), (60, 16), (1, 64), (63, 64), (65, 64)])
def test_constant_tails(n: int, factor: int) -> None:
    """apache/tvm#4243, #3733, #743: splits that do not divide, unrolled."""
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: te.if_then_else(te.all(i > 4, i < 20), a[i], 0.0), name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=factor)
    s[c].unroll(inner)
    require_same_bits(s)


def test_symbolic_tails() -> None:
    """apache/tvm#762: n split by 64 at n = 0, 1, 63, 64, 65 and 127."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=64)
    s[c].vectorize(inner)
    s[b].compute_at(s[c], outer)
    s[b].vectorize(s[b].axis[0])
    for size in (0, 1, 63, 64, 65, 127):
        require_same_bits(s, {n: size})


def test_symbolic_parts() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis(m, "k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    i_o, _ = s[c].split("i", nparts=2)
    s[c].parallel(i_o)
    s[c].split(k, factor=4)
    for sizes in ((0, 3), (1, 1), (5, 7), (3, 0), (4, 8)):
        if sizes[1] == 0:
            found = run(s.func(), dict(zip((n, m), sizes)))[0]
            assert not found.any() and found.shape == (3,)
        else:
            require_same_bits(s, dict(zip((n, m), sizes)))


def test_attached_regions_are_tight() -> None:
    """apache/tvm#1316, #2564: B[i + 5 j] over j, and rows i to i + 2."""
    a = te.placeholder((15,), name="A")
    b = te.compute((15,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((5, 3), lambda i, j: b[i + 5 * j] * 2.0, name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], "i")
    assert repr(s[b].loops[0].extent) == "11"
    require_same_bits(s)
    x = te.placeholder((40, 20), name="X")
    y = te.compute((40, 20), lambda i, j: x[i, j] * 3.0, name="Y")
    r, q = te.reduce_axis(3, "r"), te.reduce_axis(20, "q")
    z = te.compute((30,), lambda i: te.sum(y[i + r, q], axis=(r, q)), name="Z")
    s = create_schedule(z)
    z_o, _ = s[z].split("i", factor=10)
    s[y].compute_at(s[z], z_o)
    assert [repr(loop.extent) for loop in s[y].loops] == ["12", "20"]
    require_same_bits(s)


def test_padding_under_stacked_convolutions() -> None:
    """apache/tvm#3096: three convolutions with inlined padding do not grow."""

    def layer(data: te.Tensor, n: int, name: str) -> tuple[te.Tensor, te.Tensor]:
        padded = te.compute(
            (n + 2,),
            lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), data[i - 1], 0.0),
            name=f"{name}_pad",
        )
        r = te.reduce_axis(3, "r")
        return padded, te.compute((n,), lambda i: te.sum(padded[i + r], axis=r), name=name)

    n = 20
    x = te.placeholder((n,), name="X")
    pad1, conv1 = layer(x, n, "conv1")
    pad2, conv2 = layer(conv1, n, "conv2")
    pad3, conv3 = layer(conv2, n, "conv3")
    s = create_schedule(conv3)
    for pad in (pad1, pad2, pad3):
        s[pad].compute_inline()
    outer, inner = s[conv3].split("i", factor=8)
    s[conv2].compute_at(s[conv3], outer)
    s[conv1].compute_at(s[conv3], outer)
    assert [repr(s[t].loops[0].extent) for t in (conv1, conv2)] == ["12", "10"]
    require_same_bits(s)
    s[pad2].compute_at(s[conv3], outer)
    require_same_bits(s)


def blur(n: int = 18, m: int = 20) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n + 2, m + 2), name="A")
    bx = te.compute((n + 2, m), lambda y, x: (a[y, x] + a[y, x + 1] + a[y, x + 2]) / 3.0, name="blur_x")
    by = te.compute((n, m), lambda y, x: (bx[y, x] + bx[y + 1, x] + bx[y + 2, x]) / 3.0, name="blur_y")
    return a, bx, by


def test_blur() -> None:
    a, bx, by = blur()
    s = create_schedule(by)
    y_o, x_o, y_i, x_i = s[by].tile("y", "x", 8, 8)
    s[by].vectorize(x_i)
    s[by].parallel(y_o)
    s[bx].compute_at(s[by], x_o)
    s[bx].vectorize(s[bx].axis[1])
    assert [repr(loop.extent) for loop in s[bx].loops] == ["10", "8"]
    require_same_bits(s)
    s[bx].compute_at(s[by], y_o)
    assert [repr(loop.extent) for loop in s[bx].loops] == ["10", "20"]
    require_same_bits(s)
    s[bx].compute_at(s[by], y_i)
    require_same_bits(s)
    s[bx].compute_inline()
    require_same_bits(s)


def test_matmul_in_six_steps() -> None:
    n = 13
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    cl = s.cache_write(c, "register")
    require_same_bits(s)
    i_o, j_o, i_i, j_i = s[c].tile("i", "j", 4, 8)
    require_same_bits(s)
    s[cl].compute_at(s[c], j_o)
    require_same_bits(s)
    k_o, k_i = s[cl].split(k, factor=4)
    s[cl].reorder(k_o, k_i, *s[cl].axis)
    require_same_bits(s)
    s[cl].decompose_reduction(k_o)
    require_same_bits(s)
    s[cl].vectorize(s[cl].axis[1])
    s[cl].unroll(s[cl].axis[0])
    s[c].vectorize(j_i)
    s[c].parallel(s[c].fuse(i_o, j_o))
    require_same_bits(s)
    # the init is vectorized like the update, and nothing but the update stands in the k loop
    nests = [x for x in walk_stmt(s.func().body) if isinstance(x, Block)]
    assert [x.name for x in nests] == ["C_register_init", "C_register", "C"]


def test_convolution_with_its_epilogue_on_the_tile() -> None:
    ic, oc, h, w = 4, 8, 6, 9
    x = te.placeholder((ic, h + 2, w + 2), name="X")
    f = te.placeholder((ic, 3, 3, oc), name="F")
    bias = te.placeholder((oc,), name="bias")
    c, r, q = te.reduce_axis(ic, "c"), te.reduce_axis(3, "r"), te.reduce_axis(3, "q")
    conv = te.compute(
        (h, w, oc), lambda y, z, o: te.sum(x[c, y + r, z + q] * f[c, r, q, o], axis=(c, r, q)), name="conv"
    )
    biased = te.compute((h, w, oc), lambda y, z, o: conv[y, z, o] + bias[o], name="biased")
    relu = te.compute((h, w, oc), lambda y, z, o: te.maximum(biased[y, z, o], 0.0), name="relu")
    s = create_schedule(relu)
    s[biased].compute_inline()
    z_o, z_i = s[relu].split("z", factor=4)
    s[relu].vectorize("o")
    s[relu].unroll(z_i)
    s[relu].parallel("y")
    s[conv].set_scope("register")
    s[conv].compute_at(s[relu], z_o)
    s[conv].reorder("c", "r", "q", "y", "z", "o")
    s[conv].unroll("z")
    s[conv].vectorize("o")
    s[conv].decompose_reduction("c")
    require_same_bits(s)
    text = str(s)
    assert text.count("alloc") == 1 and "@register" in text
    order = [x.name for x in walk_stmt(s.func().body) if isinstance(x, Block)]
    assert order == ["conv_init", "conv", "relu"]
    alloc = next(x for x in walk_stmt(s.func().body) if isinstance(x, Allocate))
    host = next(x for x in walk_stmt(s.func().body) if isinstance(x, For) and x.body is alloc)
    assert host.var is z_o


def test_softmax_rows() -> None:
    n, m = 7, 11
    x = te.placeholder((n, m), name="X")
    k, q = te.reduce_axis(m, "k"), te.reduce_axis(m, "q")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    s = create_schedule(out)
    for t in (total, e, top):
        s[t].compute_at(s[out], "i")
    s[e].vectorize("j")
    s[out].parallel("i")
    require_same_bits(s)
    assert [len(s[t].loops) for t in (total, e, top)] == [2, 2, 2]


def test_argmax_of_two_outputs() -> None:
    x = te.placeholder((6, 9), name="X")
    k = te.reduce_axis(9, "k")
    index, value = te.compute((6,), lambda i: te.argmax(k, x[i, k], axis=k), name="arg")
    out = te.compute((6,), lambda i: te.cast(index[i], "float32") + value[i], name="out")
    s = create_schedule(out)
    i_o, i_i = s[out].split("i", factor=4)
    s[index].compute_at(s[out], i_o)
    s[index].split("k", factor=4)
    require_same_bits(s)


def test_gather_attaches_the_whole_table() -> None:
    table = te.placeholder((3, 4), name="T")
    rows = te.placeholder((8,), "int64", name="rows")
    doubled = te.compute((3, 4), lambda i, j: table[i, j] * 2.0, name="doubled")
    out = te.compute((8, 4), lambda i, j: doubled[rows[i], j], name="out")
    s = create_schedule(out)
    s[doubled].compute_at(s[out], "i")
    assert [repr(loop.extent) for loop in s[doubled].loops] == ["3", "4"]
    require_same_bits(s)


def test_a_reduce_axis_shared_by_two_stages() -> None:
    x = te.placeholder((6, 5), name="X")
    k = te.reduce_axis(5, "k")
    a = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="a")
    b = te.compute((6,), lambda i: te.sum(x[i, k] * a[i], axis=k), name="b")
    s = create_schedule(b)
    s[a].compute_at(s[b], k)
    k_o, _ = s[a].split(k, factor=2)
    require_same_bits(s)


def test_fused_loops_attach() -> None:
    a, bx, by = blur(6, 10)
    s = create_schedule(by)
    f = s[by].fuse("y", "x")
    f_o, f_i = s[by].split(f, factor=5)
    s[bx].compute_at(s[by], f_o)
    assert [repr(loop.extent) for loop in s[bx].loops] == ["3", "5"]
    require_same_bits(s)
    s.undo()
    s.undo()
    f_o, f_i = s[by].split(f, factor=4)
    s[bx].compute_at(s[by], f_o)
    require_same_bits(s)


def test_runs_match_numpy() -> None:
    a, bx, by = blur(4, 6)
    s = create_schedule(by)
    s[bx].compute_at(s[by], "y")
    found = run(s.func())[0]
    assert np.isfinite(found).all()
