"""Matrix instructions: what the lanes of a warp do together on tiles of 16 x 16.

    mma_fill(&D[0, 0], &D[1, 0], 0)                                      D = 0
    mma_load(&F[0, 0], &F[1, 0], &S[i, k], &S[i + 1, k])                 F = the tile of S at [i, k]
    mma_sync(&D[0, 0], &D[1, 0], &A[0, 0], &A[1, 0], &B.., &B.., p, q)   D += A B, A transposed if p, B if q
    mma_store(&C[i, j], &C[i + 1, j], &D[0, 0], &D[1, 0])                the tile of C at [i, j] = D

Each tile is given by the addresses of its first element and of the first of its second row. A, B (float16) and D
(float32) lie in *fragments*, memory that is spread over the lanes in a way that only these instructions know. What an
instruction means is a loop nest over elements, `expand`: the interpreter runs it, and targets without matrix
instructions run it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.errors import InternalError
from tensorir.expr import Call, Const, Expr, Load, Var, as_expr, cast, const, fma
from tensorir.intrinsics import MATRIX
from tensorir.stmt import Evaluate, For, Func, Stmt, Store
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, with_body

SIZE = 16
"""Rows and columns of a tile."""
LANES = 32
"""The lanes that act together."""

ROW, COLUMN = Var("row"), Var("column")
"""The element of a tile that an access by a matrix instruction speaks of: all of 0 .. SIZE."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `buffer`: the indices of its first element, and of the first element of its second row."""

    buffer: Buffer
    first: tuple[Expr, ...]
    second: tuple[Expr, ...]

    def at(self, row: Expr, column: Expr) -> tuple[Expr, ...]:
        """The indices of an element."""
        point = [a + (b - a) * row for a, b in zip(self.first, self.second, strict=True)]
        point[-1] = point[-1] + column
        return tuple(point)

    def load(self, row: Expr, column: Expr) -> Load:
        """An element."""
        return Load(self.buffer, self.at(row, column), self.buffer.dtype)


def address(load: Load) -> Expr:
    """The place of an element."""
    return Call("address", (load,), dtypes.uint64)


def is_matrix(s: Stmt) -> bool:
    """Whether a statement is a matrix instruction."""
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name in MATRIX


def tiles(s: Stmt) -> tuple[Tile, ...]:
    """The tiles of a matrix instruction, in the order of its operands: the first is written, the others are read;
    mma_sync reads the first too."""
    call = _call(s)
    loads = [a.args[0] for a in call.args if isinstance(a, Call) and a.name == "address"]
    assert all(isinstance(x, Load) for x in loads) and len(loads) % 2 == 0
    return tuple(
        Tile(a.buffer, a.indices, b.indices)
        for a, b in zip(loads[::2], loads[1::2], strict=True)
        if isinstance(a, Load) and isinstance(b, Load)
    )


def written_or_read(s: Stmt, number: int) -> tuple[bool, ...]:
    """How the instruction touches a tile: whether it writes, for each way."""
    if number:
        return (False,)
    return (False, True) if _call(s).name == "mma_sync" else (True,)


def transposed(s: Stmt) -> tuple[bool, bool]:
    """Whether mma_sync takes its operands A and B transposed."""
    a, b = _call(s).args[-2:]
    assert isinstance(a, Const) and isinstance(b, Const)
    return bool(a.value), bool(b.value)


def _call(s: Stmt) -> Call:
    assert isinstance(s, Evaluate) and isinstance(s.value, Call)
    return s.value


def expand(s: Stmt) -> Stmt:
    """What a matrix instruction means, element by element."""
    call, parts = _call(s), tiles(s)
    i, j = Var("i"), Var("j")
    if call.name == "mma_sync":
        k = Var("k")
        a_is_turned, b_is_turned = transposed(s)
        a = parts[1].load(k, i) if a_is_turned else parts[1].load(i, k)
        b = parts[2].load(j, k) if b_is_turned else parts[2].load(k, j)
        total = fma(cast(a, dtypes.float32), cast(b, dtypes.float32), parts[0].load(i, j))
        body: Stmt = Store(parts[0].buffer, parts[0].at(i, j), total)
        loops = [i, j, k]
    elif call.name in ("mma_load", "mma_store"):
        body = Store(parts[0].buffer, parts[0].at(i, j), parts[1].load(i, j))
        loops = [i, j]
    elif call.name == "mma_fill":
        body = Store(parts[0].buffer, parts[0].at(i, j), as_expr(call.args[-1], parts[0].buffer.dtype))
        loops = [i, j]
    else:
        raise InternalError(f"{call.name} is no matrix instruction")
    for var in reversed(loops):
        body = For(var, const(0), const(SIZE), "serial", body)
    return body


def expand_matrix(func: Func, target: Target) -> Func:
    """`func` without matrix instructions and fragments where the target has none: they are what they mean."""
    if target.matrix:
        return func
    made: dict[Buffer, Buffer] = {}

    def local(b: Buffer) -> Buffer:
        if b.scope != "fragment":
            return b
        return made.setdefault(b, Buffer(b.name, b.shape, b.dtype, "local"))

    body = rewrite_stmt(func.body, stmt=lambda s: expand(s) if is_matrix(s) else s, buffer=local)
    return with_body(func, body)
