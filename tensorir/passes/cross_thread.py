"""Reduction loops bound to threads: partial results of each thread, then a tree over what the threads hold.

    for k in 0..11 thread threadIdx.x:                alloc parts[11] @warp (or @shared)
      block B: init B[i] = 0                          for k in 0..11 thread threadIdx.x:
               B[i] = B[i] + A[i, k]          →         alloc part[1] @local
                                                        part[0] = 0
                                                        part[0] = part[0] + A[i, k]
                                                        parts[k] = part[0]
                                                        if k < 8 and k + 8 < 11: parts[k] = parts[k] + parts[k + 8]
                                                        ... 4, 2, 1
                                                        if k == 0: B[i] = parts[0]

Still in the meaning where each statement runs for all threads before the next. Any extent, several axes, and conditions
on the elements: a thread without an element holds the identity. Spatial loops inside move outside, which a reduction
allows.

Where the threads of a reduction are lanes of one warp, the tree is in warp memory; where they are several warps, each
reduces by itself, and one combines their results, which pass through shared memory. Elsewhere, and on targets without
warps, all of the tree is in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import (
    EQ,
    LT,
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Const,
    Expr,
    Fma,
    Load,
    Max,
    Min,
    Mul,
    Or,
    Var,
    const,
    floordiv,
    floormod,
    logical_and,
)
from tensorir.passes.linear import conjuncts
from tensorir.passes.thread_axes import THREAD_AXES, ThreadError, literal, map_kernels
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.target import Target
from tensorir.visit import free_vars, rewrite_expr, rewrite_stmt, substitute, walk_stmt, with_body


def cross_thread(func: Func, target: Target | None = None) -> Func:
    """`func` with no reduction loop bound to threads. Raises `ThreadError` where that cannot be."""
    if not any(isinstance(s, Block) and any(i.kind == "reduce" for i in s.iters) for s in walk_stmt(func.body)):
        return func
    warp = 1 if target is None else target.warp_size
    return with_body(func, map_kernels(func.body, lambda s: _visit(s, (), _Place({}, _launched(s), warp))))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reduction stands: the loops around each allocation, the threads that are launched along each axis (None
    where that is not a constant), and the lanes of a warp."""

    allocated: dict[Buffer, tuple[For, ...]]
    launched: dict[str, int | None]
    warp: int

    def within(self, buffer: Buffer, active: tuple[For, ...]) -> _Place:
        """The same inside an allocation."""
        return _Place({**self.allocated, buffer: active}, self.launched, self.warp)


def _launched(kernel: Stmt) -> dict[str, int | None]:
    """The threads of a kernel along each axis: as many as its longest loop has."""
    found: dict[str, int | None] = {}
    for s in walk_stmt(kernel):
        if isinstance(s, For) and s.kind == "thread" and s.thread in THREAD_AXES:
            size, known = literal(s.extent), found.get(s.thread, 0)
            found[s.thread] = None if size is None or known is None else max(size, known)
    return found


def _is_thread(s: For) -> bool:
    return s.kind == "thread" and not (s.thread or "").startswith("blockIdx")


def _visit(s: Stmt, active: tuple[For, ...], place: _Place) -> Stmt:
    if isinstance(s, For):
        chain = _chain(s)
        if chain is not None:
            loops, block = chain
            reduced = _reduce_vars(block)
            if s.var in reduced and any(x.kind == "thread" and x.var in reduced for x in loops):
                return _expand(loops, block, reduced, active, place)
        body = _visit(s.body, (*active, s), place)
        return s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
    if isinstance(s, Seq):
        new = [_visit(x, active, place) for x in s.stmts]
        return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
    if isinstance(s, Allocate):
        body = _visit(s.body, active, place.within(s.buffer, active))
        return s if body is s.body else Allocate(s.buffer, body)
    if isinstance(s, LetStmt):
        body = _visit(s.body, active, place)
        return s if body is s.body else LetStmt(s.var, s.value, body)
    if isinstance(s, If):
        then = _visit(s.then, active, place)
        otherwise = None if s.otherwise is None else _visit(s.otherwise, active, place)
        return s if then is s.then and otherwise is s.otherwise else If(s.condition, then, otherwise)
    return s


def _chain(s: For) -> tuple[list[For], Block] | None:
    """The loops from `s` down to a block with nothing beside them."""
    loops: list[For] = []
    body: Stmt = s
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    if isinstance(body, Block):
        return loops, body
    for inner in loops:
        if inner.kind == "thread":
            for block in walk_stmt(body):
                if isinstance(block, Block) and inner.var in _reduce_vars(block):
                    raise ThreadError(
                        f"{block.name}: the reduce loop {inner.var.name} is bound to {inner.thread} and other stages"
                        " are computed inside it",
                        help="attach them to a loop outside it",
                    )
    return None


def _reduce_vars(block: Block) -> set[Var]:
    return {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)}


@dataclass(frozen=True, slots=True)
class _Combiner:
    """How two partial results become one: `results` over the variables `lhs` and `rhs`."""

    outputs: tuple[Store, ...]
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    results: tuple[Expr, ...]

    def stores(self, buffers: Sequence[Buffer], place: tuple[Expr, ...], a: Sequence[Expr], b: Sequence[Expr]) -> Stmt:
        """Stores of the combination of the values `a` and `b`, all read before the first is written."""
        left = tuple(Var(v.name, v.dtype) for v in self.lhs)
        right = tuple(Var(v.name, v.dtype) for v in self.rhs)
        mapping: dict[Var, Expr] = {
            **dict(zip(self.lhs, left, strict=True)),
            **dict(zip(self.rhs, right, strict=True)),
        }
        body = seq(*[Store(x, place, substitute(r, mapping)) for x, r in zip(buffers, self.results, strict=True)])
        for var, value in reversed([*zip(left, a, strict=True), *zip(right, b, strict=True)]):
            body = LetStmt(var, value, body)
        return body


_PLAIN = (Add, Mul, Min, Max, And, Or, BitAnd, BitOr, BitXor)


def _combiner(block: Block) -> _Combiner:
    """What the body of a reduction block says about combining."""
    stores = tuple(s for s in walk_stmt(block.body) if isinstance(s, Store))
    names = ("left", "right")
    if len(stores) == 1 and not any(isinstance(s, LetStmt) for s in walk_stmt(block.body)):
        store = stores[0]
        lhs, rhs = (Var(n, store.value.dtype) for n in names)
        value = store.value
        if isinstance(value, Fma) and _is_own(value.c, store):
            return _Combiner(stores, (lhs,), (rhs,), (Add(lhs, rhs, value.dtype),))
        if isinstance(value, _PLAIN) and (_is_own(value.a, store) or _is_own(value.b, store)):
            return _Combiner(stores, (lhs,), (rhs,), (type(value)(lhs, rhs, value.dtype),))
    else:
        lets = [s for s in walk_stmt(block.body) if isinstance(s, LetStmt)]
        old = [s.var for s in lets if any(_is_own(s.value, x) for x in stores)]
        new = [s.var for s in lets if not any(s.var is v for v in old)]
        if len(old) == len(new) == len(stores):
            return _Combiner(stores, tuple(old), tuple(new), tuple(s.value for s in stores))
    raise ThreadError(
        f"{block.name}: its reduction cannot be spread over threads: how two partial results combine is not known",
        help="bind spatial loops, or use one of sum, prod, min, max, any, all, argmin, argmax",
    )


def _is_own(e: Expr, store: Store) -> bool:
    return isinstance(e, Load) and e.buffer is store.buffer


def _expand(
    loops: list[For],
    block: Block,
    reduced: set[Var],
    active: tuple[For, ...],
    where: _Place,
) -> Stmt:
    spatial = [x for x in loops if x.var not in reduced]
    threads = [x for x in loops if x.var in reduced and x.kind == "thread"]
    serial = [x for x in loops if x.var in reduced and x.kind != "thread"]
    for loop in threads:
        if (loop.thread or "").startswith("blockIdx") or literal(loop.extent) is None:
            raise ThreadError(
                f"{block.name}: the reduce loop {loop.var.name} is bound to {loop.thread} and runs to {loop.extent!r}",
                help="bind a reduce loop of constant extent to threadIdx",
            )
    combiner = _combiner(block)
    around = [x for x in (*active, *spatial) if _is_thread(x)]
    before = [x for x in active if x.var in reduced]
    tags = {x.thread for x in threads}
    for store in combiner.outputs:
        owners = {x.thread for x in where.allocated.get(store.buffer, ()) if _is_thread(x)}
        if tags & owners and store.buffer.scope != "shared":
            raise ThreadError(
                f"{block.name}: each thread has its own {store.buffer.name}, but its reduction is spread over the same"
                f" threads ({', '.join(sorted(t or '' for t in tags))})",
                help=f'keep {store.buffer.name} in shared memory: set_scope("shared")',
            )
    outer = [x for x in around if x.thread not in tags]
    mapping: dict[Var, Expr] = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    n = len(combiner.outputs)
    suffixes = [""] if n == 1 else [str(i) for i in range(n)]
    parts = [
        Buffer(f"{block.name}_part{suffix}", (const(1),), store.buffer.dtype, "local")
        for store, suffix in zip(combiner.outputs, suffixes, strict=True)
    ]
    zero = (const(0),)
    steps: list[Stmt] = []
    identities = _identities(block, combiner)
    steps += [Store(p, zero, e) for p, e in zip(parts, identities, strict=True)]
    own = {s.buffer: p for s, p in zip(combiner.outputs, parts, strict=True)}
    steps.append(_update(block, mapping, own, serial))
    tree = _Tree(block.name, combiner, suffixes, outer, threads, where)
    total = tree.write([Load(p, zero, p.dtype) for p in parts], steps)
    point = tuple(substitute(i, mapping) for i in combiner.outputs[0].indices)
    buffers = [s.buffer for s in combiner.outputs]
    again = combiner.stores(buffers, point, [Load(b, point, b.dtype) for b in buffers], total)
    first = seq(*[Store(b, point, e) for b, e in zip(buffers, total, strict=True)])
    last = again if block.init is None else first
    if block.init is not None and before:  # loops outside go on with the same reduction
        starts = logical_and(*(EQ(x.var, x.begin, dtypes.bool_) for x in before))
        last = If(starts, first, again)
    guard = logical_and(_spatial_predicate(block, reduced), *(EQ(x.var, const(0), dtypes.bool_) for x in threads))
    steps.append(last if isinstance(guard, Const) else If(guard, last))

    body: Stmt = seq(*steps)
    for p in reversed(parts):
        body = Allocate(p, body)
    for loop in reversed(threads):
        body = For(loop.var, loop.begin, loop.extent, "thread", body, loop.thread)
    for x in reversed(tree.buffers):
        body = Allocate(x, body)
    for loop in reversed(spatial):
        body = For(loop.var, loop.begin, loop.extent, loop.kind, body, loop.thread, loop.pragmas)
    return body


class _Tree:
    """The partial results of the threads become one: `write` adds the steps and gives what the first thread holds."""

    def __init__(
        self, name: str, combiner: _Combiner, suffixes: list[str], outer: list[For], threads: list[For], place: _Place
    ) -> None:
        self.name, self.combiner, self.suffixes = name, combiner, suffixes
        self.rows = tuple(x.extent for x in outer)
        self.row = tuple(x.var for x in outer)
        self.buffers: list[Buffer] = []
        self.rank: Expr = const(0)
        self.count = 1
        ordered = _in_lanes(threads, place)
        for loop in ordered or threads:
            size = literal(loop.extent) or 1
            if ordered is None:  # the last loop runs fastest
                self.rank = self.rank * size + loop.var
            else:
                self.rank = self.rank + loop.var * self.count
            self.count *= size
        self.warp = 1 if ordered is None else place.warp

    def write(self, values: list[Expr], steps: list[Stmt]) -> list[Expr]:
        """The tree over `values` of all threads."""
        if self.warp == 1:
            return self._combine("parts", "shared", values, self.rank, self.count, steps)
        if self.count <= self.warp:
            return self._combine("parts", "warp", values, self.rank, self.count, steps)
        warps = -(-self.count // self.warp)
        lane, number = floormod(self.rank, self.warp), floordiv(self.rank, self.warp)
        parts = self._buffers("parts", (const(warps), const(self.warp)), "warp")
        self._store(parts, (number, lane), values, steps)
        self._reduce(parts, lambda offset: (number, lane + offset), self.warp, lane, self.rank, self.count, steps)
        totals = self._buffers("totals", (const(warps),), "shared")
        first: list[Stmt] = []
        self._store(totals, (number,), self._loads(parts, (number, const(0))), first)
        steps.append(If(EQ(lane, const(0), dtypes.bool_), seq(*first)))
        tops = self._buffers("tops", (const(warps),), "warp")
        second: list[Stmt] = []
        self._store(tops, (self.rank,), self._loads(totals, (self.rank,)), second)
        steps.append(If(LT(self.rank, const(warps), dtypes.bool_), seq(*second)))
        self._reduce(tops, lambda offset: (self.rank + offset,), warps, self.rank, self.rank, warps, steps)
        return self._loads(tops, (const(0),))

    def _combine(
        self, stem: str, scope: str, values: list[Expr], rank: Expr, count: int, steps: list[Stmt]
    ) -> list[Expr]:
        buffers = self._buffers(stem, (const(count),), scope)
        self._store(buffers, (rank,), values, steps)
        self._reduce(buffers, lambda offset: (rank + offset,), count, rank, rank, count, steps)
        return self._loads(buffers, (const(0),))

    def _reduce(
        self,
        buffers: list[Buffer],
        at: Callable[[int], tuple[Expr, ...]],
        width: int,
        lane: Expr,
        rank: Expr,
        count: int,
        steps: list[Stmt],
    ) -> None:
        """Halves `width` elements until the first holds all; of `count` in a row, those above are not there."""
        offset = 1
        while offset * 2 < width:
            offset *= 2
        while offset and width > 1:
            here, there = self._loads(buffers, at(0)), self._loads(buffers, at(offset))
            if width >= count:
                condition: Expr = LT(lane, const(min(offset, count - offset)), dtypes.bool_)
            else:
                condition = LT(lane, const(offset), dtypes.bool_)
                if count % width:
                    condition = logical_and(condition, LT(rank + offset, const(count), dtypes.bool_))
            place = (*self.row, *at(0))
            steps.append(If(condition, self.combiner.stores(buffers, place, here, there)))
            offset //= 2

    def _buffers(self, stem: str, shape: tuple[Expr, ...], scope: str) -> list[Buffer]:
        made = [
            Buffer(f"{self.name}_{stem}{suffix}", (*self.rows, *shape), store.buffer.dtype, scope)
            for store, suffix in zip(self.combiner.outputs, self.suffixes, strict=True)
        ]
        self.buffers += made
        return made

    def _loads(self, buffers: list[Buffer], place: tuple[Expr, ...]) -> list[Expr]:
        return [Load(x, (*self.row, *place), x.dtype) for x in buffers]

    def _store(self, buffers: list[Buffer], place: tuple[Expr, ...], values: list[Expr], steps: list[Stmt]) -> None:
        steps += [Store(x, (*self.row, *place), v) for x, v in zip(buffers, values, strict=True)]


def _in_lanes(threads: list[For], place: _Place) -> list[For] | None:
    """The loops of a reduction, fastest first, if their threads are neighbouring lanes: of part of a warp, of one, or
    of several whole ones. None if not."""
    sizes = [place.launched.get(tag, 1) for tag in THREAD_AXES]
    if place.warp <= 1 or any(size is None for size in sizes):
        return None
    known = [size or 1 for size in sizes]
    ordered = sorted(threads, key=lambda x: x.thread or "")
    span, left = 1, [x for x in ordered if literal(x.extent) != 1]
    for tag, size in zip(THREAD_AXES, known, strict=True):
        if not left:
            break
        if left[0].thread == tag:
            if len(left) > 1 and literal(left[0].extent) != size:
                return None
            left.pop(0)
        elif size != 1:
            return None
        span *= size
    total = known[0] * known[1] * known[2]
    if left or not (span == total or span % place.warp == 0 or place.warp % span == 0):
        return None
    return ordered


def _identities(block: Block, combiner: _Combiner) -> list[Expr]:
    if block.init is not None:
        return [s.value for s in walk_stmt(block.init) if isinstance(s, Store)]
    found: list[Expr] = []
    for result in combiner.results:
        value = _IDENTITY.get(type(result))
        if value is None:
            raise ThreadError(
                f"{block.name}: the initial value of its reduction stands outside it, so its threads have none",
                help="do not decompose a reduction that is bound to threads",
            )
        found.append(value(result))
    return found


_IDENTITY: dict[type[Expr], Callable[[Expr], Expr]] = {
    Add: lambda e: const(0, e.dtype), Mul: lambda e: const(1, e.dtype),
    Min: lambda e: const(float("inf") if e.dtype.is_float else e.dtype.max_value, e.dtype),
    Max: lambda e: const(float("-inf") if e.dtype.is_float else e.dtype.min_value, e.dtype),
    And: lambda e: const(True), Or: lambda e: const(False),
}  # fmt: skip


def _update(block: Block, mapping: dict[Var, Expr], own: dict[Buffer, Buffer], serial: list[For]) -> Stmt:
    """The step of the reduction on the thread's own partial result, in the serial reduce loops."""

    def rule(e: Expr) -> Expr:
        if isinstance(e, Var):
            return mapping.get(e, e)
        if isinstance(e, Load) and e.buffer in own:
            return Load(own[e.buffer], (const(0),), e.dtype)
        return e

    def on_store(s: Stmt) -> Stmt:
        return Store(own[s.buffer], (const(0),), s.value) if isinstance(s, Store) and s.buffer in own else s

    body = rewrite_stmt(block.body, expr=lambda e: rewrite_expr(e, rule), stmt=on_store)
    if not (isinstance(block.predicate, Const) and block.predicate.value):
        body = If(block.predicate, body)
    for loop in reversed(serial):
        kind = loop.kind if loop.kind == "unrolled" else "serial"
        body = For(loop.var, loop.begin, loop.extent, kind, body, None, loop.pragmas)
    return body


def _spatial_predicate(block: Block, reduced: set[Var]) -> Expr:
    """The part of the predicate that speaks of spatial loops alone: where it fails there is no result to store."""
    return logical_and(*[c for c in conjuncts(block.predicate) if not any(v in reduced for v in free_vars(c))])
