"""The entry function of a plan: kernels called with the right memory and sizes, formulas, branches, statuses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from targets.llvm.entry import Block, Branch, CallKernel, CopyBytes, Entry, FillIntegers, Pointer, Step, emit_entry
from targets.llvm.runtime import KernelError, NativeFunction, compile_ir, host_machine, load
from tensorir import dtypes, expr
from tensorir.expr import Expr, Var, const

N = Var("n")
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
)
_alive: list[object] = []


def run(
    steps: Sequence[Step], arrays: list[np.ndarray], dims: Sequence[int] = (), blocks: tuple[Block, ...] = (),
    order: tuple[int, ...] = (), kernels: dict[str, object] | None = None,
) -> None:  # fmt: skip
    """Compiles and runs an entry; kernels are Python functions (pointers, dims) -> status."""
    text = emit_entry(Entry("entry", ("n",) if dims else (), blocks, order, tuple(steps)))
    imports = {}
    for name, function in (kernels or {}).items():
        callback = CALLBACK(lambda _, data, sizes, f=function: f(data, sizes))
        _alive.append(callback)
        imports[name] = ctypes.cast(callback, ctypes.c_void_p).value
    library = load(compile_ir(text, machine=host_machine(), passes="sroa"), imports=imports)
    NativeFunction(library, "entry", data=len(arrays), dims=len(dims), threads=1)(arrays, dims)


def value_of(e: Expr, n: int) -> int:
    out = np.full(1, -77, np.int64)
    run([FillIntegers(Pointer(0), (e,), dtypes.int64)], [out], [n])
    return int(out[0])


@pytest.mark.parametrize("n", [-7, -1, 0, 1, 5, 12])
def test_formulas_over_dimensions(n: int) -> None:
    def truncated(a: int, b: int) -> int:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    cases = [
        (N * 3 - 2, n * 3 - 2),
        (N // 4, n // 4),
        (N // -4, n // -4),
        (N % 5, n % 5),
        (N % -5, n % -5),
        (expr.truncdiv(N, 3), truncated(n, 3)),
        (expr.truncmod(N, 3), n - 3 * truncated(n, 3)),
        (expr.minimum(N, 4), min(n, 4)),
        (expr.maximum(N, 4), max(n, 4)),
        (expr.select(expr.less(N, 2), N + 10, const(3)), n + 10 if n < 2 else 3),
        (
            expr.select(expr.logical_and(expr.less(N, 9), expr.not_equal(N, 1)), N, const(-1)),
            n if n < 9 and n != 1 else -1,
        ),
        (expr.select(expr.logical_not(expr.less_equal(N, 0)), const(1), const(0)), int(n > 0)),
    ]
    for e, want in cases:
        assert value_of(e, n) == want, e


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool"])
def test_integers_of_every_width(dtype: str) -> None:
    out = np.zeros(3, dtype)
    run([FillIntegers(Pointer(0), (const(1), N, N - 4), dtypes.dtype_of(dtype))], [out], [5])
    assert out.astype(int).tolist() == ([1, 5, 1] if dtype != "bool" else out.astype(int).tolist())


def test_kernels_get_pointers_into_the_arena_and_dimensions() -> None:
    seen: list[object] = []
    arena = np.zeros(4096, np.uint8)
    x = np.zeros(4, np.float32)
    base = arena.__array_interface__["data"][0]

    def kernel(data: object, sizes: object) -> int:
        seen.append((data[0] == x.__array_interface__["data"][0], data[1] - base, data[2] - base, sizes[0]))  # type: ignore[index]
        return 0

    blocks = (Block(N * 4, 0), Block(N * 100, None, (0,)), Block(const(64), None, (0, 1)))
    step = CallKernel("kernel", (Pointer(0), Pointer(1, 1), Pointer(1, 2)), (0,))
    run([step], [x, arena], [5], blocks, (0, 1, 2), {"kernel": kernel})
    run([step], [x, arena], [17], blocks, (0, 1, 2), {"kernel": kernel})
    assert seen == [(True, 64, 64 + 512, 5), (True, 128, 128 + 1728, 17)]


def test_the_first_status_ends_the_run() -> None:
    calls: list[int] = []

    def kernel(data: object, sizes: object) -> int:
        calls.append(1)
        return 300 if len(calls) == 2 else 0

    step = CallKernel("kernel", (Pointer(0),), ())
    with pytest.raises(KernelError) as caught:
        run([step, step, step], [np.zeros(1)], kernels={"kernel": kernel})
    assert caught.value.code == 300 and len(calls) == 2


@pytest.mark.parametrize("taken", [True, False])
def test_branches_nest(taken: bool) -> None:
    a, out = np.array([taken]), np.zeros(4, np.int32)
    yes, no = np.array([11, 12, 13, 14], np.int32), np.array([21, 22, 23, 24], np.int32)
    inner = Branch(Pointer(0), (CopyBytes(Pointer(2), Pointer(1), const(16)),), ())
    other = (CopyBytes(Pointer(3), Pointer(1), N * 4),)
    run([Branch(Pointer(0), (inner,), other)], [a, out, yes, no], [3])
    assert out.tolist() == ([11, 12, 13, 14] if taken else [21, 22, 23, 0])
