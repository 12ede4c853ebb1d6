"""Structural equality and hashing of expressions, statements, buffers and functions.

Names are labels and do not count. Variables and buffers that the compared things bind themselves (loops, lets,
reductions, block iterations, allocations, parameters) correspond one to one; free ones must be the same object, or,
with `map_free`, correspond one to one as well. Both walks are iterative, so that long sums are no problem, and visit
shared sub-expressions once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from typing import Any

from tensorir.buffer import AlignedBuffer, Buffer, Range, Region
from tensorir.expr import Const, Expr, IterVar, Let, Reduce, Var
from tensorir.reducer import Reducer
from tensorir.stmt import Allocate, Block, For, Func, LetStmt, Stmt

_LABELS = {"origins", "name"}
_NODES = (Expr, Stmt, IterVar, Reducer, Region, Range, Func)


@cache
def _fields(cls: Any) -> tuple[str, ...]:
    """The fields that count, in declaration order; an intrinsic's name is not a label."""
    names = (f.name for f in dataclasses.fields(cls))
    return tuple(n for n in names if n not in _LABELS or (n == "name" and cls.__name__ in ("Call", "Reducer")))


def _class(x: Any) -> Any:
    return type(x)


def _binders(x: Any) -> tuple[Any, ...]:
    """The variables and buffers that a node binds for its children."""
    if isinstance(x, (Let, LetStmt, For)):
        return (x.var,)
    if isinstance(x, Reduce):
        return tuple(a.var for a in x.axes)
    if isinstance(x, Block):
        return tuple(i.var for i in x.iters)
    if isinstance(x, Allocate):
        return (x.buffer,)
    if isinstance(x, Reducer):
        return (*x.lhs, *x.rhs)
    if isinstance(x, Func):
        return (*x.dims, *x.params)
    return ()


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return repr(a) == repr(b)  # tells -0.0 from 0.0 and lets NaN equal itself
    return type(a) is type(b) and bool(a == b)


def _alignment(b: Buffer) -> tuple[int, int, int] | None:
    return (b.axis, b.factor, b.offset) if isinstance(b, AlignedBuffer) else None


_RESTORE = object()


class _Comparison:
    """The state of one comparison: partners of variables and buffers, both ways, and the pairs found equal."""

    def __init__(self, map_free: bool) -> None:
        self.map_free = map_free
        self.there: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.seen: set[tuple[int, int]] = set()
        self.stack: list[tuple[Any, Any]] = []

    def pair(self, a: Any, b: Any) -> None:
        """Makes `a` and `b` partners from here on; the partners they had come back after what is pushed later."""
        old = (a, self.there.get(id(a)), b, self.back.get(id(b)))
        if old[1] is not None or old[3] is not None:
            self.stack.append((_RESTORE, old))
            self.seen.clear()
        self.there[id(a)], self.back[id(b)] = b, a

    def restore(self, old: tuple[Any, Any, Any, Any]) -> None:
        a, partner_a, b, partner_b = old
        for table, key, value in ((self.there, a, partner_a), (self.back, b, partner_b)):
            if value is None:
                table.pop(id(key), None)
            else:
                table[id(key)] = value
        self.seen.clear()

    def partners(self, a: Any, b: Any) -> bool:
        """Whether two variables or two buffers correspond."""
        x, y = self.there.get(id(a)), self.back.get(id(b))
        if x is not None or y is not None:
            return x is b and y is a
        if not self.map_free:
            return a is b
        self.there[id(a)], self.back[id(b)] = b, a
        return self.alike(a, b)

    def alike(self, a: Any, b: Any) -> bool:
        """Whether two variables or buffers have the same type; shapes are left on the stack."""
        if a.dtype != b.dtype:
            return False
        if isinstance(a, Buffer):
            if a.scope != b.scope or len(a.shape) != len(b.shape) or _alignment(a) != _alignment(b):
                return False
            self.stack.extend(zip(a.shape, b.shape, strict=True))
        return True

    def run(self, a: Any, b: Any) -> bool:
        stack = self.stack
        stack.append((a, b))
        while stack:
            x, y = stack.pop()
            if x is _RESTORE:
                self.restore(y)
                continue
            if isinstance(x, (Var, Buffer)):
                if not isinstance(y, (Var, Buffer)) or not self.partners(x, y):
                    return False
                continue
            if isinstance(x, tuple):
                if not isinstance(y, tuple) or len(x) != len(y):
                    return False
                stack.extend(reversed(list(zip(x, y, strict=True))))
                continue
            if not isinstance(x, _NODES):
                if not _same_leaf(x, y):
                    return False
                continue
            if x is y and not self.there and not self.map_free:
                continue
            if type(x) is not type(y):
                return False
            if isinstance(x, Const) and isinstance(y, Const):
                if x.dtype != y.dtype or not _same_leaf(x.value, y.value):
                    return False
                continue
            key = (id(x), id(y))
            if isinstance(x, Expr):
                if key in self.seen:
                    continue
                self.seen.add(key)
            bound_x, bound_y = _binders(x), _binders(y)
            if len(bound_x) != len(bound_y):
                return False
            for v, w in zip(bound_x, bound_y, strict=True):
                if isinstance(v, Buffer) is not isinstance(w, Buffer):
                    return False
                self.pair(v, w)
            for v, w in zip(bound_x, bound_y, strict=True):
                if not self.alike(v, w):
                    return False
            stack.extend([(getattr(x, n), getattr(y, n)) for n in reversed(_fields(_class(x)))])
        return True


def structural_equal(a: Any, b: Any, *, map_free: bool = False) -> bool:
    """Whether two expressions, statements, functions or buffers say the same thing.

    With `map_free` free variables and buffers need not be the same objects: they correspond one to one, by type.
    """
    comparison = _Comparison(map_free)
    if isinstance(a, Buffer) and isinstance(b, Buffer) and a is not b:
        if not comparison.alike(a, b):
            return False
        shapes = list(comparison.stack)
        comparison.stack.clear()
        return all(comparison.run(x, y) for x, y in shapes)
    return comparison.run(a, b)


def structural_hash(a: Any, *, map_free: bool = False) -> int:
    """A 64-bit hash that is equal for structurally equal things.

    Bound variables and buffers hash as the depth at which they are bound; with `map_free` free ones as the order in
    which they are met, and the hash is the same in every process.
    """
    numbers: dict[int, str] = {}
    memo: dict[int, bytes] = {}
    keep: list[Any] = []  # keeps every hashed object alive while its id is a key

    def of_symbol(x: Any) -> bytes:
        if id(x) not in numbers:
            numbers[id(x)] = f"f{len(numbers)}" if map_free else f"free{id(x)}"
        return f"{numbers[id(x)]}:{x.dtype}".encode()

    def parts(x: Any) -> tuple[Any, ...]:
        return x if isinstance(x, tuple) else tuple(getattr(x, n) for n in _fields(_class(x)))

    stack: list[tuple[Any, bool, int]] = [(a, False, 0)]
    while stack:
        x, ready, depth = stack.pop()
        if id(x) in memo and not isinstance(x, (Var, Buffer)):
            continue
        keep.append(x)
        if isinstance(x, Var):
            memo[id(x)] = of_symbol(x)
        elif isinstance(x, Buffer):
            if not ready:
                stack.append((x, True, depth))
                stack.extend((s, False, depth) for s in reversed(x.shape))
            else:
                text = f"{x.scope}|".encode() + b",".join(memo[id(s)] for s in x.shape)
                memo[id(x)] = _digest((b"buffer" if x is a else of_symbol(x)) + text)
        elif isinstance(x, (tuple, *_NODES)):
            if not ready:
                bound = _binders(x)
                for place, symbol in enumerate(bound):
                    numbers[id(symbol)] = f"b{depth + place}"
                stack.append((x, True, depth))
                stack.extend((p, False, depth + len(bound)) for p in reversed(parts(x)))
            else:
                label = "tuple" if isinstance(x, tuple) else type(x).__name__
                memo[id(x)] = _digest(label.encode() + b"(" + b",".join(memo[id(p)] for p in parts(x)) + b")")
        else:
            memo[id(x)] = f"{type(x).__name__}:{x!r}".encode()
    return int.from_bytes(_digest(memo[id(a)]), "big")


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()
