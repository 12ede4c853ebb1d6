"""Folds per-channel scales and shifts into the weights and bias of the contraction before them.

    batch_norm(conv2d(x, w, b), gamma, beta, mean, var)
        ->  conv2d(x, w * s, b * s + t)      s = gamma / sqrt(var + epsilon), t = beta - mean * s

    conv2d(x, w) * c        ->  conv2d(x, w * c)        c constant, one number a channel
    conv2d(x, w) + c        ->  conv2d(x, w, c)

The new weights are ordinary nodes over constants, so the prologue computes them. A batch norm with constant statistics
that follows anything else becomes one multiplication and one addition. It changes rounding, hence opt level 3. Only a
contraction with a constant weight takes a scale, its result read by nobody else; a training-mode batch norm is another
op and is never touched. Which axis of the weight carries the channel is read from the op's compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphir import dims
from graphir.builder import GraphEditor
from graphir.ir import GRAPH_OPS, Graph, Node, Value, consumers
from graphir.kinds import axis_pair
from graphir.passes.dead import dead_nodes
from topi.registry import get_op

if TYPE_CHECKING:
    from graphir.pipeline import PassContext

DATA, WEIGHT, BIAS = 0, 1, 2


def fold_scales(graph: Graph, context: PassContext) -> Graph:
    """The graph with scales folded; repeated until a chain of scales is used up, since each fold is again a node."""
    walk = _Folding(graph, context)
    for node in graph.nodes:
        walk.visit(node)
    return dead_nodes(walk.edit.finish_edit())


class _Folding:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.edit = GraphEditor(graph)
        self.context = context
        self.readers = consumers(graph)
        self.outputs = set(graph.outputs)
        self.fixed: set[Value] = {v for v, data in graph.constants.items() if data is not None}
        self.made: dict[Value, Node] = {}
        self.original: dict[Value, Value] = {}

    def visit(self, node: Node) -> None:
        """Folds the node if it is a scale or shift that can be folded; keeps it otherwise."""
        made = self.edit.mapped(node)
        step = self.scale_and_shift(made)
        if step is not None:
            x, scale, shift, axis = step
            contraction = self.contraction(node, x)
            if contraction is not None and (folded := self.fold(contraction, made, scale, shift, axis)) is not None:
                self.edit.replace(node.output, folded)
                self.original[folded] = node.output
                return
            if made.op == "batch_norm":
                self.edit.replace(node.output, self.affine(made, x, scale, shift))
                return
        self.edit.nodes.append(made)
        self.remember(made)

    def remember(self, node: Node) -> None:
        """Keeps who makes what, and what is known when compiling."""
        self.made.update({v: node for v in node.outputs})
        if node.operands and all(v in self.fixed for v in node.operands) and node.op not in GRAPH_OPS:
            self.fixed.update(node.outputs)

    def add(self, op: str, inputs: list[Value], node: Node, name: str | None = None, **attrs: object) -> Value:
        """A new node beside `node`."""
        outputs = None if name is None else [name]
        [v] = self.edit.add(op, inputs, attrs, name=f"{node.name}.{op}", origins=node.origins, outputs=outputs)
        if v not in self.edit.constants:
            self.remember(self.edit.nodes[-1])
        else:
            self.fixed.add(v)
        return v

    def scale_and_shift(self, node: Node) -> tuple[Value, Value | None, Value | None, int] | None:
        """(data, scale, shift, axis of the channel) with one number a channel, both 1-d, for a node that is one."""
        if node.op == "batch_norm" and all(v in self.fixed for v in node.operands[1:]):
            x, gamma, beta, mean, variance = node.operands
            epsilon = self.edit.constant(
                np.array(node.attributes.get("epsilon", 1e-5), variance.dtype.numpy), f"{node.name}.epsilon"
            )
            self.fixed.add(epsilon)
            deviation = self.add("sqrt", [self.add("add", [variance, epsilon], node)], node)
            scale = self.add("divide", [gamma, deviation], node)
            shift = self.add("subtract", [beta, self.add("multiply", [mean, scale], node)], node)
            return x, scale, shift, 1
        if node.op in ("multiply", "add") and len(node.inputs) == 2:
            a, b = node.operands
            for x, c in ((a, b), (b, a)):
                axis = self.channel_axis(x, c, node)
                if axis is not None and c in self.fixed and x not in self.fixed:
                    if node.op == "add" and len(get_op(self.made[x].op).operands) <= BIAS:
                        continue
                    vector = self.add("reshape", [c], node, shape=(x.shape[axis],))
                    return (x, vector, None, axis) if node.op == "multiply" else (x, None, vector, axis)
        return None

    def channel_axis(self, x: Value, c: Value, node: Node) -> int | None:
        """The one axis of `x` along which `c` varies; None if it is not one number a channel of a contraction."""
        maker = self.made.get(x)
        if maker is None or not self.takes_scale(maker) or not dims.same_shape(node.output.shape, x.shape):
            return None
        sizes = dims.constants(c.shape)
        if sizes is None or c.rank > x.rank:
            return None
        axes = [n + x.rank - c.rank for n, size in enumerate(sizes) if size != 1]
        if len(axes) != 1 or not dims.same(x.shape[axes[0]], c.shape[axes[0] - x.rank + c.rank]):
            return None
        return axes[0]

    def takes_scale(self, node: Node) -> bool:
        """True for a contraction whose constant weight can take a scale."""
        if node.op in GRAPH_OPS or get_op(node.op).scale != "weight" or len(node.inputs) < 2:
            return False
        weight = node.inputs[WEIGHT]
        return weight is not None and weight in self.fixed and node.op != "gemm"

    def contraction(self, reader: Node, x: Value) -> Node | None:
        """The contraction that makes `x`, if `reader` alone reads it."""
        maker = self.made.get(x)
        if maker is None or not self.takes_scale(maker):
            return None
        before = self.original.get(x, x)
        if before in self.outputs or len(self.readers.get(before, [])) != 1:
            self.context.note(f"fold_scales: {reader.name} not folded: {before.name} is read by others too")
            return None
        return maker

    def fold(self, node: Node, reader: Node, scale: Value | None, shift: Value | None, axis: int) -> Value | None:
        """The contraction again with the scale in its weight and the shift in its bias; None if it cannot take them."""
        operands = list(node.inputs)
        weight = operands[WEIGHT]
        assert weight is not None
        place = axis_pair(node, axis, WEIGHT)
        if place is None:
            return None
        bias = operands[BIAS] if len(operands) > BIAS else None
        takes_bias = len(get_op(node.op).operands) > BIAS
        if shift is not None and not takes_bias:
            return None
        if bias is not None and (bias not in self.fixed or axis_pair(node, axis, BIAS) != 0):
            return None
        if scale is not None:
            shape = tuple(weight.shape[place] if n == place else 1 for n in range(weight.rank))
            weight = self.add("multiply", [weight, self.add("reshape", [scale], reader, shape=shape)], reader)
            if bias is not None:
                bias = self.add("multiply", [bias, scale], reader)
        if shift is not None:
            bias = shift if bias is None else self.add("add", [bias, shift], reader)
        operands[WEIGHT] = weight
        if bias is not None:
            operands[BIAS:] = [bias]
        attrs = dict(node.attrs)
        self.edit.release(reader)
        self.edit.node_names.discard(node.name)  # the old contraction stays behind without readers
        [v] = self.edit.add(
            node.op, operands, attrs, name=node.name, origins=(*node.origins, *reader.origins),
            outputs=[reader.output.name],
        )  # fmt: skip
        self.remember(self.edit.nodes[-1])
        self.context.note(f"fold_scales: {reader.name} ({reader.op}) folded into {node.name}")
        return v

    def affine(self, node: Node, x: Value, scale: Value | None, shift: Value | None) -> Value:
        """A batch norm as x * scale + shift."""
        assert scale is not None and shift is not None
        shape = tuple(x.shape[1] if n == 1 else 1 for n in range(x.rank))
        factor = self.add("reshape", [scale], node, shape=shape)
        offset = self.add("reshape", [shift], node, shape=shape)
        product = self.add("multiply", [x, factor], node)
        return self.add("add", [product, offset], node, node.output.name)
