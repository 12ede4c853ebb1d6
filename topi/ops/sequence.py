"""Operators on sequences and positions: reversal by length, rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.arith import simplify
from tensorir.expr import Expr
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, op


@op(
    "reverse_sequence",
    onnx=[
        Onnx(
            "ReverseSequence",
            10,
            {"time_axis": attribute("time_axis", 0), "batch_axis": attribute("batch_axis", 1)},
        )
    ],
)
def reverse_sequence(x: Tensor, lengths: Tensor, /, *, time_axis: int = 0, batch_axis: int = 1) -> Tensor:
    """The first lengths[b] elements along `time_axis` reversed for each b along `batch_axis`; the rest stays."""
    if {time_axis, batch_axis} != {0, 1}:
        raise OpError(
            f"reverse_sequence: time and batch axes are {time_axis} and {batch_axis}", help="they are 0 and 1"
        )

    def element(*i: Expr) -> Expr:
        t, length = i[time_axis], lengths(i[batch_axis]).astype(dtypes.INDEX)
        last = te.maximum(te.minimum(length, x.shape[time_axis]), 0) - 1
        place = list(i)
        place[time_axis] = te.select(t <= last, last - t, t)
        return x(*place)

    made: Tensor = te.compute(x.shape, element, name="reverse_sequence")
    return made


@reverse_sequence.reference
def _reverse_sequence(x: Any, lengths: Any, *, time_axis: int = 0, batch_axis: int = 1) -> Any:
    rows = np.moveaxis(x, (batch_axis, time_axis), (0, 1)).copy()
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(rows, (0, 1), (batch_axis, time_axis))


reverse_sequence.case([(7, 3, 2), (3,)], ["float32", "int64"], low=1, high=7)
reverse_sequence.case([(3, 7), (3,)], ["float32", "int64"], low=1, high=7, time_axis=1, batch_axis=0)


@op("rotate_half")
def rotate_half(x: Tensor, cos: Tensor, sin: Tensor, /, *, interleaved: bool = False) -> Tensor:
    """Rotary embedding of x (..., positions, size): pairs of elements half the size apart (neighbours if `interleaved`)
    turned by the angles whose cosines and sines are in (positions, size / 2)."""
    half = simplify(x.shape[-1] // 2)

    def element(*i: Expr) -> Expr:
        lead, position, d = i[:-2], i[-2], i[-1]
        if interleaved:
            pair, first = d // 2, te.equal(d % 2, 0)
            low, high = x(*lead, position, pair * 2), x(*lead, position, pair * 2 + 1)
        else:
            first = d < half
            pair = te.select(first, d, d - half)
            low, high = x(*lead, position, pair), x(*lead, position, pair + half)
        c, s = cos(position, pair), sin(position, pair)
        return te.select(first, low * c - high * s, high * c + low * s)

    made: Tensor = te.compute(x.shape, element, name="rotate_half")
    return made


@rotate_half.reference
def _rotate_half(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    y = np.empty_like(x)
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    a, b = x[..., first], x[..., second]
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    return y


rotate_half.case([(2, 3, 5, 16), (5, 8), (5, 8)])
rotate_half.case([(3, 5, 6), (5, 3), (5, 3)], interleaved=True)
