"""Vectorized loops become vector expressions.

    for j in 0..8 vectorized:
      if io * 8 + j < n:                →   C[ramp(io * 8, 1, 8)] = A[ramp(io * 8, 1, 8)] + broadcast(b[io], 8)
        C[io * 8 + j] = A[io * 8 + j] + b[io]     under the predicate ramp(io * 8, 1, 8) < broadcast(n, 8)

The variable becomes a ramp, what does not depend on it stays scalar and is broadcast where it meets a vector. A guard
that asks about the lane becomes a predicate of the stores and loads under it where the target has cheap masked
memory; else the vector code runs where the guard holds in all lanes, and a scalar loop does the rest. Loops inside
stay loops with a vector body. What has no vector form (an extern call, a store all lanes share, an inner loop whose
bounds ask about the lane) runs as a serial loop over the lanes. The iterations of a vectorized loop are independent,
so each statement of a sequence may do all its lanes before the next statement starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.errors import UserError
from tensorir.expr import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    IfThenElse,
    Let,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    const,
)
from tensorir.intrinsics import INTRINSICS
from tensorir.passes.fresh import fresh_copy
from tensorir.passes.linear import IndexScope, conjunction, conjuncts, is_index_type, predicate_verdict
from tensorir.passes.tighten_loops import EMPTY
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.target import Target
from tensorir.visit import children, rewrite_expr, rewrite_stmt, stmt_exprs, substitute, walk_expr, walk_stmt, with_body


class VectorizeError(UserError):
    """A vectorized loop whose extent is not a constant."""


class _NoVector(Exception):
    """A statement or expression that has no vector form."""


def vectorize(func: Func, target: Target) -> Func:
    """`func` without vectorized loops. Raises `VectorizeError` naming the loop."""
    if not any(isinstance(s, For) and s.kind == "vectorized" for s in walk_stmt(func.body)):
        return func
    scope = IndexScope(func.dims)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            scope.bind(s.var, s.begin, s.extent)
            body = visit(s.body)
            loop = s if body is s.body else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
            return _vectorized(loop, scope, target) if s.kind == "vectorized" else loop
        if isinstance(s, Seq):
            new = [visit(x) for x in s.stmts]
            return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
        if isinstance(s, If):
            with scope.assume(s.condition):
                then = visit(s.then)
            otherwise = None if s.otherwise is None else visit(s.otherwise)
            return s if then is s.then and otherwise is s.otherwise else If(s.condition, then, otherwise)
        if isinstance(s, LetStmt):
            scope.bind_value(s.var, s.value)
            body = visit(s.body)
            return s if body is s.body else LetStmt(s.var, s.value, body)
        if isinstance(s, Allocate):
            body = visit(s.body)
            return s if body is s.body else Allocate(s.buffer, body)
        return s

    return with_body(func, visit(func.body))


def _vectorized(loop: For, scope: IndexScope, target: Target) -> Stmt:
    extent = scope.simplify(loop.extent)
    if not isinstance(extent, Const):
        raise VectorizeError(
            f"vectorize({loop.var.name}): the loop must have a constant extent, but it runs over {extent!r} steps",
            help=f"split {loop.var.name} by a constant first, then vectorize the inner loop",
        )
    lanes = int(extent.value)
    if lanes <= 0:
        return EMPTY
    if lanes == 1:
        return fresh_copy(loop.body, {loop.var: scope.simplify(loop.begin)})
    if any(isinstance(e, (Ramp, Broadcast)) for s in walk_stmt(loop.body) for e in _nodes(s)):
        return For(loop.var, loop.begin, loop.extent, "serial", loop.body, loop.thread, loop.pragmas)
    return _Lanes(loop, lanes, scope, target).stmt(loop.body)


def _touches_registers(s: Stmt) -> bool:
    for x in walk_stmt(s):
        if isinstance(x, Store) and x.buffer.scope == "register":
            return True
        if any(isinstance(n, Load) and n.buffer.scope == "register" for n in _nodes(x)):
            return True
    return False


def _nodes(s: Stmt) -> list[Expr]:
    return [n for e in stmt_exprs(s) for n in walk_expr(e)]


@dataclass(frozen=True, slots=True, eq=False)
class _Shell:
    """What stands between the loop and a statement, to be put around its scalar form: a condition or a binding."""

    condition: Expr | None = None
    var: Var | None = None
    value: Expr | None = None


class _Lanes:
    """The rewriting of one loop body. `mask` holds in the lanes that are active, None if all are."""

    def __init__(self, loop: For, lanes: int, scope: IndexScope, target: Target) -> None:
        self.loop, self.lanes, self.scope, self.target = loop, lanes, scope, target
        self.var = loop.var
        self.begin = scope.simplify(loop.begin)
        self.memo: dict[tuple[Expr, int], Expr] = {}
        self.lane_memo: dict[Expr, bool] = {}
        self.wide: dict[Expr, Var] = {}
        self.mask: Expr | None = None
        self.alive = False
        self.shells: list[_Shell] = []
        self.keep: list[Expr | None] = []
        self.varying: set[object] = {loop.var}
        self._find_varying(loop.body)

    def _find_varying(self, body: Stmt) -> None:
        """Collects what differs between lanes: bindings of values that do, and memory made inside the loop."""
        bindings: list[tuple[Var, Expr]] = []
        for s in walk_stmt(body):
            if isinstance(s, Allocate):
                self.varying.add(s.buffer)
            elif isinstance(s, LetStmt):
                bindings.append((s.var, s.value))
            bindings.extend((n.var, n.value) for n in _nodes(s) if isinstance(n, Let))
        size = 0
        while size != len(self.varying):
            size = len(self.varying)
            self.varying.update(v for v, value in bindings if self.depends(value))
            self.lane_memo.clear()

    # ---------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt) -> Stmt:
        """The vector form of a statement; a serial loop over its lanes where there is none."""
        state = (self.mask, self.alive, tuple(self.shells))
        try:
            return _STMT[type(s)](self, s)
        except _NoVector:
            self.mask, self.alive, self.shells = state[0], state[1], list(state[2])
            return self._serial(s)

    def _serial(self, s: Stmt) -> Stmt:
        for shell in reversed(self.shells):
            if shell.condition is not None:
                s = If(shell.condition, s)
            elif shell.var is not None and shell.value is not None:
                s = LetStmt(shell.var, shell.value, s)
        var = Var(self.var.name, self.var.dtype)
        begin, extent = self.begin, const(self.lanes, self.var.dtype)
        self.scope.bind(var, begin, extent)
        # Registers need constant indices, so there the lanes are copies, not steps.
        kind = "unrolled" if _touches_registers(s) else "serial"
        return For(var, begin, extent, kind, fresh_copy(s, {self.var: var}))

    def store(self, s: Store) -> Stmt:
        index = self.expr(s.indices[0])
        value = self.expr(s.value)
        predicate = self.mask if s.predicate is None else self._and(self.mask, self.expr(s.predicate))
        if index.dtype.lanes == 1:
            raise _NoVector
        return Store(s.buffer, (index,), self._wide(value), None if predicate is None else self._wide(predicate))

    def sequence(self, s: Seq) -> Stmt:
        return seq(*[self.stmt(x) for x in s.stmts])

    def loop_inside(self, s: For) -> Stmt:
        if self.depends(s.begin) or self.depends(s.extent) or s.kind in ("thread", "parallel"):
            raise _NoVector
        return For(s.var, s.begin, s.extent, s.kind, self.stmt(s.body), s.thread, s.pragmas)

    def branch(self, s: If) -> Stmt:
        lane_free = [c for c in conjuncts(s.condition) if not self.depends(c)]
        asking = [c for c in conjuncts(s.condition) if self.depends(c)]
        if not asking:
            self.shells.append(_Shell(condition=s.condition))
            then = self.stmt(s.then)
            self.shells[-1] = _Shell(condition=Not(s.condition))
            otherwise = None if s.otherwise is None else self.stmt(s.otherwise)
            self.shells.pop()
            return If(self._scalar(s.condition), then, otherwise)
        if lane_free and s.otherwise is None:
            self.shells.append(_Shell(condition=conjunction(lane_free)))
            inner = self.branch(If(conjunction(asking), s.then))
            self.shells.pop()
            return If(self._scalar(conjunction(lane_free)), inner)
        condition = conjunction(asking) if s.otherwise is None else s.condition
        if self._masks_are_cheap(s):
            vector = self.scope.simplify(self._wide(self.expr(condition)))
            verdict = predicate_verdict(vector, self.scope)
            if verdict is not None:
                return self.stmt(s.then) if verdict else EMPTY if s.otherwise is None else self.stmt(s.otherwise)
            then = self._under(condition, vector, s.then)
            if s.otherwise is None:
                return then
            opposite = Not(condition)
            return seq(then, self._under(opposite, Not(vector, vector.dtype), s.otherwise))
        return self._main_and_tail(condition, s)

    def _masks_are_cheap(self, s: If) -> bool:
        widths = [x.buffer.dtype for x in walk_stmt(s) if isinstance(x, Store)]
        return bool(widths) and all(self.target.has_masked_memory(t) for t in widths)

    def _under(self, condition: Expr, vector: Expr, body: Stmt) -> Stmt:
        """`body` in the lanes where the condition holds. If one lane is active whenever any is, it is asked first, so
        that what all lanes share may be read without a mask."""
        held, alive = self.mask, self.alive
        leader = self._leader(condition) if held is None or alive else None
        self.mask = self._and(held, vector)
        self.alive = leader is not None
        self.keep.append(self.mask)
        self.shells.append(_Shell(condition=condition))
        result = self.stmt(body)
        self.shells.pop()
        self.mask, self.alive = held, alive
        if leader is None or self.scope.prove(leader) is True or held is not None:
            return result
        return If(leader, result)

    def _leader(self, condition: Expr) -> Expr | None:
        """The condition in the lane that is active whenever one is: the first or the last."""
        signs: set[bool] = set()
        for part in conjuncts(self.scope.simplify(condition)):
            margin = self.scope.margin(part)
            if margin is None or any(self.depends(a) and a is not self.var for a in margin.terms):
                return None
            if any(isinstance(n, Load) for a in margin.terms for n in walk_expr(a)):
                return None
            signs.add(margin.coefficient(self.var) > 0)
        if len(signs) != 1:
            return None
        lane = self.scope.form(self.begin).shifted(self.lanes - 1 if signs.pop() else 0)
        leader = self.scope.simplify(substitute(condition, {self.var: self.scope.to_expr(lane, self.var.dtype)}))
        # Under an outer mask only a lane that is active for certain may speak for all.
        return leader if self.mask is None or self.scope.prove(leader) is True else None

    def _main_and_tail(self, condition: Expr, s: If) -> Stmt:
        """Vector code where the condition holds in all lanes, a scalar loop elsewhere."""
        tests: list[Expr] = []
        for part in conjuncts(condition):
            margin = self.scope.margin(self.scope.simplify(part))
            if margin is None or any(self.depends(a) and a is not self.var for a in margin.terms):
                raise _NoVector
            least = self.scope.extreme(margin, frozenset([self.var]), low=True)
            if least is None:
                raise _NoVector
            tests.append(self.scope.simplify(self.scope.to_expr(least, self.var.dtype) >= const(0, self.var.dtype)))
        everywhere = conjunction(tests)
        verdict = self.scope.prove(everywhere)
        if verdict is True:
            return self.stmt(s.then)
        scalar = self._serial(s)
        if verdict is False:
            return scalar
        return If(everywhere, self.stmt(s.then), scalar)

    def let(self, s: LetStmt) -> Stmt:
        value = self.expr(s.value)
        self.shells.append(_Shell(var=s.var, value=s.value))
        if value.dtype.lanes == 1:
            body: Stmt = LetStmt(s.var, value, self.stmt(s.body))
        else:
            wide = Var(s.var.name, value.dtype)
            self.wide[s.var] = wide
            body = LetStmt(wide, value, self.stmt(s.body))
        self.shells.pop()
        return body

    def allocation(self, s: Allocate) -> Stmt:
        """Memory inside the loop is one copy a lane: element i of lane l lies at i * lanes + l."""
        old = s.buffer
        self.varying.discard(old)
        self.lane_memo.clear()
        if self.depends(old.shape[0]):
            raise _NoVector
        new = Buffer(old.name, (self.scope.simplify(old.shape[0] * self.lanes),), old.dtype, old.scope)
        lane = self.var - self.begin

        def spread(i: Expr) -> Expr:
            return self.scope.simplify(i * self.lanes + lane)

        def rule(e: Expr) -> Expr:
            return Load(new, (spread(e.indices[0]),), e.dtype) if isinstance(e, Load) and e.buffer is old else e

        def move(x: Stmt) -> Stmt:
            return (
                Store(new, (spread(x.indices[0]),), x.value, x.predicate)
                if (isinstance(x, Store) and x.buffer is old)
                else x
            )

        body = rewrite_stmt(s.body, expr=lambda e: rewrite_expr(e, rule), stmt=move)
        return Allocate(new, self.stmt(body))

    def effect(self, s: Evaluate) -> Stmt:
        raise _NoVector

    # --------------------------------------------------------------------------------------------------- expressions

    def depends(self, e: Expr) -> bool:
        """True if the value of `e` may differ between lanes."""
        memo = self.lane_memo
        stack = [e]
        while stack:
            top = stack[-1]
            if top in memo:
                stack.pop()
                continue
            if isinstance(top, Var):
                memo[top] = top in self.varying
                continue
            if isinstance(top, Load) and top.buffer in self.varying:
                memo[top] = True
                continue
            kids = children(top)
            pending = [c for c in kids if c not in memo]
            if pending:
                stack.extend(pending)
                continue
            memo[top] = any(memo[c] for c in kids)
        return memo[e]

    def expr(self, e: Expr) -> Expr:
        """`e` for all lanes: scalar if it is the same in all of them and needs no mask."""
        key = (e, id(self.mask))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._build(e)
        return found

    def _scalar(self, e: Expr) -> Expr:
        result = self.expr(e)
        if result.dtype.lanes != 1:
            raise _NoVector
        return result

    def _build(self, e: Expr) -> Expr:
        if not self.depends(e) and (self.mask is None or not any(isinstance(n, Load) for n in walk_expr(e))):
            return e
        if is_index_type(e.dtype) and self.depends(e):
            ramp = self._ramp(e)
            if ramp is not None:
                return ramp
        if isinstance(e, Binary):
            return self._balanced(e)
        rule = _EXPR.get(type(e))
        if rule is None:
            raise _NoVector
        return rule(self, e)

    def _ramp(self, e: Expr) -> Expr | None:
        """The ramp of an integer expression that is affine in the variable."""
        form = self.scope.form(e)
        stride = form.coefficient(self.var)
        rest = form.without(self.var)
        if any(self.depends(a) for a in rest.terms):
            return None
        if self.mask is not None and any(isinstance(n, Load) for a in rest.terms for n in walk_expr(a)):
            return None
        if stride == 0:
            return self.scope.to_expr(rest, e.dtype)
        base = self.scope.to_expr(rest.plus(self.scope.form(self.begin), stride), e.dtype)
        step = self.scope.simplify(const(stride, e.dtype))
        return Ramp(base, step, self.lanes, e.dtype.with_lanes(self.lanes))

    def _balanced(self, e: Binary) -> Expr:
        """A binary operator; a long chain of them is walked without recursion on its left side."""
        chain: list[Binary] = []
        top: Expr = e
        while isinstance(top, Binary) and (top, id(self.mask)) not in self.memo:
            if chain and (not self.depends(top) or (is_index_type(top.dtype) and self._ramp(top) is not None)):
                break
            chain.append(top)
            top = top.a
        left = self.expr(top)
        for b in reversed(chain):
            left = self._operator(b, left, self.expr(b.b))
            self.memo[(b, id(self.mask))] = left
        return left

    def _operator(self, e: Binary, a: Expr, b: Expr) -> Expr:
        if a.dtype.lanes == 1 and b.dtype.lanes == 1:
            return type(e)(a, b, e.dtype)
        a, b = self._wide(a), self._wide(b)
        dtype = dtypes.bool_ if isinstance(e, Compare) else e.dtype
        return type(e)(a, b, dtype.with_lanes(self.lanes))

    def _wide(self, e: Expr) -> Expr:
        return Broadcast(e, self.lanes, e.dtype.with_lanes(self.lanes)) if e.dtype.lanes == 1 else e

    def _and(self, a: Expr | None, b: Expr) -> Expr:
        return b if a is None else And(self._wide(a), self._wide(b), dtypes.bool_.with_lanes(self.lanes))

    def _same_lanes(self, *operands: Expr) -> tuple[Expr, ...]:
        if all(o.dtype.lanes == 1 for o in operands):
            return operands
        return tuple(self._wide(o) for o in operands)

    def var_of(self, e: Var) -> Expr:
        if e is self.var:
            return Ramp(self.begin, const(1, e.dtype), self.lanes, e.dtype.with_lanes(self.lanes))
        return self.wide.get(e, e)

    def load(self, e: Load) -> Expr:
        index = self.expr(e.indices[0])
        predicate = self.mask if e.predicate is None else self._and(self.mask, self.expr(e.predicate))
        shared = e.predicate is None and (self.mask is None or self.alive)
        if index.dtype.lanes == 1 and (predicate is None or shared or self._is_inside(index, e.buffer)):
            return Load(e.buffer, (index,), e.dtype)
        if predicate is None:
            return Load(e.buffer, (index,), e.dtype.with_lanes(self.lanes))
        if not self.target.has_masked_memory(e.dtype):
            raise _NoVector
        return Load(e.buffer, (self._wide(index),), e.dtype.with_lanes(self.lanes), self._wide(predicate))

    def _is_inside(self, index: Expr, buffer: Buffer) -> bool:
        """True if the index provably lies in the buffer, so that it may be read though no lane is active."""
        form = self.scope.form(index)
        size = self.scope.form(buffer.shape[0])
        return self.scope.nonnegative(form) and self.scope.nonnegative(size.minus(form).shifted(-1))

    def call(self, e: Call) -> Expr:
        entry = INTRINSICS.get(e.name)
        if entry is None or entry.effect or e.name == "address":
            raise _NoVector
        args = self._same_lanes(*[self.expr(a) for a in e.args])
        return Call(e.name, args, e.dtype.with_lanes(args[0].dtype.lanes if args else 1))

    def cast(self, e: Cast) -> Expr:
        value = self.expr(e.value)
        return Cast(value, e.dtype.with_lanes(value.dtype.lanes))

    def negation(self, e: Not) -> Expr:
        a = self.expr(e.a)
        return Not(a, a.dtype)

    def fma(self, e: Fma) -> Expr:
        a, b, c = self._same_lanes(self.expr(e.a), self.expr(e.b), self.expr(e.c))
        return Fma(a, b, c, a.dtype)

    def select(self, e: Select) -> Expr:
        condition = self.expr(e.condition)
        a, b = self._same_lanes(self.expr(e.a), self.expr(e.b))
        if condition.dtype.lanes > 1:
            a, b = self._wide(a), self._wide(b)
        return Select(condition, a, b, a.dtype)

    def choice(self, e: IfThenElse) -> Expr:
        """A choice that differs between lanes: both sides, their loads masked, and a select."""
        if not self.depends(e.condition):
            condition = self._scalar(e.condition)
            a, b = self._same_lanes(self.expr(e.a), self.expr(e.b))
            return IfThenElse(condition, a, b, a.dtype)
        vector = self._wide(self.expr(e.condition))
        verdict = predicate_verdict(vector, self.scope)
        if verdict is not None:
            return self.expr(e.a if verdict else e.b)
        a = self._masked(e.a, vector)
        b = self._masked(e.b, Not(vector, vector.dtype))
        vector, a, b = self._same_lanes(vector, a, b)
        return Select(vector, a, b, a.dtype)

    def _masked(self, e: Expr, condition: Expr) -> Expr:
        held, alive = self.mask, self.alive
        self.mask, self.alive = self._and(held, condition), False
        self.keep.append(self.mask)
        result = self.expr(e)
        self.mask, self.alive = held, alive
        return result

    def let_expr(self, e: Let) -> Expr:
        value = self.expr(e.value)
        if value.dtype.lanes == 1:
            body = self.expr(e.body)
            return Let(e.var, value, body, body.dtype)
        wide = Var(e.var.name, value.dtype)
        self.wide[e.var] = wide
        body = self.expr(e.body)
        return Let(wide, value, body, body.dtype)


_STMT: dict[type, Callable[[_Lanes, Any], Stmt]] = {
    Store: _Lanes.store,
    Seq: _Lanes.sequence,
    For: _Lanes.loop_inside,
    If: _Lanes.branch,
    LetStmt: _Lanes.let,
    Allocate: _Lanes.allocation,
    Evaluate: _Lanes.effect,
}

_EXPR: dict[type, Callable[[_Lanes, Any], Expr]] = {
    Var: _Lanes.var_of,
    Load: _Lanes.load,
    Call: _Lanes.call,
    Cast: _Lanes.cast,
    Not: _Lanes.negation,
    Fma: _Lanes.fma,
    Select: _Lanes.select,
    IfThenElse: _Lanes.choice,
    Let: _Lanes.let_expr,
}
