"""Default schedules for GPUs, one way for each family of stages.

    product          tiles of both operands in shared memory, a few results a thread, their sums in local memory
    rows             (softmax, norms, long reductions, arg-reductions) a block a row: the threads of the block divide
                     what is reduced and meet in shared memory, then divide the row that is written
    transpose        a tile of shared memory, so that reads and writes both run along rows
    anything else    a thread an element, with the reductions it needs in its own local memory

    conv + bias + relu, no tiles     →    kernel over out: thread (n, c, y, x): acc = sum(...); out = max(acc + bias, 0)

Stages that cost nothing are inlined before. A stage that others than its host read is a kernel of its own. Sums over
the threads of a block are re-associated; all others keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedule import Schedule, ScheduleError
from schedule.schedule import StageView
from schedule.state import AtRoot, Inlined, Stage
from tensorir.expr import Const, Expr, Load, Mul, Reduce, Var
from tensorir.target import Target
from tensorir.te import ComputeOp, PlaceholderOp, Tensor
from tensorir.visit import free_vars, walk_expr
from topi.kinds import is_contraction

THREADS = 256
"""Threads of a block, where the target takes so many."""

DEPTH = 16
"""Steps of a product's sum whose operands lie in shared memory together."""

ENOUGH_BLOCKS = 48
"""Blocks that a product should have: smaller tiles are taken until there are so many."""

LONG = 32
"""Elements of a reduction from which threads share it, where there are few results."""

FEW = 4096
"""Results up to which each gets a block of threads."""

ROW_BYTES = 16_384
"""Bytes of a row that are kept in shared memory instead of computed again."""


def schedule_gpu(s: Schedule, target: Target) -> None:
    """Schedules every stage that is not inlined: consumers first, each with what it alone reads."""
    for view in reversed(list(s.stages)):
        stage = s.find_stage(view.tensor)
        if not isinstance(stage.op, ComputeOp) or not isinstance(stage.place, AtRoot):
            continue
        if any(loop.thread is not None for loop in view.loops):
            continue
        _schedule_host(s, view.tensor, target)


def _schedule_host(s: Schedule, tensor: Tensor, target: Target) -> None:
    """One kernel. Each way leaves the schedule as it was if it cannot take the stage."""
    if not s[tensor].axis and s.find_stage(tensor).reduction is None:
        return
    for way in (schedule_product, _schedule_rows, _schedule_transpose):
        before = len(s.trace)
        try:
            if way(s, tensor, target):
                return
        except ScheduleError:
            pass
        while len(s.trace) > before:
            s.undo()
    _schedule_elements(s, tensor, target)


# ---------------------------------------------------------------------------------------------------------- reading


def _body(s: Schedule, tensor: Tensor) -> ComputeOp:
    """What the stage of a tensor computes, with its inlined producers in it."""
    op = s.analysis.bodies[id(s.find_stage(tensor))].op
    assert isinstance(op, ComputeOp)
    return op


def _loads(op: ComputeOp) -> Iterator[Load]:
    first = op.bodies[0]
    roots = list(op.bodies)
    if isinstance(first, Reduce):
        roots = [*first.sources, *([] if first.condition is None else [first.condition])]
    for root in roots:
        yield from (e for e in walk_expr(root) if isinstance(e, Load))


def _size(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) else None


def _volume(extents: Sequence[Expr]) -> int | None:
    total = 1
    for e in extents:
        size = _size(e)
        if size is None:
            return None
        total *= size
    return total


def _varies(e: Expr, var: Var) -> bool:
    return any(v is var for n in walk_expr(e) if isinstance(n, Load) for i in n.indices for v in free_vars(i))


def _own_producers(s: Schedule, tensor: Tensor) -> list[Tensor]:
    """The stages with code of their own that a stage alone reads, directly or through each other; readers first."""
    found: list[Stage] = [s.find_stage(tensor)]
    for view in reversed(list(s.stages)):
        stage = s.find_stage(view.tensor)
        if stage.is_output or not isinstance(stage.op, ComputeOp) or not isinstance(stage.place, AtRoot):
            continue
        consumers = [c for c in s.analysis.consumers[id(stage)] if not isinstance(c.place, Inlined)]
        if consumers and all(any(c is f for f in found) for c in consumers):
            found.append(stage)
    return [f.key for f in found[1:]]


# ------------------------------------------------------------------------------------------------------------ product


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a block, those of a thread, and the steps of the sum between two fetches."""

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    depth: int


def schedule_product(s: Schedule, tensor: Tensor, target: Target) -> bool:
    """A stage that is, or reads point by point, a sum of products over one axis, in tiles. False if it is none."""
    stage = s.find_stage(tensor)
    if stage.reduction is not None:
        product = tensor
        places = list(range(len(_body(s, tensor).axes)))
    else:
        own = _own_producers(s, tensor)
        if len(own) != 1 or s.find_stage(own[0]).reduction is None:
            return False
        found = _places(s, own[0], tensor)
        if found is None:
            return False
        product, places = own[0], found
    axes = product_axes(_body(s, product))
    if axes is None:
        return False
    row, column = axes
    op = _body(s, product)
    others = [op.axes[n].extent for n in range(len(op.axes)) if n not in (row, column)]
    tile = choose_tile(op.axes[row].extent, op.axes[column].extent, others, op.reduce_axes[0].extent, target)
    if tile is None:
        return False
    if product is tensor:
        product = s.cache_write(tensor, "local")
    loops = [a.var for a in s[tensor].axis]
    tile_product(s, tensor, product, loops[places[row]], loops[places[column]], tile, target)
    return True


def inline_around(s: Schedule, product: Tensor, operands: Sequence[Tensor]) -> Tensor | None:
    """Inlines all that is not an output, the product or one of its operands. The output that then reads the product, if
    that is all there is."""
    kept = {id(product), *map(id, operands)}
    for view in list(s.stages):
        stage = s.find_stage(view.tensor)
        if id(stage.key) in kept or stage.is_output or not isinstance(stage.op, ComputeOp):
            continue
        if stage.reduction is not None:
            return None
        view.compute_inline()
    readers = s.analysis.consumers[id(s.find_stage(product))]
    return readers[0].key if len(readers) == 1 and len(s.outputs) == 1 and readers[0].is_output else None


def _places(s: Schedule, producer: Tensor, host: Tensor) -> list[int] | None:
    """For each axis of a producer the axis of the host that indexes it, if the host reads it at one point only."""
    op = _body(s, host)
    reads = [e for e in _loads(op) if e.buffer is producer]
    at = {id(a.var): n for n, a in enumerate(op.axes)}
    if not reads or any(len(r.indices) != len(reads[0].indices) for r in reads):
        return None
    places = [at.get(id(i), -1) for i in reads[0].indices]
    same = all(a is b for r in reads for a, b in zip(r.indices, reads[0].indices))
    return places if same and -1 not in places and len(set(places)) == len(places) else None


def product_axes(op: ComputeOp) -> tuple[int, int] | None:
    """The axes of a sum of products over one axis that only the left factor has, and only the right one: the largest
    of each. None if it is not one, or one factor has no axis of its own."""
    first = op.bodies[0]
    if len(op.bodies) != 1 or len(op.reduce_axes) != 1 or not isinstance(first, Reduce) or first.condition is not None:
        return None
    source = first.sources[0]
    if first.reducer.name != "sum" or not isinstance(source, Mul):
        return None
    buffers = [{id(n.buffer) for n in walk_expr(f) if isinstance(n, Load)} for f in (source.a, source.b)]
    if buffers[0] & buffers[1]:
        return None
    reduced = op.reduce_axes[0].var
    if not all(_varies(f, reduced) for f in (source.a, source.b)):
        return None
    in_left, in_right = ([_varies(f, a.var) for a in op.axes] for f in (source.a, source.b))
    rows = [n for n in range(len(op.axes)) if in_left[n] and not in_right[n]]
    columns = [n for n in range(len(op.axes)) if in_right[n] and not in_left[n]]
    if not rows or not columns:
        return None

    def largest(places: list[int]) -> int:
        return max(places, key=lambda n: (_size(op.axes[n].extent) or 1 << 40, n))

    row, column = largest(rows), largest(columns)
    return (row, column) if row < column else (column, row)


def choose_tile(rows: Expr, columns: Expr, others: Sequence[Expr], depth: Expr, target: Target) -> Tile | None:
    """The largest tile that leaves enough blocks; None where a thread an element is better."""
    m, n, k = (_size(e) for e in (rows, columns, depth))
    if (m is not None and m < 4) or (n is not None and n < 4) or (k is not None and k < 4):
        return None
    batch = _volume(others)
    steps = DEPTH if k is None or k >= DEPTH else 8 if k >= 8 else 4

    def clipped(height: int, width: int, own: int) -> Tile:
        return Tile(min(height, m or height), min(width, n or width), own, own, steps)

    for edge, own in ((64, 4), (32, 2)):
        threads = edge // own
        if threads * threads > target.max_threads or (m or edge) < edge // 2 or (n or edge) < edge // 2:
            continue
        blocks = (batch or 1) * -(-(m or 1024) // edge) * -(-(n or 1024) // edge)
        if blocks >= ENOUGH_BLOCKS:
            return clipped(edge, edge, own)
    if target.max_threads < 256:
        return None
    if m is not None and m < 16:
        return clipped(8, 32, 1)
    return clipped(32, 8, 1) if n is not None and n < 16 else clipped(16, 16, 1)


def tile_product(s: Schedule, host: Tensor, product: Tensor, row: Var, column: Var, tile: Tile, target: Target) -> None:
    """Binds the host's loops to tiles, computes `product` (read at the host's point) on them, and fetches what it reads
    into shared memory: stages that are computed for it there, other tensors as copies."""
    view, own = s[host], s[product]
    others = [loop.var for loop in view.loops if loop.var is not row and loop.var is not column]
    row_block, rows = view.split(row, factor=tile.rows)
    column_block, columns = view.split(column, factor=tile.columns)
    row_thread, row_own = view.split(rows, factor=tile.thread_rows)
    column_thread, column_own = view.split(columns, factor=tile.thread_columns)
    blocks = [*others, row_block, column_block]
    view.reorder(*blocks, row_thread, column_thread, row_own, column_own)
    view.bind(view.fuse(*blocks), "blockIdx.x")
    view.bind(row_thread, "threadIdx.y")
    view.bind(column_thread, "threadIdx.x")
    own.compute_at(view, column_thread)
    own.set_scope("local")
    results = [a.var for a in own.axis]
    step, inner = own.split(own.reduce_axis[0], factor=tile.depth)
    own.reorder(step, inner, *results)
    height, width = -(-tile.rows // tile.thread_rows), -(-tile.columns // tile.thread_columns)
    read: dict[int, Tensor] = {id(e.buffer): e.buffer for e in _loads(_body(s, product))}  # type: ignore[misc]
    for operand in read.values():
        stage = s.find_stage(operand)
        if isinstance(stage.op, PlaceholderOp) or not isinstance(stage.place, AtRoot) or stage.is_output:
            operand = s.cache_read(operand, "shared", [product])
        fetch = s[operand]
        fetch.compute_at(own, step)
        fetch.set_scope("shared")
        _require_room(s, operand, target.shared_bytes // 2)
        _divide(fetch, height, width)


def _divide(fetch: StageView, height: int, width: int) -> None:
    """Divides what is fetched among the threads of a block, neighbours to neighbours."""
    axes = [a.var for a in fetch.axis]
    flat = fetch.fuse(*axes) if len(axes) > 1 else axes[0]
    _, both = fetch.split(flat, factor=height * width)
    outer, lane = fetch.split(both, factor=width)
    fetch.bind(outer, "threadIdx.y")
    fetch.bind(lane, "threadIdx.x")


def _require_room(s: Schedule, tensor: Tensor, limit: int) -> None:
    """Raises `ScheduleError` if the part of a stage that a block needs does not fit."""
    placed = s.analysis.of(s.find_stage(tensor))
    count = _volume([e for _, e in placed.domain])
    if count is None or count * placed.stage.outputs[0].dtype.nbytes > limit:
        raise ScheduleError(f"{tensor.name} does not fit into shared memory")


# --------------------------------------------------------------------------------------------------------------- rows


def _schedule_rows(s: Schedule, tensor: Tensor, target: Target) -> bool:
    """A block a row, if the stage reads reductions along it (or is a long one itself) and there are few of them."""
    stage = s.find_stage(tensor)
    if stage.reduction is not None:
        return _schedule_long_reduction(s, tensor, target)
    own = _own_producers(s, tensor)
    reductions = [t for t in own if s.find_stage(t).reduction is not None]
    if not reductions:
        return False
    along: dict[int, dict[int, int]] = {id(tensor): {n: n for n in range(len(_body(s, tensor).axes))}}
    for producer in own:
        dims = _dims_along(s, producer, [tensor, *own], along)
        if dims is None:
            return False
        along[id(producer)] = dims
    rows = set.intersection(*[set(along[id(t)].values()) for t in reductions])
    host_axes = _body(s, tensor).axes
    if not host_axes:
        return False
    lanes = {id(t): [n for n in range(len(_body(s, t).axes)) if along[id(t)].get(n) not in rows] for t in own}
    if len(rows) == len(host_axes) and not all(_is_worth_threads(_body(s, t), lanes[id(t)]) for t in reductions):
        return False
    lengths = [_length(_body(s, t), lanes[id(t)]) for t in reductions]
    threads = _row_threads(max((n for n in lengths if n is not None), default=THREADS), target)
    view = s[tensor]
    loops = [a.var for a in view.axis]
    outer, inner = [loops[n] for n in sorted(rows)], [loops[n] for n in range(len(loops)) if n not in rows]
    if not outer:
        one, inner[0] = view.split(inner[0], nparts=1)
        outer = [one]
    view.reorder(*outer, *inner)
    row = view.fuse(*outer) if len(outer) > 1 else outer[0]
    if inner:
        flat = view.fuse(*inner) if len(inner) > 1 else inner[0]
        _, lane = view.split(flat, factor=threads)
    else:
        row, lane = view.split(row, factor=1)
    view.bind(row, "blockIdx.x")
    view.bind(lane, "threadIdx.x")
    for producer in own:
        place = s.find_stage(producer)
        if place.reduction is None and not _fits(s, producer, lanes[id(producer)]):
            s[producer].compute_inline()
            continue
        part = s[producer]
        part.compute_at(view, row)
        part.set_scope("shared")
        side_by_side = [a.var for n, a in enumerate(part.axis) if n in lanes[id(producer)]]
        shared_sum = place.reduction is not None and not _has_lanes(_body(s, producer), lanes[id(producer)])
        divided = [a.var for a in part.reduce_axis] if shared_sum else side_by_side
        if not divided:
            continue
        if place.reduction is not None and not shared_sum:
            part.reorder(*divided, *[a.var for a in part.reduce_axis])
        flat = part.fuse(*divided) if len(divided) > 1 else divided[0]
        _, lane = part.split(flat, factor=threads)
        part.bind(lane, "threadIdx.x")
    return True


def _dims_along(
    s: Schedule, producer: Tensor, readers: Sequence[Tensor], along: dict[int, dict[int, int]]
) -> dict[int, int] | None:
    """The dimensions of a producer that run along axes of the host wherever it is read; None if it is read by a stage
    that does not."""
    dims: dict[int, int] | None = None
    for reader in readers:
        if id(reader) not in along:
            continue
        op = _body(s, reader)
        at = {id(a.var): n for n, a in enumerate(op.axes)}
        for load in (e for e in _loads(op) if e.buffer is producer):
            here = {
                d: along[id(reader)][at[id(i)]]
                for d, i in enumerate(load.indices)
                if id(i) in at and at[id(i)] in along[id(reader)]
            }
            dims = here if dims is None else {d: a for d, a in dims.items() if here.get(d) == a}
    return dims


def _fits(s: Schedule, tensor: Tensor, lanes: Sequence[int]) -> bool:
    """True if what a row has of a stage may lie in shared memory."""
    op = _body(s, tensor)
    count = _volume([op.axes[n].extent for n in lanes])
    return count is not None and count * op.bodies[0].dtype.nbytes <= ROW_BYTES


def _length(op: ComputeOp, lanes: Sequence[int]) -> int | None:
    """Elements that a row reduces, in all its lanes."""
    return _volume([*[op.axes[n].extent for n in lanes], *[a.extent for a in op.reduce_axes]])


def _has_lanes(op: ComputeOp, lanes: Sequence[int]) -> bool:
    """True for a reduction that keeps enough sums side by side in a row for threads to take one each."""
    count = _volume([op.axes[n].extent for n in lanes])
    return count is None or count >= LONG


def _is_worth_threads(op: ComputeOp, lanes: Sequence[int] = ()) -> bool:
    """True for a reduction that threads of a block should share: a long one with few results, whose neighbours lie side
    by side in memory or whose results alone would leave the device idle. One that uses each operand for many results
    is not."""
    outputs = _volume([a.extent for n, a in enumerate(op.axes) if n not in lanes])
    length = _length(op, lanes)
    if outputs is None or outputs > FEW or (length is not None and length < LONG):
        return False
    if len(op.reduce_axes) > 1 and is_contraction(op):
        return False
    return outputs <= 64 or _runs_along_memory(op, lanes)


def _runs_along_memory(op: ComputeOp, lanes: Sequence[int]) -> bool:
    """True if an operand's last dimension runs along what is reduced, so that neighbouring threads read neighbours."""
    reduced = {id(a.var) for a in op.reduce_axes} | {id(op.axes[n].var) for n in lanes}
    return any(e.indices and any(id(v) in reduced for v in free_vars(e.indices[-1])) for e in _loads(op))


def _row_threads(length: int, target: Target) -> int:
    threads = 32 if length <= 128 else 64 if length <= 512 else 128 if length <= 2048 else THREADS
    return min(threads, target.max_threads)


def _schedule_long_reduction(s: Schedule, tensor: Tensor, target: Target) -> bool:
    """A block of threads a result, if there are few results and long reductions."""
    op = _body(s, tensor)
    if _own_producers(s, tensor) or not _is_worth_threads(op):
        return False
    view = s[tensor]
    rows, reduced = [a.var for a in view.axis], [a.var for a in view.reduce_axis]
    flat = view.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    length = _volume([a.extent for a in op.reduce_axes])
    _, lane = view.split(flat, factor=_row_threads(THREADS if length is None else length, target))
    if rows:
        view.bind(view.fuse(*rows) if len(rows) > 1 else rows[0], "blockIdx.x")
    view.bind(lane, "threadIdx.x")
    return True


# ---------------------------------------------------------------------------------------------------------- transpose


def _schedule_transpose(s: Schedule, tensor: Tensor, target: Target) -> bool:
    """A stage that reads one tensor along another axis than it writes, through tiles of shared memory."""
    stage = s.find_stage(tensor)
    op = _body(s, tensor)
    if stage.reduction is not None or len(stage.outputs) != 1 or len(op.axes) < 2 or _own_producers(s, tensor):
        return False
    last = op.axes[-1]
    crossing = []
    for load in _loads(op):
        along = [a for a in op.axes if load.indices and load.indices[-1] is a.var]
        if along and along[0] is not last and any(i is last.var for i in load.indices):
            crossing.append((load.buffer, along[0]))
    if len(crossing) != 1:
        return False
    operand, axis = crossing[0]
    edge = 16
    if edge * edge > target.max_threads or any((_size(a.extent) or edge) < edge // 2 for a in (axis, last)):
        return False
    position = next(n for n, a in enumerate(op.axes) if a is axis)
    view = s[tensor]
    loops = [a.var for a in view.axis]
    fetch = s[s.cache_read(operand, "shared", [tensor])]
    outer, rows = view.split(loops[position], factor=edge)
    along_row, columns = view.split(loops[-1], factor=edge)
    others = [v for n, v in enumerate(loops) if n not in (position, len(loops) - 1)]
    view.reorder(*others, outer, along_row, rows, columns)
    block = view.fuse(*others, outer, along_row)
    view.bind(block, "blockIdx.x")
    view.bind(rows, "threadIdx.y")
    view.bind(columns, "threadIdx.x")
    fetch.compute_at(view, block)
    _require_room(s, fetch.tensor, target.shared_bytes // 2)
    _divide(fetch, edge, edge)
    return True


# ------------------------------------------------------------------------------------------------- a thread an element


def _schedule_elements(s: Schedule, tensor: Tensor, target: Target) -> None:
    if s.find_stage(tensor).reduction is not None and s[tensor].axis:
        s.cache_write(tensor, "local")  # partial results stay with their thread
    view = s[tensor]
    loops = [a.var for a in view.axis]
    if not loops:
        return
    flat = view.fuse(*loops) if len(loops) > 1 else loops[0]
    block, thread = view.split(flat, factor=min(THREADS, target.max_threads))
    view.bind(block, "blockIdx.x")
    view.bind(thread, "threadIdx.x")
    for producer in _own_producers(s, tensor):
        _attach(s, s.find_stage(producer), tensor, thread)


def _attach(s: Schedule, stage: Stage, host: Tensor, thread: Var) -> bool:
    """Computes a stage in the threads of its one consumer, if each needs one element of it."""
    consumers = s.analysis.consumers[id(stage)]
    if len(consumers) != 1 or len(stage.outputs) != 1 or consumers[0] is not s.find_stage(host):
        return False
    view = s[stage.key]
    try:
        view.compute_at(s[host], thread)
    except ScheduleError:
        return False
    placed = s.analysis.of(s.find_stage(stage.key))
    spatial = [e for (_, e), a in zip(placed.domain, placed.stage.axes, strict=True) if a.kind == "spatial"]
    if not all(isinstance(e, Const) and e.value == 1 for e in spatial):
        view.compute_root()
        return False
    view.set_scope("local")
    return True
