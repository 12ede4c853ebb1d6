"""Layouts: affine maps from the logical indices of a tensor to the indices of the memory that holds it.

A layout lists the physical dimensions in memory order. Each is one logical axis whole, or a part of one: an axis may be
split once or more, and its parts stand anywhere. NCHW16c, for instance, holds logical axis 1 as an outer part (c // 16)
in second place and an inner part (c % 16) last:

    layout = Layout.parse("NCHW16c", logical="NCHW")
    layout.physical_indices((n, c, h, w))      # (n, c // 16, h, w, c % 16)
    layout.logical_indices((n, co, h, w, ci))  # (n, co*16 + ci, h, w)
    layout.physical_shape((1, 20, 7, 7))       # (1, 2, 7, 7, 16): lanes 20 .. 31 of the channels are padding

Padding lanes hold zero, always.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensorir.arith import Analyzer
from tensorir.errors import UserError
from tensorir.expr import Expr, as_expr, less, logical_and


class LayoutError(UserError):
    """A layout that is not a one-to-one map, or does not fit the rank of a tensor."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A physical dimension: (logical index of `axis` // `stride`) % `extent`; an `extent` of None takes all that is
    left, so the outermost part of an axis (or the whole axis, with stride 1) has it."""

    axis: int
    stride: int = 1
    extent: int | None = None


@dataclass(frozen=True)
class Layout:
    """A layout of tensors of `rank` logical dimensions. Equal by value."""

    rank: int
    dims: tuple[Dim, ...]

    def __post_init__(self) -> None:
        for axis in range(self.rank):
            parts = sorted((d for d in self.dims if d.axis == axis), key=lambda d: d.stride)
            expected = 1
            for position, part in enumerate(parts):
                is_last = position == len(parts) - 1
                if part.stride != expected or (part.extent is None) is not is_last:
                    raise LayoutError(f"layout: the parts of axis {axis} do not cover it once: {parts}")
                expected = part.stride * (part.extent or 1)
            if not parts:
                raise LayoutError(f"layout: axis {axis} is missing")
        if any(not 0 <= d.axis < self.rank for d in self.dims):
            raise LayoutError(f"layout: an axis is outside the {self.rank} logical dimensions")

    # ------------------------------------------------------------------------------------------------ constructors

    @staticmethod
    def plain(rank: int) -> Layout:
        """The row-major layout: physical and logical indices are the same."""
        return Layout(rank, tuple(Dim(axis) for axis in range(rank)))

    @staticmethod
    def parse(text: str, *, logical: str) -> Layout:
        """A layout spelled as NCHW16c: a capital is the outer or whole axis, a number with a small letter an inner part
        of that size. `logical` names the logical axes in order.

        Raises `LayoutError` naming the letter that is unknown, missing or doubled.
        """
        if len(set(logical)) != len(logical) or not logical.isupper() and logical:
            raise LayoutError(f"layout {text!r}: the logical axes {logical!r} are not distinct capital letters")
        tokens = re.findall(r"(\d*)([A-Za-z])", text)
        if "".join(n + letter for n, letter in tokens) != text:
            raise LayoutError(f"layout {text!r} is not a sequence of letters and numbers", help="write it like NCHW16c")
        inner: dict[str, list[tuple[int, int]]] = {}
        for position, (number, letter) in enumerate(tokens):
            if letter.upper() not in logical:
                raise LayoutError(f"layout {text!r}: {letter!r} is no axis of {logical!r}")
            if letter.isupper() is bool(number) or number == "0":
                raise LayoutError(
                    f"layout {text!r}: {number + letter!r} is not a dimension",
                    help="a capital letter has no number, a small letter has the size of the inner part before it",
                )
            if number:
                inner.setdefault(letter.upper(), []).append((position, int(number)))
        dims: list[Dim | None] = [None] * len(tokens)
        outer_stride: dict[str, int] = {}
        for letter, parts in inner.items():
            stride = 1
            for position, size in reversed(parts):  # the last written part is the innermost
                dims[position] = Dim(logical.index(letter), stride, size)
                stride *= size
            outer_stride[letter] = stride
        for position, (_, letter) in enumerate(tokens):
            if letter.isupper():
                dims[position] = Dim(logical.index(letter), outer_stride.get(letter, 1))
        capitals = [letter for _, letter in tokens if letter.isupper()]
        for letter in logical:
            if capitals.count(letter) != 1:
                raise LayoutError(f"layout {text!r}: the axis {letter!r} must stand once as a capital")
        return Layout(len(logical), tuple(d for d in dims if d is not None))

    def permute(self, order: Sequence[int]) -> Layout:
        """The physical dimensions in another order: new dimension i is the old order[i]."""
        if sorted(order) != list(range(len(self.dims))):
            raise LayoutError(f"layout {self}: {tuple(order)} is no order of its {len(self.dims)} dimensions")
        return Layout(self.rank, tuple(self.dims[i] for i in order))

    def split(self, dim: int, factor: int) -> Layout:
        """Physical dimension `dim` in two: an outer part in its place and an inner part of `factor` at the end."""
        old = self.dims[dim]
        if factor < 1 or (old.extent is not None and old.extent % factor):
            raise LayoutError(f"layout {self}: dimension {dim} of extent {old.extent} cannot be split by {factor}")
        outer = Dim(old.axis, old.stride * factor, None if old.extent is None else old.extent // factor)
        return Layout(self.rank, (*self.dims[:dim], outer, *self.dims[dim + 1 :], Dim(old.axis, old.stride, factor)))

    def transpose(self, axes: Sequence[int]) -> Layout:
        """The layout in which the transposed tensor, whose axis i is this one's axes[i], is the same memory: a
        transpose into it moves nothing."""
        if sorted(axes) != list(range(self.rank)):
            raise LayoutError(f"layout {self}: {tuple(axes)} is no order of its {self.rank} axes")
        place = {axis: n for n, axis in enumerate(axes)}
        return Layout(self.rank, tuple(Dim(place[d.axis], d.stride, d.extent) for d in self.dims))

    # ------------------------------------------------------------------------------------------------------ facts

    @property
    def is_plain(self) -> bool:
        """True where physical and logical indices are the same."""
        return self.dims == tuple(Dim(axis) for axis in range(self.rank))

    @cached_property
    def block(self) -> tuple[int, ...]:
        """For each logical axis the product of its inner parts: its extent is padded to a multiple of it."""
        return tuple(next(d.stride for d in self.dims if d.axis == a and d.extent is None) for a in range(self.rank))

    def is_padded(self, shape: Sequence[Any]) -> bool:
        """Whether a tensor of logical `shape` has padding lanes; a symbolic extent that may not divide does."""
        analyzer = Analyzer()
        return any(
            b > 1 and analyzer.const_value(as_expr(extent) % b) != 0
            for extent, b in zip(self._checked(shape), self.block, strict=True)
        )

    def physical_shape(self, shape: Sequence[Any]) -> tuple[Expr, ...]:
        """The shape of the memory that holds a tensor of logical `shape`."""
        extents = self._checked(shape)
        analyzer = Analyzer()
        result: list[Expr] = []
        for d in self.dims:
            if d.extent is not None:
                result.append(as_expr(d.extent))
            elif d.stride == 1:
                result.append(extents[d.axis])
            else:
                result.append(analyzer.simplify((extents[d.axis] + (d.stride - 1)) // d.stride))
        return tuple(result)

    def physical_indices(self, logical: Sequence[Any], analyzer: Analyzer | None = None) -> tuple[Expr, ...]:
        """Where the element at `logical` lies; simplified by `analyzer` if one is given."""
        indices = self._checked(logical)
        result: list[Expr] = []
        for d in self.dims:
            e = indices[d.axis]
            if d.stride > 1:
                e = e // d.stride
            if d.extent is not None:
                e = e % d.extent
            result.append(e if analyzer is None else analyzer.simplify(e))
        return tuple(result)

    def logical_indices(self, physical: Sequence[Any]) -> tuple[Expr, ...]:
        """The logical indices of the element at `physical` (beyond the logical shape on padding lanes)."""
        if len(physical) != len(self.dims):
            raise LayoutError(f"layout {self} has {len(self.dims)} physical dimensions, not {len(physical)}")
        result: list[Expr | None] = [None] * self.rank
        for d, index in sorted(zip(self.dims, physical, strict=True), key=lambda pair: -pair[0].stride):
            part = as_expr(index) * d.stride
            before = result[d.axis]
            result[d.axis] = part if before is None else before + part
        return tuple(r for r in result if r is not None)

    def valid(self, physical: Sequence[Any], shape: Sequence[Any]) -> Expr:
        """The condition that `physical` is no padding lane of a tensor of logical `shape`; literal true if none is."""
        extents = self._checked(shape)
        analyzer = Analyzer()
        logical = self.logical_indices(physical)
        return logical_and(
            *(
                less(index, extent)
                for index, extent, b in zip(logical, extents, self.block, strict=True)
                if b > 1 and analyzer.const_value(extent % b) != 0
            )
        )

    def _checked(self, items: Sequence[Any]) -> tuple[Expr, ...]:
        if len(items) != self.rank:
            raise LayoutError(f"layout {self} is of {self.rank} logical dimensions, not {len(items)}")
        return tuple(as_expr(i) for i in items)

    def __str__(self) -> str:
        """The canonical spelling over the logical axes A, B, C, ...: NCHW16c is ABCD16b."""
        return "".join(
            chr(ord("A") + d.axis) if d.extent is None else f"{d.extent}{chr(ord('a') + d.axis)}" for d in self.dims
        )

    __repr__ = __str__
