"""Loops bound to threads become kernels in thread form, still without barriers.

    for b thread blockIdx.x:                       for b thread blockIdx.x:
      alloc S[32] @shared                            for t in 0..32 thread threadIdx.x:
      for t in 0..32 thread threadIdx.x:     →         alloc S[32] @shared
        S[t] = A[b * 32 + t]                           S[t] = A[b * 32 + t]
      for u in 0..16 thread threadIdx.x:               if u < 16: C[b * 16 + u] = S[u] + S[u + 16]
        C[b * 16 + u] = S[u] + S[u + 16]

All loops of an axis become the one launched axis, as long as the longest of them; shorter ones are conditions.
A statement that stands outside the loops of an axis runs in its first thread alone. Conditions that differ between
threads move to the statements that they guard, so that everything around them is the same for all threads and a
barrier may be placed there. Virtual threads become a loop around each statement. An allocation outside all thread
loops is one per block; an allocation under them is one per thread.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import EQ, LT, Expr, IfThenElse, Load, Not, Var, const
from tensorir.interpreter.kernels import FORM
from tensorir.matrix import LANES, is_matrix
from tensorir.passes.accesses import bind_loops
from tensorir.passes.linear import IndexScope, conjunction
from tensorir.passes.thread_axes import (
    BLOCK_AXES,
    THREAD_AXES,
    ThreadError,
    has_threads,
    literal,
    map_kernels,
    with_axes,
)
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.visit import rewrite_expr, rewrite_stmt, stmt_exprs, sub_stmts, walk_expr, walk_stmt

Active = tuple[tuple[str, For], ...]


def lower_threads(func: Func) -> Func:
    """`func`, whose blocks are lowered, with each kernel in thread form. A matrix instruction is what all lanes of a
    warp do: threadIdx.x, of as many threads, has no loop around it."""
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)
    body = map_kernels(func.body, lambda s: _Kernel(scope).lower(s))
    return dataclasses.replace(func, body=body, attrs=(*func.attrs, (FORM, True)))


@dataclass
class _Axis:
    """One launched axis: its variable, its extent, and the loop that has the longest extent."""

    var: Var
    extent: Expr
    loop: For


@dataclass
class _Kernel:
    scope: IndexScope
    axes: dict[str, _Axis] = field(default_factory=dict)
    mapping: dict[Var, Expr] = field(default_factory=dict)
    varying: set[Var] = field(default_factory=set)
    buffers: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = field(default_factory=dict)
    spread: dict[Buffer, set[frozenset[str]]] = field(default_factory=dict)

    def lower(self, s: Stmt) -> Stmt:
        """One kernel in thread form."""
        for inner in walk_stmt(s):
            if isinstance(inner, For) and inner.kind == "thread":
                self._add_axis(inner)
            if isinstance(inner, Allocate) and has_threads(inner, "blockIdx"):
                raise ThreadError(
                    f"{inner.buffer.name} is computed between two loops over blocks, which share no memory but global",
                    help="compute it inside all loops bound to blockIdx, or at root in global memory",
                )
        self.spread = _spread(s)
        body = self._stmt(s, (), ())
        names = (*BLOCK_AXES, *THREAD_AXES)
        chain = tuple(
            For(self.axes[tag].var, const(0), self.axes[tag].extent, "thread", body, tag)
            for tag in names
            if tag in self.axes
        )
        if not chain:
            chain = (For(Var("block"), const(0), const(1), "thread", body, "blockIdx.x"),)
        return with_axes(chain, body)

    def _add_axis(self, loop: For) -> None:
        tag = loop.thread or ""
        known = self.axes.get(tag)
        if known is None:
            self.axes[tag] = axis = _Axis(Var(loop.var.name, loop.var.dtype), loop.extent, loop)
            if not tag.startswith("blockIdx"):
                self.varying.add(axis.var)
            return
        old, new = literal(known.extent), literal(loop.extent)
        if old is not None and new is not None:
            if new > old:
                known.extent, known.loop = loop.extent, loop
        elif self.scope.prove(EQ(known.extent, loop.extent, dtypes.bool_)) is not True:
            raise ThreadError(
                f"{tag}: the loops {known.loop.var.name} and {loop.var.name} of one kernel run to {known.extent!r} and"
                f" {loop.extent!r}, of which neither is known to be the longer",
                help="split by a constant and bind the inner loop, so that both extents are constants",
            )

    # ------------------------------------------------------------------------------------------------- statements

    def _stmt(self, s: Stmt, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        if isinstance(s, Seq):
            return seq(*[self._stmt(x, active, guards) for x in s.stmts])
        if isinstance(s, For):
            return self._loop(s, active, guards)
        if isinstance(s, If):
            return self._condition(s, active, guards)
        if isinstance(s, Allocate):
            return self._allocate(s, active, guards)
        if isinstance(s, LetStmt) and not (guards and self._is_step(s.body)):
            return self._let(s, active, guards)
        return self._leaf(s, active, guards)

    def _loop(self, s: For, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        begin, extent = self._expr(s.begin), self._expr(s.extent)
        if s.kind == "thread":
            return self._thread_loop(s, begin, extent, active, guards)
        if self._varies(begin) or self._varies(extent):
            if has_threads(s.body):
                raise ThreadError(
                    f"the loop {s.var.name} has thread loops inside and runs to {s.extent!r}, which differs between"
                    " threads",
                    help="bind loops outside it only",
                )
            return self._leaf(s, active, guards)
        body = self._stmt(s.body, active, guards)
        kind = "serial" if s.kind == "parallel" else s.kind
        return For(s.var, begin, extent, kind, body, None, s.pragmas)

    def _thread_loop(self, s: For, begin: Expr, extent: Expr, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        tag = s.thread or ""
        axis = self.axes[tag]
        outer = dict(active).get(tag)
        size, launched = literal(extent), literal(axis.extent)
        if outer is not None and (literal(outer.extent) or 0) < (size or 0):
            raise ThreadError(
                f"{tag}: the loop {s.var.name} runs over {size} threads inside the loop {outer.var.name} over"
                f" {literal(outer.extent)} of the same threads",
                help=f"split {s.var.name} by {literal(outer.extent)} and bind the inner loop, or bind {outer.var.name}"
                " to as many threads",
            )
        self.mapping[s.var] = axis.var if literal(begin) == 0 else self.scope.simplify(begin + axis.var)
        if size is not None and launched is not None and size < launched:
            guards = (*guards, LT(axis.var, extent, dtypes.bool_))
        elif size is None and axis.loop is not s and axis.extent is not s.extent:
            guards = (*guards, LT(axis.var, extent, dtypes.bool_))
        return self._stmt(s.body, active if outer is not None else (*active, (tag, s)), guards)

    def _condition(self, s: If, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        condition = self._expr(s.condition)
        if not self._varies(condition):
            otherwise = None if s.otherwise is None else self._stmt(s.otherwise, active, guards)
            return If(condition, self._stmt(s.then, active, guards), otherwise)
        if any(isinstance(e, Load) for e in walk_expr(condition)) and not self._is_step(s):
            flag = Var("flag", dtypes.bool_)
            value = condition
            if guards:
                value = IfThenElse(conjunction(guards), condition, const(False), dtypes.bool_)
            self.varying.add(flag)
            return LetStmt(flag, value, self._branches(s, flag, active, guards))
        return self._branches(s, condition, active, guards)

    def _branches(self, s: If, condition: Expr, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        then = self._stmt(s.then, active, (*guards, condition))
        if s.otherwise is None:
            return then
        return seq(then, self._stmt(s.otherwise, active, (*guards, Not(condition, dtypes.bool_))))

    def _let(self, s: LetStmt, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        value = self._expr(s.value)
        if guards and any(isinstance(e, Load) for e in walk_expr(value)):
            zero = const(False) if value.dtype.is_bool else const(0, value.dtype)
            value = IfThenElse(conjunction(guards), value, zero, value.dtype)
        if self._varies(value):
            self.varying.add(s.var)
        return LetStmt(s.var, value, self._stmt(s.body, active, guards))

    def _allocate(self, s: Allocate, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        old = s.buffer
        private = tuple(tag for tag, _ in active if not tag.startswith("blockIdx"))
        scope = old.scope
        leading: tuple[Expr, ...] = ()
        places: tuple[Expr, ...] = ()
        if old.scope not in ("shared", "warp"):
            alone = all(p == frozenset(private) for p in self.spread.get(old, ()))
            scope = (old.scope if old.scope in ("register", "fragment") else "local") if alone else "shared"
            kept = [tag for tag in private if not alone or tag.startswith("vthread")]
            leading = tuple(self.axes[tag].extent for tag in kept)
            places = tuple(self.axes[tag].var for tag in kept)
        if scope == old.scope and not leading:
            self.buffers.pop(old, None)
            return Allocate(old, self._stmt(s.body, active, guards))
        new = Buffer(old.name, (*leading, *map(self._expr, old.shape)), old.dtype, scope)
        self.buffers[old] = (new, places)
        return Allocate(new, self._stmt(s.body, active, guards))

    def _leaf(self, s: Stmt, active: Active, guards: tuple[Expr, ...]) -> Stmt:
        """A statement that runs whole in each thread, in all the threads that it stands for."""
        here = {tag for tag, _ in active}
        if any(is_matrix(x) for x in walk_stmt(s)):
            self._require_warp(s, here, guards)
            here = here | {"threadIdx.x"}
        alone = [
            EQ(axis.var, const(0, axis.var.dtype), dtypes.bool_)
            for tag, axis in self.axes.items()
            if tag not in here and not tag.startswith("vthread") and literal(axis.extent) != 1
        ]
        body = self._rewritten(s)
        conditions = (*alone, *guards)
        if conditions:
            body = If(conjunction(conditions), body)
        for tag, axis in self.axes.items():
            if tag.startswith("vthread") and tag in here:
                turn = Var(axis.var.name, axis.var.dtype)
                body = For(turn, const(0), axis.extent, "unrolled", _replaced(body, {axis.var: turn}))
        return body

    def _require_warp(self, s: Stmt, here: set[str], guards: tuple[Expr, ...]) -> None:
        """A matrix instruction stands where all lanes of a warp come."""
        axis = self.axes.get("threadIdx.x")
        lanes = None if axis is None else literal(axis.extent)
        help = f"bind a loop of {LANES} values to threadIdx.x where the tiles are fetched, and to none around them"
        if axis is None or lanes != LANES:
            runs = "is not there" if axis is None else f"runs over {axis.extent!r} threads"
            raise ThreadError(
                f"a matrix instruction is what the {LANES} lanes of a warp do, but threadIdx.x {runs}", help=help
            )
        if "threadIdx.x" in here or any(n is axis.var for g in guards for n in walk_expr(g)):
            raise ThreadError(
                f"a matrix instruction is what the {LANES} lanes of a warp do, but it stands in a loop over them,"
                f" {axis.loop.var.name}", help=help,
            )  # fmt: skip
        if not is_matrix(s):
            raise ThreadError(f"a matrix instruction stands in a loop that differs between threads:\n{s!r}", help=help)

    # ------------------------------------------------------------------------------------------------ expressions

    def _rewritten(self, s: Stmt) -> Stmt:
        def on_store(x: Stmt) -> Stmt:
            if isinstance(x, Store) and x.buffer in self.buffers:
                buffer, places = self.buffers[x.buffer]
                return Store(buffer, (*places, *x.indices), x.value, x.predicate)
            if isinstance(x, For) and x.kind == "parallel":
                return For(x.var, x.begin, x.extent, "serial", x.body, None, x.pragmas)
            if isinstance(x, Allocate) and x.buffer.scope == "global":
                new = Buffer(x.buffer.name, x.buffer.shape, x.buffer.dtype, "local")
                return Allocate(new, rewrite_stmt(x.body, buffer=lambda b: new if b is x.buffer else b))
            return x

        return rewrite_stmt(s, expr=self._expr, stmt=on_store)

    def _expr(self, e: Expr) -> Expr:
        def rule(n: Expr) -> Expr:
            if isinstance(n, Var):
                return self.mapping.get(n, n)
            if isinstance(n, Load) and n.buffer in self.buffers:
                buffer, places = self.buffers[n.buffer]
                return Load(buffer, (*places, *n.indices), n.dtype, n.predicate)
            return n

        return rewrite_expr(e, rule)

    def _varies(self, e: Expr) -> bool:
        """Whether a value may differ between the threads of a block."""
        return any(n in self.varying or isinstance(n, Load) for n in walk_expr(e))

    @staticmethod
    def _is_step(s: Stmt) -> bool:
        """Whether a statement is one step of one thread: nothing in it is allocated for, or bound to, threads."""
        return not any(isinstance(x, Allocate) or (isinstance(x, For) and x.kind == "thread") for x in walk_stmt(s))


def _replaced(s: Stmt, mapping: dict[Var, Expr]) -> Stmt:
    return rewrite_stmt(s, expr=lambda e: rewrite_expr(e, lambda n: mapping.get(n, n) if isinstance(n, Var) else n))


def _spread(s: Stmt) -> dict[Buffer, set[frozenset[str]]]:
    """For each buffer allocated in `s`, the sets of thread axes under which it is touched."""
    found: dict[Buffer, set[frozenset[str]]] = {}

    def touch(buffer: Buffer, active: frozenset[str]) -> None:
        if buffer in found:
            found[buffer].add(active)

    def visit(x: Stmt, active: frozenset[str]) -> None:
        if isinstance(x, Allocate):
            found[x.buffer] = set()
        if isinstance(x, Store):
            touch(x.buffer, active)
        for e in stmt_exprs(x):
            for n in walk_expr(e):
                if isinstance(n, Load):
                    touch(n.buffer, active)
        tag = x.thread or "" if isinstance(x, For) and x.kind == "thread" else ""
        inner = active | {tag} if tag and not tag.startswith("blockIdx") else active
        for child in sub_stmts(x):
            visit(child, inner)

    visit(s, frozenset())
    return found
