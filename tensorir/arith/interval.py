"""Intervals of integers, with None for an infinite end, and how the operators move them."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """All integers from `lo` to `hi`, both included; None is an infinite end. `lo > hi` is the empty interval."""

    lo: int | None
    hi: int | None

    def __repr__(self) -> str:
        return f"[{'-inf' if self.lo is None else self.lo}, {'inf' if self.hi is None else self.hi}]"

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, int)
        return (self.lo is None or self.lo <= value) and (self.hi is None or value <= self.hi)

    @property
    def is_point(self) -> bool:
        """True for exactly one value."""
        return self.lo is not None and self.lo == self.hi

    @property
    def is_finite(self) -> bool:
        """True when both ends are known."""
        return self.lo is not None and self.hi is not None

    def within(self, lo: int, hi: int) -> bool:
        """True if every value lies in lo .. hi."""
        return self.lo is not None and self.hi is not None and lo <= self.lo and self.hi <= hi


EVERYTHING = Interval(None, None)
BIT = Interval(0, 1)


def point(value: int) -> Interval:
    """The interval of one value."""
    return Interval(value, value)


def add(a: Interval, b: Interval) -> Interval:
    """All sums."""
    return Interval(
        None if a.lo is None or b.lo is None else a.lo + b.lo, None if a.hi is None or b.hi is None else a.hi + b.hi
    )


def scale(a: Interval, k: int) -> Interval:
    """All values times the constant k."""
    if k == 0:
        return point(0)
    lo, hi = (a.lo, a.hi) if k > 0 else (a.hi, a.lo)
    return Interval(None if lo is None else lo * k, None if hi is None else hi * k)


def multiply(a: Interval, b: Interval) -> Interval:
    """All products."""
    lo, hi = _products(a, b), _products(Interval(_negated(a.hi), _negated(a.lo)), b)
    return Interval(_negated(hi), lo)


def _negated(x: int | None) -> int | None:
    return None if x is None else -x


def _products(a: Interval, b: Interval) -> int | None:
    """The largest product, None if unbounded above."""
    if (a.lo is None and (b.lo is None or b.lo < 0)) or (b.lo is None and (a.lo is None or a.lo < 0)):
        return None
    if (a.hi is None and (b.hi is None or b.hi > 0)) or (b.hi is None and (a.hi is None or a.hi > 0)):
        return None
    ends = [x * y for x in a for y in b if x is not None and y is not None]
    if (a.lo is None or a.hi is None) and 0 in b or (b.lo is None or b.hi is None) and 0 in a:
        ends.append(0)
    return max(ends) if ends else None


def floor_divide(a: Interval, b: Interval) -> Interval:
    """All floor quotients; nothing is known if the divisor may be 0."""
    if b.lo is None or b.lo <= 0:
        if b.hi is not None and b.hi < 0:
            return floor_divide(scale(a, -1), scale(b, -1))
        return EVERYTHING
    if b.hi is None:
        lo = None if a.lo is None else (0 if a.lo >= 0 else a.lo // b.lo)
        hi = None if a.hi is None else (-1 if a.hi < 0 else a.hi // b.lo)
        return Interval(lo, hi)
    lo = None if a.lo is None else min(a.lo // b.lo, a.lo // b.hi)
    hi = None if a.hi is None else max(a.hi // b.lo, a.hi // b.hi)
    return Interval(lo, hi)


def floor_modulo(a: Interval, b: Interval) -> Interval:
    """All floor remainders by a positive divisor; nothing is known otherwise."""
    if b.lo is None or b.lo <= 0:
        return EVERYTHING
    if b.is_point and a.lo is not None and a.hi is not None and a.lo // b.lo == a.hi // b.lo:
        return Interval(a.lo % b.lo, a.hi % b.lo)
    hi = None if b.hi is None else b.hi - 1
    if a.lo is not None and a.lo >= 0 and a.hi is not None:
        hi = a.hi if hi is None else min(hi, a.hi)
    return Interval(0, hi)


def union(a: Interval, b: Interval) -> Interval:
    """The hull of both."""
    return Interval(
        None if a.lo is None or b.lo is None else min(a.lo, b.lo),
        None if a.hi is None or b.hi is None else max(a.hi, b.hi),
    )


def intersect(a: Interval, b: Interval) -> Interval:
    """What both hold; may be empty."""
    lo = b.lo if a.lo is None else a.lo if b.lo is None else max(a.lo, b.lo)
    hi = b.hi if a.hi is None else a.hi if b.hi is None else min(a.hi, b.hi)
    return Interval(lo, hi)


def minimum(a: Interval, b: Interval) -> Interval:
    """All smaller values of a pair."""
    hi = b.hi if a.hi is None else a.hi if b.hi is None else min(a.hi, b.hi)
    return Interval(None if a.lo is None or b.lo is None else min(a.lo, b.lo), hi)


def maximum(a: Interval, b: Interval) -> Interval:
    """All larger values of a pair."""
    lo = b.lo if a.lo is None else a.lo if b.lo is None else max(a.lo, b.lo)
    return Interval(lo, None if a.hi is None or b.hi is None else max(a.hi, b.hi))
