"""What a schedule remembers: one immutable record a stage, and its ordered history of loop transformations.

A stage is one te operation: what it computes, the loop variables of its axes, the history of its own loops, and where
it is computed (at root, inlined, or at a loop of another stage). The program is rebuilt from these records, so that a
history can be replayed when the stage moves to another place and its loops get other extents. Loop variables are made
when a primitive is called and kept in its step, so they survive every rebuilding.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorir.buffer import Buffer
from tensorir.expr import Expr, IterVar, Reduce, Var
from tensorir.origin import Origin
from tensorir.te import ComputeOp, Operation, ScanOp, Tensor, ThreadAxis

if TYPE_CHECKING:
    from schedule.intrinsic import TensorIntrinsic
    from tensorir.layout import Layout


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a primitive: its text for messages and the user's line it came from."""

    text: str
    origins: tuple[Origin, ...]

    def __str__(self) -> str:
        return f"{self.text} at {self.origins[0]}" if self.origins else self.text


# ------------------------------------------------------------------------------------------------------------ steps


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """`parent` becomes `outer` and `inner`; one of `factor` (extent of inner) and `nparts` (extent of outer) is set."""

    parent: Var
    outer: Var
    inner: Var
    factor: int | None
    nparts: int | None
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """Adjacent `outer` and `inner` become `fused`."""

    outer: Var
    inner: Var
    fused: Var
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Reorder:
    """The listed loops exchange their places so as to stand in this order."""

    order: tuple[Var, ...]
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Annotate:
    """The loop runs as `kind` (serial, parallel, vectorized, unrolled, thread)."""

    loop: Var
    kind: str
    thread: ThreadAxis | None
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Pragma:
    """A (key, value) pair on a loop, for later passes."""

    loop: Var
    key: str
    value: Any
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Decompose:
    """The initial value of a reduction is stored by a nest of its own right before `loop`."""

    loop: Var
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """Each iteration of `loop` asks the cache for what it reads of `tensor`, `distance` elements further on (an
    expression may speak of the loops around)."""

    loop: Var
    tensor: Tensor
    distance: int | Expr
    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """`loop` and all that it encloses are one block, done by `intrinsic` if there is one."""

    loop: Var
    intrinsic: TensorIntrinsic | None
    call: Call


Step = Split | Fuse | Reorder | Annotate | Pragma | Decompose | Prefetch | Unit


# ----------------------------------------------------------------------------------------------------------- places


@dataclass(frozen=True, slots=True, eq=False)
class AtRoot:
    """A nest of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Inlined:
    """No nest: the body stands in the consumers."""

    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class AtLoop:
    """At the start of each iteration of `loop` of the stage that makes `target`, for what is read there; with `after`
    at the end of it, for what has become ready by then."""

    target: Tensor
    loop: Var
    call: Call
    after: bool = False


Place = AtRoot | Inlined | AtLoop
ROOT = AtRoot()


# ----------------------------------------------------------------------------------------------------------- stages


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One operation and how it is scheduled.

    `op` is what it computes now (caching rewrites it), `outputs` the tensors by which users and other operations name
    its results, `buffers` their storage (another scope), `layouts` the map from logical to stored indices (None: the
    same). `roots` are the loop variables of `op.axes` and `op.reduce_axes`. `multiples` says to what each axis is
    rounded up where it is computed; `double` is the call that keeps two copies of the storage in turn.
    """

    name: str
    op: Operation
    outputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    layouts: tuple[Layout | None, ...]
    roots: tuple[Var, ...]
    is_output: bool
    history: tuple[Step, ...] = ()
    place: Place = ROOT
    multiples: tuple[int, ...] = ()
    double: Call | None = None

    @property
    def key(self) -> Tensor:
        """The tensor that stands for the stage."""
        return self.outputs[0]

    @property
    def axes(self) -> tuple[IterVar, ...]:
        """The spatial and then the reduce axes of the operation, the steps of a scan; none of an input or extern."""
        if isinstance(self.op, ScanOp):
            return (self.op.steps,)
        return (*self.op.axes, *self.op.reduce_axes) if isinstance(self.op, ComputeOp) else ()

    @property
    def reduction(self) -> Reduce | None:
        """The reduction it computes, if it does."""
        body = self.op.bodies[0] if isinstance(self.op, ComputeOp) else None
        return body if isinstance(body, Reduce) else None


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All stages, producers before consumers. `reassociated` lists the calls that changed the order of a reduction,
    `scans` says whether there are scans."""

    stages: tuple[Stage, ...]
    reassociated: tuple[Call, ...] = ()
    scans: bool = False

    def stage_of(self, tensor: Buffer) -> Stage:
        """The stage that makes `tensor`."""
        for stage in self.stages:
            if any(t is tensor for t in stage.outputs):
                return stage
        raise KeyError(tensor.name)

    def scan_of(self, tensor: Buffer) -> Stage | None:
        """The scan that stores a tensor as its state or its update."""
        for stage in self.stages if self.scans else ():
            if isinstance(stage.op, ScanOp) and any(tensor is t for t in (*stage.op.state, *stage.op.update)):
                return stage
        return None

    def first_place(self, stage: Stage) -> Place:
        """Where a new stage beside `stage` is computed at first: at the loop over the steps of a scan if the stage is
        computed there, else at root."""
        at = stage.place
        if self.scans and isinstance(at, AtLoop) and isinstance(self.stage_of(at.target).op, ScanOp):
            return at
        return ROOT

    def is_state(self, tensor: Buffer) -> bool:
        """Whether a tensor stands for the earlier steps of a scan."""
        if not self.scans:
            return False
        return any(isinstance(s.op, ScanOp) and any(tensor is t for t in s.op.state) for s in self.stages)

    def with_stage(self, old: Stage, new: Stage) -> State:
        """The state with one record replaced."""
        return dataclasses.replace(self, stages=tuple(new if s is old else s for s in self.stages))

    def with_new_stage(self, new: Stage, *, before: Stage) -> State:
        """The state with one more stage in front of `before`."""
        position = next(i for i, s in enumerate(self.stages) if s is before)
        return dataclasses.replace(self, stages=(*self.stages[:position], new, *self.stages[position:]))

    def unused_name(self, name: str) -> str:
        """`name`, with a number if a stage has it already."""
        taken = {s.name for s in self.stages}
        candidate, number = name, 0
        while candidate in taken:
            number += 1
            candidate = f"{name}_{number}"
        return candidate


def new_stage(name: str, op: Operation, outputs: tuple[Tensor, ...], roots: tuple[Var, ...], is_output: bool) -> Stage:
    """A stage at root with no history."""
    return Stage(name, op, outputs, outputs, (None,) * len(outputs), roots, is_output)


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop of a stage as it stands now: it runs from 0 over `extent`. `kind` is spatial or reduce, `annotation`
    one of LOOP_KINDS."""

    var: Var
    extent: Expr
    kind: str
    annotation: str = "serial"
    thread: ThreadAxis | None = None
    pragmas: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The name of the loop variable."""
        return self.var.name

    def __repr__(self) -> str:
        return f"{self.name}: {self.annotation} {self.kind} 0..{self.extent!r}"
