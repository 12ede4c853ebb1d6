"""Each rule of the tables, by brute force over values of its wildcards; z3 where its theory has the operators."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from tensorir import dtypes, semantics
from tensorir.arith import Analyzer
from tensorir.arith.rule import Rule, Wild, compile_rule
from tensorir.arith.rules import bitwise, boolean, floating, selection
from tensorir.arith.rules.casts import keeps_value, simplify_cast
from tensorir.dtypes import ALL_DTYPES, DType
from tensorir.expr import Add, Cast, Const, Expr, Not, Select, Var, as_expr, cast, const
from tensorir.visit import children, walk_expr, with_children
from tests.tensorir.arith.evaluate import evaluate

SAMPLES: dict[str, list[Any]] = {
    "bool": [False, True],
    "int64": [-(2**63), -7, -2, -1, 0, 1, 2, 5, 63, 64, 2**63 - 1],
    "uint8": [0, 1, 2, 7, 127, 128, 255],
    "float32": [-math.inf, -1.5, -1.0, -0.0, 0.0, 1.0, 3.0, semantics.round_f32(1e-45), math.inf, math.nan],
}
TABLES = {"boolean": boolean.RULES, "floating": floating.RULES, "bitwise": bitwise.RULES, "selection": selection.RULES}
KINDS = {
    "boolean": ("bool", "int64", "uint8", "float32"),
    "floating": ("float32",),
    "bitwise": ("int64", "uint8"),
    "selection": ("int64", "float32", "bool"),
}
CASES = [
    pytest.param(rule, kind, id=f"{rule.name}-{kind}")
    for table, rules in TABLES.items()
    for rule in rules
    for kind in KINDS[table]
]


def wilds(pattern: Expr) -> list[Wild]:
    found: dict[str, Wild] = {}
    for x in walk_expr(pattern):
        if isinstance(x, Wild):
            found.setdefault(x.name, x)
    return list(found.values())


def filled(pattern: Expr, values: dict[str, Expr], t: DType) -> Expr | None:
    """The pattern with its wildcards filled; None where the types do not fit."""
    if isinstance(pattern, Wild):
        return values[pattern.name]
    if isinstance(pattern, Const):
        if pattern.dtype.is_float is not t.is_float and not pattern.dtype.is_bool:
            return None
        return pattern if pattern.dtype.is_bool else const(pattern.value, t)
    parts = [filled(c, values, t) for c in children(pattern)]
    if any(p is None for p in parts):
        return None
    from dataclasses import replace

    node = with_children(pattern, tuple(p for p in parts if p is not None))
    operands = children(node)
    last = operands[-1].dtype
    if isinstance(node, Select) or type(node).__name__ == "IfThenElse":
        if not operands[0].dtype.is_bool or operands[1].dtype != operands[2].dtype:
            return None
        return replace(node, dtype=last)  # type: ignore[type-var]
    if len({str(o.dtype) for o in operands}) > 1:
        return None
    name = type(node).__name__
    if name in ("And", "Or", "Not"):
        return node if last.is_bool else None
    if name in ("EQ", "NE", "LT", "LE"):
        return None if last.is_bool and name in ("LT", "LE") else node
    return None if last.is_bool else replace(node, dtype=last)  # type: ignore[type-var]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return repr(a) == repr(b)


@pytest.mark.parametrize(("rule", "kind"), CASES)
def test_rule(rule: Rule, kind: str) -> None:
    t = dtypes.dtype_of(kind)
    names = wilds(rule.pattern)
    variables: dict[str, Expr] = {}
    for w in names:
        is_condition = w.name == "c" and rule.name.split("(")[0] in ("select", "if_then_else")
        variables[w.name] = Var(w.name, dtypes.bool_ if is_condition else t)
    literals = [w for w in names if w.accepts is not None]
    tried = 0
    choices = [[(w.name, const(v, t)) for v in SAMPLES[kind]] for w in literals]
    for chosen in itertools.product(*choices):
        given = {**variables, **dict(chosen)}
        e = filled(rule.pattern, given, t)
        if e is None:
            continue
        free = [v for v in given.values() if isinstance(v, Var)]
        for apply in compile_rule(rule):
            for start in (e, swapped(e) if rule.commutes else e):
                result = apply(start, Analyzer())
                if result is None:
                    continue
                tried += 1
                assert result.dtype == e.dtype
                for point in itertools.product(*(SAMPLES[str(v.dtype)] for v in free)):
                    values = dict(zip(free, point, strict=True))
                    assert same(evaluate(result, values), evaluate(start, values)), f"{start} -> {result} at {point}"
    if tried == 0:
        assert not applies_to(rule, kind), f"rule {rule.name} never applied to {kind}"


def applies_to(rule: Rule, kind: str) -> bool:
    """Rules that must fire on a kind: logical ones on bools, comparisons on whole numbers, the rest on their own."""
    if any(rule is r for r in boolean.RULES):
        return kind == "bool" and not rule.name.startswith(("x <", "x <="))
    return not any(rule is r for r in selection.RULES) or kind == "bool"


def swapped(e: Expr) -> Expr:
    return with_children(e, tuple(reversed(children(e))))


@pytest.mark.parametrize("outer", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("inner", ALL_DTYPES, ids=str)
def test_cast_after_a_cast(inner: DType, outer: DType) -> None:
    for source in ALL_DTYPES:
        x = Var("x", source)
        e = Cast(Cast(x, inner), outer)
        result = simplify_cast(e, None)
        if result is None:
            continue
        assert inner == outer or keeps_value(source, inner)
        for value in cast_samples(source):
            want = evaluate(e, {x: value})
            assert same(evaluate(result, {x: value}), want), f"{source} -> {inner} -> {outer} of {value}"


def cast_samples(t: DType) -> list[Any]:
    if t.is_bool:
        return [False, True]
    if t.is_integer:
        return sorted(
            {
                semantics.wrap(v, t)
                for v in (
                    0,
                    1,
                    2,
                    3,
                    100,
                    127,
                    128,
                    129,
                    255,
                    2049,
                    65537,
                    2**24 + 1,
                    -1,
                    -3,
                    -129,
                    t.max_value,
                    t.min_value,
                )
            }
        )
    return [
        semantics.rounding(t)(v)
        for v in (
            0.0,
            -0.0,
            1.0,
            1.5,
            -2.75,
            300.0,
            65519.0,
            70000.0,
            1e30,
            -1e30,
            math.inf,
            math.nan,
            1.00390625,
            1e-40,
        )
    ]


def test_no_operator_of_bools_is_invented() -> None:
    x, y = Var("x", dtypes.bool_), Var("y", dtypes.bool_)
    analyzer = Analyzer()
    assert repr(analyzer.simplify(Not(Not(x)))) == "x"
    assert repr(analyzer.simplify((x & y) & x)) == "x and y"
    assert repr(analyzer.simplify(x | (x & y))) == "x"
    assert repr(analyzer.simplify(~(x & y))) == repr(analyzer.simplify(~x | ~y))


def test_planted_wrong_rule_is_found() -> None:
    wild = Wild("x")
    wrong = Rule("x + 0.0", Add(wild, Const(0.0, dtypes.float32), dtypes.float32), lambda x: x)
    with pytest.raises(AssertionError):
        test_rule(wrong, "float32")


def test_cast_of_a_literal() -> None:
    assert isinstance(Analyzer().simplify(Cast(const(300.0), dtypes.int8)), Const)
    assert Analyzer().simplify(Cast(const(300.0), dtypes.int8)).value == 44
    assert repr(Analyzer().simplify(cast(as_expr(3), "float32"))) == "3.0"


@pytest.mark.slow
def test_quotient_laws_by_solver() -> None:
    """The laws that the canonical form builds on, for all integers and every divisor of a range."""
    z3 = pytest.importorskip("z3")
    x, r = z3.Ints("x r")

    def floor(a: Any, c: int) -> Any:
        return a / c  # z3's integer division by a positive number rounds down

    for c, d in itertools.product(range(1, 9), range(1, 9)):
        laws = [
            floor(floor(x, c), d) == floor(x, c * d),
            floor(floor(x, c) + r, d) == floor(x + r * c, c * d),
            floor(x * c, c * d) == floor(x, d),
            z3.Implies(z3.And(0 <= r, r < c), floor(x * c + r, c * d) == floor(x, d)),
            floor(x * c + r, c) == x + floor(r, c),
            (x - c * d * floor(x, c * d)) - d * floor(x - c * d * floor(x, c * d), d) == x - d * floor(x, d),
            floor(x - c * d * floor(x, c * d), d) == floor(x, d) - c * floor(x, c * d),
            z3.Implies(z3.And(0 <= r, r < c), (x * c + r < 0) == (x < 0)),
            (floor(x, c) < r) == (x < r * c),
            (floor(x, c) > r) == (x >= (r + 1) * c),
        ]
        for law in laws:
            solver = z3.Solver()
            solver.set("timeout", 20000)
            solver.add(z3.Not(law))
            assert solver.check() == z3.unsat, f"c={c} d={d}: {law}"
