"""What a producer attached at a loop must compute: the hull of what its consumers read while that loop stands still.

    C[i] = B[i] + B[i + 2], C split by 8, B at i_o     ->   B on i_o*8 .. i_o*8 + 10

The hull may leave the tensor (padding behind a condition, a guarded tail); then the caller guards the points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.replay import axis_ranges, ceildiv, constant
from schedule.state import Loop, Stage
from schedule.threads import shares_over
from tensorir.arith import Analyzer, regions
from tensorir.buffer import Range
from tensorir.expr import Const, Expr, IterVar, Load, Var, const, less_equal
from tensorir.visit import free_vars, substitute, walk_expr

if TYPE_CHECKING:
    from schedule.analysis import Placed

Domain = tuple[tuple[Expr, Expr], ...]
"""(begin, extent) of each axis, spatial axes first."""


def tensor_domain(axes: tuple[IterVar, ...]) -> Domain:
    """The whole domain of an operation."""
    return tuple((a.begin, a.extent) for a in axes)


def required_domain(
    stage: Stage, path: tuple[tuple[Stage, Loop], ...], users: tuple[Placed, ...]
) -> tuple[Domain, tuple[bool, ...]]:
    """The domain of `stage` computed inside the loops of `path`, and for each axis whether it may leave the tensor."""
    analyzer = Analyzer()
    for _, loop in path:
        analyzer.bind(loop.var, const(0), loop.extent)
    fixed = [loop.var for _, loop in path if not shares_over(stage, loop)]
    rank = len(stage.outputs[0].shape)
    ranges: list[Range | None] | None = None
    for user in users:
        for read in read_ranges(stage, user, fixed, rank, analyzer):
            ranges = read if ranges is None else [_union(a, b, analyzer) for a, b in zip(ranges, read, strict=True)]
    domain: list[tuple[Expr, Expr]] = []
    may_leave: list[bool] = []
    for number, axis in enumerate(stage.axes):
        found = ranges[number] if ranges is not None and number < rank else None
        begin, extent = axis.begin, axis.extent
        leaves = False
        if found is not None and _is_usable(found, fixed, axis, analyzer):
            begin, extent = analyzer.simplify(found.begin), analyzer.simplify(found.extent)
            if number < len(stage.multiples) and stage.multiples[number] > 1:
                extent = analyzer.simplify(ceildiv(extent, const(stage.multiples[number])) * stage.multiples[number])
            leaves = not (
                analyzer.prove(less_equal(axis.begin, begin))
                and analyzer.prove(less_equal(begin + extent, axis.begin + axis.extent))
            )
        domain.append((begin, extent))
        may_leave.append(leaves)
    return tuple(domain), tuple(may_leave)


def read_ranges(
    stage: Stage, user: Placed, fixed: list[Var], rank: int, analyzer: Analyzer
) -> list[list[Range | None]]:
    """The range of each dimension that each read of `user` covers; None where nothing is known."""
    still = {id(v) for v in fixed}
    own = axis_ranges(user.nest, fixed)
    env: dict[Var, Range] = {}
    for axis, root, (begin, _) in zip(user.stage.axes, user.stage.roots, user.domain, strict=True):
        low, extent = own[root]
        env[axis.var] = Range(begin + low, extent)
    running = {loop.var: Range(const(0), loop.extent) for _, loop in user.path if id(loop.var) not in still}
    result: list[list[Range | None]] = []
    for read in user.body.reads:
        if not any(t is read.tensor for t in stage.outputs):
            continue
        if read.indices is None:
            result.append([None] * rank)
            continue
        by_axes = [_relax(index_range(index, env, analyzer), running, analyzer) for index in read.indices]
        if not user.path and all(isinstance(i, Var) for i in read.indices):
            result.append(by_axes)  # one axis an index: nothing that could cancel
            continue
        by_loops = _over_loops(user, still, read.indices)
        result.append([_smaller(a, b) for a, b in zip(by_axes, by_loops, strict=True)])
    return result


def _over_loops(user: Placed, still: set[int], indices: tuple[Expr, ...]) -> list[Range | None]:
    """The ranges with the indices written over the loops first: axes that one loop moves together (the two halves of a
    fused loop) may cancel, as in (p // w) * w + p % w = p."""
    analyzer = Analyzer()
    env: dict[Var, Range] = {}
    for loop in (*(loop for _, loop in user.path), *user.nest.loops):
        analyzer.bind(loop.var, const(0), loop.extent)
        if id(loop.var) not in still:
            env[loop.var] = Range(const(0), loop.extent)
    mapping = {axis.var: value for axis, value in zip(user.stage.axes, user.bindings, strict=True)}
    return [index_range(analyzer.simplify(substitute(index, mapping)), env, analyzer) for index in indices]


def _smaller(a: Range | None, b: Range | None) -> Range | None:
    """The range known to be smaller; the first unless both have constant extents or it is unknown."""
    if a is None or b is None:
        return b if a is None else a
    x, y = constant(a.extent), constant(b.extent)
    return b if y is not None and (x is None or y < x) else a


def _relax(found: Range | None, running: dict[Var, Range], analyzer: Analyzer) -> Range | None:
    """The range when the loops of `running`, on which it depends, run too."""
    if found is None or not running:
        return found
    if any(v in running for v in free_vars(found.extent)):
        return None
    moved = index_range(found.begin, running, analyzer)
    return None if moved is None else Range(moved.begin, moved.extent + found.extent - 1)


def _union(a: Range | None, b: Range | None, analyzer: Analyzer) -> Range | None:
    return None if a is None or b is None else union_ranges(a, b, analyzer)


def _is_usable(found: Range, fixed: list[Var], axis: IterVar, analyzer: Analyzer) -> bool:
    """Whether a range is worth more than the whole axis: known in the loops around, and smaller."""
    extent = constant(analyzer.simplify(found.extent))
    whole = constant(axis.extent)
    if extent is not None and whole is not None:
        return extent < whole
    if analyzer.prove(less_equal(axis.extent, found.extent)):
        return False
    allowed = {id(v) for v in (*fixed, *free_vars(axis.extent))}
    known = {id(v) for v in (*free_vars(found.begin), *free_vars(found.extent))}
    return known <= allowed or extent is not None


# --------------------------------------------------------------------------------------------------- ranges of an index


def index_range(index: Expr, env: dict[Var, Range], analyzer: Analyzer) -> Range | None:
    """The values of `index` while the variables of `env` run over their ranges; None where nothing is known, as of an
    index in memory. An extent that depends on loops is the largest that it can be, so that loops stay constant."""
    if any(isinstance(e, Load) for e in walk_expr(index)):
        return None
    found = regions.index_range(index, {v: (r.begin, r.extent) for v, r in env.items()}, analyzer)
    return None if found is None else _constant_extent(found, analyzer)


def union_ranges(a: Range, b: Range, analyzer: Analyzer) -> Range:
    """The hull of two ranges."""
    found = regions.union_ranges([(a.begin, a.extent), (b.begin, b.extent)], analyzer)
    assert found is not None
    return _constant_extent(found, analyzer)


def _constant_extent(found: tuple[Expr, Expr], analyzer: Analyzer) -> Range:
    begin, extent = analyzer.simplify(found[0]), analyzer.simplify(found[1])
    most = None if isinstance(extent, Const) else analyzer.bounds(extent).hi
    return Range(begin, extent if most is None else const(most))
