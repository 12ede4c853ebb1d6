"""rfactor: a reduction in two steps, partial results first."""

from __future__ import annotations

import dataclasses

from schedule.bodies import both
from schedule.edit import Edit, LoopReference, primitive
from schedule.replay import Nest
from schedule.state import Annotate, Decompose, Fuse, Pragma, Prefetch, Reorder, Split, Stage, Step, new_stage
from tensorir.expr import Expr, IterVar, Load, Reduce, Var, const, if_then_else, logical_and
from tensorir.te import ComputeOp, Tensor
from tensorir.visit import substitute

EXACT_REDUCERS = ("max", "min", "any", "all", "argmax", "argmin")
"""Reducers whose result does not depend on the order of the elements, for floats too."""


@primitive
def rfactor(edit: Edit, loop: LoopReference, factor_axis: int = 0) -> Tensor | tuple[Tensor, ...]:
    """Makes a reduce loop of the stage a spatial axis of a new stage of partial results, which the stage then reduces;
    gives the new tensor.

        for i in 0..4:
          for k_o in 0..8:
            for k_i in 0..16: C[i] += A[i, k_o*16 + k_i]
        # CF = s[C].rfactor(k_i)
        for k_i in 0..16:
          for i in 0..4:
            for k_o in 0..8: C_rf[k_i, i] += A[i, k_o*16 + k_i]
        for i in 0..4:
          for k_i in 0..16: C[i] += C_rf[k_i, i]

    `factor_axis` is the place of the new axis among those of the partial results. The reducer must be associative and
    commutative. Integers (wrapping), max, min, any, all, argmax and argmin keep their bits; a float sum or product of n
    elements differs by at most n·eps·Σ|x|, and the call is listed in `s.state.reassociated`.
    """
    chosen = edit.loop(loop)
    stage, nest, op = edit.stage, edit.nest, edit.stage.op
    reduction = stage.reduction

    if not isinstance(op, ComputeOp) or reduction is None:
        edit.fail(f"{stage.name} is not a reduction: it has no partial results", chosen)
    edit.require(
        chosen.kind == "reduce", f"{chosen.name} is a spatial loop: each of its iterations has results of its own",
        chosen, help=f"choose one of {', '.join(x.name for x in nest.loops if x.kind == 'reduce')}",
    )  # fmt: skip
    reducer = reduction.reducer
    if not (reducer.associative and reducer.commutative):
        missing = "associative" if not reducer.associative else "commutative"
        edit.fail(
            f"the elements would be combined in another order, but the reducer {reducer.name} is not {missing}", chosen,
            help="declare the reducer associative and commutative if it is, or reduce in one step",
        )  # fmt: skip
    rank = len(op.axes)
    edit.require(
        isinstance(factor_axis, int) and -rank - 1 <= factor_axis <= rank,
        f"factor_axis {factor_axis!r} must be in 0..{rank + 1}", chosen,
    )  # fmt: skip
    edit.require(
        chosen.annotation == "serial", f"{chosen.name} is {chosen.annotation} already", chosen,
        help="call rfactor first, then annotate the loops of the partial results",
    )  # fmt: skip
    for step in stage.history:
        if isinstance(step, Prefetch):
            edit.fail("the stage prefetches what only the partial results will read", chosen, cause=step.call)
    for x in nest.loops:
        for child in edit.attached(x.var) if x.kind == "reduce" else ():
            edit.fail(f"{child.name} is computed at the reduce loop {x.name}", x, help="attach it elsewhere first")

    partial = _partial_op(edit, op, reduction, nest, chosen.var, factor_axis % (rank + 1))
    name, shape = partial.name, tuple(a.extent for a in partial.axes)
    tensors = tuple(
        Tensor(name if len(partial.bodies) == 1 else f"{name}_{i}", shape, b.dtype, "global", partial, i)
        for i, b in enumerate(partial.bodies)
    )
    roots = tuple(Var(a.name, a.var.dtype) for a in (*partial.axes, *partial.reduce_axes))
    made = new_stage(partial.name, partial, tensors, roots, False)
    made = dataclasses.replace(made, place=edit.state.first_place(stage))
    edit.state = edit.state.with_new_stage(made, before=stage)
    axis = IterVar(Var(chosen.name, chosen.var.dtype), const(0), chosen.extent, "reduce")
    point: list[Expr] = [a.var for a in op.axes]
    point.insert(factor_axis % (rank + 1), axis.var)
    sources = tuple(Load(t, tuple(point), t.dtype) for t in tensors)
    bodies = tuple(Reduce(reducer, sources, (axis,), None, i, s.dtype) for i, s in enumerate(sources))
    root = Var(chosen.name, chosen.var.dtype)
    edit.replace(
        op=dataclasses.replace(op, reduce_axes=(axis,), bodies=bodies),
        roots=(*stage.roots[:rank], root),
        history=_spatial_history(stage, nest, rank, root),
    )
    if any(s.dtype.is_float for s in sources) and reducer.name not in EXACT_REDUCERS:
        edit.state = dataclasses.replace(edit.state, reassociated=(*edit.state.reassociated, edit.call))

    return tensors if len(tensors) > 1 else tensors[0]


def _partial_op(
    edit: Edit, op: ComputeOp, reduction: Reduce, nest: Nest, factored: Var, place: int
) -> ComputeOp:  # fmt: skip
    """The compute of the partial results: the factored loop is an axis, the other reduce loops are its reduce axes."""
    spatial = tuple(IterVar(Var(a.name, a.var.dtype), a.begin, a.extent, "spatial") for a in op.axes)
    mapping: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, spatial, strict=True)}
    over_loops: dict[Var, Expr] = {}
    reduce_axes: list[IterVar] = []
    axes = list(spatial)
    for loop in nest.loops:
        if loop.kind != "reduce":
            continue
        kind = "spatial" if loop.var is factored else "reduce"
        made = IterVar(Var(loop.name, loop.var.dtype), const(0), loop.extent, kind)
        over_loops[loop.var] = made.var
        if loop.var is factored:
            axes.insert(place, made)
        else:
            reduce_axes.append(made)
    for axis, root in zip(op.reduce_axes, edit.stage.roots[len(op.axes) :], strict=True):
        mapping[axis.var] = axis.begin + substitute(nest.values[root], over_loops)
    guards = [substitute(g.condition, over_loops) for g in nest.guards if g.kind == "reduce"]
    condition = logical_and(*guards) if guards else None
    if reduction.condition is not None:
        where = substitute(reduction.condition, mapping)
        condition = where if condition is None else both(condition, where)
    sources = tuple(substitute(s, mapping) for s in reduction.sources)
    bodies: tuple[Expr, ...]
    if reduce_axes:
        bodies = tuple(
            Reduce(reduction.reducer, sources, tuple(reduce_axes), condition, i, s.dtype) for i, s in enumerate(sources)
        )
    elif condition is None:
        bodies = sources
    else:
        bodies = tuple(
            if_then_else(condition, s, i) for s, i in zip(sources, reduction.reducer.identities, strict=True)
        )
    name = edit.state.unused_name(f"{edit.stage.name}_rf")
    return ComputeOp(name, op.origins, tuple(axes), tuple(reduce_axes), bodies, op.fma)


def _spatial_history(stage: Stage, nest: Nest, rank: int, root: Var) -> tuple[Step, ...]:
    """The steps of the stage that speak of spatial loops, in the same order of loops."""
    order = list(stage.roots)
    reduce_loops = {id(r) for r in stage.roots[rank:]}
    kept: list[Step] = []
    for step in stage.history:
        if isinstance(step, Split):
            order[(at := _place(order, step.parent)) : at + 1] = [step.outer, step.inner]
            if id(step.parent) in reduce_loops:
                reduce_loops |= {id(step.outer), id(step.inner)}
            else:
                kept.append(step)
        elif isinstance(step, Fuse):
            order[(at := _place(order, step.outer)) : at + 2] = [step.fused]
            if id(step.outer) in reduce_loops:
                reduce_loops.add(id(step.fused))
            else:
                kept.append(step)
        elif isinstance(step, Reorder):
            places = sorted(_place(order, v) for v in step.order)
            for place, var in zip(places, step.order, strict=True):
                order[place] = var
            spatial = tuple(v for v in order if id(v) not in reduce_loops)
            if len(spatial) > 1:
                kept.append(Reorder(spatial, step.call))
        elif isinstance(step, Decompose):
            kept.append(dataclasses.replace(step, loop=root) if id(step.loop) in reduce_loops else step)
        elif isinstance(step, (Annotate, Pragma)) and id(step.loop) not in reduce_loops:
            kept.append(step)
    return tuple(kept)


def _place(order: list[Var], var: Var) -> int:
    return next(n for n, v in enumerate(order) if v is var)
