"""Host functions that a program calls by name: "module:function", given whole buffers as numpy arrays.

A kernel imports nothing, so the caller hands in the address of a C function

    i32 function(const i64* arguments)     the buffers' addresses, then their dimensions in order

made here around the Python function; one marked `@compiled` is compiled by numba, so that no interpreter runs. What the
function raises is kept, a status returned, and the exception raised again by whoever called the kernel.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from targets.compiled_extern import CompiledExtern, compiled, is_compiled
from tensorir.dtypes import DType
from tensorir.errors import UserError
from tensorir.expr import Call, Load
from tensorir.stmt import Evaluate, Func
from tensorir.visit import walk_stmt

__all__ = [
    "CompiledExtern",
    "ExternError",
    "ExternSignature",
    "HostFunction",
    "compiled",
    "extern_signatures",
    "find_function",
]

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))


class ExternError(UserError):
    """A host function that does not exist, or that failed."""


@dataclass(frozen=True, slots=True)
class ExternSignature:
    """The name of a host function and the dtype and rank of each buffer that it is given."""

    name: str
    operands: tuple[tuple[DType, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"{dtype} of {rank} dimensions" for dtype, rank in self.operands)


def extern_signatures(func: Func) -> dict[str, ExternSignature]:
    """The host functions that an unlowered program calls, by name."""
    found: dict[str, ExternSignature] = {}
    for stmt in walk_stmt(func.body):
        if not (isinstance(stmt, Evaluate) and isinstance(stmt.value, Call)):
            continue
        call = stmt.value
        if call.name.startswith("extern:"):
            name = call.name.removeprefix("extern:")
            buffers = [
                a.args[0].buffer
                for a in call.args
                if isinstance(a, Call) and a.name == "address" and isinstance(a.args[0], Load)
            ]
            made = ExternSignature(name, tuple((b.dtype, len(b.shape)) for b in buffers))
            if found.setdefault(name, made) != made:
                raise ExternError(
                    f"{func.name}: the host function {name} is called with {found[name]} and with {made}",
                    help="in one kernel a function takes operands of one kind; use two functions",
                )
    return found


def find_function(name: str) -> Callable[..., Any]:
    """The Python function behind "module:function". Raises `ExternError`."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ExternError(
            f"the host function {name!r} cannot be found: {error}", help='name it as "module:function"'
        ) from None


class HostFunction:
    """A host function as a C function; `address` is valid while this object lives."""

    __slots__ = ("_callback", "_compiled", "address", "error", "signature")

    def __init__(self, signature: ExternSignature) -> None:
        function = find_function(signature.name)
        self.signature = signature
        self.error: BaseException | None = None
        self._compiled: CompiledExtern | None = None
        if is_compiled(function, signature.operands):
            self._compiled = _compiled_extern(function, signature.operands)
            self.address = self._compiled.address
            return

        def call(arguments: Any) -> int:
            try:
                function(*_arrays(arguments, signature.operands))
            except BaseException as error:  # noqa: BLE001 - nothing may cross the C frame
                self.error = error
                return 1
            return 0

        self._callback = _PROTOTYPE(call)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def raise_error(self) -> None:
        """Raise what the function raised, if it did."""
        error, self.error = self.error, None
        if self._compiled is not None:
            error = self._compiled.take_error()
        if error is not None:
            raise ExternError(f"the host function {self.signature.name} failed: {error}") from error


@lru_cache(maxsize=128)
def _compiled_extern(function: Callable[..., Any], operands: tuple[tuple[DType, int], ...]) -> CompiledExtern:
    return CompiledExtern(function, operands, _arrays)


def _arrays(arguments: Any, operands: tuple[tuple[DType, int], ...]) -> list[np.ndarray]:
    position = len(operands)
    arrays = []
    for number, (dtype, rank) in enumerate(operands):
        shape = tuple(int(arguments[position + axis]) for axis in range(rank))
        position += rank
        nbytes = math.prod(shape) * dtype.nbytes
        memory: Any = (ctypes.c_char * nbytes).from_address(arguments[number]) if nbytes else b""
        arrays.append(np.frombuffer(memory, dtype.numpy).reshape(shape))
    return arrays
