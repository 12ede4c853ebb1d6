"""Memory of the interpreter: flat Python lists of elements, and in checked mode who wrote and read each element.

The race rule: the stack of parallel loops that an access stands in is its *context*, pairs of (execution of the loop,
iteration). Two accesses of one element, one of them a write, race if at the first pair where their contexts differ the
loop execution is the same and the iteration is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorir.dtypes import DType
from tensorir.errors import UserError

Context = tuple[tuple[int, int], ...]


class SanitizerError(UserError):
    """A program that has no meaning: an access out of bounds, a read of memory never written, or a race."""


def poison(t: DType) -> Any:
    """What fresh memory holds in plain mode: NaN, True, or a pattern."""
    if t.is_float:
        return math.nan
    if t.is_bool:
        return True
    pattern = int.from_bytes(b"\xa5" * t.nbytes, "little")
    return pattern - (1 << t.bits) if t.kind == "int" else pattern


def to_list(array: np.ndarray, t: DType) -> list[Any]:
    """The elements of an array, row-major, as Python values."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.astype(np.float32).tolist() if t.kind == "bfloat" else flat.tolist()


def to_array(values: Sequence[Any], t: DType) -> np.ndarray:
    """Elements as a flat array of the numpy type of `t`."""
    if t.is_float and t.bits < 64:
        with np.errstate(all="ignore"):
            return np.array(values, np.float32).astype(t.numpy)
    return np.array(values, t.numpy)


class Monitor:
    """The context of the access being made, shared by all checked memory of a run."""

    __slots__ = ("context", "count")

    def __init__(self) -> None:
        self.context: Context = ()
        self.count = 0

    def enter(self) -> int:
        """A new execution of a parallel loop."""
        self.count += 1
        return self.count


def race(a: Context, b: Context) -> bool:
    """Whether accesses in these contexts may happen at once."""
    for x, y in zip(a, b, strict=False):
        if x is not y and x != y:
            return x[0] == y[0]
    return False


class CheckedMemory:
    """One buffer in checked mode. The program compares indices with `shape` and calls `outside`.

    `shared` says that the program writes the buffer, so that its accesses can race; `written` that it starts defined.
    """

    __slots__ = ("name", "shape", "values", "written", "monitor", "writers", "readers")

    def __init__(
        self, name: str, shape: tuple[int, ...], values: list[Any], monitor: Monitor, *, written: bool, shared: bool
    ) -> None:
        self.name = name
        self.shape = shape
        self.values = values
        self.written = bytearray([1 if written else 0]) * len(values)
        self.monitor = monitor
        self.writers: dict[int, Context] | None = {} if shared else None
        self.readers: dict[int, set[Context]] = {}

    def outside(self, what: str, indices: tuple[int, ...]) -> None:
        """Raises the error of an access out of bounds, naming the axis."""
        for axis, (index, extent) in enumerate(zip(indices, self.shape, strict=True)):
            if not 0 <= index < extent:
                raise SanitizerError(
                    f"{what} out of bounds: {self.name}[{', '.join(str(i) for i in indices)}]: "
                    f"index {axis} is {index}, the extent is {extent}"
                )

    def text(self, position: int) -> str:
        """The element at a position, as the program writes it."""
        indices: list[int] = []
        for extent in reversed(self.shape):
            position, index = divmod(position, extent)
            indices.append(index)
        return f"{self.name}[{', '.join(str(i) for i in reversed(indices))}]"

    def load(self, position: int) -> Any:
        """Reads an element."""
        if not self.written[position]:
            raise SanitizerError(f"read of memory never written: {self.text(position)}")
        if self.writers is not None and (context := self.monitor.context):
            writer = self.writers.get(position)
            if writer is not None and writer is not context and race(writer, context):
                raise SanitizerError(f"race: {self.text(position)} is read while another iteration writes it")
            self.readers.setdefault(position, set()).add(context)
        return self.values[position]

    def store(self, value: Any, position: int) -> None:
        """Writes an element."""
        self.store_in(self.monitor.context, value, position)

    def store_lanes(self, values: Sequence[Any], positions: Sequence[int | None]) -> None:
        """Writes the lanes of a vector store; None is a lane left out."""
        execution = self.monitor.enter()
        for lane, (value, position) in enumerate(zip(values, positions, strict=True)):
            if position is not None:
                self.store_in((*self.monitor.context, (execution, lane)), value, position)

    def store_in(self, context: Context, value: Any, position: int) -> None:
        """Writes an element from the given context."""
        if self.writers is not None:
            writer = self.writers.get(position)
            if writer is not None and writer is not context and race(writer, context):
                raise SanitizerError(f"race: {self.text(position)} is written by two iterations")
            readers = self.readers.pop(position, None) if self.readers else None
            if readers is not None and any(race(r, context) for r in readers):
                raise SanitizerError(f"race: {self.text(position)} is written while another iteration reads it")
            if context:
                self.writers[position] = context
            elif writer is not None:
                del self.writers[position]
        self.written[position] = 1
        self.values[position] = value
