"""Statements and functions of Tensor IR.

The leaf of a loop nest is a `Block`; around blocks there are only loops, sequences, conditions and allocations until
the blocks are lowered. A `Func` is a complete program: parameters, dimension symbols and a body.
"""

from __future__ import annotations

from typing import Any

from tensorir.buffer import Buffer, Region
from tensorir.expr import Expr, IterVar, Var, node
from tensorir.origin import Origin

LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread")


class Stmt:
    """Base of all statements."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tensorir.printer import stmt_text  # the printer imports this module

        return stmt_text(self)


@node
class Store(Stmt):
    """`buffer[indices] = value`; a false `predicate` lane writes nothing."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    predicate: Expr | None = None


@node
class Seq(Stmt):
    """Statements one after the other; never nested directly in another Seq (build with `seq`)."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """A loop of `var` from `begin` over `extent` values. `kind` is one of LOOP_KINDS; a thread loop carries the tag
    (threadIdx.x, blockIdx.y, vthread, ...) in `thread`. `pragmas` are (key, value) pairs."""

    var: Var
    begin: Expr
    extent: Expr
    kind: str
    body: Stmt
    thread: str | None = None
    pragmas: tuple[tuple[str, Any], ...] = ()


@node
class If(Stmt):
    """Statement-level condition."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@node
class LetStmt(Stmt):
    """`var = value` for the statements of `body`."""

    var: Var
    value: Expr
    body: Stmt


@node
class Allocate(Stmt):
    """Memory for `buffer`, undefined at first, alive in `body`."""

    buffer: Buffer
    body: Stmt


@node
class Evaluate(Stmt):
    """An intrinsic called for its effect: prefetch, barrier, extern call. `args` may be expressions or buffers'
    address expressions."""

    value: Expr


@node
class Block(Stmt):
    """The leaf computation. `iters` are its own variables with domains and kinds, bound to `bindings` (expressions
    over the loops around). It runs where `predicate` holds. `init` runs instead-before `body` at the first value of
    every reduce variable. `body` and `init` speak only of the block's own variables. `reads` and `writes` are regions
    over the block's variables (one point each for a compute)."""

    name: str
    iters: tuple[IterVar, ...]
    bindings: tuple[Expr, ...]
    predicate: Expr
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    init: Stmt | None
    body: Stmt
    origins: tuple[Origin, ...] = ()
    pragmas: tuple[tuple[str, Any], ...] = ()


@node
class Func:
    """A program: `params` are the buffers of the caller, inputs first, outputs last; `dims` are the dimension symbols
    in the order of the kernel ABI. `outputs` says how many of the last params are written."""

    name: str
    params: tuple[Buffer, ...]
    dims: tuple[Var, ...]
    body: Stmt
    outputs: int = 1
    attrs: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        from tensorir.printer import func_text  # the printer imports this module

        return func_text(self)


def seq(*stmts: Stmt) -> Stmt:
    """The statements in order, nested sequences spliced; one statement alone stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        else:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
