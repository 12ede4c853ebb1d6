"""The loops of one stage: its history replayed on a domain.

    domain i: 0..20, j: 0..8; history split(i, factor=8), fuse(i_i, j)
      -> loops i_o: 0..3, i_i_j: 0..64
         i = i_o*8 + i_i_j // 8, j = i_i_j % 8, guard i < 20

A step that does not apply to this domain is a `Refusal` that names the step's call as its cause.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass

from schedule.error import Refusal
from schedule.state import Annotate, Decompose, Fuse, Loop, Pragma, Prefetch, Reorder, Split, Step, Unit
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, Var, const, floordiv, floormod, less, minimum


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """A root axis of the domain: `kind` spatial or reduce, `extent` of the loop over it."""

    var: Var
    extent: Expr
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class SplitRelation:
    """parent = outer * factor + inner, where parent runs over `extent`; `guarded` where the loops run further."""

    parent: Var
    outer: Var
    inner: Var
    factor: Expr
    extent: Expr
    guarded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FuseRelation:
    """outer = fused // extent, inner = fused % extent, where inner runs over `extent` and outer over `outer_extent`."""

    outer: Var
    inner: Var
    fused: Var
    extent: Expr
    outer_extent: Expr


Relation = SplitRelation | FuseRelation


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition on the loops under which the point exists; `kind` says which axes it speaks of."""

    condition: Expr
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """The loops of a stage from the outside in; `values` gives each root variable (and each variable in between) over
    these loops; `init_before` is the loop in front of which the initial value of a reduction is stored; `unit` says
    from where on the loops are one block."""

    roots: tuple[Extent, ...]
    loops: tuple[Loop, ...]
    relations: tuple[Relation, ...]
    values: dict[Var, Expr]
    guards: tuple[Guard, ...]
    init_before: Var | None
    prefetches: tuple[Prefetch, ...] = ()
    unit: Unit | None = None

    def loop(self, var: Var) -> Loop | None:
        """The loop over `var`, if there is one."""
        return next((loop for loop in self.loops if loop.var is var), None)

    def position(self, var: Var) -> int:
        """The place of the loop over `var` from the outside, from 0."""
        return next(i for i, loop in enumerate(self.loops) if loop.var is var)


def constant(e: Expr) -> int | None:
    """The value of a literal, else None."""
    return int(e.value) if isinstance(e, Const) else None


def ceildiv(a: Expr, b: Expr) -> Expr:
    """a / b rounded up."""
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return const(-(-x // y))
    return simplify(floordiv(a + (b - 1), b))


def replay(roots: tuple[Extent, ...], history: tuple[Step, ...]) -> Nest:
    """The loops that `history` makes of a domain. Raises `Refusal`."""
    loops = [Loop(r.var, r.extent, r.kind) for r in roots]
    work = _Work(loops, [], [], None, [])
    for step in history:
        if work.unit is not None:
            _require_open(work, work.unit, step)
        _APPLY[type(step)](work, step)
    return _finish(roots, work)


@dataclass(slots=True)
class _Work:
    loops: list[Loop]
    relations: list[Relation]
    guarded: list[tuple[Var, Expr, str]]
    init_before: Var | None
    prefetches: list[Prefetch]
    unit: Unit | None = None

    def find(self, var: Var) -> int:
        return next(i for i, loop in enumerate(self.loops) if loop.var is var)


def _split(work: _Work, step: Split) -> None:
    position = work.find(step.parent)
    loop = work.loops[position]
    known = constant(loop.extent)
    if step.factor is not None:
        factor: Expr = const(step.factor if known is None else max(1, min(step.factor, known)))
        outer = ceildiv(loop.extent, factor)
        exact = _divides(loop.extent, step.factor) if known is None else known % int(factor.value) == 0  # type: ignore[attr-defined]
    else:
        assert step.nparts is not None
        outer = const(step.nparts)
        factor = ceildiv(loop.extent, outer)
        exact = known is not None and known % step.nparts == 0
        if known == 0:
            factor = const(1)
    work.loops[position : position + 1] = [
        Loop(step.outer, outer, loop.kind, pragmas=loop.pragmas),
        Loop(step.inner, factor, loop.kind),
    ]
    work.relations.append(SplitRelation(step.parent, step.outer, step.inner, factor, loop.extent, not exact))
    if not exact:
        work.guarded.append((step.parent, loop.extent, loop.kind))
    if work.init_before is step.parent:
        work.init_before = step.outer
    work.prefetches = [_moved(p, step.parent, step.inner) for p in work.prefetches]


def _divides(extent: Expr, factor: int) -> bool:
    rest = simplify(floormod(extent, factor))
    return constant(rest) == 0


def _fuse(work: _Work, step: Fuse) -> None:
    first, second = work.find(step.outer), work.find(step.inner)
    outer, inner = work.loops[first], work.loops[second]
    if second != first + 1:
        raise Refusal(
            f"{outer.name} and {inner.name} are not adjacent: {inner.name} must stand directly inside {outer.name}",
            loops=(outer.var, inner.var), help="reorder them next to each other first", cause=step.call,
        )  # fmt: skip
    extent = simplify(outer.extent * inner.extent)
    work.loops[first : second + 1] = [Loop(step.fused, extent, outer.kind)]
    work.relations.append(FuseRelation(step.outer, step.inner, step.fused, inner.extent, outer.extent))
    if work.init_before is step.outer or work.init_before is step.inner:
        work.init_before = step.fused
    work.prefetches = [_moved(_moved(p, step.outer, step.fused), step.inner, step.fused) for p in work.prefetches]


def _moved(step: Prefetch, old: Var, new: Var) -> Prefetch:
    return dataclasses.replace(step, loop=new) if step.loop is old else step


def _reorder(work: _Work, step: Reorder) -> None:
    places = sorted(work.find(v) for v in step.order)
    moved = [work.loops[work.find(v)] for v in step.order]
    for place, loop in zip(places, moved, strict=True):
        work.loops[place] = loop


def _annotate(work: _Work, step: Annotate) -> None:
    position = work.find(step.loop)
    loop = work.loops[position]
    if step.kind in ("vectorized", "unrolled") and constant(loop.extent) is None:
        word = "vectorize" if step.kind == "vectorized" else "unroll"
        raise Refusal(
            f"the loop must have a constant extent, but it runs to {loop.extent!r}", loops=(loop.var,),
            help=f"split {loop.name} by a constant first, then {word} the inner loop", cause=step.call,
        )  # fmt: skip
    work.loops[position] = dataclasses.replace(loop, annotation=step.kind, thread=step.thread)


def _pragma(work: _Work, step: Pragma) -> None:
    position = work.find(step.loop)
    loop = work.loops[position]
    kept = tuple(p for p in loop.pragmas if p[0] != step.key)
    work.loops[position] = dataclasses.replace(loop, pragmas=(*kept, (step.key, step.value)))


def _decompose(work: _Work, step: Decompose) -> None:
    work.init_before = step.loop


def _prefetch(work: _Work, step: Prefetch) -> None:
    work.prefetches.append(step)


def _unit(work: _Work, step: Unit) -> None:
    work.unit = step


def _require_open(work: _Work, unit: Unit, step: Step) -> None:
    """The loops of a block stay as they are."""
    named = [getattr(step, n) for n in ("parent", "outer", "inner", "loop") if hasattr(step, n)]
    sealed = work.loops[work.find(unit.loop) :]
    for loop in sealed:
        if any(v is loop.var for v in (*named, *getattr(step, "order", ()))):
            raise Refusal(
                f"{loop.name} is in the block that begins at loop {unit.loop.name}", loops=(loop.var,), cause=step.call,
                notes=(f"note: made one block by {unit.call}",),
                help="transform the loops first and make them a block afterwards",
            )  # fmt: skip


_APPLY: dict[type, Callable[..., None]] = {
    Split: _split,
    Fuse: _fuse,
    Reorder: _reorder,
    Annotate: _annotate,
    Pragma: _pragma,
    Decompose: _decompose,
    Prefetch: _prefetch,
    Unit: _unit,
}


def _finish(roots: tuple[Extent, ...], work: _Work) -> Nest:
    values: dict[Var, Expr] = {loop.var: loop.var for loop in work.loops}
    for relation in reversed(work.relations):
        if isinstance(relation, SplitRelation):
            values[relation.parent] = values[relation.outer] * relation.factor + values[relation.inner]
        else:
            fused = values[relation.fused]
            values[relation.outer] = floordiv(fused, relation.extent)
            values[relation.inner] = floormod(fused, relation.extent)
    guards = tuple(Guard(less(values[var], extent), kind) for var, extent, kind in work.guarded)
    return Nest(
        roots,
        tuple(work.loops),
        tuple(work.relations),
        values,
        guards,
        work.init_before,
        tuple(work.prefetches),
        work.unit,
    )


# ------------------------------------------------------------------------- ranges of axes when some loops stand still


def axis_ranges(
    nest: Nest, fixed: Collection[Var], exact: dict[Var, bool] | None = None, *, whole_axes: bool = False
) -> dict[Var, tuple[Expr, Expr]]:
    """(begin, extent) that each root variable covers while the loops of `fixed` stand still and the others run. `exact`
    takes in for each variable whether every value in between is met, whatever the other variables are; with
    `whole_axes` the end of a root is that of a tensor, behind which nobody asks for values."""
    hits: dict[Var, bool] = {} if exact is None else exact
    still = {id(v) for v in fixed}
    zero, one = const(0), const(1)
    ranges: dict[Var, tuple[Expr, Expr]] = {}
    full: dict[Var, bool] = {}
    for loop in nest.loops:
        is_still = id(loop.var) in still and constant(loop.extent) != 1
        ranges[loop.var] = (loop.var, one) if is_still else (zero, loop.extent)
        full[loop.var] = not is_still
        hits[loop.var] = True
    ends = {id(r.var) for r in nest.roots} if whole_axes else set()
    for relation in reversed(nest.relations):
        if isinstance(relation, SplitRelation):
            _split_range(relation, ranges, full, hits)
            if relation.guarded and not full[relation.parent] and id(relation.parent) not in ends:
                hits[relation.parent] = False  # beyond the guard is the part of another iteration
        else:
            _fuse_range(relation, ranges, full, hits)
    return {r.var: ranges[r.var] for r in nest.roots}


def _split_range(
    r: SplitRelation, ranges: dict[Var, tuple[Expr, Expr]], full: dict[Var, bool], exact: dict[Var, bool]
) -> None:
    full[r.parent] = full[r.outer] and full[r.inner]
    whole_rows = full[r.inner] or constant(ranges[r.outer][1]) == 1
    exact[r.parent] = exact[r.outer] and exact[r.inner] and whole_rows
    if full[r.parent]:
        ranges[r.parent] = (const(0), r.extent)
        return
    (outer_begin, outer_extent), (inner_begin, inner_extent) = ranges[r.outer], ranges[r.inner]
    extent = (outer_extent - 1) * r.factor + inner_extent
    known, limit = constant(extent), constant(r.extent)
    if known is not None and limit is not None:
        extent = const(min(known, limit))
    elif known is None:
        extent = simplify(minimum(extent, r.extent))
    ranges[r.parent] = (outer_begin * r.factor + inner_begin, extent)


def _fuse_range(
    r: FuseRelation, ranges: dict[Var, tuple[Expr, Expr]], full: dict[Var, bool], exact: dict[Var, bool]
) -> None:
    begin, extent = ranges[r.fused]
    zero, one = const(0), const(1)
    exact[r.outer] = exact[r.inner] = exact[r.fused]
    full[r.outer] = full[r.inner] = full[r.fused]
    if full[r.fused]:
        ranges[r.outer], ranges[r.inner] = (zero, r.outer_extent), (zero, r.extent)
        return
    known, inner = constant(extent), constant(r.extent)
    if known == 1:
        ranges[r.outer] = (floordiv(begin, r.extent), one)
        ranges[r.inner] = (floormod(begin, r.extent), one)
        return
    if known is not None and inner is not None and inner > 0:
        if known % inner == 0 and constant(simplify(floormod(begin, inner))) == 0:
            full[r.inner] = True
            ranges[r.outer], ranges[r.inner] = (floordiv(begin, r.extent), const(known // inner)), (zero, r.extent)
            return
        if inner % known == 0 and constant(simplify(floormod(begin, known))) == 0:
            ranges[r.outer], ranges[r.inner] = (floordiv(begin, r.extent), one), (floormod(begin, r.extent), extent)
            return
        rows = (known - 2) // inner + 2
        exact[r.outer] = exact[r.inner] = False
        ranges[r.outer], ranges[r.inner] = (floordiv(begin, r.extent), const(rows)), (zero, r.extent)
        full[r.inner] = True
        return
    exact[r.outer] = exact[r.inner] = False
    rows_expr = simplify(floordiv(extent - 2 + r.extent, r.extent) + 1)
    ranges[r.outer], ranges[r.inner] = (floordiv(begin, r.extent), rows_expr), (zero, r.extent)
    full[r.inner] = True
