"""Small graphs for the faults of graph passes, operators and the plan: every opt level against numpy, and the levels
that keep bits against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphir.builder import GraphBuilder
from graphir.ir import Graph, Value
from tests.graphir.graphs import random, run_levels


def one_op(op: str, shapes: list[tuple[int, ...]], **attrs: Any) -> None:
    """One op on random inputs."""
    b = GraphBuilder()
    names = [f"x{n}" for n in range(len(shapes))]
    values = [b.input(name, shape) for name, shape in zip(names, shapes, strict=True)]
    [y] = b.add(op, values, attrs)
    run_levels(b.finish([y]), {name: random(*shape, seed=n) for n, (name, shape) in enumerate(zip(names, shapes))})


def chain(*steps: tuple[str, dict[str, Any]], shape: tuple[int, ...] = (2, 3, 4)) -> None:
    """Ops one after the other."""
    b = GraphBuilder()
    x: Value = b.input("x", shape)
    y = x
    for op, attrs in steps:
        [y] = b.add(op, [y], attrs)
    run_levels(b.finish([y]), {"x": random(*shape)})


def concat() -> None:
    one_op("concat", [(2, 3), (2, 5), (2, 1)], axis=1)
    one_op("concat", [(2, 3, 2), (4, 3, 2)], axis=0)


def padded_mean() -> None:
    one_op("avg_pool2d", [(1, 3, 7, 6)], kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))


def transposes() -> None:
    chain(("transpose", {"axes": (1, 0, 2)}), ("transpose", {"axes": (0, 2, 1)}))


def live_values() -> None:
    """A value that is read again after a result of its size was made."""
    b = GraphBuilder()
    x = b.input("x", (6, 6))
    [s] = b.add("softmax", [x], {"axis": -1})
    [t] = b.add("transpose", [s], {"axes": (1, 0)})
    [m] = b.add("matmul", [t, x])
    [e] = b.add("exp", [m])
    [u] = b.add("softmax", [e], {"axis": -1})
    [v] = b.add("matmul", [u, s])
    [w] = b.add("softmax", [v], {"axis": 0})
    [y] = b.add("subtract", [w, m])
    run_levels(b.finish([y, b.add("negative", [u])[0]], ["y", "u"]), {"x": random(6, 6)})


def both_operands() -> None:
    """A result that may lie over an operand which is read at another place too."""
    b = GraphBuilder()
    x = b.input("x", (4, 4))
    [s] = b.add("softmax", [x], {"axis": -1})
    [u] = b.add("reshape", [s], {"shape": (16,)})
    [e] = b.add("exp", [u])
    [f] = b.add("reshape", [e], {"shape": (4, 4)})
    [m] = b.add("matmul", [f, s])
    run_levels(b.finish([m]), {"x": random(4, 4)})


def same_ops_apart() -> None:
    """Two nodes that differ in an attribute alone."""
    b = GraphBuilder()
    x = b.input("x", (3, 3))
    [p] = b.add("softmax", [x], {"axis": 0})
    [q] = b.add("softmax", [x], {"axis": 1})
    run_levels(b.finish([b.add("subtract", [p, q])[0]]), {"x": random(3, 3)})


def signed_zeros() -> None:
    """x - 0 keeps -0.0 and x - (-0.0) does not: levels 1 and 2 have the bits of level 0."""
    b = GraphBuilder()
    x = b.input("x", (4,))
    [y] = b.add("subtract", [x, b.constant(np.array(-0.0, np.float32), "zero")])
    g: Graph = b.finish([y])
    run_levels(g, {"x": np.array([-0.0, 0.0, 1.0, -2.0], np.float32)})


def small_variance() -> None:
    """A batch norm whose variance is not large beside its epsilon, after a convolution and after something else."""
    b = GraphBuilder()
    x = b.input("x", (1, 3, 5, 5))
    [y] = b.add("conv2d", [x, b.constant(random(4, 3, 1, 1), "w")])
    for number, source in enumerate((y, b.add("tanh", [x])[0])):
        channels = (4, 3)[number]
        statistics = [b.constant(random(channels, seed=s), f"s{number}{s}") for s in range(3)]
        variance = b.constant(np.full(channels, 2e-5, np.float32), f"variance{number}")
        [source] = b.add("batch_norm", [source, *statistics, variance], {"epsilon": 1e-5})
        y = source if number == 0 else b.add("concat", [y, source], {"axis": 1})[0]
    run_levels(b.finish([y]), {"x": random(1, 3, 5, 5)})
