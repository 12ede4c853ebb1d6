"""compute_root: a stage gets a nest of its own again."""

from __future__ import annotations

from schedule.edit import Edit, primitive
from schedule.state import ROOT
from tensorir.te import PlaceholderOp


@primitive
def compute_root(edit: Edit) -> None:
    """Computes the whole stage in a nest of its own before its consumers; its own loop history is replayed.

    for i_o in 0..4:
      for i in 0..8: B(i_o*8 + i)
      for i_i in 0..8: C(...)
    # s[B].compute_root()
    for i in 0..32: B(i)
    for i_o in 0..4:
      for i_i in 0..8: C(...)
    """
    stage = edit.stage

    edit.require(
        not isinstance(stage.op, PlaceholderOp), f"{stage.name} is an input of the program and is not computed"
    )

    edit.replace(place=ROOT)
