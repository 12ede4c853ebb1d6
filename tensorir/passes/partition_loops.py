"""Splits loops where a guard changes its answer, so that the hot part carries none.

    for i in 0..17:                    for i in 0..1: B[i] = 0
      B[i] = if_then_else(        →    for i in 1..16: B[i] = A[i - 1]
        1 <= i < 16, A[i - 1], 0)      for i in 16..17: B[i] = 0

A guard is a condition of an `If`, an `IfThenElse` or a predicate that is an integer inequality. What it asks of the
loop variable, for every value of the loops inside, gives the places to split. With constant bounds the loop is split
at each of them (at most three); with symbolic ones into before, main and after, the main part being where all guards
hold. A parallel loop stays one loop, whose body chooses between an unguarded and a guarded copy.

A pragma `partition` on a loop decides by itself: False leaves it whole, True splits even a short kernel.

Code growth is bounded by `BUDGET` expression nodes a function, counted after unrolling. A short innermost
reduction loop around unrolled copies is left alone: the copies decide most guards themselves, and its split parts would
fall into one basic block, which costs registers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from tensorir.expr import (
    EQ,
    NE,
    Compare,
    Const,
    Expr,
    IfThenElse,
    Load,
    Select,
    Var,
    const,
    less,
    less_equal,
    logical_not,
    maximum,
    minimum,
)
from tensorir.passes.accesses import bind_loops
from tensorir.passes.fresh import fresh_copy
from tensorir.passes.linear import Form, IndexScope, conjunction, conjuncts, is_index_type
from tensorir.passes.tighten_loops import EMPTY, loop_limits
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.visit import children, free_vars, rewrite_expr, stmt_exprs, sub_stmts, walk_expr, walk_stmt, with_body

BUDGET = 12_000
"""Expression nodes, counted after unrolling, that the copies may add to a function."""

_WORTH_A_TEST = 500
"""A loop step of this many nodes does not feel a test."""

_SMALL = 16
_MOST_CUTS = 3


def partition_loops(func: Func) -> Func:
    """`func` with its loops split at their guards."""
    if not any(_has_guard(s) for s in walk_stmt(func.body)):
        return func
    return with_body(func, _Partition(func).visit(func.body))


def _has_guard(s: Stmt) -> bool:
    if isinstance(s, If) or (isinstance(s, Store) and s.predicate is not None):
        return True
    return any(isinstance(n, IfThenElse) for e in stmt_exprs(s) for n in walk_expr(e))


@dataclass(frozen=True, slots=True, eq=False)
class _Guard:
    """One inequality `margin >= 0` under a loop, with the margin's least value over the loops inside."""

    condition: Expr
    least: Form
    most: Form


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A part of a split loop: its bounds, and the values its variable is at least or below."""

    begin: Expr
    extent: Expr
    at_least: tuple[Expr, ...] = ()
    below: tuple[Expr, ...] = ()


class _Partition:
    """The walk, with what is known and what may still be spent."""

    def __init__(self, func: Func) -> None:
        self.scope = IndexScope(func.dims)
        self.budget = BUDGET

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, For):
            with self.scope.inside(s.var, s.begin, s.extent):
                hint = dict(s.pragmas).get("partition")
                if s.kind == "parallel" and hint is not False:
                    body = self._versioned(self.visit(s.body), s)
                    return s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
                guards = self._guards(s.body, s.var) if s.kind == "serial" and hint is not False else []
                parts = self._parts(s, guards) if guards else None
                if parts is None:
                    body = self.visit(s.body)
                    return s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
            return seq(*[self._part(s, part) for part in parts])
        if isinstance(s, Seq):
            new = [self.visit(x) for x in s.stmts]
            return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
        if isinstance(s, If):
            return self._if(s)
        if isinstance(s, LetStmt):
            value = self._expr(s.value)
            self.scope.bind_value(s.var, value)
            body = self.visit(s.body)
            return s if body is s.body and value is s.value else LetStmt(s.var, value, body)
        if isinstance(s, Allocate):
            body = self.visit(s.body)
            return s if body is s.body else Allocate(s.buffer, body)
        if isinstance(s, Store):
            value = self._expr(s.value)
            predicate = None if s.predicate is None else self._expr(s.predicate)
            if predicate is not None and (verdict := self.scope.prove(predicate)) is not None:
                if not verdict:
                    return EMPTY
                predicate = None
            same = value is s.value and predicate is s.predicate
            return s if same else Store(s.buffer, s.indices, value, predicate)
        if isinstance(s, Evaluate):
            value = self._expr(s.value)
            return s if value is s.value else Evaluate(value)
        return s

    def _if(self, s: If) -> Stmt:
        needed = [c for c in conjuncts(self.scope.simplify(s.condition)) if self.scope.prove(c) is not True]
        if any(self.scope.prove(c) is False for c in needed):
            return EMPTY if s.otherwise is None else self.visit(s.otherwise)
        if not needed:
            return self.visit(s.then)
        condition = conjunction(needed)
        with self.scope.assume(condition):
            then = self.visit(s.then)
        otherwise = None
        if s.otherwise is not None:
            with self.scope.assume(*([logical_not(needed[0])] if len(needed) == 1 else [])):
                otherwise = self.visit(s.otherwise)
        if condition is s.condition and then is s.then and otherwise is s.otherwise:
            return s
        return If(condition, then, otherwise)

    def _expr(self, e: Expr) -> Expr:
        """`e` with the choices decided that hold or fail here."""
        if not any(isinstance(n, IfThenElse) for n in walk_expr(e)):
            return e

        def rule(n: Expr) -> Expr:
            if not isinstance(n, IfThenElse):
                return n
            needed = [c for c in conjuncts(self.scope.simplify(n.condition)) if self.scope.prove(c) is not True]
            if not needed:
                return n.a
            if any(self.scope.prove(c) is False for c in needed):
                return n.b
            condition = conjunction(needed)
            return n if condition is n.condition else IfThenElse(condition, n.a, n.b, n.dtype)

        return rewrite_expr(e, rule)

    # --------------------------------------------------------------------------------------------- what the guards ask

    def _guards(self, body: Stmt, var: Var) -> list[_Guard]:
        """The undecided inequalities in the body of the loop over `var` that ask about it."""
        conditions = _conditions(body)
        if not conditions:
            return []
        bind_loops(body, self.scope)
        inner = frozenset(s.var for s in walk_stmt(body) if isinstance(s, (For, LetStmt)))
        found: list[_Guard] = []
        seen: set[tuple[object, ...]] = set()
        for condition in conditions:
            for part in conjuncts(self.scope.simplify(condition)):
                if isinstance(part, Const) or var not in self.scope.variables(part):
                    continue
                if any(isinstance(n, Load) for n in walk_expr(part)):
                    continue
                for margin in self._margins(part):
                    least = self.scope.extreme(margin, inner, low=True)
                    most = self.scope.extreme(margin, inner, low=False)
                    if least is None or most is None or self.scope.nonnegative(least):
                        continue
                    if any(isinstance(n, Load) for a in least.terms for n in walk_expr(a)):
                        continue
                    key = (*sorted((id(a), c) for a, c in least.terms.items()), least.constant)
                    if key not in seen:
                        seen.add(key)
                        found.append(_Guard(part, least, most))
        return found

    def _margins(self, part: Expr) -> list[Form]:
        if isinstance(part, (EQ, NE)) and is_index_type(part.a.dtype):
            difference = self.scope.form(part.a).minus(self.scope.form(part.b))
            return [difference, difference.scaled(-1)]
        margin = self.scope.margin(part) if isinstance(part, Compare) or not isinstance(part, Const) else None
        return [] if margin is None else [margin]

    # -------------------------------------------------------------------------------------------------- serial loops

    def _parts(self, loop: For, guards: list[_Guard]) -> list[_Part] | None:
        """The parts of a serial loop; None to leave it whole."""
        if _is_small_kernel(loop) and dict(loop.pragmas).get("partition") is not True:
            return None
        cost = _cost(loop.body)
        begin, size = self.scope.form(loop.begin), self.scope.form(loop.extent)
        cuts: list[tuple[Form, bool]] = []  # (first value of the later part, the guard holds after it)
        for guard in guards:
            for form, true_side in ((guard.least, True), (guard.most, False)):
                cut = self._cut(form, loop.var, true_side)
                if cut is not None:
                    cuts.append(cut)
        if not cuts:
            return None
        if begin.is_const and size.is_const and all(c.is_const for c, _ in cuts):
            first, end = begin.constant, begin.constant + size.constant
            points = sorted({c.constant for c, _ in cuts if first < c.constant < end})
            if len(points) > _MOST_CUTS:
                after = [c.constant for c, holds_after in cuts if holds_after]
                before = [c.constant for c, holds_after in cuts if not holds_after]
                low, high = max([first, *after]), min([end, *before])
                points = sorted({p for p in (low, high) if first < p < end}) if low < high else points[:_MOST_CUTS]
            if not points or not self._spend(cost * len(points)):
                return None
            edges = [first, *points, end]
            dtype = loop.var.dtype
            return [_Part(const(a, dtype), const(b - a, dtype)) for a, b in zip(edges, edges[1:], strict=False)]
        return self._symbolic_parts(loop, cuts, cost)

    def _symbolic_parts(self, loop: For, cuts: list[tuple[Form, bool]], cost: int) -> list[_Part] | None:
        """Before, main and after, with bounds that keep every extent at least 0."""
        dtype, scope = loop.var.dtype, self.scope
        begin = scope.simplify(loop.begin)
        end = scope.simplify(loop.begin + loop.extent)
        at_least = tuple(scope.to_expr(c, dtype) for c, holds_after in cuts if holds_after)
        below = tuple(scope.to_expr(c, dtype) for c, holds_after in cuts if not holds_after)
        low, high = begin, end
        for edge in at_least:
            low = scope.simplify(maximum(low, edge))
        for edge in below:
            high = scope.simplify(minimum(high, edge))
        if low is begin and high is end:
            return None
        parts = []
        if low is not begin:
            low = scope.simplify(minimum(low, end))
            parts.append(_Part(begin, self._distance(begin, low)))
        if high is not end:
            high = scope.simplify(maximum(high, low))
        # Where the main part is not empty, the clamps did not act, so its variable obeys each edge by itself.
        parts.append(_Part(low, self._distance(low, high), at_least, below))
        if high is not end:
            parts.append(_Part(high, self._distance(high, end)))
        parts = [p for p in parts if not (isinstance(p.extent, Const) and int(p.extent.value) <= 0)]
        if len(parts) < 2 or not self._spend(cost * (len(parts) - 1)):
            return None
        return parts

    def _distance(self, a: Expr, b: Expr) -> Expr:
        """b - a, at least 0."""
        size = self.scope.form(b).minus(self.scope.form(a))
        extent = self.scope.to_expr(size, a.dtype)
        return extent if self.scope.nonnegative(size) else self.scope.simplify(maximum(extent, 0))

    def _cut(self, form: Form, var: Var, true_side: bool) -> tuple[Form, bool] | None:
        """Where `form >= 0` starts or stops to hold as `var` grows: (first value of the later part, holds after).

        For the most value (`true_side` False) the same of the place where the guard stops to fail."""
        c = form.coefficient(var)
        rest = form.without(var)
        if c == 0 or any(var in self.scope.variables(a) for a in rest.terms):
            return None
        quotient = self.scope.form(self.scope.simplify(self.scope.to_expr(rest, var.dtype) // abs(c)))
        if c > 0:  # holds from -(rest // c) on
            place = quotient.scaled(-1)
            return (place, True) if true_side or place.is_const else None
        place = quotient.shifted(1)  # holds before rest // -c + 1
        return (place, False) if true_side or place.is_const else None

    def _part(self, loop: For, part: _Part) -> Stmt:
        """One part of a split loop, with names of its own; it is not split again, only the loops inside."""
        if isinstance(part.extent, Const) and int(part.extent.value) == 1:
            with self._obeying(part.begin, part):
                return self.visit(fresh_copy(loop.body, {loop.var: part.begin}))
        var = Var(loop.var.name, loop.var.dtype)
        body = fresh_copy(loop.body, {loop.var: var})
        with self.scope.inside(var, part.begin, part.extent), self._obeying(var, part):
            body = self.visit(body)
        return For(var, part.begin, part.extent, loop.kind, body, loop.thread, loop.pragmas)

    def _obeying(self, value: Expr, part: _Part) -> AbstractContextManager[None]:
        facts = [less_equal(e, value) for e in part.at_least] + [less(value, e) for e in part.below]
        return self.scope.assume(*facts)

    # ------------------------------------------------------------------------------------------------ parallel loops

    def _versioned(self, s: Stmt, loop: For) -> Stmt:
        """A statement of the body of a parallel loop with a test of the guards that ask about it put around its
        guarded parts: as small as they are, but outside of loops whose steps are cheap."""
        if not self._guards(s, loop.var):
            return s
        if isinstance(s, Allocate) and s.buffer.scope != "register":
            return Allocate(s.buffer, self._versioned(s.body, loop))
        if isinstance(s, LetStmt):
            return LetStmt(s.var, s.value, self._versioned(s.body, loop))
        if isinstance(s, For) and s.kind == "serial" and _cost(s.body) >= _WORTH_A_TEST:
            with self.scope.inside(s.var, s.begin, s.extent):
                body = self._versioned(s.body, loop)
            return For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
        if isinstance(s, Seq):
            runs: list[tuple[bool, list[Stmt]]] = []
            alone = True
            for x in s.stmts:
                guarded = bool(self._guards(x, loop.var))
                large = guarded and _cost(x) >= _WORTH_A_TEST
                if alone or large or runs[-1][0] != guarded:
                    runs.append((guarded, []))
                runs[-1][1].append(x)
                alone = large
            if len(runs) > 1:
                return seq(*[self._versioned(seq(*run), loop) if guarded else seq(*run) for guarded, run in runs])
        return self._two_versions(s, loop)

    def _two_versions(self, s: Stmt, loop: For) -> Stmt:
        """`if <all guards hold>: s without them, else: s`."""
        tests: list[Expr] = []
        for guard in self._guards(s, loop.var):
            test = self.scope.at_least_zero(guard.least, loop.var.dtype)
            if self.scope.prove(test) is not False and not any(test is t for t in tests):
                tests.append(test)
        chosen: list[Expr] = []
        for test in tests:
            # Two guards that never hold together would leave the unguarded copy unused.
            with self.scope.assume(*chosen):
                if self.scope.prove(test) is not False:
                    chosen.append(test)
        if not chosen or not any(isinstance(x, For) for x in walk_stmt(s)) or not self._spend(_cost(s)):
            return s
        with self.scope.assume(*chosen):
            main = self.visit(fresh_copy(s, {}))
        return If(conjunction(chosen), main, self._rest(s, loop, chosen))

    def _rest(self, s: Stmt, loop: For, chosen: list[Expr]) -> Stmt:
        """The guarded copy; if one value of the variable is all that is left for it, that value is put in."""
        if len(chosen) != 1:
            return s
        failing = self.scope.simplify(logical_not(chosen[0]))
        limits = loop_limits(failing, loop.var, self.scope)
        begin, size = self.scope.form(loop.begin), self.scope.form(loop.extent)
        if limits is not None and begin.is_const and size.is_const:
            lows = [begin.constant, *(f.constant for f in limits[0] if f.is_const)]
            ends = [begin.constant + size.constant, *(f.constant for f in limits[1] if f.is_const)]
            if min(ends) - max(lows) == 1:
                return self.visit(fresh_copy(s, {loop.var: const(max(lows), loop.var.dtype)}))
        with self.scope.assume(failing):
            return self.visit(s)

    def _spend(self, cost: int) -> bool:
        if cost > self.budget:
            return False
        self.budget -= cost
        return True


def _conditions(s: Stmt) -> list[Expr]:
    """The conditions of all guards in a statement, outer ones first."""
    found: list[Expr] = []
    for x in walk_stmt(s):
        if isinstance(x, If):
            found.append(x.condition)
        if isinstance(x, Store) and x.predicate is not None:
            found.append(x.predicate)
        for e in stmt_exprs(x):
            found.extend(n.condition for n in walk_expr(e) if isinstance(n, IfThenElse))
    return found


def _cost(s: Stmt) -> int:
    """Expression nodes of a statement after unrolling."""
    copied = frozenset(x.var for x in walk_stmt(s) if isinstance(x, For) and x.kind == "unrolled")
    total = 0
    stack: list[tuple[Stmt, int]] = [(s, 1)]
    while stack:
        top, times = stack.pop()
        total += times * (2 + sum(_nodes(e, copied) for e in stmt_exprs(top)))
        if isinstance(top, For) and top.kind == "unrolled" and isinstance(top.extent, Const):
            times *= max(int(top.extent.value), 1)
        stack.extend((c, times) for c in sub_stmts(top))
    return total


def _nodes(e: Expr, copied: frozenset[Var]) -> int:
    """Distinct nodes of an expression, of choices that a copy decides only one side."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, (Select, IfThenElse)) and all(v in copied for v in free_vars(top.condition)):
            stack.append(top.a)
        else:
            stack.extend(children(top))
    return len(seen)


def _is_small_kernel(loop: For) -> bool:
    """True for a short innermost serial loop around unrolled copies that all its steps accumulate into."""
    if not (isinstance(loop.extent, Const) and int(loop.extent.value) <= _SMALL):
        return False
    kinds = [s.kind for s in walk_stmt(loop.body) if isinstance(s, For)]
    if "unrolled" not in kinds or not all(k in ("unrolled", "vectorized") for k in kinds):
        return False
    own = {s.buffer for s in walk_stmt(loop.body) if isinstance(s, Allocate)}
    return any(
        isinstance(s, Store) and s.buffer not in own and not any(n is loop.var for i in s.indices for n in walk_expr(i))
        for s in walk_stmt(loop.body)
    )
