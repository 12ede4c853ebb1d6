"""Loops that form one block with what they enclose: what `blockize` marks and `tensorize` replaces.

    for i_o in 0..4:                       for i_o in 0..4:
      for i_i in 0..8:                →      block C(v_i_o = i_o):
        block C(v = i_o*8 + i_i)               for i_i in 0..8: C[v_i_o*8 + i_i] = ...

The block's own variables are the loops around it; its regions are the hulls over the loops in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedule.region import index_range
from schedule.state import Loop, Unit
from tensorir.arith import Analyzer
from tensorir.buffer import Range, Region
from tensorir.expr import Const, Expr, IterVar, Var, const, logical_and
from tensorir.passes.linear import conjuncts
from tensorir.stmt import Block, For, If, Stmt, seq
from tensorir.visit import free_vars, substitute, substitute_stmt

if TYPE_CHECKING:
    from schedule.analysis import Placed


def loops_in(placed: Placed, unit: Unit) -> tuple[Loop, ...]:
    """The loops that stand in the block."""
    return placed.nest.loops[placed.nest.position(unit.loop) :]


def split_guard(condition: Expr, inner: Sequence[Loop]) -> tuple[Expr, Expr]:
    """The part of a guard that asks about the loops around the block, and the part about those in it."""
    ids = {id(loop.var) for loop in inner}
    parts = [] if isinstance(condition, Const) and condition.value else conjuncts(condition)
    within = [c for c in parts if any(id(v) in ids for v in free_vars(c))]
    around = [c for c in parts if all(c is not w for w in within)]
    return logical_and(*around), logical_and(*within)


Implementation = Callable[[dict[Var, Expr]], Stmt]
"""Of the values of the loops around a unit as block variables: the statement that stands for all its points."""


def unit_block(
    placed: Placed, unit: Unit, block: Block, slots: tuple[Expr, ...],
    implement: Implementation | None = None, fill: Implementation | None = None,
) -> Block:  # fmt: skip
    """The block of a whole unit from the `block` of one point. `implement` gives the statement of one step of all its
    points, `fill` that of their initial values; without them both are loops over the points."""
    inner = loops_in(placed, unit)
    values = (*placed.bindings, *slots)
    around, within = split_guard(placed.guard, inner)
    _, init_within = split_guard(placed.spatial_guard, inner)
    asked = {id(v) for e in (*values, placed.guard, *(loop.extent for loop in inner)) for v in free_vars(e)}
    outer = [(loop, "spatial") for _, loop in placed.path]
    outer += [(loop, loop.kind) for loop in placed.nest.loops[: len(placed.nest.loops) - len(inner)]]
    iters: list[IterVar] = []
    bindings: list[Expr] = []
    shared: dict[Var, Expr] = {}
    for loop, kind in outer:
        if id(loop.var) in asked:
            iters.append(IterVar(Var(f"v_{loop.name}", loop.var.dtype), const(0), loop.extent, kind))
            bindings.append(loop.var)
            shared[loop.var] = iters[-1].var

    def nest(stmt: Stmt, condition: Expr, loops: Sequence[Loop]) -> Stmt:
        own = {loop.var: Var(loop.name, loop.var.dtype) for loop in loops}
        mapping: dict[Var, Expr] = {**shared, **own}
        point = {i.var: substitute(v, mapping) for i, v in zip(block.iters, values, strict=True)}
        body = substitute_stmt(stmt, point)
        if not isinstance(condition, Const):
            body = If(substitute(condition, mapping), body)
        for loop in reversed(loops):
            extent = substitute(loop.extent, mapping)
            body = For(own[loop.var], const(0), extent, loop.annotation, body, None, loop.pragmas)
        return body

    body = nest(block.body, within, inner) if implement is None else implement(shared)
    init = None
    if block.init is not None:
        spatial = [loop for loop in inner if loop.kind == "spatial"]
        init = nest(block.init, init_within, spatial) if fill is None else fill(shared)
        if not any(i.kind == "reduce" for i in iters):
            body, init = seq(init, body), None
    regions = _Hulls(block, values, shared, inner)
    return dataclasses.replace(
        block, iters=tuple(iters), bindings=tuple(bindings), predicate=around, init=init, body=body,
        reads=tuple(regions.of(r) for r in block.reads), writes=tuple(regions.of(r) for r in block.writes),
    )  # fmt: skip


class _Hulls:
    """Regions of one point as regions of all points of a unit."""

    def __init__(self, block: Block, values: tuple[Expr, ...], shared: dict[Var, Expr], inner: Sequence[Loop]) -> None:
        self.analyzer = Analyzer()
        own = {loop.var: Var(loop.name, loop.var.dtype) for loop in inner}
        mapping: dict[Var, Expr] = {**shared, **own}
        self.point = {i.var: substitute(v, mapping) for i, v in zip(block.iters, values, strict=True)}
        self.env = {own[x.var]: Range(const(0), substitute(x.extent, mapping)) for x in inner}

    def of(self, region: Region) -> Region:
        ranges = []
        for dimension, item in enumerate(region.ranges):
            found = index_range(substitute(item.begin, self.point), self.env, self.analyzer)
            whole = Range(const(0), region.buffer.shape[dimension])
            ranges.append(whole if found is None or not isinstance(found.extent, Const) else found)
        return Region(region.buffer, tuple(ranges))
