"""What a caller hands to a kernel, checked at the door: dtype, rank, shape, layout, and the dimension symbols.

The check of a parameter is planned once, when the kernel is made, so that a call of a small kernel stays short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorir.buffer import Buffer
from tensorir.errors import UserError
from tensorir.expr import Const, Expr, Var, const
from tensorir.semantics import fold_expr
from tensorir.stmt import Func
from tensorir.visit import free_vars, rewrite_expr


class ArgumentError(UserError):
    """An array that does not fit the parameter it is given for."""


class Signature:
    """The parameters of a function as checks on arrays."""

    __slots__ = ("_dims", "_names", "_outputs", "_params", "_plans", "name")

    def __init__(self, func: Func) -> None:
        self.name = func.name
        self._params = func.params
        self._names = [f"argument {i} ({p.name})" for i, p in enumerate(func.params)]
        self._outputs = len(func.params) - func.outputs
        self._dims = func.dims
        self._plans = [
            (p, p.dtype.numpy, len(p.shape), [_axis(e) for e in p.shape], i >= self._outputs)
            for i, p in enumerate(func.params)
        ]

    def check(self, arrays: Sequence[Any], dims: Mapping[str, int]) -> tuple[list[np.ndarray], list[int]]:
        """The arrays to run on (an input that is not contiguous is copied) and the dimensions in order."""
        if len(arrays) != len(self._plans):
            names = ", ".join(p.name for p in self._params)
            raise ArgumentError(f"{self.name} takes {len(self._plans)} arrays ({names}), not {len(arrays)}")
        taken: list[np.ndarray] = []
        sizes: dict[Var, int] = {}
        if dims:
            by_name = {d.name: d for d in self._dims}
            for name, size in dims.items():
                if name not in by_name:
                    raise ArgumentError(
                        f"{self.name} has no dimension {name!r}",
                        help=f"its dimensions are {', '.join(by_name) or 'all constant'}",
                    )
                sizes[by_name[name]] = int(size)
        later = []
        for position, (array, (param, dtype, rank, axes, is_output)) in enumerate(
            zip(arrays, self._plans, strict=True)
        ):
            if type(array) is not np.ndarray:
                array = self._as_array(array, position, is_output)
            if array.dtype != dtype or not array.dtype.isnative:
                self._wrong_dtype(array, position)
            shape = array.shape
            if len(shape) != rank:
                raise ArgumentError(
                    f"{self.name}: {self._names[position]} has {rank} dimensions, the array given has {len(shape)}",
                    help=f"its shape is {_shape_text(param)}",
                )
            for axis, (wanted, size) in enumerate(zip(axes, shape, strict=True)):
                if type(wanted) is int:
                    if wanted != size:
                        self._wrong_size(position, axis, size, wanted)
                elif type(wanted) is Var:
                    known = sizes.setdefault(wanted, size)
                    if known != size:
                        self._wrong_size(position, axis, size, known)
                else:
                    later.append((position, axis, size, wanted))
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = self._copy(array, position, is_output)
            if is_output and not flags.writeable:
                raise ArgumentError(f"{self.name}: {self._names[position]} is an output, but the array is read-only")
            taken.append(array)
        for position, axis, size, expr in later:
            self._check_expression(position, axis, size, expr, sizes)
        self._check_overlap(taken)
        try:
            return taken, [sizes[d] for d in self._dims]
        except KeyError:
            missing = next(d for d in self._dims if d not in sizes)
            raise ArgumentError(
                f"{self.name}: the dimension {missing.name} is not the size of any argument's axis",
                help=f"pass it by name: {missing.name}=...",
            ) from None

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

    def _copy(self, array: np.ndarray, position: int, is_output: bool) -> np.ndarray:
        if is_output:
            raise ArgumentError(
                f"{self.name}: {self._names[position]} is an output, but the array is not contiguous in row-major order",
                help="give a fresh array, such as numpy.empty(shape, dtype)",
            )
        return np.require(array, requirements=["C", "A"])

    def _check_expression(self, position: int, axis: int, size: int, expr: Expr, sizes: dict[Var, int]) -> None:
        missing = [v for v in free_vars(expr) if v not in sizes]
        if missing:
            raise ArgumentError(
                f"{self.name}: the dimension {missing[0].name} of {self._names[position]} is not known",
                help=f"pass it by name: {missing[0].name}=...",
            )
        value = rewrite_expr(expr, lambda n: const(sizes[n], n.dtype) if isinstance(n, Var) else fold_expr(n) or n)
        if isinstance(value, Const) and int(value.value) != size:
            self._wrong_size(position, axis, size, int(value.value))

    def _check_overlap(self, arrays: list[np.ndarray]) -> None:
        spans = [(a.__array_interface__["data"][0], a.nbytes) for a in arrays]
        for position in range(self._outputs, len(spans)):
            begin, nbytes = spans[position]
            if nbytes == 0:
                continue
            for other, (start, length) in enumerate(spans):
                if other != position and start < begin + nbytes and begin < start + length:
                    raise ArgumentError(
                        f"{self.name}: {self._names[position]} is an output, but shares memory with "
                        f"{self._names[other]}",
                        help="give a fresh array for the output",
                    )


def _axis(extent: Expr) -> int | Expr:
    return int(extent.value) if isinstance(extent, Const) else extent


def _shape_text(buffer: Buffer) -> str:
    return f"({', '.join(repr(e) for e in buffer.shape)})"
