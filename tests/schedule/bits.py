"""Running programs on the interpreter and comparing them bit by bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedule import Schedule
from schedule.verify import run_packed
from tensorir import te
from tensorir.expr import Load, Var
from tensorir.interpreter import interpret
from tensorir.stmt import For, Func, Stmt
from tensorir.visit import rewrite_stmt, substitute, walk_expr, walk_exprs, with_body


def make_arrays(func: Func, dims: Mapping[Var, int], seed: int = 0) -> list[np.ndarray]:
    """Random inputs and poisoned outputs for the parameters of a function."""
    rng = np.random.default_rng(seed)
    used_as_index = {id(e.buffer) for e in _index_loads(func)}
    arrays: list[np.ndarray] = []
    for number, buffer in enumerate(func.params):
        shape = tuple(int(substitute(s, {v: te.const(n) for v, n in dims.items()}).value) for s in buffer.shape)
        kind = buffer.dtype.kind
        if number >= len(func.params) - func.outputs:
            array = np.full(shape, np.nan if buffer.dtype.is_float else 77, buffer.dtype.numpy)
        elif kind == "bool":
            array = rng.integers(0, 2, shape).astype(bool)
        elif buffer.dtype.is_integer:
            low = 0 if kind == "uint" or id(buffer) in used_as_index else -9
            high = 3 if id(buffer) in used_as_index else 10
            array = rng.integers(low, high, shape).astype(buffer.dtype.numpy)
        else:
            array = rng.standard_normal(shape).astype(buffer.dtype.numpy)
        arrays.append(array)
    return arrays


def _index_loads(func: Func) -> list[Load]:
    found = []
    for e in walk_exprs(func.body):
        if isinstance(e, Load):
            found += [x for i in e.indices for x in walk_expr(i) if isinstance(x, Load)]
    return found


def run(func: Func, dims: Mapping[Var, int] | None = None, seed: int = 0, mode: str = "checked") -> list[np.ndarray]:
    """The outputs of a function on random inputs. Loops bound to threads run one iteration after the other."""
    func = with_body(func, rewrite_stmt(func.body, stmt=unbound))
    arrays = make_arrays(func, dims or {}, seed)
    interpret(func, arrays, dims=dims, mode=mode)
    return arrays[len(arrays) - func.outputs :]


def unbound(s: Stmt) -> Stmt:
    """A loop bound to threads as a serial one."""
    return dataclasses.replace(s, kind="serial", thread=None) if isinstance(s, For) and s.kind == "thread" else s


def require_same_bits(s: Schedule, dims: Mapping[Var, int] | None = None, seed: int = 0, mode: str = "checked") -> None:
    """The scheduled program gives the bits of the unscheduled one, and zero on the padding lanes of its outputs. Floats
    of a schedule that says it changes the order of a sum are compared within a tolerance."""
    args: Sequence[Any] = (*s.inputs, *s.outputs)
    plain = te.create_func(args)
    arrays = make_arrays(plain, dims or {}, seed)
    inputs, outputs = arrays[: len(s.inputs)], arrays[len(s.inputs) :]
    wanted = [a.copy() for a in outputs]
    interpret(plain, [*inputs, *wanted], dims=dims)

    def on_interpreter(func: Func, given: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        interpret(with_body(func, rewrite_stmt(func.body, stmt=unbound)), given, dims=dims, mode=mode)

    found = run_packed(s, on_interpreter, s.func(), inputs, outputs, dims or {})
    for w, f, t in zip(wanted, found, s.outputs, strict=True):
        assert same(s, w, f), f"{t.name} differs:\n{s}\n{w}\n{f}"


def same(s: Schedule, wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two results of a schedule are as equal as it promises."""
    if s.state.reassociated and wanted.dtype.kind == "f":
        return np.allclose(wanted, found, rtol=2e-5, atol=2e-5, equal_nan=True)
    return wanted.tobytes() == found.tobytes()
