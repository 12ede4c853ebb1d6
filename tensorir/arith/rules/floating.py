"""Exact identities of floats only: each holds for -0.0, infinities and NaN too, bit for bit up to NaN payloads."""

from __future__ import annotations

from tensorir.arith.rule import Rule, Wild
from tensorir.dtypes import float32
from tensorir.expr import Add, Const, Div, Expr, Max, Min, Mul, Sub

_x, _y = Wild("x"), Wild("y")
_ZERO, _MINUS_ZERO = Const(0.0, float32), Const(-0.0, float32)
_ONE, _MINUS_ONE = Const(1.0, float32), Const(-1.0, float32)


def _is_float(analyzer: object, x: Expr) -> bool:
    return x.dtype.is_float


RULES = (
    Rule("x + -0.0", Add(_x, _MINUS_ZERO, float32), lambda x: x, _is_float, commutes=True),
    Rule("x - 0.0", Sub(_x, _ZERO, float32), lambda x: x, _is_float),
    Rule("x * 1", Mul(_x, _ONE, float32), lambda x: x, _is_float, commutes=True),
    Rule("x / 1", Div(_x, _ONE, float32), lambda x: x, _is_float),
    Rule("x * -1 * -1", Mul(Mul(_x, _MINUS_ONE, float32), _MINUS_ONE, float32), lambda x: x, _is_float),
    Rule("min(x, x)", Min(_x, _x, float32), lambda x: x),
    Rule("max(x, x)", Max(_x, _x, float32), lambda x: x),
)
