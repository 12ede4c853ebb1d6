"""`s.verify()`: the scheduled program against the unscheduled one.

Small programs run whole on the interpreter, both ways, and must agree bit by bit. For large ones the front door hands
in a `runner` that compiles and runs the scheduled program; its results are compared at sampled points, which the
interpreter evaluates alone from the unscheduled compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from schedule.error import ScheduleError
from schedule.state import Inlined
from tensorir.buffer import Buffer
from tensorir.expr import Const, Expr, Load, Var, const
from tensorir.interpreter import interpret
from tensorir.layout import Layout
from tensorir.stmt import Block, For, Func, Seq, Stmt
from tensorir.te import ComputeOp, ExternOp, PlaceholderOp, ScanOp, Tensor, compute, create_func
from tensorir.verify import verify as verify_ir
from tensorir.visit import sub_stmts, substitute, walk_expr, walk_exprs

if TYPE_CHECKING:
    from schedule.schedule import Schedule

Runner = Callable[[Func, list[np.ndarray], Mapping[Var, int]], None]
INTERPRETED = 1_000_000
SAMPLES = 8
_SIZES = (5, 7, 3, 9, 4, 11)


class VerificationError(ScheduleError):
    """The scheduled program gives another result than the unscheduled one: a fault of Nestor."""


def verify(
    schedule: Schedule, run: Runner | None = None, *, dims: Mapping[Var, int] | None = None, seed: int = 0
) -> str:
    """Runs scheduled and unscheduled program on random inputs; a sentence on what was compared.

    Raises `VerificationError` naming output, index and both values; `ScheduleError` when the program is too large for
    the interpreter and no runner was given.
    """
    given = (*schedule.inputs, *schedule.outputs)
    plain, scheduled = create_func(given), schedule.func()
    sizes = {v: _SIZES[n % len(_SIZES)] for n, v in enumerate(plain.dims)} | dict(dims or {})
    rng = np.random.default_rng(seed)
    inputs = _random_inputs(plain, sizes, rng)
    iterations = _iterations(plain.body, sizes)
    if iterations <= INTERPRETED:
        wanted = _outputs(plain, sizes)
        interpret(plain, [*inputs, *wanted], sizes)
        found = run_packed(schedule, interpret, scheduled, inputs, _outputs(plain, sizes), sizes)
        for tensor, w, f in zip(schedule.outputs, wanted, found, strict=True):
            _compare(schedule, tensor, w, f)
        return f"verified: {iterations} iterations of the unscheduled program give the same result"
    if run is None:
        raise ScheduleError(
            f"verify(): the program has {iterations} iterations, too many for the interpreter",
            help="pass a runner: verify(run=lambda func, arrays, dims: ...), or verify a smaller shape",
        )
    found = run_packed(schedule, run, scheduled, inputs, _outputs(plain, sizes), sizes)
    for tensor, f in zip(schedule.outputs, found, strict=True):
        for _ in range(SAMPLES):
            index = tuple(int(rng.integers(0, n)) for n in f.shape)
            w = _evaluate_point(schedule, tensor, index, inputs, sizes)
            _compare(schedule, tensor, w, np.array([f[index]], f.dtype), index)
    return f"verified: {SAMPLES} sampled points of each output agree"


def verify_now(schedule: Schedule, call: str) -> None:
    """After a primitive, where NESTOR_VERIFY is set: the program is legal Tensor IR, and gives the result of the
    unscheduled one if that is small enough to run at once. Raises `VerificationError` naming the call."""
    verify_ir(schedule.func())
    plain = create_func((*schedule.inputs, *schedule.outputs))
    sizes = {v: _SIZES[n % len(_SIZES)] for n, v in enumerate(plain.dims)}
    has_extern = any(isinstance(v.op, ExternOp) for v in schedule.stages)
    if has_extern or _iterations(plain.body, sizes) > INTERPRETED // 20:
        return
    try:
        verify(schedule)
    except VerificationError as error:
        raise VerificationError(f"after {call}: {error.message}", help=error.help) from None


def pack(array: np.ndarray, layout: Layout | None) -> np.ndarray:
    """A logical array as it lies in memory, zero on the padding lanes."""
    if layout is None:
        return array
    padded = np.pad(array, [(0, -n % b) for n, b in zip(array.shape, layout.block, strict=True)])
    shape, places = _parts(padded.shape, layout)
    order = [places.index((d.axis, d.stride)) for d in layout.dims]
    return np.ascontiguousarray(padded.reshape(shape).transpose(order))


def unpack(array: np.ndarray, layout: Layout | None, shape: Sequence[int]) -> np.ndarray:
    """The logical array of `shape` that lies in memory as `array`."""
    if layout is None:
        return array
    whole = [-(-n // b) * b for n, b in zip(shape, layout.block, strict=True)]
    _, places = _parts(whole, layout)
    order = [next(i for i, d in enumerate(layout.dims) if (d.axis, d.stride) == place) for place in places]
    return np.ascontiguousarray(array.transpose(order).reshape(whole)[tuple(slice(n) for n in shape)])


def _parts(shape: Sequence[int], layout: Layout) -> tuple[list[int], list[tuple[int, int]]]:
    """The shape with every axis in its parts, outer before inner, and (axis, stride) of each part."""
    sizes: list[int] = []
    places: list[tuple[int, int]] = []
    for axis, extent in enumerate(shape):
        for d in sorted((d for d in layout.dims if d.axis == axis), key=lambda d: -d.stride):
            sizes.append(extent // d.stride if d.extent is None else d.extent)
            places.append((axis, d.stride))
    return sizes, places


def run_packed(
    schedule: Schedule, run: Runner, func: Func, inputs: list[np.ndarray], outputs: list[np.ndarray],
    sizes: Mapping[Var, int],
) -> list[np.ndarray]:  # fmt: skip
    """Runs the scheduled program on logical arrays, packed and unpacked by the layouts of its parameters."""

    def layout_of(tensor: Tensor) -> Layout | None:
        stage = schedule.find_stage(tensor)
        return next(x for t, x in zip(stage.outputs, stage.layouts, strict=True) if t is tensor)

    given = [pack(a, layout_of(t)) for t, a in zip(schedule.inputs, inputs, strict=True)]
    layouts = [layout_of(t) for t in schedule.outputs]
    made = [pack(a, x) for a, x in zip(outputs, layouts, strict=True)]
    for array in made:
        array[...] = np.nan if array.dtype.kind not in "biu" else 1
    run(func, [*given, *made], sizes)
    result = [unpack(a, x, o.shape) for a, x, o in zip(made, layouts, outputs, strict=True)]
    for tensor, array, layout, logical in zip(schedule.outputs, made, layouts, result, strict=True):
        if layout is not None and not (pack(logical, layout) == array)[array == array].all():
            raise VerificationError(f"verify(): a padding lane of {tensor.name} is not zero")
    return result


def _compare(
    schedule: Schedule, tensor: Tensor, wanted: np.ndarray, found: np.ndarray, place: tuple[int, ...] | None = None
) -> None:
    if schedule.state.reassociated and tensor.dtype.is_float:
        same = np.isclose(wanted, found, rtol=1e-3, atol=1e-4, equal_nan=True)
    else:
        same = (wanted == found) | ((wanted != wanted) & (found != found))
    if same.all():
        return
    first = tuple(int(i) for i in np.argwhere(~same)[0])
    raise VerificationError(
        f"verify(): {tensor.name}{list(place if place is not None else first)} is {found[first]} when scheduled and"
        f" {wanted[first]} when not ({int((~same).sum())} elements differ)",
        help="this is a fault of Nestor: please report it with print(s) and s.trace",
    )


def _size(e: Expr, sizes: Mapping[Var, int]) -> int:
    value = substitute(e, {v: const(n) for v, n in sizes.items()})
    if not isinstance(value, Const):
        from tensorir.arith import simplify

        value = simplify(value)
    assert isinstance(value, Const)
    return int(value.value)


def _random_inputs(func: Func, sizes: Mapping[Var, int], rng: np.random.Generator) -> list[np.ndarray]:
    loads = [e for e in walk_exprs(func.body) if isinstance(e, Load)]
    index_buffers = {id(x.buffer) for e in loads for i in e.indices for x in walk_expr(i) if isinstance(x, Load)}
    smallest = min((_size(s, sizes) for p in func.params for s in p.shape), default=1)
    arrays = []
    for buffer in func.params[: len(func.params) - func.outputs]:
        shape = tuple(_size(s, sizes) for s in buffer.shape)
        array: np.ndarray
        if buffer.dtype.is_float:
            array = rng.standard_normal(shape)
        elif id(buffer) in index_buffers:
            array = rng.integers(0, max(1, smallest), shape)
        elif buffer.dtype.is_bool:
            array = rng.integers(0, 2, shape)
        else:
            array = rng.integers(0 if buffer.dtype.kind == "uint" else -9, 10, shape)
        arrays.append(array.astype(buffer.dtype.numpy))
    return arrays


def _outputs(func: Func, sizes: Mapping[Var, int]) -> list[np.ndarray]:
    return [
        np.full(tuple(_size(s, sizes) for s in b.shape), np.nan if b.dtype.is_float else 77, b.dtype.numpy)
        for b in func.params[len(func.params) - func.outputs :]
    ]


def _iterations(body: Stmt, sizes: Mapping[Var, int]) -> int:
    """How often the blocks of an unscheduled program run: its nests are perfect and their extents hold no loop
    variables."""
    total = 0
    stack: list[tuple[Stmt, int]] = [(body, 1)]
    while stack:
        stmt, times = stack.pop()
        if isinstance(stmt, Block):
            total += times
        elif isinstance(stmt, For):
            stack.append((stmt.body, times * _size(stmt.extent, sizes)))
        else:
            stack.extend((s, times) for s in (stmt.stmts if isinstance(stmt, Seq) else sub_stmts(stmt)))
    return total


def _evaluate_point(
    schedule: Schedule, tensor: Tensor, index: Sequence[int], inputs: list[np.ndarray], sizes: Mapping[Var, int]
) -> np.ndarray:
    """One element of an output by the unscheduled compute: everything it needs is computed at that point."""
    point: Any = compute((1,), lambda z: tensor(*[const(i) for i in index]), name="point")
    alone = type(schedule)(point)
    views = [v for v in alone.stages if isinstance(v.op, ComputeOp) and v.tensor is not point]
    if any(isinstance(v.op, (ExternOp, ScanOp)) for v in alone.stages):
        raise ScheduleError(
            f"verify(): {tensor.name} depends on an extern or a scan, so single points cannot be evaluated",
            help="verify a smaller shape",
        )
    for view in reversed(views):
        if not isinstance(alone.find_stage(view).place, Inlined):
            view.compute_at(point, "z")
    by_buffer: dict[int, np.ndarray] = {id(t): a for t, a in zip(schedule.inputs, inputs, strict=True)}
    used: list[Buffer] = [v.tensor for v in alone.stages if isinstance(v.op, PlaceholderOp)]
    func = alone.func([*sizes, *used, point])
    result = np.zeros((1,), tensor.dtype.numpy)
    interpret(func, [*(by_buffer[id(b)] for b in used), result], sizes)
    return result
