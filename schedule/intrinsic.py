"""Tensor intrinsics: a small compute and the statement that does all of it at once.

    a, b = te.placeholder((4,), "uint8", name="a"), te.placeholder((16, 4), "int8", name="b")
    k = te.reduce_axis(4, "k")
    c = te.compute((16,), lambda i: te.sum(a[k].astype("int32") * b[i, k].astype("int32"), axis=k), name="c")

    def implement(a, b, c):          # windows: read a[k], write c.store(i, value=...)
        return c.loop(0, lambda i: c.store(i, value=te.dot4_i8(c[i], te.pack4(*[a[j] for j in range(4)]), ...)))

    dot = tensor_intrinsic([a, b], c, implement, name="dot_16x4")

The implementation of a reduction is one step: it adds to what the output holds. It is run against the compute on the
interpreter when it is declared, so a wrong one is found there. `tensorize` compares the compute with that of a loop
nest expression by expression; axes of extent 1 may be missing on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from schedule.error import Refusal, ScheduleError
from schedule.replay import constant
from schedule.state import Loop, Unit
from schedule.unit import loops_in, split_guard
from tensorir.arith import Analyzer
from tensorir.buffer import Buffer
from tensorir.equality import structural_equal
from tensorir.expr import Call, Const, Expr, IterVar, Load, Reduce, Var, as_expr, const
from tensorir.interpreter import interpret
from tensorir.matrix import address
from tensorir.stmt import For, Func, Stmt, Store, seq
from tensorir.te import ComputeOp, PlaceholderOp, Tensor, compute_block, create_func, input_tensors
from tensorir.visit import children, substitute, substitute_stmt

if TYPE_CHECKING:
    from schedule.analysis import Placed


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrinsic:
    """`implement(*inputs, output)` of windows gives the statement that computes `output` from `inputs`; `fill(output)`,
    for a reduction whose output is no plain memory, the statement that sets it to the initial values."""

    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    implement: Callable[..., Stmt]
    fill: Callable[[Window], Stmt] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A tensor of an intrinsic where it lies in a program: element (i, j) is at `base` plus the indices, each in the
    dimension that `dims` gives it (None: an axis of extent 1)."""

    buffer: Buffer
    base: tuple[Expr, ...]
    dims: tuple[int | None, ...]
    extents: tuple[int, ...]
    place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] | None = None

    def _indices(self, indices: tuple[Any, ...]) -> tuple[Expr, ...]:
        if len(indices) != len(self.dims):
            raise ScheduleError(f"{self.buffer.name} is indexed with {len(indices)} indices, but has {len(self.dims)}")
        point = list(self.base)
        for dimension, index in zip(self.dims, indices, strict=True):
            if dimension is not None:
                point[dimension] = point[dimension] + as_expr(index)
        return tuple(point) if self.place is None else self.place(tuple(point))

    def __getitem__(self, indices: Any) -> Load:
        given = indices if isinstance(indices, tuple) else (indices,)
        return Load(self.buffer, self._indices(given), self.buffer.dtype)

    def store(self, *indices: Any, value: Any) -> Stmt:
        """The statement that stores an element."""
        return Store(self.buffer, self._indices(indices), as_expr(value, self.buffer.dtype))

    def tile(self) -> tuple[Expr, Expr]:
        """Its place for a matrix instruction: the addresses of its first element and of the first of its second row."""
        return address(self[0, 0]), address(self[1, 0])

    def loop(self, dimension: int, body: Callable[[Var], Stmt], kind: str = "vectorized") -> Stmt:
        """A loop over a dimension of the window."""
        var = Var(f"i{dimension}")
        return For(var, const(0), const(self.extents[dimension]), kind, body(var))


INTRINSICS: dict[str, TensorIntrinsic] = {}
"""The declared intrinsics by name."""


def tensor_intrinsic(
    inputs: Sequence[Tensor],
    output: Tensor,
    implement: Callable[..., Stmt],
    name: str,
    fill: Callable[[Window], Stmt] | None = None,
) -> TensorIntrinsic:
    """Declares an intrinsic of constant shapes. Raises `ScheduleError` if the implementation is not its compute."""
    op = output.op

    if not isinstance(op, ComputeOp) or len(op.bodies) != 1:
        raise ScheduleError(f"tensor_intrinsic({name}): the output {output.name} is not a compute of one tensor")
    read = input_tensors(op)
    for tensor in read:
        if not isinstance(tensor.op, PlaceholderOp) or not any(tensor is t for t in inputs):
            raise ScheduleError(
                f"tensor_intrinsic({name}): {output.name} reads {tensor.name}, which is not among the inputs",
                help="give all inputs as placeholders, in the order in which the implementation takes them",
            )
    for tensor in (*inputs, output):
        if any(constant(s) is None for s in tensor.shape):
            raise ScheduleError(f"tensor_intrinsic({name}): the shape of {tensor.name} is not constant")

    made = TensorIntrinsic(name, tuple(inputs), output, implement, fill)
    _require_right(made)
    INTRINSICS[name] = made
    return made


def _require_right(intrinsic: TensorIntrinsic) -> None:
    """Runs compute and implementation on random values."""
    tensors = (*intrinsic.inputs, intrinsic.output)
    plain = create_func(tensors)
    windows = [
        Window(t, (const(0),) * len(t.shape), tuple(range(len(t.shape))), tuple(int(s.value) for s in t.shape))  # type: ignore[attr-defined]
        for t in tensors
    ]
    body = intrinsic.implement(*windows)
    if not isinstance(body, Stmt):
        raise ScheduleError(
            f"tensor_intrinsic({intrinsic.name}): the implementation gives {type(body).__name__}, not a statement",
            help="return window.store(...), window.loop(...) or a sequence of them",
        )
    op = intrinsic.output.op
    assert isinstance(op, ComputeOp)
    block = compute_block(op, (intrinsic.output,))
    if block.init is not None:
        start: Stmt = substitute_stmt(block.init, {i.var: a.var for i, a in zip(block.iters, op.axes, strict=False)})
        if intrinsic.fill is not None:
            start = intrinsic.fill(windows[-1])
        for axis in reversed(op.axes if intrinsic.fill is None else ()):
            start = For(axis.var, axis.begin, axis.extent, "serial", start)
        body = seq(start, body)
    func = Func(intrinsic.name, tensors, (), body)
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in intrinsic.inputs:
        shape = tuple(int(s.value) for s in tensor.shape)  # type: ignore[attr-defined]
        low, high = (0, 2) if tensor.dtype.is_bool else (tensor.dtype.min_value, tensor.dtype.max_value)
        drawn = (
            rng.standard_normal(shape) if tensor.dtype.is_float else rng.integers(max(low, -500), min(high, 500), shape)
        )
        arrays.append(drawn.astype(tensor.dtype.numpy))
    shape = tuple(int(s.value) for s in intrinsic.output.shape)  # type: ignore[attr-defined]
    wanted, found = (np.full(shape, 77, intrinsic.output.dtype.numpy) for _ in range(2))
    interpret(plain, [*arrays, wanted])
    interpret(func, [*arrays, found], mode="checked")
    if wanted.tobytes() != found.tobytes():
        place = tuple(int(i) for i in np.argwhere(np.atleast_1d(wanted != found))[0]) if shape else ()
        raise ScheduleError(
            f"tensor_intrinsic({intrinsic.name}): the implementation is not the compute:"
            f" {intrinsic.output.name}{list(place)} is {found[place]}, but should be {wanted[place]}",
            help="the implementation of a reduction adds to the output; every element must be stored",
        )


# ---------------------------------------------------------------------------------------------------------- matching


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Where the tensors of an intrinsic lie: for each input and the output the tensor, its base over the loops around
    the unit, and the dimensions of its axes."""

    places: tuple[tuple[Tensor, tuple[Expr, ...], tuple[int | None, ...]], ...]

    def windows(
        self, intrinsic: TensorIntrinsic, stored: Callable[[Tensor], tuple[Buffer, Any]], values: dict[Var, Expr]
    ) -> tuple[Window, ...]:
        """The windows over the buffers that `stored` gives, with `values` for the loops around."""
        result = []
        for own, (tensor, base, dims) in zip((*intrinsic.inputs, intrinsic.output), self.places, strict=True):
            buffer, place = stored(tensor)
            extents = tuple(int(s.value) for s in own.shape)  # type: ignore[attr-defined]
            result.append(Window(buffer, tuple(substitute(b, values) for b in base), dims, extents, place))
        return tuple(result)


def match(placed: Placed, unit: Unit, intrinsic: TensorIntrinsic) -> Match:
    """How the compute of a unit is that of the intrinsic. Raises `Refusal` saying where they differ."""
    return _Matcher(placed, unit, intrinsic).run()


class _Matcher:
    """One comparison: our loops against the axes of the intrinsic, then our expression against its."""

    def __init__(self, placed: Placed, unit: Unit, intrinsic: TensorIntrinsic) -> None:
        self.placed, self.unit, self.intrinsic = placed, unit, intrinsic
        self.inner = loops_in(placed, unit)
        op, theirs = placed.stage.op if placed.body.op is None else placed.body.op, intrinsic.output.op
        assert isinstance(op, ComputeOp) and isinstance(theirs, ComputeOp)
        self.op, self.theirs = op, theirs
        self.analyzer = Analyzer()
        self.found: dict[int, tuple[Tensor, tuple[Expr, ...], tuple[int | None, ...]]] = {}

    def refuse(self, what: str, *loops: Loop, help: str | None = None) -> Any:
        raise Refusal(
            f"{self.placed.stage.name} is not {self.intrinsic.name} here: {what}", cause=self.unit.call,
            loops=tuple(x.var for x in loops or self.inner[:1]), help=help,
        )  # fmt: skip

    def run(self) -> Match:
        _, within = split_guard(self.placed.guard, self.inner)
        if not isinstance(within, Const):
            self.refuse(
                f"a point is there only where {within!r}", help="split by factors that divide, or pad the dimension"
            )
        own, theirs = self._pair_axes()
        mine = {a.var: substitute(b, own) for a, b in zip(self.placed.stage.axes, self.placed.bindings, strict=True)}
        body, their_body = self.op.bodies[0], self.theirs.bodies[0]
        if len(self.op.bodies) != 1:
            self.refuse("it has several outputs")
        if isinstance(body, Reduce) is not isinstance(their_body, Reduce):
            self.refuse("one is a reduction and the other is not")
        if isinstance(body, Reduce) and isinstance(their_body, Reduce):
            if body.reducer is not their_body.reducer and not structural_equal(body.reducer, their_body.reducer):
                self.refuse(f"it reduces by {body.reducer.name}, the intrinsic by {their_body.reducer.name}")
            if body.sources[0].dtype.is_float and self.op.fma is not self.theirs.fma:
                self.refuse("one of them fuses the multiplication with the addition and the other does not")
            pairs = [(body.sources[0], their_body.sources[0])]
            if (body.condition is None) is not (their_body.condition is None):
                self.refuse("one of them has a condition (where) and the other has none")
            if body.condition is not None and their_body.condition is not None:
                pairs.append((body.condition, their_body.condition))
        else:
            pairs = [(body, their_body)]
        for ours, other in pairs:
            self._compare(substitute(ours, mine), substitute(other, theirs))
        point = tuple(mine[a.var] for a in self.op.axes)
        their_point = tuple(substitute(a.var, theirs) for a in self.theirs.axes)
        self._window(self.placed.stage.outputs[0], point, self.intrinsic.output, their_point)
        return Match(tuple(self._place_of(t) for t in (*self.intrinsic.inputs, self.intrinsic.output)))

    def _place_of(self, tensor: Tensor) -> tuple[Tensor, tuple[Expr, ...], tuple[int | None, ...]]:
        if id(tensor) not in self.found:
            self.refuse(f"the intrinsic takes {tensor.name} but its compute does not read it")
        return self.found[id(tensor)]

    def _pair_axes(self) -> tuple[dict[Var, Expr], dict[Var, Expr]]:
        """Our loops as axes of the intrinsic, and its axes of extent 1 as their only value."""
        own: dict[Var, Expr] = {}
        theirs: dict[Var, Expr] = {}
        for kind, axes in (("spatial", self.theirs.axes), ("reduce", self.theirs.reduce_axes)):
            loops = []
            for loop in self.inner:
                if loop.kind != kind:
                    continue
                if constant(loop.extent) == 1:
                    own[loop.var] = const(0)
                else:
                    loops.append(loop)
            wanted: list[IterVar] = []
            for axis in axes:
                if constant(axis.extent) == 1:
                    theirs[axis.var] = axis.begin
                else:
                    wanted.append(axis)
            sizes = [repr(x.extent) for x in loops]
            theirs_sizes = [repr(a.extent) for a in wanted]
            if sizes != theirs_sizes:
                self.refuse(
                    f"its {kind} loops run over [{', '.join(sizes)}], those of the intrinsic over"
                    f" [{', '.join(theirs_sizes)}]", *loops,
                    help="split by the sizes of the intrinsic and reorder the inner loops to the inside",
                )  # fmt: skip
            for loop, axis in zip(loops, wanted, strict=True):
                own[loop.var] = axis.var
                self.analyzer.bind(axis.var, axis.begin, axis.extent)
        return own, theirs

    def _compare(self, ours: Expr, theirs: Expr) -> None:
        stack = [(ours, theirs)]
        while stack:
            a, b = stack.pop()
            if isinstance(a, Load) and isinstance(b, Load):
                assert isinstance(a.buffer, Tensor) and isinstance(b.buffer, Tensor)
                self._window(a.buffer, a.indices, b.buffer, b.indices)
                continue
            if a.dtype == b.dtype and a.dtype.is_integer and not (_loads(a) or _loads(b)):
                if constant(self.analyzer.simplify(a - b)) != 0:
                    self.refuse(f"{a!r} stands where the intrinsic has {b!r}")
                continue
            same = type(a) is type(b) and a.dtype == b.dtype and len(children(a)) == len(children(b))
            if isinstance(a, Call) and isinstance(b, Call):
                same = same and a.name == b.name
            if isinstance(a, Const) and isinstance(b, Const):
                same = same and structural_equal(a, b)
            if isinstance(a, Var):
                same = same and a is b
            if not same:
                self.refuse(f"{a!r} stands where the intrinsic has {b!r}")
            stack.extend(zip(children(a), children(b), strict=True))

    def _window(
        self, tensor: Tensor, indices: tuple[Expr, ...], theirs: Tensor, their_indices: tuple[Expr, ...]
    ) -> None:
        """One access of ours is one of the intrinsic's: the parts that move agree dimension by dimension."""
        if tensor.dtype != theirs.dtype:
            self.refuse(f"{tensor.name} is {tensor.dtype}, and {theirs.name} of the intrinsic is {theirs.dtype}")
        axes: dict[Var, Expr] = {a.var: const(0) for a in (*self.theirs.axes, *self.theirs.reduce_axes)}
        base, moving = self._parts(indices, axes)
        their_base, their_moving = self._parts(their_indices, axes)
        agree = len(moving) == len(their_moving) and all(
            constant(self.analyzer.simplify(x - y)) == 0 for (_, x), (_, y) in zip(moving, their_moving, strict=True)
        )
        if not agree:
            self.refuse(
                f"{tensor.name} is read at [{', '.join(repr(i) for i in indices)}], which does not move like"
                f" {theirs.name}[{', '.join(repr(i) for i in their_indices)}] of the intrinsic"
            )
        dims: list[int | None] = [None] * len(theirs.shape)
        for (mine, _), (other, _) in zip(moving, their_moving, strict=True):
            dims[other] = mine
            base[mine] = self.analyzer.simplify(base[mine] - their_base[other])
        found = (tensor, tuple(base), tuple(dims))
        known = self.found.setdefault(id(theirs), found)
        if (
            known[0] is not tensor
            or known[2] != found[2]
            or any(constant(self.analyzer.simplify(x - y)) != 0 for x, y in zip(known[1], base, strict=True))
        ):
            self.refuse(f"{theirs.name} of the intrinsic would be two different parts of memory")

    def _parts(self, indices: tuple[Expr, ...], axes: dict[Var, Expr]) -> tuple[list[Expr], list[tuple[int, Expr]]]:
        base, moving = [], []
        for dimension, index in enumerate(indices):
            begin = self.analyzer.simplify(substitute(index, axes))
            part = self.analyzer.simplify(index - begin)
            base.append(begin)
            if constant(part) != 0:
                moving.append((dimension, part))
        return base, moving


def _loads(e: Expr) -> bool:
    stack = [e]
    while stack:
        top = stack.pop()
        if isinstance(top, Load):
            return True
        stack.extend(children(top))
    return False


def find_intrinsic(reference: Any) -> TensorIntrinsic | None:
    """The intrinsic that is given, or declared under a name; None if there is none."""
    if isinstance(reference, TensorIntrinsic):
        return reference
    return INTRINSICS.get(reference) if isinstance(reference, str) else None
