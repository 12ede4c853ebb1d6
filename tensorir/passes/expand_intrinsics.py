"""Puts Tensor IR expressions in the place of math functions, so that every target computes the same bits.

    B[i] = tanh(A[i])       →   B[i] = let x = A[i] in let a = abs(x) in ...
    C[i] = A[i] % B[i]      →   (floats) the remainder by trunc, fma and select

What is left are the primitive intrinsics and the division of integers.
"""

from __future__ import annotations

from tensorir.expr import Call, Expr, FloorDiv, FloorMod, TruncDiv, TruncMod
from tensorir.math_functions import expand, expand_division
from tensorir.semantics import PRIMITIVES
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.visit import rewrite_expr, rewrite_stmt, with_body


def expand_intrinsics(func: Func, target: Target | None = None) -> Func:
    """`func` without non-primitive intrinsics and without whole-number division of floats."""
    memo: dict[Expr, Expr] = {}
    return with_body(func, rewrite_stmt(func.body, expr=lambda e: rewrite_expr(e, _expand, memo)))


def _expand(e: Expr) -> Expr:
    if isinstance(e, Call):
        if e.name in PRIMITIVES or e.name.startswith("extern:"):
            return e
        return rewrite_expr(expand(e), _expand)
    if isinstance(e, (FloorDiv, FloorMod, TruncDiv, TruncMod)) and e.dtype.is_float:
        return expand_division(e)
    return e
