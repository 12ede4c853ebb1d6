"""Elementwise operators of one operand: one table, since they differ only in their scalar function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.dtypes import DType
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.op import Onnx, Op, OpError, attribute, op

FLOAT = ("float32",)
NUMBER = ("float32", "int32")
INTEGER = ("int32", "int64", "uint8")


@dataclass(frozen=True, slots=True)
class Unary:
    """One row: `scalar` is the function of an element, `numpy` its reference, `dtypes` those tested, `low`/`high` the
    range of test values."""

    name: str
    scalar: Callable[[Expr], Expr]
    numpy: Callable[[Any], Any]
    onnx: str | None
    since: int = 1
    dtypes: tuple[str, ...] = FLOAT
    low: float = -4.0
    high: float = 4.0
    tolerance: float = 2e-6
    doc: str = ""


def _literal(x: Expr, value: float) -> Expr:
    return const(value, x.dtype)


def _sign(x: Expr) -> Expr:
    zero, one = const(0, x.dtype), const(1, x.dtype)
    if x.dtype.kind == "uint":
        return te.select(x > zero, one, zero)
    return te.select(x > zero, one, te.select(x < zero, const(-1, x.dtype), x))


def relu_scalar(x: Expr) -> Expr:
    """max(x, 0) that keeps NaN: the shortest form on every vector unit."""
    zero = const(0, x.dtype)
    return te.select(x < zero, zero, x)


def softplus_scalar(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    return te.maximum(x, _literal(x, 0.0)) + te.log1p(te.exp(-te.abs(x)))


def gelu_scalar(x: Expr) -> Expr:
    """x * Phi(x) by the error function."""
    return _literal(x, 0.5) * x * (_literal(x, 1.0) + te.erf(x * _literal(x, 0.7071067811865476)))


def hard_swish_scalar(x: Expr) -> Expr:
    """x * clip(x / 6 + 1/2, 0, 1)."""
    line = te.fma(x, _literal(x, 1 / 6), _literal(x, 0.5))
    return x * te.maximum(_literal(x, 0.0), te.minimum(_literal(x, 1.0), line))


def mish_scalar(x: Expr) -> Expr:
    """x * tanh(softplus(x))."""
    return x * te.tanh(softplus_scalar(x))


def _erf(x: Any) -> Any:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


def _np_softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


TABLE = (
    Unary("negative", lambda x: -x, np.negative, "Neg", 1, NUMBER),
    Unary("abs", te.abs, np.abs, "Abs", 1, NUMBER),
    Unary("sign", _sign, np.sign, "Sign", 9, NUMBER),
    Unary("reciprocal", lambda x: _literal(x, 1.0) / x, lambda x: 1 / x, "Reciprocal", 1, low=0.5),
    Unary("sqrt", te.sqrt, np.sqrt, "Sqrt", 1, low=0.0),
    Unary("rsqrt", te.rsqrt, lambda x: 1 / np.sqrt(x), None, low=0.1),
    Unary("floor", te.floor, np.floor, "Floor"),
    Unary("ceil", te.ceil, np.ceil, "Ceil"),
    Unary("round", te.round, np.round, "Round", 11, doc="Half to even."),
    Unary("trunc", te.trunc, np.trunc, None),
    Unary("exp", te.exp, np.exp, "Exp", low=-80.0, high=80.0),
    Unary("log", te.log, np.log, "Log", low=1e-6),
    Unary("log1p", te.log1p, np.log1p, None, low=-0.9),
    Unary("sin", te.sin, np.sin, "Sin", 7),
    Unary("cos", te.cos, np.cos, "Cos", 7),
    Unary("tan", te.tan, np.tan, "Tan", 7, low=-1.4, high=1.4),
    Unary("asin", te.asin, np.arcsin, "Asin", 7, low=-1.0, high=1.0),
    Unary("acos", te.acos, np.arccos, "Acos", 7, low=-1.0, high=1.0),
    Unary("atan", te.atan, np.arctan, "Atan", 7),
    Unary("sinh", te.sinh, np.sinh, "Sinh", 9),
    Unary("cosh", te.cosh, np.cosh, "Cosh", 9),
    Unary("tanh", te.tanh, np.tanh, "Tanh"),
    Unary("asinh", te.asinh, np.arcsinh, "Asinh", 9),
    Unary("acosh", te.acosh, np.arccosh, "Acosh", 9, low=1.01),
    Unary("atanh", te.atanh, np.arctanh, "Atanh", 9, low=-0.9, high=0.9),
    Unary("erf", te.erf, _erf, "Erf", 9),
    Unary("sigmoid", te.sigmoid, lambda x: 1 / (1 + np.exp(-x)), "Sigmoid"),
    Unary("relu", relu_scalar, lambda x: np.where(x < 0, 0, x), "Relu", 1, NUMBER),
    Unary("softplus", softplus_scalar, _np_softplus, "Softplus"),
    Unary("softsign", lambda x: x / (_literal(x, 1.0) + te.abs(x)), lambda x: x / (1 + np.abs(x)), "Softsign"),
    Unary("hard_swish", hard_swish_scalar, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "HardSwish", 14),
    Unary("mish", mish_scalar, lambda x: x * np.tanh(_np_softplus(x)), "Mish", 18, tolerance=5e-6),
    Unary("bitwise_not", lambda x: ~x, np.invert, "BitwiseNot", 18, INTEGER, low=0, high=100),
    Unary("logical_not", te.logical_not, np.logical_not, "Not", 1, ("bool",)),
)


def _define(row: Unary) -> Op:
    def compute(x: Tensor, /) -> Tensor:
        return te.compute(x.shape, lambda *i: row.scalar(x[i]), name=row.name)

    compute.__doc__ = f"{row.name} of every element; the result has the operand's shape. {row.doc}"
    onnx = [Onnx(row.onnx, row.since)] if row.onnx else []
    made = op(row.name, onnx=onnx, in_place=(0,))(compute)
    made.reference(row.numpy)
    for t in row.dtypes:
        low = 0.0 if t.startswith("u") else row.low
        for shape in ((3, 37), (), (2, 0), (1, 5, 19)):
            made.case([shape], t, low=low, high=row.high, tolerance=row.tolerance)
    return made


for _row in TABLE:
    _define(_row)


# ------------------------------------------------------------------------------------------------- with attributes


@op("leaky_relu", onnx=[Onnx("LeakyRelu", 1, {"alpha": attribute("alpha", 0.01)})], in_place=(0,))
def leaky_relu(x: Tensor, /, *, alpha: float = 0.01) -> Tensor:
    """x where x >= 0, else alpha * x."""
    return te.compute(x.shape, lambda *i: te.select(x[i] < 0, x[i] * alpha, x[i]), name="leaky_relu")


leaky_relu.reference(lambda x, *, alpha=0.01: np.where(x < 0, x * np.float64(np.float32(alpha)), x))
leaky_relu.case([(3, 37)], alpha=0.2)


@op("elu", onnx=[Onnx("Elu", 1, {"alpha": attribute("alpha", 1.0)})], in_place=(0,))
def elu(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    """x where x >= 0, else alpha * (exp(x) - 1)."""
    return te.compute(x.shape, lambda *i: te.select(x[i] < 0, te.expm1(x[i]) * alpha, x[i]), name="elu")


elu.reference(lambda x, *, alpha=1.0: np.where(x < 0, np.expm1(x) * alpha, x))
elu.case([(3, 37)], alpha=1.5)


@op(
    "selu",
    onnx=[Onnx("Selu", 1, {"alpha": attribute("alpha", 1.67326319), "gamma": attribute("gamma", 1.05070102)})],
    in_place=(0,),
)
def selu(x: Tensor, /, *, alpha: float = 1.67326319, gamma: float = 1.05070102) -> Tensor:
    """gamma * (x where x > 0, else alpha * (exp(x) - 1))."""
    return te.compute(x.shape, lambda *i: te.select(x[i] < 0, te.expm1(x[i]) * alpha, x[i]) * gamma, name="selu")


selu.reference(lambda x, *, alpha=1.67326319, gamma=1.05070102: np.where(x < 0, np.expm1(x) * alpha, x) * gamma)
selu.case([(3, 37)])


@op("celu", onnx=[Onnx("Celu", 12, {"alpha": attribute("alpha", 1.0)})], in_place=(0,))
def celu(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    return te.compute(x.shape, lambda *i: te.select(x[i] < 0, te.expm1(x[i] / alpha) * alpha, x[i]), name="celu")


celu.reference(lambda x, *, alpha=1.0: np.where(x < 0, np.expm1(x / alpha) * alpha, x))
celu.case([(3, 37)], alpha=2.0)


@op(
    "hard_sigmoid",
    onnx=[Onnx("HardSigmoid", 1, {"alpha": attribute("alpha", 0.2), "beta": attribute("beta", 0.5)})],
    in_place=(0,),
)
def hard_sigmoid(x: Tensor, /, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """clip(alpha * x + beta, 0, 1)."""

    def scalar(x: Expr) -> Expr:
        line = x * alpha + beta
        return te.minimum(te.maximum(line, const(0.0, x.dtype)), const(1.0, x.dtype))

    return te.compute(x.shape, lambda *i: scalar(x[i]), name="hard_sigmoid")


hard_sigmoid.reference(lambda x, *, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1))
hard_sigmoid.case([(3, 37)])


@op("thresholded_relu", onnx=[Onnx("ThresholdedRelu", 10, {"alpha": attribute("alpha", 1.0)})], in_place=(0,))
def thresholded_relu(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    """x where x > alpha, else 0."""
    return te.compute(x.shape, lambda *i: te.select(x[i] > alpha, x[i], const(0.0, x.dtype)), name="thresholded_relu")


thresholded_relu.reference(lambda x, *, alpha=1.0: np.where(x > alpha, x, 0))
thresholded_relu.case([(3, 37)])


@op(
    "shrink",
    onnx=[Onnx("Shrink", 9, {"bias": attribute("bias", 0.0), "lambd": attribute("lambd", 0.5)})],
    in_place=(0,),
)
def shrink(x: Tensor, /, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    return te.compute(
        x.shape,
        lambda *i: te.select(x[i] < -lambd, x[i] + bias, te.select(x[i] > lambd, x[i] - bias, const(0.0, x.dtype))),
        name="shrink",
    )


shrink.reference(lambda x, *, bias=0.0, lambd=0.5: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)))
shrink.case([(3, 37)], bias=0.25)


@op("gelu", onnx=[Onnx("Gelu", 20, {"approximate": attribute("approximate", "none")})], in_place=(0,))
def gelu(x: Tensor, /, *, approximate: str = "none") -> Tensor:
    """x * Phi(x); with approximate="tanh" by 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""

    def tanh_form(x: Expr) -> Expr:
        inner = _literal(x, 0.7978845608028654) * (x + _literal(x, 0.044715) * (x * x * x))
        return _literal(x, 0.5) * x * (_literal(x, 1.0) + te.tanh(inner))

    scalar = tanh_form if approximate == "tanh" else gelu_scalar
    return te.compute(x.shape, lambda *i: scalar(x[i]), name="gelu")


@gelu.reference
def _gelu(x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / np.sqrt(2)))


gelu.case([(3, 37)], tolerance=2e-6)
gelu.case([(3, 37)], approximate="tanh", tolerance=2e-6)


@op("swish", onnx=[Onnx("Swish", 24, {"alpha": attribute("alpha", 1.0)})], in_place=(0,))
def swish(x: Tensor, /, *, alpha: float = 1.0) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return te.compute(x.shape, lambda *i: x[i] * te.sigmoid(x[i] * alpha), name="swish")


swish.reference(lambda x, *, alpha=1.0: x / (1 + np.exp(-alpha * x)))
swish.case([(3, 37)], alpha=1.5)


@op("isnan", onnx=[Onnx("IsNaN", 9)])
def isnan(x: Tensor, /) -> Tensor:
    """True where NaN; the result is bool."""
    return te.compute(x.shape, lambda *i: te.isnan(x[i]), name="isnan")


isnan.reference(np.isnan)
isnan.case([(3, 37)])


@op(
    "isinf",
    onnx=[
        Onnx(
            "IsInf",
            10,
            {"negative": attribute("detect_negative", 1, bool), "positive": attribute("detect_positive", 1, bool)},
        )
    ],
)
def isinf(x: Tensor, /, *, negative: bool = True, positive: bool = True) -> Tensor:
    """True where infinite, of the signs asked for; the result is bool."""

    def scalar(x: Expr) -> Expr:
        signs = [x > 0] if positive and not negative else [x < 0] if negative and not positive else []
        return te.logical_and(te.isinf(x), *signs) if positive or negative else const(False)

    return te.compute(x.shape, lambda *i: scalar(x[i]), name="isinf")


@isinf.reference
def _isinf(x: Any, *, negative: bool = True, positive: bool = True) -> Any:
    return (np.isposinf(x) & positive) | (np.isneginf(x) & negative)


isinf.case([(3, 37)])


@op("bit_cast")
def bit_cast(x: Tensor, /, *, dtype: DType) -> Tensor:
    """The bits of every element read as another type of the same width; a bool is a byte."""
    if x.dtype.nbytes != dtype.nbytes:
        raise OpError(f"bit_cast: {x.dtype} and {dtype} have different widths")

    def element(*i: Expr) -> Expr:
        value = x(*i).astype(dtypes.uint8) if x.dtype.is_bool else x(*i)
        return te.not_equal(value, const(0, value.dtype)) if dtype.is_bool else te.reinterpret(value, dtype)

    return te.compute(x.shape, element, name="bit_cast")


bit_cast.reference(lambda x, *, dtype: np.asarray(x).view(dtype.numpy))
bit_cast.case([(3, 37)], "int32", low=-99, high=99, dtype=dtypes.float32)
bit_cast.case([(3, 5)], "uint16", low=0, high=999, dtype=dtypes.int16)


@op("cast", in_place=())
def cast(x: Tensor, /, *, dtype: DType = dtypes.float32) -> Tensor:
    """Every element converted to `dtype` by the cast rules of the semantics page."""
    return te.compute(x.shape, lambda *i: x[i].astype(dtype), name="cast")


@cast.reference
def _cast(x: Any, *, dtype: DType = dtypes.float32) -> Any:
    with np.errstate(invalid="ignore"):
        return x.astype(dtype.numpy)


for _t in ("int8", "uint8", "int32", "int64", "float16", "float64", "bool"):
    cast.case([(3, 37)], dtype=dtypes.dtype_of(_t), low=0.0, high=100.0, tolerance=1e-3)
