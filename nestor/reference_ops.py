"""Ops that the onnx reference evaluator computes wrongly (seen in onnx 1.23), done right for the judge.

`BatchNormalization` of opsets 7 to 13 runs there in training mode whenever the attribute momentum has a value, which
it always has; `GlobalMaxPool` reduces the wrong axes unless there are exactly two spatial ones; `Softmax`,
`LogSoftmax` and `Hardmax` have the meaning of opset 13 (one axis) in earlier opsets too, where they work on all axes
from `axis` on, 1 by default. This module imports the evaluator, so it is imported only when the judge runs.
"""

from __future__ import annotations

import math

import numpy as np
from onnx.reference.op_run import OpRun


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


class GlobalMaxPool(OpRun):
    """The largest element over all axes but the first two, for any number of them."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


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


CORRECTED_OPS: list[type[OpRun]] = [BatchNormalization, GlobalMaxPool, Softmax, LogSoftmax, Hardmax]


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
