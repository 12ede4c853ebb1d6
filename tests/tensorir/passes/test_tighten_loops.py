"""tighten_loops: guards become bounds."""

from __future__ import annotations

import pytest

from tensorir import te
from tensorir.expr import Var
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.tighten_loops import tighten_loops
from tensorir.stmt import Func
from tests.tensorir.passes.checking import (
    MASKED,
    PLAIN,
    expected,
    loop,
    require_same_bits,
    scaled,
    split,
    text,
    with_kind,
)


def convolution(h: int, taps: int, pad: int) -> Func:
    """Out[y] = sum of X[y + k - pad] * W[k] over the taps that lie inside."""
    x, w = te.placeholder((h,), name="X"), te.placeholder((taps,), name="W")
    k = te.reduce_axis((0, taps), name="k")
    out = te.compute(
        (h + 2 * pad - taps + 1,),
        lambda y: te.sum(x[y + k - pad] * w[k], axis=k, where=te.logical_and(y + k - pad >= 0, y + k - pad < h)),
        name="Out",
    )
    return te.create_func([x, w, out], "convolution")


def lowered(func: Func) -> Func:
    return lower_blocks(decompose_reductions(func))


def test_padded_taps_are_skipped() -> None:
    func = convolution(9, 3, 1)
    tight = tighten_loops(lowered(func), MASKED)
    assert text(tight) == expected("""
        for y in 0..9:
          Out[y] = 0.0
          for k in max(0, y * -1 + 1)..+(min(3, y * -1 + 10) - max(0, y * -1 + 1)):
            Out[y] = fma(X[y + k - 1], W[k], Out[y])""")
    require_same_bits(func, tight)


@pytest.mark.parametrize("h", [1, 2, 3, 8])
@pytest.mark.parametrize("taps, pad", [(1, 0), (3, 1), (5, 2), (7, 3), (3, 2)])
def test_any_window(h: int, taps: int, pad: int) -> None:
    func = convolution(h, taps, pad)
    tight = tighten_loops(lowered(func), MASKED)
    assert "if" not in text(tight)
    require_same_bits(func, tight)


def test_condition_leaves_the_loops_that_it_does_not_ask_about() -> None:
    x = te.placeholder((4, 9), name="X")
    k = te.reduce_axis((0, 4), name="k")
    out = te.compute(
        (4, 9), lambda y, z: te.sum(x[y, z] + x[k, z], axis=k, where=te.logical_and(y > 1, k < y)), name="Out"
    )
    func = te.create_func([x, out], "triangle")
    tight = tighten_loops(lowered(func), MASKED)
    assert "if 1 < y:" in text(tight)
    assert "for k in 0..min(4, y):" in text(tight) or "for k in 0..y:" in text(tight)
    require_same_bits(func, tight)


def test_tail_of_a_symbolic_split() -> None:
    n = Var("n")
    _, func = scaled(n)
    tight = tighten_loops(lowered(split(func, "i", 64)), MASKED)
    assert "if" not in text(tight)
    for size in (1, 63, 64, 65, 127):
        require_same_bits(func, tight, {n: size})


def test_vectorized_loop_stays_constant() -> None:
    _, func = scaled(17)
    guarded = lowered(with_kind(split(func, "i", 8), "i_i", "vectorized"))
    assert repr(loop(tighten_loops(guarded, MASKED), "i_i").extent) == "8"
    _, func = scaled(5)
    short = lowered(with_kind(split(func, "i", 8), "i_i", "vectorized"))
    alone = tighten_loops(short, PLAIN)
    assert "if" in text(tighten_loops(short, MASKED)) or repr(loop(alone, "i_i").extent) == "8"


def test_nothing_to_do_gives_the_same_object() -> None:
    _, func = scaled(16)
    low = lowered(func)
    assert tighten_loops(low, MASKED) is low
