"""Scheduled GPU programs that the tests of both dialects, of the sanitiser and of the passes share.

Each `Program` has a schedule, its parameters, inputs, and what numpy says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedule import Schedule, create_schedule
from schedule.gpu_intrinsics import dp4a, mma, mma_load, mma_store
from tensorir import te

F = np.float32


@dataclass
class Program:
    """One kernel with inputs and the right outputs; `tolerance` 0 asks for equality."""

    schedule: Schedule
    args: list[Any]
    inputs: list[np.ndarray]
    wanted: list[np.ndarray]
    tolerance: float = 0.0


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def elementwise(n: int = 37) -> Program:
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=8)
    s[c].bind(outer, "blockIdx.x")
    s[c].bind(inner, "threadIdx.x")
    x = _random(n)
    return Program(s, [a, c], [x], [x * F(2) + F(1)])


def matmul(n: int = 11, m: int = 9, depth: int = 7, tile: int = 4) -> Program:
    """Tiles of both operands in shared memory, one thread an element of the result."""
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis(depth, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    tiles = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    own = s.cache_write(c, "local")
    i, j = s[c].axis
    io, ii = s[c].split(i, factor=tile)
    jo, ji = s[c].split(j, factor=tile)
    s[c].reorder(io, jo, ii, ji)
    for loop, axis in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
        s[c].bind(loop, axis)
    s[own].compute_at(s[c], ji)
    ko, _ = s[own].split(s[own].reduce_axis[0], factor=tile)
    for shared in tiles:
        s[shared].compute_at(s[own], ko)
        flat = s[shared].fuse(*s[shared].axis)
        _, threads = s[shared].split(flat, factor=tile * tile)
        ty, tx = s[shared].split(threads, factor=tile)
        s[shared].bind(ty, "threadIdx.y")
        s[shared].bind(tx, "threadIdx.x")
    x, y = _random(n, depth), _random(depth, m, seed=1)
    return Program(s, [a, b, c], [x, y], [x @ y], 1e-5)


def transpose(n: int = 13, m: int = 10, tile: int = 4) -> Program:
    """Through a tile of shared memory, so that both reads and writes run along rows."""
    a = te.placeholder((n, m), name="A")
    c = te.compute((m, n), lambda i, j: a[j, i], name="C")
    s = create_schedule(c)
    shared = s.cache_read(a, "shared", [c])
    i, j = s[c].axis
    io, ii = s[c].split(i, factor=tile)
    jo, ji = s[c].split(j, factor=tile)
    s[c].reorder(io, jo, ii, ji)
    for loop, axis in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
        s[c].bind(loop, axis)
    s[shared].compute_at(s[c], jo)
    s[shared].bind(s[shared].axis[0], "threadIdx.y")
    s[shared].bind(s[shared].axis[1], "threadIdx.x")
    s[shared].storage_align(s[shared].axis[0], 2, 1)
    x = _random(n, m)
    return Program(s, [a, c], [x], [x.T.copy()])


def softmax(n: int = 5, m: int = 37, threads: int = 8) -> Program:
    """A block a row; maximum and sum over the threads of the block, kept in shared memory."""
    x = te.placeholder((n, m), name="X")
    k, q = te.reduce_axis(m, "k"), te.reduce_axis(m, "q")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    s = create_schedule(out)
    row, column = s[out].axis
    _, inner = s[out].split(column, factor=threads)
    s[out].bind(row, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[e].compute_inline()
    for stage in (total, top):
        _reduce_over_threads(s, stage, s[out], row, threads)
    a = _random(n, m)
    ex = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    return Program(s, [x, out], [a], [(ex / ex.sum(1, keepdims=True)).astype(F)], 1e-6)


def _reduce_over_threads(s: Schedule, stage: Any, host: Any, at: Any, threads: int) -> None:
    s[stage].compute_at(host, at)
    s[stage].set_scope("shared")
    _, inner = s[stage].split(s[stage].reduce_axis[0], factor=threads)
    s[stage].bind(inner, "threadIdx.x")


def layer_norm(n: int = 3, m: int = 21, threads: int = 8) -> Program:
    x = te.placeholder((n, m), name="X")
    k, q = te.reduce_axis(m, "k"), te.reduce_axis(m, "q")
    mean = te.compute((n,), lambda i: te.sum(x[i, k] * (1.0 / m), axis=k), name="mean")
    centred = te.compute((n, m), lambda i, j: x[i, j] - mean[i], name="centred")
    spread = te.compute((n,), lambda i: te.sum(centred[i, q] * centred[i, q], axis=q), name="spread")
    out = te.compute((n, m), lambda i, j: centred[i, j] / te.sqrt(spread[i] * (1.0 / m) + 1e-5), name="out")
    s = create_schedule(out)
    row, column = s[out].axis
    _, inner = s[out].split(column, factor=threads)
    s[out].bind(row, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[centred].compute_inline()
    for stage in (spread, mean):
        _reduce_over_threads(s, stage, s[out], row, threads)
    a = _random(n, m)
    d = a.astype(np.float64)
    wanted = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5)
    return Program(s, [x, out], [a], [wanted.astype(F)], 1e-5)


def row_reduction(kind: str = "max", n: int = 6, m: int = 11, threads: int | None = None) -> Program:
    """One block a row; `threads` of it share the row, all of it by default (C3)."""
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis(m, "k")
    combine = {"max": te.max, "min": te.min, "sum": te.sum}[kind]
    out = te.compute((n,), lambda i: combine(x[i, k], axis=k), name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    loop = s[out].reduce_axis[0]
    if threads is not None:
        _, loop = s[out].split(loop, factor=threads)
    s[out].bind(loop, "threadIdx.x")
    a = -np.abs(_random(n, m)) - F(1)
    return Program(s, [x, out], [a], [getattr(a, kind)(1)], 1e-5 if kind == "sum" else 0.0)


def argmax(n: int = 6, m: int = 23, threads: int = 5) -> Program:
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis(m, "k")
    index, value = te.compute((n,), lambda i: te.argmax(k, x[i, k], axis=k), name="best")
    s = create_schedule([index, value])
    s[index].bind(s[index].axis[0], "blockIdx.x")
    _, inner = s[index].split(s[index].reduce_axis[0], factor=threads)
    s[index].bind(inner, "threadIdx.x")
    a = np.random.default_rng(3).integers(0, 6, (n, m)).astype(F)
    return Program(s, [x, index, value], [a], [a.argmax(1).astype(index.dtype.numpy), a.max(1)])


def pooled_mean(h: int = 7, w: int = 7, c: int = 20, threads: int = 16) -> Program:
    """A fused reduce axis of 49 on more threads than it divides by, in a serial loop over channels (C6)."""
    x = te.placeholder((h, w, c), name="X")
    i, j = te.reduce_axis(h, "i"), te.reduce_axis(w, "j")
    out = te.compute((c,), lambda ch: te.sum(x[i, j, ch], axis=(i, j)), name="out")
    s = create_schedule(out)
    flat = s[out].fuse(*s[out].reduce_axis)
    _, inner = s[out].split(flat, factor=threads)
    outer, _ = s[out].split(s[out].axis[0], factor=5)
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    a = _random(h, w, c)
    return Program(s, [x, out], [a], [a.sum((0, 1))], 1e-5)


def two_axes(n: int = 4, m: int = 10) -> Program:
    """A reduction over the threads of two axes."""
    x = te.placeholder((5, n, m), name="X")
    i, j = te.reduce_axis(n, "i"), te.reduce_axis(m, "j")
    out = te.compute((5,), lambda r: te.sum(x[r, i, j], axis=(i, j)), name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].reduce_axis[0], "threadIdx.y")
    s[out].bind(s[out].reduce_axis[1], "threadIdx.x")
    a = _random(5, n, m)
    return Program(s, [x, out], [a], [a.sum((1, 2))], 1e-5)


def conv2d(size: int = 9, channels: int = 3, filters: int = 5) -> Program:
    """3x3 with padding; the weights of a filter in shared memory."""
    x, w = te.placeholder((channels, size, size), name="X"), te.placeholder((filters, channels, 3, 3), name="W")
    c, r, q = te.reduce_axis(channels, "c"), te.reduce_axis(3, "r"), te.reduce_axis(3, "q")
    zero = te.const(0.0)
    padded = te.compute(
        (channels, size + 2, size + 2),
        lambda ch, i, j: te.if_then_else(te.all(i >= 1, i <= size, j >= 1, j <= size), x[ch, i - 1, j - 1], zero),
        name="padded",
    )
    out = te.compute(
        (filters, size, size),
        lambda f, i, j: te.sum(padded[c, i + r, j + q] * w[f, c, r, q], axis=(c, r, q)),
        name="out",
    )
    s = create_schedule(out)
    s[padded].compute_inline()
    weights = s.cache_read(w, "shared", [out])
    f, i, j = s[out].axis
    flat = s[out].fuse(i, j)
    outer, inner = s[out].split(flat, factor=32)
    s[out].bind(f, "blockIdx.y")
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[weights].compute_at(s[out], outer)
    _, threads = s[weights].split(s[weights].fuse(*s[weights].axis), factor=32)
    s[weights].bind(threads, "threadIdx.x")
    a, b = _random(channels, size, size), _random(filters, channels, 3, 3, seed=1)
    p = np.pad(a, ((0, 0), (1, 1), (1, 1))).astype(np.float64)
    wanted = np.zeros((filters, size, size))
    for dy in range(3):
        for dx in range(3):
            wanted += np.einsum("fc,cij->fij", b[:, :, dy, dx], p[:, dy : dy + size, dx : dx + size])
    return Program(s, [x, w, out], [a, b], [wanted.astype(F)], 1e-5)


def prefix_sum(n: int = 37, threads: int = 8) -> Program:
    """Each element sums what is before it; one thread an element."""
    x = te.placeholder((3, n), "int32", name="X")
    k = te.reduce_axis(n, "k")
    out = te.compute((3, n), lambda i, j: te.sum(te.select(k <= j, x[i, k], te.const(0, "int32")), axis=k), name="out")
    s = create_schedule(out)
    i, j = s[out].axis
    outer, inner = s[out].split(j, factor=threads)
    s[out].bind(i, "blockIdx.y")
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    a = np.random.default_rng(0).integers(-9, 9, (3, n)).astype(np.int32)
    return Program(s, [x, out], [a], [a.cumsum(1).astype(np.int32)])


def two_extents(wide: int = 12, narrow: int = 5) -> Program:
    """Stages of one kernel bound to one axis with other extents (C10, C14)."""
    x = te.placeholder((3, wide), name="X")
    b = te.compute((3, wide), lambda i, j: x[i, j] + 1.0, name="B")
    out = te.compute((3, narrow), lambda i, j: b[i, j] + b[i, wide - 1 - j], name="out")
    s = create_schedule(out)
    i, j = s[out].axis
    s[out].bind(i, "blockIdx.x")
    s[out].bind(j, "threadIdx.x")
    s[b].compute_at(s[out], i)
    s[b].set_scope("shared")
    s[b].bind(s[b].axis[1], "threadIdx.x")
    a = _random(3, wide)
    y = a + F(1)
    return Program(s, [x, out], [a], [y[:, :narrow] + y[:, ::-1][:, :narrow]])


def virtual_threads(n: int = 24) -> Program:
    """Each thread stands for several."""
    x = te.placeholder((n,), name="X")
    b = te.compute((n,), lambda i: x[i] * 3.0, name="B")
    out = te.compute((n,), lambda i: b[i] + 1.0, name="out")
    s = create_schedule(out)
    v, rest = s[out].split("i", nparts=2)
    outer, inner = s[out].split(rest, factor=4)
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(v, "vthread")
    s[out].reorder(outer, v, inner)
    s[out].bind(inner, "threadIdx.x")
    s[b].compute_at(s[out], inner)
    s[b].set_scope("local")
    a = _random(n)
    return Program(s, [x, out], [a], [a * F(3) + F(1)])


def two_kernels(n: int = 19) -> Program:
    """Two stages at root: two kernels with memory of the device between them."""
    x = te.placeholder((n,), name="X")
    b = te.compute((n,), lambda i: x[i] * 3.0, name="B")
    out = te.compute((n,), lambda i: b[n - 1 - i] + 1.0, name="out")
    s = create_schedule(out)
    for stage in (b, out):
        outer, inner = s[stage].split("i", factor=8)
        s[stage].bind(outer, "blockIdx.x")
        s[stage].bind(inner, "threadIdx.x")
    a = _random(n)
    return Program(s, [x, out], [a], [(a * F(3))[::-1] + F(1)])


def unbound(n: int = 9) -> Program:
    """Nothing is bound: a kernel of one thread."""
    x = te.placeholder((n,), name="X")
    out = te.compute((n,), lambda i: x[i] + 1.0, name="out")
    a = _random(n)
    return Program(create_schedule(out), [x, out], [a], [a + F(1)])


def double_buffered(n: int = 10, m: int = 6) -> Program:
    """A tile is fetched into one half of shared memory while the other is read."""
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis(n, "k")
    out = te.compute((m,), lambda j: te.sum(x[k, j] * x[k, m - 1 - j], axis=k), name="out")
    s = create_schedule(out)
    shared = s.cache_read(x, "shared", [out])
    s[out].bind(s[out].axis[0], "threadIdx.x")
    outer, _ = s[out].split(s[out].reduce_axis[0], factor=2)
    s[shared].compute_at(s[out], outer)
    s[shared].bind(s[shared].axis[1], "threadIdx.x")
    s[shared].double_buffer()
    a = _random(n, m)
    return Program(s, [x, out], [a], [(a * a[:, ::-1]).sum(0)], 1e-5)


def dp4a_matmul(n: int = 6, m: int = 5, depth: int = 12, *, signed: bool = True) -> Program:
    """Products of rows of bytes, four at once."""
    kind = "int8" if signed else "uint8"
    a, b = te.placeholder((n, depth), kind, name="A"), te.placeholder((m, depth), "int8", name="B")
    k = te.reduce_axis(depth, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C")
    s = create_schedule(c)
    own = s.cache_write(c, "local")
    i, j = s[c].axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[own].compute_at(s[c], j)
    _, ki = s[own].split(s[own].reduce_axis[0], factor=4)
    s[own].tensorize(ki, dp4a(signed))
    rng = np.random.default_rng(0)
    x = rng.integers(-128 if signed else 0, 128 if signed else 256, (n, depth)).astype(kind)
    y = rng.integers(-128, 128, (m, depth)).astype(np.int8)
    return Program(s, [a, b, c], [x, y], [x.astype(np.int32) @ y.T.astype(np.int32)])


def mma_matmul(
    n: int = 32, m: int = 16, depth: int = 32, *, warps: int = 2, tiles: tuple[int, int] = (1, 1), nt: bool = False
) -> Program:
    """Each warp multiplies `tiles` of 16 x 16 by matrix instructions; operands come through shared memory."""
    a = te.placeholder((n, depth), "float16", name="A")
    b = te.placeholder((m, depth) if nt else (depth, m), "float16", name="B")
    k = te.reduce_axis(depth, "k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, k].astype("float32") * (b[j, k] if nt else b[k, j]).astype("float32"), axis=k),
        name="C",
    )
    s = create_schedule(c)
    shared = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    fragments = [s.cache_read(x, "fragment", [c]) for x in shared]
    own = s.cache_write(c, "fragment")
    io, i = s[c].split("i", factor=16 * tiles[0] * warps)
    iw, i = s[c].split(i, factor=16 * tiles[0])
    it, ii = s[c].split(i, factor=16)
    jo, j = s[c].split("j", factor=16 * tiles[1])
    jt, ji = s[c].split(j, factor=16)
    s[c].reorder(io, jo, iw, it, jt, ii, ji)
    for loop, axis in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (iw, "threadIdx.y")):
        s[c].bind(loop, axis)
    for loop in (it, jt):
        s[c].unroll(loop)
    s[c].tensorize(ii, mma_store())
    s[own].compute_at(s[c], iw)
    it, ii = s[own].split(s[own].axis[0], factor=16)
    jt, ji = s[own].split(s[own].axis[1], factor=16)
    ko, ki = s[own].split(s[own].reduce_axis[0], factor=16)
    s[own].reorder(ko, it, jt, ii, ji, ki)
    for loop in (it, jt):
        s[own].unroll(loop)
    s[own].tensorize(ii, mma(transposed=nt))
    for stage in fragments:
        s[stage].compute_at(s[own], ko)
        it, ii = s[stage].split(s[stage].axis[0], factor=16)
        jt, ji = s[stage].split(s[stage].axis[1], factor=16)
        s[stage].reorder(it, jt, ii, ji)
        for loop in (it, jt):
            s[stage].unroll(loop)
        s[stage].tensorize(ii, mma_load())
    for stage in shared:
        s[stage].compute_at(s[own], ko)
        rest, lane = s[stage].split(s[stage].fuse(*s[stage].axis), factor=32)
        _, warp = s[stage].split(rest, factor=warps)
        s[stage].bind(lane, "threadIdx.x")
        s[stage].bind(warp, "threadIdx.y")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, depth)).astype(np.float16)
    y = rng.standard_normal((m, depth) if nt else (depth, m)).astype(np.float16)
    return Program(s, [a, b, c], [x, y], [x.astype(F) @ (y.T if nt else y).astype(F)], 1e-4)


def async_matmul(n: int = 11, m: int = 9, depth: int = 12, tile: int = 4, lanes: int = 1) -> Program:
    """The tiles of the next step arrive in the other half of shared memory while this step is computed."""
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis(depth, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    tiles = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    own = s.cache_write(c, "local")
    io, ii = s[c].split("i", factor=tile)
    jo, ji = s[c].split("j", factor=tile)
    s[c].reorder(io, jo, ii, ji)
    for loop, axis in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
        s[c].bind(loop, axis)
    s[own].compute_at(s[c], ji)
    ko, _ = s[own].split(s[own].reduce_axis[0], factor=tile)
    for shared in tiles:
        s[shared].compute_at(s[own], ko)
        i, j = s[shared].axis
        if lanes > 1:
            j, lane = s[shared].split(j, factor=lanes)
            s[shared].vectorize(lane)
        s[shared].bind(i, "threadIdx.y")
        s[shared].bind(j, "threadIdx.x")
        s[shared].double_buffer()
        s[shared].async_copy()
    x, y = _random(n, depth), _random(depth, m, seed=1)
    return Program(s, [a, b, c], [x, y], [x @ y], 1e-5)


def rows_in_turn(n: int = 6, m: int = 19, rows: int = 3, threads: int = 8) -> Program:
    """A block takes several rows, one after the other: the threads sum a row, use the sum, and sum the next."""
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis(m, "k")
    total = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((n, m), lambda i, j: x[i, j] - total[i], name="out")
    s = create_schedule(out)
    block, row = s[out].split("i", factor=rows)
    _, inner = s[out].split("j", factor=threads)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    _reduce_over_threads(s, total, s[out], row, threads)
    a = _random(n, m)
    return Program(s, [x, out], [a], [a - a.sum(1, keepdims=True)], 1e-5)


PROGRAMS: dict[str, Callable[[], Program]] = {
    f.__name__: f
    for f in (
        elementwise, matmul, transpose, softmax, layer_norm, row_reduction, argmax, pooled_mean, two_axes, conv2d,
        prefix_sum, two_extents, virtual_threads, two_kernels, unbound, double_buffered, dp4a_matmul, mma_matmul,
        async_matmul, rows_in_turn,
    )
}  # fmt: skip


def outputs_of(program: Program) -> list[np.ndarray]:
    """Poisoned arrays for the outputs."""
    return [np.full(w.shape, np.nan if w.dtype.kind == "f" else 77, w.dtype) for w in program.wanted]


def check(program: Program, outputs: list[np.ndarray]) -> None:
    """Raises if the outputs are not what numpy says."""
    for got, wanted in zip(outputs, program.wanted, strict=True):
        if program.tolerance:
            np.testing.assert_allclose(got, wanted, rtol=program.tolerance, atol=program.tolerance)
        else:
            np.testing.assert_array_equal(got, wanted)
