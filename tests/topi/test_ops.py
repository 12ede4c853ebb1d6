"""Every op, every case: the compute against the numpy reference in the interpreter; scheduled and built for LLVM, with
one and with two threads, it gives the same bits."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from targets.build import compile_func, resolve
from targets.kernel import Kernel, NativeRunner
from tensorir.dtypes import DType, dtype_of
from tensorir.interpreter import interpret
from tensorir.stmt import Block, Func
from tensorir.te import Tensor, create_func, placeholder
from tensorir.visit import walk_stmt
from topi import schedules
from topi.group import GroupInput, GroupNode, GroupSpec, compose, lower_group, spec_of
from topi.op import Case, Op
from topi.registry import all_ops

CASES = [(op, number) for op in all_ops().values() for number in range(len(op.cases))]
NAMES = [f"{op.name}-{number}" for op, number in CASES]
TARGET = resolve("llvm")
INTERPRETED = 100_000
"""Programs of more iterations than this only run compiled."""


def make_array(shape: Sequence[int], dtype: DType, low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """Random numbers of a type, in a range."""
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return np.asarray(rng.integers(int(low), int(high), shape, endpoint=True)).astype(dtype.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)


def operands(op: Op, case: Case) -> list[np.ndarray | None]:
    """The arrays of a case, the same in every run."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    return [
        None if s is None else make_array(s, dtype_of(t), case.low, case.high, rng)
        for s, t in zip(case.shapes, case.dtypes, strict=True)
    ]


def poisoned(tensor: Tensor) -> np.ndarray:
    """An output that holds what no test expects."""
    shape = tuple(int(e.value) for e in tensor.shape)  # type: ignore[attr-defined]
    result = np.empty(shape, tensor.dtype.numpy)
    result[...] = np.nan if tensor.dtype.is_float else True if tensor.dtype.is_bool else 77
    return result


def computed(op: Op, case: Case) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Placeholders and results of a case."""
    tensors = [
        None if s is None else placeholder(s, t, f"in{n}")
        for n, (s, t) in enumerate(zip(case.shapes, case.dtypes, strict=True))
    ]
    result = op(*tensors, **case.attrs)
    return [t for t in tensors if t is not None], result if isinstance(result, tuple) else (result,)


def expected(op: Op, case: Case, arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """The reference's answer, floats in float64."""
    assert op.numpy is not None
    wide = [None if a is None else a.astype(np.float64) if dtype_of(a.dtype).is_float else a for a in arrays]
    with np.errstate(all="ignore"):
        result = op.numpy(*wide, **case.attrs)
    return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))


def check(case: Case, actual: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    """Shapes, and values within the case's tolerance (exactly for integers)."""
    assert len(actual) == len(wanted)
    for a, w in zip(actual, wanted, strict=True):
        assert a.shape == w.shape
        if dtype_of(a.dtype).is_float:
            np.testing.assert_allclose(a.astype(np.float64), w, rtol=case.tolerance, atol=case.tolerance)
        else:
            np.testing.assert_array_equal(a, w.astype(a.dtype))


def iterations(func: Func) -> int:
    """How often blocks run."""
    total = 0
    for block in walk_stmt(func.body):
        if isinstance(block, Block):
            count = 1
            for i in block.iters:
                count *= max(int(i.extent.value), 1)  # type: ignore[attr-defined]
            total += count
    return total


@pytest.mark.parametrize(("op", "number"), CASES, ids=NAMES)
def test_case(op: Op, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = op.cases[number]
    arrays = [a for a in operands(op, case) if a is not None]
    wanted = expected(op, case, operands(op, case))
    inputs, outputs = computed(op, case)
    program = create_func([*inputs, *outputs])
    plain = None
    if iterations(program) <= INTERPRETED:
        plain = [poisoned(t) for t in outputs]
        interpret(program, [*arrays, *plain])
        check(case, plain, wanted)
    monkeypatch.setattr(schedules, "HAND_OFF", 0)  # so that small cases are parallel
    group = compose(spec_of_call(op, case, inputs, outputs), TARGET)
    func = lower_group(group, TARGET, None)
    compiled = compile_func(func, TARGET)
    for threads in (1, 2):
        kernel = Kernel(func, TARGET, NativeRunner(compiled, threads=threads))
        results = [poisoned(t) for t in outputs]
        kernel(*arrays, *results)
        check(case, results, wanted)
        for a, b in zip(results, plain or [], strict=plain is not None):
            assert a.tobytes() == b.tobytes(), "the schedule changed bits"


def spec_of_call(op: Op, case: Case, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> GroupSpec:
    """The group of one call in plain layouts."""
    given = tuple(GroupInput(spec_of(t.shape, t.dtype)) for t in inputs)
    places = iter(range(len(inputs)))
    references = tuple(None if s is None else ("in", next(places)) for s in case.shapes)
    results = tuple(spec_of(t.shape, t.dtype) for t in outputs)
    node = GroupNode(op.name, tuple(sorted(case.attrs.items())), references, results)
    return GroupSpec(given, (node,), tuple((0, n) for n in range(len(outputs))))


def test_every_op_has_a_reference_a_case_and_a_docstring() -> None:
    for op in all_ops().values():
        assert op.numpy is not None, op.name
        assert op.cases, op.name
        assert op.__doc__, op.name


def test_inference_agrees_with_the_compute() -> None:
    for op in all_ops().values():
        for case in op.cases:
            given: list[Any] = [None if s is None else (s, t) for s, t in zip(case.shapes, case.dtypes, strict=True)]
            _, outputs = computed(op, case)
            shapes = [([int(e.value) for e in shape], dtype) for shape, dtype in op.infer(given, case.attrs)]  # type: ignore[attr-defined]
            assert shapes == [([int(e.value) for e in t.shape], t.dtype) for t in outputs]  # type: ignore[attr-defined]
