"""Kernels in thread form: each thread of a block is a generator that stops at barriers, and where the lanes of a warp
do something together.

The threads of a block run in turn from one barrier to the next, so an access belongs to a phase: the same block,
between the same two barriers. Accesses of two threads in one phase race, as do those of two blocks. All threads of a
block must come to the same barrier, in the same iteration of the loops around it. Shared
memory is one for all threads of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, NoReturn

from tensorir.dtypes import DType
from tensorir.expr import Call
from tensorir.interpreter.memory import UNWRITTEN, CheckedMemory, Context, Monitor, SanitizerError
from tensorir.interpreter.source import Compiler, Value, full_interval
from tensorir.matrix import LANES
from tensorir.stmt import For, Func, Stmt, Store
from tensorir.visit import walk_stmt

Place = tuple[int, tuple[int, ...]]


class Meeting(NamedTuple):
    """Where the lanes of a segment of a warp come together: the place, the lanes of a segment, what this lane brings,
    what is done with all that they bring (an answer for each lane), and its name."""

    place: Place
    width: int
    brings: Any
    together: Callable[[list[Any]], list[Any]]
    what: str


Thread = Generator[Place | Meeting, Any, None]

COPIES = "own_copies"
"""The Python name of a thread's asynchronous copies."""
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
        if any(is_asynchronous(x) for x in walk_stmt(body)):
            c.line(f"{COPIES} = Copies()")
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


def write_shuffle(c: Compiler, brought: str, lane: str, valid: str, width: str, down: bool, dtype: DType) -> Value:
    """A thread gives a value to the lanes of its warp and gets that of another."""
    name = c.fresh("lane")
    c.line(f"{name} = yield {_meeting(c, width, f'({brought}, {lane}, {valid}, {down})', 'exchange', 'a shuffle')}")
    return Value(name, *full_interval(dtype))


@contextmanager
def first_lane(c: Compiler, brings: str, what: str) -> Iterator[None]:
    """What the lanes of a warp do together, done by the first of them once all bring the same."""
    name = c.fresh("first")
    c.line(f"{name} = yield {_meeting(c, str(LANES), brings, 'one_of_a_warp', what)}")
    with c.indented(f"if {name}:"):
        context = c.fresh("context")
        if c.checked:
            c.line(f"{context} = monitor.context")
            c.line(f"monitor.context = as_warp({context})")
        yield
        if c.checked:
            c.line(f"monitor.context = {context}")


def as_warp(context: Context) -> Context:
    """The context of a thread as that of its warp: it races with what its own threads did since the last barrier."""
    execution, thread, shown = context[-1]
    return (*context[:-1], (execution, (*thread, "warp"), shown))


def one_of_a_warp(brought: list[Any]) -> list[bool]:
    """That the first lane is to act; raises `SanitizerError` if lanes are missing or disagree."""
    if len(brought) != LANES:
        raise SanitizerError(f"a matrix instruction: {len(brought)} lanes of a warp come, it takes {LANES}")
    for lane, b in enumerate(brought):
        if b != brought[0]:
            raise SanitizerError(f"a matrix instruction: lane {lane} of a warp speaks of other tiles than lane 0")
    return [lane == 0 for lane in range(LANES)]


def _meeting(c: Compiler, width: str, brings: str, together: str, what: str) -> str:
    c.barriers += 1
    values = "".join(f"{code}, " for code, _ in c.loops[c.kernel_loops :])
    return f"Meeting(({c.barriers}, ({values})), {width}, {brings}, {together}, {what!r})"


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


class Copies:
    """The asynchronous copies of one thread: those begun since the last group, and the groups not waited for."""

    def __init__(self) -> None:
        self.open: list[tuple[Any, Any, int, int]] = []
        self.groups: list[list[tuple[Any, Any, int, int]]] = []

    def begin(self, memory: Any, value: Any, position: int, site: int) -> None:
        """A copy of a value begins; in plain mode the element keeps what it had until the copy is done."""
        if isinstance(memory, CheckedMemory):
            memory.begin_copy(value, position, site)
        self.open.append((memory, value, position, site))

    def commit(self) -> None:
        """What was begun is a group."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, count: int) -> None:
        """Until at most `count` groups, the last ones, are not done."""
        while len(self.groups) > count:
            for memory, value, position, site in self.groups.pop(0):
                if isinstance(memory, CheckedMemory):
                    memory.end_copy(value, position, site)
                else:
                    memory[position] = value


def is_asynchronous(s: Stmt) -> bool:
    """Whether a statement stores what is copied asynchronously."""
    return isinstance(s, Store) and isinstance(s.value, Call) and s.value.name == "async_copy"


def run_block(function: Callable[..., Thread], extents: tuple[int, ...], monitor: Monitor | None, axes: str) -> None:
    """Runs all threads of a block. Raises `SanitizerError` if they do not meet at every barrier, or the lanes of a warp
    at what they do together."""
    memory: dict[str, Any] = {}
    threads = [t[::-1] for t in product(*[range(n) for n in extents[::-1]])]
    block = _Block(monitor, axes, [_Running(n, t, function(memory, *t)) for n, t in enumerate(threads)])
    while block.running:
        block.run_phase()


@dataclass(slots=True)
class _Running:
    """A thread: its number in the block, its indices, its generator."""

    number: int
    thread: tuple[int, ...]
    generator: Thread


class _Block:
    """The threads of a block, from barrier to barrier."""

    def __init__(self, monitor: Monitor | None, axes: str, running: list[_Running]) -> None:
        self.monitor = monitor
        self.axes = axes
        self.running = running
        self.count = len(running)
        self.context = () if monitor is None else monitor.context
        self.execution = 0 if monitor is None else monitor.enter()
        self.phase = 0

    def enter(self, running: _Running) -> None:
        """What is touched from now on is touched by this thread."""
        if self.monitor is not None:
            entry: Any = ((self.execution, self.phase), running.thread, ("the threads of", self.axes))
            self.monitor.context = (*self.context, entry)
            if self.monitor.trace is not None:
                self.monitor.trace.thread = (self.execution, running.number)

    def run_phase(self) -> None:
        """All threads to the next barrier, or to their end."""
        waiting: list[_Running] = []
        places: list[Place] = []
        ended: list[tuple[int, ...]] = []
        ready: list[tuple[_Running, Any]] = [(t, None) for t in self.running]
        while ready:
            meeting: dict[int, tuple[_Running, Meeting]] = {}
            for running, answer in ready:
                self.enter(running)
                try:
                    event = running.generator.send(answer)
                except StopIteration:
                    ended.append(running.thread)
                    continue
                if isinstance(event, Meeting):
                    meeting[running.number] = (running, event)
                else:
                    waiting.append(running)
                    places.append(event)
            ready = self._meet(meeting)
        if self.monitor is not None:
            self.monitor.context = self.context
        waiting_places = sorted(zip(waiting, places, strict=True), key=lambda pair: pair[0].number)
        self.running = [running for running, _ in waiting_places]
        _require_together([(r.thread, p) for r, p in waiting_places], ended, self.axes)
        self.phase += 1

    def _meet(self, meeting: dict[int, tuple[_Running, Meeting]]) -> list[tuple[_Running, Any]]:
        """What the lanes of each warp that came together get."""
        ready: list[tuple[_Running, Any]] = []
        numbers = sorted(meeting)
        while numbers:
            running, event = meeting[numbers[0]]
            first = numbers[0] // event.width * event.width
            lanes = range(first, min(first + event.width, self.count))
            for number in lanes:
                other = meeting.get(number)
                if other is None or other[1].place != event.place:
                    raise SanitizerError(
                        f"divergence: thread {_shown(running.thread)} of {self.axes} is at {event.what}, to which lane"
                        f" {number - first} of its warp does not come",
                        help="all lanes of a warp come together: move it out of conditions that differ between them",
                    )
            self.enter(running)
            answers = event.together([meeting[n][1].brings for n in lanes])
            ready += [(meeting[n][0], answer) for n, answer in zip(lanes, answers, strict=True)]
            numbers = [n for n in numbers if n not in lanes]
        ready.sort(key=lambda pair: pair[0].number)
        return ready


class _Nothing:
    """What a lane gets from a shuffle where no lane is to bring anything; any use of it is an error."""

    def _used(self, *_: Any) -> NoReturn:
        raise SanitizerError(
            "the result of a shuffle is used by a lane that no other brings a value to",
            help="a condition that says for which lanes the shuffle has a meaning is missing around the use",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _used
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __and__ = __rand__ = __or__ = __ror__ = _used
    __xor__ = __rxor__ = __float__ = __int__ = __index__ = __bool__ = _used
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rshift__ = _used
    __eq__ = __ne__ = _used  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


NOTHING = _Nothing()


def exchange(brought: list[tuple[Any, int, bool, bool]]) -> list[Any]:
    """What each lane of a warp gets from a shuffle; each brings (value, lane or distance, valid, is a distance)."""
    answers = []
    for lane, (_, selector, valid, down) in enumerate(brought):
        source = lane + selector if down else selector
        if not valid:
            answers.append(NOTHING)
            continue
        if not 0 <= source < len(brought):
            raise SanitizerError(
                f"a shuffle: lane {lane} reads lane {source} of its warp, of which {len(brought)} lanes run",
                help="a lane that does not run brings no value",
            )
        found = brought[source][0]
        if found is UNWRITTEN:
            raise SanitizerError(f"a shuffle: lane {lane} reads what lane {source} of its warp never wrote")
        answers.append(found)
    return answers


def _require_together(waiting: list[tuple[tuple[int, ...], Place]], ended: list[tuple[int, ...]], axes: str) -> None:
    if not waiting:
        return
    first, at = waiting[0]
    if ended:
        raise SanitizerError(
            f"divergence: thread {_shown(first)} of {axes} waits at a barrier that thread {_shown(ended[0])} never"
            " comes to",
            help="a barrier may not stand inside a condition that differs between threads",
        )
    for thread, place in waiting:
        if place != at:
            what = "another barrier" if place[0] != at[0] else "the same barrier in another iteration"
            raise SanitizerError(
                f"divergence: thread {_shown(first)} of {axes} waits at a barrier, thread {_shown(thread)} at {what}",
                help="barriers may stand only where all threads of a block come alike",
            )


def _shown(thread: tuple[int, ...]) -> str:
    return str(thread[0]) if len(thread) == 1 else str(thread)
