"""What a stage computed at the end of a loop iteration may compute: the points whose inputs are ready by then.

    for i_o in 0..4:                       B makes i_o*8 .. i_o*8 + 8 in one iteration, so
      for i_i in 0..8: B(i_o*8 + i_i)      C[i] = B[i + 2] has C on i_o*8 - 2 .. i_o*8 + 6 behind it
      for i in 0..8: C(i_o*8 + i - 2)

A tile is what a stage has made while some loops stand still. It must be exact: a hull would claim elements that another
iteration makes. What a tile does not hold cannot be read in its iteration, and what comes later in the loop body cannot
be read at all; `check_order` proves both for every read, and finds the order of the nests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.bodies import Read
from schedule.error import Refusal
from schedule.region import Domain, read_ranges, tensor_domain
from schedule.replay import axis_ranges
from schedule.state import AtLoop, Loop, Stage
from tensorir.arith import Analyzer
from tensorir.buffer import Range
from tensorir.expr import Const, Expr, Var, const, less_equal
from tensorir.te import ComputeOp, PlaceholderOp, ScanOp, Tensor

if TYPE_CHECKING:
    from schedule.analysis import Analysis, Placed

Chain = tuple[tuple[Stage, Loop], ...]


def chain_of(placed: Placed) -> Chain:
    """All loops around the block of a stage, with the stage that each belongs to."""
    return (*placed.path, *((placed.stage, loop) for loop in placed.nest.loops))


def ready_domain(
    stage: Stage, reads: tuple[Read, ...], makers: tuple[Placed, ...], path: Chain
) -> tuple[Domain, tuple[bool, ...]]:
    """The domain of `stage` behind one iteration of the loops of `path`, and for each axis whether it may leave the
    tensor. `makers` are the stages it reads that have loops there; axes that none of their tiles decides are whole."""
    analyzer = Analyzer()
    for _, loop in path:
        analyzer.bind(loop.var, const(0), loop.extent)
    drivers: dict[Var, Range] = {}
    for maker in makers:
        tile = made_in(maker, tuple(loop for _, loop in path))
        if tile is not None:
            _find_drivers(stage, reads, maker, tile, analyzer, drivers)
    domain: list[tuple[Expr, Expr]] = []
    may_leave: list[bool] = []
    for axis in stage.axes:
        found = drivers.get(axis.var)
        if found is None:
            domain.append((axis.begin, axis.extent))
            may_leave.append(False)
            continue
        begin, extent = analyzer.simplify(found.begin), analyzer.simplify(found.extent)
        inside = analyzer.prove(less_equal(axis.begin, begin)) and analyzer.prove(
            less_equal(begin + extent, axis.begin + axis.extent)
        )
        domain.append((begin, extent))
        may_leave.append(not inside)
    return tuple(domain), tuple(may_leave)


def _find_drivers(
    stage: Stage,
    reads: tuple[Read, ...],
    maker: Placed,
    tile: tuple[Range, ...],
    analyzer: Analyzer,
    drivers: dict[Var, Range],
) -> None:
    """Adds the range of each axis read as `axis + offset` in a dimension of the maker whose whole range it sweeps."""
    for read in reads:
        if read.indices is None or not any(read.tensor is t for t in maker.stage.outputs):
            continue
        for axis in stage.axes:
            if axis.var in drivers or axis.kind != "spatial":
                continue
            for dimension, index in enumerate(read.indices):
                offset = analyzer.simplify(index - axis.var)
                if not isinstance(offset, Const):
                    continue
                own = maker.stage.axes[dimension]
                begin = axis.begin + offset
                if analyzer.prove(less_equal(own.begin, begin)) and analyzer.prove(
                    less_equal(begin + axis.extent, own.begin + own.extent)
                ):
                    drivers[axis.var] = Range(tile[dimension].begin - offset, tile[dimension].extent)
                    break


def made_in(placed: Placed, still: tuple[Loop, ...]) -> tuple[Range, ...] | None:
    """The elements that a stage has made when one iteration of the loops of `still` is over, one range a dimension;
    None if they are not known exactly or a reduction goes on."""
    fixed = [loop.var for loop in still]
    ids = {id(v) for v in fixed}
    if any(loop.kind == "reduce" and id(loop.var) in ids for loop in placed.nest.loops):
        return None
    if any(id(loop.var) not in ids for _, loop in placed.path) or isinstance(placed.stage.op, ScanOp):
        return None
    exact: dict[Var, bool] = {}
    ranges = axis_ranges(placed.nest, fixed, exact, whole_axes=not placed.path)
    result = []
    for axis, root, (begin, _) in zip(placed.stage.axes, placed.stage.roots, placed.domain, strict=True):
        if axis.kind != "spatial":
            continue
        if not exact[root]:
            return None
        low, extent = ranges[root]
        result.append(Range(begin + low, extent))
    return tuple(result)


# ------------------------------------------------------------------------------------------------------------- order


def check_order(analysis: Analysis) -> tuple[Placed, ...]:
    """The nests at root in an order in which they can run. Raises `Refusal` where something is read before it is made.

    Without stages at the end of loops the order of declaration always does."""
    roots = tuple(p for p in analysis.placed if not isinstance(p.stage.place, AtLoop))
    if not any(isinstance(p.stage.place, AtLoop) and p.stage.place.after for p in analysis.placed):
        return roots
    position = {id(p.stage): n for n, p in enumerate(analysis.placed)}
    needs: dict[int, set[int]] = {id(p.stage): set() for p in roots}
    for user in analysis.placed:
        for tensor in _tensors_read(user):
            if analysis.state.is_state(tensor):
                continue
            maker = analysis.find(analysis.state.stage_of(tensor))
            if maker is None:
                continue
            first, second = _root_of(maker), _root_of(user)
            if first is not second:
                needs[id(second)].add(id(first))
                continue
            _check_read(maker, user, tensor, position)
    return _sorted(roots, needs)


def _tensors_read(user: Placed) -> list[Tensor]:
    return list({id(r.tensor): r.tensor for r in user.body.reads}.values())


def _root_of(placed: Placed) -> Stage:
    return placed.path[0][0] if placed.path else placed.stage


def _sorted(roots: tuple[Placed, ...], needs: dict[int, set[int]]) -> tuple[Placed, ...]:
    left, order = list(roots), []
    done: set[int] = set()
    while left:
        ready = next((p for p in left if needs[id(p.stage)] <= done), None)
        if ready is None:
            names = ", ".join(p.stage.name for p in left)
            moved = [p for p in left if isinstance(p.stage.op, (ComputeOp, PlaceholderOp))]
            raise Refusal(
                f"the nests of {names} would each have to run before the other", loops=_first_loops(moved),
                help="a stage at the end of another nest cannot read what is computed from that nest elsewhere",
            )  # fmt: skip
        left.remove(ready)
        done.add(id(ready.stage))
        order.append(ready)
    return tuple(order)


def _first_loops(placed: list[Placed]) -> tuple[Var, ...]:
    return tuple(p.nest.loops[0].var for p in placed if p.nest.loops)


def _check_read(maker: Placed, user: Placed, tensor: Tensor, position: dict[int, int]) -> None:
    """One stage reads another in the same nest: it stands later in the body of the innermost loop that both share, and
    reads there only what this iteration has made."""
    if isinstance(maker.stage.place, AtLoop) and not maker.stage.place.after:
        return
    makers, users = chain_of(maker), user.path
    shared = 0
    while shared < min(len(makers), len(users)) and makers[shared][1].var is users[shared][1].var:
        shared += 1
    owner, loop = makers[shared - 1] if shared else (user.stage, None)
    place = user.stage.place
    cause = place.call if isinstance(place, AtLoop) else None
    where = f"loop {loop.name} of {owner.name}" if loop is not None else "the program"
    loops = () if loop is None else (loop.var,)
    if _slot(maker, shared, owner, position) >= _slot(user, shared, owner, position):
        raise Refusal(
            f"{user.stage.name} reads {maker.stage.name}, which is computed after it in {where}", loops=loops,
            cause=cause, help=f"call s[{user.stage.name}].reverse_compute_at, or attach it elsewhere",
        )  # fmt: skip
    still = tuple(loop for _, loop in makers[:shared])
    tile = made_in(maker, still)
    if tile is None:
        inner = [x for _, x in makers[shared:]]
        reason = next(
            (f"its reduce loop {x.name} is not over" for x in still if x.kind == "reduce"),
            f"what it has made by then is no rectangle ({', '.join(x.name for x in inner) or 'no loop'} runs inside)",
        )
        raise Refusal(
            f"{user.stage.name} reads {maker.stage.name} inside {where}, but {reason}", loops=loops, cause=cause,
            help="attach it to a loop outside the reduce loops, or outside loops that split or fuse unevenly",
        )  # fmt: skip
    analyzer = Analyzer()
    for x in still:
        analyzer.bind(x.var, const(0), x.extent)
    fixed = [x.var for x in still]
    for read in read_ranges(maker.stage, user, fixed, len(tile), analyzer):
        for dimension, (part, made) in enumerate(zip(read, tile, strict=True)):
            whole = tensor_domain(maker.stage.axes)[dimension]
            if part is not None and _holds(part, made, whole, analyzer):
                continue
            text = "unknown elements" if part is None else _ends(part, analyzer)
            raise Refusal(
                f"{user.stage.name} reads more of {tensor.name} than {where} has made: dimension {dimension} is read"
                f" on {text}, made on {_ends(made, analyzer)}", loops=loops, cause=cause,
                help=f"attach {user.stage.name} to a loop further out, or use"
                f" s[{maker.stage.name}].compute_at(s[{user.stage.name}], ...)",
            )  # fmt: skip


def _ends(part: Range, analyzer: Analyzer) -> str:
    return f"{analyzer.simplify(part.begin)!r} .. {analyzer.simplify(part.begin + part.extent)!r}"


def _holds(part: Range, made: Range, whole: tuple[Expr, Expr], analyzer: Analyzer) -> bool:
    begin, end = analyzer.simplify(part.begin), analyzer.simplify(part.begin + part.extent)
    low = analyzer.prove(less_equal(made.begin, begin)) or (
        analyzer.prove(less_equal(made.begin, whole[0])) and analyzer.prove(less_equal(whole[0], begin))
    )
    last = analyzer.simplify(made.begin + made.extent)
    high = analyzer.prove(less_equal(end, last)) or analyzer.prove(less_equal(whole[0] + whole[1], last))
    return low and high


def _slot(placed: Placed, shared: int, owner: Stage, position: dict[int, int]) -> tuple[int, int]:
    """Where a stage stands in the body of the last shared loop: before the owner's own work, in it, or after it."""
    item = placed.path[shared][0] if len(placed.path) > shared else placed.stage
    if item is owner:
        return 1, 0
    place = item.place
    return (2 if isinstance(place, AtLoop) and place.after else 0), position[id(item)]
