"""Sorting and what is made of it: sort, top-k, unique, non-zero places, boxes kept by non-maximum suppression. Opaque
work on whole tensors by bodies that numba compiles.

Results whose size the data decide are computed into the largest size; the last result says how many elements hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.expr import Const, as_expr, const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, input_value, op
from topi.ops.shape import normalize_axis


def _number(value: Any, name: str, dtype: Any = dtypes.int64) -> Tensor:
    """An attribute as the 0-d operand of a host function."""
    made: Tensor = te.compute((), lambda: const(value, dtype), name=name)
    return made


def _sorted(name: str, x: Tensor, axis: int, count: Any, largest: bool) -> tuple[Tensor, Tensor]:
    place = normalize_axis(name, axis, len(x.shape))
    shape = (*x.shape[:place], count, *x.shape[place + 1 :])
    made: tuple[Tensor, Tensor] = te.extern(
        [(shape, x.dtype), (shape, dtypes.int64)], [x, _number(place, "axis"), _number(int(largest), "largest")],
        "topi.externs.sorting:topk", name=name,
    )  # fmt: skip
    return made


@op("sort")
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements in order along an axis, and their old places as int64; equal ones keep their order, NaN is larger
    than any number."""
    return _sorted("sort", x, axis, x.shape[normalize_axis("sort", axis, len(x.shape))], descending)


@sort.reference
def _sort(x: Any, *, axis: int = -1, descending: bool = False) -> Any:
    return _topk(x, k=x.shape[axis], axis=axis, largest=descending)


sort.case([(3, 37)])
sort.case([(5, 40, 2)], axis=1, descending=True)
sort.case([(4, 9)], "int32", axis=0, low=0, high=3)
sort.case([(0,)])


@op(
    "topk",
    onnx=[
        Onnx("TopK", 1, {"k": attribute("k"), "axis": attribute("axis", -1)}),
        Onnx("TopK", 10, {"k": input_value(1), "axis": attribute("axis", -1)}, inputs=(0,)),
        Onnx(
            "TopK", 11,
            {"k": input_value(1), "axis": attribute("axis", -1), "largest": attribute("largest", 1, bool)},
            inputs=(0,),
        ),
    ],
)  # fmt: skip
def topk(x: Tensor, /, *, k: Any, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis in order, and their int64 indices: of equals the lower one
    first, NaN larger than any number."""
    extent = x.shape[normalize_axis("topk", axis, len(x.shape))]
    count = as_expr(k[0] if isinstance(k, tuple) else k)
    if isinstance(count, Const) and isinstance(extent, Const) and int(count.value) > int(extent.value):
        raise OpError(f"topk: k is {count.value} but axis {axis} has {extent.value} elements")
    return _sorted("topk", x, axis, count, largest)


@topk.reference
def _topk(x: Any, *, k: int, axis: int = -1, largest: bool = True) -> Any:
    rows = np.moveaxis(x, axis, -1)
    values = np.empty((*rows.shape[:-1], k), x.dtype)
    places = np.empty(values.shape, np.int64)
    for point in np.ndindex(*rows.shape[:-1]):
        row = rows[point]
        order = sorted(range(len(row)), key=lambda i: (-row[i] if largest else row[i], i))[:k]
        values[point], places[point] = row[order], order
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


topk.case([(3, 37)], k=5)
topk.case([(6, 5)], "int32", k=3, axis=0, largest=False, low=0, high=3)
topk.case([(2, 9, 3)], "float32", k=9, axis=1)
topk.case([(2, 100)], "float16", k=3)


@op("unique", bounded=[Onnx("Unique", 11, {"is_sorted": attribute("sorted", 1, bool)})])
def unique(x: Tensor, /, *, is_sorted: bool = True) -> tuple[Tensor, ...]:
    """Of a vector: its distinct elements (ascending, or by first place), the first place of each, for every element the
    number of its value, how often each stands, and how many there are; what is beyond that number is 0."""
    if len(x.shape) != 1:
        raise OpError(f"unique: the operand has {len(x.shape)} dimensions, not 1", help="flatten it first")
    whole = (x.shape, dtypes.int64)
    made: tuple[Tensor, ...] = te.extern(
        [(x.shape, x.dtype), whole, whole, whole, ((), dtypes.int64)], [x, _number(int(is_sorted), "is_sorted")],
        "topi.externs.sorting:unique", name="unique",
    )  # fmt: skip
    return made


@unique.reference
def _unique(x: Any, *, is_sorted: bool = True) -> Any:
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]

    def padded(a: Any) -> Any:
        return np.concatenate([a, np.zeros(len(x) - len(a), a.dtype)])

    return padded(values), padded(first), inverse, padded(counts), np.array(len(values))


unique.case([(40,)], "int32", low=0, high=9)
unique.case([(40,)], "int64", low=-3, high=9, is_sorted=False)
unique.case([(17,)])
unique.case([(0,)])


@op("nonzero", bounded=[Onnx("NonZero", 1), Onnx("NonZero", 9), Onnx("NonZero", 13)])
def nonzero(x: Tensor, /) -> tuple[Tensor, Tensor]:
    """The indices of the non-zero elements in row-major order as columns of an int64 (rank, elements) matrix, and how
    many there are; columns beyond that number are 0."""
    rank = len(x.shape)
    if rank == 0:
        raise OpError("nonzero: a 0-d operand has no axis to index", help="reshape it to one element")
    size: Any = const(1)
    for extent in x.shape:
        size = size * extent
    steps: list[Any] = [const(1)]
    for extent in reversed(x.shape[1:]):
        steps.insert(0, steps[0] * extent)
    flat = te.compute((size,), lambda f: x[tuple(f // s % e for s, e in zip(steps, x.shape, strict=True))], name="flat")
    extents = te.compute((rank,), lambda a: _chosen(a, x.shape), name="extents")
    made: tuple[Tensor, Tensor] = te.extern(
        [((rank, size), dtypes.int64), ((), dtypes.int64)], [flat, extents],
        "topi.externs.selecting:nonzero", name="nonzero",
    )  # fmt: skip
    return made


def _chosen(place: Any, items: Any) -> Any:
    """The item of a tuple of expressions at a place."""
    result = as_expr(items[-1])
    for number in reversed(range(len(items) - 1)):
        result = te.select(te.equal(place, number), items[number], result)
    return result


@nonzero.reference
def _nonzero(x: Any) -> Any:
    found = np.stack(np.nonzero(x)).astype(np.int64)
    padding = np.zeros((x.ndim, x.size - found.shape[1]), np.int64)
    return np.concatenate([found, padding], 1), np.array(found.shape[1])


nonzero.case([(3, 5)], "int32", low=0, high=1)
nonzero.case([(2, 3, 4)], "bool")
nonzero.case([(9,)], "float32")


@op(
    "non_max_suppression",
    bounded=[
        Onnx(
            "NonMaxSuppression", since,
            {
                "max_output_boxes_per_class": input_value(2, 0), "iou_threshold": input_value(3, 0.0),
                "score_threshold": input_value(4, float("-inf")),
                "center_point_box": attribute("center_point_box", 0, bool),
            },
            inputs=(0, 1),
        )
        for since in (10, 11)
    ],
)  # fmt: skip
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    /,
    *,
    max_output_boxes_per_class: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = float("-inf"),
    center_point_box: bool = False,
) -> tuple[Tensor, Tensor]:
    """Of boxes (batch, box, 4) with scores (batch, class, box): the (batch, class, box) rows of boxes that no better
    one of their class overlaps by more than `iou_threshold`, best first, and how many rows hold; the rest is 0."""
    if len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise OpError("non_max_suppression: boxes are (batch, box, 4) and scores (batch, class, box)")
    most = int(max_output_boxes_per_class)
    rows = scores.shape[0] * scores.shape[1] * te.minimum(as_expr(most), scores.shape[2])
    limits = te.compute(
        (2,),
        lambda i: te.select(
            te.equal(i, 0), const(float(iou_threshold), dtypes.float64), const(float(score_threshold), dtypes.float64)
        ),
        name="limits",
    )
    made: tuple[Tensor, Tensor] = te.extern(
        [((rows, 3), dtypes.int64), ((), dtypes.int64)],
        [boxes, scores, limits, _number(most, "most"), _number(int(center_point_box), "center")],
        "topi.externs.selecting:non_max_suppression", name="non_max_suppression",
    )  # fmt: skip
    return made


@non_max_suppression.reference
def _non_max_suppression(
    boxes: Any,
    scores: Any,
    *,
    max_output_boxes_per_class: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = float("-inf"),
    center_point_box: bool = False,
) -> Any:
    if center_point_box:
        middle, half = boxes[..., 1::-1], boxes[..., 3:1:-1] / 2
        corners = np.concatenate([middle - half, middle + half], -1)
    else:
        y, x = np.sort(boxes[..., 0::2], -1), np.sort(boxes[..., 1::2], -1)
        corners = np.stack([y[..., 0], x[..., 0], y[..., 1], x[..., 1]], -1)
    rows = []
    for n, c in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for i in np.argsort(-scores[n, c], kind="stable"):
            if len(kept) == max_output_boxes_per_class or not scores[n, c, i] > score_threshold:
                continue
            if all(_iou(corners[n, i], corners[n, j]) <= iou_threshold for j in kept):
                kept.append(i)
                rows.append((n, c, i))
    size = scores.shape[0] * scores.shape[1] * min(max_output_boxes_per_class, scores.shape[2])
    padded = np.zeros((size, 3), np.int64)
    padded[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
    return padded, np.array(len(rows))


def _iou(a: Any, b: Any) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    if (sides <= 0).any():
        return 0.0
    shared = float(np.prod(sides))
    return shared / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


non_max_suppression.case([(1, 20, 4), (1, 2, 20)], max_output_boxes_per_class=5, iou_threshold=0.3)
non_max_suppression.case(
    [(2, 15, 4), (2, 3, 15)], max_output_boxes_per_class=30, iou_threshold=0.5, score_threshold=0.1
)
non_max_suppression.case(
    [(1, 12, 4), (1, 1, 12)], max_output_boxes_per_class=4, iou_threshold=0.2, center_point_box=True, low=0.1
)
