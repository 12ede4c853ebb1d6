"""unroll and check_registers: copies, and registers that they make possible."""

from __future__ import annotations

import sys

import pytest

from tensorir import te
from tensorir.buffer import Buffer
from tensorir.dtypes import float32
from tensorir.expr import Select, Var, const, less
from tensorir.passes.check_registers import RegisterError, check_registers
from tensorir.passes.flatten import flatten
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.unroll import UnrollError, unroll
from tensorir.passes.vectorize import vectorize
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Store, seq
from tensorir.visit import walk_exprs, walk_stmt
from tests.tensorir.passes.checking import MASKED, expected, require_same_bits, scaled, split, text, with_kind


def flat(func: Func) -> Func:
    return flatten(lower_blocks(func))


def test_copies() -> None:
    a = te.placeholder((2, 3), name="A")
    func = te.create_func([a, te.compute((2, 3), lambda i, j: a[i, 2 - j], name="B")], "f")
    done = unroll(flat(with_kind(func, "j", "unrolled")))
    assert text(done) == expected("""
        for i in 0..2:
          B[i * 3] = A[i * 3 + 2]
          B[i * 3 + 1] = A[i * 3 + 1]
          B[i * 3 + 2] = A[i * 3]""")
    require_same_bits(func, done)


def test_guards_are_decided_by_the_copies() -> None:
    _, func = scaled(11)
    func = split(func, "i", 4)
    done = unroll(flat(with_kind(func, "i_i", "unrolled")))
    assert sum(isinstance(s, If) for s in walk_stmt(done.body)) == 1
    require_same_bits(func, done)
    both = unroll(flat(with_kind(with_kind(func, "i_i", "unrolled"), "i_o", "unrolled")))
    assert isinstance(both.body, Seq) and len(both.body.stmts) == 11
    require_same_bits(func, both)


def test_choices_are_decided_by_the_copies() -> None:
    a = te.placeholder((4, 8), name="A")
    table = [1.0, -2.5, 4.0]

    def element(i: Var, j: Var) -> object:
        value = a[i, j]
        for number, factor in enumerate(table):
            value = te.select(i == number, a[i, j] * factor + a[3 - i, j], value)
        return value

    func = te.create_func([a, te.compute((4, 8), element, name="B")], "table")
    done = unroll(vectorize(flat(with_kind(with_kind(func, "j", "vectorized"), "i", "unrolled")), MASKED))
    assert not any(isinstance(e, Select) for e in walk_exprs(done.body))
    require_same_bits(func, done)


def test_outer_condition_decides_in_the_copies() -> None:
    a, b = te.placeholder((49,), name="A"), te.placeholder((49,), name="B")
    f, i = Var("f"), Var("i")
    index = f * 28 + i
    copies = For(i, const(0), const(28), "unrolled", If(less(index, 49), Store(b, (index,), a[index])))
    func = Func("f", (a, b), (), For(f, const(0), const(2), "serial", If(less(f, 1), copies, copies)))
    done = unroll(func)
    assert sum(isinstance(s, If) for s in walk_stmt(done.body)) == 1
    assert sum(isinstance(s, Store) for s in walk_stmt(done.body)) == 28 + 21
    require_same_bits(func, done)


def test_names_bound_inside_are_new_in_each_copy() -> None:
    a, b = Buffer("A", (const(12),), float32), Buffer("B", (const(12),), float32)
    t = Buffer("T", (const(3),), float32)
    i, k, x = Var("i"), Var("k"), Var("x", float32)
    inner = For(
        k,
        const(0),
        const(3),
        "serial",
        LetStmt(x, a[i * 3 + k], seq(Store(t, (k,), x + 1.0), Store(b, (i * 3 + k,), t[k] * x))),
    )
    func = Func("f", (a, b), (), For(i, const(0), const(4), "unrolled", Allocate(t, inner)))
    done = unroll(func)
    bound = [s.var for s in walk_stmt(done.body) if isinstance(s, (For, LetStmt))]
    assert len({id(v) for v in bound}) == len(bound) == 8
    assert len({id(s.buffer) for s in walk_stmt(done.body) if isinstance(s, Allocate)}) == 4
    require_same_bits(func, done)


def test_nested_loops_with_bounds_of_the_outer_copy() -> None:
    b = Buffer("B", (const(25),), float32)
    i, j = Var("i"), Var("j")
    body = For(
        i,
        const(0),
        const(5),
        "unrolled",
        For(
            j,
            i,
            const(5) - i,
            "unrolled",
            If(less(j, 4), Store(b, (i * 5 + j,), const(1.0)), Store(b, (i * 5 + j,), const(2.0))),
        ),
    )
    clear = For(k := Var("k"), const(0), const(25), "serial", Store(b, (k,), const(0.0)))
    func = Func("f", (b,), (), seq(clear, body))
    done = unroll(func)
    assert len([s for s in walk_stmt(done.body) if isinstance(s, Store)]) == 16
    require_same_bits(func, done)


def test_thousands_of_copies_do_not_recurse() -> None:
    _, func = scaled(8000)
    limit = sys.getrecursionlimit()
    done = unroll(flat(with_kind(func, "i", "unrolled")))
    assert isinstance(done.body, Seq) and len(done.body.stmts) == 8000 > limit


def test_loop_of_unknown_extent_is_refused() -> None:
    n = Var("n")
    _, func = scaled(n)
    with pytest.raises(UnrollError, match=r"unroll\(i\): the loop must have a constant extent, but it runs over n"):
        unroll(flat(with_kind(func, "i", "unrolled")))


def test_too_many_copies_are_refused() -> None:
    _, func = scaled(1 << 17)
    with pytest.raises(UnrollError, match=r"unroll\(i\): .* more than 65536 copies"):
        unroll(flat(with_kind(func, "i", "unrolled")))


def registers(kind: str) -> Func:
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    acc = Buffer("acc", (const(4),), float32, "register")
    i, j = Var("i"), Var("j")
    body = Allocate(
        acc,
        seq(
            For(i, const(0), const(4), kind, Store(acc, (i,), a[i])),
            For(j, const(0), const(4), "unrolled", Store(b, (j,), acc[j])),
        ),
    )
    return Func("f", (a, b), (), body)


def test_registers_have_constant_indices() -> None:
    good = unroll(registers("unrolled"))
    assert check_registers(good) is good
    with pytest.raises(RegisterError, match="register buffer acc: the index i depends on the loop i") as error:
        check_registers(unroll(registers("serial")))
    assert "unroll i, or set the scope of acc to local" in str(error.value)


def test_registers_have_constant_sizes() -> None:
    n = Var("n")
    acc = Buffer("acc", (n,), float32, "register")
    b = Buffer("B", (n,), float32)
    func = Func(
        "f", (b,), (n,), Allocate(acc, seq(Store(acc, (const(0),), const(0.0)), Store(b, (const(0),), acc[const(0)])))
    )
    with pytest.raises(RegisterError, match="its size n is not constant"):
        check_registers(func)


def test_nothing_to_do_gives_the_same_object() -> None:
    _, func = scaled(8)
    low = flat(func)
    assert unroll(low) is low
