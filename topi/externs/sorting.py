"""Sorting rows: a stable merge sort of places, by which sort, top-k and unique are made.

NaN is larger than any number, as in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from targets.externs import compiled

Array = Any


@compiled
def _before(a: Any, b: Any, descending: bool) -> bool:
    """Whether value a comes strictly before b; NaN counts as the largest."""
    if descending:
        return (a > b) or (a != a and b == b)
    return (a < b) or (b != b and a == a)


@compiled
def _order(row: Array, places: Array, spare: Array, descending: bool) -> None:
    """`places` becomes the order of `row`, equal values in their old order. `spare` is as long as `places`."""
    count = len(row)
    run = 16
    for start in range(0, count, run):
        end = min(start + run, count)
        for i in range(start, end):
            places[i] = i
        for i in range(start + 1, end):
            moved = places[i]
            j = i - 1
            while j >= start and _before(row[moved], row[places[j]], descending):
                places[j + 1] = places[j]
                j -= 1
            places[j + 1] = moved
    while run < count:
        for start in range(0, count, 2 * run):
            middle, end = min(start + run, count), min(start + 2 * run, count)
            left, right = start, middle
            for i in range(start, end):
                if left < middle and (right >= end or not _before(row[places[right]], row[places[left]], descending)):
                    spare[i] = places[left]
                    left += 1
                else:
                    spare[i] = places[right]
                    right += 1
        for i in range(count):
            places[i] = spare[i]
        run *= 2


@compiled
def topk(x: Array, axis: Array, largest: Array, values: Array, indices: Array) -> None:
    """The first elements along an axis in sorted order, as many as `values` has, and their places."""
    place = axis[()]
    before, after = 1, 1
    for d in range(x.ndim):
        if d < place:
            before *= x.shape[d]
        if d > place:
            after *= x.shape[d]
    count, wanted = x.shape[place], values.shape[place]
    if wanted > count:
        raise ValueError("k is more than the axis has elements")
    source = x.reshape((before, count, after))
    best, at = values.reshape((before, wanted, after)), indices.reshape((before, wanted, after))
    row, places, spare = np.empty(count, x.dtype), np.empty(count, np.int64), np.empty(count, np.int64)
    for b in range(before):
        for a in range(after):
            for i in range(count):
                row[i] = source[b, i, a]
            _order(row, places, spare, largest[()] != 0)
            for i in range(wanted):
                best[b, i, a] = row[places[i]]
                at[b, i, a] = places[i]


@compiled
def unique(
    x: Array, is_sorted: Array, values: Array, first: Array, inverse: Array, counts: Array, number: Array
) -> None:
    """The distinct elements of a vector at the front of `values`, ascending or in the order of their first places;
    `number` is how many. Elements beyond that are zero."""
    count = len(x)
    places = np.empty(count, np.int64)
    _order(x, places, np.empty(count, np.int64), False)
    found = 0
    group = np.empty(count, np.int64)
    start = np.empty(count, np.int64)
    for i in range(count):
        same = i > 0 and (x[places[i]] == x[places[i - 1]])
        if not same:
            start[found] = places[i]
            found += 1
        group[places[i]] = found - 1
    rank = np.empty(found, np.int64)
    order = np.empty(found, np.int64)
    if is_sorted[()] != 0:
        for i in range(found):
            order[i] = i
    else:
        _order(start[:found], order, np.empty(found, np.int64), False)
    for i in range(found):
        rank[order[i]] = i
    values[:] = 0
    first[:] = 0
    counts[:] = 0
    for i in range(found):
        values[i] = x[start[order[i]]]
        first[i] = start[order[i]]
    for i in range(count):
        inverse[i] = rank[group[i]]
        counts[rank[group[i]]] += 1
    number[()] = found
