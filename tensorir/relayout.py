"""Any compute, written once on logical indices, over physical layouts.

    relu(n, c, h, w) = max(A[n, c, h, w], 0)             with A and the result in NCHW16c becomes
    relu(n, co, h, w, ci) = max(A16[n, co, h, w, ci], 0)

The output's axes become its physical dimensions, reads of inputs that lie in a layout go through that layout, and
index arithmetic is simplified under the ranges of the axes. **Padding lanes are zero, always**: where the value on a
padding lane is not seen to be zero, the write is masked; a sum masks its source (its factors, so that a product stays a
product), any other reduction is followed by a compute that masks its result. Reduction axes stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorir.arith import Analyzer
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import ComputeError
from tensorir.expr import (
    Compare,
    Const,
    Expr,
    IterVar,
    Load,
    Mul,
    Reduce,
    Var,
    as_expr,
    const,
    if_then_else,
    less_equal,
)
from tensorir.layout import Layout
from tensorir.te import ComputeOp, Tensor
from tensorir.visit import free_vars, rewrite_expr, substitute, walk_expr

Replaced = Mapping[Tensor, tuple[Tensor, Layout]]


def relayout_compute(
    op: ComputeOp | Tensor, output_layout: Layout | Sequence[Layout], replaced_inputs: Replaced
) -> Any:  # Tensor, or a tuple of Tensors
    """The compute of `op` with its outputs in `output_layout` (all outputs share one) and each tensor of
    `replaced_inputs` read from its physical tensor. Gives a Tensor, or a tuple for several outputs.

    Raises `ComputeError` if outputs are asked for in different layouts or a physical tensor has the wrong shape.
    """
    compute = op.op if isinstance(op, Tensor) else op
    if not isinstance(compute, ComputeOp):
        raise ComputeError(f"relayout of {compute.name}: only a compute can be written over physical layouts")
    layout = _one_layout(compute, output_layout)
    for logical, (physical, of) in replaced_inputs.items():
        _require_shape(logical, physical, of)
    return _Relayout(compute, layout, replaced_inputs).outputs()


def convert_layout(
    source: Tensor, shape: Sequence[Any], source_layout: Layout, target_layout: Layout, name: str | None = None
) -> Tensor:
    """A tensor of logical `shape` that lies in `source_layout`, copied to `target_layout` with zero padding lanes."""
    extents = tuple(as_expr(s) for s in shape)
    logical = Tensor(source.name, extents, source.dtype, source.scope, source.op, source.index)
    axes = tuple(IterVar(Var(f"i{n}"), const(0), extent, "spatial") for n, extent in enumerate(extents))
    body = Load(logical, tuple(a.var for a in axes), source.dtype)
    copy = ComputeOp(name or f"{source.name}_{target_layout}", source.op.origins, axes, (), (body,), True)
    result = relayout_compute(copy, target_layout, {logical: (source, source_layout)})
    assert isinstance(result, Tensor)
    return result


def _one_layout(op: ComputeOp, given: Layout | Sequence[Layout]) -> Layout:
    layouts = (given,) if isinstance(given, Layout) else tuple(given)
    for other in layouts[1:]:
        if other != layouts[0]:
            raise ComputeError(
                f"relayout of {op.name}: its outputs are asked for in {layouts[0]} and {other}",
                help="outputs of one compute share a layout; convert one of them afterwards",
            )
    return layouts[0]


def _require_shape(logical: Tensor, physical: Tensor, layout: Layout) -> None:
    expected = layout.physical_shape(logical.shape)
    analyzer = Analyzer()
    for symbol in {v for e in (*expected, *physical.shape) for v in free_vars(e)}:
        analyzer.assume(less_equal(const(0), symbol))  # sizes
    if len(expected) != len(physical.shape) or not all(
        analyzer.is_equal(a, b) for a, b in zip(expected, physical.shape, strict=True)
    ):
        raise ComputeError(
            f"relayout: {physical.name} has shape ({', '.join(map(repr, physical.shape))}), but {logical.name} in "
            f"layout {layout} has ({', '.join(map(repr, expected))})"
        )


class _Relayout:
    """One rewriting: the new axes, the analyzer that knows their ranges, and the padding condition."""

    def __init__(self, op: ComputeOp, layout: Layout, replaced: Replaced) -> None:
        self.op = op
        self.layout = layout
        self.replaced = replaced
        self.shape = tuple(a.extent for a in op.axes)
        self.extents = layout.physical_shape(self.shape)
        self.axes = self._fresh_axes("")
        self.analyzer = Analyzer()
        for axis in (*self.axes, *op.reduce_axes):
            # an axis of one point keeps its name in the indices: loops over it stay recognisable
            if not (isinstance(axis.extent, Const) and axis.extent.value == 1):
                self.analyzer.bind(axis.var, axis.begin, axis.extent)
        self.indices = layout.logical_indices([a.var for a in self.axes])
        self.valid = self.analyzer.simplify(layout.valid([a.var for a in self.axes], self.shape))

    def _fresh_axes(self, suffix: str) -> tuple[IterVar, ...]:
        """Axes of the physical dimensions: c stays c, its parts are co and ci (c1, c2, ... if it has more)."""
        result: list[IterVar] = []
        met: dict[int, int] = {}
        for d, extent in zip(self.layout.dims, self.extents, strict=True):
            parts = sum(other.axis == d.axis for other in self.layout.dims)
            name = self.op.axes[d.axis].name
            if parts == 2:
                name += "o" if d.extent is None else "i"
            elif parts > 2:
                met[d.axis] = met.get(d.axis, -1) + 1
                name += str(met[d.axis])
            result.append(IterVar(Var(name + suffix), const(0), extent, "spatial"))
        return tuple(result)

    # ----------------------------------------------------------------------------------------------------- bodies

    def outputs(self) -> Any:
        first = self.op.bodies[0]
        if isinstance(first, Reduce):
            return self._reduction(first)
        mapping: dict[Var, Expr] = {a.var: i for a, i in zip(self.op.axes, self.indices, strict=True)}
        bodies = tuple(self._masked(self._physical(substitute(b, mapping))) for b in self.op.bodies)
        return self._tensors(self.op.name, self.axes, (), bodies)

    def _reduction(self, first: Reduce) -> Any:
        mapping: dict[Var, Expr] = {a.var: i for a, i in zip(self.op.axes, self.indices, strict=True)}
        condition = None if first.condition is None else self._physical(substitute(first.condition, mapping))
        sources = tuple(self._physical(substitute(s, mapping)) for s in first.sources)
        name = self.op.name
        padded = not isinstance(self.valid, Const)
        is_sum = first.reducer.name == "sum" and len(sources) == 1
        if padded and is_sum:
            sources = (self._masked_term(sources[0]),)
            if condition is not None and not self._reads_safely(condition):
                condition = if_then_else(self.valid, condition, const(False))
        elif padded:
            sources = tuple(
                s if self._reads_safely(s) else if_then_else(self.valid, s, i)
                for s, i in zip(sources, first.reducer.identities, strict=True)
            )
            if condition is not None and not self._reads_safely(condition):
                condition = if_then_else(self.valid, condition, const(False))
            name = f"{name}_unmasked"
        bodies = tuple(
            Reduce(first.reducer, sources, first.axes, condition, number, s.dtype)
            for number, s in enumerate(sources[: len(self.op.bodies)])
        )
        made = self._tensors(name, self.axes, self.op.reduce_axes, bodies)
        return self._mask_after(made) if padded and not is_sum else made

    def _mask_after(self, made: Any) -> Any:
        """A compute that copies `made` with zero on padding lanes."""
        tensors = made if isinstance(made, tuple) else (made,)
        axes = self._fresh_axes("")
        point = tuple(a.var for a in axes)
        valid = self.layout.valid(point, self.shape)
        bodies = tuple(if_then_else(valid, Load(t, point, t.dtype), _zero(t.dtype)) for t in tensors)
        return self._tensors(self.op.name, axes, (), bodies)

    def _tensors(
        self, name: str, axes: tuple[IterVar, ...], reduce_axes: tuple[IterVar, ...], bodies: tuple[Expr, ...]
    ) -> Any:
        op = ComputeOp(name, self.op.origins, axes, reduce_axes, bodies, self.op.fma)
        made = tuple(
            Tensor(name if len(bodies) == 1 else f"{name}_{i}", self.extents, b.dtype, "global", op, i)
            for i, b in enumerate(bodies)
        )
        return made if len(made) > 1 else made[0]

    # ------------------------------------------------------------------------------------------------------ reads

    def _physical(self, e: Expr) -> Expr:
        """An expression over the new axes with replaced inputs read through their layouts, indices simplified."""
        analyzer = self.analyzer

        def rule(x: Expr) -> Expr:
            if isinstance(x, Load):
                pair = self.replaced.get(x.buffer) if isinstance(x.buffer, Tensor) else None
                if pair is None:
                    return Load(x.buffer, tuple(analyzer.simplify(i) for i in x.indices), x.dtype, x.predicate)
                physical, layout = pair
                return Load(physical, layout.physical_indices(x.indices, analyzer), x.dtype, x.predicate)
            if isinstance(x, Compare) and x.a.dtype.is_integer:
                return analyzer.simplify(x)
            return x

        return rewrite_expr(e, rule)

    # ---------------------------------------------------------------------------------------------------- padding

    def _masked(self, value: Expr) -> Expr:
        """The value, with zero on padding lanes."""
        if isinstance(self.valid, Const) or self._is_zero_on_padding(value):
            return value
        return if_then_else(self.valid, value, _zero(value.dtype))

    def _masked_term(self, term: Expr) -> Expr:
        """A term of a sum with zero on padding lanes; a product stays a product, so that its update stays fused."""
        if self._is_zero_on_padding(term):
            return term
        if isinstance(term, Mul) and term.dtype.is_float:
            return Mul(self._masked(term.a), self._masked(term.b), term.dtype)
        return if_then_else(self.valid, term, _zero(term.dtype))

    def _is_zero_on_padding(self, value: Expr) -> bool:
        """Whether the value is seen to be zero on every padding lane, and may be evaluated there."""
        if not self._reads_safely(value):
            return False
        replaced = rewrite_expr(
            value, lambda x: _zero(x.dtype) if isinstance(x, Load) and self._shares_padding(x) else x
        )
        result = Analyzer().simplify(replaced)
        return isinstance(result, Const) and result.value == 0

    def _reads_safely(self, value: Expr) -> bool:
        """Whether no read of the value leaves its tensor on padding lanes."""
        padded = {id(self.axes[p].var) for p, d in enumerate(self.layout.dims) if self._is_padded_axis(d.axis)}
        for x in walk_expr(value):
            if isinstance(x, Load) and not self._shares_padding(x):
                if any(id(v) in padded for i in x.indices for v in free_vars(i)):
                    return False
        return True

    def _is_padded_axis(self, axis: int) -> bool:
        block = self.layout.block[axis]
        return block > 1 and self.analyzer.const_value(self.shape[axis] % block) != 0

    def _shares_padding(self, x: Load) -> bool:
        """Whether `x` reads, on every padding lane of the output, a padding lane of its own tensor: each padded axis of
        the output is read at its own parts from an axis of the same extent, split alike."""
        for logical, (physical, layout) in self.replaced.items():
            if physical is x.buffer and self._reads_along(x, logical, layout):
                return True
        return False

    def _reads_along(self, x: Load, logical: Buffer, layout: Layout) -> bool:
        """Whether every output axis with padding is met by an axis of the read tensor part for part."""
        allowed: set[int] = set()
        for axis in range(self.layout.rank):
            if not self._is_padded_axis(axis):
                continue
            mine = [(d.stride, d.extent, self.axes[p].var) for p, d in enumerate(self.layout.dims) if d.axis == axis]
            allowed.update(id(v) for _, _, v in mine)
            if not any(
                self._same_parts(
                    mine, [(d.stride, d.extent, x.indices[p]) for p, d in enumerate(layout.dims) if d.axis == other]
                )
                and self.analyzer.is_equal(logical.shape[other], self.shape[axis])
                for other in range(layout.rank)
            ):
                return False
        # parts of padded axes stand nowhere else in the indices
        used = [id(v) for i in x.indices for v in free_vars(i) if id(v) in allowed]
        return len(used) == len(set(used))

    @staticmethod
    def _same_parts(mine: list[tuple[int, int | None, Var]], theirs: list[tuple[int, int | None, Expr]]) -> bool:
        if len(mine) != len(theirs):
            return False
        by_stride = {stride: (extent, index) for stride, extent, index in theirs}
        return all(
            stride in by_stride and by_stride[stride][0] == extent and by_stride[stride][1] is var
            for stride, extent, var in mine
        )


def _zero(t: DType) -> Const:
    return const(False) if t.is_bool else const(0, t)
