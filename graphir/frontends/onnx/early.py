"""Operators as they were before opset 7 and 8: broadcasting on request along an axis, and equal shapes otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphir import dims
from graphir.frontends.onnx.registry import converter
from graphir.ir import Value

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer

BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Equal": "equal",
    "Less": "less",
    "Greater": "greater",
}
VARIADIC = {"Max": "max_of", "Min": "min_of", "Sum": "sum_of", "Mean": "mean_of"}


def aligned(importer: _Importer, node: OnnxNode) -> list[Value]:
    """The two operands; the second with axes of one behind it, so that it starts at the first's `axis`."""
    a, b = node.operand(0), node.operand(1)
    if "axis" in node.attrs and node.attrs.get("broadcast", 0):
        behind = a.rank - int(node.attrs["axis"]) % max(a.rank, 1) - b.rank
        if behind > 0:
            [b] = importer.builder.add("unsqueeze", [b], {"axes": tuple(range(b.rank, b.rank + behind))})
    return [a, b]


@converter(*BINARY)
def _binary(importer: _Importer, node: OnnxNode) -> Any:
    if node.version >= 7:
        return NotImplemented
    return importer.add(BINARY[node.op_type], aligned(importer, node), {}, node)


@converter("PRelu")
def _prelu(importer: _Importer, node: OnnxNode) -> Any:
    """The slopes of a vector are those of the channels, on axis 1."""
    x, slope = node.operand(0), node.operand(1)
    if node.version >= 7:
        return NotImplemented
    if slope.rank == 1 and dims.constant(slope.shape[0]) != 1 and x.rank > 2:
        [slope] = importer.builder.add("unsqueeze", [slope], {"axes": tuple(range(1, x.rank - 1))})
    return importer.add("prelu", [x, slope], {}, node)


@converter(*VARIADIC)
def _variadic(importer: _Importer, node: OnnxNode) -> Any:
    if node.version >= 8:
        return NotImplemented
    return importer.add(VARIADIC[node.op_type], node.inputs, {}, node)
