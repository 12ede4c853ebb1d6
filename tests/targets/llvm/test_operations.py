"""Every operation × dtype, scalar and vector, against the interpreter, bit for bit, on several CPU levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from targets.llvm.runtime.jit import MEMORY_FUNCTIONS
from tensorir import dtypes, intrinsics
from tensorir import expr as ir
from tensorir.dtypes import DType
from tensorir.errors import UserError
from tensorir.target import Target
from tests.targets.llvm.flat_programs import (
    AVX2,
    BASELINE,
    HOST,
    assert_matches_interpreter,
    assert_same_bits,
    buffer,
    compile_flat,
    elementwise,
    interesting,
    pairs,
    run_native,
    splat,
)

NUMBERS = [t for t in dtypes.ALL_DTYPES if not t.is_bool]
FLOATS = [t for t in NUMBERS if t.is_float]
INTEGERS = [t for t in NUMBERS if t.is_integer]


def _node(cls: type) -> Any:
    return lambda a, b: cls(a, b, dtypes.bool_.with_lanes(a.dtype.lanes) if issubclass(cls, ir.Compare) else a.dtype)


def _literal(cls: type, value: float, *, left: bool = False) -> Any:
    def make(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        c = splat(value, a)
        return _node(cls)(c, a) if left else _node(cls)(a, c)

    return make


def _operations(t: DType) -> dict[str, tuple[DType, Any]]:
    """Name to (element type of the result, the expression of two operands)."""
    result: dict[str, tuple[DType, Any]] = {
        c.__name__: (t, _node(c))
        for c in (ir.Add, ir.Sub, ir.Mul, ir.Min, ir.Max, ir.FloorDiv, ir.FloorMod, ir.TruncDiv, ir.TruncMod)
    }
    for c in (ir.EQ, ir.NE, ir.LT, ir.LE):
        result[c.__name__] = (dtypes.bool_, _node(c))
    result["Select"] = (t, lambda a, b: ir.select(a < b, a, b))
    result["negative"] = (t, lambda a, b: ir.neg(a))
    result["IfThenElse"] = (t, lambda a, b: ir.select(ir.logical_not(ir.logical_and(a < b, b < a)), b, a))
    result["MaxLiteral"] = (t, _literal(ir.Max, 0))
    result["MinLiteral"] = (t, _literal(ir.Min, 6))
    result["LiteralMax"] = (t, _literal(ir.Max, 0, left=True))
    if t.kind != "uint":
        result["abs"] = (t, lambda a, b: intrinsics.call("abs", a))
    result["reinterpret"] = (
        {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.int32, 64: dtypes.uint64}[t.bits],
        lambda a, b: ir.Call(
            "reinterpret",
            (ir.select(ir.NE(a, a, dtypes.bool_.with_lanes(a.dtype.lanes)), splat(0, a), a),),
            {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.int32, 64: dtypes.uint64}[t.bits].with_lanes(a.dtype.lanes),
        ),
    )
    if t.is_float:
        result["Div"] = (t, _node(ir.Div))
        result["Fma"] = (t, lambda a, b: ir.Fma(a, b, a, a.dtype))
        result["FmaNegative"] = (t, lambda a, b: ir.Fma(b, splat(-0.1, a), a, a.dtype))
        for name in ("sqrt", "floor", "ceil", "trunc", "round"):
            result[name] = (t, lambda a, b, name=name: intrinsics.call(name, a))
        result["copysign"] = (t, lambda a, b: intrinsics.call("copysign", a, b))
        result["isnan"] = (dtypes.bool_, lambda a, b: intrinsics.call("isnan", a))
        result["isinf"] = (dtypes.bool_, lambda a, b: intrinsics.call("isinf", a))
        return result
    for c in (ir.BitAnd, ir.BitOr, ir.BitXor, ir.ShiftLeft, ir.ShiftRight):
        result[c.__name__] = (t, _node(c))
    for amount in (0, 3, t.bits - 1, t.bits):
        result[f"ShiftLeft{amount}"] = (t, _literal(ir.ShiftLeft, amount))
        result[f"ShiftRight{amount}"] = (t, _literal(ir.ShiftRight, amount))
    for c in (ir.FloorDiv, ir.FloorMod, ir.TruncDiv, ir.TruncMod):
        for divisor in (1, 2, 8, 7, 0) if t.kind == "uint" else (1, 2, 8, 7, 0, -1, -3, -8):
            result[f"{c.__name__}{divisor}".replace("-", "m")] = (t, _literal(c, divisor))
    return result


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("t", NUMBERS, ids=str)
def test_operations_give_the_bits_of_the_interpreter(t: DType, lanes: int) -> None:
    a, b = pairs(t, np.random.default_rng(3), lanes)
    inputs = [buffer("a", len(a), t), buffer("b", len(a), t)]
    operations = _operations(t)
    _check(inputs, [a, b], operations, lanes, (HOST, AVX2))
    if t == dtypes.float64:
        operations = {n: o for n, o in operations.items() if "Fma" not in n and "Mod" not in n and n != "FloorDiv"}
    _check(inputs, [a, b], operations, lanes, (BASELINE,))


def _check(inputs: Any, arrays: Any, operations: Any, lanes: int, targets: Any) -> None:
    count = len(arrays[0])
    func = elementwise(inputs, operations, count, lanes)
    outputs = [np.empty(count, t.numpy) for t, _ in operations.values()]
    assert_matches_interpreter(func, arrays, outputs, targets=targets)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("t", dtypes.ALL_DTYPES, ids=str)
def test_casts_give_the_bits_of_the_interpreter(t: DType, lanes: int) -> None:
    values = interesting(t, np.random.default_rng(4), extra=40)
    values = np.resize(values, -(-len(values) // lanes) * lanes)
    casts = {
        f"to_{u}": (u, lambda a, u=u: ir.Cast(a, u.with_lanes(a.dtype.lanes))) for u in dtypes.ALL_DTYPES if u != t
    }
    _check([buffer("a", len(values), t)], [values], casts, lanes, (HOST, AVX2, BASELINE))


@pytest.mark.parametrize("target", [HOST, BASELINE], ids=["host", "x86-64"])
def test_every_float16_widens_and_every_rounding_case_narrows(target: Any) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    halves = every.view(np.float16)
    func = elementwise(
        [buffer("a", 1 << 16, dtypes.float16)],
        {"wide": (dtypes.float32, lambda a: ir.Cast(a, dtypes.float32.with_lanes(a.dtype.lanes)))},
        1 << 16,
        8,
    )
    wide = np.full(1 << 16, np.nan, np.float32)
    run_native(func, [halves, wide], target=target)
    assert_same_bits(wide, halves.astype(np.float32), "float16 to float32")
    bits = np.random.default_rng(5).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    ties = (halves.astype(np.float32).view(np.uint32) & 0xFFFFE000) | 0x1000
    for source in (bits, ties, ties + 1, ties - 1):
        func = elementwise(
            [buffer("a", 1 << 16, dtypes.float32)],
            {"half": (dtypes.float16, lambda a: ir.Cast(a, dtypes.float16.with_lanes(a.dtype.lanes)))},
            1 << 16,
            8,
        )
        half = np.full(1 << 16, np.nan, np.float16)
        singles = np.ascontiguousarray(source).view(np.float32)
        run_native(func, [singles, half], target=target)
        with np.errstate(all="ignore"):
            assert_same_bits(half, singles.astype(np.float16), "float32 to float16")


@pytest.mark.parametrize("lanes", [1, 4])
def test_bools_combine_and_are_one_byte_holding_0_or_1(lanes: int) -> None:
    a = np.array([0, 0, 1, 1, 0, 1, 1, 0], np.bool_)
    b = np.array([0, 1, 0, 1, 1, 1, 0, 0], np.bool_)
    t = dtypes.bool_
    operations = {
        "and": (t, _node(ir.And)),
        "or": (t, _node(ir.Or)),
        "not": (t, lambda a, b: ir.logical_not(a)),
        "min": (t, _node(ir.Min)),
        "max": (t, _node(ir.Max)),
        "eq": (t, _node(ir.EQ)),
        "ne": (t, _node(ir.NE)),
        "lt": (t, _node(ir.LT)),
        "le": (t, _node(ir.LE)),
        "select": (t, lambda a, b: ir.Select(a, b, ir.logical_not(b), a.dtype)),
    }
    _check([buffer("a", 8, t), buffer("b", 8, t)], [a, b], operations, lanes, (HOST, BASELINE))


def _random_expr(random: np.random.Generator, leaves: list[ir.Expr], t: DType, depth: int) -> ir.Expr:
    """A random expression of element type `t` over leaves of all types; sub-expressions are shared at times."""
    own = [e for e in leaves if e.dtype.element == t]
    if depth == 0 or (own and random.random() < 0.1):
        if own and random.random() < 0.8:
            return own[random.integers(len(own))]
        return splat(
            int(random.integers(0, 2 if t.is_bool else 9)), ir.Cast(leaves[0], t.with_lanes(leaves[0].dtype.lanes))
        )
    go = lambda u: _random_expr(random, leaves, u, depth - 1)  # noqa: E731
    choice = random.random()
    if choice < 0.15:
        source = dtypes.ALL_DTYPES[random.integers(len(dtypes.ALL_DTYPES))]
        value = go(source)
        return value if source == t else ir.Cast(value, t.with_lanes(value.dtype.lanes))
    if choice < 0.3:
        condition, a, b = go(dtypes.bool_), go(t), go(t)
        scalar = a.dtype.lanes == 1
        return (ir.IfThenElse if scalar and random.random() < 0.5 else ir.Select)(condition, a, b, a.dtype)
    if choice < 0.4:
        v = ir.Var("v", t.with_lanes(leaves[0].dtype.lanes))
        value = go(t)
        body = _random_expr(random, [*leaves, v], t, depth - 1)
        return ir.Let(v, value, body, body.dtype)
    if t.is_bool:
        if choice < 0.6:
            u = NUMBERS[random.integers(len(NUMBERS))]
            a, b = go(u), go(u)
            return _node((ir.EQ, ir.NE, ir.LT, ir.LE)[random.integers(4)])(a, b)
        return _node((ir.And, ir.Or)[random.integers(2)])(go(t), go(t))
    classes: tuple[type, ...] = (ir.Add, ir.Sub, ir.Mul, ir.Min, ir.Max)
    if t.is_float:
        if choice < 0.5:
            a = go(t)
            return ir.Fma(a, go(t), go(t), a.dtype)
        classes += (ir.Div,)
    else:
        classes += (
            ir.FloorDiv,
            ir.FloorMod,
            ir.TruncDiv,
            ir.TruncMod,
            ir.BitAnd,
            ir.BitXor,
            ir.ShiftLeft,
            ir.ShiftRight,
        )
    return _node(classes[random.integers(len(classes))])(go(t), go(t))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_random_expressions_give_the_bits_of_the_interpreter(seed: int, lanes: int) -> None:
    random = np.random.default_rng(seed)
    count = 64
    arrays = [np.resize(random.permutation(interesting(t, random)), count) for t in dtypes.ALL_DTYPES]
    inputs = [buffer(f"x{i}", count, t) for i, t in enumerate(dtypes.ALL_DTYPES)]
    results = {}
    for number in range(26):
        t = dtypes.ALL_DTYPES[number % len(dtypes.ALL_DTYPES)]
        state = int(random.integers(1 << 30))
        results[f"y{number}"] = (
            t,
            lambda *x, t=t, s=state: _random_expr(np.random.default_rng(s), list(x), t, 5),
        )
    _check(inputs, arrays, results, lanes, (HOST, AVX2))


@pytest.mark.parametrize("cpu", ["", " -mcpu=neoverse-n1"], ids=["baseline", "neoverse-n1"])
@pytest.mark.parametrize("t", NUMBERS, ids=str)
def test_code_for_aarch64_calls_no_library(t: DType, cpu: str) -> None:
    target = Target.parse(f"llvm -mtriple=aarch64-linux-gnu{cpu}")
    for lanes in (1, 8):
        inputs = [buffer("a", 64, t), buffer("b", 64, t)]
        casts = {f"to_{u}": (u, lambda a, b, u=u: ir.Cast(a, u.with_lanes(a.dtype.lanes))) for u in dtypes.ALL_DTYPES}
        casts.pop(f"to_{t}")
        func = elementwise(inputs, {**_operations(t), **casts}, 64, lanes)
        needed = compile_flat(func, target).compiled.symbols.undefined
        assert needed <= set(MEMORY_FUNCTIONS), needed


def test_a_float64_fma_needs_a_cpu_that_has_it() -> None:
    func = elementwise(
        [buffer("a", 8, dtypes.float64)],
        {"out": (dtypes.float64, lambda a: ir.Fma(a, a, a, a.dtype))},
        8,
        1,
    )
    with pytest.raises(UserError, match="a float64 fused multiply-add is not available on llvm -mcpu=x86-64"):
        compile_flat(func, BASELINE)
