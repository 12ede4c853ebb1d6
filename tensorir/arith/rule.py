"""Rewrite rules as data: `Rule(pattern, result, when)`.

A pattern is an expression over wildcards; a wildcard that stands twice must match one and the same (interned)
expression. `result` builds the replacement from what the wildcards matched, `when` may ask the analyzer first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorir import dtypes
from tensorir.dtypes import DType
from tensorir.expr import Binary, Const, Expr, node
from tensorir.visit import children, with_children

Bindings = dict[str, Expr]
Matcher = Callable[[Expr, Bindings], bool]


@node
class Wild(Expr):
    """Matches any expression, or those that `accepts` takes; the type of the pattern does not count."""

    name: str
    accepts: Callable[[Expr], bool] | None = None
    dtype: DType = dtypes.bool_


def wild_const(name: str) -> Wild:
    """A wildcard for literals."""
    return Wild(name, _is_literal)


def _is_literal(e: Expr) -> bool:
    return isinstance(e, Const)


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` becomes `result(**matched)` where `when(analyzer, **matched)` holds. `commutes`: the two operands of
    the pattern's root may stand in either order."""

    name: str
    pattern: Expr
    result: Callable[..., Expr]
    when: Callable[..., bool] | None = None
    commutes: bool = False


def compile_rule(rule: Rule) -> tuple[Callable[[Expr, Any], Expr | None], ...]:
    """Functions (node, analyzer) -> replacement or None, one for each order of the operands."""
    patterns = [rule.pattern]
    if rule.commutes:
        patterns.append(with_children(rule.pattern, tuple(reversed(children(rule.pattern)))))
    return tuple(_compiled(_matcher(p), rule) for p in patterns)


def _compiled(match: Matcher, rule: Rule) -> Callable[[Expr, Any], Expr | None]:
    result, when = rule.result, rule.when

    def apply(e: Expr, analyzer: Any) -> Expr | None:
        found: Bindings = {}
        if not match(e, found) or (when is not None and not when(analyzer, **found)):
            return None
        return result(**found)

    return apply


def _matcher(pattern: Expr) -> Matcher:
    if isinstance(pattern, Wild):
        return _wild_matcher(pattern.name, pattern.accepts)
    if isinstance(pattern, Const):
        return _literal_matcher(pattern.value)
    cls = type(pattern)
    if isinstance(pattern, Binary):
        first, second = _matcher(pattern.a), _matcher(pattern.b)
        return lambda e, found: type(e) is cls and first(e.a, found) and second(e.b, found)  # type: ignore[attr-defined]
    parts = [_matcher(c) for c in children(pattern)]

    def match(e: Expr, found: Bindings) -> bool:
        if type(e) is not cls:
            return False
        operands = children(e)
        return len(operands) == len(parts) and all(m(o, found) for m, o in zip(parts, operands, strict=True))

    return match


def _wild_matcher(name: str, accepts: Callable[[Expr], bool] | None) -> Matcher:
    def match(e: Expr, found: Bindings) -> bool:
        known = found.get(name)
        if known is not None:
            return known is e
        if accepts is not None and not accepts(e):
            return False
        found[name] = e
        return True

    return match


def _literal_matcher(value: bool | int | float) -> Matcher:
    text = repr(float(value))  # tells -0.0 from 0.0
    of_bool = isinstance(value, bool)

    def match(e: Expr, found: Bindings) -> bool:
        return isinstance(e, Const) and repr(float(e.value)) == text and (e.dtype.is_bool or not of_bool)

    return match
