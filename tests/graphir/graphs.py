"""Small graphs and runs that several tests share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphir.compile import compile as compile_graph
from graphir.executor import Executable
from graphir.ir import Graph, Node
from graphir.pipeline import make_context
from graphir.reference import evaluate


def ops(graph: Graph) -> list[str]:
    """The ops of the nodes in order, those of groups and branches in brackets."""
    return [_op(n) for n in graph.nodes]


def _op(node: Node) -> str:
    inner = [f"[{'+'.join(ops(s))}]" for s in node.subgraphs]
    return node.op + "".join(inner)


def run_levels(graph: Graph, inputs: Mapping[str, np.ndarray], tolerance: float = 1e-5) -> dict[int, Executable]:
    """Runs a graph at every opt level: each within tolerance of numpy, levels 1 and 2 with the bits of level 0."""
    expected = evaluate(graph, inputs)
    first: list[np.ndarray] = []
    made: dict[int, Executable] = {}
    for level in range(4):
        executable = compile_graph(graph, opt_level=level)
        outputs = [poisoned(i.shape, i.dtype) for i in map(info_of(executable, inputs), range(len(graph.outputs)))]
        given = {n: a.copy() for n, a in inputs.items()}
        results = executable.run(given, outputs)
        for name, result in zip(graph.output_names, results, strict=True):
            want = expected[name]
            assert result.dtype == want.dtype and result.shape == want.shape, (level, name)
            if want.dtype.kind == "f":
                scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)))
                np.testing.assert_allclose(
                    result, want, rtol=0, atol=tolerance * scale, err_msg=f"level {level} {name}"
                )
            else:
                np.testing.assert_array_equal(result, want, err_msg=f"level {level} {name}")
        if level == 0:
            first = results
        elif level < 3:
            for name, a, b in zip(graph.output_names, first, results):
                assert a.tobytes() == b.tobytes(), f"level {level} changes the bits of {name}"
        for name, array in inputs.items():
            assert given[name].tobytes() == array.tobytes(), f"level {level} wrote into the input {name}"
        made[level] = executable
    return made


def info_of(executable: Executable, inputs: Mapping[str, np.ndarray]) -> Any:
    """A function from output number to an array of its size and type."""
    fresh = executable.run(inputs)
    return lambda number: fresh[number]


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of NaN, or of 0xAA bytes for types without NaN."""
    array = np.empty(shape, dtype)
    if array.dtype.kind == "f":
        array.fill(np.nan)
    else:
        array.reshape(-1).view(np.uint8)[:] = 0xAA if array.dtype.kind != "b" else 1
    return array


def context(**options: Any) -> Any:
    """A pass context for this machine."""
    return make_context("llvm", **options)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
