"""The plan of a run: which memory each value has, and the list of instructions.

    Launch   a kernel on slots, with the values of its dimensions
    Fill     integers over the symbols written into a slot (a `dims` node)
    Define   a symbol by the integer in a slot
    Copy     one slot into another (an output that is an input, a constant, or an output twice)
    If       a condition slot and two lists of instructions
    Loop     a trip count, a condition slot and a list of instructions

A slot is memory: an input, an output, a constant, a block of the arena, or a slice: the part of another slot that
belongs to the present iteration of a loop. A loop's carried values have two memories each: an iteration reads one and
writes the other, which is copied back at its end. Values that are views of each other share a
slot (an alias class), so that lifetimes follow the class and not the name. The same plan is interpreted in Python for
debugging and lowered to a native entry function.

Memory lies on a device: 0 is the host, where inputs, outputs and constants are and what conditions and sizes are read
from; a kernel runs where its code runs and finds its operands there:

    copy input0 to opencl:arena0            once an input, at its first use there
    launch 0 conv(opencl:arena0, opencl:constant0, opencl:arena1) on opencl
    launch 1 relu(opencl:arena1, opencl:arena2) on opencl
    copy opencl:arena2 to output0           once an output

A constant is put on a device once an executable. What a kernel of the host reads (a sort, a condition) is copied for it
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphir import dims
from graphir.arena import DEVICE_ALIGNMENT, Arena, ArenaBlock, plan_arena
from graphir.errors import GraphError
from graphir.groups import GraphKernel, group_call, is_kernel, is_view, runs_on_device
from graphir.ir import Graph, Node, Symbol, Value, late_symbols
from graphir.kinds import node_kind
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import Expr, const
from topi.registry import get_op


@dataclass(frozen=True, slots=True)
class Slot:
    """Memory: `kind` is input, output, constant, arena or slice; `number` counts within the kind (blocks of an arena:
    within the device's). `device` is a number in the plan's devices."""

    kind: str
    number: int
    device: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Runs kernel `kernel` on the slots of its parameters, all on `device`; `dims` are the symbols of its ABI, in
    order."""

    kernel: int
    slots: tuple[Slot, ...]
    dims: tuple[str, ...]
    node: Node
    device: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """Writes expressions over the symbols as integers of `dtype`."""

    slot: Slot
    values: tuple[Expr, ...]
    dtype: DType
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Copies `nbytes` bytes, from the device of `source` to that of `target`."""

    source: Slot
    target: Slot
    nbytes: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Define:
    """Gives a symbol the value of the int64 in `slot`."""

    symbol: str
    slot: Slot
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """Runs `then` if the byte at `condition` is not 0, else `otherwise`."""

    condition: Slot
    then: tuple[Instruction, ...]
    otherwise: tuple[Instruction, ...]
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Runs `steps` while the iteration number is below `trips` (an expression over the symbols, or the int64 in
    `limit`, or neither) and the byte at `condition`, if there is one, is not 0. The number is written to `counter`."""

    number: int
    trips: Expr | None
    limit: Slot | None
    condition: Slot | None
    counter: Slot | None
    steps: tuple[Instruction, ...]
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The `nbytes` of `base` that belong to an iteration of loop `loop`: the first at its start, or, with `count`
    iterations given, from the end."""

    base: Slot
    loop: int
    nbytes: Expr
    count: Expr | None


Instruction = Launch | Fill | Copy | Define | If | Loop


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Where a symbol gets its value: dimension `axis` of input `input`."""

    symbol: Symbol
    input: int
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything that a run needs, in order. `places` says where each value that is stored lies."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...]
    symbols: tuple[SymbolSource, ...]
    constants: tuple[Value, ...]
    kernels: tuple[GraphKernel, ...]
    instructions: tuple[Instruction, ...]
    arena: Arena
    places: Mapping[Value, Slot] = field(default_factory=dict)
    slices: tuple[Slice, ...] = ()
    late: Mapping[str, Expr] = field(default_factory=dict)
    """The symbols that instructions define, each with its bound over the others; memory is planned for the bounds."""
    devices: tuple[str, ...] = ("host",)
    device_arenas: tuple[Arena, ...] = ()
    """The arenas of the devices after the host."""

    @property
    def arenas(self) -> tuple[Arena, ...]:
        """The arena of each device."""
        return (self.arena, *self.device_arenas)

    def constants_on(self, device: int) -> tuple[int, ...]:
        """The constants that instructions read on a device."""
        slots: list[Slot] = [s.base for s in self.slices]
        for i in self.walk():
            slots += i.slots if isinstance(i, Launch) else [i.source] if isinstance(i, Copy) else []
        return tuple(sorted({s.number for s in slots if s.kind == "constant" and s.device == device}))

    def walk(self) -> Iterator[Instruction]:
        """Every instruction, those of branches and loops after their If or Loop."""
        stack = list(reversed(self.instructions))
        while stack:
            top = stack.pop()
            yield top
            if isinstance(top, If):
                stack.extend(reversed((*top.then, *top.otherwise)))
            elif isinstance(top, Loop):
                stack.extend(reversed(top.steps))

    def __str__(self) -> str:
        lines = [f"plan {self.name}"]
        self._describe(self.instructions, lines, "  ")
        return "\n".join(lines)

    def _describe(self, instructions: Sequence[Instruction], lines: list[str], indent: str) -> None:
        text = self._slot_text
        for i in instructions:
            match i:
                case Launch():
                    where = f" on {self.devices[i.device]}" if i.device else ""
                    lines.append(f"{indent}launch {i.kernel} {i.node.name}({', '.join(map(text, i.slots))}){where}")
                case Fill():
                    lines.append(f"{indent}fill {text(i.slot)} with {', '.join(map(dims.text, i.values))}")
                case Copy():
                    lines.append(f"{indent}copy {text(i.source)} to {text(i.target)}")
                case Define():
                    lines.append(f"{indent}define {i.symbol} as {text(i.slot)}")
                case If():
                    lines.append(f"{indent}if {text(i.condition)}")
                    self._describe(i.then, lines, indent + "  ")
                    lines.append(f"{indent}else")
                    self._describe(i.otherwise, lines, indent + "  ")
                case Loop():
                    trips = dims.text(i.trips) if i.trips is not None else text(i.limit) if i.limit else "any number"
                    going = f" while {text(i.condition)}" if i.condition else ""
                    lines.append(f"{indent}loop {trips} times{going}")
                    self._describe(i.steps, lines, indent + "  ")

    def _slot_text(self, slot: Slot) -> str:
        return f"{self.devices[slot.device]}:{slot.kind}{slot.number}" if slot.device else f"{slot.kind}{slot.number}"


def symbol_sources(graph: Graph) -> tuple[SymbolSource, ...]:
    """The input dimension that defines each symbol. Raises `GraphError` for a symbol that no input has alone."""
    found: dict[str, SymbolSource] = {}
    by_name = {s.name: s for s in graph.symbols}
    for number, v in enumerate(graph.inputs):
        for axis, d in enumerate(v.shape):
            names = dims.symbols_of(d)
            if len(names) == 1 and d is names[0]:
                symbol = by_name.get(names[0].name, Symbol(names[0].name))
                found.setdefault(symbol.name, SymbolSource(symbol, number, axis))
    used = {v.name for value in _all_values(graph) for d in value.shape for v in dims.symbols_of(d)}
    for name in sorted(used - set(found) - set(late_symbols(graph))):
        raise GraphError(
            f"the dimension {name} cannot be read from any input: none has it alone as a dimension",
            help="fix it with shapes=",
        )
    return tuple(found.values())


def _all_values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs
        for sub in node.subgraphs:
            yield from _all_values(sub)


# ------------------------------------------------------------------------------------------------------------ planning


def make_plan(
    graph: Graph, kernels: Callable[[Node, Graph], GraphKernel], *, share: bool, devices: Sequence[str] = ("host",)
) -> Plan:
    """The plan of a graph. `kernels` compiles the kernel of a node; with `share` views alias, results are written in
    place and blocks of the arena are reused (opt level 2 and up). `devices` are the host and, where kernels run on
    another device, that one."""
    return _Planner(graph, kernels, share, tuple(devices)).plan()


@dataclass(slots=True, eq=False)
class _Class:
    """An alias class: values over one memory. `start` and `end` are the instructions of its first write, last use."""

    nbytes: Expr
    slot: Slot | None = None
    start: int = -1
    end: int = -1
    names: list[str] = field(default_factory=list)
    base: _Class | None = None
    """For a slice, the memory that it is a part of."""
    device: int = 0


class _Planner:
    def __init__(
        self, graph: Graph, kernels: Callable[[Node, Graph], GraphKernel], share: bool, devices: tuple[str, ...]
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.mirrors: dict[tuple[_Class, int], _Class] = {}
        """Copies of classes on other devices, as long as they are what the class is."""
        self.made: dict[Graph, dict[Value, Node]] = {}
        self.kernels = kernels
        self.share = share
        self.classes: dict[Value, _Class] = {}
        self.constants: list[Value] = []
        self.position = 0
        self.last_use: dict[_Class, int] = {}
        self.compiled: dict[str, int] = {}
        self.kernel_list: list[GraphKernel] = []
        self.uses: dict[Value, int] = {}
        self.loops = 0
        self.memories: list[_Class] = []
        """What loops need beside the memory of values."""
        self.late = late_symbols(graph)
        self.slices: list[tuple[_Class, int, Expr, Expr | None]] = []

    def plan(self) -> Plan:
        graph = self.graph
        for number, v in enumerate(graph.inputs):
            self.classes[v] = _Class(v.nbytes, Slot("input", number), names=[v.name])
        targets = [Slot("output", n) for n in range(len(graph.outputs))]
        draft = self.body(graph, targets, {})
        blocks: list[list[ArenaBlock]] = [[] for _ in self.devices]
        slots: dict[_Class, Slot] = {}
        for c in dict.fromkeys([*self.classes.values(), *self.memories]):
            if c.slot is None:
                slots[c] = Slot("arena", len(blocks[c.device]), c.device)
                # a size that is known at run time only is taken at its bound
                room = dims.substitute(c.nbytes, self.late) if self.late else c.nbytes
                blocks[c.device].append(ArenaBlock(room, c.start, max(c.end, c.start), tuple(c.names)))
        arena = plan_arena(blocks[0], share=self.share)
        device_arenas = [plan_arena(b, share=self.share, alignment=DEVICE_ALIGNMENT) for b in blocks[1:]]

        def place(c: _Class) -> Slot:
            return c.slot if c.slot is not None else slots[c]

        return Plan(
            graph.name,
            graph.inputs,
            graph.outputs,
            graph.output_names,
            symbol_sources(graph),
            tuple(self.constants),
            tuple(self.kernel_list),
            tuple(_resolve(draft, place)),
            arena,
            {v: place(c) for v, c in self.classes.items()},
            tuple(Slice(place(base), loop, nbytes, count) for base, loop, nbytes, count in self.slices),
            self.late,
            self.devices,
            tuple(device_arenas),
        )

    # -- where values lie

    def on(self, c: _Class, device: int, draft: list[_Draft]) -> _Class:
        """The memory of a class on a device: its own, the constant put there, or a copy made now."""
        if c.device == device:
            return c
        if c.slot is not None and c.slot.kind == "constant":
            return _Class(c.nbytes, Slot("constant", c.slot.number, device), device=device)
        copy = self.mirrors.get((c, device))
        if copy is None:
            copy = _Class(c.nbytes, device=device)
            self.write(copy, f"{c.names[-1]} on {self.devices[device]}" if c.names else self.devices[device])
            self.memories.append(copy)
            self.use(c)
            draft.append(("copy", c, copy, c.nbytes))
            self.mirrors[c, device] = copy
        self.use(copy)
        return copy

    def makers(self, graph: Graph) -> dict[Value, Node]:
        """The node that makes each value of a graph."""
        if graph not in self.made:
            self.made[graph] = {v: n for n in graph.nodes for v in n.outputs}
        return self.made[graph]

    def made_on(self, graph: Graph, v: Value) -> int:
        """The device that a value of a graph is made on."""
        node = self.makers(graph).get(v)
        if node is None or node.op == "dims":
            return 0
        if node.op == "size" or (self.share and is_view(node)):
            return self.made_on(graph, node.operands[0])
        number = next(n for n, out in enumerate(node.outputs) if out is v)
        if node.op in ("if", "loop"):
            first = 1 if node.op == "loop" else 0
            return max(self.made_on(sub, sub.outputs[first + number]) for sub in node.subgraphs)
        return self.device_of(node, graph)

    def read_on(self, graph: Graph, v: Value) -> set[int]:
        """The devices of the kernels of a graph that read a value, where the first reader wants it."""
        found: set[int] = set()
        for node in graph.nodes:
            if not any(x is v for x in node.operands):
                continue
            if node.op == "size" or (self.share and is_view(node)):
                found |= self.read_on(graph, node.output)
            elif node.op == "if":
                for sub in node.subgraphs:
                    for inner, outer in zip(sub.inputs, node.operands[1:], strict=True):
                        found |= self.read_on(sub, inner) if outer is v else set()
            elif node.op == "loop":
                [sub] = node.subgraphs
                operands = [x for x in node.inputs[2:] if x is not None]
                for inner, outer in zip(sub.inputs[2:], operands, strict=True):
                    found |= self.read_on(sub, inner) if outer is v else set()
            else:
                found.add(self.device_of(node, graph))
        return found

    def device_of(self, node: Node, graph: Graph) -> int:
        """The device of a node's kernel."""
        if len(self.devices) == 1 or not is_kernel(node, views=self.share):
            return 0
        return 1 if runs_on_device(self.kernels(node, graph)) else 0

    # -- one graph or branch

    def body(self, graph: Graph, targets: Sequence[Slot | _Class], given: Mapping[Value, _Class]) -> list[_Draft]:
        """The instructions of a graph whose inputs are in `given`; its outputs end up in `targets`."""
        self.classes.update(given)
        for v in graph.constants:
            if v not in self.classes:
                self.classes[v] = _Class(v.nbytes, Slot("constant", len(self.constants)))
                self.constants.append(v)
        fixed = self.outputs_at_once(graph, targets)
        last = self.last_readers(graph)
        draft: list[_Draft] = []
        for index, node in enumerate(graph.nodes):
            self.node(graph, node, index, fixed, last, draft)
        for v, target in zip(graph.outputs, targets, strict=True):
            source = self.classes[v]
            if isinstance(target, _Class) and source.slot is not None and source.slot.kind == "constant":
                source = self.on(source, target.device, draft)
            same = source is target or (isinstance(target, Slot) and source.slot == target)
            if not same:
                self.position += 1
                self.use(source)
                if isinstance(target, _Class):
                    self.write(target, v.name)
                draft.append(("copy", source, target, v.nbytes))
        return draft

    def outputs_at_once(self, graph: Graph, targets: Sequence[Slot | _Class]) -> dict[Value, Slot | _Class]:
        """Which values are made right where an output wants them: through views, the value that owns the memory."""
        maker = {v: n for n in graph.nodes for v in n.outputs}
        fixed: dict[Value, Slot | _Class] = {}
        for v, target in zip(graph.outputs, targets, strict=True):
            root = v
            while self.share and root in maker and is_view(maker[root]):
                root = maker[root].operands[0]
            if root in maker and root not in fixed:
                fixed[root] = target
        return fixed

    def last_readers(self, graph: Graph) -> dict[Value, int]:
        """The index of the last node that reads each value's memory, through views; outputs are read at the end."""
        root = self.roots(graph)
        last: dict[Value, int] = {}
        for index, node in enumerate(graph.nodes):
            for v in node.operands:
                last[root[v]] = index
        for v in graph.outputs:
            last[root[v]] = len(graph.nodes)
        return last

    def roots(self, graph: Graph) -> dict[Value, Value]:
        """The value that owns the memory of each value."""
        root: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.constants)}
        for node in graph.nodes:
            for v in node.outputs:
                same = node.op == "size" or (self.share and is_view(node))
                root[v] = root[node.operands[0]] if same else v
        return root

    def node(
        self, graph: Graph, node: Node, index: int, fixed: Mapping[Value, Slot | _Class], last: Mapping[Value, int],
        draft: list[_Draft],
    ) -> None:  # fmt: skip
        if self.share and is_view(node):
            c = self.classes[node.operands[0]]
            self.classes[node.output] = c
            c.names.append(node.output.name)
            return
        self.position += 1
        for v in node.operands:
            self.use(self.classes[v])
        if node.op == "size":
            c = self.classes[node.operands[0]]
            self.classes[node.output] = c
            c.names.append(node.output.name)
            draft.append(("define", node.attributes["symbol"], self.on(c, 0, draft), node))
            return
        if node.op == "if":
            self.branch(graph, node, fixed, draft)
            return
        if node.op == "loop":
            self.loop(node, fixed, draft)
            return
        device = self.device_of(node, graph)
        if node.op == "dims" and len(self.devices) > 1:
            device = 1 if self.read_on(graph, node.output) == {1} else 0
        reads = [] if node.op == "dims" else self.operands(node, graph, device, draft)
        reuse = self.in_place(graph, node, index, fixed, last, device) if self.share else None
        for number, v in enumerate(node.outputs):
            c = reuse if reuse is not None and number == 0 else self.result(v, fixed, device)
            self.classes[v] = c
            self.write(c, v.name)
        if node.op == "dims":
            content = node.output.content
            assert content is not None
            draft.append(("fill", self.classes[node.output], content, node.output.dtype, node))
        elif is_kernel(node, views=self.share):
            kernel = self.kernels(node, graph)
            if kernel.name not in self.compiled:
                self.compiled[kernel.name] = len(self.kernel_list)
                self.kernel_list.append(kernel)
            call = group_call(node, lambda v: v in graph.constants)
            symbols = tuple(call.symbols[p] for p in kernel.dims)
            parameters = [*reads, *[self.classes[v] for v in call.outputs]]
            draft.append(("launch", self.compiled[kernel.name], parameters, symbols, node, device))
        else:
            raise InternalError(f"the plan has no instruction for {node.op}")

    def operands(self, node: Node, graph: Graph, device: int, draft: list[_Draft]) -> list[_Class]:
        """The memory of what a kernel reads, on its device."""
        if not is_kernel(node, views=self.share):
            return []
        return [self.on(self.classes[v], device, draft) for v in group_call(node, lambda _: False).inputs]

    def branch(self, graph: Graph, node: Node, fixed: Mapping[Value, Slot | _Class], draft: list[_Draft]) -> None:
        """An If: its results exist from its start, so that either branch may write them."""
        start = self.position
        targets: list[_Class] = []
        for number, v in enumerate(node.outputs):
            c = self.result(v, fixed, max(self.made_on(sub, sub.outputs[number]) for sub in node.subgraphs))
            self.classes[v] = c
            self.write(c, v.name)
            targets.append(c)
        condition, *captured = node.operands
        deciding = self.on(self.classes[condition], 0, draft)
        parts = []
        for sub in node.subgraphs:
            given = {inner: self.classes[outer] for inner, outer in zip(sub.inputs, captured, strict=True)}
            before = dict(self.mirrors)
            parts.append(self.body(sub, targets, given))
            self.forget_mirrors(before)
        self.position += 1
        for c in targets:
            c.end = max(c.end, start)
        draft.append(("if", deciding, parts[0], parts[1], node))

    def forget_mirrors(self, before: Mapping[tuple[_Class, int], _Class]) -> None:
        """Of the copies on other devices, keeps those that were there `before` and still are what they were."""
        self.mirrors = {k: m for k, m in self.mirrors.items() if before.get(k) is m}

    def loop(self, node: Node, fixed: Mapping[Value, Slot | _Class], draft: list[_Draft]) -> None:
        """A loop: everything that an iteration reads from outside, and all that it carries, lives to its end."""
        attrs, [sub] = node.attributes, node.subgraphs
        carried, scanned = int(attrs["carried"]), int(attrs["scanned"])
        trips = None if attrs.get("trips") is None else dims.as_dim(attrs["trips"])
        number = self.loops
        self.loops += 1
        limit, going, *rest = node.inputs
        operands = [v for v in rest if v is not None]
        kept: list[_Class] = [self.classes[v] for v in node.operands]
        limit_class = None if limit is None or trips is not None else self.on(self.classes[limit], 0, draft)
        if limit_class is not None:
            kept.append(limit_class)
        given: dict[Value, _Class] = {}
        targets: list[Slot | _Class] = []
        back: list[tuple[str, _Class, _Class, Expr]] = []

        def memory(nbytes: Expr, name: str, target: Slot | None = None, device: int = 0) -> _Class:
            made = _Class(nbytes, target, device=device)
            self.write(made, name)
            self.memories.append(made)
            kept.append(made)
            return made

        condition = None
        counter = memory(sub.inputs[0].nbytes, sub.inputs[0].name)
        given[sub.inputs[0]] = counter
        inner_going, next_going = sub.inputs[1], sub.outputs[0]
        known = next_going.content
        steady = next_going is inner_going or (known is not None and dims.constants(known) == (1,))
        if going is not None:
            condition = memory(inner_going.nbytes, inner_going.name)
            draft.append(("copy", self.classes[going], condition, inner_going.nbytes))
        elif not steady or any(inner_going in n.operands for n in sub.nodes) or inner_going in sub.outputs[1:]:
            condition = memory(inner_going.nbytes, inner_going.name)
            draft.append(("fill", condition, (const(1),), inner_going.dtype, node))
        if condition is not None:
            given[inner_going] = condition
        states: list[_Class] = []
        for place in range(carried):
            inside, v, outside = sub.inputs[2 + place], node.outputs[place], operands[place]
            target = fixed.get(v)
            device = self.made_on(sub, sub.outputs[1 + place])
            if isinstance(target, _Class) and target.device == device:
                state = target
            else:
                state = memory(v.nbytes, v.name, target if isinstance(target, Slot) and not device else None, device)
            self.write(state, v.name)
            kept.append(state)
            states.append(state)
            first = self.classes[outside]
            if first.slot is not None and first.slot.kind == "constant":
                first = self.on(first, device, draft)
            draft.append(("copy", first, state, v.nbytes))
            given[inside] = state
            self.classes[v] = state
        for place in range(scanned):
            inside, outside = sub.inputs[2 + carried + place], operands[carried + place]
            count = trips if attrs["reverse"][place] else None
            whole = self.classes[outside]
            if self.read_on(sub, inside) == {1}:
                whole = self.on(whole, 1, draft)
                kept.append(whole)
            given[inside] = self.slice(whole, number, inside.nbytes, count)
        for inside, outside in zip(sub.inputs[2 + carried + scanned :], operands[carried + scanned :], strict=True):
            given[inside] = self.classes[outside]
            for device in sorted(self.read_on(sub, inside)):  # once, not every iteration
                self.on(self.classes[outside], device, draft)
        # what an iteration makes, and what is copied back at its end
        made_going = condition
        if condition is not None and next_going is not inner_going:
            made_going = memory(next_going.nbytes, next_going.name)
            back.append(("copy", made_going, condition, next_going.nbytes))
        goes_on = made_going if made_going is not None else memory(next_going.nbytes, next_going.name)
        targets.append(goes_on)
        given.setdefault(inner_going, goes_on)  # a body that hands its condition on
        for place, state in enumerate(states):
            v = sub.outputs[1 + place]
            if v is sub.inputs[2 + place]:
                targets.append(state)
                continue
            fresh = memory(v.nbytes, v.name, device=state.device)
            back.append(("copy", fresh, state, v.nbytes))
            targets.append(fresh)
        for place, v in enumerate(sub.outputs[1 + carried :]):
            stack = self.result(node.outputs[carried + place], fixed, self.made_on(sub, v))
            self.write(stack, node.outputs[carried + place].name)
            self.classes[node.outputs[carried + place]] = stack
            kept.append(stack)
            count = trips if attrs["reverse"][scanned + place] else None
            targets.append(self.slice(stack, number, v.nbytes, count))
        before, entered = dict(self.mirrors), self.position
        steps = self.body(sub, targets, given)
        self.forget_mirrors(before)
        kept += [m for m in self.mirrors.values() if m.end >= entered]  # read again in the next iteration
        if condition is None:  # nobody reads what is always true
            steps = [s for s in steps if not (s[0] == "copy" and s[2] is goes_on)]
        self.position += 1
        for c in kept:
            self.use(c)
        draft.append(("loop", number, trips, limit_class, condition, counter, [*steps, *back], node))

    def slice(self, base: _Class, loop: int, nbytes: Expr, count: Expr | None) -> _Class:
        """The part of a memory that belongs to an iteration."""
        made = _Class(nbytes, Slot("slice", len(self.slices), base.device), base=base, device=base.device)
        self.slices.append((base, loop, nbytes, count))
        return made

    def result(self, v: Value, fixed: Mapping[Value, Slot | _Class], device: int) -> _Class:
        """New memory for a result on a device: where an output wants it, if that is there, or a block."""
        target = fixed.get(v)
        if target is not None and target.device != device:
            target = None
        if isinstance(target, _Class):
            return target
        return _Class(v.nbytes, target, device=device)

    def use(self, c: _Class) -> None:
        c.end = max(c.end, self.position)
        if c.base is not None:
            self.use(c.base)

    def write(self, c: _Class, name: str) -> None:
        if c.base is not None:
            self.write(c.base, name)
        for device in range(len(self.devices)):
            self.mirrors.pop((c, device), None)
        if c.start < 0:
            c.start = self.position
        c.end = max(c.end, self.position)
        c.names.append(name)

    def in_place(
        self, graph: Graph, node: Node, index: int, fixed: Mapping[Value, Slot | _Class], last: Mapping[Value, int],
        device: int,
    ) -> _Class | None:  # fmt: skip
        """The operand's memory that the node may write its first result into, if there is one."""
        v = node.outputs[0]
        if len(node.outputs) != 1 or v in graph.constants:
            return None
        if v in fixed and fixed[v].device == device:
            return None
        root = self.roots(graph)
        for x in overwritable(node):
            c = self.classes[x]
            if (
                c.slot is not None
                or c.device != device
                or x in graph.inputs
                or root[x] in graph.inputs
                or root[x] in graph.constants
            ):
                continue
            readers = [y for y in node.operands if self.classes[y] is c]
            if last.get(root[x], -1) == index and readers == [x] and dims.same(c.nbytes, v.nbytes):
                return c
        return None


_Draft = tuple  # an instruction over alias classes: (kind, fields...)


def _resolve(draft: Sequence[_Draft], place: Callable[[_Class], Slot]) -> Iterator[Instruction]:
    def slot(target: Slot | _Class) -> Slot:
        return place(target) if isinstance(target, _Class) else target

    for item in draft:
        match item:
            case ("launch", kernel, parameters, symbols, node, device):
                yield Launch(kernel, tuple(map(slot, parameters)), symbols, node, device)
            case ("fill", target, values, dtype, node):
                yield Fill(slot(target), values, dtype, node)
            case ("copy", source, target, nbytes):
                yield Copy(slot(source), slot(target), nbytes)
            case ("define", symbol, source, node):
                yield Define(symbol, slot(source), node)
            case ("if", condition, then, otherwise, node):
                yield If(slot(condition), tuple(_resolve(then, place)), tuple(_resolve(otherwise, place)), node)
            case ("loop", number, trips, limit, condition, counter, steps, node):
                limit, condition, counter = (None if c is None else slot(c) for c in (limit, condition, counter))
                yield Loop(number, trips, limit, condition, counter, tuple(_resolve(steps, place)), node)


def overwritable(node: Node) -> list[Value]:
    """Operands that are read only at the point that is being written: all nodes of the group are elementwise over
    one shape, and the operand has that shape, layout and element size."""
    members = node.subgraphs[0].nodes if node.op == "group" else (node,)
    out = node.outputs[0]
    for member in members:
        if node_kind(member) not in ("elementwise", "broadcast") or len(member.outputs) != 1:
            return []
        if not dims.same_shape(member.output.shape, out.shape) or member.output.layout != out.layout:
            return []
    if node.op != "group" and not get_op(node.op).in_place:
        return []
    allowed = (
        node.operands
        if node.op == "group"
        else [node.inputs[i] for i in get_op(node.op).in_place if i < len(node.inputs)]
    )
    return [
        v
        for v in allowed
        if v is not None
        and dims.same_shape(v.shape, out.shape)
        and v.layout == out.layout
        and v.dtype.bits == out.dtype.bits
    ]
