"""Expands unrolled loops: one copy of the body a step, the variable a constant, indices simplified.

    for i in 0..2 unrolled:         acc[0] = A[x]
      acc[i] = A[x + i]        →    acc[1] = A[x + 1]

Guards that a copy decides are dropped with it, so only the copies at an edge keep one. Each subexpression is
rewritten once for each set of values it depends on, and equal ones are shared, so the cost is linear in the result.
"""

from __future__ import annotations

from tensorir.buffer import Buffer
from tensorir.errors import UserError
from tensorir.expr import Const, Expr, IfThenElse, Load, Select, Var, logical_not
from tensorir.passes.linear import IndexScope, literal_condition, predicate_verdict
from tensorir.passes.tighten_loops import EMPTY
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children, sub_stmts, walk_stmt, with_body, with_children

UNROLL_LIMIT = 1 << 16
"""Most steps that the unrolled loops of one function may take together."""


class UnrollError(UserError):
    """An unrolled loop whose extent is not constant, or whose copies would be too many."""


def unroll(func: Func) -> Func:
    """`func` without unrolled loops. Raises `UnrollError` naming the loop."""
    if not any(isinstance(s, For) and s.kind == "unrolled" for s in walk_stmt(func.body)):
        return func
    return with_body(func, _join(_Unroller(func).expand(func.body)))


def _join(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts)) if stmts else EMPTY


class _Unroller:
    """The walk: `env` maps what varies between copies (variables, buffers) to its value in the copy in hand."""

    def __init__(self, func: Func) -> None:
        self.scope = IndexScope(func.dims)
        self.env: dict[object, object] = {}
        self.varying = _varying(func.body)
        self.deps: dict[Expr, tuple[object, ...]] = {}
        self.memo: dict[tuple[object, ...], Expr] = {}
        self.alive: list[object] = []
        self.copies = 0

    def expand(self, s: Stmt) -> list[Stmt]:
        """The statements that stand for `s` in the copy in hand."""
        if isinstance(s, Store):
            return self._store(s)
        if isinstance(s, Seq):
            result: list[Stmt] = []
            for x in s.stmts:
                result.extend(self.expand(x))
            return result
        if isinstance(s, For):
            return self._unrolled(s) if s.kind == "unrolled" else self._loop(s)
        if isinstance(s, If):
            condition = self.expr(s.condition)
            verdict = self.scope.prove(condition)
            if verdict is not None:
                return self.expand(s.then) if verdict else [] if s.otherwise is None else self.expand(s.otherwise)
            with self.scope.assume(condition):
                then = self.expand(s.then)
            otherwise: list[Stmt] = []
            if s.otherwise is not None:
                with self.scope.assume(logical_not(condition)):
                    otherwise = self.expand(s.otherwise)
            if not then and not otherwise:
                return []
            return [If(condition, _join(then), _join(otherwise) if otherwise else None)]
        if isinstance(s, LetStmt):
            value = self.expr(s.value)
            if s.var in self.varying:
                var = Var(s.var.name, s.var.dtype)
                self._set(s.var, var)
            else:
                var = s.var
            self.scope.bind_value(var, value)
            return [LetStmt(var, value, _join(self.expand(s.body)))]
        if isinstance(s, Allocate):
            buffer = s.buffer
            if buffer in self.varying:
                buffer = Buffer(buffer.name, tuple(map(self.expr, buffer.shape)), buffer.dtype, buffer.scope)
                self._set(s.buffer, buffer)
            return [Allocate(buffer, _join(self.expand(s.body)))]
        if isinstance(s, Evaluate):
            return [Evaluate(self.expr(s.value))]
        return [s]

    def _store(self, s: Store) -> list[Stmt]:
        predicate = None if s.predicate is None else self.expr(s.predicate)
        if predicate is not None:
            verdict = predicate_verdict(predicate, self.scope)
            if verdict is False:
                return []
            if verdict is True:
                predicate = None
        buffer = self.env.get(s.buffer, s.buffer)
        assert isinstance(buffer, Buffer)
        return [Store(buffer, tuple([self.expr(i) for i in s.indices]), self.expr(s.value), predicate)]

    def _unrolled(self, s: For) -> list[Stmt]:
        begin, extent = self.expr(s.begin), self.scope.simplify(self.expr(s.extent))
        if not isinstance(extent, Const):
            raise UnrollError(
                f"unroll({s.var.name}): the loop must have a constant extent, but it runs over {extent!r} steps",
                help=f"split {s.var.name} by a constant first, then unroll the inner loop",
            )
        self.copies += int(extent.value)
        if self.copies > UNROLL_LIMIT:
            raise UnrollError(
                f"unroll({s.var.name}): the unrolled loops of the function make more than {UNROLL_LIMIT} copies",
                help="unroll fewer loops, or split them and unroll the inner parts",
            )
        result: list[Stmt] = []
        start = self.scope.form(begin)
        for step in range(int(extent.value)):
            self._set(s.var, self.scope.to_expr(start.shifted(step), s.var.dtype))
            result.extend(self.expand(s.body))
        return result

    def _loop(self, s: For) -> list[Stmt]:
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        size = self.scope.form(extent)
        if size.is_const and size.constant <= 0:
            return []
        if size.is_const and size.constant == 1 and s.var in self.varying and s.kind != "thread":
            self._set(s.var, begin)
            return self.expand(s.body)
        var = s.var
        if var in self.varying:
            var = Var(var.name, var.dtype)
            self._set(s.var, var)
        with self.scope.inside(var, begin, extent):
            stmts = self.expand(s.body)
        return [For(var, begin, extent, s.kind, _join(stmts), s.thread, s.pragmas)] if stmts else []

    def _set(self, name: object, value: object) -> None:
        self.env[name] = value
        self.alive.append(value)

    def expr(self, e: Expr) -> Expr:
        """`e` in the copy in hand, in canonical form."""
        if not self._deps(e):
            return e
        memo, env, scope = self.memo, self.env, self.scope
        stack = [e]
        while True:
            top = stack[-1]
            deps = self.deps[top]
            if not deps:
                stack.pop()
                continue
            key = (top, *[id(env[d]) for d in deps])
            if key in memo:
                stack.pop()
                if not stack:
                    return memo[key]
                continue
            if isinstance(top, Var):
                value = env[top]
                assert isinstance(value, Expr)
                memo[key] = value
                continue
            if isinstance(top, (Select, IfThenElse)):
                # The copy often decides which side it is; the other need not be made.
                condition = self._made(top.condition)
                if condition is None:
                    stack.append(top.condition)
                    continue
                taken = literal_condition(condition)
                if taken is not None:
                    chosen = top.a if taken else top.b
                    side = self._made(chosen)
                    if side is None:
                        stack.append(chosen)
                    else:
                        memo[key] = side
                    continue
            kids = children(top)
            new = []
            pending = False
            for child in kids:
                found = self._made(child)
                if found is None:
                    stack.append(child)
                    pending = True
                else:
                    new.append(found)
            if pending:
                continue
            rebuilt = with_children(top, tuple(new))
            if isinstance(rebuilt, Load):
                rebuilt = self._load(rebuilt)
            memo[key] = scope.canonical(rebuilt)

    def _made(self, e: Expr) -> Expr | None:
        """What stands for `e` in the copy in hand, if it was made already."""
        deps = self.deps[e]
        return self.memo.get((e, *[id(self.env[d]) for d in deps])) if deps else e

    def _load(self, e: Load) -> Load:
        buffer = self.env.get(e.buffer, e.buffer)
        predicate = e.predicate
        if predicate is not None and predicate_verdict(predicate, self.scope) is True:
            predicate = None
        assert isinstance(buffer, Buffer)
        if buffer is e.buffer and predicate is e.predicate:
            return e
        return Load(buffer, e.indices, e.dtype, predicate)

    def _deps(self, e: Expr) -> tuple[object, ...]:
        """What varies in `e`, in a fixed order; filled for all its parts."""
        deps = self.deps
        stack = [e]
        while stack:
            top = stack[-1]
            if top in deps:
                stack.pop()
                continue
            kids = children(top)
            pending = [c for c in kids if c not in deps]
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            merged: dict[object, None] = {}
            for child in kids:
                merged.update(dict.fromkeys(deps[child]))
            if isinstance(top, Var) and top in self.varying:
                merged[top] = None
            elif isinstance(top, Load) and top.buffer in self.varying:
                merged[top.buffer] = None
            deps[top] = tuple(sorted(merged, key=id))
        return deps[e]


def _varying(root: Stmt) -> set[object]:
    """The unrolled variables, and the variables and buffers that are bound inside an unrolled loop."""
    found: set[object] = set()
    stack: list[tuple[Stmt, bool]] = [(root, False)]
    while stack:
        s, inside = stack.pop()
        if isinstance(s, For):
            inside = inside or s.kind == "unrolled"
            if inside:
                found.add(s.var)
        elif inside and isinstance(s, LetStmt):
            found.add(s.var)
        elif inside and isinstance(s, Allocate):
            found.add(s.buffer)
        stack.extend((c, inside) for c in sub_stmts(s))
    return found
