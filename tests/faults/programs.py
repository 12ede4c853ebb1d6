"""Small programs that run through schedule, passes and LLVM, and the checks that hold them to the interpreter.

Each check compares with the unscheduled program in the interpreter, bit for bit: first the flat form in the checking
interpreter, so that an access out of bounds is an error and not a crash, then machine code, outputs poisoned and
between guard elements.
"""

# ruff: noqa: B023 (a compute calls its body at once)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from schedule import Schedule, ScheduleError, create_schedule, tensor_intrinsic
from targets.llvm.emit import emit
from tensorir import te
from tensorir.arith import Analyzer
from tensorir.dtypes import DType
from tensorir.expr import (
    FloorDiv,
    FloorMod,
    Var,
    broadcast,
    const,
    floordiv,
    floormod,
    less,
    less_equal,
    maximum,
    minimum,
    ramp,
)
from tensorir.interpreter import evaluate, interpret
from tensorir.layout import Layout
from tensorir.parser import parse_func
from tensorir.passes.linear import IndexScope
from tensorir.passes.pipeline import lower
from tensorir.relayout import relayout_compute
from tensorir.stmt import Func
from tensorir.visit import free_vars, rewrite_stmt, with_body
from tests.schedule.bits import make_arrays, unbound
from tests.schedule.test_lowered import tiled_matmul
from tests.targets.llvm import test_operations, test_statements
from tests.targets.llvm.flat_programs import BASELINE, HOST, assert_same_bits, run_native
from tests.tensorir import test_dot4
from tests.tensorir.passes import test_cleaning

MARGIN = 64
TARGETS = (HOST, BASELINE)


def guarded(array: np.ndarray) -> tuple[np.ndarray, Callable[[], None]]:
    """A copy of an array between guard elements, and the check that they were not written."""
    whole = np.full(array.size + 2 * MARGIN, 85).astype(array.dtype)
    inner = whole[MARGIN : MARGIN + array.size]
    inner[...] = array.reshape(-1)

    def check() -> None:
        edges = np.concatenate([whole[:MARGIN], whole[MARGIN + array.size :]])
        assert edges.tobytes() == np.full(2 * MARGIN, 85).astype(array.dtype).tobytes(), "a write out of bounds"

    return inner, check


def agree(
    wanted: Func, func: Func, dims: Mapping[str, int] | None = None, *, targets: Sequence[Any] = TARGETS, seed: int = 0
) -> None:
    """`func`, lowered, gives the bits of `wanted` in the checking interpreter and in machine code with two threads."""
    sizes = {d.name: n for d, n in zip(wanted.dims, (dims or {}).values(), strict=True)}
    by_var: dict[Var, int] = {d: sizes[d.name] for d in wanted.dims}
    arrays = make_arrays(wanted, by_var, seed)
    count = len(arrays) - wanted.outputs
    right = [a.copy() for a in arrays]
    interpret(wanted, right, by_var)
    func = with_body(func, rewrite_stmt(func.body, stmt=unbound))
    order = [sizes[d.name] for d in func.dims]
    for target in targets:
        flat = lower(func, target, check=True)
        found = [a.copy().reshape(-1) for a in arrays]
        interpret(flat, found, dict(zip(flat.dims, order, strict=True)), mode="checked")
        compare(flat, right, found, count, f"lowered for {target}")
        native = [guarded(a) for a in arrays]
        run_native(flat, [a for a, _ in native], order, target=target, threads=2)
        for _, check in native:
            check()
        compare(flat, right, [a for a, _ in native], count, f"native for {target}")


def compare(func: Func, right: list[np.ndarray], found: list[np.ndarray], first: int, where: str) -> None:
    """The outputs are the same bit for bit."""
    for p, w, f in zip(func.params[first:], right[first:], found[first:], strict=True):
        assert_same_bits(f, w.reshape(-1), f"{p.name}, {where}")


def scheduled(s: Schedule, dims: Mapping[str, int] | None = None, **options: Any) -> None:
    """A schedule keeps the bits of its program."""
    agree(te.create_func((*s.inputs, *s.outputs)), s.func(), dims, **options)


def written(text: str, dims: Mapping[str, int] | None = None, **options: Any) -> None:
    """A program given as text means in machine code what it means in the interpreter."""
    func = parse_func(text)
    agree(func, func, dims, **options)


# ---------------------------------------------------------------------------------------------------------- schedules


def tails() -> None:
    """Splits that do not divide, vectorized, unrolled and parallel; constant and symbolic."""
    for n in (70, 17, 5):
        a = te.placeholder((n,), name="A")
        c = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="C")
        s = create_schedule(c)
        outer, inner = s[c].split("i", factor=16)
        _, lanes = s[c].split(inner, factor=8)
        s[c].vectorize(lanes)
        s[c].parallel(outer)
        scheduled(s)
        s = create_schedule(c)
        _, inner = s[c].split("i", factor=4)
        s[c].unroll(inner)
        scheduled(s)
        s = create_schedule(c)
        outer, _ = s[c].split("i", nparts=3)
        s[c].parallel(outer)
        scheduled(s)


def symbolic_tails() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=16)
    s[c].vectorize(inner)
    s[b].compute_at(s[c], outer)
    s[b].vectorize(s[b].axis[0])
    for size in (1, 15, 16, 33):
        scheduled(s, {"n": size})
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=8)
    s[c].parallel(outer)
    scheduled(s, {"n": 21})


def padded() -> None:
    """A convolution over padding: guards at both ends, in serial and in parallel loops."""
    for n in (te.const(23), te.var("n")):
        x = te.placeholder((n, 9), "int32", name="X")
        zero = te.const(0, "int32")
        p = te.compute((n + 4, 9), lambda i, j: te.if_then_else(te.all(i >= 2, i < n + 2), x[i - 2, j], zero), name="P")
        k = te.reduce_axis(5, "k")
        c = te.compute((n, 9), lambda i, j: te.sum(p[i + k, j] * (k + 1).astype("int32"), axis=k), name="C")
        sizes = {"n": 23} if isinstance(n, Var) else None
        for kind in ("serial", "parallel"):
            s = create_schedule(c)
            s[p].compute_inline()
            if kind == "parallel":
                outer, _ = s[c].split("i", factor=5)
                s[c].parallel(outer)
            scheduled(s, sizes)
        if sizes is None:
            s = create_schedule(p)
            s[p].parallel("i")
            scheduled(s)


def stencil() -> None:
    """A producer attached where its consumer reads it at several places."""
    a = te.placeholder((40,), name="A")
    b = te.compute((38,), lambda i: a[i] + a[i + 2], name="B")
    c = te.compute((34,), lambda i: b[i] * b[i + 4] - b[i + 1], name="C")
    s = create_schedule(c)
    outer, inner = s[c].split("i", factor=8)
    s[b].compute_at(s[c], outer)
    s[c].vectorize(inner)
    scheduled(s)
    d = te.compute((5, 3), lambda i, j: b[i + 5 * j] * 2.0, name="D")
    s = create_schedule(d)
    s[b].compute_at(s[d], "i")
    scheduled(s)


def matmul() -> None:
    """A register tile with edges, its epilogue, and a plain reduction."""
    scheduled(tiled_matmul(7, 20, 10))
    scheduled(tiled_matmul(8, 32, 5))
    a, b = te.placeholder((5, 6), name="A"), te.placeholder((6, 7), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    scheduled(create_schedule(c))


def fused_reduction() -> None:
    """The loop over outputs and the loop of the reduction are one, so the init stays guarded in its block."""
    written(
        """
func fused(A: int64[6, 5], C: int64[6]) outputs 1:
  for f in 0..30:
    block C(i: spatial in 0..6 = f // 5, k: reduce in 0..5 = f % 5):
      reads A[i, k]
      writes C[i]
      init:
        C[i] = 0
      C[i] = C[i] + A[i, k]
"""
    )


def transposed() -> None:
    """Row-major indices of rectangles, read along both axes."""
    a = te.placeholder((6, 9), name="A")
    b = te.compute((9, 6), lambda i, j: a[j, i] + 1.0, name="B")
    c = te.compute((9, 6), lambda i, j: b[i, j] * b[8 - i, j], name="C")
    s = create_schedule(c)
    s[c].reorder("j", "i")
    _, lanes = s[c].split("i", factor=4)
    s[c].vectorize(lanes)
    scheduled(s)


def strided() -> None:
    """Vectors with strides: even elements, reversed, and a gather."""
    a = te.placeholder((64,), name="A")
    for body in (lambda i: a[i * 2], lambda i: a[63 - i], lambda i: a[i * 3 % 64], lambda i: a[i // 2]):
        c = te.compute((32,), body, name="C")
        s = create_schedule(c)
        _, lanes = s[c].split("i", factor=8)
        s[c].vectorize(lanes)
        scheduled(s)


def products_and_sums() -> None:
    """a * b + c in one compute, in two, and in a reduction: three roundings that no schedule may exchange."""
    x, y, z = (te.placeholder((64,), name=n) for n in "xyz")
    whole = te.compute((64,), lambda i: x[i] * y[i] + z[i], name="whole")
    s = create_schedule(whole)
    _, lanes = s[whole].split("i", factor=8)
    s[whole].vectorize(lanes)
    scheduled(s)
    product = te.compute((64,), lambda i: x[i] * y[i], name="product")
    total = te.compute((64,), lambda i: product[i] + z[i], name="total")
    s = create_schedule(total)
    s[product].compute_inline()
    _, lanes = s[total].split("i", factor=8)
    s[total].vectorize(lanes)
    scheduled(s)


def softmax() -> None:
    """exp against numpy, and the rows scheduled."""
    x = te.placeholder((4, 19), name="X")
    k, q = te.reduce_axis(19, "k"), te.reduce_axis(19, "q")
    top = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((4, 19), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((4,), lambda i: te.sum(e[i, q], axis=q), name="total")
    out = te.compute((4, 19), lambda i, j: e[i, j] / total[i], name="out")
    s = create_schedule(out)
    s[out].parallel("i")
    _, lanes = s[e].split("j", factor=8)
    s[e].vectorize(lanes)
    scheduled(s)
    data = np.random.default_rng(1).standard_normal((4, 19)).astype(np.float32)
    result = np.full((4, 19), np.nan, np.float32)
    interpret(te.create_func([x, out]), [data, result])
    wide = np.exp(data.astype(np.float64) - data.max(1, keepdims=True))
    np.testing.assert_allclose(result, wide / wide.sum(1, keepdims=True), rtol=1e-6)


def unsigned_wrap() -> None:
    """A difference below zero wraps, and what is known of it may not be used (A7)."""
    x, y = te.placeholder((8,), "uint32", name="X"), te.placeholder((8,), "uint32", name="Y")
    c = te.compute((8,), lambda i: te.select(x[i] - y[i] <= x[i], x[i] - y[i], te.const(7, "uint32")), name="C")
    scheduled(create_schedule(c))


def carried() -> None:
    """Memory that carries a value from one iteration to the next, and memory that does not."""
    written(
        """
func carried(A: float32[6, 4], B: float32[6, 4]) outputs 1:
  alloc last: float32[4]
  for i in 0..6:
    if i == 0:
      for j in 0..4:
        last[j] = 0.0
    for j in 0..4:
      B[i, j] = last[j] + A[i, j]
    for j in 0..4:
      last[j] = A[i, j] * 2.0
"""
    )


def compaction() -> None:
    """Memory whose first access touches less of it than the later ones."""
    written(
        """
func compaction(A: float32[32], B: float32[32]) outputs 1:
  for o in 0..4:
    alloc T: float32[40]
    for i in 0..3:
      T[o * 8 + i + 2] = A[o * 8 + i]
    for i in 0..5:
      T[o * 8 + i + 5] = A[o * 8 + i + 3] * 2.0
    for i in 0..2:
      T[o * 8 + i] = 1.0
    for i in 0..8:
      B[o * 8 + i] = T[o * 8 + i] + T[o * 8 + i + 2]
"""
    )


def branches() -> None:
    """Both sides of a condition in vector code."""
    written(
        """
func branches(A: float32[40], B: float32[40]) outputs 1:
  for i in 0..5 parallel:
    for j in 0..8 vectorized:
      if i * 8 + j < 13:
        B[i * 8 + j] = A[i * 8 + j] + 1.0
      else:
        B[i * 8 + j] = A[i * 8 + j] * 3.0
"""
    )


def masked_store_of_a_mask() -> None:
    """A store with a predicate of its own, in scalar and in vector code."""
    text = """
func masked(A: int32[32], B: int32[32]) outputs 1:
  for i in 0..32:
    B[i] = int32(5)
  for i in 0..32{kind}:
    B[i, mask=A[i] < int32(0)] = A[i]
"""
    written(text.replace("{kind}", ""))
    written(text.replace("{kind}", " vectorized"))
    written(text.replace("{kind}", " unrolled"))


def invariants() -> None:
    """Divisions that change in an inner loop stay there; those that do not leave it."""
    written(
        """
func invariants(A: float32[210], B: float32[210]) outputs 1:
  for i in 0..30:
    for k in 0..7:
      B[i * 7 + k] = A[i // 6 * 42 + i % 6 * 7 + (k * 5 + i) % 7]
"""
    )


def reuse_of_memory() -> None:
    """What is read again after a store is read from memory again."""
    written(
        """
func swap(A: int32[4], B: int32[4]) outputs 1:
  for i in 0..4:
    B[i] = A[i] + int32(1)
  B[0] = B[1] + B[0]
  B[1] = B[1] - B[0]
"""
    )


def shared_lets() -> None:
    """A let inside unrolled copies takes each copy's value."""
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: te.tanh(a[i]) + te.exp(a[7 - i]), name="C")
    s = create_schedule(c)
    s[c].unroll("i")
    scheduled(s)


def divisions() -> None:
    """Both divisions by constants and by variables, negative operands too."""
    text = """
func divisions(A: int32[16], B: int32[16], C: int32[16]) outputs 1:
  for i in 0..16:
    C[i] = {a} + int32(3) * {b} - int32(7) * {c} + int32(11) * {d}
"""
    for divisor in ("int32(4)", "int32(7)", "int32(-3)", "B[i]"):
        parts = {
            "a": f"A[i] // {divisor}", "b": f"A[i] % {divisor}", "c": f"truncdiv(A[i], {divisor})",
            "d": f"truncmod(A[i], {divisor})",
        }  # fmt: skip
        written(text.format(**parts))


def attached_consumers() -> None:
    """A diamond whose producers are attached at different places."""
    a = te.placeholder((12, 10), "int64", name="A")
    p = te.compute((12, 10), lambda i, j: a[i, j] * 3, name="P")
    q = te.compute((12, 10), lambda i, j: p[i, 9 - j] + 1, name="Q")
    r = te.compute((12, 10), lambda i, j: p[i, j] - q[i, j], name="R")
    s = create_schedule(r)
    outer, _ = s[r].split("i", factor=5)
    s[q].compute_at(s[r], outer)
    s[p].compute_at(s[r], outer)
    s[r].parallel(outer)
    scheduled(s)


def packed_layout() -> None:
    """x + 1 in a packed layout whose channels do not fill the last block: its padding lanes stay zero."""
    layout = Layout.parse("NCHW4c", logical="NCHW")
    x = te.placeholder((1, 6, 3, 2), name="X")
    packed = te.placeholder((1, 2, 3, 2, 4), name="P")
    y = te.compute((1, 6, 3, 2), lambda n, c, h, w: x[n, c, h, w] + 1.0, name="Y")
    result = relayout_compute(y, layout, {x: (packed, layout)})
    data = np.zeros((1, 8, 3, 2), np.float32)
    data[:, :6] = np.arange(1, 37, dtype=np.float32).reshape(1, 6, 3, 2)

    def pack(array: np.ndarray) -> np.ndarray:
        return array.reshape(1, 2, 4, 3, 2).transpose(0, 1, 3, 4, 2).copy()

    found = np.full((1, 2, 3, 2, 4), np.nan, np.float32)
    interpret(te.create_func([packed, result]), [pack(data), found])
    data[:, :6] += 1
    assert_same_bits(found, pack(data), "packed")


def fused_loops() -> None:
    """Loops fused over a rectangle, split again and made parallel."""
    a = te.placeholder((5, 7), name="A")
    b = te.compute((5, 7), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((5, 7), lambda i, j: b[i, 6 - j] + 1.0, name="C")
    s = create_schedule(c)
    outer, _ = s[c].split(s[c].fuse("i", "j"), factor=4)
    s[c].parallel(outer)
    s[b].fuse("i", "j")
    scheduled(s)


def padded_taps() -> None:
    """Taps of a window that lie outside are not visited: their loop is cut at its begin."""
    written(
        """
func taps(A: float32[9], B: float32[9]) outputs 1:
  for h in 0..9:
    B[h] = 0.0
    for k in 0..4:
      if 2 <= h + k and h + k < 11:
        B[h] = B[h] + A[h + k - 2]
"""
    )


def wide_indices() -> None:
    """The suite's test of indices that need 64 bits."""
    test_cleaning.test_indices_that_do_not_fit_stay()


def half_rounding() -> None:
    """Every operation on 16-bit floats rounds (B14)."""
    for dtype in ("float16", "bfloat16"):
        a, b = te.placeholder((64,), dtype, name="A"), te.placeholder((64,), dtype, name="B")
        c = te.compute((64,), lambda i: (a[i] * b[i] + a[i]) * b[i] - a[i] / b[i], name="C")
        s = create_schedule(c)
        _, lanes = s[c].split("i", factor=8)
        s[c].vectorize(lanes)
        scheduled(s)


def bfloat16_ties() -> None:
    """Halfway cases of float32 to bfloat16 go to the even one."""
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: a[i].astype("bfloat16"), name="C")
    func = te.create_func([a, c])
    bits = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0xBF818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 1], np.uint32)
    data = bits.view(np.float32)
    flat = lower(func, HOST)
    found = np.zeros(8, c.dtype.numpy)
    run_native(flat, [data, found])
    assert_same_bits(found, data.astype(c.dtype.numpy), "bfloat16")


def masked_loads() -> None:
    """Lanes whose mask is false read as zero."""
    written(
        """
func masked(A: float32[32], B: float32[32]) outputs 1:
  for i in 0..4:
    B[ramp(i * 8, 1, 8)] = A[ramp(i * 8, 1, 8), mask=ramp(i * 8, 1, 8) < broadcast(13, 8)] + broadcast(1.0, 8)
"""
    )


def parallel_begin() -> None:
    """The suite's test of parallel loops of every begin and extent."""
    test_statements.test_loops_of_every_extent_and_begin("parallel")


def empty_loops() -> None:
    """Loops over a symbolic number of steps that may be none."""
    text = """
func empty[n](A: float32[8], B: float32[8], N: float32[n]) outputs 1:
  for i in 0..n:
    N[i] = A[i] + B[i]
"""
    for size in (0, 1, 8):
        written(text, {"n": size})


def vector_selects() -> None:
    """A choice that differs between lanes."""
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: te.select(a[i] < 0.0, a[i] * 2.0, a[i] + 5.0), name="C")
    s = create_schedule(c)
    _, lanes = s[c].split("i", factor=8)
    s[c].vectorize(lanes)
    scheduled(s)


# -------------------------------------------------------------------------------------------------------- arithmetic


def simplifier() -> None:
    """Integer arithmetic keeps its values: the scheduler's simplifier and that of the passes, by brute force."""
    rng = np.random.default_rng(5)
    i, j = Var("i"), Var("j")
    ranges = {i: (-3, 12), j: (0, 7)}

    def random_expr(depth: int) -> Any:
        if depth == 0:
            return (i, j, const(int(rng.integers(-9, 10))))[int(rng.integers(3))]
        a, b = random_expr(depth - 1), random_expr(depth - 1)
        c = int(rng.integers(1, 9))
        return [
            lambda: a + b, lambda: a - b, lambda: a * int(rng.integers(-5, 6)), lambda: floordiv(a, c),
            lambda: floormod(a, c), lambda: minimum(a, b), lambda: maximum(a, b), lambda: a * c + floormod(b, c),
        ][int(rng.integers(8))]()  # fmt: skip

    for number in range(250):
        e = random_expr(3)
        analyzer, scope = Analyzer(), IndexScope()
        for v, (low, size) in ranges.items():
            analyzer.bind(v, const(low), const(size))
            scope.bind(v, const(low), const(size))
        bound = const(int(rng.integers(-20, 20)))
        simple = (analyzer.simplify(e), scope.simplify(e))
        verdicts = (analyzer.prove(e <= bound), scope.prove(e <= bound))
        low, high = scope.bounds(e)
        for p in range(-3, 9):
            for q in range(0, 7):
                env = {i: p, j: q}
                value = evaluate(e, env)
                for s in simple:
                    assert evaluate(s, env) == value, f"{number}: {e!r} became {s!r} at i={p}, j={q}"
                assert verdicts[0] is not True or value <= bound.value, f"{e!r} <= {bound!r} is not so"
                assert verdicts[1] is None or verdicts[1] == (value <= bound.value), f"{e!r} <= {bound!r}"
                assert (low is None or low <= value) and (high is None or value <= high), f"bounds of {e!r}"


def symbolic_facts() -> None:
    """What is proved under assumed conditions holds wherever they do."""
    rng = np.random.default_rng(6)
    i, n, m = Var("i"), Var("n"), Var("m")
    for _ in range(300):
        c, d, e, f = (int(v) for v in rng.integers(1, 6, 4))
        scope = IndexScope([n])
        condition = (less, less_equal)[int(rng.integers(2))](floordiv(i, c) * d + int(rng.integers(-3, 4)), n)
        factor = (n, m - 3)[int(rng.integers(2))]
        claim = less(i * (e - 2), (n + int(rng.integers(-2, 5))) * f + factor * i * int(rng.integers(0, 2)))
        scope.bind(i, const(0), n * c)
        with scope.assume(condition):
            verdict = scope.prove(scope.simplify(claim))
        _hold_to_quotients(scope, i, n, c, d * int(rng.integers(-2, 3)), int(rng.integers(-5, 6)))
        if verdict is None:
            continue
        for size in range(0, 7):
            for other in range(-4, 5):
                for value in range(0, size * c):
                    env = {i: value, n: size, m: other}
                    if evaluate(condition, {k: v for k, v in env.items() if k is not m}):
                        given = {k: env[k] for k in _variables(claim)}
                        assert evaluate(claim, given) is verdict or evaluate(claim, given) == verdict, f"{claim!r}"


def _hold_to_quotients(scope: IndexScope, i: Var, n: Var, divisor: int, times: int, shift: int) -> None:
    """What is proved of a quotient of i, which runs over 0 .. n * divisor."""
    for claim in (
        less_equal(floordiv(i, divisor) * times, i + shift),
        less_equal(i + shift, floordiv(i, divisor) * times),
        less_equal(i, floordiv(i + shift, divisor) * divisor + n),
    ):
        verdict = scope.prove(scope.simplify(claim))
        if verdict is not None:
            for size in range(1, 5):
                for value in range(size * divisor):
                    env = {v: {i: value, n: size}[v] for v in _variables(claim)}
                    assert evaluate(claim, env) == verdict, f"{claim!r} at {env}"


def _variables(e: Any) -> tuple[Var, ...]:
    return free_vars(e)


def signed_products() -> None:
    """i * m has the bounds of i only if m is not negative."""
    scope = IndexScope()
    i, m = Var("i"), Var("m")
    scope.bind(m, const(-3), const(2))
    scope.bind(i, const(0), const(5) * m * m)
    claim = less_equal(i * m, (m * m * 5 - 1) * m)
    verdict = scope.prove(scope.simplify(claim))
    for size in (-3, -2):
        for value in range(5 * size * size):
            found = evaluate(claim, {i: value, m: size})
            assert verdict is None or verdict == found, f"i={value}, m={size}"


def lanes_that_cross_a_block() -> None:
    """A remainder of a ramp is a ramp only if no lane wraps (A2)."""
    t, o = Var("t"), Var("o")
    for cls in (FloorMod, FloorDiv):
        index = ramp(t * 50 + o * 8, 1, 8)
        e = cls(index, broadcast(const(20), 8), index.dtype)
        analyzer = Analyzer()
        analyzer.bind(t, const(0), const(2))
        analyzer.bind(o, const(0), const(4))
        simple = analyzer.simplify(e)
        for p in range(2):
            for q in range(4):
                env = {t: p, o: q}
                assert list(evaluate(e, env)) == list(evaluate(simple, {v: env[v] for v in _variables(simple)}))


def contraction_of_text() -> None:
    """The text that goes to LLVM carries no flag that lets it change a value."""
    func = parse_func(
        """
func flags(A: float32[8], B: uint32[8], C: float32[8], D: uint32[8]) outputs 2:
  for i in 0..8:
    C[i] = A[i] * A[i] + A[i]
    D[i] = B[i] * B[i] - B[i]
"""
    )
    text = emit(lower(func, HOST), HOST).text
    for flag in (" fast", "contract", "reassoc", "nnan", "nsz", "arcp", "afn"):
        assert flag not in text, flag
    body = [line for line in text.splitlines() if " mul " in line or " sub " in line]
    assert body and not any("nuw" in line or "nsw" in line for line in body)


def reassociation_is_said() -> None:
    """A float reduction whose loops changed places says so; an integer one keeps its bits anyway."""
    for dtype in ("float32", "int32"):
        a = te.placeholder((3, 5, 7), dtype, name="A")
        k, q = te.reduce_axis(5, "k"), te.reduce_axis(7, "q")
        c = te.compute((3,), lambda i: te.sum(a[i, k, q], axis=(k, q)), name="C")
        s = create_schedule(c)
        s[c].reorder(q, k)
        if dtype == "int32" or not s.state.reassociated:
            scheduled(s)


def behind_a_row() -> None:
    """A stage computed behind the rows of the one it reads: right, or refused."""
    a = te.placeholder((12, 8), name="A")
    b = te.compute((12, 8), lambda i, j: a[i, j] + 1.0, name="B")
    for offset in (0, 2):
        c = te.compute((10, 8), lambda i, j: b[i, j] + b[i + offset, j], name="C")
        s = create_schedule(c)
        outer, _ = s[b].split("i", factor=4)
        try:
            s[c].reverse_compute_at(s[b], outer)
        except ScheduleError:
            assert offset
        scheduled(s)


def factored() -> None:
    """Partial results of an integer sum whose split does not divide."""
    a = te.placeholder((3, 13), "int32", name="A")
    k = te.reduce_axis(13, "k")
    c = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    _, inner = s[c].split(k, factor=4)
    s[c].rfactor(inner)
    scheduled(s)


def two_copies() -> None:
    """A producer filled one iteration ahead."""
    a = te.placeholder((20, 6), name="A")
    b = te.compute((20, 6), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((18, 6), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    s = create_schedule(c)
    outer, _ = s[c].split("i", factor=4)
    s[b].compute_at(s[c], outer)
    s[b].double_buffer()
    scheduled(s)


def blocks_of_loops() -> None:
    """A whole reduction in one block."""
    a, b = te.placeholder((4, 5), name="A"), te.placeholder((5, 6), name="B")
    k = te.reduce_axis(5, "k")
    c = te.compute((4, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    s[c].blockize("j")
    scheduled(s)


def tensorized() -> None:
    """An intrinsic in the place of its own compute, and not in that of another one."""
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, name="y")
    increment = tensor_intrinsic([x], y, lambda x, y: y.loop(0, lambda i: y.store(i, value=x[i] + 1.0)), "increment")
    a = te.placeholder((3, 8), name="A")
    for addend in (1.0, 2.0):
        c = te.compute((3, 8), lambda i, j: a[i, j] + addend, name="C")
        s = create_schedule(c)
        try:
            s[c].tensorize("j", increment)
        except ScheduleError:
            assert addend == 2.0
        scheduled(s)


def steps() -> None:
    """A scan."""
    x, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    first = te.compute((1, 4), lambda _, i: x[0, i], name="first")
    update = te.compute((6, 4), lambda t, i: state[t - 1, i] * 2.0 + x[t, i], name="update")
    s = create_schedule(te.scan(first, update, state, name="total"))
    s[update].vectorize("i")
    scheduled(s)


def dots() -> None:
    """The suite's test of dot products of bytes."""
    test_dot4.test_dot_of_bytes(4, "vectorized")


def operations(dtype: DType, lanes: int) -> Callable[[], None]:
    """The suite's test of every operation of a type."""
    return lambda: test_operations.test_operations_give_the_bits_of_the_interpreter(dtype, lanes)


def casts(dtype: DType, lanes: int) -> Callable[[], None]:
    """The suite's test of every cast of a type."""
    return lambda: test_operations.test_casts_give_the_bits_of_the_interpreter(dtype, lanes)
