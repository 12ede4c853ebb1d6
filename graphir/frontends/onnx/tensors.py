"""Tensors of a model file as arrays, with one clear sentence for each way in which their data can be wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphir.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

LARGEST = 1 << 34
"""The most bytes that a constant made by a node may have (no file holds it, so any number can be asked for)."""


def tensor_array(tensor: onnx.TensorProto, what: str) -> np.ndarray:
    """The array in a tensor; `what` names it in messages. Raises `ModelError` where its data do not fill its shape."""
    import onnx

    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{what} has the shape {shape}, with a negative size", help="export the model again")
    if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
        raise ModelError(
            f"{what} has element type number {tensor.data_type}, which ONNX does not have",
            help="export the model again",
        )
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ModelError(
            f"{what} has data that do not fill its shape {shape}: {error}",
            help="the model is damaged; fetch or export it again",
        ) from None


def require_sizes(sizes: Sequence[int], dtype: np.dtype, what: str) -> None:
    """Refuses sizes that no array can have here. `what` names who asks for it."""
    if any(s < 0 for s in sizes):
        raise ModelError(f"{what} asks for the shape {tuple(sizes)}, with a negative size")
    nbytes = math.prod(sizes) * dtype.itemsize
    if nbytes > LARGEST:
        raise ModelError(
            f"{what} asks for a constant of shape {tuple(sizes)}: {nbytes:,} bytes, more than {LARGEST:,}",
            help="make a smaller one, or let a model input decide the size",
        )
