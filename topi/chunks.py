"""Long float sums in chunks: the error of a sum taken one term after the other grows with its length, that of a sum of
chunks with the length of a chunk and the number of chunks.

    total[i] = sum over k of x[i, k]    ->    chunk[i, c] = sum over k of x[i, c * 256 + k]
                                              total[i] = sum over c of chunk[i, c]

The two stages are declared in the compute, so every schedule and every target adds in this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, IterVar, Load, Reduce, Var, const
from tensorir.te import ComputeOp, Tensor
from tensorir.visit import free_vars, substitute

CHUNK = 256
"""About how many terms a chunk has."""

LONGEST = 512
"""Up to so many terms are taken in one pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """An extent cut into `count` chunks of `size`; `within` runs over one of them."""

    extent: int
    size: int
    within: IterVar

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self.extent // self.size)

    def place(self, chunk: Expr) -> Expr:
        """The place of `within` in the whole extent."""
        return chunk * self.size + self.within.var

    def conditions(self, chunk: Expr) -> list[Expr]:
        """What holds where the place lies in the extent."""
        return [] if self.extent % self.size == 0 else [self.place(chunk) < self.extent]


def cut(extent: int, steps: int, name: str) -> Chunks:
    """Chunks of an extent each of whose places stands for `steps` terms; equal ones where that fits."""
    size = min(max(1, round(CHUNK / max(steps, 1))), extent)
    equal = [s for s in range(size, 2 * size + 1) if extent % s == 0] or [
        s for s in range(size - 1, size // 2, -1) if extent % s == 0
    ]
    chosen = equal[0] if equal else size
    return Chunks(extent, chosen, te.reduce_axis(chosen, name))


def sum_of_chunks(
    shape: Sequence[Expr], chunks: Chunks, terms: Callable[..., Expr], name: str, *, last: bool = False
) -> Tensor:
    """The two stages: `terms(place, conditions, *point)` is the sum over `chunks.within` and the axes inside it. The
    number of the chunk is the first index of the first stage, or the `last`."""
    count = const(chunks.count)

    def one(*i: Expr) -> Expr:
        chunk, point = (i[-1], i[:-1]) if last else (i[0], i[1:])
        return terms(chunks.place(chunk), chunks.conditions(chunk), *point)

    partial = te.compute((*shape, count) if last else (count, *shape), one, name=f"{name}_chunk")
    number = te.reduce_axis(count, "chunk")

    def total(*i: Expr) -> Expr:
        return te.sum(partial(*i, number.var) if last else partial(number.var, *i), axis=number)

    return te.compute(shape, total, name=name)


def long_sum(
    shape: Sequence[Expr], axes: Sequence[IterVar], element: Callable[..., tuple[Expr, Expr | None]], name: str
) -> Tensor:
    """The sum over `axes` of `element(*point) -> (term, condition)`, in their order. A float sum of more than `LONGEST`
    terms is taken in chunks, and the sums of these too where they are many; sums of symbolic length in one pass."""

    def whole(*i: Expr) -> Expr:
        term, where = element(*i)
        return te.sum(term, axis=list(axes), where=where)

    found = _place_to_cut(axes)
    if found is None or not element(*[Var("i") for _ in shape])[0].dtype.is_float:
        return te.compute(shape, whole, name=name)
    place, steps = found
    outer, axis, inner = axes[:place], axes[place], axes[place + 1 :]
    chunks = cut(int(axis.extent.value), steps, axis.var.name)  # type: ignore[attr-defined]

    def one(*i: Expr) -> Expr:
        point, numbers = i[: len(shape)], i[len(shape) :]
        chunk = numbers[-1]
        term, where = element(*point)
        conditions = [*chunks.conditions(chunk), *([] if where is None else [where])]
        moved: dict[Var, Expr] = {a.var: n for a, n in zip(outer, numbers[:-1], strict=True)}
        moved[axis.var] = chunks.place(chunk)
        condition = te.logical_and(*conditions) if conditions else None
        return te.sum(
            substitute(term, moved),
            axis=[chunks.within, *inner],
            where=None if condition is None else substitute(condition, moved),
        )

    sizes = [*[a.extent for a in outer], const(chunks.count)]
    partial = te.compute((*shape, *sizes), one, name=f"{name}_chunk")
    rest = [te.reduce_axis(e, a.var.name) for e, a in zip(sizes, [*outer, axis], strict=True)]
    return long_sum(shape, rest, lambda *i: (partial(*i, *[a.var for a in rest]), None), name)


def _place_to_cut(axes: Sequence[IterVar]) -> tuple[int, int] | None:
    """The axis that is cut, and how many terms each of its places stands for; None where the sum is taken in one."""
    extents = [simplify(a.extent) for a in axes]
    sizes = [int(e.value) for e in extents if isinstance(e, Const)]
    if len(sizes) < len(axes) or math.prod(sizes) <= LONGEST:
        return None
    steps = 1
    for place in reversed(range(len(sizes))):
        if steps * sizes[place] > CHUNK or place == 0:
            return place, steps
        steps *= sizes[place]
    return None


def find_chunk(op: ComputeOp) -> Tensor | None:
    """The sums of chunks that a stage adds up, if that is what it does: each of its points has its own."""
    body = op.bodies[0]
    if not isinstance(body, Reduce) or body.reducer.name != "sum":
        return None
    source = body.sources[0]
    if not isinstance(source, Load) or not isinstance(source.buffer, Tensor):
        return None
    made = source.buffer.op
    if not isinstance(made, ComputeOp) or not isinstance(made.bodies[0], Reduce):
        return None
    if made.bodies[0].reducer.name != "sum":
        return None
    spatial, indices = [a.var for a in op.axes], list(source.indices)
    if len(op.reduce_axes) == 1 and indices and indices[0] is op.reduce_axes[0].var:
        rest = indices[1:]  # the chunk's number comes first
        same = len(rest) == len(spatial) and all(i is v for i, v in zip(rest, spatial, strict=True))
        return source.buffer if same else None
    own = 0
    while own < min(len(spatial), len(indices)) and indices[own] is spatial[own]:
        own += 1
    used = {id(v) for i in indices[own:] for v in free_vars(i)}
    if own < len(spatial) - 1 or own == len(indices) or any(id(v) in used for v in spatial[:own]):
        return None
    return source.buffer
