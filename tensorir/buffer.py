"""Buffers: named, typed, shaped memory in a scope; and rectangular regions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorir.dtypes import DType
from tensorir.errors import ExpressionError
from tensorir.expr import Const, Expr, Load, as_expr, load, node

SCOPES = ("global", "shared", "local", "register", "warp", "fragment")
"""global: visible to all threads; shared: one per thread block; local: one per thread; register: one per thread with
constant indices once unrolled loops are expanded; warp: spread over the lanes of a warp; fragment: tiles spread
over the lanes of a warp as matrix instructions want them, which alone may touch them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buffer:
    """Row-major compact memory of `shape` elements of `dtype`. Identity is the buffer; printing makes names unique."""

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str = "global"

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(repr(s) for s in self.shape)}] @{self.scope}"

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Load:
        return self(*indices) if isinstance(indices, tuple) else self(indices)

    def __call__(self, *indices: Any) -> Load:
        if len(indices) == 1 and isinstance(indices[0], (tuple, list)):
            indices = tuple(indices[0])
        if len(indices) != len(self.shape):
            raise ExpressionError(
                f"{self.name} has {count(len(self.shape), 'dimension')} but is read with"
                f" {count(len(indices), 'index')}",
                help=f"its shape is ({', '.join(repr(s) for s in self.shape)}): write {self.element()}",
            )
        exprs = tuple(as_expr(i) for i in indices)
        for axis, index in enumerate(exprs):
            if not index.dtype.is_integer:
                raise ExpressionError(
                    f"{self.name}: index {axis} is {index.dtype}, not an integer",
                    help="cast it to an integer first, with .astype('int64')",
                )
        return load(self, exprs)

    def element(self) -> str:
        """How an element is written, as in messages."""
        return f"{self.name}[{self.index_names()}]"

    def index_names(self) -> str:
        """Names of indices for all dimensions, as in messages."""
        return ", ".join("ijklmn"[axis : axis + 1] or f"i{axis}" for axis in range(len(self.shape)))

    def __setitem__(self, indices: Any, value: Any) -> None:
        raise ExpressionError(
            f"the elements of {self.name} cannot be assigned",
            help=f"a tensor is declared once, whole: te.compute(shape, lambda {self.index_names()}: value)",
        )


def count(number: int, what: str) -> str:
    """A number and what it counts, as in messages."""
    several = {"index": "indices", "axis": "axes"}.get(what, f"{what}s")
    return f"{number} {what if number == 1 else several}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AlignedBuffer(Buffer):
    """A buffer whose dimension `axis` has a stride of `offset` more than a multiple of `factor`; `shape` is enlarged so
    that it has. A pass that changes the shape aligns it again."""

    axis: int = 0
    factor: int = 1
    offset: int = 0

    def with_shape(self, shape: tuple[Expr, ...]) -> AlignedBuffer | None:
        """The buffer with `shape`, of which the dimension behind `axis` is enlarged; None if no size does it."""
        inner = 1
        for extent in shape[self.axis + 2 :]:
            if not isinstance(extent, Const):
                return None
            inner *= int(extent.value)
        size = shape[self.axis + 1]
        if not isinstance(size, Const):
            return None
        for candidate in range(int(size.value), int(size.value) + self.factor):
            if candidate * inner % self.factor == self.offset % self.factor:
                padded = (*shape[: self.axis + 1], as_expr(candidate), *shape[self.axis + 2 :])
                return AlignedBuffer(self.name, padded, self.dtype, self.scope, self.axis, self.factor, self.offset)
        return None


@node
class Range:
    """begin .. begin + extent of one dimension."""

    begin: Expr
    extent: Expr


@node
class Region:
    """A rectangle of a buffer, one range a dimension."""

    buffer: Buffer
    ranges: tuple[Range, ...]


def full_region(buffer: Buffer) -> Region:
    """The whole buffer as a region."""
    return Region(buffer, tuple(Range(as_expr(0), s) for s in buffer.shape))


def as_shape(shape: Any) -> tuple[Expr, ...]:
    """A shape given as an int, an expression or a sequence of them."""
    if shape is None or isinstance(shape, str):
        raise ExpressionError(
            f"a shape is a tuple of integers and te.var symbols, not {shape!r}", help="write it as (8, 6) or (n, 6)"
        )
    if not isinstance(shape, (tuple, list)) and not (isinstance(shape, Sequence)):
        shape = (shape,)
    result = tuple(as_expr(s) for s in shape)
    for axis, extent in enumerate(result):
        if not extent.dtype.is_integer:
            raise ExpressionError(
                f"dimension {axis} of a shape is {extent!r} of type {extent.dtype}, not an integer",
                help="a shape is a tuple of integers and te.var symbols",
            )
        if isinstance(extent, Const) and extent.value < 0:
            raise ExpressionError(
                f"dimension {axis} of a shape is {extent.value}",
                help="a size is 0 or more; an unknown size is te.var('n')",
            )
    return result
