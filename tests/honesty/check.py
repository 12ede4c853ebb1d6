"""One kernel held to the interpreter: its flat program runs there and in machine code, on the same random inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorir.dtypes import DType
from tensorir.expr import Load, Var
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.verify import verify
from tensorir.visit import walk_expr, walk_exprs
from tests.honesty.shrink import value_of
from tests.targets.llvm.flat_programs import assert_same_bits, run_native


def check_kernel(
    func: Func, target: Target, sizes: Mapping[Var, int] | None = None, *, threads: int = 2, seed: int = 0
) -> None:
    """The flat form of a scheduled function is legal, and the interpreter and LLVM give the same bits for it.

    `sizes` gives the dimension symbols. Outputs are poisoned.
    """
    flat = lower(func, target)
    verify(flat, "flat")
    arrays = make_arrays(func, flat, dict(sizes or {}), seed)
    first = len(arrays) - flat.outputs
    wanted = [a.copy() for a in arrays]
    interpret(flat, wanted, sizes)
    found = [a.copy() for a in arrays]
    run_native(flat, found, [(sizes or {})[d] for d in flat.dims], target=target, threads=threads)
    for p, w, f in zip(flat.params[first:], wanted[first:], found[first:], strict=True):
        assert_same_bits(f, w, p.name)


def make_arrays(func: Func, flat: Func, sizes: dict[Var, int], seed: int) -> list[np.ndarray]:
    """Random inputs and poisoned outputs for the parameters of a flat function. What is used as an index stays below
    the smallest extent of what it indexes."""
    rng = np.random.default_rng(seed)
    index_bounds = _index_bounds(func, sizes)
    arrays = []
    for number, (given, p) in enumerate(zip(func.params, flat.params, strict=True)):
        count = value_of(p.shape[0], sizes)
        if number >= len(flat.params) - flat.outputs:
            arrays.append(np.full(count, np.nan if p.dtype.is_float else 77).astype(p.dtype.numpy))
        else:
            arrays.append(random_array(rng, count, p.dtype, index_bounds.get(id(given))))
    return arrays


def random_array(rng: np.random.Generator, count: int, dtype: DType, bound: int | None) -> np.ndarray:
    """Random values of a type, below `bound` for an index."""
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        low, high = (0, bound) if bound is not None else (0 if dtype.kind == "uint" else -9, 10)
        return rng.integers(low, max(high, low + 1), count).astype(dtype.numpy)
    return rng.standard_normal(count).astype(dtype.numpy)


def _index_bounds(func: Func, sizes: dict[Var, int]) -> dict[int, int]:
    """For each parameter whose elements stand in an index, the smallest extent so indexed."""
    bounds: dict[int, int] = {}
    for e in walk_exprs(func.body):
        if isinstance(e, Load):
            for index, extent in zip(e.indices, e.buffer.shape, strict=True):
                for inner in walk_expr(index):
                    if isinstance(inner, Load):
                        size = value_of(extent, sizes)
                        bounds[id(inner.buffer)] = min(size, bounds.get(id(inner.buffer), size))
    return bounds
