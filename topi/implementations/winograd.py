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
from dataclasses import dataclass
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
from topi.implementations.tiles import (
    ALL_BYTES,
    CORE_BYTES,
    NEAR_BYTES,
    block_fill,
    choose_tiles,
    efficiency,
    fill,
    fma_rate,
    lanes,
    overlapped,
)
from topi.op import Algorithm, Call, Implementation
from topi.ops.conv import conv2d
from topi.ops.winograd import conv2d_winograd, winograd_stages

HAND_OFF = 2e-6
"""Seconds until all cores have begun and ended a parallel loop."""


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
        (weight.shape[-1],), padding, m, _best(call, target)[0].group,
    )  # fmt: skip
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result(*i) + bias(i[1], i[-1]), name="winograd_bias")


def _tiles(call: Call) -> int:
    m = call.attrs["m"]
    height, width = _size(call.outputs[0].shape[2]), _size(call.outputs[0].shape[3])
    return -(-height // m) * -(-width // m)


@dataclass(frozen=True, slots=True)
class WinogradTile:
    """How the work is cut. `group` Winograd tiles are transformed at once; the products of a register tile are
    `columns` of them x `blocks` output blocks. Cores take groups of tiles, each with all of the weights; with `shared`
    they take output blocks of the same group, each with its own weights."""

    group: int
    columns: int
    blocks: int
    shared: bool

    def __repr__(self) -> str:
        return f"{self.group}/1x{self.columns}x{self.blocks}{' shared' if self.shared else ''}"


def _plan(
    channels: int, out: int, tiles: int, m: int, target: Target, dtype: DType
) -> list[tuple[float, WinogradTile]]:
    """Ways to cut the work with the seconds each takes by the model, best first: products at the speed of a register
    tile, transforms at a few multiply-adds an element, weights from beyond the second-level cache once for each group
    and core that reads them, transformed data through the third-level cache where cores share it."""
    b, n, cores = lanes(target, dtype), m + 2, max(1, target.cores)
    out_blocks, rate = max(1, -(-out // b)), fma_rate(target, dtype)
    room = max(target.l2_bytes, 1 << 19) * 0.9
    large = 4.0 * n * n * channels * out > target.l2_bytes / 2
    weights, data = 4.0 * n * n * channels * out, 4.0 * n * n * channels
    found: dict[WinogradTile, float] = {}
    for micro in choose_tiles(1, tiles, out_blocks, target, limit=24):
        useful = (
            efficiency(micro, target) * fill(channels, b) * fill(out, b) * block_fill(out_blocks, micro.blocks) * 0.85
        )
        for count in range(1, -(-tiles // micro.columns) + 1):
            group = count * micro.columns
            if count > 1 and data * group > room:
                break
            groups = -(-tiles // group)
            products = n * n * group * channels * out / useful
            moved = n * n * group * (10 * channels + 6 * out)
            work = (products + moved) / (rate / cores)
            near = weights / NEAR_BYTES
            turns = -(-groups // cores)
            stream = weights / CORE_BYTES * turns if large else 0.0
            found[WinogradTile(group, micro.columns, micro.blocks, False)] = (
                overlapped(turns * work, stream) + turns * near
            )
            shares = -(-out_blocks // micro.blocks)
            part = -(-shares // cores) / shares
            stream = weights / ALL_BYTES * (groups if weights > cores * target.l2_bytes / 2 else 1) if large else 0.0
            work = (products * part + moved / cores) / (rate / cores)
            exchange = data * tiles / cores / CORE_BYTES * 2.5 if cores > 1 else 0.0
            found[WinogradTile(group, micro.columns, micro.blocks, True)] = (
                overlapped(groups * work, stream) + groups * (near * part + HAND_OFF) + exchange
            )
    return [(seconds, tile) for tile, seconds in sorted(found.items(), key=lambda f: f[1])]


def _best(call: Call, target: Target) -> list[WinogradTile]:
    """The best ways to cut the work that have one size of group: the compute rounds the number of tiles up to it."""
    spec = call.inputs[0]
    assert spec is not None
    channels, out = _shape(call, 0)[1], _size(call.outputs[0].shape[1])
    plan = [tile for _, tile in _plan(channels, out, _tiles(call), call.attrs["m"], target, spec.dtype)]
    return [tile for tile in plan if tile.group == plan[0].group][:3]


def _configs(group: Group, target: Target) -> list[WinogradTile]:
    anchor = group.anchor
    assert anchor is not None
    return _best(anchor.call, target)


def schedule_winograd(group: Group, target: Target, tile: WinogradTile) -> Schedule:
    """Groups of Winograd tiles; for each, the transformed input, then for `tile.blocks` output blocks at a time the
    products, n * n small ones in registers, and their way back."""
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
    p_o, p_i = s[output].split(place, factor=tile.group)
    b_o, b_i = s[output].split(block, factor=tile.blocks)
    s[output].reorder(image, p_o, b_o, b_i, p_i, y_i, x_i, lane)
    groups = s[output].fuse(image, p_o)
    s[output].parallel(b_o if tile.shared else groups)
    s[output].unroll(x_i)
    s[output].vectorize(lane)

    s[back].compute_at(s[output], p_i)
    _by_columns(s, back)

    s[products].compute_at(s[output], b_o)
    image, block, e, p, lane = list(s[products].op.axis)
    p_o, p_i = s[products].split(p, factor=tile.columns)
    s[products].reorder(image, e, p_o, p_i, block, lane)
    for loop in (image, p_i, block):
        s[products].unroll(loop)
    s[products].vectorize(lane)
    accumulate_in_registers(s, accumulator, products, p_o, lanes(target, products.dtype), blocks_last=True)
    _fetch_next_panel(s, accumulator, tile, p_o, target)

    s[transformed].compute_at(s[output], groups)
    image, e, channel, p, lane = list(s[transformed].op.axis)
    row, column = s[transformed].split(e, factor=m + 2)
    s[transformed].reorder(image, channel, p, row, column, lane)
    s[transformed].unroll(column)
    s[transformed].vectorize(lane)
    if tile.shared:
        s[transformed].parallel(s[transformed].fuse(image, channel))
    s[half].compute_at(s[transformed], p)
    s[gathered].compute_at(s[half], _by_columns(s, half))
    s[gathered].set_scope("register")
    for loop in list(s[gathered].op.axis)[:-1]:  # type: ignore[attr-defined]
        s[gathered].unroll(loop)
    s[gathered].vectorize(list(s[gathered].op.axis)[-1])  # type: ignore[attr-defined]
    return s


def _fetch_next_panel(s: Schedule, accumulator: Tensor, tile: WinogradTile, turn: Any, target: Target) -> None:
    """Large weights: while the register tiles of one product use its panel of weights, each asks for its share of the
    next product's."""
    weight = input_tensors(accumulator.op)[1]
    out, products, outer, inner, lane = [_size(e) for e in weight.shape]
    if 4 * out * products * outer * inner * lane <= target.l2_bytes // 2:
        return
    step = s[accumulator].reduce_axis[0]
    turns = tile.group // tile.columns
    share, panel = -(-inner // turns), outer * inner * lane
    ahead = panel - step.var * (inner * lane) + (turn * outer + step.var) * (share * lane)
    for block in range(tile.blocks):
        for n in range(share):
            s[accumulator].prefetch(weight, step, ahead + (block * products * panel + n * lane))


def _by_columns(s: Schedule, t: Tensor) -> Any:
    """A pass of a transform, axes (..., row, column, lane): a loop over columns, which is returned, each whole in
    registers. All rows and columns at once would be more vectors than there are registers."""
    *_, row, column, lane = list(s[t].op.axis)  # type: ignore[attr-defined]
    s[t].reorder(column, row, lane)
    s[t].unroll(row)
    s[t].vectorize(lane)
    return column


def _seconds(channels: int, out: int, tiles: int, m: int, target: Target, dtype: DType) -> float:
    """The model's seconds for the best way to cut the work."""
    return _plan(channels, out, tiles, m, target, dtype)[0][0]


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
