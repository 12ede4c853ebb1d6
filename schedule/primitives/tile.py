"""tile: two loops become a grid of tiles."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.reorder import reorder
from schedule.primitives.split import split
from tensorir.expr import Var


@primitive
def tile(edit: Edit, x: LoopReference, y: LoopReference, x_factor: int, y_factor: int) -> tuple[Var, Var, Var, Var]:
    """Splits two loops and puts both inner loops inside both outer ones; gives (x outer, y outer, x inner, y inner).

    for i in 0..32:
      for j in 0..32: B(i, j)
    # io, jo, ii, ji = s[B].tile(i, j, 4, 8)
    for i_o in 0..8:
      for j_o in 0..4:
        for i_i in 0..4:
          for j_i in 0..8: B(i_o*4 + i_i, j_o*8 + j_i)
    """
    first, second = edit.loop(x), edit.loop(y)

    edit.require(first is not second, f"{first.name} is named twice", first)

    x_outer, x_inner = split(edit, first, x_factor)
    y_outer, y_inner = split(edit, second, y_factor)
    reorder(edit, x_outer, y_outer, x_inner, y_inner)

    return x_outer, y_outer, x_inner, y_inner
