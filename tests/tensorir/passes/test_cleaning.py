"""simplify_program, hoist_invariants and narrow_indices."""

from __future__ import annotations

import dataclasses

from tensorir import dtypes, te
from tensorir.buffer import Buffer
from tensorir.dtypes import float32
from tensorir.expr import Var, const, less
from tensorir.passes.flatten import flatten
from tensorir.passes.hoist_invariants import hoist_invariants
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.narrow_indices import narrow_indices
from tensorir.passes.simplify_program import simplify_program
from tensorir.passes.tighten_loops import EMPTY
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Store, seq
from tensorir.visit import walk_stmt
from tests.tensorir.passes.checking import MASKED, expected, require_same_bits, scaled, text


def test_what_does_nothing_goes() -> None:
    a, b, t = Buffer("A", (const(4),), float32), Buffer("B", (const(4),), float32), Buffer("T", (const(4),), float32)
    i, j, k, m, x = Var("i"), Var("j"), Var("k"), Var("m"), Var("x")
    body = seq(
        For(i, const(2), const(1), "serial", Store(b, (i,), a[i])),
        For(j, const(0), const(0), "serial", Store(b, (j,), a[j])),
        For(k, const(0), const(2), "serial", If(less(k, 4), Store(b, (k,), a[k]), Store(b, (k,), const(0.0)))),
        Allocate(t, For(m, const(0), const(4), "serial", Store(t, (m,), const(1.0)))),
        LetStmt(x, const(3), Store(b, (x,), a[x])),
        EMPTY,
    )
    func = Func("f", (a, b), (), body)
    done = simplify_program(func)
    assert text(done) == expected("""
        B[2] = A[2]
        for k in 0..2:
          B[k] = A[k]
        B[3] = A[3]""")
    require_same_bits(func, done)
    assert simplify_program(done) is done


def test_memory_that_reads_itself_only_goes() -> None:
    b, t = Buffer("B", (const(1),), float32), Buffer("T", (const(1),), float32)
    zero = const(0)
    update = Store(t, (zero,), t[zero] + 1.0)
    func = Func("f", (b,), (), Allocate(t, seq(Store(t, (zero,), const(0.0)), update, Store(b, (zero,), const(5.0)))))
    assert text(simplify_program(func)) == "B[0] = 5.0"


def test_costly_invariants_leave_the_loop() -> None:
    a, b = Buffer("A", (const(300),), float32), Buffer("B", (const(300),), float32)
    f, k = Var("f"), Var("k")
    index = f % 7 * 10 + k
    inner = For(k, const(0), const(10), "serial", Store(b, (index,), a[index + 1]))
    func = Func(
        "f",
        (a, b),
        (),
        seq(
            For(z := Var("z"), const(0), const(300), "serial", Store(b, (z,), const(0.0))),
            For(f, const(0), const(7), "serial", inner),
        ),
    )
    done = hoist_invariants(simplify_program(func))
    assert text(done) == expected("""
        for z in 0..300:
          B[z] = 0.0
        for f in 0..7:
          for k in 0..10:
            B[f * 10 + k] = A[f * 10 + k + 1]""")
    wide = dataclasses.replace(func, body=seq(func.body.stmts[0], For(f, const(0), const(21), "serial", inner)))  # type: ignore[attr-defined]
    done = hoist_invariants(simplify_program(wide))
    assert text(done).count("let base") == 1 and text(done).index("let base") < text(done).index("for k")
    require_same_bits(wide, done)


def test_what_memory_says_stays_in_the_loop() -> None:
    t, b = Buffer("T", (const(1),), dtypes.int64), Buffer("B", (const(70),), float32)
    zero, k, z = const(0), Var("k"), Var("z")
    step = seq(Store(t, (zero,), t[zero] + 1), Store(b, (t[zero] % 7 * 10 + k,), const(1.0)))
    body = seq(Store(t, (zero,), const(0)), For(k, const(0), const(10), "serial", step))
    func = Func(
        "f", (b,), (), seq(For(z, const(0), const(70), "serial", Store(b, (z,), const(0.0))), Allocate(t, body))
    )
    assert hoist_invariants(func) is func
    require_same_bits(func, simplify_program(func))


def test_cheap_sums_stay() -> None:
    _, func = scaled(16)
    low = lower_blocks(func)
    assert hoist_invariants(low) is low


def test_indices_are_narrowed_where_they_fit() -> None:
    narrow = dataclasses.replace(MASKED, index_bits=32)
    a = te.placeholder((9, 5), name="A")
    func = flatten(lower_blocks(te.create_func([a, te.compute((5, 9), lambda i, j: a[j, i], name="B")], "f")))
    done = narrow_indices(func, narrow)
    stores = [s for s in walk_stmt(done.body) if isinstance(s, Store)]
    assert stores[0].indices[0].dtype == dtypes.int32
    require_same_bits(func, done)
    assert narrow_indices(func, MASKED) is func


def test_indices_that_do_not_fit_stay() -> None:
    """tinygrad/tinygrad#6987, triton-lang/triton#832: more than 2^31 elements, and few elements at an offset of
    2^33."""
    narrow = dataclasses.replace(MASKED, index_bits=32)
    for n, offset in (((1 << 31) + 64, 0), (8, 1 << 33)):
        b = Buffer("B", (const(n + offset),), dtypes.uint8)
        i = Var("i")
        func = Func(
            "fill", (b,), (), For(i, const(0), const(n), "serial", Store(b, (i + offset,), const(1, dtypes.uint8)))
        )
        assert narrow_indices(func, narrow) is func
    n = Var("n")
    _, symbolic = scaled(n)
    low = lower_blocks(symbolic)
    assert narrow_indices(low, narrow) is low
