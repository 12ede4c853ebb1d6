"""The guards of fusion: each is one kind of constraint that may refuse to join two groups, with its reason.

A guard can be turned off by name (`disabled={"outputs"}`); the groups stay correct, since what a kernel cannot do at
all is checked by `legal` in `fuse.py`, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from graphir import dims
from graphir.ir import GRAPH_OPS, Node, Value
from graphir.kinds import is_training, logical_compute, node_kind
from tensorir.expr import Call
from tensorir.te import ComputeOp, collect_operations
from tensorir.visit import walk_expr

if TYPE_CHECKING:
    from graphir.pipeline import PassContext

HEAVY = ("contraction", "reduction", "composite")


@dataclass(frozen=True, slots=True)
class Fusion:
    """A proposed join: `node` joins the nodes of `group` through `value` (an epilogue of it, or reading a prologue)."""

    group: tuple[Node, ...]
    node: Node
    value: Value
    readers: tuple[Node, ...]
    is_output: bool
    context: PassContext

    @property
    def members(self) -> tuple[Node, ...]:
        """All nodes of the joined group."""
        return (*self.group, self.node)

    @property
    def anchor(self) -> Node | None:
        """The contraction, reduction or composite of the group so far."""
        return next((n for n in self.group if node_kind(n) in HEAVY), None)


class Guard(Protocol):
    """A constraint with a name."""

    name: str

    def refuse(self, fusion: Fusion) -> str | None:
        """None, or why not."""


class TrainingGuard:
    """A node that computes by its own batch's statistics is never folded or fused: its statistics are outputs."""

    name = "training"

    def refuse(self, fusion: Fusion) -> str | None:
        for node in fusion.members:
            if is_training(node):
                return f"{node.name} is a training-mode node"
        return None


class ControlFlowGuard:
    """If and loops hold graphs of their own; nothing is fused over their edge."""

    name = "control_flow"

    def refuse(self, fusion: Fusion) -> str | None:
        for node in fusion.members:
            if node.subgraphs:
                return f"{node.name} is control flow"
        return None


class OutputsGuard:
    """A value that others read too must be stored anyway, and computing it twice costs more than reading it."""

    name = "outputs"

    def refuse(self, fusion: Fusion) -> str | None:
        if fusion.is_output:
            return f"{fusion.value.name} is an output of the graph"
        inside = set(fusion.members)
        others = [n.name for n in fusion.readers if n not in inside]
        return f"{fusion.value.name} is also read by {', '.join(others[:3])}" if others else None


class ShapesGuard:
    """An epilogue is computed on the anchor's tile, so its shape must be that of the anchor's result."""

    name = "shapes"

    def refuse(self, fusion: Fusion) -> str | None:
        if fusion.anchor is None:
            return None
        for v in fusion.node.outputs:
            if not dims.same_shape(v.shape, fusion.value.shape):
                shapes = dims.shape_text(v.shape), dims.shape_text(fusion.value.shape)
                return f"{v.name} has shape {shapes[0]}, the anchor's result {shapes[1]}"
        return None


class AttributesGuard:
    """Layouts must agree: a value re-laid between two nodes is stored in between. Types of the tile must not widen."""

    name = "attributes"

    def refuse(self, fusion: Fusion) -> str | None:
        for v in fusion.node.outputs:
            if fusion.anchor is not None and v.layout != fusion.value.layout:
                return f"{v.name} has another layout than {fusion.value.name}"
            if fusion.anchor is not None and v.dtype.bits > fusion.value.dtype.bits:
                return f"{v.name} is {v.dtype}, wider than the tile of {fusion.value.dtype}"
        return None


class RegistersGuard:
    """An epilogue on a register tile needs a register for every operand; too many would spill the accumulators."""

    name = "registers"
    limit = 6

    def refuse(self, fusion: Fusion) -> str | None:
        anchor = fusion.anchor
        if anchor is None or node_kind(anchor) != "contraction":
            return None
        inside = {v for n in fusion.group for v in n.outputs}
        extra = {
            v
            for n in fusion.members
            if n is not anchor
            for v in n.operands
            if v not in inside and _is_large(v, fusion.value)
        }
        return (
            f"the epilogue would read {len(extra)} more tensors, at most {self.limit} fit"
            if len(extra) > self.limit
            else None
        )


class ParallelismGuard:
    """A producer inlined where it is read many times runs as often; an expensive function is better stored."""

    name = "parallelism"

    def refuse(self, fusion: Fusion) -> str | None:
        if node_kind(fusion.node) not in (*HEAVY, "injective", "broadcast"):
            return None
        made = dims.constant(dims.product(fusion.value.shape))
        reads = dims.constant(dims.product(fusion.node.outputs[0].shape))
        if made is None or reads is None or fusion.anchor is not None:
            return None
        costly = any(_is_costly(n) for n in fusion.group)
        return (
            f"{fusion.value.name} would be computed {reads // max(made, 1)} times"
            if costly and reads > 2 * made
            else None
        )


class SizeGuard:
    """A kernel of very many operations compiles slowly and gains little."""

    name = "size"
    limit = 24
    operands = 24

    def refuse(self, fusion: Fusion) -> str | None:
        if len(fusion.members) > self.limit:
            return f"the group would have {len(fusion.members)} nodes, at most {self.limit}"
        inside = {v for n in fusion.members for v in n.outputs}
        read = {v for n in fusion.members for v in n.operands if v not in inside}
        return (
            f"the group would read {len(read)} tensors, at most {self.operands}" if len(read) > self.operands else None
        )


class ProfileGuard:
    """With `only_nodes`, fusion is restricted to nodes that a profile shows to matter."""

    name = "profile"

    def refuse(self, fusion: Fusion) -> str | None:
        chosen = fusion.context.only_nodes
        if chosen is None or fusion.node.name in chosen or any(n.name in chosen for n in fusion.group):
            return None
        return f"{fusion.node.name} is not among the nodes to fuse"


def _is_large(v: Value, like: Value) -> bool:
    """True if an operand is read element by element like the tile itself, not one row for all."""
    return dims.same(dims.product(v.shape), dims.product(like.shape))


def _is_costly(node: Node) -> bool:
    if node.op in GRAPH_OPS:
        return False
    for op in collect_operations(logical_compute(node)[1]):
        if isinstance(op, ComputeOp) and any(isinstance(e, Call) for b in op.bodies for e in walk_expr(b)):
            return True
    return False


GUARDS: Sequence[Guard] = (
    TrainingGuard(),
    ControlFlowGuard(),
    OutputsGuard(),
    ShapesGuard(),
    AttributesGuard(),
    RegistersGuard(),
    ParallelismGuard(),
    SizeGuard(),
    ProfileGuard(),
)
