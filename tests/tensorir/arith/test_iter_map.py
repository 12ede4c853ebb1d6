"""Strides and one-to-one maps."""

from __future__ import annotations

from tensorir import te
from tensorir.arith import Analyzer
from tensorir.arith.iter_map import affine_parts, constant_stride, is_bijective, stride_of
from tensorir.expr import Var

P, J, N, F = (Var(x) for x in "ijnf")


def test_strides() -> None:
    assert constant_stride(P * 4 + J, P) == 4
    assert constant_stride(P * 4 + J, J) == 1
    assert constant_stride(J, P) == 0
    assert constant_stride(P * 4 - (P + J) * 3, P) == 1
    assert repr(stride_of(P * N + J, P)) == "n"
    assert constant_stride(P * N, P) is None
    assert stride_of(P // 4, P) is None
    assert stride_of(P * P, P) is None
    table = te.placeholder((8,), "int32", name="t")
    assert stride_of(table[P], P) is None


def test_strides_with_bounds() -> None:
    analyzer = Analyzer()
    analyzer.bind(J, 0, 16)
    assert constant_stride((P * 16 + J) % 16, J, analyzer) == 1
    assert constant_stride((P * 16 + J) // 16, J, analyzer) == 0


def test_affine_parts() -> None:
    analyzer = Analyzer()
    result = affine_parts(P * N + J * 3 + N + 1, (P, J), analyzer)
    assert result is not None
    assert repr(result) == "((n, 3), n + 1)"
    assert affine_parts(P % 3, (P,), analyzer) is None


def test_one_to_one() -> None:
    analyzer = Analyzer()
    loops = {P: 8, J: 4}
    assert is_bijective((P, J), loops, analyzer)
    assert is_bijective((P * 4 + J,), loops, analyzer)
    assert is_bijective((J * 8 + P,), loops, analyzer)
    assert not is_bijective((P + J,), loops, analyzer)
    assert not is_bijective((P * 3 + J,), loops, analyzer)
    assert not is_bijective((P,), loops, analyzer)
    assert is_bijective((F // 7, F % 7), {F: 49}, analyzer)
    assert is_bijective((F // 28, F % 28 // 4, F % 4), {F: 56}, analyzer)
    assert not is_bijective((F // 7, F % 6), {F: 49}, analyzer)
    assert not is_bijective((F // 8,), {F: 49}, analyzer)
