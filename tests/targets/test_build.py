"""Building programs for targets and calling the kernels: what works, and what a user gets wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from targets.arguments import ArgumentError
from targets.build import build, compile_func, load_objects, resolve
from targets.externs import ExternError
from targets.llvm.machine import native_target
from targets.llvm.runtime import NativeFunction
from tensorir import dtypes, te
from tensorir.errors import UserError
from tensorir.target import Target

TARGETS = ("llvm", "reference")


def _row_sums() -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((te.var("n"), te.var("m")), "float32", "A")
    k = te.reduce_axis((0, a.shape[1]), "k")
    return a, te.compute((a.shape[0],), lambda i: te.sum(a[i, k], k), name="C")


def _twice(dtype: str = "float32") -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((te.var("n"),), dtype, "A")
    return a, te.compute(a.shape, lambda i: a[i] + a[i], name="B")


@pytest.mark.parametrize("target", TARGETS)
def test_a_compute_builds_and_runs(target: str) -> None:
    a, c = _row_sums()
    kernel = build(c, [a, c], target)
    for shape in ((1, 1), (3, 5), (4, 0), (0, 3)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        out = np.full(shape[0], np.nan, np.float32)
        kernel(x, out)
        np.testing.assert_allclose(out, x.astype(np.float64).sum(1), rtol=1e-6, atol=1e-6)


def test_the_targets_give_the_same_bits() -> None:
    a, c = _row_sums()
    x = np.random.default_rng(2).standard_normal((7, 33)).astype(np.float32)
    results = []
    for target in TARGETS:
        results.append(np.full(7, np.nan, np.float32))
        build(c, [a, c], target)(x, results[-1])
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("t", [str(t) for t in dtypes.ALL_DTYPES if not t.is_bool])
def test_every_dtype_goes_through_the_door(t: str) -> None:
    a, b = _twice(t)
    dtype = dtypes.dtype_of(t).numpy
    x, out = np.arange(5).astype(dtype), np.full(5, 99).astype(dtype)
    build(b, [a, b])(x, out)
    assert out.astype(int).tolist() == [0, 2, 4, 6, 8]


def test_a_comparison_gives_bools() -> None:
    """apache/tvm#1808: A > B into a bool array of an odd size."""
    a = te.placeholder((te.var("n"),), "float32", "A")
    b = te.placeholder(a.shape, "float32", "B")
    c = te.compute(a.shape, lambda i: a[i] > b[i], name="C")
    kernel = build(c, [a, b, c])
    x, y = np.random.default_rng(3).standard_normal((2, 37)).astype(np.float32)
    out = np.full(37, 0x5A, np.uint8).view(np.bool_)
    kernel(x, y, out)
    assert out.view(np.uint8).tolist() == (x > y).astype(np.uint8).tolist()


def test_every_float16_operation_rounds() -> None:
    """apache/tvm#12380: X[d, c, a] * sqrt(X[d, d, b]) of float16."""
    x = te.placeholder((3, 3, 3), "float16", "X")
    out = te.compute((3, 3, 3, 3), lambda a, b, c, d: x[d, c, a] * te.sqrt(x[d, d, b]), name="out")
    value = np.abs(np.random.default_rng(4).standard_normal((3, 3, 3)) * 10).astype(np.float16)
    got = np.full((3, 3, 3, 3), np.nan, np.float16)
    build(out, [x, out])(value, got)
    a, b, c, d = np.indices((3, 3, 3, 3))
    wanted = value[d, c, a] * np.sqrt(value[d, d, b])
    assert got.tobytes() == wanted.astype(np.float16).tobytes()


def test_unsigned_numbers_wrap() -> None:
    """apache/tvm#12383: 0 - X of uint32."""
    x = te.placeholder((8,), "uint32", "X")
    out = te.compute((8,), lambda i: te.const(0, "uint32") - x[i], name="out")
    value = np.array([0, 3, 2, 0, 4, 0, 2, 0], np.uint32)
    got = np.ones(8, np.uint32)
    build(out, [x, out])(value, got)
    assert got.tolist() == (np.uint32(0) - value).tolist()


def test_a_0d_tensor_is_an_argument() -> None:
    x = te.placeholder((), "float32", "X")
    out = te.compute((), lambda: x() * 2.0, name="out")
    got = np.full((), np.nan, np.float32)
    build(out, [x, out])(np.float32(21.0), got)
    assert got == 42.0


def test_inputs_that_are_not_contiguous_are_copied() -> None:
    a, c = _row_sums()
    x = np.random.default_rng(5).standard_normal((6, 4)).astype(np.float32)
    out = np.full(4, np.nan, np.float32)
    build(c, [a, c])(x.T, out)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-5)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 4)
    out6 = np.full(6, np.nan, np.float32)
    build(c, [a, c])(unaligned, out6)
    np.testing.assert_allclose(out6, x.sum(1), rtol=1e-5)


F = np.float32


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros((2, 3), F)], "takes 2 arrays (A, C), not 1"),
        ([np.zeros((2, 3)), np.zeros(2, F)], "argument 0 (A) is float32, the array given is float64"),
        ([np.zeros((2, 3), ">f4"), np.zeros(2, F)], "byte order"),
        ([np.zeros(2, F), np.zeros(2, F)], "argument 0 (A) has 2 dimensions, the array given 1"),
        ([np.zeros((2, 3), F), np.zeros(3, F)], "argument 1 (C) has 3 elements along axis 0, not 2"),
        ([[[1.0]], np.zeros(1, F)], "argument 0 (A) is list, not a numpy array"),
        ([np.zeros((2, 3), F), np.zeros(4, F)[::2]], "is an output, but the array is not contiguous and aligned"),
        ([np.zeros((2, 3), F), np.frombuffer(bytes(8), F)], "is an output, but the array is read-only"),
    ],
)
def test_an_array_that_does_not_fit_names_the_argument(target: str, arrays: list[Any], message: str) -> None:
    a, c = _row_sums()
    kernel = build(c, [a, c], target)
    with pytest.raises(ArgumentError) as caught:
        kernel(*arrays)
    assert message in str(caught.value)


def test_an_output_that_shares_memory_with_an_input_is_refused() -> None:
    a, b = _twice()
    kernel = build(b, [a, b])
    memory = np.zeros(12, F)
    with pytest.raises(ArgumentError, match="shares memory with argument 0"):
        kernel(memory[:8], memory[4:])
    kernel(memory[:4], memory[4:8])


def test_composite_and_free_dimensions() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n * 2 + 1,), "float32", "A")
    b = te.compute((n * m,), lambda i: a[0] + 0.0 * i.astype("float32"), name="B")
    kernel = build(b, [a, b])
    out = np.full(12, np.nan, F)
    kernel(np.full(7, 5.0, F), out, n=3, m=4)
    assert (out == 5.0).all()
    for sizes, message in (
        ({"n": 3}, "dimension m"),
        ({}, "dimension n"),
        ({"n": 2, "m": 6}, "has 7 elements along axis 0, not 5"),
        ({"q": 3}, "no dimension 'q'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(np.full(7, 5.0, F), out, **sizes)


def test_sources_times_and_spills() -> None:
    a, b = _twice()
    kernel = build(b, [a, b])
    assert "compute" not in kernel.source("llvm") and "define i32 @main" in kernel.source("llvm")
    assert "A" in kernel.source("tir") and "A[" in kernel.source("lowered")
    assert "ret" in kernel.source("asm")
    assert kernel.spills == 0
    with pytest.raises(UserError, match="there are tir, lowered, llvm, asm"):
        kernel.source("cuda")
    timing = kernel.time(np.zeros(8, F), np.zeros(8, F), repeats=3, min_window=1e-4)
    assert 0.0 < timing.min <= timing.median < 1.0
    assert "min" in str(timing)
    assert "target='llvm" in repr(kernel)


def test_objects_link_into_one_library() -> None:
    a, b = _twice()
    func = te.create_func([a, b], "main")
    compiled = [compile_func(func, "llvm", symbol=f"kernel_{i}") for i in range(3)]
    library = load_objects([compiled[0], *(c.object for c in compiled[1:])])
    for c in compiled:
        out = np.full(4, np.nan, F)
        NativeFunction(library, c.symbol, data=2, dims=1)([np.arange(4, dtype=F), out], [4])
        assert out.tolist() == [0, 2, 4, 6]


def test_resolving_a_target_gives_this_machine() -> None:
    resolved = resolve("llvm")
    assert resolved.mcpu not in ("", "host") and resolved.cores >= 1
    assert Target.parse(str(resolved)) == resolved
    assert resolve(resolved) == resolved
    assert resolved.features == native_target().features
    assert resolve("llvm -mattr=-fma,-avx512f").fma is False
    cross = resolve("llvm -mtriple=aarch64-linux-gnu")
    assert str(cross) == "llvm -mtriple=aarch64-linux-gnu"


def test_targets_without_a_backend_and_other_machines_say_so() -> None:
    a, b = _twice()
    with pytest.raises(UserError, match="the target 'cuda' has no machine code"):
        compile_func(te.create_func([a, b], "main"), "cuda -arch=sm_90")
    with pytest.raises(UserError, match="unknown target 'lvm'"):
        build(b, [a, b], "lvm")
    other = "aarch64" if native_target().arch == "x86_64" else "x86_64"
    target = f"llvm -mtriple={other}-linux-gnu"
    assert compile_func(te.create_func([a, b], "main"), target).object
    with pytest.raises(UserError, match="cannot run here"):
        build(b, [a, b], target)
    with pytest.raises(UserError, match="the parameters of the kernel are not given"):
        build(b)
    with pytest.raises(UserError, match="neither a schedule nor a program"):
        build(3, [a, b])  # type: ignore[arg-type]


def double_into(x: np.ndarray, out: np.ndarray) -> None:
    """A host function."""
    if x.size == 13:
        raise ValueError("thirteen is refused")
    out[...] = x * 2


def _extern() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((te.var("n"), 3), "float32", "A")
    e = te.extern([(a.shape, "float32")], [a], "tests.targets.test_build:double_into", "E")
    return a, e, te.compute(a.shape, lambda i, j: e[i, j] + 1.0, name="C")


@pytest.mark.parametrize("target", ["llvm"])
def test_a_host_function_is_called_by_name(target: str) -> None:
    a, _, c = _extern()
    kernel = build(c, [a, c], target)
    x = np.arange(6, dtype=F).reshape(2, 3)
    out = np.full((2, 3), np.nan, F)
    kernel(x, out)
    assert (out == x * 2 + 1).all()


def test_an_exception_in_a_host_function_comes_out_with_its_name() -> None:
    a = te.placeholder((te.var("n"),), "float32", "A")
    e = te.extern([(a.shape, "float32")], [a], "tests.targets.test_build:double_into", "E")
    kernel = build(e, [a, e])
    with pytest.raises(ExternError, match="double_into failed: thirteen is refused") as caught:
        kernel(np.zeros(13, F), np.zeros(13, F))
    assert isinstance(caught.value.__cause__, ValueError)
    kernel(np.zeros(12, F), np.zeros(12, F))


def test_a_host_function_that_does_not_exist_is_named() -> None:
    a = te.placeholder((4,), "float32", "A")
    e = te.extern([((4,), "float32")], [a], "tests.targets.test_build:missing", "E")
    with pytest.raises(ExternError, match="'tests.targets.test_build:missing' cannot be found"):
        build(e, [a, e])


def test_an_operation_on_a_dtype_that_it_cannot_take_is_a_type_error() -> None:
    """apache/tvm#18767, #20399: tanh of int16; bool / bool."""
    x, y = te.placeholder((4,), "int16", "X"), te.placeholder((4,), "bool", "Y")
    with pytest.raises(TypeError, match="tanh: not defined on int16"):
        te.compute((4,), lambda i: te.tanh(x[i]))
    with pytest.raises(TypeError, match="bool"):
        te.compute((4,), lambda i: y[i] / y[i])
