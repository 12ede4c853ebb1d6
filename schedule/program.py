"""From an analysis to the program: loops, blocks and allocations.

for i_o in 0..4:                 a stage computed at i_o and its memory stand at the start of that loop's body
  alloc B: ...
  for i in 0..8: block B
  for i_i in 0..8: block C
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schedule.analysis import Analysis, Placed
from schedule.intrinsic import Window, match
from schedule.legality import loops_of_distance
from schedule.state import AtLoop, Loop, Prefetch, Stage, State, Unit
from schedule.unit import Implementation, loops_in, unit_block
from tensorir import dtypes
from tensorir.arith import Analyzer, simplify
from tensorir.buffer import Buffer, Range, Region
from tensorir.expr import Call, Const, Expr, IterVar, Load, Var, const, floormod, less
from tensorir.layout import Layout
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, Stmt, Store, seq
from tensorir.te import (
    ComputeOp,
    ExternOp,
    ScanOp,
    Tensor,
    compute_block,
    extern_block,
    scan_buffers,
    scan_init_nests,
    shape_vars,
)
from tensorir.visit import rewrite_expr, rewrite_stmt, substitute, substitute_stmt, walk_stmt


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Where a tensor is stored: the buffer, and the stored indices of a logical point."""

    buffer: Buffer
    place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] | None


class Builder:
    """Builds programs, remembering templates and nests by what they are made of."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, ...], tuple[Block, dict[int, Storage], tuple[object, ...]]] = {}
        self._nests: dict[tuple[int, ...], tuple[Stmt, tuple[object, ...]]] = {}
        self._doubles: dict[int, tuple[tuple[Buffer, ...], Placed]] = {}
        self._inits: dict[int, tuple[Block, Block, Block]] = {}

    def func(self, analysis: Analysis, params: Sequence[Buffer], dims: Sequence[Var], name: str, outputs: int) -> Func:
        """The whole program; `params` are tensors (inputs first), given as the buffers that store them."""
        state = analysis.state
        body = seq(*[self._nest(analysis, p) for p in analysis.roots])
        for placed in reversed(analysis.placed):
            if not isinstance(placed.stage.place, AtLoop) or placed.stage.place.after:
                body = _allocate(placed.stage, body, params)
        stored = tuple(_stored(state, p) for p in params)
        known = [v for v in shape_vars(stored) if not any(v is d for d in dims)]
        return Func(name, stored, (*dims, *known), body, outputs)

    def _nest(self, analysis: Analysis, placed: Placed) -> Stmt:
        """The loops of one stage with everything computed inside them."""
        if isinstance(placed.stage.op, ScanOp):
            return self._scan(analysis, placed, placed.stage.op)
        block, slots, stored = self._template(analysis, placed)
        inner = self._inner(analysis, placed, after=False)
        behind = self._inner(analysis, placed, after=True)
        made_from = (placed, block, *(s for x in (inner, behind) for nests in x.values() for _, s in nests))
        key = tuple(id(m) for m in made_from)
        found = self._nests.get(key)
        if found is None:
            if len(self._nests) > 4096:
                self._nests.clear()
            found = self._nests[key] = (
                self._make_nest(analysis.state, placed, block, slots, stored, inner, behind),
                made_from,
            )
        return found[0]

    def _scan(self, analysis: Analysis, placed: Placed, op: ScanOp) -> Stmt:
        """The first steps of a scan and the loop over the others, in which its stages stand."""
        (loop,) = placed.nest.loops
        children = analysis.attached(placed, loop.var)
        firsts_in = [_stored(analysis.state, t) for t in op.init]
        made_from = (
            placed,
            *placed.stage.buffers,
            *firsts_in,
            *(s for c in children for s in (c, self._nest(analysis, c))),
        )
        key = tuple(id(m) for m in made_from)
        if key not in self._nests:
            body = seq(*[self._nest(analysis, c) for c in children])
            for child in reversed(children):
                if analysis.state.scan_of(child.stage.key) is None:
                    body = _allocate(child.stage, body)
            firsts = scan_init_nests(op, placed.stage.buffers, lambda t: _stored(analysis.state, t))
            self._nests[key] = (seq(*firsts, _loop(loop, body)), made_from)
        return self._nests[key][0]

    def _inner(self, analysis: Analysis, placed: Placed, *, after: bool) -> dict[int, list[tuple[Placed, Stmt]]]:
        """By the id of the loop variable: the stages at the start (or the end) of its iterations and their nests."""
        children = {id(x.var): analysis.attached(placed, x.var, after=after) for x in placed.nest.loops}
        return {k: [(p, self._nest(analysis, p)) for p in v] for k, v in children.items() if v}

    def _make_nest(
        self,
        state: State,
        placed: Placed,
        block: Block,
        slots: tuple[Expr, ...],
        stored: dict[int, Storage],
        inner: dict[int, list[tuple[Placed, Stmt]]],
        behind: dict[int, list[tuple[Placed, Stmt]]],
    ) -> Stmt:
        init_block = None
        loops, unit = placed.nest.loops, placed.nest.unit
        around = len(loops) if unit is None else placed.nest.position(unit.loop)
        if (
            placed.init_before is not None
            and block.init is not None
            and placed.nest.position(placed.init_before) < around
        ):
            block, init_block = self._decompose(block)
        body: Stmt = dataclasses.replace(block, bindings=(*placed.bindings, *slots), predicate=placed.guard)
        if unit is not None:
            body = unit_block(placed, unit, block, slots, *_implementation(placed, unit, stored, block, slots))
        ahead: dict[int, list[Block]] = {}
        for step in placed.nest.prefetches:
            buffer = _stored(state, step.tensor)
            ahead.setdefault(id(step.loop), []).extend(_prefetch_blocks(placed, block, slots, step, buffer))
        for position in range(around - 1, -1, -1):
            loop = loops[position]
            nests = inner.get(id(loop.var), [])
            body = seq(body, *[n for _, n in behind.get(id(loop.var), [])])
            if nests:
                body = seq(*[_next(n, loop) if c.stage.double is not None else n for c, n in nests], body)
                for child, _ in reversed(nests):
                    if child.stage.double is None:
                        body = _allocate(child.stage, body)
            body = _loop(loop, seq(*ahead.get(id(loop.var), ()), body))
            turns = [(c, n) for c, n in nests if c.stage.double is not None]
            body = seq(*[_first(n, loop) for _, n in turns], body)
            for child, _ in reversed(turns):
                for buffer in reversed(self._doubled_buffers(child)):
                    body = Allocate(buffer, body)
            if init_block is not None and loop.var is placed.init_before:
                body = seq(_init_nest(placed, init_block, slots, loops[position:]), body)
        return body

    def _template(self, analysis: Analysis, placed: Placed) -> tuple[Block, tuple[Expr, ...], dict[int, Storage]]:
        """The block of a stage over the buffers that store its tensors, and the copies that it uses of tensors with two
        (its last iteration variables); the other bindings and the predicate are still open."""
        state = analysis.state
        op = placed.body.op
        touched = [placed.stage, *_producers(state, placed)]
        storage: dict[int, Storage] = {}
        alive: list[object] = [op]
        slots: list[tuple[IterVar, Expr]] = []
        for tensor in (*placed.stage.outputs, *(r.tensor for r in placed.body.reads)):
            scan = state.scan_of(tensor)
            if scan is not None and isinstance(scan.op, ScanOp):
                storage[id(tensor)] = Storage(scan_buffers(scan.op, scan.buffers)[id(tensor)], None)
                alive += [tensor, storage[id(tensor)].buffer]
        for stage in touched:
            if state.scan_of(stage.key) is not None:
                continue
            if stage.double is not None:
                storage.update(self._double(analysis.of(stage), slots))
                alive += [analysis.of(stage), *stage.outputs]
                continue
            for tensor, buffer, layout in zip(stage.outputs, stage.buffers, stage.layouts, strict=True):
                if layout is not None or buffer is not tensor:
                    storage[id(tensor)] = Storage(buffer, None if layout is None else layout.physical_indices)
                alive += [tensor, buffer, layout]
        key = tuple(id(a) for a in alive)
        found = self._templates.get(key)
        if found is None:
            if isinstance(op, ExternOp):
                block = extern_block(op, placed.stage.outputs)
            else:
                assert isinstance(op, ComputeOp)
                block = compute_block(op, placed.stage.outputs)
            block = _store_in(block, storage) if storage else block
            found = self._templates[key] = (
                dataclasses.replace(block, iters=(*block.iters, *(i for i, _ in slots))), storage, tuple(alive)
            )  # fmt: skip
        return found[0], tuple(turn for _, turn in slots), found[1]

    def _double(self, placed: Placed, slots: list[tuple[IterVar, Expr]]) -> dict[int, Storage]:
        """Where a stage with two copies is stored, by the id of its tensors: which copy, and for each dimension where
        its tile begins, are iterations of their own (`slots`), since the loops are not the block's."""
        stage, loop = placed.stage, placed.path[-1][1].var
        turn = Var(f"v_turn_{stage.name}", loop.dtype)
        slots.append((IterVar(turn, const(0), const(2), "opaque"), floormod(loop, 2)))
        begins: list[Expr | None] = []
        for number, extent in enumerate(self._doubled_buffers(placed)[0].shape[1:]):
            if extent is stage.buffers[0].shape[number + 1]:
                begins.append(None)
                continue
            begin = Var(f"v_{stage.name}_begin{number}", loop.dtype)
            value = placed.domain[number][0]
            low, size = _span(value, placed, stage.buffers[0].shape[number + 1])
            slots.append((IterVar(begin, low, size, "opaque"), value))
            begins.append(begin)

        def place(layout: Layout | None) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
            def stored(point: tuple[Expr, ...]) -> tuple[Expr, ...]:
                inner = point if layout is None else layout.physical_indices(point)
                moved = [i if b is None else i - b for i, b in zip(inner, begins, strict=True)]
                return (turn, *moved)

            return stored

        buffers = self._doubled_buffers(placed)
        made = zip(stage.outputs, buffers, stage.layouts, strict=True)
        return {id(tensor): Storage(buffer, place(layout)) for tensor, buffer, layout in made}

    def _doubled_buffers(self, placed: Placed) -> tuple[Buffer, ...]:
        """The two copies of what a stage computes at its loop: of the tile where its size is known, else of all."""
        found = self._doubles.get(id(placed))
        if found is None:
            stage = placed.stage
            shape = list(stage.buffers[0].shape)
            for number, (_, extent) in enumerate(placed.domain[: len(shape) - 1]):
                whole = shape[number + 1]
                smaller = isinstance(extent, Const) and not (isinstance(whole, Const) and whole.value <= extent.value)
                if stage.layouts[0] is None and smaller:
                    shape[number + 1] = extent
            made = tuple(Buffer(b.name, tuple(shape), b.dtype, b.scope) for b in stage.buffers)
            found = self._doubles[id(placed)] = (made, placed)
        return found[0]

    def _decompose(self, block: Block) -> tuple[Block, Block]:
        """The block without its init, and the init as a block of its own over the spatial axes."""
        found = self._inits.get(id(block))
        if found is None:
            assert block.init is not None
            spatial = [i for i in block.iters if i.kind != "reduce"]
            fresh = tuple(IterVar(Var(i.name, i.var.dtype), i.begin, i.extent, i.kind) for i in spatial)
            mapping: dict[Var, Expr] = {a.var: b.var for a, b in zip(spatial, fresh, strict=True)}
            writes = tuple(
                Region(w.buffer, tuple(Range(substitute(r.begin, mapping), r.extent) for r in w.ranges))
                for w in block.writes
            )
            init = Block(
                f"{block.name}_init", fresh, tuple(i.var for i in fresh), const(True), (), writes, None,
                substitute_stmt(block.init, mapping), block.origins,
            )  # fmt: skip
            found = self._inits[id(block)] = (block, dataclasses.replace(block, init=None), init)
        return found[1:]


def _loop(loop: Loop, body: Stmt) -> Stmt:
    tag = None if loop.thread is None else loop.thread.tag
    return For(loop.var, const(0), loop.extent, loop.annotation, body, tag, loop.pragmas)


def _implementation(
    placed: Placed, unit: Unit, stored: dict[int, Storage], block: Block, slots: tuple[Expr, ...]
) -> tuple[Implementation | None, Implementation | None]:
    """What puts the statement of the unit's intrinsic in its place, and what that of its initial values; None without
    an intrinsic, and where the initial values are stored one by one."""
    intrinsic = unit.intrinsic
    if intrinsic is None:
        return None, None
    found = match(placed, unit, intrinsic)
    turns = dict(zip((i.var for i in block.iters[len(block.iters) - len(slots) :]), slots, strict=True))

    def where(tensor: Tensor) -> tuple[Buffer, Any]:
        storage = stored.get(id(tensor))
        return (tensor, None) if storage is None else (storage.buffer, storage.place)

    def placed_at(values: dict[Var, Expr], make: Callable[[tuple[Window, ...]], Stmt]) -> Stmt:
        stmt = make(found.windows(intrinsic, where, values))
        return substitute_stmt(stmt, {v: substitute(e, values) for v, e in turns.items()})

    fill = intrinsic.fill
    return (
        lambda values: placed_at(values, lambda windows: intrinsic.implement(*windows)),
        None if fill is None else lambda values: placed_at(values, lambda windows: fill(windows[-1])),
    )


def _first(nest: Stmt, loop: Loop) -> Stmt:
    """The nest of a stage with two copies for the first iteration of the loop, in front of it."""
    first = _moved(nest, loop.var, const(0))
    known = isinstance(loop.extent, Const) and int(loop.extent.value) > 0
    return first if known else If(less(0, loop.extent), first)


def _next(nest: Stmt, loop: Loop) -> Stmt:
    """The nest of a stage with two copies for the next iteration of the loop, if there is one."""
    return If(less(loop.var + 1, loop.extent), _moved(nest, loop.var, loop.var + 1))


def _moved(nest: Stmt, var: Var, value: Expr) -> Stmt:
    """The nest with another value of a loop variable around it, and loop variables of its own."""
    mapping: dict[Var, Expr] = {var: value}
    fresh: dict[Var, Var] = {s.var: Var(s.var.name, s.var.dtype) for s in walk_stmt(nest) if isinstance(s, For)}
    mapping.update(fresh)

    def on_stmt(s: Stmt) -> Stmt:
        return dataclasses.replace(s, var=fresh[s.var]) if isinstance(s, For) else s

    def on_expr(e: Expr) -> Expr:
        new = substitute(e, mapping)
        return simplify(new) if new is not e and (new.dtype.is_integer or new.dtype.is_bool) else new

    return rewrite_stmt(nest, expr=on_expr, stmt=on_stmt)


def _init_nest(placed: Placed, block: Block, slots: tuple[Expr, ...], loops: Sequence[Loop]) -> Stmt:
    """The spatial loops among `loops` copied, with their annotations, around the init block."""
    copied = [(loop, Var(f"{loop.name}_init", loop.var.dtype)) for loop in loops if loop.kind == "spatial"]
    mapping: dict[Var, Expr] = {loop.var: var for loop, var in copied}
    mapping.update({loop.var: const(0) for loop in placed.nest.loops if loop.kind == "reduce"})
    spatial = [b for b, axis in zip(placed.bindings, placed.stage.axes, strict=True) if axis.kind == "spatial"]
    body: Stmt = dataclasses.replace(
        block,
        bindings=tuple(substitute(b, mapping) for b in (*spatial, *slots)),
        predicate=substitute(placed.spatial_guard, mapping),
    )
    unit = placed.nest.unit
    at_once = set() if unit is None or unit.intrinsic is None else {id(x.var) for x in loops_in(placed, unit)}
    for number, (loop, var) in enumerate(reversed(copied)):
        kind = loop.annotation
        if id(loop.var) in at_once:  # an instruction's points: as constant places, so that they may lie in registers
            kind = "unrolled" if number else "vectorized"
        body = _loop(dataclasses.replace(loop, var=var, annotation=kind), body)
    return body


def _prefetch_blocks(
    placed: Placed, block: Block, slots: tuple[Expr, ...], step: Prefetch, buffer: Buffer
) -> list[Block]:
    """For each read of the tensor, stored in `buffer`, a block that asks for the element read first in an iteration,
    further on in memory. It reads nothing: an address behind the end of the tensor is no access."""
    loops = placed.nest.loops
    first: dict[Var, Expr] = {loop.var: const(0) for loop in loops[placed.nest.position(step.loop) + 1 :]}
    iters = tuple(IterVar(Var(i.name, i.var.dtype), i.begin, i.extent, "opaque") for i in block.iters)
    rename: dict[Var, Expr] = {a.var: b.var for a, b in zip(block.iters, iters, strict=True)}
    bindings = tuple(substitute(b, first) for b in (*placed.bindings, *slots))
    distance = step.distance
    if isinstance(distance, Expr):
        named = loops_of_distance(placed, step, distance)
        places = [IterVar(Var(x.name, x.var.dtype), const(0, x.var.dtype), x.extent, "opaque") for x in named]
        distance = substitute(distance, {x.var: p.var for x, p in zip(named, places, strict=True)})
        iters, bindings = (*iters, *places), (*bindings, *(x.var for x in named))
    guard = substitute(placed.guard, first)
    result = []
    for read in block.reads:
        if read.buffer is not buffer:
            continue
        point = [substitute(r.begin, rename) for r in read.ranges]
        point[-1] = point[-1] + distance
        load = Load(read.buffer, tuple(point), read.buffer.dtype)
        body = Evaluate(Call("prefetch", (load,), dtypes.int32))
        result.append(Block(f"prefetch_{read.buffer.name}", iters, bindings, guard, (), (), None, body))
    return result


def _allocate(stage: Stage, body: Stmt, params: Sequence[Buffer] = ()) -> Stmt:
    for tensor, buffer in reversed(tuple(zip(stage.outputs, stage.buffers, strict=True))):
        if not any(tensor is p for p in params):
            body = Allocate(buffer, body)
    return body


def _stored(state: State, tensor: Buffer) -> Buffer:
    stage = state.stage_of(tensor)
    return next(b for t, b in zip(stage.outputs, stage.buffers, strict=True) if t is tensor)


def _producers(state: State, placed: Placed) -> list[Stage]:
    found: dict[int, Stage] = {}
    for read in placed.body.reads:
        if state.is_state(read.tensor):
            continue
        producer = state.stage_of(read.tensor)
        found.setdefault(id(producer), producer)
    return list(found.values())


def _store_in(block: Block, storage: dict[int, Storage]) -> Block:
    """The block with loads, stores and regions redirected to where the tensors are stored."""
    memo: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr:
        if isinstance(e, Load) and (found := storage.get(id(e.buffer))) is not None:
            indices = e.indices if found.place is None else found.place(e.indices)
            return Load(found.buffer, indices, e.dtype, e.predicate)
        return e

    def on_expr(e: Expr) -> Expr:
        return rewrite_expr(e, on_node, memo)

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store) and (found := storage.get(id(s.buffer))) is not None:
            indices = s.indices if found.place is None else found.place(s.indices)
            return Store(found.buffer, indices, s.value, s.predicate)
        return s

    def on_region(r: Region) -> Region:
        ranges = tuple(Range(on_expr(x.begin), on_expr(x.extent)) for x in r.ranges)
        found = storage.get(id(r.buffer))
        if found is None:
            return Region(r.buffer, ranges)
        if found.place is None:
            return Region(found.buffer, ranges)
        point = found.place(tuple(x.begin for x in ranges))
        return Region(found.buffer, tuple(Range(p, const(1)) for p in point))

    def on_body(s: Stmt) -> Stmt:
        return rewrite_stmt(s, expr=on_expr, stmt=on_stmt)

    return dataclasses.replace(
        block,
        reads=tuple(on_region(r) for r in block.reads),
        writes=tuple(on_region(r) for r in block.writes),
        init=None if block.init is None else on_body(block.init),
        body=on_body(block.body),
    )


def _span(value: Expr, placed: Placed, size: Expr) -> tuple[Expr, Expr]:
    """(first, number) of the values of an expression over the loops around a stage; 0 .. size where they are not known.
    A tile may begin outside its tensor: before it under padding, behind it on the padded end of a layout."""
    analyzer = Analyzer()
    for _, loop in placed.path:
        analyzer.bind(loop.var, const(0), loop.extent)
    found = analyzer.bounds(value)
    if found.lo is None or found.hi is None:
        return const(0), size
    return const(found.lo), const(found.hi - found.lo + 1)
