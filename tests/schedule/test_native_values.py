"""Schedules that other compilers computed wrongly, against numpy: interpreted before and after lowering, and as machine
code. Each docstring names the public report and the input."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from schedule import Schedule, create_schedule
from targets.build import build, resolve
from tensorir import te
from tensorir.expr import Const
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import lower
from tensorir.stmt import Allocate
from tensorir.visit import walk_stmt

TARGET = resolve("llvm")
BASELINE = resolve("llvm -mcpu=x86-64") if TARGET.arch == "x86_64" else TARGET


def check(s: Schedule, arrays: dict[str, Any], *wanted: np.ndarray, **dims: int) -> None:
    """The schedule's outputs have the bits of `wanted` in every form of the program; outputs are poisoned before."""
    func = s.func()
    inputs = [np.asarray(arrays[t.name]) for t in s.inputs]
    sizes = {v: dims[v.name] for v in func.dims}

    def outputs() -> list[np.ndarray]:
        made = [np.empty(w.shape, w.dtype) for w in wanted]
        for array in made:
            array.reshape(-1).view(np.uint8)[:] = 0x5A
        return made

    def same(found: list[np.ndarray], form: str) -> None:
        for f, w in zip(found, wanted, strict=True):
            assert f.tobytes() == w.tobytes(), f"{form}:\n{f}\n{w}\n{s}"

    found = outputs()
    interpret(func, [*inputs, *found], sizes, mode="checked")
    same(found, "interpreted")
    for target in (TARGET, BASELINE):
        found = outputs()
        interpret(lower(func, target, check=True), [a.reshape(-1) for a in (*inputs, *found)], sizes, mode="checked")
        same(found, f"lowered for {target}")
    found = outputs()
    build(func, target=TARGET, threads=1)(*inputs, *found, **dims)
    same(found, "machine code")


def test_a_remainder_whose_lanes_wrap() -> None:
    """apache/tvm#8616: table[(50 * t + 8 * o + s) mod 20], s vectorized over 8 lanes, o in 0..3."""
    table = te.placeholder((20,), "int32", name="table")
    c = te.compute((6, 4, 8), lambda t, o, s: table[te.floormod(50 * t + 8 * o + s, 20)], name="C")
    s = create_schedule(c)
    s[c].vectorize("s")
    values = np.arange(100, 120, dtype=np.int32)
    t, o, lane = np.indices((6, 4, 8))
    check(s, {"table": values}, values[(50 * t + 8 * o + lane) % 20])


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_unsigned_subtraction_wraps_wherever_zero_is_computed(dtype: str) -> None:
    """apache/tvm#12383: out[i, j] = Z[i] - X[i] with Z = 0, at root, in the inner loop and inlined."""
    x = te.placeholder((8,), dtype, name="X")
    z = te.compute((8,), lambda i: te.const(0, dtype), name="Z")
    out = te.compute((8, 8), lambda i, j: z[i] - x[i], name="out")
    value = np.array([0, 3, 2, 0, 4, 0, 2, 0], dtype)
    wanted = np.repeat((np.zeros(8, dtype) - value)[:, None], 8, 1)
    assert int(wanted[1, 0]) == (1 << 8 * value.itemsize) - 3
    for place in ("root", "i", "j", "inline"):
        s = create_schedule(out)
        if place == "inline":
            s[z].compute_inline()
        elif place != "root":
            s[z].compute_at(s[out], place)
        check(s, {"X": value}, wanted)


def test_a_product_of_bytes_wraps_inlined_or_not() -> None:
    """apache/tvm#12378: K * K * X with K = 127 of int8 and X of int64; K inlined (so folded) or stored."""
    x = te.placeholder((2, 2), "int64", name="X")
    k = te.compute((2, 2), lambda i, j: te.const(127, "int8"), name="K")
    out = te.compute((2, 2), lambda i, j: (k[i, j] * k[i, j]).astype("int64") * x[i, j], name="out")
    value = np.array([[1, -2], [3, 1 << 40]], np.int64)
    for inline in (False, True):
        s = create_schedule(out)
        if inline:
            s[k].compute_inline()
        check(s, {"X": value}, value)


def test_the_size_of_a_large_stage_does_not_wrap() -> None:
    """apache/tvm#14347, #2580: a stage of 16384 x 16384 x 4 float32, 2^32 bytes: its size is exact."""
    a = te.placeholder((4,), name="A")
    b = te.compute((16384, 16384, 4), lambda i, j, k: a[k] + 1.0, name="B")
    c = te.compute((4,), lambda k: b[16383, 16383, k] + b[0, 0, k], name="C")
    func = lower(create_schedule(c).func(), TARGET, check=True)
    [alloc] = [x for x in walk_stmt(func.body) if isinstance(x, Allocate)]
    [size] = alloc.buffer.shape
    assert isinstance(size, Const) and size.value == 1 << 30 and size.value * alloc.buffer.dtype.nbytes == 1 << 32


@pytest.mark.parametrize(("n", "inner", "outer"), [(48, 10, 32), (1, 10, 7), (70, 7, 32), (33, 3, 10)])
def test_nested_splits_with_tails(n: int, inner: int, outer: int) -> None:
    """apache/tvm#2898: C = A and D = C over n float16, C split by `inner`, D by `outer`, C computed at D's outer."""
    a = te.placeholder((n,), "float16", name="A")
    c = te.compute((n,), lambda i: a[i], name="C")
    d = te.compute((n,), lambda i: c[i], name="D")
    s = create_schedule(d)
    s[c].split("i", factor=inner)
    d_o, _ = s[d].split("i", factor=outer)
    s[c].compute_at(s[d], d_o)
    value = np.arange(n, dtype=np.float16)
    check(s, {"A": value}, value)


@pytest.mark.parametrize(("n", "factor"), [(17, 4), (60, 16), (16, 16)])
def test_tails_of_unrolled_loops(n: int, factor: int) -> None:
    """apache/tvm#4243, #3733, #743: a split that does not divide, unrolled, with i > 4 and i < 20 in the body."""
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: te.if_then_else(te.all(i > 4, i < 20), a[i], 0.0), name="C")
    s = create_schedule(c)
    _, inner = s[c].split("i", factor=factor)
    s[c].unroll(inner)
    value, i = np.arange(1, n + 1, dtype=np.float32), np.arange(n)
    check(s, {"A": value}, np.where((i > 4) & (i < 20), value, np.float32(0)))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127])
@pytest.mark.parametrize("kind", ["vectorize", "unroll"])
def test_tails_of_symbolic_loops(size: int, kind: str) -> None:
    """apache/tvm#762: n split by 64, the inner loop vectorized or unrolled, at n = 0, 1, 63, 64, 65 and 127."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = create_schedule(c)
    _, inner = s[c].split("i", factor=64)
    getattr(s[c], kind)(inner)
    value = np.arange(size, dtype=np.float32)
    check(s, {"A": value}, value + 1, n=size)


@pytest.mark.parametrize("lanes", [4, 8])
def test_a_bool_buffer_between_vectorized_stages(lanes: int) -> None:
    """apache/tvm#1808: out = A > B of bool, stored in vectors, and read back in vectors as a mask."""
    n = 19
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    mask = te.compute((n,), lambda i: a[i] > b[i], name="mask")
    out = te.compute((n,), lambda i: te.select(mask[i], a[i], b[i]), name="out")
    s = create_schedule([mask, out])
    for stage in (mask, out):
        _, inner = s[stage].split("i", factor=lanes)
        s[stage].vectorize(inner)
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    check(s, {"A": x, "B": y}, x > y, np.maximum(x, y))


@pytest.mark.parametrize("name", ["sqrt", "cos"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_round_after_every_operation_however_they_are_computed(name: str, dtype: str) -> None:
    """apache/tvm#12380: X[d, c, a] * f(X[d, d, b]) of float16, f stored, inlined, and with all loops fused."""
    kind = np.dtype(np.float16) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    x = te.placeholder((3, 3, 3), dtype, name="X")
    f = te.compute((3, 3), lambda d, b: getattr(te, name)(x[d, d, b]), name="F")
    out = te.compute((3, 3, 3, 3), lambda a, b, c, d: x[d, c, a] * f[d, b], name="out")
    value = np.abs(np.random.default_rng(4).standard_normal((3, 3, 3)) * 10).astype(kind)
    a, b, c, d = np.indices((3, 3, 3, 3))
    function = getattr(np, name)(value.astype(np.float64)).astype(np.float32).astype(kind)
    wanted = (value[d, c, a].astype(np.float32) * function[d, d, b].astype(np.float32)).astype(kind)
    for inline in (False, True):
        for fuse in (False, True):
            s = create_schedule(out)
            if inline:
                s[f].compute_inline()
            if fuse:
                s[out].fuse("a", "b", "c", "d")
            check(s, {"X": value}, wanted)


def test_a_product_and_a_sum_of_bfloat16_inlined_or_not() -> None:
    """modular/modular#6159: x * y + z of bfloat16, the product inlined or stored, scalar and in vectors."""
    n = 21
    x, y, z = (te.placeholder((n,), "bfloat16", name=name) for name in "xyz")
    product = te.compute((n,), lambda i: x[i] * y[i], name="product")
    out = te.compute((n,), lambda i: product[i] + z[i], name="out")
    values = list(np.random.default_rng(7).standard_normal((3, n)).astype(ml_dtypes.bfloat16))
    for inline in (False, True):
        for vector in (False, True):
            s = create_schedule(out)
            if inline:
                s[product].compute_inline()
            if vector:
                _, inner = s[out].split("i", factor=8)
                s[out].vectorize(inner)
            check(s, dict(zip("xyz", values, strict=True)), values[0] * values[1] + values[2])


def test_bfloat16_is_widened_by_value_in_lets_and_products() -> None:
    """tile-ai/tvm#70, apache/tvm#18556: 1/1024 as bfloat16 doubled in float32; a product of inner size 80."""
    a = te.placeholder((8,), "bfloat16", name="A")
    wide = te.compute((8,), lambda i: a[i].astype("float32"), name="wide")
    c = te.compute((8,), lambda i: wide[i] * 2.0, name="C")
    for inline in (False, True):
        s = create_schedule([c] if inline else [wide, c])
        if inline:
            s[wide].compute_inline()
        s[c].vectorize("i")
        value = np.full(8, 1 / 1024, ml_dtypes.bfloat16)
        doubled = np.full(8, 0.001953125, np.float32)
        check(s, {"A": value}, *([doubled] if inline else [doubled / 2, doubled]))
    p, q = te.placeholder((3, 80), "bfloat16", name="P"), te.placeholder((80, 8), "bfloat16", name="Q")
    k = te.reduce_axis(80, "k")
    m = te.compute((3, 8), lambda i, j: te.sum(p[i, k].astype("float32") * q[k, j].astype("float32"), axis=k), name="M")
    s = create_schedule(m)
    s[m].reorder("i", "k", "j")
    s[m].vectorize("j")
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-8, 9, shape).astype(ml_dtypes.bfloat16) for shape in ((3, 80), (80, 8)))
    product = x.astype(np.float32) @ y.astype(np.float32)  # of whole numbers: every order gives these bits
    check(s, {"P": x, "Q": y}, product)


def test_a_0d_tensor_is_used_as_a_scalar() -> None:
    """apache/tvm#3240: the sum over k of A[k] * scale[()], scale a tensor without dimensions."""
    a, scale = te.placeholder((5,), name="A"), te.placeholder((), name="scale")
    k = te.reduce_axis(5, "k")
    out = te.compute((), lambda: te.sum(a[k] * scale(), axis=k), name="out")
    values = {"A": np.arange(5, dtype=np.float32), "scale": np.array(3.0, np.float32)}
    check(create_schedule(out), values, np.array(30.0, np.float32))


@pytest.mark.parametrize("axis", ["k", "i"])
def test_a_split_that_rounds_up_is_guarded(axis: str) -> None:
    """halide/Halide#7827, #2812: a reduction over 7 split by 4, and by a factor beyond its extent."""
    a = te.placeholder((3, 7), "int32", name="A")
    k = te.reduce_axis(7, "k")
    c = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C")
    value = np.arange(21, dtype=np.int32).reshape(3, 7)
    for factor in (2, 4, 9):
        s = create_schedule(c)
        s[c].split(axis, factor=factor)
        check(s, {"A": value}, value.sum(1, dtype=np.int32))


def test_an_index_of_a_constant_beyond_32_bits() -> None:
    """tinygrad/tinygrad#6987, triton-lang/triton#832: on a target of 32-bit indices, a slice at an offset of 2^31 + 5
    of a large tensor keeps indices of 64 bits, though only 8 elements are computed."""
    narrow = dataclasses.replace(TARGET, index_bits=32)
    a = te.placeholder(((1 << 31) + 16,), "uint8", name="A")
    c = te.compute((8,), lambda i: a[i + (1 << 31) + 5], name="C")
    text = str(lower(create_schedule(c).func(), narrow, check=True))
    assert str((1 << 31) + 5) in text, text
