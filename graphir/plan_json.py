"""A plan as JSON and back: numbers, names and dimension texts only.

    {"name", "values": [...], "inputs": [value], "outputs", "output_names", "symbols", "constants": [[value, tensor]],
     "arena", "places", "slices", "steps": [{"launch": kernel, "slots": [...], "dims": [...], "node": {...}}, ...]}

A value is {"name", "shape", "dtype", "layout"?, "content"?}, a slot [kind, number], a dimension a number or its text.
What is read is checked: every number lies in its range, every step has its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphir import dims
from graphir.arena import Arena, ArenaBlock, Placed
from graphir.attrs import parse_layout
from graphir.errors import GraphError
from graphir.groups import GraphKernel
from graphir.ir import Node, Symbol, Value
from graphir.plan import Copy, Define, Fill, If, Instruction, Launch, Loop, Plan, Slice, Slot, SymbolSource
from graphir.stored import abi_of
from tensorir.dtypes import dtype_of
from tensorir.expr import Expr
from tensorir.layout import Layout
from tensorir.origin import Origin

SLOT_KINDS = ("input", "output", "constant", "arena", "slice")


def plan_json(plan: Plan, tensors: Sequence[str]) -> dict[str, Any]:
    """The plan as data; `tensors` names the data of its constants."""
    return _Writer().plan(plan, tensors)


def plan_from_json(data: Mapping[str, Any], kernels: Sequence[GraphKernel]) -> tuple[Plan, list[str]]:
    """The plan that data describes, and the names of its constants' data. Raises `GraphError` where it is not one."""
    try:
        return _Reader(data, kernels).plan()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise GraphError(f"this is not a plan: {type(error).__name__}: {error}") from None


def dim_json(e: Expr) -> int | str:
    """A dimension as a number or its text, which must read back as the same."""
    known = dims.constant(e)
    if known is not None:
        return known
    text = dims.text(e)
    if dims.parse(text) is not dims.canonical(e):
        raise GraphError(f"the dimension {text} has no text that reads back")
    return text


class _Writer:
    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}
        self.values: list[dict[str, Any]] = []

    def value(self, v: Value) -> int:
        if v not in self.numbers:
            self.numbers[v] = len(self.values)
            entry: dict[str, Any] = {"name": v.name, "shape": [dim_json(d) for d in v.shape], "dtype": str(v.dtype)}
            if not v.layout.is_plain:
                entry["layout"] = str(v.layout)
            if v.content is not None:
                entry["content"] = [dim_json(d) for d in v.content]
            self.values.append(entry)
        return self.numbers[v]

    def plan(self, plan: Plan, tensors: Sequence[str]) -> dict[str, Any]:
        stored = {v for v in plan.places if plan.places[v].kind != "constant"}
        body = {
            "name": plan.name,
            "inputs": [self.value(v) for v in plan.inputs],
            "outputs": [self.value(v) for v in plan.outputs],
            "output_names": list(plan.output_names),
            "symbols": [[s.symbol.name, s.symbol.low, s.symbol.high, s.input, s.axis] for s in plan.symbols],
            "late": [[name, dim_json(bound)] for name, bound in plan.late.items()],
            "constants": [[self.value(v), name] for v, name in zip(plan.constants, tensors, strict=True)],
            "arena": {
                "blocks": [[dim_json(b.nbytes), b.start, b.end, list(b.names)] for b in plan.arena.blocks],
                "placed": [p.offset if p.offset is not None else list(p.after) for p in plan.arena.placed],
                "order": list(plan.arena.order),
                "nbytes": plan.arena.nbytes,
            },
            "steps": [self.step(i) for i in plan.instructions],
            "places": [[self.value(v), self.slot(plan.places[v])] for v in plan.places if v in stored],
            "slices": [
                [self.slot(s.base), s.loop, dim_json(s.nbytes), None if s.count is None else dim_json(s.count)]
                for s in plan.slices
            ],
        }
        return {**body, "values": self.values}

    def slot(self, slot: Slot) -> list[Any]:
        return [slot.kind, slot.number]

    def step(self, i: Instruction) -> dict[str, Any]:
        match i:
            case Launch():
                slots = [self.slot(s) for s in i.slots]
                return {"launch": i.kernel, "slots": slots, "dims": list(i.dims), "node": self.node(i.node)}
            case Fill():
                values = [dim_json(e) for e in i.values]
                return {"fill": self.slot(i.slot), "values": values, "dtype": str(i.dtype), "node": self.node(i.node)}
            case Copy():
                return {"copy": self.slot(i.source), "to": self.slot(i.target), "nbytes": dim_json(i.nbytes)}
            case Define():
                return {"define": i.symbol, "by": self.slot(i.slot), "node": self.node(i.node)}
            case If():
                return {
                    "if": self.slot(i.condition),
                    "then": [self.step(s) for s in i.then],
                    "else": [self.step(s) for s in i.otherwise],
                    "node": self.node(i.node),
                }
            case Loop():
                limit, condition, counter = (
                    None if s is None else self.slot(s) for s in (i.limit, i.condition, i.counter)
                )
                return {
                    "loop": i.number,
                    "trips": None if i.trips is None else dim_json(i.trips),
                    "limit": limit,
                    "while": condition,
                    "counter": counter,
                    "steps": [self.step(s) for s in i.steps],
                    "node": self.node(i.node),
                }

    def node(self, node: Node) -> dict[str, Any]:
        """A node without its inside: the ops that run together are its op."""
        members = node.subgraphs[0].nodes if node.op == "group" else (node,)
        inside = {v for n in members for v in n.outputs}
        read = dict.fromkeys(v for n in members for v in n.operands if v not in inside)
        return {
            "op": "+".join(n.op for n in members),
            "name": node.name,
            "inputs": [self.value(v) for v in read],
            "outputs": [self.value(v) for v in node.outputs],
            "origins": [[o.kind, o.place] for o in node.origins],
        }


class _Reader:
    def __init__(self, data: Mapping[str, Any], kernels: Sequence[GraphKernel]) -> None:
        self.data = data
        self.kernels = tuple(kernels)
        self.symbols = {str(s[0]) for s in data["symbols"]}
        self.late: dict[str, Expr] = {}
        for name, bound in data["late"]:
            self.late[_text(name)] = self.dim(bound)
        self.symbols.update(self.late)
        self.values = [self.value(v) for v in data["values"]]
        self.counts = {
            "input": len(data["inputs"]),
            "output": len(data["outputs"]),
            "constant": len(data["constants"]),
            "arena": len(data["arena"]["blocks"]),
            "slice": 0,
        }
        self.loops: list[int] = []
        self.slices: list[Slice] = []
        for base, loop, nbytes, count in data["slices"]:  # a slice may lie in an earlier one
            whole = self.dim(nbytes), None if count is None else self.dim(count)
            self.slices.append(Slice(self.slot(base), _natural(loop), *whole))
            self.counts["slice"] += 1

    def value(self, data: Mapping[str, Any]) -> Value:
        shape = tuple(self.dim(d) for d in data["shape"])
        layout = parse_layout(data["layout"]) if "layout" in data else Layout.plain(len(shape))
        content = tuple(self.dim(d) for d in data["content"]) if "content" in data else None
        return Value(_text(data["name"]), shape, dtype_of(data["dtype"]), layout, content)

    def plan(self) -> tuple[Plan, list[str]]:
        data = self.data
        inputs = tuple(self.at(n) for n in data["inputs"])
        symbols = []
        for name, low, high, number, axis in data["symbols"]:
            if not 0 <= axis < len(inputs[_within(number, len(inputs))].shape):
                raise ValueError(f"the symbol {name} is read from an axis that is not there")
            symbol = Symbol(_text(name), int(low), None if high is None else int(high))
            symbols.append(SymbolSource(symbol, number, axis))
        constants = [(self.at(n), _text(name)) for n, name in data["constants"]]
        names = tuple(map(_text, data["output_names"]))
        if len(names) != len(data["outputs"]):
            raise ValueError("as many output names as outputs are wanted")
        plan = Plan(
            _text(data["name"]),
            inputs,
            tuple(self.at(n) for n in data["outputs"]),
            names,
            tuple(symbols),
            tuple(v for v, _ in constants),
            self.kernels,
            tuple(self.step(s) for s in data["steps"]),
            self.arena(data["arena"]),
            {self.at(n): self.slot(s) for n, s in data["places"]},
            tuple(self.slices),
            self.late,
        )
        return plan, [name for _, name in constants]

    def arena(self, data: Mapping[str, Any]) -> Arena:
        blocks = tuple(
            ArenaBlock(self.dim(n), int(start), int(end), tuple(map(_text, names)))
            for n, start, end, names in data["blocks"]
        )
        placed = tuple(
            Placed(None, tuple(_within(i, len(blocks)) for i in p)) if isinstance(p, list) else Placed(_natural(p))
            for p in data["placed"]
        )
        order = tuple(_within(i, len(blocks)) for i in data["order"])
        if len(placed) != len(blocks) or sorted(order) != list(range(len(blocks))):
            raise ValueError("the arena does not say where every block lies")
        rank = {i: n for n, i in enumerate(order)}
        if any(rank[j] >= rank[i] for i, p in enumerate(placed) for j in p.after):
            raise ValueError("a block of the arena lies above one that comes later")
        nbytes = None if data["nbytes"] is None else _natural(data["nbytes"])
        return Arena(blocks, placed, order, nbytes)

    def at(self, number: int) -> Value:
        return self.values[_within(number, len(self.values))]

    def slot(self, data: Sequence[Any]) -> Slot:
        kind, number = data
        return Slot(kind, _within(number, self.counts[kind]))

    def used(self, data: Sequence[Any]) -> Slot:
        """A slot that a step uses: of slices, only those of the loops around it."""
        made = whole = self.slot(data)
        while whole.kind == "slice":
            part = self.slices[whole.number]
            if part.loop not in self.loops:
                raise ValueError(f"slice {whole.number} is used outside its loop")
            whole = part.base
        return made

    def dim(self, data: int | str) -> Expr:
        e = dims.as_dim(data)
        if unknown := {v.name for v in dims.symbols_of(e)} - self.symbols:
            raise ValueError(f"the dimension {data} has the unknown symbol {min(unknown)}")
        return e

    def step(self, data: Mapping[str, Any]) -> Instruction:
        kinds: dict[str, Callable[[Mapping[str, Any]], Instruction]] = {
            "launch": self.launch, "fill": self.fill, "copy": self.copy, "if": self.branch,
            "loop": self.loop, "define": self.define,
        }  # fmt: skip
        [kind] = [k for k in kinds if k in data]
        return kinds[kind](data)

    def launch(self, data: Mapping[str, Any]) -> Launch:
        number = _within(data["launch"], len(self.kernels))
        slots, names = tuple(self.used(s) for s in data["slots"]), tuple(map(_text, data["dims"]))
        node = self.node(data["node"])
        if set(names) - self.symbols or len(names) != len(self.kernels[number].dims):
            raise ValueError(f"the launch {node.name} does not give the dimensions that its kernel takes")
        buffers = abi_of(self.kernels[number].group.kernel).buffers
        if not len(slots) == len(node.inputs) + len(node.outputs) == buffers:
            raise ValueError(f"the launch {node.name} does not give every buffer")
        return Launch(number, slots, names, node)

    def fill(self, data: Mapping[str, Any]) -> Fill:
        values = tuple(self.dim(d) for d in data["values"])
        return Fill(self.used(data["fill"]), values, dtype_of(data["dtype"]), self.node(data["node"]))

    def copy(self, data: Mapping[str, Any]) -> Copy:
        return Copy(self.used(data["copy"]), self.used(data["to"]), self.dim(data["nbytes"]))

    def define(self, data: Mapping[str, Any]) -> Define:
        if data["define"] not in self.late:
            raise ValueError(f"{data['define']!r} is not a symbol that a step defines")
        return Define(data["define"], self.used(data["by"]), self.node(data["node"]))

    def branch(self, data: Mapping[str, Any]) -> If:
        then, otherwise = (tuple(self.step(s) for s in data[k]) for k in ("then", "else"))
        return If(self.used(data["if"]), then, otherwise, self.node(data["node"]))

    def loop(self, data: Mapping[str, Any]) -> Loop:
        number = _natural(data["loop"])
        if number in self.loops:
            raise ValueError(f"loop {number} is inside itself")
        limit, condition, counter = (
            None if data[k] is None else self.used(data[k]) for k in ("limit", "while", "counter")
        )
        trips = None if data["trips"] is None else self.dim(data["trips"])
        self.loops.append(number)
        steps = tuple(self.step(s) for s in data["steps"])
        self.loops.pop()
        return Loop(number, trips, limit, condition, counter, steps, self.node(data["node"]))

    def node(self, data: Mapping[str, Any]) -> Node:
        inputs, outputs = (tuple(self.at(n) for n in data[k]) for k in ("inputs", "outputs"))
        origins = tuple(Origin(_text(kind), _text(place)) for kind, place in data["origins"])
        return Node(_text(data["op"]), inputs, outputs, (), _text(data["name"]), origins=origins)


def _within(number: Any, count: int) -> int:
    if type(number) is not int or not 0 <= number < count:
        raise ValueError(f"{number!r} is not one of {count}")
    return number


def _natural(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no size")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
