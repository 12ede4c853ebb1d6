"""reverse_compute_at: a stage is computed as soon as its input is ready."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.ready import chain_of
from schedule.state import AtLoop
from tensorir.expr import Var
from tensorir.te import ComputeOp, Tensor


@primitive
def reverse_compute_at(edit: Edit, target: Any, loop: LoopReference) -> None:
    """Computes the stage at the end of each iteration of a loop in which something that it reads is made: exactly the
    points whose inputs that iteration has made. The stage's own loop history is replayed on that domain.

        for i_o in 0..4:
          for i_i in 0..8: B(i_o*8 + i_i)
        for i in 0..32: C(i) reads B at that point
        # s[C].reverse_compute_at(s[B], i_o)
        for i_o in 0..4:
          for i_i in 0..8: B(i_o*8 + i_i)
          for i in 0..8: C(i_o*8 + i)

    The stage may be an output. It must read the target, or what is computed at the end of its loops, at its own axes
    plus a constant and only where the iteration has made it. The target must be at root, its reductions over by then.
    """
    stage = edit.stage
    host = edit.schedule.find_stage(target)

    edit.require(isinstance(stage.op, ComputeOp), f"{stage.name} is not a compute and has no loops")
    edit.require(host is not stage, f"{stage.name} cannot be computed at its own loop")
    place = edit.loop(loop, host)
    edit.require(
        any(_is_made_in(edit, r.tensor, place.var) for r in edit.analysis.bodies[id(stage)].reads),
        f"{stage.name} does not read {host.name}",
        help=f"choose a stage that {stage.name} reads, or call s[{host.name}].compute_at(s[{stage.name}], ...)",
    )
    for child in edit.attached_anywhere():
        edit.require(child is not host, f"{host.name} is computed at a loop of {stage.name} itself")

    edit.replace(place=AtLoop(host.key, place.var, edit.call, after=True))


def _is_made_in(edit: Edit, tensor: Tensor, loop: Var) -> bool:
    """Whether the tensor is made inside of a loop."""
    placed = edit.analysis.find(edit.state.stage_of(tensor))
    return placed is not None and any(x.var is loop for _, x in chain_of(placed))
