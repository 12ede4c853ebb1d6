"""JSON out and in, in the NNVM symbol form: nodes, arg_nodes, heads, attrs.

A node is {"op", "name", "inputs": [[node, output, 0], ...], "attrs": {name: text}}; inputs and constants are nodes of
op "null". Attributes are text in the literal form of `graphir.attrs`. Shapes, dtypes and layouts stand in "attrs" as
lists with one entry for every output of every node, in the order of "node_row_ptr". An optional operand that is left
out is [-1, 0, 0]. Additions to the form: "subgraphs" in a node, and in the graph "name", "symbols" and "outputs" (the
names that the user sees). A constant is given by its hash; its data comes from `params`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphir import dims
from graphir.attrs import attr_text, parse_attr, parse_layout
from graphir.builder import constant_value
from graphir.errors import GraphError
from graphir.ir import Graph, Node, Symbol, Value, data_hash
from tensorir.dtypes import dtype_of
from tensorir.layout import Layout
from tensorir.origin import Origin


def graph_json(graph: Graph) -> str:
    """The JSON text of a graph."""
    return json.dumps(_encode(graph), indent=1)


def _encode(graph: Graph) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    places: dict[Value, tuple[int, int]] = {}
    values: list[Value] = []
    rows = [0]

    def add(entry: dict[str, Any], outputs: tuple[Value, ...]) -> None:
        for number, v in enumerate(outputs):
            places[v] = (len(nodes), number)
        values.extend(outputs)
        rows.append(rows[-1] + len(outputs))
        nodes.append(entry)

    for v in graph.inputs:
        add({"op": "null", "name": v.name, "inputs": []}, (v,))
    for v, data in graph.constants.items():
        digest = "" if data is None else data_hash(data)
        add({"op": "null", "name": v.name, "inputs": [], "attrs": {"constant": digest}}, (v,))
    for node in graph.nodes:
        entry: dict[str, Any] = {
            "op": node.op,
            "name": node.name,
            "inputs": [[-1, 0, 0] if v is None else [*places[v], 0] for v in node.inputs],
            "attrs": {k: attr_text(v) for k, v in node.attrs},
            "outputs": [v.name for v in node.outputs],
        }
        if node.implementation:
            entry["implementation"] = node.implementation
        if node.origins:
            entry["origins"] = [[o.kind, o.place] for o in node.origins]
        if node.subgraphs:
            entry["subgraphs"] = [_encode(s) for s in node.subgraphs]
        add(entry, node.outputs)
    return {
        "name": graph.name,
        "nodes": nodes,
        "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"],
        "node_row_ptr": rows,
        "heads": [[*places[v], 0] for v in graph.outputs],
        "attrs": {
            "shape": ["list_shape", [[_dim_json(d) for d in v.shape] for v in values]],
            "dtype": ["list_str", [str(v.dtype) for v in values]],
            "layout": ["list_str", ["" if v.layout.is_plain else str(v.layout) for v in values]],
            "content": ["list_str", ["" if v.content is None else attr_text(v.content) for v in values]],
        },
        "symbols": [[s.name, s.low, s.high] for s in graph.symbols],
        "outputs": list(graph.output_names),
    }


def _dim_json(d: Any) -> int | str:
    known = dims.constant(d)
    return dims.text(d) if known is None else known


def graph_from_json(text: str, params: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph of a JSON text. Raises `GraphError` where the text is not such a graph, or `params` does not fit."""
    try:
        return _decode(json.loads(text), params or {})
    except (json.JSONDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise GraphError(
            f"this is not a graph in the NNVM symbol form: {type(error).__name__}: {error}",
            help="it is an object with nodes, arg_nodes, heads and attrs",
        ) from None


def _decode(data: dict[str, Any], params: Mapping[str, np.ndarray]) -> Graph:
    shapes, types = data["attrs"]["shape"][1], data["attrs"]["dtype"][1]
    layouts, contents = data["attrs"]["layout"][1], data["attrs"]["content"][1]
    rows = data["node_row_ptr"]
    made: list[tuple[Value, ...]] = []
    inputs: list[Value] = []
    constants: dict[Value, np.ndarray | None] = {}
    nodes: list[Node] = []

    def value(name: str, row: int, origins: tuple[Origin, ...] = ()) -> Value:
        shape = dims.as_dims(shapes[row])
        layout = parse_layout(layouts[row]) if layouts[row] else Layout.plain(len(shape))
        content = parse_attr(contents[row]) if contents[row] else None
        known = None if content is None else tuple(dims.as_dim(c) for c in content)
        return Value(name, shape, dtype_of(types[row]), layout, known, origins)

    for number, entry in enumerate(data["nodes"]):
        name, row = entry["name"], rows[number]
        if entry["op"] == "null":
            made.append((value(name, row),))
            if "constant" in entry.get("attrs", {}):
                constants[made[-1][0]] = _constant_data(made[-1][0], entry["attrs"]["constant"], params)
            else:
                inputs.append(made[-1][0])
            continue
        origins = tuple(Origin(kind, place) for kind, place in entry.get("origins", []))
        outputs = tuple(value(n, row + i, origins) for i, n in enumerate(entry["outputs"]))
        made.append(outputs)
        nodes.append(
            Node(
                entry["op"],
                tuple(None if n < 0 else made[n][o] for n, o, _ in entry["inputs"]),
                outputs,
                tuple(sorted((k, parse_attr(v)) for k, v in entry["attrs"].items())),
                name,
                tuple(_decode(s, params) for s in entry.get("subgraphs", [])),
                origins,
                entry.get("implementation"),
            )
        )
    heads = tuple(made[n][o] for n, o, _ in data["heads"])
    symbols = tuple(Symbol(n, low, high) for n, low, high in data["symbols"])
    return Graph(data["name"], tuple(inputs), heads, tuple(nodes), constants, symbols, tuple(data["outputs"]))


def _constant_data(v: Value, digest: str, params: Mapping[str, np.ndarray]) -> np.ndarray | None:
    data = params.get(v.name)
    if data is None:
        if v.content is not None and (numbers := dims.constants(v.content)) is not None:
            sizes = dims.constants(v.shape)
            assert sizes is not None
            return np.array(numbers, dtype=v.dtype.numpy).reshape(sizes)
        return None
    found = constant_value(v.name, data)
    if found.dtype != v.dtype or (v.layout.is_plain and not dims.same_shape(found.shape, v.shape)):
        raise GraphError(
            f"the parameter {v.name} is {found.dtype}{dims.shape_text(found.shape)}, "
            f"but the graph says {v.dtype}{dims.shape_text(v.shape)}"
        )
    if digest and data_hash(data) != digest:
        raise GraphError(f"the parameter {v.name} is not the data this graph was written with")
    return data
