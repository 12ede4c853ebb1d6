"""Symbolic content of small integer tensors: evaluating an op on expressions instead of numbers.

Shape -> Gather -> Mul -> Concat -> Reshape needs no kernel: the op's own compute is evaluated at every point of its
result, reading the operands' content, and every element comes out as a canonical expression over the symbols. No op is
named here: whatever topi can compute on integers, this can follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphir import dims
from tensorir import expr
from tensorir.dtypes import DType
from tensorir.errors import NestorError
from tensorir.expr import Const, Expr, Load, Reduce, Var, const
from tensorir.te import ComputeOp, PlaceholderOp, Tensor, placeholder
from tensorir.visit import children
from topi.registry import get_op

if TYPE_CHECKING:
    from graphir.ir import Value

_OPAQUE = ("group", "if", "loop")

LIMIT = 64
"""Results of more elements are left to kernels."""


class _Unknown(Exception):
    """The content cannot be followed: an index that depends on a symbol, a float, an extern."""


def evaluate(
    op: str,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    types: Sequence[tuple[tuple[Expr, ...], DType]],
) -> tuple[Expr, ...] | None:
    """The content of the one result of an op whose operands have content; None where it cannot be known."""
    if op == "dims":
        return tuple(dims.as_dim(v) for v in attrs["values"])
    if op == "size":
        return (dims.symbol(attrs["symbol"]),)
    if op in _OPAQUE or len(types) != 1 or not any(v is not None for v in inputs):
        return None
    shape, dtype = types[0]
    sizes = dims.constants(shape)
    if not (dtype.is_integer or dtype.is_bool) or sizes is None:
        return None
    if any(v is not None and (v.content is None or dims.constants(v.shape) is None) for v in inputs):
        return None
    count = 1
    for s in sizes:
        count *= s
    if count > LIMIT:
        return None
    tensors = [None if v is None else placeholder(v.shape, v.dtype, v.name) for v in inputs]
    known = {id(t): v.content for t, v in zip(tensors, inputs, strict=True) if t is not None and v is not None}
    try:
        result = get_op(op)(*tensors, **attrs)
        points = itertools.product(*(range(s) for s in sizes))
        evaluator = _Evaluator(known)
        return tuple(evaluator.element(result, point) for point in points)
    except (_Unknown, NestorError):
        return None


class _Evaluator:
    """Elements of te tensors whose placeholders hold known expressions."""

    def __init__(self, known: Mapping[int, tuple[Expr, ...] | None]) -> None:
        self.known = known
        self.done: dict[tuple[int, int, tuple[int, ...]], Expr] = {}

    def element(self, tensor: Any, point: tuple[int, ...]) -> Expr:
        """One element as a canonical expression."""
        operation = tensor.op
        if isinstance(operation, PlaceholderOp):
            content = self.known.get(id(tensor))
            if content is None:
                raise _Unknown
            return content[_flat(tensor, point)]
        if not isinstance(operation, ComputeOp):
            raise _Unknown
        key = (id(operation), tensor.index, point)
        if key not in self.done:
            mapping: dict[Var, Expr] = {a.var: const(p) for a, p in zip(operation.axes, point, strict=True)}
            body = operation.bodies[tensor.index]
            made = self.reduction(body, mapping) if isinstance(body, Reduce) else self.value(body, mapping)
            self.done[key] = made
        return self.done[key]

    def reduction(self, body: Reduce, mapping: dict[Var, Expr]) -> Expr:
        """A reduction of constant extent, unfolded."""
        if len(body.sources) != 1:
            raise _Unknown
        ranges = []
        for axis in body.axes:
            begin, extent = dims.constant(axis.begin), dims.constant(axis.extent)
            if begin is None or extent is None:
                raise _Unknown
            ranges.append(range(begin, begin + extent))
        reducer = body.reducer
        total = reducer.identities[0]
        for point in itertools.product(*ranges):
            inner = {**mapping, **{a.var: const(p) for a, p in zip(body.axes, point, strict=True)}}
            if body.condition is not None:
                held = self.value(body.condition, inner)
                if not isinstance(held, Const):
                    raise _Unknown
                if not held.value:
                    continue
            pair: dict[Var, Expr] = {reducer.lhs[0]: total, reducer.rhs[0]: self.value(body.sources[0], inner)}
            total = self.value(reducer.results[0], pair)
        return dims.canonical(total)

    def value(self, e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
        """An expression with its variables and loads replaced by what they are. A choice whose condition is known
        looks at the chosen side only, so guarded reads stay guarded."""
        if isinstance(e, (expr.IfThenElse, expr.Select)):
            condition = self.value(e.condition, mapping)
            if isinstance(condition, Const):
                return self.value(e.a if condition.value else e.b, mapping)
            return dims.canonical(expr.select(_as_bool(condition), self.value(e.a, mapping), self.value(e.b, mapping)))
        if isinstance(e, Load):
            tensor = e.buffer
            point = []
            for index, extent in zip(e.indices, tensor.shape, strict=True):
                at, size = dims.constant(self.value(index, mapping)), dims.constant(extent)
                if at is None or size is None or not 0 <= at < size:
                    raise _Unknown
                point.append(at)
            return self.element(tensor, tuple(point))
        if isinstance(e, Var):
            found = mapping.get(e)
            return e if found is None else found
        if isinstance(e, Const):
            if e.dtype.is_float:
                raise _Unknown
            return e
        if isinstance(e, (expr.Call, expr.Let, expr.Fma, Reduce)) or e.dtype.is_float:
            raise _Unknown
        parts = tuple(self.value(c, mapping) for c in children(e))
        builder = _BUILDERS.get(type(e))
        if builder is None:
            raise _Unknown
        return dims.canonical(builder(*parts))


def _as_bool(e: Expr) -> Expr:
    return expr.as_condition(e)


def _flat(tensor: Tensor, point: tuple[int, ...]) -> int:
    position = 0
    for p, extent in zip(point, tensor.shape, strict=True):
        size = dims.constant(extent)
        assert size is not None
        position = position * size + p
    return position


_BUILDERS: dict[type, Callable[..., Expr]] = {
    expr.Add: expr.add,
    expr.Sub: expr.sub,
    expr.Mul: expr.mul,
    expr.FloorDiv: expr.floordiv,
    expr.FloorMod: expr.floormod,
    expr.TruncDiv: expr.truncdiv,
    expr.TruncMod: expr.truncmod,
    expr.Min: expr.minimum,
    expr.Max: expr.maximum,
    expr.EQ: expr.equal,
    expr.NE: expr.not_equal,
    expr.LT: expr.less,
    expr.LE: expr.less_equal,
    expr.And: lambda a, b: expr.logical_and(_as_bool(a), _as_bool(b)),
    expr.Or: lambda a, b: expr.logical_or(_as_bool(a), _as_bool(b)),
    expr.Not: lambda a: expr.logical_not(_as_bool(a)),
    expr.Cast: lambda a: a,
}
