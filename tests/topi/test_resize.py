"""Resize in every mode against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tensorir.interpreter import interpret
from tensorir.te import create_func, placeholder
from topi.op import OpError
from topi.registry import get_op

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
AMOUNTS: list[dict[str, Any]] = [
    {"scales": (1.0, 1.0, 2.5, 0.6)},
    {"scales": (1.0, 1.0, 2.0, 3.0)},
    {"sizes": (1, 2, 7, 3)},
    {"sizes": (1, 2, 1, 11)},
]


def by_onnxruntime(x: np.ndarray, amounts: dict[str, Any], **attrs: Any) -> np.ndarray:
    """The result of one ONNX Resize node."""
    helper = onnx.helper
    [(what, values)] = amounts.items()
    kind = onnx.TensorProto.FLOAT if what == "scales" else onnx.TensorProto.INT64
    constant = helper.make_tensor("amounts", kind, [len(values)], values)
    names = ["x", "", "amounts"] if what == "scales" else ["x", "", "", "amounts"]
    node = helper.make_node("Resize", names, ["y"], **attrs)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", 1, x.shape)], [value("y", 1, [None] * x.ndim)], initializer=[constant]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def by_us(x: np.ndarray, **attrs: Any) -> np.ndarray:
    t = placeholder(x.shape, "float32", "x")
    y = get_op("resize")(t, **attrs)
    out = np.full([int(e.value) for e in y.shape], np.nan, np.float32)
    interpret(create_func([t, y]), [x, out], mode="checked")
    return out


X = np.random.default_rng(0).standard_normal((1, 2, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest(coordinates: str, amounts: dict[str, Any]) -> None:
    # where a coordinate is whole but for rounding, floor and ceil depend on the order of float operations
    for nearest in NEAREST[:2] if coordinates == "half_pixel_symmetric" else NEAREST:
        wanted = by_onnxruntime(
            X, amounts, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=nearest
        )
        np.testing.assert_array_equal(by_us(X, **amounts, coordinates=coordinates, nearest=nearest), wanted)


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_linear(coordinates: str, amounts: dict[str, Any]) -> None:
    wanted = by_onnxruntime(X, amounts, mode="linear", coordinate_transformation_mode=coordinates)
    np.testing.assert_allclose(by_us(X, **amounts, coordinates=coordinates, mode="linear"), wanted, atol=2e-6)


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_cubic(coordinates: str, exclude: bool) -> None:
    for amounts in AMOUNTS:
        wanted = by_onnxruntime(
            X, amounts, mode="cubic", coordinate_transformation_mode=coordinates, exclude_outside=int(exclude)
        )
        ours = by_us(X, **amounts, coordinates=coordinates, mode="cubic", exclude_outside=exclude)
        np.testing.assert_allclose(ours, wanted, atol=5e-6)


def test_keeping_the_aspect_ratio() -> None:
    assert by_us(X, sizes=(8, 15), axes=(2, 3), aspect="not_larger").shape == (1, 2, 8, 10)
    assert by_us(X, sizes=(8, 15), axes=(2, 3), aspect="not_smaller").shape == (1, 2, 12, 15)


def test_antialias_is_refused() -> None:
    with pytest.raises(OpError, match="antialias is not supported"):
        by_us(X, scales=(1.0, 1.0, 0.5, 0.5), mode="linear", antialias=True)
