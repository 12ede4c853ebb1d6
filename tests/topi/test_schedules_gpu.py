"""The default schedules of GPUs: each family at odd sizes equals numpy on PoCL, is silent in the sanitiser, takes the
way it should, and is CUDA C that prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graphir.builder import GraphBuilder
from graphir.compile import compile as compile_graph
from graphir.executor import Executable
from graphir.ir import Graph
from graphir.reference import evaluate
from tensorir.expr import const
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import thread_form
from tensorir.target import Target
from topi.schedules_gpu import choose_tile

pytest.importorskip("pyopencl")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Build = Callable[[GraphBuilder, Sequence[Any]], Sequence[Any]]


def one(op: str, attrs: dict[str, Any] | None = None, *constants: np.ndarray, relu: bool = False) -> Build:
    """A graph of one op on its inputs and constants, relu after it."""

    def build(b: GraphBuilder, inputs: Sequence[Any]) -> Sequence[Any]:
        weights = [b.constant(c, f"c{n}") for n, c in enumerate(constants)]
        results = b.add(op, [*inputs, *weights], attrs or {})
        return b.add("relu", results[:1]) if relu else results

    return build


def conv_residual(b: GraphBuilder, inputs: Sequence[Any]) -> Sequence[Any]:
    x, y = inputs
    [c] = b.add("conv2d", [x, b.constant(random(9, 5, 3, 3), "w")], {"padding": (1, 1, 1, 1)})
    return b.add("relu", [b.add("add", [c, y])[0]])


CONV = {"padding": (1, 1, 1, 1)}
CASES: dict[str, tuple[Build, tuple[tuple[int, ...], ...], str]] = {
    "product": (one("matmul"), ((37, 29), (29, 45)), "tiles"),
    "product in batches": (one("matmul", relu=True), ((3, 70, 67), (67, 133)), "tiles"),
    "product of batches": (one("matmul"), ((2, 3, 17, 9), (2, 3, 9, 19)), "tiles"),
    "product of one row": (one("dense", {}, random(50, 70)), ((1, 70),), "rows"),
    "product of few columns": (one("matmul"), ((41, 23), (23, 2)), "elements"),
    "conv2d": (one("conv2d", CONV, random(10, 5, 3, 3), random(10), relu=True), ((2, 5, 13, 11),), "tiles"),
    "conv2d with strides": (
        one("conv2d", {**CONV, "strides": (2, 3)}, random(32, 8, 3, 3)), ((1, 8, 31, 29),), "tiles",
    ),
    "conv2d dilated": (one("conv2d", {"dilations": (2, 1)}, random(7, 3, 3, 2)), ((1, 3, 17, 15),), "tiles"),
    "conv2d of points": (one("conv2d", {}, random(21, 19, 1, 1)), ((1, 19, 9, 11),), "tiles"),
    "conv2d and a residual": (conv_residual, ((1, 5, 9, 11), (1, 9, 9, 11)), "tiles"),
    "conv1d": (one("conv1d", {"padding": (1, 1)}, random(9, 6, 3)), ((2, 6, 35),), "tiles"),
    "conv2d in groups": (one("conv2d", {**CONV, "groups": 8}, random(8, 1, 3, 3)), ((1, 8, 13, 11),), "elements"),
    "softmax": (one("softmax", {"axis": -1}), ((5, 77),), "rows"),
    "softmax of long rows": (one("softmax", {"axis": -1}), ((2, 5001),), "rows"),
    "softmax along a middle axis": (one("softmax", {"axis": 1}), ((2, 37, 5),), "rows"),
    "layer norm": (one("layer_norm", {"axis": -1}, random(41), random(41)), ((3, 7, 41),), "rows"),
    "instance norm": (one("instance_norm", {}, random(4), random(4)), ((2, 4, 9, 11),), "rows"),
    "argmax": (one("argmax", {"axis": 1}), ((6, 53),), "rows"),
    "argmin of the first axis": (one("argmin", {"axis": 0}), ((53, 7),), "rows"),
    "sum": (one("sum", {"axes": (1,)}), ((6, 153),), "rows"),
    "sum of all": (one("sum", {"axes": (0, 1), "keepdims": False}), ((6, 153),), "rows"),
    "mean of places": (one("mean", {"axes": (2, 3)}), ((2, 6, 7, 9),), "rows"),
    "max of columns": (one("max", {"axes": (0,)}), ((153, 6),), "rows"),
    "pool": (one("max_pool2d", {"kernel": (3, 3), "strides": (2, 2)}), ((1, 5, 13, 11),), "elements"),
    "prefix sum": (one("cumsum", {"axis": 1}), ((3, 37),), "rows"),
    "prefix sum backwards": (one("cumsum", {"axis": 0, "reverse": True, "exclusive": True}), ((23, 5),), "elements"),
    "transpose": (one("transpose", {"axes": (0, 2, 1)}), ((3, 37, 29),), "tiles"),
    "transpose of the first axis": (one("transpose", {"axes": (2, 0, 1)}), ((3, 35, 29),), "tiles"),
    "transpose of short rows": (one("transpose", {"axes": (2, 0, 1)}), ((35, 3, 29),), "elements"),
    "elements": (one("relu"), ((3, 1000),), "elements"),
}  # fmt: skip


def graph_of(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    build, shapes, _ = CASES[name]
    b = GraphBuilder()
    inputs = [b.input(f"x{n}", s) for n, s in enumerate(shapes)]
    given = {f"x{n}": random(*s, seed=7 + n) for n, s in enumerate(shapes)}
    return b.finish(list(build(b, inputs))), given


def way_of(exe: Executable) -> str:
    """How the kernels were scheduled: tiles have rows of threads, rows meet at barriers."""
    runners: list[Any] = [k.group.kernel for k in exe.plan.kernels]
    if any(p.block[1] > 1 for r in runners for p in r.program.kernels):
        return "tiles"
    return "rows" if any("barrier" in r.source("lowered") for r in runners) else "elements"


@pytest.mark.parametrize("name", CASES)
def test_a_family_on_pocl_equals_numpy(name: str) -> None:
    graph, given = graph_of(name)
    exe = compile_graph(graph, "opencl")
    assert not [line for line in exe.log if "failed" in line]
    wanted = evaluate(graph, given)
    for info, found in zip(exe.outputs, exe.run(given), strict=True):
        right = wanted[info.name]
        assert found.dtype == right.dtype and found.shape == right.shape
        if right.dtype.kind == "f":
            scale = max(1.0, float(np.abs(right).max()))
            np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * scale)
        else:
            np.testing.assert_array_equal(found, right)


SANITIZED = [n for n in CASES if n not in ("softmax of long rows", "product in batches", "conv2d with strides")]


@pytest.mark.parametrize("name", SANITIZED)
def test_threads_and_barriers_of_a_family_are_right(name: str) -> None:
    """The thread form in the checked interpreter: no race, no divergence, all outputs written, the scheduled values."""
    graph, given = graph_of(name)
    exe = compile_graph(graph, "opencl")
    for k in exe.plan.kernels:
        func = k.group.func
        rng = np.random.default_rng(1)
        arrays = []
        for number, p in enumerate(func.params):
            shape = tuple(int(e.value) for e in p.shape)  # type: ignore[attr-defined]
            is_output = number >= len(func.params) - func.outputs
            made = rng.standard_normal(shape) if not is_output else np.full(shape, 77)
            arrays.append(made.astype(p.dtype.numpy))
        again = [a.copy() for a in arrays]
        interpret(thread_form(func, exe.target), arrays, mode="checked", complete=True)
        interpret(func, again)
        for a, b in zip(arrays, again, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_same_graph_for_cuda(name: str) -> None:
    graph, _ = graph_of(name)
    exe = compile_graph(graph, "cuda -arch=sm_80")
    assert not [line for line in exe.log if "failed" in line]
    for k in exe.plan.kernels:
        runner: Any = k.group.kernel
        assert 'extern "C" __global__' in runner.source("cuda")
        assert all(np.prod(p.block) <= 1024 for p in runner.program.kernels)


@pytest.mark.parametrize("name", CASES)
def test_the_way_of_a_family(name: str) -> None:
    graph, _ = graph_of(name)
    assert way_of(compile_graph(graph, "opencl")) == CASES[name][2]


def test_tiles_grow_with_the_product() -> None:
    target = Target.parse("cuda -arch=sm_80")

    def edge(m: int, n: int, k: int = 64) -> tuple[int, int] | None:
        tile = choose_tile(const(m), const(n), (), const(k), target)
        return None if tile is None else (tile.rows, tile.columns)

    assert edge(2048, 2048) == (64, 64)
    assert edge(300, 300) == (32, 32)
    assert edge(40, 40) == (16, 16)
    assert edge(8, 3000) == (8, 32)
    assert edge(2, 3000) is None and edge(64, 64, 2) is None
    small = Target.parse("opencl -max-threads=64")
    assert choose_tile(const(99), const(99), (), const(9), small) is None
