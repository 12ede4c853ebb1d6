"""Pooling: maximum and average over windows, and over the whole map."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, as_expr, const, maximum, minimum
from tensorir.te import Tensor
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.op import Onnx, Op, OpError, attribute, op
from topi.window import Window, inside, make_window

_WINDOW = {
    "kernel": attribute("kernel_shape"),
    "strides": attribute("strides", ()),
    "padding": attribute("pads", ()),
    "dilations": attribute("dilations", ()),
    "ceil_mode": attribute("ceil_mode", 0, bool),
    "auto_pad": attribute("auto_pad", "NOTSET"),
}


def _window(name: str, data: Tensor, kernel: tuple[int, ...], attrs: dict[str, Any]) -> Window:
    if len(data.shape) != len(kernel) + 2:
        raise OpError(f"{name}: data has {len(data.shape)} dimensions, the kernel {len(kernel)}")
    window = make_window(name, data.shape[2:], [as_expr(k) for k in kernel], **attrs)
    for n, (b, a) in enumerate(zip(window.before, window.after, strict=True)):
        reach = (kernel[n] - 1) * window.dilations[n] + 1
        for p in (b, a):
            if isinstance(p, Const) and p.value >= reach:
                raise OpError(f"{name}: padding {p.value} on spatial axis {n} makes windows of padding only")
    return window


def _taps(window: Window) -> list[Any]:
    rank = len(window.kernel)
    return [te.reduce_axis(k, f"r{'dhw'[3 - rank + n]}") for n, k in enumerate(window.kernel)]


def _places(window: Window, data: Tensor, point: tuple[Expr, ...], taps: list[Any]) -> tuple[list[Expr], list[Expr]]:
    spatial: list[Expr] = []
    where: list[Expr] = []
    for axis, (p, tap) in enumerate(zip(point, taps, strict=True)):
        index = window.input_index(axis, p, tap.var)
        spatial.append(index)
        where += inside(window, axis, index, data.shape[2 + axis])
    return spatial, where


def _define(rank: int) -> tuple[Op, Op]:
    def max_pool(
        data: Tensor, /, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (), padding: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (), ceil_mode: bool = False, auto_pad: str = "NOTSET",
    ) -> Tensor:  # fmt: skip
        attrs = {"strides": strides, "padding": padding, "dilations": dilations}
        window = _window(max_name, data, kernel, {**attrs, "ceil_mode": ceil_mode, "auto_pad": auto_pad})
        taps = _taps(window)

        def element(n: Expr, c: Expr, *point: Expr) -> Expr:
            spatial, where = _places(window, data, point, taps)
            return te.max(data(n, c, *spatial), axis=taps, where=te.logical_and(*where) if where else None)

        return te.compute((*data.shape[:2], *window.result), element, name=max_name)

    def avg_pool(
        data: Tensor, /, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (), padding: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (), ceil_mode: bool = False, auto_pad: str = "NOTSET",
        include_pad: bool = False,
    ) -> Tensor:  # fmt: skip
        attrs = {"strides": strides, "padding": padding, "dilations": dilations}
        window = _window(avg_name, data, kernel, {**attrs, "ceil_mode": ceil_mode, "auto_pad": auto_pad})
        taps = _taps(window)

        def total(n: Expr, c: Expr, *point: Expr) -> tuple[Expr, Expr | None]:
            spatial, where = _places(window, data, point, taps)
            return wide(data(n, c, *spatial)), te.logical_and(*where) if where else None

        summed = long_sum((*data.shape[:2], *window.result), taps, total, f"{avg_name}_sum")

        def mean(*point: Expr) -> Expr:
            count: Expr = const(1)
            for axis, p in enumerate(point[2:]):
                count = count * _count(window, axis, p, data.shape[2 + axis], include_pad)
            return (summed(*point) / simplify(count).astype(summed.dtype)).astype(data.dtype)

        return te.compute(summed.shape, mean, name=avg_name)

    def lp_pool(
        data: Tensor, /, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (), padding: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (), ceil_mode: bool = False, auto_pad: str = "NOTSET", p: int = 2,
    ) -> Tensor:  # fmt: skip
        attrs = {"strides": strides, "padding": padding, "dilations": dilations}
        window = _window(lp_name, data, kernel, {**attrs, "ceil_mode": ceil_mode, "auto_pad": auto_pad})
        taps = _taps(window)

        def power(x: Expr) -> Expr:
            return x * x if p == 2 else te.abs(x) if p == 1 else te.power(te.abs(x), const(float(p), x.dtype))

        def total(n: Expr, c: Expr, *point: Expr) -> tuple[Expr, Expr | None]:
            spatial, where = _places(window, data, point, taps)
            return power(wide(data(n, c, *spatial))), te.logical_and(*where) if where else None

        summed = long_sum((*data.shape[:2], *window.result), taps, total, f"{lp_name}_sum")

        def root(*i: Expr) -> Expr:
            x = summed(*i)
            return te.sqrt(x) if p == 2 else x if p == 1 else te.power(x, const(1 / p, x.dtype))

        return rounded(te.compute(summed.shape, root, name=lp_name), data.dtype)

    def max_pool_places(
        data: Tensor, /, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (), padding: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (), ceil_mode: bool = False, auto_pad: str = "NOTSET",
        column_major: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        attrs = {"strides": strides, "padding": padding, "dilations": dilations}
        window = _window(places_name, data, kernel, {**attrs, "ceil_mode": ceil_mode, "auto_pad": auto_pad})
        taps = _taps(window)

        def element(n: Expr, c: Expr, *point: Expr) -> tuple[Expr, Expr]:
            spatial, where = _places(window, data, point, taps)
            place = n * data.shape[1] + c
            extents = list(data.shape[2:])
            size: Expr = const(1)
            inner: Expr = const(0)
            order = list(zip(spatial, extents, strict=True))
            for at, extent in order if column_major else reversed(order):
                inner = inner + at * size
                size = size * extent
            return te.argmax(
                place * size + inner, data(n, c, *spatial), axis=taps,
                where=te.logical_and(*where) if where else None,
            )  # fmt: skip

        shape = (*data.shape[:2], *window.result)
        places, values = te.compute(shape, element, name=places_name)
        return values, places

    max_name, avg_name = f"max_pool{rank}d", f"avg_pool{rank}d"
    lp_name, places_name = f"lp_pool{rank}d", f"max_pool_places{rank}d"
    lp_pool.__doc__ = "The p-norm of each window."
    max_pool_places.__doc__ = "Largest element of each window and its place in the whole operand, the first of equals."
    max_pool.__doc__ = "Largest element of each window; padding is never an element, NaN wins."
    avg_pool.__doc__ = "Mean of each window over the elements inside (or the padded window with include_pad)."
    largest = op(max_name, onnx=[Onnx("MaxPool", 1, _WINDOW, rank=rank + 2)])(max_pool)
    average = op(
        avg_name,
        onnx=[
            Onnx("AveragePool", 1, {**_WINDOW, "include_pad": attribute("count_include_pad", 0, bool)}, rank=rank + 2)
        ],
    )(avg_pool)
    largest.reference(lambda data, **attrs: _reference(largest.name, data, "max", **attrs))
    average.reference(lambda data, **attrs: _reference(average.name, data, "mean", **attrs))
    norm = op(lp_name, onnx=[Onnx("LpPool", 2, {**_WINDOW, "p": attribute("p", 2)}, rank=rank + 2)])(lp_pool)
    norm.reference(lambda data, *, p=2, **attrs: _norm_reference(norm.name, data, p, **attrs))
    norm.case([(2, 3, *(6,) * rank)], kernel=(3,) * rank, strides=(2,) * rank, padding=(1,) * 2 * rank)
    norm.case([(1, 2, *(5,) * rank)], kernel=(2,) * rank, p=3, tolerance=3e-5)
    places = op(places_name)(max_pool_places)
    places.reference(lambda data, **attrs: _places_reference(places.name, data, **attrs))
    places.case([(2, 3, *(6,) * rank)], kernel=(3,) * rank, strides=(2,) * rank, padding=(1,) * 2 * rank)
    places.case([(1, 2, *(5,) * rank)], kernel=(2,) * rank, column_major=True)
    return largest, average


def _norm_reference(name: str, data: Any, p: int, **attrs: Any) -> Any:
    count = np.prod(attrs["kernel"])
    mean = _reference(name, np.abs(data) ** p, "mean", include_pad=True, **attrs)
    return (mean * count) ** (1 / p)


def _places_reference(name: str, data: Any, *, column_major: bool = False, **attrs: Any) -> Any:
    order: Literal["C", "F"] = "F" if column_major else "C"
    sizes = data.shape[2:]
    inner = np.arange(np.prod(sizes)).reshape(sizes, order=order)
    flat = np.arange(data.shape[0] * data.shape[1]).reshape(*data.shape[:2], *(1,) * len(sizes)) * inner.size + inner
    values = _reference(name, data, "max", **attrs)
    ranked = np.argsort(np.argsort(data.ravel(), kind="stable")).reshape(data.shape)
    top = _reference(name, ranked, "max", **attrs)
    places = np.empty(data.size, np.int64)
    places[ranked.ravel()] = flat.ravel()
    return values, places[top.astype(np.int64)]


def _count(window: Window, axis: int, p: Expr, extent: Expr, include_pad: bool) -> Expr:
    """How many elements a window averages over along one axis."""
    start = p * window.strides[axis] - window.before[axis]
    d = window.dilations[axis]
    kernel = window.kernel[axis]
    low: Expr = const(0)
    high = extent
    if include_pad:
        low, high = -window.before[axis] + const(0), extent + window.after[axis]
    stop = start + (kernel - 1) * d + 1
    first = simplify((window.result[axis] - 1) * window.strides[axis] - window.before[axis] + (kernel - 1) * d)
    fits = isinstance(first, Const) and isinstance(high, Const) and first.value < high.value
    if (include_pad or _zero(window.before[axis])) and (fits or _fits(window, axis, simplify(high))):
        return kernel
    begin = maximum(start, low)
    skipped = (begin - start + (d - 1)) // d if d > 1 else begin - start
    end = minimum(stop, high)
    inside_count = (end - start + (d - 1)) // d - skipped if d > 1 else end - begin
    return inside_count


def _zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _fits(window: Window, axis: int, high: Expr) -> bool:
    last = simplify(
        (window.result[axis] - 1) * window.strides[axis]
        + (window.kernel[axis] - 1) * window.dilations[axis]
        - window.before[axis]
    )
    return isinstance(last, Const) and isinstance(high, Const) and bool(last.value < high.value)


def _reference(name: str, data: Any, how: str, *, kernel: Any, include_pad: bool = False, **attrs: Any) -> Any:
    settings = {"strides": (), "dilations": (), "padding": (), **attrs}
    window = make_window(name, [const(s) for s in data.shape[2:]], [const(k) for k in kernel], **settings)
    out = [int(r.value) for r in window.result]  # type: ignore[attr-defined]
    before = [int(b.value) for b in window.before]  # type: ignore[attr-defined]
    after = [int(a.value) for a in window.after]  # type: ignore[attr-defined]
    result = np.zeros((*data.shape[:2], *out), data.dtype)
    for point in np.ndindex(*out):
        places, counted = [], 1
        for n, p in enumerate(point):
            taken = p * window.strides[n] + np.arange(kernel[n]) * window.dilations[n] - before[n]
            places.append(taken[(taken >= 0) & (taken < data.shape[2 + n])])
            counted *= int(((taken >= -before[n]) & (taken < data.shape[2 + n] + after[n])).sum())
        patch = data[np.ix_(range(data.shape[0]), range(data.shape[1]), *places)]
        axes = tuple(range(2, data.ndim))
        if how == "max":
            value = patch.max(axes)
        else:
            value = patch.sum(axes) / counted if include_pad else patch.mean(axes)
        result[(slice(None), slice(None), *point)] = value
    return result


max_pool1d, avg_pool1d = _define(1)
max_pool2d, avg_pool2d = _define(2)
max_pool3d, avg_pool3d = _define(3)

for _pool in (max_pool2d, avg_pool2d):
    _pool.case([(1, 3, 8, 9)], kernel=(2, 2), strides=(2, 2))
    _pool.case([(2, 5, 7, 7)], kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    _pool.case([(1, 2, 7, 6)], kernel=(3, 2), strides=(2, 2), ceil_mode=True)
    _pool.case([(1, 2, 7, 6)], kernel=(3, 2), strides=(1, 2), auto_pad="SAME_UPPER")
    _pool.case([(1, 2, 9, 9)], kernel=(3, 3), dilations=(2, 2), padding=(1, 0, 0, 1))
avg_pool2d.case([(2, 5, 7, 7)], kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), include_pad=True)
max_pool2d.case([(1, 2, 5, 5)], "int8", kernel=(3, 3), padding=(1, 1, 1, 1), low=-100, high=-1)
for _pool in (max_pool1d, avg_pool1d):
    _pool.case([(1, 3, 11)], kernel=(3,), strides=(2,))
for _pool in (max_pool3d, avg_pool3d):
    _pool.case([(1, 2, 4, 5, 6)], kernel=(2, 2, 2), strides=(2, 2, 2))


@op("global_avg_pool", onnx=[Onnx("GlobalAveragePool", 1)])
def global_avg_pool(data: Tensor, /) -> Tensor:
    """Mean over all spatial axes, kept with size 1."""
    taps = [te.reduce_axis(e, f"r{n}") for n, e in enumerate(data.shape[2:])]
    total = long_sum(
        data.shape[:2], taps, lambda n, c: (wide(data(n, c, *[t.var for t in taps])), None), "global_avg_pool_sum"
    )
    count: Expr = const(1)
    for e in data.shape[2:]:
        count = count * e
    ones = tuple(const(1) for _ in taps)
    return te.compute(
        (*data.shape[:2], *ones),
        lambda n, c, *_: (total(n, c) / simplify(count).astype(total.dtype)).astype(data.dtype),
        name="global_avg_pool",
    )


global_avg_pool.reference(lambda data: data.mean(tuple(range(2, data.ndim)), keepdims=True))
global_avg_pool.case([(2, 5, 7, 7)])
global_avg_pool.case([(1, 32, 7, 7)])


@op("global_max_pool", onnx=[Onnx("GlobalMaxPool", 1)])
def global_max_pool(data: Tensor, /) -> Tensor:
    """Maximum over all spatial axes, kept with size 1."""
    taps = [te.reduce_axis(e, f"r{n}") for n, e in enumerate(data.shape[2:])]
    ones = tuple(const(1) for _ in taps)
    return te.compute(
        (*data.shape[:2], *ones),
        lambda n, c, *_: te.max(data(n, c, *[t.var for t in taps]), axis=taps),
        name="global_max_pool",
    )


global_max_pool.reference(lambda data: data.max(tuple(range(2, data.ndim)), keepdims=True))
global_max_pool.case([(2, 5, 7, 7)])


@op("global_lp_pool", onnx=[Onnx("GlobalLpPool", 2, {"p": attribute("p", 2)})])
def global_lp_pool(data: Tensor, /, *, p: int = 2) -> Tensor:
    """The p-norm over all spatial axes, kept with size 1."""
    if p not in (1, 2):
        raise OpError(f"global_lp_pool: p is {p}", help="1 and 2 are known")
    taps = [te.reduce_axis(e, f"r{n}") for n, e in enumerate(data.shape[2:])]
    ones = tuple(const(1) for _ in taps)

    def element(n: Expr, c: Expr, *_: Expr) -> tuple[Expr, None]:
        x = wide(data(n, c, *[t.var for t in taps]))
        return te.abs(x) if p == 1 else x * x, None

    total = long_sum((*data.shape[:2], *ones), taps, element, "global_lp_pool_sum")
    root = total if p == 1 else te.compute(total.shape, lambda *i: te.sqrt(total(*i)), name="global_lp_pool")
    return rounded(root, data.dtype)


global_lp_pool.reference(
    lambda data, *, p=2: (np.abs(data) ** p).sum(tuple(range(2, data.ndim)), keepdims=True) ** (1 / p)
)
global_lp_pool.case([(2, 5, 7, 7)])
global_lp_pool.case([(2, 5, 7)], p=1)
