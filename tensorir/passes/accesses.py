"""Where a program touches its buffers: every read and write with the loops, conditions and order around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorir.buffer import Buffer
from tensorir.expr import Call, Expr, IfThenElse, Let, Load, Var, const
from tensorir.matrix import COLUMN, ROW, SIZE, is_matrix, tiles, written_or_read
from tensorir.passes.linear import IndexScope
from tensorir.stmt import Allocate, Block, For, If, LetStmt, Stmt, Store
from tensorir.visit import children, stmt_exprs, sub_stmts, substitute

Step = tuple[Stmt, int]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One read or write. `path` leads from the root down to the statement: each statement with the position of the
    child taken. `conditions` hold where the access happens (guards inside the expression and the block's predicate).
    `whole` marks an access by address, which may touch everything in both ways; `warp` one by a matrix instruction, of
    a whole tile (its indices speak of `ROW` and `COLUMN`) by all lanes of a warp together."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    path: tuple[Step, ...]
    conditions: tuple[Expr, ...]
    block: Block | None
    whole: bool = False
    warp: bool = False

    def loops_below(self, depth: int) -> list[For]:
        """The loops around the access from position `depth` of its path on."""
        return [s for s, _ in self.path[depth:] if isinstance(s, For)]


def bind_loops(s: Stmt, scope: IndexScope) -> None:
    """Tells `scope` the ranges of all loops in `s`, outer loops first."""
    for var in (ROW, COLUMN):
        scope.bind(var, const(0), const(SIZE))
    stack = [s]
    while stack:
        top = stack.pop()
        if isinstance(top, For):
            scope.bind(top.var, top.begin, top.extent)
        elif isinstance(top, LetStmt):
            scope.bind_value(top.var, top.value)
        stack.extend(reversed(sub_stmts(top)))


def collect_accesses(root: Stmt) -> list[Access]:
    """All accesses in program order. Inside a block the indices speak of the loops around it."""
    found: list[Access] = []

    def reads(
        e: Expr, path: tuple[Step, ...], conditions: tuple[Expr, ...], block: Block | None, mapping: Mapping[Var, Expr]
    ) -> None:
        stack: list[tuple[Expr, tuple[Expr, ...], bool]] = [(e, conditions, False)]
        seen: set[tuple[int, int]] = set()
        while stack:
            top, held, address = stack.pop()
            if (id(top), len(held)) in seen:
                continue
            seen.add((id(top), len(held)))
            if isinstance(top, Load):
                indices = tuple(substitute(i, mapping) for i in top.indices)
                guards = tuple(substitute(c, mapping) for c in held)
                found.append(Access(top.buffer, indices, False, path, guards, block, address))
                if address:
                    found.append(Access(top.buffer, indices, True, path, guards, block, True))
            if isinstance(top, IfThenElse):
                stack.append((top.b, held, False))
                stack.append((top.a, (*held, top.condition), False))
                stack.append((top.condition, held, False))
                continue
            inside = isinstance(top, Call) and (top.name == "address" or top.name == "prefetch")
            if isinstance(top, Let):
                stack.append((top.value, held, False))
                stack.append((top.body, held, False))
                continue
            stack.extend((c, held, inside) for c in reversed(children(top)))

    def visit(
        s: Stmt, path: tuple[Step, ...], conditions: tuple[Expr, ...], block: Block | None, mapping: Mapping[Var, Expr]
    ) -> None:
        if isinstance(s, Block):
            mapping = {i.var: b for i, b in zip(s.iters, s.bindings, strict=True)}
            conditions, block = (*conditions, s.predicate), s
            for b in s.bindings:
                reads(b, path, conditions, block, {})
        elif is_matrix(s):
            for number, tile in enumerate(tiles(s)):
                indices = tuple(substitute(i, mapping) for i in tile.at(ROW, COLUMN))
                held = tuple(substitute(c, mapping) for c in conditions)
                for write in written_or_read(s, number):
                    found.append(Access(tile.buffer, indices, write, (*path, (s, 0)), held, block, False, True))
        elif not isinstance(s, Allocate):
            for e in stmt_exprs(s):
                reads(e, (*path, (s, 0)), conditions, block, mapping)
        if isinstance(s, Store):
            indices = tuple(substitute(i, mapping) for i in s.indices)
            held = tuple(substitute(c, mapping) for c in conditions)
            found.append(Access(s.buffer, indices, True, (*path, (s, 0)), held, block))
        for position, child in enumerate(sub_stmts(s)):
            more = conditions
            if isinstance(s, If) and position == 0:
                more = (*conditions, substitute(s.condition, mapping))
            visit(child, (*path, (s, position)), more, block, mapping)

    visit(root, (), (), None, {})
    return found
