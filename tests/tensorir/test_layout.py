"""Layouts: maps there and back, shapes, padding, spelling, and the mistakes one can make."""

from __future__ import annotations

import itertools

import pytest

from tensorir.arith import Analyzer, simplify
from tensorir.equality import structural_equal
from tensorir.expr import Const, Var, as_expr
from tensorir.layout import Dim, Layout, LayoutError
from tests.tensorir.arith.evaluate import evaluate

NCHW16C = Layout.parse("NCHW16c", logical="NCHW")


def numbers(exprs) -> tuple[int, ...]:
    return tuple(evaluate(e, {}) for e in exprs)


def test_packed_channels() -> None:
    n, c, h, w, co, ci = (Var(x) for x in ("n", "c", "h", "w", "co", "ci"))
    assert repr(NCHW16C.physical_indices((n, c, h, w))) == "(n, c // 16, h, w, c % 16)"
    assert repr(NCHW16C.logical_indices((n, co, h, w, ci))) == "(n, co * 16 + ci, h, w)"
    assert numbers(NCHW16C.physical_shape((1, 20, 7, 7))) == (1, 2, 7, 7, 16)
    analyzer = Analyzer()
    analyzer.bind(ci, 0, 16)
    back = NCHW16C.physical_indices(NCHW16C.logical_indices((n, co, h, w, ci)), analyzer)
    assert all(a is b for a, b in zip(back, (n, co, h, w, ci), strict=True))


@pytest.mark.parametrize("text", ["NCHW", "NHWC", "NCHW16c", "NCHW4n8c", "HWNC2c3c", "CHWN4h"])
def test_there_and_back(text: str) -> None:
    layout = Layout.parse(text, logical="NCHW")
    shape = (4, 7, 5, 3)
    physical = numbers(layout.physical_shape(shape))
    met = set()
    for point in itertools.product(*map(range, shape)):
        place = numbers(simplify(i) for i in layout.physical_indices(point))
        assert all(0 <= p < extent for p, extent in zip(place, physical, strict=True))
        assert numbers(simplify(i) for i in layout.logical_indices(place)) == point
        met.add(place)
    assert len(met) == 4 * 7 * 5 * 3
    for place in itertools.product(*map(range, physical)):
        assert bool(evaluate(layout.valid(place, shape), {})) is (place in met)


def test_padding() -> None:
    assert not NCHW16C.is_padded((1, 32, 7, 7))
    assert NCHW16C.is_padded((1, 20, 7, 7))
    n = Var("n")
    assert NCHW16C.is_padded((1, n, 7, 7))
    assert not NCHW16C.is_padded((1, n * 16, 7, 7))
    assert not Layout.plain(4).is_padded((1, 20, 7, 7))
    place = tuple(Var(x) for x in "abcde")
    assert isinstance(NCHW16C.valid(place, (1, 32, 7, 7)), Const)
    assert repr(NCHW16C.valid(place, (1, 20, 7, 7))) == "b * 16 + e < 20"
    assert structural_equal(NCHW16C.physical_shape((n, 3, n, 1))[0], as_expr(n))


def test_values() -> None:
    assert Layout.parse("NCHW", logical="NCHW") == Layout.plain(4)
    assert Layout.plain(4).is_plain and not NCHW16C.is_plain
    assert NCHW16C == Layout.plain(4).split(1, 16)
    assert hash(NCHW16C) == hash(Layout.plain(4).split(1, 16))
    assert Layout.parse("NHWC", logical="NCHW") == Layout.plain(4).permute((0, 2, 3, 1))
    assert str(NCHW16C) == "ABCD16b"
    assert Layout.parse(str(NCHW16C), logical="ABCD") == NCHW16C
    assert Layout.plain(0).physical_shape(()) == ()
    assert NCHW16C.split(4, 4).dims[-2:] == (Dim(1, 4, 4), Dim(1, 1, 4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NCHX", "'X' is no axis"),
        ("NCH", "'W' must stand once"),
        ("NCHWC", "'C' must stand once"),
        ("NCHWc", "'c' is not a dimension"),
        ("NCH2W", "'2W' is not a dimension"),
        ("NC HW", "not a sequence"),
    ],
)
def test_mistakes(text: str, words: str) -> None:
    with pytest.raises(LayoutError, match=words):
        Layout.parse(text, logical="NCHW")


def test_more_mistakes() -> None:
    with pytest.raises(LayoutError, match="no order"):
        NCHW16C.permute((0, 1))
    with pytest.raises(LayoutError, match="cannot be split by 3"):
        NCHW16C.split(4, 3)
    with pytest.raises(LayoutError, match="4 logical dimensions, not 3"):
        NCHW16C.physical_shape((1, 2, 3))
    with pytest.raises(LayoutError, match="5 physical dimensions, not 4"):
        NCHW16C.logical_indices((1, 2, 3, 4))
    with pytest.raises(LayoutError, match="do not cover"):
        Layout(1, (Dim(0, 2), Dim(0, 1, 3)))


def test_a_transposed_layout_is_the_same_memory() -> None:
    packed = Layout.parse("NCHW16c", logical="NCHW")
    turned = packed.transpose((0, 2, 3, 1))
    assert str(turned) == "ADBC16d" and turned.transpose((0, 3, 1, 2)) == packed
    assert [str(e) for e in turned.physical_shape((2, 5, 7, 40))] == [
        str(e) for e in packed.physical_shape((2, 40, 5, 7))
    ]
    with pytest.raises(LayoutError, match=r"\(0, 1\) is no order of its 4 axes"):
        packed.transpose((0, 1))
