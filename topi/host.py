"""Host functions of ops that no loop nest serves well: scattering to computed places. Called by the name
"topi.host:function" with whole numpy arrays, operands first, then results to be written.

Attributes come as 0-d int64 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _wrapped(indices: Array, extent: int, what: str) -> Array:
    """Indices with negative ones counted from the end. Raises `IndexError` for those outside."""
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise IndexError(f"{what}: an index is outside -{extent} .. {extent - 1}")
    return np.where(indices < 0, indices + extent, indices)


def _combine(how: str, out: Array, place: Any, updates: Array) -> None:
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if how == "none":
        out[place] = updates
    else:
        functions[how].at(out, place, updates)


def _scatter_elements(how: str, data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    out[...] = data
    place = list(np.indices(indices.shape, sparse=True))
    place[int(axis)] = _wrapped(indices, data.shape[int(axis)], "scatter_elements")
    _combine(how, out, tuple(place), updates)


def scatter_elements_none(data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    """`out` is `data` with `updates` stored along `axis` at `indices`; of several at one place the last stays."""
    _scatter_elements("none", data, indices, updates, axis, out)


def scatter_elements_add(data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    """`scatter_elements_none`, adding to what is there."""
    _scatter_elements("add", data, indices, updates, axis, out)


def scatter_elements_mul(data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    """`scatter_elements_none`, multiplying what is there."""
    _scatter_elements("mul", data, indices, updates, axis, out)


def scatter_elements_max(data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    """`scatter_elements_none`, keeping the larger."""
    _scatter_elements("max", data, indices, updates, axis, out)


def scatter_elements_min(data: Array, indices: Array, updates: Array, axis: Array, out: Array) -> None:
    """`scatter_elements_none`, keeping the smaller."""
    _scatter_elements("min", data, indices, updates, axis, out)


def _scatter_nd(how: str, data: Array, indices: Array, updates: Array, out: Array) -> None:
    out[...] = data
    depth = indices.shape[-1]
    place = tuple(_wrapped(indices[..., d], data.shape[d], "scatter_nd") for d in range(depth))
    _combine(how, out, place, updates)


def scatter_nd_none(data: Array, indices: Array, updates: Array, out: Array) -> None:
    """`out` is `data` with slices of `updates` stored at the index tuples in the last dimension of `indices`."""
    _scatter_nd("none", data, indices, updates, out)


def scatter_nd_add(data: Array, indices: Array, updates: Array, out: Array) -> None:
    """`scatter_nd_none`, adding to what is there."""
    _scatter_nd("add", data, indices, updates, out)


def scatter_nd_mul(data: Array, indices: Array, updates: Array, out: Array) -> None:
    """`scatter_nd_none`, multiplying what is there."""
    _scatter_nd("mul", data, indices, updates, out)


def scatter_nd_max(data: Array, indices: Array, updates: Array, out: Array) -> None:
    """`scatter_nd_none`, keeping the larger."""
    _scatter_nd("max", data, indices, updates, out)


def scatter_nd_min(data: Array, indices: Array, updates: Array, out: Array) -> None:
    """`scatter_nd_none`, keeping the smaller."""
    _scatter_nd("min", data, indices, updates, out)
