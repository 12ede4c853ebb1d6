"""Which accesses of the threads of a block may be of one element: what barriers and waits stand between.

Indices are sums of loops and thread axes; conditions around an access pin thread axes or bound them from above.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensorir.buffer import Buffer
from tensorir.expr import EQ, LE, LT, Expr, FloorMod, Load, Var
from tensorir.passes.accesses import Access, collect_accesses
from tensorir.passes.linear import Form, IndexScope, conjuncts
from tensorir.stmt import Allocate, For, LetStmt, Stmt
from tensorir.visit import walk_expr, walk_stmt


@dataclass(frozen=True, slots=True)
class Touch:
    """One access: its indices as sums, where its conditions pin thread axes, and their upper ends."""

    access: Access
    forms: tuple[Form, ...]
    pinned: dict[Expr, int]
    below: dict[Expr, int]


class Conflicts:
    """The accesses of a kernel to memory that its threads share: `threads` are its thread axes of more than one thread,
    `body` what one thread does."""

    def __init__(self, scope: IndexScope, threads: list[For], body: Stmt) -> None:
        self.scope = scope
        self.threads = {t.var: t for t in threads}
        stores = [a for a in collect_accesses(body) if a.write]
        local = {s.buffer for s in walk_stmt(body) if isinstance(s, Allocate) and s.buffer.scope != "shared"}
        self.shared: set[Buffer] = {a.buffer for a in stores if a.buffer not in local}
        self.loops = {s.var: s for s in walk_stmt(body) if isinstance(s, For)}
        self.lets = {s.var for s in walk_stmt(body) if isinstance(s, LetStmt)}

    def is_divergent(self, e: Expr) -> bool:
        """Whether a value may differ between threads."""
        atoms = self.scope.variables(e)
        return any(a in self.threads or a in self.lets or not isinstance(a, Var) for a in atoms) or _loads(e)

    def touches(self, s: Stmt) -> list[Touch]:
        """The accesses of a statement to what the threads share."""
        found = []
        for access in collect_accesses(s):
            if access.buffer in self.shared:
                pinned: dict[Expr, int] = {}
                below: dict[Expr, int] = {}
                for c in (c for condition in access.conditions for c in conjuncts(condition)):
                    self._learn(c, pinned, below)
                forms = tuple(self.scope.form(self.scope.simplify(i)) for i in access.indices)
                found.append(Touch(access, forms, pinned, below))
        return found

    def _learn(self, c: Expr, pinned: dict[Expr, int], below: dict[Expr, int]) -> None:
        if not isinstance(c, (EQ, LT, LE)):
            return
        if not c.a.dtype.is_integer:
            return
        form = self.scope.form(self.scope.simplify(c.b)).minus(self.scope.form(self.scope.simplify(c.a)))
        if isinstance(c, EQ):
            if len(form.terms) == 1:
                ((atom, k),) = form.terms.items()
                if (atom in self.threads or atom in self.loops) and abs(k) == 1:
                    pinned[atom] = -form.constant * k
            return
        room = form.constant - isinstance(c, LT)  # a sum of threads is at most so much
        if all(k < 0 and a in self.threads for a, k in form.terms.items()):
            for atom, k in form.terms.items():
                below[atom] = min(below.get(atom, room // -k + 1), room // -k + 1)
                if below[atom] == 1:
                    pinned[atom] = 0

    def meets(
        self,
        first: Iterable[Touch],
        second: Iterable[Touch],
        common: frozenset[Expr],
        carried: Var | None = None,
    ) -> bool:
        """Whether an access of `first` and a later one of `second` may be of one element from two threads; in another
        iteration of the loop over `carried`, if given."""
        later = list(second)
        return any(self._conflicts(x, y, common, carried) for x in first for y in later)

    def _conflicts(self, x: Touch, y: Touch, common: frozenset[Expr], carried: Var | None) -> bool:
        a, b = x.access, y.access
        if a.buffer is not b.buffer or not (a.write or b.write):
            return False
        if a.whole or b.whole:
            return True
        if carried is not None and carried in x.pinned and x.pinned[carried] == y.pinned.get(carried):
            return False  # both in the same iteration, and so not one after the other
        same: set[Expr] = {t for t in self.threads if t in x.pinned and x.pinned[t] == y.pinned.get(t)}
        if a.warp and b.warp:
            same |= {t for t, loop in self.threads.items() if loop.thread == "threadIdx.x"}  # the lanes act together
        for f, g in zip(x.forms, y.forms, strict=True):
            low, high = self._difference(f, g, x, y, common, frozenset())
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
            if self._never_equal(f, g, common):
                return False
            same |= self._fixed(f, g, x, y, common)
        if carried is not None and carried in same:
            return False
        return any(t not in same for t in self.threads)

    def _difference(
        self, f: Form, g: Form, x: Touch, y: Touch, common: frozenset[Expr], leave: frozenset[Expr]
    ) -> tuple[int | None, int | None]:
        """The interval of f - g, without the atoms of `leave`; what is not common differs on the two sides."""
        ends: list[int | None] = [f.constant - g.constant, f.constant - g.constant]
        shared = {a for a in (*f.terms, *g.terms) if self._is_common(a, common)}
        for atom in shared:
            _accumulate(ends, f.coefficient(atom) - g.coefficient(atom), self.scope.atom_bounds(atom))
        for form, sign, touch in ((f, 1, x), (g, -1, y)):
            for atom, k in form.terms.items():
                if atom not in shared and atom not in leave:
                    _accumulate(ends, k * sign, self._range(atom, touch))
        return ends[0], ends[1]

    def _range(self, atom: Expr, touch: Touch) -> tuple[int | None, int | None]:
        if atom in touch.pinned:
            return touch.pinned[atom], touch.pinned[atom]
        low, high = self.scope.atom_bounds(atom)
        if atom in touch.below:
            limit = touch.below[atom] - 1
            high = limit if high is None else min(high, limit)
        return low, high

    def _is_common(self, atom: Expr, common: frozenset[Expr]) -> bool:
        variables = self.scope.variables(atom)
        if _loads(atom):
            return False
        return all(
            v in common or (v not in self.loops and v not in self.threads and v not in self.lets) for v in variables
        )

    def _fixed(self, f: Form, g: Form, x: Touch, y: Touch, common: frozenset[Expr]) -> set[Expr]:
        """The thread axes and loops that are the same in both where f equals g: each is a digit of its own."""
        digits = [
            a
            for a, k in f.terms.items()
            if (a in self.threads or (a in self.loops and a not in common)) and g.coefficient(a) == k
        ]
        low, high = self._difference(f, g, x, y, common, frozenset(digits))
        if low is None or high is None:
            return set()
        digits.sort(key=lambda a: abs(f.coefficient(a)))
        found: set[Expr] = set()
        while digits:
            last = digits.pop()
            reach: int | None = max(abs(low), abs(high))
            for a in digits:
                ends = self.scope.atom_bounds(a)
                size = None if ends[0] is None or ends[1] is None else ends[1] - ends[0]
                reach = None if reach is None or size is None else reach + abs(f.coefficient(a)) * size
            if reach is None or abs(f.coefficient(last)) <= reach:
                break
            found.add(last)
        return found

    def may_alias(self, x: Touch, y: Touch, common: frozenset[Expr]) -> bool:
        """Whether two accesses of one thread may be of one element; `common` are the loops of which both see the same
        iteration."""
        if x.access.buffer is not y.access.buffer:
            return False
        same = common | frozenset(self.threads)
        for f, g in zip(x.forms, y.forms, strict=True):
            low, high = self._difference(f, g, x, y, same, frozenset())
            if (low is not None and low > 0) or (high is not None and high < 0) or self._never_equal(f, g, same):
                return False
        return True

    def _never_equal(self, f: Form, g: Form, common: frozenset[Expr]) -> bool:
        """True for the two halves of a double buffer: remainders of one common variable that never agree."""
        first, second = self._remainder(f), self._remainder(g)
        if first is None or second is None or first[1] != second[1]:
            return False
        between = second[0].minus(first[0])
        if not between.is_const or not all(self._is_common(t, common) for t in first[0].terms):
            return False
        return between.constant % first[1] != 0

    def _remainder(self, f: Form) -> tuple[Form, int] | None:
        """(a, m) where the form is a % m: written so, or a sum in 0 .. m of two values."""
        if f.constant == 0 and len(f.terms) == 1:
            ((atom, k),) = f.terms.items()
            if isinstance(atom, FloorMod) and k == 1:
                m = self.scope.form(atom.b)
                return (self.scope.form(atom.a), m.constant) if m.is_const and m.constant > 0 else None
        low, high = self.scope.const_bounds(f)
        return (f, 2) if low is not None and high is not None and 0 <= low and high <= 1 else None


def _loads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk_expr(e))


def _accumulate(ends: list[int | None], k: int, bounds: tuple[int | None, int | None]) -> None:
    if k == 0:
        return
    low, high = bounds if k > 0 else (bounds[1], bounds[0])
    ends[0] = None if ends[0] is None or low is None else ends[0] + k * low
    ends[1] = None if ends[1] is None or high is None else ends[1] + k * high
