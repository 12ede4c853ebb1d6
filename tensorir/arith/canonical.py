"""The canonical form of integer expressions: const + sum of coefficient * atom.

Atoms are variables, floor quotients, minima, products of atoms and opaque expressions. Everything is interned in one
`Forms`, so equal sums are one object. Three decisions carry most of the algebra:

- a floor remainder x % c is held as x - c*(x // c), so that splitting and fusing again cancels by itself; `view` finds
  the remainders back for printing and for bounds;
- max(a, b) is held as -min(-a, -b);
- a quotient (sum) // c gives up what c divides, what its bounds decide, and the common factors with c.

Values are mathematical integers. Index arithmetic (the index type over loop variables and dimensions) does not
overflow and does not divide by a symbol that is zero; for every other integer type a rule on quotients, minima or
comparisons applies only where the bounds prove that nothing wraps (`fits`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from tensorir import dtypes
from tensorir.arith import interval as iv
from tensorir.arith.interval import EVERYTHING, Interval
from tensorir.dtypes import DType
from tensorir.expr import (
    Add,
    BitAnd,
    Call,
    Cast,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Max,
    Min,
    Mul,
    Select,
    ShiftRight,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
)
from tensorir.visit import walk_expr

VAR, OPAQUE, QUOTIENT, MINIMUM, PRODUCT = range(5)
_LIMIT = 1 << 62
_INDEX = dtypes.INDEX


class Linear:
    """const + sum of terms[atom] * atom. Made by `Forms` only; identity is equality."""

    __slots__ = ("const", "terms", "view", "range", "stamp", "expr", "key", "data")

    def __init__(self, constant: int, terms: dict[Atom, int]) -> None:
        self.const = constant
        self.terms = terms
        self.view: View | None = None
        self.range: Interval = EVERYTHING
        self.stamp = -1
        self.expr: Expr | None = None
        self.key: tuple | None = None
        self.data = False

    @property
    def is_const(self) -> bool:
        """True for a known number."""
        return not self.terms


class Atom:
    """What a linear form sums up. `args` depends on the kind: VAR and OPAQUE the expression; QUOTIENT (numerator,
    divisor) with a positive constant or a symbolic divisor; MINIMUM the operands; PRODUCT the factor atoms."""

    __slots__ = ("kind", "args", "serial", "data", "variables", "key", "dtype", "depth")

    def __init__(
        self, kind: int, args: tuple, serial: int, dtype: DType, data: bool, variables: frozenset[Var]
    ) -> None:
        self.kind = kind
        self.args = args
        self.serial = serial
        self.dtype = dtype
        self.data = data
        self.variables = variables
        self.depth = self._nesting()  # of quotients
        self.key = self._sort_key()

    def _nesting(self) -> int:
        if self.kind == PRODUCT:
            return max(a.depth for a in self.args)
        if self.kind in (QUOTIENT, MINIMUM):
            inner = max((a.depth for form in self.args for a in form.terms), default=0)
            return inner + (self.kind == QUOTIENT)
        return 0

    def _sort_key(self) -> tuple:
        if self.kind == VAR:
            return (VAR, self.args[0].name, self.serial)
        if self.kind == QUOTIENT:
            return (QUOTIENT, "", sort_key(self.args[0]), sort_key(self.args[1]))
        if self.kind == MINIMUM:
            return (MINIMUM, "", tuple(sort_key(a) for a in self.args))
        if self.kind == PRODUCT:
            return (PRODUCT, "", tuple(sorted(a.key for a in self.args)))
        return (OPAQUE, type(self.args[0]).__name__, self.serial)


def sort_key(form: Linear) -> tuple:
    """A key that orders forms without regard to the order in which they were met (but for equal names)."""
    if form.key is None:
        form.key = (tuple(sorted((a.key, k) for a, k in form.terms.items())), form.const)
    return form.key


class Modulo:
    """A remainder found in a form by its view: `value` % `divisor` (a positive number, or a symbol's form)."""

    __slots__ = ("value", "divisor")

    def __init__(self, value: Linear, divisor: int | Linear) -> None:
        self.value = value
        self.divisor = divisor


class View:
    """A form with its remainders made visible: const + atoms + remainders."""

    __slots__ = ("const", "terms", "remainders")

    def __init__(self, constant: int, terms: dict[Atom, int], remainders: list[tuple[Modulo, int]]) -> None:
        self.const = constant
        self.terms = terms
        self.remainders = remainders


class Overflow(Exception):
    """A form of a narrow type that may leave its range where a rule needs it exact."""


class Forms:
    """The interned forms and atoms, and what is known of the ranges of atoms."""

    def __init__(self) -> None:
        self._forms: dict[tuple, Linear] = {}
        self._atoms: dict[tuple, Atom] = {}
        self._variables: dict[Var, Atom] = {}
        self.ranges: dict[Atom, Interval] = {}
        self.stamp = 0
        self.decisions = 0
        self._literals: dict[int, Const] = {}
        self.zero = self._form(0, {})
        self.one = self._form(1, {})

    # ------------------------------------------------------------------------------------------------ building

    def _form(self, constant: int, terms: dict[Atom, int]) -> Linear:
        if len(terms) == 1:
            ((atom, k),) = terms.items()
            key: tuple = (constant, atom, k)
        elif terms:
            key = (constant, frozenset(terms.items()))
        else:
            key = (constant,)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = Linear(constant, terms)
            for atom in terms:
                if atom.data:
                    found.data = True
        return found

    def constant(self, value: int) -> Linear:
        """A number as a form."""
        return self._form(value, {})

    def of(self, atom: Atom, k: int = 1) -> Linear:
        """k * atom."""
        return self._form(0, {atom: k})

    def variable(self, var: Var) -> Atom:
        """The atom of a variable."""
        atom = self._variables.get(var)
        if atom is None:
            data = var.dtype != _INDEX
            atom = self._variables[var] = Atom(
                VAR, (var,), len(self._atoms) + len(self._variables), var.dtype, data, frozenset((var,))
            )
        return atom

    def _atom(self, key: tuple, kind: int, args: tuple, dtype: DType, data: bool, variables: frozenset[Var]) -> Atom:
        atom = Atom(kind, args, len(self._atoms) + len(self._variables), dtype, data, variables)
        self._atoms[key] = atom
        return atom

    def opaque(self, e: Expr) -> Atom:
        """The atom of an expression that the forms do not look into; `e` must be interned by the caller."""
        key = (OPAQUE, id(e))
        found = self._atoms.get(key)
        if found is None:
            variables = frozenset(n for n in walk_expr(e) if isinstance(n, Var))
            found = self._atom(key, OPAQUE, (e,), e.dtype, True, variables)
        return found

    def sum(self, parts: Iterable[tuple[Linear, int]], constant: int = 0) -> Linear:
        """constant + sum of k * form."""
        terms: dict[Atom, int] = {}
        for form, k in parts:
            constant += form.const * k
            for atom, c in form.terms.items():
                terms[atom] = terms.get(atom, 0) + c * k
        if 0 in terms.values():
            terms = {a: k for a, k in terms.items() if k}
        return self._form(constant, terms)

    def plus(self, a: Linear, b: Linear, k: int = 1) -> Linear:
        """a + k*b."""
        if not b.terms:
            return self.shift(a, b.const * k)
        terms = dict(a.terms)
        for atom, c in b.terms.items():
            total = terms.get(atom, 0) + c * k
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return self._form(a.const + b.const * k, terms)

    def shift(self, a: Linear, constant: int) -> Linear:
        """a + constant."""
        return self._form(a.const + constant, a.terms) if constant else a

    def scale(self, a: Linear, k: int) -> Linear:
        """a * k."""
        if k == 1:
            return a
        return self._form(a.const * k, {x: c * k for x, c in a.terms.items()} if k else {})

    def cancel_quotients(self, form: Linear) -> Linear:
        """With k*(A // c) - k*(B // c) written as k*(A - B)/c where c divides A - B: two ways to write the digits of
        one number, such as (x % 32 * 9 + i) // 96 and (x * 9 + i) // 96."""
        quotients = [a for a in form.terms if a.kind == QUOTIENT and not a.args[1].terms]
        for n, a in enumerate(quotients):
            k, c = form.terms[a], a.args[1].const
            for b in quotients[n + 1 :]:
                if form.terms[b] != -k or b.args[1] is not a.args[1]:
                    continue
                difference = self.plus(a.args[0], b.args[0], -1)
                if any(step % c for step in (difference.const, *difference.terms.values())):
                    continue
                rest = {x: step for x, step in form.terms.items() if x is not a and x is not b}
                whole = self.exact_quotient(difference, c)
                return self.cancel_quotients(self.plus(self._form(form.const, rest), whole, k))
        return form

    def exact_quotient(self, a: Linear, k: int) -> Linear:
        """a / k where k divides every coefficient and the constant."""
        return a if k == 1 else self._form(a.const // k, {x: c // k for x, c in a.terms.items()})

    def multiply(self, a: Linear, b: Linear) -> Linear | None:
        """a * b, expanded; None if that would be too long."""
        if not b.terms:
            return self.scale(a, b.const)
        if not a.terms:
            return self.scale(b, a.const)
        if len(a.terms) * len(b.terms) > 24:
            return None
        parts: list[tuple[Linear, int]] = []
        for x, k in a.terms.items():
            if b.const:
                parts.append((self.of(x), k * b.const))
            for y, c in b.terms.items():
                parts.append((self.of(self.product(x, y)), k * c))
        if a.const:
            parts.append((self.scale(b, a.const), 1))
            return self.sum(parts)
        return self.sum(parts)

    def product(self, x: Atom, y: Atom) -> Atom:
        """The product of two atoms as an atom."""
        factors = (*(x.args if x.kind == PRODUCT else (x,)), *(y.args if y.kind == PRODUCT else (y,)))
        factors = tuple(sorted(factors, key=_serial))
        key = (PRODUCT, *(f.serial for f in factors))
        found = self._atoms.get(key)
        if found is None:
            found = self._atom(key, PRODUCT, factors, x.dtype, x.data or y.data, x.variables | y.variables)
        return found

    def monomial(self, factors: Iterable[Atom]) -> Linear:
        """The product of atoms; 1 for none."""
        total: Atom | None = None
        for factor in factors:
            total = factor if total is None else self.product(total, factor)
        return self.one if total is None else self.of(total)

    # -------------------------------------------------------------------------------------------------- bounds

    def interval(self, form: Linear) -> Interval:
        """Constant bounds of a form under the ranges known now."""
        if form.stamp == self.stamp:
            return form.range
        if not form.terms:
            result = Interval(form.const, form.const)
        else:
            view = form.view or self.view(form)
            lo: int | None = view.const
            hi: int | None = view.const
            for atom, k in view.terms.items():
                a, b = self.atom_interval(atom)
                if k < 0:
                    a, b = b, a
                lo = None if lo is None or a is None else lo + a * k
                hi = None if hi is None or b is None else hi + b * k
            for item, k in view.remainders:
                a, b = self.remainder_interval(item)
                if k < 0:
                    a, b = b, a
                lo = None if lo is None or a is None else lo + a * k
                hi = None if hi is None or b is None else hi + b * k
            result = Interval(lo, hi)
        form.range, form.stamp = result, self.stamp
        return result

    def remainder_interval(self, item: Modulo) -> Interval:
        """Bounds of a remainder: what the numerator's bounds and the common factor with the divisor leave."""
        c = item.divisor
        if isinstance(c, Linear):
            return iv.floor_modulo(self.interval(item.value), self.interval(c))
        a, b = self.interval(item.value)
        if a is not None and b is not None and a // c == b // c:
            return Interval(a % c, b % c)
        g = c
        for k in item.value.terms.values():
            g = gcd(g, k)
        rest = item.value.const % g
        return Interval(rest, c - g + rest)

    def atom_interval(self, atom: Atom) -> Interval:
        """Bounds of an atom: what its operands say, met with what is known of itself."""
        known = self.ranges.get(atom)
        if atom.kind == VAR:
            if known is not None:
                return known
            t = atom.dtype
            return EVERYTHING if t == _INDEX else Interval(t.min_value, t.max_value)
        if atom.kind == QUOTIENT:
            result = iv.floor_divide(self.interval(atom.args[0]), self.interval(atom.args[1]))
        elif atom.kind == MINIMUM:
            result = self.interval(atom.args[0])
            for operand in atom.args[1:]:
                result = iv.minimum(result, self.interval(operand))
        elif atom.kind == PRODUCT:
            result = self.atom_interval(atom.args[0])
            for factor in atom.args[1:]:
                result = iv.multiply(result, self.atom_interval(factor))
            if len(atom.args) == 2 and atom.args[0] is atom.args[1]:
                result = iv.intersect(result, Interval(0, None))
        else:
            result = self.opaque_interval(atom.args[0])
        return result if known is None else iv.intersect(result, known)

    def linear(self, e: Expr) -> Linear:
        """The form of an integer expression (given by the analyzer)."""
        raise NotImplementedError

    def value_interval(self, e: Expr) -> Interval:
        """Bounds of the value of an integer expression, wrapping counted in."""
        form, t = self.linear(e), e.dtype
        result = self.interval(form)
        if t == _INDEX and not form.data or result.within(t.min_value, t.max_value):
            return result
        return Interval(t.min_value, t.max_value)

    def opaque_interval(self, e: Expr) -> Interval:
        """Bounds of an expression that is an atom as a whole."""
        t = e.dtype
        whole = Interval(t.min_value, t.max_value)
        if t.is_bool:
            return iv.BIT
        result = EVERYTHING
        if isinstance(e, (Select, IfThenElse)):
            result = iv.union(self.value_interval(e.a), self.value_interval(e.b))
        elif isinstance(e, Cast) and not e.value.dtype.is_float:
            result = iv.BIT if e.value.dtype.is_bool else self.value_interval(e.value)
        elif isinstance(e, (Min, Max)):
            a, b = self.value_interval(e.a), self.value_interval(e.b)
            result = iv.minimum(a, b) if isinstance(e, Min) else iv.maximum(a, b)
        elif isinstance(e, BitAnd):
            a, b = self.value_interval(e.a), self.value_interval(e.b)
            ends = [x.hi for x in (a, b) if x.lo is not None and x.lo >= 0 and x.hi is not None]
            result = Interval(0, min(ends)) if ends else EVERYTHING
        elif isinstance(e, ShiftRight):
            a, b = self.value_interval(e.a), self.value_interval(e.b)
            if a.is_finite and b.within(0, t.bits - 1):
                assert a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None
                ends = [x >> y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
                result = Interval(min(ends), max(ends))
        elif isinstance(e, (TruncMod, FloorMod)):
            result = self._remainder_of_data(e)
        elif isinstance(e, (FloorDiv, TruncDiv)):
            result = self._quotient_of_data(e)
        elif isinstance(e, Call) and e.name == "abs":
            a = self.value_interval(e.args[0])
            if a.is_finite and a.lo is not None and a.hi is not None and a.lo > t.min_value:
                result = Interval(0 if 0 in a else min(abs(a.lo), abs(a.hi)), max(abs(a.lo), abs(a.hi)))
        result = iv.intersect(result, whole) if t != _INDEX or not result.is_finite else result
        if (
            result.lo is not None
            and result.hi is not None
            and (result.lo > result.hi or not result.within(t.min_value, t.max_value))
        ):
            return whole
        return result

    def _remainder_of_data(self, e: TruncMod | FloorMod) -> Interval:
        a, b = self.value_interval(e.a), self.value_interval(e.b)
        if not b.is_finite:
            return EVERYTHING
        assert b.lo is not None and b.hi is not None
        largest = max(abs(b.lo), abs(b.hi), 1) - 1
        if isinstance(e, TruncMod):
            lo, hi = (
                (0 if a.lo is not None and a.lo >= 0 else -largest),
                (0 if a.hi is not None and a.hi <= 0 else largest),
            )
            return Interval(lo, hi)
        return Interval(0 if b.lo >= 0 else -largest, 0 if b.hi <= 0 else largest)

    def _quotient_of_data(self, e: FloorDiv | TruncDiv) -> Interval:
        a, b = self.value_interval(e.a), self.value_interval(e.b)
        if not a.is_finite or a.lo is None or a.hi is None:
            return EVERYTHING
        largest = max(abs(a.lo), abs(a.hi))
        if a.lo >= 0 and b.lo is not None and b.lo >= 0:
            return Interval(0, largest)
        return Interval(-largest, largest)

    def fits(self, form: Linear, dtype: DType) -> bool:
        """Whether the mathematical value of `form` is the value that arithmetic in `dtype` gives."""
        if dtype is _INDEX or dtype == _INDEX:
            if not form.data:
                return True
            total = 0
            for atom, k in form.terms.items():
                if atom.data:
                    a, b = self.atom_interval(atom)
                    if a is None or b is None:
                        return False
                    total += max(abs(a), abs(b)) * abs(k)
            return total < _LIMIT or len(form.terms) == 1 and not form.const and 1 in form.terms.values()
        return self.interval(form).within(dtype.min_value, dtype.max_value)

    # ------------------------------------------------------------------------------------------------ quotients

    def floor_divide(self, a: Linear, b: Linear, dtype: DType) -> Linear:
        """a // b with b not zero. Raises `Overflow` if a numerator that must be kept does not fit `dtype`."""
        if b.terms:
            return self._divide_by_symbol(a, b, dtype)
        c = b.const
        return self.divide(self.scale(a, -1), -c, dtype) if c < 0 else self.divide(a, c, dtype)

    def floor_modulo(self, a: Linear, b: Linear, dtype: DType) -> Linear:
        """a % b with b not zero, as a - b*(a // b) with what b divides left out of a first."""
        if b.terms:
            quotient = self._divide_by_symbol(a, b, dtype)
            product = self.multiply(quotient, b)
            if product is None:
                raise Overflow
            return self.plus(a, product, -1)
        c = b.const
        if c < 0:
            return self.scale(self.floor_modulo(self.scale(a, -1), self.constant(-c), dtype), -1)
        lo, hi = self.interval(a)
        if lo is not None and hi is not None and lo // c == hi // c:
            return self.shift(a, -(lo // c) * c)
        reduced = {x: k for x, k in a.terms.items() if k % c}
        if len(reduced) == 1:
            ((x, k),) = reduced.items()
            reduced = {x: _toward_zero(k, c)[1]}
        b_form = self._form(a.const % c, reduced)
        return self.plus(b_form, self.divide(b_form, c, dtype), -c)

    def divide(self, a: Linear, c: int, dtype: DType) -> Linear:
        """a // c for a positive number c."""
        if c == 1:
            return a
        if not a.terms:
            return self.constant(a.const // c)
        lo, hi = self.interval(a)
        if lo is not None and hi is not None and lo // c == hi // c:
            self.decisions += 1
            return self.constant(lo // c)
        view = a.view or self.view(a)
        whole: list[tuple[Linear, int]] = []
        rest: list[tuple[Linear, int]] = []
        offset, constant = divmod(view.const, c)
        for atom, k in view.terms.items():
            if k % c:
                rest.append((self.of(atom), k))
            else:
                whole.append((self.of(atom), k // c))
        remainders: list[tuple[Modulo, int]] = []
        for item, k in view.remainders:
            form = self._remainder_form(item)
            if k % c:
                rest.append((form, k))
                remainders.append((item, k))
            else:
                whole.append((form, k // c))
        if len(rest) == 1:
            form, k = rest[0]
            if remainders and not constant:
                item, k = remainders[0]
                if (
                    k == 1 and isinstance(item.divisor, int) and item.divisor % c == 0
                ):  # (x % (m*c)) // c = x//c - m*(x//(m*c))
                    whole.append((self.divide(item.value, c, dtype), 1))
                    whole.append((self.divide(item.value, item.divisor, dtype), -(item.divisor // c)))
                    return self.sum(whole, offset)
            elif not remainders and abs(k) > c:
                q, k = _toward_zero(k, c)
                whole.append((form, q))
                rest = [(form, k)]
        numerator = self.sum(rest, constant)
        return self.sum([*whole, (self._divide_rest(numerator, c, dtype), 1)], offset)

    def _divide_rest(self, a: Linear, c: int, dtype: DType) -> Linear:
        """a // c where nothing in a is a multiple of c."""
        lo, hi = self.interval(a)
        if lo is not None and hi is not None and lo // c == hi // c:
            self.decisions += 1
            return self.constant(lo // c)
        g = c
        for k in a.terms.values():
            g = gcd(g, k)
        if g > 1:  # (g*s + r) // (g*d) = (s + r//g) // d
            return self.divide(self.exact_quotient(self.shift(a, a.const // g * g - a.const), g), c // g, dtype)
        if len(a.terms) == 1:
            ((atom, k),) = a.terms.items()
            if k == 1 and atom.kind == QUOTIENT and not atom.args[1].terms:  # (z//b + r) // c = (z + r*b) // (b*c)
                inner, b = atom.args[0], atom.args[1].const
                if b * c <= dtype.max_value:
                    return self.divide(self.shift(inner, a.const * b), b * c, dtype)
        else:
            for g in sorted({gcd(k, c) for k in a.terms.values()} - {1}, reverse=True):
                small = self._form(a.const, {x: k for x, k in a.terms.items() if k % g})
                lo, hi = self.interval(small)
                if lo is not None and hi is not None and lo // g == hi // g:  # (g*s + r) // (g*d) with r in one block
                    self.decisions += small.terms != {}
                    big = self._form(0, {x: k // g for x, k in a.terms.items() if k % g == 0})
                    return self.divide(self.shift(big, lo // g), c // g, dtype)
        return self.of(self._quotient(a, self.constant(c), dtype))

    def _quotient(self, a: Linear, b: Linear, dtype: DType) -> Atom:
        key = (QUOTIENT, a, b)
        found = self._atoms.get(key)
        if found is None:
            if not self.fits(a, dtype):
                raise Overflow
            variables = frozenset(v for form in (a, b) for x in form.terms for v in x.variables)
            found = self._atom(key, QUOTIENT, (a, b), dtype, a.data or b.data, variables)
        return found

    def _divide_by_symbol(self, a: Linear, b: Linear, dtype: DType) -> Linear:
        """a // b for a symbolic b: multiples of b leave, then a rest that lies in 0 .. b, or in -b .. 0, is decided."""
        quotient, rest = self.zero, a
        if len(b.terms) == 1 and not b.const:
            ((divisor, scale),) = b.terms.items()
            wanted = divisor.args if divisor.kind == PRODUCT else (divisor,)
            for atom, k in a.terms.items():
                if k % scale:
                    continue
                left = list(atom.args if atom.kind == PRODUCT else (atom,))
                try:
                    for factor in wanted:
                        left.remove(factor)
                except ValueError:
                    continue
                quotient = self.plus(quotient, self.monomial(left), k // scale)
                rest = self.plus(rest, self.of(atom), -k)
        else:
            lead = min(b.terms, key=_serial)
            k, remainder = divmod(a.terms.get(lead, 0), b.terms[lead])
            if k and not remainder:
                quotient, rest = self.constant(k), self.plus(a, b, -k)
        if rest is self.zero:
            return quotient
        # either says that b is positive: an iteration of a loop to b may rely on it
        if self.le0(self.shift(self.plus(rest, b, -1), 1)) and self.le0(self.scale(rest, -1)):
            return quotient
        if self.le0(self.shift(rest, 1)) and self.le0(self.scale(self.plus(rest, b), -1)):
            return self.shift(quotient, -1)
        return self.plus(quotient, self.of(self._quotient(rest, b, dtype)))

    def le0(self, form: Linear) -> bool:
        """Whether form <= 0 is proved; the analyzer overrides this with all it knows."""
        hi = self.interval(form).hi
        return hi is not None and hi <= 0

    def _remainder_form(self, item: Modulo) -> Linear:
        c = item.divisor
        if isinstance(c, int):
            return self.plus(item.value, self.divide(item.value, c, _INDEX), -c)
        product = self.multiply(self._divide_by_symbol(item.value, c, _INDEX), c)
        assert product is not None
        return self.plus(item.value, product, -1)

    # ------------------------------------------------------------------------------------------------- remainders

    def view(self, form: Linear) -> View:
        """The form with each P - c*(P // c) in it shown as the remainder P % c."""
        if form.view is not None:
            return form.view
        quotients = [a for a in form.terms if a.kind == QUOTIENT and not a.args[1].terms]
        products = [a for a in form.terms if a.kind == PRODUCT and a.depth]
        if not quotients and not products:
            form.view = View(form.const, form.terms, [])
            return form.view
        quotients.sort(key=_divisor_first)
        terms, constant = dict(form.terms), form.const
        remainders: list[tuple[Modulo, int]] = []
        for atom in sorted(products, key=_depth_first):
            constant -= self._take_symbolic_remainder(terms, atom, remainders)
        for atom in quotients:
            m = terms.get(atom)
            if m is None:
                continue
            c = atom.args[1].const
            divisors = [c]
            for other in quotients:
                b = other.args[1].const
                if other is not atom and b < c and c % b == 0 and other in terms:
                    divisors.append(c // b)
            for d in divisors:
                if m % d:
                    continue
                n = -m // d
                before = self.decisions
                try:
                    value = atom.args[0] if d == c else self.divide(atom.args[0], c // d, atom.dtype)
                except Overflow:
                    continue
                if self.decisions != before:  # true only under the ranges of now, but views are kept
                    continue
                if not value.terms or not _contains(terms, value, n, atom):
                    continue
                constant -= _take(terms, value, n, atom)
                remainders.append((Modulo(value, d), n))
                break
        form.view = View(constant, terms, remainders)
        return form.view

    def _take_symbolic_remainder(self, terms: dict[Atom, int], atom: Atom, remainders: list[tuple[Modulo, int]]) -> int:
        """Shows n*(y - d*(y // d)) for a symbol d as n * (y % d); gives the constant that went into it."""
        for quotient in atom.args if atom in terms else ():
            if quotient.kind != QUOTIENT or not quotient.args[1].terms:
                continue
            others = list(atom.args)
            others.remove(quotient)
            value, divisor = quotient.args
            n = -terms[atom]
            if divisor is self.monomial(others) and value.terms and _contains(terms, value, n, atom):
                remainders.append((Modulo(value, divisor), n))
                return _take(terms, value, n, atom)
        return 0

    # ---------------------------------------------------------------------------------------------------- minima

    def minimum(self, operands: Iterable[Linear], dtype: DType) -> Linear:
        """The smallest of several forms: dominated ones leave, common terms and factors come out."""
        flat: list[Linear] = []
        for operand in operands:
            if len(operand.terms) == 1:
                ((atom, k),) = operand.terms.items()
                if k == 1 and atom.kind == MINIMUM:
                    flat += [self.shift(x, operand.const) for x in atom.args]
                    continue
            flat.append(operand)
        kept: list[Linear] = []
        for operand in flat:
            for position, other in enumerate(kept):
                difference = self.plus(operand, other, -1)
                if self.le0(self.scale(difference, -1)):
                    break
                if self.le0(difference):
                    kept[position] = operand
                    break
            else:
                kept.append(operand)
        kept = list({id(k): k for k in kept}.values())
        if len(kept) == 1:
            return kept[0]
        if len(kept) < len(flat) and len(kept) > 1 and len(flat) > 2:
            return self.minimum(kept, dtype)
        first = kept[0]
        common = {a: k for a, k in first.terms.items() if all(other.terms.get(a) == k for other in kept[1:])}
        if common:
            base = self._form(0, common)
            return self.plus(base, self.minimum([self.plus(x, base, -1) for x in kept], dtype))
        kept.sort(key=sort_key)
        constant = next((x for x in kept if x.terms), kept[0]).const
        shifted = [self.shift(x, -constant) for x in kept]
        g = 0
        for x in shifted:
            g = gcd(g, x.const)
            for k in x.terms.values():
                g = gcd(g, k)
        shifted = [self.exact_quotient(x, g) for x in shifted] if g > 1 else shifted
        key = (MINIMUM, frozenset(shifted))
        known = self._atoms.get(key)
        if known is None:
            variables = frozenset(v for form in shifted for x in form.terms for v in x.variables)
            data = any(x.data for x in shifted)
            known = self._atom(key, MINIMUM, tuple(shifted), dtype, data, variables)
        return self._form(constant, {known: max(g, 1)})

    def maximum(self, operands: Iterable[Linear], dtype: DType) -> Linear:
        """The largest of several forms, as minus the minimum of their negatives."""
        return self.scale(self.minimum([self.scale(x, -1) for x in operands], dtype), -1)

    # -------------------------------------------------------------------------------------------------- emission

    def emit(self, form: Linear, dtype: DType) -> Expr:
        """The expression of a form, the same object for the same form: remainders shown, larger coefficients first,
        differences as subtractions."""
        if form.expr is not None and form.expr.dtype == dtype:
            return form.expr
        result = self._emit(form, dtype)
        form.expr = result
        return result

    def _literal_expr(self, value: int, dtype: DType) -> Const:
        if dtype is not _INDEX:
            return const(value, dtype)
        found = self._literals.get(value)
        if found is None:
            found = self._literals[value] = const(value, dtype)
        return found

    def _emit(self, form: Linear, dtype: DType) -> Expr:
        if not form.terms:
            return self._literal_expr(form.const, dtype)
        if len(form.terms) == 1:
            ((atom, k),) = form.terms.items()
            if k == 1 and not form.const:
                return self._emit_atom(atom, dtype)
            if abs(k) == 1 and atom.kind == MINIMUM:
                return self._emit_minimum([self.shift(self.scale(x, k), form.const) for x in atom.args], k, dtype)
        view = form.view or self.view(form)
        if view.remainders and dtype != _INDEX:
            if not all(self.fits(item.value, dtype) for item, _ in view.remainders):
                view = View(form.const, form.terms, [])
        parts: list[tuple[tuple, int, Expr]] = []
        for atom, k in view.terms.items():
            if atom.kind == MINIMUM and shows_as_maximum(atom, k):
                e = self._emit_minimum([self.scale(x, -1) for x in atom.args], -1, dtype)
                k = -k
            else:
                e = self._emit_atom(atom, dtype)
            degree = len(atom.args) if atom.kind == PRODUCT else 1
            parts.append(((k < 0, -degree, -abs(k), atom.key), k, e))
        for item, k in view.remainders:
            c = item.divisor
            divisor = self.emit(c if isinstance(c, Linear) else self.constant(c), dtype)
            e = FloorMod(self.emit(item.value, dtype), divisor, dtype)
            order = (QUOTIENT, "%", sort_key(item.value), sort_key(c) if isinstance(c, Linear) else ((), c))
            parts.append(((k < 0, -1, -abs(k), order), k, e))
        parts.sort(key=_first)
        constant = view.const
        result: Expr | None = None
        if constant > 0 and parts[0][1] < 0:
            result, constant = self._literal_expr(constant, dtype), 0
        for _, k, e in parts:
            if result is None:
                result = e if k == 1 else Mul(e, self._literal_expr(k, dtype), dtype)
                continue
            term = e if abs(k) == 1 else Mul(e, self._literal_expr(abs(k), dtype), dtype)
            result = Add(result, term, dtype) if k > 0 else Sub(result, term, dtype)
        assert result is not None
        if constant > 0:
            result = Add(result, self._literal_expr(constant, dtype), dtype)
        elif constant < 0:
            result = Sub(result, self._literal_expr(-constant, dtype), dtype)
        return result

    def _emit_minimum(self, operands: list[Linear], sign: int, dtype: DType) -> Expr:
        """min of the operands, or max for sign -1, constants last."""
        cls = Min if sign > 0 else Max
        ordered = [x for x in operands if x.terms] + [x for x in operands if not x.terms]
        result = self.emit(ordered[0], dtype)
        for operand in ordered[1:]:
            result = cls(result, self.emit(operand, dtype), dtype)
        return result

    def _emit_atom(self, atom: Atom, dtype: DType) -> Expr:
        if atom.kind in (VAR, OPAQUE):
            return atom.args[0]
        if atom.kind == QUOTIENT:
            return FloorDiv(self.emit(atom.args[0], dtype), self.emit(atom.args[1], dtype), dtype)
        if atom.kind == MINIMUM:
            return self._emit_minimum(list(atom.args), 1, dtype)
        factors = sorted(atom.args, key=_key)
        result = self._emit_atom(factors[0], dtype)
        for factor in factors[1:]:
            result = Mul(result, self._emit_atom(factor, dtype), dtype)
        return result


def shows_as_maximum(atom: Atom, k: int) -> bool:
    """Whether k*min(operands) reads better as -k*max(-operands)."""
    signs = {c > 0 for x in atom.args for c in x.terms.values()}
    for x in atom.args:
        if not x.terms and x.const:
            return x.const < 0
    return signs == {False} or (k < 0 and signs == {True, False})


def _contains(terms: dict[Atom, int], value: Linear, n: int, without: Atom) -> bool:
    """Whether n*value can be taken out of `terms` with no coefficient growing or changing its sign."""
    for atom, k in value.terms.items():
        have = terms.get(atom, 0)
        take = n * k
        if atom is without or (have >= take if take < 0 else have <= take) and have != take:
            return False
    return True


def _take(terms: dict[Atom, int], value: Linear, n: int, atom: Atom) -> int:
    """Takes `atom` and n*value out of `terms`; gives the constant taken."""
    del terms[atom]
    for x, k in value.terms.items():
        total = terms[x] - n * k
        if total:
            terms[x] = total
        else:
            del terms[x]
    return n * value.const


def _toward_zero(k: int, c: int) -> tuple[int, int]:
    """Quotient and remainder of k by a positive c, rounded to zero."""
    q = abs(k) // c
    return (q, k - q * c) if k > 0 else (-q, k + q * c)


def _serial(atom: Atom) -> int:
    return atom.serial


def _key(atom: Atom) -> tuple:
    return atom.key


def _first(part: tuple) -> tuple:
    return part[0]


def _divisor_first(atom: Atom) -> tuple:
    return (-atom.depth, -atom.args[1].const, atom.key)


def _depth_first(atom: Atom) -> tuple:
    return (-atom.depth, atom.key)
