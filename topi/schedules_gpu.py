"""Default schedules for GPUs: one thread an output element, what it needs computed by the same thread.

    conv + bias + relu      →      kernel over out: thread (n, c, y, x): acc = sum(...); out = max(acc + bias, 0)

Stages that cost nothing are inlined; a reduction that one consumer reads element by element is computed in the thread
of its consumer, in local memory; every other stage is a kernel of its own.
"""

from __future__ import annotations

from schedule import Schedule, ScheduleError
from schedule.state import Inlined, Stage
from tensorir.expr import Const, Var
from tensorir.target import Target
from tensorir.te import ComputeOp, Tensor

THREADS = 256
"""Threads of a block, where the target takes so many."""


def schedule_gpu(s: Schedule, target: Target) -> None:
    """Schedules every stage that is not inlined."""
    threads = min(THREADS, target.max_threads)
    hosts: dict[int, tuple[Tensor, Var]] = {}
    for view in reversed(list(s.stages)):
        stage = s.find_stage(view.tensor)
        if not isinstance(stage.op, ComputeOp) or isinstance(stage.place, Inlined):
            continue
        if not stage.is_output and _attach(s, stage, hosts):
            continue
        loops = [a.var for a in view.axis]
        if not loops:
            continue
        flat = view.fuse(*loops) if len(loops) > 1 else loops[0]
        block, thread = view.split(flat, factor=threads)
        view.bind(block, "blockIdx.x")
        view.bind(thread, "threadIdx.x")
        hosts[id(s.find_stage(view.tensor))] = (view.tensor, thread)


def _attach(s: Schedule, stage: Stage, hosts: dict[int, tuple[Tensor, Var]]) -> bool:
    """Computes a stage in the threads of its one consumer, if each needs one element of it."""
    consumers = s.analysis.consumers[id(stage)]
    if len(consumers) != 1 or len(stage.outputs) != 1:
        return False
    host = next((h for k, h in hosts.items() if s.find_stage(h[0]) is consumers[0]), None)
    if host is None:
        return False
    view = s[stage.key]
    try:
        view.compute_at(s[host[0]], host[1])
    except ScheduleError:
        return False
    placed = s.analysis.of(s.find_stage(stage.key))
    spatial = [e for (_, e), a in zip(placed.domain, placed.stage.axes, strict=True) if a.kind == "spatial"]
    if not all(isinstance(e, Const) and e.value == 1 for e in spatial):
        view.compute_root()
        return False
    view.set_scope("local")
    return True
