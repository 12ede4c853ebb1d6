"""Barriers between statements of which one thread may touch what another thread touched before: none missing, none
needless.

    S[t] = A[t]                       S[t] = A[t]
    C[t] = S[31 - t]           →      barrier()
                                      C[t] = S[31 - t]

A kernel in thread form means, so far, that each statement runs for all threads of a block before the next. Two
statements need a barrier between them if they may touch one element of shared (or of written global) memory, one of
them writing it, from different threads. They do not if some index is never equal, or if equal indices mean the same
thread. A sequence gets its barriers as late as possible; a loop whose next iteration meets what the last one left gets
one at the start of its body.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import EQ, LE, LT, Call, Const, Expr, FloorMod, Load, Var
from tensorir.passes.accesses import Access, bind_loops, collect_accesses
from tensorir.passes.linear import Form, IndexScope, conjuncts
from tensorir.passes.thread_axes import is_barrier, map_kernels, peel_axes, with_axes
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, seq
from tensorir.visit import walk_expr, walk_stmt, with_body

BARRIER = Evaluate(Call("barrier", (), dtypes.int32))


def insert_barriers(func: Func) -> Func:
    """`func`, in thread form, with barriers."""
    if any(is_barrier(s) for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)
    bind_loops(func.body, scope)

    def kernel(s: Stmt) -> Stmt:
        axes, body = peel_axes(s)
        threads = [a for a in axes if (a.thread or "").startswith("threadIdx") and not _is_one(a.extent)]
        if not threads:
            return s
        return with_axes(axes, _Barriers(scope, threads, body).stmt(body, frozenset()).stmt)

    return with_body(func, map_kernels(func.body, kernel))


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


@dataclass(frozen=True, slots=True)
class _Touch:
    """One access: its indices as sums, where its conditions pin thread axes, and their upper ends."""

    access: Access
    forms: tuple[Form, ...]
    pinned: dict[Expr, int]
    below: dict[Expr, int]


@dataclass(frozen=True, slots=True)
class _Summary:
    """A statement with its barriers: what it touches before its first and after its last one, and whether every way
    through it meets one."""

    stmt: Stmt
    entry: list[_Touch]
    exit: list[_Touch]
    always: bool


class _Barriers:
    def __init__(self, scope: IndexScope, threads: list[For], body: Stmt) -> None:
        self.scope = scope
        self.threads = {t.var: t for t in threads}
        stores = [a for a in collect_accesses(body) if a.write]
        local = {s.buffer for s in walk_stmt(body) if isinstance(s, Allocate) and s.buffer.scope != "shared"}
        self.shared: set[Buffer] = {a.buffer for a in stores if a.buffer not in local}
        self.loops = {s.var: s for s in walk_stmt(body) if isinstance(s, For)}
        self.lets = {s.var for s in walk_stmt(body) if isinstance(s, LetStmt)}

    # ------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt, common: frozenset[Expr]) -> _Summary:
        if isinstance(s, Seq):
            return self._sequence(s, common)
        if isinstance(s, For):
            return self._loop(s, common)
        if isinstance(s, Allocate):
            inner = self.stmt(s.body, common)
            return _with(inner, s if inner.stmt is s.body else Allocate(s.buffer, inner.stmt))
        if isinstance(s, LetStmt):
            head = self._touches(Evaluate(s.value))
            inner = self.stmt(s.body, common)
            body = inner.stmt
            if self._meets(head, inner.entry, common):
                body, inner = seq(BARRIER, body), _Summary(inner.stmt, [], inner.exit, True)
            new = s if body is s.body else LetStmt(s.var, s.value, body)
            last = inner.exit if inner.always else [*head, *inner.exit]
            return _Summary(new, [*head, *inner.entry], last, inner.always)
        if isinstance(s, If) and not self._is_divergent(s.condition):
            return self._branches(s, common)
        touches = self._touches(s)
        return _Summary(s, touches, touches, False)

    def _sequence(self, s: Seq, common: frozenset[Expr]) -> _Summary:
        done: list[Stmt] = []
        entry: list[_Touch] = []
        pending: list[_Touch] = []
        met = False
        for child in s.stmts:
            part = self.stmt(child, common)
            if self._meets(pending, part.entry, common):
                done.append(BARRIER)
                pending, met = [], True
            if not met:
                entry.extend(part.entry)
            pending = list(part.exit) if part.always else [*pending, *part.exit]
            met = met or part.always
            done.append(part.stmt)
        same = len(done) == len(s.stmts) and all(a is b for a, b in zip(done, s.stmts, strict=True))
        return _Summary(s if same else seq(*done), entry, pending, met)

    def _loop(self, s: For, common: frozenset[Expr]) -> _Summary:
        if self._is_divergent(s.begin) or self._is_divergent(s.extent):
            touches = self._touches(s)
            return _Summary(s, touches, touches, False)
        inner = self.stmt(s.body, common | {s.var})
        body, entry, always = inner.stmt, inner.entry, inner.always
        if not _is_one(s.extent) and self._meets(inner.exit, inner.entry, common, s.var):
            body, entry, always = seq(BARRIER, body), [], True
        new = s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
        runs = isinstance(s.extent, Const) and int(s.extent.value) > 0
        return _Summary(new, entry, inner.exit, always and runs)

    def _branches(self, s: If, common: frozenset[Expr]) -> _Summary:
        then = self.stmt(s.then, common)
        if s.otherwise is None:
            new = s if then.stmt is s.then else If(s.condition, then.stmt)
            return _Summary(new, then.entry, then.exit, False)
        other = self.stmt(s.otherwise, common)
        same = then.stmt is s.then and other.stmt is s.otherwise
        new = s if same else If(s.condition, then.stmt, other.stmt)
        return _Summary(new, [*then.entry, *other.entry], [*then.exit, *other.exit], then.always and other.always)

    def _is_divergent(self, e: Expr) -> bool:
        atoms = self.scope.variables(e)
        return any(a in self.threads or a in self.lets or not isinstance(a, Var) for a in atoms) or _loads(e)

    # --------------------------------------------------------------------------------------------------- accesses

    def _touches(self, s: Stmt) -> list[_Touch]:
        found = []
        for access in collect_accesses(s):
            if access.buffer in self.shared:
                pinned: dict[Expr, int] = {}
                below: dict[Expr, int] = {}
                for c in (c for condition in access.conditions for c in conjuncts(condition)):
                    self._learn(c, pinned, below)
                forms = tuple(self.scope.form(self.scope.simplify(i)) for i in access.indices)
                found.append(_Touch(access, forms, pinned, below))
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

    def _meets(
        self,
        first: Iterable[_Touch],
        second: Iterable[_Touch],
        common: frozenset[Expr],
        carried: Var | None = None,
    ) -> bool:
        """Whether an access of `first` and a later one of `second` may be of one element from two threads; in another
        iteration of the loop over `carried`, if given."""
        later = list(second)
        return any(self._conflicts(x, y, common, carried) for x in first for y in later)

    def _conflicts(self, x: _Touch, y: _Touch, common: frozenset[Expr], carried: Var | None) -> bool:
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
        self, f: Form, g: Form, x: _Touch, y: _Touch, common: frozenset[Expr], leave: frozenset[Expr]
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

    def _range(self, atom: Expr, touch: _Touch) -> tuple[int | None, int | None]:
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

    def _fixed(self, f: Form, g: Form, x: _Touch, y: _Touch, common: frozenset[Expr]) -> set[Expr]:
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

    def _never_equal(self, f: Form, g: Form, common: frozenset[Expr]) -> bool:
        """True for the two halves of a double buffer: remainders of one common variable that never agree."""
        if len(f.terms) != 1 or len(g.terms) != 1:
            return False
        (a, ka), (b, kb) = *f.terms.items(), *g.terms.items()
        if not (isinstance(a, FloorMod) and isinstance(b, FloorMod) and ka == kb == 1):
            return False
        m, n = self.scope.form(a.b), self.scope.form(b.b)
        p, q = self.scope.form(a.a), self.scope.form(b.a)
        if not (m.is_const and n.is_const and m.constant == n.constant and m.constant > 0):
            return False
        between = q.minus(p)
        if set(p.terms) != set(q.terms) or not all(self._is_common(t, common) for t in p.terms):
            return False
        if not between.is_const:
            return False
        return (between.constant + g.constant - f.constant) % m.constant != 0 if f.constant == g.constant else False


def _loads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk_expr(e))


def _accumulate(ends: list[int | None], k: int, bounds: tuple[int | None, int | None]) -> None:
    if k == 0:
        return
    low, high = bounds if k > 0 else (bounds[1], bounds[0])
    ends[0] = None if ends[0] is None or low is None else ends[0] + k * low
    ends[1] = None if ends[1] is None or high is None else ends[1] + k * high


def _with(summary: _Summary, s: Stmt) -> _Summary:
    return _Summary(s, summary.entry, summary.exit, summary.always)
