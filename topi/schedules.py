"""The schedules of groups that no implementation schedules: one for CPUs, one for GPUs.

A group becomes a few *hosts*, stages with a nest of their own, and stages *attached* to a host, computed on the tile
of it that is being made:

    softmax, over the last axis              max pooling, 16 channels innermost

    for row parallel:                        for n_c_y parallel:
      max of the row, in a register            for x:
      exp of the row, vectorized                 for ry, rx unrolled: largest, 16 lanes in a register
      sum of the row, in a register              store 16 lanes
      for j vectorized: quotient

Cheap stages are inlined. A reduction is always attached: where it is an output itself, a copy of it is the host.
Nothing here changes the order of a sum, so every schedule gives the bits of the unscheduled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schedule import Schedule, create_schedule
from schedule.state import Inlined, Stage
from tensorir.arith import simplify
from tensorir.expr import Call, Const, Div, Expr, Load, Reduce, Var, const
from tensorir.target import Target
from tensorir.te import ComputeOp, ExternOp, PlaceholderOp, Tensor
from tensorir.visit import children, free_vars, substitute, walk_expr
from topi.broadcast import is_one, same_extent
from topi.chunks import find_chunk
from topi.schedules_gpu import schedule_gpu

if TYPE_CHECKING:
    from topi.group import Group

EXPENSIVE = frozenset(
    "exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid pow".split()
)
"""Functions that cost ten and more plain operations: not computed twice, nor one element at a time in a reduction."""

HAND_OFF = 16_384
"""Plain operations below which one thread is faster than waking others."""

ENOUGH_TASKS = 16
"""Iterations that a parallel loop should have; outer loops are fused until there are so many."""

UNROLLED_TAPS = 32
"""Reductions of at most so many constant steps are written out."""

MANY_READS = 8
"""A stage of which one element reads more than so many of another has that one stored."""

UNROLLED_STEPS = 4
"""Reduction steps over a tile in registers that are written out: it is then known which lanes are there."""

SMALL_TILE = 64
"""Elements of a tile that is held in registers."""

CONTIGUOUS_STRIDE = 4
"""Largest step between neighbouring lanes for which vector code is worth its gathers."""


def schedule_group(group: Group, target: Target) -> Schedule:
    """The schedule of a composed group by the generic rules of its target's kind."""
    s = create_schedule(list(group.outputs))
    if target.gpu:
        _inline(s)
        schedule_gpu(s, target)
    elif target.vector_bits:
        _schedule_cpu(s, target)
    return s


# ---------------------------------------------------------------------------------------------------------- reading


def _body(s: Schedule, tensor: Tensor) -> ComputeOp:
    """What the stage of a tensor computes, with its inlined producers in it."""
    op = s.analysis.bodies[id(s.find_stage(tensor))].op
    assert isinstance(op, ComputeOp)
    return op


def _roots(op: ComputeOp) -> list[Expr]:
    """The expressions that a stage evaluates."""
    first = op.bodies[0]
    if isinstance(first, Reduce):
        return [*first.sources, *([] if first.condition is None else [first.condition])]
    return list(op.bodies)


def _loads(op: ComputeOp) -> list[Load]:
    return [e for root in _roots(op) for e in walk_expr(root) if isinstance(e, Load)]


def _expensive_calls(op: ComputeOp) -> int:
    return sum(isinstance(e, Call) and e.name in EXPENSIVE for root in _roots(op) for e in walk_expr(root))


def _volume(extents: Sequence[Expr]) -> int | None:
    """The product of extents; None if one is symbolic."""
    total = 1
    for e in extents:
        if not isinstance(e, Const):
            return None
        total *= int(e.value)
    return total


def _work(op: ComputeOp) -> int | None:
    """Plain operations of a stage, roughly; None if unknown."""
    points = _volume([a.extent for a in (*op.axes, *op.reduce_axes)])
    return None if points is None else points * (1 + 12 * _expensive_calls(op))


def _has(e: Expr, var: Var) -> bool:
    return any(v is var for v in free_vars(e))


# --------------------------------------------------------------------------------------------------------- inlining


def _inline(s: Schedule) -> None:
    """Inlines every stage that costs nothing to compute where it is read."""
    for view in s.stages:
        stage = s.find_stage(view.tensor)
        if stage.is_output or not isinstance(stage.op, ComputeOp) or stage.reduction is not None:
            continue
        consumers = s.analysis.consumers[id(stage)]
        if any(isinstance(c.op, ExternOp) for c in consumers):
            continue
        body = _body(s, stage.key)
        if _expensive_calls(body) and not _read_once(s, stage, consumers):
            continue
        if any(_reads_many(s, stage, c) for c in consumers):
            continue
        if _is_slow(body) and any(_is_spread(s, stage, c) for c in consumers):
            continue
        s[stage.key].compute_inline()


def _read_once(s: Schedule, stage: Stage, consumers: Sequence[Stage]) -> bool:
    """True if one consumer that is no reduction reads each element at most once."""
    if len(consumers) != 1 or consumers[0].reduction is not None:
        return False
    op = _body(s, consumers[0].key)
    reads = [e for e in _loads(op) if any(e.buffer is t for t in stage.outputs)]
    if len(reads) != 1:
        return False
    return all(is_one(a.extent) or any(_has(i, a.var) for i in reads[0].indices) for a in op.axes)


def _is_slow(op: ComputeOp) -> bool:
    """True for a stage with a division, a root or many operands: fine once an element, not once for each reader."""
    slow = any(
        (isinstance(e, Div) and e.dtype.is_float) or (isinstance(e, Call) and e.name == "sqrt")
        for root in _roots(op)
        for e in walk_expr(root)
    )
    return slow or len(_loads(op)) > MANY_READS


def _is_spread(s: Schedule, stage: Stage, consumer: Stage) -> bool:
    """True if a consumer reads each element of the stage for several of its points."""
    op = _body(s, consumer.key)
    loops = [a for a in (*op.axes, *op.reduce_axes) if not is_one(a.extent)]
    reads = [e for e in _loads(op) if any(e.buffer is t for t in stage.outputs)]
    return any(not all(any(_has(i, a.var) for i in r.indices) for a in loops) for r in reads)


def _reads_many(s: Schedule, stage: Stage, consumer: Stage) -> bool:
    """True if a consumer reads many elements of the stage, which is no mere copy, for one of its own."""
    reads = [e for e in _loads(_body(s, consumer.key)) if any(e.buffer is t for t in stage.outputs)]
    return len(reads) > MANY_READS and len(_loads(_body(s, stage.key))) > 1


# ------------------------------------------------------------------------------------------------- hosts and attached


@dataclass(slots=True)
class Host:
    """A stage with a nest of its own, and what is computed on its tiles: for each attached stage the host's axis that
    each of its dimensions runs along, where there is one. Stages are named by their tensors. `totals` has the attached
    stage that adds up the chunks that another one makes, by the id of that one's tensor."""

    tensor: Tensor
    attached: list[tuple[Tensor, dict[int, int]]] = field(default_factory=list)
    totals: dict[int, Tensor] = field(default_factory=dict)

    def shared(self, dims: dict[int, int] | None = None) -> set[int]:
        """The axes that run along a dimension of every attached stage (and of one with `dims`)."""
        maps = [d for _, d in self.attached] + ([] if dims is None else [dims])
        return set.intersection(*[set(d.values()) for d in maps])


def _plan(s: Schedule, target: Target) -> list[Host]:
    """Divides the stages into hosts and attached ones, consumers first; reductions that must have a nest of their own
    are split into the reduction and a copy."""
    hosts: dict[int, Host] = {}  # by id of the key tensor
    owner: dict[int, tuple[Host, dict[int, int]]] = {}
    for view in reversed(s.stages):
        stage = s.find_stage(view.tensor)
        if isinstance(stage.op, (PlaceholderOp, ExternOp)) or isinstance(stage.place, Inlined):
            continue
        total = None if stage.is_output else _find_total(s, stage, hosts, owner)
        if total is not None:
            host, dims = owner[id(total)]
            dims = _dims_read(_body(s, total), stage, dims) or {}
            owner[id(stage.key)] = host, dims
            host.attached.append((stage.key, dims))
            host.totals[id(stage.key)] = total
            continue
        found = None if stage.is_output else _attachable(s, stage, hosts, owner)
        if found is not None and not _starves(s, found[0], found[1], target):
            host, dims = found
            host.attached.append((stage.key, dims))
            owner[id(stage.key)] = (host, dims)
            continue
        axes = _body(s, stage.key).axes
        host = hosts[id(stage.key)] = Host(stage.key)
        same = {n: n for n in range(len(axes))}
        owner[id(stage.key)] = (host, same)
        if stage.reduction is not None and axes:
            cached = s[stage.key].cache_write("global")
            inner = cached[0] if isinstance(cached, tuple) else cached
            host.attached.append((inner, same))
            owner[id(inner)] = (host, same)
    return list(hosts.values())


def _find_total(
    s: Schedule, stage: Stage, hosts: dict[int, Host], owner: dict[int, tuple[Host, dict[int, int]]]
) -> Tensor | None:
    """The attached stage that adds up the chunks of a long sum, if this stage makes them for it alone."""
    consumers = s.analysis.consumers[id(stage)]
    if len(consumers) != 1 or id(consumers[0].key) not in owner or id(consumers[0].key) in hosts:
        return None
    if not isinstance(consumers[0].op, ComputeOp):
        return None
    chunk = find_chunk(_body(s, consumers[0].key))
    return consumers[0].key if chunk is not None and any(chunk is t for t in stage.outputs) else None


def _attachable(
    s: Schedule, stage: Stage, hosts: dict[int, Host], owner: dict[int, tuple[Host, dict[int, int]]]
) -> tuple[Host, dict[int, int]] | None:
    """The host on whose tiles a stage can be computed without computing anything twice, and its dimensions that run
    along axes of the host."""
    host: Host | None = None
    dims: dict[int, int] | None = None
    for consumer in s.analysis.consumers[id(stage)]:
        if isinstance(consumer.op, ExternOp) or id(consumer.key) not in owner:
            return None
        its_host, its_dims = owner[id(consumer.key)]
        if host is not None and its_host is not host:
            return None
        host = its_host
        here = _dims_read(_body(s, consumer.key), stage, its_dims)
        if here is not None:
            dims = here if dims is None else {d: a for d, a in dims.items() if here.get(d) == a}
    if host is None or dims is None or not host.shared(dims):
        return None
    return host, dims


def _dims_read(op: ComputeOp, stage: Stage, axes: dict[int, int]) -> dict[int, int] | None:
    """The dimensions of a stage that its reader `op` reads along axes of the host, given which axis each of its
    dimensions runs along; None if it does not read it."""
    axis_of = {id(a.var): n for n, a in enumerate(op.axes)}
    dims: dict[int, int] | None = None
    for load in _loads(op):
        if not any(load.buffer is t for t in stage.outputs):
            continue
        here = {
            dim: axes[axis_of[id(index)]]
            for dim, index in enumerate(load.indices)
            if id(index) in axis_of and axis_of[id(index)] in axes
        }
        dims = here if dims is None else {d: a for d, a in dims.items() if here.get(d) == a}
    return dims


def _starves(s: Schedule, host: Host, dims: dict[int, int], target: Target) -> bool:
    """True if computing on tiles would leave cores idle in a host that is worth several."""
    op = _body(s, host.tensor)
    tasks = _volume([op.axes[a].extent for a in host.shared(dims)])
    work = _work(op)
    return tasks is not None and work is not None and tasks < target.cores and work > 4 * HAND_OFF


# --------------------------------------------------------------------------------------------------------------- CPU


def _schedule_cpu(s: Schedule, target: Target) -> None:
    _inline(s)
    for host in _plan(s, target):
        if host.attached:
            _schedule_tiles(s, host, target)
        else:
            _schedule_flat(s, host.tensor, target)


def _lanes(target: Target, ops: Sequence[ComputeOp]) -> int:
    """Lanes of a vector of the widest element that the stages touch along their last axis."""
    widest = 8
    for op in ops:
        last = [a.var for a in op.axes if not is_one(a.extent)][-1:]
        widest = max(widest, *(b.dtype.bits for b in op.bodies))
        for load in _loads(op):
            if any(_has(i, v) for v in last for i in load.indices):
                widest = max(widest, load.dtype.bits)
    return max(target.vector_bits // widest, 1)


def _vector_factor(extent: Expr, lanes: int) -> int:
    """How many neighbouring elements of a loop become one vector: 1 where that is not worth it."""
    if not isinstance(extent, Const):
        return lanes
    size = int(extent.value)
    while lanes > size:
        lanes //= 2
    return lanes if lanes >= 4 else 1


def _worth_threads(ops: Sequence[ComputeOp]) -> bool:
    works = [_work(op) for op in ops]
    return any(w is None for w in works) or sum(w or 0 for w in works) >= HAND_OFF


def _make_parallel(s: Schedule, tensor: Tensor, loops: list[Var], ops: Sequence[ComputeOp]) -> list[Var]:
    """Fuses outer loops until there are enough iterations for all threads, and makes the result parallel. Gives the
    loops that stand now."""
    if not loops or not _worth_threads(ops):
        return loops
    view = s[tensor]
    extents = {id(loop.var): loop.extent for loop in view.loops}
    tasks, count = 1, 0
    for var in loops:
        count += 1
        size = _volume([extents[id(var)]])
        tasks = ENOUGH_TASKS if size is None else tasks * size
        if tasks >= ENOUGH_TASKS:
            break
    if tasks <= 1:
        return loops
    first = view.fuse(*loops[:count]) if count > 1 else loops[0]
    view.parallel(first)
    return [first, *loops[count:]]


def _flat_suffix(op: ComputeOp, axes: Sequence[int]) -> int:
    """How many of the last axes (positions in order) all operands and the result hold contiguously in this order, so
    that one loop may run over them together; at least 1."""
    for length in range(len(axes), 1, -1):
        if _is_flat(op, axes[-length:]):
            return length
    return min(1, len(axes))


def _is_flat(op: ComputeOp, suffix: Sequence[int]) -> bool:
    if suffix[-1] != len(op.axes) - 1 or list(suffix) != list(range(suffix[0], len(op.axes))):
        return False
    loops = [op.axes[n] for n in suffix if not is_one(op.axes[n].extent)]
    if len(loops) <= 1:
        return True
    variables = {id(a.var) for a in loops}
    for load in _loads(op):
        places = [(i, d) for i, d in zip(load.indices, load.buffer.shape, strict=True) if not is_one(d)]
        touching = [any(id(v) in variables for v in free_vars(i)) for i, _ in places]
        if not any(touching):
            continue
        if len(places) < len(loops) or any(touching[: -len(loops)]):
            return False
        tail = places[-len(loops) :]
        if any(i is not a.var for (i, _), a in zip(tail, loops, strict=True)):
            return False
        if any(not same_extent(d, a.extent) for (_, d), a in zip(tail[1:], loops[1:], strict=True)):
            return False
    return not any(_outside_loads(root, variables) for root in _roots(op))


def _outside_loads(e: Expr, variables: set[int]) -> bool:
    """True if a variable is used other than as an index of a load."""
    stack: list[Expr] = [e]
    seen: set[int] = set()
    while stack:
        here = stack.pop()
        if id(here) in variables:
            return True
        if id(here) in seen or isinstance(here, Load):
            continue
        seen.add(id(here))
        stack.extend(children(here))
    return False


def _split_vector(s: Schedule, tensor: Tensor, loop: Var, extent: Expr, lanes: int) -> Var | None:
    """Makes the inner part of a loop a vector; gives the outer loop, or None if the whole loop became one."""
    factor = _vector_factor(extent, lanes)
    view = s[tensor]
    if factor == 1:
        return loop
    if isinstance(extent, Const) and int(extent.value) == factor:
        view.vectorize(loop)
        return None
    outer, inner = view.split(loop, factor=factor)
    view.vectorize(inner)
    return outer


def _schedule_flat(s: Schedule, tensor: Tensor, target: Target) -> None:
    """A stage by itself: contiguous axes are one loop of vectors, outer axes are parallel."""
    op = _body(s, tensor)
    view = s[tensor]
    if not op.axes or op.reduce_axes:
        return
    length = _flat_suffix(op, list(range(len(op.axes))))
    loops = [a.var for a in view.axis]
    extent = simplify(_product([a.extent for a in op.axes[-length:]]))
    inner = view.fuse(*loops[-length:]) if length > 1 else loops[-1]
    lanes = _lanes(target, [op])
    transposed = _transposed_axis(op) if length == 1 and _vector_factor(extent, lanes) > 1 else None
    outer = _split_vector(s, tensor, inner, extent, lanes)
    outside = [*loops[:-length], *([] if outer is None else [outer])]
    if transposed is not None and outer is not None and _vector_factor(op.axes[transposed].extent, lanes) > 1:
        block, within = view.split(loops[transposed], factor=lanes)
        outside[transposed] = block
        lane = view.loops[-1].var
        view.reorder(*outside, within, lane)
    _make_parallel(s, tensor, outside, [op])


def _transposed_axis(op: ComputeOp) -> int | None:
    """The outer axis along which a load is contiguous that is strided along the last axis: a block of it is done for
    each vector, so that what a cache line brings is used at once."""
    last = op.axes[-1].var
    for load in _loads(op):
        if not load.indices or _has(load.indices[-1], last) or not any(_has(i, last) for i in load.indices):
            continue
        inside = [n for n, a in enumerate(op.axes[:-1]) if _has(load.indices[-1], a.var)]
        if len(inside) == 1:
            return inside[0]
    return None


def _product(extents: Sequence[Expr]) -> Expr:
    result: Expr = const(1)
    for e in extents:
        result = result * e
    return result


def _schedule_tiles(s: Schedule, host: Host, target: Target) -> None:
    """A host with attached stages: the axes that all of them share go outside, the rest is the tile."""
    op = _body(s, host.tensor)
    view = s[host.tensor]
    bodies = [_body(s, a) for a, _ in host.attached]
    lanes = _lanes(target, [op, *bodies])
    common = host.shared() | {n for n, a in enumerate(op.axes) if is_one(a.extent)}
    rest = [n for n in range(len(op.axes)) if n not in common]
    last = max((n for n, a in enumerate(op.axes) if not is_one(a.extent)), default=None)
    vector = None
    if last is not None and last in common and _vector_factor(op.axes[last].extent, lanes) > 1:
        if all(_lanes_fit(body, dims, last) for body, (_, dims) in zip(bodies, host.attached, strict=True)):
            vector = last
    loops = {n: a.var for n, a in enumerate(view.axis)}
    rows = _rows_at_once(op, host, bodies, common) if vector is None else None
    row_loop: Var | None = None
    if rows is not None:
        axis, count = rows
        loops[axis], row_loop = view.split(loops[axis], factor=count)
    outside = [loops[n] for n in sorted(common) if n != vector]
    lane_loop: Var | None = None
    if vector is not None:
        factor = _vector_factor(op.axes[vector].extent, lanes)
        block, lane_loop = view.split(loops[vector], factor=factor)
        outside.append(block)
    order = [
        *outside,
        *([] if row_loop is None else [row_loop]),
        *(loops[n] for n in rest),
        *([] if lane_loop is None else [lane_loop]),
    ]
    if len(order) > 1:
        view.reorder(*order)
    if lane_loop is not None:
        view.vectorize(lane_loop)
    elif rest:
        _vectorize_rest(s, host.tensor, op, rest, loops, lanes)
    if row_loop is not None:
        view.unroll(row_loop)
    outside = _make_parallel(s, host.tensor, outside, [op, *bodies])
    small = _small_tiles(host, op, bodies, common, lanes) if vector is None else set()
    for (tensor, dims), body in zip(host.attached, bodies, strict=True):
        tile = Tile(
            dims, common, vector, None if rows is None else rows[0], lanes, id(tensor) in host.totals,
            id(tensor) in small and id(tensor) not in host.totals,
        )  # fmt: skip
        if tile.is_chunk:
            total = s[host.totals[id(tensor)]]
            s[tensor].compute_at(total, total.reduce_axis[-1].var)
        else:
            s[tensor].compute_at(view, outside[-1])
        _schedule_attached(s, tensor, body, tile)


def _rows_at_once(op: ComputeOp, host: Host, bodies: Sequence[ComputeOp], common: set[int]) -> tuple[int, int] | None:
    """The axis along which several rows are reduced side by side, and how many: a long sum waits for each addition, so
    one row alone leaves the core idle. None where no reduction is long or no axis divides."""
    long = False
    for body, (tensor, dims) in zip(bodies, host.attached, strict=True):
        taps = _volume([a.extent for a in body.reduce_axes])
        is_single = _is_single(body, dims, common, id(tensor) in host.totals)
        long |= bool(body.reduce_axes) and (taps is None or taps > UNROLLED_TAPS) and is_single
        if any(n not in dims.values() for n in common if not is_one(op.axes[n].extent)):
            return None
    if not long:
        return None
    for count in (4, 2):
        for n in sorted(common, reverse=True):
            extent = op.axes[n].extent
            if isinstance(extent, Const) and int(extent.value) >= count and int(extent.value) % count == 0:
                return n, count
    return None


def _is_single(op: ComputeOp, dims: dict[int, int], common: set[int], is_chunk: bool) -> bool:
    """True if a tile holds one element of the stage for each of the host's shared axes. Chunks are made one by one."""
    return all(is_one(a.extent) or dims.get(n) in common or (is_chunk and n not in dims) for n, a in enumerate(op.axes))


def _vectorize_rest(
    s: Schedule, tensor: Tensor, op: ComputeOp, rest: list[int], loops: dict[int, Var], lanes: int
) -> None:
    length = _flat_suffix(op, rest) if rest[-1] == len(op.axes) - 1 else 1
    chosen = rest[-length:]
    extent = simplify(_product([op.axes[n].extent for n in chosen]))
    view = s[tensor]
    inner = view.fuse(*[loops[n] for n in chosen]) if length > 1 else loops[chosen[0]]
    _split_vector(s, tensor, inner, extent, lanes)


def _lanes_fit(op: ComputeOp, dims: dict[int, int], axis: int) -> bool:
    """True if the stage reads neighbours along the host's axis close together, and does not rather reduce along
    contiguous memory."""
    dim = next(d for d, a in dims.items() if a == axis)
    var = op.axes[dim].var
    reduced = [a.var for a in op.reduce_axes]
    for load in _loads(op):
        if not load.indices or not any(_has(i, var) for i in load.indices):
            continue
        if any(_has(i, var) for i in load.indices[:-1]):
            if any(_has(load.indices[-1], r) for r in reduced) or not reduced:
                return False
            continue
        index = load.indices[-1]
        step = simplify(substitute(index, {var: var + 1}) - index)
        if not (isinstance(step, Const) and 0 <= int(step.value) <= CONTIGUOUS_STRIDE):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Tile:
    """What an attached stage needs to know: the host's axes along its dimensions, the axes that all attached stages
    share, the one whose neighbours are lanes, the one whose rows are done side by side, whether it makes the chunks of
    a long sum, each where it is added to the total, and whether registers hold all of it."""

    dims: dict[int, int]
    common: set[int]
    vector: int | None
    rows: int | None
    lanes: int
    is_chunk: bool = False
    is_small: bool = False

    def loop(self, spatial: Sequence[Var], axis: int | None) -> Var | None:
        """The stage's loop along an axis of the host."""
        return next((spatial[d] for d, a in self.dims.items() if a == axis), None) if axis is not None else None


def _schedule_attached(s: Schedule, tensor: Tensor, op: ComputeOp, tile: Tile) -> None:
    """A stage computed on a tile of its host: reduce loops outside lanes and rows, the result in registers where it is
    one element or one vector for each row."""
    view = s[tensor]
    spatial = [a.var for a in view.axis]
    reduced = [a.var for a in view.reduce_axis]
    lane, row = tile.loop(spatial, tile.vector), tile.loop(spatial, tile.rows)
    others = [v for v in spatial if v is not lane and v is not row]
    inner = [v for v in (row, lane) if v is not None]
    if tile.is_small:
        own = [
            v for n, v in enumerate(spatial) if not is_one(op.axes[n].extent) and tile.dims.get(n) not in tile.common
        ]
        _schedule_small(s, tensor, own, row, tile)
        return
    order = [*others, *reduced, *inner] if reduced or lane is not None else [*inner, *others]
    if len(order) > 1:
        view.reorder(*order)
    if lane is not None:
        view.vectorize(lane)
    elif not reduced:
        last = max((n for n, a in enumerate(op.axes) if not is_one(a.extent)), default=None)
        if last is not None and last == len(op.axes) - 1 and tile.dims.get(last) not in tile.common:
            _split_vector(s, tensor, spatial[last], op.axes[last].extent, tile.lanes)
    if row is not None:
        view.unroll(row)
    if reduced:
        view.decompose_reduction(reduced[0])
        taps = _volume([a.extent for a in op.reduce_axes])
        if taps is not None and 0 < taps <= UNROLLED_TAPS and find_chunk(op) is None:
            for var in reduced:
                view.unroll(var)
    if _is_single(op, tile.dims, tile.common, tile.is_chunk):
        view.set_scope("register")


def _small_tiles(host: Host, op: ComputeOp, bodies: Sequence[ComputeOp], common: set[int], lanes: int) -> set[int]:
    """Of the attached stages those whose tile is a few whole vectors, each element of which is read by its number or by
    a lane of another such tile: registers can hold it. Stages by the ids of their tensors."""
    found: dict[int, ComputeOp] = {}
    readers = [op]
    for (tensor, dims), body in zip(host.attached, bodies, strict=True):  # consumers come first
        own = [n for n, a in enumerate(body.axes) if not is_one(a.extent) and dims.get(n) not in common]
        size = _volume([body.axes[n].extent for n in own])
        whole = size is not None and 0 < size <= SMALL_TILE and own[-1:] == [len(body.axes) - 1]
        if whole and own and (_volume([body.axes[own[-1]].extent]) or 1) % lanes == 0:
            if all(_reads_by_number(r, tensor, own, any(r is f for f in found.values())) for r in readers):
                found[id(tensor)] = body
        readers.append(body)
    return set(found)


def _reads_by_number(reader: ComputeOp, tensor: Tensor, dims: Sequence[int], is_small: bool) -> bool:
    axes = {id(a.var) for a in reader.axes} if is_small else set()
    loads = [e for e in _loads(reader) if e.buffer is tensor]
    return all(isinstance(e.indices[d], Const) or id(e.indices[d]) in axes for e in loads for d in dims)


def _schedule_small(s: Schedule, tensor: Tensor, own: list[Var], row: Var | None, tile: Tile) -> None:
    """A tile in registers: reduce loops outside it, all of it unrolled."""
    view = s[tensor]
    reduced = [a.var for a in view.reduce_axis]
    others = [a.var for a in view.axis if a.var is not row and not any(a.var is v for v in own)]
    unrolled = [*([] if row is None else [row]), *own[:-1]]
    vector, lane = view.split(own[-1], factor=tile.lanes)
    view.reorder(*others, *reduced, *unrolled, vector, lane)
    for var in (*unrolled, vector):
        view.unroll(var)
    view.vectorize(lane)
    if reduced:
        view.decompose_reduction(reduced[0])
        taps = _volume([a.extent for a in _body(s, tensor).reduce_axes])
        if taps is not None and 0 < taps <= UNROLLED_STEPS:
            for var in reduced:
                view.unroll(var)
    view.set_scope("register")
