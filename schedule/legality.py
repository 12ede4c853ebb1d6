"""The rules that a whole state keeps, whatever primitive led to it.

A place encloses every reader of what is computed there; outputs stay at root; nothing is computed inside a vectorized
loop; parallel loops do not nest; the initial value of a reduction is stored outside all its reduce loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.bodies import Body
from schedule.error import Refusal
from schedule.intrinsic import match
from schedule.state import Annotate, AtLoop, AtRoot, Call, Decompose, Inlined, Loop, Prefetch, Stage, State, Unit
from schedule.threads import check_threads
from tensorir.expr import Expr
from tensorir.visit import free_vars

if TYPE_CHECKING:
    from schedule.analysis import Analysis, Placed


def find_consumers(state: State, bodies: dict[int, Body]) -> dict[int, tuple[Stage, ...]]:
    """The stages with a nest that read each stage, by the id of its record."""
    by_tensor = {id(t): s for s in state.stages for t in s.outputs}
    found: dict[int, list[Stage]] = {id(s): [] for s in state.stages}
    for stage in state.stages:
        if isinstance(stage.place, Inlined):
            continue
        for read in bodies[id(stage)].reads:
            if id(read.tensor) not in by_tensor:  # the state of a scan
                continue
            users = found[id(by_tensor[id(read.tensor)])]
            if not any(u is stage for u in users):
                users.append(stage)
    return {k: tuple(v) for k, v in found.items()}


def check_places(state: State) -> None:
    """The part of the rules on places that needs no loops. Raises `Refusal`."""
    for stage in state.stages:
        _check_prefetches(state, stage)
        at = stage.place
        if not isinstance(at, (AtLoop, Inlined)):
            continue
        if stage.is_output and not (isinstance(at, AtLoop) and at.after):
            raise Refusal(
                f"{stage.name} is an output of the program: all of it must be stored", cause=at.call,
                help=f"leave {stage.name} at root, or do not pass it to create_schedule if nobody needs it",
            )  # fmt: skip
        if isinstance(at, AtLoop) and isinstance((host := state.stage_of(at.target)).place, Inlined):
            raise Refusal(
                f"{stage.name} is computed at loop {at.loop.name} of {host.name}, so {host.name} must keep its loops",
                cause=at.call, help=f"call s[{stage.name}].compute_root() or attach it to another stage first",
            )  # fmt: skip


def _check_prefetches(state: State, stage: Stage) -> None:
    for step in stage.history:
        if not isinstance(step, Prefetch):
            continue
        source = state.stage_of(step.tensor)
        if not isinstance(source.place, AtRoot) or any(b.scope != "global" for b in source.buffers):
            raise Refusal(
                f"{source.name} is prefetched and so must be in global memory over the whole program",
                cause=step.call, loops=(step.loop,),
                help="prefetch inputs and stages at root: what is computed close by is in the cache",
            )  # fmt: skip


def require_ready_host(stage: Stage, at: AtLoop, host: Stage) -> None:
    """What is computed at the end of a loop follows a nest that runs once: one at root, or itself at the end of one."""
    place = host.place
    if isinstance(place, AtRoot) or (isinstance(place, AtLoop) and place.after):
        return
    raise Refusal(
        f"{stage.name} is computed after {host.name}, so {host.name} must be computed once, at root", cause=at.call,
        help=f"call s[{stage.name}].compute_root() first"
        if not isinstance(place, Inlined) else f"call s[{host.name}].compute_root() first",
    )  # fmt: skip


def require_encloses(
    stage: Stage, at: AtLoop, host: Placed | None, host_stage: Stage, users: tuple[Placed, ...]
) -> None:
    """Every reader of `stage` is inside loop `at.loop` of the host. Raises `Refusal` that lists readers and places."""
    outside = [u for u in users if not (host is not None and _is_inside(u, host, at))]
    if host is not None and not outside:
        return
    readers = tuple(
        f"note: {stage.name} is read by {u.stage.name}, computed {_where(u)}"
        + ("" if any(u is o for o in outside) else ", which is inside")
        for u in users
    )
    places = legal_places(users)
    listed = ", ".join(f"loop {loop.name} of {owner.name}" for owner, loop in places)
    names = ", ".join(u.stage.name for u in outside)
    raise Refusal(
        f"{stage.name} would be computed at loop {at.loop.name} of {host_stage.name},"
        f" but {names} reads it outside that loop"
        if outside else f"{host_stage.name} does not read {stage.name}",
        loops=(at.loop,), notes=readers, cause=at.call,
        help=f"legal places are {listed} and root" if listed else "the only legal place is root",
    )  # fmt: skip


def _is_inside(user: Placed, host: Placed, at: AtLoop) -> bool:
    return user is host or any(loop.var is at.loop for _, loop in user.path)


def _where(user: Placed) -> str:
    at = user.stage.place
    return f"at loop {at.loop.name} of {user.path[-1][0].name}" if isinstance(at, AtLoop) else "at root"


def legal_places(users: tuple[Placed, ...]) -> tuple[tuple[Stage, Loop], ...]:
    """The loops that enclose all of `users`, outermost first, up to the first vectorized one."""
    common: list[tuple[Stage, Loop]] | None = None
    for user in users:
        chain = [*user.path, *((user.stage, loop) for loop in user.nest.loops)]
        if common is None:
            common = chain
        else:
            length = 0
            while length < min(len(common), len(chain)) and common[length][1].var is chain[length][1].var:
                length += 1
            common = common[:length]
    result: list[tuple[Stage, Loop]] = []
    for owner, loop in common or ():
        if loop.annotation == "vectorized":
            break
        result.append((owner, loop))
    return tuple(result)


def check_double(analysis: Analysis, placed: Placed) -> None:
    """A stage in two copies is computed one iteration ahead of the loop that it stands in. Raises `Refusal`."""
    stage, at = placed.stage, placed.stage.place
    cause = stage.double

    def refuse(what: str, *loops: Loop, help: str) -> None:
        raise Refusal(f"{stage.name} has two copies in turn, {what}", loops=tuple(x.var for x in loops), cause=cause,
                      help=help)  # fmt: skip

    if not isinstance(at, AtLoop) or at.after:
        refuse("one of which is filled while the other is read, so it must be computed at a loop",
               help=f"call s[{stage.name}].compute_at(...) first")  # fmt: skip
        return
    owner, loop = placed.path[-1]
    if loop.annotation != "serial":
        refuse(f"but {loop.name} of {owner.name} is {loop.annotation}: there is no next iteration", loop,
               help="compute it at a serial loop inside")  # fmt: skip
    for read in placed.body.reads:
        if analysis.state.is_state(read.tensor):
            refuse("but it reads the step before, which is not made one step ahead", loop,
                   help="keep one copy")  # fmt: skip
            continue
        maker = analysis.find(analysis.state.stage_of(read.tensor))
        if maker is not None and any(x is loop for _, x in maker.path):
            refuse(f"but {maker.stage.name}, which it reads, is computed in the same iteration of {loop.name}", loop,
                   help=f"compute {maker.stage.name} outside {loop.name}, or inline it")  # fmt: skip
    for x in placed.nest.loops:
        for child in (*analysis.attached(placed, x.var), *analysis.attached(placed, x.var, after=True)):
            refuse(f"but {child.stage.name} is computed at its loop {x.name}", x,
                   help=f"attach {child.stage.name} elsewhere or inline it")  # fmt: skip


def check_nests(analysis: Analysis) -> None:
    """The rules on loops inside loops. Raises `Refusal`."""
    for placed in analysis.placed:
        stage, nest = placed.stage, placed.nest
        if stage.double is not None:
            check_double(analysis, placed)
        for owner, loop in placed.path:
            if loop.annotation == "vectorized":
                assert isinstance(stage.place, AtLoop)
                raise Refusal(
                    f"{stage.name} cannot be computed at or inside loop {loop.name} of {owner.name}:"
                    " the loop is vectorized, so its iterations are lanes of one instruction",
                    loops=(loop.var,), cause=_annotation_call(owner, loop) or stage.place.call,
                    help=f"attach {stage.name} to a loop outside {loop.name}",
                )  # fmt: skip
        _check_kinds(placed)
        check_threads(placed)
        _check_units(placed)
        _check_steps(analysis, placed)
        for step in nest.prefetches:
            if isinstance(step.distance, Expr):
                loops_of_distance(placed, step, step.distance)
        if nest.init_before is not None:
            first = nest.position(nest.init_before)
            for loop in nest.loops[:first]:
                if loop.kind == "reduce":
                    raise Refusal(
                        f"the initial value of {stage.name} must be stored outside every reduce loop,"
                        f" but {loop.name} encloses {nest.init_before.name}",
                        loops=(loop.var, nest.init_before), cause=_decompose_call(stage),
                        help=f"decompose at {loop.name} or a loop outside it",
                    )  # fmt: skip


def loops_of_distance(placed: Placed, step: Prefetch, distance: Expr) -> list[Loop]:
    """The loops around a prefetch whose variables its distance speaks of. Raises `Refusal` for another variable."""
    around = [loop for _, loop in placed.path]
    around += placed.nest.loops[: placed.nest.position(step.loop) + 1]
    found = {id(loop.var): loop for loop in around}
    names = free_vars(distance)
    for var in names:
        if id(var) not in found:
            raise Refusal(
                f"the distance speaks of {var.name}, which is no loop around {step.tensor.name}'s prefetch",
                loops=(step.loop,), cause=step.call,
                help="transform the loops first and prefetch last; speak of the loops that stand then",
            )  # fmt: skip
    return [found[id(v)] for v in names]


def _check_steps(analysis: Analysis, placed: Placed) -> None:
    """What reads the earlier steps of a scan is one of its steps."""
    for read in placed.body.reads:
        if not analysis.state.is_state(read.tensor):
            continue
        scan = analysis.state.scan_of(read.tensor)
        assert scan is not None
        if not any(loop.var is scan.roots[0] for _, loop in placed.path):
            at = placed.stage.place
            raise Refusal(
                f"{placed.stage.name} reads the earlier steps of {scan.name}, so it must be computed at loop"
                f" {scan.roots[0].name} of {scan.name} or inside", loops=(scan.roots[0],),
                cause=at.call if isinstance(at, AtLoop) else None,
                help=f"call s[{placed.stage.name}].compute_at(s[{scan.name}], {scan.roots[0].name})",
            )  # fmt: skip


def _check_units(placed: Placed) -> None:
    for owner, loop in placed.path:
        unit = next((s for s in reversed(owner.history) if isinstance(s, Unit)), None)
        if unit is not None and loop.var is unit.loop:
            at = placed.stage.place
            raise Refusal(
                f"{placed.stage.name} cannot be computed inside the block of {owner.name} that begins at loop"
                f" {loop.name}", loops=(loop.var,), cause=at.call if isinstance(at, AtLoop) else None,
                notes=(f"note: made one block by {unit.call}",),
                help=f"attach {placed.stage.name} to a loop outside {loop.name}",
            )  # fmt: skip
    if placed.nest.unit is not None and placed.nest.unit.intrinsic is not None:
        match(placed, placed.nest.unit, placed.nest.unit.intrinsic)


def _check_kinds(placed: Placed) -> None:
    parallel: tuple[Stage, Loop] | None = None
    vector: Loop | None = None
    own = [(placed.stage, loop) for loop in placed.nest.loops]
    for owner, loop in (*placed.path, *own):
        if loop.annotation == "parallel":
            if parallel is not None:
                raise Refusal(
                    f"parallel loops do not nest: {loop.name} of {owner.name} is inside the parallel loop"
                    f" {parallel[1].name} of {parallel[0].name}",
                    loops=(parallel[1].var, loop.var), cause=_annotation_call(owner, loop),
                    help="fuse the loops and make the fused one parallel, or keep only the outer one parallel",
                )  # fmt: skip
            if vector is not None:
                raise Refusal(
                    f"the parallel loop {loop.name} is inside the vectorized loop {vector.name}",
                    loops=(vector.var, loop.var), cause=_annotation_call(owner, loop),
                    help=f"reorder {loop.name} outside {vector.name} first",
                )  # fmt: skip
            parallel = (owner, loop)
        elif loop.annotation == "vectorized":
            if vector is not None:
                raise Refusal(
                    f"the vectorized loop {loop.name} is inside the vectorized loop {vector.name}",
                    loops=(vector.var, loop.var), cause=_annotation_call(owner, loop),
                    help="vectorize only the inner one, or fuse the two first",
                )  # fmt: skip
            vector = loop


def _annotation_call(stage: Stage, loop: Loop) -> Call | None:
    for step in reversed(stage.history):
        if isinstance(step, Annotate) and step.loop is loop.var:
            return step.call
    return None


def _decompose_call(stage: Stage) -> Call | None:
    for step in reversed(stage.history):
        if isinstance(step, Decompose):
            return step.call
    return None
