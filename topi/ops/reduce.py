"""Reductions over any axes: one table; and arg-reductions, softmax and cumulative sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.lanes import has_lanes, reduce_in_lanes
from topi.op import Onnx, Op, Source, attribute, input_value, op
from topi.ops.shape import normalize_axes, normalize_axis


@dataclass(frozen=True, slots=True)
class Reduction:
    """One row: `before` maps an element, `reduce` is the reducer, `after` maps (total, count)."""

    name: str
    onnx: str
    axes_input_since: int
    reduce: Callable[..., Expr]
    numpy: Callable[..., Any]
    before: Callable[[Expr], Expr] | None = None
    after: Callable[[Expr, Expr], Expr] | None = None
    low: float = -2.0
    dtypes: tuple[str, ...] = ("float32",)


def _mean(total: Expr, count: Expr) -> Expr:
    return total / count.astype(total.dtype) if total.dtype.is_float else te.truncdiv(total, count.astype(total.dtype))


def _np_l2_norm(x: Any, **kwargs: Any) -> Any:
    return np.sqrt((x * x).sum(**kwargs))


def _np_log_sum_exp(x: Any, **kwargs: Any) -> Any:
    return np.log(np.exp(x).sum(**kwargs))


TABLE = (
    Reduction("sum", "ReduceSum", 13, te.sum, np.sum, dtypes=("float32", "int32")),
    Reduction("mean", "ReduceMean", 18, te.sum, np.mean, after=_mean),
    Reduction("max", "ReduceMax", 18, te.max, np.max, dtypes=("float32", "int8")),
    Reduction("min", "ReduceMin", 18, te.min, np.min, dtypes=("float32", "int8")),
    Reduction("prod", "ReduceProd", 18, te.prod, np.prod),
    Reduction("sum_square", "ReduceSumSquare", 18, te.sum, lambda x, **k: (x * x).sum(**k), lambda x: x * x),
    Reduction("l1_norm", "ReduceL1", 18, te.sum, lambda x, **k: np.abs(x).sum(**k), te.abs),
    Reduction(
        "l2_norm",
        "ReduceL2",
        18,
        te.sum,
        _np_l2_norm,
        lambda x: x * x,
        lambda t, n: te.sqrt(t),
    ),
    Reduction(
        "log_sum", "ReduceLogSum", 18, te.sum, lambda x, **k: np.log(x.sum(**k)), None, lambda t, n: te.log(t), 0.1
    ),
)


def reduced(
    x: Tensor, axes: tuple[int, ...], keepdims: bool, name: str, reduce: Callable[..., Expr],
    before: Callable[[Expr], Expr] | None = None, after: Callable[[Expr, Expr], Expr] | None = None,
) -> Tensor:  # fmt: skip
    """A reduction stage over `axes`, and the stage `after` it if one is asked for. Sums and products of halves come out
    in float32: `rounded` ends an op that returns them."""
    loops = {a: te.reduce_axis(x.shape[a], f"r{a}") for a in axes}
    shape = [const(1) if n in loops else e for n, e in enumerate(x.shape) if keepdims or n not in loops]

    def element(*point: Expr, along: Expr | None = None) -> Expr:
        rest = iter(point)
        place: list[Expr] = []
        for n in range(len(x.shape)):
            if n in loops:
                place.append(loops[n].var if along is None else along)
                if keepdims:
                    next(rest)
            else:
                place.append(next(rest))
        value: Expr = x(*place)
        value = wide(value) if reduce in (te.sum, te.prod) else value
        return before(value) if before is not None else value

    label = name if after is None else f"{name}_total"
    if not loops:
        total = te.compute(shape, lambda *i: element(*i), name=label)
    elif axes == (len(x.shape) - 1,) and has_lanes(x.shape[-1]):
        extent = int(x.shape[-1].value)  # type: ignore[attr-defined]
        total = reduce_in_lanes(shape, extent, lambda k, *i: element(*i, along=k), reduce, label)
    elif reduce is te.sum:
        total = long_sum(shape, list(loops.values()), lambda *i: (element(*i), None), label)
    else:
        total = te.compute(shape, lambda *i: reduce(element(*i), axis=list(loops.values())), name=label)
    if after is None:
        return total
    count: Expr = const(1)
    for a in axes:
        count = count * x.shape[a]
    return te.compute(shape, lambda *i: after(total(*i), simplify(count)), name=name)


def _axes(x: Tensor, name: str, axes: tuple[int, ...] | None, noop: bool) -> tuple[int, ...]:
    if axes is None or len(axes) == 0:
        return () if noop else tuple(range(len(x.shape)))
    return tuple(sorted(normalize_axes(name, axes, len(x.shape))))


def _define(row: Reduction) -> Op:
    def compute(
        x: Tensor, /, *, axes: tuple[int, ...] | None = None, keepdims: bool = True, noop: bool = False
    ) -> Tensor:
        chosen = _axes(x, row.name, axes, noop)
        return rounded(reduced(x, chosen, keepdims, row.name, row.reduce, row.before, row.after), x.dtype)

    compute.__doc__ = f"{row.onnx} over `axes` (None or empty: all; none with `noop`), which stay as 1 with keepdims."
    attrs: dict[str, Source] = {"axes": attribute("axes"), "keepdims": attribute("keepdims", 1, bool)}
    later: dict[str, Source] = {
        "axes": input_value(1),
        "keepdims": attribute("keepdims", 1, bool),
        "noop": attribute("noop_with_empty_axes", 0, bool),
    }
    entries = [Onnx(row.onnx, 1, attrs), Onnx(row.onnx, row.axes_input_since, later, inputs=(0,))]
    made = op(row.name, onnx=entries, axis_attrs={"axes": "axes", "noop": "unset"})(compute)

    @made.reference
    def _reference(x: Any, *, axes: Any = None, keepdims: bool = True, noop: bool = False) -> Any:
        chosen = (() if noop else tuple(range(x.ndim))) if not axes else tuple(axes)
        result = row.numpy(x, axis=chosen, keepdims=keepdims)
        return result.astype(x.dtype) if np.issubdtype(x.dtype, np.integer) else result

    for t in row.dtypes:
        made.case([(3, 5, 37)], t, axes=(2,), low=row.low)
        made.case([(3, 5, 7)], t, axes=(0, -1), keepdims=False, low=row.low)
        made.case([(3, 5)], t, low=row.low)
        made.case([(2, 3, 4)], t, axes=(), noop=True, low=row.low)
    return made


for _row in TABLE:
    _define(_row)


@op(
    "log_sum_exp",
    onnx=[
        Onnx("ReduceLogSumExp", 1, {"axes": attribute("axes"), "keepdims": attribute("keepdims", 1, bool)}),
        Onnx(
            "ReduceLogSumExp", 18,
            {
                "axes": input_value(1),
                "keepdims": attribute("keepdims", 1, bool),
                "noop": attribute("noop_with_empty_axes", 0, bool),
            },
            inputs=(0,),
        ),
    ],
    axis_attrs={"axes": "axes", "noop": "unset"},
)  # fmt: skip
def log_sum_exp(
    x: Tensor, /, *, axes: tuple[int, ...] | None = None, keepdims: bool = True, noop: bool = False
) -> Tensor:
    """log of the sum of exp over axes, with the maximum taken out so that nothing overflows."""
    chosen = _axes(x, "log_sum_exp", axes, noop)
    top = reduced(x, chosen, True, "log_sum_exp_max", te.max)
    safe = te.compute(
        top.shape, lambda *i: te.select(te.isinf(top(*i)), const(0.0, x.dtype), top(*i)), name="log_sum_exp_safe"
    )

    def kept(i: tuple[Expr, ...]) -> list[Expr]:
        return [const(0) if n in chosen else v for n, v in enumerate(i)]

    scaled = te.compute(x.shape, lambda *i: te.exp(wide(x(*i)) - wide(safe(*kept(i)))), name="log_sum_exp_exp")
    total = reduced(scaled, chosen, keepdims, "log_sum_exp_sum", te.sum)

    def element(*i: Expr) -> Expr:
        rest = iter(i)
        place = [next(rest) if keepdims or n not in chosen else const(0) for n in range(len(x.shape))]
        return te.log(total(*i)) + wide(safe(*[const(0) if n in chosen else p for n, p in enumerate(place)]))

    return te.compute(total.shape, lambda *i: element(*i).astype(x.dtype), name="log_sum_exp")


@log_sum_exp.reference
def _log_sum_exp(x: Any, *, axes: Any = None, keepdims: bool = True, noop: bool = False) -> Any:
    chosen = (() if noop else tuple(range(x.ndim))) if not axes else tuple(axes)
    return _np_log_sum_exp(x, axis=chosen, keepdims=keepdims)


log_sum_exp.case([(3, 5, 7)], axes=(1,))
log_sum_exp.case([(3, 5)], keepdims=False)


def _softmax_axes(axis: int, coerce: bool, rank: int, name: str) -> tuple[int, ...]:
    place = normalize_axis(name, axis, rank)
    return tuple(range(place, rank)) if coerce else (place,)


def _softmax_onnx(onnx: str) -> list[Onnx]:
    """Before version 13 the operand is flattened to two dimensions at `axis`, which then defaults to 1."""
    from topi.op import Fixed

    return [
        Onnx(onnx, 1, {"axis": attribute("axis", 1), "coerce": Fixed(True)}),
        Onnx(onnx, 13, {"axis": attribute("axis", -1)}),
    ]


NOTHING = -80.0
"""Below this exponent a probability is 0: 1e-35 adds nothing to a sum that holds a 1, and a denormal number makes each
product that reads it a hundred times slower."""


def _softmax(x: Tensor, axes: tuple[int, ...], log: bool, name: str) -> Tensor:
    top = reduced(x, axes, True, f"{name}_max", te.max)

    def kept(i: tuple[Expr, ...]) -> list[Expr]:
        return [const(0) if n in axes else v for n, v in enumerate(i)]

    def power(*i: Expr) -> Expr:
        below = wide(x(*i)) - wide(top(*kept(i)))
        return te.exp(below) if log else te.select(below < NOTHING, const(0, below.dtype), te.exp(below))

    powers = te.compute(x.shape, power, name=f"{name}_exp")
    total = reduced(powers, axes, True, f"{name}_sum", te.sum)
    if log:
        shift = te.compute(top.shape, lambda *i: wide(top(*i)) + te.log(total(*i)), name=f"{name}_shift")
        return te.compute(x.shape, lambda *i: (wide(x(*i)) - shift(*kept(i))).astype(x.dtype), name=name)
    scale = te.compute(total.shape, lambda *i: const(1, total.dtype) / total(*i), name=f"{name}_scale")
    return te.compute(x.shape, lambda *i: (powers(*i) * scale(*kept(i))).astype(x.dtype), name=name)


@op("softmax", onnx=_softmax_onnx("Softmax"), axis_attrs={"axis": "axis", "coerce": "unset"})
def softmax(x: Tensor, /, *, axis: int = -1, coerce: bool = False) -> Tensor:
    """exp(x - max) / sum of it along `axis` (with `coerce`: over `axis` and all that follow)."""
    return _softmax(x, _softmax_axes(axis, coerce, len(x.shape), "softmax"), False, "softmax")


@op("log_softmax", onnx=_softmax_onnx("LogSoftmax"), axis_attrs={"axis": "axis", "coerce": "unset"})
def log_softmax(x: Tensor, /, *, axis: int = -1, coerce: bool = False) -> Tensor:
    """x - max - log of the sum of exp(x - max) along `axis`."""
    return _softmax(x, _softmax_axes(axis, coerce, len(x.shape), "log_softmax"), True, "log_softmax")


@softmax.reference
def _softmax_reference(x: Any, *, axis: int = -1, coerce: bool = False) -> Any:
    axes = _softmax_axes(axis, coerce, x.ndim, "softmax")
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


log_softmax.reference(lambda x, **attrs: np.log(_softmax_reference(x, **attrs)))
for _op in (softmax, log_softmax):
    _op.case([(3, 37)])
    _op.case([(2, 5, 7)], axis=1)
    _op.case([(2, 5, 7)], axis=1, coerce=True)


def _arg(name: str, onnx: str, reducer: Callable[..., Any], numpy: Callable[..., Any]) -> Op:
    def compute(x: Tensor, /, *, axis: int = 0, keepdims: bool = True, last: bool = False) -> Tensor:
        place = normalize_axis(name, axis, len(x.shape))
        k = te.reduce_axis(x.shape[place], "k")
        shape = [const(1) if n == place else e for n, e in enumerate(x.shape) if keepdims or n != place]

        def element(*i: Expr) -> Any:
            point = list(i)
            if keepdims:
                point[place] = k.var
            else:
                point.insert(place, k.var)
            return reducer(k.var, x(*point), axis=k, last=last)

        return te.compute(shape, element, name=name)[0]

    compute.__doc__ = f"Index (int64) of the {name[3:]}imum along `axis`; the first on ties, the last with `last`."
    made = op(
        name,
        onnx=[
            Onnx(
                onnx, 1,
                {
                    "axis": attribute("axis", 0),
                    "keepdims": attribute("keepdims", 1, bool),
                    "last": attribute("select_last_index", 0, bool),
                },
            )
        ],
        axis_attrs={"axis": "axis"},
    )(compute)  # fmt: skip

    @made.reference
    def _reference(x: Any, *, axis: int = 0, keepdims: bool = True, last: bool = False) -> Any:
        if last:
            result = x.shape[axis] - 1 - np.expand_dims(numpy(np.flip(x, axis), axis), axis)
        else:
            result = np.expand_dims(numpy(x, axis), axis)
        return result if keepdims else result.squeeze(axis)

    made.case([(3, 37)], axis=1)
    made.case([(7, 5)], "int32", axis=0, keepdims=False, low=0, high=2)
    made.case([(7, 5)], "int32", axis=0, last=True, low=0, high=2)
    return made


argmax = _arg("argmax", "ArgMax", te.argmax, np.argmax)
argmin = _arg("argmin", "ArgMin", te.argmin, np.argmin)


@op(
    "cumsum",
    onnx=[
        Onnx(
            "CumSum", 11,
            {
                "axis": input_value(1),
                "exclusive": attribute("exclusive", 0, bool),
                "reverse": attribute("reverse", 0, bool),
            },
            inputs=(0,),
        )
    ],
)  # fmt: skip
def cumsum(x: Tensor, /, *, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running sum along `axis`, without the element itself if `exclusive`, from the end if `reverse`."""
    number = axis[0] if isinstance(axis, tuple) else axis
    place = normalize_axis("cumsum", int(getattr(number, "value", number) or 0), len(x.shape))
    k = te.reduce_axis(x.shape[place], "k")

    def element(*i: Expr) -> Expr:
        here = i[place]
        if reverse:
            counted = k.var > here if exclusive else k.var >= here
        else:
            counted = k.var < here if exclusive else k.var <= here
        return te.sum(wide(x(*i[:place], k.var, *i[place + 1 :])), axis=k, where=counted)

    return rounded(te.compute(x.shape, element, name="cumsum"), x.dtype)


@cumsum.reference
def _cumsum(x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    y = np.flip(x, axis) if reverse else x
    total = np.cumsum(y, axis)
    total = total - y if exclusive else total
    return np.flip(total, axis) if reverse else total


for _exclusive in (False, True):
    for _reverse in (False, True):
        cumsum.case([(3, 7)], axis=1, exclusive=_exclusive, reverse=_reverse)


@op(
    "cumprod",
    onnx=[
        Onnx(
            "CumProd",
            26,
            {
                "axis": input_value(1),
                "exclusive": attribute("exclusive", 0, bool),
                "reverse": attribute("reverse", 0, bool),
            },
            inputs=(0,),
        )
    ],
)
def cumprod(x: Tensor, /, *, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running product along `axis`, without the element itself if `exclusive`, from the end if `reverse`."""
    number = axis[0] if isinstance(axis, tuple) else axis
    place = normalize_axis("cumprod", int(getattr(number, "value", number) or 0), len(x.shape))
    k = te.reduce_axis(x.shape[place], "k")

    def element(*i: Expr) -> Expr:
        here = i[place]
        if reverse:
            counted = k.var > here if exclusive else k.var >= here
        else:
            counted = k.var < here if exclusive else k.var <= here
        return te.prod(wide(x(*i[:place], k.var, *i[place + 1 :])), axis=k, where=counted)

    return rounded(te.compute(x.shape, element, name="cumprod"), x.dtype)


@cumprod.reference
def _cumprod(x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    y = np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
    if exclusive:
        y = np.concatenate([np.ones_like(y[:1]), y[:-1]])
    total = np.moveaxis(np.cumprod(y, 0, dtype=x.dtype), 0, axis)
    return np.flip(total, axis) if reverse else total


for _exclusive in (False, True):
    for _reverse in (False, True):
        cumprod.case([(3, 7)], axis=1, exclusive=_exclusive, reverse=_reverse, tolerance=1e-4)


@op("hardmax", onnx=[Onnx("Hardmax", 13, {"axis": attribute("axis", -1)})], axis_attrs={"axis": "axis"})
def hardmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """1 at the first largest element along `axis`, 0 elsewhere."""
    place = normalize_axis("hardmax", axis, len(x.shape))
    top = argmax(x, axis=place)

    def element(*i: Expr) -> Expr:
        here = [const(0) if n == place else v for n, v in enumerate(i)]
        return te.select(te.equal(top(*here), i[place]), const(1, x.dtype), const(0, x.dtype))

    return te.compute(x.shape, element, name="hardmax")


@hardmax.reference
def _hardmax(x: Any, *, axis: int = -1) -> Any:
    top = np.expand_dims(x.argmax(axis), axis)
    return (np.indices(x.shape)[axis] == top).astype(x.dtype)


hardmax.case([(3, 37)])
hardmax.case([(3, 5, 7)], axis=1)
