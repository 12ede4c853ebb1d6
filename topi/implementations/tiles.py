"""Register tiles for contractions, chosen by arithmetic: how many accumulators fit, how much of the last tile is
wasted, how many loads an FMA costs."""

from __future__ import annotations

from dataclasses import dataclass

from tensorir.dtypes import DType
from tensorir.target import Target


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x `columns` points by `blocks` vectors of the vectorised axis: rows * columns * blocks accumulators."""

    rows: int
    columns: int
    blocks: int

    @property
    def accumulators(self) -> int:
        """Vector registers that hold sums."""
        return self.rows * self.columns * self.blocks

    def __repr__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.blocks}"


def lanes(target: Target, dtype: DType) -> int:
    """Elements in a vector register (1 without vectors)."""
    return max(1, target.vector_bits // dtype.bits)


def fill(extent: int, tile: int) -> float:
    """Share of useful work when `extent` is cut into tiles."""
    return extent / (-(-extent // tile) * tile)


def block_fill(blocks: int, tile: int) -> float:
    """As `fill`, for the vectors of the packed operand: a last tile with some missing runs guarded, much slower."""
    return 1.0 if blocks % tile == 0 else 0.7 * fill(blocks, tile)


def load_share(tile: Tile) -> float:
    """Loads an FMA: one broadcast a point and one vector a block, or the broadcast folded into the FMA."""
    points = tile.rows * tile.columns
    return (points + tile.blocks) / tile.accumulators if tile.blocks > 1 else (points + 1) / points


def efficiency(tile: Tile, target: Target) -> float:
    """Share of the FMA peak a tile can reach: enough chains to hide the latency (4 cycles, 2 a cycle), few loads an
    FMA, and each vector of the packed operand used by several points. A core with two FMAs a cycle has just two loads
    for them, so loads count more there (measured: 28x1 takes 1.3 times as long as 6x4), and takes the packed operand
    from the second-level cache twice as fast (8x3 is ahead of 6x4 where that is long)."""
    chains = min(1.0, tile.accumulators / 8)
    loads, reuse = (0.06, 0.1) if target.fma_units == 1 else (0.35, 0.4)
    return chains * max(0.1, 1.0 - loads * load_share(tile) - reuse / (tile.rows * tile.columns))


def accumulator_limit(target: Target, blocks: int) -> int:
    """Accumulators that fit beside the `blocks` vectors of the packed operand and a broadcast element. A tile that
    spills all the same is rejected once it is built."""
    return max(1, min(target.vector_registers - 4, target.vector_registers - blocks - 2))


def choose_tiles(rows: int, columns: int, blocks: int, target: Target, *, limit: int = 6) -> list[Tile]:
    """Tiles for a map of rows x columns points and `blocks` vectors, best first. Only rows = 1 when a tile of columns
    alone fills the registers."""
    found: dict[tuple[int, int, int], float] = {}
    for b in (1, 2, 3, 4, 6, 8):
        if b > blocks:
            continue
        room = accumulator_limit(target, b) // b
        for c in range(1, min(columns, room) + 1):
            for r in range(1, min(rows, room // c) + 1):
                if r > 1 and c < columns:
                    continue
                tile = Tile(r, c, b)
                score = efficiency(tile, target) * fill(rows, r) * fill(columns, c) * block_fill(blocks, b)
                found[(r, c, b)] = score
    order = sorted(found, key=lambda t: (-found[t], t[0], -t[1]))
    return [Tile(*t) for t in order[:limit]]


def fma_rate(target: Target, dtype: DType) -> float:
    """Multiply-adds a second that the model counts on: all cores at 3 GHz, each with its vector FMAs a cycle."""
    return lanes(target, dtype) * 3e9 * target.fma_units * max(1, target.cores)


CORE_BYTES = 15e9
"""Bytes a second that one core brings from beyond its second-level cache."""
ALL_BYTES = 25e9
"""Bytes a second that all cores together bring from there."""
NEAR_BYTES = 60e9
"""Bytes a second that a core brings from its second-level cache."""


def stream_seconds(nbytes: float, target: Target) -> float:
    """Time to bring bytes from beyond the second-level cache."""
    return 0.0 if nbytes <= target.l2_bytes / 2 else nbytes / ALL_BYTES


def overlapped(work: float, stream: float) -> float:
    """Seconds of arithmetic and of a stream that is prefetched meanwhile: the longer one, and of the other what does
    not hide behind it (measured: about 0.4)."""
    return max(work, stream) + 0.4 * min(work, stream)
