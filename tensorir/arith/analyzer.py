"""The analyzer: simplifies expressions and proves conditions under what is known of the variables.

    analyzer = Analyzer()
    analyzer.bind(i, 0, 8)
    analyzer.simplify((i * 4 + 3) // 4)      # i
    analyzer.prove(i * 4 + 3 < 32)           # True
    with analyzer.constraint(i < n): ...
    analyzer.bounds(i * 2)                   # Interval(0, 14)

Results are remembered per analyzer, and equal results are the same object, so a second question about the same
expression is one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from tensorir import dtypes, semantics
from tensorir.arith import vectors
from tensorir.arith.canonical import MINIMUM, QUOTIENT, Atom, Linear, Overflow, shows_as_maximum
from tensorir.arith.interval import Interval, intersect
from tensorir.arith.prove import Prover, has_minimum
from tensorir.arith.rule import compile_rule
from tensorir.arith.rules import bitwise, boolean, floating, selection
from tensorir.arith.rules.casts import simplify_cast
from tensorir.dtypes import DType
from tensorir.expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Reduce,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    as_condition,
    as_expr,
    const,
)
from tensorir.visit import children, free_vars, substitute, walk_expr, with_children

_INDEX = dtypes.INDEX
_TRUE, _FALSE = Const(True, dtypes.bool_), Const(False, dtypes.bool_)
_RING = (Add, Sub, Mul)
_DEEP = 50
_LONG = 300

_RULES: dict[type, tuple[Callable[[Expr, Any], Expr | None], ...]] = {Cast: (simplify_cast,)}
for _rule in (*boolean.RULES, *floating.RULES, *bitwise.RULES, *selection.RULES):
    _RULES[type(_rule.pattern)] = (*_RULES.get(type(_rule.pattern), ()), *compile_rule(_rule))


class Analyzer(Prover):
    """What is known of the variables at one place of a program, and the questions one can ask there."""

    def __init__(self) -> None:
        super().__init__()
        self._linear: dict[Expr, Linear] = {}
        self._done: dict[Expr, Expr] = {}
        self._interned: dict[tuple, Expr] = {}
        self._values: dict[Var, Linear] = {}
        self._compared: dict[tuple[str, Linear], Expr] = {}
        self._meaning: dict[Expr, tuple[str, Linear]] = {}
        self._truth: dict[Expr, bool] = {}
        self._level = 0
        self._stamps = 0

    # --------------------------------------------------------------------------------------------------- knowledge

    def bind(self, var: Var, begin: Any, extent: Any) -> None:
        """`var` runs over begin .. begin + extent; an extent of 1 makes it equal to `begin`. A later bind of the same
        variable replaces the former one. The variables of `begin` and `extent` are bound first, if at all."""
        first = self.linear(as_expr(begin))
        count = self.linear(as_expr(extent))
        seen = var in self._variables
        atom = self.variable(var)
        if not count.terms and count.const < 1:
            return
        last = self.plus(first, self.shift(count, -1))
        self.symbolic.pop(atom, None)
        self.ranges.pop(atom, None)
        self._values.pop(var, None)
        if count is self.one:
            self._values[var] = first
        else:
            bounds = Interval(self.interval(first).lo, self.interval(last).hi)
            if not var.dtype == _INDEX:
                bounds = intersect(bounds, Interval(var.dtype.min_value, var.dtype.max_value))
            if bounds.lo is not None or bounds.hi is not None:
                self.ranges[atom] = bounds
            if (first.terms or last.terms) and var not in {
                v for f in (first, last) for a in f.terms for v in a.variables
            }:
                self.symbolic[atom] = (first, last)
                self.depths[atom] = len(self.depths) + 1
        if seen:
            self._forget()

    def bind_value(self, var: Var, value: Any) -> None:
        """`var` stands for `value` (an integer expression): it is replaced by it."""
        self._values[var] = self.linear(as_expr(value))
        self._forget()

    def assume(self, condition: Any) -> None:
        """`condition` holds from here on."""
        self._learn(self.simplify(as_condition(condition)), True)
        self._forget()

    @contextmanager
    def constraint(self, condition: Any) -> Iterator[None]:
        """`condition` holds inside the `with`."""
        kept = (
            self._linear, self._done, self._values, self._truth, self._proved, self.ranges, self.symbolic, self.depths,
            self.facts, self.stamp,
        )  # fmt: skip
        known = self.simplify(as_condition(condition))
        self._values, self._truth = dict(self._values), dict(self._truth)
        self.ranges, self.symbolic, self.depths = dict(self.ranges), dict(self.symbolic), dict(self.depths)
        self.facts = list(self.facts)
        self._learn(known, True)
        self._forget()
        try:
            yield
        finally:
            (
                self._linear, self._done, self._values, self._truth, self._proved, self.ranges, self.symbolic,
                self.depths, self.facts, self.stamp,
            ) = kept  # fmt: skip

    def _forget(self) -> None:
        """New knowledge: what was derived under the old is asked again."""
        self._stamps += 1
        self.stamp = self._stamps
        self._linear, self._done, self._proved = {}, {}, {}

    def _learn(self, condition: Expr, holds: bool) -> None:
        """Takes a simplified condition apart into facts and ranges."""
        pending = [(condition, holds)]
        while pending:
            e, truth = pending.pop()
            if isinstance(e, Const):
                continue
            if isinstance(e, Not):
                pending.append((e.a, not truth))
            elif isinstance(e, And if truth else Or):
                pending += [(e.a, truth), (e.b, truth)]
            elif any(isinstance(x, Load) for x in walk_expr(e)):
                continue  # a store may follow, so what was read holds no longer
            elif e in self._meaning:
                kind, form = self._meaning[e]
                if kind == "<":
                    # form < 0, or else -form <= 0
                    self.add_fact(self.shift(form, 1) if truth else self.scale(form, -1))
                elif (kind == "==") is truth:
                    self.add_fact(form)
                    self.add_fact(self.scale(form, -1))
                else:
                    self._exclude(form)
                self._truth[e] = truth
            else:
                self._truth[e] = truth

    def _exclude(self, form: Linear) -> None:
        """form != 0: an end of a range moves where it is the excluded value."""
        if len(form.terms) != 1:
            return
        ((atom, k),) = form.terms.items()
        if form.const % k:
            return
        value, bounds = -form.const // k, self.atom_interval(atom)
        if bounds.lo == value:
            self.ranges[atom] = Interval(value + 1, bounds.hi)
        elif bounds.hi == value:
            self.ranges[atom] = Interval(bounds.lo, value - 1)

    # --------------------------------------------------------------------------------------------------- questions

    def simplify(self, e: Any) -> Expr:
        """An expression equal to `e` under what is known, in canonical form."""
        if not isinstance(e, Expr):
            e = as_expr(e)
        found = self._done.get(e)
        if found is not None:
            return found
        if self._level >= _DEEP:
            self._prepare(e)
        self._level += 1
        try:
            result = self._simplified(e)
        finally:
            self._level -= 1
        self._done[e] = result
        self._done[result] = result
        return result

    def prove(self, condition: Any) -> bool:
        """Whether `condition` holds whenever what is known holds. False means: not proved."""
        result = self.simplify(as_condition(condition))
        return isinstance(result, Const) and bool(result.value)

    def bounds(self, e: Any) -> Interval:
        """Constant bounds of an integer expression; an end is None where none was found."""
        e = as_expr(e)
        form = self.linear(e)
        lo, hi = self.interval(form)
        if (self.symbolic and (lo is None or hi is None)) or (len(form.terms) > 1 and has_minimum(form)):
            lo, hi = self.lower(form), self.upper(form)
        if e.dtype != _INDEX:
            t = e.dtype
            whole = Interval(t.min_value, t.max_value)
            return Interval(lo, hi) if Interval(lo, hi).within(*whole) else whole  # type: ignore[arg-type]
        return Interval(lo, hi)

    def is_equal(self, a: Any, b: Any) -> bool:
        """Whether two integer expressions are proved equal."""
        x, y = self.linear(as_expr(a)), self.linear(as_expr(b))
        return x is y or (lambda d: self.le0(d) and self.le0(self.scale(d, -1)))(self.plus(x, y, -1))

    def const_value(self, e: Any) -> int | None:
        """The value of an integer expression that is a known number; else None."""
        form = self.linear(as_expr(e))
        if not form.terms:
            return form.const
        bounds = self.interval(form)
        return bounds.lo if bounds.is_point else None

    # ------------------------------------------------------------------------------------------------- expressions

    def _simplified(self, e: Expr) -> Expr:
        cls = type(e)
        if cls is Const:
            return self._intern(e, (Const, e.dtype, repr(e.value)))  # type: ignore[attr-defined]
        t = e.dtype
        if t.lanes != 1:
            if cls is Var:
                return e
            return self._tidy(vectors.simplify(e, self))
        if cls is Var and e not in self._values:
            truth = self._truth.get(e)
            if truth is not None:
                return _TRUE if truth else _FALSE
            if not t.is_integer or self.variable(e) not in self.ranges:  # type: ignore[arg-type]
                return e
        if t.is_integer:
            form = self.linear(e)
            result = self.emit(form, t)
            self._linear[result] = form
            return result
        handler = _CONDITIONS.get(cls)
        result = self.generic(e) if handler is None else handler(self, e)
        truth = self._truth.get(result)
        return result if truth is None else _TRUE if truth else _FALSE

    def _prepare(self, e: Expr) -> None:
        """Simplifies the parts of a deep expression from the leaves up, so that no recursion goes deep."""
        order: list[Expr] = []
        seen: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(e, False)]
        while stack:
            top, ready = stack.pop()
            if ready:
                order.append(top)
                continue
            if id(top) in seen or top in self._done:
                continue
            seen.add(id(top))
            stack.append((top, True))
            stack += [(c, False) for c in _parts(top)]
        level, self._level = self._level, 0
        for part in order[:-1]:
            self.simplify(part)
        self._level = level

    def _intern(self, e: Expr, key: tuple) -> Expr:
        return self._interned.setdefault(key, e)

    def generic(self, e: Expr) -> Expr:
        """A node with its operands simplified, folded, and rewritten by the rules of its class."""
        if isinstance(e, Reduce):
            for axis in e.axes:
                self.bind(axis.var, axis.begin, axis.extent)
        old = children(e)
        new = tuple([self.simplify(c) for c in old])
        if any(a is not b for a, b in zip(new, old, strict=True)):
            e = with_children(e, new)
        return self._tidy(e)

    def _tidy(self, e: Expr) -> Expr:
        """Folding, rules and interning of a node whose operands are simple."""
        operands = children(e)
        if operands and all(type(c) is Const for c in operands) and not isinstance(e, Load):
            folded = semantics.fold_expr(e)
            if folded is not None:
                return self.simplify(folded)
        for apply in _RULES.get(type(e), ()):
            better = apply(e, self)
            if better is not None:
                return self.simplify(better)
        if isinstance(e, Let):
            return self._let(e)
        if isinstance(e, Reduce):
            return e
        key: tuple = (type(e), *map(id, operands))
        if isinstance(e, Load):
            key = (*key, id(e.buffer))
        elif isinstance(e, (Call, Cast)):
            key = (*key, e.dtype, getattr(e, "name", ""))
        elif isinstance(e, (Ramp, Broadcast)):
            key = (*key, e.lanes)
        return self._intern(e, key)

    def _let(self, e: Let) -> Expr:
        """A let of a literal or a variable is put in place."""
        if isinstance(e.value, (Const, Var)):
            return self.simplify(substitute(e.body, {e.var: e.value}))
        if not any(v is e.var for v in free_vars(e.body)):
            return e.body
        return e

    # ------------------------------------------------------------------------------------------------------- sums

    def linear(self, e: Expr) -> Linear:
        """The canonical form of a scalar integer expression."""
        form = self._linear.get(e)
        if form is None:
            handler = _FORMS.get(type(e))
            if handler is None:
                form = self._opaque(e)
            elif self._level >= _DEEP:
                self._prepare(e)
                form = handler(self, e)
            else:
                self._level += 1
                try:
                    form = handler(self, e)
                finally:
                    self._level -= 1
            self._linear[e] = form
        return form

    def _literal(self, e: Const) -> Linear:
        return self.constant(int(e.value))

    def _variable(self, e: Var) -> Linear:
        value = self._values.get(e)
        if value is not None:
            return value
        atom = self.variable(e)
        known = self.ranges.get(atom)
        if known is not None and known.lo is not None and known.lo == known.hi:
            return self.constant(known.lo)
        return self.of(atom)

    def _sum(self, e: Expr) -> Linear:
        """Add, Sub and Mul: all the ring operators below `e` at once."""
        terms: dict[Atom, int] = {}
        constant = 0
        stack: list[tuple[Expr, int]] = [(e, 1)]
        known = self._linear
        steps = 0
        while stack:
            x, k = stack.pop()
            form = known.get(x)
            if form is None:
                steps += 1
                cls = type(x)
                if cls is Add:
                    stack.append((x.b, k))  # type: ignore[attr-defined]
                    stack.append((x.a, k))  # type: ignore[attr-defined]
                    if steps > _LONG:
                        return self._long_sum(e)
                    continue
                if cls is Sub:
                    stack.append((x.b, -k))  # type: ignore[attr-defined]
                    stack.append((x.a, k))  # type: ignore[attr-defined]
                    if steps > _LONG:
                        return self._long_sum(e)
                    continue
                if cls is Const:
                    constant += k * x.value  # type: ignore[attr-defined]
                    continue
                if cls is Mul:
                    a, b = x.a, x.b  # type: ignore[attr-defined]
                    if type(b) is Const:
                        stack.append((a, k * int(b.value)))
                        continue
                    if type(a) is Const:
                        stack.append((b, k * int(a.value)))
                        continue
                    form = self._product(x)
                else:
                    form = self.linear(x)
            constant += k * form.const
            for atom, c in form.terms.items():
                terms[atom] = terms.get(atom, 0) + c * k
        return self._wrapped(constant, terms, e.dtype)

    def _long_sum(self, e: Expr) -> Linear:
        """The same for long or much shared sums: one visit a node, in topological order."""
        order: list[Expr] = []
        seen: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(e, False)]
        while stack:
            x, ready = stack.pop()
            if ready:
                order.append(x)
            elif id(x) not in seen:
                seen.add(id(x))
                stack.append((x, True))
                stack += [(c, False) for c in _ring_parts(x)]
        factor: dict[Expr, int] = {e: 1}
        parts: list[tuple[Linear, int]] = []
        constant = 0
        for x in reversed(order):
            k = factor[x]
            cls = type(x)
            if cls is Const:
                constant += k * x.value  # type: ignore[attr-defined]
            elif not _ring_parts(x):
                parts.append((self._product(x) if cls is Mul else self.linear(x), k))
            elif cls is Mul:
                literal, other = (x.a, x.b) if type(x.a) is Const else (x.b, x.a)  # type: ignore[attr-defined]
                factor[other] = factor.get(other, 0) + k * int(literal.value)
            else:
                factor[x.a] = factor.get(x.a, 0) + k  # type: ignore[attr-defined]
                factor[x.b] = factor.get(x.b, 0) + (k if cls is Add else -k)  # type: ignore[attr-defined]
        form = self.sum(parts, constant)
        return self._wrapped(form.const, dict(form.terms), e.dtype)

    def _product(self, e: Expr) -> Linear:
        product = self.multiply(self.linear(e.a), self.linear(e.b))  # type: ignore[attr-defined]
        if product is not None:
            return product
        return self._opaque(e)

    def _wrapped(self, constant: int, terms: dict[Atom, int], t: DType) -> Linear:
        if 0 in terms.values():
            terms = {a: k for a, k in terms.items() if k}
        if t is not _INDEX and t != _INDEX:
            size = 1 << t.bits
            terms = {a: r for a, k in terms.items() if (r := k if -size < k < size else k % size)}
            if not t.min_value <= constant <= t.max_value and (not terms or not -size < constant < size):
                constant = semantics.wrap(constant, t)
            return self._form(constant, terms)
        return self.cancel_quotients(self._form(constant, terms))

    def _opaque(self, e: Expr) -> Linear:
        """An expression as an atom, unless simplifying it gives something that forms look into."""
        node = self.generic(e)
        if type(node) is Const:
            return self.constant(int(node.value))
        if type(node) is not type(e) and type(node) in _FORMS:
            return self.linear(node)
        form = self.of(self.opaque(node))
        self._linear[node] = form
        self._done[node] = node
        return form

    # -------------------------------------------------------------------------------------- quotients and minima

    def _operands(self, e: Expr) -> tuple[Linear, Linear, bool]:
        """The forms of both operands and whether they are exact."""
        a, b = self.linear(e.a), self.linear(e.b)  # type: ignore[attr-defined]
        t = e.a.dtype  # type: ignore[attr-defined]
        return a, b, self.fits(a, t) and self.fits(b, t)

    def _never_zero(self, b: Linear, t: DType) -> bool:
        if not b.terms:
            return b.const != 0
        lo, hi = self.interval(b)
        return (lo is not None and lo > 0) or (hi is not None and hi < 0) or (t == _INDEX and not b.data)

    def _floor_quotient(self, e: FloorDiv) -> Linear:
        a, b, exact = self._operands(e)
        if b is self.zero:
            return self.zero
        if exact and self._never_zero(b, e.dtype):
            try:
                result = self.floor_divide(a, b, e.dtype)
                if e.dtype == _INDEX or self.fits(result, e.dtype):
                    return result
            except Overflow:
                pass
        return self._opaque(e)

    def _floor_remainder(self, e: FloorMod) -> Linear:
        a, b, exact = self._operands(e)
        if b is self.zero:
            return self.zero
        if exact and self._never_zero(b, e.dtype):
            try:
                result = self.floor_modulo(a, b, e.dtype)
                if e.dtype == _INDEX or self.fits(result, e.dtype):
                    return result
            except Overflow:
                pass
        return self._opaque(e)

    def _truncated_quotient(self, e: TruncDiv) -> Linear:
        a, b, exact = self._operands(e)
        if b is self.zero:
            return self.zero
        if exact and self._never_zero(b, e.dtype):
            result = self.truncate_divide(a, b, e.dtype)
            if result is not None and (e.dtype == _INDEX or self.fits(result, e.dtype)):
                return result
        return self._opaque(e)

    def _truncated_remainder(self, e: TruncMod) -> Linear:
        a, b, exact = self._operands(e)
        if b is self.zero:
            return self.zero
        if exact and self._never_zero(b, e.dtype):
            quotient = self.truncate_divide(a, b, e.dtype)
            product = None if quotient is None else self.multiply(quotient, b)
            if product is not None:
                return self.plus(a, product, -1)
        return self._opaque(e)

    def truncate_divide(self, a: Linear, b: Linear, t: DType) -> Linear | None:
        """a / b rounded to zero where it is exact or the signs are known; else None."""
        if not b.terms:
            c = b.const
            if a.const % c == 0 and all(k % c == 0 for k in a.terms.values()):
                return self.exact_quotient(a, c)
            if c < 0:
                opposite = self.truncate_divide(a, self.constant(-c), t)
                return None if opposite is None else self.scale(opposite, -1)
        (lo, hi), divisor = self.interval(a), self.interval(b)
        if divisor.lo is None or divisor.lo <= 0:
            return None
        try:
            if lo is not None and lo >= 0:
                return self.floor_divide(a, b, t)
            if hi is not None and hi <= 0:
                return self.scale(self.floor_divide(self.scale(a, -1), b, t), -1)
        except Overflow:
            return None
        return None

    def _extremum(self, e: Expr) -> Linear:
        a, b, exact = self._operands(e)
        if a is b:
            return a
        largest = type(e) is Max
        if exact:
            if e.dtype == _INDEX:
                return self.maximum((a, b), e.dtype) if largest else self.minimum((a, b), e.dtype)
            if self.le0(self.plus(a, b, -1)):
                return b if largest else a
            if self.le0(self.plus(b, a, -1)):
                return a if largest else b
        return self._opaque(e)

    # ------------------------------------------------------------------------------------------------- conditions

    def _comparison(self, e: Compare) -> Expr:
        t = e.a.dtype
        if not t.is_integer or t.lanes != 1:
            return self.generic(e)
        a, b, exact = self._operands(e)
        cls = type(e)
        if a is b:
            return _TRUE if cls in (LE, EQ) else _FALSE
        if exact:
            if cls in (LT, LE):
                form = self.plus(a, b, -1)
                return self.less_than_zero(form if cls is LT else self.shift(form, -1), t, e)
            return self.equal_to_zero(self.plus(a, b, -1), t, e)
        return self.generic(e)

    def less_than_zero(self, form: Linear, t: DType, e: Expr) -> Expr:
        """The condition form < 0; for a type that wraps `e`, its spelling, is kept."""
        if self.le0(self.shift(form, 1)):
            return _TRUE
        if self.le0(self.scale(form, -1)):
            return _FALSE
        if t != _INDEX:
            return self.generic(e)
        form = self._reduced(form, t)
        found = self._compared.get(("<", form))
        if found is None:
            left, right, c = self._sides(form, t)
            if right is None:
                assert left is not None
                found = LT(left, const(-c, t), dtypes.bool_)
            elif left is None:
                found = LE(const(0, t), right, dtypes.bool_) if c == -1 else LT(const(c, t), right, dtypes.bool_)
            elif c == -1:
                found = LE(left, right, dtypes.bool_)
            else:
                found = LT(_plus(left, c), _plus(right, -c), dtypes.bool_)
            self._remember(("<", form), found)
        return found

    def equal_to_zero(self, form: Linear, t: DType, e: Expr) -> Expr:
        """The condition form == 0, or form != 0 if `e` is NE."""
        same, other = (_TRUE, _FALSE) if type(e) is EQ else (_FALSE, _TRUE)
        kind = "==" if type(e) is EQ else "!="
        if not form.terms:
            return other if form.const else same
        g = 0
        for k in form.terms.values():
            g = gcd(g, k)
        if form.const % g or self.le0(self.shift(form, 1)) or self.le0(self.shift(self.scale(form, -1), 1)):
            return other
        if self.le0(form) and self.le0(self.scale(form, -1)):
            return same
        if t != _INDEX:
            return self.generic(e)
        form = self.exact_quotient(form, g)
        if form.terms[min(form.terms, key=lambda a: a.key)] < 0:
            form = self.scale(form, -1)
        found = self._compared.get((kind, form))
        if found is None:
            left, right, c = self._sides(form, t)
            if left is None:
                left, right, c = right, None, -c
            assert left is not None
            cls = EQ if type(e) is EQ else NE
            if right is None:
                found = cls(left, const(-c, t), dtypes.bool_)
            else:
                found = cls(_plus(left, c), _plus(right, -c), dtypes.bool_)
            self._remember((kind, form), found)
        return found

    def _remember(self, key: tuple[str, Linear], e: Expr) -> None:
        self._compared[key] = e
        self._meaning[e] = key

    def _reduced(self, form: Linear, t: DType) -> Linear:
        """A form that is negative exactly where `form` is, with what cannot matter left out."""
        while True:
            g = 0
            for k in form.terms.values():
                g = gcd(g, k)
            if g > 1:
                form = self._form(form.const // g, {a: k // g for a, k in form.terms.items()})
            if len(form.terms) == 1:
                ((atom, k),) = form.terms.items()
                if atom.kind == QUOTIENT and not atom.args[1].terms:
                    c = atom.args[1].const
                    inner = atom.args[0]
                    if k == 1:  # y//c + r < 0  where  y + r*c < 0
                        form = self.shift(inner, form.const * c)
                        continue
                    if k == -1:  # r - y//c < 0  where  (r + 1)*c - 1 - y < 0
                        form = self.shift(self.scale(inner, -1), (form.const + 1) * c - 1)
                        continue
                return form
            for g in sorted({abs(k) for k in form.terms.values()} - {1}, reverse=True):
                small = self._form(form.const, {a: k for a, k in form.terms.items() if k % g})
                lo, hi = self.interval(small)
                if lo is not None and hi is not None and lo // g == hi // g:
                    big = self._form(lo // g, {a: k // g for a, k in form.terms.items() if k % g == 0})
                    if len(big.terms) < len(form.terms):
                        form = big
                        break
            else:
                return form

    def _sides(self, form: Linear, t: DType) -> tuple[Expr | None, Expr | None, int]:
        """The form as left - right + constant, with positive coefficients on both sides."""
        view = self.view(form)
        left: list[tuple[Linear, int]] = []
        right: list[tuple[Linear, int]] = []
        for atom, k in view.terms.items():
            positive = (k > 0) is not (atom.kind == MINIMUM and shows_as_maximum(atom, k))
            (left if positive else right).append((self.of(atom), k if positive else -k))
        for item, k in view.remainders:
            (left if k > 0 else right).append((self._remainder_form(item), abs(k)))
        a = self.emit(self.sum(left), t) if left else None
        b = self.emit(self.sum(right), t) if right else None
        return a, b, view.const

    def _negation(self, e: Not) -> Expr:
        a = self.simplify(e.a)
        if isinstance(a, Const):
            return _FALSE if a.value else _TRUE
        if isinstance(a, Not):
            return a.a
        meaning = self._meaning.get(a)
        if meaning is not None:
            kind, form = meaning
            if kind == "<":  # not form < 0: -form - 1 < 0
                return self.less_than_zero(self.shift(self.scale(form, -1), -1), _INDEX, e)
            flipped = NE if kind == "==" else EQ
            return self.equal_to_zero(form, _INDEX, flipped(a.a, a.b, dtypes.bool_))  # type: ignore[attr-defined]
        if isinstance(a, (LT, LE)) and not a.a.dtype.is_float:
            return self.simplify((LE if isinstance(a, LT) else LT)(a.b, a.a, a.dtype))
        if isinstance(a, (And, Or)) and self._level < _DEEP:
            other = Or if isinstance(a, And) else And
            return self.simplify(other(Not(a.a, a.dtype), Not(a.b, a.dtype), a.dtype))
        return self._tidy(e if a is e.a else Not(a, e.dtype))

    def _junction(self, e: Expr) -> Expr:
        """And / Or of any number of conditions: literals, repetitions, opposites, and comparisons of one sum."""
        cls = type(e)
        conjunction = cls is And
        stop = _FALSE if conjunction else _TRUE
        items: list[Expr] = []
        seen: set[int] = set()
        pending = [e]
        while pending:
            x = pending.pop()
            if type(x) is cls:
                pending += [x.b, x.a]  # type: ignore[attr-defined]
                continue
            s = self.simplify(x)
            if type(s) is cls:
                pending += [s.b, s.a]  # type: ignore[attr-defined]
                continue
            if isinstance(s, Const):
                if bool(s.value) is not conjunction:
                    return stop
                continue
            if id(s) not in seen:
                seen.add(id(s))
                items.append(s)
        items = self._merge_comparisons(items, conjunction)
        for s in items:
            if isinstance(s, Not) and any(x is s.a for x in items):
                return stop
            meaning = self._meaning.get(s)
            if (
                meaning is not None
                and meaning[0] == "=="
                and any(self._meaning.get(x) == ("!=", meaning[1]) for x in items)
            ):
                return stop
        if not items:
            return _TRUE if conjunction else _FALSE
        if any(s is stop for s in items):
            return stop
        result = items[0]
        for s in items[1:]:
            result = self._tidy(cls(result, s, dtypes.bool_))  # type: ignore[call-arg]
            if isinstance(result, Const):
                return result
        return result

    def _merge_comparisons(self, items: list[Expr], conjunction: bool) -> list[Expr]:
        """Of several conditions `terms + c < 0` on the same terms the decisive one; opposite ones may decide all."""
        best: dict[Linear, tuple[int, int]] = {}
        kept: list[Expr | None] = []
        for s in items:
            meaning = self._meaning.get(s)
            if meaning is None or meaning[0] != "<":
                kept.append(s)
                continue
            form = meaning[1]
            direction = self.shift(form, -form.const)
            old = best.get(direction)
            if old is None:
                best[direction] = (form.const, len(kept))
                kept.append(s)
            elif (form.const > old[0]) is conjunction:
                best[direction] = (form.const, old[1])
                kept[old[1]] = s
        for direction, (c, _) in best.items():
            opposite = best.get(self.scale(direction, -1))
            if opposite is None:
                continue
            # t < -c and t > d: empty where d + 1 >= -c; t < -c or t > d: everything where d < -c
            if conjunction and opposite[0] + c + 1 >= 0:
                return [_FALSE]
            if not conjunction and opposite[0] + c < 0:
                return [_TRUE]
        return [s for s in kept if s is not None]


def _plus(e: Expr, c: int) -> Expr:
    return Add(e, const(c, e.dtype), e.dtype) if c > 0 else e


def _ring_parts(e: Expr) -> tuple[Expr, ...]:
    """The operands of a sum, a difference or a product with a literal."""
    if isinstance(e, (Add, Sub)):
        return (e.a, e.b)
    if isinstance(e, Mul) and (type(e.a) is Const or type(e.b) is Const):
        return (e.b,) if type(e.a) is Const else (e.a,)
    return ()


def _parts(e: Expr) -> tuple[Expr, ...]:
    """The children that `_prepare` simplifies first: sums of integers are taken as one node."""
    if isinstance(e, _RING) and e.dtype.is_integer and e.dtype.lanes == 1:
        result: list[Expr] = []
        seen: set[int] = set()
        stack: list[Expr] = [e]
        while stack:
            x = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if isinstance(x, _RING):
                stack += [x.a, x.b]
            else:
                result.append(x)
        return tuple(result)
    return children(e)


_FORMS: dict[type, Callable[[Analyzer, Any], Linear]] = {
    Const: Analyzer._literal,
    Var: Analyzer._variable,
    Add: Analyzer._sum,
    Sub: Analyzer._sum,
    Mul: Analyzer._sum,
    FloorDiv: Analyzer._floor_quotient,
    FloorMod: Analyzer._floor_remainder,
    TruncDiv: Analyzer._truncated_quotient,
    TruncMod: Analyzer._truncated_remainder,
    Min: Analyzer._extremum,
    Max: Analyzer._extremum,
}

_CONDITIONS: dict[type, Callable[[Analyzer, Any], Expr]] = {
    EQ: Analyzer._comparison,
    NE: Analyzer._comparison,
    LT: Analyzer._comparison,
    LE: Analyzer._comparison,
    Not: Analyzer._negation,
    And: Analyzer._junction,
    Or: Analyzer._junction,
}


def simplify(e: Any, bounds: dict[Var, tuple[Any, Any]] | None = None) -> Expr:
    """An expression equal to `e`, in canonical form; `bounds` gives (begin, extent) of variables."""
    analyzer = Analyzer()
    for var, (begin, extent) in (bounds or {}).items():
        analyzer.bind(var, begin, extent)
    return analyzer.simplify(as_expr(e))
