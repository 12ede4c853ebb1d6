"""Memory of the interpreter: flat Python lists of elements, and in checked mode who wrote and read each element.

The race rule: the stack of parallel loops that an access stands in is its *context*, entries of (execution of the loop,
iteration, name of the loop). Two accesses of one element, one of them a write, race if at the first entry where their
contexts differ the loop execution is the same and the iteration is not. Lanes of a vectorized loop that steers only
reduce variables of a block combine partial values there: the block's accesses stand outside that loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from tensorir.dtypes import DType
from tensorir.errors import UserError

Entry = tuple[int, Any, tuple[str, str]]
Context = tuple[Entry, ...]
_LANES = ("the vector of", "lanes")


UNWRITTEN = object()
"""What a lane brings to a shuffle from memory that it never wrote."""


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


class Trace(Protocol):
    """Who wants to know of every access: `thread` is the block and the number of the thread at work, if it is one of a
    kernel in thread form."""

    thread: tuple[int, int] | None

    def touch(self, memory: CheckedMemory, position: int, site: int) -> None: ...


class Monitor:
    """The context of the access being made, shared by all checked memory of a run. `sites` tells of each access of the
    program what it is, for messages; `trace`, if there is one, is told of each access of a thread."""

    __slots__ = ("context", "count", "sites", "trace")

    def __init__(self, sites: Sequence[Callable[[], str]] = (), trace: Trace | None = None) -> None:
        self.context: Context = ()
        self.count = 0
        self.sites = sites
        self.trace = trace

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

    __slots__ = ("name", "shape", "values", "written", "monitor", "writers", "readers", "begun", "scope", "nbytes")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        values: list[Any],
        monitor: Monitor,
        *,
        written: bool,
        shared: bool,
        scope: str = "global",
        nbytes: int = 4,
    ) -> None:
        self.name = name
        self.shape = shape
        self.values = values
        self.written = bytearray([1 if written else 0]) * len(values)
        self.monitor = monitor
        self.writers: dict[int, tuple[Context, int]] | None = {} if shared else None
        self.readers: dict[int, dict[Context, int]] = {}
        self.begun: set[int] = set()
        self.scope = scope
        self.nbytes = nbytes

    def outside(self, what: str, indices: tuple[int, ...]) -> None:
        """Raises the error of an access out of bounds, naming the axis."""
        for axis, (index, extent) in enumerate(zip(indices, self.shape, strict=True)):
            if not 0 <= index < extent:
                raise SanitizerError(
                    f"{what} out of bounds: {self.name}[{', '.join(str(i) for i in indices)}]: "
                    f"index {axis} is {index}, the extent is {extent}"
                )

    def require_written(self) -> None:
        """Raises the error of an element that the program was to write and did not."""
        position = self.written.find(0)
        if position >= 0:
            raise SanitizerError(f"the output {self.text(position)} is never written")

    def text(self, position: int) -> str:
        """The element at a position, as the program writes it."""
        indices: list[int] = []
        for extent in reversed(self.shape):
            position, index = divmod(position, extent)
            indices.append(index)
        return f"{self.name}[{', '.join(str(i) for i in reversed(indices))}]"

    def load(self, position: int, site: int) -> Any:
        """Reads an element; `site` is the number of the access in the program."""
        if not self.written[position]:
            raise SanitizerError(f"read of memory never written: {self.text(position)}")
        if self.begun and position in self.begun:
            raise SanitizerError(
                f"read of {self.text(position)}, which an asynchronous copy still fills",
                help="the thread that began it makes a group (copy_commit) and waits for it (copy_wait) before",
            )
        if self.writers is not None and (context := self.monitor.context):
            writer = self.writers.get(position)
            if writer is not None and writer[0] is not context and race(writer[0], context):
                self.report(position, "is read while another iteration writes it", writer, (context, site))
            self.readers.setdefault(position, {}).setdefault(context, site)
        if self.monitor.trace is not None:
            self.monitor.trace.touch(self, position, site)
        return self.values[position]

    def peek(self, position: int) -> Any:
        """An element of a thread's own memory to hand on; `UNWRITTEN` if it has none."""
        return self.values[position] if self.written[position] else UNWRITTEN

    def store(self, value: Any, position: int, site: int) -> None:
        """Writes an element."""
        if self.monitor.trace is not None:
            self.monitor.trace.touch(self, position, site)
        self.store_in(self.monitor.context, value, position, site)

    def store_lanes(self, values: Sequence[Any], positions: Sequence[int | None], site: int) -> None:
        """Writes the lanes of a vector store; None is a lane left out."""
        execution = self.monitor.enter()
        for lane, (value, position) in enumerate(zip(values, positions, strict=True)):
            if position is not None:
                if self.monitor.trace is not None:
                    self.monitor.trace.touch(self, position, site)
                self.store_in(
                    (*self.monitor.context, (execution, lane, ("the vector of", "lanes"))), value, position, site
                )

    def begin_copy(self, value: Any, position: int, site: int) -> None:
        """An asynchronous copy to an element begins: from now until it is done its content is not known."""
        self.store(value, position, site)
        self.begun.add(position)

    def end_copy(self, value: Any, position: int, site: int) -> None:
        """The copy is done, as far as its thread knows."""
        self.begun.discard(position)
        self.store_in(self.monitor.context, value, position, site)

    def store_in(self, context: Context, value: Any, position: int, site: int) -> None:
        """Writes an element from the given context."""
        if self.begun and position in self.begun:
            raise SanitizerError(f"write of {self.text(position)}, which an asynchronous copy still fills")
        if self.writers is not None:
            writer = self.writers.get(position)
            if writer is not None and writer[0] is not context and race(writer[0], context):
                self.report(position, "is written by two iterations", writer, (context, site))
            readers = self.readers.pop(position, None) if self.readers else None
            if readers is not None:
                for reader in readers.items():
                    if race(reader[0], context):
                        self.report(position, "is written while another iteration reads it", reader, (context, site))
            if context:
                self.writers[position] = (context, site)
            elif writer is not None:
                del self.writers[position]
        self.written[position] = 1
        self.values[position] = value

    def report(self, position: int, what: str, first: tuple[Context, int], second: tuple[Context, int]) -> NoReturn:
        """Raises the error of a race, with the loop and both accesses."""
        pair = next((x, y) for x, y in zip(first[0], second[0], strict=False) if x != y)
        loop, iterations = " ".join(pair[0][2]), " and ".join(str(_iteration(entry)) for entry in pair)
        sites = self.monitor.sites
        raise SanitizerError(
            f"race: {self.text(position)} {what}: iterations {iterations} of {loop}",
            notes=(
                f"first:  {sites[first[1]]()}{_where(first[0])}",
                f"second: {sites[second[1]]()}{_where(second[0])}",
            ),
        )


def _iteration(entry: Entry) -> Any:
    return entry[1][0] if isinstance(entry[1], tuple) and len(entry[1]) == 1 else entry[1]


def _where(context: Context) -> str:
    return ", at " + ", ".join(f"{entry[2][1]} = {_iteration(entry)}" for entry in context) if context else ""
