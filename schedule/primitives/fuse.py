"""fuse: adjacent loops become one."""

from __future__ import annotations

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_unannotated
from schedule.state import Fuse, Loop
from tensorir.expr import Var


@primitive
def fuse(edit: Edit, *loops: LoopReference) -> Var:
    """Fuses two or more loops, each directly inside the one before, into one loop over all their iterations.

        for i in 0..4:
          for j in 0..8: B(i, j)
        # f = s[B].fuse(i, j)
        for i_j in 0..32: B(i_j // 8, i_j % 8)

    A spatial and a reduce loop do not fuse.
    """
    olds = [edit.loop(x) for x in (loops[0] if len(loops) == 1 and isinstance(loops[0], (tuple, list)) else loops)]

    edit.require(bool(olds), "give at least one loop to fuse")
    nest = edit.nest
    for outer, inner in zip(olds, olds[1:]):
        if nest.position(inner.var) != nest.position(outer.var) + 1:
            edit.fail(
                f"{inner.name} does not stand directly inside {outer.name}", outer, inner,
                help=f"reorder the loops so that {inner.name} follows {outer.name}, then fuse",
            )  # fmt: skip
        edit.require(
            outer.kind == inner.kind, f"{outer.name} is a {outer.kind} loop and {inner.name} a {inner.kind} loop",
            outer, inner, help="fuse spatial loops with spatial ones and reduce loops with reduce ones",
        )  # fmt: skip
        for child in edit.attached(outer.var):
            edit.fail(
                f"{child.name} is computed between {outer.name} and {inner.name}", outer, inner,
                help=f"attach {child.name} elsewhere first",
            )  # fmt: skip
    for old in olds:
        require_unannotated(edit, old, "fuse")

    result: Loop = olds[0]
    for inner in olds[1:]:
        fused = Var(f"{result.name}_{inner.name}", inner.var.dtype)
        edit.step(Fuse(result.var, inner.var, fused, edit.call))
        result = Loop(fused, inner.extent, inner.kind)

    if len(olds) > 1:
        edit.forward(olds[-1].var, result.var)
    return result.var
