"""One call of a primitive in flight: resolving its references, refusing it, and the state it builds.

A primitive is a function of an `Edit` and the user's arguments, registered by the decorator `primitive` under its own
name as a method of stages. It has four paragraphs: resolve the references, require the conditions, rewrite, forward the
references. It changes nothing but `edit.state`, which the schedule takes over if the whole program is still legal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from schedule.error import Refusal
from schedule.replay import Nest
from schedule.state import AtLoop, Call, Fuse, Inlined, Loop, Split, Stage, State, Step
from tensorir.expr import IterVar, Var
from tensorir.te import ExternOp, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from schedule.analysis import Analysis
    from schedule.schedule import Schedule

LoopReference = Var | IterVar | Loop | str
"""How a loop is named: by its variable, by an axis of the compute, by an entry of `s[C].loops`, or by its name."""

PRIMITIVES: dict[str, Callable[..., Any]] = {}


def primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """Registers a primitive as a method of stages."""
    PRIMITIVES[function.__name__] = function
    return function


class Edit:
    """The call, the state before it and, step by step, after it."""

    def __init__(self, schedule: Schedule, stage: Stage, call: Call) -> None:
        self.schedule = schedule
        self.call = call
        self.state: State = schedule.state
        self._key = stage.key
        self._analysis = schedule.analysis

    @property
    def analysis(self) -> Analysis:
        """Loops and bindings of all stages as edited so far."""
        if self._analysis.state is not self.state:
            self._analysis = self.schedule.analyser.analyse(self.state)
        return self._analysis

    @property
    def stage(self) -> Stage:
        """The record of the stage that the primitive was called on, as edited so far."""
        return self.state.stage_of(self._key)

    def fail(
        self,
        what: str,
        *loops: Loop | Var,
        help: str | None = None,
        notes: tuple[str, ...] = (),
        cause: Call | None = None,
    ) -> NoReturn:
        """Refuses the call."""
        places = tuple(x.var if isinstance(x, Loop) else x for x in loops)
        raise Refusal(what, loops=places, help=help, notes=notes, cause=cause)

    def require(self, condition: bool, what: str, *loops: Loop | Var, help: str | None = None) -> None:
        """Refuses the call unless `condition` holds."""
        if not condition:
            self.fail(what, *loops, help=help)

    # --------------------------------------------------------------------------------------------------- resolving

    @property
    def nest(self) -> Nest:
        """The loops of the stage as edited so far; refuses stages that have none."""
        stage = self.stage
        if isinstance(stage.op, PlaceholderOp):
            self.fail(f"{stage.name} is an input of the program and has no loops")
        if isinstance(stage.op, ExternOp):
            self.fail(f"{stage.name} is an extern: its work is opaque and has no loops")
        if isinstance(stage.place, Inlined):
            self.fail(
                f"{stage.name} is inlined and has no loops", help=f"call s[{stage.name}].compute_root() first",
                cause=stage.place.call,
            )  # fmt: skip
        return self.analysis.of(stage).nest

    def loop(self, reference: LoopReference, stage: Stage | None = None) -> Loop:
        """The loop of the stage (or of another one) that a reference names."""
        stage = self.stage if stage is None else stage
        nest = self.nest if stage is self.stage else self._nest_of(stage)
        if isinstance(reference, str):
            named = [loop for loop in nest.loops if loop.name == reference]
            if len(named) == 1:
                return named[0]
            if named:
                self.fail(
                    f"{stage.name} has {len(named)} loops named {reference}", *named, help="use the loop variable"
                )
            gone = next((v for v in nest.values if v.name == reference), None)
            if gone is None:
                self.fail(f"{stage.name} has no loop named {reference}", help=f"its loops are {_names(nest)}")
            self._explain(gone, stage, nest)
        if isinstance(reference, (Loop, IterVar)):
            reference = reference.var
        if not isinstance(reference, Var):
            self.fail(f"{reference!r} is no loop: give a loop variable, an axis or a name")
        var = next((r for a, r in zip(stage.axes, stage.roots, strict=True) if a.var is reference), reference)
        loop = nest.loop(var)
        if loop is None:
            self._explain(var, stage, nest)
        return loop

    def _nest_of(self, stage: Stage) -> Nest:
        placed = self.analysis.find(stage)
        if placed is None:
            self.fail(f"{stage.name} has no loops", help="choose a stage that is not inlined and not an input")
        return placed.nest

    def _explain(self, var: Var, stage: Stage, nest: Nest) -> NoReturn:
        """Refuses a variable that is no loop of the stage now, saying what became of it."""
        for step in stage.history:
            if isinstance(step, Split) and step.parent is var:
                self.fail(
                    f"{var.name} is no loop any more: it was split into {step.outer.name} and {step.inner.name}"
                    f" by {step.call}", help=f"the loops of {stage.name} are {_names(nest)}",
                )  # fmt: skip
            if isinstance(step, Fuse) and (step.outer is var or step.inner is var):
                self.fail(
                    f"{var.name} is no loop any more: it was fused into {step.fused.name} by {step.call}",
                    help=f"the loops of {stage.name} are {_names(nest)}",
                )  # fmt: skip
        for other in self.state.stages:
            placed = self.analysis.find(other)
            axes = {id(a.var) for a in other.axes}
            if placed is not None and (any(v is var for v in placed.nest.values) or id(var) in axes):
                self.fail(
                    f"{var.name} is a loop of stage {other.name}, not of {stage.name}",
                    help=f"the loops of {stage.name} are {_names(nest)}; did you mean s[{other.name}]?",
                )
        self.fail(f"{var.name} is no loop of {stage.name}", help=f"its loops are {_names(nest)}")

    # --------------------------------------------------------------------------------------------------- rewriting

    def replace(self, **changes: Any) -> None:
        """Replaces fields of the stage's record."""
        stage = self.stage
        self.state = self.state.with_stage(stage, dataclasses.replace(stage, **changes))

    def step(self, step: Step) -> None:
        """Appends a step to the history of the stage."""
        self.replace(history=(*self.stage.history, step))

    def forward(self, old: Var, new: Var) -> None:
        """What was computed at loop `old` of the stage is computed at loop `new`."""
        for stage in self.state.stages:
            at = stage.place
            if isinstance(at, AtLoop) and at.loop is old and any(t is at.target for t in self.stage.outputs):
                place = dataclasses.replace(at, loop=new)
                self.state = self.state.with_stage(stage, dataclasses.replace(stage, place=place))

    def attached(self, loop: Var) -> list[Stage]:
        """The stages computed at a loop of this stage."""
        outputs = self.stage.outputs
        return [
            s
            for s in self.state.stages
            if isinstance(at := s.place, AtLoop) and at.loop is loop and any(t is at.target for t in outputs)
        ]

    def attached_anywhere(self) -> list[Stage]:
        """The stages computed at any loop of this stage."""
        outputs = self.stage.outputs
        return [
            s for s in self.state.stages if isinstance(at := s.place, AtLoop) and any(t is at.target for t in outputs)
        ]

    def tensor(self) -> Tensor:
        """The tensor that stands for the stage."""
        return self._key


def _names(nest: Nest) -> str:
    return ", ".join(loop.name for loop in nest.loops) or "none"
