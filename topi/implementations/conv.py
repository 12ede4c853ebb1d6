"""Convolution over blocked channels: the direct algorithm, and depthwise.

data     (N, C/b, H, W, b), or (N, C, H, W) for few input channels
weight   (O/B, C/b, KH, KW, b, B), packed once at compile time
result   (N, O/B, OH, OW, B)

b and B are the vector width. A register tile of points x output blocks is accumulated over all input channels and
kernel positions; bias and the group's elementwise epilogue are applied to the tile before it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from schedule import Schedule, create_schedule
from tensorir import te
from tensorir.expr import Const, Expr, IterVar, const
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import ComputeOp, Tensor, input_tensors
from topi.chunks import LONGEST, Chunks, cut, find_chunk, sum_of_chunks
from topi.group import Group, physical_compute
from topi.implementations.tiles import Tile, choose_tiles, fill, fma_rate, lanes, overlapped, stream_seconds
from topi.op import Call, Implementation
from topi.ops.conv import conv1d, conv2d, conv3d, conv_window
from topi.schedules import schedule_group
from topi.window import Window, inside, is_padded


def _size(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) else None


def _sizes(shape: Sequence[Expr]) -> list[int | None]:
    return [_size(e) for e in shape]


def _operand(call: Call, number: int) -> tuple[Expr, ...]:
    spec = call.inputs[number]
    assert spec is not None
    return spec.shape


def call_window(call: Call) -> Window:
    """The window of a convolution call."""
    return conv_window(_operand(call, 0), _operand(call, 1), call.attrs, call.op.name)


def _axes(rank: int) -> str:
    return {3: "W", 4: "HW", 5: "DHW"}[rank]


def _blocked(rank: int, block: int) -> Layout:
    return Layout.parse(f"NC{_axes(rank)}{block}c", logical=f"NC{_axes(rank)}")


def _common_reason(call: Call, target: Target) -> str | None:
    spec = call.inputs[0]
    assert spec is not None
    if str(spec.dtype) != "float32":
        return f"dtype is {spec.dtype}, not float32"
    if lanes(target, spec.dtype) < 4:
        return "the target has no vectors"
    if any(s is None for s in _sizes(_operand(call, 1))):
        return "the weight's shape is symbolic"
    if not call.constant[1]:
        return "the weight is not known at compile time"
    if any(s is None for s in _sizes(_operand(call, 0)[2:])):
        return "spatial extents are symbolic"
    return None


# ------------------------------------------------------------------------------------------------------------ direct


def _direct_applicable(call: Call, target: Target) -> str | None:
    reason = _common_reason(call, target)
    if reason is not None:
        return reason
    groups = call.attrs.get("groups", 1)
    out, per_group = _sizes(_operand(call, 1))[:2]
    assert out is not None and per_group is not None
    if groups > 1:
        spec = call.inputs[0]
        assert spec is not None
        block = lanes(target, spec.dtype)
        if per_group % block or (out // groups) % block:
            return f"groups of {per_group} to {out // groups} channels are not multiples of {block}"
    return None


def _plain_input(call: Call, block: int) -> bool:
    """Few input channels are read in plain layout: padding them to a block would waste most of the work."""
    channels = _size(_operand(call, 0)[1])
    return channels is not None and channels < block and channels % block != 0


def _direct_layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    spec = call.inputs[0]
    assert spec is not None
    block, rank = lanes(target, spec.dtype), len(spec.shape)
    spatial = _axes(rank)
    plain = _plain_input(call, block)
    data = Layout.plain(rank) if plain else _blocked(rank, block)
    kernel = f"OI{spatial}{block}o" if plain else f"OI{spatial}{block}i{block}o"
    weight = Layout.parse(kernel, logical=f"OI{spatial}")
    bias = Layout.parse(f"O{block}o", logical="O")
    wanted: list[Layout | None] = [data, weight, bias]
    return tuple(wanted[: len(call.inputs)]), (_blocked(rank, block),)


def _places(
    window: Window, point: Sequence[Expr], taps: Sequence[IterVar], extents: Sequence[Expr]
) -> tuple[list[Expr], Expr | None]:
    """Where a result reads for each tap, and the condition under which that lies in the input: padded taps are left
    out, nothing is copied."""
    places: list[Expr] = []
    conditions: list[Expr] = []
    for axis, (p, tap) in enumerate(zip(point, taps, strict=True)):
        place = window.input_index(axis, p, tap.var)
        places.append(place)
        conditions += inside(window, axis, place, extents[axis])
    return places, te.logical_and(*conditions) if conditions else None


def _direct_compute(
    call: Call, target: Target, data: Tensor, weight: Tensor, bias: Tensor | None = None, *, in_chunks: bool = False
) -> Tensor:
    window = call_window(call)
    plain = len(data.shape) == len(_operand(call, 0))
    spatial = len(window.kernel)
    groups = call.attrs.get("groups", 1)
    out_blocks = weight.shape[0]
    blocks_per_group = _size(out_blocks) // groups  # type: ignore[operator]
    in_blocks = weight.shape[1]
    outer = te.reduce_axis(in_blocks, "ic")
    taps = [te.reduce_axis(k, f"k{'dhw'[3 - spatial + n]}") for n, k in enumerate(window.kernel)]
    inner = None if plain else te.reduce_axis(weight.shape[-2], "ici")
    lane = weight.shape[-1]
    split: Chunks | None = None
    if in_chunks:
        steps = _terms(call) // (_size(_operand(call, 1)[1]) or 1) * (1 if inner is None else _size(inner.extent) or 1)
        split = cut(_size(in_blocks) or 1, steps, "ic")
        outer = split.within

    extents = data.shape[2 : 2 + spatial]
    pointwise = _is_pointwise(window) and spatial > 1
    points = (extent_product(window.result),) if pointwise else window.result

    def terms(block: Expr, conditions: list[Expr], n: Expr, o: Expr, *rest: Expr) -> Expr:
        point, oi = list(rest[:-1]), rest[-1]
        if pointwise:
            point = unflatten(point[0], window.result)
        places, inside_data = _places(window, point, taps, extents)
        conditions = [*conditions, *([] if inside_data is None else [inside_data])]
        where = te.logical_and(*conditions) if conditions else None
        group = const(0) if groups == 1 else o // blocks_per_group
        channel = group * in_blocks + block
        tap_vars = [t.var for t in taps]
        if inner is None:
            product = data(n, channel, *places) * weight(o, block, *tap_vars, oi)
            return te.sum(product, axis=[outer, *taps], where=where)
        value = data(n, channel, *places, inner.var) * weight(o, block, *tap_vars, inner.var, oi)
        return te.sum(value, axis=[outer, *taps, inner], where=where)

    shape = (data.shape[0], out_blocks, *points, lane)
    if split is None:
        total = te.compute(shape, lambda *i: terms(outer.var, [], *i), name="conv")
    else:
        total = sum_of_chunks(shape, split, terms, "conv")

    def finish(n: Expr, o: Expr, *rest: Expr) -> Expr:
        point, oi = rest[:-1], rest[-1]
        value = total(n, o, *((flatten(point, window.result),) if pointwise else point), oi)
        return value if bias is None else value + bias(o, oi)

    if bias is None and not pointwise:
        return total
    return te.compute((data.shape[0], out_blocks, *window.result, lane), finish, name="conv_result")


def _chunked_compute(call: Call, target: Target, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _direct_compute(call, target, data, weight, bias, in_chunks=True)


def extent_product(extents: Sequence[Expr]) -> Expr:
    result: Expr = const(1)
    for e in extents:
        result = result * e
    return result


def _terms(call: Call) -> int:
    """Products that go into one element of the result."""
    count = 1
    for e in _operand(call, 1)[1:]:
        count *= _size(e) or 1
    return count


def flatten(point: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The row-major number of a point."""
    result: Expr = const(0)
    for p, e in zip(point, extents, strict=True):
        result = result * e + p
    return result


def unflatten(number: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The point with a row-major number."""
    result: list[Expr] = []
    for e in reversed(extents[1:]):
        result.append(number % e)
        number = number // e
    return [number, *reversed(result)]


def _is_pointwise(window: Window) -> bool:
    """1x1 with stride 1 and no padding: spatial axes may be walked as one."""
    return all(_size(k) == 1 for k in window.kernel) and all(s == 1 for s in window.strides) and not is_padded(window)


def _direct_configs(group: Group, target: Target) -> list[Tile]:
    anchor = group.anchor
    assert anchor is not None
    window = call_window(anchor.call)
    extents = [_size(r) or 1 for r in window.result]
    blocks = _size(anchor.outputs[0].shape[1]) or 1
    groups = anchor.call.attrs.get("groups", 1)
    points = 1
    for e in extents:
        points *= e
    if _is_pointwise(window):
        return choose_tiles(1, points, blocks // groups, target)
    rows = extents[-2] if len(extents) > 1 else 1
    return choose_tiles(rows, extents[-1], blocks // groups, target)


def split_stages(group: Group) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """(accumulator, output, stages between them, stages before the accumulator) of a group with one output."""
    from tensorir.te import PlaceholderOp, collect_operations, input_tensors

    anchor = group.anchor
    assert anchor is not None and len(group.outputs) == 1
    accumulator = _reduction_tensor(anchor.outputs[0])
    before = {id(op) for op in collect_operations([accumulator])}
    tensors: dict[int, Tensor] = {}
    order = collect_operations(list(group.outputs))
    for op in order:
        for t in input_tensors(op):
            tensors.setdefault(id(t.op), t)
    middle = [
        tensors[id(op)]
        for op in order
        if id(op) not in before and op is not group.outputs[0].op and not isinstance(op, PlaceholderOp)
    ]
    early = [
        tensors[id(op)]
        for op in order
        if id(op) in before and op is not accumulator.op and not isinstance(op, PlaceholderOp)
    ]
    return accumulator, group.outputs[0], middle, early


def _reduction_tensor(t: Tensor) -> Tensor:
    """The contraction stage among the stages that make `t`."""
    from tensorir.te import input_tensors

    stack = [t]
    while stack:
        top = stack.pop()
        if isinstance(top.op, ComputeOp) and top.op.reduce_axes:
            return top
        stack.extend(input_tensors(top.op))
    raise AssertionError("a contraction has no reduction stage")


def _loops(s: Schedule, t: Tensor) -> list[Any]:
    return list(s[t].op.axis)  # type: ignore[attr-defined]


def schedule_direct(group: Group, target: Target, tile: Tile) -> Schedule:
    """Tiles of points x blocks in registers; parallel over images, block tiles and rows."""
    accumulator, output, middle, _ = split_stages(group)
    anchor = group.anchor
    assert anchor is not None
    window = call_window(anchor.call)
    s = create_schedule([output])
    for t in middle:
        s[t].compute_inline()
    if accumulator is output:
        accumulator = s.cache_write(output, "register")
    else:
        s[accumulator].set_scope("register")
    axes = _loops(s, output)
    n, ob, lane = axes[0], axes[1], axes[-1]
    point = axes[2:-1]
    if _is_pointwise(window) and len(point) > 1:
        column = point[0]
        for p in point[1:]:
            column = s[output].fuse(column, p)
        point = [column]
    ob_o, ob_i = s[output].split(ob, factor=tile.blocks)
    x_o, x_i = s[output].split(point[-1], factor=tile.columns)
    inner_points = [x_i]
    outer_points = [*point[:-1], x_o]
    if len(point) > 1 and tile.rows > 1:
        y_o, y_i = s[output].split(point[-2], factor=tile.rows)
        outer_points[-2] = y_o
        inner_points = [y_i, x_i]
    s[output].reorder(n, ob_o, *outer_points, ob_i, *inner_points, lane)
    tiles = [_size(loop.extent) or 1 for loop in s[output].loops[2 : 2 + len(outer_points)]]
    shared = [x_o] if len(outer_points) == 1 else outer_points[:-1]
    rest = outer_points[len(shared) :]
    by_place = _by_place(anchor.call)
    order = [n, *shared, ob_o] if by_place else [n, ob_o, *shared]
    s[output].reorder(*order, *rest)
    parallel = order[0]
    for loop in order[1:]:
        parallel = s[output].fuse(parallel, loop)
    s[output].parallel(parallel)
    for loop in (ob_i, *inner_points):
        s[output].unroll(loop)
    s[output].vectorize(lane)
    attach = parallel if len(outer_points) == 1 else x_o
    accumulate_in_registers(s, accumulator, output, attach, _size(output.shape[-1]) or 1, blocks_last=True)
    if not by_place:
        turn = parallel % math.prod(tiles) if len(tiles) == 1 else parallel % math.prod(tiles[:-1]) * tiles[-1] + x_o
        _fetch_next_panel(s, accumulator, tile.blocks, turn, math.prod(tiles), target)
    return s


def _by_place(call: Call) -> bool:
    """True if cores take parts of the map, false if they take output channels. What a core reads then of the other
    cores' part of the map, or again of the weights, comes from far: the smaller of the two should. Maps that are cut
    alike from layer to layer stay in the caches of their cores."""
    data, weight = (_sizes(_operand(call, i)) for i in (0, 1))
    if None in data or None in weight:
        return True
    return math.prod(n or 1 for n in weight) < math.prod(n or 1 for n in data)


NEAR = 16
"""Channels ahead of which weights are asked for from the second-level cache to the first."""


def _fetch_next_panel(s: Schedule, accumulator: Tensor, blocks: int, turn: Expr, turns: int, target: Target) -> None:
    """Large weights come from memory once: in each of the `turns` tiles of points that use the panel of a block tile,
    each step of the reduction asks for its share of the next panel, so that the memory is busy all the time and not
    only while the first tile waits; and for what it needs itself a little later."""
    operands = input_tensors(accumulator.op)
    if len(operands) < 2:  # it adds up sums of chunks
        return
    weight = operands[1]
    count, *taps, channels, lane = [_size(e) or 0 for e in weight.shape]
    panel = blocks * math.prod(taps) * channels * lane
    if len(weight.shape) < 5 or 4 * math.prod([count, *taps, channels, lane]) <= target.l2_bytes // 2:
        return
    reduction = s[accumulator].reduce_axis[: len(taps)]
    step: Expr = const(0)
    for axis, extent in zip(reduction, taps, strict=True):
        step = step * extent + axis.var
    share = -(-panel // (math.prod(taps) * turns * lane))
    ahead = panel - step * (channels * lane) + (turn * math.prod(taps) + step) * (share * lane)
    for n in range(share):
        s[accumulator].prefetch(weight, reduction[-1], ahead + n * lane)
    for block in range(blocks):
        each = block * math.prod(taps) * channels * lane
        s[accumulator].prefetch(weight, s[accumulator].reduce_axis[-1], NEAR * lane + each)


def accumulate_in_registers(
    s: Schedule, accumulator: Tensor, output: Tensor, attach: Any, width: int, *, blocks_last: bool = False
) -> None:
    """The accumulator at loop `attach` of the output: reduction loops outside the register tile, which is unrolled
    with its lanes vectorised by `width`. With `blocks_last` axis 1 is unrolled innermost, so that one broadcast
    element serves all blocks and is dead before the next one is loaded. An accumulator that adds up chunks has the sum
    of each in a tile of its own."""
    s[accumulator].compute_at(s[output], attach)
    _register_tile(s, accumulator, width, 1 if blocks_last else None)
    chunk = find_chunk(accumulator.op) if isinstance(accumulator.op, ComputeOp) else None
    if chunk is not None:
        s[chunk].set_scope("register")
        s[chunk].compute_at(s[accumulator], s[accumulator].op.reduce_axis[0])  # type: ignore[attr-defined]
        _register_tile(s, chunk, width, 2 if blocks_last else None)


def _register_tile(s: Schedule, accumulator: Tensor, width: int, last: int | None) -> None:
    axes = _loops(s, accumulator)
    reduction = list(s[accumulator].op.reduce_axis)  # type: ignore[attr-defined]
    lane = axes[-1]
    unrolled = axes[:-1]
    if last is not None:
        unrolled = [*axes[:last], *axes[last + 1 : -1], axes[last]]
    if _size(accumulator.shape[-1]) != width:
        vector, lane = s[accumulator].split(lane, factor=width)
        unrolled.append(vector)
    s[accumulator].reorder(*reduction, *unrolled, lane)
    for loop in unrolled:
        s[accumulator].unroll(loop)
    s[accumulator].vectorize(lane)
    s[accumulator].decompose_reduction(reduction[0])


def _work(call: Call) -> float:
    """Multiply-adds of the call; symbolic extents count as 1."""
    total = 1.0
    for e in call.outputs[0].shape:
        total *= _size(e) or 1
    for e in _operand(call, 1)[1:]:
        total *= _size(e) or 1
    return total


def _direct_cost(call: Call, target: Target) -> float:
    spec = call.inputs[0]
    assert spec is not None
    block = lanes(target, spec.dtype)
    channels, out = _size(spec.shape[1]) or 1, _size(call.outputs[0].shape[1]) or 1
    waste = fill(out, block) * (1.0 if _plain_input(call, block) else fill(channels, block))
    weights = 4.0
    for e in _operand(call, 1):
        weights *= _size(e) or 1
    work = _work(call) * _valid(call) / (fma_rate(target, spec.dtype) * 0.85 * waste)
    return overlapped(work, stream_seconds(weights, target))


def _valid(call: Call) -> float:
    """Share of the taps that lie in the input."""
    window, share = call_window(call), 1.0
    extents = _sizes(_operand(call, 0)[2:])
    for axis, extent in enumerate(extents):
        numbers = [_size(e) for e in (window.before[axis], window.kernel[axis], window.result[axis])]
        if extent is None or None in numbers:
            continue
        before, taps, points = (n or 0 for n in numbers)
        stride, dilation = window.strides[axis], window.dilations[axis]
        places = (p * stride + t * dilation - before for p in range(points) for t in range(taps))
        share *= sum(0 <= place < extent for place in places) / max(1, points * taps)
    return share


def _chunked_applicable(call: Call, target: Target) -> str | None:
    return _direct_applicable(call, target) or (None if _terms(call) > LONGEST else "the sums are short")


def _chunked_cost(call: Call, target: Target) -> float:
    return _direct_cost(call, target) * 1.02


# --------------------------------------------------------------------------------------------------------- depthwise


def _depthwise_applicable(call: Call, target: Target) -> str | None:
    reason = _common_reason(call, target)
    if reason is not None:
        return reason
    out, per_group = _sizes(_operand(call, 1))[:2]
    if per_group != 1 or call.attrs.get("groups", 1) != out or out == 1:
        return "not depthwise"
    return None


def _depthwise_layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    spec = call.inputs[0]
    assert spec is not None
    block, rank = lanes(target, spec.dtype), len(spec.shape)
    weight = Layout.parse(f"OI{_axes(rank)}{block}o", logical=f"OI{_axes(rank)}")
    wanted: list[Layout | None] = [_blocked(rank, block), weight, Layout.parse(f"O{block}o", logical="O")]
    return tuple(wanted[: len(call.inputs)]), (_blocked(rank, block),)


def _depthwise_compute(call: Call, target: Target, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    window = call_window(call)
    spatial = len(window.kernel)
    taps = [te.reduce_axis(k, f"k{'dhw'[3 - spatial + n]}") for n, k in enumerate(window.kernel)]

    def element(n: Expr, c: Expr, *rest: Expr) -> Expr:
        point, lane = rest[:-1], rest[-1]
        places, where = _places(window, point, taps, data.shape[2 : 2 + spatial])
        value = data(n, c, *places, lane) * weight(c, const(0), *[t.var for t in taps], lane)
        return te.sum(value, axis=taps, where=where)

    result = te.compute((data.shape[0], weight.shape[0], *window.result, weight.shape[-1]), element, name="depthwise")
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result(*i) + bias(i[1], i[-1]), name="depthwise_bias")


def _depthwise_configs(group: Group, target: Target) -> list[Tile]:
    anchor = group.anchor
    assert anchor is not None
    columns = _size(call_window(anchor.call).result[-1]) or 1
    widths = sorted(range(1, min(columns, 14) + 1), key=lambda c: (-fill(columns, c) * min(1.0, c / 8), -c))
    return [Tile(1, c, 1) for c in widths[:4]]


def _depthwise_cost(call: Call, target: Target) -> float:
    spec = call.inputs[0]
    assert spec is not None
    block = lanes(target, spec.dtype)
    return _work(call) / (fma_rate(target, spec.dtype) * 0.5 * fill(_size(spec.shape[1]) or 1, block))


# ----------------------------------------------------------------------------------------------------- channels last


def _last_applicable(call: Call, target: Target) -> str | None:
    return None if target.channels_last else "the target does not prefer channels last"


def _last_layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    spec = call.inputs[0]
    assert spec is not None
    axes = _axes(len(spec.shape))
    data = Layout.parse(f"N{axes}C", logical=f"NC{axes}")
    weight = Layout.parse(f"{axes}IO", logical=f"OI{axes}") if call.constant[1] else None
    return (data, weight, None)[: len(call.inputs)], (data,)


def _last_compute(call: Call, target: Target, *operands: Tensor | None) -> Any:
    return physical_compute(call.op, call, operands)


def _last_cost(call: Call, target: Target) -> float:
    """More than any blocked implementation: this one serves where there is none."""
    spec = call.inputs[0]
    assert spec is not None
    return _work(call) / (fma_rate(target, spec.dtype) * 0.01)


for _op in (conv1d, conv2d, conv3d):
    _op.implementation(
        Implementation(
            "channels_last", ("llvm", "opencl", "cuda"), _last_applicable, _last_layouts, _last_compute,
            lambda group, target, config: schedule_group(group, target), lambda group, target: (None,), _last_cost,
        )
    )  # fmt: skip

for _op in (conv1d, conv2d):
    _op.implementation(
        Implementation(
            "direct", ("llvm",), _direct_applicable, _direct_layouts, _direct_compute, schedule_direct, _direct_configs,
            _direct_cost, terms=_terms,
        )
    )  # fmt: skip
    _op.implementation(
        Implementation(
            "direct_in_chunks", ("llvm",), _chunked_applicable, _direct_layouts, _chunked_compute, schedule_direct,
            _direct_configs, _chunked_cost,
        )
    )  # fmt: skip
    _op.implementation(
        Implementation(
            "depthwise", ("llvm",), _depthwise_applicable, _depthwise_layouts, _depthwise_compute, schedule_direct,
            _depthwise_configs, _depthwise_cost,
        )
    )  # fmt: skip
