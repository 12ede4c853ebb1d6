"""Loops bound to threads, before barriers are placed: each statement runs for all threads of the block, then the next.

The loop itself is not written; a loop over the threads is written around every leaf statement under it. A loop bound to
an axis that an enclosing loop has is the same threads again. A shared or warp buffer is one per block, any other buffer
that is allocated under thread loops is one per thread.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from tensorir.buffer import Buffer
from tensorir.expr import Expr, Not
from tensorir.interpreter.source import Compiler, NotSupportedError, Value
from tensorir.stmt import Allocate, Block, For, If, LetStmt, Seq, Stmt
from tensorir.visit import walk_expr, walk_stmt

_TAGS = ("threadIdx.", "vthread")


def bind(c: Compiler, s: For) -> None:
    """A thread loop: its variable becomes the index of its axis; the body is written without a loop around it."""
    tag = s.thread or ""
    if not tag.startswith(_TAGS) or depends(c, s.begin, s.extent):
        raise NotSupportedError(
            f"the interpreter cannot run the loop {s.var.name} bound to {s.thread}",
            help="run the program before the loop is bound",
        )
    outer = c.threads
    with c.statement(s.begin, s.extent):
        begin, extent = c.temp(c.value(s.begin)), c.temp(c.value(s.extent))
    known = {name: (index, size) for name, index, size in outer.axes}
    state = replace(outer, variables=outer.variables | {id(s.var)})
    if tag in known:
        index, size = known[tag]
        if (size.lo, size.hi) != (extent.lo, extent.hi) or size.lo != size.hi:
            state = replace(state, guards=(*state.guards, f"{index.code} < {extent.code}"))
    else:
        index = Value(c.fresh(s.var.name), 0, max(0, extent.hi - 1))
        state = replace(state, axes=(*state.axes, (tag, index, extent)))
    if begin.lo == begin.hi == 0:
        c.names[s.var] = Value(index.code, 0, max(0, extent.hi - 1))
    else:
        c.names[s.var] = Value(f"({begin.code} + {index.code})", begin.lo, begin.hi + max(0, extent.hi - 1), 1)
    c.threads = state
    c.stmt(s.body)
    c.threads = outer


def private_axes(c: Compiler, buffer: Buffer) -> tuple[tuple[str, Value, Value], ...]:
    """The thread axes of which each index has its own copy of a buffer allocated here."""
    return () if c.threads.inside or buffer.scope in ("shared", "warp") else c.threads.axes


def depends(c: Compiler, *exprs: Expr) -> bool:
    """Whether an expression differs between the threads of the loops around (and no loop over them is open yet)."""
    if not c.threads.variables or c.threads.inside:
        return False
    return any(id(e) in c.threads.variables for root in exprs for e in walk_expr(root))


def is_leaf(c: Compiler, s: Stmt) -> bool:
    """Whether `s` is to run whole for one thread after the other."""
    if not c.threads.axes or c.threads.inside or isinstance(s, (Seq, If)):
        return False
    if isinstance(s, For):
        if s.kind == "thread" or not depends(c, s.begin, s.extent):
            return False
        _require_alone(s.var.name, s.body, (For,))
    if isinstance(s, LetStmt):
        if not depends(c, s.value):
            return False
        _require_alone(s.var.name, s.body, (For, Seq))
    return not isinstance(s, Allocate)


def _require_alone(name: str, body: Stmt, kinds: tuple[type, ...]) -> None:
    """What differs between threads may hold no thread loop and, where it is a value, no sequence of statements."""
    for inner in walk_stmt(body):
        if isinstance(inner, kinds) and not (isinstance(inner, For) and inner.kind != "thread"):
            raise NotSupportedError(
                f"the interpreter cannot run {name}: it differs between threads and its body is several steps"
            )


def over_threads(c: Compiler, s: Stmt) -> None:
    """A leaf statement in loops over the threads."""
    outer, loops, nest, around = c.threads, c.loops, c.nest, c.concurrent
    with ExitStack() as stack:
        if c.nest:
            stack.enter_context(c.function())
        if c.checked:
            context, execution = c.fresh("context"), c.fresh("execution")
            c.line(f"{context} = monitor.context")
            c.line(f"{execution} = monitor.enter()")
            stack.callback(c.line, f"monitor.context = {context}")
        with ExitStack() as nested:
            for tag, index, extent in outer.axes:
                nested.enter_context(c.indented(f"for {index.code} in range({extent.code}):"))
                c.loops = (*c.loops, (index.code, tag))
                c.nest += 1
            if c.checked:
                shown = ("the threads of", ", ".join(tag for tag, _, _ in outer.axes))
                combining = _combining(c, s)
                thread = "".join(f"{index.code}, " for _, index, _ in outer.axes if index.code not in combining)
                c.line(f"monitor.context = (*{context}, ({execution}, ({thread}), {shown!r}))")
                c.concurrent = (*around, (None, "thread"))
            if outer.guards:
                nested.enter_context(c.indented(f"if {' and '.join(outer.guards)}:"))
            c.threads = replace(outer, inside=True)
            c.stmt(s)
    c.threads, c.loops, c.nest, c.concurrent = outer, loops, nest, around


def _combining(c: Compiler, s: Stmt) -> set[str]:
    """The thread indices that steer only reduce variables of a block: its threads hold partial results there, which are
    combined, so that they do not race."""
    found: dict[str, set[str]] = {"reduce": set(), "other": set()}
    if isinstance(s, Block):
        for iteration, binding in zip(s.iters, s.bindings, strict=True):
            kind = "reduce" if iteration.kind == "reduce" else "other"
            for e in walk_expr(binding):
                if id(e) in c.threads.variables:
                    code = c.names[e].code  # type: ignore[index]
                    found[kind].update(index.code for _, index, _ in c.threads.axes if index.code in code)
    return found["reduce"] - found["other"]


def guard(c: Compiler, s: If) -> None:
    """A condition that differs between threads becomes a condition on each leaf."""
    outer = c.threads
    for condition, body in ((s.condition, s.then), (Not(s.condition), s.otherwise)):
        if body is None:
            continue
        before = len(c.lines)
        with c.statement(condition):
            code = c.value(condition).code
        if len(c.lines) != before:
            raise NotSupportedError("the interpreter cannot run a condition of this kind that differs between threads")
        c.threads = replace(outer, guards=(*outer.guards, code))
        c.stmt(body)
        c.threads = outer
