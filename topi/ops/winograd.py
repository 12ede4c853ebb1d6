"""Convolution by Winograd's minimal filtering, as ops of its own: the weight's transform and the convolution on it.

F(m x m, 3 x 3) computes an m x m tile of the result from an (m + 2) x (m + 2) tile of the input with (m + 2)^2 products
a channel pair instead of 9 m^2 (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015). The three
transforms come from interpolation points (Toom-Cook); the points decide the rounding error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tensorir import te
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.op import OpError, op

POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
    6: (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-1, 2), Fraction(2), Fraction(-2)),
}
"""Finite interpolation points by tile size; infinity is the last point of each. Those of F(4) were chosen for a small
error (a third to a quarter of that of 0, 1, -1, 2, -2)."""

Matrix = tuple[tuple[Fraction, ...], ...]


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients, lowest first, of the monic polynomial with these roots."""
    result = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *result]
        result = [s - root * c for s, c in zip(shifted, [*result, Fraction(0)], strict=True)]
    return result


@cache
def transforms(m: int, r: int = 3) -> tuple[Matrix, Matrix, Matrix]:
    """(A^T of m x n, G of n x r, B^T of n x n) with n = m + r - 1: A^T [(G g) * (B^T d)] correlates d with g.

    B^T holds the Lagrange numerators of the points, G the powers of the points over their denominators, A^T the powers.
    """
    points = POINTS[m]
    n = m + r - 1
    if len(points) != n - 1:
        raise OpError(f"winograd: F({m}, {r}) needs {n - 1} points, not {len(points)}")
    a = tuple(tuple(p**i for p in points) + (Fraction(1 if i == m - 1 else 0),) for i in range(m))
    g_rows: list[tuple[Fraction, ...]] = []
    b_rows: list[tuple[Fraction, ...]] = []
    for i, p in enumerate(points):
        others = [q for j, q in enumerate(points) if j != i]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        g_rows.append(tuple(p**k / scale for k in range(r)))
        b_rows.append((*_polynomial(others), Fraction(0)))
    g_rows.append(tuple(Fraction(1 if k == r - 1 else 0) for k in range(r)))
    b_rows.append(tuple(_polynomial(points)))
    return a, tuple(g_rows), tuple(b_rows)


def _combine(row: Sequence[Fraction], terms: Sequence[Expr]) -> Expr:
    """The sum of coefficient * term, each step one fused multiply-add, ones and zeros for free."""
    result: Expr | None = None
    for c, t in sorted(zip(row, terms, strict=True), key=lambda item: item[0] not in (1, -1)):
        if c == 0:
            continue
        factor = const(float(c), t.dtype)
        if result is None:
            result = t if c == 1 else t * factor
        elif c == 1:
            result = result + t
        elif c == -1:
            result = result - t
        else:
            result = te.fma(t, factor, result)
    return result if result is not None else const(0.0, terms[0].dtype)


def _rows(index: Expr, matrix: Matrix, terms: Sequence[Expr]) -> Expr:
    """Row `index` of matrix times terms: a choice that folds away once the loop over `index` is unrolled."""
    result = _combine(matrix[-1], terms)
    for number in range(len(matrix) - 2, -1, -1):
        result = te.select(te.equal(index, number), _combine(matrix[number], terms), result)
    return result


@op("winograd_weight")
def winograd_weight(weight: Tensor, /, *, m: int) -> Tensor:
    """G g G^T of each 3 x 3 filter of weight (O, I, 3, 3): (n * n, O, I) with n = m + 2."""
    if len(weight.shape) != 4:
        raise OpError(f"winograd_weight: the weight has {len(weight.shape)} dimensions, not 4")
    _, g, _ = transforms(m)
    n = m + 2
    half = te.compute(
        (n, 3, *weight.shape[:2]),
        lambda u, k, o, i: _rows(u, g, [weight(o, i, const(r), k) for r in range(3)]),
        name="winograd_weight_rows",
    )
    return te.compute(
        (n * n, *weight.shape[:2]),
        lambda e, o, i: _rows(e % n, g, [half(e // n, const(c), o, i) for c in range(3)]),
        name="winograd_weight",
    )


@winograd_weight.reference
def _winograd_weight(weight: Any, *, m: int) -> Any:
    g = np.array(transforms(m)[1], dtype=np.float64)
    n = m + 2
    return np.einsum("ur,oirc,vc->uvoi", g, weight, g).reshape(n * n, *weight.shape[:2])


for _m in (2, 4, 6):
    winograd_weight.case([(5, 3, 3, 3)], m=_m)


def winograd_stages(
    read_data: Callable[[Expr, Sequence[Expr], Expr, Expr, Sequence[Expr]], Expr], extent: Sequence[Expr],
    product: Callable[[Tensor, Expr, Expr, Expr, Sequence[Expr]], Expr], images: Expr, channels: Sequence[Expr],
    channel_lane: Sequence[Expr], out_channels: Expr, out_lane: Sequence[Expr], padding: Sequence[int], m: int,
    group: int = 1,
) -> Tensor:  # fmt: skip
    """The stages of the convolution over any channel layout: `channels` (and `channel_lane`, if blocked) are the
    input's channel extents, `out_channels` and `out_lane` the result's. The number of tiles is rounded up to a multiple
    of `group`; what is added lies behind the image and is read by nobody.
    Returns (N, out_channels, OH, OW, *out_lane)."""
    a, _, b = transforms(m)
    n = m + 2
    height = int(getattr(extent[0], "value", 0)) + padding[0] + padding[2] - 2
    width = int(getattr(extent[1], "value", 0)) + padding[1] + padding[3] - 2
    rows, columns = -(-height // m), -(-width // m)
    tiles = -(-rows * columns // group) * group
    tile_shape = (images, tiles, *channels, n, n, *channel_lane)

    def gathered(i: Expr, p: Expr, c: Expr, r: Expr, k: Expr, *lane: Expr) -> Expr:
        y, x = (p // columns) * m - padding[0], (p % columns) * m - padding[1]
        return read_data(i, (c,), y + r, x + k, lane)

    tile = te.compute(tile_shape, gathered, name="winograd_tile")
    half = te.compute(
        tile_shape,
        lambda i, p, c, u, k, *lane: _rows(u, b, [tile(i, p, c, const(r), k, *lane) for r in range(n)]),
        name="winograd_input_rows",
    )

    def transformed(i: Expr, e: Expr, c: Expr, p: Expr, *lane: Expr) -> Expr:
        return _rows(e % n, b, [half(i, p, c, e // n, const(k), *lane) for k in range(n)])

    data = te.compute((images, n * n, *channels, tiles, *channel_lane), transformed, name="winograd_input")
    products = te.compute(
        (images, out_channels, n * n, tiles, *out_lane),
        lambda i, o, e, p, *lane: product(data, i, o, e, (p, *lane)),
        name="winograd_product",
    )

    def output_row(i: Expr, o: Expr, p: Expr, y: Expr, v: Expr, *lane: Expr) -> Expr:
        return _rows(y, a, [products(i, o, v + u * n, p, *lane) for u in range(n)])

    back = te.compute((images, out_channels, tiles, m, n, *out_lane), output_row, name="winograd_output_rows")

    def result(i: Expr, o: Expr, y: Expr, x: Expr, *lane: Expr) -> Expr:
        p = (y // m) * columns + x // m
        return _rows(x % m, a, [back(i, o, p, y % m, const(v), *lane) for v in range(n)])

    return te.compute((images, out_channels, height, width, *out_lane), result, name="winograd_output")


@op("conv2d_winograd", scale="weight")
def conv2d_winograd(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, /, *, m: int, padding: tuple[int, ...] = (0, 0, 0, 0)
) -> Tensor:
    """3 x 3 convolution with stride 1 of data (N, C, H, W) by the transformed weight (n * n, O, C): F(m x m, 3 x 3)."""

    def read_data(i: Expr, c: Sequence[Expr], y: Expr, x: Expr, lane: Sequence[Expr]) -> Expr:
        inside = te.logical_and(y >= 0, y < data.shape[2], x >= 0, x < data.shape[3])
        return te.if_then_else(inside, data(i, *c, y, x), const(0, data.dtype))

    k = te.reduce_axis(data.shape[1], "ic")

    def product(v: Tensor, i: Expr, o: Expr, e: Expr, rest: Sequence[Expr]) -> Expr:
        return te.sum(v(i, e, k.var, rest[0]) * weight(e, o, k.var), axis=k)

    result = winograd_stages(
        read_data, data.shape[2:], product, data.shape[0], (data.shape[1],), (), weight.shape[1], (), padding, m
    )
    if bias is None:
        return result
    return te.compute(result.shape, lambda i, o, y, x: result(i, o, y, x) + bias(o), name="winograd_bias")


@conv2d_winograd.reference
def _conv2d_winograd(data: Any, weight: Any, bias: Any = None, *, m: int, padding: Any = (0, 0, 0, 0)) -> Any:
    a, _, b = (np.array(t, dtype=np.float64) for t in transforms(m))
    n = m + 2
    p = np.pad(data, [(0, 0), (0, 0), (padding[0], padding[2]), (padding[1], padding[3])])
    height, width = p.shape[2] - 2, p.shape[3] - 2
    rows, columns = -(-height // m), -(-width // m)
    p = np.pad(p, [(0, 0), (0, 0), (0, rows * m + 2 - p.shape[2]), (0, columns * m + 2 - p.shape[3])])
    result = np.zeros((data.shape[0], weight.shape[1], rows * m, columns * m), data.dtype)
    u = weight.reshape(n, n, *weight.shape[1:])
    for y in range(rows):
        for x in range(columns):
            d = p[:, :, y * m : y * m + n, x * m : x * m + n]
            v = np.einsum("ur,bcrk,vk->bcuv", b, d, b)
            t = np.einsum("bcuv,uvoc->bouv", v, u)
            result[:, :, y * m : y * m + m, x * m : x * m + m] = np.einsum("yu,bouv,xv->boyx", a, t, a)
    result = result[:, :, :height, :width]
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


for _m in (2, 4, 6):
    conv2d_winograd.case([(1, 3, 7, 9), ((_m + 2) ** 2, 5, 3), (5,)], m=_m, padding=(1, 1, 1, 1), tolerance=2e-4)
conv2d_winograd.case([(2, 3, 8, 8), (36, 4, 3)], m=4, padding=(0, 1, 1, 0), tolerance=2e-4)
