"""reverse_compute_at: a stage is computed as soon as its input is ready."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import AtLoop
from tensorir.te import ComputeOp


@primitive
def reverse_compute_at(edit: Edit, target: Any, loop: LoopReference) -> None:
    """Computes the stage at the end of each iteration of a loop of a stage that it reads: exactly the points whose
    inputs that iteration has made. The stage's own loop history is replayed on that domain.

        for i_o in 0..4:
          for i_i in 0..8: B(i_o*8 + i_i)
        for i in 0..32: C(i) reads B at that point
        # s[C].reverse_compute_at(s[B], i_o)
        for i_o in 0..4:
          for i_i in 0..8: B(i_o*8 + i_i)
          for i in 0..8: C(i_o*8 + i)

    The stage may be an output. It must read the target at its own axes plus a constant, only what the iteration has
    made, and the target must be at root; a reduction of the target must be over by then.
    """
    stage = edit.stage
    host = edit.schedule.find_stage(target)

    edit.require(isinstance(stage.op, ComputeOp), f"{stage.name} is not a compute and has no loops")
    edit.require(host is not stage, f"{stage.name} cannot be computed at its own loop")
    edit.require(
        any(r.tensor is t for r in edit.analysis.bodies[id(stage)].reads for t in host.outputs),
        f"{stage.name} does not read {host.name}",
        help=f"choose a stage that {stage.name} reads, or call s[{host.name}].compute_at(s[{stage.name}], ...)",
    )
    place = edit.loop(loop, host)
    for child in edit.attached_anywhere():
        edit.require(child is not host, f"{host.name} is computed at a loop of {stage.name} itself")

    edit.replace(place=AtLoop(host.key, place.var, edit.call, after=True))
