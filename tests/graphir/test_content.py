"""Symbolic content: shape arithmetic that leaves no nodes."""

from __future__ import annotations

import numpy as np

from graphir import dims
from graphir.builder import GraphBuilder
from tests.graphir.graphs import ops, run_levels


def test_shape_arithmetic_has_content() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n", 6, "m"))
    shape = b.integers(x.shape, dims.as_dims((3,)), dims_type(), "shape")
    [first] = b.add("gather", [shape, b.constant(np.array([0], np.int64), "i0")])
    [rest] = b.add("slice", [shape], {"starts": (1,), "ends": (3,), "axes": (0,)})
    [product] = b.add("prod", [rest], {"axes": (0,), "keepdims": True})
    [target] = b.add("concat", [first, product], {"axis": 0})
    assert target.content is not None
    assert [dims.text(c) for c in target.content] == ["n", "6*m"]
    [doubled] = b.add("multiply", [target, b.constant(np.array([2, 3], np.int64), "k")])
    assert doubled.content is not None and [dims.text(c) for c in doubled.content] == ["2*n", "18*m"]
    [y] = b.add("reshape", [x], {"shape": target.content})
    g = b.finish([y]).apply("dead_nodes")
    assert ops(g) == ["reshape"]
    assert dims.shape_text(y.shape) == "[n, 6*m]"


def dims_type() -> object:
    from tensorir import dtypes

    return dtypes.int64


def test_content_that_is_data_is_filled_in_at_run_time() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n", 4))
    shape = b.integers(x.shape, dims.as_dims((2,)), dims_type(), "shape")
    g = b.finish([shape, b.add("relu", [x])[0]], ["shape", "y"])
    assert ops(g) == ["dims", "relu"]
    run_levels(g, {"x": np.ones((3, 4), np.float32)})


def test_conditions_and_choices_follow_content() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n",))
    shape = b.integers(x.shape, dims.as_dims((1,)), dims_type(), "shape")
    minus = b.constant(np.array([-1], np.int64), "minus")
    [same] = b.add("equal", [shape, minus])
    [chosen] = b.add("where", [same, minus, shape])
    assert chosen.content is not None and chosen.content[0] is dims.symbol("n")


def test_an_index_that_depends_on_a_symbol_stays_a_node() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n",))
    shape = b.integers(x.shape, dims.as_dims((1,)), dims_type(), "shape")
    [y] = b.add("gather", [b.constant(np.arange(5), "table"), shape])
    assert y.content is None
