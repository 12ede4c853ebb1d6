"""What a caller hands to a kernel, checked at the door: dtype, rank, shape, layout, and the dimension symbols.

The check of a parameter is planned once, when the kernel is made, so that a call of a small kernel stays short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorir.buffer import Buffer
from tensorir.errors import UserError
from tensorir.expr import Const, Expr, Var
from tensorir.interpreter import evaluate
from tensorir.stmt import Func
from tensorir.visit import free_vars


class ArgumentError(UserError):
    """An array that does not fit the parameter it is given for."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The check of one parameter. `fixed` is the wanted shape where it is constant; otherwise `axes` holds for each
    axis a size, the number of a dimension symbol, or an expression."""

    dtype: np.dtype
    rank: int
    fixed: tuple[int, ...] | None
    axes: tuple[tuple[int | None, int | None, Expr | None], ...]
    is_output: bool


class Arguments:
    """Checked arguments: the arrays (an input that is not contiguous is a copy), their addresses, the dimensions."""

    __slots__ = ("addresses", "arrays", "dims")

    def __init__(self, arrays: list[np.ndarray], addresses: list[int], dims: list[int]) -> None:
        self.arrays = arrays
        self.addresses = addresses
        self.dims = dims


class Signature:
    """The parameters of a function as checks on arrays."""

    __slots__ = ("_dims", "_names", "_outputs", "_params", "_plans", "name")

    def __init__(self, func: Func) -> None:
        self.name = func.name
        self._params = func.params
        self._names = [f"argument {i} ({p.name})" for i, p in enumerate(func.params)]
        self._outputs = len(func.params) - func.outputs
        self._dims = func.dims
        numbers = {id(d): i for i, d in enumerate(func.dims)}
        self._plans = [_plan(p, numbers, i >= self._outputs) for i, p in enumerate(func.params)]

    def check(self, arrays: Sequence[Any], dims: Mapping[str, int]) -> Arguments:
        """The arguments to run on. Raises `ArgumentError` naming the first that does not fit."""
        if len(arrays) != len(self._plans):
            names = ", ".join(p.name for p in self._params)
            raise ArgumentError(f"{self.name} takes {len(self._plans)} arrays ({names}), not {len(arrays)}")
        sizes: list[int] = [-1] * len(self._dims)
        if dims:
            self._named(dims, sizes)
        taken: list[np.ndarray] = []
        addresses: list[int] = []
        later = False
        position = 0
        for plan in self._plans:
            array = arrays[position]
            if type(array) is not np.ndarray:
                array = self._as_array(array, position, plan.is_output)
            if array.dtype is not plan.dtype and (array.dtype != plan.dtype or not array.dtype.isnative):
                self._wrong_dtype(array, position)
            shape = array.shape
            if shape != plan.fixed:
                if plan.fixed is not None or len(shape) != plan.rank:
                    self._wrong_shape(position, shape)
                axis = 0
                for constant, number, expr in plan.axes:
                    size = shape[axis]
                    if number is not None:
                        known = sizes[number]
                        if known < 0:
                            sizes[number] = size
                        elif known != size:
                            self._wrong_size(position, axis, size, known)
                    elif expr is not None:
                        later = True
                    elif constant is not None and constant != size:
                        self._wrong_size(position, axis, size, constant)
                    axis += 1
            if not array.flags.carray:  # contiguous, aligned and writable
                array = self._behaved(array, position, plan.is_output)
            taken.append(array)
            addresses.append(array.__array_interface__["data"][0])
            position += 1
        if later:
            self._check_expressions(taken, sizes)
        self._check_overlap(taken, addresses)
        if -1 in sizes:
            self._missing(self._dims[sizes.index(-1)])
        return Arguments(taken, addresses, sizes)

    def _named(self, dims: Mapping[str, int], sizes: list[int]) -> None:
        numbers = {d.name: i for i, d in enumerate(self._dims)}
        for name, size in dims.items():
            if name not in numbers:
                raise ArgumentError(
                    f"{self.name} has no dimension {name!r}",
                    help=f"its dimensions are {', '.join(numbers) or 'all constant'}",
                )
            if size < 0:
                raise ArgumentError(f"{self.name}: the dimension {name} is {size}, below 0")
            sizes[numbers[name]] = int(size)

    def _missing(self, dim: Var) -> None:
        raise ArgumentError(
            f"{self.name}: the dimension {dim.name} is not the size of any argument's axis",
            help=f"pass it by name: {dim.name}=...",
        )

    def _as_array(self, value: Any, position: int, is_output: bool) -> np.ndarray:
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, np.generic) and not is_output:
            return np.asarray(value)
        raise ArgumentError(
            f"{self.name}: {self._names[position]} is {type(value).__name__}, not a numpy array",
            help="convert it with numpy.asarray",
        )

    def _wrong_dtype(self, array: np.ndarray, position: int) -> None:
        wanted = self._params[position].dtype
        if not array.dtype.isnative and array.dtype.newbyteorder("=") == wanted.numpy:
            raise ArgumentError(
                f"{self.name}: {self._names[position]} has the byte order of another machine",
                help="convert it with .astype(array.dtype.newbyteorder('='))",
            )
        raise ArgumentError(
            f"{self.name}: {self._names[position]} is {wanted}, the array given is {array.dtype}",
            help=f"convert it with .astype({wanted.numpy.name!r})",
        )

    def _wrong_size(self, position: int, axis: int, size: int, wanted: int) -> None:
        raise ArgumentError(
            f"{self.name}: {self._names[position]} has {size} elements along axis {axis}, not {wanted}",
            help=f"its shape is {_shape_text(self._params[position])}",
        )

    def _wrong_shape(self, position: int, shape: tuple[int, ...]) -> None:
        param = self._params[position]
        if len(shape) != len(param.shape):
            raise ArgumentError(
                f"{self.name}: {self._names[position]} has {len(param.shape)} dimensions, the array given {len(shape)}",
                help=f"its shape is {_shape_text(param)}",
            )
        wanted = self._plans[position].fixed or ()
        axis = next(a for a, (w, s) in enumerate(zip(wanted, shape, strict=True)) if w != s)
        self._wrong_size(position, axis, shape[axis], wanted[axis])

    def _behaved(self, array: np.ndarray, position: int, is_output: bool) -> np.ndarray:
        if not is_output:
            return array if array.flags.c_contiguous and array.flags.aligned else np.require(array, None, ["C", "A"])
        if not array.flags.writeable:
            raise ArgumentError(f"{self.name}: {self._names[position]} is an output, but the array is read-only")
        raise ArgumentError(
            f"{self.name}: {self._names[position]} is an output, but the array is not contiguous and aligned",
            help="give a fresh array, such as numpy.empty(shape, dtype)",
        )

    def _check_expressions(self, arrays: list[np.ndarray], sizes: list[int]) -> None:
        env = {d: s for d, s in zip(self._dims, sizes, strict=True) if s >= 0}
        for position, (plan, array) in enumerate(zip(self._plans, arrays, strict=True)):
            for axis, (_, _, expr) in enumerate(plan.axes):
                if expr is None:
                    continue
                for v in free_vars(expr):
                    if v not in env:
                        self._missing(v)
                wanted = evaluate(expr, env)
                if wanted != array.shape[axis]:
                    self._wrong_size(position, axis, array.shape[axis], wanted)

    def _check_overlap(self, arrays: list[np.ndarray], addresses: list[int]) -> None:
        """No output may share memory with another argument."""
        ends = [begin + array.nbytes for begin, array in zip(addresses, arrays, strict=True)]
        for position in range(self._outputs, len(addresses)):
            begin, end = addresses[position], ends[position]
            for other, start in enumerate(addresses):
                if start < end and begin < ends[other] and other != position:
                    raise ArgumentError(
                        f"{self.name}: {self._names[position]} is an output, but shares memory with "
                        f"{self._names[other]}",
                        help="give a fresh array for the output",
                    )


def _plan(param: Buffer, numbers: Mapping[int, int], is_output: bool) -> _Plan:
    axes: list[tuple[int | None, int | None, Expr | None]] = []
    for extent in param.shape:
        if isinstance(extent, Const):
            axes.append((int(extent.value), None, None))
        elif id(extent) in numbers:
            axes.append((None, numbers[id(extent)], None))
        else:
            axes.append((None, None, extent))
    sizes = [constant for constant, _, _ in axes]
    shape = None if any(s is None for s in sizes) else tuple(s for s in sizes if s is not None)
    return _Plan(param.dtype.numpy, len(axes), shape, tuple(axes), is_output)


def _shape_text(buffer: Buffer) -> str:
    return f"({', '.join(repr(e) for e in buffer.shape)})"
