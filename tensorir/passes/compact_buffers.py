"""Shrinks each internal buffer to the part that is touched while it is alive.

    for io in 0..4:                           for io in 0..4:
      alloc B[100]                              alloc B[10]
      for i in 0..10:                    →      for i in 0..10:
        B[io * 10 + i] = A[io * 10 + i]           B[i] = A[io * 10 + i]
      ...                                       ...

The part is the hull of all accesses inside the allocation, over the loops inside it; indices are taken relative to
its begin. The size is a constant where the loops are, else an expression over dimension symbols; a dimension whose
hull is not found, or is no smaller, stays whole.
"""

from __future__ import annotations

from tensorir.buffer import AlignedBuffer, Buffer
from tensorir.expr import Expr, Load, Var
from tensorir.matrix import COLUMN, ROW
from tensorir.passes.accesses import Access, bind_loops, collect_accesses
from tensorir.passes.linear import Form, IndexScope
from tensorir.passes.thread_axes import BLOCK_AXES
from tensorir.stmt import Allocate, For, Func, LetStmt, Stmt, Store
from tensorir.visit import rewrite_expr, rewrite_stmt, walk_expr, walk_stmt, with_body


def compact_buffers(func: Func) -> Func:
    """`func` with internal buffers no larger than their hulls."""
    allocations = [s for s in walk_stmt(func.body) if isinstance(s, Allocate)]
    if not allocations:
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)
    dims = frozenset(func.dims)
    plans: dict[Buffer, tuple[Buffer, tuple[Expr | None, ...]]] = {}
    threads = frozenset(
        s.var for s in walk_stmt(func.body) if isinstance(s, For) and s.kind == "thread" and s.thread not in BLOCK_AXES
    )
    for allocation in allocations:
        plan = _plan(allocation, scope, dims, threads)
        if plan is not None:
            plans[allocation.buffer] = plan
    if not plans:
        return func

    def index(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        new, begins = plans[buffer]
        moved = [i if b is None else scope.simplify(i - b) for i, b in zip(indices, begins, strict=True)]
        return new, tuple(moved)

    def rule(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in plans:
            buffer, indices = index(e.buffer, e.indices)
            return Load(buffer, indices, e.dtype, e.predicate)
        return e

    memo: dict[Expr, Expr] = {}

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer in plans:
            buffer, indices = index(s.buffer, s.indices)
            return Store(buffer, indices, s.value, s.predicate)
        if isinstance(s, Allocate) and s.buffer in plans:
            return Allocate(plans[s.buffer][0], s.body)
        return s

    return with_body(func, rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, rule, memo), stmt=stmt))


def _plan(
    allocation: Allocate, scope: IndexScope, dims: frozenset[Expr], threads: frozenset[Var]
) -> tuple[Buffer, tuple[Expr | None, ...]] | None:
    """The smaller buffer and the begin of each dimension (None: as it was); None if nothing shrinks."""
    buffer = allocation.buffer
    accesses = [a for a in collect_accesses(allocation.body) if a.buffer is buffer]
    if not accesses or any(a.whole for a in accesses):
        return None
    inner: set[Expr] = {ROW, COLUMN}
    if buffer.scope == "shared":  # one for all the threads of a block
        inner |= threads
    for s in walk_stmt(allocation.body):
        if isinstance(s, (For, LetStmt)):
            inner.add(s.var)
    shape: list[Expr] = []
    begins: list[Expr | None] = []
    for axis, extent in enumerate(buffer.shape):
        found = _hull(accesses, axis, frozenset(inner), scope)
        size = None if found is None else _size(found[0], found[1], extent, scope, dims)
        if found is None or size is None:
            shape.append(extent)
            begins.append(None)
        else:
            shape.append(size)
            begins.append(scope.to_expr(found[0], extent.dtype))
    if all(b is None for b in begins):
        return None
    if isinstance(buffer, AlignedBuffer):
        aligned = buffer.with_shape(tuple(shape))
        return None if aligned is None else (aligned, tuple(begins))
    return Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope), tuple(begins)


def _hull(accesses: list[Access], axis: int, inner: frozenset[Expr], scope: IndexScope) -> tuple[Form, Form] | None:
    low: Form | None = None
    high: Form | None = None
    seen: set[int] = set()
    for access in accesses:
        e = scope.simplify(access.indices[axis])
        if id(e) in seen:
            continue
        seen.add(id(e))
        form = scope.form(e)
        least, most = scope.extreme(form, inner, low=True), scope.extreme(form, inner, low=False)
        if least is None or most is None or _loads(least) or _loads(most):
            return None
        low = least if low is None else _pick(low, least, scope, low=True)
        high = most if high is None else _pick(high, most, scope, low=False)
        if low is None or high is None:
            return None
    return None if low is None or high is None else (low, high)


def _loads(form: Form) -> bool:
    return any(isinstance(n, Load) for a in form.terms for n in walk_expr(a))


def _pick(a: Form, b: Form, scope: IndexScope, *, low: bool) -> Form | None:
    """The smaller (or larger) of two bounds; None if their order is not known."""
    if scope.nonnegative(b.minus(a)):
        return a if low else b
    if scope.nonnegative(a.minus(b)):
        return b if low else a
    return None


def _size(low: Form, high: Form, extent: Expr, scope: IndexScope, dims: frozenset[Expr]) -> Expr | None:
    """The extent of a hull if it is smaller than `extent`, in constants and dimension symbols; else None."""
    size = high.minus(low).shifted(1)
    loops = frozenset(v for a in size.terms for v in scope.variables(a) if v not in dims)
    bounded = scope.extreme(size, loops, low=False) if loops else size
    if bounded is None or any(not isinstance(a, Var) or a not in dims for a in bounded.terms):
        most = scope.const_bounds(size)[1]
        if most is None:
            return None
        bounded = Form({}, most)
    old = scope.form(extent)
    if bounded.is_const and bounded.constant < 1:
        bounded = Form({}, 1)
    if scope.nonnegative(bounded.minus(old)):
        return None
    return scope.to_expr(bounded, extent.dtype)
