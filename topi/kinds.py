"""The fusion kind of an op, derived from the index maps of its compute.

elementwise   every operand is read exactly at the result's own point
broadcast     operands are read at the point with some indices dropped or held at 0
injective     one read of any place each point, no reduction: transpose, slice, concat, pad, gather
reduction     one reduction over one operand (with elementwise stages around it)
contraction   one sum over products of two operands (a sum of chunks counts as one)
composite     several reductions: softmax, normalisations
opaque        host work
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tensorir.expr import Const, Expr, Load, Mul, Reduce, Var
from tensorir.te import ComputeOp, ExternOp, PlaceholderOp, Tensor, collect_operations
from tensorir.visit import free_vars, walk_expr
from topi.chunks import find_chunk

Kind = Literal["elementwise", "broadcast", "injective", "reduction", "contraction", "composite", "opaque"]
_ORDER: tuple[Kind, ...] = ("elementwise", "broadcast", "injective")


def fusion_kind(outputs: Sequence[Tensor]) -> Kind:
    """The kind of the computation that makes `outputs` from placeholders."""
    stages = [op for op in collect_operations(outputs) if not isinstance(op, PlaceholderOp)]
    if any(isinstance(op, ExternOp) for op in stages):
        return "opaque"
    computes = [op for op in stages if isinstance(op, ComputeOp)]
    reductions = [op for op in computes if op.reduce_axes and find_chunk(op) is None]
    if len(reductions) > 1:
        return "composite"
    if reductions:
        return "contraction" if is_contraction(reductions[0]) else "reduction"
    worst = 0
    for op in computes:
        worst = max(worst, _ORDER.index(_map_kind(op)))
    return _ORDER[worst]


def is_contraction(op: ComputeOp) -> bool:
    """True for a sum of products whose two factors both vary along the reduction."""
    body = op.bodies[0]
    if not isinstance(body, Reduce) or body.reducer.name != "sum" or not isinstance(body.sources[0], Mul):
        return False
    reduced = {id(a.var) for a in op.reduce_axes}
    product = body.sources[0]
    return all(_varies(factor, reduced) for factor in (product.a, product.b))


def _varies(e: Expr, variables: set[int]) -> bool:
    return any(id(v) in variables for n in walk_expr(e) if isinstance(n, Load) for i in n.indices for v in free_vars(i))


def _map_kind(op: ComputeOp) -> Kind:
    axes = [a.var for a in op.axes]
    worst: Kind = "elementwise"
    for body in op.bodies:
        for load in walk_expr(body):
            if not isinstance(load, Load):
                continue
            kind = _index_kind(load.indices, axes)
            if _ORDER.index(kind) > _ORDER.index(worst):
                worst = kind
    return worst


def _index_kind(indices: tuple[Expr, ...], axes: list[Var]) -> Kind:
    if len(indices) == len(axes) and all(i is a for i, a in zip(indices, axes, strict=True)):
        return "elementwise"
    position = -1
    for index in indices:
        if isinstance(index, Const) and index.value == 0:
            continue
        if not isinstance(index, Var):
            return "injective"
        places = [n for n, a in enumerate(axes) if a is index]
        if not places or places[0] <= position:
            return "injective"
        position = places[0]
    return "broadcast"
