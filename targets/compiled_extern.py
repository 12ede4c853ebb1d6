"""Host functions compiled by numba: generated code calls machine code, with no interpreter in the path.

A function marked `@compiled` becomes a C function `i32 f(const i64* arguments)` that makes arrays of the addresses and
dimensions, calls the body, and returns 0. An exception would be lost in a C function, so it is caught inside; only then
the interpreter runs: the body once more, as Python, on the same arrays, which raises the exception with its message.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from tensorir.dtypes import DType

Operands = tuple[tuple[DType, int], ...]

_MARK = "_nestor_compiled"
_ON_ERROR = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))
_UNKNOWN_TO_NUMBA = ("float16", "bfloat16")


F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Decorator: numba compiles this host function when a kernel that calls it is built. It takes arrays, writes its
    results in place, and may call other functions marked so."""
    setattr(function, _MARK, True)
    return function


def is_compiled(function: Callable[..., Any], operands: Operands) -> bool:
    """Whether numba compiles the function for such operands; else it is called as Python."""
    known = not any(str(t).startswith(("bfloat", "float8")) or str(t) in _UNKNOWN_TO_NUMBA for t, _ in operands)
    return known and getattr(function, _MARK, False)


class CompiledExtern:
    """A compiled body: `address` is valid while this object lives; `error` is what it raised on this thread."""

    def __init__(
        self, function: Callable[..., Any], operands: Operands, arrays: Callable[[Any, Operands], Sequence[Any]]
    ) -> None:
        self._errors = threading.local()

        def on_error(arguments: Any) -> int:
            try:
                function(*arrays(arguments, operands))
            except BaseException as error:  # noqa: BLE001 - nothing may cross the C frame
                self._errors.value = error
            return 0

        self._callback = _ON_ERROR(on_error)
        self._body = _compile(function, operands, self._callback)
        self.address = int(self._body.address)

    def take_error(self) -> BaseException | None:
        """The exception of the last failed call on this thread, once."""
        error: BaseException | None = getattr(self._errors, "value", None)
        self._errors.value = None
        return error


@lru_cache(maxsize=256)
def jitted(function: Callable[..., Any]) -> Any:
    """A function as numba's, and the functions marked `@compiled` that it calls too."""
    import numba

    wanted = {
        name: jitted(value)
        for name, value in inspect.getclosurevars(function).globals.items()
        if getattr(value, _MARK, False) and value is not function
    }
    body = types.FunctionType(
        function.__code__,
        {**function.__globals__, **wanted},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return numba.njit(body, nogil=True)


@lru_cache(maxsize=64)
def _pointer_to(dtype_name: str) -> Any:
    """A function of compiled code: an address as a pointer to elements of the type."""
    import numba
    from numba import types as nb
    from numba.extending import intrinsic

    element = nb.boolean if dtype_name == "bool" else getattr(nb, dtype_name)

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return nb.CPointer(element)(nb.int64), generate

    assert numba is not None
    return pointer


def _compile(function: Callable[..., Any], operands: Operands, on_error: Any) -> Any:
    """The C function around a body, for operands of these types and ranks."""
    import numba

    names: dict[str, Any] = {"body": jitted(function), "carray": numba.carray, "on_error": on_error}
    position = len(operands)
    made = []
    for number, (dtype, rank) in enumerate(operands):
        names[f"pointer_{number}"] = _pointer_to(str(dtype))
        shape = "".join(f"arguments[{position + axis}], " for axis in range(rank))
        position += rank
        made.append(f"carray(pointer_{number}(arguments[{number}]), ({shape}))")
    source = f"""
def call(arguments):
    status = 0
    try:
        body({", ".join(made)})
    except Exception:
        status = 1
    if status != 0:
        on_error(arguments)
    return numpy_int32(status)
"""
    import numpy as np

    names["numpy_int32"] = np.int32
    exec(compile(source, f"<extern {function.__name__}>", "exec"), names)
    signature = numba.types.int32(numba.types.CPointer(numba.types.int64))
    return numba.cfunc(signature)(names["call"])
