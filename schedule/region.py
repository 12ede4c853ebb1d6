"""What a producer attached at a loop must compute: the hull of what its consumers read while that loop stands still.

    C[i] = B[i] + B[i + 2], C split by 8, B at i_o     ->   B on i_o*8 .. i_o*8 + 10

The hull may leave the tensor (padding behind a condition, a guarded tail); then the caller guards the points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.replay import axis_ranges, ceildiv, constant
from schedule.state import Loop, Stage
from tensorir.arith import Analyzer
from tensorir.arith.canonical import QUOTIENT, VAR, Atom, Linear
from tensorir.buffer import Range
from tensorir.dtypes import INDEX
from tensorir.expr import Expr, IterVar, Var, const, equal, floordiv, floormod, less_equal, maximum, minimum
from tensorir.visit import free_vars, substitute

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
    fixed = [loop.var for _, loop in path if not _shares_over(stage, loop)]
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


def _shares_over(stage: Stage, loop: Loop) -> bool:
    """Whether the iterations of a loop are threads that share the storage of `stage`: all they read is computed."""
    tag = "" if loop.thread is None else loop.thread.tag
    return tag.startswith(("threadIdx", "vthread")) and any(b.scope == "shared" for b in stage.buffers)


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
    """The values of `index` while the variables of `env` run over their ranges; None where nothing is known."""
    found = _form_range(analyzer.linear(index), env, analyzer)
    return None if found is None else Range(analyzer.simplify(found[0]), analyzer.simplify(found[1]))


def _form_range(form: Linear, env: dict[Var, Range], analyzer: Analyzer) -> tuple[Expr, Expr] | None:
    view = analyzer.view(form)
    begin: Expr = const(view.const)
    extent: Expr = const(1)
    for atom, k in view.terms.items():
        part = _atom_range(atom, env, analyzer)
        if part is None:
            return None
        begin, extent = _add_scaled(begin, extent, part, k)
    for item, k in view.remainders:
        inner = _form_range(item.value, env, analyzer)
        if inner is None:
            return None
        divisor = const(item.divisor) if isinstance(item.divisor, int) else analyzer.emit(item.divisor, INDEX)
        part = _remainder_range(inner, divisor, analyzer)
        begin, extent = _add_scaled(begin, extent, part, k)
    return begin, extent


def _add_scaled(begin: Expr, extent: Expr, part: tuple[Expr, Expr], k: int) -> tuple[Expr, Expr]:
    low, size = part
    start = low if k > 0 else low + size - 1
    return begin + start * k, extent + (size - 1) * abs(k)


def _atom_range(atom: Atom, env: dict[Var, Range], analyzer: Analyzer) -> tuple[Expr, Expr] | None:
    if not any(v in env for v in atom.variables):
        return (analyzer.emit(analyzer.of(atom), INDEX), const(1)) if not atom.data else None
    if atom.kind == VAR:
        found = env[atom.args[0]]
        return found.begin, found.extent
    if atom.kind == QUOTIENT and not atom.args[1].terms:
        inner = _form_range(atom.args[0], env, analyzer)
        if inner is None:
            return None
        low, size = inner
        divisor = atom.args[1].const
        if analyzer.prove(equal(floormod(low, divisor), 0)):
            return floordiv(low, divisor), floordiv(size + (divisor - 1), divisor)
        if constant(analyzer.simplify(size)) == 1:
            return floordiv(low, divisor), const(1)
        return floordiv(low, divisor), floordiv(size + (divisor - 2), divisor) + 1
    return None


def _remainder_range(inner: tuple[Expr, Expr], divisor: Expr, analyzer: Analyzer) -> tuple[Expr, Expr]:
    low, size = inner
    first = floormod(low, divisor)
    if constant(analyzer.simplify(size)) == 1:
        return first, size
    if analyzer.prove(less_equal(first + size, divisor)):
        return first, size
    return const(0), divisor


def union_ranges(a: Range, b: Range, analyzer: Analyzer) -> Range:
    """The hull of two ranges."""
    begin = _least(a.begin, b.begin, analyzer)
    shift_a, shift_b = analyzer.simplify(a.begin - begin), analyzer.simplify(b.begin - begin)
    extent = maximum(shift_a + a.extent, shift_b + b.extent)
    return Range(begin, analyzer.simplify(extent))


def _least(a: Expr, b: Expr, analyzer: Analyzer) -> Expr:
    if analyzer.prove(less_equal(a, b)):
        return a
    return b if analyzer.prove(less_equal(b, a)) else analyzer.simplify(minimum(a, b))
