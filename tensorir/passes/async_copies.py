"""Asynchronous copies: made plain where a target has none, else waited for before anything reads what they fill.

    S[t] = async_copy(A[t])                    S[t] = async_copy(A[t])
    barrier()                          →       copy_commit()
    C[t] = S[31 - t]                           copy_wait(0)
                                               barrier()
                                               C[t] = S[31 - t]

A thread waits for its own copies; the barrier behind the wait tells all others. So a wait stands before each barrier
that copies come to, and before a read of the same element by the same thread without one. With two copies of a tile
(`double_buffer`) the wait and the barrier are at the start of an iteration, before the next copies begin: those run
while the threads compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorir import dtypes
from tensorir.expr import Call, Expr, const
from tensorir.interpreter.kernels import is_asynchronous
from tensorir.passes.accesses import bind_loops
from tensorir.passes.conflicts import Conflicts, Touch
from tensorir.passes.linear import IndexScope
from tensorir.passes.thread_axes import is_barrier, map_kernels, peel_axes, with_axes
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.target import Target
from tensorir.visit import rewrite_expr, rewrite_stmt, stmt_exprs, walk_expr, walk_stmt, with_body

COMMIT = Evaluate(Call("copy_commit", (), dtypes.int32))
WAIT = Evaluate(Call("copy_wait", (const(0, "int32"),), dtypes.int32))

Pending = tuple[tuple[Touch, frozenset[Expr]], ...]


def plain_copies(func: Func, target: Target) -> Func:
    """`func` with asynchronous copies only where the target has them: stores to shared memory of what is copied."""
    if not any(isinstance(n, Call) and n.name == "async_copy" for s in walk_stmt(func.body) for n in _exprs(s)):
        return func

    def plain(e: Expr) -> Expr:
        return rewrite_expr(e, lambda n: n.args[0] if isinstance(n, Call) and n.name == "async_copy" else n)

    def stmt(s: Stmt) -> Stmt:
        if not isinstance(s, Store):
            return s
        kept = target.async_copies and is_asynchronous(s) and s.buffer.scope == "shared"
        return s if kept else Store(s.buffer, s.indices, plain(s.value), s.predicate)

    return with_body(func, rewrite_stmt(func.body, stmt=stmt))


def _exprs(s: Stmt) -> list[Expr]:
    return [n for e in stmt_exprs(s) for n in walk_expr(e)]


def insert_waits(func: Func) -> Func:
    """`func`, in thread form with its barriers, with the waits that its asynchronous copies need."""
    if not any(is_asynchronous(s) for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)

    def kernel(s: Stmt) -> Stmt:
        axes, body = peel_axes(s)
        threads = [a for a in axes if (a.thread or "").startswith("threadIdx")]
        return with_axes(axes, _Waits(Conflicts(scope, threads, body)).visit(body, (), frozenset())[0])

    return with_body(func, map_kernels(func.body, kernel))


@dataclass(frozen=True, slots=True)
class _Waits:
    """The walk. What is pending are the copies that may not be done, each with the loops of which it knows the
    iteration."""

    conflicts: Conflicts

    def visit(self, s: Stmt, pending: Pending, common: frozenset[Expr]) -> tuple[Stmt, Pending]:
        """The statement with its waits, and what is pending after it; `common` are the loops around."""
        if isinstance(s, Seq):
            done: list[Stmt] = []
            for child in s.stmts:
                new, pending = self.visit(child, pending, common)
                done.append(new)
            return seq(*done), pending
        if isinstance(s, For):
            body, after = self.visit(s.body, pending, common | {s.var})
            carried = tuple((touch, known - {s.var}) for touch, known in after if (touch, known) not in pending)
            if carried:
                body, after = self.visit(s.body, (*pending, *carried), common | {s.var})
                carried = tuple((touch, known - {s.var}) for touch, known in after)
            new = For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
            return new, _joined(pending, carried)
        if isinstance(s, If):
            waits = self._reads(Evaluate(s.condition), pending, common)
            before = () if waits else pending
            then, after = self.visit(s.then, before, common)
            otherwise, other = (None, before) if s.otherwise is None else self.visit(s.otherwise, before, common)
            return _behind_wait(If(s.condition, then, otherwise), waits), _joined(after, other)
        if isinstance(s, Allocate):
            body, after = self.visit(s.body, pending, common)
            return Allocate(s.buffer, body), tuple(x for x in after if x[0].access.buffer is not s.buffer)
        if isinstance(s, LetStmt):
            waits = self._reads(Evaluate(s.value), pending, common)
            body, after = self.visit(s.body, () if waits else pending, common)
            return _behind_wait(LetStmt(s.var, s.value, body), waits), after
        if is_barrier(s):
            return _behind_wait(s, bool(pending)), ()
        if is_asynchronous(s):
            begun = tuple((touch, common) for touch in self.conflicts.touches(s) if touch.access.write)
            return s, (*pending, *begun)
        waits = self._reads(s, pending, common)
        return _behind_wait(s, waits), () if waits else pending

    def _reads(self, s: Stmt, pending: Pending, common: frozenset[Expr]) -> bool:
        """Whether a statement touches what a copy of its own thread may still fill."""
        if not pending:
            return False
        touched = self.conflicts.touches(s)
        return any(self.conflicts.may_alias(x, y, known & common) for x, known in pending for y in touched)


def _joined(a: Pending, b: Pending) -> Pending:
    return (*a, *(x for x in b if not any(x[0] is y[0] and x[1] == y[1] for y in a)))


def _behind_wait(s: Stmt, waits: bool) -> Stmt:
    return seq(COMMIT, WAIT, s) if waits else s
