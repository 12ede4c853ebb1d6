"""Refuses what no lane can do with a fragment: its elements are spread over a warp in a way that only matrix
instructions know, and each fragment is one operand of them: A, B or the sum.
"""

from __future__ import annotations

from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import Call, Const, Load
from tensorir.matrix import SIZE, is_matrix, tiles, transposed
from tensorir.passes.thread_axes import ThreadError
from tensorir.stmt import Allocate, Evaluate, Func, Stmt, Store
from tensorir.visit import stmt_exprs, walk_expr, walk_stmt

ROLES = ("sum", "A", "B")
Role = tuple[str, bool]
"""The operand that a fragment is, and whether it is taken transposed."""


def check_fragments(func: Func) -> Func:
    """`func` itself. Raises `ThreadError`."""
    if not any(isinstance(s, Allocate) and s.buffer.scope == "fragment" for s in walk_stmt(func.body)):
        return func
    for s in walk_stmt(func.body):
        touched = [] if is_matrix(s) else [n.buffer for e in stmt_exprs(s) for n in walk_expr(e) if isinstance(n, Load)]
        touched += [s.buffer] if isinstance(s, Store) else []
        for buffer in touched:
            if buffer.scope == "fragment":
                raise ThreadError(
                    f"{buffer.name} is a fragment, spread over the lanes of a warp, but is touched element by element:"
                    f"\n{s!r}",
                    help="tensorize the stage with a matrix instruction (schedule.gpu_intrinsics), whose initial values"
                    " are set with it: leave out decompose_reduction",
                )
    roles = fragment_roles(func.body)
    for s in walk_stmt(func.body):
        if is_matrix(s):
            _check(s, roles)
    return func


def fragment_roles(body: Stmt) -> dict[Buffer, Role]:
    """Which operand each fragment is. Raises `ThreadError` for one that is two."""
    roles: dict[Buffer, Role] = {}
    for s in walk_stmt(body):
        if not isinstance(s, Evaluate) or not isinstance(s.value, Call) or s.value.name != "mma_sync":
            continue
        for tile, name, turned in zip(tiles(s), ROLES, (False, *transposed(s)), strict=True):
            if roles.setdefault(tile.buffer, (name, turned)) != (name, turned):
                raise ThreadError(
                    f"the fragment {tile.buffer.name} is {_shown(roles[tile.buffer])} of one matrix product and"
                    f" {_shown((name, turned))} of another",
                    help="use a fragment of its own for each",
                )
    return roles


def _shown(role: Role) -> str:
    return f"the operand {role[0]}{' transposed' if role[1] else ''}"


def _check(s: Stmt, roles: dict[Buffer, Role]) -> None:
    parts = tiles(s)
    for tile in parts:
        if tile.buffer.scope != "fragment":
            continue
        role = roles.get(tile.buffer)
        wanted = dtypes.float32 if role is None or role[0] == "sum" else dtypes.float16
        if tile.buffer.dtype != wanted:
            what = "a fragment" if role is None else _shown(role)
            raise ThreadError(
                f"the fragment {tile.buffer.name} is {tile.buffer.dtype}, but {what} of a matrix product is {wanted}"
            )
        if any(not isinstance(x, Const) or int(x.value) % SIZE for x in tile.buffer.shape[-2:]):
            shape = ", ".join(repr(x) for x in tile.buffer.shape)
            raise ThreadError(
                f"the fragment {tile.buffer.name} has the shape [{shape}], which is not of whole tiles of {SIZE}",
                help=f"split by multiples of {SIZE}",
            )
    if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name == "mma_sync":
        for tile in parts:
            if tile.buffer.scope != "fragment":
                raise ThreadError(
                    f"{tile.buffer.name} is in {tile.buffer.scope} memory, but an operand of a matrix product",
                    help='keep it in a fragment: cache_read(..., "fragment"), cache_write(..., "fragment")',
                )
