"""Barriers between statements of which one thread may touch what another thread touched before: none missing, none
needless.

    S[t] = A[t]                       S[t] = A[t]
    C[t] = S[31 - t]           →      barrier()
                                      C[t] = S[31 - t]

A kernel in thread form means, so far, that each statement runs for all threads of a block before the next. Two
statements need a barrier between them if they may touch one element of shared (or of written global) memory, one of
them writing it, from different threads. They do not if some index is never equal, or if equal indices mean the same
thread. A sequence gets its barriers as late as possible; a loop whose next iteration meets what the last one left gets
one at the start of its body.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorir import dtypes
from tensorir.expr import Call, Const, Expr
from tensorir.passes.accesses import bind_loops
from tensorir.passes.conflicts import Conflicts, Touch
from tensorir.passes.linear import IndexScope
from tensorir.passes.thread_axes import is_barrier, map_kernels, peel_axes, with_axes
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import walk_stmt, with_body

BARRIER = Evaluate(Call("barrier", (), dtypes.int32))


def insert_barriers(func: Func) -> Func:
    """`func`, in thread form, with barriers."""
    if any(is_barrier(s) for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)

    def kernel(s: Stmt) -> Stmt:
        axes, body = peel_axes(s)
        threads = [a for a in axes if (a.thread or "").startswith("threadIdx") and not _is_one(a.extent)]
        if not threads:
            return s
        return with_axes(axes, _Barriers(scope, threads, body).stmt(body, frozenset()).stmt)

    return with_body(func, map_kernels(func.body, kernel))


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


@dataclass(frozen=True, slots=True)
class _Summary:
    """A statement with its barriers: what it touches before its first and after its last one, and whether every way
    through it meets one."""

    stmt: Stmt
    entry: list[Touch]
    exit: list[Touch]
    always: bool


class _Barriers:
    def __init__(self, scope: IndexScope, threads: list[For], body: Stmt) -> None:
        self.conflicts = Conflicts(scope, threads, body)

    # ------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt, common: frozenset[Expr]) -> _Summary:
        if isinstance(s, Seq):
            return self._sequence(s, common)
        if isinstance(s, For):
            return self._loop(s, common)
        if isinstance(s, Allocate):
            inner = self.stmt(s.body, common)
            return _with(inner, s if inner.stmt is s.body else Allocate(s.buffer, inner.stmt))
        if isinstance(s, LetStmt):
            head = self.conflicts.touches(Evaluate(s.value))
            inner = self.stmt(s.body, common)
            body = inner.stmt
            if self.conflicts.meets(head, inner.entry, common):
                body, inner = seq(BARRIER, body), _Summary(inner.stmt, [], inner.exit, True)
            new = s if body is s.body else LetStmt(s.var, s.value, body)
            last = inner.exit if inner.always else [*head, *inner.exit]
            return _Summary(new, [*head, *inner.entry], last, inner.always)
        if isinstance(s, If) and not self.conflicts.is_divergent(s.condition):
            return self._branches(s, common)
        touches = self.conflicts.touches(s)
        return _Summary(s, touches, touches, False)

    def _sequence(self, s: Seq, common: frozenset[Expr]) -> _Summary:
        done: list[Stmt] = []
        entry: list[Touch] = []
        pending: list[Touch] = []
        met = False
        for child in s.stmts:
            part = self.stmt(child, common)
            if self.conflicts.meets(pending, part.entry, common):
                done.append(BARRIER)
                pending, met = [], True
            if not met:
                entry.extend(part.entry)
            pending = list(part.exit) if part.always else [*pending, *part.exit]
            met = met or part.always
            done.append(part.stmt)
        same = len(done) == len(s.stmts) and all(a is b for a, b in zip(done, s.stmts, strict=True))
        return _Summary(s if same else seq(*done), entry, pending, met)

    def _loop(self, s: For, common: frozenset[Expr]) -> _Summary:
        if self.conflicts.is_divergent(s.begin) or self.conflicts.is_divergent(s.extent):
            touches = self.conflicts.touches(s)
            return _Summary(s, touches, touches, False)
        inner = self.stmt(s.body, common | {s.var})
        body, entry, always = inner.stmt, inner.entry, inner.always
        if not _is_one(s.extent) and self.conflicts.meets(inner.exit, inner.entry, common, s.var):
            body, entry, always = seq(BARRIER, body), [], True
        new = s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
        runs = isinstance(s.extent, Const) and int(s.extent.value) > 0
        return _Summary(new, entry, inner.exit, always and runs)

    def _branches(self, s: If, common: frozenset[Expr]) -> _Summary:
        then = self.stmt(s.then, common)
        if s.otherwise is None:
            new = s if then.stmt is s.then else If(s.condition, then.stmt)
            return _Summary(new, then.entry, then.exit, False)
        other = self.stmt(s.otherwise, common)
        same = then.stmt is s.then and other.stmt is s.otherwise
        new = s if same else If(s.condition, then.stmt, other.stmt)
        return _Summary(new, [*then.entry, *other.entry], [*then.exit, *other.exit], then.always and other.always)


def _with(summary: _Summary, s: Stmt) -> _Summary:
    return _Summary(s, summary.entry, summary.exit, summary.always)
