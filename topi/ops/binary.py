"""Elementwise operators of two or more operands with broadcasting: one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorir import te
from tensorir.expr import Expr, Let, Var, const
from tensorir.intrinsics import copysign, pow_
from tensorir.te import Tensor
from topi.broadcast import broadcast_shapes, read
from topi.op import Attribute, Fixed, InputValue, Onnx, Op, OpError, attribute, op

FLOAT = ("float32",)
NUMBER = ("float32", "int32")
INTEGER = ("int32", "uint8")
BOOL = ("bool",)


@dataclass(frozen=True, slots=True)
class Binary:
    """One row: the function of two elements, its numpy reference, the ONNX operator and from which schema."""

    name: str
    scalar: Callable[[Expr, Expr], Expr]
    numpy: Callable[[Any, Any], Any]
    onnx: str | None
    since: int = 7
    dtypes: tuple[str, ...] = NUMBER
    low: float = -4.0
    high: float = 4.0
    tolerance: float = 1e-6
    attrs: tuple[tuple[str, Attribute | InputValue | Fixed], ...] = ()
    same_type: bool = True


def divide_scalar(x: Expr, y: Expr) -> Expr:
    """ONNX division: IEEE for floats, rounded to zero for integers."""
    return x / y if x.dtype.is_float else te.truncdiv(x, y)


def prelu_scalar(x: Expr, slope: Expr) -> Expr:
    """x where x >= 0, else slope * x."""
    return te.select(x < const(0, x.dtype), x * slope, x)


def _np_divide(x: Any, y: Any) -> Any:
    return x / y if np.issubdtype(np.asarray(x).dtype, np.floating) else np.trunc(x / y).astype(np.asarray(x).dtype)


def _np_shift(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x, y)


TABLE = (
    Binary("add", lambda x, y: x + y, np.add, "Add"),
    Binary("subtract", lambda x, y: x - y, np.subtract, "Sub"),
    Binary("multiply", lambda x, y: x * y, np.multiply, "Mul"),
    Binary("divide", divide_scalar, _np_divide, "Div", low=1, high=9, tolerance=1e-6),
    Binary("floor_divide", lambda x, y: x // y, np.floor_divide, None, dtypes=("int32",), low=1, high=9),
    Binary("power", pow_, np.power, "Pow", low=0.5, high=3.0, dtypes=FLOAT, tolerance=4e-6, same_type=False),
    Binary("maximum", te.maximum, np.maximum, None),
    Binary("minimum", te.minimum, np.minimum, None),
    Binary("equal", te.equal, np.equal, "Equal", dtypes=("int32", "float32", "bool"), low=0, high=3),
    Binary("not_equal", te.not_equal, np.not_equal, None, dtypes=("int32", "float32"), low=0, high=3),
    Binary("less", te.less, np.less, "Less", low=0, high=3),
    Binary("greater", lambda x, y: te.less(y, x), np.greater, "Greater", low=0, high=3),
    Binary("less_equal", te.less_equal, np.less_equal, "LessOrEqual", 12, low=0, high=3),
    Binary("greater_equal", lambda x, y: te.less_equal(y, x), np.greater_equal, "GreaterOrEqual", 12, low=0, high=3),
    Binary("logical_and", te.logical_and, np.logical_and, "And", dtypes=BOOL),
    Binary("logical_or", te.logical_or, np.logical_or, "Or", dtypes=BOOL),
    Binary("logical_xor", te.not_equal, np.logical_xor, "Xor", dtypes=BOOL),
    Binary("bitwise_and", lambda x, y: x & y, np.bitwise_and, "BitwiseAnd", 18, INTEGER, 0, 100),
    Binary("bitwise_or", lambda x, y: x | y, np.bitwise_or, "BitwiseOr", 18, INTEGER, 0, 100),
    Binary("bitwise_xor", lambda x, y: x ^ y, np.bitwise_xor, "BitwiseXor", 18, INTEGER, 0, 100),
    Binary("prelu", prelu_scalar, lambda x, s: np.where(x < 0, x * s, x), "PRelu"),
)

SHAPES = (((3, 37), (3, 37)), ((4, 1, 5), (3, 1)), ((2, 3), ()), ((0, 3), (1, 3)), ((1, 19), (7, 1)))


def broadcast_compute(
    name: str, scalar: Callable[..., Expr], tensors: tuple[Tensor, ...], *, same_type: bool = True
) -> Tensor:
    """The tensor of `scalar` over broadcast operands. Raises `OpError` where types must be equal and are not."""
    if same_type:
        for t in tensors[1:]:
            if t.dtype != tensors[0].dtype:
                raise OpError(
                    f"{name}: operands are {tensors[0].dtype} and {t.dtype}",
                    help="cast one operand to the other's dtype",
                )
    shape = broadcast_shapes(name, [t.shape for t in tensors])
    return te.compute(shape, lambda *i: scalar(*[read(t, i) for t in tensors]), name=name)


def _define(row: Binary) -> Op:
    def compute(x: Tensor, y: Tensor, /) -> Tensor:
        return broadcast_compute(row.name, row.scalar, (x, y), same_type=row.same_type)

    compute.__doc__ = f"{row.name} of two operands, elementwise with broadcasting."
    onnx = [Onnx(row.onnx, row.since, dict(row.attrs))] if row.onnx else []
    made = op(row.name, onnx=onnx, in_place=(0, 1))(compute)
    made.reference(row.numpy)
    for t in row.dtypes:
        for shapes in SHAPES:
            made.case(shapes, t, low=row.low, high=row.high, tolerance=row.tolerance)
    return made


for _row in TABLE:
    _define(_row)


def mod_of_floats(x: Expr, y: Expr) -> Expr:
    """numpy.mod: the remainder with the sign of the divisor, from the exact one with the sign of the dividend."""
    rest, zero = Var("rest", x.dtype), const(0, x.dtype)
    moved = te.select(te.not_equal(rest < zero, y < zero), rest + y, rest)
    body = te.select(te.equal(rest, zero), copysign(zero, y), moved)
    return Let(rest, te.truncmod(x, y), body, x.dtype)


@op("mod", onnx=[Onnx("Mod", 10, {"fmod": attribute("fmod", 0, bool)})], in_place=(0, 1))
def mod(x: Tensor, y: Tensor, /, *, fmod: bool = False) -> Tensor:
    """Remainder with the sign of the divisor, or with `fmod` that of the dividend."""
    scalar = te.truncmod if fmod else mod_of_floats if x.dtype.is_float else te.floormod
    return broadcast_compute("mod", scalar, (x, y))


mod.reference(lambda x, y, *, fmod=False: np.fmod(x, y) if fmod else np.mod(x, y))
mod.case([(3, 37), (37,)], "int32", low=1, high=9)
mod.case([(3, 37), (37,)], "float32", low=1, high=9, fmod=True)
mod.case([(3, 37), (37,)], "float32", low=-9, high=9, tolerance=1e-4)


@op("shift", onnx=[Onnx("BitShift", 11, {"direction": attribute("direction", "LEFT")})], in_place=(0, 1))
def shift(x: Tensor, y: Tensor, /, *, direction: str = "LEFT") -> Tensor:
    """Bits shifted LEFT or RIGHT by the second operand."""
    return broadcast_compute("shift", lambda a, b: a << b if direction == "LEFT" else a >> b, (x, y))


shift.reference(lambda x, y, *, direction="LEFT": np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y))
shift.case([(3, 37), (37,)], "uint8", low=0, high=7)
shift.case([(3, 37), (37,)], "uint32", low=0, high=31, direction="RIGHT")


@op("where", onnx=[Onnx("Where", 9)])
def where(condition: Tensor, x: Tensor, y: Tensor, /) -> Tensor:
    """x where the condition holds, else y; all three broadcast."""
    if x.dtype != y.dtype:
        raise OpError(f"where: operands are {x.dtype} and {y.dtype}", help="cast one operand to the other's dtype")
    return broadcast_compute("where", te.select, (condition, x, y), same_type=False)


where.reference(np.where)
where.case([(3, 1), (3, 37), (37,)], ["bool", "float32", "float32"])


@op(
    "clip",
    onnx=[Onnx("Clip", 1, {"low": attribute("min"), "high": attribute("max")}), Onnx("Clip", 11, inputs=(0, 1, 2))],
    in_place=(0,),
)
def clip(
    x: Tensor, minimum: Tensor | None = None, maximum: Tensor | None = None, /, *, low: float | None = None,
    high: float | None = None,
) -> Tensor:  # fmt: skip
    """min(max(x, low), high); bounds come as 0-d operands or as numbers, and either may be missing. NaN stays."""

    def scalar(e: Expr) -> Expr:
        lower = minimum.scalar_element() if minimum is not None else None if low is None else const(low, x.dtype)
        upper = maximum.scalar_element() if maximum is not None else None if high is None else const(high, x.dtype)
        if lower is not None:
            e = te.select(e < lower, lower, e)
        if upper is not None:
            e = te.select(upper < e, upper, e)
        return e

    return te.compute(x.shape, lambda *i: scalar(x[i]), name="clip")


@clip.reference
def _clip(x: Any, minimum: Any = None, maximum: Any = None, *, low: Any = None, high: Any = None) -> Any:
    lower, upper = low if minimum is None else minimum, high if maximum is None else maximum
    if lower is not None:
        x = np.maximum(x, lower)
    return x if upper is None else np.minimum(x, upper)


clip.case([(3, 37)], low=-1.0, high=0.5)
clip.case([(3, 37), (), ()])


def _variadic(
    name: str, scalar: Callable[[Expr, Expr], Expr], numpy: Callable[..., Any], onnx: str, mean: bool
) -> None:
    def compute(*tensors: Tensor) -> Tensor:
        if not tensors:
            raise OpError(f"{name}: needs at least one operand")

        def combine(*elements: Expr) -> Expr:
            result = elements[0]
            for e in elements[1:]:
                result = scalar(result, e)
            return result / float(len(elements)) if mean else result

        return broadcast_compute(name, combine, tensors)

    compute.__doc__ = f"{onnx} over any number of operands, elementwise with broadcasting."
    made = op(name, onnx=[Onnx(onnx, 8)])(compute)
    made.reference(numpy)
    for count in (1, 2, 4):
        made.case([(3, 37), (37,), (1, 37), (3, 1)][:count])


def _chain(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        result = arrays[0]
        for a in arrays[1:]:
            result = function(result, a)
        return result

    return run


_variadic("sum_of", lambda x, y: x + y, _chain(np.add), "Sum", mean=False)
_variadic("max_of", te.maximum, _chain(np.maximum), "Max", mean=False)
_variadic("min_of", te.minimum, _chain(np.minimum), "Min", mean=False)
_variadic("mean_of", lambda x, y: x + y, lambda *a: _chain(np.add)(*a) / len(a), "Mean", mean=True)
