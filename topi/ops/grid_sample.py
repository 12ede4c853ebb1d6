"""Sampling at computed places: each point of the result is interpolated around coordinates that a grid holds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, op

MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75


def _mode(name: str) -> str:
    return MODES.get(name, name)


@op(
    "grid_sample",
    onnx=[
        Onnx(
            "GridSample",
            16,
            {
                "mode": attribute("mode", "linear", _mode),
                "padding": attribute("padding_mode", "zeros"),
                "align_corners": attribute("align_corners", 0, bool),
            },
        )
    ],
)
def grid_sample(
    x: Tensor, grid: Tensor, /, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Tensor:
    """x (batch, channel, spatial...) at the points of grid (batch, result spatial..., coordinates), which run
    from -1 to 1 and name the last axis first."""
    rank = len(x.shape) - 2
    if mode not in MODES.values():
        raise OpError(f"grid_sample: unknown mode {mode!r}", help="known are linear, nearest and cubic")
    if padding not in PADDINGS:
        raise OpError(f"grid_sample: unknown padding {padding!r}", help=f"known are {', '.join(PADDINGS)}")
    if len(grid.shape) != rank + 2 or rank < 1:
        raise OpError(f"grid_sample: the grid has {len(grid.shape)} dimensions for data of {len(x.shape)}")
    if mode == "cubic" and rank != 2:
        raise OpError(f"grid_sample: cubic sampling is for images, the data has {rank} spatial axes")
    t = x.dtype

    def number(value: float) -> Expr:
        return const(value, t)

    def unnormalized(value: Expr, extent: Expr) -> Expr:
        size = extent.astype(t)
        if align_corners:
            return (value + number(1.0)) * number(0.5) * (size - number(1.0))
        return ((value + number(1.0)) * size - number(1.0)) * number(0.5)

    def reflected(value: Expr, extent: Expr) -> Expr:
        """Folded between the borders, which are pixel centres or pixel edges."""
        size = extent.astype(t)
        low = number(0.0) if align_corners else number(-0.5)
        span = size - number(1.0) if align_corners else size
        safe = te.maximum(span, number(1e-30))
        distance = te.abs(value - low)
        turns = te.floor(distance / safe)
        rest = distance - turns * span
        even = te.equal(te.floor(turns * number(0.5)) * number(2.0), turns)
        return te.select(te.equal(span, number(0.0)), number(0.0), te.select(even, low + rest, low + span - rest))

    def clipped(value: Expr, extent: Expr) -> Expr:
        return te.maximum(number(0.0), te.minimum(value, extent.astype(t) - number(1.0)))

    def placed(value: Expr, extent: Expr) -> Expr:
        """The coordinate after padding's rule."""
        if padding == "border":
            return clipped(value, extent)
        if padding == "reflection":
            return clipped(reflected(value, extent), extent)
        return value

    def pixel(n: Expr, c: Expr, places: list[Expr]) -> Expr:
        """The element at whole coordinates, by padding's rule outside."""
        whole = [placed(p, e) for p, e in zip(places, x.shape[2:], strict=True)] if mode == "cubic" else places
        inside = []
        index = []
        for p, e in zip(whole, x.shape[2:], strict=True):
            size = e.astype(t)
            inside += [p >= number(0.0), p <= size - number(1.0)]
            safe = te.maximum(number(0.0), te.minimum(p, size - number(1.0)))
            i = te.select(p >= number(0.0), safe, number(0.0)).astype(dtypes.INDEX)
            index.append(te.maximum(const(0), te.minimum(i, e - 1)))
        value = x(n, c, *index)
        return te.select(te.logical_and(*inside), value, number(0.0)) if padding == "zeros" else value

    def element(n: Expr, c: Expr, *point: Expr) -> Expr:
        at = [unnormalized(grid(n, *point, const(rank - 1 - a)), x.shape[2 + a]) for a in range(rank)]
        if mode != "cubic":
            at = [placed(v, e) for v, e in zip(at, x.shape[2:], strict=True)]
        if mode == "nearest":
            return pixel(n, c, [te.round(v) for v in at])
        low = [te.floor(v) for v in at]
        part = [v - f for v, f in zip(at, low, strict=True)]
        taps = range(2) if mode == "linear" else range(-1, 3)
        weights = [_linear(p, number) if mode == "linear" else _cubic(p, number) for p in part]
        total: Expr | None = None
        for steps in itertools.product(*[list(enumerate(taps))] * rank):
            places = [f + number(float(s)) for f, (_, s) in zip(low, steps, strict=True)]
            value = pixel(n, c, places)
            for w, (number_of, _) in zip(weights, steps, strict=True):
                value = value * w[number_of]
            total = value if total is None else total + value
        assert total is not None
        return total

    made: Tensor = te.compute((x.shape[0], x.shape[1], *grid.shape[1:-1]), element, name="grid_sample")
    return made


def _linear(part: Any, number: Any) -> list[Any]:
    return [number(1.0) - part, part]


def _cubic(part: Any, number: Any) -> list[Any]:
    """Keys' weights of the four pixels around."""
    a = CUBIC

    def near(d: Any) -> Any:
        return ((number(a + 2) * d - number(a + 3)) * d) * d + number(1.0)

    def far(d: Any) -> Any:
        return ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a)

    one = number(1.0)
    return [far(part + one), near(part), near(one - part), far(one + one - part)]


@grid_sample.reference
def _grid_sample(
    x: Any, grid: Any, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Any:
    rank = x.ndim - 2
    sizes = x.shape[2:]

    def placed(v: float, size: int) -> float:
        if padding == "border":
            return float(np.clip(v, 0, size - 1))
        if padding == "reflection":
            low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
            if span == 0:
                return 0.0
            distance = abs(v - low)
            turns, rest = int(distance // span), distance % span
            return float(np.clip(low + rest if turns % 2 == 0 else low + span - rest, 0, size - 1))
        return v

    def pixel(plane: Any, places: list[float]) -> float:
        if mode == "cubic":
            places = [placed(p, s) for p, s in zip(places, sizes, strict=True)]
        if any(not 0 <= p <= s - 1 for p, s in zip(places, sizes, strict=True)):
            return 0.0
        return float(plane[tuple(int(p) for p in places)])

    result = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    for point in np.ndindex(result.shape):
        raw = grid[(point[0], *point[2:])][::-1]
        at = [((v + 1) / 2 * (s - 1) if align_corners else ((v + 1) * s - 1) / 2) for v, s in zip(raw, sizes)]
        if mode != "cubic":
            at = [placed(float(v), s) for v, s in zip(at, sizes, strict=True)]
        plane = x[point[0], point[1]]
        if mode == "nearest":
            result[point] = pixel(plane, [float(np.rint(v)) for v in at])
            continue
        low = [float(np.floor(v)) for v in at]
        taps = range(2) if mode == "linear" else range(-1, 3)
        make = _linear if mode == "linear" else _cubic
        weights = [make(v - f, float) for v, f in zip(at, low, strict=True)]
        total = 0.0
        for steps in itertools.product(*[list(enumerate(taps))] * rank):
            value = pixel(plane, [f + s for f, (_, s) in zip(low, steps, strict=True)])
            for w, (n, _) in zip(weights, steps, strict=True):
                value *= w[n]
            total += value
        result[point] = total
    return result


for _mode_name in ("linear", "nearest", "cubic"):
    for _padding in PADDINGS:
        grid_sample.case(
            [(2, 2, 4, 5), (2, 3, 2, 2)], mode=_mode_name, padding=_padding, low=-1.4, high=1.4, tolerance=1e-4
        )
grid_sample.case([(1, 2, 3, 4, 5), (1, 2, 2, 3, 3)], align_corners=True, low=-1.2, high=1.2, tolerance=1e-4)
grid_sample.case([(1, 1, 4, 5), (1, 3, 2, 2)], padding="reflection", align_corners=True, low=-3, high=3, tolerance=1e-4)
