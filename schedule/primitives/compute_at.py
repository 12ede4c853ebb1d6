"""compute_at: a stage is computed where it is needed."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import AtLoop
from tensorir.te import ExternOp, PlaceholderOp


@primitive
def compute_at(edit: Edit, target: Any, loop: LoopReference) -> None:
    """Computes the stage at the start of each iteration of a loop of another stage: exactly the hull of what is read
    inside that loop. The stage's own loop history is replayed on that domain.

        for i in 0..32: B(i)
        for i_o in 0..4:
          for i_i in 0..8: C(i_o*8 + i_i) reads B at that point
        # s[B].compute_at(s[C], i_o)
        for i_o in 0..4:
          alloc B
          for i in 0..8: B(i_o*8 + i)
          for i_i in 0..8: C(i_o*8 + i_i)

    The loop must enclose every reader of the stage and must not be vectorized or inside a vectorized loop; otherwise
    the message lists the readers and the legal places.
    """
    stage = edit.stage
    host = edit.schedule.find_stage(target)

    if isinstance(stage.op, (PlaceholderOp, ExternOp)):
        kind = (
            "an input of the program"
            if isinstance(stage.op, PlaceholderOp)
            else "an extern, which works on whole tensors"
        )
        copied = f"schedule its consumers, or a copy of it: s.cache_read({stage.name}, ...)"
        edit.fail(f"{stage.name} is {kind}", help=copied)
    edit.require(host is not stage, f"{stage.name} cannot be computed at its own loop")
    place = edit.loop(loop, host)

    edit.replace(place=AtLoop(host.key, place.var, edit.call))
