"""flatten: row-major memory of one dimension."""

from __future__ import annotations

from tensorir import te
from tensorir.expr import Var
from tensorir.passes.flatten import flatten
from tensorir.passes.lower_blocks import lower_blocks
from tests.tensorir.passes.checking import expected, require_same_bits, text


def test_row_major() -> None:
    a = te.placeholder((4, 5), name="A")
    t = te.compute((5, 4), lambda i, j: a[j, i] + 1.0, name="T")
    b = te.compute((5, 4), lambda i, j: t[4 - i, j] * 2.0, name="B")
    func = te.create_func([a, b], "f")
    flat = flatten(lower_blocks(func))
    assert [repr(p) for p in flat.params] == ["A: float32[20] @global", "B: float32[20] @global"]
    assert text(flat) == expected("""
        alloc T: float32[20]
        for i in 0..5:
          for j in 0..4:
            T[i * 4 + j] = A[i + j * 5] + 1.0
        for i_1 in 0..5:
          for j_1 in 0..4:
            B[i_1 * 4 + j_1] = T[j_1 - i_1 * 4 + 16] * 2.0""")
    require_same_bits(func, flat)


def test_scalars_and_symbols() -> None:
    n, m = Var("n"), Var("m")
    a, s = te.placeholder((n, m), name="A"), te.placeholder((), name="s")
    b = te.compute((n, m), lambda i, j: a[i, j] * s(), name="B")
    func = te.create_func([a, s, b], "f")
    flat = flatten(lower_blocks(func))
    assert "s[0]" in text(flat) and all(p.rank == 1 for p in flat.params)
    require_same_bits(func, flat, {n: 3, m: 5})


def test_fused_loop_needs_no_division() -> None:
    from tensorir.expr import const
    from tensorir.stmt import For, Func, Store

    a, b = te.placeholder((6, 7), name="A"), te.placeholder((6, 7), name="B")
    f = Var("f")
    func = Func("f", (a, b), (), For(f, const(0), const(42), "serial", Store(b, (f // 7, f % 7), a[f // 7, f % 7])))
    assert "B[f] = A[f]" in text(flatten(func))
    require_same_bits(func, flatten(func))
    assert flatten(flatten(func)) is not func
