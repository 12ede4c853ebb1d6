"""Winograd convolution over blocked channels.

data     (N, C/b, H, W, b)
weight   (O/b, n*n, C/b, b, b), transformed and packed once at compile time
result   (N, O/b, OH, OW, b)

Tiles are taken in blocks. For a block, the input of all channels is transformed into a scratch that fits the
second-level cache; for each few output blocks, n * n small products are accumulated in registers, and the output
transform, bias and epilogue follow while the products are still near.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedule import Schedule, create_schedule
from tensorir import te
from tensorir.dtypes import DType
from tensorir.expr import Const, Expr, const
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import Tensor, input_tensors
from topi.group import Group
from topi.implementations.conv import accumulate_in_registers, call_window, split_stages
from topi.implementations.tiles import Tile, choose_tiles, efficiency, fill, fma_rate, lanes, stream_seconds
from topi.op import Algorithm, Call, Implementation
from topi.ops.conv import conv2d
from topi.ops.winograd import conv2d_winograd, winograd_stages


def _size(e: Expr) -> int:
    return int(e.value) if isinstance(e, Const) else 0


def _shape(call: Call, number: int) -> list[int]:
    spec = call.inputs[number]
    assert spec is not None
    return [_size(e) for e in spec.shape]


def _applicable(call: Call, target: Target) -> str | None:
    spec = call.inputs[0]
    assert spec is not None
    if str(spec.dtype) != "float32" or lanes(target, spec.dtype) < 4:
        return "only float32 on a target with vectors"
    if not call.constant[1]:
        return "the weight is not known at compile time"
    return "spatial extents are symbolic" if 0 in _shape(call, 0)[2:] else None


def _layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    spec = call.inputs[0]
    assert spec is not None
    b = lanes(target, spec.dtype)
    blocked = Layout.parse(f"NCHW{b}c", logical="NCHW")
    wanted: list[Layout | None] = [
        blocked,
        Layout.parse(f"OEI{b}i{b}o", logical="EOI"),
        Layout.parse(f"O{b}o", logical="O"),
    ]
    return tuple(wanted[: len(call.inputs)]), (blocked,)


def _compute(call: Call, target: Target, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    m, padding = call.attrs["m"], call.attrs["padding"]
    block = data.shape[-1]
    outer, inner = te.reduce_axis(data.shape[1], "ic"), te.reduce_axis(block, "ici")

    def read_data(i: Expr, c: Sequence[Expr], y: Expr, x: Expr, lane: Sequence[Expr]) -> Expr:
        inside = te.logical_and(y >= 0, y < data.shape[2], x >= 0, x < data.shape[3])
        return te.if_then_else(inside, data(i, *c, y, x, *lane), const(0, data.dtype))

    def product(v: Tensor, i: Expr, o: Expr, e: Expr, rest: Sequence[Expr]) -> Expr:
        p, lane = rest
        value = v(i, e, outer.var, p, inner.var) * weight(o, e, outer.var, inner.var, lane)
        return te.sum(value, axis=[outer, inner])

    result = winograd_stages(
        read_data, data.shape[2:4], product, data.shape[0], (data.shape[1],), (block,), weight.shape[0],
        (weight.shape[-1],), padding, m,
    )  # fmt: skip
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result(*i) + bias(i[1], i[-1]), name="winograd_bias")


def _tiles(call: Call) -> int:
    m = call.attrs["m"]
    height, width = _size(call.outputs[0].shape[2]), _size(call.outputs[0].shape[3])
    return -(-height // m) * -(-width // m)


def _configs(group: Group, target: Target) -> list[Tile]:
    anchor = group.anchor
    assert anchor is not None
    tiles = choose_tiles(1, _tiles(anchor.call), _size(group.outputs[0].shape[1]), target, limit=8)
    n, channels = anchor.call.attrs["m"] + 2, _shape(anchor.call, 0)[1]
    room = max(target.l2_bytes, 1 << 19) * 0.6
    fitting = [t for t in tiles if n * n * channels * t.columns * 4 <= room]
    return (fitting or tiles)[:3]


def schedule_winograd(group: Group, target: Target, tile: Tile) -> Schedule:
    """Blocks of `tile.columns` Winograd tiles in parallel; `tile.blocks` output blocks at a time inside."""
    anchor = group.anchor
    assert anchor is not None
    m = anchor.call.attrs["m"]
    products, output, middle, _ = split_stages(group)
    (transformed,) = [t for t in input_tensors(products.op) if t.op.name == "winograd_input"]
    (half,) = input_tensors(transformed.op)
    (gathered,) = input_tensors(half.op)
    s = create_schedule([output])
    back = next(t for t in middle if t.op.name == "winograd_output_rows")
    for t in middle:
        if t is not back:
            s[t].compute_inline()
    accumulator = s.cache_write(products, "register")
    axes: list[Any] = list(s[output].op.axis)
    image, block, y, x, lane = axes
    y_o, y_i = s[output].split(y, factor=m)
    x_o, x_i = s[output].split(x, factor=m)
    s[output].reorder(image, y_o, x_o, block, y_i, x_i, lane)
    place = s[output].fuse(y_o, x_o)
    p_o, p_i = s[output].split(place, factor=tile.columns)
    b_o, b_i = s[output].split(block, factor=tile.blocks)
    s[output].reorder(image, p_o, b_o, b_i, p_i, y_i, x_i, lane)
    parallel = s[output].fuse(image, p_o)
    s[output].parallel(parallel)
    for loop in (y_i, x_i):
        s[output].unroll(loop)
    s[output].vectorize(lane)

    s[back].compute_at(s[output], p_i)
    _unroll_all(s, back)
    s[back].set_scope("local")

    s[products].compute_at(s[output], b_o)
    image, block, e, p, lane = list(s[products].op.axis)
    s[products].reorder(image, e, p, block, lane)
    for loop in (image, p, block):
        s[products].unroll(loop)
    s[products].vectorize(lane)
    accumulate_in_registers(s, accumulator, products, e, lanes(target, products.dtype), blocks_last=True)

    s[transformed].compute_at(s[output], parallel)
    image, e, channel, p, lane = list(s[transformed].op.axis)
    s[transformed].reorder(image, channel, p, e, lane)
    s[transformed].unroll(e)
    s[transformed].vectorize(lane)
    for t in (half, gathered):
        s[t].compute_at(s[transformed], p)
        _unroll_all(s, t)
        s[t].set_scope("local")
    return s


def _unroll_all(s: Schedule, t: Tensor) -> None:
    axes: list[Any] = list(s[t].op.axis)
    for loop in axes[:-1]:
        s[t].unroll(loop)
    s[t].vectorize(axes[-1])


def _seconds(channels: int, out: int, tiles: int, m: int, target: Target, dtype: DType) -> float:
    """Products at the speed of a register tile, transforms at a few multiply-adds an element, weights streamed."""
    b, n = lanes(target, dtype), m + 2
    best = choose_tiles(1, tiles, max(1, -(-out // b)), target, limit=1)[0]
    useful = efficiency(best) * fill(tiles, best.columns) * fill(channels, b) * fill(out, b) * 0.85
    products = n * n * tiles * channels * out / useful
    moved = n * n * tiles * (10 * channels + 6 * out)
    weights = 4 * n * n * channels * out
    return (products + moved) / fma_rate(target, dtype) + stream_seconds(weights, target)


def _cost(call: Call, target: Target) -> float:
    spec = call.inputs[0]
    assert spec is not None
    out = _size(call.outputs[0].shape[1])
    return _seconds(_shape(call, 0)[1], out, _tiles(call), call.attrs["m"], target, spec.dtype)


conv2d_winograd.implementation(
    Implementation(
        "winograd", ("llvm",), _applicable, _layouts, _compute, schedule_winograd, _configs, _cost, accuracy="bounded"
    )
)


# ------------------------------------------------------------------------------ in place of a direct convolution


def _algorithm_applicable(call: Call, target: Target) -> str | None:
    spec, weight = call.inputs[0], call.inputs[1]
    assert spec is not None and weight is not None
    if str(spec.dtype) != "float32" or lanes(target, spec.dtype) < 4 or target.kind != "llvm":
        return "only float32 on a CPU with vectors"
    if not call.constant[1]:
        return "the weight is not known at compile time"
    out, per_group, *kernel = [_size(e) for e in weight.shape]
    if kernel != [3, 3] or call.attrs.get("groups", 1) != 1:
        return "not a 3x3 convolution of one group"
    window = call_window(call)
    if any(s != 1 for s in window.strides) or any(d != 1 for d in window.dilations):
        return "strided or dilated"
    if 0 in [_size(e) for e in spec.shape[2:]] or not all(
        isinstance(p, Const) for p in (*window.before, *window.after)
    ):
        return "spatial extents are symbolic"
    block = lanes(target, spec.dtype)
    return "too few channels" if per_group < block or out < block else None


def _padding(call: Call) -> tuple[int, ...]:
    window = call_window(call)
    return tuple(_size(p) for p in (*window.before, *window.after))


def _register(m: int) -> None:
    def cost(call: Call, target: Target) -> float:
        spec = call.inputs[0]
        assert spec is not None
        height, width = (_size(e) for e in call.outputs[0].shape[2:])
        tiles = -(-height // m) * -(-width // m) * max(1, _size(call.outputs[0].shape[0]))
        out = _size(call.outputs[0].shape[1])
        return _seconds(_size(spec.shape[1]), out, tiles, m, target, spec.dtype)

    conv2d.algorithm(
        Algorithm(
            f"winograd F({m}x{m}, 3x3)",
            _algorithm_applicable,
            "conv2d_winograd",
            lambda call: {"m": m, "padding": _padding(call)},
            lambda call: {1: ("winograd_weight", {"m": m})},
            cost,
        )
    )


for _m in (2, 4):
    _register(_m)
