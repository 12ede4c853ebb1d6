"""storage_align: the rows of a tensor begin at aligned, or at staggered, places."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_positive_count
from tensorir.buffer import AlignedBuffer
from tensorir.expr import IterVar
from tensorir.te import ComputeOp


@primitive
def storage_align(edit: Edit, axis: LoopReference | int, factor: int, offset: int = 0) -> None:
    """Stores the stage so that neighbours along `axis` lie `offset` elements more than a multiple of `factor` apart.

        alloc B: float32[8, 30]      # rows 30 elements apart
        # s[B].storage_align(i, 16, 0)
        alloc B: float32[8, 32]      # rows 32 apart: each begins a cache line
        # s[B].storage_align(i, 32, 1)
        alloc B: float32[8, 33]      # columns fall into different banks

    `axis` is a spatial axis of the stage or its number; the last axis always has stride 1. The size behind the axis
    must be constant. Inputs and outputs are the caller's memory and stay as they are.
    """
    stage = edit.stage
    edit.require(isinstance(stage.op, ComputeOp), f"{stage.name} is not a compute: its memory is the caller's")
    number = axis_number(edit, axis)

    require_internal(edit, "aligned")
    count = require_positive_count(edit, "factor", factor)
    edit.require(
        isinstance(offset, int) and 0 <= offset < count, f"the offset {offset!r} must be in 0..{count}",
        help="give the remainder of the stride modulo the factor",
    )  # fmt: skip
    rank = len(stage.outputs[0].shape)
    edit.require(
        number < rank - 1, f"axis {number} of {stage.name} is the last one: its elements are neighbours",
        help="align an axis outside it",
    )  # fmt: skip
    require_plain_storage(edit, padded=True)
    aligned = []
    for tensor, buffer in zip(stage.outputs, stage.buffers, strict=True):
        wanted = AlignedBuffer(tensor.name, buffer.shape, tensor.dtype, buffer.scope, number, count, offset)
        found = wanted.with_shape(buffer.shape)
        if found is None:
            edit.fail(
                f"no size of axis {number + 1} gives axis {number} of {stage.name} a stride of {offset} more than a"
                f" multiple of {count}: the sizes behind it are {list(buffer.shape[number + 1 :])}",
                help="choose a factor without a common divisor with the sizes further in, or another axis",
            )
        aligned.append(found)

    edit.replace(buffers=tuple(aligned))


def axis_number(edit: Edit, axis: LoopReference | int) -> int:
    """Which axis of the tensor is meant: by its number, its variable or its name."""
    stage = edit.stage
    rank = len(stage.outputs[0].shape)
    if isinstance(axis, int) and not isinstance(axis, bool):
        edit.require(-rank <= axis < rank, f"{stage.name} has axes 0 to {rank - 1}, not {axis}")
        return axis % rank
    var = axis.var if isinstance(axis, IterVar) else axis
    for position, (own, root) in enumerate(zip(stage.axes[:rank], stage.roots[:rank], strict=True)):
        if own.var is var or root is var or (isinstance(var, str) and own.name == var):
            return position
    name = var if isinstance(var, str) else getattr(var, "name", repr(var))
    known = ", ".join(a.name for a in stage.axes[:rank]) or "none"
    edit.fail(f"{name} is no axis of the tensor {stage.name}", help=f"its axes are {known}")


def require_internal(edit: Edit, word: str) -> None:
    """The caller's tensors have the shape that they were declared with."""
    stage = edit.stage
    scan = edit.state.scan_of(stage.key)
    if scan is not None:
        edit.fail(f"{stage.name} makes the steps of {scan.name} and is stored there", help="use a copy of it")
    edit.require(
        not stage.is_output, f"{stage.name} is an output of the program and cannot be {word}",
        help=f"call s.cache_write({stage.name}, ...) and use the copy",
    )  # fmt: skip


def require_plain_storage(edit: Edit, *, padded: bool = False) -> None:
    """The memory of the stage is as it was declared (or `padded`): no layout, no alignment, one copy."""
    stage = edit.stage
    edit.require(
        stage.layouts[0] is None, f"{stage.name} has the layout {stage.layouts[0]}, whose shape is its own",
        help="choose another layout instead",
    )  # fmt: skip
    if stage.double is not None:
        edit.fail(f"{stage.name} has two copies in turn", cause=stage.double, help="call it before double_buffer")
    edit.require(
        not any(isinstance(b, AlignedBuffer) for b in stage.buffers), f"the storage of {stage.name} is aligned already",
        help="call it before storage_align",
    )  # fmt: skip
    edit.require(padded or not stage.multiples, f"{stage.name} is padded already", help="call it before pad_dimension")
