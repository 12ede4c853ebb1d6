"""Moves each allocation inward, to the innermost loop that encloses every access to it.

    alloc acc[56]                          for i in 0..8:
    for i in 0..8:                           alloc acc[56]
      for j in 0..7:                →        for j in 0..7:
        acc[i * 7 + j] = A[i, j]               acc[i * 7 + j] = A[i, j]
      for j in 0..7:                         for j in 0..7:
        B[i, j] = acc[i * 7 + j]               B[i, j] = acc[i * 7 + j]

A loop is entered only if no iteration needs what an earlier one left behind: each read is of the block's own
reduction (whose loops lie inside) or provably inside a box that the same iteration wrote before. It runs on blocks,
because a block says which of its variables reduce; `compact_buffers` then shrinks the buffer.
"""

from __future__ import annotations

from tensorir.buffer import Buffer
from tensorir.expr import Const, Expr
from tensorir.passes.accesses import Access, bind_loops, collect_accesses
from tensorir.passes.linear import IndexScope
from tensorir.stmt import Allocate, Block, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import free_vars, rewrite_stmt, walk_stmt, with_body


def sink_allocations(func: Func) -> Func:
    """`func` with every allocation as deep as its accesses allow."""
    body = func.body
    buffers: list[Buffer] = []
    for s in walk_stmt(body):
        if isinstance(s, Allocate):
            buffers.append(s.buffer)
    if not buffers:
        return func
    scope = IndexScope(func.dims)
    bind_loops(body, scope)
    for buffer in reversed(buffers):
        body = _sink(body, buffer, scope)
    return with_body(func, body)


def _sink(root: Stmt, buffer: Buffer, scope: IndexScope) -> Stmt:
    def at(s: Stmt) -> Stmt:
        if not (isinstance(s, Allocate) and s.buffer is buffer):
            return s
        accesses = [a for a in collect_accesses(s.body) if a.buffer is buffer]
        if not accesses:
            return s.body
        placed = _place(s.body, buffer, accesses, 0, scope)
        if isinstance(placed, Allocate) and placed.buffer is buffer and placed.body is s.body:
            return s
        return placed

    return rewrite_stmt(root, stmt=at)


def _place(s: Stmt, buffer: Buffer, accesses: list[Access], depth: int, scope: IndexScope) -> Stmt:
    """`s` with the allocation put at the deepest legal place; `depth` is the position of `s` on the paths."""
    positions = {a.path[depth][1] for a in accesses if len(a.path) > depth and a.path[depth][0] is s}
    direct = any(len(a.path) <= depth + 1 for a in accesses)
    if isinstance(s, Seq):
        first, last = min(positions), max(positions)
        if first == last:
            inner = _place(s.stmts[first], buffer, accesses, depth + 1, scope)
            return seq(*s.stmts[:first], inner, *s.stmts[first + 1 :])
        if first == 0 and last == len(s.stmts) - 1:
            return Allocate(buffer, s)
        return seq(*s.stmts[:first], Allocate(buffer, seq(*s.stmts[first : last + 1])), *s.stmts[last + 1 :])
    if direct or isinstance(s, Block):
        return Allocate(buffer, s)
    if isinstance(s, For):
        if any(s.var is v for e in buffer.shape for v in free_vars(e)) or not _independent(accesses, s, depth, scope):
            return Allocate(buffer, s)
        body = _place(s.body, buffer, accesses, depth + 1, scope)
        return For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
    if isinstance(s, If) and len(positions) == 1:
        inner = _place((s.then, s.otherwise)[min(positions)], buffer, accesses, depth + 1, scope)  # type: ignore[arg-type]
        return If(s.condition, inner, s.otherwise) if 0 in positions else If(s.condition, s.then, inner)
    if isinstance(s, LetStmt):
        return LetStmt(s.var, s.value, _place(s.body, buffer, accesses, depth + 1, scope))
    if isinstance(s, Allocate):
        return Allocate(s.buffer, _place(s.body, buffer, accesses, depth + 1, scope))
    return Allocate(buffer, s)


def _independent(accesses: list[Access], loop: For, depth: int, scope: IndexScope) -> bool:
    """True if each iteration of `loop` reads only what it wrote itself."""
    if loop.kind == "vectorized" or any(a.whole for a in accesses):
        return False
    writes = [a for a in accesses if a.write]
    for w in writes:
        if (
            w.block is not None
            and any(v is loop.var for v in _reduce_vars(w.block))
            and (w.block.init is not None or any(r.block is w.block for r in accesses if not r.write))
        ):
            return False
    for r in accesses:
        if r.write:
            continue
        if r.block is not None and r.block.init is not None and any(w.block is r.block for w in writes):
            continue
        if not any(_covers(w, r, depth, scope) for w in writes):
            return False
    return True


def _reduce_vars(block: Block) -> list[Expr]:
    return [v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)]


def _covers(w: Access, r: Access, depth: int, scope: IndexScope) -> bool:
    """True if, in one iteration around `depth`, the write provably comes first and fills all that is read."""
    fork = depth
    while (
        fork < min(len(w.path), len(r.path))
        and w.path[fork][0] is r.path[fork][0]
        and w.path[fork][1] == r.path[fork][1]
    ):
        fork += 1
    if fork >= min(len(w.path), len(r.path)) or w.path[fork][0] is not r.path[fork][0]:
        return False
    if not isinstance(w.path[fork][0], Seq) or w.path[fork][1] > r.path[fork][1]:
        return False
    inner = frozenset(loop.var for loop in w.loops_below(fork))
    if any(isinstance(s, If) for s, _ in w.path[fork:]):
        return False
    opaque = w.block is None or any(i.kind == "opaque" for i in w.block.iters) or not w.block.iters
    if opaque and w.conditions and not all(_is_true(c, scope) for c in w.conditions):
        return False
    if w.block is not None and any(v not in inner for v in _reduce_vars(w.block)):
        return False
    with scope.assume(*r.conditions):
        used: set[int] = set()
        for iw, ir in zip(w.indices, r.indices, strict=True):
            form, wanted = scope.form(iw), scope.form(ir)
            if opaque and not _is_dense(form.terms, inner, scope, used):
                return False
            low = scope.extreme(form, inner, low=True)
            high = scope.extreme(form, inner, low=False)
            if low is None or high is None:
                return False
            if not (scope.nonnegative(wanted.minus(low)) and scope.nonnegative(high.minus(wanted))):
                return False
    return True


def _is_true(condition: Expr, scope: IndexScope) -> bool:
    return (isinstance(condition, Const) and bool(condition.value)) or scope.prove(scope.simplify(condition)) is True


def _is_dense(terms: dict[Expr, int], inner: frozenset[Expr], scope: IndexScope, used: set[int]) -> bool:
    """True if the index takes every value between its bounds: at most one inner variable, once, of step 1."""
    mine = [a for a in terms if not scope.variables(a).isdisjoint(inner)]
    if not mine:
        return True
    if len(mine) > 1 or mine[0] not in inner or abs(terms[mine[0]]) != 1 or id(mine[0]) in used:
        return False
    used.add(id(mine[0]))
    return True
