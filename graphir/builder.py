"""Building graphs: `GraphBuilder` makes one node by node, `GraphEditor` remakes one with replacements.

Every node goes through `infer_node`, so shapes, dtypes and symbolic content are derived in one place from topi's
computes, and an operand that does not fit is an error that names the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphir import content, dims
from graphir.attrs import attr_text, canonical_attr
from graphir.errors import GraphError, ShapeError
from graphir.ir import Graph, Node, Symbol, Value, value_type
from tensorir import dtypes
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import UserError
from tensorir.expr import Expr, const
from tensorir.layout import Layout
from tensorir.origin import Origin
from topi.op import Op
from topi.registry import get_op

CONTENT_LIMIT = 64
"""Integer tensors of at most this many elements carry their symbolic content."""

Inferred = tuple[tuple[tuple[Expr, ...], DType], ...]
_INFERRED: dict[str, tuple[Inferred, Op]] = {}


class GraphBuilder:
    """A graph under construction. Names are made unique."""

    def __init__(self, name: str = "main", symbols: Sequence[Symbol] = ()) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, np.ndarray | None] = {}
        self.symbols: dict[str, Symbol] = {s.name: s for s in symbols}
        self.names: set[str] = set()
        self.node_names: set[str] = set()

    def unique(self, name: str) -> str:
        """A value name: `name`, or `name_1` and so on if it is taken; the result is taken from now on."""
        return _unique(name, self.names)

    def unique_node(self, name: str) -> str:
        """A node name, likewise; nodes and values may share names."""
        return _unique(name, self.node_names)

    def input(self, name: str, shape: Sequence[Any], dtype: DType | str = "float32") -> Value:
        """A new graph input; symbols in its shape join the graph's."""
        made = as_value(self.unique(name), dims.as_dims(shape), dtype_of(dtype))
        for d in made.shape:
            for v in dims.symbols_of(d):
                self.symbols.setdefault(v.name, Symbol(v.name))
        self.inputs.append(made)
        return made

    def constant(self, data: np.ndarray | None, name: str = "constant", *, like: Value | None = None) -> Value:
        """A new constant. Small integer data becomes content."""
        if data is None:
            assert like is not None
            made = replace(like, name=self.unique(name))
        else:
            made = constant_value(self.unique(name), data)
            if like is not None and not like.layout.is_plain:
                made = replace(like, name=made.name)
        self.constants[made] = data
        return made

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        origins: tuple[Origin, ...] = (),
        outputs: Sequence[str] | None = None,
        subgraphs: tuple[Graph, ...] = (),
    ) -> tuple[Value, ...]:
        """A new node; returns its outputs. A node whose results are known integers over the symbols is replaced by a
        `dims` node (or a constant)."""
        node_name = self.unique_node(name or op)
        kept = tuple(sorted((k, canonical_attr(v)) for k, v in (attrs or {}).items()))
        types = infer_node(op, tuple(inputs), kept, subgraphs, node_name, origins)
        names = list(outputs) if outputs else []
        while len(names) < len(types):
            names.append(f"{node_name}:{len(names)}" if len(types) > 1 else f"{node_name}:out")
        known = content.evaluate(op, tuple(inputs), dict(kept), types)
        if known is not None and op not in ("dims", "size"):
            return (self.integers(known, types[0][0], types[0][1], names[0], origins),)
        made = tuple(
            Value(self.unique(n), s, t, Layout.plain(len(s)), known, origins) for n, (s, t) in zip(names, types)
        )
        self.nodes.append(Node(op, tuple(inputs), made, kept, node_name, subgraphs, origins))
        return made

    def integers(
        self, values: Sequence[Expr], shape: Sequence[Expr], dtype: DType, name: str, origins: tuple[Origin, ...] = ()
    ) -> Value:
        """A tensor of integers over the symbols: a constant where all are numbers, else a `dims` node."""
        numbers = dims.constants(values)
        sizes = dims.constants(shape)
        if numbers is not None and sizes is not None:
            return self.constant(np.array(numbers, dtype=dtype.numpy).reshape(sizes), name)
        attrs = {"values": tuple(values), "shape": tuple(shape), "dtype": dtype}
        return self.add("dims", (), attrs, name=f"{name}.dims", outputs=[name], origins=origins)[0]

    def checkpoint(self) -> tuple[int, tuple[Value, ...]]:
        """A mark for `restore`."""
        return len(self.nodes), tuple(self.constants)

    def restore(self, mark: tuple[int, tuple[Value, ...]]) -> None:
        """Takes back the nodes and constants made since `mark`."""
        count, constants = mark
        del self.nodes[count:]
        self.constants = {v: self.constants[v] for v in constants}

    def size(self, count: Value, bound: Expr, name: str, origins: tuple[Origin, ...] = ()) -> Expr:
        """A new symbol that is the value of an int64 scalar at run time, at most `bound`."""
        symbol = dims.symbol(name)
        number = 0
        while symbol.name in self.symbols:
            number += 1
            symbol = dims.symbol(f"{name}_{number}")
        self.symbols[symbol.name] = Symbol(symbol.name)
        self.add("size", [count], {"symbol": symbol.name, "bound": bound}, name=f"{name}.size", origins=origins)
        return symbol

    def emit(self, node: Node) -> Node:
        """Adds a node as it is."""
        self.names.update(v.name for v in node.outputs)
        self.node_names.add(node.name)
        self.nodes.append(node)
        return node

    def finish(self, outputs: Sequence[Value], output_names: Sequence[str] = ()) -> Graph:
        """The graph; constants that nothing reads are left out."""
        used = {v for node in self.nodes for v in node.operands} | set(outputs)
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(outputs),
            tuple(self.nodes),
            {v: a for v, a in self.constants.items() if v in used},
            tuple(self.symbols.values()),
            tuple(output_names),
        )


def _unique(name: str, taken: set[str]) -> str:
    made, number = name, 0
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made


class GraphEditor(GraphBuilder):
    """Remakes a graph: walk `graph.nodes`, `keep` those that stay, `replace` values, `finish_edit`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name, graph.symbols)
        self.graph = graph
        self.inputs = list(graph.inputs)
        self.constants = dict(graph.constants)
        self.names = {v.name for v in (*graph.inputs, *graph.constants)}
        for node in graph.nodes:
            self.names.update(v.name for v in node.outputs)
            self.node_names.add(node.name)
        self.replaced: dict[Value, Value] = {}

    def current(self, value: Value) -> Value:
        """What stands for a value of the old graph now."""
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def mapped(self, node: Node) -> Node:
        """The node with its inputs as they are now; itself if they are the same."""
        new = tuple(None if v is None else self.current(v) for v in node.inputs)
        if all(a is b for a, b in zip(new, node.inputs, strict=True)):
            return node
        return replace(node, inputs=new)

    def keep(self, node: Node) -> Node:
        """Adds the node with its inputs as they are now."""
        made = self.mapped(node)
        self.nodes.append(made)
        return made

    def release(self, node: Node) -> None:
        """Makes the names of a node that does not stay free for what stands in its place."""
        self.names.difference_update(v.name for v in node.outputs)
        self.node_names.discard(node.name)

    def replace(self, old: Value, new: Value) -> None:
        """From now on readers of `old` read `new`."""
        if old is not new:
            self.replaced[old] = new

    def finish_edit(self) -> Graph:
        """The new graph; the old one itself if nothing changed."""
        graph = self.graph
        outputs = tuple(self.current(v) for v in graph.outputs)
        same_nodes = len(self.nodes) == len(graph.nodes) and all(a is b for a, b in zip(self.nodes, graph.nodes))
        if same_nodes and all(a is b for a, b in zip(outputs, graph.outputs)) and tuple(self.inputs) == graph.inputs:
            return graph
        return self.finish(outputs, graph.output_names)


def as_value(name: str, shape: tuple[Expr, ...], dtype: DType) -> Value:
    """A value of plain layout."""
    return Value(name, shape, dtype, Layout.plain(len(shape)))


def constant_value(name: str, data: np.ndarray) -> Value:
    """The value of a constant; small integers and bools carry their content."""
    dtype = dtype_of(data.dtype)
    known: tuple[Expr, ...] | None = None
    if (dtype.is_integer or dtype.is_bool) and data.size <= CONTENT_LIMIT:
        known = tuple(const(int(x)) for x in data.reshape(-1).tolist())
    return Value(name, dims.as_dims(data.shape), dtype, Layout.plain(data.ndim), known)


def infer_node(
    op: str,
    inputs: tuple[Value | None, ...],
    attrs: tuple[tuple[str, Any], ...],
    subgraphs: tuple[Graph, ...],
    name: str,
    origins: tuple[Origin, ...],
) -> Inferred:
    """Shapes and dtypes of a node's results. Raises `ShapeError` naming the node, its op, its operands and where it
    came from."""
    if op == "dims":
        found = dict(attrs)
        return ((dims.as_dims(found["shape"]), found["dtype"]),)
    if op == "size":
        return (((), dtypes.int64),)
    if op == "group":
        return tuple((v.shape, v.dtype) for v in subgraphs[0].outputs)
    if op == "if":
        return _infer_if(subgraphs, name, origins)
    if op == "loop":
        return _infer_loop(inputs, dict(attrs), subgraphs[0], name, origins)
    operands = ";".join("-" if v is None else f"{v.dtype}{dims.shape_text(v.shape)}" for v in inputs)
    key = f"{op}({operands})" + ",".join(f"{k}={attr_text(v)}" for k, v in attrs)
    definition = get_op(op)
    if (known := _INFERRED.get(key)) is not None and known[1] is definition:
        return known[0]
    try:
        types = definition.infer([None if v is None else (v.shape, v.dtype) for v in inputs], dict(attrs))
    except UserError as error:
        listed = ", ".join("none" if v is None else f"{v.name}: {value_type(v)}" for v in inputs)
        place = f" (from {origins[0].place})" if origins and origins[0].place != name else ""
        raise ShapeError(
            f"node {name}{place}: {op} does not fit its operands: {error.message}",
            notes=(f"  operands: {listed}", *error.notes),
            help=error.help,
        ) from None
    result = tuple((tuple(dims.canonical(d) for d in s), t) for s, t in types)
    _INFERRED[key] = (result, definition)
    return result


def _infer_loop(
    inputs: tuple[Value | None, ...], attrs: dict[str, Any], body: Graph, name: str, origins: tuple[Origin, ...]
) -> Inferred:
    carried = int(attrs["carried"])
    place = f" (from {origins[0].place})" if origins else ""
    if not body.outputs or not body.outputs[0].dtype.is_bool:
        raise GraphError(f"node {name}{place}: the first output of a loop's body is its condition, a bool")
    for number, (given, made) in enumerate(zip(inputs[2 : 2 + carried], body.outputs[1 : 1 + carried], strict=True)):
        assert given is not None
        if given.dtype != made.dtype or not dims.same_shape(given.shape, made.shape):
            raise GraphError(
                f"node {name}{place}: carried value {number} of the loop is {value_type(given)} at first and "
                f"{value_type(made)} after an iteration",
                help="a carried value keeps its type and shape",
            )
    trips = attrs.get("trips")
    stacks = body.outputs[1 + carried :]
    if trips is None and stacks:
        raise GraphError(
            f"node {name}{place}: how often the loop runs is known only at run time, so the size of its outputs is not"
        )
    finals = tuple((v.shape, v.dtype) for v in body.outputs[1 : 1 + carried])
    return finals + tuple(((dims.as_dim(trips), *v.shape), v.dtype) for v in stacks)


def _infer_if(subgraphs: tuple[Graph, ...], name: str, origins: tuple[Origin, ...]) -> Inferred:
    then, otherwise = subgraphs
    result = []
    for number, (a, b) in enumerate(zip(then.outputs, otherwise.outputs, strict=True)):
        if a.dtype != b.dtype or not dims.same_shape(a.shape, b.shape):
            place = f" (from {origins[0].place})" if origins else ""
            raise GraphError(
                f"node {name}{place}: output {number} of the If is {value_type(a)} in one branch and {value_type(b)} "
                "in the other",
                help="both branches must give the same type and shape",
            )
        result.append((a.shape, a.dtype))
    return tuple(result)
