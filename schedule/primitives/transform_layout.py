"""transform_layout: a tensor is stored in another order."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, primitive
from schedule.primitives.storage_align import require_plain_storage
from schedule.state import Reorder, Split
from tensorir.buffer import Buffer
from tensorir.expr import Const, IterVar, Reduce, Var, as_expr, const, if_then_else, less, logical_and
from tensorir.layout import Layout
from tensorir.te import ComputeOp, ExternOp, ScanOp


@primitive
def transform_layout(edit: Edit, layout: Layout, *, pad: bool | None = None) -> tuple[Var, ...]:
    """Stores the results of the stage by `layout`, and arranges its spatial loops in the order of that memory; gives
    one loop for each physical dimension (none for an input, whose readers just read it there).

        for c in 0..32:
          for h in 0..7: B[c, h]
        # c_o, h, c_i = s[B].transform_layout(Layout.parse("CH16c", logical="CH"))
        for c_o in 0..2:
          for h in 0..7:
            for c_i in 0..16: B[c_o, h, c_i] (the point c_o*16 + c_i, h)

    Where the shape does not fill the memory, an output writes zero on the padding lanes (`pad` asks for that on any
    stage). Call it before splitting, fusing or reordering the stage's loops.
    """
    stage = edit.stage
    op = stage.op

    if not isinstance(layout, Layout):
        edit.fail(f"{layout!r} is no layout", help='make one with Layout.parse("NCHW16c", logical="NCHW")')
    rank = len(stage.outputs[0].shape)
    edit.require(
        layout.rank == rank,
        f"the layout {layout} is of {layout.rank} dimensions, but {stage.name} has {rank}",
        help=f'name the {rank} axes of {stage.name}: Layout.parse("AB8b", logical="AB") for two of them',
    )
    edit.require(stage.layouts[0] is None, f"{stage.name} has the layout {stage.layouts[0]} already")
    require_plain_storage(edit)
    _require_no_extern(edit)
    if isinstance(op, ComputeOp):
        roots = {id(r) for r in stage.roots}
        if any(id(getattr(s, "parent", getattr(s, "outer", None))) in roots for s in stage.history):
            edit.fail(
                f"the loops of {stage.name} are transformed already", cause=stage.history[0].call,
                help=f"call transform_layout before the other primitives on {stage.name}",
            )  # fmt: skip

    buffers = tuple(
        Buffer(b.name, layout.physical_shape(t.shape), b.dtype, b.scope)
        for t, b in zip(stage.outputs, stage.buffers, strict=True)
    )
    edit.replace(buffers=buffers, layouts=(layout,) * len(buffers))
    if not isinstance(op, ComputeOp):
        return ()
    if (stage.is_output if pad is None else pad) and layout.is_padded(stage.outputs[0].shape):
        edit.replace(op=_padded(edit, op, layout))
    parts: dict[tuple[int, int], Var] = {}
    for axis, (loop, block) in enumerate(zip(stage.roots[:rank], layout.block, strict=True)):
        strides = sorted((d.stride for d in layout.dims if d.axis == axis), reverse=True)
        rest = loop
        if block > 1:
            edit.loop(rest)
        for stride in strides[:-1]:
            outer, inner = Var(f"{rest.name}_o", loop.dtype), Var(f"{rest.name}_i", loop.dtype)
            edit.step(Split(rest, outer, inner, stride, None, edit.call))
            parts[axis, stride] = outer
            rest = inner
        parts[axis, strides[-1]] = rest
    order = tuple(parts[d.axis, d.stride] for d in layout.dims)
    edit.step(Reorder(order, edit.call))

    return order


def _require_no_extern(edit: Edit) -> None:
    """Externs work on whole plain tensors."""
    stage = edit.stage
    outputs = {id(t) for t in stage.outputs}
    for other in edit.state.stages:
        if not isinstance(other.op, (ExternOp, ScanOp)):
            continue
        if other is stage or any(id(t) in outputs for t in other.op.inputs):
            kind = "extern" if isinstance(other.op, ExternOp) else "scan"
            edit.fail(
                f"the {kind} {other.name} works on {stage.name} as a plain tensor",
                help="put a copy between them: a compute that returns the same elements",
            )


def _padded(edit: Edit, op: ComputeOp, layout: Layout) -> ComputeOp:
    """The compute over the padded shape, zero on the padding lanes."""
    if isinstance(op.bodies[0], Reduce):
        edit.fail(
            f"{op.name} is a reduction whose layout {layout} has padding lanes, which must hold zero",
            help=f"call s.cache_write({op.name}, ...) first: the copy then writes the zeros",
        )
    inside = []
    axes = []
    for axis, block in zip(op.axes, layout.block, strict=True):
        known = axis.extent.value if isinstance(axis.extent, Const) else None
        if block == 1 or (known is not None and int(known) % block == 0):
            axes.append(axis)
            continue
        padded = const(-(-int(known) // block) * block) if known is not None else None
        extent = padded if padded is not None else (as_expr(axis.extent) + (block - 1)) // block * block
        axes.append(IterVar(axis.var, axis.begin, extent, axis.kind))
        inside.append(less(axis.var, axis.extent))
    valid = logical_and(*inside)
    bodies = tuple(if_then_else(valid, b, const(0, b.dtype)) for b in op.bodies)
    return dataclasses.replace(op, axes=tuple(axes), bodies=bodies)
