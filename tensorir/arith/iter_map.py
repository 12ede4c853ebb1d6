"""How an index moves with loop variables: constant strides, and whether indices are a one-to-one map of a loop nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorir import dtypes
from tensorir.arith.analyzer import Analyzer
from tensorir.arith.canonical import PRODUCT, VAR, Linear
from tensorir.expr import Expr, Var, as_expr, const

_INDEX = dtypes.INDEX


def stride_of(e: Expr, var: Var, analyzer: Analyzer | None = None) -> Expr | None:
    """The stride of `e` in `var` where `e` is affine in it: a literal, or an expression of other variables; literal 0
    where `var` does not stand in `e`; None where `e` is not affine in it."""
    forms = analyzer if analyzer is not None else Analyzer()
    form = forms.linear(e)
    atom = forms.variable(var)
    parts: list[tuple[Linear, int]] = []
    for x, k in form.terms.items():
        if var not in x.variables:
            continue
        if x is atom:
            parts.append((forms.one, k))
        elif x.kind == PRODUCT and sum(a is atom for a in x.args) == 1:
            others = list(x.args)
            others.remove(atom)
            if any(var in o.variables for o in others):
                return None
            parts.append((forms.monomial(others), k))
        else:
            return None
    return forms.emit(forms.sum(parts), _INDEX) if parts else const(0)


def constant_stride(e: Expr, var: Var, analyzer: Analyzer | None = None) -> int | None:
    """The stride of `e` in `var` if it is a known number, else None."""
    forms = analyzer if analyzer is not None else Analyzer()
    stride = stride_of(e, var, forms)
    return None if stride is None else forms.const_value(stride)


def affine_parts(e: Expr, variables: Sequence[Var], analyzer: Analyzer) -> tuple[tuple[Expr, ...], Expr] | None:
    """`e` as sum of stride * variable + rest, with the strides and the rest free of `variables`; None if it is not."""
    strides: list[Expr] = []
    form = analyzer.linear(e)
    for v in variables:
        stride = stride_of(e, v, analyzer)
        if stride is None:
            return None
        strides.append(stride)
        product = analyzer.multiply(analyzer.linear(stride), analyzer.of(analyzer.variable(v)))
        if product is None:
            return None
        form = analyzer.plus(form, product, -1)
    return tuple(strides), analyzer.emit(form, _INDEX)


def is_bijective(bindings: Sequence[Expr], loops: Mapping[Var, Expr | int], analyzer: Analyzer) -> bool:
    """Whether `bindings` map the points of `loops` (variable -> extent, from 0) one to one: no two points of the loops
    give the same values. False means: not proved.

    Each binding is a sum of stride * part, where a part is (variable // inner) % size; the parts of a variable must
    cover it once, and the strides of a binding must be those of a mixed radix number (checked for constant extents).
    """
    parts: dict[Var, list[tuple[int, int]]] = {v: [] for v in loops}
    for binding in bindings:
        digits = _digits(binding, loops, analyzer)
        if digits is None:
            return False
        reach = 1
        for stride, size, var, inner in sorted(digits, key=lambda d: d[0]):
            if stride < reach:
                return False
            reach = stride * size
            parts[var].append((inner, size))
    for var, extent in loops.items():
        count = analyzer.const_value(as_expr(extent))
        if count is None:
            return False
        covered = 1
        for inner, size in sorted(set(parts[var])):
            if inner > covered:
                return False
            covered = max(covered, inner * size)
        if covered < count:
            return False
    return True


def _digits(e: Expr, loops: Mapping[Var, Expr | int], analyzer: Analyzer) -> list[tuple[int, int, Var, int]] | None:
    """(stride, size, variable, inner) of each part of a binding; None if it is not a sum of such parts."""
    view = analyzer.view(analyzer.linear(e))
    digits: list[tuple[int, int, Var, int]] = []
    whole: list[tuple[Linear, int, int | None]] = [(analyzer.of(a), k, None) for a, k in view.terms.items()]
    for item, k in view.remainders:
        if not isinstance(item.divisor, int):
            return None
        whole.append((item.value, k, item.divisor))
    for form, k, modulus in whole:
        inner = 1
        if len(form.terms) != 1 or form.const or k < 0 or 1 not in form.terms.values():
            return None
        (atom,) = form.terms
        if atom.kind != VAR:
            if len(atom.args) != 2 or not isinstance(atom.args[1], Linear) or atom.args[1].terms:
                return None
            numerator, inner = atom.args[0], atom.args[1].const
            if len(numerator.terms) != 1 or numerator.const or 1 not in numerator.terms.values():
                return None
            (atom,) = numerator.terms
        if atom.kind != VAR:
            return None
        var = atom.args[0]
        if var not in loops:
            continue  # constant here
        count = analyzer.const_value(as_expr(loops[var]))
        if count is None:
            return None
        size = -(-count // inner)
        digits.append((k, size if modulus is None else min(size, modulus), var, inner))
    return digits
