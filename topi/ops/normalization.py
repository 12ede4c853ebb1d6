"""Normalisations: batch (inference and training), layer, instance, group, RMS, and local response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, const, floordiv
from tensorir.te import Tensor
from topi.broadcast import read
from topi.chunks import long_sum
from topi.halves import wide
from topi.op import Onnx, OpError, attribute, op
from topi.ops.reduce import reduced
from topi.ops.shape import normalize_axes, normalize_axis


@op("batch_norm", onnx=[], in_place=(0,))
def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, /, *, epsilon: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias by channel (axis 1), with the given statistics."""
    if len(x.shape) < 2:
        raise OpError(f"batch_norm: data has {len(x.shape)} dimensions, at least 2 are needed")

    def element(*i: Expr) -> Expr:
        c = i[1]
        return (x(*i) - mean(c)) / te.sqrt(variance(c) + epsilon) * scale(c) + bias(c)

    return te.compute(x.shape, element, name="batch_norm")


def _channels(v: Any, rank: int) -> Any:
    return v.reshape(1, -1, *(1,) * (rank - 2))


@batch_norm.reference
def _batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5) -> Any:
    s, b, m, v = (_channels(t, x.ndim) for t in (scale, bias, mean, variance))
    return (x - m) / np.sqrt(v + np.float32(epsilon)) * s + b


batch_norm.case([(2, 5, 4, 3), (5,), (5,), (5,), (5,)], low=0.2, high=2.0)
batch_norm.case([(2, 5), (5,), (5,), (5,), (5,)], low=0.2, high=2.0)


def _normalised(x: Expr, mean: Expr, scale: Expr) -> Expr:
    """(x - mean) * scale, computed in the type of the statistics, in the type of x."""
    return ((wide(x) - mean) * scale).astype(x.dtype)


def _inverse_deviation(variance: Tensor, epsilon: float, name: str) -> Tensor:
    """1 / sqrt(variance + epsilon), once for all elements that are scaled by it."""
    return te.compute(
        variance.shape,
        lambda *i: const(1, variance.dtype) / te.sqrt(variance(*i) + epsilon),
        name=f"{name}_inverse_deviation",
    )


def _moments(x: Tensor, axes: Sequence[int], name: str) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance over axes, kept as size 1, of halves in float32; the variance is of centred elements:
    nothing cancels."""
    places = tuple(axes)

    def over(total: Expr, count: Expr) -> Expr:
        return total / count.astype(total.dtype)

    def kept(i: Sequence[Expr]) -> list[Expr]:
        return [const(0) if n in places else v for n, v in enumerate(i)]

    mean = reduced(x, places, True, f"{name}_mean", te.sum, after=over)
    centred = te.compute(x.shape, lambda *i: wide(x(*i)) - mean(*kept(i)), name=f"{name}_centred")
    variance = reduced(centred, places, True, f"{name}_variance", te.sum, lambda v: v * v, over)
    return mean, variance


@op("batch_norm_training", training=True)
def batch_norm_training(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, /, *, epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Batch normalisation by the statistics of this batch; also the running mean and variance updated by `momentum`."""
    axes = tuple(n for n in range(len(x.shape)) if n != 1)
    m, v = _moments(x, axes, "batch_norm")
    r = _inverse_deviation(v, epsilon, "batch_norm")

    def at(c: Expr) -> list[Expr]:
        return [c if n == 1 else const(0) for n in range(len(x.shape))]

    y = te.compute(
        x.shape,
        lambda *i: _normalised(x(*i), m(*at(i[1])), r(*at(i[1]))) * scale(i[1]) + bias(i[1]),
        name="batch_norm_training",
    )
    one = const(1.0, mean.dtype)
    keep = const(momentum, mean.dtype)

    def running(old: Tensor, new: Tensor, name: str) -> Tensor:
        return te.compute(
            old.shape, lambda c: old(c) * keep + new(*at(c)).astype(old.dtype) * (one - keep), name=f"running_{name}"
        )

    return y, running(mean, m, "mean"), running(variance, v, "variance")


@batch_norm_training.reference
def _batch_norm_training(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5, momentum: float = 0.9
) -> Any:
    axes = tuple(n for n in range(x.ndim) if n != 1)
    m, v = x.mean(axes), x.var(axes)
    y = (x - _channels(m, x.ndim)) / np.sqrt(_channels(v, x.ndim) + epsilon)
    y = y * _channels(scale, x.ndim) + _channels(bias, x.ndim)
    return y, mean * momentum + m * (1 - momentum), variance * momentum + v * (1 - momentum)


batch_norm_training.case([(2, 5, 4, 3), (5,), (5,), (5,), (5,)], low=0.2, high=2.0)


@op(
    "layer_norm",
    onnx=[Onnx("LayerNormalization", 17, {"axis": attribute("axis", -1), "epsilon": attribute("epsilon", 1e-5)})],
)
def layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, /, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over `axis` and all that follow."""
    place = normalize_axis("layer_norm", axis, len(x.shape))
    axes = tuple(range(place, len(x.shape)))
    mean, variance = _moments(x, axes, "layer_norm")
    inverse = _inverse_deviation(variance, epsilon, "layer_norm")

    def element(*i: Expr) -> Expr:
        kept = [const(0) if n in axes else v for n, v in enumerate(i)]
        y = _normalised(x(*i), mean(*kept), inverse(*kept)) * read(scale, i)
        return y if bias is None else y + read(bias, i)

    return te.compute(x.shape, element, name="layer_norm")


@layer_norm.reference
def _layer_norm(x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon) * scale
    return y if bias is None else y + bias


layer_norm.case([(3, 5, 37), (37,), (37,)])
layer_norm.case([(3, 5, 7), (5, 7)], axis=1)


@op(
    "rms_norm",
    onnx=[Onnx("RMSNormalization", 23, {"axis": attribute("axis", -1), "epsilon": attribute("epsilon", 1e-5)})],
)
def rms_norm(x: Tensor, scale: Tensor, /, *, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean of x squared + epsilon) * scale over `axis` and all that follow."""
    place = normalize_axis("rms_norm", axis, len(x.shape))
    axes = tuple(range(place, len(x.shape)))
    square = reduced(
        x, axes, True, "rms_norm_square", te.sum, lambda v: v * v, lambda total, n: total / n.astype(total.dtype)
    )

    inverse = _inverse_deviation(square, epsilon, "rms_norm")

    def element(*i: Expr) -> Expr:
        kept = [const(0) if n in axes else v for n, v in enumerate(i)]
        return (wide(x(*i)) * inverse(*kept)).astype(x.dtype) * read(scale, i)

    return te.compute(x.shape, element, name="rms_norm")


@rms_norm.reference
def _rms_norm(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * scale


rms_norm.case([(3, 5, 37), (37,)])


@op("instance_norm", onnx=[Onnx("InstanceNormalization", 1, {"epsilon": attribute("epsilon", 1e-5)})])
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, /, *, epsilon: float = 1e-5) -> Tensor:
    """Each image's channel normalised by its own mean and variance over the spatial axes."""
    axes = tuple(range(2, len(x.shape)))
    mean, variance = _moments(x, axes, "instance_norm")
    inverse = _inverse_deviation(variance, epsilon, "instance_norm")

    def element(*i: Expr) -> Expr:
        kept = [const(0) if n in axes else v for n, v in enumerate(i)]
        return _normalised(x(*i), mean(*kept), inverse(*kept)) * scale(i[1]) + bias(i[1])

    return te.compute(x.shape, element, name="instance_norm")


@instance_norm.reference
def _instance_norm(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    axes = tuple(range(2, x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return y * _channels(scale, x.ndim) + _channels(bias, x.ndim)


instance_norm.case([(2, 3, 5, 7), (3,), (3,)])


@op(
    "lrn",
    onnx=[
        Onnx(
            "LRN", 1,
            {
                "size": attribute("size"),
                "alpha": attribute("alpha", 1e-4),
                "beta": attribute("beta", 0.75),
                "bias": attribute("bias", 1.0),
            },
        )
    ],
)  # fmt: skip
def lrn(x: Tensor, /, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""
    k = te.reduce_axis(size, "k")
    low = (size - 1) // 2

    def square(n: Expr, c: Expr, *p: Expr) -> Expr:
        channel = c + k.var - low
        inside = te.logical_and(channel >= 0, channel < x.shape[1])
        element = wide(x(n, channel, *p))
        return te.sum(element * element, axis=k, where=inside)

    total = te.compute(x.shape, square, name="lrn_square")

    def element(*i: Expr) -> Expr:
        base = total(*i) * const(alpha / size, total.dtype) + const(bias, total.dtype)
        if beta == 0.75:
            root = te.sqrt(base)
            return (wide(x(*i)) / (root * te.sqrt(root))).astype(x.dtype)
        return (wide(x(*i)) / te.power(base, const(beta, total.dtype))).astype(x.dtype)

    return te.compute(x.shape, element, name="lrn")


@lrn.reference
def _lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    total = np.zeros_like(x)
    low = (size - 1) // 2
    for c in range(x.shape[1]):
        total[:, c] = (x[:, max(0, c - low) : min(x.shape[1], c - low + size)] ** 2).sum(1)
    return x / (bias + alpha / size * total) ** beta


lrn.case([(2, 7, 3, 5)], size=5, alpha=0.1)
lrn.case([(2, 7, 3, 5)], size=3, alpha=0.1, beta=0.5)


@op(
    "group_norm",
    onnx=[
        Onnx("GroupNormalization", 21, {"groups": attribute("num_groups"), "epsilon": attribute("epsilon", 1e-5)}),
    ],
)
def group_norm(x: Tensor, scale: Tensor, bias: Tensor, /, *, groups: int, epsilon: float = 1e-5) -> Tensor:
    """Each image's groups of channels normalised by their own mean and variance; scale and bias by channel."""
    channels = x.shape[1]
    if isinstance(channels, Const) and int(channels.value) % groups:
        raise OpError(f"group_norm: {channels.value} channels do not divide into {groups} groups")
    size = simplify(channels // groups)
    count = size
    for e in x.shape[2:]:
        count = count * e

    def moment(source: Callable[[Sequence[Expr], Expr, Expr], Expr], name: str) -> Tensor:
        axes = [te.reduce_axis(e, f"r{n}") for n, e in enumerate((size, *x.shape[2:]))]
        place = [a.var for a in axes[1:]]
        total = long_sum(
            (x.shape[0], const(groups)),
            axes,
            lambda n, g: (source([n, g * size + axes[0].var, *place], n, g), None),
            f"{name}_total",
        )
        number = simplify(count).astype(total.dtype)
        return te.compute(total.shape, lambda n, g: total(n, g) / number, name=name)

    mean = moment(lambda i, n, g: wide(x(*i)), "group_norm_mean")

    def squared(i: Sequence[Expr], n: Expr, g: Expr) -> Expr:
        centred = wide(x(*i)) - mean(n, g)
        return centred * centred

    variance = moment(squared, "group_norm_variance")
    inverse = _inverse_deviation(variance, epsilon, "group_norm")

    def element(*i: Expr) -> Expr:
        n, g = i[0], floordiv(i[1], size)
        return _normalised(x(*i), mean(n, g), inverse(n, g)) * scale(i[1]) + bias(i[1])

    return te.compute(x.shape, element, name="group_norm")


@group_norm.reference
def _group_norm(x: Any, scale: Any, bias: Any, *, groups: int, epsilon: float = 1e-5) -> Any:
    y = x.reshape(x.shape[0], groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + epsilon)
    return y.reshape(x.shape) * _channels(scale, x.ndim) + _channels(bias, x.ndim)


group_norm.case([(2, 6, 3, 5), (6,), (6,)], groups=3)


@op("mean_variance_norm", onnx=[Onnx("MeanVarianceNormalization", 9, {"axes": attribute("axes", (0, 2, 3))})])
def mean_variance_norm(x: Tensor, /, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    """(x - mean) / (standard deviation + 1e-9) over axes."""
    chosen = normalize_axes("mean_variance_norm", axes, len(x.shape))
    mean, variance = _moments(x, chosen, "mean_variance_norm")

    def element(*i: Expr) -> Expr:
        kept = [const(0) if n in chosen else v for n, v in enumerate(i)]
        return ((wide(x(*i)) - mean(*kept)) / (te.sqrt(variance(*kept)) + const(1e-9, variance.dtype))).astype(x.dtype)

    return te.compute(x.shape, element, name="mean_variance_norm")


@mean_variance_norm.reference
def _mean_variance_norm(x: Any, *, axes: tuple[int, ...] = (0, 2, 3)) -> Any:
    return (x - x.mean(tuple(axes), keepdims=True)) / (x.std(tuple(axes), keepdims=True) + 1e-9)


mean_variance_norm.case([(2, 3, 5, 7)])


@op("lp_norm", onnx=[Onnx("LpNormalization", 1, {"axis": attribute("axis", -1), "p": attribute("p", 2)})])
def lp_norm(x: Tensor, /, *, axis: int = -1, p: int = 2) -> Tensor:
    """x divided by its p-norm (1 or 2) along an axis; zeros where that is 0."""
    if p not in (1, 2):
        raise OpError(f"lp_norm: p is {p}", help="1 and 2 are known")
    place = normalize_axis("lp_norm", axis, len(x.shape))
    before = te.abs if p == 1 else lambda v: v * v
    after = (lambda t, n: t) if p == 1 else (lambda t, n: te.sqrt(t))
    norm = reduced(x, (place,), True, "lp_norm_norm", te.sum, before, after)

    def element(*i: Expr) -> Expr:
        length = norm(*[const(0) if n == place else v for n, v in enumerate(i)])
        divisor = te.select(te.equal(length, const(0, length.dtype)), const(1, length.dtype), length)
        return (wide(x(*i)) / divisor).astype(x.dtype)

    return te.compute(x.shape, element, name="lp_norm")


@lp_norm.reference
def _lp_norm(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    length = np.linalg.norm(x, p, axis, keepdims=True)
    return x / np.where(length == 0, 1, length)


lp_norm.case([(3, 37)])
lp_norm.case([(3, 5, 7)], axis=1, p=1)
