"""Selecting places by their values: non-zero elements, and boxes that do not overlap a better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from targets.externs import compiled
from topi.externs.sorting import _order

Array = Any


@compiled
def nonzero(x: Array, shape: Array, places: Array, number: Array) -> None:
    """The indices of non-zero elements of a flat array of the given shape, one column each, in row-major order;
    `number` is how many. Columns beyond that are zero."""
    rank = len(shape)
    found = 0
    places[:] = 0
    for flat in range(len(x)):
        if x[flat] != 0:
            rest = flat
            for axis in range(rank - 1, -1, -1):
                places[axis, found] = rest % shape[axis]
                rest //= shape[axis]
            found += 1
    number[()] = found


@compiled
def _corners(box: Array, center: bool, out: Array) -> None:
    """Low y, low x, high y, high x of a box given by two corners or by its center and size."""
    if center:
        out[0], out[2] = box[1] - box[3] / 2, box[1] + box[3] / 2
        out[1], out[3] = box[0] - box[2] / 2, box[0] + box[2] / 2
    else:
        out[0], out[2] = min(box[0], box[2]), max(box[0], box[2])
        out[1], out[3] = min(box[1], box[3]), max(box[1], box[3])


@compiled
def _overlap(a: Array, b: Array) -> float:
    """Intersection over union of two boxes given by their corners."""
    height = min(a[2], b[2]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[1], b[1])
    if height <= 0 or width <= 0:
        return 0.0
    shared = height * width
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


@compiled
def non_max_suppression(
    boxes: Array, scores: Array, limits: Array, most: Array, center: Array, selected: Array, number: Array
) -> None:
    """Rows (batch, class, box) of boxes kept: by falling score, those above the threshold `limits[1]` that overlap no
    kept box of their class by more than `limits[0]`, at most `most` a class. `number` is how many rows hold."""
    batches, classes, count = scores.shape
    if boxes.shape[0] != batches or boxes.shape[1] != count or boxes.shape[2] != 4:
        raise ValueError("boxes and scores do not belong together")
    corners = np.empty((count, 4), boxes.dtype)
    places, spare, kept = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    found = 0
    selected[:] = 0
    for n in range(batches):
        for i in range(count):
            _corners(boxes[n, i], center[()] != 0, corners[i])
        for c in range(classes):
            _order(scores[n, c], places, spare, True)
            taken = 0
            for place in range(count):
                i = places[place]
                if taken >= most[()]:
                    break
                if not scores[n, c, i] > limits[1]:
                    continue
                free = True
                for j in range(taken):
                    if _overlap(corners[i], corners[kept[j]]) > limits[0]:
                        free = False
                        break
                if free:
                    kept[taken] = i
                    taken += 1
                    selected[found, 0] = n
                    selected[found, 1] = c
                    selected[found, 2] = i
                    found += 1
    number[()] = found
