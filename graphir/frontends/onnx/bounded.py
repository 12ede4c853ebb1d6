"""Operators whose results have a size that the data decide: the op gives room for the most there can be and a count,
and the count becomes a symbol of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphir import dims
from graphir.errors import UnsupportedError
from graphir.frontends.onnx.registry import converter
from graphir.ir import Value
from tensorir.expr import Expr

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer


def _counted(
    importer: _Importer, node: OnnxNode, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], axis: int
) -> tuple[list[Value], Expr]:
    """The results of an op whose last one counts, and the symbol of that count; at most the extent of `axis` of the
    first result."""
    made = importer.builder.add(op, inputs, attrs, name=node.name, origins=node.origins)
    *results, count = made
    size = importer.builder.size(count, results[0].shape[axis], f"{node.name}_count", node.origins)
    return results, size


def _first(importer: _Importer, v: Value, axis: int, size: Expr, name: str | None) -> Value:
    """The first `size` elements along an axis."""
    return importer.builder.add("leading", [v], {"axis": axis, "size": size}, outputs=[name] if name else None)[0]


@converter("NonZero")
def _nonzero(importer: _Importer, node: OnnxNode) -> list[Value]:
    """The indices of non-zero elements as columns."""
    x = node.operand(0)
    if x.rank == 0:
        [x] = importer.builder.add("reshape", [x], {"shape": (1,)})
    [padded], size = _counted(importer, node, "nonzero", [x], {}, 1)
    return [_first(importer, padded, 1, size, node.outputs[0])]


@converter("Unique")
def _unique(importer: _Importer, node: OnnxNode) -> list[Value]:
    """Of all elements, or along the one axis of a vector."""
    x = node.operand(0)
    axis = node.attrs.get("axis")
    if axis is not None and x.rank != 1:
        raise UnsupportedError(f"node {node.name}: Unique of slices along an axis", missing={"Unique": [node.name]})
    if x.rank != 1:
        [x] = importer.builder.add("reshape", [x], {"shape": (dims.product(x.shape),)})
    attrs = {"is_sorted": bool(node.attrs.get("sorted", 1))}
    [values, first, inverse, counts], size = _counted(importer, node, "unique", [x], attrs, 0)
    names = [*node.outputs, *[""] * (4 - len(node.outputs))]
    results = [
        _first(importer, values, 0, size, names[0]),
        _first(importer, first, 0, size, names[1]),
        inverse,
        _first(importer, counts, 0, size, names[3]),
    ]
    return results[: len(node.outputs)]


@converter("Compress")
def _compress(importer: _Importer, node: OnnxNode) -> list[Value]:
    """The slices along an axis (or the elements) where the condition holds."""
    x, condition = node.operand(0), node.operand(1)
    axis = node.attrs.get("axis")
    if axis is None:
        [x] = importer.builder.add("reshape", [x], {"shape": (dims.product(x.shape),)})
        axis = 0
    [padded], size = _counted(importer, node, "nonzero", [condition], {}, 1)
    places = _first(importer, padded, 1, size, None)
    [places] = importer.builder.add("squeeze", [places], {"axes": (0,)})
    return importer.add("gather", [x, places], {"axis": int(axis) % x.rank}, node)


@converter("NonMaxSuppression")
def _non_max_suppression(importer: _Importer, node: OnnxNode) -> list[Value]:
    """Boxes that no better one overlaps, as (batch, class, box) rows."""

    def number(index: int, default: Any) -> Any:
        if node.input(index) is None:
            return default
        found = importer.known(node.operand(index), node, f"operand {index}")
        return found[0] if isinstance(found, tuple) else found

    attrs = {
        "max_output_boxes_per_class": int(number(2, 0)),
        "iou_threshold": float(number(3, 0.0)),
        "score_threshold": float(number(4, float("-inf"))),
        "center_point_box": bool(node.attrs.get("center_point_box", 0)),
    }
    inputs = [node.operand(0), node.operand(1)]
    [padded], size = _counted(importer, node, "non_max_suppression", inputs, attrs, 0)
    return [_first(importer, padded, 0, size, node.outputs[0])]
