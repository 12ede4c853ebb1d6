"""Evaluates scalar expressions at a point with the semantics' own functions: the judge of every rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorir import semantics
from tensorir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Let, Not, Select, Var


def evaluate(e: Expr, values: Mapping[Var, Any]) -> Any:
    """The value of `e` where variables have `values`."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, Binary):
        return semantics.fold(type(e), (evaluate(e.a, values), evaluate(e.b, values)), e.a.dtype)
    if isinstance(e, Not):
        return not evaluate(e.a, values)
    if isinstance(e, (Select, IfThenElse)):
        return evaluate(e.a if evaluate(e.condition, values) else e.b, values)
    if isinstance(e, Cast):
        return semantics.fold(Cast, (evaluate(e.value, values),), e.dtype, e.value.dtype)
    if isinstance(e, Let):
        return evaluate(e.body, {**values, e.var: evaluate(e.value, values)})
    if isinstance(e, Call):
        return semantics.fold(e.name, tuple(evaluate(a, values) for a in e.args), e.args[0].dtype)
    raise AssertionError(type(e).__name__)
