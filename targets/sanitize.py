"""A program run where mistakes show: its accesses checked, and for a GPU its threads against the program before them.

A kernel in thread form can be free of races and bad accesses and still not be what was scheduled (a tile read a step
too late, a sum added twice), so what its threads leave is compared with what the program leaves: bit for bit, or, where
threads combine partial sums in an order of their own, to half the digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensorir.expr import Var
from tensorir.interpreter import SanitizerError, interpret
from tensorir.passes.cross_thread import cross_thread
from tensorir.passes.pipeline import thread_form
from tensorir.stmt import Func
from tensorir.target import Target


def sanitize(func: Func, target: Target, arrays: Sequence[np.ndarray], dims: Mapping[Var, int]) -> None:
    """Runs `func` on copies of `arrays` in the checked interpreter, and its threads if `target` is a GPU. Raises
    `SanitizerError`."""
    given = [a.copy() for a in arrays]
    interpret(func, given, dims, mode="checked", complete=True)
    if target.gpu:
        sanitize_threads(func, thread_form(func, target), target, arrays, given, dims)


def sanitize_threads(
    func: Func,
    threads: Func,
    target: Target,
    arrays: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    dims: Mapping[Var, int] | None = None,
) -> None:
    """Runs `threads`, the thread form of `func`, on copies of `arrays` and compares the outputs with `wanted`."""
    found = [a.copy() for a in arrays]
    interpret(threads, found, dims, mode="checked", complete=True)
    exact = cross_thread(func, target) is func
    for parameter, got, right in list(zip(func.params, found, wanted, strict=True))[-func.outputs :]:
        if not _is_same(got, right, exact=exact):
            place = _first_difference(got, right)
            shown = f"[{', '.join(str(i) for i in place)}]" if place else ""
            raise SanitizerError(
                f"the threads do not what the program does: {parameter.name}{shown} is {got[place]}, but should be"
                f" {right[place]}",
                help="the lowering or a change of the lowered program is wrong: a guard, a bound or an order",
            )


def _is_same(got: np.ndarray, right: np.ndarray, *, exact: bool) -> bool:
    if exact or right.dtype.kind not in "fV":
        return got.tobytes() == right.tobytes()
    a, b = got.astype(np.float64), right.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    bound = np.sqrt(_epsilon(right)) * float(finite.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= bound
    return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))


def _epsilon(array: np.ndarray) -> float:
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-7  # bfloat16


def _first_difference(got: np.ndarray, right: np.ndarray) -> tuple[int, ...]:
    a, b = np.atleast_1d(got), np.atleast_1d(right)
    with np.errstate(invalid="ignore"):
        different = ~((a == b) | ((a != a) & (b != b)))
        scores = np.where(different, np.abs(a.astype(np.float64) - b.astype(np.float64)), -1.0)
    worst = np.argwhere(np.isnan(scores)) if np.isnan(scores).any() else None
    place = worst[0] if worst is not None else np.unravel_index(int(scores.argmax()), scores.shape)
    return tuple(int(i) for i in place)[: got.ndim]
