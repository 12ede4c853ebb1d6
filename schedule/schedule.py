"""The schedule of a program: the state, the calls that led to it, and the program as it is now.

    s = create_schedule(C)
    i_o, i_i = s[C].split(i, factor=32)
    print(s)            # the loop nest now
    s.trace             # the calls, as Python text
    s.undo()            # back before the last call
    s.func([A, B, C])   # the program as a function

Each primitive is checked against the whole program when it is called; a call that is refused changes nothing.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schedule.analysis import Analyser, Analysis, Placed
from schedule.edit import PRIMITIVES, Edit
from schedule.error import Refusal, ScheduleError, excerpt
from schedule.intrinsic import TensorIntrinsic
from schedule.program import Builder
from schedule.state import AtLoop, Call, Loop, Stage, State, new_stage
from schedule.verify import Runner, verify, verify_now
from tensorir.expr import IterVar, Var
from tensorir.html import func_html
from tensorir.layout import Layout
from tensorir.origin import python_origin
from tensorir.stmt import Func
from tensorir.te import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
    ThreadAxis,
    collect_operations,
    foreign_vars,
    input_tensors,
    output_tensors,
    require_steps_in_scans,
    require_values,
    scan_stages,
    shape_vars,
)

Reference = Tensor | Operation | str


def create_schedule(outputs: Any) -> Schedule:
    """The schedule of the program that computes `outputs`: a tensor, an operation, or a sequence of them."""
    return Schedule(outputs)


class StageView:
    """`s[C]`: a stage of a schedule. The primitives are its methods; `axis`, `reduce_axis` and `loops` are as they
    are now."""

    def __init__(self, schedule: Schedule, key: Tensor) -> None:
        self._schedule = schedule
        self._key = key

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in PRIMITIVES:
            raise AttributeError(f"there is no primitive {name}; the primitives are {', '.join(sorted(PRIMITIVES))}")

        def apply(*args: Any, **kwargs: Any) -> Any:
            return self._schedule.apply(name, self._key, args, kwargs)

        apply.__name__ = name
        apply.__qualname__ = f"StageView.{name}"
        apply.__doc__ = PRIMITIVES[name].__doc__
        signature = inspect.signature(PRIMITIVES[name])
        parameters = list(signature.parameters.values())[1:]
        apply.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return apply

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *PRIMITIVES]

    @property
    def _stage(self) -> Stage:
        return self._schedule.state.stage_of(self._key)

    @property
    def name(self) -> str:
        """The name of the stage; `s[name]` finds it."""
        return self._stage.name

    @property
    def op(self) -> Operation:
        """The operation that the stage computes now."""
        return self._stage.op

    @property
    def tensor(self) -> Tensor:
        """The (first) tensor that the stage makes."""
        return self._key

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops of the stage from the outside in; none when it is inlined."""
        placed = self._schedule.placed(self._stage)
        return () if placed is None else placed.nest.loops

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The spatial axes in declared order, as loops over what the stage computes now."""
        return self._roots("spatial")

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduce axes in declared order."""
        return self._roots("reduce")

    def _roots(self, kind: str) -> tuple[IterVar, ...]:
        stage = self._stage
        placed = self._schedule.placed(stage)
        domain = [(a.begin, a.extent) for a in stage.axes] if placed is None else placed.domain
        return tuple(
            IterVar(root, begin, extent, kind)
            for root, axis, (begin, extent) in zip(stage.roots, stage.axes, domain, strict=True)
            if axis.kind == kind
        )

    def __repr__(self) -> str:
        lines = [f"stage {self.name}", *(f"  {loop!r}" for loop in self.loops)]
        return "\n".join(lines)


class Schedule:
    """Stages over one compute program, with their primitives applied one by one."""

    def __init__(self, outputs: Any) -> None:
        tensors = _output_tensors(outputs)
        self._given = tensors
        self.analyser = Analyser()
        self._builder = Builder()
        self._names: dict[Var, str] = {}
        self._taken: set[str] = {"s", "te", "nt"}
        self._state = _initial_state(tensors)
        try:
            self._analysis = self.analyser.analyse(self._state)
        except Refusal as refusal:  # only the places of the steps of a scan are given from the start
            raise ScheduleError(f"create_schedule(): {refusal.what}", notes=refusal.notes, help=refusal.help) from None
        self._calls: tuple[str, ...] = ()
        self._past: list[tuple[State, Analysis, tuple[str, ...]]] = []
        self._printed: Func | None = None

    # ------------------------------------------------------------------------------------------------- reading it

    @property
    def state(self) -> State:
        """The records of all stages now."""
        return self._state

    @property
    def analysis(self) -> Analysis:
        """Loops, bindings and guards of all stages now."""
        return self._analysis

    @property
    def trace(self) -> tuple[str, ...]:
        """The calls so far, each a line of Python that may be run again on `s = create_schedule(...)` (with
        `tensorir.layout.Layout` and `Dim` at hand if a layout was transformed)."""
        return self._calls

    @property
    def stages(self) -> tuple[StageView, ...]:
        """All stages, inputs too, producers before consumers."""
        return tuple(StageView(self, s.key) for s in self._state.stages)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that the program stores for its caller."""
        return self._given

    def __getitem__(self, reference: Reference | StageView) -> StageView:
        return StageView(self, self.find_stage(reference).key)

    def find_stage(self, reference: Any) -> Stage:
        """The record of the stage named by a tensor, an operation, a stage view or a name. Raises `ScheduleError`."""
        if isinstance(reference, StageView):
            reference = reference.tensor
        for stage in self._state.stages:
            if isinstance(reference, str):
                if stage.name == reference:
                    return stage
            elif any(
                t is reference or t.op is reference or t.op is getattr(reference, "op", None) for t in stage.outputs
            ):
                return stage
        name = getattr(reference, "name", reference)
        scan = self._state.scan_of(reference) if isinstance(reference, Tensor) else None
        if scan is not None:
            raise ScheduleError(
                f"{name!s} stands for the earlier steps of the scan {scan.name} and is no stage of its own",
                help=f"name the scan, {scan.name}, or the computes that make its steps",
            )
        raise ScheduleError(
            f"{name!s} is no stage of this schedule",
            help=f"the stages are {', '.join(s.name for s in self._state.stages)}",
        )

    def placed(self, stage: Stage) -> Placed | None:
        """Loops and bindings of a stage; None for an input and for an inlined stage."""
        return self._analysis.find(stage)

    def func(self, args: Sequence[Any] | None = None, name: str = "main") -> Func:
        """The program as a function of `args`: inputs and outputs as tensors (te.var symbols among them become
        dimensions), by default all inputs in the order of first reading and then the outputs."""
        given = self.inputs + self._given if args is None else tuple(args)
        dims = [a for a in given if isinstance(a, Var)]
        tensors = [self._own_tensor(a) for a in given if not isinstance(a, Var)]
        inputs = [t for t in tensors if isinstance(self.find_stage(t).op, PlaceholderOp)]
        outputs = [t for t in tensors if any(t is o for o in self._given)]
        self._check_args(tensors, inputs, outputs)
        require_values([s.op for s in self._state.stages if foreign_vars(s.op)], (*dims, *shape_vars(tensors)))
        return self._builder.func(self._analysis, (*inputs, *outputs), dims, name, len(outputs))

    def _own_tensor(self, tensor: Any) -> Tensor:
        """The tensor of the schedule that stands for an argument; it differs when an operation was scheduled."""
        if not isinstance(tensor, Tensor):
            raise ScheduleError(
                f"an argument is a tensor or a te.var, not {type(tensor).__name__}", help="pass them as [A, B, C]"
            )
        return next(t for t in self.find_stage(tensor).outputs if t is tensor or t.index == tensor.index)

    def _check_args(self, tensors: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
        for tensor in tensors:
            if not any(tensor is t for t in (*inputs, *outputs)):
                raise ScheduleError(
                    f"{tensor.name} is computed on the way and cannot be an argument",
                    help="pass it to create_schedule as an output too if its values are wanted",
                )
        if any(any(t is o for o in outputs) for t in tensors[: len(inputs)]):
            raise ScheduleError(
                "outputs come after all inputs among the arguments",
                help=f"pass them as [{', '.join(t.name for t in (*inputs, *outputs))}]",
            )
        for wanted, have in ((self.inputs, inputs), (self._given, outputs)):
            for tensor in wanted:
                if not any(tensor is t for t in have):
                    raise ScheduleError(f"{tensor.name} is missing among the arguments", help=f"add {tensor.name}")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The placeholders that the program reads, in the order of first reading."""
        return tuple(s.key for s in self._state.stages if isinstance(s.op, PlaceholderOp))

    def __str__(self) -> str:
        return str(self._current())

    __repr__ = __str__

    def _current(self) -> Func:
        if self._printed is None:
            self._printed = self.func()
        return self._printed

    # ------------------------------------------------------------------------------------------------ changing it

    def apply(self, name: str, key: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One primitive on the stage of `key`. Raises `ScheduleError` and changes nothing when it is refused."""
        function = PRIMITIVES[name]
        stage = self._state.stage_of(key)
        call = Call(_call_text(name, args, kwargs), python_origin())
        edit = Edit(self, stage, call)
        try:
            try:
                inspect.signature(function).bind(edit, *args, **kwargs)
            except TypeError as problem:
                raise Refusal(str(problem), help=f"its arguments are {_signature(function)}") from None
            line = self._trace_line(name, stage, args, kwargs)
            result = function(edit, *args, **kwargs)
            analysis = self.analyser.analyse(edit.state)
        except Refusal as refusal:
            raise self._error(call, refusal) from None
        except ScheduleError as problem:  # an argument that names no stage
            raise ScheduleError(f"{call.text}: {problem.message}", notes=problem.notes, help=problem.help) from None
        self._past.append((self._state, self._analysis, self._calls))
        self._state, self._analysis = edit.state, analysis
        self._calls = (*self._calls, self._assigned(result) + line)
        self._printed = None
        if os.environ.get("NESTOR_VERIFY"):
            verify_now(self, call.text)
        return result

    def steps(self) -> Steps:
        """The calls so far, each with the program after it: a sequence that prints as a list of calls and shows in a
        notebook as programs with the lines that each call changed."""
        analyses = [a for _, a, _ in self._past] + [self._analysis]
        calls = [c[-1] for _, _, c in self._past[1:]] + list(self._calls[-1:])
        return Steps(tuple(map(self._program_of, analyses)), tuple(calls))

    def _program_of(self, analysis: Analysis) -> Func:
        if analysis is self._analysis:
            return self._current()
        tensors = (*self.inputs, *self._given)
        return self._builder.func(analysis, tensors, [], "main", len(self._given))

    def _repr_html_(self) -> str:
        """The program now, the lines of the last change marked."""
        return func_html(self._current(), self._program_of(self._past[-1][1]) if self._past else None)

    def _ipython_key_completions_(self) -> list[str]:
        """What a notebook offers after `s[`."""
        return [s.name for s in self._state.stages]

    def rfactor(self, tensor: Any, axis: Any, factor_axis: int = 0) -> Any:
        """`s[tensor].rfactor(axis, factor_axis)`."""
        return self.apply("rfactor", self.find_stage(tensor).key, (axis, factor_axis), {})

    def undo(self) -> Schedule:
        """Takes the last call back."""
        if not self._past:
            raise ScheduleError("undo(): there is nothing to take back")
        self._state, self._analysis, self._calls = self._past.pop()
        self._printed = None
        return self

    def cache_write(self, tensor: Any, scope: str = "local") -> Any:
        """`s[tensor].cache_write(scope)`."""
        first = tensor[0] if isinstance(tensor, (tuple, list)) else tensor
        return self.apply("cache_write", self.find_stage(first).key, (scope,), {})

    def cache_read(self, tensor: Any, scope: str = "local", readers: Any = None) -> Any:
        """`s[tensor].cache_read(scope, readers)`."""
        return self.apply("cache_read", self.find_stage(tensor).key, (scope, readers), {})

    def _error(self, call: Call, refusal: Refusal) -> ScheduleError:
        notes = [*excerpt(self._current(), refusal.loops), *refusal.notes]
        if refusal.cause is not None and refusal.cause is not call:
            notes.append(f"note: this breaks the earlier {refusal.cause}")
        return ScheduleError(f"{call.text}: {refusal.what}", notes=tuple(notes), help=refusal.help)

    def verify(self, run: Runner | None = None, *, dims: Mapping[Var, int] | None = None, seed: int = 0) -> str:
        """Compares with the unscheduled program on random inputs: on the interpreter, or for a large program by
        `run(func, arrays, dims)` at sampled points. Gives a sentence; raises `VerificationError`."""
        return verify(self, run, dims=dims, seed=seed)

    def explain_bounds(self) -> str:
        """For each stage: the part of each axis that it computes where it stands, which reads ask for it, and the
        memory that this takes against the shape that was declared."""
        from schedule.explain import explain_bounds  # runs lowering passes, which schedules need for nothing else

        return explain_bounds(self)

    # -------------------------------------------------------------------------------------------------- the trace

    def _trace_line(self, name: str, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        parts = [self._python(stage, a) for a in args]
        parts += [f"{k}={self._python(stage, v)}" for k, v in kwargs.items()]
        return f's["{stage.name}"].{name}({", ".join(parts)})'

    def _python(self, stage: Stage, value: Any) -> str:
        if isinstance(value, (Loop, IterVar)):
            value = value.var
        if isinstance(value, Var):
            return self._python_var(stage, value)
        if isinstance(value, (StageView, Tensor, Operation)):
            return f's["{self.find_stage(value).name}"]'
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(self._python(stage, v) for v in value)}]"
        if isinstance(value, ThreadAxis):
            return repr(value.tag) if value.extent is None else f"te.thread_axis({value.extent}, {value.tag!r})"
        if isinstance(value, TensorIntrinsic):
            return repr(value.name)
        if isinstance(value, Layout):
            dims = ", ".join(f"Dim({d.axis}, {d.stride}, {d.extent})" for d in value.dims)
            return f"Layout({value.rank}, ({dims},))"
        return repr(value)

    def _python_var(self, stage: Stage, var: Var) -> str:
        if var in self._names:
            return self._names[var]
        for owner in (stage, *self._state.stages):
            for number, (axis, root) in enumerate(zip(owner.axes, owner.roots, strict=True)):
                if axis.var is var or root is var:
                    spatial = sum(a.kind == "spatial" for a in owner.axes)
                    if axis.kind == "spatial":
                        return f's["{owner.name}"].axis[{number}]'
                    return f's["{owner.name}"].reduce_axis[{number - spatial}]'
        return repr(var.name)

    def _assigned(self, result: Any) -> str:
        results = result if isinstance(result, (tuple, list)) else (result,)
        if not results or not all(isinstance(r, (Var, Tensor)) for r in results):
            return ""
        names = []
        for r in results:
            name = base = "".join(c if c.isalnum() else "_" for c in r.name)
            number = 0
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            names.append(name)
            if isinstance(r, Var):
                self._names[r] = name
        return f"{', '.join(names)} = "


class Steps(Sequence[tuple[str, Func]]):
    """The calls of a schedule with the program after each; `first` is the program before all of them."""

    def __init__(self, programs: tuple[Func, ...], calls: tuple[str, ...]) -> None:
        self.first = programs[0]
        self._programs = programs
        self._calls = calls

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, number: Any) -> Any:
        pairs = list(zip(self._calls, self._programs[1:], strict=True))
        return pairs[number]

    def __repr__(self) -> str:
        width = len(str(len(self)))
        return "\n".join(f"{n:>{width}}  {call}" for n, call in enumerate(self._calls, 1)) or "no calls yet"

    def _repr_html_(self) -> str:
        parts = [f"<details><summary>before</summary>{func_html(self.first)}</details>"]
        for number, call in enumerate(self._calls):
            shown = func_html(self._programs[number + 1], self._programs[number])
            is_open = " open" if number == len(self) - 1 else ""
            summary = f"{number + 1}. <code>{html.escape(call)}</code>"
            parts.append(f"<details{is_open}><summary>{summary}</summary>{shown}</details>")
        return "".join(parts)


def _signature(function: Callable[..., Any]) -> str:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return "(" + ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters) + ")"


def _call_text(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(text(v) for v in value)}]"
        if isinstance(value, ThreadAxis):
            return value.tag
        return str(value.name) if hasattr(value, "name") else repr(value) if not isinstance(value, str) else value

    return f"{name}({', '.join([*map(text, args), *(f'{k}={text(v)}' for k, v in kwargs.items())])})"


def _output_tensors(outputs: Any) -> tuple[Tensor, ...]:
    items = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    if not items:
        raise ScheduleError("create_schedule(): there is no output", help="pass the computed tensor or tensors")
    result: list[Tensor] = []
    for item in items:
        if isinstance(item, Operation):
            if isinstance(item, (ExternOp, PlaceholderOp)):
                raise ScheduleError(
                    f"create_schedule(): {item.name} is an operation, not a tensor",
                    help="pass what te.compute returned",
                )
            found: tuple[Tensor, ...] = output_tensors(item, ())
        elif isinstance(item, Tensor):
            found = (item,)
        else:
            raise ScheduleError(
                f"create_schedule(): {type(item).__name__} is not a tensor", help="pass what te.compute returned"
            )
        for tensor in found:
            if isinstance(tensor.op, PlaceholderOp):
                raise ScheduleError(
                    f"create_schedule(): {tensor.name} is an input; there is nothing to compute",
                    help="pass what te.compute returned",
                )
            result.append(tensor)
    return tuple(result)


def _initial_state(outputs: tuple[Tensor, ...]) -> State:
    operations = collect_operations(outputs)
    require_steps_in_scans(operations)
    known = [*outputs, *(t for op in operations for t in input_tensors(op))]
    state = State((), scans=any(isinstance(op, ScanOp) for op in operations))
    places: dict[int, AtLoop] = {}
    steps: dict[int, tuple[tuple[Tensor, ...], Var]] = {}
    for op in operations:
        if isinstance(op, ScanOp):
            steps[id(op)] = made = output_tensors(op, known), Var(op.steps.name, op.steps.var.dtype)
            for stage_op in scan_stages(op):
                places[id(stage_op)] = AtLoop(made[0][0], made[1], Call(f"scan {op.name}", op.origins))
    for op in operations:
        if isinstance(op, PlaceholderOp):
            tensors = _distinct(t for t in known if t.op is op)
        else:
            tensors = output_tensors(op, known)
        roots: tuple[Var, ...] = ()
        if isinstance(op, ComputeOp):
            roots = tuple(Var(a.name, a.var.dtype) for a in (*op.axes, *op.reduce_axes))
        if isinstance(op, ScanOp):
            tensors, root = steps[id(op)]
            roots = (root,)
        is_output = any(t is o for t in tensors for o in outputs)
        stage = new_stage(state.unused_name(op.name), op, tensors, roots, is_output)
        stage = dataclasses.replace(stage, place=places.get(id(op), stage.place))
        state = dataclasses.replace(state, stages=(*state.stages, stage))
    return state


def _distinct(tensors: Any) -> tuple[Tensor, ...]:
    return tuple({id(t): t for t in tensors}.values())


__all__ = ["Schedule", "StageView", "create_schedule"]
