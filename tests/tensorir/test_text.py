"""The text form: what is printed reads back to the same tree and prints the same; mistakes are pointed at."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule import create_schedule
from tensorir import dtypes, te
from tensorir.buffer import AlignedBuffer, Buffer
from tensorir.equality import structural_equal
from tensorir.expr import (
    LT,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Fma,
    IfThenElse,
    Let,
    Load,
    Not,
    Or,
    Ramp,
    Select,
    Var,
    cast,
    const,
    load,
    ramp,
)
from tensorir.intrinsics import call, reinterpret
from tensorir.parser import ParseError, parse_expr, parse_func, parse_stmt
from tensorir.passes.pipeline import lower
from tensorir.printer import expr_text, func_text, stmt_text
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Store, seq
from tensorir.target import Target
from tests.schedule.random_schedules import PROGRAMS, Program, random_schedules

TARGETS = [Target.parse(t) for t in ("llvm -mcpu=znver4", "llvm -mcpu=x86-64")]


def round_trip(func: Func) -> None:
    """Print, parse, compare, print again."""
    text = func_text(func)
    again = parse_func(text)
    assert structural_equal(func, again), text
    assert func_text(again) == text


def expr_round_trip(e: Expr, *free: Var | Buffer) -> None:
    text = expr_text(e)
    again = parse_expr(text, {v.name: v for v in free})
    assert structural_equal(e, again), text
    assert expr_text(again) == text


# --------------------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda p: p.__name__)
def test_unscheduled_and_lowered(make: Callable[[], Program]) -> None:
    s = create_schedule(make()[0])
    func = te.create_func((*s.inputs, *s.outputs))
    round_trip(func)
    for target in TARGETS:
        lower(func, target, dump=lambda name, stage: round_trip(stage))


def test_random_schedules() -> None:
    for number, sample in enumerate(random_schedules(7, 30)):
        func = sample.schedule.func()
        round_trip(func)
        if "thread" in func_text(func) or "@register" in func_text(func):
            continue
        try:
            flat = lower(func, TARGETS[number % 2])
        except Exception as error:  # a pass may refuse; what it makes is checked by its own tests
            if type(error).__name__ in ("NotImplementedError", "TypeError", "KeyError", "AttributeError"):
                raise
            continue
        round_trip(flat)


def test_extern_and_several_values() -> None:
    a = te.placeholder((4, 9), name="A")
    k = te.reduce_axis(9, "k")
    i, v = te.compute((4,), lambda i: te.argmax(k.var, a[i, k], axis=k), name="best")
    round_trip(te.create_func([a, i, v]))


def test_long_sums() -> None:
    x = te.placeholder((6000,), name="x")
    flat: Expr = x[0]
    nested: Expr = x[0]
    for number in range(1, 5000):
        flat = flat + x[number]
        nested = Add(x[number], nested, nested.dtype) if number < 1500 else nested
    for e in (flat, nested):
        text = expr_text(e)
        assert expr_text(parse_expr(text, {"x": x})) == text


def test_sharing_comes_back() -> None:
    x = Var("x", dtypes.float32)
    e: Expr = x
    for _ in range(12):
        e = e + e
    again = parse_expr(expr_text(e), {"x": x})
    assert isinstance(again, Add) and again.a is again.b


# ------------------------------------------------------------------------------------------------------- statements


def test_statements_of_every_kind() -> None:
    n, m = Var("n"), Var("n", dtypes.int32)
    a, b = Buffer("A", (n, const(3)), dtypes.float32), Buffer("A", (n,), dtypes.int8)
    inner, zero = Buffer("in", (const(8),), dtypes.float32, "register"), Buffer("", (), dtypes.bool_, "shared")
    i, j, t = Var("for"), Var("i", dtypes.int32), Var("float32x4")
    value = Var("value", dtypes.float32)
    body = seq(
        Store(a, (i, const(0)), value),
        Allocate(zero, Seq((Store(zero, (), const(True)), Store(inner, (const(-1),), value + value)))),
        Seq(()),
        LetStmt(t, i * 2, seq(If(i < t, Store(b, (t,), cast(t, "int8")), Seq(())), Evaluate(call("barrier")))),
        If(
            b[0].astype("bool") & (i >= 0),
            Store(a, (i, const(1)), const(-0.0)),
            Store(a, (i, const(2)), const(math.inf)),
        ),
    )
    body = LetStmt(value, a[i, 2], body)
    loops = For(i, n - 1, n, "thread", Allocate(inner, body), "threadIdx.x", (("unroll", 4), ("note", "it's")))
    small = For(j, const(2, "int32"), m + 1, "parallel", Store(a, (cast(j, "int64"), const(0)), const(1e-10)))
    down = For(Var("i"), const(-4), const(0), "serial", Seq(()), None, (("x", (1, -2.5, None, True, [], {"a": ()})),))
    func = Func("0 main", (a, b), (n, m), seq(loops, small, down), 2, (("target", "llvm"), ("sizes", (1, 2))))
    round_trip(func)
    assert "func _0_main[n, n_1: int32](A: float32[n, 3], A_1: int8[n]) outputs 2 attrs(" in func_text(func)


def test_masks_and_vectors() -> None:
    a, i = Buffer("A", (const(64),), dtypes.float16), Var("i")
    index = ramp(i, 1, 8)
    mask = index < Broadcast(const(64), 8, index.dtype)
    s = Store(a, (index,), load(a, (ramp(i, -2, 8),), mask), mask)
    text = stmt_text(s)
    assert text.startswith("A[ramp(i, 1, 8), mask=ramp(i, 1, 8) < broadcast(64, 8)] = A[")
    again = parse_stmt(text, {"A": a, "i": i})
    assert structural_equal(s, again) and stmt_text(again) == text


def test_alignment_comes_back() -> None:
    text = (
        "func f(A: float32[4, 30]) outputs 1:\n  alloc B: float32[4, 33] @local aligned(0, 32, 1)\n  B[3, 32] = 0.0\n"
        "  A[3, 29] = B[3, 32]"
    )
    func = parse_func(text)
    assert isinstance(func.body, Allocate) and isinstance(func.body.buffer, AlignedBuffer)
    assert func_text(func) == text
    assert not structural_equal(func, parse_func(text.replace(" aligned(0, 32, 1)", "")))


def test_sibling_loops_may_share_a_name() -> None:
    text = """
func main(A: float32[8]) outputs 1:
  for i in 0..8:      # a comment
    A[i] = 0.0

  for i in 2..8:
    A[i] = A[i - 1] + 1.0
"""
    func = parse_func(text)
    first, second = func.body.stmts  # type: ignore[attr-defined]
    assert structural_equal(second.begin, const(2)) and structural_equal(second.extent, const(6))
    assert first.var is not second.var


# ------------------------------------------------------------------------------------------------------ expressions

I, J = Var("i"), Var("j")  # noqa: E741
X, Y = Var("x", dtypes.float32), Var("y", dtypes.float32)
P = Var("p", dtypes.bool_)
V = Var("v", dtypes.float32.with_lanes(4))
A = Buffer("A", (const(8), const(8)), dtypes.float32)

BINARY = {
    "int": ("Add Sub Mul FloorDiv FloorMod TruncDiv TruncMod Min Max BitAnd BitOr BitXor ShiftLeft ShiftRight").split(),
    "float": "Add Sub Mul Div Min Max FloorDiv TruncMod".split(),
    "bool": ["And", "Or"],
}


def _binary(name: str, a: Expr, b: Expr) -> Expr:
    import tensorir.expr as nodes

    return getattr(nodes, name)(a, b, a.dtype)


@functools.cache
def expressions(depth: int) -> dict[str, st.SearchStrategy[Expr]]:
    if depth == 0:
        whole = st.integers(-(2**63), 2**63 - 1).map(const)
        real = st.floats(width=32).map(lambda v: const(v, "float32"))
        return {
            "int": st.one_of(st.sampled_from([I, J]), whole),
            "float": st.one_of(st.sampled_from([X, Y]), real),
            "bool": st.one_of(st.just(P), st.booleans().map(const)),
        }
    below = expressions(depth - 1)
    n, x, p = below["int"], below["float"], below["bool"]

    def binary(kind: str) -> st.SearchStrategy[Expr]:
        return st.builds(_binary, st.sampled_from(BINARY[kind]), below[kind], below[kind])

    def compare(name: str, a: Expr, b: Expr) -> Expr:
        import tensorir.expr as nodes

        return getattr(nodes, name)(a, b, dtypes.bool_)

    order = st.sampled_from(["EQ", "NE", "LT", "LE"])
    return {
        "int": st.one_of(
            n,
            binary("int"),
            st.builds(lambda c, a, b: Select(c, a, b, a.dtype), p, n, n),
            st.builds(lambda a: Cast(a, dtypes.INDEX), x),
            st.builds(lambda v, b: _let(Var("let", v.dtype), v, b), n, n),
        ),
        "float": st.one_of(
            x,
            binary("float"),
            st.builds(lambda a, b, c: Fma(a, b, c, a.dtype), x, x, x),
            st.builds(lambda c, a, b: IfThenElse(c, a, b, a.dtype), p, x, x),
            st.builds(lambda a, b: load(A, (a, b)), n, n),
            st.builds(lambda a: call("exp", a), x),
            st.builds(lambda a: Cast(a, dtypes.float32), n),
        ),
        "bool": st.one_of(p, binary("bool"), st.builds(compare, order, n, n), st.builds(compare, order, x, x),
                          st.builds(lambda a: call("isnan", a), x), p.map(lambda a: te.const(True) if a is P else ~a)),
    }  # fmt: skip


def _let(var: Var, value: Expr, body: Expr) -> Expr:
    return Let(var, value, Add(body, var, body.dtype), body.dtype)


@settings(max_examples=300, deadline=None)
@given(st.one_of(*expressions(4).values()))
def test_random_expressions(e: Expr) -> None:
    expr_round_trip(e, I, J, X, Y, P, A)


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL_DTYPES if t.is_float], ids=str)
@given(value=st.floats())
def test_float_literals(dtype: dtypes.DType, value: float) -> None:
    expr_round_trip(const(value, dtype))


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL_DTYPES if t.is_integer], ids=str)
def test_integer_literals(dtype: dtypes.DType) -> None:
    for value in (dtype.min_value, -1 if dtype.kind == "int" else 1, 0, dtype.max_value):
        expr_round_trip(const(value, dtype))


def test_calls_and_vectors() -> None:
    wide = Broadcast(X, 4, V.dtype)
    for e in (
        Call("extern:module:function", (I, call("sqrt", X)), dtypes.int32),
        Call("extern:nothing", (), dtypes.int32),
        reinterpret(X, "uint32"),
        Cast(V, dtypes.int8.with_lanes(4)),
        Add(V, wide, V.dtype),
        Ramp(Cast(I, dtypes.int32), const(-1, "int32"), 16, dtypes.int32.with_lanes(16)),
        call("pow", X, Y),
        Load(A, (I, Ramp(J, const(1), 4, dtypes.INDEX.with_lanes(4))), V.dtype, Broadcast(P, 4, P.dtype.with_lanes(4))),
    ):
        expr_round_trip(e, I, J, X, Y, P, V, A)


def test_precedence_by_hand() -> None:
    e = parse_expr("not i + 2 * -3 < j and p or i // 2 % 3 >= j", {"i": I, "j": J, "p": P})
    assert expr_text(e) == "not i + 2 * -3 < j and p or j <= i // 2 % 3"
    assert isinstance(e, Or) and isinstance(e.a, And) and isinstance(e.a.a, Not) and isinstance(e.a.a.a, LT)
    assert expr_text(parse_expr("i - (j - 1) - 2", {"i": I, "j": J})) == "i - (j - 1) - 2"
    assert expr_text(parse_expr("i << 1 + j & 3", {"i": I, "j": J})) == "i << 1 + j & 3"


# --------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        ("for i in 0..8\n    A[i] = 0.0", "the end of the line is not expected here", (2, 16)),
        ("A[0] = B[0]", "no buffer named B", (2, 10)),
        ("A[0] = cast(k, float32)", "no variable named k", (2, 15)),
        ("A[0, 0] = 1.0", "A has 1 dimensions but 2 indices", (2, 3)),
        ("A[1.5] = 1.0", "A: index 0 is float32, not an integer", (2, 3)),
        ("A[0] = A[0] + 1", "+: the operands are float32 and int64", (2, 15)),
        ("A[0] = A[0] $ 1", "'$' means nothing here", (2, 15)),
        ("A[0] = sine(A[0])", "no function named sine", (2, 10)),
        ("A[0] = min(A[0])", "min takes 2 arguments, not 1", (2, 10)),
        ("A[0] = float32(300, 1)", "',' is not expected here", (2, 21)),
        ("A[int8(300)] = 1.0", "300 does not fit int8", (2, 10)),
        ("for i in 0..8 quickly:\n    A[i] = 0.0", "unknown kind of loop quickly", (2, 17)),
        ("for A in 0..8:\n    pass", "A is already defined here", (2, 7)),
        ("alloc B: float32[8] @heap\n  pass", "unknown scope heap", (2, 24)),
        ("alloc B: float32[8]", "nothing follows the definition of B", (2, 9)),
        ("let x: int8 = 1.0\n  pass", "x is int8 but its value is float32", (2, 7)),
        ("block C(v: outer in 0..1 = 0):\n    pass", "unknown kind of iteration outer", (2, 14)),
        ("A[0] = select(1, A[0], A[0])", "select: the condition is int64, not bool", (2, 10)),
    ],
)
def test_mistakes(body: str, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(ParseError) as caught:
        parse_func(f"func main(A: float32[8]) outputs 1:\n  {body}\n")
    assert caught.value.message == f"line {place[0]}: {message}"
    assert (caught.value.line, caught.value.column) == place
    caret = caught.value.notes[1]
    assert caret.index("^") == len(f"  {place[0]} | ") + place[1] - 1


def test_message_in_full() -> None:
    with pytest.raises(ParseError) as caught:
        parse_stmt("for i in 0..n\n  A[i] = 0.0", {"n": Var("n"), "A": Buffer("A", (const(8),), dtypes.float32)})
    assert str(caught.value).startswith(
        "line 1: the end of the line is not expected here\n  1 | for i in 0..n\n    |              ^ expected "
    )
    assert "':'" in str(caught.value)


def test_bad_indentation() -> None:
    with pytest.raises(ParseError):
        parse_stmt("for i in 0..4:\n    pass\n  pass")
    with pytest.raises(ParseError):
        parse_stmt("for i in 0..4:\npass")


def test_a_failure_leaves_no_trace() -> None:
    with pytest.raises(ParseError):
        parse_stmt("for i in 0..4:\n  let j = i\n  A[0] = 1")
    assert isinstance(parse_stmt("for i in 0..4:\n  pass"), For)
    assert isinstance(parse_expr("True"), Const)
