"""decompose_reduction: the initial value gets a nest of its own."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import Decompose


@primitive
def decompose_reduction(edit: Edit, loop: LoopReference) -> None:
    """Stores the initial value of a reduction in a nest of its own right before `loop`, which must enclose all reduce
    loops; the spatial loops from there on inside are copied with their annotations.

        for i in 0..4:
          for k in 0..16:
            for j in 0..8 vectorized: C(i, j, k) with init
        # s[C].decompose_reduction(k)
        for i in 0..4:
          for j_init in 0..8 vectorized: C_init(i, j_init)
          for k in 0..16:
            for j in 0..8 vectorized: C(i, j, k)
    """
    chosen = edit.loop(loop)

    stage, nest = edit.stage, edit.nest
    edit.require(stage.reduction is not None, f"{stage.name} is not a reduction: it has no initial value", chosen)
    position = nest.position(chosen.var)
    outside = [x for x in nest.loops[:position] if x.kind == "reduce"]
    if outside:
        edit.fail(
            f"the reduce loop {outside[0].name} encloses {chosen.name}: the initial value would be stored many times",
            outside[0], chosen, help=f"decompose at {outside[0].name} or a loop outside it",
        )  # fmt: skip

    edit.step(Decompose(chosen.var, edit.call))
