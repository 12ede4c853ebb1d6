"""prefetch: the cache is asked for what will be read soon."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_positive
from schedule.state import Prefetch
from tensorir.expr import Const, Expr
from tensorir.te import ScanOp
from tensorir.visit import substitute


@primitive
def prefetch(edit: Edit, tensor: Any, loop: LoopReference, distance: int | Expr) -> None:
    """At the start of each iteration of `loop`, asks the cache for what the iteration reads first of `tensor`,
    `distance` elements further on in memory.

        for k in 0..64:
          for j in 0..16 vectorized: C[j] += A[k] * B[k, j]
        # s[C].prefetch(B, k, 1024)
        for k in 0..64:
          prefetch B[k, 0 + 1024]
          for j in 0..16 vectorized: C[j] += A[k] * B[k, j]

    The distance may be an expression over the loops around: with `panel + (i * 64 + k) * 32` in place of 1024, rows i
    together ask for the panel behind the one that all of them read, each for its own part. It changes no value. The
    tensor is an input or a stage at root; an address behind its end does no harm.
    """
    chosen = edit.loop(loop)
    source = edit.schedule.find_stage(tensor)

    if isinstance(distance, Expr) and not isinstance(distance, Const):
        edit.require(
            distance.dtype.is_integer, f"the distance must be an integer, not {distance.dtype}", chosen,
            help="give a number of elements, or an expression over loop variables",
        )  # fmt: skip
        stages = (edit.stage, *(stage for stage, _ in edit.analysis.of(edit.stage).path))
        axes = {a.var: root for stage in stages for a, root in zip(stage.axes, stage.roots, strict=True)}
        count: int | Expr = substitute(distance, axes)
    else:
        count = require_positive(edit, chosen, "distance", distance)
    body = edit.analysis.of(edit.stage).body
    read = next((r.tensor for r in body.reads if any(r.tensor is t for t in source.outputs)), None)
    if isinstance(edit.stage.op, ScanOp) or read is None or not read.shape:
        edit.fail(f"{edit.stage.name} does not read {source.name} element by element", chosen)

    edit.step(Prefetch(chosen.var, read, count, edit.call))
