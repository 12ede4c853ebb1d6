"""Places in the arena: blocks alive together never overlap, for any size, and little is wasted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graphir import dims
from graphir.arena import ALIGNMENT, ArenaBlock, plan_arena

N = dims.symbol("n")
BLOCKS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=24
)


def check(blocks: list[ArenaBlock], values: dict[str, int], share: bool = True) -> None:
    arena = plan_arena(blocks, share=share)
    offsets, total = arena.layout(values)
    sizes = [dims.evaluate(b.nbytes, values) for b in blocks]
    for i, a in enumerate(blocks):
        assert offsets[i] % ALIGNMENT == 0 and offsets[i] + sizes[i] <= total
        for j, b in enumerate(blocks[:i]):
            together = a.start <= b.end and b.start <= a.end
            if (together or not share) and sizes[i] and sizes[j]:
                assert offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]


@settings(max_examples=150, deadline=None)
@given(BLOCKS, st.booleans())
def test_blocks_alive_together_never_overlap(items: list[tuple[int, int, int, int]], symbolic: bool) -> None:
    blocks = [
        ArenaBlock(dims.as_dim(size * 64 + (k * 100 * N if symbolic else k)), start, start + length)
        for size, k, start, length in items
    ]
    for n in (0, 1, 8, 33):
        check(blocks, {"n": n})
    check(blocks, {"n": 5}, share=False)


def test_a_chain_needs_two_blocks() -> None:
    blocks = [ArenaBlock(dims.as_dim(6400), i, i + 1) for i in range(30)]
    assert plan_arena(blocks, share=True).nbytes == 12800


def test_different_types_share_bytes() -> None:
    """Ten rounds of float32[200] beside int16[200] and int16[400]: the peak is what a hand count gives."""
    f32, i16, i16_double = dims.as_dim(800), dims.as_dim(400), dims.as_dim(800)
    blocks = [
        ArenaBlock(f32, 0, 5), ArenaBlock(f32, 0, 1), ArenaBlock(i16, 2, 4), ArenaBlock(i16, 2, 3), ArenaBlock(i16, 3,
        4), ArenaBlock(i16_double, 5, 5),
    ]  # fmt: skip
    arena = plan_arena(blocks, share=True)
    assert arena.peak({}) == 2000 and arena.nbytes is not None and arena.nbytes <= 1.15 * 2000


def test_sizes_beyond_32_bits_are_exact() -> None:
    """apache/tvm#2580: 16384 x 16384 float32 is 2^30 bytes and 2^33 bits; several of them, and symbolic ones."""
    side = 16384
    blocks = [ArenaBlock(dims.as_dim(side * side * 4), i, i + 2) for i in range(6)]
    assert plan_arena(blocks, share=False).nbytes == 6 << 30 and plan_arena(blocks, share=True).peak({}) == 3 << 30
    blocks = [ArenaBlock(dims.canonical(N * N * 4), i, i + 2) for i in range(6)]
    assert plan_arena(blocks, share=False).layout({"n": side})[1] == 6 << 30


def test_a_symbolic_size_is_never_taken_for_its_lower_bound() -> None:
    """apache/tvm#18663: sizes stay expressions."""
    blocks = [ArenaBlock(dims.canonical(N * 256), 0, 1), ArenaBlock(dims.canonical(N * 512), 1, 2)]
    arena = plan_arena(blocks, share=True)
    assert arena.nbytes is None and arena.layout({"n": 2})[1] == 1536
