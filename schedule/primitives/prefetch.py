"""prefetch: the cache is asked for what will be read soon."""

from __future__ import annotations

from typing import Any

from schedule.edit import Edit, LoopReference, primitive
from schedule.primitives.split import require_positive
from schedule.state import Prefetch
from tensorir.te import ScanOp


@primitive
def prefetch(edit: Edit, tensor: Any, loop: LoopReference, distance: int) -> None:
    """At the start of each iteration of `loop`, asks the cache for what the iteration reads first of `tensor`,
    `distance` elements further on in memory.

        for k in 0..64:
          for j in 0..16 vectorized: C[j] += A[k] * B[k, j]
        # s[C].prefetch(B, k, 1024)
        for k in 0..64:
          prefetch B[k, 0 + 1024]
          for j in 0..16 vectorized: C[j] += A[k] * B[k, j]

    It changes no value. The tensor is an input or a stage at root; an address behind its end does no harm.
    """
    chosen = edit.loop(loop)
    source = edit.schedule.find_stage(tensor)

    count = require_positive(edit, chosen, "distance", distance)
    body = edit.analysis.of(edit.stage).body
    read = next((r.tensor for r in body.reads if any(r.tensor is t for t in source.outputs)), None)
    if isinstance(edit.stage.op, ScanOp) or read is None or not read.shape:
        edit.fail(f"{edit.stage.name} does not read {source.name} element by element", chosen)

    edit.step(Prefetch(chosen.var, read, count, edit.call))
