"""Contractions of quantised tensors: integer products summed in int32, and their requantised forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, Source, attribute, op
from topi.ops.conv import conv2d
from topi.ops.matmul import matmul
from topi.ops.quantize import limits


def _centred(x: Tensor, zero_point: Tensor | None, axis: int, name: str) -> Tensor:
    """x - zero_point as int32; the zero point is of the tensor or of each index on `axis`."""

    def element(*i: Expr) -> Expr:
        value = x(*i).astype(dtypes.int32)
        if zero_point is None:
            return value
        if not zero_point.shape:
            return value - zero_point.scalar_element().astype(dtypes.int32)
        if len(zero_point.shape) != 1:
            raise OpError(f"{name}: a zero point has {len(zero_point.shape)} dimensions, not 0 or 1")
        single = getattr(zero_point.shape[0], "value", None) == 1
        return value - zero_point(const(0) if single else i[axis % len(x.shape)]).astype(dtypes.int32)

    made: Tensor = te.compute(x.shape, element, name=f"{name}_centred")
    return made


def _scale(t: Tensor, point: tuple[Expr, ...], axis: int) -> Expr:
    if not t.shape:
        return t.scalar_element()
    return t(const(0) if getattr(t.shape[0], "value", None) == 1 else point[axis % len(point)])


def _requantised(
    total: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero_point: Tensor, axis: int, name: str
) -> Tensor:
    """saturate(round(total * scale_x * scale_w / scale_y) + zero_point)."""
    low, high = limits(zero_point.dtype)

    def element(*i: Expr) -> Expr:
        x, w, y = scales
        factor = _scale(x, i, 0) * _scale(w, i, axis) / _scale(y, i, 0)
        value = te.round(total(*i).astype(factor.dtype) * factor)
        value = value + _scale(zero_point, i, 0).astype(value.dtype)
        bounded = te.maximum(const(float(low), value.dtype), te.minimum(value, const(float(high), value.dtype)))
        return bounded.astype(zero_point.dtype)

    made: Tensor = te.compute(total.shape, element, name=name)
    return made


@op("matmul_integer", onnx=[Onnx("MatMulInteger", 10)])
def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None, /
) -> Tensor:
    """The int32 product of (a - a_zero_point) and (b - b_zero_point); zero points by row of a, by column of b."""
    made: Tensor = matmul(
        _centred(a, a_zero_point, -2, "matmul_integer"), _centred(b, b_zero_point, -1, "matmul_integer")
    )
    return made


def _wide(x: Any, zero: Any, axis: int) -> Any:
    x = x.astype(np.int64)
    if zero is None:
        return x
    zero = np.asarray(zero).astype(np.int64)
    shape = [1] * x.ndim
    if zero.size > 1:
        shape[axis] = -1
    return x - zero.reshape(shape)


@matmul_integer.reference
def _matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return (_wide(a, a_zero, -2) @ _wide(b, b_zero, -1)).astype(np.int32)


matmul_integer.case([(3, 37), (37, 5)], ["uint8", "int8"], low=0, high=100)
matmul_integer.case([(3, 20), (20, 17), (), (17,)], ["uint8", "int8", "uint8", "int8"], low=0, high=100)

_CONV: dict[str, Source] = {
    "strides": attribute("strides", ()),
    "padding": attribute("pads", ()),
    "dilations": attribute("dilations", ()),
    "groups": attribute("group", 1),
    "auto_pad": attribute("auto_pad", "NOTSET"),
}


@op("conv2d_integer", onnx=[Onnx("ConvInteger", 10, _CONV, rank=4)])
def conv2d_integer(
    data: Tensor, weight: Tensor, data_zero_point: Tensor | None = None, weight_zero_point: Tensor | None = None, /, *,
    strides: tuple[int, ...] = (), padding: tuple[int, ...] = (), dilations: tuple[int, ...] = (), groups: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """The int32 convolution of data by weight, each less its zero point; padding stands for the zero point."""
    made: Tensor = conv2d(
        _centred(data, data_zero_point, 0, "conv2d_integer"), _centred(weight, weight_zero_point, 0, "conv2d_integer"),
        strides=strides, padding=padding, dilations=dilations, groups=groups, auto_pad=auto_pad,
    )  # fmt: skip
    return made


@conv2d_integer.reference
def _conv2d_integer(data: Any, weight: Any, data_zero: Any = None, weight_zero: Any = None, **attrs: Any) -> Any:
    assert conv2d.numpy is not None
    return conv2d.numpy(_wide(data, data_zero, 0), _wide(weight, weight_zero, 0), **attrs).astype(np.int32)


conv2d_integer.case([(1, 3, 7, 6), (4, 3, 3, 3)], ["uint8", "int8"], low=0, high=100, padding=(1, 1, 1, 1))
conv2d_integer.case(
    [(1, 4, 5, 5), (6, 2, 3, 3), (), (6,)], ["uint8", "int8", "uint8", "int8"], low=0, high=50, groups=2
)


@op("qlinear_matmul", onnx=[Onnx("QLinearMatMul", 10)])
def qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor, /,
) -> Tensor:  # fmt: skip
    """The matrix product of quantised operands, quantised again."""
    total = matmul(_centred(a, a_zero_point, -2, "qlinear_matmul"), _centred(b, b_zero_point, -1, "qlinear_matmul"))
    return _requantised(total, (a_scale, b_scale, y_scale), y_zero_point, -1, "qlinear_matmul")


def _np_requantise(total: Any, factor: Any, zero: Any) -> Any:
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint((total * factor).astype(np.float32)) + zero, info.min, info.max).astype(zero.dtype)


@qlinear_matmul.reference
def _qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    return _np_requantise(_matmul_integer(a, b, a_zero, b_zero), a_scale * b_scale / y_scale, y_zero)


qlinear_matmul.case(
    [(3, 20), (), (), (20, 5), (), (), (), ()],
    ["uint8", "float32", "uint8", "uint8", "float32", "uint8", "float32", "uint8"],
    low=3,
    high=9,
)


@op("qlinear_conv2d", onnx=[Onnx("QLinearConv", 10, _CONV, rank=4)])
def qlinear_conv2d(
    x: Tensor, x_scale: Tensor, x_zero_point: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor,
    y_scale: Tensor, y_zero_point: Tensor, bias: Tensor | None = None, /, *, strides: tuple[int, ...] = (),
    padding: tuple[int, ...] = (), dilations: tuple[int, ...] = (), groups: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """The convolution of quantised operands (int32 bias of scale x_scale * w_scale), quantised again."""
    total = conv2d(
        _centred(x, x_zero_point, 0, "qlinear_conv2d"), _centred(w, w_zero_point, 0, "qlinear_conv2d"), bias,
        strides=strides, padding=padding, dilations=dilations, groups=groups, auto_pad=auto_pad,
    )  # fmt: skip
    return _requantised(total, (x_scale, w_scale, y_scale), y_zero_point, 1, "qlinear_conv2d")


@qlinear_conv2d.reference
def _qlinear_conv2d(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, bias: Any = None,
    **attrs: Any,
) -> Any:  # fmt: skip
    total = _conv2d_integer(x, w, x_zero, w_zero, **attrs)
    total = total if bias is None else total + bias.reshape(1, -1, 1, 1)
    scale = np.asarray(w_scale)
    scale = scale.reshape(1, -1, 1, 1) if scale.ndim else scale
    return _np_requantise(total, x_scale * scale / y_scale, y_zero)


qlinear_conv2d.case(
    [(1, 3, 6, 5), (), (), (4, 3, 3, 3), (4,), (4,), (), (), (4,)],
    ["uint8", "float32", "uint8", "int8", "float32", "int8", "float32", "uint8", "int32"],
    low=2,
    high=9,
    padding=(1, 1, 1, 1),
)
