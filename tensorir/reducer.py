"""Reducers: how a reduction starts, how it takes one more element, and what algebra it has.

A reducer may carry several values at once (argmax carries an index and a value). `associative` and `commutative`
say what a schedule may do with it (core rule: re-association needs both).
"""

from __future__ import annotations

from collections.abc import Callable

from tensorir.dtypes import DType
from tensorir.expr import Expr, Var, node


@node
class Reducer:
    """`results` combine the accumulated `lhs` with the incoming `rhs`; `identities` start it.

    `name` is the spelling in printed programs: sum, prod, max, min, any, all, argmax, argmin, or the user's.
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    results: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    associative: bool = True
    commutative: bool = True


def make_reducer(
    name: str,
    combine: Callable[..., Expr | tuple[Expr, ...]],
    identity: Callable[..., Expr | tuple[Expr, ...]],
    dtypes: tuple[DType, ...],
    *,
    associative: bool = True,
    commutative: bool = True,
) -> Reducer:
    """A reducer for values of `dtypes`: `combine(*lhs, *rhs)` and `identity(*dtypes)` give one expression a value."""
    suffix = [""] if len(dtypes) == 1 else [str(i) for i in range(len(dtypes))]
    lhs = tuple(Var(f"acc{s}", t) for s, t in zip(suffix, dtypes, strict=True))
    rhs = tuple(Var(f"value{s}", t) for s, t in zip(suffix, dtypes, strict=True))
    results = combine(*lhs, *rhs)
    identities = identity(*dtypes)
    return Reducer(
        name,
        lhs,
        rhs,
        results if isinstance(results, tuple) else (results,),
        identities if isinstance(identities, tuple) else (identities,),
        associative,
        commutative,
    )
