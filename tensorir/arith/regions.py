"""Ranges that an index sweeps while some of its variables run: what compute_at, cache_read and allocation sizes need.

    index_range(i*4 + j, {j: (0, 6)}, analyzer)            # (i*4, 6)
    union_ranges([(i*4, 6), (i*4 + 1, 6)], analyzer)       # (i*4, 7)
    intersect_range((i*4 - 1, 6), (0, n), analyzer)        # (max(i*4 - 1, 0), ...)

Affine parts are exact hulls with their strides; floor quotients, remainders, minima and products with a factor of known
sign are bounded by their monotone ends. None stands for "nothing is known": the caller takes the whole dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from tensorir import dtypes
from tensorir.arith.analyzer import Analyzer
from tensorir.arith.canonical import MINIMUM, OPAQUE, PRODUCT, QUOTIENT, Atom, Linear, Modulo, Overflow
from tensorir.arith.interval import multiply, point
from tensorir.expr import Const, Expr, Var, as_expr

_INDEX = dtypes.INDEX
SymbolicRange = tuple[Expr, Expr]


class _Sweep:
    """Ends of forms over the relaxed variables, whose first and last values are `ends`."""

    def __init__(self, ranges: Mapping[Var, tuple[Expr, Expr]], analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.ends: dict[Atom, tuple[Linear, Linear]] = {}
        for var, (begin, extent) in ranges.items():
            first = analyzer.linear(as_expr(begin))
            last = analyzer.plus(first, analyzer.shift(analyzer.linear(as_expr(extent)), -1))
            self.ends[analyzer.variable(var)] = (first, last)
        self.variables = frozenset(a.args[0] for a in self.ends)
        self.order = self._elimination_order()

    def _elimination_order(self) -> list[Atom]:
        """Variables before those that their ranges speak of."""
        order: list[Atom] = []
        left = dict(self.ends)
        while left:
            named = {v for ends in left.values() for f in ends for a in f.terms for v in a.variables}
            free = [a for a in left if a.args[0] not in named] or [next(iter(left))]
            order += free
            for a in free:
                del left[a]
        return order

    def moves(self, variables: frozenset[Var]) -> bool:
        """Whether one of the variables is relaxed."""
        return not self.variables.isdisjoint(variables)

    def lower(self, form: Linear) -> Linear | None:
        """The least value, free of relaxed variables; None if unknown."""
        up = self.upper(self.analyzer.scale(form, -1))
        return None if up is None else self.analyzer.scale(up, -1)

    def upper(self, form: Linear, depth: int = 12) -> Linear | None:
        """The greatest value, free of relaxed variables; None if unknown."""
        forms = self.analyzer
        if depth == 0:
            return None
        if not any(self.moves(a.variables) for a in form.terms):
            return form
        for atom, k in form.terms.items():
            if atom.kind == MINIMUM and self.moves(atom.variables):
                rest = forms.plus(form, forms.of(atom), -k)
                ends = [self.upper(forms.plus(rest, x, k), depth - 1) for x in atom.args]
                if k > 0:  # at most every one of the operands
                    known = [e for e in ends if e is not None]
                    return forms.minimum(known, _INDEX) if known else None
                return None if None in _is_none(ends) else forms.maximum([e for e in ends if e is not None], _INDEX)
        view = forms.view(form)
        parts: list[tuple[Linear, int]] = []
        for atom, k in view.terms.items():
            end = forms.of(atom) if atom in self.ends else self._atom_end(atom, k > 0, depth)
            if end is None:
                return None
            parts.append((end, k))
        for item, k in view.remainders:
            end = self._remainder_end(item, k > 0, depth)
            if end is None:
                return None
            parts.append((end, k))
        result = forms.sum(parts, view.const)
        for atom in self.order:
            if atom not in result.terms:
                continue
            k = result.terms[atom]
            others = forms.plus(result, forms.of(atom), -k)
            result = forms.plus(others, self.ends[atom][k > 0], k)
            if any(a.kind != 0 and self.moves(a.variables) for a in result.terms):
                return self.upper(result, depth - 1)
        if any(self.moves(a.variables) for a in result.terms):
            return self.upper(result, depth - 1)
        return result

    def _ends_of(self, form: Linear, depth: int) -> tuple[Linear, Linear] | None:
        forms = self.analyzer
        up, down = self.upper(form, depth - 1), self.upper(forms.scale(form, -1), depth - 1)
        return None if up is None or down is None else (forms.scale(down, -1), up)

    def _atom_end(self, atom: Atom, greatest: bool, depth: int) -> Linear | None:
        forms = self.analyzer
        if not self.moves(atom.variables):
            return forms.of(atom)
        if atom.kind == QUOTIENT and not self.moves(_variables(atom.args[1])):
            divisor = atom.args[1]
            positive = forms.interval(divisor).lo
            ends = self._ends_of(atom.args[0], depth)
            if ends is None or positive is None or positive <= 0:
                return self._constant_end(atom, greatest)
            try:
                return forms.floor_divide(ends[greatest], divisor, _INDEX)
            except Overflow:
                return None
        if atom.kind == PRODUCT:
            moving = [a for a in atom.args if self.moves(a.variables)]
            still = [a for a in atom.args if not self.moves(a.variables)]
            sign = point(1)
            for a in still:
                sign = multiply(sign, forms.atom_interval(a))
            if len(moving) == 1 and sign.lo is not None and sign.lo >= 0:
                ends = self._ends_of(forms.of(moving[0]), depth)
                return None if ends is None else forms.multiply(ends[greatest], forms.monomial(still))
        return self._constant_end(atom, greatest)

    def _constant_end(self, atom: Atom, greatest: bool) -> Linear | None:
        """The end that holds for the constant bounds of an atom, as far as the analyzer knows them."""
        forms = self.analyzer
        if atom.kind == OPAQUE or any(
            v in self.variables and forms.variable(v) not in forms.ranges for v in atom.variables
        ):
            bounds = forms.atom_interval(atom)
            t = atom.dtype
            if bounds.lo == t.min_value or bounds.hi == t.max_value:
                return None
        bounds = forms.atom_interval(atom)
        end = bounds.hi if greatest else bounds.lo
        return None if end is None else forms.constant(end)

    def _remainder_end(self, item: Modulo, greatest: bool, depth: int) -> Linear | None:
        forms = self.analyzer
        c = item.divisor
        if not self.moves(_variables(item.value)) and (isinstance(c, int) or not self.moves(_variables(c))):
            return forms._remainder_form(item)
        ends = self._ends_of(item.value, depth)
        if isinstance(c, Linear):
            if self.moves(_variables(c)):
                return None
            return forms.shift(c, -1) if greatest else forms.zero
        if ends is not None and forms.divide(ends[0], c, _INDEX) is (block := forms.divide(ends[1], c, _INDEX)):
            return forms.plus(ends[greatest], block, -c)
        g = c
        for k in item.value.terms.values():
            g = gcd(g, k)
        rest = item.value.const % g
        return forms.constant(c - g + rest if greatest else rest)


def _variables(form: Linear) -> frozenset[Var]:
    return frozenset(v for a in form.terms for v in a.variables)


def _is_none(items: Sequence[object]) -> list[None]:
    return [None for i in items if i is None]


def index_range(e: Expr, ranges: Mapping[Var, tuple[Expr, Expr]], analyzer: Analyzer) -> SymbolicRange | None:
    """(begin, extent) of the hull of `e` while each variable of `ranges` runs over its (begin, extent); other variables
    stay as they are. None if nothing is known (an index read from memory, for instance)."""
    form = analyzer.linear(e)
    if not any(v in ranges for a in form.terms for v in a.variables):
        return analyzer.emit(form, e.dtype), as_expr(1)
    sweep = _Sweep(ranges, analyzer)
    if any(a.kind == OPAQUE and sweep.moves(a.variables) for a in form.terms):
        bounds = analyzer.interval(form)
        if bounds.lo is None or bounds.hi is None or bounds.hi - bounds.lo >= 1 << 31:
            return None
        return as_expr(bounds.lo), as_expr(bounds.hi - bounds.lo + 1)
    first, last = sweep.lower(form), sweep.upper(form)
    if first is None or last is None:
        return None
    return analyzer.emit(first, _INDEX), analyzer.emit(analyzer.shift(analyzer.plus(last, first, -1), 1), _INDEX)


def union_ranges(items: Sequence[SymbolicRange | None], analyzer: Analyzer) -> SymbolicRange | None:
    """The hull of several ranges; None if one of them is unknown. Empty ranges are not told apart."""
    known = [i for i in items if i is not None]
    if len(known) < len(items) or not known:
        return None
    firsts = [analyzer.linear(b) for b, _ in known]
    ends = [analyzer.plus(f, analyzer.linear(x)) for f, (_, x) in zip(firsts, known, strict=True)]
    first, end = analyzer.minimum(firsts, _INDEX), analyzer.maximum(ends, _INDEX)
    return analyzer.emit(first, _INDEX), analyzer.emit(analyzer.plus(end, first, -1), _INDEX)


def intersect_range(item: SymbolicRange | None, domain: SymbolicRange, analyzer: Analyzer) -> SymbolicRange:
    """What `item` and `domain` share: `domain` for an unknown range. The extent may be negative if they are apart."""
    if item is None:
        return domain
    firsts = [analyzer.linear(item[0]), analyzer.linear(domain[0])]
    ends = [analyzer.plus(f, analyzer.linear(x)) for f, (_, x) in zip(firsts, (item, domain), strict=True)]
    first, end = analyzer.maximum(firsts, _INDEX), analyzer.minimum(ends, _INDEX)
    return analyzer.emit(first, _INDEX), analyzer.emit(analyzer.plus(end, first, -1), _INDEX)


def covers(outer: SymbolicRange, inner: SymbolicRange, analyzer: Analyzer) -> bool:
    """Whether `inner` is proved to lie in `outer`."""
    a, b = analyzer.linear(outer[0]), analyzer.linear(inner[0])
    ends = analyzer.plus(analyzer.plus(b, analyzer.linear(inner[1])), analyzer.plus(a, analyzer.linear(outer[1])), -1)
    return analyzer.le0(analyzer.plus(a, b, -1)) and analyzer.le0(ends)


def constant_extent(extent: Expr, analyzer: Analyzer) -> int | None:
    """The least constant known that an extent does not exceed: what an allocation of constant size needs."""
    if isinstance(extent, Const):
        return int(extent.value)
    return analyzer.bounds(extent).hi
