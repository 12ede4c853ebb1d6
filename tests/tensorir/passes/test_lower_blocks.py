"""lower_blocks and decompose_reductions: blocks and their inits become statements."""

from __future__ import annotations

import numpy as np

from tensorir import te
from tensorir.expr import Var
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.lower_blocks import lower_blocks
from tests.tensorir.passes.checking import expected, matmul, reorder, require_same_bits, run, scaled, split, text


def test_predicate_becomes_a_condition() -> None:
    _, func = scaled(17)
    lowered = lower_blocks(split(func, "i", 4))
    assert text(lowered) == expected("""
        for i_o in 0..5:
          for i_i in 0..4:
            if i_o * 4 + i_i < 17:
              B[i_o * 4 + i_i] = A[i_o * 4 + i_i] * 2.0 + 1.0""")
    require_same_bits(func, lowered)


def test_provable_predicate_is_dropped() -> None:
    _, func = scaled(16)
    assert "if" not in text(lower_blocks(split(func, "i", 4)))


def test_init_moves_in_front_of_the_reduction() -> None:
    func = matmul(5, 7, 3)
    split_up = decompose_reductions(func)
    assert text(lower_blocks(split_up)) == expected("""
        for i in 0..5:
          for j in 0..7:
            C[i, j] = 0.0
            for k in 0..3:
              C[i, j] = fma(A[i, k], B[k, j], C[i, j])""")
    require_same_bits(func, lower_blocks(split_up))


def test_init_of_an_outer_reduction_gets_its_own_loops() -> None:
    func = reorder(split(matmul(5, 7, 9), "k", 4), ["k_o", "i", "k_i", "j"])
    lowered = lower_blocks(decompose_reductions(func))
    assert text(lowered) == expected("""
        for i in 0..5:
          for j in 0..7:
            C[i, j] = 0.0
        for k_o in 0..3:
          for i_1 in 0..5:
            for k_i in 0..4:
              for j_1 in 0..7:
                if k_o * 4 + k_i < 9:
                  C[i_1, j_1] = fma(A[i_1, k_o * 4 + k_i], B[k_o * 4 + k_i, j_1], C[i_1, j_1])""")
    require_same_bits(func, lowered)


def test_init_left_in_its_block_is_guarded() -> None:
    func = split(matmul(3, 4, 10), "k", 4)
    lowered = lower_blocks(func)
    assert "if k_o == 0 and k_i == 0:" in text(lowered)
    require_same_bits(func, lowered)


def test_empty_reduction_gives_the_identity() -> None:
    n = Var("n")
    a = te.placeholder((4, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    func = te.create_func([a, c], "rows")
    lowered = lower_blocks(decompose_reductions(func))
    for size in (1, 5):
        require_same_bits(func, lowered, {n: size})
    (result,) = run(lowered, [np.zeros((4, 0), "float32"), np.zeros(4, "float32")], {n: 0})
    assert result.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_conditional_reduction_keeps_its_bits() -> None:
    a = te.placeholder((3, 11), name="A")
    k = te.reduce_axis((0, 11), name="k")
    top = te.compute((3,), lambda i: te.max(a[i, k], axis=k, where=a[i, k] < 0.5), name="top")
    func = split(te.create_func([a, top], "top"), "k", 3)
    require_same_bits(func, lower_blocks(decompose_reductions(func)))


def test_nothing_to_do_gives_the_same_object() -> None:
    _, func = scaled(8)
    lowered = lower_blocks(func)
    assert lower_blocks(lowered) is lowered
    assert decompose_reductions(func) is func
