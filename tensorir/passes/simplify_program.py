"""Removes what does nothing: loops of no or one step, decided conditions, unread allocations, empty sequences.

    for i in 0..1: B[i] = A[i]      →   B[0] = A[0]
    if true: s                      →   s
    alloc T: T[i] = 0 (never read)  →   (nothing)

The last cleaning before code generation; index arithmetic comes out in canonical form.
"""

from __future__ import annotations

from tensorir.buffer import Buffer
from tensorir.expr import Const, Expr, Load, Var, logical_not
from tensorir.passes.linear import IndexScope, predicate_verdict
from tensorir.passes.tighten_loops import EMPTY
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store, seq
from tensorir.visit import rewrite_expr, walk_expr, walk_exprs, walk_stmt, with_body


def simplify_program(func: Func) -> Func:
    """`func` cleaned; the same object if nothing was to be cleaned."""
    if any(isinstance(s, Block) for s in walk_stmt(func.body)):
        return func
    cleaner = _Cleaner(func)
    return with_body(func, cleaner.visit(func.body))


class _Cleaner:
    """The walk: `values` are variables that turned out to be constants or other variables."""

    def __init__(self, func: Func) -> None:
        self.scope = IndexScope(func.dims)
        self.values: dict[Var, Expr] = {}
        self.memo: dict[Expr, Expr] = {}

    def expr(self, e: Expr) -> Expr:
        if self.values:
            e = rewrite_expr(e, lambda n: self.values.get(n, n) if isinstance(n, Var) else n, self.memo)
        return self.scope.simplify(e)

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return self._store(s)
        if isinstance(s, Seq):
            new = [self.visit(x) for x in s.stmts]
            if all(a is b for a, b in zip(new, s.stmts, strict=True)):
                return s
            return seq(*[x for x in new if not _is_empty(x)])
        if isinstance(s, For):
            return self._loop(s)
        if isinstance(s, If):
            return self._if(s)
        if isinstance(s, LetStmt):
            value = self.expr(s.value)
            if isinstance(value, Const) or isinstance(value, Var):
                self.values[s.var] = value
                self.memo = {}
                return self.visit(s.body)
            self.scope.bind_value(s.var, value)
            body = self.visit(s.body)
            if _is_empty(body) or not any(e is s.var for e in walk_exprs(body)):
                return body
            return s if value is s.value and body is s.body else LetStmt(s.var, value, body)
        if isinstance(s, Allocate):
            body = self.visit(s.body)
            if not _is_read(body, s.buffer):
                return _without_stores(body, s.buffer)
            return s if body is s.body else Allocate(s.buffer, body)
        if isinstance(s, Evaluate):
            value = self.expr(s.value)
            return s if value is s.value else Evaluate(value)
        return s

    def _store(self, s: Store) -> Stmt:
        indices = tuple([self.expr(i) for i in s.indices])
        value = self.expr(s.value)
        predicate = None if s.predicate is None else self.expr(s.predicate)
        if predicate is not None:
            verdict = predicate_verdict(predicate, self.scope)
            if verdict is False:
                return EMPTY
            if verdict is True:
                predicate = None
        if (
            all(a is b for a, b in zip(indices, s.indices, strict=True))
            and value is s.value
            and predicate is s.predicate
        ):
            return s
        return Store(s.buffer, indices, value, predicate)

    def _loop(self, s: For) -> Stmt:
        begin, extent = self.expr(s.begin), self.expr(s.extent)
        if isinstance(extent, Const) and int(extent.value) <= 0:
            return EMPTY
        if isinstance(extent, Const) and int(extent.value) == 1 and s.kind != "thread":
            self.values[s.var] = begin
            self.memo = {}
            return self.visit(s.body)
        with self.scope.inside(s.var, begin, extent):
            body = self.visit(s.body)
        if _is_empty(body):
            return EMPTY
        if begin is s.begin and extent is s.extent and body is s.body:
            return s
        return For(s.var, begin, extent, s.kind, body, s.thread, s.pragmas)

    def _if(self, s: If) -> Stmt:
        condition = self.expr(s.condition)
        verdict = self.scope.prove(condition)
        if verdict is not None:
            return self.visit(s.then) if verdict else EMPTY if s.otherwise is None else self.visit(s.otherwise)
        with self.scope.assume(condition):
            then = self.visit(s.then)
        otherwise = None if s.otherwise is None else self.visit(s.otherwise)
        if _is_empty(then) and (otherwise is None or _is_empty(otherwise)):
            return EMPTY
        if otherwise is not None and _is_empty(otherwise):
            otherwise = None
        if _is_empty(then) and otherwise is not None:
            return If(logical_not(condition), otherwise)
        if condition is s.condition and then is s.then and otherwise is s.otherwise:
            return s
        return If(condition, then, otherwise)


def _is_empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts


def _is_read(s: Stmt, buffer: Buffer) -> bool:
    """True if anything but a store to `buffer` of its own update reads it."""
    return any(isinstance(e, Load) and e.buffer is buffer for e in _read_exprs(s, buffer))


def _read_exprs(s: Stmt, buffer: Buffer) -> list[Expr]:
    found: list[Expr] = []
    for x in walk_stmt(s):
        if isinstance(x, Store) and x.buffer is buffer:
            continue
        if isinstance(x, Store):
            for e in (*x.indices, x.value, *(() if x.predicate is None else (x.predicate,))):
                found.extend(walk_expr(e))
        elif isinstance(x, For):
            found.extend((*walk_expr(x.begin), *walk_expr(x.extent)))
        elif isinstance(x, If):
            found.extend(walk_expr(x.condition))
        elif isinstance(x, (LetStmt, Evaluate)):
            found.extend(walk_expr(x.value))
    return found


def _without_stores(s: Stmt, buffer: Buffer) -> Stmt:
    if isinstance(s, Store):
        return EMPTY if s.buffer is buffer else s
    if isinstance(s, Seq):
        return seq(*[x for x in (_without_stores(y, buffer) for y in s.stmts) if not _is_empty(x)])
    if isinstance(s, For):
        body = _without_stores(s.body, buffer)
        if body is s.body:
            return s
        return EMPTY if _is_empty(body) else For(s.var, s.begin, s.extent, s.kind, body, s.thread, s.pragmas)
    if isinstance(s, If):
        then = _without_stores(s.then, buffer)
        otherwise = None if s.otherwise is None else _without_stores(s.otherwise, buffer)
        if otherwise is not None and _is_empty(otherwise):
            otherwise = None
        return EMPTY if _is_empty(then) and otherwise is None else If(s.condition, then, otherwise)
    if isinstance(s, LetStmt):
        body = _without_stores(s.body, buffer)
        return EMPTY if _is_empty(body) else LetStmt(s.var, s.value, body)
    if isinstance(s, Allocate):
        body = _without_stores(s.body, buffer)
        return EMPTY if _is_empty(body) else Allocate(s.buffer, body)
    return s
