"""Flat programs written by hand, and the comparison of LLVM with the interpreter, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from targets.llvm.compile import CompiledKernel, compile_lowered
from targets.llvm.machine import resolve_host
from targets.llvm.runtime import NativeFunction, load
from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.expr import Expr, Var, const, ramp
from tensorir.expr import load as read
from tensorir.interpreter import interpret
from tensorir.semantics import rounding
from tensorir.stmt import For, Func, Store, seq
from tensorir.target import Target

HOST = resolve_host(Target.parse("llvm"))
BASELINE = resolve_host(Target.parse("llvm -mcpu=x86-64"))
AVX2 = resolve_host(Target.parse("llvm -mcpu=x86-64-v3"))
TARGETS = {"host": HOST, "x86-64": BASELINE, "x86-64-v3": AVX2}


def compile_flat(func: Func, target: Target = HOST) -> CompiledKernel:
    """The compiled flat program."""
    return compile_lowered(func, func, target)


def run_native(
    func: Func, arrays: Sequence[np.ndarray], dims: Sequence[int] = (), *, target: Target = HOST, threads: int = 1
) -> CompiledKernel:
    """Runs a flat program through LLVM."""
    compiled = compile_flat(func, target)
    function = NativeFunction(
        load(compiled.object), compiled.symbol, data=len(func.params), dims=len(func.dims), threads=threads
    )
    function(arrays, dims)
    return compiled


def poison(array: np.ndarray) -> np.ndarray:
    """An array of the same shape whose every byte is 0x5A."""
    return np.frombuffer(b"\x5a" * array.nbytes, array.dtype).reshape(array.shape).copy()


def assert_same_bits(got: np.ndarray, wanted: np.ndarray, what: str = "") -> None:
    """Equal bit for bit; any NaN equals any NaN."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    word = np.dtype(f"u{got.dtype.itemsize}")
    same = got.view(word) == wanted.view(word)
    if got.dtype.kind not in "biu":
        same |= np.isnan(got) & np.isnan(wanted)
    if not same.all():
        at = int(np.argmin(same.reshape(-1)))
        raise AssertionError(
            f"{what}: element {at} is {got.reshape(-1)[at]!r}, not {wanted.reshape(-1)[at]!r} "
            f"({int((~same).sum())} of {same.size} differ)"
        )


def assert_matches_interpreter(
    func: Func,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    dims: Mapping[Var, int] | None = None,
    *,
    targets: Sequence[Target] = (HOST,),
    threads: int = 1,
) -> None:
    """LLVM and the interpreter write the same bits to poisoned outputs. `outputs` give shapes and dtypes."""
    wanted = [poison(o) for o in outputs]
    interpret(func, [*inputs, *wanted], dims)
    sizes = [(dims or {})[d] for d in func.dims]
    for target in targets:
        got = [poison(o) for o in outputs]
        run_native(func, [*inputs, *got], sizes, target=target, threads=threads)
        for buffer, g, w in zip(func.params[len(inputs) :], got, wanted, strict=True):
            assert_same_bits(g, w, f"{buffer.name} on {target}")


def elementwise(inputs: Sequence[Buffer], results: Mapping[str, tuple[DType, object]], count: int, lanes: int) -> Func:
    """`result[i] = f(inputs[i], ...)` for every named (dtype, f), in vectors of `lanes` lanes."""
    i = Var("i")
    index = ramp(i * lanes, 1, lanes)
    operands = [read(b, (index,)) for b in inputs]
    outputs = [Buffer(name, (const(count),), dtype) for name, (dtype, _) in results.items()]
    stores = [
        Store(out, (index,), f(*operands))  # type: ignore[operator]
        for out, (_, f) in zip(outputs, results.values(), strict=True)
    ]
    body = For(i, const(0), const(count // lanes), "serial", seq(*stores))
    return Func("elementwise", (*inputs, *outputs), (), body, len(outputs))


def splat(value: bool | int | float, like: Expr) -> Expr:
    """A literal with the type of `like`."""
    from tensorir.expr import broadcast

    return broadcast(const(value, like.dtype.element), like.dtype.lanes)


_INTS = (0, 1, -1, 2, -2, 3, 7, -7, 8, 31, 63, 64, 100)


def interesting(dtype: DType, random: np.random.Generator, extra: int = 5) -> np.ndarray:
    """Values at the edges of a type, and some random ones."""
    t = dtype.numpy
    if dtype.is_bool:
        return np.array([False, True] * 8)
    if dtype.is_integer:
        edges = [v for v in _INTS if dtype.min_value <= v <= dtype.max_value]
        edges += [dtype.min_value, dtype.min_value + 1, dtype.max_value, dtype.max_value - 1]
        more = random.integers(dtype.min_value, dtype.max_value, extra, t, endpoint=True)
        return np.concatenate([np.array(edges, t), more])
    tiny, huge = {
        "float16": (6e-8, 65504.0), "bfloat16": (9.2e-41, 3.39e38), "float32": (1.4e-45, 3.4028235e38),
        "float64": (5e-324, 1.7976931348623157e308),
    }[str(dtype)]  # fmt: skip
    values = [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.1, -7.3, 100.7, -300.0, 2.0**31, -(2.0**31), 2.0**53,
        2.0**62, 2.0**63, -(2.0**63), 1.5 * 2.0**63, 2.0**64, tiny, -tiny, huge, -huge, float("inf"), float("-inf"),
        float("nan"),
    ]  # fmt: skip
    round_to = rounding(dtype)
    more = random.standard_normal(extra) * 10.0 ** random.integers(-4, 5, extra)
    with np.errstate(all="ignore"):
        return np.array([round_to(v) for v in (*values, *more.tolist())]).astype(t)


def pairs(dtype: DType, random: np.random.Generator, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Every value of `interesting` with every other, the count a multiple of `lanes`."""
    values = interesting(dtype, random)
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    count = -(-len(a) // lanes) * lanes
    return np.resize(a, count), np.resize(b, count)


def buffer(name: str, count: int | Expr, dtype: DType, scope: str = "global") -> Buffer:
    """A flat buffer."""
    return Buffer(name, (const(count) if isinstance(count, int) else count,), dtype, scope)


INDEX = dtypes.INDEX
