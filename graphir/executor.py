"""Executables: a compiled graph that runs.

`run` calls one native entry function made from the plan. Concurrent runs each take a frame (context, pointers, arena)
from a free list and share the weights. `debug` interprets the same plan in Python instead: any node's output by its
name, the time of each kernel, any target. A plan whose kernels run on a device is always interpreted: the device is
told what to do, and works while the next instruction is read.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphir import dims
from graphir.arena import ALIGNMENT, REPRESENTATIVE
from graphir.constants import unpack
from graphir.debugging import STOPS, Breakpoint, StopAt, base_name, compute_originals, explain
from graphir.devices import DeviceFrame, DeviceMemory, Span
from graphir.door import Door
from graphir.errors import InputError
from graphir.ir import Graph, Value
from graphir.kernels import KernelCalls
from graphir.memory import MemoryReport, memory_report
from graphir.plan import Copy, Define, Fill, If, Instruction, Launch, Loop, Plan, Slot
from targets.llvm.entry import (
    Block,
    Branch,
    CallKernel,
    CopyBytes,
    DefineDimension,
    Entry,
    FillIntegers,
    Pointer,
    Repeat,
    Step,
    Stride,
    emit_entry,
)
from targets.llvm.machine import machine_of
from targets.llvm.runtime import Context, KernelError, address_of, compile_ir, load
from tensorir.errors import InternalError
from tensorir.target import Target

ENTRY = "nestor_entry"
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, shape (sizes and symbol formulas) and dtype of an input or output."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of one launch in a profiled run."""

    node: str
    ops: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Kernel times of a run, in order."""

    times: tuple[KernelTime, ...]
    seconds: float

    def __str__(self) -> str:
        ordered = sorted(self.times, key=lambda t: -t.seconds)
        lines = [f"{'us':>9}  {'share':>6}  node (ops)"]
        total = sum(t.seconds for t in ordered) or 1.0
        lines += [f"{t.seconds * 1e6:9.1f}  {t.seconds / total:6.1%}  {t.node} ({t.ops})" for t in ordered]
        lines.append(f"{total * 1e6:9.1f}  kernels together; the run took {self.seconds * 1e6:.1f} us")
        return "\n".join(lines)


class Executable:
    """A compiled model. `graph` is what was compiled (after the passes), `log` what each pass did."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        target: Target,
        *,
        threads: int | None = None,
        log: Sequence[str] = (),
        source: Graph | None = None,
        entry: bytes | None = None,
        removed: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._source = source if source is not None else graph
        self.remake: Callable[[], Executable] | None = None
        self._is_loaded = entry is not None
        self.plan = plan
        self.target = target
        self.threads = threads
        self.log = list(log)
        self._removed: Mapping[str, str] = removed or {}
        self._door = Door(plan)
        self._constants = [_aligned_copy(graph_constant(graph, v)) for v in plan.constants]
        self._calls = KernelCalls(plan.kernels, threads)
        self._layouts: dict[tuple[int, ...], _Sizes] = {}
        self._devices = [DeviceMemory(target, self._constants) for _ in plan.devices[1:]]
        self._device_frames: list[list[DeviceFrame]] = []
        self._frames: list[_Frame] = []
        self._entry: Any = None
        self._library: Any = None
        self._data_count = 0
        self.entry_object = entry
        if self._calls.is_native and target.kind == "llvm":
            self._load_entry()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, x)) for x in (self.inputs, self.outputs))
        return f"Executable({inputs} -> {outputs}; {len(self.plan.kernels)} kernels for {self.target.kind})"

    @property
    def graph(self) -> Graph:
        """What was compiled, after the passes. One that came from the cache goes through them now; one that was loaded
        from an artifact has the launches of its plan for nodes."""
        return self._graph if self.remake is None else self.remake().graph

    @property
    def has_graph(self) -> bool:
        """True unless it was loaded from an artifact: then its nodes name the ops they run, without attributes."""
        return self.remake is not None or not self._is_loaded

    @property
    def source(self) -> Graph:
        """The graph before the passes, as far as it is known."""
        return self._source if self.remake is None else self.remake().source

    @property
    def removed(self) -> Mapping[str, str]:
        """The pass that removed each value of the model that is no more."""
        return self._removed if self.remake is None else self.remake().removed

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs in order."""
        return tuple(_info(v.name, v) for v in self.plan.inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs in order."""
        return tuple(_info(n, v) for n, v in zip(self.plan.output_names, self.plan.outputs))

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The data of the plan's constants, as the kernels want them."""
        return tuple(self._constants)

    def refusal(self, inputs: Mapping[str, Any] | Sequence[Any]) -> InputError | None:
        """Why these inputs cannot be run, None if they can."""
        try:
            self._door.check(self._door.arrange(inputs))
        except InputError as error:
            return error
        return None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the executable as an artifact: see `graphir.artifact`."""
        from graphir.artifact import save  # artifacts are made of executables

        save(self, path)

    def plain(self, graph: Graph) -> Executable:
        """An executable of a graph as it came in, each node its own kernel, for the same target."""
        from graphir.compile import compile  # the compiler makes executables

        return compile(graph, self.target, self.threads, 0, cache=False)

    # -- running

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], outputs: Any = None) -> list[np.ndarray]:
        """The outputs in graph order, as fresh arrays, or written into `outputs` (a list, or a dict by name).

        `inputs` is a dict by name or a list in order. Raises `InputError` naming the input that does not fit.
        """
        arrays, symbols = self._door.check(self._door.arrange(inputs))
        sizes = self._layouts.get(symbols)
        if sizes is None:
            sizes = self._sizes(symbols)
        if outputs is None:
            results = [np.empty(s, t) for s, t in sizes.outputs]
        else:
            results = self._door.check_outputs(outputs, sizes.shapes)
        if self._entry is None:
            self._refuse_overlap(arrays, results, [address_of(a) for a in (*arrays, *results)])
            late = self._interpret(arrays, results, symbols, _Observer())
            return self._trimmed(results, late) if self.plan.late else results
        addresses = [address_of(a) for a in arrays]
        addresses += [address_of(a) for a in results]
        if outputs is not None:
            self._refuse_overlap(arrays, results, addresses)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self)
        if frame.arena_bytes < sizes.arena_bytes:
            frame.grow(sizes.arena_bytes)
        frame.pack(frame.data, 0, *addresses)
        if symbols:
            frame.pack_dims(frame.dims, 0, *symbols)
        status = self._entry(frame.context.address, frame.data_address, frame.dims_address)
        if status:
            code, detail = frame.context.take_error()
            self._frames.append(frame)
            error = KernelError(self.plan.name, status, detail if code == status else 0)
            self._calls.raise_host_error(error)
            raise error
        if self.plan.late:
            names = self._all_symbols
            results = self._trimmed(results, {n: int(frame.dims[i]) for i, n in enumerate(names)})
        self._frames.append(frame)
        return results

    def _trimmed(self, results: list[np.ndarray], symbols: Mapping[str, int]) -> list[np.ndarray]:
        """The results cut to the sizes that became known while running."""
        made = []
        for array, v in zip(results, self.plan.outputs):
            sizes = dims.evaluate_shape(v.shape, symbols)
            count = int(np.prod(sizes, dtype=np.int64))
            made.append(array.reshape(-1)[:count].reshape(sizes) if count < array.size else array)
        return made

    @property
    def _all_symbols(self) -> tuple[str, ...]:
        """The symbols that inputs give, then those that instructions define."""
        return (*self._door.symbols, *self.plan.late)

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        return self.run(list(arrays))

    def debug(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        names: Sequence[str] | None = None,
        *,
        stop_at: StopAt | None = None,
    ) -> dict[str, np.ndarray]:
        """The value of every node that is stored, by name; or of those named, by the name of a value or a node of the
        model. One that passes removed or keep in registers is computed by the model's own nodes: `explain` says what
        became of it. `stop_at` ("nan", "inf" or "either") stops at the first node that makes one of finite inputs,
        among the model's own nodes first, then among the kernels: raises `NonFiniteError` with the node, the index and
        the inputs."""
        if stop_at is not None and stop_at not in STOPS:
            raise InputError(f"stop_at is {stop_at!r}", help=f"it is one of {', '.join(STOPS)}")
        by_name = dict(zip(self._door.names, self._door.arrange(inputs)))
        if stop_at is not None and self.has_graph:
            self.plain(self.source).stored_values(by_name, stop_at)
        found = self.stored_values(by_name, stop_at)
        if names is None:
            return found
        missing = [n for n in names if n not in found]
        if missing:
            found |= compute_originals(self, by_name, missing)
        return {n: found[n] for n in names}

    def stored_values(self, inputs: Mapping[str, Any], stop_at: StopAt | None = None) -> dict[str, np.ndarray]:
        """What a run stores, by name; it stops at the first kernel that makes a number of this kind."""
        arrays, symbols = self._door.check(self._door.arrange(inputs))
        results = [np.empty(s, t) for s, t in self._sizes(symbols).outputs]
        observer = _Observer(values={}, stop=None if stop_at is None else Breakpoint(stop_at))
        results = self._trimmed(results, self._interpret(arrays, results, symbols, observer))
        found = observer.values or {}
        for name, array in zip(self.plan.output_names, results):
            found.setdefault(name, array)
        return found

    def explain(self, name: str) -> str:
        """What became of a value or a node of the model: stored, joined into which kernel, or removed by which pass."""
        return explain(self, name)

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any], repeats: int = 5) -> Profile:
        """The time of each kernel: the shortest of `repeats` runs."""
        arrays, symbols = self._door.check(self._door.arrange(inputs))
        results = [np.empty(s, t) for s, t in self._sizes(symbols).outputs]
        best: dict[int, KernelTime] = {}
        shortest = float("inf")
        for _ in range(max(repeats, 1)):
            observer = _Observer(times=[])
            start = time.perf_counter()
            self._interpret(arrays, results, symbols, observer)
            shortest = min(shortest, time.perf_counter() - start)
            for number, one in enumerate(observer.times or ()):
                if number not in best or one.seconds < best[number].seconds:
                    best[number] = one
        return Profile(tuple(best.values()), shortest)

    @property
    def memory(self) -> MemoryReport:
        """The memory plan; symbols at a representative size where there are any."""
        return self.memory_at(**{s.symbol.name: max(REPRESENTATIVE, s.symbol.low) for s in self.plan.symbols})

    def memory_at(self, **sizes: int) -> MemoryReport:
        """The memory plan for these values of the symbols. Raises `InputError` for a name that is no symbol."""
        return memory_report(self.plan, self._constants, sizes)

    def _refuse_overlap(self, arrays: list[np.ndarray], results: list[np.ndarray], addresses: list[int]) -> None:
        """Refuses outputs that share memory with an input or with each other."""
        ends = [begin + a.nbytes for begin, a in zip(addresses, (*arrays, *results))]
        for number in range(len(arrays), len(ends)):
            begin, end = addresses[number], ends[number]
            for other in range(number):
                if addresses[other] < end and begin < ends[other]:
                    names = [*self._door.names, *self._door.output_names]
                    raise InputError(
                        f"the output {names[number]!r} shares memory with {names[other]!r}", help="give a fresh array"
                    )

    # -- preparing

    def _sizes(self, symbols: tuple[int, ...]) -> _Sizes:
        """Output shapes and arena size for these symbols, kept."""
        known = self._layouts.get(symbols)
        if known is None:
            values = dict(zip(self._door.symbols, symbols))
            for name, bound in self.plan.late.items():  # outputs of a size not yet known get room for the largest
                values[name] = max(dims.evaluate(bound, values), 0)
            shapes = [dims.evaluate_shape(v.shape, values) for v in self.plan.outputs]
            _, arena = self.plan.arena.layout(values)
            known = _Sizes([(s, v.dtype.numpy) for s, v in zip(shapes, self.plan.outputs)], shapes, arena)
            if len(self._layouts) > 256:
                self._layouts.clear()
            self._layouts[symbols] = known
        return known

    def _load_entry(self) -> None:
        """Emits the entry of the plan, compiles and loads it beside the kernels."""
        plan = self.plan
        first_constant = len(plan.inputs) + len(plan.outputs)
        arena = first_constant + len(plan.constants)
        host_at: list[int] = []
        at = arena + 1
        for hosts in self._calls.hosts:
            host_at.append(at)
            at += len(hosts)
        self._data_count = at

        def pointer(slot: Slot) -> Pointer:
            match slot.kind:
                case "input":
                    return Pointer(slot.number)
                case "output":
                    return Pointer(len(plan.inputs) + slot.number)
                case "constant":
                    return Pointer(first_constant + slot.number)
                case "slice":
                    part = plan.slices[slot.number]
                    whole = pointer(part.base)
                    stride = Stride(part.loop, part.nbytes, part.count)
                    return Pointer(whole.index, whole.block, (*whole.strides, stride))
            return Pointer(arena, slot.number)

        names = self._all_symbols

        def steps(instructions: Sequence[Instruction]) -> tuple[Step, ...]:
            made: list[Step] = []
            for i in instructions:
                match i:
                    case Launch():
                        hosts = self._calls.hosts[i.kernel]
                        extra = [Pointer(host_at[i.kernel] + n) for n in range(len(hosts))]
                        symbol = self._calls.symbols[i.kernel]
                        pointers = tuple([*map(pointer, i.slots), *extra])
                        made.append(CallKernel(symbol, pointers, tuple(names.index(d) for d in i.dims)))
                    case Fill():
                        made.append(FillIntegers(pointer(i.slot), i.values, i.dtype))
                    case Copy():
                        made.append(CopyBytes(pointer(i.source), pointer(i.target), i.nbytes))
                    case Define():
                        made.append(DefineDimension(names.index(i.symbol), pointer(i.slot)))
                    case If():
                        made.append(Branch(pointer(i.condition), steps(i.then), steps(i.otherwise)))
                    case Loop():
                        limit, condition, counter = (
                            None if s is None else pointer(s) for s in (i.limit, i.condition, i.counter)
                        )
                        made.append(Repeat(i.number, i.trips, limit, condition, counter, steps(i.steps)))
            return tuple(made)

        if self.entry_object is None:
            self._compile_entry(steps(plan.instructions))
        imports = {symbol: self._calls.library.address(symbol) for symbol in self._calls.symbols}
        assert self.entry_object is not None
        self._library = load(self.entry_object, imports=imports)
        self._entry = _PROTOTYPE(self._library.address(ENTRY))

    def _compile_entry(self, steps: tuple[Step, ...]) -> None:
        """Machine code of the entry that runs these steps."""
        plan = self.plan
        blocks = tuple(Block(b.nbytes, p.offset, p.after) for b, p in zip(plan.arena.blocks, plan.arena.placed))
        text = emit_entry(Entry(ENTRY, self._all_symbols, blocks, plan.arena.order, steps, len(self._door.symbols)))
        self.entry_source = text
        self.entry_object = compile_ir(text, machine=machine_of(self.target, 1), passes="sroa").object

    # -- the debug interpretation

    def _interpret(
        self, arrays: list[np.ndarray], results: list[np.ndarray], symbols: tuple[int, ...], observer: _Observer
    ) -> Mapping[str, int]:
        """Runs the plan in Python; the values of all symbols at the end."""
        values = dict(zip(self._door.symbols, symbols))
        layouts = [arena.layout(values) for arena in self.plan.arenas]
        memory = _aligned_bytes(layouts[0][1])
        memory[:] = 0xFF  # NaN in every float: a read before a write shows
        try:
            frames = self._device_frames.pop()
        except IndexError:
            frames = [DeviceFrame(d) for d in self._devices]
        for frame, (_, total) in zip(frames, layouts[1:]):
            frame.grow(total)
            if observer.values is not None:
                frame.poison()
        offsets = [offsets for offsets, _ in layouts]
        run = _Interpretation(self, arrays, results, values, offsets, memory, frames, observer)
        run.steps(self.plan.instructions)
        if frames:
            self._device_frames.append(frames)
        return run.symbols


def graph_constant(graph: Graph, v: Value) -> np.ndarray:
    """The data of a constant of a graph or one of its subgraphs."""
    stack = [graph]
    while stack:
        g = stack.pop()
        data = g.constants.get(v)
        if data is not None:
            return data
        stack.extend(s for n in g.nodes for s in n.subgraphs)
    raise InputError(f"the constant {v.name} has no data", help="give it with params=")


@dataclass(slots=True)
class _Sizes:
    outputs: list[tuple[tuple[int, ...], np.dtype]]
    shapes: list[tuple[int, ...]]
    arena_bytes: int


class _Frame:
    """What one run in flight owns."""

    __slots__ = (
        "context",
        "data",
        "data_address",
        "dims",
        "dims_address",
        "pack",
        "pack_dims",
        "arena",
        "arena_bytes",
        "place",
    )

    def __init__(self, exe: Executable) -> None:
        plan = exe.plan
        self.context = Context(exe.threads)
        self.data = (ctypes.c_uint64 * max(exe._data_count, 1))()
        self.data_address = ctypes.addressof(self.data)
        count = len(exe._door.symbols)
        room = len(exe._all_symbols)
        self.dims = (ctypes.c_int64 * max(room, 1))()
        self.dims_address = ctypes.addressof(self.dims)
        first = len(plan.inputs) + len(plan.outputs)
        self.pack: Callable[..., None] = struct.Struct(f"={first}Q").pack_into
        self.pack_dims: Callable[..., None] = struct.Struct(f"={count}q").pack_into
        for number, constant in enumerate(exe._constants):
            self.data[first + number] = constant.__array_interface__["data"][0]
        self.place = first + len(plan.constants)
        at = self.place + 1
        for hosts in exe._calls.hosts:
            for host in hosts:
                self.data[at] = host.address
                at += 1
        self.arena_bytes = -1
        self.grow(0)

    def grow(self, nbytes: int) -> None:
        """An arena of at least this size."""
        self.arena = _aligned_bytes(nbytes)
        self.arena_bytes = nbytes
        self.data[self.place] = self.arena.__array_interface__["data"][0]


@dataclass(slots=True)
class _Observer:
    """What a debug run writes down: values by name, times."""

    values: dict[str, np.ndarray] | None = None
    times: list[KernelTime] | None = None
    stop: Breakpoint | None = None


@dataclass(slots=True)
class _Interpretation:
    """A plan run instruction by instruction."""

    exe: Executable
    arrays: list[np.ndarray]
    results: list[np.ndarray]
    symbols: dict[str, int]
    offsets: list[list[int]]
    memory: np.ndarray
    frames: list[DeviceFrame]
    observer: _Observer
    iteration: dict[int, int] = field(default_factory=dict)

    def bytes_of(self, slot: Slot, nbytes: int) -> np.ndarray:
        """The memory of a slot of the host."""
        match slot.kind:
            case "input":
                array = self.arrays[slot.number]
            case "output":
                array = self.results[slot.number]
            case "constant":
                array = self.exe._constants[slot.number]
            case "slice":
                return self.part(slot.number, nbytes)
            case _:
                start = self.offsets[0][slot.number]
                return self.memory[start : start + nbytes]
        return array.reshape(-1).view(np.uint8)[:nbytes]

    def part(self, number: int, nbytes: int) -> np.ndarray:
        """The part of a slot that belongs to the present iteration of a loop."""
        at = self.begin_of_part(number)
        return self.bytes_of(self.exe.plan.slices[number].base, at + nbytes)[at:]

    def begin_of_part(self, number: int) -> int:
        """Where in its base a slice begins in the present iteration."""
        part = self.exe.plan.slices[number]
        stride, at = dims.evaluate(part.nbytes, self.symbols), self.iteration[part.loop]
        if part.count is not None:
            at = dims.evaluate(part.count, self.symbols) - 1 - at
        return at * stride

    def span(self, slot: Slot, nbytes: int) -> Span:
        """The memory of a slot of a device."""
        frame = self.frames[slot.device - 1]
        if slot.kind == "constant":
            return Span(frame.memory.constant(slot.number), 0, nbytes)
        if slot.kind == "slice":
            at = self.begin_of_part(slot.number)
            base = self.span(self.exe.plan.slices[slot.number].base, at + nbytes)
            return Span(base.buffer, base.start + at, nbytes)
        return Span(frame.arena, self.offsets[slot.device][slot.number], nbytes)

    def copy(self, source: Slot, target: Slot, nbytes: int) -> None:
        """Bytes from one slot to another, wherever they are."""
        if not source.device and not target.device:
            self.bytes_of(target, nbytes)[:] = self.bytes_of(source, nbytes)
        elif not source.device:
            self.frames[target.device - 1].upload(self.span(target, nbytes), self.bytes_of(source, nbytes))
        elif not target.device:
            self.frames[source.device - 1].download(self.bytes_of(target, nbytes), self.span(source, nbytes))
        else:
            self.frames[target.device - 1].copy(self.span(target, nbytes), self.span(source, nbytes), nbytes)

    def view(self, slot: Slot, v: Value) -> np.ndarray:
        """A value's memory as an array of its physical shape; of a device, what is there now."""
        shape = dims.evaluate_shape(v.physical_shape, self.symbols)
        count = int(np.prod(shape, dtype=np.int64)) * v.dtype.nbytes
        if slot.device:
            data = np.empty(count, np.uint8)
            self.frames[slot.device - 1].download(data, self.span(slot, count))
        else:
            data = self.bytes_of(slot, count)
        return data.view(v.dtype.numpy).reshape(shape)

    def steps(self, instructions: Sequence[Instruction]) -> None:
        """Instructions in order."""
        for i in instructions:
            match i:
                case Launch():
                    self.launch(i)
                case Fill():
                    numbers = [dims.evaluate(e, self.symbols) for e in i.values]
                    data = np.array(numbers, np.int64).astype(i.dtype.numpy).view(np.uint8)
                    if i.slot.device:
                        self.frames[i.slot.device - 1].upload(self.span(i.slot, data.nbytes), data)
                    else:
                        self.bytes_of(i.slot, data.nbytes)[:] = data
                    self.note(i.node.outputs, [i.slot])
                case Copy():
                    self.copy(i.source, i.target, dims.evaluate(i.nbytes, self.symbols))
                case Define():
                    self.symbols[i.symbol] = int(self.bytes_of(i.slot, 8).view(np.int64)[0])
                    self.note(i.node.outputs, [i.slot])
                case If():
                    taken = bool(self.bytes_of(i.condition, 1)[0])
                    self.steps(i.then if taken else i.otherwise)
                    self.note(i.node.outputs, [self.exe.plan.places[v] for v in i.node.outputs])
                case Loop():
                    self.loop(i)
                    self.note(i.node.outputs, [self.exe.plan.places[v] for v in i.node.outputs])
                case _:
                    raise InternalError(f"unknown instruction {i!r}")

    def loop(self, i: Loop) -> None:
        """A loop; what nodes inside it made is that of the last iteration."""
        trips = None if i.trips is None else dims.evaluate(i.trips, self.symbols)
        if i.limit is not None:
            trips = int(self.bytes_of(i.limit, 8).view(np.int64)[0])
        count = 0
        while (trips is None or count < trips) and (i.condition is None or bool(self.bytes_of(i.condition, 1)[0])):
            self.iteration[i.number] = count
            if i.counter is not None:
                self.bytes_of(i.counter, 8).view(np.int64)[0] = count
            self.steps(i.steps)
            count += 1

    def launch(self, i: Launch) -> None:
        """One kernel."""
        node = i.node
        members = node.subgraphs[0].nodes if node.op == "group" else (node,)
        inside = {v for n in members for v in n.outputs}
        inputs = tuple(dict.fromkeys(v for n in members for v in n.operands if v not in inside))
        values = (*inputs, *node.outputs)
        sizes = [self.symbols[d] for d in i.dims]
        if i.device:
            spans = [self.span(s, dims.evaluate(v.nbytes, self.symbols)) for s, v in zip(i.slots, values, strict=True)]
            if self.observer.times is not None:
                self.frames[i.device - 1].memory.driver.finish()
            start = time.perf_counter()
            self.launch_on_device(i, spans, len(inputs), sizes)
            if self.observer.times is not None:
                self.frames[i.device - 1].memory.driver.finish()
        else:
            arrays = [self.view(s, v) for s, v in zip(i.slots, values, strict=True)]
            start = time.perf_counter()
            self.exe._calls.call(i.kernel, arrays, sizes)
        seconds = time.perf_counter() - start
        if self.observer.times is not None:
            self.observer.times.append(KernelTime(node.name, "+".join(n.op for n in members), seconds))
        if self.observer.stop is not None:
            logical = [self.logical(s, v) for s, v in zip(i.slots, values, strict=True)]
            count = len(inputs)
            self.observer.stop.check(node, dict(zip(inputs, logical)), dict(zip(node.outputs, logical[count:])))
        self.note(node.outputs, i.slots[len(inputs) :])

    def logical(self, slot: Slot, v: Value) -> np.ndarray:
        """A value in its logical shape, copied."""
        return unpack(self.view(slot, v), v.layout, dims.evaluate_shape(v.shape, self.symbols)).copy()

    def launch_on_device(self, i: Launch, spans: list[Span], inputs: int, sizes: list[int]) -> None:
        """One kernel of a device. A slice that starts where no kernel can be given memory is copied aside for it."""
        frame = self.frames[i.device - 1]
        given = [s if frame.is_aligned(s) else frame.aside(s) for s in spans]
        for wanted, span in zip(given[:inputs], spans):
            if wanted is not span:
                frame.copy(wanted, span, span.nbytes)
        self.exe._calls.call_on_device(i.kernel, [frame.argument(s) for s in given], sizes)
        for made, span in zip(given[inputs:], spans[inputs:]):
            if made is not span:
                frame.copy(span, made, span.nbytes)

    def note(self, values: Sequence[Value], slots: Sequence[Slot]) -> None:
        """Keeps values by name, in their logical shape."""
        if self.observer.values is None:
            return
        for v, slot in zip(values, slots):
            name = f"{base_name(v.name)}@turned" if "@turned" in v.name else base_name(v.name)
            self.observer.values[name] = self.logical(slot, v)


def _info(name: str, v: Value) -> TensorInfo:
    shape = tuple(dims.text(d) if (k := dims.constant(d)) is None else k for d in v.shape)
    return TensorInfo(name, shape, str(v.dtype))


def _aligned_bytes(nbytes: int) -> np.ndarray:
    """Fresh bytes that start at a cache line."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    offset = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[offset : offset + nbytes]


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """The array where it is if it starts at a cache line, else a copy that does."""
    if array.flags.c_contiguous and array.__array_interface__["data"][0] % ALIGNMENT == 0:
        return array
    made = _aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
