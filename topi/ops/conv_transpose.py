"""Transposed convolution: the gradient of a convolution with respect to its data, as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, as_expr, const, floordiv, floormod
from tensorir.te import Tensor
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.op import Onnx, Op, OpError, attribute, op


def _spread(values: Sequence[int] | None, count: int, default: int, what: str, name: str) -> tuple[int, ...]:
    result = (default,) * count if not values else tuple(int(v) for v in values)
    if len(result) != count:
        raise OpError(f"{name}: {what} has {len(result)} values for {count}")
    return result


def transposed_extents(
    name: str, extents: Sequence[Expr], kernel: Sequence[Expr], strides: Sequence[int], dilations: Sequence[int],
    padding: Sequence[int], extra: Sequence[int], shape: Sequence[Any], auto_pad: str,
) -> tuple[list[Expr], list[Expr]]:  # fmt: skip
    """(result extents, elements cut off in front) of each spatial axis."""
    rank = len(extents)
    result: list[Expr] = []
    front: list[Expr] = []
    for n in range(rank):
        full = (extents[n] - 1) * strides[n] + extra[n] + (kernel[n] - 1) * dilations[n] + 1
        wanted: Expr | None = as_expr(shape[n]) if shape else None
        if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = extents[n] * strides[n]
        if wanted is None:
            result.append(simplify(full - padding[n] - padding[rank + n]))
            front.append(const(padding[n]))
            continue
        total = simplify(te.maximum(full - wanted, const(0)))
        half = simplify(floordiv(total, 2))
        front.append(half if auto_pad != "SAME_LOWER" else simplify(total - half))
        result.append(simplify(wanted))
    for n, e in enumerate(result):
        if isinstance(e, Const) and e.value < 0:
            raise OpError(f"{name}: spatial axis {n} of the result would have {e.value} elements")
    return result, front


def _define(rank: int) -> Op:
    name = f"conv_transpose{rank}d"

    def compute(
        data: Tensor, weight: Tensor, bias: Tensor | None = None, /, *, strides: tuple[int, ...] = (),
        padding: tuple[int, ...] = (), dilations: tuple[int, ...] = (), groups: int = 1, auto_pad: str = "NOTSET",
        output_padding: tuple[int, ...] = (), output_shape: tuple[Any, ...] = (),
    ) -> Tensor:  # fmt: skip
        for t, what in ((data, "data"), (weight, "weight")):
            if len(t.shape) != rank + 2:
                raise OpError(f"{name}: {what} has {len(t.shape)} dimensions, not {rank + 2}")
        channels, per_in = data.shape[1], weight.shape[0]
        if isinstance(channels, Const) and isinstance(per_in, Const) and channels.value != per_in.value:
            raise OpError(f"{name}: data has {channels.value} channels, but the weight takes {per_in.value}")
        s = _spread(strides, rank, 1, "strides", name)
        d = _spread(dilations, rank, 1, "dilations", name)
        p = _spread(padding, 2 * rank, 0, "padding", name)
        e = _spread(output_padding, rank, 0, "output_padding", name)
        extents, front = transposed_extents(name, data.shape[2:], weight.shape[2:], s, d, p, e, output_shape, auto_pad)
        in_group, out_group = simplify(channels // groups), weight.shape[1]
        c = te.reduce_axis(in_group, "rc")
        taps = [te.reduce_axis(k, f"r{n}") for n, k in enumerate(weight.shape[2:])]

        def element(n: Expr, o: Expr, *point: Expr) -> tuple[Expr, Expr]:
            where: list[Expr] = []
            places: list[Expr] = []
            for axis, (v, tap) in enumerate(zip(point, taps, strict=True)):
                offset = v + front[axis] - tap.var * d[axis]
                place = floordiv(offset, s[axis]) if s[axis] > 1 else offset
                if s[axis] > 1:
                    where.append(te.equal(floormod(offset, s[axis]), 0))
                where += [place >= 0, place < data.shape[2 + axis]]
                places.append(place)
            group = const(0) if groups == 1 else floordiv(o, out_group)
            inner = o if groups == 1 else floormod(o, out_group)
            channel = group * in_group + c.var
            value = wide(data(n, channel, *places)) * wide(weight(channel, inner, *[t.var for t in taps]))
            return value, te.logical_and(*where)

        shape = (data.shape[0], simplify(out_group * groups), *extents)
        result = rounded(long_sum(shape, [c, *taps], element, name), data.dtype)
        if bias is None:
            return result
        return te.compute(shape, lambda n, o, *v: result(n, o, *v) + bias(o), name=f"{name}_bias")

    compute.__doc__ = (
        f"Transposed convolution over {rank} spatial axes: data (N, C, spatial...), weight (C, O/groups, kernel...)."
    )
    attrs = {
        "strides": attribute("strides", ()),
        "padding": attribute("pads", ()),
        "dilations": attribute("dilations", ()),
        "groups": attribute("group", 1),
        "auto_pad": attribute("auto_pad", "NOTSET"),
        "output_padding": attribute("output_padding", ()),
        "output_shape": attribute("output_shape", ()),
    }
    made = op(name, onnx=[Onnx("ConvTranspose", 1, attrs, rank=rank + 2)])(compute)

    @made.reference
    def _reference(
        data: Any, weight: Any, bias: Any = None, *, strides: Any = (), padding: Any = (), dilations: Any = (),
        groups: int = 1, output_padding: Any = (),
    ) -> Any:  # fmt: skip
        s, d = strides or (1,) * rank, dilations or (1,) * rank
        p, e = padding or (0,) * (2 * rank), output_padding or (0,) * rank
        size = data.shape[2:]
        full = [(size[n] - 1) * s[n] + (weight.shape[2 + n] - 1) * d[n] + 1 + e[n] for n in range(rank)]
        out = np.zeros((data.shape[0], weight.shape[1] * groups, *full))
        per_in, per_out = data.shape[1] // groups, weight.shape[1]
        for g in range(groups):
            for tap in np.ndindex(*weight.shape[2:]):
                place = tuple(slice(t * d[n], t * d[n] + (size[n] - 1) * s[n] + 1, s[n]) for n, t in enumerate(tap))
                x = data[:, g * per_in : (g + 1) * per_in]
                w = weight[(slice(g * per_in, (g + 1) * per_in), slice(None), *tap)]
                index = (slice(None), slice(g * per_out, (g + 1) * per_out), *place)
                out[index] += np.moveaxis(np.tensordot(x, w, ([1], [0])), -1, 1)
        cut = tuple(slice(p[n], full[n] - p[rank + n]) for n in range(rank))
        out = out[(slice(None), slice(None), *cut)]
        return out if bias is None else out + bias.reshape(1, -1, *(1,) * rank)

    return made


conv_transpose1d, conv_transpose2d, conv_transpose3d = (_define(rank) for rank in (1, 2, 3))

conv_transpose2d.case([(1, 3, 4, 5), (3, 2, 3, 3), (2,)])
conv_transpose2d.case([(2, 4, 3, 4), (4, 3, 2, 3)], strides=(2, 2), padding=(0, 1, 1, 1), groups=2)
conv_transpose2d.case([(1, 2, 4, 3), (2, 2, 3, 3)], strides=(2, 3), dilations=(2, 1), output_padding=(1, 2))
conv_transpose1d.case([(1, 3, 7), (3, 2, 4)], strides=(2,), padding=(1, 1))
conv_transpose3d.case([(1, 2, 2, 3, 2), (2, 1, 2, 2, 2)], strides=(2, 1, 2))
