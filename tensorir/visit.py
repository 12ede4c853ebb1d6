"""Traversal and rewriting of expressions and statements: the one file that knows which fields are children.

Children are read from the field types of the dataclasses. Expression traversal is iterative (long sums do not pass
Python's recursion limit); statements recurse only over loop nesting, sequences are flat.
Rewriters give the same object back when nothing changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from tensorir.buffer import Buffer, Range, Region
from tensorir.expr import Expr, IterVar, Load, Reduce, Var
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store, seq

_ONE = ("Expr", "Expr | None", "Var")
_MANY = ("tuple[Expr, ...]",)


@cache
def _fields(cls: type) -> tuple[tuple[str, bool], ...]:
    """(field name, is a tuple) of the expression children of an expression class, in order."""
    result = []
    for field in dataclasses.fields(cls):
        if field.type in _ONE and field.name != "var":
            result.append((field.name, False))
        elif field.type in _MANY:
            result.append((field.name, True))
    return tuple(result)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct expression children of an expression, in evaluation order."""
    cls: Any = type(e)
    return _reader(cls)(e)


@cache
def _reader(cls: type) -> Callable[[Any], tuple[Expr, ...]]:
    """What reads the children of one class: made once, since every pass does little else."""
    names = tuple(name for name, _ in _fields(cls))
    if not names:
        return lambda e: ()
    if _is_plain(cls):
        read: Callable[[Any], Any] = attrgetter(*names)
        return read if len(names) > 1 else lambda e: (read(e),)
    return _mixed_children


@cache
def _is_plain(cls: type) -> bool:
    """True if every child is one expression that is always there."""
    kinds = {field.name: field.type for field in dataclasses.fields(cls)}
    return all(not many and kinds[name] != "Expr | None" for name, many in _fields(cls))


def _mixed_children(e: Expr) -> tuple[Expr, ...]:
    result: list[Expr] = []
    cls: Any = type(e)
    for name, many in _fields(cls):
        value = getattr(e, name)
        if many:
            result.extend(value)
        elif value is not None:
            result.append(value)
    return tuple(result)


def with_children(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """`e` with its children replaced, in the order of `children`; `e` itself if none differs."""
    cls: Any = type(e)
    for a, b in zip(new, _reader(cls)(e), strict=True):
        if a is not b:
            break
    else:
        return e
    if _is_plain(cls):
        return cls(*[getattr(e, where) if isinstance(where, str) else new[where] for where in _rebuild_plan(cls)])
    changes: dict[str, Any] = {}
    position = 0
    for name, many in _fields(cls):
        value = getattr(e, name)
        if many:
            changes[name] = new[position : position + len(value)]
            position += len(value)
        elif value is not None:
            changes[name] = new[position]
            position += 1
    return cls(*[changes[f] if f in changes else getattr(e, f) for f in _field_names(cls)])


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


@cache
def _rebuild_plan(cls: type) -> tuple[str | int, ...]:
    """For each field of a plain class, in order: the position of the child that it is, or its own name."""
    names = [name for name, _ in _fields(cls)]
    return tuple(names.index(f) if f in names else f for f in _field_names(cls))


def rewrite_expr(e: Expr, rule: Callable[[Expr], Expr], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Bottom-up rewriting: children first, then `rule` on the node with its new children. Shared nodes are visited
    once. The variables bound by Let and Reduce are not visited."""
    done: dict[Expr, Expr] = {} if memo is None else memo
    stack: list[Expr] = [e]
    while stack:
        top = stack[-1]
        if top in done:  # identity: Expr hashes by identity and dict checks `is` first
            stack.pop()
            continue
        pending = [c for c in children(top) if c not in done]
        if pending:
            stack.extend(reversed(pending))
            continue
        stack.pop()
        done[top] = rule(with_children(top, tuple(done[c] for c in children(top))))
    return done[e]


def walk_expr(e: Expr) -> Iterator[Expr]:
    """Every distinct node of an expression, parents before children."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        stack.extend(reversed(children(top)))


def rewrite_region(region: Region, rule: Callable[[Expr], Expr], buffers: Callable[[Buffer], Buffer]) -> Region:
    """A region with its expressions and buffer mapped."""
    ranges = tuple(
        r if (b := rule(r.begin)) is r.begin and rule(r.extent) is r.extent else Range(b, rule(r.extent))
        for r in region.ranges
    )
    buffer = buffers(region.buffer)
    if buffer is region.buffer and all(a is b for a, b in zip(ranges, region.ranges, strict=True)):
        return region
    return Region(buffer, ranges)


def _same_buffer(buffer: Buffer) -> Buffer:
    return buffer


def rewrite_stmt(
    s: Stmt,
    *,
    expr: Callable[[Expr], Expr] | None = None,
    stmt: Callable[[Stmt], Stmt] | None = None,
    buffer: Callable[[Buffer], Buffer] | None = None,
) -> Stmt:
    """Bottom-up rewriting of a statement tree.

    `expr` maps every maximal expression (it is given whole expressions, not nodes), `buffer` maps buffers of stores,
    allocations, regions and, inside expressions, of loads; then `stmt` is applied to each rebuilt statement.
    """
    to_buffer = buffer or _same_buffer
    memo: dict[Expr, Expr] = {}

    def to_expr(e: Expr) -> Expr:
        if buffer is not None:
            e = rewrite_expr(e, lambda n: _rebuffer(n, to_buffer), memo)
        return expr(e) if expr is not None else e

    def visit(node: Stmt) -> Stmt:
        result = _rebuild(node, visit, to_expr, to_buffer)
        return stmt(result) if stmt is not None else result

    return visit(s)


def _rebuffer(e: Expr, to_buffer: Callable[[Buffer], Buffer]) -> Expr:
    if isinstance(e, Load):
        new = to_buffer(e.buffer)
        return e if new is e.buffer else Load(new, e.indices, e.dtype, e.predicate)
    return e


def _rebuild(
    s: Stmt, visit: Callable[[Stmt], Stmt], to_expr: Callable[[Expr], Expr], to_buffer: Callable[[Buffer], Buffer]
) -> Stmt:
    return _REBUILD[type(s)](s, visit, to_expr, to_buffer)


def _exprs(items: tuple[Expr, ...], to_expr: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    new = tuple(to_expr(i) for i in items)
    return items if all(a is b for a, b in zip(new, items, strict=True)) else new


def _rebuild_store(s: Store, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    indices, value = _exprs(s.indices, to_expr), to_expr(s.value)
    predicate = None if s.predicate is None else to_expr(s.predicate)
    buffer = to_buffer(s.buffer)
    if indices is s.indices and value is s.value and predicate is s.predicate and buffer is s.buffer:
        return s
    return Store(buffer, indices, value, predicate)


def _rebuild_seq(s: Seq, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    new = tuple(visit(x) for x in s.stmts)
    return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)


def _rebuild_for(s: For, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    begin, extent, body = to_expr(s.begin), to_expr(s.extent), visit(s.body)
    if begin is s.begin and extent is s.extent and body is s.body:
        return s
    return For(s.var, begin, extent, s.kind, body, s.thread, s.pragmas)


def _rebuild_if(s: If, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    condition, then = to_expr(s.condition), visit(s.then)
    otherwise = None if s.otherwise is None else visit(s.otherwise)
    if condition is s.condition and then is s.then and otherwise is s.otherwise:
        return s
    return If(condition, then, otherwise)


def _rebuild_let(s: LetStmt, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    value, body = to_expr(s.value), visit(s.body)
    return s if value is s.value and body is s.body else LetStmt(s.var, value, body)


def _rebuild_allocate(s: Allocate, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    buffer, body = to_buffer(s.buffer), visit(s.body)
    return s if buffer is s.buffer and body is s.body else Allocate(buffer, body)


def _rebuild_evaluate(s: Evaluate, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    value = to_expr(s.value)
    return s if value is s.value else Evaluate(value)


def _rebuild_block(s: Block, visit: Any, to_expr: Any, to_buffer: Any) -> Stmt:
    bindings, predicate = _exprs(s.bindings, to_expr), to_expr(s.predicate)
    iters = tuple(
        i
        if (b := to_expr(i.begin)) is i.begin and to_expr(i.extent) is i.extent
        else IterVar(i.var, b, to_expr(i.extent), i.kind)
        for i in s.iters
    )
    reads = tuple(rewrite_region(r, to_expr, to_buffer) for r in s.reads)
    writes = tuple(rewrite_region(r, to_expr, to_buffer) for r in s.writes)
    init = None if s.init is None else visit(s.init)
    body = visit(s.body)
    new = (bindings, predicate, init, body, *iters, *reads, *writes)
    old = (s.bindings, s.predicate, s.init, s.body, *s.iters, *s.reads, *s.writes)
    if all(a is b for a, b in zip(new, old, strict=True)):
        return s
    return Block(s.name, iters, bindings, predicate, reads, writes, init, body, s.origins, s.pragmas)


_REBUILD: dict[type, Callable[..., Stmt]] = {
    Store: _rebuild_store,
    Seq: _rebuild_seq,
    For: _rebuild_for,
    If: _rebuild_if,
    LetStmt: _rebuild_let,
    Allocate: _rebuild_allocate,
    Evaluate: _rebuild_evaluate,
    Block: _rebuild_block,
}


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """Every statement of a tree, parents before children, in program order."""
    stack: list[Stmt] = [s]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(sub_stmts(top)))


def sub_stmts(s: Stmt) -> tuple[Stmt, ...]:
    """The direct statement children."""
    if isinstance(s, Seq):
        return s.stmts
    if isinstance(s, (For, LetStmt, Allocate)):
        return (s.body,)
    if isinstance(s, If):
        return (s.then,) if s.otherwise is None else (s.then, s.otherwise)
    if isinstance(s, Block):
        return (s.body,) if s.init is None else (s.init, s.body)
    return ()


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand directly in one statement (not in its sub-statements)."""
    if isinstance(s, Store):
        return (*s.indices, s.value) if s.predicate is None else (*s.indices, s.value, s.predicate)
    if isinstance(s, For):
        return (s.begin, s.extent)
    if isinstance(s, If):
        return (s.condition,)
    if isinstance(s, LetStmt):
        return (s.value,)
    if isinstance(s, Evaluate):
        return (s.value,)
    if isinstance(s, Allocate):
        return s.buffer.shape
    if isinstance(s, Block):
        return (*s.bindings, s.predicate)
    return ()


def walk_exprs(s: Stmt) -> Iterator[Expr]:
    """Every expression node that stands anywhere in a statement tree."""
    for stmt in walk_stmt(s):
        for e in stmt_exprs(stmt):
            yield from walk_expr(e)


def substitute(e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """`e` with variables replaced."""
    if not mapping:
        return e
    return rewrite_expr(e, lambda n: mapping.get(n, n) if isinstance(n, Var) else n)


def substitute_stmt(s: Stmt, mapping: Mapping[Var, Expr]) -> Stmt:
    """A statement with variables replaced in all its expressions."""
    if not mapping:
        return s
    memo: dict[Expr, Expr] = {}
    rule = lambda n: mapping.get(n, n) if isinstance(n, Var) else n  # noqa: E731
    return rewrite_stmt(s, expr=lambda e: rewrite_expr(e, rule, memo))


def free_vars(e: Expr) -> tuple[Var, ...]:
    """The distinct variables of an expression in first-met order, without those bound by Let or Reduce inside."""
    from tensorir.expr import Let

    bound: set[int] = set()
    found: list[Var] = []
    for n in walk_expr(e):
        if isinstance(n, Let):
            bound.add(id(n.var))
        elif isinstance(n, Reduce):
            bound.update(id(a.var) for a in n.axes)
        elif isinstance(n, Var):
            found.append(n)
    return tuple(v for v in found if id(v) not in bound)


def with_body(f: Func, body: Stmt) -> Func:
    """The function with another body; itself if the body is the same object."""
    return f if body is f.body else dataclasses.replace(f, body=body)
