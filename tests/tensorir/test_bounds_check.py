"""Reads out of bounds are refused when the compute is declared; guarded and undecidable ones are not."""

from __future__ import annotations

import pytest

from tensorir import te
from tensorir.errors import ComputeError


def test_reduction_beyond_the_input() -> None:
    """apache/tvm#15205: a sum over 64 elements of a tensor of 3."""
    k_tensor = te.placeholder((3,), name="K")
    k = te.reduce_axis(64, "k")
    with pytest.raises(ComputeError) as caught:
        te.compute((), lambda: te.sum(k_tensor[k], axis=k), name="B")
    text = str(caught.value)
    assert "compute B: K is read out of bounds: index 0, k, runs from 0 to 63, but the extent is 3" in text
    assert "k runs from 0 to 63" in text and "te.if_then_else" in text


@pytest.mark.parametrize(
    "read",
    [
        lambda a, i, j: a[i - 1, j],
        lambda a, i, j: a[i, j + 1],
        lambda a, i, j: a[i * 2, j],
        lambda a, i, j: a[i // 2 + 7, j],
        lambda a, i, j: a[i + j, j],
        lambda a, i, j: a[te.minimum(i + 1, 12), j],
        lambda a, i, j: a[i, j % 4 + 4],
        lambda a, i, j: a[i, j + 100],
        lambda a, i, j: te.if_then_else(a[i, j + 1] > 0.0, 1.0, 2.0),
    ],
)
def test_refused(read) -> None:
    a = te.placeholder((10, 6), name="A")
    with pytest.raises(ComputeError, match="A is read out of bounds"):
        b = te.compute((10, 6), lambda i, j: read(a, i, j), name="B")
        te.create_func([a, b])  # an earlier step may be read inside a scan, which this is not


@pytest.mark.parametrize(
    "read",
    [
        lambda a, b, i, j: a[i, j],
        lambda a, b, i, j: te.if_then_else(i >= 1, a[i - 1, j], 0.0),
        lambda a, b, i, j: te.select(te.all(i >= 1, j < 5), a[i - 1, j + 1], 0.0),
        lambda a, b, i, j: a[te.maximum(i - 1, 0), te.minimum(j + 1, 5)],
        lambda a, b, i, j: a[9 - i, j],
        lambda a, b, i, j: a[b[i], j],
        lambda a, b, i, j: a[i * (9 - i) // 3, j],
        lambda a, b, i, j: a[(i * 6 + j) // 6, (i * 6 + j) % 6],
        lambda a, b, i, j: a[(i + 1) % 10, j],
    ],
)
def test_let_through(read) -> None:
    a = te.placeholder((10, 6), name="A")
    b = te.placeholder((10,), "int32", name="b")
    te.compute((10, 6), lambda i, j: read(a, b, i, j), name="B")


def test_symbolic_extents() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    te.compute((n,), lambda i: a[i], name="B")
    te.compute((n,), lambda i: a[i + 1], name="B")  # not decided here
    with pytest.raises(ComputeError, match="A is read out of bounds"):
        te.compute((n,), lambda i: a[i + n], name="B")
    with pytest.raises(ComputeError, match="A is read out of bounds"):
        te.compute((n,), lambda i: a[i - n], name="B")


def test_where_guards_the_source() -> None:
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis(3, "k")
    te.compute((8,), lambda i: te.sum(a[i + k], axis=k, where=i + k < 8), name="B")
    with pytest.raises(ComputeError, match="runs from 0 to 9"):
        te.compute((8,), lambda i: te.sum(a[i + k], axis=k), name="B")


def test_empty_domains_read_nothing() -> None:
    a = te.placeholder((0, 4), name="A")
    te.compute((0, 4), lambda i, j: a[i, j], name="B")
    k = te.reduce_axis(0, "k")
    te.compute((4,), lambda j: te.sum(a[k, j], axis=k), name="C")
