"""Loops, memory access, masks, allocation, parallel loops and failures of flat programs on LLVM."""

from __future__ import annotations

import numpy as np
import pytest

from targets.llvm.emit import emit
from targets.llvm.runtime import KernelError, NativeFunction, Status, load
from tensorir import dtypes
from tensorir import expr as ir
from tensorir.errors import InternalError
from tensorir.expr import Call, Var, const, ramp
from tensorir.expr import load as read
from tensorir.interpreter import interpret
from tensorir.parser import parse_func
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Stmt, Store, seq
from tensorir.target import Target
from tests.targets.llvm.flat_programs import (
    AVX2,
    BASELINE,
    HOST,
    assert_matches_interpreter,
    assert_same_bits,
    buffer,
    compile_flat,
    run_native,
)

F32 = dtypes.float32
LEVELS = (HOST, AVX2, BASELINE)


def _mask(lanes: int, begin: ir.Expr, end: ir.Expr) -> ir.Expr:
    index = ramp(begin, 1, lanes)
    return ir.LT(index, ir.broadcast(end, lanes), dtypes.bool_.with_lanes(lanes))


@pytest.mark.parametrize("t", dtypes.ALL_DTYPES, ids=str)
def test_masked_tails_of_every_dtype(t: dtypes.DType) -> None:
    n, i = Var("n"), Var("i")
    a, out = buffer("a", n, t), buffer("out", n, t)
    where = ramp(i * 8, 1, 8)
    body = For(i, const(0), ir.floordiv(n + 7, 8), "serial", Store(out, (where,), read(a, (where,), _mask(8, i * 8, n)),
                                                                   _mask(8, i * 8, n)))  # fmt: skip
    func = Func("copy", (a, out), (n,), body)
    for size in (0, 1, 7, 8, 9, 23):
        guard = np.full(size + 16, 77).astype(t.numpy)
        inner = guard[8 : 8 + size]
        values = np.arange(1, size + 1).astype(t.numpy)
        for target in LEVELS:
            inner[...] = 0
            run_native(func, [values, inner], [size], target=target)
            assert_same_bits(inner, values, "inside")
            assert (guard[:8] == 77).all() or t.is_bool
            assert_same_bits(guard[8 + size :], np.full(8, 77).astype(t.numpy), "beyond the end")


@pytest.mark.parametrize("t", dtypes.ALL_DTYPES, ids=str)
def test_gathers_scatters_strides_and_broadcasts(t: dtypes.DType) -> None:
    a, index = buffer("a", 64, t), buffer("index", 8, dtypes.int32)
    names = ("gathered", "strided", "even", "reversed", "broadcasted", "scattered", "masked", "scalar")
    outs = [buffer(name, 8 if name != "scattered" else 16, t) for name in names]
    lanes = ramp(const(0), 1, 8)
    picked = ir.Cast(read(index, (lanes,)), dtypes.int64.with_lanes(8))
    mask = ir.LT(read(index, (lanes,)), ir.broadcast(const(30, "int32"), 8), dtypes.bool_.with_lanes(8))
    stores: list[Stmt] = [
        Store(outs[0], (lanes,), read(a, (picked,))),
        Store(outs[1], (lanes,), read(a, (ramp(const(3), 5, 8),))),
        Store(outs[2], (lanes,), read(a, (ramp(const(49), 2, 8),))),
        Store(outs[3], (lanes,), read(a, (ramp(const(20), -1, 8),))),
        Store(outs[4], (lanes,), read(a, (ir.broadcast(const(9), 8),))),
        Store(outs[5], (ramp(const(0), 1, 16),), ir.broadcast(const(0, t), 16)),
        Store(outs[5], (ramp(const(1), 2, 8),), read(a, (lanes,))),
        Store(outs[6], (lanes,), read(a, (picked,), mask)),
        *(Store(outs[7], (const(k),), read(a, (const(k * 7),), ir.const(k % 3 != 0))) for k in range(8)),
    ]
    func = Func("access", (a, index, *outs), (), seq(*stores), len(outs))
    values = np.arange(64).astype(t.numpy)
    if t.is_bool:
        values = np.random.default_rng(0).integers(0, 2, 64).astype(np.bool_)
    where = np.array([3, 60, 0, 17, 31, 29, 8, 44], np.int32)
    shapes = [np.empty(16 if o.name == "scattered" else 8, t.numpy) for o in outs]
    assert_matches_interpreter(func, [values, where], shapes, targets=LEVELS)


def test_any_byte_but_0_in_a_callers_bool_is_true() -> None:
    a, out = buffer("a", 8, dtypes.bool_), buffer("out", 8, dtypes.bool_)
    lanes = ramp(const(0), 1, 8)
    func = Func("copy", (a, out), (), Store(out, (lanes,), read(a, (lanes,))))
    raw = np.array([0, 1, 2, 255, 0, 128, 1, 0], np.uint8)
    got = np.full(8, 0x5A, np.uint8)
    run_native(func, [raw, got])
    assert got.tolist() == [0, 1, 1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_callers_arrays_need_only_the_alignment_of_an_element(offset: int) -> None:
    a, out = buffer("a", 32, F32), buffer("out", 32, F32)
    lanes = ramp(const(0), 1, 16)
    more = ramp(const(16), 1, 16)
    two = ir.broadcast(const(2.0, "float32"), 16)
    func = Func("twice", (a, out), (), seq(*(Store(out, (r,), read(a, (r,)) * two) for r in (lanes, more))))
    source = np.arange(40, dtype=np.float32)[offset : offset + 32]
    whole = np.full(40, np.nan, np.float32)
    run_native(func, [source, whole[offset : offset + 32]])
    assert (whole[offset : offset + 32] == source * 2).all()
    assert np.isnan(whole[:offset]).all() and np.isnan(whole[offset + 32 :]).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("noalias", [False, True])
def test_parallel_loops_capture_what_they_use(threads: int, noalias: bool) -> None:
    n, i, j, k, factor, flag = Var("n"), Var("i"), Var("j"), Var("k"), Var("factor", F32), Var("flag", dtypes.bool_)
    a, out, scratch = buffer("a", n * 5, F32), buffer("out", n * 5, F32), buffer("scratch", 5, F32, "local")
    inner = For(
        i,
        const(0),
        n,
        "parallel",
        Allocate(
            scratch,
            seq(
                For(j, const(0), const(5), "serial", Store(scratch, (j,), read(a, (i * 5 + j,)) * factor)),
                For(k, const(0), const(5), "parallel", Store(
                    out, (i * 5 + k,), ir.select(flag, read(scratch, (const(4) - k,)), const(0.0, "float32")))),
            ),
        ),
    )  # fmt: skip
    body = LetStmt(factor, read(a, (const(0),)), LetStmt(flag, ir.LT(const(1), n, dtypes.bool_), inner))
    func = Func("rows", (a, out), (n,), body, 1, (("noalias", noalias),))
    assert ("noalias" in emit(func, HOST).text) == noalias
    for size in (2, 3, 7, 100):
        values = np.random.default_rng(size).standard_normal(size * 5).astype(np.float32)
        assert_matches_interpreter(func, [values], [values], {n: size}, threads=threads)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_loops_of_every_extent_and_begin(kind: str) -> None:
    n, i, j = Var("n"), Var("i"), Var("j", dtypes.int32)
    out = buffer("out", 40, dtypes.int64)
    body = seq(
        For(i, const(2), n - 3, kind, Store(out, (i,), i * 10)),
        For(j, const(20, "int32"), const(4, "int32"), kind, Store(out, (j,), ir.cast(j, "int64"))),
        For(i, const(30), const(1), kind, Store(out, (i,), i)),
        For(i, const(31), const(0), kind, Store(out, (i,), i)),
    )
    func = Func("fill", (out,), (n,), body)
    for size in (0, 2, 3, 4, 9):
        got = np.full(40, -1, np.int64)
        run_native(func, [got], [size], threads=2)
        wanted = np.full(40, -1, np.int64)
        wanted[2 : 2 + max(size - 3, 0)] = np.arange(2, 2 + max(size - 3, 0)) * 10
        wanted[20:24] = range(20, 24)
        wanted[30] = 30
        assert (got == wanted).all()


def test_conditions_guard_what_must_not_run() -> None:
    n, i = Var("n"), Var("i")
    a, out = buffer("a", n, F32), buffer("out", 8, F32)
    guarded = ir.IfThenElse(ir.LT(i, n, dtypes.bool_), read(a, (i,)), const(-1.0, "float32"), F32)
    body = seq(
        For(i, const(0), const(8), "serial", If(ir.LT(i, const(6), dtypes.bool_), Store(out, (i,), guarded),
                                                Store(out, (i,), const(9.0, "float32")))),
        If(ir.const(False), Store(out, (const(0),), const(5.0, "float32"))),
        Store(out, (const(1),), const(5.0, "float32"), ir.LT(n, const(2), dtypes.bool_)),
    )  # fmt: skip
    func = Func("guard", (a, out), (n,), body)
    for size in (0, 1, 3, 8):
        values = np.arange(size, dtype=np.float32)
        assert_matches_interpreter(func, [values], [np.empty(8, np.float32)], {n: size})


@pytest.mark.parametrize("size", [4, 1 << 14])
@pytest.mark.parametrize("symbolic", [False, True])
def test_allocations_small_large_and_symbolic(size: int, symbolic: bool) -> None:
    n, i = Var("n"), Var("i")
    count = n if symbolic else const(size)
    a, out, t = buffer("a", n, F32), buffer("out", n, F32), buffer("t", count, F32, "local")
    u = buffer("u", count, F32, "local")
    body = Allocate(t, Allocate(u, seq(
        For(i, const(0), n, "serial", Store(t, (i,), read(a, (i,)) + const(1.0, "float32"))),
        For(i, const(0), n, "serial", Store(u, (i,), read(t, (n - 1 - i,)))),
        For(i, const(0), n, "serial", Store(out, (i,), read(u, (i,)))),
    )))  # fmt: skip
    values = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    got = np.full(size, np.nan, np.float32)
    run_native(Func("reverse", (a, out), (n,), body), [values, got], [size])
    assert (got == (values + np.float32(1))[::-1]).all()


def test_no_memory_is_a_status_that_names_the_bytes() -> None:
    """apache/tvm#14347: an allocation that cannot be had."""
    n, i = Var("n"), Var("i")
    out, big = buffer("out", 4, F32), buffer("big", n, F32, "local")
    small = buffer("small", n * 0 + 64, F32, "local")
    body = Allocate(
        small, For(i, const(0), const(4), "parallel", Allocate(big, Store(out, (i,), const(0.0, "float32"))))
    )
    func = Func("hungry", (out,), (n,), body)
    compiled = compile_flat(func)
    function = NativeFunction(load(compiled.object), compiled.symbol, data=1, dims=1, threads=2)
    function([np.empty(4, np.float32)], [16])
    with pytest.raises(KernelError, match="out of memory") as caught:
        function([np.empty(4, np.float32)], [1 << 50])
    assert caught.value.code == Status.OUT_OF_MEMORY
    assert caught.value.detail == 4 << 50
    function([np.empty(4, np.float32)], [16])


def test_values_of_memory_are_read_again_after_a_store() -> None:
    out, a = buffer("out", 4, F32), buffer("a", 1, F32)
    shared = read(a, (const(0),))
    value = shared + const(1.0, "float32")
    body = seq(
        Store(out, (const(0),), value), Store(a, (const(0),), const(5.0, "float32")), Store(out, (const(1),), value),
        Store(out, (const(2),), shared), Store(out, (const(3),), value * value),
    )  # fmt: skip
    got = np.full(4, np.nan, np.float32)
    run_native(Func("again", (a, out), (), body), [np.ones(1, np.float32), got])
    assert got.tolist() == [2.0, 6.0, 5.0, 36.0]


def test_one_let_body_shared_by_two_lets_takes_each_value() -> None:
    out, v = buffer("out", 2, F32), Var("v", F32)
    body = v * v + const(1.0, "float32")
    stores = [Store(out, (const(i),), ir.Let(v, const(x, "float32"), body, F32)) for i, x in ((0, 2.0), (1, 3.0))]
    got = np.full(2, np.nan, np.float32)
    run_native(Func("lets", (out,), (), seq(*stores)), [got])
    assert got.tolist() == [5.0, 10.0]


def test_a_variable_bound_anew_inside_hides_the_outer_one() -> None:
    out, v = buffer("out", 1, F32), Var("v", F32)
    body = v * v
    inner = ir.Let(v, const(3.0, "float32"), body, F32)
    got = np.full(1, np.nan, np.float32)
    store = Store(out, (const(0),), ir.Let(v, const(2.0, "float32"), body - inner, F32))
    run_native(Func("shadow", (out,), (), store), [got])
    assert got.tolist() == [-5.0]


def test_deep_expressions_do_not_meet_the_recursion_limit() -> None:
    a, out = buffer("a", 1, dtypes.int32), buffer("out", 2, dtypes.int32)
    total: ir.Expr = read(a, (const(0),))
    guarded: ir.Expr = const(0, "int32")
    for k in range(5000):
        total = ir.Add(total, const(k, "int32"), dtypes.int32)
    x = read(a, (const(0),))
    for k in range(600):
        guarded = ir.IfThenElse(ir.LT(x, const(k, "int32"), dtypes.bool_), x + k, guarded, dtypes.int32)
    got = np.full(2, -1, np.int32)
    func = Func("deep", (a, out), (), seq(Store(out, (const(0),), total), Store(out, (const(1),), guarded)))
    run_native(func, [np.array([7], np.int32), got])
    assert got[0] == 7 + sum(range(5000))
    assert got[1] == 7 + 599


def test_shared_expressions_are_emitted_once() -> None:
    a, out = buffer("a", 1, F32), buffer("out", 1, F32)
    e: ir.Expr = read(a, (const(0),))
    for _ in range(64):
        e = ir.Add(e, e, F32)
    text = emit(Func("double", (a, out), (), Store(out, (const(0),), e)), HOST).text
    assert text.count("fadd") == 64


def test_register_tiles_live_in_registers() -> None:
    k_count = 64
    k, a, b, out = Var("k"), buffer("a", k_count * 4, F32), buffer("b", k_count * 16, F32), buffer("out", 64, F32)
    tile = buffer("tile", 64, F32, "register")
    vector = F32.with_lanes(16)
    rows = [ramp(const(16 * r), 1, 16) for r in range(4)]
    init = [Store(tile, (r,), ir.broadcast(const(0.0, "float32"), 16)) for r in rows]
    update = [
        Store(tile, (rows[r],), ir.Fma(ir.broadcast(read(a, (k * 4 + r,)), 16), read(b, (ramp(k * 16, 1, 16),)),
                                       read(tile, (rows[r],)), vector))
        for r in range(4)
    ]  # fmt: skip
    write = [Store(out, (r,), read(tile, (r,))) for r in rows]
    body = Allocate(tile, seq(*init, For(k, const(0), const(k_count), "serial", seq(*update)), *write))
    func = Func("product", (a, b, out), (), body)
    assert emit(func, HOST).passes == "sroa"
    random = np.random.default_rng(2)
    arrays = [random.standard_normal(n * k_count).astype(np.float32) for n in (4, 16)]
    assert_matches_interpreter(func, arrays, [np.empty(64, np.float32)], targets=(HOST, AVX2))
    compiled = compile_flat(func)
    assert compiled.spills == 0
    if HOST.vector_bits == 512:
        assert "vfmadd" in compiled.assembly and "zmm" in compiled.assembly


def test_prefetch_runs_and_needs_no_valid_address() -> None:
    a, out = buffer("a", 4, F32), buffer("out", 1, F32)
    hint = Evaluate(Call("prefetch", (read(a, (const(1 << 30),)),), dtypes.int32))
    got = np.full(1, np.nan, np.float32)
    func = Func("hint", (a, out), (), seq(hint, Store(out, (const(0),), read(a, (const(1),)))))
    run_native(func, [np.arange(4, dtype=np.float32), got])
    assert got[0] == 1.0
    assert "llvm.prefetch" in emit(func, HOST).text


def test_code_for_another_machine_is_generated_here() -> None:
    a, out = buffer("a", 16, F32), buffer("out", 16, F32)
    lanes = ramp(const(0), 1, 16)
    func = Func("copy", (a, out), (), Store(out, (lanes,), read(a, (lanes,)) * read(a, (lanes,))))
    compiled = compile_flat(func, Target.parse("llvm -mtriple=aarch64-linux-gnu"))
    assert "fmul" in compiled.assembly and "xmm" not in compiled.assembly


def test_the_text_has_no_flags_that_change_a_programs_meaning() -> None:
    """apache/tvm#12383: no nuw or nsw on what a user computes."""
    a, out = buffer("a", 8, dtypes.uint32), buffer("out", 8, dtypes.uint32)
    lanes = ramp(const(0), 1, 8)
    func = Func("minus", (a, out), (), Store(out, (lanes,), ir.broadcast(const(0, "uint32"), 8) - read(a, (lanes,))))
    text = emit(func, HOST).text
    assert "nuw" not in text and "nsw" not in text and "fast" not in text and "contract" not in text
    x = np.array([0, 3, 2, 0, 4, 0, 2, 0], np.uint32)
    got = np.full(8, 1, np.uint32)
    run_native(func, [x, got])
    assert got.tolist() == [0, 4294967293, 4294967294, 0, 4294967292, 0, 4294967294, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: For(Var("i"), const(0), const(4), "vectorized", Store(b, (const(0),), const(0.0, "float32"))),
         "a vectorized loop does not belong"),
        (lambda b: Store(b, (const(0),), Call("exp", (const(0.0, "float32"),), F32)), "exp is not primitive"),
        (lambda b: Store(b, (const(0), const(0)), const(0.0, "float32")), "with 2 indices"),
        (lambda b: Store(b, (const(0),), Var("x", F32)), "variable x is used where it has no value"),
        (lambda b: Store(buffer("ghost", 4, F32), (const(0),), const(0.0, "float32")), "ghost is used where it does"),
        (lambda b: Store(b, (const(0),), const(0)), "holds float32, but int64 is stored"),
    ],
)  # fmt: skip
def test_what_is_not_flat_is_an_internal_error(make: object, message: str) -> None:
    out = buffer("out", 4, F32)
    with pytest.raises(InternalError, match=message):
        emit(Func("bad", (out,), (), make(out)), HOST)  # type: ignore[operator]


@pytest.mark.slow
def test_an_index_beyond_32_bits() -> None:
    """tinygrad/tinygrad#3961: 2^31 + 64 bytes are filled to the end."""
    n, i = Var("n"), Var("i")
    out = buffer("out", n, dtypes.uint8)
    lanes = ramp(i * 64, 1, 64)
    body = For(i, const(0), ir.floordiv(n, 64), "parallel", Store(out, (lanes,), ir.broadcast(const(1, "uint8"), 64)))
    size = (1 << 31) + 64
    got = np.zeros(size, np.uint8)
    run_native(Func("fill", (out,), (n,), body), [got], [size], threads=2)
    assert got[-64:].all() and int(got[: 1 << 20].sum()) == 1 << 20


def test_a_mask_on_registers_selects_values() -> None:
    text = """
func masked(A: float32[24], C: float32[24], D: float32[24]) outputs 2:
  for i in 0..3:
    alloc T: float32[8] @register
    T[ramp(0, 1, 8)] = broadcast(1.0, 8)
    T[ramp(0, 1, 8), mask=ramp(0, 1, 8) < broadcast(i * 3, 8)] = A[ramp(i * 8, 1, 8)]
    C[ramp(i * 8, 1, 8)] = T[ramp(0, 1, 8), mask=ramp(0, 1, 8) < broadcast(5 - i, 8)]
    D[ramp(i * 8, 1, 8)] = T[ramp(0, 1, 8)]
"""
    func = parse_func(text)
    arrays = [np.arange(24, dtype=np.float32), np.full(24, np.nan, np.float32), np.full(24, np.nan, np.float32)]
    right = [a.copy() for a in arrays]
    interpret(func, right)
    run_native(func, arrays)
    for a, r in zip(arrays, right, strict=True):
        assert_same_bits(a, r)
    assert "llvm.masked" not in emit(func, HOST).text
