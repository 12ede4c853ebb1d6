"""Vector expressions: ramps and broadcasts are carried through the integer operators lane by lane.

A quotient or remainder of a ramp is a ramp or broadcast again only where no lane can cross a multiple of the divisor
(`(8*o + ramp(0, 1, 8)) % 20` is not: some lanes may wrap).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorir import dtypes
from tensorir.expr import (
    LE,
    LT,
    Add,
    Binary,
    Broadcast,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Load,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    broadcast,
    const,
    ramp,
)
from tensorir.visit import children, with_children

if TYPE_CHECKING:
    from tensorir.arith.analyzer import Analyzer


def simplify(e: Expr, analyzer: Analyzer) -> Expr:
    """A vector node with its operands simplified and, where it is one, as a ramp or a broadcast."""
    old = children(e)
    new = tuple(analyzer.simplify(c) for c in old)
    if any(a is not b for a, b in zip(new, old, strict=True)):
        e = with_children(e, new)
    if isinstance(e, Ramp) and isinstance(e.stride, Const) and not e.stride.value:
        return Broadcast(e.base, e.lanes, e.dtype)
    if new and all(isinstance(c, Broadcast) for c in new) and not isinstance(e, (Load, Ramp, Broadcast)):
        return _of_scalars(e, new, analyzer)
    if isinstance(e, Binary) and e.a.dtype.is_integer:
        first, second = lanes_of(e.a), lanes_of(e.b)
        if first is not None and second is not None:
            result = _lanewise(e, first, second, analyzer)
            if result is not None:
                return result
    if isinstance(e, Select) and isinstance(e.condition, Broadcast) and isinstance(e.condition.value, Const):
        return e.a if e.condition.value.value else e.b
    if isinstance(e, Cast) and isinstance(e.value, Ramp) and e.dtype.is_integer:
        return _cast_ramp(e, e.value, analyzer)
    return e


def lanes_of(e: Expr) -> tuple[Expr, Expr] | None:
    """(base, stride) of a ramp or broadcast; None for other vectors."""
    if isinstance(e, Ramp):
        return e.base, e.stride
    if isinstance(e, Broadcast):
        return e.value, const(0, e.dtype.element)
    return None


def _of_scalars(e: Expr, operands: tuple[Expr, ...], analyzer: Analyzer) -> Expr:
    """The operation on scalars, repeated."""
    scalars = tuple(o.value for o in operands if isinstance(o, Broadcast))
    lanes = e.dtype.lanes
    one = _rebuilt(e, scalars)
    return broadcast(analyzer.simplify(one), lanes)


def _rebuilt(e: Expr, scalars: tuple[Expr, ...]) -> Expr:
    import dataclasses

    return dataclasses.replace(with_children(e, scalars), dtype=e.dtype.element)  # type: ignore[type-var]


def _lanewise(e: Binary, a: tuple[Expr, Expr], b: tuple[Expr, Expr], analyzer: Analyzer) -> Expr | None:
    lanes, t = e.dtype.lanes, e.a.dtype.element
    (x, s), (y, r) = a, b
    cls = type(e)
    if cls in (Add, Sub):
        base, stride = analyzer.simplify(cls(x, y, t)), analyzer.simplify(cls(s, r, t))
        return _vector(base, stride, lanes)
    if cls is Mul:
        if not _is_zero(r):
            (x, s), (y, r) = (y, r), (x, s)
        if not _is_zero(r):
            return None
        return _vector(analyzer.simplify(Mul(x, y, t)), analyzer.simplify(Mul(s, y, t)), lanes)
    if t != dtypes.INDEX and not _stays_in_range(x, s, lanes, analyzer):
        return None
    if cls in (FloorDiv, FloorMod) and _is_zero(r) and isinstance(y, Const) and y.value > 0 and isinstance(s, Const):
        c, step = y.value, s.value
        if step % c == 0:
            quotient, rest = analyzer.simplify(FloorDiv(x, y, t)), analyzer.simplify(FloorMod(x, y, t))
            if cls is FloorDiv:
                return _vector(quotient, const(step // c, t), lanes)
            return Broadcast(rest, lanes, e.dtype)
        rest = analyzer.simplify(FloorMod(x, y, t))
        lo, hi = analyzer.bounds(rest)
        reach = step * (lanes - 1)
        if lo is not None and hi is not None and 0 <= lo + min(reach, 0) and hi + max(reach, 0) < c:
            if cls is FloorDiv:
                return Broadcast(analyzer.simplify(FloorDiv(x, y, t)), lanes, e.dtype)
            return _vector(rest, s, lanes)
        return None
    if cls in (Min, Max):
        if _everywhere(LE, a, b, lanes, analyzer):
            return e.a if cls is Min else e.b
        if _everywhere(LE, b, a, lanes, analyzer):
            return e.b if cls is Min else e.a
        return None
    if isinstance(e, Compare) and cls in (LT, LE):
        if _everywhere(cls, a, b, lanes, analyzer):
            return Broadcast(const(True), lanes, e.dtype)
        if _everywhere(LE if cls is LT else LT, b, a, lanes, analyzer):
            return Broadcast(const(False), lanes, e.dtype)
    return None


def _everywhere(cls: type, a: tuple[Expr, Expr], b: tuple[Expr, Expr], lanes: int, analyzer: Analyzer) -> bool:
    """Whether the comparison holds in the first and the last lane, hence in all (both sides are affine in the lane)."""
    t = a[0].dtype

    def at(side: tuple[Expr, Expr], lane: int) -> Expr:
        return Add(side[0], Mul(side[1], const(lane, t), t), t)

    return all(analyzer.prove(cls(at(a, lane), at(b, lane), dtypes.bool_)) for lane in (0, lanes - 1))


def _stays_in_range(x: Expr, s: Expr, lanes: int, analyzer: Analyzer) -> bool:
    base, stride = analyzer.interval(analyzer.linear(x)), analyzer.interval(analyzer.linear(s))
    if base.lo is None or base.hi is None or stride.lo is None or stride.hi is None:
        return False
    t = x.dtype
    lo, hi = base.lo + min(0, stride.lo * (lanes - 1)), base.hi + max(0, stride.hi * (lanes - 1))
    return t.min_value <= lo and hi <= t.max_value


def _cast_ramp(e: Cast, source: Ramp, analyzer: Analyzer) -> Expr:
    """A ramp of a wider or narrower type, where no lane wraps."""
    old = source.dtype.element
    if (
        old != dtypes.INDEX
        and e.dtype.bits > old.bits
        and not _stays_in_range(source.base, source.stride, source.lanes, analyzer)
    ):
        return e
    t = e.dtype.element
    return Ramp(
        analyzer.simplify(Cast(source.base, t)), analyzer.simplify(Cast(source.stride, t)), source.lanes, e.dtype
    )


def _vector(base: Expr, stride: Expr, lanes: int) -> Expr:
    return broadcast(base, lanes) if _is_zero(stride) else ramp(base, stride, lanes)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
