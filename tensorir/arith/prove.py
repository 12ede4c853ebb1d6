"""Proofs of `form <= 0` from constant ranges, symbolic ranges and facts.

Constant ranges decide most questions. Else the search replaces a variable by its symbolic end (the innermost bound
variable first), a minimum by its operands, or adds a multiple of a fact, until the constant ranges decide.
"""

from __future__ import annotations

from math import gcd

from tensorir.arith.canonical import MINIMUM, PRODUCT, QUOTIENT, Atom, Forms, Linear, Overflow
from tensorir.arith.interval import EVERYTHING, Interval, intersect, multiply, point

_FUEL = 24


class Prover(Forms):
    """Forms with symbolic ranges of variables and facts (forms that are <= 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.symbolic: dict[Atom, tuple[Linear, Linear]] = {}  # first and last value; later bound is further inside
        self.depths: dict[Atom, int] = {}
        self.facts: list[Linear] = []
        self._proved: dict[Linear, bool] = {}

    def add_fact(self, form: Linear) -> None:
        """From here on form <= 0 holds."""
        if len(form.terms) == 1:
            ((atom, k),) = form.terms.items()
            old = self.ranges.get(atom, EVERYTHING)
            limit = -form.const // k if k > 0 else _ceil_divide(form.const, -k)  # atom <= limit, or atom >= limit
            self.ranges[atom] = intersect(old, Interval(None, limit) if k > 0 else Interval(limit, None))
        else:
            self.facts.append(form)

    def le0(self, form: Linear) -> bool:
        """Whether form <= 0 is proved."""
        lo, hi = self.interval(form)
        if hi is not None and hi <= 0:
            return True
        if (lo is not None and lo > 0) or not form.terms:
            return False
        if not self.symbolic and not self.facts and not has_minimum(form):
            return False
        known = self._proved.get(form)
        if known is None:
            self._proved[form] = False  # a question met again inside its own proof is no help
            known = self._proved[form] = self._search(form, _FUEL)
        return known

    def _search(self, form: Linear, fuel: int) -> bool:
        lo, hi = self.interval(form)
        if hi is not None and hi <= 0:
            return True
        if fuel <= 0 or not form.terms or (lo is not None and lo > 0):
            return False
        for atom, k in form.terms.items():
            if atom.kind == MINIMUM:
                rest = self.plus(form, self.of(atom), -k)
                cases = (self._search(self.plus(rest, x, k), fuel // 2) for x in atom.args)
                if any(cases) if k > 0 else all(cases):
                    return True
                if k < 0:
                    return False
        if self._by_fact(form, fuel):
            return True
        smaller = self._eliminate(form)
        return smaller is not None and self._search(smaller, fuel - 1)

    def _by_fact(self, form: Linear, fuel: int) -> bool:
        for fact in self.facts:
            for atom, k in fact.terms.items():
                have = form.terms.get(atom, 0)
                if have * k > 0:
                    g = gcd(have, k)
                    # form*a - fact*b <= 0 gives form*a <= fact*b <= 0
                    rest = self.plus(self.scale(form, abs(k) // g), fact, -(abs(have) // g))
                    if len(rest.terms) < len(form.terms) + len(fact.terms) - 1 and self._search(rest, fuel // 3):
                        return True
                    break
        return False

    def upper(self, form: Linear, fuel: int = 6) -> int | None:
        """The least constant found that the form does not exceed."""
        best = self.interval(form).hi
        if not form.terms or fuel == 0:
            return best
        for atom, k in form.terms.items():
            if atom.kind == MINIMUM and len(form.terms) > 1:
                rest = self.plus(form, self.of(atom), -k)
                ends = [self.upper(self.plus(rest, x, k), fuel - 1) for x in atom.args]
                if k > 0:  # at most every one of the operands
                    return _least([best, *ends])
                return best if None in ends else _least([best, max(e for e in ends if e is not None)])
        smaller = self._eliminate(form) if self.symbolic else None
        return best if smaller is None else _least([best, self.upper(smaller, fuel - 1)])

    def lower(self, form: Linear) -> int | None:
        """The greatest constant found that the form does not fall below."""
        opposite = self.upper(self.scale(form, -1))
        return None if opposite is None else -opposite

    def _eliminate(self, form: Linear) -> Linear | None:
        """An upper bound of the form without one remainder by a symbol, or without its innermost symbolically bound
        variable; None if there is neither."""
        for atom, k in form.terms.items():
            if atom.kind == PRODUCT:
                simpler = self._symbolic_remainder(form, atom, k)
                if simpler is not None:
                    return simpler
        inner: Atom | None = None
        depth = -1
        for atom in form.terms:
            for v in atom.variables:
                x = self._variables.get(v)
                if x is not None and x in self.symbolic and self.depths[x] > depth:
                    inner, depth = x, self.depths[x]
        if inner is None:
            return None
        return self.replace_by_end(form, inner, *self.symbolic[inner])

    def replace_by_end(self, form: Linear, inner: Atom, first: Linear, last: Linear) -> Linear | None:
        """An upper bound of `form`, with the variable `inner` in [first, last] replaced by an end; None if it stands
        where the form is not monotone in it."""
        parts: list[tuple[Linear, int]] = []
        variable = inner.args[0]
        direct = form.terms.get(inner, 0)
        kept: dict[Atom, int] = {}
        for atom, k in form.terms.items():
            if atom is inner or variable not in atom.variables:
                kept[atom] = k
                continue
            if atom.kind == PRODUCT:
                others = list(atom.args)
                if sum(x is inner for x in others) == 1:
                    others.remove(inner)
                    if any(variable in x.variables for x in others):
                        return None
                    sign = point(1)
                    for x in others:
                        sign = multiply(sign, self.atom_interval(x))
                    if (sign.lo is None or sign.lo < 0) and (sign.hi is None or sign.hi > 0):
                        return None
                    positive = (sign.lo is not None and sign.lo >= 0) is (k > 0)
                    product = self.multiply(last if positive else first, self.monomial(others))
                    if product is None:
                        return None
                    parts.append((product, k))
                    continue
                return None
            if atom.kind == QUOTIENT and variable not in {v for a in atom.args[1].terms for v in a.variables}:
                numerator, divisor = atom.args
                positive_divisor = self.interval(divisor).lo
                if positive_divisor is None or positive_divisor <= 0:
                    return None
                end = self.end_of(numerator, inner, first, last, k > 0)
                if end is None:
                    return None
                try:
                    parts.append((self.floor_divide(end, divisor, atom.dtype), k))
                except Overflow:
                    return None
                continue
            return None
        if direct:
            del kept[inner]
            parts.append((last if direct > 0 else first, direct))
        return self.sum([(self._form(form.const, kept), 1), *parts])

    def end_of(self, form: Linear, inner: Atom, first: Linear, last: Linear, upper: bool) -> Linear | None:
        """An upper (or lower) bound of `form` free of `inner`."""
        if upper:
            return self.replace_by_end(form, inner, first, last)
        bound = self.replace_by_end(self.scale(form, -1), inner, first, last)
        return None if bound is None else self.scale(bound, -1)

    def _symbolic_remainder(self, form: Linear, atom: Atom, k: int) -> Linear | None:
        """Where form has n*(y - d*(y // d)) for a symbol d: the bound with y % d replaced by d - 1 or by 0."""
        for quotient in atom.args:
            if quotient.kind != QUOTIENT:
                continue
            numerator, divisor = quotient.args
            others = list(atom.args)
            others.remove(quotient)
            positive = self.interval(divisor).lo
            if divisor is not self.monomial(others) or positive is None or positive <= 0:
                continue
            rest = self.plus(self.plus(form, self.of(atom), -k), numerator, k)
            if len(rest.terms) >= len(form.terms):
                continue
            if -k < 0:
                return rest
            return self.plus(rest, self.shift(divisor, -1), -k)
        return None


def has_minimum(form: Linear) -> bool:
    return any(a.kind == MINIMUM for a in form.terms)


def _least(ends: list[int | None]) -> int | None:
    known = [e for e in ends if e is not None]
    return min(known) if known else None


def _ceil_divide(a: int, b: int) -> int:
    return -(-a // b)
