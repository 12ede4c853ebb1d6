"""How a node takes transposed operands: which attributes follow, and how its results are then transposed.

    concat(a, b, axis=3)                  on operands transposed by (0, 3, 1, 2)  is  concat(a', b', axis=1)
    mean(x, axes=(1, 2), keepdims=False)  likewise                                is  mean(x', axes=(2, 3), ...)

A transpose by `axes` makes new axis i of old axis `axes[i]`. That an elementwise op may be transposed is read from its
compute; the axes that attributes speak of are a fact of the op (`Op.axis_attrs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphir import dims
from graphir.ir import GRAPH_OPS, Node, Value
from graphir.kinds import logical_compute, node_kind
from tensorir.expr import Const, Load
from tensorir.te import ComputeOp, PlaceholderOp, Tensor, collect_operations
from tensorir.visit import walk_expr
from topi.registry import get_op

Axes = tuple[int, ...]


def inverse(axes: Axes) -> Axes:
    """The transpose that takes this one back."""
    return tuple(axes.index(n) for n in range(len(axes)))


def joined(first: Axes, then: Axes) -> Axes:
    """One transpose for two, one after the other."""
    return tuple(first[a] for a in then)


def transpose_axes(node: Node) -> Axes:
    """The order that a transpose node gives, with every axis named from the front."""
    rank = node.operands[0].rank
    axes = node.attributes.get("axes")
    return tuple(reversed(range(rank))) if axes is None else tuple(a % rank for a in axes)


def moves_nothing(shape: Sequence[Any], axes: Axes) -> bool:
    """True if a transpose only moves axes of one element: the memory stays as it is."""
    kept = [a for a in axes if dims.constant(shape[a]) != 1]
    return kept == sorted(kept)


def free_rank(node: Node) -> int | None:
    """The rank of the operands that may be transposed together, None for a node that wants its axes as they are."""
    if node.op in GRAPH_OPS or not node.operands:
        return None
    definition = get_op(node.op)
    if definition.axis_attrs is None:
        if definition.view or not _is_pointwise(node):
            return None
        return node.outputs[0].rank
    rank = max(v.rank for v in node.operands)
    attrs = node.attributes
    for name, use in definition.axis_attrs.items():
        value: Any = attrs.get(name, definition.attrs.get(name))
        if use == "unset" and value or use == "named" and value is None or use == "each" and len(value) != rank:
            return None
    return rank


def _is_pointwise(node: Node) -> bool:
    """True if every operand is read at the result's own point, broadcast by the rule that aligns the last axes."""
    if node_kind(node) not in ("elementwise", "broadcast"):
        return False
    _, results = logical_compute(node)
    for op in collect_operations(results):
        if not isinstance(op, ComputeOp):
            if isinstance(op, PlaceholderOp):
                continue
            return False
        points = [a.var for a in op.axes]
        for body in op.bodies:
            for e in walk_expr(body):
                if isinstance(e, Load) and isinstance(e.buffer, Tensor):
                    aligned = points[len(points) - len(e.indices) :]
                    if len(e.indices) > len(points) or not all(
                        i is p or (isinstance(i, Const) and i.value == 0) for i, p in zip(e.indices, aligned)
                    ):
                        return False
    return True


def follows(node: Node, v: Value, rank: int) -> bool:
    """True for an operand that is transposed with the others; scalars and parameters of an axis stay as they are."""
    if get_op(node.op).axis_attrs is None:
        return v.rank > 0
    return v.rank == rank


def transposed_attrs(node: Node, axes: Axes) -> dict[str, Any]:
    """The attributes for operands transposed by `axes`."""
    place, definition = inverse(axes), get_op(node.op)
    rank, made = len(axes), node.attributes
    for name, use in (definition.axis_attrs or {}).items():
        value: Any = made.get(name, definition.attrs.get(name))
        match use:
            case "axis":
                made[name] = place[value % rank]
            case "axes" | "named":
                made[name] = tuple(place[a % rank] for a in (value or range(rank)))
            case "each":
                made[name] = tuple(value[a] for a in axes)
    return made


def result_axes(node: Node, axes: Axes) -> Axes:
    """How the results are transposed then; shorter than `axes` where the node drops axes."""
    dropped = {a % len(axes) for a in _dropped(node, len(axes))}
    kept = [a for a in axes if a not in dropped]
    order = sorted(kept)
    return tuple(order.index(a) for a in kept)


def _dropped(node: Node, rank: int) -> Sequence[int]:
    definition, attrs = get_op(node.op), node.attributes
    if attrs.get("keepdims", definition.attrs.get("keepdims", True)):
        return ()
    for name, use in (definition.axis_attrs or {}).items():
        value: Any = attrs.get(name, definition.attrs.get(name))
        if use == "axis":
            return (value,)
        if use == "axes":
            return tuple(value or range(rank))
    return ()
