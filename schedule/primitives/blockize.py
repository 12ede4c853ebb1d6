"""blockize: loops become one block."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.intrinsic import TensorIntrinsic
from schedule.state import Unit


@primitive
def blockize(edit: Edit, loop: LoopReference) -> None:
    """Makes a loop, with all that it encloses, one block, which later primitives do not look into.

        for i_o in 0..4:
          for i_i in 0..8:
            block C(v_i = i_o*8 + i_i): C[v_i] = A[v_i]
        # s[C].blockize(i_i)
        for i_o in 0..4:
          block C(v_i_o = i_o):
            for i_i in 0..8: C[v_i_o*8 + i_i] = A[v_i_o*8 + i_i]

    The loops in it may be serial, unrolled or vectorized; nothing may be computed at them. The loops around it stay
    free. It changes no value.
    """
    seal(edit, loop, None)


def seal(edit: Edit, loop: LoopReference, intrinsic: TensorIntrinsic | None) -> None:
    """Marks the loops from `loop` on as one block."""
    chosen = edit.loop(loop)

    nest = edit.nest
    if nest.unit is not None:
        edit.fail(
            f"the loops of {edit.stage.name} from {nest.unit.loop.name} on are one block already", chosen,
            cause=nest.unit.call, help="undo that call first",
        )  # fmt: skip
    for inner in nest.loops[nest.position(chosen.var) :]:
        edit.require(
            inner.annotation in ("serial", "unrolled", "vectorized"),
            f"{inner.name} is {inner.annotation}, so it must stand outside of blocks", inner,
            help=f"make a loop inside {inner.name} the block",
        )  # fmt: skip
        for child in edit.attached(inner.var):
            edit.fail(
                f"{child.name} is computed at loop {inner.name}, inside the block", inner,
                help=f"attach {child.name} outside {chosen.name}, or inline it",
            )  # fmt: skip
        for step in nest.prefetches:
            edit.require(step.loop is not inner.var, f"{inner.name} prefetches {step.tensor.name}", inner)

    edit.step(Unit(chosen.var, intrinsic, edit.call))
