"""The compute language: what a tensor is, said once, without how to loop over it.

    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")

A `Tensor` is a buffer that knows the operation which makes it. `create_func` turns tensors into the unscheduled
program: one block a compute, in dependence order.
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tensorir import dtypes
from tensorir.buffer import Buffer, Range, Region, as_shape, count, full_region
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import ComputeError, ExpressionError
from tensorir.expr import (
    Call,
    Const,
    Expr,
    Fma,
    IterVar,
    Load,
    Mul,
    Operators,
    Reduce,
    Var,
    as_condition,
    as_expr,
    cast,
    const,
    equal,
    floordiv,
    floormod,
    fma,
    if_then_else,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    node,
    not_equal,
    select,
    truncdiv,
    truncmod,
)
from tensorir.intrinsics import (
    abs_ as abs,
)
from tensorir.intrinsics import (
    acos,
    acosh,
    asin,
    asinh,
    async_copy,
    atan,
    atanh,
    ceil,
    cos,
    cosh,
    dot4_i8,
    dot4_s8,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    pack4,
    pow_,
    reinterpret,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from tensorir.intrinsics import (
    pow_ as power,
)
from tensorir.intrinsics import (
    round_ as round,
)
from tensorir.origin import Origin, python_origin
from tensorir.reducer import Reducer, make_reducer
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Stmt, Store, seq
from tensorir.visit import free_vars, rewrite_expr, rewrite_stmt, substitute, walk_expr

__all__ = [
    "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp", "Tensor", "abs", "acos", "acosh", "all", "any",
    "argmax", "argmin", "asin", "asinh", "async_copy", "atan", "atanh", "cast", "ceil", "comm_reducer", "compute",
    "const", "cos", "cosh", "create_func", "dot4_i8", "dot4_s8", "equal", "erf", "exp", "exp2", "expm1", "extern",
    "floor", "floordiv", "floormod", "fma", "if_then_else", "isinf", "isnan", "less", "less_equal", "log", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "max", "max_value", "maximum", "min", "min_value",
    "minimum", "not_equal", "pack4", "placeholder", "pow_", "power", "prod", "reduce_axis", "reinterpret", "round",
    "rsqrt", "scan", "select", "sigmoid", "sin", "sinh", "sqrt", "sum", "tan", "tanh", "thread_axis", "trunc",
    "truncdiv", "truncmod", "var",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------- operations


@node
class Operation:
    """Base of the operations that make tensors. `name` is that of its (first) tensor."""

    name: str
    origins: tuple[Origin, ...]

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The spatial axes of a compute, by the name that schedules use: `C.op.axis`."""
        raise ExpressionError(f"{self.name} is not made by te.compute, so it has no axes")

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The reduce axes of a compute, by the name that schedules use: `C.op.reduce_axis`."""
        raise ExpressionError(f"{self.name} is not made by te.compute, so it has no axes")


@node
class PlaceholderOp(Operation):
    """An input of the program."""


@node
class ComputeOp(Operation):
    """One or several outputs of one shape: `bodies[i]` at the point `axes`. With a reduction every body is the same
    `Reduce` but for its index, over `reduce_axes`. `fma` says that the update of a float sum of products is fused."""

    axes: tuple[IterVar, ...]
    reduce_axes: tuple[IterVar, ...]
    bodies: tuple[Expr, ...]
    fma: bool

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self.axes

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        return self.reduce_axes


@node
class ExternOp(Operation):
    """Opaque work by a registered function `function` ("module:function") on whole buffers (core: externs are named).

    `inputs` are read whole; every output is written whole.
    """

    function: str
    inputs: tuple[Tensor, ...]


@node
class ScanOp(Operation):
    """Steps one after the other along `steps`, the first axis of every output: output i begins with `init[i]`, and then
    takes `update[i]` step by step, which reads the steps before it as `state[i]`."""

    steps: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state: tuple[Tensor, ...]

    @property
    def scan_axis(self) -> IterVar:
        """The axis, by the name that schedules use: `C.op.scan_axis`."""
        return self.steps

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that it reads as they are."""
        return (*self.init, *self.update)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Buffer, Operators):
    """A buffer made by `op` as its output number `index`; reading `T[i, j]` gives an expression."""

    op: Operation = None  # type: ignore[assignment]
    index: int = 0

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def scalar_element(self) -> Expr:
        """The element of a 0-d tensor, so that it can stand in an expression."""
        if self.shape:
            raise ExpressionError(
                f"the tensor {self.name} has {count(len(self.shape), 'dimension')} and cannot stand in an expression by"
                " itself",
                help=f"write its element, {self.element()}; for the whole tensor: te.compute({self.name}.shape, lambda"
                f" {self.index_names()}: ... {self.element()} ...)",
            )
        return Load(self, (), self.dtype)

    def __bool__(self) -> bool:
        return True  # there is a tensor; its elements have no truth yet

    def __matmul__(self, other: Any) -> Any:
        raise ExpressionError(
            "@ of tensors is not written by itself",
            help="with k = te.reduce_axis(depth): te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))",
        )

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (Expr, IterVar, int, float)) and not isinstance(other, bool):
            return equal(self, other)
        return self is other

    def __ne__(self, other: Any) -> Any:
        equal_to = self == other
        return not equal_to if isinstance(equal_to, bool) else logical_not(equal_to)

    __hash__ = object.__hash__

    def __iter__(self) -> Any:
        raise ExpressionError(
            f"the tensor {self.name} cannot be iterated over",
            help=f"a list of tensors is written [{self.name}]; a sum over an axis is te.sum(..., axis=k) with"
            " k = te.reduce_axis(extent)",
        )


# --------------------------------------------------------------------------------------------------------- builders


def var(name: str = "n", dtype: DType | str = dtypes.INDEX) -> Var:
    """A symbolic dimension or scalar."""
    if not isinstance(name, str):
        raise ComputeError(f"var: the name of a variable is a string, not {name!r}", help="write te.var('n')")
    return Var(name, dtype_of(dtype))


def placeholder(shape: Any, dtype: DType | str = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor of `shape` (integers or integer expressions)."""
    return Tensor(name, as_shape(shape), dtype_of(dtype), "global", PlaceholderOp(name, python_origin()), 0)


def reduce_axis(domain: Any, name: str = "k") -> IterVar:
    """An axis to reduce over: `domain` is (begin, end), or the extent alone."""
    if not isinstance(name, str):
        raise ComputeError(
            f"reduce_axis: the name of an axis is a string, not {name!r}",
            help=f"a range is given as a pair: te.reduce_axis(({domain}, {name}))",
        )
    begin, end = domain if isinstance(domain, (tuple, list)) else (0, domain)
    if isinstance(begin, str) or isinstance(end, str):
        raise ComputeError(
            f"reduce_axis: the range of {name} is {domain!r}, not of integers",
            help="give the range first, then the name: te.reduce_axis(extent, name='k')",
        )
    low, high = as_expr(begin), as_expr(end)
    if not (low.dtype.is_integer and high.dtype.is_integer):
        raise ComputeError(
            f"reduce_axis: the range of {name} is {domain}, not of integers", help="give an integer or a te.var symbol"
        )
    return IterVar(Var(name), low, high - low, "reduce")


@dataclass(frozen=True, slots=True, eq=False)
class ThreadAxis:
    """An axis of GPU threads that loops are bound to, by identity: `tag` is threadIdx.x, blockIdx.y, vthread, ...;
    `extent` the number of threads, None until a loop gives it."""

    tag: str
    extent: int | None = None


def thread_axis(domain: Any, tag: str | None = None) -> ThreadAxis:
    """The thread axis `tag` over `domain`, (0, extent) or the extent; the tag alone leaves the extent to the loop."""
    if tag is None:
        return ThreadAxis(str(domain))
    low, high = domain if isinstance(domain, (tuple, list)) else (0, domain)
    if domain is not None and low != 0:
        raise ComputeError(f"thread_axis: {tag} must begin at 0, not {low}")
    return ThreadAxis(tag, None if domain is None else int(high))


def _axis_names(function: Callable[..., Any], rank: int) -> list[str]:
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"i{n}" for n in range(len(names), rank)]
        else:
            names.append(parameter.name)
    if len(names) != rank:
        raise ComputeError(
            f"the compute function takes {count(len(names), 'index')} but the shape has {count(rank, 'dimension')}",
            help=f"give it one parameter a dimension: lambda {', '.join('ijklmn'[:rank])}: ...",
        )
    return names


def compute(
    shape: Any, function: Callable[..., Any], name: str = "compute", *, fma: bool = True
) -> Any:  # Tensor, or a tuple of Tensors
    """The tensor of `shape` whose element at (i, j, ...) is `function(i, j, ...)`.

    A function that returns a tuple declares several outputs of the same shape. A reduction must be outermost. With
    `fma` the update of a float sum of products uses one rounding (an explicit Fma node, the same on every target).
    Raises `ComputeError`.
    """
    extents = as_shape(shape)
    names = _axis_names(function, len(extents))
    axes = tuple(IterVar(Var(n), const(0), extent, "spatial") for n, extent in zip(names, extents, strict=True))
    result = function(*[a.var for a in axes])
    several = isinstance(result, (tuple, list))
    bodies = tuple(as_expr(r) for r in (result if several else (result,)))
    reduce_axes = _check_bodies(name, bodies)
    op = ComputeOp(name, python_origin(), axes, reduce_axes, bodies, fma)
    outputs = tuple(
        Tensor(name if len(bodies) == 1 else f"{name}_{i}", extents, b.dtype, "global", op, i)
        for i, b in enumerate(bodies)
    )
    _check_reads(name, op)
    return outputs if several else outputs[0]


def _check_bodies(name: str, bodies: tuple[Expr, ...]) -> tuple[IterVar, ...]:
    first = bodies[0]
    for body in bodies:
        for inner in walk_expr(body):
            if isinstance(inner, Reduce) and inner is not body:
                raise ComputeError(
                    f"compute {name}: a reduction must be the outermost operation of the body",
                    help="declare the reduction as a compute of its own, T = te.compute(shape, lambda i: te.sum(...,"
                    " axis=k)), and use its elements: te.compute(shape, lambda i: T[i] + 1.0)",
                )
    if not isinstance(first, Reduce):
        if builtins.any(isinstance(b, Reduce) for b in bodies):
            raise ComputeError(f"compute {name}: either all outputs are reductions or none is")
        return ()
    for number, body in enumerate(bodies):
        if not isinstance(body, Reduce) or body.reducer is not first.reducer or body.sources is not first.sources:
            raise ComputeError(f"compute {name}: the outputs of a reduction must come from one reducer call")
        if body.index != number or len(bodies) != len(body.sources):
            raise ComputeError(f"compute {name}: a reducer of {len(body.sources)} values must give all its outputs")
    return first.axes


def _check_reads(name: str, op: ComputeOp) -> None:
    """A read whose index provably leaves the tensor for some point of the domain is an error at once."""
    from tensorir.bounds_check import check_compute_reads  # needs the arithmetic, which needs nodes

    try:
        check_compute_reads(name, op)
    except ComputeError as error:
        if not builtins.any(isinstance(t.op, PlaceholderOp) for t in input_tensors(op)):
            raise
        check_compute_reads(name, op, earlier=True)
        _EARLIER[id(op)] = (op, error)


_EARLIER: dict[int, tuple[ComputeOp, ComputeError]] = {}
"""Computes that read an input before its first step, which is right inside a scan only, with the error elsewhere."""


# --------------------------------------------------------------------------------------------------------- reducers


def _reduce(reducer: Reducer, sources: tuple[Expr, ...], axis: Any, where: Any) -> Any:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if axis is None or not axes:
        raise ComputeError(
            f"{reducer.name}: the axis to reduce over is not given",
            help="make one, k = te.reduce_axis(extent), index with it, and pass axis=k",
        )
    for a in axes:
        if not isinstance(a, IterVar) or a.kind != "reduce":
            raise ComputeError(
                f"{reducer.name}: axis {a!r} is not a reduce axis",
                help="make one, k = te.reduce_axis(extent), index with it, and pass axis=k",
            )
    condition = None if where is None else as_condition(where)
    results = tuple(Reduce(reducer, sources, axes, condition, i, s.dtype) for i, s in enumerate(sources))
    return results if len(results) > 1 else results[0]


def sum(value: Any, axis: Any = None, where: Any = None) -> Expr:
    """Sum over reduce axes, in the order of the axes; bool is refused."""
    x = as_expr(value)
    if x.dtype.is_bool:
        raise ComputeError(
            "sum of bool has no meaning",
            help="cast to an integer first, with .astype('int32'), or use te.any or te.all",
        )
    return _reduce(_reducer("sum", x.dtype), (x,), axis, where)


def prod(value: Any, axis: Any = None, where: Any = None) -> Expr:
    """Product over reduce axes."""
    x = as_expr(value)
    return _reduce(_reducer("prod", x.dtype), (x,), axis, where)


def max(value: Any, axis: Any = None, where: Any = None) -> Expr:
    """Maximum over reduce axes (NaN wins); of nothing it is the lowest value of the type."""
    x = as_expr(value)
    return _reduce(_reducer("max", x.dtype), (x,), axis, where)


def min(value: Any, axis: Any = None, where: Any = None) -> Expr:
    """Minimum over reduce axes (NaN wins); of nothing it is the highest value of the type."""
    x = as_expr(value)
    return _reduce(_reducer("min", x.dtype), (x,), axis, where)


def all(*conditions: Any, axis: Any = None, where: Any = None) -> Any:
    """Conjunction over reduce axes; without an axis, the logical and of the conditions."""
    if axis is None:
        return logical_and(*conditions)
    x = as_condition(conditions[0])
    return _reduce(_reducer("all", x.dtype), (x,), axis, where)


def any(*conditions: Any, axis: Any = None, where: Any = None) -> Any:
    """Disjunction over reduce axes; without an axis, the logical or of the conditions."""
    if axis is None:
        return logical_or(*conditions)
    x = as_condition(conditions[0])
    return _reduce(_reducer("any", x.dtype), (x,), axis, where)


def argmax(index: Any, value: Any, axis: Any = None, where: Any = None, *, last: bool = False) -> tuple[Expr, Expr]:
    """(index, value) of the largest value; the first index on ties (the last with `last`). NaN counts as largest."""
    i, v = as_expr(index), as_expr(value)
    return _reduce(_arg_reducer("argmax", i.dtype, v.dtype, last), (i, v), axis, where)


def argmin(index: Any, value: Any, axis: Any = None, where: Any = None, *, last: bool = False) -> tuple[Expr, Expr]:
    """(index, value) of the smallest value; the first index on ties (the last with `last`). NaN counts as smallest."""
    i, v = as_expr(index), as_expr(value)
    return _reduce(_arg_reducer("argmin", i.dtype, v.dtype, last), (i, v), axis, where)


def comm_reducer(
    combine: Callable[..., Any],
    identity: Callable[..., Any],
    name: str = "reducer",
    *,
    associative: bool = True,
    commutative: bool = True,
) -> Callable[..., Any]:
    """A user's reducer: `combine(x, y)` (or `combine((x0, x1), (y0, y1))` for several values) and `identity(dtype...)`.

    Returns a function used like `te.sum`: f(value or tuple of values, axis=k, where=None).
    """

    def reduce(value: Any, axis: Any, where: Any = None) -> Any:
        sources = tuple(as_expr(v) for v in (value if isinstance(value, (tuple, list)) else (value,)))
        count = len(sources)

        def flat(*args: Expr) -> Any:
            if count == 1:
                return as_expr(combine(*args))
            return tuple(as_expr(r) for r in combine(tuple(args[:count]), tuple(args[count:])))

        def start(*types: DType) -> Any:
            names = [str(t) for t in types]
            result = identity(*names)
            items = result if isinstance(result, (tuple, list)) else (result,)
            return tuple(
                as_expr(r, t) if isinstance(r, Expr) else const(r, t) for r, t in zip(items, types, strict=True)
            )

        types = tuple(s.dtype for s in sources)
        reducer = make_reducer(name, flat, start, types, associative=associative, commutative=commutative)
        return _reduce(reducer, sources, axis, where)

    return reduce


def min_value(dtype: DType | str) -> Expr:
    """The lowest value of a type (minus infinity for floats)."""
    t = dtype_of(dtype)
    return const(float("-inf") if t.is_float else t.min_value, t)


def max_value(dtype: DType | str) -> Expr:
    """The highest value of a type (infinity for floats)."""
    t = dtype_of(dtype)
    return const(float("inf") if t.is_float else t.max_value, t)


def _reducer(name: str, t: DType) -> Reducer:
    key = (name, t)
    if key not in _REDUCERS:
        combine, identity = _SIMPLE[name]
        _REDUCERS[key] = make_reducer(name, combine, identity, (t,))
    return _REDUCERS[key]


_SIMPLE: dict[str, tuple[Callable[..., Expr], Callable[[DType], Expr]]] = {
    "sum": (lambda x, y: x + y, lambda t: const(0, t)),
    "prod": (lambda x, y: x * y, lambda t: const(1, t)),
    "max": (maximum, min_value),
    "min": (minimum, max_value),
    "all": (logical_and, lambda t: const(True)),
    "any": (logical_or, lambda t: const(False)),
}
_REDUCERS: dict[tuple[Any, ...], Reducer] = {}


def _arg_reducer(name: str, index: DType, value: DType, last: bool) -> Reducer:
    key = (name, index, value, last)
    if key in _REDUCERS:
        return _REDUCERS[key]

    def combine(i: Expr, x: Expr, j: Expr, y: Expr) -> tuple[Expr, Expr]:
        beats = y > x if name == "argmax" else y < x
        if value.is_float:
            beats = logical_or(beats, logical_and(isnan(y), logical_not(isnan(x))))
            tie = logical_or(equal(x, y), logical_and(isnan(x), isnan(y)))
        else:
            tie = equal(x, y)
        nothing_yet = equal(i, const(-1, index))
        closer = j > i if last else j < i
        take = logical_or(
            nothing_yet, logical_and(not_equal(j, const(-1, index)), logical_or(beats, logical_and(tie, closer)))
        )
        return select(take, j, i), select(take, y, x)

    identity = min_value if name == "argmax" else max_value
    reducer = make_reducer(name, combine, lambda ti, tv: (const(-1, ti), identity(tv)), (index, value))
    _REDUCERS[key] = reducer
    return reducer


# ----------------------------------------------------------------------------------------------------------- extern


def extern(
    outputs: Sequence[tuple[Any, DType | str]], inputs: Sequence[Tensor], function: str, name: str = "extern"
) -> Any:
    """Tensors written by the registered host function `function` ("module:function") from whole input tensors.

    `outputs` are (shape, dtype) pairs. Returns one tensor or a tuple of them.
    """
    op = ExternOp(name, python_origin(), function, tuple(inputs))
    made = tuple(
        Tensor(name if len(outputs) == 1 else f"{name}_{i}", as_shape(s), dtype_of(t), "global", op, i)
        for i, (s, t) in enumerate(outputs)
    )
    return made[0] if len(made) == 1 else made


# ------------------------------------------------------------------------------------------------------------- scan


def scan(init: Any, update: Any, state_placeholder: Any, inputs: Any = None, name: str = "scan") -> Any:
    """Tensors of the shapes of the state placeholders, made step by step along the first axis.

        state = te.placeholder((t, n)); first = te.compute((1, n), lambda _, i: x[0, i])
        update = te.compute((t, n), lambda t, i: state[t - 1, i] + x[t, i])
        total = te.scan(first, update, state)           # total[t, i] = total[t - 1, i] + x[t, i]

    `init` gives the first steps; `update`, and the computes between it and the state, may read the state at earlier
    steps, as many back as `init` has, and each other at the same step. `inputs` is there for TE's sake. Several states
    are given as tuples. Raises `ComputeError`.
    """
    first, step, state = (tuple(x) if isinstance(x, (tuple, list)) else (x,) for x in (init, update, state_placeholder))
    if not first or not len(first) == len(step) == len(state):
        raise ComputeError(
            f"scan {name}: there are {len(first)} init, {len(step)} update and {len(state)} state tensors",
            help="give one of each for every state",
        )
    begin = first[0].shape[0]
    for a, b, c in zip(first, step, state, strict=True):
        if not isinstance(c.op, PlaceholderOp):
            raise ComputeError(f"scan {name}: the state {c.name} is not a placeholder")
        if not len(a.shape) == len(b.shape) == len(c.shape) or not c.shape or not a.dtype == b.dtype == c.dtype:
            raise ComputeError(
                f"scan {name}: {a.name} ({a.dtype}), {b.name} ({b.dtype}) and {c.name} ({c.dtype}) do not fit together",
                help="init, update and state have one type and the same axes, the steps first",
            )
        _require_same(name, "init and state", a.shape[1:], c.shape[1:])
        _require_same(name, "update and state", b.shape, c.shape)
        _require_same(name, "init", (a.shape[0],), (begin,))
    axis = IterVar(Var("t"), begin, state[0].shape[0] - begin, "scan")
    op = ScanOp(name, python_origin(), axis, first, step, state)
    _check_steps(op)
    outputs = output_tensors(op, ())
    return outputs if len(outputs) > 1 else outputs[0]


def _require_same(name: str, what: str, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> None:
    for x, y in zip(a, b, strict=True):
        same = x is y or (isinstance(x, Const) and isinstance(y, Const) and x.value == y.value)
        if not same:
            raise ComputeError(f"scan {name}: the shapes of {what} differ: {list(a)} and {list(b)}")


def scan_stages(op: ScanOp) -> tuple[ComputeOp, ...]:
    """The computes of one step: the updates and what depends on the state, producers first."""
    states = {id(t) for t in op.state}
    inside: set[int] = set()
    found: list[ComputeOp] = []
    for inner in collect_operations(op.update):
        is_update = builtins.any(inner is t.op for t in op.update)
        if is_update or builtins.any(id(t) in states or id(t.op) in inside for t in input_tensors(inner)):
            if not isinstance(inner, ComputeOp):
                raise ComputeError(f"scan {op.name}: {inner.name} is no compute and cannot be one of its steps")
            inside.add(id(inner))
            found.append(inner)
    return tuple(found)


def _check_steps(op: ScanOp) -> None:
    """The state is read at earlier steps only, and the computes of one step read each other at that step."""
    from tensorir.arith import simplify  # needs nodes

    stages = scan_stages(op)
    states, inside = {id(t) for t in op.state}, {id(s) for s in stages}
    back = op.steps.begin
    for stage in stages:
        for body in stage.bodies[:1] if isinstance(stage.bodies[0], Reduce) else stage.bodies:
            for e in walk_expr(body):
                if not isinstance(e, Load) or not isinstance(e.buffer, Tensor):
                    continue
                if id(e.buffer) not in states and id(e.buffer.op) not in inside:
                    continue
                distance = simplify(stage.axes[0].var - e.indices[0]) if stage.axes and e.indices else None
                known = int(distance.value) if isinstance(distance, Const) else None
                if id(e.buffer) in states:
                    most = int(back.value) if isinstance(back, Const) else 1
                    if known is None or not 1 <= known <= most:
                        raise ComputeError(
                            f"scan {op.name}: {stage.name} reads the state {e.buffer.name} at step {e.indices[0]!r},"
                            f" but {op.init[0].name} gives {most} earlier steps", help="read it at t - 1 .. t - steps",
                        )  # fmt: skip
                elif known != 0:
                    raise ComputeError(
                        f"scan {op.name}: {stage.name} reads {e.buffer.name} at step {e.indices[0]!r}, which is made in"
                        " the same loop", help=f"make {e.buffer.name} a state to read other steps of it",
                    )  # fmt: skip


def redirect(block: Block, buffers: dict[int, Buffer]) -> Block:
    """The block with other buffers, by the id of the old ones."""

    def node(e: Expr) -> Expr:
        if isinstance(e, Load) and id(e.buffer) in buffers:
            return Load(buffers[id(e.buffer)], e.indices, e.dtype, e.predicate)
        return e

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store) and id(s.buffer) in buffers:
            return Store(buffers[id(s.buffer)], s.indices, s.value, s.predicate)
        return s

    def whole(s: Stmt) -> Stmt:
        return rewrite_stmt(s, expr=lambda e: rewrite_expr(e, node), stmt=stmt)

    def region(r: Region) -> Region:
        return Region(buffers.get(id(r.buffer), r.buffer), r.ranges)

    return dataclasses.replace(
        block, reads=tuple(map(region, block.reads)), writes=tuple(map(region, block.writes)),
        init=None if block.init is None else whole(block.init), body=whole(block.body),
    )  # fmt: skip


def scan_buffers(op: ScanOp, outputs: Sequence[Buffer]) -> dict[int, Buffer]:
    """Where the states and the updates of a scan are stored: in its outputs."""
    made = zip(outputs, op.state, op.update, strict=True)
    return {id(t): buffer for buffer, state, update in made for t in (state, update)}


def scan_init_nests(op: ScanOp, outputs: Sequence[Buffer], source: Callable[[Tensor], Buffer]) -> tuple[Stmt, ...]:
    """The nests that copy the first steps from where `source` says that the init tensors are."""
    nests = []
    for first, output in zip(op.init, outputs, strict=True):
        axes = tuple(IterVar(Var(f"i{n}"), const(0), extent, "spatial") for n, extent in enumerate(first.shape))
        load = Load(source(first), tuple(a.var for a in axes), first.dtype)
        copy = ComputeOp(f"{op.name}_init", op.origins, axes, (), (load,), True)
        nests.append(nest(compute_block(copy, (output,)), axes))
    return tuple(nests)


def _scan_nests(op: ScanOp, outputs: Sequence[Buffer], known: Sequence[Tensor]) -> tuple[Stmt, ...]:
    """The first steps and the loop over the others, each stage of a step in a nest over its own other axes."""
    buffers = scan_buffers(op, outputs)
    t = Var("t")
    steps: list[Stmt] = []
    for stage in scan_stages(op):
        block = redirect(compute_block(stage, output_tensors(stage, known)), buffers)
        block = dataclasses.replace(block, bindings=(t, *block.bindings[1:]))
        steps.append(nest(block, (*stage.axes[1:], *stage.reduce_axes)))
    loop = For(t, op.steps.begin, op.steps.extent, "serial", seq(*steps))
    return (*scan_init_nests(op, outputs, lambda x: x), loop)


# --------------------------------------------------------------------------------------------- the unscheduled program


def input_tensors(op: Operation) -> tuple[Tensor, ...]:
    """The tensors an operation reads, each once, in the order of first reading."""
    if isinstance(op, (ExternOp, ScanOp)):
        return op.inputs
    found: dict[int, Tensor] = {}
    if isinstance(op, ComputeOp):
        roots: list[Expr] = []
        for body in op.bodies:
            if isinstance(body, Reduce):
                roots += [*body.sources, *([] if body.condition is None else [body.condition])]
                roots += [x for a in body.axes for x in (a.begin, a.extent)]
            else:
                roots.append(body)
        for root in roots:
            for e in walk_expr(root):
                if isinstance(e, Load) and isinstance(e.buffer, Tensor):
                    found.setdefault(id(e.buffer), e.buffer)
    return tuple(found.values())


def collect_operations(outputs: Sequence[Tensor]) -> tuple[Operation, ...]:
    """All operations that the outputs need, producers before consumers."""
    order: list[Operation] = []
    state: dict[int, int] = {}
    stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(list(outputs))]
    while stack:
        op, expanded = stack.pop()
        if expanded:
            if state.get(id(op)) != 2:
                state[id(op)] = 2
                order.append(op)
            continue
        if state.get(id(op)):
            continue
        state[id(op)] = 1
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(input_tensors(op)))
    states = {id(t.op) for op in order if isinstance(op, ScanOp) for t in op.state}
    return tuple(op for op in order if id(op) not in states)


def foreign_vars(op: Operation) -> tuple[Var, ...]:
    """The variables in the bodies of a compute that are not its own axes."""
    if not isinstance(op, ComputeOp):
        return ()
    axes = {id(a.var) for a in (*op.axes, *op.reduce_axes)}
    return tuple(v for body in op.bodies for v in free_vars(body) if id(v) not in axes)


def require_values(operations: Sequence[Operation], dims: Sequence[Var]) -> None:
    """Every variable in a compute is one of its axes or of `dims`. Raises `ComputeError`."""
    known = {id(v) for v in dims}
    for op in operations:
        for v in foreign_vars(op):
            if id(v) not in known:
                raise ComputeError(
                    f"compute {op.name}: the variable {v.name} has no value there: it is neither an axis of {op.name} "
                    "nor a dimension of an argument",
                    notes=tuple(f"note: {op.name} is declared at {o}" for o in op.origins[:1]),
                    help=f"if {v.name} is a reduce axis, reduce over it, as te.sum(..., axis={v.name}); if it is "
                    "an axis of another compute, read that tensor; if it is a te.var, pass it among the arguments",
                )


def require_steps_in_scans(operations: Sequence[Operation]) -> None:
    """Reads of an input before its first step belong to the steps of a scan. Raises `ComputeError`."""
    inside: set[int] = set()
    for op in operations:
        if isinstance(op, ScanOp):
            inside |= {id(s) for s in scan_stages(op)}
    for op in operations:
        if id(op) in _EARLIER and id(op) not in inside:
            raise _EARLIER[id(op)][1]


def output_tensors(op: Operation, known: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors of `op` in index order; those never named by anyone are made anew."""
    by_index = {t.index: t for t in known if t.op is op}
    if isinstance(op, ComputeOp):
        extents = tuple(a.extent for a in op.axes)
        return tuple(
            by_index.get(i) or Tensor(f"{op.name}_{i}", extents, b.dtype, "global", op, i)
            for i, b in enumerate(op.bodies)
        )
    if isinstance(op, ScanOp):
        several = len(op.state) > 1
        return tuple(
            by_index.get(i) or Tensor(f"{op.name}_{i}" if several else op.name, s.shape, s.dtype, "global", op, i)
            for i, s in enumerate(op.state)
        )
    return tuple(t for _, t in sorted(by_index.items()))


def compute_block(op: ComputeOp, outputs: Sequence[Buffer]) -> Block:
    """The block of a compute with fresh block variables; its bindings are the compute's own axis variables, so that
    loops over those variables around it give the unscheduled program."""
    iters = tuple(
        IterVar(Var(f"v_{a.name}", a.var.dtype), a.begin, a.extent, a.kind) for a in (*op.axes, *op.reduce_axes)
    )
    bindings = tuple(a.var for a in (*op.axes, *op.reduce_axes))
    mapping: dict[Var, Expr] = {b: i.var for b, i in zip(bindings, iters, strict=True)}
    point = tuple(i.var for i in iters[: len(op.axes)])
    init: Stmt | None = None
    predicate: Expr = const(True)
    first = op.bodies[0]
    if isinstance(first, Reduce):
        init = seq(*[Store(b, point, e) for b, e in zip(outputs, first.reducer.identities, strict=True)])
        body, condition = _reduction_update(op, first, mapping, outputs, point)
        if condition is not None:
            body = If(condition, body)
    else:
        body = seq(*[Store(b, point, substitute(e, mapping)) for b, e in zip(outputs, op.bodies, strict=True)])
    reads = _read_regions(op, mapping)
    writes = tuple(Region(b, tuple(Range(p, const(1)) for p in point)) for b in outputs)
    return Block(op.name, iters, bindings, predicate, reads, writes, init, body, op.origins)


def _reduction_update(
    op: ComputeOp, first: Reduce, mapping: dict[Var, Expr], outputs: Sequence[Buffer], point: tuple[Expr, ...]
) -> tuple[Stmt, Expr | None]:
    """One step of the reduction as stores; a float sum of products becomes an Fma here and nowhere later."""
    sources = tuple(substitute(s, mapping) for s in first.sources)
    condition = None if first.condition is None else substitute(first.condition, mapping)
    current = tuple(Load(b, point, b.dtype) for b in outputs)
    reducer = first.reducer
    if len(outputs) == 1:
        source = sources[0]
        if op.fma and reducer.name == "sum" and isinstance(source, Mul) and source.dtype.is_float:
            return Store(outputs[0], point, Fma(source.a, source.b, current[0], source.dtype)), condition
        value = substitute(reducer.results[0], {reducer.lhs[0]: current[0], reducer.rhs[0]: source})
        return Store(outputs[0], point, value), condition
    old = tuple(Var(f"old{i}", b.dtype) for i, b in enumerate(outputs))
    new = tuple(Var(f"new{i}", s.dtype) for i, s in enumerate(sources))
    binding: dict[Var, Expr] = {**dict(zip(reducer.lhs, old, strict=True)), **dict(zip(reducer.rhs, new, strict=True))}
    body = seq(*[Store(b, point, substitute(r, binding)) for b, r in zip(outputs, reducer.results, strict=True)])
    for variable, value in reversed([*zip(old, current, strict=True), *zip(new, sources, strict=True)]):
        body = LetStmt(variable, value, body)
    return body, condition


def _read_regions(op: ComputeOp, mapping: dict[Var, Expr]) -> tuple[Region, ...]:
    """One point region a load, in block variables."""
    regions: list[Region] = []
    for body in op.bodies[:1] if isinstance(op.bodies[0], Reduce) else op.bodies:
        roots = (
            (*body.sources, *(() if body.condition is None else (body.condition,)))
            if isinstance(body, Reduce)
            else (body,)
        )
        for root in roots:
            for e in walk_expr(root):
                if isinstance(e, Load):
                    ranges = tuple(Range(substitute(i, mapping), const(1)) for i in e.indices)
                    regions.append(Region(e.buffer, ranges))
    return tuple(regions)


def extern_block(op: ExternOp, outputs: Sequence[Buffer]) -> Block:
    """The opaque block of an extern: `call_extern(function, whole buffers)`."""
    args = tuple(
        Call("address", (Load(b, tuple(const(0) for _ in b.shape), b.dtype),), dtypes.uint64)
        for b in (*op.inputs, *outputs)
    )
    dims = tuple(d for b in (*op.inputs, *outputs) for d in b.shape)
    body = Evaluate(Call(f"extern:{op.function}", (*args, *dims), dtypes.int32))
    return Block(
        op.name, (), (), const(True), tuple(full_region(b) for b in op.inputs), tuple(full_region(b) for b in outputs),
        None, body, op.origins,
    )  # fmt: skip


def nest(block: Block, axes: Sequence[IterVar]) -> Stmt:
    """Serial loops over `axes` around a block."""
    body: Stmt = block
    for axis in reversed(axes):
        body = For(axis.var, axis.begin, axis.extent, "serial", body)
    return body


def shape_vars(buffers: Sequence[Buffer]) -> tuple[Var, ...]:
    """The dimension symbols of the buffers' shapes in first-met order: the `dims` of the kernel ABI."""
    found: dict[int, Var] = {}
    for buffer in buffers:
        for extent in buffer.shape:
            for v in free_vars(extent):
                found.setdefault(id(v), v)
    return tuple(found.values())


def create_func(args: Sequence[Tensor], name: str = "main") -> Func:
    """The unscheduled program of `args` (placeholders first, outputs last): every compute a block in its own nest."""
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    if not outputs:
        raise ComputeError("create_func: no output among the arguments", help="pass the computed tensors too")
    operations = collect_operations(outputs)
    given = {id(t) for t in args}
    known: list[Tensor] = [*args, *(t for op in operations for t in input_tensors(op))]
    states = {id(t) for op in operations if isinstance(op, ScanOp) for t in op.state}
    for t in known:
        if isinstance(t.op, PlaceholderOp) and id(t) not in given and id(t) not in states:
            raise ComputeError(f"the input {t.name} is read but is not among the arguments", help=f"add {t.name}")
    require_steps_in_scans(operations)
    dims = shape_vars(args)
    require_values(operations, dims)
    nests: list[Stmt] = []
    internal: list[Buffer] = []
    scans = [op for op in operations if isinstance(op, ScanOp)]
    steps = {id(stage) for op in scans for stage in scan_stages(op)}
    stored = {id(t.op) for op in scans for t in op.update}
    for op in operations:
        if isinstance(op, PlaceholderOp) or id(op) in stored:
            continue
        made = output_tensors(op, known)
        internal += [t for t in made if id(t) not in given]
        if isinstance(op, ScanOp):
            nests.extend(_scan_nests(op, made, known))
        elif isinstance(op, ComputeOp) and id(op) not in steps:
            nests.append(nest(compute_block(op, made), (*op.axes, *op.reduce_axes)))
        elif isinstance(op, ExternOp):
            nests.append(extern_block(op, made))
    body = seq(*nests)
    for buffer in reversed(internal):
        body = Allocate(buffer, body)
    return Func(name, tuple(args), dims, body, len(outputs))
