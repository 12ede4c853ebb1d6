"""The entry function of a plan as LLVM IR text: one native call runs a whole model.

    i32 entry(const Context*, void* const* data, const i64* dims)

`data` holds the plan's memory: inputs, outputs, constants, one arena, and the addresses of host functions. A `Pointer`
is an element of it, or a block of the arena at an offset, which may be a formula over the dimensions (computed once at
the start). Kernels are called by symbol, so the same text serves the JIT, an artifact and an exported library. A kernel
that returns a status ends the run with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from targets.llvm.runtime.abi import CONTEXT_LLVM_TYPE
from tensorir import expr
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import Const, Expr, Var
from tensorir.visit import children

ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Stride:
    """The part of a memory that belongs to an iteration of loop `loop`: `nbytes` for each iteration before it, or, with
    `count` iterations given, for each after it."""

    loop: int
    nbytes: Expr
    count: Expr | None


@dataclass(frozen=True, slots=True)
class Pointer:
    """Element `index` of `data`; or, with `block`, that block of the arena, whose base is element `index`; inside it,
    the parts that `strides` say."""

    index: int
    block: int | None = None
    strides: tuple[Stride, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block of the arena: its size, and its constant offset or the blocks it stands after."""

    nbytes: Expr
    offset: int | None
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CallKernel:
    """Calls `symbol` with these pointers and dimensions (indices into the entry's)."""

    symbol: str
    pointers: tuple[Pointer, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FillIntegers:
    """Stores expressions over the dimensions as consecutive integers of `dtype`."""

    target: Pointer
    values: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class CopyBytes:
    """Copies bytes that do not overlap."""

    source: Pointer
    target: Pointer
    nbytes: Expr


@dataclass(frozen=True, slots=True, eq=False)
class DefineDimension:
    """Gives dimension number `dim` the value of the i64 at `source`, for the steps that follow and for the caller."""

    dim: int
    source: Pointer


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Runs `then` if the byte at `condition` is not 0, else `otherwise`."""

    condition: Pointer
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Runs `steps` while the iteration number is below `trips` (or the i64 at `limit`, or neither) and the byte at
    `condition`, if there is one, is not 0. The number is stored at `counter` first."""

    number: int
    trips: Expr | None
    limit: Pointer | None
    condition: Pointer | None
    counter: Pointer | None
    steps: tuple[Step, ...]


Step = CallKernel | FillIntegers | CopyBytes | DefineDimension | Branch | Repeat


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A plan as far as its native form goes. `dims` names the dimension symbols in order, those that a step defines
    after the `given` ones; `order` is one in which the offsets of `blocks` can be computed."""

    symbol: str
    dims: tuple[str, ...]
    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    steps: tuple[Step, ...]
    given: int | None = None


def emit_entry(entry: Entry) -> str:
    """The module of an entry."""
    return _Emitter(entry).module()


class _Emitter:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.lines: list[str] = []
        self.label = "start"
        self.count = 0
        self.dims: dict[str, str] = {}
        self.offsets: dict[int, str] = {}
        self.kernels: dict[str, None] = {}
        self.failures: list[tuple[str, str]] = []
        self.iterations: dict[int, str] = {}

    def module(self) -> str:
        """The whole text."""
        entry = self.entry
        calls = list(_calls(entry.steps))
        self.emit(f"%pointers = alloca [{max((len(c.pointers) for c in calls), default=1) or 1} x ptr], align 16")
        self.emit(f"%sizes = alloca [{max((len(c.dims) for c in calls), default=1) or 1} x i64], align 16")
        for number, name in enumerate(entry.dims[: entry.given]):
            place = self.let(f"getelementptr i64, ptr %dims, i64 {number}")
            self.dims[name] = self.let(f"load i64, ptr {place}, align 8")
        self.block_offsets()
        self.steps(entry.steps)
        self.emit("ret i32 0")
        if self.failures:
            incoming = ", ".join(f"[ {status}, %{label} ]" for status, label in self.failures)
            self.lines += ["fail:", f"  %status = phi i32 {incoming}", "  ret i32 %status"]
        declared = [f"declare i32 @{k}(ptr, ptr, ptr)" for k in self.kernels]
        return "\n".join(
            [
                CONTEXT_LLVM_TYPE,
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
                "declare i64 @llvm.smax.i64(i64, i64)",
                "declare i64 @llvm.smin.i64(i64, i64)",
                *declared,
                "",
                f"define i32 @{entry.symbol}(ptr %context, ptr %data, ptr %dims) nounwind {{",
                "start:",
                *self.lines,
                "}",
                "",
            ]
        )

    # -- text

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def let(self, value: str) -> str:
        """A new name for a value."""
        self.count += 1
        self.emit(f"%v{self.count} = {value}")
        return f"%v{self.count}"

    def start(self, label: str) -> None:
        """A new basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    # -- memory

    def block_offsets(self) -> None:
        """The offset of every block that has a formula, in an order in which each needs only earlier ones."""
        blocks = self.entry.blocks
        followed = {j for b in blocks for j in b.after}
        ends: dict[int, str] = {}
        for i in self.entry.order:
            block = blocks[i]
            if block.offset is not None:
                self.offsets[i] = str(block.offset)
            else:
                at = ends[block.after[0]]
                for j in block.after[1:]:
                    at = self.let(f"call i64 @llvm.smax.i64(i64 {at}, i64 {ends[j]})")
                self.offsets[i] = at
            if i in followed:
                size = self.value(block.nbytes)
                padded = self.let(f"add i64 {size}, {ALIGNMENT - 1}")
                whole = self.let(f"and i64 {padded}, {-ALIGNMENT}")
                ends[i] = self.let(f"add i64 {self.offsets[i]}, {whole}")

    def pointer(self, p: Pointer) -> str:
        """The address as a value."""
        place = self.let(f"getelementptr ptr, ptr %data, i64 {p.index}")
        base = self.let(f"load ptr, ptr {place}, align 8")
        if p.block is not None and self.offsets[p.block] != "0":
            base = self.let(f"getelementptr i8, ptr {base}, i64 {self.offsets[p.block]}")
        for s in p.strides:
            at = self.iterations[s.loop]
            if s.count is not None:
                at = self.let(f"sub i64 {self.let(f'sub i64 {self.value(s.count)}, 1')}, {at}")
            bytes_before = self.let(f"mul i64 {at}, {self.value(s.nbytes)}")
            base = self.let(f"getelementptr i8, ptr {base}, i64 {bytes_before}")
        return base

    # -- expressions over the dimensions

    def value(self, e: Expr) -> str:
        """An i64 (or i1 for a condition). Written anew at each use: LLVM removes what is common."""
        if isinstance(e, Const):
            return str(int(e.value))
        if isinstance(e, Var):
            return self.dimension(e.name)
        parts = [self.value(c) for c in children(e)]
        match e:
            case expr.Add() | expr.Sub() | expr.Mul():
                return self.let(f"{type(e).__name__.lower()} i64 {parts[0]}, {parts[1]}")
            case expr.Min() | expr.Max():
                name = "smin" if isinstance(e, expr.Min) else "smax"
                return self.let(f"call i64 @llvm.{name}.i64(i64 {parts[0]}, i64 {parts[1]})")
            case expr.TruncDiv():
                return self.let(f"sdiv i64 {parts[0]}, {parts[1]}")
            case expr.TruncMod():
                return self.let(f"srem i64 {parts[0]}, {parts[1]}")
            case expr.FloorDiv() | expr.FloorMod():
                return self.floor(parts[0], parts[1], isinstance(e, expr.FloorDiv))
            case expr.Compare():
                predicate = {expr.EQ: "eq", expr.NE: "ne", expr.LT: "slt", expr.LE: "sle"}[type(e)]
                a, b = (self.wide(c, p) for c, p in zip(children(e), parts))
                return self.let(f"icmp {predicate} i64 {a}, {b}")
            case expr.And() | expr.Or():
                return self.let(f"{type(e).__name__.lower()} i1 {parts[0]}, {parts[1]}")
            case expr.Not():
                return self.let(f"xor i1 {parts[0]}, true")
            case expr.Select():
                return self.let(f"select i1 {parts[0]}, i64 {parts[1]}, i64 {parts[2]}")
            case expr.Cast():
                return self.wide(e.value, parts[0])
        raise InternalError(f"a dimension cannot hold {type(e).__name__}")

    def dimension(self, name: str) -> str:
        """A dimension's value; one that a step defines is read again, since the step may stand in a branch."""
        if name not in self.dims:
            place = self.let(f"getelementptr i64, ptr %dims, i64 {self.entry.dims.index(name)}")
            return self.let(f"load i64, ptr {place}, align 8")
        return self.dims[name]

    def wide(self, e: Expr, value: str) -> str:
        """A value as i64."""
        return self.let(f"zext i1 {value} to i64") if e.dtype.is_bool else value

    def floor(self, a: str, b: str, quotient: bool) -> str:
        """Division or remainder rounded to minus infinity."""
        remainder = self.let(f"srem i64 {a}, {b}")
        mixed = self.let(f"xor i64 {remainder}, {b}")
        negative = self.let(f"icmp slt i64 {mixed}, 0")
        inexact = self.let(f"icmp ne i64 {remainder}, 0")
        adjust = self.let(f"and i1 {negative}, {inexact}")
        if not quotient:
            moved = self.let(f"add i64 {remainder}, {b}")
            return self.let(f"select i1 {adjust}, i64 {moved}, i64 {remainder}")
        whole = self.let(f"sdiv i64 {a}, {b}")
        step = self.let(f"sext i1 {adjust} to i64")
        return self.let(f"add i64 {whole}, {step}")

    # -- steps

    def steps(self, steps: Sequence[Step]) -> None:
        """Steps in order."""
        for step in steps:
            match step:
                case CallKernel():
                    self.call(step)
                case FillIntegers():
                    self.fill(step)
                case CopyBytes():
                    target, source, size = self.pointer(step.target), self.pointer(step.source), self.value(step.nbytes)
                    self.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")
                case DefineDimension():
                    defined = self.let(f"load i64, ptr {self.pointer(step.source)}, align 8")
                    place = self.let(f"getelementptr i64, ptr %dims, i64 {step.dim}")
                    self.emit(f"store i64 {defined}, ptr {place}, align 8")
                case Branch():
                    self.branch(step)
                case Repeat():
                    self.repeat(step)

    def call(self, step: CallKernel) -> None:
        self.kernels.setdefault(step.symbol)
        for number, p in enumerate(step.pointers):
            address = self.pointer(p)
            place = self.let(f"getelementptr ptr, ptr %pointers, i64 {number}")
            self.emit(f"store ptr {address}, ptr {place}, align 8")
        for number, d in enumerate(step.dims):
            value = self.dimension(self.entry.dims[d])
            place = self.let(f"getelementptr i64, ptr %sizes, i64 {number}")
            self.emit(f"store i64 {value}, ptr {place}, align 8")
        status = self.let(f"call i32 @{step.symbol}(ptr %context, ptr %pointers, ptr %sizes)")
        good = self.let(f"icmp eq i32 {status}, 0")
        following = f"after{self.count}"
        self.emit(f"br i1 {good}, label %{following}, label %fail")
        self.failures.append((status, self.label))
        self.start(following)

    def fill(self, step: FillIntegers) -> None:
        target = self.pointer(step.target)
        kind = f"i{step.dtype.bits}"
        for number, e in enumerate(step.values):
            value = self.wide(e, self.value(e)) if not isinstance(e, Const) else str(int(e.value))
            if kind != "i64" and not isinstance(e, Const):
                value = self.let(f"trunc i64 {value} to {kind}")
            place = self.let(f"getelementptr {kind}, ptr {target}, i64 {number}")
            self.emit(f"store {kind} {value}, ptr {place}, align {step.dtype.nbytes}")

    def branch(self, step: Branch) -> None:
        byte = self.let(f"load i8, ptr {self.pointer(step.condition)}, align 1")
        taken = self.let(f"icmp ne i8 {byte}, 0")
        number = self.count
        self.emit(f"br i1 {taken}, label %then{number}, label %else{number}")
        for name, steps in (("then", step.then), ("else", step.otherwise)):
            self.start(f"{name}{number}")
            self.steps(steps)
            self.emit(f"br label %join{number}")
        self.start(f"join{number}")

    def repeat(self, step: Repeat) -> None:
        n, before = step.number, self.label
        trips = None if step.trips is None else self.value(step.trips)
        if step.limit is not None:
            trips = self.let(f"load i64, ptr {self.pointer(step.limit)}, align 8")
        self.emit(f"br label %loop{n}")
        self.start(f"loop{n}")
        self.iterations[n] = f"%iteration{n}"
        at = len(self.lines)
        self.emit("")  # the iteration number, once it is known where iterations end
        checks = []
        if trips is not None:
            checks.append(self.let(f"icmp slt i64 %iteration{n}, {trips}"))
        if step.condition is not None:
            byte = self.let(f"load i8, ptr {self.pointer(step.condition)}, align 1")
            checks.append(self.let(f"icmp ne i8 {byte}, 0"))
        going = "true" if not checks else checks[0]
        if len(checks) == 2:
            going = self.let(f"and i1 {checks[0]}, {checks[1]}")
        self.emit(f"br i1 {going}, label %body{n}, label %done{n}")
        self.start(f"body{n}")
        if step.counter is not None:
            self.emit(f"store i64 %iteration{n}, ptr {self.pointer(step.counter)}, align 8")
        self.steps(step.steps)
        self.emit(f"%next{n} = add i64 %iteration{n}, 1")
        self.lines[at] = f"  %iteration{n} = phi i64 [ 0, %{before} ], [ %next{n}, %{self.label} ]"
        self.emit(f"br label %loop{n}")
        self.start(f"done{n}")


def _calls(steps: Sequence[Step]) -> list[CallKernel]:
    found: list[CallKernel] = []
    for step in steps:
        if isinstance(step, CallKernel):
            found.append(step)
        elif isinstance(step, Branch):
            found += _calls((*step.then, *step.otherwise))
        elif isinstance(step, Repeat):
            found += _calls(step.steps)
    return found
