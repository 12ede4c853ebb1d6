"""Ops that the onnx reference evaluator computes wrongly (seen in onnx 1.23), done right for the judge.

`BatchNormalization` of opsets 7 to 13 runs there in training mode whenever the attribute momentum has a value, which
it always has; `GatherElements` loses rows where the indices have one; `LRN` sums for as many channels as the batch is
large; `MaxPool` with ceil_mode gives too many places; `GlobalMaxPool` reduces the wrong axes unless there are exactly
two spatial ones; `Softmax`, `LogSoftmax` and `Hardmax` have the meaning of opset 13 (one axis) in earlier opsets too,
where they work on all axes from `axis` on, 1 by default. This module imports the evaluator, so it is imported only
when the judge runs.
"""

from __future__ import annotations

import math

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool


class BatchNormalization(OpRun):
    """Every version: training only with training_mode (from 14), or several outputs and no is_test (before)."""

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        epsilon: float | None = None,
        is_test: int | None = None,
        momentum: float | None = None,
        spatial: int | None = None,
        training_mode: int | None = None,
        consumed_inputs: list[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        epsilon = 1e-5 if epsilon is None else epsilon
        momentum = 0.9 if momentum is None else momentum
        outputs = len(self.onnx_node.output)
        channel = (-1,) + (1,) * (x.ndim - 2)
        if not (training_mode or (outputs > 1 and not is_test)):
            return (_normalise(x, scale, bias, mean, variance, epsilon, channel),)
        axes = (0, *range(2, x.ndim))
        batch_mean, batch_variance = x.mean(axis=axes), x.var(axis=axes)
        result = _normalise(x, scale, bias, batch_mean, batch_variance, epsilon, channel)
        running_mean = mean * momentum + batch_mean * (1 - momentum)
        running_variance = variance * momentum + batch_variance * (1 - momentum)
        return (result, running_mean, running_variance, batch_mean, batch_variance)[:outputs]


class GatherElements(OpRun):
    """Elements at the points of the indices, the coordinate of one axis replaced; any shapes that fit."""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int | None = None) -> tuple[np.ndarray]:
        axis = 0 if axis is None else axis % data.ndim
        place: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        place[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        return (data[tuple(place)],)


class GlobalMaxPool(OpRun):
    """The largest element over all axes but the first two, for any number of them."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(_MaxPool):
    """With ceil_mode no window starts in the padding behind the operand; two outputs are left to the evaluator."""

    def _run(  # type: ignore[override]  # its base class overrides the same way
        self,
        x: np.ndarray,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: list[int] | None = None,
        kernel_shape: list[int] | None = None,
        pads: list[int] | None = None,
        storage_order: int | None = None,
        strides: list[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        given = (auto_pad, ceil_mode, dilations, kernel_shape, pads, storage_order, strides)
        if not ceil_mode or auto_pad not in (None, "NOTSET") or len(self.onnx_node.output) > 1 or kernel_shape is None:
            result: tuple[np.ndarray, ...] = super()._run(x, *given)
            return result
        rank = len(kernel_shape)
        pads, strides, dilations = pads or [0] * 2 * rank, strides or [1] * rank, dilations or [1] * rank
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        for axis, (kernel, stride, dilation) in enumerate(zip(kernel_shape, strides, dilations)):
            before, after, size = pads[axis], pads[axis + rank], x.shape[axis + 2]
            reach = dilation * (kernel - 1) + 1
            count = -(-(size + before + after - reach) // stride) + 1
            if (count - 1) * stride >= size + before:
                count -= 1
            behind = max((count - 1) * stride + reach - size - before, 0)
            widths = [(0, 0)] * x.ndim
            widths[axis + 2] = (before, behind)
            padded = np.pad(x, widths, constant_values=lowest)
            parts = [
                np.take(padded, range(k * dilation, k * dilation + (count - 1) * stride + 1, stride), axis + 2)
                for k in range(kernel)
            ]
            x = np.maximum.reduce(parts)
        return (x,)


class LRN(OpRun):
    """Each element over a power of the squares around it on axis 1, for every channel and any rank."""

    def _run(
        self,
        x: np.ndarray,
        alpha: float | None = None,
        beta: float | None = None,
        bias: float | None = None,
        size: int | None = None,
    ) -> tuple[np.ndarray]:
        assert size is not None
        alpha, beta, bias = (d if v is None else v for v, d in ((alpha, 1e-4), (beta, 0.75), (bias, 1.0)))
        before, after = (size - 1) // 2, size // 2
        squares = np.stack(
            [np.sum(x[:, max(0, c - before) : c + after + 1] ** 2, axis=1) for c in range(x.shape[1])], axis=1
        )
        return ((x / (bias + alpha / size * squares) ** beta).astype(x.dtype),)


class Softmax(OpRun):
    """Along one axis from opset 13 on, before that over all axes from `axis` on."""

    def _run(self, x: np.ndarray, axis: int | None = None) -> tuple[np.ndarray]:
        given = [attribute.i for attribute in self.onnx_node.attribute if attribute.name == "axis"]
        if self.run_params["opsets"][""] < 13:
            axis = given[0] if given else 1
            axis += x.ndim if axis < 0 else 0
            rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
            return (self._of_rows(rows).reshape(x.shape),)
        moved = np.moveaxis(x, given[0] if given else -1, -1)
        rows = moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])
        return (np.moveaxis(self._of_rows(rows).reshape(moved.shape), -1, given[0] if given else -1),)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The function of each row of a matrix."""
        powers = np.exp(rows - rows.max(axis=1, keepdims=True, initial=-np.inf))
        return powers / powers.sum(axis=1, keepdims=True)


class LogSoftmax(Softmax):
    """The logarithm of Softmax, without forming it."""

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        shifted = rows - rows.max(axis=1, keepdims=True, initial=-np.inf)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


class Hardmax(Softmax):
    """One at the first largest element of each row, zero elsewhere."""

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        result = np.zeros_like(rows)
        if rows.size:
            np.put_along_axis(result, rows.argmax(axis=1)[:, None], 1, axis=1)
        return result


CORRECTED_OPS: list[type[OpRun]] = [
    BatchNormalization,
    GatherElements,
    GlobalMaxPool,
    LRN,
    MaxPool,
    Softmax,
    LogSoftmax,
    Hardmax,
]


def _normalise(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    epsilon: float,
    channel: tuple[int, ...],
) -> np.ndarray:
    factor = scale / np.sqrt(variance + epsilon)
    return (x - mean.reshape(channel)) * factor.reshape(channel) + bias.reshape(channel)
