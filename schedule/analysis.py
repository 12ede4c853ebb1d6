"""From the records of a state to the loops, bindings and guards of every stage, with the rules a state must keep.

Consumers are worked out before their producers, since what a producer attached at a loop must compute is what its
consumers read under that loop. Results are remembered by the identity of the records they were made from, so that a
primitive pays only for the stages it touches.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from schedule import legality
from schedule.bodies import Bodies, Body
from schedule.error import Refusal
from schedule.ready import check_order, ready_domain
from schedule.region import Domain, required_domain, tensor_domain
from schedule.replay import Extent, Nest, replay
from schedule.state import AtLoop, AtRoot, Inlined, Loop, Stage, State
from schedule.threads import idle_threads
from tensorir.arith import Analyzer
from tensorir.expr import Const, Expr, Var, const, equal, less, less_equal, logical_and
from tensorir.te import PlaceholderOp, ScanOp


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A stage that has a nest: what it computes, on which domain (begin and extent of each axis), with which loops,
    inside which loops of other stages (`path`, outermost first, each with the stage it belongs to).

    `bindings` are the axes over all these loops; the point exists where `guard` holds, its spatial part is
    `spatial_guard`."""

    stage: Stage
    body: Body
    domain: Domain
    nest: Nest
    path: tuple[tuple[Stage, Loop], ...]
    bindings: tuple[Expr, ...]
    guard: Expr
    spatial_guard: Expr
    init_before: Var | None
    made_from: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """All placed stages of a state, producers first; `roots` are those with a nest at root, in the order they run."""

    state: State
    placed: tuple[Placed, ...]
    bodies: dict[int, Body]
    consumers: dict[int, tuple[Stage, ...]]
    roots: tuple[Placed, ...] = ()

    def of(self, stage: Stage) -> Placed:
        """What is known of a stage that has a nest."""
        return next(p for p in self.placed if p.stage is stage)

    def find(self, stage: Stage) -> Placed | None:
        """What is known of a stage; None for an input and for an inlined stage."""
        return next((p for p in self.placed if p.stage is stage), None)

    def attached(self, placed: Placed, loop: Var, *, after: bool = False) -> tuple[Placed, ...]:
        """The stages computed at the start of the iterations of a loop of a stage, or at their end; producers first."""
        outputs = placed.stage.outputs
        return tuple(
            p
            for p in self.placed
            if isinstance(at := p.stage.place, AtLoop)
            and at.loop is loop
            and at.after is after
            and any(t is at.target for t in outputs)
        )


Required = tuple[Domain, tuple[bool, ...]]
"""What is needed of a stage at its loop, and for each axis whether that may leave the tensor."""


class Analyser:
    """Works out states, remembering what does not change between them."""

    def __init__(self) -> None:
        self._bodies = Bodies()
        self._placed: dict[tuple[int, ...], Placed] = {}
        self._domains: dict[tuple[object, ...], tuple[Required, object]] = {}

    def analyse(self, state: State) -> Analysis:
        """The analysis of a state. Raises `Refusal` when the state breaks a rule."""
        bodies = self._bodies.all(state)
        consumers = legality.find_consumers(state, bodies)
        legality.check_places(state)
        placed: dict[int, Placed] = {}
        for stage in reversed(state.stages):
            if isinstance(stage.place, Inlined) or isinstance(stage.op, PlaceholderOp):
                continue
            self._place(state, stage, bodies, consumers, placed)
        order = tuple(placed[id(s)] for s in state.stages if id(s) in placed)
        analysis = Analysis(state, order, bodies, consumers)
        legality.check_nests(analysis)
        return dataclasses.replace(analysis, roots=check_order(analysis))

    def _place(
        self,
        state: State,
        stage: Stage,
        bodies: dict[int, Body],
        consumers: dict[int, tuple[Stage, ...]],
        placed: dict[int, Placed],
    ) -> None:
        if id(stage) in placed:
            return
        at = stage.place
        after = isinstance(at, AtLoop) and at.after
        needed = isinstance(at, AtLoop) and not after
        users = tuple(placed[id(s)] for s in consumers[id(stage)]) if needed else ()
        host: Placed | None = None
        if isinstance(at, AtLoop):
            host_stage = state.stage_of(at.target)
            if after:
                legality.require_ready_host(stage, at, host_stage)
                self._place(state, host_stage, bodies, consumers, placed)
            host = placed.get(id(host_stage))
            if host is not None and host.nest.loop(at.loop) is None:
                raise Refusal(
                    f"{stage.name} is computed at loop {at.loop.name} of {host_stage.name}, which is no loop any more",
                    cause=at.call, help=f"call s[{stage.name}].compute_root() first and attach it again afterwards",
                )  # fmt: skip
            if not after:
                legality.require_encloses(stage, at, host, host_stage, users)
        if after:
            users = self._makers(state, stage, bodies, consumers, placed)
        made_from = (stage, bodies[id(stage)], host, *users)
        key = tuple(id(m) for m in made_from)
        found = self._placed.get(key)
        if found is None:
            if len(self._placed) > 4096:
                self._placed.clear()
            required = self._required(stage, host, users) if needed and host is not None else None
            found = self._placed[key] = _place(stage, bodies[id(stage)], host, users, made_from, required)
        placed[id(stage)] = found

    def _required(self, stage: Stage, host: Placed, users: tuple[Placed, ...]) -> Required:
        """What is needed of a stage at its loop: the same whatever becomes of its own loops."""
        assert isinstance(stage.place, AtLoop)
        kept = (stage.op, stage.outputs, stage.buffers, stage.place.loop, host, *users)
        key = (stage.multiples, *(id(k) for k in kept))
        found = self._domains.get(key)
        if found is None:
            if len(self._domains) > 1024:
                self._domains.clear()
            found = self._domains[key] = required_domain(stage, _path(stage, host), users), kept
        return found[0]

    def _makers(
        self,
        state: State,
        stage: Stage,
        bodies: dict[int, Body],
        consumers: dict[int, tuple[Stage, ...]],
        placed: dict[int, Placed],
    ) -> tuple[Placed, ...]:
        """The stages that a stage at the end of a loop reads and that run once: at root, or at the end of a loop."""
        found: list[Placed] = []
        for read in bodies[id(stage)].reads:
            if state.is_state(read.tensor):
                continue
            maker = state.stage_of(read.tensor)
            at = maker.place
            if isinstance(maker.op, PlaceholderOp) or not (
                isinstance(at, AtRoot) or (isinstance(at, AtLoop) and at.after)
            ):
                continue
            self._place(state, maker, bodies, consumers, placed)
            if not any(placed[id(maker)] is m for m in found):
                found.append(placed[id(maker)])
        return tuple(found)


def _path(stage: Stage, host: Placed) -> tuple[tuple[Stage, Loop], ...]:
    """The loops around a stage that is computed at a loop of `host`."""
    assert isinstance(stage.place, AtLoop)
    upto = host.nest.position(stage.place.loop) + 1
    return (*host.path, *((host.stage, loop) for loop in host.nest.loops[:upto]))


def _place(
    stage: Stage,
    body: Body,
    host: Placed | None,
    users: tuple[Placed, ...],
    made_from: tuple[object, ...],
    required: Required | None,
) -> Placed:
    path: tuple[tuple[Stage, Loop], ...] = ()
    own = tensor_domain(stage.axes)
    domain = own
    may_leave: tuple[bool, ...] = tuple(False for _ in own)
    if host is not None:
        assert isinstance(stage.place, AtLoop)
        path = _path(stage, host)
        if _is_update(stage, host):
            (step, _), *rest = own
            domain = ((step + path[0][1].var + _first_step(host), const(1)), *rest)
        elif stage.place.after:
            domain, may_leave = ready_domain(stage, body.reads, users, path)
        else:
            assert required is not None
            domain, may_leave = required
    extents = tuple(
        Extent(root, extent, axis.kind) for root, (_, extent), axis in zip(stage.roots, domain, stage.axes, strict=True)
    )
    nest = replay(extents, stage.history)
    analyzer = loop_analyzer((*(loop for _, loop in path), *nest.loops))
    bindings = tuple(
        analyzer.simplify(begin + nest.values[root]) for root, (begin, _) in zip(stage.roots, domain, strict=True)
    )
    conditions: list[tuple[Expr, str]] = [(g.condition, g.kind) for g in nest.guards]
    for binding, axis, leaves in zip(bindings, stage.axes, may_leave, strict=True):
        if leaves:
            conditions += [
                (less_equal(axis.begin, binding), axis.kind),
                (less(binding, axis.begin + axis.extent), axis.kind),
            ]
    # Threads that share the storage and have no part in the loops of the stage would all do the same: the first does.
    conditions += [(equal(loop.var, 0), "spatial") for loop in idle_threads(stage, path, nest)]
    kept: list[tuple[Expr, str]] = []
    for condition, kind in conditions:
        condition = analyzer.simplify(condition)
        if (isinstance(condition, Const) and condition.value) or analyzer.prove(condition):
            continue
        kept.append((condition, kind))
    init_before = nest.init_before
    if init_before is None and stage.reduction is not None and not _surely_runs(nest):
        init_before = next(loop.var for loop in nest.loops if loop.kind == "reduce")
    return Placed(
        stage, body, domain, nest, path, bindings,
        logical_and(*(c for c, _ in kept)), logical_and(*(c for c, k in kept if k == "spatial")), init_before,
        made_from,
    )  # fmt: skip


def _is_update(stage: Stage, host: Placed) -> bool:
    """Whether a stage makes the steps of the scan that it is computed in."""
    op = host.stage.op
    return isinstance(op, ScanOp) and any(t is u for t in stage.outputs for u in op.update)


def _first_step(host: Placed) -> Expr:
    assert isinstance(host.stage.op, ScanOp)
    return host.stage.op.steps.begin


def _surely_runs(nest: Nest) -> bool:
    """Whether every reduce axis has at least one value: an empty reduction still needs its initial value stored."""
    return all(isinstance(r.extent, Const) and int(r.extent.value) > 0 for r in nest.roots if r.kind == "reduce")


def loop_analyzer(loops: tuple[Loop, ...]) -> Analyzer:
    """An analyzer that knows the ranges of loops."""
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.var, const(0), loop.extent)
    return analyzer
