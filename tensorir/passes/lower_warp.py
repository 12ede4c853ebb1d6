"""Warp memory becomes a local value of each lane, and reads of another lane's part become shuffles.

    alloc P[32] @warp                          alloc P[1] @local
    P[t] = A[t]                          →     P[0] = A[t]
    if t < 16: P[t] = P[t] + P[t + 16]         let other = shuffle_down(P[0], 16, t < 16, 32)
                                               if t < 16: P[0] = P[0] + other

The last dimension of a warp buffer lies over the lanes of a warp (or of a part of it, a power of two wide): each lane
stores its own element only. The dimensions before it are the same for all lanes: a row of threads, which has a warp of
its own, or places in each lane's memory. A shuffle stands where all lanes come: conditions move to the statements
behind it. Where the target has no warps, warp memory is shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import Call, Expr, FloorMod, IfThenElse, Load, Not, Var, const
from tensorir.interpreter.compiler import compile_expr
from tensorir.passes.accesses import Access, collect_accesses
from tensorir.passes.linear import conjunction, conjuncts
from tensorir.passes.thread_axes import THREAD_AXES, ThreadError, literal, map_kernels, peel_axes, with_axes
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.target import Target
from tensorir.visit import children, free_vars, rewrite_expr, rewrite_stmt, stmt_exprs, walk_expr, walk_stmt, with_body


def lower_warp(func: Func, target: Target) -> Func:
    """`func`, in thread form, without warp memory. Raises `ThreadError` where a lane would write another's part."""
    if not any(isinstance(s, Allocate) and s.buffer.scope == "warp" for s in walk_stmt(func.body)):
        return func
    if target.warp_size <= 1:
        return with_body(func, _in_shared_memory(func.body))

    def kernel(s: Stmt) -> Stmt:
        axes, body = peel_axes(s)
        warps = {x.buffer for x in walk_stmt(body) if isinstance(x, Allocate) and x.buffer.scope == "warp"}
        return with_axes(axes, _Lowering(axes, body, warps, target).stmt(body, ())) if warps else s

    return with_body(func, map_kernels(func.body, kernel))


def _in_shared_memory(body: Stmt) -> Stmt:
    made: dict[Buffer, Buffer] = {}

    def shared(b: Buffer) -> Buffer:
        if b.scope != "warp":
            return b
        return made.setdefault(b, Buffer(b.name, b.shape, b.dtype, "shared"))

    return rewrite_stmt(body, buffer=shared)


@dataclass(frozen=True, slots=True)
class _Part:
    """What each lane holds of a warp buffer: a local buffer, the dimensions that it keeps, the width of the segments
    of lanes."""

    buffer: Buffer
    kept: tuple[int, ...]
    width: int

    def own(self, indices: tuple[Expr, ...]) -> Load:
        """The element of this lane at the place of `indices`."""
        return Load(self.buffer, self.place(indices), self.buffer.dtype)

    def place(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where in a lane's memory."""
        return tuple(indices[d] for d in self.kept) or (const(0),)


class _Threads:
    """The threads of a block, to ask what an expression is in each of them."""

    def __init__(self, axes: tuple[For, ...]) -> None:
        sizes = {a.thread: (a.var, literal(a.extent)) for a in axes if a.thread in THREAD_AXES}
        self.vars: list[Var] = []
        extents: list[int] = []
        self.number: Expr = const(0)
        stride = 1
        for tag in THREAD_AXES:
            if tag not in sizes:
                continue
            var, size = sizes[tag]
            if size is None:
                raise ThreadError(
                    f"the loop {var.name} is bound to {tag}, to a symbolic extent, in a kernel with warp memory",
                    help=f"split it by a constant and bind the inner loop to {tag}",
                )
            self.vars.append(var)
            extents.append(size)
            self.number = self.number + const(stride) * var
            stride *= size
        self.all = [t[::-1] for t in product(*[range(n) for n in extents[::-1]])]

    def is_own(self, e: Expr) -> bool:
        """Whether an expression speaks of thread axes and constants alone."""
        return all(any(v is t for t in self.vars) for v in free_vars(e)) and not any(
            isinstance(n, Load) for n in walk_expr(e)
        )

    def varies(self, e: Expr) -> bool:
        """Whether an expression speaks of a thread axis."""
        return any(v is t for v in free_vars(e) for t in self.vars)

    def values(self, e: Expr) -> list[int]:
        """The value in each thread, by number."""
        function, variables = compile_expr(e)
        places = [next(i for i, v in enumerate(self.vars) if v is x) for x in variables]
        return [int(function(*[t[p] for p in places])) for t in self.all]

    def where(self, conditions: tuple[Expr, ...]) -> list[bool]:
        """In which threads the conditions hold, as far as they speak of threads alone."""
        held = [True] * len(self.all)
        for c in (c for condition in conditions for c in conjuncts(condition)):
            if self.is_own(c):
                held = [h and bool(v) for h, v in zip(held, self.values(c), strict=True)]
        return held


@dataclass
class _Lowering:
    axes: tuple[For, ...]
    body: Stmt
    warps: set[Buffer]
    target: Target
    parts: dict[Buffer, _Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.threads = _Threads(self.axes)
        self.varying: set[Var] = {s.var for s in walk_stmt(self.body) if isinstance(s, LetStmt)}
        accesses = collect_accesses(self.body)
        for buffer in self.warps:
            self.parts[buffer] = self._part(buffer, [a for a in accesses if a.buffer is buffer])

    # ------------------------------------------------------------------------------------------------ what lanes hold

    def _part(self, buffer: Buffer, accesses: list[Access]) -> _Part:
        for a in accesses:
            if a.whole or any(self._is_data(i) for i in a.indices[:-1]):
                raise ThreadError(
                    f"{buffer.name} is in warp memory and is accessed where only the data says",
                    help="keep it in shared memory",
                )
        kept = tuple(d for d in range(buffer.rank - 1) if not any(self.threads.varies(a.indices[d]) for a in accesses))
        stores = [a for a in accesses if a.write]
        width = self.target.warp_size
        while width > 1:
            if all(self._is_own_lane(a.indices[-1], a.conditions, width) for a in stores) and all(
                self._is_row(d, accesses, width) for d in range(buffer.rank - 1) if d not in kept
            ):
                shape = tuple(buffer.shape[d] for d in kept) or (const(1),)
                return _Part(Buffer(buffer.name, shape, buffer.dtype, "local"), kept, width)
            width //= 2
        shown = ", ".join(repr(i) for i in stores[0].indices) if stores else ""
        raise ThreadError(
            f"{buffer.name}[{shown}] is in warp memory, but lanes write other elements than their own",
            help="let each thread write the element whose last index is its lane (threadIdx.x over at most"
            f" {self.target.warp_size} threads), or keep {buffer.name} in shared memory",
        )

    def _is_data(self, e: Expr) -> bool:
        return any(isinstance(n, Load) or n in self.varying for n in walk_expr(e))

    def _lane(self, width: int) -> Expr:
        return FloorMod(self.threads.number, const(width), dtypes.INDEX)

    def _is_own_lane(self, index: Expr, conditions: tuple[Expr, ...], width: int) -> bool:
        return self._distance(index, conditions, width) == 0

    def _distance(self, index: Expr, conditions: tuple[Expr, ...], width: int) -> int | None:
        """By how much an index is above the lane, where that is the same in all threads that come there."""
        if not self.threads.is_own(index):
            return None
        held = self.threads.where(conditions)
        found = self.threads.values(index - self._lane(width))
        distances = {d for d, h in zip(found, held, strict=True) if h}
        return distances.pop() if len(distances) == 1 else 0 if not distances else None

    def _is_row(self, dimension: int, accesses: list[Access], width: int) -> bool:
        """Whether an index is the same for all lanes of each segment, and in all accesses."""
        rows: dict[int, int] = {}
        for a in accesses:
            index = a.indices[dimension]
            if not self.threads.is_own(index):
                return False
            held = self.threads.where(a.conditions)
            for number, (value, holds) in enumerate(zip(self.threads.values(index), held, strict=True)):
                if holds and rows.setdefault(number // width, value) != value:
                    return False
        return True

    # ------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt, guards: tuple[Expr, ...]) -> Stmt:
        """The statement where the conditions `guards`, which differ between threads, hold."""
        if isinstance(s, Allocate) and s.buffer in self.parts:
            return Allocate(self.parts[s.buffer].buffer, self.stmt(s.body, guards))
        if not self._touches(s):
            return If(conjunction(guards), s) if guards else s
        if isinstance(s, Seq):
            return seq(*[self.stmt(x, guards) for x in s.stmts])
        if isinstance(s, Allocate):
            return Allocate(s.buffer, self.stmt(s.body, guards))
        if isinstance(s, For):
            return self._loop(s, guards)
        if isinstance(s, If):
            return self._condition(s, guards)
        if isinstance(s, LetStmt):
            step = self._step(s, guards)
            return step if step is not None else self._let(s, guards)
        if isinstance(s, Store):
            exprs = (*s.indices, s.value, *(() if s.predicate is None else (s.predicate,)))

            def made(new: tuple[Expr, ...]) -> Stmt:
                n = len(s.indices)
                predicate = None if s.predicate is None else new[n + 1]
                part = self.parts.get(s.buffer)
                if part is not None:
                    return Store(part.buffer, part.place(new[:n]), new[n], predicate)
                return Store(s.buffer, new[:n], new[n], predicate)

            return self._exchanged(exprs, guards, lambda new: self._guarded(made(new), guards))
        raise ThreadError("warp memory is used by address", help="keep it in shared memory")

    def _touches(self, s: Stmt) -> bool:
        return any(
            (isinstance(x, Store) and x.buffer in self.parts)
            or (isinstance(x, Allocate) and x.buffer in self.parts)
            or any(self._reads(e) for e in stmt_exprs(x))
            for x in walk_stmt(s)
        )

    def _reads(self, e: Expr) -> bool:
        return any(isinstance(n, Load) and n.buffer in self.parts for n in walk_expr(e))

    @staticmethod
    def _guarded(s: Stmt, guards: tuple[Expr, ...]) -> Stmt:
        return If(conjunction(guards), s) if guards else s

    def _loop(self, s: For, guards: tuple[Expr, ...]) -> Stmt:
        if any(self.threads.varies(e) or self._is_data(e) for e in (s.begin, s.extent)):
            raise ThreadError(
                f"the loop {s.var.name} reads warp memory and runs to {s.extent!r}, which differs between the lanes",
                help="keep that memory in shared scope, or let the loop run alike in all lanes",
            )
        return For(s.var, s.begin, s.extent, s.kind, self.stmt(s.body, guards), s.thread, s.pragmas)

    def _condition(self, s: If, guards: tuple[Expr, ...]) -> Stmt:
        if not (self.threads.varies(s.condition) or self._is_data(s.condition)):
            otherwise = None if s.otherwise is None else self.stmt(s.otherwise, guards)
            return If(s.condition, self.stmt(s.then, guards), otherwise)

        def branches(condition: Expr) -> Stmt:
            then = self.stmt(s.then, (*guards, condition))
            if s.otherwise is None:
                return then
            return seq(then, self.stmt(s.otherwise, (*guards, Not(condition, dtypes.bool_))))

        if not any(isinstance(n, Load) for n in walk_expr(s.condition)):
            return branches(s.condition)

        def named(new: tuple[Expr, ...]) -> Stmt:
            flag = Var("flag", dtypes.bool_)
            self.varying.add(flag)
            return LetStmt(flag, _where(guards, new[0]), branches(flag))

        return self._exchanged((s.condition,), guards, named)

    def _step(self, s: LetStmt, guards: tuple[Expr, ...]) -> Stmt | None:
        """Values and what is stored of them as one step, if it reads no warp memory that it wrote before: first what
        other lanes bring, then all of it under one condition. None if it is more than that."""
        exprs: list[Expr] = []
        written: set[Buffer] = set()
        bound: set[Expr] = set()
        for x in walk_stmt(s):
            if not isinstance(x, (LetStmt, Seq, Store)) or (isinstance(x, Store) and x.predicate is not None):
                return None
            for e in stmt_exprs(x):
                reads = [n for n in walk_expr(e) if isinstance(n, Load) and n.buffer in self.parts]
                if any(n.buffer in written or any(v in bound for v in walk_expr(n)) for n in reads):
                    return None
                exprs.append(e)
            if isinstance(x, LetStmt):
                bound.add(x.var)
            if isinstance(x, Store):
                written.add(x.buffer)

        def made(new: tuple[Expr, ...]) -> Stmt:
            mapping = dict(zip(exprs, new, strict=True))

            def on_store(x: Stmt) -> Stmt:
                part = self.parts.get(x.buffer) if isinstance(x, Store) else None
                return Store(part.buffer, part.place(x.indices), x.value) if part and isinstance(x, Store) else x

            return self._guarded(rewrite_stmt(s, expr=lambda e: mapping.get(e, e), stmt=on_store), guards)

        return self._exchanged(tuple(exprs), guards, made)

    def _let(self, s: LetStmt, guards: tuple[Expr, ...]) -> Stmt:
        def named(new: tuple[Expr, ...]) -> Stmt:
            loads = any(isinstance(n, Load) for n in walk_expr(new[0]))
            return LetStmt(s.var, _where(guards, new[0]) if loads else new[0], self.stmt(s.body, guards))

        return self._exchanged((s.value,), guards, named)

    def _exchanged(
        self, exprs: tuple[Expr, ...], guards: tuple[Expr, ...], rest: Callable[[tuple[Expr, ...]], Stmt]
    ) -> Stmt:
        """`rest` of the expressions with what they read of warp memory, behind the shuffles that bring it."""
        mapping: dict[Expr, Expr] = {}
        shuffles: list[tuple[Var, Expr]] = []
        for e in exprs:
            for n, conditions in _with_conditions(e, guards):
                if isinstance(n, Load) and n.buffer in self.parts and n not in mapping:
                    mapping[n] = self._read(n, conditions, shuffles)
        body = rest(tuple(rewrite_expr(e, lambda n: mapping.get(n, n)) for e in exprs))
        for var, value in reversed(shuffles):
            body = LetStmt(var, value, body)
        return body

    def _read(self, e: Load, conditions: tuple[Expr, ...], shuffles: list[tuple[Var, Expr]]) -> Expr:
        part = self.parts[e.buffer]
        index = e.indices[-1]
        if any(isinstance(n, Load) for c in (index, *conditions) for n in walk_expr(c)):
            raise ThreadError(
                f"{e.buffer.name} is in warp memory and which lane of it is read, or whether, depends on data",
                help="keep it in shared memory",
            )
        distance = self._distance(index, conditions, part.width)
        own = part.own(e.indices)
        if distance == 0:
            return own
        valid = conjunction(conditions) if conditions else const(True)
        name, selector = ("shuffle", index) if distance is None or distance < 0 else ("shuffle_down", const(distance))
        var = Var("other", e.dtype)
        self.varying.add(var)
        shuffles.append((var, Call(name, (own, selector, valid, const(part.width)), e.dtype)))
        return var


def _where(guards: tuple[Expr, ...], value: Expr) -> Expr:
    """A value that is read only where the guards hold."""
    if not guards:
        return value
    zero = const(False) if value.dtype.is_bool else const(0, value.dtype)
    return IfThenElse(conjunction(guards), value, zero, value.dtype)


def _with_conditions(e: Expr, held: tuple[Expr, ...]) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """Every node with the conditions under which it is evaluated."""
    found: list[tuple[Expr, tuple[Expr, ...]]] = []
    stack = [(e, held)]
    seen: set[tuple[int, int]] = set()
    while stack:
        top, conditions = stack.pop()
        if (id(top), len(conditions)) in seen:
            continue
        seen.add((id(top), len(conditions)))
        found.append((top, conditions))
        if isinstance(top, IfThenElse):
            stack += [
                (top.condition, conditions),
                (top.a, (*conditions, top.condition)),
                (top.b, (*conditions, Not(top.condition, dtypes.bool_))),
            ]
        else:
            stack += [(c, conditions) for c in children(top)]
    return found
