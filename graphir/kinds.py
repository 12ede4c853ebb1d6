"""What kind of op a node is, and which axes it leaves alone: read from its compute, kept by signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphir import dims
from graphir.attrs import attr_text
from graphir.ir import GRAPH_OPS, Node
from tensorir.expr import Expr, Load, Reduce, Var
from tensorir.te import ComputeOp, PlaceholderOp, Tensor, collect_operations, placeholder
from tensorir.visit import free_vars, walk_expr
from topi.kinds import Kind, fusion_kind
from topi.registry import get_op

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS: dict[str, tuple[Kind, object]] = {}
_COMPUTES: dict[str, tuple[list[Tensor | None], tuple[Tensor, ...], object]] = {}


def signature(node: Node) -> str:
    """Op, operand types and attributes as text."""
    operands = ";".join("-" if v is None else f"{v.dtype}{dims.shape_text(v.shape)}" for v in node.inputs)
    return f"{node.op}({operands})" + ",".join(f"{k}={attr_text(v)}" for k, v in node.attrs)


def logical_compute(node: Node) -> tuple[list[Tensor | None], tuple[Tensor, ...]]:
    """Placeholders for the operands and the results of the op's compute on them."""
    key, definition = signature(node), get_op(node.op)
    known = _COMPUTES.get(key)
    if known is not None and known[2] is definition:
        return known[0], known[1]
    tensors = [None if v is None else placeholder(v.shape, v.dtype, f"x{n}") for n, v in enumerate(node.inputs)]
    made = definition(*tensors, **node.attributes)
    results = made if isinstance(made, tuple) else (made,)
    _COMPUTES[key] = (tensors, results, definition)
    return tensors, results


def node_kind(node: Node) -> Kind:
    """The fusion kind; graph ops are opaque."""
    if node.op in GRAPH_OPS:
        return "opaque"
    key, definition = signature(node), get_op(node.op)
    known = _KINDS.get(key)
    if known is not None and known[1] is definition:
        return known[0]
    kind = fusion_kind(logical_compute(node)[1])
    _KINDS[key] = (kind, definition)
    return kind


def is_training(node: Node) -> bool:
    """True for an op that computes by the statistics of its own batch."""
    return node.op not in GRAPH_OPS and get_op(node.op).training


def keeps_axis(node: Node, operand: int, axis: int) -> bool:
    """True if every read that leads to a result's point p reads operand `operand` at p's own coordinate on `axis`."""
    tensors, results = logical_compute(node)
    source = tensors[operand]
    if source is None or axis >= len(source.shape):
        return False
    for op in collect_operations(results):
        if isinstance(op, PlaceholderOp):
            continue
        if not isinstance(op, ComputeOp) or len(op.axes) <= axis:
            return False
        own = op.axes[axis].var
        for root in _roots(op):
            for e in walk_expr(root):
                if isinstance(e, Load) and isinstance(e.buffer, Tensor):
                    follows = e.buffer is source or not isinstance(e.buffer.op, PlaceholderOp)
                    if follows and (len(e.indices) <= axis or e.indices[axis] is not own):
                        return False
    return all(axis < len(r.shape) for r in results)


def axis_pair(node: Node, result_axis: int, operand: int) -> int | None:
    """The axis of `operand` that is read at the result's coordinate on `result_axis` and by nothing else, if there is
    one: where a scale of that result axis can go into the operand of a contraction."""
    tensors, results = logical_compute(node)
    source = tensors[operand]
    if source is None:
        return None
    found: set[int | None] = set()
    for op in collect_operations(results):
        if not isinstance(op, ComputeOp) or result_axis >= len(op.axes):
            continue
        own = op.axes[result_axis].var
        for root in _roots(op):
            for e in walk_expr(root):
                if isinstance(e, Load) and e.buffer is source:
                    found.add(_own_axis(e.indices, own))
    return found.pop() if len(found) == 1 else None


def _own_axis(indices: Sequence[Expr], own: Var) -> int | None:
    places = [n for n, i in enumerate(indices) if i is own]
    others = [n for n, i in enumerate(indices) if i is not own and any(v is own for v in free_vars(i))]
    return places[0] if len(places) == 1 and not others else None


def _roots(op: ComputeOp) -> list[Expr]:
    roots: list[Expr] = []
    for body in op.bodies:
        if isinstance(body, Reduce):
            roots += [*body.sources, *([] if body.condition is None else [body.condition])]
        else:
            roots.append(body)
    return roots
