"""compute_inline: a stage disappears into its consumers."""

from __future__ import annotations

from schedule.edit import Edit, primitive
from schedule.state import Inlined
from tensorir.te import ComputeOp, ExternOp, ScanOp


@primitive
def compute_inline(edit: Edit) -> None:
    """Puts the body of the stage in the place of every read of it; the stage has no nest and no memory any more.

        for i in 0..8: B[i] = A[i] + 1
        for i in 0..8: C[i] = B[i] * 2
        # s[B].compute_inline()
        for i in 0..8: C[i] = (A[i] + 1) * 2

    Bits are kept: a cast stays a cast and no new multiply-add is formed. Outputs, reductions, externs and inputs stay.
    `compute_root()` takes it back.
    """
    stage = edit.stage

    edit.require(
        not stage.is_output, f"{stage.name} is an output of the program: it must be stored",
        help=f"leave {stage.name} at root; its producers may be inlined into it",
    )  # fmt: skip
    edit.require(isinstance(stage.op, ComputeOp), f"{stage.name} is not a compute and has no body to put in its place")
    edit.require(
        stage.reduction is None, f"{stage.name} is a reduction: its value takes a loop",
        help=f"use s[{stage.name}].compute_at(...) to compute it where it is needed",
    )  # fmt: skip
    for child in edit.attached_anywhere():
        edit.fail(
            f"{child.name} is computed at a loop of {stage.name}",
            help=f"call s[{child.name}].compute_root() or attach it to another stage first",
        )
    outputs = {id(t) for t in stage.outputs}
    for other in edit.state.stages:
        if isinstance(other.op, (ExternOp, ScanOp)) and any(id(t) in outputs for t in other.op.inputs):
            kind = "extern" if isinstance(other.op, ExternOp) else "scan"
            edit.fail(
                f"the {kind} {other.name} reads {stage.name} as a whole tensor", help=f"leave {stage.name} at root"
            )

    edit.replace(place=Inlined(edit.call))
