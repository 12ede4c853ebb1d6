"""Select and if_then_else. A literal condition chooses; equal sides need no condition."""

from __future__ import annotations

from tensorir.arith.rule import Rule, Wild
from tensorir.dtypes import bool_, int64
from tensorir.expr import Const, Expr, IfThenElse, Not, Select, logical_not

_c, _a, _b, _d = Wild("c"), Wild("a"), Wild("b"), Wild("d")
_TRUE, _FALSE = Const(True, bool_), Const(False, bool_)


def _same_lanes(analyzer: object, c: Expr, a: Expr, **_: Expr) -> bool:
    return c.dtype.lanes == 1 or c.dtype.lanes == a.dtype.lanes


RULES = tuple(
    rule
    for cls, name in ((Select, "select"), (IfThenElse, "if_then_else"))
    for rule in (
        Rule(f"{name}(true, a, b)", cls(_TRUE, _a, _b, int64), lambda a, b: a),
        Rule(f"{name}(false, a, b)", cls(_FALSE, _a, _b, int64), lambda a, b: b),
        Rule(f"{name}(c, a, a)", cls(_c, _a, _a, int64), lambda c, a: a, _same_lanes),
        Rule(f"{name}(not c, a, b)", cls(Not(_c), _a, _b, int64), lambda c, a, b, cls=cls: cls(c, b, a, a.dtype)),
        Rule(f"{name}(c, true, false)", cls(_c, _TRUE, _FALSE, bool_), lambda c: c),
        Rule(f"{name}(c, false, true)", cls(_c, _FALSE, _TRUE, bool_), lambda c: logical_not(c)),
        Rule(
            f"{name}(c, {name}(c, a, b), d)",
            cls(_c, cls(_c, _a, _b, int64), _d, int64),
            lambda c, a, b, d, cls=cls: cls(c, a, d, a.dtype),
        ),
        Rule(
            f"{name}(c, a, {name}(c, b, d))",
            cls(_c, _a, cls(_c, _b, _d, int64), int64),
            lambda c, a, b, d, cls=cls: cls(c, a, d, a.dtype),
        ),
    )
)
