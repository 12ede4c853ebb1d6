"""The same group at a small shape: same ops, implementation, layouts; smaller extents.

    conv2d(x: 1x256x56x56, w: 128x256x3x3), relu   ->   conv2d(x: 1x16x4x30, w: 16x16x3x3), relu

An extent keeps its rest after division by 16, so that tails stay tails; equal extents stay equal; window sizes and what
is small already stay as they are. Shapes of results are read from the ops again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tensorir.errors import NestorError
from tensorir.expr import Const, Expr, Var, const
from tensorir.interpreter import evaluate
from tensorir.stmt import Block
from tensorir.target import Target
from tensorir.te import create_func
from tensorir.visit import free_vars, walk_stmt
from topi.group import GroupInput, GroupNode, GroupSpec, compose
from topi.op import AttrValue, TensorSpec
from topi.registry import get_op

BLOCK = 16
Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Limits:
    """The most that channels, rows and columns of a picture, or columns of a matrix, are to be (about)."""

    channels: int
    rows: int
    columns: int


LEVELS = (
    Limits(32, 6, 60),
    Limits(32, 4, 60),
    Limits(16, 3, 60),
    Limits(16, 3, 48),
    Limits(16, 2, 16),
    Limits(4, 1, 3),
)


class CannotShrink(NestorError):
    """A group whose attributes do not fit a smaller shape."""


def candidates(spec: GroupSpec) -> Iterator[GroupSpec]:
    """The group itself, then ever smaller ones."""
    yield spec
    for limits in LEVELS:
        try:
            yield shrink(spec, limits)
        except CannotShrink:
            continue


def small_group(spec: GroupSpec, target: Target, budget: int) -> GroupSpec:
    """The largest candidate whose blocks run at most `budget` times in the unscheduled program, else the smallest."""
    best: tuple[int, GroupSpec] | None = None
    for candidate in candidates(spec):
        try:
            count = iterations(candidate, target)
        except NestorError:
            continue
        if count <= budget:
            return candidate
        if best is None or count < best[0]:
            best = (count, candidate)
    if best is None:
        raise CannotShrink("no candidate can be composed")
    return best[1]


def iterations(spec: GroupSpec, target: Target) -> int:
    """How often the blocks of the unscheduled program run, symbols at their sizes for tests."""
    group = compose(spec, target)
    sizes = symbol_sizes(spec)
    total = 0
    for block in walk_stmt(create_func(list(group.args)).body):
        if isinstance(block, Block):
            count = 1
            for i in block.iters:
                count *= max(value_of(i.extent, sizes), 1)
            total += count
    return total


def symbol_sizes(spec: GroupSpec) -> dict[Var, int]:
    """A size for each symbol such that every extent of the group is at least 1: the smallest that serves, from 2 on."""
    symbols = spec.symbols()
    shapes = [i.spec.shape for i in spec.inputs] + [o.shape for n in spec.nodes for o in n.outputs]
    for size in (2, 3, 5, 65, 130, 300, 600, 1100):
        sizes = {v: size if position else min(size, 3) for position, v in enumerate(symbols)}
        for assigned in (sizes, dict.fromkeys(symbols, size)):
            if all(value_of(e, assigned) >= 1 for shape in shapes for e in shape):
                return assigned
    return dict.fromkeys(symbols, 1100)


def value_of(e: Expr, sizes: dict[Var, int]) -> int:
    """The value of an extent."""
    return int(e.value) if isinstance(e, Const) else int(evaluate(e, {v: sizes[v] for v in free_vars(e)}))


def shrink(spec: GroupSpec, limits: Limits) -> GroupSpec:
    """The group with smaller extents. Raises `CannotShrink`."""
    try:
        return _Shrinker(spec, limits, apart=True).run()
    except CannotShrink:
        return _Shrinker(spec, limits, apart=False).run()


class _Shrinker:
    """`sizes` maps the extents met so far, `shapes` whole shapes, so that what was equal stays equal. Where rows stand
    `apart`, they are not columns: a square picture may become a wide one."""

    def __init__(self, spec: GroupSpec, limits: Limits, *, apart: bool) -> None:
        self.spec, self.limits, self.apart = spec, limits, apart
        self.sizes: dict[int, int] = {}
        self.rows: dict[int, int] = {} if apart else self.sizes
        self.shapes: dict[tuple[int | None, ...], Shape] = {}
        self.inputs: dict[int, TensorSpec] = {}

    def run(self) -> GroupSpec:
        nodes: list[GroupNode] = []
        for node in self.spec.nodes:
            operands = []
            for reference in node.inputs:
                if reference is None:
                    operands.append(None)
                elif reference[0] == "in":
                    operands.append(self.input(reference[1], node))
                else:
                    _, number, output = reference  # type: ignore[misc]
                    operands.append(nodes[number].outputs[output])
            nodes.append(self.node(node, operands))
        inputs = tuple(
            GroupInput(self.inputs.get(n, given.spec), given.constant) for n, given in enumerate(self.spec.inputs)
        )
        return GroupSpec(inputs, tuple(nodes), self.spec.outputs)

    def input(self, number: int, node: GroupNode) -> TensorSpec:
        """A smaller input; the same for every node that reads it."""
        found = self.inputs.get(number)
        if found is None:
            given = self.spec.inputs[number]
            shape = self.shapes.get(_numbers(given.spec.shape))
            if shape is None:
                is_weight = given.constant or (len(given.spec.shape) > 2 and ("in", number) == node.inputs[1:2])
                shape = tuple(
                    self.extent(e, self.limit(axis, given.spec, is_weight), self.table(axis, len(given.spec.shape)))
                    for axis, e in enumerate(given.spec.shape)
                )
            found = self.inputs[number] = dataclasses.replace(given.spec, shape=shape)
            self.remember(given.spec.shape, shape)
        return found

    def limit(self, axis: int, spec: TensorSpec, is_weight: bool) -> int | None:
        """The limit of an axis by its place; None where it may be the window of a convolution."""
        rank = len(spec.shape)
        if rank >= 4 and axis >= 2:
            if is_weight:
                return None
            return self.limits.columns if axis == rank - 1 else self.limits.rows
        if rank == 3:
            if axis == 2:
                return None if is_weight else self.limits.columns
            return self.limits.channels if axis == 1 or is_weight else self.limits.rows
        if rank == 2 and not is_weight and axis == 0:
            return self.limits.rows
        return self.limits.channels

    def table(self, axis: int, rank: int) -> dict[int, int]:
        """Where the extent of an axis is remembered."""
        return self.rows if rank >= 4 and axis == 2 else self.sizes

    def extent(self, e: Expr, limit: int | None, sizes: dict[int, int]) -> Expr:
        """A smaller extent."""
        if not isinstance(e, Const):
            return e
        size = int(e.value)
        if size not in sizes and limit is not None and size > limit:
            rest = size % BLOCK
            sizes[size] = min(size, max(limit - limit % BLOCK, 0) + rest or limit) if limit >= BLOCK else limit
        if limit is None and size <= BLOCK:
            return e  # a window
        return const(sizes.get(size, size))

    def remember(self, old: Shape, new: Shape) -> None:
        self.shapes.setdefault(_numbers(old), new)
        for axis, (a, b) in enumerate(zip(old, new, strict=True)):
            if isinstance(a, Const) and isinstance(b, Const):
                self.table(axis, len(old)).setdefault(int(a.value), int(b.value))

    def node(self, node: GroupNode, operands: list[TensorSpec | None]) -> GroupNode:
        """The node on smaller operands, its results inferred again."""
        op = get_op(node.op)
        attrs = tuple((name, self.attribute(name, value)) for name, value in node.attrs)
        try:
            results = op.infer([None if o is None else (o.shape, o.dtype) for o in operands], dict(attrs))
        except (NestorError, ValueError, IndexError) as error:
            raise CannotShrink(f"{node.op}: {error}") from None
        outputs = []
        for old, (shape, dtype) in zip(node.outputs, results, strict=True):
            if len(shape) != len(old.shape) or dtype != old.dtype:
                raise CannotShrink(f"{node.op}: its result has another rank or type")
            if any(isinstance(e, Const) and int(e.value) < 1 for e in shape):
                raise CannotShrink(f"{node.op}: its result is empty")
            self.remember(old.shape, shape)
            outputs.append(TensorSpec(shape, dtype, old.layout))
        return dataclasses.replace(node, attrs=attrs, outputs=tuple(outputs))

    def attribute(self, name: str, value: AttrValue) -> AttrValue:
        """Attributes that are extents get smaller with them."""
        if name == "groups" and isinstance(value, int):
            return self.sizes.get(value, value)
        if name in ("shape", "sizes") and isinstance(value, tuple):
            return tuple(self.attribute("groups", int(v.value) if isinstance(v, Const) else v) for v in value)
        return value


def _numbers(shape: Shape) -> tuple[int | None, ...]:
    return tuple(int(e.value) if isinstance(e, Const) else id(e) for e in shape)
