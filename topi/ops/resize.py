"""Resize: nearest, linear and cubic interpolation along any axes, with ONNX's ways to find the source coordinate.

Coordinates are computed in float32, one axis after the other. The scale that was asked for is used, not the ratio of
the extents: 3 elements at scale 2.5 become 7, and their coordinates step by 1 / 2.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, as_expr, const
from tensorir.te import Tensor
from topi.broadcast import same_extent
from topi.op import Fixed, Onnx, OpError, Source, attribute, input_value, op
from topi.ops.shape import normalize_axes

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")

_SHARED: dict[str, Source] = {
    "mode": attribute("mode", "nearest"),
    "coordinates": attribute("coordinate_transformation_mode", "half_pixel"),
    "nearest": attribute("nearest_mode", "round_prefer_floor"),
    "cubic_coefficient": attribute("cubic_coeff_a", -0.75),
    "exclude_outside": attribute("exclude_outside", 0, bool),
    "extrapolation": attribute("extrapolation_value", 0.0),
    "roi": input_value(1),
    "scales": input_value(2),
    "sizes": input_value(3),
}
_OLD: dict[str, Source] = {
    "mode": attribute("mode", "nearest"),
    "coordinates": Fixed("asymmetric"),
    "nearest": Fixed("simple"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One resized axis: extents, the step between neighbouring results in the source, and the part of the operand."""

    axis: int
    source: Expr
    result: Expr
    scale: Expr
    start: float
    end: float


@op(
    "resize",
    onnx=[
        Onnx("Upsample", 7, {**_OLD, "scales": attribute("scales")}, inputs=(0,)),
        Onnx("Upsample", 9, {**_OLD, "scales": input_value(1)}, inputs=(0,)),
        Onnx("Resize", 10, {**_OLD, "scales": input_value(1)}, inputs=(0,)),
        Onnx("Resize", 11, _SHARED, inputs=(0,)),
        Onnx(
            "Resize", 18,
            {
                **_SHARED,
                "axes": attribute("axes"),
                "antialias": attribute("antialias", 0, bool),
                "aspect": attribute("keep_aspect_ratio_policy", "stretch"),
            },
            inputs=(0,),
        ),
    ],
    axis_attrs={"axes": "axes"},
)  # fmt: skip
def resize(
    x: Tensor, /, *, scales: tuple[float, ...] | None = None, sizes: tuple[Any, ...] | None = None,
    axes: tuple[int, ...] | None = None, mode: str = "nearest", coordinates: str = "half_pixel",
    nearest: str = "round_prefer_floor", cubic_coefficient: float = -0.75, exclude_outside: bool = False,
    extrapolation: float = 0.0, roi: tuple[float, ...] | None = None, antialias: bool = False, aspect: str = "stretch",
) -> Tensor:  # fmt: skip
    """x with the extents of `axes` (default: all) times `scales` or set to `sizes`, read between its elements."""
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(mode, mode)
    for value, known, what in (
        (mode, MODES, "mode"), (coordinates, COORDINATES, "coordinate mode"), (nearest, NEAREST, "nearest mode"),
    ):  # fmt: skip
        if value not in known:
            raise OpError(f"resize: unknown {what} {value!r}", help=f"known ones are {', '.join(known)}")
    if antialias and mode != "nearest":
        raise OpError("resize: antialias is not supported", help="export the model with antialias=False")
    result = x
    for item in resized_axes(x, scales, sizes, axes, roi, aspect):
        result = _resize_axis(
            result, item, mode, coordinates, nearest, cubic_coefficient, exclude_outside, extrapolation
        )
    return result if result is not x else te.compute(x.shape, lambda *i: x(*i), name="resize")


def resized_axes(
    x: Tensor, scales: Sequence[float] | None, sizes: Sequence[Any] | None, axes: Sequence[int] | None,
    roi: Sequence[float] | None, aspect: str,
) -> list[Axis]:  # fmt: skip
    """The axes that change, with their new extents. Raises `OpError` for amounts that do not fit the operand."""
    rank = len(x.shape)
    places = tuple(range(rank)) if axes is None else normalize_axes("resize", axes, rank)
    amounts = scales if scales else sizes
    if not amounts or (scales and sizes):
        raise OpError("resize: needs either scales or sizes")
    if len(amounts) != len(places):
        raise OpError(f"resize: {len(amounts)} amounts are given for {len(places)} axes")
    if sizes and aspect != "stretch":
        return _kept_aspect(x, sizes, places, aspect)
    found: list[Axis] = []
    for n, (axis, amount) in enumerate(zip(places, amounts, strict=True)):
        source = x.shape[axis]
        start, end = (0.0, 1.0) if not roi else (float(roi[n]), float(roi[n + len(places)]))
        scale: Expr
        if scales:
            scale = const(float(amount), dtypes.float32)
            result = _scaled(source, float(amount))
        else:
            result = as_expr(amount)
            scale = _ratio(result, source)
        plain = (start, end) == (0.0, 1.0) and same_extent(source, result)
        if not (plain and (not scales or float(amount) == 1.0)):
            found.append(Axis(axis, source, result, scale, start, end))
    return found


def _kept_aspect(x: Tensor, sizes: Sequence[Any], places: Sequence[int], aspect: str) -> list[Axis]:
    pick = {"not_larger": min, "not_smaller": max}.get(aspect)
    if pick is None:
        raise OpError(f"resize: unknown aspect policy {aspect!r}", help="known are stretch, not_larger, not_smaller")
    extents = [x.shape[p] for p in places]
    wanted = [as_expr(s) for s in sizes]
    if not all(isinstance(e, Const) for e in (*extents, *wanted)):
        raise OpError(f"resize: keep_aspect_ratio_policy={aspect} needs known extents and sizes")
    scale = pick(w.value / e.value for w, e in zip(wanted, extents, strict=True))  # type: ignore[attr-defined]
    return [
        Axis(p, e, const(math.floor(scale * e.value + 0.5)), const(scale, dtypes.float32), 0.0, 1.0)  # type: ignore[attr-defined]
        for p, e in zip(places, extents, strict=True)
    ]


def _scaled(extent: Expr, scale: float) -> Expr:
    if isinstance(extent, Const):
        return const(math.floor(int(extent.value) * float(np.float32(scale))))
    if scale == int(scale):
        return simplify(extent * int(scale))
    inverse = 1 / scale
    if inverse == int(inverse):
        return simplify(extent // int(inverse))
    raise OpError(f"resize: scale {scale} on the dimension {extent!r}, which is not known", help="give sizes instead")


def _ratio(result: Expr, source: Expr) -> Expr:
    if isinstance(result, Const) and isinstance(source, Const):
        ratio = float(np.float32(result.value) / np.float32(source.value)) if source.value else 1.0
        return const(ratio, dtypes.float32)
    return result.astype(dtypes.float32) / source.astype(dtypes.float32)


def _coordinate(i: Expr, a: Axis, how: str) -> Expr:
    """Where in the source result number `i` lies."""
    f32 = dtypes.float32
    x = i.astype(f32)
    half = const(0.5, f32)
    source, result = a.source.astype(f32), a.result.astype(f32)
    if how == "asymmetric":
        return x / a.scale
    if how == "align_corners":
        last = te.maximum(a.result - 1, const(1)).astype(f32)
        return x * (a.source - 1).astype(f32) / last
    if how == "tf_half_pixel_for_nn":
        return (x + half) / a.scale
    if how == "half_pixel_symmetric":
        middle = source / const(2.0, f32)
        offset = middle * (const(1.0, f32) - result / (a.scale * source))
        return offset + ((x + half) / a.scale - half)
    if how == "tf_crop_and_resize":
        start, end, last = const(a.start, f32), const(a.end, f32), (a.source - 1).astype(f32)
        step = (end - start) * last / te.maximum(a.result - 1, const(1)).astype(f32)
        return te.select(a.result > 1, start * last + x * step, half * (start + end) * last)
    place = (x + half) / a.scale - half
    return te.select(a.result > 1, place, const(0.0, f32)) if how == "pytorch_half_pixel" else place


def _rounded(c: Expr, a: Axis, how: str) -> Expr:
    half = const(0.5, dtypes.float32)
    if how == "round_prefer_floor":
        return te.ceil(c - half)
    if how == "round_prefer_ceil":
        return te.floor(c + half)
    if how == "floor":
        return te.floor(c)
    if how == "ceil":
        return te.ceil(c)
    return te.select(a.scale < const(1.0, dtypes.float32), te.ceil(c), te.floor(c))


def _resize_axis(
    x: Tensor, a: Axis, mode: str, coordinates: str, nearest: str, coefficient: float, exclude: bool,
    extrapolation: float,
) -> Tensor:  # fmt: skip
    f32 = dtypes.float32
    wide = x.dtype if x.dtype.bits == 64 and x.dtype.is_float else f32
    last = simplify(a.source - 1)

    def clamped(e: Expr) -> Expr:
        return te.maximum(const(0), te.minimum(e, last))

    def element(*point: Expr) -> Expr:
        def at(index: Expr) -> Expr:
            return x(*point[: a.axis], clamped(index), *point[a.axis + 1 :])

        c = _coordinate(point[a.axis], a, coordinates)
        if mode == "nearest":
            value: Expr = at(_rounded(c, a, nearest).astype(dtypes.INDEX))
        elif mode == "linear":
            c_in = te.maximum(const(0.0, f32), te.minimum(c, last.astype(f32)))
            below = te.floor(c_in)
            index, ratio = below.astype(dtypes.INDEX), (c_in - below).astype(wide)
            low, high = at(index).astype(wide), at(index + 1).astype(wide)
            value = (low * (const(1.0, wide) - ratio) + high * ratio).astype(x.dtype)
        else:
            below = te.floor(c)
            index, t = below.astype(dtypes.INDEX), c - below
            weights = _cubic(t, coefficient)
            if exclude:
                zero = const(0.0, f32)
                weights = [
                    te.select(te.logical_and(index + n >= 0, index + n <= last), w, zero)
                    for n, w in zip(range(-1, 3), weights, strict=True)
                ]
                total = weights[0] + weights[1] + weights[2] + weights[3]
                weights = [w / total for w in weights]
            terms = [at(index + n).astype(wide) * w.astype(wide) for n, w in zip(range(-1, 3), weights, strict=True)]
            value = (((terms[0] + terms[1]) + terms[2]) + terms[3]).astype(x.dtype)
        if coordinates == "tf_crop_and_resize":
            outside = te.logical_or(c < const(0.0, f32), c > last.astype(f32))
            value = te.select(outside, const(extrapolation, x.dtype), value)
        return value

    shape = [*x.shape[: a.axis], a.result, *x.shape[a.axis + 1 :]]
    return te.compute(shape, element, name="resize")


def _cubic(t: Expr, coefficient: float) -> list[Expr]:
    """Weights of the elements at -1, 0, 1 and 2 from the coordinate's floor; `t` is the rest."""
    f32 = dtypes.float32
    a, one = const(coefficient, f32), const(1.0, f32)

    def near(s: Expr) -> Expr:
        return ((a + const(2.0, f32)) * s - (a + const(3.0, f32))) * s * s + one

    def far(s: Expr) -> Expr:
        return ((a * s - const(5.0, f32) * a) * s + const(8.0, f32) * a) * s - const(4.0, f32) * a

    return [far(t + one), near(t), near(one - t), far(const(2.0, f32) - t)]


@resize.reference
def _reference(
    x: Any, *, scales: Any = None, sizes: Any = None, axes: Any = None, mode: str = "nearest",
    coordinates: str = "half_pixel", nearest: str = "round_prefer_floor", **attrs: Any,
) -> Any:  # fmt: skip
    for n, axis in enumerate(range(x.ndim) if axes is None else axes):
        size = x.shape[axis]
        result = sizes[n] if sizes else math.floor(size * scales[n])
        step = scales[n] if scales else result / size
        i = np.arange(result)
        c = {
            "half_pixel": (i + 0.5) / step - 0.5,
            "asymmetric": i / step,
            "align_corners": i * (size - 1) / max(result - 1, 1),
        }[coordinates]
        if mode == "nearest":
            rounded = {"round_prefer_floor": np.ceil(c - 0.5), "floor": np.floor(c), "ceil": np.ceil(c)}[nearest]
            x = np.take(x, np.clip(rounded, 0, size - 1).astype(int), axis)
        else:
            c = np.clip(c, 0, size - 1)
            low = np.floor(c).astype(int)
            ratio = (c - low).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
            high = np.minimum(low + 1, size - 1)
            x = np.take(x, low, axis) * (1 - ratio) + np.take(x, high, axis) * ratio
    return x


resize.case([(1, 2, 3, 5)], scales=(1.0, 1.0, 2.5, 2.0))
resize.case([(1, 2, 3, 5)], scales=(1.0, 1.0, 2.5, 2.0), mode="linear")
resize.case([(2, 3, 5)], sizes=(7, 3), axes=(1, 2), mode="linear", coordinates="align_corners")
resize.case([(1, 2, 4, 6)], scales=(1.0, 1.0, 0.5, 0.5), coordinates="asymmetric", nearest="floor")
resize.case([(1, 2, 4, 6)], "uint8", scales=(1.0, 1.0, 2.0, 2.0), low=0, high=200)
