"""tensorize: loops become one instruction."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.intrinsic import INTRINSICS, TensorIntrinsic, find_intrinsic
from schedule.primitives.blockize import seal


@primitive
def tensorize(edit: Edit, loop: LoopReference, intrinsic: TensorIntrinsic | str) -> None:
    """Replaces a loop and all that it encloses by an intrinsic (`schedule.tensor_intrinsic`, or its name) that computes
    the same.

        for k_o in 0..8:
          for j_i in 0..16:
            for k_i in 0..4: C[j_i] += int32(A[k_o*4 + k_i]) * int32(W[k_o, j_i, k_i])
        # s[C].tensorize(j_i, "dot_16x4_u8i8")
        for k_o in 0..8:
          block C: for i in 0..16 vectorized: C[i] = dot4_i8(C[i], pack4(A[k_o*4 ..]), pack4(W[k_o, i, 0 ..]))

    The loops must have the extents of the intrinsic, spatial and reduce loops each in its order; the expressions must
    be the same, and each tensor must be read where the intrinsic reads it but for a constant place. Axes of extent 1
    may be missing on either side. Tiles must be whole: no guard inside.
    """
    found = find_intrinsic(intrinsic)

    if found is None:
        edit.fail(
            f"there is no intrinsic {intrinsic!r}",
            help=f"declare it with tensor_intrinsic; there are {', '.join(sorted(INTRINSICS)) or 'none'}",
        )
    chosen = edit.loop(loop)
    for inner in edit.nest.loops[edit.nest.position(chosen.var) :]:
        edit.require(
            inner.annotation == "serial", f"{inner.name} is {inner.annotation}, but the intrinsic replaces it", inner,
            help="tensorize first; the implementation decides how its own loops run",
        )  # fmt: skip

    seal(edit, loop, found)
