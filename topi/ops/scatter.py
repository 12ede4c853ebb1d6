"""Scattering updates into a tensor: work of the host on whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.expr import const
from tensorir.te import Tensor
from topi.op import Onnx, OpError, attribute, op
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
