"""What the passes for GPUs know of a kernel: its thread axes, its conditions on them, and where kernels stand.

A kernel in thread form is a chain of thread loops, blockIdx axes first, around what one thread does:

    for b in 0..7 thread blockIdx.x:
      for t in 0..32 thread threadIdx.x:
        <statements of one thread, with barriers>
"""

from __future__ import annotations

from collections.abc import Callable

from tensorir.errors import UserError
from tensorir.expr import Call, Const, Expr
from tensorir.stmt import Allocate, Evaluate, For, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import walk_stmt

BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class ThreadError(UserError):
    """Loops bound to threads that no kernel can run."""


def is_thread_loop(s: Stmt) -> bool:
    """True for a loop bound to a block or thread axis or to virtual threads."""
    return isinstance(s, For) and s.kind == "thread"


def has_threads(s: Stmt, prefix: str = "") -> bool:
    """Whether a loop bound to an axis that starts with `prefix` stands in `s`."""
    return any(isinstance(x, For) and x.kind == "thread" and (x.thread or "").startswith(prefix) for x in walk_stmt(s))


def is_barrier(s: Stmt) -> bool:
    """True for the statement at which the threads of a block wait for each other."""
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name == "barrier"


def map_kernels(s: Stmt, kernel: Callable[[Stmt], Stmt]) -> Stmt:
    """A statement of the host with each kernel replaced. What holds no kernel, and a nest without thread loops, is a
    kernel of one thread; host loops, conditions and allocations are those that have block loops inside."""
    if isinstance(s, Seq):
        return seq(*[map_kernels(x, kernel) for x in s.stmts])
    if isinstance(s, Allocate) and s.buffer.scope != "shared":
        return Allocate(s.buffer, map_kernels(s.body, kernel))
    if isinstance(s, LetStmt):
        return LetStmt(s.var, s.value, map_kernels(s.body, kernel))
    if not is_thread_loop(s) and has_threads(s, "blockIdx"):
        if isinstance(s, For):
            return For(s.var, s.begin, s.extent, "serial", map_kernels(s.body, kernel), None, s.pragmas)
        if isinstance(s, If):
            otherwise = None if s.otherwise is None else map_kernels(s.otherwise, kernel)
            return If(s.condition, map_kernels(s.then, kernel), otherwise)
    return kernel(s)


def peel_axes(s: Stmt) -> tuple[tuple[For, ...], Stmt]:
    """The thread loops of a kernel in thread form, and what one thread does."""
    axes: list[For] = []
    while isinstance(s, For) and s.kind == "thread":
        axes.append(s)
        s = s.body
    return tuple(axes), s


def with_axes(axes: tuple[For, ...], body: Stmt) -> Stmt:
    """The kernel with another body."""
    for axis in reversed(axes):
        body = axis if axis.body is body else For(axis.var, axis.begin, axis.extent, "thread", body, axis.thread)
    return body


def literal(e: Expr) -> int | None:
    """The value of a whole-number literal."""
    return int(e.value) if isinstance(e, Const) and e.dtype.is_integer else None
