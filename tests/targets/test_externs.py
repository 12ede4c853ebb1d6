"""Host functions that numba compiles: called from machine code with no interpreter, their errors raised again."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from targets.build import build
from targets.externs import ExternError, compiled, find_function
from targets.kernel import Kernel
from tensorir import te
from tensorir.interpreter import interpret

HERE = __name__
CALLS: list[str] = []


@compiled
def _twice(v: Any) -> Any:
    return v + v


@compiled
def double(x: Any, out: Any) -> None:
    """Twice every element; NaN is an error."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] != x[i, j]:
                raise ValueError("not a number")
            out[i, j] = _twice(x[i, j])


@compiled
def count(x: Any, flags: Any, scale: Any, number: Any) -> None:
    """A 0-d result of bool, integer and 0-d operands."""
    number[()] = 0
    for i in range(len(x)):
        if flags[i]:
            number[()] += x[i] * scale[()]


def in_python(x: Any, out: Any) -> None:
    """A host function that is not compiled."""
    CALLS.append("python")
    out[...] = x + 1


def kernel(function: str, shape: tuple[int, ...] = (3, 5), dtype: str = "float32") -> Kernel:
    """A kernel: one more than the host function's result of x."""
    x = te.placeholder(shape, dtype, "x")
    y = te.extern([(shape, dtype)], [x], f"{HERE}:{function}", name="y")
    z = te.compute(shape, lambda *i: y[i] + te.const(1, dtype), name="z")
    return build(te.create_func([x, z]), target="llvm")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "uint16"])
def test_a_compiled_body_is_called_from_machine_code(dtype: str) -> None:
    x = np.arange(15).reshape(3, 5).astype(dtype)
    z = np.zeros_like(x)
    called: list[str] = []
    k = kernel("double", dtype=dtype)

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == __file__:
            called.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        k(x, z)
    finally:
        sys.setprofile(None)
    np.testing.assert_array_equal(z, 2 * x + 1)
    assert called == []


def test_the_interpreter_runs_the_same_body() -> None:
    x = te.placeholder((2, 2), name="x")
    y = te.extern([((2, 2), "float32")], [x], f"{HERE}:double", name="y")
    arrays = [np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)]
    interpret(te.create_func([x, y]), arrays)
    assert arrays[1].tolist() == [[2, 2], [2, 2]]


def test_what_a_compiled_body_raises_is_raised_with_its_name() -> None:
    k = kernel("double")
    bad, z = np.full((3, 5), np.nan, np.float32), np.zeros((3, 5), np.float32)
    for _ in range(2):
        with pytest.raises(ExternError, match=r"the host function .*test_externs:double failed: not a number"):
            k(bad, z)
    k(np.ones((3, 5), np.float32), z)
    assert (z == 3).all()


def test_bool_and_0d_operands() -> None:
    x, flags, scale = te.placeholder((4,), "int32", "x"), te.placeholder((4,), "bool", "f"), te.placeholder((), "int32")
    number = te.extern([((), "int32")], [x, flags, scale], f"{HERE}:count", name="number")
    k = build(te.create_func([x, flags, scale, number]), target="llvm")
    out = np.array(-1, np.int32)
    k(np.array([1, 2, 3, 4], np.int32), np.array([True, False, True, True]), np.array(10, np.int32), out)
    assert out == 80


def test_symbolic_and_empty_shapes() -> None:
    n = te.var("n")
    x = te.placeholder((n, 5), name="x")
    y = te.extern([((n, 5), "float32")], [x], f"{HERE}:double", name="y")
    k = build(te.create_func([x, y]), target="llvm")
    for rows in (0, 1, 4):
        data, out = np.ones((rows, 5), np.float32), np.zeros((rows, 5), np.float32)
        k(data, out)
        assert (out == 2).all()


def test_a_half_falls_back_to_python() -> None:
    x = np.ones((3, 5), np.float16)
    z = np.zeros_like(x)
    kernel("double", dtype="float16")(x, z)
    assert (z == 3).all()


def test_a_function_that_is_not_marked_runs_in_python() -> None:
    CALLS.clear()
    z = np.zeros((3, 5), np.float32)
    kernel("in_python")(np.ones((3, 5), np.float32), z)
    assert CALLS == ["python"]
    assert (z == 3).all()


def test_one_function_on_operands_of_two_kinds_is_refused() -> None:
    x, y = te.placeholder((2, 2), name="x"), te.placeholder((2, 2), "int32", name="y")
    a = te.extern([((2, 2), "float32")], [x], f"{HERE}:double", name="a")
    b = te.extern([((2, 2), "int32")], [y], f"{HERE}:double", name="b")
    with pytest.raises(ExternError, match="called with float32 of 2 dimensions.*and with int32 of 2 dimensions"):
        build(te.create_func([x, y, a, b]), target="llvm")


def test_an_unknown_name_says_how_to_name_it() -> None:
    with pytest.raises(ExternError, match='cannot be found.*\nhelp: name it as "module:function"'):
        find_function("tests.nowhere:nothing")


def test_memory_whose_last_reader_is_a_host_function_stays() -> None:
    """B24, apache/tvm#13976: the address of a scratch tensor goes to a host function after another one was made."""
    shape = (8, 5)
    x = te.placeholder(shape, name="x")
    scratch = te.compute(shape, lambda i, j: x[i, j] + 1.0, name="scratch")
    other = te.compute(shape, lambda i, j: x[i, j] * 3.0, name="other")
    both = te.compute(shape, lambda i, j: other[i, 4 - j] - 1.0, name="both")
    y = te.extern([(shape, "float32")], [scratch], f"{HERE}:double", name="y")
    out = te.compute(shape, lambda i, j: y[i, j] + both[i, j], name="out")
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    found = np.full(shape, np.nan, np.float32)
    build(te.create_func([x, out]), target="llvm")(array, found)
    one = np.float32(1)
    wanted = (array + one) + (array + one) + ((array * np.float32(3))[:, ::-1] - one)
    assert found.tobytes() == wanted.astype(np.float32).tobytes()
