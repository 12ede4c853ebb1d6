"""Reads that provably leave their tensor, found when a compute is declared.

A read is refused when it is evaluated for every point of the domain (no condition guards it) and either no point lies
inside, or the ends of its index are attained and one of them lies outside. What is merely not proved is let through:
the interpreter's sanitiser finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir.arith.analyzer import Analyzer
from tensorir.arith.canonical import MINIMUM, OPAQUE, PRODUCT, QUOTIENT, VAR, Atom, Linear, Modulo
from tensorir.errors import ComputeError
from tensorir.expr import Const, Expr, IfThenElse, Load, Reduce, Select, Var, as_expr
from tensorir.visit import children, free_vars

if TYPE_CHECKING:
    from tensorir.te import ComputeOp


def check_compute_reads(name: str, op: ComputeOp, *, earlier: bool = False) -> None:
    """Raises `ComputeError` naming the tensor, the axis, range and extent of an unguarded read out of bounds. With
    `earlier` a read of an input of as many steps as the first axis may begin before it: it may be the state of a scan,
    which then takes only the later steps."""
    analyzer = Analyzer()
    for axis in (*op.axes, *op.reduce_axes):
        if isinstance(axis.extent, Const) and int(axis.extent.value) <= 0:
            return  # nothing is evaluated
        analyzer.bind(axis.var, axis.begin, axis.extent)
    seen: set[int] = set()
    stack: list[Expr] = list(op.bodies[:1]) if isinstance(op.bodies[0], Reduce) else list(op.bodies)
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, Reduce):
            stack += [e.condition] if e.condition is not None else e.sources
        elif isinstance(e, (IfThenElse, Select)):
            stack.append(e.condition)  # the sides are guarded
        else:
            if isinstance(e, Load) and e.predicate is None:
                _check_load(name, e, op, analyzer, earlier)
            stack += children(e)


def _check_load(name: str, load: Load, op: ComputeOp, analyzer: Analyzer, earlier: bool) -> None:
    for axis, (index, extent) in enumerate(zip(load.indices, load.buffer.shape, strict=True)):
        if index.dtype.lanes != 1 or (earlier and axis == 0 and _is_earlier_step(index, extent, op, analyzer)):
            continue
        form = analyzer.linear(index)
        lo, hi = analyzer.interval(form)
        if isinstance(extent, Const):
            size = int(extent.value)
            if lo is not None and hi is not None and lo >= 0 and hi < size:
                continue
            always = (hi is not None and hi < 0) or (lo is not None and lo >= size)
            sometimes = (lo is not None and lo < 0) or (hi is not None and hi >= size)
            if always or (sometimes and _is_attained(form, analyzer)):
                raise _error(name, load, axis, op, analyzer)
        elif analyzer.prove(index < 0) or analyzer.prove(extent <= index):
            raise _error(name, load, axis, op, analyzer)


def _is_earlier_step(index: Expr, extent: Expr, op: ComputeOp, analyzer: Analyzer) -> bool:
    """Whether an index is the first axis less a constant, over as many steps."""
    if not op.axes or index.dtype != op.axes[0].var.dtype:
        return False
    distance = analyzer.simplify(index - op.axes[0].var)
    steps = analyzer.simplify(extent - op.axes[0].extent)
    return isinstance(distance, Const) and distance.value < 0 and isinstance(steps, Const) and steps.value == 0


def _is_attained(form: Linear, analyzer: Analyzer) -> bool:
    """Whether both ends of the form's interval are values of the form: its parts vary independently of each other."""
    view = analyzer.view(form)
    parts = [a.variables for a in view.terms] + [_variables(item) for item, _ in view.remainders]
    if sum(map(len, parts)) != len(frozenset().union(*parts)):
        return False
    return all(_atom_attained(a, analyzer) for a in view.terms) and all(
        _remainder_attained(item, analyzer) for item, _ in view.remainders
    )


def _variables(item: Modulo) -> frozenset[Var]:
    return frozenset(v for a in item.value.terms for v in a.variables)


def _atom_attained(atom: Atom, analyzer: Analyzer) -> bool:
    if atom.kind == OPAQUE:
        return False
    if atom.kind == VAR:
        return atom in analyzer.ranges and atom not in analyzer.symbolic and analyzer.ranges[atom].is_finite
    if atom.kind == PRODUCT:
        if len(set(atom.args)) != len(atom.args):
            return False
        return all(_atom_attained(a, analyzer) for a in atom.args)
    if atom.kind == QUOTIENT:
        return not atom.args[1].terms and _is_attained(atom.args[0], analyzer)
    assert atom.kind == MINIMUM
    met = [frozenset(v for a in x.terms for v in a.variables) for x in atom.args]
    if sum(map(len, met)) != len(frozenset().union(*met)):
        return False
    return all(_is_attained(x, analyzer) for x in atom.args)


def _remainder_attained(item: Modulo, analyzer: Analyzer) -> bool:
    """x % c attains 0 and c - 1 where x is one variable of at least c values."""
    lo, hi = analyzer.interval(item.value)
    if not isinstance(item.divisor, int) or lo is None or hi is None or len(item.value.terms) != 1:
        return False
    ((atom, k),) = item.value.terms.items()
    return atom.kind == VAR and abs(k) == 1 and hi - lo + 1 >= item.divisor and _atom_attained(atom, analyzer)


def _error(name: str, load: Load, axis: int, op: ComputeOp, analyzer: Analyzer) -> ComputeError:
    buffer, index, extent = load.buffer, load.indices[axis], load.buffer.shape[axis]
    lo, hi = analyzer.bounds(index)
    begin = "..." if lo is None else str(lo)
    end = "..." if hi is None else str(hi)
    used = {id(v) for v in free_vars(index)}
    ranges = tuple(
        f"  {a.name} runs from {a.begin!r} to {analyzer.simplify(a.begin + a.extent - 1)!r}"
        for a in (*op.axes, *op.reduce_axes)
        if id(a.var) in used
    )
    shape = ", ".join(repr(as_expr(s)) for s in buffer.shape)
    return ComputeError(
        f"compute {name}: {buffer.name} is read out of bounds: index {axis}, {index!r}, runs from {begin} to {end}, "
        f"but the extent is {extent!r} (shape ({shape}))",
        notes=ranges,
        help="make the domain smaller, or guard the read with te.if_then_else(condition, read, other)",
    )
