"""Convolution over one, two or three spatial axes: grouped, depthwise, dilated, asymmetrically padded.

The logical compute reads data (N, C, spatial...) and weight (O, C / groups, kernel...). Fast code comes from the
implementations in `topi.implementations.conv`, which compute over blocked channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import te
from tensorir.expr import Const, Expr, const
from tensorir.te import Tensor
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.op import Onnx, Op, OpError, attribute, op
from topi.window import Window, inside, make_window

NAMES = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


def conv_window(data: tuple[Expr, ...], weight: tuple[Expr, ...], attrs: Any, name: str) -> Window:
    """The window of a convolution from operand shapes and attributes."""
    return make_window(
        name,
        data[2:],
        weight[2:],
        strides=attrs.get("strides"),
        dilations=attrs.get("dilations"),
        padding=attrs.get("padding"),
        auto_pad=attrs.get("auto_pad", "NOTSET"),
    )


def _check(name: str, data: Tensor, weight: Tensor, bias: Tensor | None, groups: int, rank: int) -> None:
    for t, what in ((data, "data"), (weight, "weight")):
        if len(t.shape) != rank + 2:
            raise OpError(f"{name}: {what} has {len(t.shape)} dimensions, not {rank + 2}")
    channels, out, per_group = data.shape[1], weight.shape[0], weight.shape[1]
    if isinstance(channels, Const) and isinstance(per_group, Const) and channels.value != per_group.value * groups:
        raise OpError(
            f"{name}: data has {channels.value} channels, but the weight of shape "
            f"({', '.join(map(repr, weight.shape))}) with groups={groups} takes {per_group.value * groups}"
        )
    if isinstance(out, Const) and out.value % groups:
        raise OpError(f"{name}: {out.value} output channels do not divide into {groups} groups")
    if data.dtype != weight.dtype:
        raise OpError(f"{name}: data is {data.dtype} but weight is {weight.dtype}")
    if bias is not None and len(bias.shape) != 1:
        raise OpError(f"{name}: bias has {len(bias.shape)} dimensions, not 1")


def _define(rank: int) -> Op:
    name = NAMES[rank]

    def compute(
        data: Tensor, weight: Tensor, bias: Tensor | None = None, /, *, strides: tuple[int, ...] = (),
        padding: tuple[int, ...] = (), dilations: tuple[int, ...] = (), groups: int = 1, auto_pad: str = "NOTSET",
    ) -> Tensor:  # fmt: skip
        _check(name, data, weight, bias, groups, rank)
        attrs = {"strides": strides, "padding": padding, "dilations": dilations, "auto_pad": auto_pad}
        window = conv_window(data.shape, weight.shape, attrs, name)
        channels = te.reduce_axis(weight.shape[1], "rc")
        taps = [te.reduce_axis(k, f"r{'dhw'[3 - rank + n]}") for n, k in enumerate(window.kernel)]
        out_per_group = weight.shape[0] // groups

        def element(n: Expr, o: Expr, *point: Expr) -> tuple[Expr, Expr | None]:
            where: list[Expr] = []
            spatial: list[Expr] = []
            for axis, (p, tap) in enumerate(zip(point, taps, strict=True)):
                index = window.input_index(axis, p, tap.var)
                where += inside(window, axis, index, data.shape[2 + axis])
                spatial.append(index)
            group = const(0) if groups == 1 else o // out_per_group
            source = wide(data(n, group * weight.shape[1] + channels.var, *spatial)) * wide(
                weight(o, channels.var, *[t.var for t in taps])
            )
            return source, te.logical_and(*where) if where else None

        result = long_sum((data.shape[0], weight.shape[0], *window.result), [channels, *taps], element, name)
        result = rounded(result, data.dtype)
        if bias is None:
            return result
        return te.compute(result.shape, lambda n, o, *p: result(n, o, *p) + bias(o), name=f"{name}_bias")

    compute.__doc__ = (
        f"Convolution over {rank} spatial axes: data (N, C, spatial...), weight (O, C/groups, kernel...), bias (O,). "
        "`padding` is begins then ends. The sum runs over channels, then kernel positions, in chunks if it is long; "
        "padded taps are left out."
    )
    attrs = {
        "strides": attribute("strides", ()),
        "padding": attribute("pads", ()),
        "dilations": attribute("dilations", ()),
        "groups": attribute("group", 1),
        "auto_pad": attribute("auto_pad", "NOTSET"),
    }
    made = op(name, onnx=[Onnx("Conv", 1, attrs, rank=rank + 2)], scale="weight")(compute)

    @made.reference
    def _reference(data: Any, weight: Any, bias: Any = None, **attrs: Any) -> Any:
        return conv_reference(data, weight, bias, name, **attrs)

    return made


def conv_reference(data: Any, weight: Any, bias: Any, name: str, *, groups: int = 1, **attrs: Any) -> Any:
    """Convolution by numpy: one tensordot a kernel position."""
    rank = data.ndim - 2
    window = conv_window(tuple(map(const, data.shape)), tuple(map(const, weight.shape)), attrs, name)

    def number(e: Expr) -> int:
        assert isinstance(e, Const)
        return int(e.value)

    pads = [(0, 0), (0, 0), *((number(b), number(a)) for b, a in zip(window.before, window.after, strict=True))]
    padded = np.pad(data, pads)
    out = [number(r) for r in window.result]
    result = np.zeros((data.shape[0], weight.shape[0], *out), np.result_type(data, weight))
    per_in, per_out = weight.shape[1], weight.shape[0] // groups
    for tap in np.ndindex(*weight.shape[2:]):
        index = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, window.dilations, out, window.strides, strict=True)
        )
        patch = padded[(slice(None), slice(None), *index)]
        for g in range(groups):
            a = patch[:, g * per_in : (g + 1) * per_in]
            b = weight[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)]
            result[:, g * per_out : (g + 1) * per_out] += np.moveaxis(np.tensordot(b, a, (1, 1)), 0, 1)
    return result if bias is None else result + bias.reshape(1, -1, *(1,) * rank)


conv1d, conv2d, conv3d = (_define(rank) for rank in (1, 2, 3))

conv2d.case([(1, 3, 8, 9), (4, 3, 3, 3)], padding=(1, 1, 1, 1))
conv2d.case([(2, 4, 7, 5), (6, 2, 3, 2), (6,)], groups=2, strides=(2, 1), padding=(0, 0, 1, 1))
conv2d.case([(1, 4, 5, 5), (4, 1, 3, 3)], groups=4, dilations=(2, 2), padding=(2, 2, 2, 2))
conv2d.case([(1, 16, 14, 14), (32, 16, 1, 1), (32,)])
conv2d.case([(1, 3, 12, 11), (5, 3, 5, 3)], padding=(1, 2, 2, 1), strides=(2, 2))
conv2d.case([(1, 2, 9, 9), (2, 2, 3, 5)], dilations=(1, 2), padding=(3, 3, 2, 2))
conv2d.case([(1, 2, 7, 8), (3, 2, 3, 3)], auto_pad="SAME_UPPER", strides=(2, 2))
conv2d.case([(1, 17, 13, 13), (19, 17, 3, 3), (19,)], padding=(1, 1, 1, 1))
conv2d.case([(1, 32, 28, 28), (32, 32, 3, 3), (32,)], padding=(1, 1, 1, 1), tolerance=3e-5)
conv2d.case([(1, 32, 14, 14), (32, 1, 3, 3), (32,)], groups=32, padding=(1, 1, 1, 1), strides=(2, 2))
conv1d.case([(2, 3, 11), (4, 3, 3), (4,)], padding=(1, 1))
conv3d.case([(1, 2, 4, 5, 6), (3, 2, 2, 3, 3)], padding=(0, 1, 1, 1, 1, 1))
