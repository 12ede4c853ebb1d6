"""double_buffer: the next tile is filled while this one is read."""

from __future__ import annotations

from schedule.edit import Edit, primitive
from tensorir.buffer import AlignedBuffer, Buffer
from tensorir.expr import const
from tensorir.te import ComputeOp


@primitive
def double_buffer(edit: Edit) -> None:
    """Keeps two copies of a stage that is computed at a loop: each iteration fills one for the next iteration and reads
    the other, so that filling does not wait for reading.

        for i_o in 0..4:
          alloc B: float32[8]
          for i in 0..8: B[i_o*8 + i] = A[i_o*8 + i]
          for i in 0..8: C[i_o*8 + i] = f(B[i_o*8 + i])
        # s[B].double_buffer()
        alloc B: float32[2, 8]
        for i in 0..8: B[0, i] = A[i]
        for i_o in 0..4:
          if i_o + 1 < 4:
            for i in 0..8: B[(i_o + 1) % 2, i] = A[(i_o + 1)*8 + i]
          for i in 0..8: C[i_o*8 + i] = f(B[i_o % 2, i])

    The loop must be serial, and what the stage reads must not be computed in the same iteration. Bits are kept.
    """
    stage = edit.stage

    edit.require(isinstance(stage.op, ComputeOp), f"{stage.name} is not a compute: there is nothing to fill ahead")
    edit.require(not stage.is_output, f"{stage.name} is an output of the program: there is one of it")
    edit.require(edit.state.scan_of(stage.key) is None, f"{stage.name} makes the steps of a scan: there is one of it")
    edit.require(stage.double is None, f"{stage.name} has two copies already")
    edit.require(
        not any(isinstance(b, AlignedBuffer) for b in stage.buffers), f"the storage of {stage.name} is aligned already",
        help="use pad_dimension to make its rows longer",
    )  # fmt: skip
    for step in (step for s in edit.state.stages for step in s.history):
        if any(getattr(step, "tensor", None) is t for t in stage.outputs):
            edit.fail(f"{stage.name} is prefetched, which takes memory over the whole program", cause=step.call)

    buffers = tuple(Buffer(b.name, (const(2), *b.shape), b.dtype, b.scope) for b in stage.buffers)
    edit.replace(buffers=buffers, double=edit.call)
