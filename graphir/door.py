"""What a caller hands to an executable, checked at the door: which inputs, dtype, rank, sizes; symbols get their
values.

Every message names the input. An input that is not contiguous is copied; an output that the caller gives must be fit to
be written in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphir import dims
from graphir.errors import InputError
from graphir.plan import Plan
from tensorir.expr import Expr

_READABLE = 0x101  # numpy's flags C_CONTIGUOUS and ALIGNED
_WRITABLE = 0x501  # and WRITEABLE


class Door:
    """The checks of a plan's inputs and outputs, prepared once."""

    def __init__(self, plan: Plan) -> None:
        self.names = [v.name for v in plan.inputs]
        self.values = plan.inputs
        self.output_names = plan.output_names
        self.outputs = plan.outputs
        self.symbols = tuple(s.symbol.name for s in plan.symbols)
        self._sources = tuple((s.input, s.axis) for s in plan.symbols)
        self._bounds = tuple((s.symbol.low, s.symbol.high) for s in plan.symbols)
        self._dtypes = [v.dtype.numpy for v in plan.inputs]
        self._axes = [tuple(_axis(d) for d in v.shape) for v in plan.inputs]
        self._output_dtypes = [v.dtype.numpy for v in plan.outputs]
        self._passed: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}

    def arrange(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """The inputs in the order of the graph."""
        if isinstance(inputs, Mapping):
            if len(inputs) == len(self.names):
                try:
                    return [inputs[n] for n in self.names]
                except KeyError:
                    pass
            for name in self.names:
                if name not in inputs:
                    raise InputError(f"the input {name!r} is missing", help=self._listing())
            extra = next(n for n in inputs if n not in self.names)
            raise InputError(f"the model has no input called {extra!r}", help=self._listing())
        if isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence):
            raise InputError(
                f"inputs are given as {type(inputs).__name__}", help="give a dict by name, or a list in order: run([x])"
            )
        if len(inputs) != len(self.names):
            raise InputError(f"{len(inputs)} inputs are given, the model takes {len(self.names)}", help=self._listing())
        return list(inputs)

    def check(self, given: list[Any]) -> tuple[list[np.ndarray], tuple[int, ...]]:
        """The arrays to run on, and the values of the symbols in order. Shapes that passed once pass at once."""
        arrays: list[np.ndarray] = []
        for array, dtype in zip(given, self._dtypes):
            if type(array) is not np.ndarray:
                array = self._as_array(array, len(arrays))
            if array.dtype != dtype:
                self._wrong_dtype(array, len(arrays))
            if array.flags.num & _READABLE != _READABLE:
                array = np.require(array, requirements=["C", "A"])
            arrays.append(array)
        shapes = tuple([a.shape for a in arrays])
        known = self._passed.get(shapes)
        if known is None:
            known = self._check_shapes(arrays)
            if len(self._passed) > 1024:
                self._passed.clear()
            self._passed[shapes] = known
        return arrays, known

    def _check_shapes(self, arrays: list[np.ndarray]) -> tuple[int, ...]:
        """The values of the symbols, every dimension checked."""
        for number, (array, axes) in enumerate(zip(arrays, self._axes)):
            if array.ndim != len(axes):
                self._wrong_rank(array, number)
            for axis, (size, wanted) in enumerate(zip(array.shape, axes)):
                if type(wanted) is int and wanted != size:
                    self._wrong_size(number, axis, size, str(wanted))
        sizes = tuple(arrays[i].shape[a] for i, a in self._sources)
        self._check_symbols(arrays, sizes)
        return sizes

    def _check_symbols(self, arrays: list[np.ndarray], sizes: tuple[int, ...]) -> None:
        for (low, high), name, size, (number, axis) in zip(self._bounds, self.symbols, sizes, self._sources):
            if size < low or (high is not None and size > high):
                bounds = f"at least {low}" if high is None else f"{low} to {high}"
                self._wrong_size(number, axis, size, f"{name} ({bounds})")
        values = dict(zip(self.symbols, sizes))
        for number, (array, axes) in enumerate(zip(arrays, self._axes)):
            for axis, (size, wanted) in enumerate(zip(array.shape, axes)):
                if isinstance(wanted, Expr) and dims.evaluate(wanted, values) != size:
                    expected = dims.evaluate(wanted, values)
                    known = ", ".join(f"{k} = {v}" for k, v in values.items())
                    self._wrong_size(number, axis, size, f"{dims.text(wanted)} = {expected} (with {known})")

    def check_outputs(self, outputs: Any, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """The arrays that results are written into, fit for it."""
        arranged = outputs
        if isinstance(outputs, Mapping):
            for n in self.output_names:
                if n not in outputs:
                    raise InputError(
                        f"the output {n!r} is missing", help=f"the outputs are {', '.join(self.output_names)}"
                    )
            arranged = [outputs[n] for n in self.output_names]
        if len(arranged) != len(shapes):
            raise InputError(f"{len(arranged)} output arrays are given, the model has {len(shapes)} outputs")
        for number, (array, dtype, sizes) in enumerate(zip(arranged, self._output_dtypes, shapes)):
            if (
                not isinstance(array, np.ndarray)
                or array.dtype != dtype
                or not _are_same(array.shape, sizes)
                or array.flags.num & _WRITABLE != _WRITABLE
            ):
                self._wrong_output(array, number, sizes)
        return list(arranged)

    def _wrong_output(self, array: Any, number: int, sizes: tuple[int, ...]) -> None:
        v, name = self.outputs[number], self.output_names[number]
        if not isinstance(array, np.ndarray):
            raise InputError(f"the output {name!r} is given {type(array).__name__}, not a numpy array")
        if array.dtype != v.dtype.numpy:
            raise InputError(f"the output {name!r} is {v.dtype}, the array given is {array.dtype}")
        if not _are_same(array.shape, sizes):
            raise InputError(f"the output {name!r} has shape {sizes}, the array given {array.shape}")
        raise InputError(
            f"the output {name!r} cannot be written in place: the array is read-only or not contiguous",
            help="give a fresh array, such as numpy.empty(shape, dtype)",
        )

    # -- messages

    def _listing(self) -> str:
        return f"its inputs are {', '.join(map(repr, self.values))}"

    def _as_array(self, value: Any, number: int) -> np.ndarray:
        if isinstance(value, (np.ndarray, np.generic)):
            return np.asarray(value)
        if isinstance(value, (bool, int, float)) and not self.values[number].shape:
            return np.asarray(value, self.values[number].dtype.numpy)
        raise InputError(
            f"the input {self.names[number]!r} is {type(value).__name__}, not a numpy array",
            help="convert it with numpy.asarray(value, dtype)",
        )

    def _wrong_dtype(self, array: np.ndarray, number: int) -> None:
        v = self.values[number]
        raise InputError(
            f"the input {v.name!r} is {v.dtype}, the array given is {array.dtype}",
            help=f"convert it with .astype({v.dtype.numpy.name!r})",
        )

    def _wrong_rank(self, array: np.ndarray, number: int) -> None:
        v = self.values[number]
        raise InputError(
            f"the input {v.name!r} has {v.rank} dimensions, the array given has {array.ndim}: {array.shape}",
            help=f"its shape is {dims.shape_text(v.shape)}",
        )

    def _wrong_size(self, number: int, axis: int, size: int, wanted: str) -> None:
        v = self.values[number]
        raise InputError(
            f"the input {v.name!r} has size {size} along axis {axis}, not {wanted}",
            help=f"its shape is {dims.shape_text(v.shape)}; compile with another shapes= for other sizes",
        )


def _are_same(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a == b


def _axis(d: Expr) -> int | Expr:
    known = dims.constant(d)
    return d if known is None else known
