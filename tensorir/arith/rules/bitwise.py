"""Bit operations of integers."""

from __future__ import annotations

from tensorir.arith.rule import Rule, Wild, wild_const
from tensorir.dtypes import int64
from tensorir.expr import BitAnd, BitOr, BitXor, Const, Expr, Mul, ShiftLeft, ShiftRight, const

_x, _c = Wild("x"), wild_const("c")
_ZERO = Const(0, int64)


def _zero(x: Expr) -> Expr:
    return const(0, x.dtype)


def _in_range(analyzer: object, x: Expr, c: Const) -> bool:
    return x.dtype.lanes == 1 and 0 <= c.value < x.dtype.bits


def _all_ones(analyzer: object, x: Expr, c: Const) -> bool:
    return c.value == (-1 if c.dtype.kind == "int" else c.dtype.max_value)


RULES = (
    Rule("x & 0", BitAnd(_x, _ZERO, int64), _zero, commutes=True),
    Rule("x & all ones", BitAnd(_x, _c, int64), lambda x, c: x, _all_ones, commutes=True),
    Rule("x & x", BitAnd(_x, _x, int64), lambda x: x),
    Rule("x | 0", BitOr(_x, _ZERO, int64), lambda x: x, commutes=True),
    Rule("x | x", BitOr(_x, _x, int64), lambda x: x),
    Rule("x ^ 0", BitXor(_x, _ZERO, int64), lambda x: x, commutes=True),
    Rule("x ^ x", BitXor(_x, _x, int64), _zero, lambda analyzer, x: x.dtype.lanes == 1),
    Rule("x >> 0", ShiftRight(_x, _ZERO, int64), lambda x: x),
    Rule("x << c", ShiftLeft(_x, _c, int64), lambda x, c: Mul(x, const(1 << c.value, x.dtype), x.dtype), _in_range),
)
