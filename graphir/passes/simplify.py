"""Algebra that keeps every bit: nodes that give their operand back, and chains of moves that are one move.

    identity(x)                        x
    cast(x) to its own dtype           x
    reshape(reshape(x))                reshape(x)
    reshape(x) to its own shape        x            (any view op, expand, concat of one, sum of one)
    transpose(transpose(x))            transpose(x), or x
    x * 1, x / 1, x - 0                x

`x + 0` stays: it turns -0.0 into 0.0. Each rule is a function in `RULES`; the first that applies is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphir import dims
from graphir.axes import joined, transpose_axes
from graphir.builder import GraphEditor
from graphir.ir import GRAPH_OPS, Graph, Node, Value
from topi.registry import get_op

Rule = Callable[["_Walk", Node], "Value | None"]


class _Walk:
    """The edit under way and who makes what in it."""

    def __init__(self, graph: Graph) -> None:
        self.edit = GraphEditor(graph)
        self.made: dict[Value, Node] = {}

    def producer(self, v: Value, op: str) -> Node | None:
        """The node that makes `v` if it is this op."""
        node = self.made.get(v)
        return node if node is not None and node.op == op else None

    def constant(self, v: Value) -> np.ndarray | None:
        """The data of a constant."""
        return self.edit.constants.get(v)


def simplify(graph: Graph, context: Any = None) -> Graph:
    """The graph with the rules applied to every node, in dependence order."""
    walk = _Walk(graph)
    for node in graph.nodes:
        made = walk.edit.mapped(node)
        result = next((r for r in (rule(walk, made) for rule in RULES) if r is not None), None)
        if result is not None:
            if context is not None:
                context.note(f"simplify: {node.name} ({node.op}) becomes {result.name}")
            walk.edit.replace(node.output, result)
            continue
        walk.edit.nodes.append(made)
        walk.made.update({v: made for v in made.outputs})
    return walk.edit.finish_edit()


def _same_type(a: Value, b: Value) -> bool:
    return a.dtype == b.dtype and dims.same_shape(a.shape, b.shape) and a.layout == b.layout


def _gives_back(walk: _Walk, node: Node) -> Value | None:
    """A node that moves nothing: same elements, same type."""
    if len(node.outputs) != 1 or len(node.operands) != 1 or node.op in GRAPH_OPS:
        return None
    x = node.operands[0]
    if not _same_type(x, node.output):
        return None
    if node.op in ("identity", "cast", "expand", "layout_transform") or (
        node.op in _ONE_OPERAND and len(node.inputs) == 1
    ):
        return x
    if node.op == "slice" and all(isinstance(k, int) and k > 0 for k in node.attributes.get("steps") or ()):
        return x
    return x if node.op not in ("dims",) and get_op(node.op).view else None


_ONE_OPERAND = ("concat", "sum_of", "max_of", "min_of", "mean_of")


def _view_of_view(walk: _Walk, node: Node) -> Value | None:
    """Two views in a row are one reshape of the first operand."""
    if node.op in _NOT_OPS or not get_op(node.op).view or len(node.operands) != 1:
        return None
    inner = walk.made.get(node.operands[0])
    if inner is None or inner.op in _NOT_OPS or not get_op(inner.op).view:
        return None
    x = inner.operands[0]
    if _same_type(x, node.output):
        return x
    if not dims.same(dims.product(x.shape), dims.product(node.output.shape)):
        return None
    attrs = {"shape": node.output.shape, "allowzero": True}
    return _add(walk, "reshape", x, attrs, node)


_NOT_OPS = GRAPH_OPS


def _transposes(walk: _Walk, node: Node) -> Value | None:
    """Two transposes in a row are one; one that keeps the order of the axes is none."""
    if node.op != "transpose":
        return None
    x, axes = node.operands[0], transpose_axes(node)
    inner = walk.producer(x, "transpose")
    if inner is not None:
        x, axes = inner.operands[0], joined(transpose_axes(inner), axes)
    if axes == tuple(range(x.rank)):
        return x
    return None if inner is None else _add(walk, "transpose", x, {"axes": axes}, node)


def _neutral(walk: _Walk, node: Node) -> Value | None:
    """x * 1, x / 1, x - 0 where the constant does not change the type."""
    neutral = {"multiply": 1, "divide": 1, "subtract": 0}.get(node.op)
    if neutral is None or len(node.inputs) != 2:
        return None
    a, b = node.operands
    pairs = [(a, b), (b, a)] if node.op == "multiply" else [(a, b)]
    for x, other in pairs:
        data = walk.constant(other)
        if data is not None and data.size and _same_type(x, node.output) and bool(np.all(data == neutral)):
            if node.op == "subtract" and bool(np.any(np.signbit(data.astype(np.float64)))):
                continue  # x - (-0.0) turns -0.0 into 0.0
            return x
    return None


def _add(walk: _Walk, op: str, x: Value, attrs: dict[str, Any], node: Node) -> Value:
    walk.edit.release(node)
    [made] = walk.edit.add(op, [x], attrs, name=node.name, origins=node.origins, outputs=[node.output.name])
    if walk.edit.nodes and made in walk.edit.nodes[-1].outputs:
        walk.made[made] = walk.edit.nodes[-1]
    return made


RULES: tuple[Rule, ...] = (_gives_back, _transposes, _view_of_view, _neutral)
