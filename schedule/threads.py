"""Stages inside loops bound to threads: which threads compute what all of a block share, and which bindings mean
something.

A loop bound to an axis that an enclosing loop has is the same threads again. That is a division of work only for
storage that these threads share; a stage that each thread has for itself computes all it needs in that thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.error import Refusal
from schedule.replay import constant
from schedule.state import Annotate, Call, Loop, Stage

if TYPE_CHECKING:
    from schedule.analysis import Placed
    from schedule.replay import Nest

_SHARING = ("threadIdx", "vthread")


def tag_of(loop: Loop) -> str:
    """The axis a loop is bound to, empty if none."""
    return "" if loop.thread is None else loop.thread.tag


def is_shared(stage: Stage) -> bool:
    """Whether the threads of a block share the storage of a stage."""
    return any(b.scope == "shared" for b in stage.buffers)


def shares_over(stage: Stage, loop: Loop) -> bool:
    """Whether the iterations of a loop are threads that share the storage of `stage`."""
    return tag_of(loop).startswith(_SHARING) and is_shared(stage)


def idle_threads(stage: Stage, path: tuple[tuple[Stage, Loop], ...], nest: Nest) -> list[Loop]:
    """The thread loops around a shared stage over whose threads it does not divide its work; each axis once."""
    own = {tag_of(loop) for loop in nest.loops}
    found: dict[str, Loop] = {}
    for _, loop in path:
        if shares_over(stage, loop) and tag_of(loop) not in own:
            found.setdefault(tag_of(loop), loop)
    return list(found.values())


def check_threads(placed: Placed) -> None:
    """Raises `Refusal` for bindings that leave something out or compute it twice."""
    stage = placed.stage
    around = {tag_of(loop): loop for _, loop in placed.path if loop.thread is not None}
    seen: dict[str, Loop] = {}
    for loop in placed.nest.loops:
        tag = tag_of(loop)
        if not tag:
            continue
        if tag in seen:
            raise Refusal(
                f"{seen[tag].name} and {loop.name} of {stage.name} are both bound to {tag}",
                loops=(seen[tag].var, loop.var), cause=_call(stage, loop), help="bind one of them to another axis",
            )  # fmt: skip
        seen[tag] = loop
        if tag.startswith("blockIdx") and around:
            raise Refusal(
                f"{loop.name} of {stage.name} is bound to {tag} inside a loop that is bound to threads",
                loops=(loop.var,), cause=_call(stage, loop),
                help=f"compute {stage.name} at root to give it blocks of its own, or bind {loop.name} to threadIdx",
            )  # fmt: skip
        _require_all_threads(stage, loop, around)
        if tag in around and not is_shared(stage):
            raise Refusal(
                f"{loop.name} of {stage.name} is bound to {tag}, as {around[tag].name} around it is: each thread would"
                f" compute one part of what it needs of {stage.name}",
                loops=(around[tag].var, loop.var), cause=_call(stage, loop),
                help=f"leave {loop.name} serial, or share the work: s[{stage.name}].set_scope(\"shared\")",
            )  # fmt: skip


def _require_all_threads(stage: Stage, loop: Loop, around: dict[str, Loop]) -> None:
    """Raises `Refusal` if only some of the threads that reduce together run where the stage is computed."""
    outer = around.get(tag_of(loop))
    if outer is None or loop.kind != "reduce":
        return
    own, there = constant(loop.extent), constant(outer.extent)
    if own is not None and there is not None and own > there:
        raise Refusal(
            f"{loop.name} of {stage.name} is bound to {tag_of(loop)} and needs {own} threads to reduce together, but"
            f" {outer.name} around it has {there} of them",
            loops=(outer.var, loop.var), cause=_call(stage, loop),
            help=f"split {loop.name} by {there} and bind the inner loop, or compute {stage.name} outside {outer.name}",
        )  # fmt: skip


def _call(stage: Stage, loop: Loop) -> Call | None:
    return next((s.call for s in reversed(stage.history) if isinstance(s, Annotate) and s.loop is loop.var), None)
