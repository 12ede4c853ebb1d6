"""Index arithmetic for the passes: sums of constant multiples, ranges of variables, and proofs about them.

A `Form` is `constant + sum(coefficient * atom)`; an atom is a variable or an expression that is no such sum (a
quotient, a remainder, a minimum, a load). An `IndexScope` knows the ranges of variables and the conditions that hold,
brings expressions into one canonical, shared form and proves comparisons:

    ((io * 4 + ii) * 8 + j) - io * 32   →   ii * 8 + j
    (f // 8) * 8 + f % 8                →   f
    io * 4 + ii < 16                    →   true, for io < 4 and ii < 4

Everything is linear in the size of an expression, because the unroller asks it about thousands of copies. Equal
canonical expressions are one object. Each loop binds a variable of its own, so what is known of one never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import gcd

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    IfThenElse,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    cast,
    const,
)
from tensorir.visit import children, walk_expr, with_children

_PROOF_DEPTH = 12


class Form:
    """`constant + sum(coefficient * atom)` over the integers; never changed once made."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Expr, int], constant: int) -> None:
        self.terms = terms
        self.constant = constant

    def __repr__(self) -> str:
        return " + ".join([*(f"{c}*{a!r}" for a, c in self.terms.items()), str(self.constant)])

    @property
    def is_const(self) -> bool:
        """True if there is no atom."""
        return not self.terms

    def coefficient(self, atom: Expr) -> int:
        """The multiple of `atom`; 0 if it is absent."""
        return self.terms.get(atom, 0)

    def plus(self, other: Form, times: int = 1) -> Form:
        """self + times * other."""
        if not other.terms:
            return Form(self.terms, self.constant + times * other.constant)
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            value = terms.get(atom, 0) + c * times
            if value:
                terms[atom] = value
            else:
                terms.pop(atom, None)
        return Form(terms, self.constant + times * other.constant)

    def minus(self, other: Form) -> Form:
        """self - other."""
        return self.plus(other, -1)

    def scaled(self, factor: int) -> Form:
        """factor * self."""
        if factor == 1:
            return self
        if factor == 0:
            return Form({}, 0)
        return Form({a: c * factor for a, c in self.terms.items()}, self.constant * factor)

    def shifted(self, amount: int) -> Form:
        """self + amount."""
        return Form(self.terms, self.constant + amount) if amount else self

    def without(self, atom: Expr) -> Form:
        """self with the multiple of `atom` left out."""
        if atom not in self.terms:
            return self
        return Form({a: c for a, c in self.terms.items() if a is not atom}, self.constant)


def is_index_type(t: DType) -> bool:
    """True for the types whose sums are brought into canonical form: scalar int32 and int64."""
    return t.kind == "int" and t.lanes == 1 and t.bits >= 32


class IndexScope:
    """Ranges of variables, known conditions, and the canonical form of expressions under the ranges.

    `dims` are symbols known to be at least 0.
    """

    def __init__(self, dims: Iterable[Var] = ()) -> None:
        self._lower: dict[Expr, Form] = {}
        self._upper: dict[Expr, Form] = {}
        self._rank: dict[Expr, int] = {}
        self._bound: set[Expr] = set()
        self._data: dict[Expr, bool] = {}
        self._order: dict[Expr, int] = {}
        self._facts: list[Form] = []
        self._forms: dict[Expr, Form] = {}
        self._memo: dict[Expr, Expr] = {}
        self._interned: dict[tuple[object, ...], Expr] = {}
        self._bounds: dict[Expr, tuple[int | None, int | None]] = {}
        self._vars: dict[Expr, frozenset[Expr]] = {}
        for v in dims:
            self._lower[v] = Form({}, 0)
            self._rank[v] = 0

    # ------------------------------------------------------------------------------------------------- what is known

    def bind(self, var: Var, begin: Expr, extent: Expr) -> None:
        """`var` runs over begin .. begin + extent from here on; the statement in hand is inside that loop."""
        low, size = self.form(begin), self.form(extent)
        self._deepen(var)
        self._lower[var] = low
        self._upper[var] = low.plus(size).shifted(-1)
        self._bounds.pop(var, None)

    def bind_value(self, var: Var, value: Expr) -> None:
        """`var` is a name for `value`."""
        self._deepen(var)
        if is_index_type(var.dtype) and self._is_exact(self.form(value), var.dtype):
            self._lower[var] = self._upper[var] = self.form(value)

    def _deepen(self, var: Var) -> None:
        if var not in self._bound:
            self._bound.add(var)
            self._rank[var] = len(self._bound)

    @contextmanager
    def assume(self, *conditions: Expr) -> Iterator[None]:
        """The conditions hold inside the `with`."""
        depth = len(self._facts)
        for condition in conditions:
            self._facts.extend(self._consequences(condition))
        try:
            yield
        finally:
            del self._facts[depth:]

    @contextmanager
    def inside(self, var: Var, begin: Expr, extent: Expr) -> Iterator[None]:
        """Inside the body of a loop: the variable has its range, and the range is not empty."""
        self.bind(var, begin, extent)
        depth = len(self._facts)
        size = self.form(extent)
        if not size.is_const:
            self._facts.append(size.shifted(-1))
        try:
            yield
        finally:
            del self._facts[depth:]

    def _consequences(self, condition: Expr) -> list[Form]:
        """Forms that are at least 0 because `condition` holds."""
        result: list[Form] = []
        for part in conjuncts(self.simplify(condition)):
            if isinstance(part, EQ) and self._compares_indices(part):
                difference = self.form(part.a).minus(self.form(part.b))
                result += [difference, difference.scaled(-1)]
            elif (margin := self.margin(part)) is not None:
                result.append(margin)
        return [*result, *(w for form in result if (w := self._without_quotients(form)) is not None)]

    def _without_quotients(self, form: Form) -> Form | None:
        """A weaker fact without quotients, from x - d < d * (x // d) <= x; None if there is no quotient."""
        found: Form | None = None
        for _ in range(8):
            current = form if found is None else found
            atom = next((a for a in current.terms if isinstance(a, FloorDiv)), None)
            if atom is None or not isinstance(atom.b, Const) or int(atom.b.value) <= 0:
                return found
            divisor, c = int(atom.b.value), current.terms[atom]
            inner = self.form(atom.a)
            found = current.without(atom).scaled(divisor).plus(inner if c > 0 else inner.shifted(1 - divisor), c)
        return found

    def margin(self, condition: Expr) -> Form | None:
        """The form that is at least 0 exactly where the comparison holds; None if it is no integer inequality."""
        if isinstance(condition, Not):
            inner = self.margin(condition.a)
            return None if inner is None else inner.scaled(-1).shifted(-1)
        if isinstance(condition, (LT, LE)) and self._compares_indices(condition):
            difference = self.form(condition.b).minus(self.form(condition.a))
            return difference.shifted(-1) if isinstance(condition, LT) else difference
        return None

    def _compares_indices(self, e: Binary) -> bool:
        """True if neither operand may have wrapped, so that comparing them is comparing integers."""
        t = e.a.dtype
        return is_index_type(t) and self._is_exact(self.form(e.a), t) and self._is_exact(self.form(e.b), t)

    def _is_exact(self, form: Form, t: DType) -> bool:
        """True if the value is that of the sum over the integers: it is made of loop variables and dimensions, which
        are far from 2**63, or provably fits. Numbers that a program computes with may wrap."""
        if t.bits < 64:
            low, high = self.const_bounds(form)
            return low is not None and high is not None and low >= t.min_value and high <= t.max_value
        return not any(self._is_data(a) for a in form.terms)

    def _is_data(self, e: Expr) -> bool:
        found = self._data.get(e)
        if found is None:
            found = self._data[e] = any(
                isinstance(n, (Load, Call)) or (isinstance(n, Var) and n not in self._lower) for n in walk_expr(e)
            )
        return found

    def at_least_zero(self, form: Form, dtype: DType) -> Expr:
        """The condition `form >= 0`, written without negative multiples: subtracted <= added."""
        added = Form({a: c for a, c in form.terms.items() if c > 0}, max(form.constant, 0))
        taken = Form({a: -c for a, c in form.terms.items() if c < 0}, max(-form.constant, 0))
        return self.simplify(LE(self.to_expr(taken, dtype), self.to_expr(added, dtype), dtypes.bool_))

    # ------------------------------------------------------------------------------------------------------- proofs

    def prove(self, condition: Expr) -> bool | None:
        """True or False if the condition always or never holds here; None if that is not known."""
        if isinstance(condition, Const):
            return bool(condition.value)
        if isinstance(condition, And):
            a, b = self.prove(condition.a), self.prove(condition.b)
            return False if a is False or b is False else True if a and b else None
        if isinstance(condition, Or):
            a, b = self.prove(condition.a), self.prove(condition.b)
            return True if a or b else False if a is False and b is False else None
        if isinstance(condition, Not):
            a = self.prove(condition.a)
            return None if a is None else not a
        if not isinstance(condition, Compare) or not self._compares_indices(condition):
            return None
        if isinstance(condition, (EQ, NE)):
            difference = self.form(condition.a).minus(self.form(condition.b))
            equal = self._prove_zero(difference)
            return equal if equal is None or isinstance(condition, EQ) else not equal
        margin = self.margin(condition)
        assert margin is not None
        if self.nonnegative(margin):
            return True
        return False if self.nonnegative(margin.scaled(-1).shifted(-1)) else None

    def _prove_zero(self, difference: Form) -> bool | None:
        if difference.is_const:
            return difference.constant == 0
        if self.nonnegative(difference.shifted(-1)) or self.nonnegative(difference.scaled(-1).shifted(-1)):
            return False
        if self.nonnegative(difference) and self.nonnegative(difference.scaled(-1)):
            return True
        return None

    def nonnegative(self, form: Form) -> bool:
        """True if the form is provably at least 0."""
        low, high = self.const_bounds(form)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        if self._eliminate(form, _PROOF_DEPTH):
            return True
        for fact in self._facts:
            for rest in self._without_fact(form, fact):
                low, _ = self.const_bounds(rest)
                if (low is not None and low >= 0) or self._eliminate(rest, _PROOF_DEPTH):
                    return True
        return False

    def _without_fact(self, form: Form, fact: Form) -> Iterator[Form]:
        """Forms of which one being at least 0 is enough, given that `fact` is: multiples of the fact are taken away
        so that it cancels one of its atoms."""
        yield form.minus(fact)
        for atom, f in fact.terms.items():
            c = form.terms.get(atom, 0)
            if c != f and c * f > 0:
                yield form.scaled(abs(f)).minus(fact.scaled(abs(c)))

    def _eliminate(self, form: Form, depth: int) -> bool:
        """Replaces atoms by their worst bounds, innermost first, until the sign shows."""
        for _ in range(32):
            low, _high = self.const_bounds(form)
            if low is not None and low >= 0:
                return True
            if not form.terms or depth == 0:
                return False
            atom = max(form.terms, key=lambda a: (self.rank(a), not isinstance(a, Var)))
            c = form.terms[atom]
            rest = form.without(atom)
            if isinstance(atom, (Min, Max)):
                options = (rest.plus(self.form(atom.a), c), rest.plus(self.form(atom.b), c))
                worst = isinstance(atom, Min) == (c > 0)
                quantifier = all if worst else any
                return quantifier(self._eliminate(o, depth - 1) for o in options)
            if isinstance(atom, FloorDiv) and isinstance(atom.b, Const) and atom.b.value > 0:
                divisor = int(atom.b.value)
                inner = self.form(atom.a)
                form = rest.scaled(divisor).plus(inner if c < 0 else inner.shifted(1 - divisor), c)
                continue
            bound = (self._lower if c > 0 else self._upper).get(atom)
            if bound is None and isinstance(atom, Mul):
                bound = self._product_bound(atom, low=c > 0)
            if bound is None:
                constant = self.atom_bounds(atom)[0 if c > 0 else 1]
                if constant is None:
                    return False
                bound = Form({}, constant)
            form = rest.plus(bound, c)
        return False

    def _product_bound(self, atom: Mul, *, low: bool) -> Form | None:
        """A bound of x * y for the innermost factor x that has a range, where y is at least 0."""
        factors = sorted(_factors(atom), key=self.rank)
        inner = factors.pop()
        bound = (self._lower if low else self._upper).get(inner)
        if bound is None or not factors:
            return None
        for factor in factors:
            least = self.atom_bounds(factor)[0]
            if least is None or least < 0:
                return None
        product = self.to_expr(bound, atom.dtype)
        for factor in factors:
            product = self.simplify(Mul(product, factor, atom.dtype))
        return self.form(product)

    def const_bounds(self, form: Form) -> tuple[int | None, int | None]:
        """The smallest and largest value of a form, each atom taken on its own; None where unbounded."""
        low: int | None = form.constant
        high: int | None = form.constant
        for atom, c in form.terms.items():
            least, most = self.atom_bounds(atom)
            if c < 0:
                least, most = most, least
            low = None if low is None or least is None else low + c * least
            high = None if high is None or most is None else high + c * most
            if low is None and high is None:
                return None, None
        return low, high

    def atom_bounds(self, atom: Expr) -> tuple[int | None, int | None]:
        """Constant bounds of one atom."""
        found = self._bounds.get(atom)
        if found is None:
            found = self._bounds[atom] = self._atom_bounds(atom)
        return found

    def _atom_bounds(self, atom: Expr) -> tuple[int | None, int | None]:
        if isinstance(atom, Var):
            low, high = self._lower.get(atom), self._upper.get(atom)
            return (
                None if low is None else self.const_bounds(low)[0],
                None if high is None else self.const_bounds(high)[1],
            )
        if isinstance(atom, (FloorDiv, FloorMod)) and isinstance(atom.b, Const) and atom.b.value > 0:
            divisor = int(atom.b.value)
            low_a, high_a = self.const_bounds(self.form(atom.a))
            if isinstance(atom, FloorDiv):
                return (None if low_a is None else low_a // divisor, None if high_a is None else high_a // divisor)
            if low_a is not None and high_a is not None and low_a // divisor == high_a // divisor:
                return low_a % divisor, high_a % divisor
            return 0, divisor - 1
        if isinstance(atom, (Min, Max)):
            low_a, high_a = self.const_bounds(self.form(atom.a))
            low_b, high_b = self.const_bounds(self.form(atom.b))
            either = lambda x, y, f: y if x is None else x if y is None else f(x, y)  # noqa: E731
            both = lambda x, y, f: None if x is None or y is None else f(x, y)  # noqa: E731
            if isinstance(atom, Min):
                return both(low_a, low_b, min), either(high_a, high_b, min)
            return either(low_a, low_b, max), both(high_a, high_b, max)
        if isinstance(atom, Mul):
            pairs = (self.const_bounds(self.form(atom.a)), self.const_bounds(self.form(atom.b)))
            known = [x for pair in pairs for x in pair if x is not None]
            if len(known) == 4:
                products = [x * y for x in pairs[0] for y in pairs[1] if x is not None and y is not None]
                return min(products), max(products)
            lows = [p[0] for p in pairs]
            return (0, None) if all(x is not None and x >= 0 for x in lows) else (None, None)
        if isinstance(atom, (Select, IfThenElse)):
            low_a, high_a = self.const_bounds(self.form(atom.a))
            low_b, high_b = self.const_bounds(self.form(atom.b))
            return (
                None if low_a is None or low_b is None else min(low_a, low_b),
                None if high_a is None or high_b is None else max(high_a, high_b),
            )
        return None, None

    def bounds(self, e: Expr) -> tuple[int | None, int | None]:
        """Constant bounds of an integer expression; None where unbounded."""
        return self.const_bounds(self.form(e))

    def rank(self, atom: Expr) -> int:
        """Nesting depth of the innermost variable in an atom; symbols come first."""
        found = self._rank.get(atom)
        if found is None:
            if isinstance(atom, Var):
                found = 0
            else:
                found = max((self.rank(v) for v in self.variables(atom)), default=0)
            self._rank[atom] = found
        return found

    def variables(self, e: Expr) -> frozenset[Expr]:
        """The variables in an expression."""
        found = self._vars.get(e)
        if found is None:
            found = self._vars[e] = frozenset(n for n in walk_expr(e) if isinstance(n, Var))
        return found

    def extreme(self, form: Form, inner: frozenset[Expr], *, low: bool) -> Form | None:
        """A lower (or upper) bound of the form in which no variable of `inner` is left; None if there is none."""
        for _ in range(64):
            candidates = [a for a in form.terms if not self.variables(a).isdisjoint(inner)]
            if not candidates:
                return form
            atom = max(candidates, key=self.rank)
            c = form.terms[atom]
            want_low = (c > 0) == low
            rest = form.without(atom)
            bound = (self._lower if want_low else self._upper).get(atom)
            if bound is None and isinstance(atom, (Min, Max)) and isinstance(atom, Min) != want_low:
                bound = self._tightest(atom, inner, low=want_low)
            if bound is None and isinstance(atom, FloorDiv) and isinstance(atom.b, Const) and atom.b.value > 0:
                edge = self.extreme(self.form(atom.a), inner, low=want_low)
                if edge is not None:
                    bound = self.form(FloorDiv(self.to_expr(edge, atom.dtype), atom.b, atom.dtype))
            if bound is None:
                constant = self.atom_bounds(atom)[0 if want_low else 1]
                if constant is None:
                    return None
                bound = Form({}, constant)
            form = rest.plus(bound, c)
        return None

    def _tightest(self, atom: Binary, inner: frozenset[Expr], *, low: bool) -> Form | None:
        """An upper bound of a Min (lower of a Max): the operand with a constant bound first, else either."""
        options = [self.extreme(self.form(x), inner, low=low) for x in (atom.a, atom.b)]
        found = [o for o in options if o is not None]
        found.sort(key=lambda o: len(o.terms))
        return found[0] if found else None

    # ------------------------------------------------------------------------------------------------ canonical form

    def form(self, e: Expr) -> Form:
        """The form of an integer expression."""
        found = self._forms.get(e)
        if found is None:
            simple = self.simplify(e)
            found = self._forms.get(simple)
            if found is None:
                found = Form({}, int(simple.value)) if isinstance(simple, Const) else Form({simple: 1}, 0)
                self._forms[simple] = found
            self._forms[e] = found
        return found

    def simplify(self, e: Expr) -> Expr:
        """`e` in canonical form, using the ranges (not the assumed conditions). Iterative."""
        memo = self._memo
        found = memo.get(e)
        if found is not None:
            return found
        stack = [e]
        while stack:
            top = stack[-1]
            if top in memo:
                stack.pop()
                continue
            kids = children(top)
            pending = [c for c in kids if c not in memo]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            rebuilt = with_children(top, tuple([memo[c] for c in kids])) if kids else top
            result = self._rule(rebuilt)
            memo[top] = result
            memo[result] = result
        return memo[e]

    def canonical(self, e: Expr) -> Expr:
        """`e`, whose children are canonical, in canonical form."""
        found = self._memo.get(e)
        if found is None:
            found = self._rule(e)
            self._memo[found] = found
        return found

    def _rule(self, e: Expr) -> Expr:
        rule = _RULES.get(type(e))
        return self.intern(e) if rule is None else rule(self, e)

    def intern(self, e: Expr) -> Expr:
        """The one object that stands for expressions of this shape with these (interned) children."""
        if isinstance(e, Var):
            return e
        key = _key(e)
        if key is None:
            return e
        found = self._interned.setdefault(key, e)
        if found is e:
            self._order[e] = len(self._order)
        return found

    def to_expr(self, form: Form, dtype: DType) -> Expr:
        """The canonical expression of a form: outer variables first, the constant last."""
        if not form.terms:
            return self.intern(const(form.constant, dtype))
        if len(form.terms) > 1:
            atoms = sorted(form.terms, key=self._place)
            # A sum starts with a positive term where there is one, so that no negation is needed.
            first = next((a for a in atoms if form.terms[a] > 0), None)
            if first is not None and atoms[0] is not first:
                atoms = [first, *(a for a in atoms if a is not first)]
        else:
            atoms = list(form.terms)
        total: Expr | None = None
        for atom in atoms:
            c = form.terms[atom]
            if total is None:
                total = self._multiple(atom, c, dtype)
            elif c < 0:
                total = self.intern(Sub(total, self._multiple(atom, -c, dtype), dtype))
            else:
                total = self.intern(Add(total, self._multiple(atom, c, dtype), dtype))
        assert total is not None
        if form.constant > 0:
            total = self.intern(Add(total, self.intern(const(form.constant, dtype)), dtype))
        elif form.constant < 0:
            total = self.intern(Sub(total, self.intern(const(-form.constant, dtype)), dtype))
        if total not in self._forms:
            self._forms[total] = form
        self._memo[total] = total
        return total

    def _place(self, atom: Expr) -> tuple[int, int]:
        return self.rank(atom), self._order.get(atom, 0)

    def _multiple(self, atom: Expr, c: int, dtype: DType) -> Expr:
        return atom if c == 1 else self.intern(Mul(atom, self.intern(const(c, dtype)), dtype))


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that are joined by `and`."""
    result: list[Expr] = []
    stack = [condition]
    while stack:
        top = stack.pop()
        if isinstance(top, And):
            stack.append(top.b)
            stack.append(top.a)
        else:
            result.append(top)
    return result


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """All of the conditions; true if there is none."""
    result: Expr | None = None
    for condition in conditions:
        if isinstance(condition, Const) and condition.value:
            continue
        result = condition if result is None else And(result, condition, result.dtype)
    return const(True) if result is None else result


def literal_condition(e: Expr) -> bool | None:
    """The value of a literal condition, in one lane or repeated in all; None for any other expression."""
    if isinstance(e, Broadcast):
        e = e.value
    return bool(e.value) if isinstance(e, Const) else None


def predicate_verdict(predicate: Expr, scope: IndexScope) -> bool | None:
    """True or False if a vector of conditions holds in all lanes or in none; None if that is not known."""
    if isinstance(predicate, Broadcast):
        return scope.prove(predicate.value)
    if isinstance(predicate, And):
        a, b = predicate_verdict(predicate.a, scope), predicate_verdict(predicate.b, scope)
        return False if a is False or b is False else True if a and b else None
    if isinstance(predicate, (LT, LE)) and predicate.dtype.lanes > 1:
        edges = [(_lane(predicate.a, k), _lane(predicate.b, k)) for k in (0, predicate.dtype.lanes - 1)]
        verdicts = set()
        for left, right in edges:
            if left is None or right is None or not is_index_type(left.dtype):
                return None
            verdicts.add(scope.prove(scope.simplify(type(predicate)(left, right, dtypes.bool_))))
        return verdicts.pop() if len(verdicts) == 1 else None
    return scope.prove(predicate) if predicate.dtype.lanes == 1 else None


def _lane(e: Expr, lane: int) -> Expr | None:
    """One lane of a ramp or a broadcast."""
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    return None


def _key(e: Expr) -> tuple[object, ...] | None:
    """What makes an expression with interned children unique; None for nodes that bind variables."""
    if isinstance(e, Const):
        return (Const, e.dtype, repr(e.value))
    if isinstance(e, Binary):
        return (type(e), id(e.a), id(e.b), e.dtype)
    if isinstance(e, Load):
        return (Load, id(e.buffer), tuple(map(id, e.indices)), e.dtype, id(e.predicate))
    if isinstance(e, Call):
        return (Call, e.name, tuple(map(id, e.args)), e.dtype)
    if isinstance(e, (Cast, Not, Fma, Select, IfThenElse, Ramp, Broadcast)):
        return (type(e), tuple(map(id, children(e))), e.dtype)
    return None


# --------------------------------------------------------------------------------------------------------- the rules


def _sum(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Binary)
    if not is_index_type(e.dtype):
        return scope.intern(e)
    form = scope.form(e.a).plus(scope.form(e.b), 1 if type(e) is Add else -1)
    return scope.to_expr(_join_quotients(scope, form), e.dtype)


def _product(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Mul)
    if not is_index_type(e.dtype):
        return scope.intern(e)
    a, b = scope.form(e.a), scope.form(e.b)
    if b.is_const:
        return scope.to_expr(a.scaled(b.constant), e.dtype)
    if a.is_const:
        return scope.to_expr(b.scaled(a.constant), e.dtype)
    # Distribute over symbols, so that (i * 4 + j) * n and i * 4 * n + j * n are one form.
    terms = Form({}, a.constant * b.constant)
    terms = terms.plus(Form(b.terms, 0), a.constant)
    terms = terms.plus(Form(a.terms, 0), b.constant)
    for x, p in a.terms.items():
        for y, q in b.terms.items():
            factors = sorted([*_factors(x), *_factors(y)], key=scope._place)
            atom = factors[0]
            for factor in factors[1:]:
                atom = scope.intern(Mul(atom, factor, e.dtype))
            scope._forms.setdefault(atom, Form({atom: 1}, 0))
            scope._memo[atom] = atom
            terms = terms.plus(Form({atom: 1}, 0), p * q)
    return scope.to_expr(terms, e.dtype)


def _factors(atom: Expr) -> list[Expr]:
    result: list[Expr] = []
    while isinstance(atom, Mul):
        result.append(atom.b)
        atom = atom.a
    result.append(atom)
    return result


def _join_quotients(scope: IndexScope, form: Form) -> Form:
    """c * (x // n) * n + c * (x % n) → c * x, and c * n * (x // n % m) + c * (x % n) → c * (x % (n * m))."""
    while True:
        for atom, c in form.terms.items():
            if isinstance(atom, FloorMod):
                quotient = scope._interned.get((FloorDiv, id(atom.a), id(atom.b), atom.dtype))
                inner = scope.form(atom.a)
                if quotient is None and isinstance(atom.b, Const):
                    # (x // a) % b pairs with x // (a * b)
                    quotient = scope.simplify(FloorDiv(atom.a, atom.b, atom.dtype))
                if quotient is None or not isinstance(atom.b, Const):
                    continue
                n = int(atom.b.value)
                if n == 0:  # quotient and remainder by zero are zero
                    continue
                if form.terms.get(quotient, 0) == c * n:
                    form = form.without(atom).without(quotient).plus(inner, c)
                    break
                upper = next((x for x, k in form.terms.items() if k == c * n and _digit_above(x, quotient)), None)
                if isinstance(upper, FloorMod) and isinstance(upper.b, Const):
                    whole = FloorMod(atom.a, const(n * int(upper.b.value), atom.dtype), atom.dtype)
                    form = form.without(atom).without(upper).plus(scope.form(scope.simplify(whole)), c)
                    break
                other = next((x for x, k in form.terms.items() if k == c * n and _same_digit(scope, x, inner, n)), None)
                if isinstance(other, FloorDiv):
                    form = form.without(atom).without(other).plus(scope.form(other.a), c)
                    break
        else:
            return form


def _same_digit(scope: IndexScope, e: Expr, value: Form, n: int) -> bool:
    """True for y // n where y % n is value % n: remainders in y may have gone from the value, as in
    (x % 32 * 9 + i) // 96 and (x * 9 + i) % 96."""
    if not isinstance(e, FloorDiv) or not isinstance(e.b, Const) or int(e.b.value) != n:
        return False
    difference = scope.form(e.a).minus(value)
    for atom, c in list(difference.terms.items()):
        if isinstance(atom, FloorMod) and isinstance(atom.b, Const) and c * int(atom.b.value) % n == 0:
            difference = difference.without(atom).plus(scope.form(atom.a), c)
    return difference.constant % n == 0 and all(c % n == 0 for c in difference.terms.values())


def _digit_above(e: Expr, quotient: Expr) -> bool:
    """True for quotient % m, the digit above the one that `quotient` was divided off."""
    return isinstance(e, FloorMod) and e.a is quotient and isinstance(e.b, Const)


def _floordiv(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, FloorDiv)
    if not is_index_type(e.dtype) or not isinstance(e.b, Const) or int(e.b.value) <= 0:
        return scope.intern(e)
    divisor = int(e.b.value)
    form = scope.form(e.a)
    if not scope._is_exact(form, e.dtype):
        return scope.intern(e)
    if divisor == 1:
        return e.a
    quotient = Form({a: c // divisor for a, c in form.terms.items() if c % divisor == 0}, form.constant // divisor)
    rest = Form({a: c for a, c in form.terms.items() if c % divisor}, form.constant % divisor)
    low, high = scope.const_bounds(rest)
    if low is not None and high is not None and low // divisor == high // divisor:
        return scope.to_expr(quotient.shifted(low // divisor), e.dtype)
    common = divisor
    for c in rest.terms.values():
        common = gcd(common, c)
    if common > 1:
        rest = Form({a: c // common for a, c in rest.terms.items()}, rest.constant // common)
        divisor //= common
    if len(rest.terms) == 1 and rest.constant == 0:
        ((only, c),) = rest.terms.items()
        if c == 1 and isinstance(only, FloorDiv) and isinstance(only.b, Const) and int(only.b.value) > 0:
            rest, divisor = scope.form(only.a), divisor * int(only.b.value)
            inner = scope.simplify(FloorDiv(only.a, const(divisor, e.dtype), e.dtype))
            return scope.to_expr(quotient.plus(scope.form(inner)), e.dtype)
    numerator = scope.to_expr(rest, e.dtype)
    atom = scope.intern(FloorDiv(numerator, scope.intern(const(divisor, e.dtype)), e.dtype))
    scope._forms.setdefault(atom, Form({atom: 1}, 0))
    scope._memo[atom] = atom
    return scope.to_expr(quotient.plus(Form({atom: 1}, 0)), e.dtype)


def _floormod(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, FloorMod)
    if not is_index_type(e.dtype) or not isinstance(e.b, Const) or int(e.b.value) <= 0:
        return scope.intern(e)
    divisor = int(e.b.value)
    form = scope.form(e.a)
    if not scope._is_exact(form, e.dtype):
        return scope.intern(e)
    rest = Form({a: c for a, c in form.terms.items() if c % divisor}, form.constant % divisor)
    low, high = scope.const_bounds(rest)
    if low is not None and high is not None and low // divisor == high // divisor:
        return scope.to_expr(rest.shifted(-divisor * (low // divisor)), e.dtype)
    common = divisor
    for c in rest.terms.values():
        common = gcd(common, c)
    offset = rest.constant % common
    if common > 1:
        rest = Form({a: c // common for a, c in rest.terms.items()}, rest.constant // common)
    divisor //= common
    numerator = scope.to_expr(rest, e.dtype)
    atom = scope.intern(FloorMod(numerator, scope.intern(const(divisor, e.dtype)), e.dtype))
    scope._forms.setdefault(atom, Form({atom: 1}, 0))
    scope._memo[atom] = atom
    return scope.to_expr(Form({atom: common}, offset), e.dtype)


def _truncdiv(scope: IndexScope, e: Expr) -> Expr:
    """Truncating division of a provably non-negative value by a positive literal is floor division."""
    assert isinstance(e, Binary)
    if is_index_type(e.dtype) and isinstance(e.b, Const) and int(e.b.value) > 0 and scope._compares_indices(e):
        low, _ = scope.bounds(e.a)
        if low is not None and low >= 0:
            cls = FloorDiv if isinstance(e, TruncDiv) else FloorMod
            return scope.simplify(cls(e.a, e.b, e.dtype))
    return scope.intern(e)


def _extremum(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Binary)
    if not is_index_type(e.dtype):
        return scope.intern(e)
    if e.a is e.b:
        return e.a
    if not scope._compares_indices(e):
        return scope.intern(e)
    difference = scope.form(e.a).minus(scope.form(e.b))
    # Only what the ranges alone say may enter the canonical form: assumed conditions come and go.
    low, high = scope.const_bounds(difference)
    above = (low is not None and low >= 0) or scope._eliminate(difference, _PROOF_DEPTH)
    below = (high is not None and high <= 0) or scope._eliminate(difference.scaled(-1), _PROOF_DEPTH)
    if above:
        return e.a if isinstance(e, Max) else e.b
    if below:
        return e.b if isinstance(e, Max) else e.a
    return scope.intern(e)


def _compare(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Compare)
    if not scope._compares_indices(e):
        return scope.intern(e)
    difference = scope.form(e.b).minus(scope.form(e.a))
    low, high = scope.const_bounds(difference)
    verdict: bool | None = None
    if isinstance(e, (EQ, NE)):
        if low is not None and low == high:
            verdict = (low == 0) == isinstance(e, EQ)
        elif (low is not None and low > 0) or (high is not None and high < 0):
            verdict = isinstance(e, NE)
    else:
        least = 1 if isinstance(e, LT) else 0
        if low is not None and low >= least:
            verdict = True
        elif high is not None and high < least:
            verdict = False
    if verdict is not None:
        return scope.intern(const(verdict))
    return scope.intern(e)


def _and(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, And)
    for side, other in ((e.a, e.b), (e.b, e.a)):
        if isinstance(side, Const):
            return other if side.value else side
    return e.a if e.a is e.b else scope.intern(e)


def _or(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Or)
    for side, other in ((e.a, e.b), (e.b, e.a)):
        if isinstance(side, Const):
            return side if side.value else other
    return e.a if e.a is e.b else scope.intern(e)


def _not(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Not)
    if isinstance(e.a, Const):
        return scope.intern(const(not e.a.value))
    return e.a.a if isinstance(e.a, Not) else scope.intern(e)


def _choice(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, (Select, IfThenElse))
    taken = literal_condition(e.condition)
    if taken is not None:
        return e.a if taken else e.b
    return scope.intern(e)


def _cast(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Cast)
    if e.value.dtype == e.dtype:
        return e.value
    if isinstance(e.value, Const) and e.value.dtype.is_integer and e.dtype.is_integer:
        return scope.intern(cast(e.value, e.dtype))
    return scope.intern(e)


def _let(scope: IndexScope, e: Expr) -> Expr:
    assert isinstance(e, Let)
    return e


_RULES: dict[type, Callable[[IndexScope, Expr], Expr]] = {
    Add: _sum,
    Sub: _sum,
    Mul: _product,
    FloorDiv: _floordiv,
    FloorMod: _floormod,
    TruncDiv: _truncdiv,
    TruncMod: _truncdiv,
    Min: _extremum,
    Max: _extremum,
    EQ: _compare,
    NE: _compare,
    LT: _compare,
    LE: _compare,
    And: _and,
    Or: _or,
    Not: _not,
    Select: _choice,
    IfThenElse: _choice,
    Cast: _cast,
    Let: _let,
}


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The row-major strides of a buffer in elements."""
    result: list[Expr] = []
    stride: Expr = const(1, buffer.shape[0].dtype if buffer.shape else dtypes.INDEX)
    for extent in reversed(buffer.shape):
        result.append(stride)
        stride = stride * extent
    return tuple(reversed(result))
