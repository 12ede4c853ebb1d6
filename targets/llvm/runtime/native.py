"""A compiled kernel called from Python, with as little between as ctypes allows.

A call takes a frame (context, pointer array, dimension array) from a free list and puts it back, so one function may
be called from many Python threads at once and allocates nothing when warm. The GIL is released while the kernel runs.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence

import numpy as np

from targets.llvm.runtime.abi import Status
from targets.llvm.runtime.context import Context
from targets.llvm.runtime.jit import Library
from tensorir.errors import NestorError

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def _interface_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _field_address(array: np.ndarray) -> int:
    """The data pointer, read where numpy's C interface puts it: first after the object header.

    A tenth of the cost of `array.ctypes.data` or `__array_interface__`, which build Python objects first.
    """
    if type(array) is not np.ndarray:
        return array.__array_interface__["data"][0]
    return _pointer_at(id(array) + _HEADER_BYTES).value or 0


_pointer_at = ctypes.c_void_p.from_address
_HEADER_BYTES = object.__basicsize__


def _choose_address_of() -> Callable[[np.ndarray], int]:
    probes = [np.empty(size, dtype) for size, dtype in ((0, "f4"), (3, "i8"), (1000, "f8"))]
    agree = sys.implementation.name == "cpython" and all(
        _field_address(probe) == _interface_address(probe) for probe in probes
    )
    return _field_address if agree else _interface_address


#: The address of an array's first element; arrays are not checked in any way.
address_of = _choose_address_of()


class KernelError(NestorError):
    """A kernel stopped with a status: `kernel` is its name, `code` and `detail` what it reported."""

    def __init__(self, kernel: str, code: int, detail: int) -> None:
        self.kernel = kernel
        self.code = code
        self.detail = detail
        super().__init__(f"{kernel} failed: {_describe(code, detail)}")


class _Frame:
    """What one call in flight owns."""

    __slots__ = ("context", "data", "data_address", "dims", "dims_address")

    def __init__(self, data: int, dims: int, threads: int | None) -> None:
        self.context = Context(threads)
        self.data = (ctypes.c_void_p * max(data, 1))()
        self.data_address = ctypes.addressof(self.data)
        self.dims = (ctypes.c_int64 * max(dims, 1))()
        self.dims_address = ctypes.addressof(self.dims)


class NativeFunction:
    """`function(arrays, dims)` runs `symbol` of `library` on the arrays' memory and raises `KernelError` on a status.

    `data` and `dims` are the numbers of buffers and of symbolic dimensions. Arrays are taken as they are: dtype, shape
    and contiguity are checked at the door, not here. Array objects must stay alive during the call, which they do when
    the caller holds them.
    """

    __slots__ = ("name", "library", "_call", "_data", "_dims", "_frames", "_pack_data", "_pack_dims", "_threads")

    def __init__(
        self,
        library: Library,
        symbol: str,
        *,
        data: int,
        dims: int = 0,
        threads: int | None = None,
        name: str | None = None,
    ) -> None:
        self.name = symbol if name is None else name
        self.library = library
        self._call = _PROTOTYPE(library.address(symbol))
        self._data = data
        self._dims = dims
        self._threads = threads
        self._pack_data = struct.Struct(f"={data}Q").pack_into
        self._pack_dims = struct.Struct(f"={dims}q").pack_into
        self._frames: list[_Frame] = []

    def __call__(self, arrays: Sequence[np.ndarray], dims: Sequence[int] = ()) -> None:
        """Run on numpy arrays, in the order of the kernel's buffers."""
        self.call_addresses([address_of(array) for array in arrays], dims)

    def call_addresses(self, addresses: Sequence[int], dims: Sequence[int] = ()) -> None:
        """Run on addresses, which the caller keeps valid; the number of each is checked, nothing else is."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self._data, self._dims, self._threads)
        try:
            self._pack_data(frame.data, 0, *addresses)
            self._pack_dims(frame.dims, 0, *dims)
            status = self._call(frame.context.address, frame.data_address, frame.dims_address)
            if status:
                code, detail = frame.context.take_error()
                raise KernelError(self.name, status, detail if code == status else 0)
        finally:
            self._frames.append(frame)

    def call_in(self, context: Context, addresses: Sequence[int], dims: Sequence[int] = ()) -> int:
        """Run on addresses in a context of the caller's; the status is returned, the context keeps the error."""
        data = (ctypes.c_void_p * max(self._data, 1))()
        self._pack_data(data, 0, *addresses)
        values = (ctypes.c_int64 * max(self._dims, 1))()
        self._pack_dims(values, 0, *dims)
        return self._call(context.address, ctypes.addressof(data), ctypes.addressof(values))


def _describe(code: int, detail: int) -> str:
    match code:
        case Status.OUT_OF_MEMORY:
            return f"out of memory, {detail} bytes wanted"
        case Status.OUT_OF_BOUNDS:
            return f"index {detail} is out of bounds"
        case Status.DIVISION_BY_ZERO:
            return "integer division by zero"
        case Status.EXTERN_FAILED:
            return f"extern number {detail} failed"
        case _:
            return f"status {code}, detail {detail}"
