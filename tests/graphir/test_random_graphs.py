"""Random small graphs agree with numpy at every opt level, levels 1 and 2 with the bits of level 0."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphir.builder import GraphBuilder
from graphir.ir import Graph, Value
from tests.graphir.graphs import random, run_levels

UNARY = ("relu", "sigmoid", "tanh", "negative", "identity", "abs")
BINARY = ("add", "multiply", "maximum", "subtract")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of 2 to 7 nodes over matrices of a few shapes, one dimension of them symbolic at times."""
    rows, columns = draw(st.sampled_from([(3, 5), (1, 16), (7, 17)]))
    symbolic = draw(st.booleans())
    b = GraphBuilder()
    shape = ("n" if symbolic else rows, columns)
    values: list[Value] = [b.input("x", shape), b.input("y", shape)]
    square = b.constant(random(columns, columns, seed=9) / columns, "w")
    row = b.constant(random(1, columns, seed=8), "row")
    for _ in range(draw(st.integers(2, 7))):
        x = values[draw(st.integers(max(0, len(values) - 3), len(values) - 1))]
        match draw(st.sampled_from(["unary", "binary", "binary", "matmul", "row", "softmax", "reduce", "move"])):
            case "unary":
                [v] = b.add(draw(st.sampled_from(UNARY)), [x])
            case "binary":
                [v] = b.add(draw(st.sampled_from(BINARY)), [x, values[draw(st.integers(0, len(values) - 1))]])
            case "matmul":
                [v] = b.add("matmul", [x, square])
            case "row":
                [v] = b.add("add", [x, row])
            case "softmax":
                [v] = b.add("softmax", [x], {"axis": -1})
            case "reduce":
                [m] = b.add("mean", [x], {"axes": (1,), "keepdims": True})
                [v] = b.add("subtract", [x, m])
            case _:
                [t] = b.add("transpose", [x], {"axes": (1, 0)})
                [t] = b.add("relu", [t])
                [v] = b.add("transpose", [t], {"axes": (1, 0)})
        values.append(v)
    extra = values[draw(st.integers(0, len(values) - 1))]
    g = b.finish([values[-1], extra], ["last", "extra"])
    return g, {"x": random(rows, columns), "y": random(rows, columns, seed=1)}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(graphs())
def test_random_graphs_agree_at_every_level(case: tuple[Graph, dict[str, np.ndarray]]) -> None:
    run_levels(*case, 2e-5)
