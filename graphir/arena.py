"""Where blocks with lifetimes lie in one arena, so that blocks alive together never overlap.

Greedy best fit: blocks in a fixed order (several are tried, the smallest arena is kept), each put at the lowest gap
among the placed blocks that are alive with it. Sizes with symbols are planned at a few sizes each; then each offset
becomes a formula: the largest end among the blocks placed below it that are alive with it. Such offsets are right for
every size. Of the plans that come about so, the one is kept that wastes least where it wastes most, over many sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphir import dims
from tensorir.expr import Expr

ALIGNMENT = 64
DEVICE_ALIGNMENT = 512
"""Where blocks of a device's arena start: what OpenCL devices ask of a part of a buffer, and CUDA of an allocation."""

REPRESENTATIVE = 8
"""The value of every symbol where one size must stand for all, in reports say."""

PLANNED = (8, 160, 640)
"""The values of all symbols at which blocks with symbols are laid out, to choose who lies above whom."""


@dataclass(frozen=True, slots=True, eq=False)
class ArenaBlock:
    """`nbytes` of memory needed from instruction `start` to instruction `end`, both included; `names` of its values."""

    nbytes: Expr
    start: int
    end: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Where a block lies: at `offset`, or, with symbols, after the ends of the blocks `after` (0 if there are none)."""

    offset: int | None
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """The blocks, their places and an order in which formulas can be evaluated. `nbytes` is None where it depends on
    symbols."""

    blocks: tuple[ArenaBlock, ...]
    placed: tuple[Placed, ...]
    order: tuple[int, ...]
    nbytes: int | None
    alignment: int = ALIGNMENT

    def layout(self, values: Mapping[str, int]) -> tuple[list[int], int]:
        """The offset of every block and the size of the arena for these symbols."""
        return self.stack([aligned(dims.evaluate(b.nbytes, values), self.alignment) for b in self.blocks])

    def stack(self, sizes: Sequence[int]) -> tuple[list[int], int]:
        """The offsets and the size of the arena for blocks of these (aligned) sizes."""
        offsets = [0] * len(sizes)
        for i in self.order:
            place = self.placed[i]
            offsets[i] = (
                place.offset
                if place.offset is not None
                else max((offsets[j] + sizes[j] for j in place.after), default=0)
            )
        return offsets, max((o + s for o, s in zip(offsets, sizes)), default=0)

    def peak(self, values: Mapping[str, int]) -> int:
        """The largest sum of bytes that are alive together, unpadded."""
        sizes = [dims.evaluate(b.nbytes, values) for b in self.blocks]
        moments = sorted({b.start for b in self.blocks})
        return max((sum(s for s, b in zip(sizes, self.blocks) if b.start <= t <= b.end) for t in moments), default=0)


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """A size rounded up, so that every block starts at a cache line."""
    return -(-nbytes // alignment) * alignment


def plan_arena(blocks: Sequence[ArenaBlock], *, share: bool, alignment: int = ALIGNMENT) -> Arena:
    """Places for the blocks; without `share` each has bytes of its own."""
    if not share:
        blocks = [ArenaBlock(b.nbytes, 0, 1 << 30, b.names) for b in blocks]
    names = sorted({v.name for b in blocks for v in dims.symbols_of(b.nbytes)})
    if names:
        return _by_formulas(blocks, names, alignment)
    sizes = [aligned(dims.evaluate(b.nbytes, {}), alignment) for b in blocks]
    offsets = min((_place(blocks, sizes, order) for order in _orders(blocks, sizes)), key=lambda o: _extent(o, sizes))
    placed = tuple(Placed(o) for o in offsets)
    return Arena(tuple(blocks), placed, _upwards(offsets), _extent(offsets, sizes), alignment)


def _by_formulas(blocks: Sequence[ArenaBlock], names: Sequence[str], alignment: int) -> Arena:
    """The best of the arenas that the layouts at several sizes lead to."""
    candidates: dict[tuple[int, ...], Arena] = {}
    for size in PLANNED:
        values = dict.fromkeys(names, size)
        sizes = [aligned(dims.evaluate(b.nbytes, values), alignment) for b in blocks]
        for order in _orders(blocks, sizes):
            upwards = _upwards(_place(blocks, sizes, order))
            if upwards not in candidates:
                candidates[upwards] = _stacked(blocks, upwards, alignment)
    samples = [
        ([aligned(dims.evaluate(b.nbytes, values), alignment) for b in blocks], values) for values in _samples(names)
    ]
    peaks = [max(candidates[next(iter(candidates))].peak(values), 1) for _, values in samples]

    def waste(arena: Arena) -> tuple[float, float]:
        ratios = [arena.stack(sizes)[1] / peak for (sizes, _), peak in zip(samples, peaks)]
        return max(ratios), sum(ratios)

    return min(candidates.values(), key=waste)


def _samples(names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes at which plans are judged: all symbols alike, and each of them alone small."""
    alike = [dict.fromkeys(names, size) for size in (*PLANNED, 2560)]
    one_small = [{**dict.fromkeys(names, size), name: 1} for size in PLANNED[1:] for name in names[:8]]
    return [*alike, *(one_small if len(names) > 1 else [])]


def _upwards(offsets: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the blocks from the lowest up."""
    return tuple(sorted(range(len(offsets)), key=lambda i: (offsets[i], i)))


def _stacked(blocks: Sequence[ArenaBlock], order: tuple[int, ...], alignment: int) -> Arena:
    """The arena in which each block stands on those before it in `order` that are alive with it."""
    rank = {i: n for n, i in enumerate(order)}
    below = [
        {j for j, other in enumerate(blocks) if rank[j] < rank[i] and _meet(block, other)}
        for i, block in enumerate(blocks)
    ]
    made: list[Placed] = []
    for under in below:
        # a block that lies below another of these ends before that one does: its end need not be looked at
        highest = sorted(under - set().union(*(below[j] for j in under)))
        made.append(Placed(None, tuple(highest)) if highest else Placed(0))
    return Arena(tuple(blocks), tuple(made), order, None, alignment)


def _meet(a: ArenaBlock, b: ArenaBlock) -> bool:
    return a.start <= b.end and b.start <= a.end


def _extent(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max((o + s for o, s in zip(offsets, sizes)), default=0)


def _orders(blocks: Sequence[ArenaBlock], sizes: Sequence[int]) -> list[list[int]]:
    """Orders worth trying: large first, long-lived first, by area, by time."""
    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-sizes[i], blocks[i].start),
        lambda i: (-sizes[i] * (blocks[i].end - blocks[i].start + 1), i),
        lambda i: (blocks[i].start, -sizes[i]),
        lambda i: (-(blocks[i].end - blocks[i].start), -sizes[i]),
        lambda i: (-max(sizes[j] for j in range(len(sizes)) if _meet(blocks[i], blocks[j])), -sizes[i]),
    ]
    return [sorted(range(len(blocks)), key=key) for key in keys]


def _place(blocks: Sequence[ArenaBlock], sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """Each block at the lowest gap that holds it, tightest gap first."""
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for i in order:
        busy = sorted((offsets[j], offsets[j] + sizes[j]) for j in placed if _meet(blocks[i], blocks[j]))
        best: tuple[int, int] | None = None
        at = 0
        for begin, end in busy:
            if begin - at >= sizes[i] and (best is None or begin - at < best[0]):
                best = (begin - at, at)
            at = max(at, end)
        offsets[i] = best[1] if best is not None else at
        placed.append(i)
    return offsets
