"""Multidirectional broadcasting of shapes: sizes of 1 stretch, ranks are padded in front (numpy's and ONNX's rule)."""

from __future__ import annotations

from collections.abc import Sequence

from tensorir.arith import simplify
from tensorir.equality import structural_equal
from tensorir.expr import Const, Expr, const
from tensorir.te import Tensor
from topi.op import OpError


def is_one(extent: Expr) -> bool:
    """True if a dimension is the literal 1."""
    return isinstance(extent, Const) and extent.value == 1


def same_extent(a: Expr, b: Expr) -> bool:
    """True if two dimensions are equal for all values of their symbols."""
    if isinstance(a, Const) and isinstance(b, Const):
        return bool(a.value == b.value)
    if structural_equal(a, b):
        return True
    difference = simplify(a - b)
    return isinstance(difference, Const) and difference.value == 0


def broadcast_shapes(name: str, shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """The common shape. Two different symbols must be equal at run time: the first stands for both. Raises `OpError`
    naming the op and the axis."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Expr] = []
    for axis in range(rank):
        extent: Expr = const(1)
        for shape in shapes:
            position = axis - (rank - len(shape))
            if position < 0 or is_one(shape[position]):
                continue
            here = shape[position]
            if is_one(extent):
                extent = here
            elif isinstance(here, Const) and isinstance(extent, Const) and here.value != extent.value:
                texts = " and ".join("(" + ", ".join(map(repr, s)) + ")" for s in shapes)
                raise OpError(
                    f"{name}: shapes {texts} do not broadcast: axis {axis - rank} is {extent!r} and {here!r}",
                    help="sizes must be equal or one of them 1",
                )
            elif isinstance(here, Const) and not isinstance(extent, Const):
                extent = here
        result.append(extent)
    return tuple(result)


def broadcast_index(shape: Sequence[Expr], point: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where a tensor of `shape` is read for `point` of the broadcast result."""
    offset = len(point) - len(shape)
    return tuple(const(0) if is_one(s) else point[offset + n] for n, s in enumerate(shape))


def read(tensor: Tensor, point: Sequence[Expr]) -> Expr:
    """The element of a broadcast operand at a point of the result."""
    return tensor(*broadcast_index(tensor.shape, point))
