"""reverse_compute_inline: a stage disappears into its producer."""

from __future__ import annotations

import dataclasses

from schedule.bodies import map_loads, own_reads
from schedule.edit import Edit, primitive
from schedule.state import AtRoot, Reorder, Stage
from tensorir.expr import Const, Expr, Var
from tensorir.te import ComputeOp
from tensorir.visit import substitute


@primitive
def reverse_compute_inline(edit: Edit) -> None:
    """Puts the stage into the one stage that it reads point by point, whose loops remain and store its result.

        for i_o in 0..4:
          for i_i in 0..8: B[i_o*8 + i_i] = A[i_o*8 + i_i] + 1
        for i in 0..32: C[i] = B[i] * 2
        # s[C].reverse_compute_inline()
        for i_o in 0..4:
          for i_i in 0..8: C[i_o*8 + i_i] = (A[i_o*8 + i_i] + 1) * 2

    Bits are kept. The producer becomes part of the stage: only `s[C]` names it afterwards. Nobody else may read it, and
    neither may be a reduction; behind a reduction use `reverse_compute_at`.
    """
    stage = edit.stage
    op = stage.op

    if not isinstance(op, ComputeOp) or stage.reduction is not None:
        edit.fail(f"{stage.name} is not an elementwise compute", help="use reverse_compute_at to compute it near by")
    producer, order = _producer(edit, stage, op)
    if stage.history or not isinstance(stage.place, AtRoot) or edit.attached_anywhere():
        edit.fail(
            f"{stage.name} is scheduled already, and its loops would be lost",
            cause=stage.history[0].call if stage.history else getattr(stage.place, "call", None),
            help=f"call it before the other primitives on {stage.name}",
        )  # fmt: skip

    made = producer.op
    assert isinstance(made, ComputeOp)
    axes = tuple(made.axes[d] for d in order)
    mapping: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, axes, strict=True)}
    over = dataclasses.replace(op, axes=axes, bodies=tuple(substitute(b, mapping) for b in op.bodies))
    merged = map_loads(
        over,
        lambda load: made.bodies[load.buffer.index] if any(load.buffer is t for t in producer.outputs) else load,  # type: ignore[attr-defined]
    )
    history = producer.history
    if order != tuple(range(len(order))):
        history = (Reorder(producer.roots, edit.call), *history)
    edit.replace(op=merged, roots=tuple(producer.roots[d] for d in order), history=history)

    _forward(edit, producer)


def _producer(edit: Edit, stage: Stage, op: ComputeOp) -> tuple[Stage, tuple[int, ...]]:
    """The one stage that is read at a permutation of the axes, and which of its dimensions each axis is."""
    outputs = {id(t): s for s in edit.state.stages for t in s.outputs if isinstance(s.op, ComputeOp)}
    reads = [r for r in own_reads(op) if id(r.tensor) in outputs]
    names = sorted({outputs[id(r.tensor)].name for r in reads})
    candidates = []
    for name in names:
        producer = next(s for s in edit.state.stages if s.name == name)
        orders = {_order(r.indices, op) for r in reads if outputs[id(r.tensor)] is producer}
        if len(orders) == 1 and None not in orders:
            candidates.append((producer, orders.pop()))
    reasons = []
    for producer, order in candidates:
        reason = _unfit(edit, stage, op, producer, order or ())
        if reason is None:
            return producer, order or ()
        reasons.append(reason)
    if reasons:
        edit.fail(reasons[0], help=f"use s[{stage.name}].reverse_compute_at(...) or compute_inline on the producer")
    edit.fail(
        f"{stage.name} reads no computed stage point by point" + (f": it reads {', '.join(names)}" if names else ""),
        help="use reverse_compute_at, which may read a stage shifted",
    )


def _order(indices: tuple[Expr, ...] | None, op: ComputeOp) -> tuple[int, ...] | None:
    """For each axis of `op` the dimension that it indexes, if the indices are its axes in some order."""
    if indices is None or len(indices) != len(op.axes):
        return None
    found = []
    for axis in op.axes:
        places = [d for d, i in enumerate(indices) if i is axis.var]
        if len(places) != 1:
            return None
        found.append(places[0])
    return tuple(found)


def _unfit(edit: Edit, stage: Stage, op: ComputeOp, producer: Stage, order: tuple[int, ...]) -> str | None:
    """Why the stage cannot go into this producer."""
    assert isinstance(producer.op, ComputeOp)
    if producer.reduction is not None:
        return f"{producer.name} is a reduction: its value is not there before its loops are over"
    if producer.is_output:
        return f"{producer.name} is an output of the program: it must be stored"
    if not isinstance(producer.place, AtRoot):
        return f"{producer.name} is not at root"
    if producer.layouts[0] is not None:
        return f"{producer.name} has a layout of its own"
    for other in edit.state.stages:
        if other is not stage and any(r.tensor is t for r in own_reads(other.op) for t in producer.outputs):
            return f"{producer.name} is read by {other.name} too"
    for axis, dimension in zip(op.axes, order, strict=True):
        a, b = axis.extent, producer.op.axes[dimension].extent
        if a is not b and not (isinstance(a, Const) and isinstance(b, Const) and int(a.value) == int(b.value)):
            return f"{stage.name} computes {a!r} elements of {axis.name}, but {producer.name} has {b!r}"
    return None


def _forward(edit: Edit, producer: Stage) -> None:
    """The producer's record goes; what was attached to its loops stays there."""
    kept = []
    for other in edit.state.stages:
        place = other.place
        target = getattr(place, "target", None)
        if target is not None and any(target is t for t in producer.outputs):
            other = dataclasses.replace(other, place=dataclasses.replace(place, target=edit.stage.key))  # type: ignore[type-var, arg-type]
        if other.key is not producer.key:
            kept.append(other)
    edit.state = dataclasses.replace(edit.state, stages=tuple(kept))
