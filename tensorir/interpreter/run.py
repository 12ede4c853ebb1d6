"""Running a program on numpy arrays, and a scalar expression on values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorir.buffer import Buffer
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import UserError
from tensorir.expr import Expr, Var
from tensorir.interpreter.compiler import Program, compile_expr, compile_program
from tensorir.interpreter.memory import CheckedMemory, Monitor, SanitizerError, Trace, to_array, to_list
from tensorir.stmt import Func
from tensorir.visit import free_vars


class ArgumentError(UserError):
    """Arrays that do not fit the parameters of a function."""


def interpret(
    func: Func,
    arrays: Sequence[np.ndarray],
    dims: Mapping[Var, int] | None = None,
    *,
    mode: str = "plain",
    complete: bool = False,
) -> None:
    """Runs `func` on `arrays`, one a parameter in order; the outputs are written in place.

    A parameter of one dimension, as lowered programs have them, takes an array of any shape, row-major.
    `dims` gives the dimension symbols, by default read from the arrays' shapes. Mode "checked" also raises
    `SanitizerError` on an access out of bounds, a read of memory never written, and a race between parallel iterations
    or vector lanes, and with `complete` on an output element never written. Raises `ArgumentError` when the arrays do
    not fit.
    """
    if mode not in ("plain", "checked"):
        raise ArgumentError(f"interpret: unknown mode {mode!r}", help='the modes are "plain" and "checked"')
    sizes = bind_dims(func, arrays, dims)
    program = compile_program(func, mode == "checked")
    if mode == "checked":
        _run_checked(func, program, arrays, sizes, complete)
    else:
        _run_plain(func, program, arrays, sizes)


def _run_plain(func: Func, program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[Var, int]) -> None:
    memories = [to_list(a, p.dtype) for a, p in zip(arrays, func.params, strict=True)]
    lengths = [len(m) for m in memories]
    with np.errstate(all="ignore"):
        try:
            program.function(*memories, *[sizes[d] for d in program.dims])
        except IndexError as error:
            raise SanitizerError(
                f"{func.name}: access out of bounds",
                notes=program.place(error),
                help='run with mode="checked" for details',
            ) from error
    for position in program.written:
        if len(memories[position]) != lengths[position]:
            raise SanitizerError(f"{func.name}: vector write out of bounds of {func.params[position].name}")
        _give_back(memories[position], arrays[position], func.params[position].dtype)


def traced(func: Func, arrays: Sequence[np.ndarray], dims: Mapping[Var, int] | None, trace: Trace) -> Program:
    """Runs `func` in checked mode, telling `trace` of each access; the program, which says what its sites are."""
    program = compile_program(func, True)
    _run_checked(func, program, arrays, bind_dims(func, arrays, dims), False, trace)
    return program


def _run_checked(
    func: Func,
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[Var, int],
    complete: bool,
    trace: Trace | None = None,
) -> None:
    monitor = Monitor(program.sites, trace)
    first_output = len(func.params) - func.outputs
    memories = [
        CheckedMemory(
            p.name,
            _shape(p, a),
            to_list(a, p.dtype),
            monitor,
            written=i < first_output,
            shared=i in program.written,
            nbytes=p.dtype.nbytes,
        )  # fmt: skip
        for i, (a, p) in enumerate(zip(arrays, func.params, strict=True))
    ]
    with np.errstate(all="ignore"):
        try:
            program.function(*memories, *[sizes[d] for d in program.dims], monitor)
        except SanitizerError as error:
            raise SanitizerError(error.message, notes=(*error.notes, *program.place(error))) from None
    if complete:
        for memory in memories[first_output:]:
            memory.require_written()
    for position in program.written:
        _give_back(memories[position].values, arrays[position], func.params[position].dtype)


def _give_back(values: list[Any], array: np.ndarray, t: DType) -> None:
    array[...] = to_array(values, t).reshape(array.shape)


def bind_dims(func: Func, arrays: Sequence[np.ndarray], dims: Mapping[Var, int] | None) -> dict[Var, int]:
    """The dimension symbols of a call; raises `ArgumentError` naming the parameter that does not fit."""
    if len(arrays) != len(func.params):
        names = ", ".join(p.name for p in func.params)
        raise ArgumentError(f"{func.name} takes {len(func.params)} arrays ({names}), not {len(arrays)}")
    sizes: dict[Var, int] = dict(dims or {})
    for buffer, array in zip(func.params, arrays, strict=True):
        _check_kind(func, buffer, array)
        for extent, size in zip(buffer.shape, _shape(buffer, array), strict=True):
            if isinstance(extent, Var):
                sizes.setdefault(extent, size)
    for d in func.dims:
        if d not in sizes:
            raise ArgumentError(
                f"{func.name}: the dimension {d.name} cannot be read from the shapes", help="pass it in dims"
            )
    for buffer, array in zip(func.params, arrays, strict=True):
        for axis, (extent, size) in enumerate(zip(buffer.shape, _shape(buffer, array), strict=True)):
            missing = [v for v in free_vars(extent) if v not in sizes]
            if missing:
                raise ArgumentError(
                    f"{func.name}: the dimension {missing[0].name} of {buffer.name} is not known",
                    help="pass it in dims",
                )
            wanted = evaluate(extent, sizes)
            if wanted != size:
                raise ArgumentError(f"{func.name}: {buffer.name} has {size} elements along axis {axis}, not {wanted}")
    return sizes


def _shape(buffer: Buffer, array: np.ndarray) -> tuple[int, ...]:
    """The shape of an array as the program sees it: flat where the buffer of a lowered program is."""
    return array.shape if array.ndim == len(buffer.shape) else (array.size,)


def _check_kind(func: Func, buffer: Buffer, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{func.name}: {buffer.name} is {type(array).__name__}, not a numpy array")
    if array.dtype != buffer.dtype.numpy:
        raise ArgumentError(f"{func.name}: {buffer.name} is {buffer.dtype}, the array given is {dtype_of(array.dtype)}")
    if array.ndim != len(buffer.shape) != 1:
        raise ArgumentError(
            f"{func.name}: {buffer.name} has {len(buffer.shape)} dimensions, the array given {array.ndim}"
        )


def evaluate(e: Expr, env: Mapping[Var, Any] | None = None) -> Any:
    """The value of a scalar expression (a list of lanes for a vector) with its variables given by `env`.

    Raises `ArgumentError` when a variable is missing or the expression reads a buffer.
    """
    values = env or {}
    function, variables = compile_expr(e)
    missing = [v.name for v in variables if v not in values]
    if missing:
        raise ArgumentError(f"evaluate: no value is given for {', '.join(missing)}")
    return function(*[values[v] for v in variables])
