"""Sequences of tensors whose length is known when compiling: they exist in the front end only, as tuples of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.errors import ModelError, UnsupportedError
from graphir.frontends.onnx.registry import converter
from graphir.ir import Value
from tensorir.expr import Expr, const

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer


def _sequence(node: OnnxNode, index: int = 0) -> tuple[Value, ...]:
    found = node.inputs[index] if index < len(node.inputs) else None
    if not isinstance(found, tuple):
        raise ModelError(f"node {node.name}: operand {index} of {node.op_type} is not a sequence")
    return found


def _position(importer: _Importer, node: OnnxNode, index: int, length: int, *, end: bool = False) -> int:
    if index >= len(node.inputs) or node.inputs[index] is None:
        return length if end else length - 1
    place = importer.known(node.operand(index), node, "the position")
    place = place[0] if isinstance(place, tuple) else place
    if isinstance(place, Expr):
        raise UnsupportedError(f"node {node.name}: the position depends on a size", missing={node.op_type: [node.name]})
    highest = length if end else length - 1
    if not -length <= place <= highest:
        raise ModelError(f"node {node.name}: position {place} of a sequence of {length}")
    return place + length if place < 0 else int(place)


@converter("SequenceEmpty")
def _empty(importer: _Importer, node: OnnxNode) -> list[Any]:
    return [()]


@converter("SequenceConstruct")
def _construct(importer: _Importer, node: OnnxNode) -> list[Any]:
    return [tuple(node.operand(i) for i in range(len(node.inputs)))]


@converter("SequenceAt")
def _at(importer: _Importer, node: OnnxNode) -> list[Any]:
    items = _sequence(node)
    return [items[_position(importer, node, 1, len(items))]]


@converter("SequenceLength")
def _length(importer: _Importer, node: OnnxNode) -> list[Any]:
    return [importer.builder.constant(np.array(len(_sequence(node)), np.int64), node.outputs[0])]


@converter("SequenceInsert")
def _insert(importer: _Importer, node: OnnxNode) -> list[Any]:
    items = _sequence(node)
    place = _position(importer, node, 2, len(items), end=True)
    return [(*items[:place], node.operand(1), *items[place:])]


@converter("SequenceErase")
def _erase(importer: _Importer, node: OnnxNode) -> list[Any]:
    items = _sequence(node)
    place = _position(importer, node, 1, len(items))
    return [(*items[:place], *items[place + 1 :])]


@converter("SplitToSequence")
def _split(importer: _Importer, node: OnnxNode) -> list[Any]:
    """Slices of the operand; without sizes, each element on its own, its axis dropped unless keepdims."""
    x = node.operand(0)
    axis = int(node.attrs.get("axis", 0)) % max(x.rank, 1)
    total = dims.constant(x.shape[axis])
    sizes: Any = None if node.input(1) is None else importer.known(node.operand(1), node, "the sizes")
    if isinstance(sizes, (int, Expr)) or sizes is None:
        size = 1 if sizes is None else sizes
        if total is None or isinstance(size, Expr):
            raise UnsupportedError(
                f"node {node.name}: the length of the sequence is known only at run time",
                missing={node.op_type: [node.name]},
            )
        sizes_list = [size] * (total // size) + ([total % size] if total % size else [])
    else:
        sizes_list = list(sizes)
    items: list[Value] = []
    start: Expr = const(0)
    for size in sizes_list:
        end = dims.canonical(start + dims.as_dim(size))
        attrs = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (1,)}
        [piece] = importer.builder.add("slice", [x], attrs, name=node.name, origins=node.origins)
        if sizes is None and not node.attrs.get("keepdims", 1):
            [piece] = importer.builder.add("squeeze", [piece], {"axes": (axis,)}, origins=node.origins)
        items.append(piece)
        start = end
    return [tuple(items)]


@converter("ConcatFromSequence")
def _concat(importer: _Importer, node: OnnxNode) -> list[Any]:
    items = list(_sequence(node))
    axis = int(node.attrs["axis"])
    if node.attrs.get("new_axis", 0):
        items = [importer.builder.add("unsqueeze", [v], {"axes": (axis,)})[0] for v in items]
    return importer.add("concat", items, {"axis": axis}, node)
