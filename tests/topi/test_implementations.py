"""Convolutions as the models cut them: caches so small that weights are large, groups of tiles that do not divide."""

from __future__ import annotations

import numpy as np
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from targets.build import resolve
from tensorir import dtypes
from tensorir.expr import const
from topi.group import TensorSpec, spec_of
from topi.implementations import winograd
from topi.implementations.tiles import Tile, choose_tiles, efficiency
from topi.op import Call
from topi.ops.conv import conv2d
from topi.ops.winograd import conv2d_winograd


def _spec(*shape: int) -> TensorSpec:
    return spec_of([const(n) for n in shape], dtypes.float32)


def _convolve(
    target: str,
    channels: int,
    out: int,
    size: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    precision: str = "default",
) -> tuple[np.ndarray, np.ndarray, str]:
    """The result of a convolution with ReLU on random data, the right one in float64, and the log."""
    random = np.random.default_rng(channels + out + kernel)
    x = random.standard_normal((1, channels, *size)).astype(np.float32)
    w = (random.standard_normal((out, channels, kernel, kernel)) / np.sqrt(channels * kernel**2)).astype(np.float32)
    bias = random.standard_normal(out).astype(np.float32)
    pad = kernel // 2
    attrs = {"padding": (pad,) * 4, "strides": (stride, stride)}
    b = GraphBuilder()
    value = b.input("x", x.shape, "float32")
    [y] = b.add("conv2d", [value, b.constant(w, "w"), b.constant(bias, "bias")], attrs)
    [y] = b.add("relu", [y])
    graph = b.finish([y])
    exe = nt.compile(graph, target=target, precision=precision)
    want = np.maximum(conv2d.numpy(x.astype("f8"), w.astype("f8"), bias.astype("f8"), **attrs), 0)
    result = np.full(want.shape, np.nan, np.float32)
    exe.run({"x": x}, [result])
    return result, want, "\n".join(exe.log)


def _plan(target: str, channels: int, out: int, size: tuple[int, int], m: int) -> winograd.WinogradTile:
    """The way the model cuts a Winograd convolution."""
    inputs = (_spec(1, channels, *size), _spec((m + 2) ** 2, out, channels), _spec(out))
    attrs = {"m": m, "padding": (1, 1, 1, 1)}
    call = Call(conv2d_winograd, inputs, (_spec(1, out, *size),), attrs, (False, True, True))
    return winograd._best(call, resolve(target))[0]


SMALL_CACHES = "llvm -l2=4096 -cores=2"


@pytest.mark.parametrize("kernel, stride", [(3, 2), (1, 1), (1, 2), (5, 1)])
def test_large_weights_are_asked_for_ahead(kernel: int, stride: int) -> None:
    """Prefetching the next panel changes no value: as without, bit by bit."""
    ahead, want, _ = _convolve(SMALL_CACHES, 32, 80, (9, 13), kernel, stride=stride)
    plain, _, _ = _convolve("llvm -cores=2", 32, 80, (9, 13), kernel, stride=stride)
    assert ahead.tobytes() == plain.tobytes()
    np.testing.assert_allclose(ahead, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(13, 11), (7, 7), (29, 30)])
@pytest.mark.parametrize("target", [SMALL_CACHES, "llvm -cores=2", "llvm -cores=1", "llvm -l2=4194304 -cores=3"])
def test_winograd_however_the_work_is_cut(target: str, size: tuple[int, int]) -> None:
    result, want, log = _convolve(target, 64, 96, size, 3)
    assert np.abs(result - want).max() < 1e-4 * np.abs(want).max(), log


def test_cores_share_the_tiles_of_large_weights_and_the_weights_of_many_tiles() -> None:
    cpu = "llvm -mcpu=skylake-avx512 -cores=2 -l2=1048576"
    assert _plan(cpu, 256, 256, (14, 14), 4).shared
    assert not _plan(cpu, 64, 64, (56, 56), 4).shared
    for m in (2, 4):
        tile = _plan(cpu, 128, 128, (28, 28), m)
        assert tile.group % tile.columns == 0, tile


def test_tiles_of_a_core_with_two_fmas_save_loads() -> None:
    two, one = resolve("llvm -mcpu=sapphirerapids"), resolve("llvm -mcpu=znver4")
    assert (two.fma_units, one.fma_units) == (2, 1)
    assert efficiency(Tile(1, 6, 4), two) > 1.2 * efficiency(Tile(1, 28, 1), two)
    assert efficiency(Tile(1, 6, 4), one) < 1.1 * efficiency(Tile(1, 28, 1), one)
    assert all(32 % t.blocks == 0 for t in choose_tiles(7, 7, 32, two))


@pytest.mark.parametrize("rows, depth, columns", [(29, 64, 96), (40, 24, 130), (128, 16, 64), (3, 32, 70)])
def test_a_large_right_operand_is_asked_for_ahead(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    a = random.standard_normal((rows, depth)).astype(np.float32)
    right = random.standard_normal((depth, columns)).astype(np.float32)
    b = GraphBuilder()
    [y] = b.add("matmul", [b.input("a", a.shape, "float32"), b.constant(right, "b")])
    graph = b.finish([y])
    results = []
    for target in (SMALL_CACHES, "llvm -cores=2"):
        out = np.full((rows, columns), np.nan, np.float32)
        nt.compile(graph, target=target).run({"a": a}, [out])
        np.testing.assert_allclose(out, a.astype("f8") @ right.astype("f8"), rtol=0, atol=2e-5)
        results.append(out.tobytes())
    assert results[0] == results[1]
