"""reorder: loops of one stage change places."""

from __future__ import annotations

import dataclasses

from schedule.edit import Edit, LoopReference, primitive
from schedule.state import Reorder


@primitive
def reorder(edit: Edit, *loops: LoopReference) -> None:
    """Puts the named loops in this order, in the places that they take up together; other loops stay.

        for i in 0..4:
          for j in 0..8:
            for k in 0..16: B(i, j, k)
        # s[B].reorder(k, i)
        for k in 0..16:
          for j in 0..8:
            for i in 0..4: B(i, j, k)

    A reduce loop may go outside spatial ones. Reduce loops may change their order among each other only for a reducer
    that is associative and commutative; for a float sum or product that changes rounding.
    """
    chosen = [edit.loop(x) for x in (loops[0] if len(loops) == 1 and isinstance(loops[0], (tuple, list)) else loops)]

    edit.require(bool(chosen), "give at least one loop to reorder")
    for number, loop in enumerate(chosen):
        edit.require(all(loop is not other for other in chosen[:number]), f"{loop.name} is named twice", loop)
    nest = edit.nest
    places = sorted(nest.position(loop.var) for loop in chosen)
    after = list(nest.loops)
    for place, loop in zip(places, chosen, strict=True):
        after[place] = loop
    before_reduce = [loop for loop in nest.loops if loop.kind == "reduce"]
    after_reduce = [loop for loop in after if loop.kind == "reduce"]
    changed = any(a is not b for a, b in zip(before_reduce, after_reduce, strict=True))
    reduction = edit.stage.reduction
    if changed and reduction is not None:
        reducer = reduction.reducer
        if not (reducer.associative and reducer.commutative):
            missing = "associative" if not reducer.associative else "commutative"
            edit.fail(
                f"the reduce loops would change their order, but the reducer {reducer.name} is not {missing}",
                *[a for a, b in zip(before_reduce, after_reduce, strict=True) if a is not b],
                help="keep the order of the reduce loops, or declare the reducer associative and commutative",
            )

    edit.step(Reorder(tuple(loop.var for loop in chosen), edit.call))
    if changed and reduction is not None and any(s.dtype.is_float for s in reduction.sources):
        if reduction.reducer.name in ("max", "min", "any", "all", "argmax", "argmin"):
            return
        edit.state = dataclasses.replace(edit.state, reassociated=(*edit.state.reassociated, edit.call))
