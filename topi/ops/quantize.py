"""Linear quantisation: y = saturate(round(x / scale) + zero_point), half to even, and back; as a whole or by axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.dtypes import DType
from tensorir.expr import Const, Expr, const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, op
from topi.ops.shape import normalize_axis


def _parameter(t: Tensor, point: tuple[Expr, ...], axis: int, name: str) -> Expr:
    """The scale or zero point that holds at a point: of the tensor (0-d or one element) or of the index on `axis`."""
    if not t.shape:
        return t.scalar_element()
    if len(t.shape) != 1:
        raise OpError(f"{name}: blocked quantisation ({len(t.shape)}-d scales) is not supported")
    extent = t.shape[0]
    if isinstance(extent, Const) and extent.value == 1:
        return t(const(0))
    return t(point[normalize_axis(name, axis, len(point))])


def limits(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


@op("quantize_linear", onnx=[Onnx("QuantizeLinear", 10, {"axis": attribute("axis", 1)})], axis_attrs={"axis": "axis"})
def quantize_linear(
    x: Tensor, scale: Tensor, zero_point: Tensor | None = None, /, *, axis: int = 1, dtype: DType = dtypes.uint8
) -> Tensor:
    """saturate(round(x / scale) + zero_point) of the zero point's type (`dtype` without one); round is half to even."""
    target = dtype if zero_point is None else zero_point.dtype
    if not target.is_integer:
        raise OpError(f"quantize_linear: cannot quantise to {target}", help="the zero point must be an integer tensor")
    low, high = limits(target)

    def element(*i: Expr) -> Expr:
        s = _parameter(scale, i, axis, "quantize_linear")
        value = te.round(x(*i).astype(s.dtype) / s)
        if zero_point is not None:
            value = value + _parameter(zero_point, i, axis, "quantize_linear").astype(value.dtype)
        value = te.maximum(const(float(low), value.dtype), te.minimum(value, const(float(high), value.dtype)))
        return value.astype(target)

    return te.compute(x.shape, element, name="quantize_linear")


def _spread(v: Any, x: Any, axis: int) -> Any:
    v = np.asarray(v)
    return v.reshape([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)]) if v.size > 1 else v.reshape(())


@quantize_linear.reference
def _quantize(x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, dtype: DType = dtypes.uint8) -> Any:
    target = dtype.numpy if zero_point is None else zero_point.dtype
    zero = 0 if zero_point is None else _spread(zero_point, x, axis).astype(np.float64)
    scaled = np.rint((x / _spread(scale, x, axis)).astype(np.float32)) + zero
    return np.clip(scaled, np.iinfo(target).min, np.iinfo(target).max).astype(target)


quantize_linear.case([(3, 37), ()], low=0.1, high=9.0)
quantize_linear.case([(2, 5, 3), (5,), (5,)], ["float32", "float32", "int8"], low=1, high=90)
quantize_linear.case([(7,), (1,), (1,)], ["float32", "float32", "uint8"], low=1, high=90)


@op(
    "dequantize_linear",
    onnx=[Onnx("DequantizeLinear", 10, {"axis": attribute("axis", 1)})],
    axis_attrs={"axis": "axis"},
)
def dequantize_linear(x: Tensor, scale: Tensor, zero_point: Tensor | None = None, /, *, axis: int = 1) -> Tensor:
    """(x - zero_point) * scale in the scale's type."""

    def element(*i: Expr) -> Expr:
        s = _parameter(scale, i, axis, "dequantize_linear")
        value = x(*i).astype(dtypes.int32)
        if zero_point is not None:
            value = value - _parameter(zero_point, i, axis, "dequantize_linear").astype(dtypes.int32)
        return value.astype(s.dtype) * s

    return te.compute(x.shape, element, name="dequantize_linear")


@dequantize_linear.reference
def _dequantize(x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1) -> Any:
    zero = 0 if zero_point is None else _spread(zero_point, x, axis).astype(np.int64)
    return (x.astype(np.int64) - zero) * _spread(scale, x, axis)


dequantize_linear.case([(3, 37), ()], ["int8", "float32"], low=-100, high=100)
dequantize_linear.case([(2, 5, 3), (5,), (5,)], ["uint8", "float32", "uint8"], low=0, high=200)
dequantize_linear.case([(7,), (1,)], ["int32", "float32"], low=-100, high=100)


@op("dynamic_quantize_linear", onnx=[Onnx("DynamicQuantizeLinear", 11)])
def dynamic_quantize_linear(x: Tensor, /) -> tuple[Tensor, Tensor, Tensor]:
    """x as uint8 over its own range (which is made to hold 0), with the scale and the zero point used."""
    axes = [te.reduce_axis(e, f"r{n}") for n, e in enumerate(x.shape)]
    point = [a.var for a in axes]
    zero, top = const(0.0, x.dtype), const(255.0, x.dtype)
    high = te.compute((), lambda: te.max(x(*point), axis=axes), name="largest")
    again = [te.reduce_axis(e, f"r{n}") for n, e in enumerate(x.shape)]
    low = te.compute((), lambda: te.min(x(*[a.var for a in again]), axis=again), name="smallest")
    scale = te.compute((), lambda: (te.maximum(high(), zero) - te.minimum(low(), zero)) / top, name="scale")
    zero_point = te.compute(
        (),
        lambda: te.maximum(zero, te.minimum(top, te.round((zero - te.minimum(low(), zero)) / scale()))).astype(
            dtypes.uint8
        ),
        name="zero_point",
    )

    def element(*i: Expr) -> Expr:
        value = te.round(x(*i) / scale()) + zero_point().astype(x.dtype)
        return te.maximum(zero, te.minimum(top, value)).astype(dtypes.uint8)

    return te.compute(x.shape, element, name="dynamic_quantize_linear"), scale, zero_point


@dynamic_quantize_linear.reference
def _dynamic(x: Any) -> Any:
    x = x.astype(np.float32)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero


dynamic_quantize_linear.case([(3, 37)])
