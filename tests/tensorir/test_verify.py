"""The verifier: each rule refuses a program that breaks it, and good programs pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedule import create_schedule
from tensorir import dtypes, te, verify
from tensorir.buffer import Buffer, Range, Region
from tensorir.expr import (
    EQ,
    LT,
    Add,
    And,
    BitAnd,
    Broadcast,
    Call,
    Cast,
    Const,
    Div,
    Expr,
    Fma,
    IterVar,
    Let,
    Load,
    Min,
    Mul,
    Not,
    Ramp,
    Reduce,
    Select,
    Var,
    cast,
    const,
    load,
    ramp,
)
from tensorir.intrinsics import call
from tensorir.parser import parse_func
from tensorir.passes.pipeline import lower
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.target import Target
from tests.schedule.random_schedules import PROGRAMS, Program, random_schedules

TARGETS = [Target.parse(t) for t in ("llvm -mcpu=znver4", "llvm -mcpu=x86-64")]
A = Buffer("A", (const(64),), dtypes.float32)
N = Buffer("N", (const(64),), dtypes.int64)
I = Var("i")  # noqa: E741
X = Load(A, (I,), dtypes.float32)
K = Load(N, (I,), dtypes.int64)
B4, F4, I4 = dtypes.bool_.with_lanes(4), dtypes.float32.with_lanes(4), dtypes.int64.with_lanes(4)
TRUE = const(True)
ZERO = Const(0, dtypes.int64)


def func(*body: Stmt, params: tuple[Buffer, ...] = (A, N)) -> Func:
    return Func("main", params, (), For(I, ZERO, const(8), "serial", body[0] if len(body) == 1 else Seq(body)))


def value(e: Expr) -> Func:
    """A function that stores a float or an integer."""
    return func(Store(A if e.dtype.is_float else N, (I,), e))


def condition(e: Expr) -> Func:
    return func(If(e, Store(A, (I,), X)))


def vector(e: Expr) -> Func:
    return func(Store(A, (ramp(I, 1, 4),), e))


def block(**fields: object) -> Func:
    v = Var("v")
    parts: dict = {
        "name": "C", "iters": (IterVar(v, ZERO, const(8), "spatial"),), "bindings": (I,), "predicate": TRUE,
        "reads": (), "writes": (Region(A, (Range(v, const(1)),)),), "init": None, "body": Store(A, (v,), const(0.0)),
    }  # fmt: skip
    parts.update(fields)
    return func(Block(**parts))


def reduced() -> Expr:
    k = te.reduce_axis(4, "k")
    e = te.sum(te.const(1.0) * 2.0, axis=k)
    assert isinstance(e, Reduce)
    return e


R = Buffer("R", (const(8),), dtypes.float32, "register")
M = Buffer("M", (const(8), const(8)), dtypes.float32)

BAD: list[tuple[str, Callable[[], Func]]] = [
    ("a literal is a scalar", lambda: vector(Const(0.0, F4))),
    ("a literal's value is one of its type", lambda: value(Const(0.1, dtypes.float32))),
    ("a literal's value is one of its type", lambda: value(Const(1, dtypes.float32))),
    ("a literal's value is one of its type", lambda: value(Cast(Const(300, dtypes.uint8), dtypes.int64))),
    ("a literal's value is one of its type", lambda: condition(Const(1, dtypes.bool_))),
    ("both operands have one type", lambda: value(Add(X, K, dtypes.float32))),
    ("both operands have one type", lambda: condition(LT(X, K, dtypes.bool_))),
    ("the result has the operands' type", lambda: value(Min(K, K, dtypes.float32))),
    ("arithmetic is on numbers", lambda: condition(Mul(TRUE, TRUE, dtypes.bool_))),
    ("`/` is on floats", lambda: value(Div(K, K, dtypes.int64))),
    ("bitwise operators are on integers", lambda: value(BitAnd(X, X, dtypes.float32))),
    ("logical operators are on bools", lambda: value(And(K, K, dtypes.int64))),
    ("logical operators are on bools", lambda: condition(Not(K, dtypes.bool_))),
    ("a comparison is bool", lambda: value(EQ(K, K, dtypes.int64))),
    ("fma is on floats", lambda: value(Fma(K, K, K, dtypes.int64))),
    ("all operands and the result have one type", lambda: value(Fma(X, X, K, dtypes.float32))),
    ("both choices have the result's type", lambda: value(Select(TRUE, X, K, dtypes.float32))),
    ("the condition is bool", lambda: value(Select(K, X, X, dtypes.float32))),
    ("the condition is bool", lambda: value(Select(Broadcast(TRUE, 4, B4), X, X, dtypes.float32))),
    ("a cast keeps the lanes", lambda: vector(Cast(X, F4))),
    ("the variable has its value's type", lambda: value(Let(Var("x", dtypes.float32), K, X, dtypes.float32))),
    ("there is such an intrinsic", lambda: value(Call("sine", (X,), dtypes.float32))),
    ("an intrinsic has its operands", lambda: value(Call("sqrt", (X, X), dtypes.float32))),
    ("an intrinsic's operands are of kinds it takes", lambda: value(Call("sqrt", (K,), dtypes.int64))),
    ("an intrinsic's result has the type", lambda: value(Call("isnan", (X,), dtypes.float32))),
    ("an intrinsic's result has the type", lambda: value(Call("reinterpret", (K,), dtypes.float32))),
    ("what is addressed is an element", lambda: value(Cast(Call("address", (X + X,), dtypes.uint64), dtypes.int64))),
    ("there is one index a dimension", lambda: value(Load(A, (I, I), dtypes.float32))),
    ("there is one index a dimension", lambda: func(Store(A, (), X))),
    ("indices are integers", lambda: value(Load(A, (X,), dtypes.float32))),
    ("indices and mask have one number of lanes", lambda: vector(load(M, (ramp(I, 1, 4), ramp(I, 1, 2))))),
    ("a mask is bool, one a lane", lambda: vector(Load(A, (ramp(I, 1, 4),), F4, TRUE))),
    ("a mask is bool, one a lane", lambda: func(Store(A, (I,), X, K))),
    ("a load has its buffer's type", lambda: value(Load(A, (I,), dtypes.int64))),
    ("a ramp is of scalars", lambda: vector(Load(A, (Ramp(I, const(1, "int32"), 4, I4),), F4))),
    ("a ramp is of integers", lambda: vector(Ramp(X, X, 4, F4))),
    ("a broadcast is of a scalar", lambda: vector(Broadcast(K, 4, F4))),
    ("a vector has at least two lanes", lambda: vector(Broadcast(X, 8, F4))),
    ("a reduction stands only in a compute", lambda: value(reduced())),
    ("what is stored has the buffer's type", lambda: func(Store(A, (I,), K))),
    ("what is stored has the buffer's type", lambda: func(Store(A, (ramp(I, 1, 4),), X))),
    ("a sequence is empty or of several statements", lambda: func(Seq((Store(A, (I,), X),)))),
    ("a sequence holds no sequence", lambda: func(Store(A, (I,), X), Seq(()))),
    ("a loop is one of", lambda: func(For(Var("j"), ZERO, I, "fast", Seq(())))),
    ("a thread loop has its axis", lambda: func(For(Var("j"), ZERO, I, "thread", Seq(())))),
    ("a loop's bounds have the integer type", lambda: func(For(Var("j", dtypes.int32), ZERO, I, "serial", Seq(())))),
    ("a loop's bounds have the integer type", lambda: func(For(Var("j"), ZERO, ramp(I, 1, 4), "serial", Seq(())))),
    ("a condition is one bool", lambda: condition(K)),
    ("a condition is one bool", lambda: condition(Broadcast(TRUE, 4, B4))),
    ("a variable has its value's type", lambda: func(LetStmt(Var("x"), X, Seq(())))),
    ("a scope is one of", lambda: func(Allocate(Buffer("h", (ZERO,), dtypes.int8, "heap"), Seq(())))),
    ("dimensions are integers", lambda: func(Allocate(Buffer("h", (X,), dtypes.int8), Seq(())))),
    ("what is evaluated is called for its effect", lambda: func(Evaluate(X))),
    ("what is evaluated is called for its effect", lambda: func(Evaluate(call("sqrt", X)))),
    ("there is one binding an iteration variable", lambda: block(bindings=(I, I))),
    ("a binding and a domain have the integer type", lambda: block(bindings=(cast(I, "int32"),))),
    ("an iteration is spatial", lambda: block(iters=(IterVar(Var("v"), ZERO, const(8), "outer"),))),
    ("a predicate is one bool", lambda: block(predicate=I)),
    ("only a block that reduces has an init", lambda: block(init=Seq(()))),
    ("a region has one range a dimension", lambda: block(writes=(Region(A, ()),))),
    # scopes
    ("the variable i is defined where it is used", lambda: Func("f", (A,), (), Store(A, (I,), const(0.0)))),
    ("the variable i is defined where it is used", lambda: Func("f", (A,), (), Seq((
        For(I, ZERO, const(8), "serial", Store(A, (I,), X)), Store(A, (I,), const(0.0)))))),
    ("the variable i is defined once", lambda: func(For(I, ZERO, const(8), "serial", Seq(())))),
    ("the variable x is defined once", lambda: value(_twice())),
    ("the variable x is defined where it is used", lambda: value(_outside())),
    ("the buffer N is a parameter or allocated", lambda: func(Store(A, (K,), X), params=(A,))),
    ("the buffer A is a parameter or allocated", lambda: func(Store(A, (I,), const(0.0)), params=(N,))),
    ("the buffer A is allocated once", lambda: func(Allocate(A, Seq(())))),
    ("the parameter A is there once", lambda: func(Seq(()), params=(A, A))),
    ("the dimension n is an integer", lambda: Func("f", (A,), (Var("n", dtypes.float32),), Seq(()))),
    ("the variable n is defined where it is used", lambda: func(Seq(()), params=(Buffer("S", (Var("n"),), A.dtype),))),
    ("the outputs are parameters", lambda: Func("f", (A,), (), Seq(()), 2)),
    ("a block speaks of its own variables", lambda: block(body=Store(A, (I,), const(0.0)))),
    ("a block speaks of its own variables", lambda: block(writes=(Region(A, (Range(I, const(1)),)),))),
    ("the iteration variable i is the block's own", lambda: block(iters=(IterVar(I, ZERO, const(8), "spatial"),))),
    ("a block holds no block", lambda: block(body=block(bindings=(const(0),)).body.body)),
    ("what has an effect is a statement", lambda: value(cast(call("prefetch", X) + const(1, "int32"), "int64"))),
    ("a range is of integers of one type", lambda: block(reads=(Region(A, (Range(ZERO, const(1, "int32")),)),))),
]  # fmt: skip

BAD_BLOCKS: list[tuple[str, Callable[[], Func]]] = [
    ("there are no vectors", lambda: vector(Broadcast(X, 4, F4))),
]

BAD_FLAT: list[tuple[str, Callable[[], Func]]] = [
    ("no block is left", block),
    ("loops are serial, parallel", lambda: func(For(Var("j"), ZERO, I, "unrolled", Seq(())))),
    ("a buffer has one dimension", lambda: func(Allocate(M, Seq(())))),
    ("the parameter M has one dimension", lambda: func(Seq(()), params=(M,))),
    ("a register has a constant index", lambda: func(Allocate(R, Store(R, (I,), X)))),
    ("a register has a constant index", lambda: func(Allocate(R, Store(A, (I,), R[I])))),
    ("an intrinsic is primitive", lambda: value(call("exp", X))),
]


def _twice() -> Expr:
    x = Var("x", dtypes.float32)
    return Let(x, X, Let(x, X, x, x.dtype), x.dtype)


def _outside() -> Expr:
    """x is used beside the let that binds it, after the walk has met it inside."""
    x = Var("x", dtypes.float32)
    inner = Add(x, x, x.dtype)
    return Add(Let(x, X, inner, x.dtype), inner, x.dtype)


CASES = [("any", *b) for b in BAD] + [("blocks", *b) for b in BAD_BLOCKS] + [("flat", *b) for b in BAD_FLAT]


@pytest.mark.parametrize(
    ("form", "sentence", "make"), CASES, ids=[f"{s[:40]}-{n}" for n, (_, s, _) in enumerate(CASES)]
)
def test_refused(form: verify.Form, sentence: str, make: Callable[[], Func]) -> None:
    with pytest.raises(verify.VerifyError) as caught:
        verify.verify(make(), form)
    assert sentence in str(caught.value)


def test_every_rule_has_a_case() -> None:
    rules = [r[1] for r in (*verify.EXPRESSIONS, *verify.STATEMENTS, *verify.BLOCKS, *verify.FLAT)]
    sentences = [s for _, s, _ in CASES]
    assert [r for r in rules if not any(s in r for s in sentences)] == []


def test_message_shows_the_place() -> None:
    f = func(Store(A, (I,), X), Store(A, (I,), Add(X, K, dtypes.float32)))
    with pytest.raises(verify.VerifyError) as caught:
        verify.verify(f)
    assert str(caught.value) == (
        "main: not legal Tensor IR: both operands have one type\n"
        "  in A[i] + N[i]\n"
        "  3 |     A[i] = A[i]\n"
        "  4 |     A[i] = A[i] + N[i]\n"
        "    |     ^^^^^^^^^^^^^^^^^^"
    )


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda p: p.__name__)
def test_good_programs(make: Callable[[], Program]) -> None:
    s = create_schedule(make()[0])
    f = te.create_func((*s.inputs, *s.outputs))
    verify.verify(f, "blocks")
    for target in TARGETS:
        verify.verify(lower(f, target, check=True), "flat")


def test_random_schedules() -> None:
    for number, sample in enumerate(random_schedules(11, 25)):
        f = sample.schedule.func()
        verify.verify(f, "blocks")
        try:
            flat = lower(f, TARGETS[number % 2], check=True)
        except Exception as error:
            if isinstance(error, verify.VerifyError) or "register" not in str(error):
                raise
            continue
        verify.verify(flat, "flat")


def test_sharing_and_depth() -> None:
    x: Expr = X
    for _ in range(200):  # 2 ** 200 terms as a tree
        x = Add(x, x, x.dtype)
    verify.verify(value(x))
    chain: Expr = X
    for number in range(3000):
        v = Var(f"x{number}", dtypes.float32)
        chain = Let(v, X, chain, v.dtype)
    verify.verify(value(chain))


def test_siblings_may_share_a_variable() -> None:
    f = parse_func(
        "func f(A: float32[8]) outputs 1:\n  for i in 0..8:\n    A[i] = 0.0\n  for i in 0..8:\n    A[i] = 1.0"
    )
    first, second = f.body.stmts  # type: ignore[attr-defined]
    assert first.var is second.var
    verify.verify(f, "flat")
