"""Derives every shape, dtype and content of a graph again, in dependence order.

Run when a graph comes in, and with `shapes` to fix dimensions of inputs: the symbols that stand there are replaced
everywhere, attributes included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphir import dims
from graphir.attrs import attr_text
from graphir.builder import GraphBuilder
from graphir.errors import ShapeError
from graphir.ir import Graph, Node, Symbol, Value, subgraph_inputs
from tensorir.expr import Expr


def infer_pass(graph: Graph, context: Any = None) -> Graph:
    """The pass: nothing is fixed, everything is checked; content that is now known replaces its nodes."""
    return infer(graph, None)


def infer(graph: Graph, shapes: Mapping[str, Sequence[Any]] | None = None) -> Graph:
    """The graph with all types derived again, the dimensions in `shapes` fixed (None keeps one)."""
    values = _bindings(graph, shapes or {})
    return _infer(graph, values, None)


def _bindings(graph: Graph, shapes: Mapping[str, Sequence[Any]]) -> dict[str, Expr]:
    """Symbol names to what they become."""
    by_name = {v.name: v for v in graph.inputs}
    found: dict[str, Expr] = {}
    for name, wanted in shapes.items():
        if name not in by_name:
            raise ShapeError(f"shapes: the graph has no input called {name!r}", help=f"it has {', '.join(by_name)}")
        shape = by_name[name].shape
        if len(wanted) != len(shape):
            raise ShapeError(f"shapes: the input {name} has {len(shape)} dimensions, but {len(wanted)} sizes are given")
        for axis, (d, size) in enumerate(zip(shape, wanted, strict=True)):
            if size is None:
                continue
            new = dims.symbol(size) if isinstance(size, str) else dims.as_dim(size)
            names = dims.symbols_of(d)
            if len(names) == 1 and d is names[0]:
                if found.setdefault(names[0].name, new) is not new and not dims.same(found[names[0].name], new):
                    raise ShapeError(
                        f"shapes: the symbol {names[0].name} would be {dims.text(found[names[0].name])} and {size}"
                    )
            elif not dims.same(d, new):
                raise ShapeError(f"shapes: dimension {axis} of the input {name} is {dims.text(d)}, not {size}")
    return found


def _infer(graph: Graph, values: Mapping[str, Expr], given: Sequence[tuple[Expr, ...]] | None) -> Graph:
    builder = GraphBuilder(graph.name, [s for s in graph.symbols if s.name not in values])
    for e in values.values():
        for symbol in dims.symbols_of(e):
            builder.symbols.setdefault(symbol.name, Symbol(symbol.name))
    new: dict[Value, Value] = {}
    changed = False
    for number, v in enumerate(graph.inputs):
        shape = tuple(dims.substitute(d, values) for d in v.shape) if given is None else given[number]
        new[v] = v if dims.same_shape(shape, v.shape) else replace(v, shape=shape)
        builder.inputs.append(new[v])
        builder.names.add(v.name)
    for v, data in graph.constants.items():
        new[v] = v
        builder.constants[v] = data
        builder.names.add(v.name)
    for node in graph.nodes:
        made = _infer_node(node, new, values, builder)
        changed = changed or made is not node
    if not changed and all(new[v] is v for v in graph.inputs):
        return graph
    return builder.finish([new[v] for v in graph.outputs], graph.output_names)


def _infer_node(node: Node, new: dict[Value, Value], values: Mapping[str, Expr], builder: GraphBuilder) -> Node | None:
    """The node again; itself when everything about it is as it was."""
    inputs = tuple(None if v is None else new[v] for v in node.inputs)
    attrs = {k: _substitute(v, values) for k, v in node.attrs}
    captured = [g[0] for g in subgraph_inputs(replace(node, inputs=inputs)) if g is not None]
    subgraphs = tuple(_infer(s, values, captured) for s in node.subgraphs)
    before = len(builder.nodes)
    made = builder.add(
        node.op, inputs, attrs, name=node.name, origins=node.origins, outputs=[v.name for v in node.outputs],
        subgraphs=subgraphs,
    )  # fmt: skip
    same_layouts = []
    unchanged = len(builder.nodes) == before + 1
    for old, fresh in zip(node.outputs, made, strict=True):
        kept = old
        if not unchanged or fresh.dtype != old.dtype or not dims.same_shape(fresh.shape, old.shape):
            kept = fresh
        elif (fresh.content is None) != (old.content is None):
            kept = fresh
        elif fresh.content is not None and not dims.same_shape(fresh.content, old.content or ()):
            kept = fresh
        new[old] = kept
        same_layouts.append(kept)
    if not unchanged:
        return None
    last = builder.nodes[-1]
    same = (
        all(a is b for a, b in zip(inputs, node.inputs))
        and all(a is b for a, b in zip(subgraphs, node.subgraphs))
        and all(a is b for a, b in zip(same_layouts, node.outputs))
        and all(a is b or attr_text(a) == attr_text(b) for (_, a), (_, b) in zip(last.attrs, node.attrs))
    )
    builder.nodes[-1] = node if same else replace(last, outputs=tuple(same_layouts), implementation=node.implementation)
    return builder.nodes[-1]


def _substitute(value: Any, values: Mapping[str, Expr]) -> Any:
    if isinstance(value, tuple):
        return tuple(_substitute(v, values) for v in value)
    return dims.substitute(value, values) if isinstance(value, Expr) and values else value
