"""Kernels in thread form: each thread of a block is a generator that stops at barriers.

The threads of a block run in turn from one barrier to the next, so an access belongs to a phase: the same block,
between the same two barriers. Accesses of two threads in one phase race, as do those of two blocks. All threads of a
block must come to the same barrier, in the same iteration of the loops around it. Shared
memory is one for all threads of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import product
from typing import Any

from tensorir.interpreter.memory import CheckedMemory, Monitor, SanitizerError
from tensorir.interpreter.source import Compiler, Value
from tensorir.stmt import For, Func

Place = tuple[int, tuple[int, ...]]
Thread = Generator[Place, None, None]

FORM = "thread_form"
"""The attribute of a function whose kernels are in thread form."""


def is_thread_form(func: Func) -> bool:
    """Whether thread loops mean threads with barriers of their own, not statements that run for all threads."""
    return any(key == FORM for key, _ in func.attrs)


def write_kernel(c: Compiler, s: For) -> None:
    """The thread loops of a kernel: what one thread does as a generator, and the block that runs them."""
    axes = []
    body = s
    while isinstance(body, For) and body.kind == "thread":
        with c.statement(body.extent):
            extent = c.temp(c.value(body.extent))
        axes.append((body, extent))
        body = body.body  # type: ignore[assignment]
    name, block = c.fresh("thread"), c.fresh("block")
    indices = []
    loops, nest, around = c.loops, c.nest, c.concurrent
    for loop, extent in axes:
        index = c.fresh(loop.var.name)
        c.names[loop.var] = Value(index, 0, max(0, extent.hi - 1))
        indices.append(index)
        c.loops = (*c.loops, (index, loop.var.name))
    with c.indented(f"def {name}({', '.join([block, *indices])}):"):
        c.nest, c.block_memory, c.kernel_loops = 0, block, len(c.loops)
        c.concurrent = (*around, (None, "thread"))
        c.stmt(body)
        c.line("return")
        c.line("yield")
    c.block_memory = ""
    c.loops, c.nest, c.concurrent = loops, nest, around
    shown = ", ".join(loop.thread or "" for loop, _ in axes)
    sizes = "".join(f"{extent.code}, " for _, extent in axes)
    c.line(f"run_block({name}, ({sizes}), {'monitor' if c.checked else 'None'}, {shown!r})")


def write_barrier(c: Compiler) -> None:
    """A thread waits: it tells at which barrier, in which iteration."""
    c.barriers += 1
    values = "".join(f"{code}, " for code, _ in c.loops[c.kernel_loops :])
    c.line(f"yield ({c.barriers}, ({values}))")


def write_shared(c: Compiler, name: str, memory: str) -> None:
    """Memory that the first thread of a block to come makes for all."""
    values = "".join(f"{code}, " for code, _ in c.loops[c.kernel_loops :])
    place = f"({values})" if c.checked else "()"
    c.line(f"{name} = share({c.block_memory}, {name!r}, {place}, lambda: {memory})")


def share(block: dict[Any, Any], name: str, iteration: tuple[int, ...], make: Callable[[], Any]) -> Any:
    """The shared memory `name` of a block. In checked mode each iteration of the loops around finds it undefined, and
    still races with what other iterations do to the same storage."""
    found = block.get((name, iteration))
    if found is None:
        found = block[name, iteration] = make()
        first = block.setdefault(name, found)
        if isinstance(found, CheckedMemory):
            found.writers, found.readers = first.writers, first.readers
    return found


def run_block(function: Callable[..., Thread], extents: tuple[int, ...], monitor: Monitor | None, axes: str) -> None:
    """Runs all threads of a block. Raises `SanitizerError` if they do not meet at every barrier."""
    memory: dict[str, Any] = {}
    running = [(t[::-1], function(memory, *t[::-1])) for t in product(*[range(n) for n in extents[::-1]])]
    context = () if monitor is None else monitor.context
    execution = 0 if monitor is None else monitor.enter()
    phase = 0
    while running:
        waiting: list[tuple[tuple[int, ...], Thread]] = []
        places: list[Place] = []
        ended: list[tuple[int, ...]] = []
        for thread, generator in running:
            if monitor is not None:
                entry: Any = ((execution, phase), thread, ("the threads of", axes))
                monitor.context = (*context, entry)
            try:
                places.append(next(generator))
                waiting.append((thread, generator))
            except StopIteration:
                ended.append(thread)
        if monitor is not None:
            monitor.context = context
        _require_together(waiting, places, ended, axes)
        running, phase = waiting, phase + 1


def _require_together(
    waiting: list[tuple[tuple[int, ...], Thread]], places: list[Place], ended: list[tuple[int, ...]], axes: str
) -> None:
    if not waiting:
        return
    first, at = waiting[0][0], places[0]
    if ended:
        raise SanitizerError(
            f"divergence: thread {_shown(first)} of {axes} waits at a barrier that thread {_shown(ended[0])} never"
            " comes to",
            help="a barrier may not stand inside a condition that differs between threads",
        )
    for (thread, _), place in zip(waiting, places, strict=True):
        if place != at:
            what = "another barrier" if place[0] != at[0] else "the same barrier in another iteration"
            raise SanitizerError(
                f"divergence: thread {_shown(first)} of {axes} waits at a barrier, thread {_shown(thread)} at {what}",
                help="barriers may stand only where all threads of a block come alike",
            )


def _shown(thread: tuple[int, ...]) -> str:
    return str(thread[0]) if len(thread) == 1 else str(thread)
