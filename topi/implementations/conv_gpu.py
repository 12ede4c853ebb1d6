"""Convolution on a GPU as a matrix product: filters x (channels, taps) times (channels, taps) x positions.

    col[n, k, p] = x[n, channel(k), row(p, k), column(p, k)]      a block's part of it only, in shared memory
    product[n, f, p] = sum over k of w[f, k] * col[n, k, p]       in tiles
    out[n, f, y, x] = product[n, f, y * columns + x]

The sum runs over channels and taps in the order of the op's own compute; what lies in the padding is a zero there.
"""

from __future__ import annotations

from typing import Any

from schedule import Schedule, create_schedule
from tensorir import te
from tensorir.expr import Const, Expr, const
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import Tensor
from topi.group import Group
from topi.halves import rounded, wide
from topi.implementations.conv import call_window, flatten, unflatten
from topi.op import Call, Implementation
from topi.ops.conv import conv1d, conv2d, conv3d
from topi.schedules import schedule_group
from topi.schedules_gpu import choose_tile, inline_around, schedule_gpu, tile_product
from topi.window import inside

PRODUCT, COLUMNS, WEIGHTS = "conv_product", "conv_columns", "conv_weights"


def _applicable(call: Call, target: Target) -> str | None:
    data, weight = call.inputs[0], call.inputs[1]
    assert data is not None and weight is not None
    if target.channels_last:
        return "the target prefers channels last"
    if call.attrs.get("groups", 1) != 1:
        return "its groups share no operand"
    window = call_window(call)
    sizes = (*weight.shape, *window.result, *data.shape[1:])
    if not all(isinstance(e, Const) for e in sizes):
        return "a size is symbolic"
    if 0 in [e.value for e in sizes if isinstance(e, Const)]:
        return "it is empty"
    filters, depth, positions = weight.shape[0], _product(weight.shape[1:]), _product(window.result)
    if choose_tile(filters, positions, data.shape[:1], depth, target) is None:
        return "it is too small for tiles"
    return None


def _product(extents: Any) -> Expr:
    total = 1
    for e in extents:
        assert isinstance(e, Const)
        total *= int(e.value)
    return const(total)


def _compute(call: Call, target: Target, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    window = call_window(call)
    depth, positions = _product(weight.shape[1:]), _product(window.result)

    def column(n: Expr, k: Expr, p: Expr) -> Expr:
        channel, *taps = unflatten(k, weight.shape[1:])
        where: list[Expr] = []
        spatial: list[Expr] = []
        for axis, (at, tap) in enumerate(zip(unflatten(p, window.result), taps, strict=True)):
            index = window.input_index(axis, at, tap)
            where += inside(window, axis, index, data.shape[2 + axis])
            spatial.append(index)
        value = data(n, channel, *spatial)
        return te.if_then_else(te.all(*where), value, const(0, data.dtype)) if where else value

    columns = te.compute((data.shape[0], depth, positions), column, name=COLUMNS)
    weights = te.compute(
        (weight.shape[0], depth), lambda f, k: weight(f, *unflatten(k, weight.shape[1:])), name=WEIGHTS
    )
    k = te.reduce_axis(depth, "k")
    product = te.compute(
        (data.shape[0], weight.shape[0], positions),
        lambda n, f, p: te.sum(wide(columns(n, k.var, p)) * wide(weights(f, k.var)), axis=k),
        name=PRODUCT,
    )

    def element(n: Expr, f: Expr, *point: Expr) -> Expr:
        return product(n, f, flatten(point, window.result))

    result = rounded(te.compute((*product.shape[:2], *window.result), element, name=call.op.name), data.dtype)
    if bias is None:
        return result
    return te.compute(result.shape, lambda n, f, *p: result(n, f, *p) + bias(f), name=f"{call.op.name}_bias")


def _schedule(group: Group, target: Target, config: Any) -> Schedule:
    s = create_schedule(list(group.outputs))
    stages = {v.name: v.tensor for v in s.stages}
    product = stages[PRODUCT]
    host = inline_around(s, product, (stages[COLUMNS], stages[WEIGHTS]))
    if host is None or len(s[host].axis) < 3:  # others read the product, or its result under another shape
        return schedule_group(group, target)
    axes = [a.var for a in s[host].axis]
    positions = s[host].fuse(*axes[2:]) if len(axes) > 3 else axes[2]
    batch, filters, points = product.shape
    tile = choose_tile(filters, points, (batch,), stages[COLUMNS].shape[1], target)
    assert tile is not None
    tile_product(s, host, product, axes[1], positions, tile, target)
    schedule_gpu(s, target)
    return s


def _layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    plain = [None if i is None else Layout.plain(len(i.shape)) for i in call.inputs]
    return tuple(plain), tuple(Layout.plain(len(o.shape)) for o in call.outputs)


for _op in (conv1d, conv2d, conv3d):
    _op.implementation(
        Implementation(
            "product", ("opencl", "cuda"), _applicable, _layouts, _compute, _schedule,
            lambda group, target: (None,), lambda call, target: 0.0,
        )
    )  # fmt: skip
