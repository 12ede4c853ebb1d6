"""Graphs as text, JSON and pictures, and the verifier."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import nestor as nt
from graphir import dims
from graphir.builder import GraphBuilder
from graphir.errors import GraphError, ShapeError
from graphir.ir import Graph
from graphir.verify import verify_graph
from tensorir.errors import InternalError
from tests.graphir.graphs import random


def small() -> Graph:
    b = GraphBuilder()
    x = b.input("x", ("n", 3))
    w = b.constant(random(3, 4), "w")
    [y] = b.add("matmul", [x, w], name="mm")
    [z] = b.add("clip", [y, None, b.constant(np.array(6, np.float32), "six")], name="cl")
    [r] = b.add("reshape", [z], {"shape": (-1, 2)}, name="rs")
    return b.finish([r, y], ["out", "mid"])


def test_text_names_everything_and_holds_no_weights() -> None:
    text = repr(small())
    assert "graph main(x: float32[n, 3]; n)" in text
    assert "mm:out: float32[n, 4] = matmul(x, w)" in text
    assert "clip(mm:out, none, six)" in text
    assert "const w: float32[3, 4] #" in text
    assert "return out=rs:out, mid=mm:out" in text


def test_json_is_the_nnvm_form_and_comes_back() -> None:
    g = small()
    data = json.loads(g.json())
    assert {"nodes", "arg_nodes", "heads", "attrs", "node_row_ptr"} <= set(data)
    assert [data["nodes"][i]["op"] for i in data["arg_nodes"]] == ["null"] * 3
    assert data["heads"] == [[5, 0, 0], [3, 0, 0]]
    back = Graph.from_json(g.json(), g.params())
    assert repr(back) == repr(g) and back.json() == g.json()
    verify_graph(back)


def test_json_without_parameters_keeps_types() -> None:
    back = Graph.from_json(small().json())
    assert "const w: float32[3, 4] (data not given)" in repr(back)


def test_json_with_subgraphs_and_layouts_comes_back() -> None:
    sym = nt.sym
    net = sym.relu(sym.conv2d(sym.Variable("data"), channels=16, kernel_size=(3, 3), padding=(1, 1)))
    g = nt.from_symbol(net, shapes={"data": (1, 3, 12, 12)}).apply("layouts", "fold_constants", "fuse")
    assert "group" in [n.op for n in g.nodes]
    back = Graph.from_json(g.json(), g.params())
    assert repr(back) == repr(g)


def test_json_of_something_else() -> None:
    for text in ("", "{}", '{"nodes": 3}', "[1, 2]"):
        with pytest.raises(GraphError, match="not a graph in the NNVM symbol form"):
            Graph.from_json(text)


def test_json_with_parameters_that_do_not_fit() -> None:
    g = small()
    with pytest.raises(GraphError, match="the parameter w is float32.2, 2."):
        Graph.from_json(g.json(), {"w": random(2, 2)})
    with pytest.raises(GraphError, match="not the data this graph was written with"):
        Graph.from_json(g.json(), {"w": random(3, 4, seed=1)})


def test_svg_shows_every_op(tmp_path: object) -> None:
    picture = small().svg(f"{tmp_path}/g.svg")
    assert picture.startswith("<svg") and all(op in picture for op in ("matmul", "clip", "reshape"))


def test_verifier_finds_each_fault() -> None:
    g = verify_graph(small())
    mm, cl, rs = g.nodes
    wrong_shape = dataclasses.replace(mm.output, shape=dims.as_dims((7, 4)))
    faults = {
        "reads mm:out before it is defined": dataclasses.replace(g, nodes=(cl, mm, rs)),
        "is defined twice": dataclasses.replace(g, nodes=(mm, mm, cl, rs)),
        "is not defined": dataclasses.replace(g, outputs=(dataclasses.replace(mm.output),) * 2),
        "the op gives float32": dataclasses.replace(
            g, nodes=(dataclasses.replace(mm, outputs=(wrong_shape,)),), outputs=(wrong_shape,), output_names=("a",)
        ),
        "is not one of the graph's": dataclasses.replace(g, symbols=()),
        "outputs have": dataclasses.replace(g, output_names=("a", "b", "c")),
    }
    for message, broken in faults.items():
        with pytest.raises(InternalError, match=message):
            verify_graph(broken)


def test_operands_that_do_not_fit_name_node_op_and_shapes() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (2, 3)), b.input("y", (4, 5))
    with pytest.raises(ShapeError) as caught:
        b.add("matmul", [x, y], name="product")
    message = str(caught.value)
    assert "node product" in message and "matmul" in message
    assert "x: float32[2, 3]" in message and "y: float32[4, 5]" in message


def test_shapes_can_be_fixed_later() -> None:
    g = small().infer({"x": (6, None)})
    assert "return out" in repr(g) and "float32[12, 2]" in repr(g) and not g.symbols
    with pytest.raises(ShapeError, match="no input called 'z'"):
        small().infer({"z": (1,)})
    with pytest.raises(ShapeError, match="dimension 1 of the input x is 3, not 4"):
        small().infer({"x": (None, 4)})
