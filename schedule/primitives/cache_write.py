"""cache_write: results are collected in another memory first."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, primitive
from schedule.primitives.set_scope import require_scope
from schedule.state import new_stage
from tensorir.expr import Expr, IterVar, Load, Var
from tensorir.te import ComputeOp, ScanOp, Tensor
from tensorir.visit import rewrite_expr


@primitive
def cache_write(edit: Edit, scope: str = "local") -> Tensor | tuple[Tensor, ...]:
    """Computes the stage into a new tensor of the scope `scope`, which the stage then copies; gives the new tensor.

        for i in 0..8:
          for k in 0..4: C[i] += A[i, k]
        # CL = s.cache_write(C, "register")
        for i in 0..8:
          for k in 0..4: C_register[i] += A[i, k]
        for i in 0..8: C[i] = C_register[i]

    The new stage has the reduce axes of the old one, and spatial axes of its own: `s[CL].axis`. Call it before any
    other primitive on the stage.
    """
    stage = edit.stage
    op = stage.op

    require_scope(edit, scope)
    if not isinstance(op, ComputeOp):
        edit.fail(
            f"{stage.name} is not a compute: there is nothing to collect",
            help="use it on the computes that make the steps of a scan"
            if isinstance(op, ScanOp)
            else "use it on a stage that te.compute made",
        )
    place = edit.state.first_place(stage)
    if stage.history or stage.multiples or stage.place is not place or edit.attached_anywhere():
        first = stage.history[0].call if stage.history else getattr(stage.place, "call", None)
        edit.fail(
            f"cache_write must come first on {stage.name}, which is scheduled already", cause=first,
            help=f"call cache_write before the other primitives on {stage.name}",
        )  # fmt: skip

    name = edit.state.unused_name(f"{stage.name}_{scope}")
    axes = tuple(IterVar(Var(a.name, a.var.dtype), a.begin, a.extent, a.kind) for a in op.axes)
    mapping: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, axes, strict=True)}
    memo: dict[Expr, Expr] = {}
    bodies = tuple(rewrite_expr(b, lambda e: mapping.get(e, e) if isinstance(e, Var) else e, memo) for b in op.bodies)
    cached_op = ComputeOp(name, op.origins, axes, op.reduce_axes, bodies, op.fma)
    cached = tuple(
        Tensor(name if len(bodies) == 1 else f"{name}_{i}", t.shape, t.dtype, "global", cached_op, i)
        for i, t in enumerate(stage.outputs)
    )
    roots = tuple(Var(a.name, a.var.dtype) for a in (*axes, *op.reduce_axes))
    cache = new_stage(name, cached_op, cached, roots, False)
    cache = dataclasses.replace(cache, buffers=tuple(dataclasses.replace(t, scope=scope) for t in cached), place=place)
    point = tuple(a.var for a in op.axes)
    copy = ComputeOp(op.name, op.origins, op.axes, (), tuple(Load(t, point, t.dtype) for t in cached), op.fma)
    edit.state = edit.state.with_new_stage(cache, before=stage)
    edit.replace(op=copy, roots=stage.roots[: len(op.axes)])

    return cached if len(cached) > 1 else cached[0]
