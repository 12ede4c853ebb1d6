"""Reductions along contiguous memory, side by side: an element goes to the lane and the chain of its place, and what
the lanes hold is combined by halves.

    total[i] = sum over k of x[i, k]    ->    part[i, c, l] = sum over s of x[i, s * 64 + c * 16 + l]
                                              lanes[i, l]   = (part[i, 0, l] + part[i, 2, l]) + (part[i, 1, l] + ...)
                                              total[i]      = ((lanes[i, 0] + lanes[i, 8]) + (lanes[i, 4] + ...)) + ...

One sum after the other waits four cycles for each addition and uses one lane of the vector unit. The order is declared
in the compute, so every schedule and every target combines in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorir import te
from tensorir.expr import Const, Expr, Reduce
from tensorir.te import ComputeOp, Tensor
from tensorir.visit import substitute

LANES = 16
"""Elements of a vector, whatever the target's vectors hold."""

CHAINS = 4
"""Vectors under way at once."""

SHORTEST = 17
"""Fewer elements are taken one after the other."""

LONGEST = 512 * CHAINS * LANES
"""More would be long sums in each lane."""


def has_lanes(extent: Expr) -> bool:
    """True for an extent that is worth it; a symbolic one is taken in one pass."""
    return isinstance(extent, Const) and SHORTEST <= int(extent.value) <= LONGEST


def reduce_in_lanes(
    shape: Sequence[Expr], extent: int, element: Callable[..., Expr], reduce: Callable[..., Expr], name: str
) -> Tensor:
    """The reduction over `extent` elements `element(k, *point)` by a reducer of te, in the three stages."""
    chains = min(CHAINS, -(-extent // LANES))
    step = te.reduce_axis(-(-extent // (chains * LANES)), "step")

    def part(*i: Expr) -> Expr:
        k = step.var * (chains * LANES) + i[-2] * LANES + i[-1]
        return reduce(element(k, *i[:-2]), axis=step, where=None if extent % (chains * LANES) == 0 else k < extent)

    parts = te.compute((*shape, chains, LANES), part, name=f"{name}_part")
    made = parts.op
    assert isinstance(made, ComputeOp) and isinstance(made.bodies[0], Reduce)
    reducer = made.bodies[0].reducer

    def combine(values: list[Expr]) -> Expr:
        while len(values) > 1:
            half = -(-len(values) // 2)
            pairs = zip(values, values[half:], strict=False)
            joined = [substitute(reducer.results[0], {reducer.lhs[0]: a, reducer.rhs[0]: b}) for a, b in pairs]
            values = joined + values[len(joined) : half]
        return values[0]

    lanes = te.compute(
        (*shape, LANES), lambda *i: combine([parts(*i[:-1], c, i[-1]) for c in range(chains)]), name=f"{name}_lanes"
    )
    return te.compute(shape, lambda *i: combine([lanes(*i, n) for n in range(LANES)]), name=name)
