"""Bytes packed into words and their dot products: the same on the interpreter, folded and in native code."""

from __future__ import annotations

import numpy as np
import pytest

from targets.build import build
from tensorir import te
from tensorir.buffer import Buffer
from tensorir.errors import ExpressionError
from tensorir.expr import Const, Load, Var, const
from tensorir.interpreter import interpret
from tensorir.semantics import fold_expr
from tensorir.stmt import For, Func, Store

N = 16


def program(lanes: int, kind: str = "vectorized") -> Func:
    a, b = (
        Buffer("a", (const(lanes * 4),), te.const(0, "uint8").dtype),
        Buffer("b", (const(lanes * 4),), te.const(0, "int8").dtype),
    )
    c, d = (Buffer(n, (const(lanes),), te.const(0, "int32").dtype) for n in "cd")
    i = Var("i")
    words = [te.pack4(*[Load(x, (i * 4 + j,), x.dtype) for j in range(4)]) for x in (a, b)]
    store = Store(d, (i,), te.dot4_i8(Load(c, (i,), c.dtype), *words))
    return Func("f", (a, b, c, d), (), For(i, const(0), const(lanes), kind, store))


def wanted(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (c + (a.astype(np.int64) * b).reshape(-1, 4).sum(1)).astype(np.int32)


def arrays(lanes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, lanes * 4).astype(np.uint8)
    b = rng.integers(-128, 128, lanes * 4).astype(np.int8)
    a[:4], b[:4], b[4:8] = 255, 127, -128
    c = rng.integers(-(2**31), 2**31, lanes).astype(np.int32)
    c[0] = 2**31 - 1
    return a, b, c


@pytest.mark.parametrize("lanes", [3, 4, 8, 16, 32])
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_dot_of_bytes(lanes: int, kind: str) -> None:
    func = program(lanes, kind)
    a, b, c = arrays(lanes)
    out = np.full(lanes, 77, np.int32)
    interpret(func, [a, b, c, out])
    assert (out == wanted(a, b, c)).all()
    for target in ("llvm", "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3"):
        out[:] = 77
        build(func, target=target)(a, b, c, out)
        assert (out == wanted(a, b, c)).all(), target


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "opencl"])
def test_dot_of_signed_bytes(target: str) -> None:
    a, b = te.placeholder((8, 4), "int8", name="a"), te.placeholder((8, 4), "int8", name="b")

    def dot(i: Var) -> te.Tensor:
        return te.dot4_s8(te.const(7, "int32"), *[te.pack4(*[x[i, j] for j in range(4)]) for x in (a, b)])

    c = te.compute((8,), dot, name="c")
    x, y = (np.random.default_rng(n).integers(-128, 128, (8, 4)).astype(np.int8) for n in range(2))
    x[0], y[0], y[1] = -128, -128, 127
    out = np.full(8, 77, np.int32)
    wanted = 7 + (x.astype(np.int32) * y).sum(1)
    interpret(te.create_func([a, b, c]), [x, y, out])
    assert (out == wanted).all()
    out[:] = 77
    build(c, [a, b, c], target=target)(x, y, out)
    assert (out == wanted).all()


def test_one_instruction_on_whole_words() -> None:
    text = build(program(16), target="llvm -mcpu=znver4").source("llvm")
    assert "vpdpbusd.512" in text and "gather" not in text and text.count("load <16 x i32>") == 3


def test_literals_fold() -> None:
    a = te.pack4(*[te.const(x, "uint8") for x in (1, 2, 3, 255)])
    b = te.pack4(*[te.const(x, "int8") for x in (1, -2, 3, -128)])
    x, y = fold_expr(a), fold_expr(b)
    assert isinstance(x, Const) and isinstance(y, Const)
    total = fold_expr(te.dot4_i8(te.const(10, "int32"), x, y))
    assert total is not None and total.value == 10 + 1 - 4 + 9 - 255 * 128


def test_wrong_types_are_named() -> None:
    with pytest.raises(ExpressionError, match="pack4: takes four values of one 8-bit type"):
        te.pack4(*[te.const(1, "int32")] * 4)
    with pytest.raises(ExpressionError, match="dot4_i8: takes int32, uint32 and uint32, not int64"):
        te.dot4_i8(te.const(1, "int32"), te.const(1, "int64"), te.const(1, "uint32"))
