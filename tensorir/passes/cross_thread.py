"""Reduction loops bound to threads: partial results of each thread, then a tree over shared memory.

    for k in 0..11 thread threadIdx.x:                alloc parts[11] @shared
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
    logical_and,
)
from tensorir.passes.linear import conjuncts
from tensorir.passes.thread_axes import ThreadError, literal
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.visit import free_vars, rewrite_expr, rewrite_stmt, substitute, walk_stmt, with_body


def cross_thread(func: Func) -> Func:
    """`func` with no reduction loop bound to threads. Raises `ThreadError` where that cannot be."""
    if not any(isinstance(s, Block) and any(i.kind == "reduce" for i in s.iters) for s in walk_stmt(func.body)):
        return func
    return with_body(func, _visit(func.body, (), {}))


def _is_thread(s: For) -> bool:
    return s.kind == "thread" and not (s.thread or "").startswith("blockIdx")


def _visit(s: Stmt, active: tuple[For, ...], allocated: dict[Buffer, tuple[For, ...]]) -> Stmt:
    if isinstance(s, For):
        chain = _chain(s)
        if chain is not None:
            loops, block = chain
            reduced = _reduce_vars(block)
            if s.var in reduced and any(x.kind == "thread" and x.var in reduced for x in loops):
                return _expand(loops, block, reduced, active, allocated)
        body = _visit(s.body, (*active, s), allocated)
        return s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
    if isinstance(s, Seq):
        new = [_visit(x, active, allocated) for x in s.stmts]
        return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
    if isinstance(s, Allocate):
        body = _visit(s.body, active, {**allocated, s.buffer: active})
        return s if body is s.body else Allocate(s.buffer, body)
    if isinstance(s, LetStmt):
        body = _visit(s.body, active, allocated)
        return s if body is s.body else LetStmt(s.var, s.value, body)
    if isinstance(s, If):
        then = _visit(s.then, active, allocated)
        otherwise = None if s.otherwise is None else _visit(s.otherwise, active, allocated)
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
    allocated: dict[Buffer, tuple[For, ...]],
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
        owners = {x.thread for x in allocated.get(store.buffer, ()) if _is_thread(x)}
        if tags & owners and store.buffer.scope != "shared":
            raise ThreadError(
                f"{block.name}: each thread has its own {store.buffer.name}, but its reduction is spread over the same"
                f" threads ({', '.join(sorted(t or '' for t in tags))})",
                help=f'keep {store.buffer.name} in shared memory: set_scope("shared")',
            )
    outer = [x for x in around if x.thread not in tags]
    mapping: dict[Var, Expr] = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    count = 1
    rank: Expr = const(0)
    for loop in threads:
        size = literal(loop.extent) or 1
        rank = rank * size + loop.var
        count *= size
    n = len(combiner.outputs)
    suffixes = [""] if n == 1 else [str(i) for i in range(n)]
    parts, trees = [], []
    for store, suffix in zip(combiner.outputs, suffixes, strict=True):
        t = store.buffer.dtype
        parts.append(Buffer(f"{block.name}_part{suffix}", (const(1),), t, "local"))
        shape = (*(x.extent for x in outer), const(count))
        trees.append(Buffer(f"{block.name}_parts{suffix}", shape, t, "shared"))
    row = tuple(x.var for x in outer)
    zero = (const(0),)

    steps: list[Stmt] = []
    identities = _identities(block, combiner)
    steps += [Store(p, zero, e) for p, e in zip(parts, identities, strict=True)]
    own = {s.buffer: p for s, p in zip(combiner.outputs, parts, strict=True)}
    steps.append(_update(block, mapping, own, serial))
    steps += [Store(x, (*row, rank), Load(p, zero, p.dtype)) for x, p in zip(trees, parts, strict=True)]
    offset = 1
    while offset * 2 < count:
        offset *= 2
    while offset and count > 1:
        here = [Load(x, (*row, rank), x.dtype) for x in trees]
        there = [Load(x, (*row, rank + offset), x.dtype) for x in trees]
        condition = logical_and(LT(rank, const(min(offset, count - offset)), dtypes.bool_))
        steps.append(If(condition, combiner.stores(trees, (*row, rank), here, there)))
        offset //= 2
    total = [Load(x, (*row, const(0)), x.dtype) for x in trees]
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
    for x in reversed(trees):
        body = Allocate(x, body)
    for loop in reversed(spatial):
        body = For(loop.var, loop.begin, loop.extent, loop.kind, body, loop.thread, loop.pragmas)
    return body


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
