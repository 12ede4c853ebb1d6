"""Whole programs and expressions as Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

from tensorir.expr import Expr, Var
from tensorir.interpreter import expressions, statements
from tensorir.interpreter.kernels import (
    Copies,
    Meeting,
    as_warp,
    exchange,
    is_thread_form,
    one_of_a_warp,
    run_block,
    share,
)
from tensorir.interpreter.source import Compiler, Place, Value, full_interval
from tensorir.stmt import Func, Store
from tensorir.visit import free_vars, walk_stmt

__all__ = ["Program", "compile_expr", "compile_program", "expressions", "statements"]  # the two fill the tables

_MAX_DIM = 1 << 40


@dataclass
class Program:
    """A compiled program: `function(*memories, *dims)` and in checked mode a monitor as the last argument. `sites` tell
    of each access what it is, `widths` of how many lanes."""

    source: str
    function: Callable[..., None]
    dims: tuple[Var, ...]
    written: frozenset[int]
    places: list[Place]
    filename: str
    sites: Sequence[Callable[[], str]] = ()
    widths: Sequence[int] = ()

    def place(self, error: BaseException) -> tuple[str, ...]:
        """Where in the program an exception left it: block and loops with their values."""
        trace: TracebackType | None = error.__traceback__
        values: dict[str, Any] = {}
        line = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.filename:
                values.update(trace.tb_frame.f_locals)
                line = trace.tb_lineno
            trace = trace.tb_next
        if not 0 < line <= len(self.places):
            return ()
        block, loops = self.places[line - 1]
        shown = ", ".join(f"{name} = {values[code]}" for code, name in loops if code in values)
        where = f"in block {block}" if block else "in the program"
        return (f"{where}, at {shown}" if shown else where,)


def _finish(c: Compiler, head: str, filename: str) -> tuple[str, Any]:
    source = head + "\n" + "\n".join("  " * indent + text for indent, text, _ in c.lines) + "\n"
    exec(compile(source, filename, "exec"), c.globals)
    return source, c.globals["run"]


@lru_cache(maxsize=128)
def compile_program(func: Func, checked: bool) -> Program:
    """`func` as a Python function over memories and dimensions."""
    c = Compiler(checked, thread_form=is_thread_form(func))
    c.globals.update(run_block=run_block, share=share, Meeting=Meeting, exchange=exchange)
    c.globals.update(one_of_a_warp=one_of_a_warp, as_warp=as_warp, Copies=Copies)
    names = []
    for buffer in func.params:
        c.buffers[buffer] = c.fresh(buffer.name)
        names.append(c.buffers[buffer])
    dims: dict[int, Var] = {id(d): d for d in func.dims}
    for buffer in func.params:
        for extent in buffer.shape:
            dims.update((id(v), v) for v in free_vars(extent))
    for d in dims.values():
        c.names[d] = Value(c.fresh(d.name), 0, min(_MAX_DIM, d.dtype.max_value))
        names.append(c.names[d].code)
    if checked:
        names.append("monitor")
    c.stmt(func.body)
    if not c.lines:
        c.line("pass")
    filename = f"<tensorir {func.name} {id(func):x}>"
    source, function = _finish(c, f"def run({', '.join(names)}):", filename)
    places: list[Place] = [("", ()), *[place for _, _, place in c.lines]]
    stored = {id(s.buffer) for s in walk_stmt(func.body) if isinstance(s, Store)}
    first_output = len(func.params) - func.outputs
    written = frozenset(i for i, p in enumerate(func.params) if id(p) in stored or i >= first_output)
    return Program(source, function, tuple(dims.values()), written, places, filename, c.sites, c.widths)


@lru_cache(maxsize=1024)
def compile_expr(e: Expr) -> tuple[Callable[..., Any], tuple[Var, ...]]:
    """A function of the free variables of `e` (in first-met order), and those variables."""
    c = Compiler(False)
    variables = free_vars(e)
    names = []
    for v in variables:
        name = c.fresh(v.name)
        names.append(name)
        if v.dtype.lanes > 1:
            c.vectors[v] = name
        else:
            c.names[v] = Value(name, *full_interval(v.dtype))
    with c.statement(e):
        if e.dtype.lanes > 1:
            c.line(f"return {c.vector(e)}")
        else:
            c.line(f"return {c.value(e).code}")
    return _finish(c, f"def run({', '.join(names)}):", "<tensorir expression>")[1], variables
