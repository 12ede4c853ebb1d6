"""How much arithmetic and memory traffic a model asks for: what its floor is computed from.

Arithmetic is that of sums of products (convolutions, matrix products), read off the computes of the ops: two operations
a product, padded taps left out. Traffic is every operand of a kernel read once and every result written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphir import dims
from graphir.groups import spec_of
from graphir.ir import GRAPH_OPS, Graph, Node
from tensorir import expr
from tensorir.expr import And, Const, Expr, Reduce, Var
from tensorir.te import ComputeOp, collect_operations
from tensorir.visit import children, free_vars
from topi.group import logical_compute
from topi.kinds import is_contraction
from topi.op import Call
from topi.registry import get_op

ENUMERATED = 1 << 16
"""Points up to which a condition of a reduction is counted; above, all points are taken to hold."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of products and sums, and bytes read and written."""

    flop: int = 0
    nbytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flop + other.flop, self.nbytes + other.nbytes)


def members_of(node: Node) -> tuple[Node, ...]:
    """The nodes that run together as this one."""
    return node.subgraphs[0].nodes if node.op == "group" else (node,)


def node_work(node: Node, symbols: Mapping[str, int]) -> Work:
    """The work of a node that runs as a kernel, for these sizes of the symbols."""
    return Work(sum(op_flop(n, symbols) for n in members_of(node)), traffic(node, symbols))


def traffic(node: Node, symbols: Mapping[str, int]) -> int:
    """The bytes of what a node reads from outside and of its results."""
    members = members_of(node)
    inside = {v for n in members for v in n.outputs}
    read = dict.fromkeys(v for n in members for v in n.operands if v not in inside)
    return sum(dims.evaluate(v.nbytes, symbols) for v in (*read, *node.outputs))


def op_flop(node: Node, symbols: Mapping[str, int]) -> int:
    """Operations of the sums of products of one op application."""
    if node.op in GRAPH_OPS:
        return 0
    call = Call(
        get_op(node.op),
        tuple(None if v is None else spec_of(v) for v in node.inputs),
        tuple(map(spec_of, node.outputs)),
        node.attributes,
        (),
    )
    total = 0
    for op in collect_operations(logical_compute(call)[1]):
        if isinstance(op, ComputeOp) and op.reduce_axes and is_contraction(op):
            total += 2 * _points(op, symbols)
    return total


def _points(op: ComputeOp, symbols: Mapping[str, int]) -> int:
    """How many products a contraction sums: the points of its axes at which its condition holds.

    The condition's terms are grouped by the axes they share; each group is counted alone, the counts multiplied.
    """
    extents = {a.var: dims.evaluate(a.extent, symbols) for a in (*op.axes, *op.reduce_axes)}
    body = op.bodies[0]
    assert isinstance(body, Reduce)
    groups: list[tuple[set[Var], list[Expr]]] = []
    for term in _terms(body.condition):
        variables, terms = {v for v in free_vars(term) if v in extents}, [term]
        for other in [g for g in groups if g[0] & variables]:
            variables |= other[0]
            terms = other[1] + terms
            groups.remove(other)
        groups.append((variables, terms))
    counted = 1
    free = set(extents)
    for variables, terms in groups:
        size = math.prod(extents[v] for v in variables)
        if variables and size <= ENUMERATED:
            counted *= _count(terms, {v: extents[v] for v in variables}, symbols)
            free -= variables
    return counted * math.prod(extents[v] for v in free)


def _terms(condition: Expr | None) -> Iterator[Expr]:
    if condition is None:
        return
    stack = [condition]
    while stack:
        e = stack.pop()
        if isinstance(e, And):
            stack += [e.a, e.b]
        else:
            yield e


def _count(terms: list[Expr], extents: Mapping[Var, int], symbols: Mapping[str, int]) -> int:
    """The points at which all terms hold; all points if a term has another form than indices have."""
    grid: Mapping[Var, Any] = dict(zip(extents, np.indices(tuple(extents.values()), dtype=np.int64)))
    holds = np.ones(tuple(extents.values()), bool)
    for term in terms:
        values = _values(term, grid, symbols)
        if values is None:
            return holds.size
        holds &= values
    return int(holds.sum())


_NUMPY: dict[type, Callable[[Any, Any], Any]] = {
    expr.Add: np.add,
    expr.Sub: np.subtract,
    expr.Mul: np.multiply,
    expr.FloorDiv: np.floor_divide,
    expr.FloorMod: np.mod,
    expr.Min: np.minimum,
    expr.Max: np.maximum,
    expr.EQ: np.equal,
    expr.NE: np.not_equal,
    expr.LT: np.less,
    expr.LE: np.less_equal,
    expr.And: np.logical_and,
    expr.Or: np.logical_or,
}


def _values(e: Expr, grid: Mapping[Var, Any], symbols: Mapping[str, int]) -> Any:
    """An index expression at every point of the grid; None for an operation that is not in the table."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return grid[e] if e in grid else symbols.get(e.name)
    if type(e) not in _NUMPY:
        return None
    parts = [_values(c, grid, symbols) for c in children(e)]
    return None if any(p is None for p in parts) else _NUMPY[type(e)](*parts)


def graph_work(graph: Graph, symbols: Mapping[str, int] | None = None) -> Work:
    """The arithmetic of a whole graph, and the bytes that any implementation must move: its inputs, constants and
    outputs. Of an If, the branch with more work counts."""
    values = symbols or {}
    stored = (*graph.inputs, *graph.constants, *graph.outputs)
    return Work(_graph_flop(graph, values), sum(_bytes(v.nbytes, values) for v in stored))


def _graph_flop(graph: Graph, symbols: Mapping[str, int]) -> int:
    total = 0
    for node in graph.nodes:
        if node.subgraphs and node.op != "group":
            total += max(_graph_flop(s, symbols) for s in node.subgraphs)
        else:
            total += sum(op_flop(n, symbols) for n in members_of(node))
    return total


def _bytes(nbytes: Expr, symbols: Mapping[str, int]) -> int:
    known = dims.constant(nbytes)
    return known if known is not None else dims.evaluate(nbytes, symbols)
