"""The one error of schedules.

ScheduleError: vectorize(j): the loop must have a constant extent, but it runs to n
   3 |   for i in 0..128:
   4 |     for j in 0..n:
     |     ^^^^^^^^^^^^^^ the loop
   5 |       block C(...):
note: ...
help: split j by a constant first, then vectorize the inner loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.errors import ProgramError
from tensorir.expr import Var
from tensorir.printer import print_func
from tensorir.stmt import For, Func
from tensorir.visit import walk_stmt

if TYPE_CHECKING:
    from schedule.state import Call


class ScheduleError(ProgramError):
    """A primitive that cannot be applied: the program stays as it was before the call."""


class Refusal(Exception):
    """Why a step or a whole state is not legal, raised where it is found and turned into a `ScheduleError` by the
    schedule, which knows the program and the call. `cause` is the earlier call that no longer holds, if another one."""

    def __init__(
        self,
        what: str,
        *,
        loops: tuple[Var, ...] = (),
        help: str | None = None,
        notes: tuple[str, ...] = (),
        cause: Call | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.loops = loops
        self.help = help
        self.notes = notes
        self.cause = cause


def excerpt(func: Func, loops: tuple[Var, ...]) -> tuple[str, ...]:
    """The lines of the program around each of `loops`, with carets; nothing for loops that do not stand in it."""
    if not loops:
        return ()
    printed = print_func(func)
    wanted = {id(v) for v in loops}
    found = []
    for stmt in walk_stmt(func.body):
        if isinstance(stmt, For) and id(stmt.var) in wanted:
            found.append(printed.excerpt(stmt, f"loop {stmt.var.name}"))
    return tuple(found)
