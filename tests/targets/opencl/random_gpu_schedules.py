"""Random GPU schedules over the small programs of the schedule tests: tiles, threads, shared and local memory, virtual
threads, reductions over threads, cooperative fetches. A primitive that refuses leaves the schedule as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schedule import Schedule, ScheduleError, create_schedule
from schedule.state import AtRoot, Inlined
from tensorir import te
from tensorir.expr import Var
from tensorir.te import ComputeOp, PlaceholderOp
from tests.schedule.random_schedules import (
    chain,
    int_convolution,
    matmul,
    softmax,
    stencil,
    symbolic,
    two_outputs,
)

PROGRAMS: tuple[Callable[[], Any], ...] = (chain, stencil, symbolic, matmul, int_convolution, softmax, two_outputs)


@dataclass
class Sample:
    """A scheduled program with the values of its dimensions; `exact` if no sum of floats changed its order."""

    name: str
    schedule: Schedule
    outputs: list[te.Tensor]
    dims: dict[Var, int]
    exact: bool


def random_gpu_schedules(seed: int, count: int, first: int = 0) -> Iterator[Sample]:
    """`count` samples from number `first` on, each the same for a seed."""
    for number in range(first, first + count):
        rng = random.Random(f"{seed} {number}")
        make = PROGRAMS[number % len(PROGRAMS)]
        outputs, dims = make()
        s = create_schedule(outputs)
        _Scheduler(s, rng).all(outputs)
        yield Sample(f"{make.__name__} {seed}.{number}", s, outputs, dims, not s.state.reassociated)


class _Scheduler:
    def __init__(self, s: Schedule, rng: random.Random) -> None:
        self.s = s
        self.rng = rng

    def attempt(self, call: Callable[[], Any]) -> Any:
        """What a primitive gives, None if it refuses."""
        try:
            return call()
        except ScheduleError:
            return None

    def all(self, outputs: list[te.Tensor]) -> None:
        s, rng = self.s, self.rng
        for view in list(s.stages):
            stage = s.find_stage(view.tensor)
            if isinstance(stage.op, ComputeOp) and not stage.is_output and rng.random() < 0.3:
                self.attempt(view.compute_inline)
        for tensor in outputs:
            if rng.random() < 0.3:
                self.attempt(lambda tensor=tensor: s.cache_write(tensor, "local"))
        for view in list(s.stages):
            stage = s.find_stage(view.tensor)
            if isinstance(stage.place, Inlined) or rng.random() > 0.25:
                continue
            readers = [c.key for c in s.analysis.consumers[id(stage)]]
            if readers and (isinstance(stage.op, (PlaceholderOp, ComputeOp))):
                self.attempt(lambda view=view, readers=readers: s.cache_read(view.tensor, "shared", readers))
        for view in reversed(list(s.stages)):
            stage = s.find_stage(view.tensor)
            if isinstance(stage.op, ComputeOp) and not isinstance(stage.place, Inlined):
                if not stage.is_output and rng.random() < 0.8:
                    self.attach(view)
                self.bind(view, isinstance(s.find_stage(view.tensor).place, AtRoot))

    def attach(self, view: Any) -> None:
        s, rng = self.s, self.rng
        consumers = s.analysis.consumers[id(s.find_stage(view.tensor))]
        if len(consumers) != 1:
            return
        host = s[consumers[0].key]
        loops = [loop.var for loop in host.loops]
        if not loops or self.attempt(lambda: view.compute_at(host, rng.choice(loops))) is False:
            return
        scope = rng.choice(["shared", "shared", "local", "global"])
        at = s.find_stage(view.tensor).place
        if isinstance(at, AtRoot):
            return
        self.attempt(lambda: view.set_scope(scope))

    def bind(self, view: Any, is_root: bool) -> None:
        rng = self.rng
        scopes = {b.scope for b in self.s.find_stage(view.tensor).buffers}
        if not is_root and scopes != {"shared"}:
            return  # its threads are those of its host
        spatial = [a.var for a in view.axis]
        if len(spatial) > 1 and rng.random() < 0.4:
            fused = self.attempt(lambda: view.fuse(*spatial))
            spatial = spatial if fused is None else [fused]
        threads = ["threadIdx.x", "threadIdx.y"]
        blocks = ["blockIdx.x", "blockIdx.y"]
        if view.reduce_axis and rng.random() < 0.3:
            reduce = view.reduce_axis[0].var
            if rng.random() < 0.5:
                pair = self.attempt(lambda: view.split(reduce, factor=rng.choice([2, 4])))
                reduce = reduce if pair is None else pair[1]
            if self.attempt(lambda: view.bind(reduce, "threadIdx.x")) is not None or True:
                threads.pop(0)
        outers, inners = [], []
        for var in reversed(spatial):
            pair = self.attempt(lambda var=var: view.split(var, factor=rng.choice([1, 2, 3, 4, 8])))
            if pair is None:
                continue
            outer, inner = pair
            if threads and rng.random() < 0.8:
                self.attempt(lambda inner=inner: view.bind(inner, threads.pop(0)))
            elif rng.random() < 0.3:
                self.attempt(lambda inner=inner: view.bind(inner, "vthread"))
            elif rng.random() < 0.5:
                self.attempt(lambda inner=inner: rng.choice([view.unroll, view.vectorize])(inner))
            if is_root and blocks and rng.random() < 0.7:
                self.attempt(lambda outer=outer: view.bind(outer, blocks.pop(0)))
            outers.append(outer)
            inners.append(inner)
        if outers and rng.random() < 0.6:
            self.attempt(lambda: view.reorder(*reversed(outers), *reversed(inners)))
