"""Computes over physical layouts: equal to the plain compute after unpacking, with zero in every padding lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tensorir import te
from tensorir.errors import ComputeError
from tensorir.expr import IfThenElse, Load, Reduce
from tensorir.interpreter import interpret
from tensorir.layout import Layout
from tensorir.relayout import convert_layout, relayout_compute
from tensorir.te import Tensor
from tensorir.visit import walk_expr

NCHW16C = Layout.parse("NCHW16c", logical="NCHW")
NCHW8C = Layout.parse("NCHW8c", logical="NCHW")
NHWC = Layout.parse("NHWC", logical="NCHW")


def pack(array: np.ndarray, layout: Layout) -> np.ndarray:
    """numpy's own packing: pad, split, move axes."""
    padded = np.zeros([-(-n // b) * b for n, b in zip(array.shape, layout.block, strict=True)], array.dtype)
    padded[tuple(slice(n) for n in array.shape)] = array
    split: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for axis, size in enumerate(padded.shape):
        for d in sorted((d for d in layout.dims if d.axis == axis), key=lambda d: -d.stride):
            place[axis, d.stride] = len(split)
            split.append(size // d.stride if d.extent is None else d.extent)
    return padded.reshape(split).transpose([place[d.axis, d.stride] for d in layout.dims]).copy()


def shape_of(t: Tensor) -> tuple[int, ...]:
    return tuple(int(s.value) for s in t.shape)


def run(inputs: Sequence[Tensor], outputs: Sequence[Tensor], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    made = [np.full(shape_of(t), np.nan if t.dtype.is_float else 99, t.dtype.numpy) for t in outputs]
    interpret(te.create_func([*inputs, *outputs]), [*arrays, *made], mode="checked")
    return made


def as_tuple(x: Any) -> tuple[Tensor, ...]:
    return x if isinstance(x, tuple) else (x,)


def check(
    inputs: Sequence[Tensor],
    result: Any,
    output_layout: Layout,
    layouts: Sequence[Layout | None],
    arrays: Sequence[np.ndarray],
) -> Any:
    """Runs the plain compute and its relayout; gives the rewritten tensors."""
    want = run(inputs, as_tuple(result), arrays)
    physical = [
        t if layout is None else te.placeholder(layout.physical_shape(t.shape), t.dtype, name=f"{t.name}p")
        for t, layout in zip(inputs, layouts, strict=True)
    ]
    replaced = {t: (p, la) for t, p, la in zip(inputs, physical, layouts, strict=True) if la is not None}
    rewritten = relayout_compute(as_tuple(result)[0], output_layout, replaced)
    packed = [a if la is None else pack(a, la) for a, la in zip(arrays, layouts, strict=True)]
    got = run(physical, as_tuple(rewritten), packed)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, pack(w, output_layout), strict=True)
    return rewritten


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (
        np.random.default_rng(0).standard_normal(shape).astype(dtype)
        if dtype == "float32"
        else np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    )


CHANNELS = (3, 16, 20, 32)


@pytest.mark.parametrize("c", CHANNELS)
def test_relu_reads_its_own_lanes(c: int) -> None:
    a = te.placeholder((2, c, 3, 3), name="A")
    b = te.compute(a.shape, lambda n, c, h, w: te.maximum(a[n, c, h, w], 0.0), name="relu")
    made = check([a], b, NCHW16C, [NCHW16C], [values(2, c, 3, 3)])
    (body,) = made.op.bodies
    assert repr(body) == "max(Ap[n, co, h, w, ci], 0.0)"  # zero stays zero: no mask


@pytest.mark.parametrize("c", CHANNELS)
@pytest.mark.parametrize(
    "layouts", [(NCHW16C, NCHW16C), (NCHW8C, NCHW16C), (NHWC, NCHW16C), (NCHW16C, NHWC), (None, NCHW16C)]
)
def test_exp_is_masked(c: int, layouts: tuple[Layout | None, Layout]) -> None:
    a = te.placeholder((1, c, 2, 3), name="A")
    b = te.compute(a.shape, lambda n, c, h, w: a[n, c, h, w] + 1.0, name="plus")
    made = check([a], b, layouts[1], [layouts[0]], [values(1, c, 2, 3)])
    masked = any(isinstance(x, IfThenElse) for x in walk_expr(made.op.bodies[0]))
    assert masked is layouts[1].is_padded(a.shape)


@pytest.mark.parametrize("c", CHANNELS)
def test_bias_and_residual(c: int) -> None:
    a = te.placeholder((1, c, 2, 2), name="A")
    r = te.placeholder((1, c, 2, 2), name="R")
    bias = te.placeholder((c, 1, 1), name="bias")
    s = te.compute(a.shape, lambda n, c, h, w: a[n, c, h, w] + bias[c, 0, 0] + r[n, c, h, w], name="sum")
    arrays = [values(1, c, 2, 2), values(1, c, 2, 2) * 2, values(c, 1, 1)]
    check([a, r, bias], s, NCHW16C, [NCHW16C, NHWC, None], arrays)
    check([a, r, bias], s, NCHW16C, [NCHW16C, NCHW16C, None], arrays)


@pytest.mark.parametrize("c", CHANNELS)
@pytest.mark.parametrize("kind", ["max", "sum"])
def test_pooling_with_guarded_padding(c: int, kind: str) -> None:
    a = te.placeholder((1, c, 4, 4), name="A")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    reduce, outside = (te.max, te.min_value("float32")) if kind == "max" else (te.sum, 0.0)

    def body(n: Any, c: Any, h: Any, w: Any) -> Any:
        y, x = h * 2 + kh - 1, w * 2 + kw - 1
        inside = te.all(y >= 0, y < 4, x >= 0, x < 4)
        return reduce(te.if_then_else(inside, a[n, c, y, x], outside), axis=[kh, kw])

    pool = te.compute((1, c, 2, 2), body, name="pool")
    check([a], pool, NCHW16C, [NCHW16C], [values(1, c, 4, 4)])
    check([a], pool, NCHW16C, [None], [values(1, c, 4, 4)])
    check([a], pool, NHWC, [NCHW16C], [values(1, c, 4, 4)])


@pytest.mark.parametrize("c", CHANNELS)
def test_scaled_sum_stays_a_product(c: int) -> None:
    a = te.placeholder((1, c, 3, 3), name="A")
    scale = te.placeholder((c,), name="scale")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    b = te.compute((1, c, 1, 1), lambda n, c, h, w: te.sum(a[n, c, kh, kw] * scale[c], axis=[kh, kw]), name="mean")
    made = check([a, scale], b, NCHW16C, [NCHW16C, None], [values(1, c, 3, 3), values(c)])
    (body,) = made.op.bodies
    assert isinstance(body, Reduce) and type(body.sources[0]).__name__ == "Mul"


@pytest.mark.parametrize("c", CHANNELS)
def test_reduction_over_channels(c: int) -> None:
    a = te.placeholder((2, c, 3, 3), name="A")
    k = te.reduce_axis(c, "k")
    b = te.compute((2, 1, 3, 3), lambda n, o, h, w: te.max(a[n, k, h, w], axis=k), name="top")
    check([a], b, Layout.plain(4), [NCHW16C], [values(2, c, 3, 3)])
    check([a], b, NCHW16C, [NCHW16C], [values(2, c, 3, 3)])


@pytest.mark.parametrize("c", CHANNELS)
def test_concat_and_transpose(c: int) -> None:
    a = te.placeholder((1, c, 2, 2), name="A")
    b = te.placeholder((1, 5, 2, 2), name="B")
    joined = te.compute(
        (1, c + 5, 2, 2),
        lambda n, k, h, w: te.if_then_else(k < c, a[n, k, h, w], b[n, k - c, h, w]),
        name="concat",
    )
    check([a, b], joined, NCHW16C, [NCHW16C, NCHW16C], [values(1, c, 2, 2), values(1, 5, 2, 2)])
    turned = te.compute((2, 2, c, 1), lambda w, h, k, n: a[n, k, h, w], name="turn")
    check([a], turned, NCHW16C, [NCHW16C], [values(1, c, 2, 2)])
    check([a], turned, Layout.plain(4), [NCHW16C], [values(1, c, 2, 2)])


@pytest.mark.parametrize("c", CHANNELS)
def test_several_outputs(c: int) -> None:
    a = te.placeholder((1, c, 2, 3), name="A")
    both = te.compute(a.shape, lambda n, c, h, w: (a[n, c, h, w] + 1.0, a[n, c, h, w] > 0.0), name="two")
    check([a], both, NCHW16C, [NCHW16C], [values(1, c, 2, 3)])
    k = te.reduce_axis(3, "k")
    index, value = te.compute((1, c, 2, 1), lambda n, c, h, o: te.argmax(k, a[n, c, h, k], axis=k), name="arg")
    check([a], (index, value), NCHW16C, [NCHW16C], [values(1, c, 2, 3)])


@pytest.mark.parametrize("c", CHANNELS)
def test_conversions(c: int) -> None:
    array = values(1, c, 3, 2)
    for source in (Layout.plain(4), NCHW16C, NHWC):
        for target in (NCHW8C, NCHW16C, NHWC, Layout.plain(4)):
            a = te.placeholder(source.physical_shape(array.shape), name="A")
            out = convert_layout(a, array.shape, source, target)
            (got,) = run([a], [out], [pack(array, source)])
            np.testing.assert_array_equal(got, pack(array, target))


def test_conversion_of_equal_layouts_is_a_copy() -> None:
    a = te.placeholder(NCHW16C.physical_shape((1, 20, 3, 3)), name="A")
    out = convert_layout(a, (1, 20, 3, 3), NCHW16C, NCHW16C)
    assert repr(out.op.bodies[0]) == "A[i0, i1o, i2, i3, i1i]"


def test_symbolic_channels() -> None:
    n = te.var("n")
    a = te.placeholder((1, n, 2, 2), name="A")
    b = te.compute(a.shape, lambda i, c, h, w: a[i, c, h, w] + 1.0, name="plus")
    ap = te.placeholder(NCHW16C.physical_shape(a.shape), name="Ap")
    made = relayout_compute(b, NCHW16C, {a: (ap, NCHW16C)})
    assert repr(made.shape[1]) == "(n + 15) // 16"
    assert isinstance(made.op.bodies[0], IfThenElse)
    loads = [x for x in walk_expr(made.op.bodies[0]) if isinstance(x, Load)]
    assert repr(loads[0]) == "Ap[i, co, h, w, ci]"


def test_mistakes() -> None:
    a = te.placeholder((1, 20, 2, 2), name="A")
    b: Callable[..., Any] = te.compute(a.shape, lambda *i: a[i] + 1.0, name="plus")
    wrong = te.placeholder((1, 20, 2, 2), name="wrong")
    with pytest.raises(ComputeError, match=r"wrong has shape \(1, 20, 2, 2\), but A in layout ABCD16b has"):
        relayout_compute(b, NCHW16C, {a: (wrong, NCHW16C)})
    with pytest.raises(ComputeError, match="are asked for in"):
        relayout_compute(b, [NCHW16C, NHWC], {})
    with pytest.raises(ComputeError, match="only a compute"):
        relayout_compute(a, NCHW16C, {})
