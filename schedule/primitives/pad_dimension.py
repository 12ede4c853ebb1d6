"""pad_dimension: an axis is computed and stored out to a multiple."""

from __future__ import annotations

import dataclasses

from schedule.bodies import both
from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_positive_count
from schedule.primitives.storage_align import axis_number, require_internal, require_plain_storage
from schedule.replay import ceildiv
from tensorir.arith import simplify
from tensorir.buffer import Buffer
from tensorir.expr import IterVar, Reduce, const, if_then_else, less
from tensorir.te import ComputeOp, ExternOp


@primitive
def pad_dimension(edit: Edit, axis: LoopReference | int, multiple: int) -> None:
    """Rounds an axis of the stage up to a multiple, in its loops and in its memory; what is added is zero (of a
    reduction: its initial value), and nobody reads it.

        alloc B: float32[13]
        for i in 0..13: B[i] = A[i] + 1
        # s[B].pad_dimension(i, 8)
        alloc B: float32[16]
        for i in 0..16: B[i] = if_then_else(i < 13, A[i] + 1, 0)

    Loops over the stage then split by the multiple without a guard. Where the stage is computed at a loop, what is
    needed there is rounded up. Call it before the other primitives on the stage; an output has the caller's shape.
    """
    stage = edit.stage
    op = stage.op
    if not isinstance(op, ComputeOp):
        edit.fail(f"{stage.name} is not a compute: its memory is the caller's", help="use s.cache_read for a copy")
    number = axis_number(edit, axis)

    require_internal(edit, "padded")
    count = require_positive_count(edit, "multiple", multiple)
    require_plain_storage(edit, padded=True)
    if stage.history:
        edit.fail(
            f"the loops of {stage.name} are transformed already", cause=stage.history[0].call,
            help=f"call pad_dimension before the other primitives on {stage.name}",
        )  # fmt: skip
    placed = edit.analysis.find(stage)
    steps = None if placed is None else next((loop for _, loop in placed.path if loop.kind == "scan"), None)
    if steps is not None and number == 0:
        edit.fail(
            f"axis 0 of {stage.name} counts the steps of a scan: a padded step would read what is not made yet", steps,
            help="pad another axis",
        )  # fmt: skip
    for other in edit.state.stages:
        if isinstance(other.op, ExternOp) and any(t is o for t in other.op.inputs for o in stage.outputs):
            edit.fail(f"the extern {other.name} reads {stage.name} as a whole tensor", help="pad a copy of it")

    old = op.axes[number]
    extent = simplify(ceildiv(old.extent, const(count)) * count)
    axes = (*op.axes[:number], IterVar(old.var, old.begin, extent, old.kind), *op.axes[number + 1 :])
    inside = less(old.var, old.begin + old.extent)
    first = op.bodies[0]
    if isinstance(first, Reduce):
        condition = inside if first.condition is None else both(inside, first.condition)
        bodies = tuple(dataclasses.replace(b, condition=condition) for b in op.bodies)  # type: ignore[type-var]
    else:
        bodies = tuple(if_then_else(inside, b, const(0, b.dtype)) for b in op.bodies)
    buffers = tuple(
        Buffer(b.name, (*b.shape[:number], extent, *b.shape[number + 1 :]), b.dtype, b.scope) for b in stage.buffers
    )
    multiples = list(stage.multiples or (1,) * len(op.axes))
    multiples[number] = count
    edit.replace(op=dataclasses.replace(op, axes=axes, bodies=bodies), buffers=buffers, multiples=tuple(multiples))
