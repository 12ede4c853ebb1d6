"""Logical operators and comparisons of bools and of equal operands."""

from __future__ import annotations

from tensorir.arith.rule import Rule, Wild
from tensorir.dtypes import bool_
from tensorir.expr import EQ, LE, LT, NE, And, Const, Expr, Not, Or, const, logical_not

_x, _y, _z = Wild("x"), Wild("y"), Wild("z")
_TRUE, _FALSE = Const(True, bool_), Const(False, bool_)


def _is_bool(analyzer: object, x: Expr, **_: Expr) -> bool:
    return x.dtype == bool_


def _is_whole(analyzer: object, x: Expr) -> bool:
    return not x.dtype.is_float and x.dtype.lanes == 1


RULES = (
    Rule("x and true", And(_x, _TRUE, bool_), lambda x: x, commutes=True),
    Rule("x and false", And(_x, _FALSE, bool_), lambda x: const(False), _is_bool, commutes=True),
    Rule("x and x", And(_x, _x, bool_), lambda x: x),
    Rule("x and not x", And(_x, Not(_x), bool_), lambda x: const(False), _is_bool, commutes=True),
    Rule("x and (x or y)", And(_x, Or(_x, _y, bool_), bool_), lambda x, y: x, commutes=True),
    Rule("x or false", Or(_x, _FALSE, bool_), lambda x: x, commutes=True),
    Rule("x or true", Or(_x, _TRUE, bool_), lambda x: const(True), _is_bool, commutes=True),
    Rule("x or x", Or(_x, _x, bool_), lambda x: x),
    Rule("x or not x", Or(_x, Not(_x), bool_), lambda x: const(True), _is_bool, commutes=True),
    Rule("x or (x and y)", Or(_x, And(_x, _y, bool_), bool_), lambda x, y: x, commutes=True),
    Rule("not not x", Not(Not(_x)), lambda x: x),
    Rule("not (x == y)", Not(EQ(_x, _y, bool_)), lambda x, y: NE(x, y, bool_.with_lanes(x.dtype.lanes))),
    Rule("not (x != y)", Not(NE(_x, _y, bool_)), lambda x, y: EQ(x, y, bool_.with_lanes(x.dtype.lanes))),
    Rule("x == true", EQ(_x, _TRUE, bool_), lambda x: x, _is_bool, commutes=True),
    Rule("x == false", EQ(_x, _FALSE, bool_), lambda x: logical_not(x), _is_bool, commutes=True),
    Rule("x != false", NE(_x, _FALSE, bool_), lambda x: x, _is_bool, commutes=True),
    Rule("x != true", NE(_x, _TRUE, bool_), lambda x: logical_not(x), _is_bool, commutes=True),
    Rule("x == x", EQ(_x, _x, bool_), lambda x: const(True), _is_whole),
    Rule("x != x", NE(_x, _x, bool_), lambda x: const(False), _is_whole),
    Rule("x < x", LT(_x, _x, bool_), lambda x: const(False), _is_whole),
    Rule("x <= x", LE(_x, _x, bool_), lambda x: const(True), _is_whole),
)
