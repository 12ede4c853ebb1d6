"""async_copy: a tile is fetched into shared memory while the threads go on."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, primitive
from tensorir.expr import Load
from tensorir.intrinsics import async_copy as asynchronous
from tensorir.te import ComputeOp


@primitive
def async_copy(edit: Edit) -> None:
    """Lets the copies of a stage in shared memory run beside what its threads do until the tile is read.

        for t in 0..32 thread threadIdx.x: S[t] = A[io*32 + t]
        # s[S].async_copy()
        for t in 0..32 thread threadIdx.x: S[t] = async_copy(A[io*32 + t])

    Waits are put where the tile is first needed, so it is of use together with `double_buffer`: the next tile arrives
    while this one is read. A copy moves 4, 8 or 16 bytes (vectorize smaller elements). On a target without asynchronous
    copies (`Target.async_copies`: CUDA from sm_80 on has them) it is a plain copy. It changes no value.
    """
    stage, op = edit.stage, edit.stage.op

    edit.require(
        isinstance(op, ComputeOp) and len(op.bodies) == 1 and isinstance(op.bodies[0], Load),
        f"{stage.name} is not a copy of another tensor: there is nothing to copy without computing",
        help="fetch what it reads with cache_read and copy that asynchronously",
    )  # fmt: skip
    edit.require(
        all(b.scope == "shared" for b in stage.buffers), f"{stage.name} is in {stage.buffers[0].scope} memory",
        help="asynchronous copies are from global to shared memory",
    )  # fmt: skip
    assert isinstance(op, ComputeOp)

    edit.replace(op=dataclasses.replace(op, bodies=(asynchronous(op.bodies[0]),)))
