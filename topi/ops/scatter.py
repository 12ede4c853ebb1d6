"""Scattering updates into a tensor, and the k largest elements: work of the host on whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.expr import Const, as_expr, const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, input_value, op
from topi.ops.shape import normalize_axis

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _number(value: int, name: str) -> Tensor:
    """An attribute as the 0-d operand of a host function."""
    made: Tensor = te.compute((), lambda: const(value, dtypes.int64), name=name)
    return made


def _check(name: str, data: Tensor, updates: Tensor, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise OpError(f"{name}: unknown reduction {reduction!r}", help=f"known are {', '.join(REDUCTIONS)}")
    if data.dtype != updates.dtype:
        raise OpError(f"{name}: data is {data.dtype} and updates are {updates.dtype}")


@op(
    "scatter_elements",
    onnx=[
        Onnx("Scatter", 9, {"axis": attribute("axis", 0)}),
        Onnx("ScatterElements", 11, {"axis": attribute("axis", 0)}),
        Onnx("ScatterElements", 16, {"axis": attribute("axis", 0), "reduction": attribute("reduction", "none")}),
    ],
)
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, /, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """data with every update combined into the point of its own with the coordinate of `axis` replaced by its index."""
    _check("scatter_elements", data, updates, reduction)
    place = _number(normalize_axis("scatter_elements", axis, len(data.shape)), "axis")
    made: Tensor = te.extern(
        [(data.shape, data.dtype)], [data, indices, updates, place], f"topi.host:scatter_elements_{reduction}",
        name="scatter_elements",
    )  # fmt: skip
    return made


def _apply(reduction: str, old: Any, new: Any) -> Any:
    functions: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    return new if reduction == "none" else functions[reduction](old, new)


@scatter_elements.reference
def _scatter_elements(data: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    result = data.copy()
    for point in np.ndindex(*indices.shape):
        place = list(point)
        place[axis] = indices[point]
        result[tuple(place)] = _apply(reduction, result[tuple(place)], updates[point])
    return result


for _reduction in REDUCTIONS:
    scatter_elements.case(
        [(5, 7), (3, 4), (3, 4)], ["float32", "int64", "float32"], low=-4, high=4, axis=1, reduction=_reduction
    )
scatter_elements.case([(5, 7), (0, 7), (0, 7)], ["int32", "int32", "int32"], low=-4, high=4)


@op(
    "scatter_nd",
    onnx=[Onnx("ScatterND", 11), Onnx("ScatterND", 16, {"reduction": attribute("reduction", "none")})],
)
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, /, *, reduction: str = "none") -> Tensor:
    """data with slices of updates combined in at the index tuples that the last dimension of `indices` holds."""
    _check("scatter_nd", data, updates, reduction)
    made: Tensor = te.extern(
        [(data.shape, data.dtype)], [data, indices, updates], f"topi.host:scatter_nd_{reduction}", name="scatter_nd"
    )
    return made


@scatter_nd.reference
def _scatter_nd(data: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    result = data.copy()
    for point in np.ndindex(*indices.shape[:-1]):
        place = tuple(indices[point])
        result[place] = _apply(reduction, result[place], updates[point])
    return result


for _reduction in REDUCTIONS:
    scatter_nd.case([(5, 7, 3), (4, 2), (4, 3)], ["float32", "int64", "float32"], low=-4, high=4, reduction=_reduction)


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
    place = normalize_axis("topk", axis, len(x.shape))
    count = as_expr(k[0] if isinstance(k, tuple) else k)
    extent = x.shape[place]
    if isinstance(count, Const) and isinstance(extent, Const) and int(count.value) > int(extent.value):
        raise OpError(f"topk: k is {count.value} but axis {axis} has {extent.value} elements")
    shape = (*x.shape[:place], count, *x.shape[place + 1 :])
    made: tuple[Tensor, Tensor] = te.extern(
        [(shape, x.dtype), (shape, dtypes.int64)], [x, _number(place, "axis"), _number(int(largest), "largest")],
        "topi.host:topk", name="topk",
    )  # fmt: skip
    return made


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
