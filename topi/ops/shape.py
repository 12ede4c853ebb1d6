"""Operators that move elements and compute nothing: reshape, transpose, slice, concat, pad, gather and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorir import dtypes, te
from tensorir.arith import Analyzer, simplify
from tensorir.dtypes import DType
from tensorir.expr import Const, Expr, Var, as_expr, const, floordiv, floormod, maximum, minimum
from tensorir.te import Tensor
from topi.broadcast import broadcast_shapes, is_one, read, same_extent
from topi.op import Onnx, OpError, attribute, input_value, op

INT64_MAX = 2**63 - 1


def normalize_axis(name: str, axis: int, rank: int) -> int:
    """A possibly negative axis as 0 <= axis < rank. Raises `OpError`."""
    if not -rank <= axis < max(rank, 1):
        raise OpError(f"{name}: axis {axis} does not exist: the operand has {rank} dimensions")
    return axis + rank if axis < 0 else axis


def as_axes(axes: Any) -> tuple[Any, ...]:
    """Axes that may be given as one number."""
    return axes if isinstance(axes, tuple) else (axes,)


def normalize_axes(name: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Several axes, each normalised; a repeated one is refused."""
    result = tuple(normalize_axis(name, int(a), rank) for a in axes)
    if len(set(result)) != len(result):
        raise OpError(f"{name}: axes {tuple(axes)} name one axis twice")
    return result


def product(extents: Sequence[Expr]) -> Expr:
    """The product of dimensions."""
    result: Expr = const(1)
    for e in extents:
        result = result * e
    return simplify(result)


# ------------------------------------------------------------------------------------------------------------- views


def reshaped(x: Tensor, shape: Sequence[Expr], name: str) -> Tensor:
    """The elements of x in row-major order under another shape."""

    def element(*point: Expr) -> Expr:
        analyzer = Analyzer()
        for variable, extent in zip(point, shape, strict=True):
            assert isinstance(variable, Var)
            analyzer.bind(variable, const(0), extent)
        return x(*_reindex(point, shape, x.shape, analyzer))

    return te.compute(tuple(shape), element, name=name)


def _reindex(point: Sequence[Expr], target: Sequence[Expr], source: Sequence[Expr], analyzer: Analyzer) -> list[Expr]:
    """Indices into `source` of the element that lies at `point` of `target` in row-major order. Equal leading and
    trailing dimensions map one to one, so that only the middle pays for divisions."""
    head = 0
    while head < min(len(target), len(source)) and same_extent(target[head], source[head]):
        head += 1
    tail = 0
    while tail < min(len(target), len(source)) - head and same_extent(target[-1 - tail], source[-1 - tail]):
        tail += 1
    linear: Expr = const(0)
    for variable, extent in zip(point[head : len(target) - tail], target[head : len(target) - tail], strict=True):
        linear = linear * extent + variable
    middle = list(source[head : len(source) - tail])
    indices: list[Expr] = []
    rest = linear
    for position, extent in reversed(list(enumerate(middle))):
        if is_one(extent):
            indices.append(const(0))
        elif position == 0 or all(is_one(e) for e in middle[:position]):
            indices.append(analyzer.simplify(rest))
            rest = const(0)
        else:
            indices.append(analyzer.simplify(floormod(rest, extent)))
            rest = floordiv(rest, extent)
    return [*point[:head], *reversed(indices), *point[len(target) - tail :]]


def resolve_shape(name: str, source: Sequence[Expr], wanted: Sequence[Any], allowzero: bool) -> tuple[Expr, ...]:
    """The shape meant by a reshape request: 0 copies a dimension (unless `allowzero`), one -1 takes what is left."""
    result: list[Expr | None] = []
    for axis, item in enumerate(wanted):
        extent = as_expr(item)
        if isinstance(extent, Const) and extent.value == 0 and not allowzero:
            if axis >= len(source):
                raise OpError(f"{name}: shape {tuple(wanted)} copies axis {axis}, which the operand does not have")
            result.append(source[axis])
        elif isinstance(extent, Const) and extent.value == -1:
            if any(r is None for r in result):
                raise OpError(f"{name}: shape {tuple(wanted)} has more than one -1")
            result.append(None)
        else:
            result.append(extent)
    total = product(source)
    known = product([r for r in result if r is not None])
    if any(r is None for r in result):
        if isinstance(known, Const) and known.value == 0:
            raise OpError(f"{name}: shape {tuple(wanted)} leaves -1 undefined beside a 0")
        if isinstance(known, Const) and isinstance(total, Const) and int(total.value) % int(known.value):
            raise OpError(f"{name}: {total.value} elements of shape {tuple(source)} do not fit {tuple(wanted)}")
        rest = simplify(floordiv(total, known))
        return tuple(rest if r is None else r for r in result)
    shape = tuple(r for r in result if r is not None)
    if isinstance(known, Const) and isinstance(total, Const) and known.value != total.value:
        raise OpError(
            f"{name}: {total.value} elements of shape {tuple(source)} do not fit {tuple(wanted)} of {known.value}"
        )
    return shape


@op(
    "reshape",
    onnx=[
        Onnx("Reshape", 1, {"shape": attribute("shape")}),
        Onnx("Reshape", 5, {"shape": input_value(1)}, inputs=(0,)),
        Onnx("Reshape", 14, {"shape": input_value(1), "allowzero": attribute("allowzero", 0, bool)}, inputs=(0,)),
    ],
    view=True,
)
def reshape(x: Tensor, /, *, shape: tuple[Any, ...], allowzero: bool = False) -> Tensor:
    """The same elements in row-major order under `shape`; 0 copies a dimension, one -1 takes what is left."""
    return reshaped(x, resolve_shape("reshape", x.shape, shape, allowzero), "reshape")


@reshape.reference
def _reshape(x: Any, *, shape: tuple[int, ...], allowzero: bool = False) -> Any:
    sizes = [x.shape[n] if s == 0 and not allowzero else s for n, s in enumerate(shape)]
    return x.reshape(sizes)


reshape.case([(2, 3, 4)], shape=(0, -1))
reshape.case([(6, 35)], shape=(2, 3, 7, 5))
reshape.case([(2, 3, 5, 7)], shape=(2, 15, 7))
reshape.case([(2, 0)], shape=(0, 3), allowzero=True)
reshape.case([(1,)], shape=())


@op("flatten", onnx=[Onnx("Flatten", 1, {"axis": attribute("axis", 1)})], view=True)
def flatten(x: Tensor, /, *, axis: int = 1) -> Tensor:
    """Two dimensions: the product of those before `axis` and of those from it on."""
    split = axis if axis >= 0 else axis + len(x.shape)
    if not 0 <= split <= len(x.shape):
        raise OpError(f"flatten: axis {axis} does not exist: the operand has {len(x.shape)} dimensions")
    return reshaped(x, (product(x.shape[:split]), product(x.shape[split:])), "flatten")


flatten.reference(lambda x, *, axis=1: x.reshape(int(np.prod(x.shape[:axis])), -1))
flatten.case([(2, 3, 4)])
flatten.case([(2, 3, 4)], axis=2)


@op(
    "squeeze",
    onnx=[
        Onnx("Squeeze", 1, {"axes": attribute("axes")}),
        Onnx("Squeeze", 13, {"axes": input_value(1, None, as_axes)}, inputs=(0,)),
    ],
    view=True,
)
def squeeze(x: Tensor, /, *, axes: tuple[int, ...] | None = None) -> Tensor:
    """Without the dimensions of size 1 named by `axes` (all of them if None)."""
    rank = len(x.shape)
    if axes is None:
        dropped = {n for n, e in enumerate(x.shape) if is_one(e)}
    else:
        dropped = set(normalize_axes("squeeze", axes, rank))
        for n in dropped:
            extent = x.shape[n]
            if isinstance(extent, Const) and extent.value != 1:
                raise OpError(f"squeeze: axis {n} has size {extent.value}, not 1")
    return reshaped(x, [e for n, e in enumerate(x.shape) if n not in dropped], "squeeze")


squeeze.reference(lambda x, *, axes=None: np.squeeze(x, None if axes is None else tuple(axes)))
squeeze.case([(1, 3, 1, 5)])
squeeze.case([(1, 3, 1, 5)], axes=(-2,))


@op(
    "unsqueeze",
    onnx=[
        Onnx("Unsqueeze", 1, {"axes": attribute("axes")}),
        Onnx("Unsqueeze", 13, {"axes": input_value(1, None, as_axes)}, inputs=(0,)),
    ],
    view=True,
)
def unsqueeze(x: Tensor, /, *, axes: tuple[int, ...]) -> Tensor:
    """With dimensions of size 1 put in so that they stand at `axes` of the result."""
    rank = len(x.shape) + len(axes)
    places = set(normalize_axes("unsqueeze", axes, rank))
    rest = iter(x.shape)
    return reshaped(x, [const(1) if n in places else next(rest) for n in range(rank)], "unsqueeze")


unsqueeze.reference(lambda x, *, axes: np.expand_dims(x, tuple(axes)))
unsqueeze.case([(3, 5)], axes=(0, -1))


@op("identity", onnx=[Onnx("Identity", 1)], view=True)
def identity(x: Tensor, /) -> Tensor:
    """The operand itself."""
    return te.compute(x.shape, lambda *i: x[i], name="identity")


identity.reference(lambda x: x)
identity.case([(3, 5)])


# ------------------------------------------------------------------------------------------------------------- moves


@op("transpose", onnx=[Onnx("Transpose", 1, {"axes": attribute("perm")})])
def transpose(x: Tensor, /, *, axes: tuple[int, ...] | None = None) -> Tensor:
    """Dimension n of the result is dimension axes[n] of the operand (default: reversed order)."""
    rank = len(x.shape)
    order = tuple(reversed(range(rank))) if axes is None else normalize_axes("transpose", axes, rank)
    if len(order) != rank:
        raise OpError(f"transpose: axes {axes} do not name each of the {rank} dimensions once")
    where = {axis: n for n, axis in enumerate(order)}
    return te.compute([x.shape[a] for a in order], lambda *i: x(*[i[where[n]] for n in range(rank)]), name="transpose")


transpose.reference(lambda x, *, axes=None: np.transpose(x, axes))
transpose.case([(2, 3, 37)])
transpose.case([(2, 3, 17, 5)], axes=(0, 2, 3, 1))


def slice_bounds(name: str, extent: Expr, start: Any, end: Any, step: int) -> tuple[Expr, Expr]:
    """(first index, number of elements) of start:end:step on a dimension, by ONNX's clamping rules."""
    if step == 0:
        raise OpError(f"{name}: the step is 0")
    first, last = as_expr(start), as_expr(end)

    def wrap(e: Expr, low: Expr, high: Expr) -> Expr:
        if isinstance(e, Const):
            value = int(e.value)
            if isinstance(extent, Const):
                size, lo, hi = int(extent.value), int(_value(low)), int(_value(high))
                value = value + size if value < 0 else value
                return const(max(lo, min(value, hi)))
            if value >= INT64_MAX - (1 << 32) or value <= -(INT64_MAX - (1 << 32)):
                return high if value > 0 else low
            if value < 0:
                return simplify(maximum(low, minimum(extent + value, high)))
            return simplify(minimum(const(value), high)) if value else (low if step > 0 else minimum(const(0), high))
        wrapped = te.select(e < 0, e + extent, e)
        return simplify(maximum(low, minimum(wrapped, high)))

    if step > 0:
        begin, stop = wrap(first, const(0), extent), wrap(last, const(0), extent)
        count = (stop - begin + (step - 1)) // step
    else:
        begin = wrap(first, const(0), simplify(extent - 1))
        stop = _stop_below(last, extent, wrap)
        count = (begin - stop + (-step - 1)) // (-step)
    count = simplify(count)
    if isinstance(count, Const):
        return simplify(begin), const(max(0, int(count.value)))
    return simplify(begin), simplify(maximum(count, const(0)))


def _stop_below(last: Expr, extent: Expr, wrap: Any) -> Expr:
    """The exclusive end of a backward slice: values below -extent mean "through index 0"."""
    if isinstance(last, Const) and isinstance(extent, Const):
        value, size = int(last.value), int(extent.value)
        value = value + size if value < 0 else value
        return const(max(-1, min(value, size - 1)))
    if isinstance(last, Const) and last.value <= -(1 << 31):
        return const(-1)
    return wrap(last, const(-1), simplify(extent - 1))


def _value(e: Expr) -> int:
    return int(e.value) if isinstance(e, Const) else 0


@op(
    "slice",
    onnx=[
        Onnx("Slice", 1, {"starts": attribute("starts"), "ends": attribute("ends"), "axes": attribute("axes")}),
        Onnx(
            "Slice", 10,
            {"starts": input_value(1), "ends": input_value(2), "axes": input_value(3), "steps": input_value(4)},
            inputs=(0,),
        ),
    ],
    axis_attrs={"axes": "named"},
)  # fmt: skip
def slice_(
    x: Tensor, /, *, starts: tuple[Any, ...], ends: tuple[Any, ...], axes: tuple[int, ...] | None = None,
    steps: tuple[int, ...] | None = None,
) -> Tensor:  # fmt: skip
    """x[start:end:step] on each of `axes` (default: the leading ones)."""
    rank = len(x.shape)
    chosen = normalize_axes("slice", range(len(starts)) if axes is None else axes, rank)
    strides = (1,) * len(starts) if steps is None else steps
    begin: list[Expr] = [const(0)] * rank
    step = [1] * rank
    shape = list(x.shape)
    for axis, s, e, k in zip(chosen, starts, ends, strides, strict=True):
        step[axis] = int(_value(as_expr(k)))
        begin[axis], shape[axis] = slice_bounds("slice", x.shape[axis], s, e, step[axis])
    return te.compute(shape, lambda *i: x(*[b + v * k for b, v, k in zip(begin, i, step, strict=True)]), name="slice")


@slice_.reference
def _slice(x: Any, *, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    index = [slice(None)] * x.ndim
    for n, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else steps[n]
        end = None if step < 0 and ends[n] < -x.shape[axis] else ends[n]
        index[axis] = slice(starts[n], end, step)
    return x[tuple(index)]


slice_.case([(5, 37)], starts=(1, 2), ends=(4, -1))
slice_.case([(5, 37)], starts=(-2,), ends=(INT64_MAX,), axes=(1,))
slice_.case([(5, 37)], starts=(-1,), ends=(-INT64_MAX,), axes=(0,), steps=(-2,))
slice_.case([(10,)], starts=(0,), ends=(5,), axes=(0,), steps=(-1,))


@op("leading", axis_attrs={"axis": "axis"})
def leading(x: Tensor, /, *, axis: int = 0, size: Any) -> Tensor:
    """The first `size` elements along an axis; `size` is at most its extent (a size that run time decides, say)."""
    place = normalize_axis("leading", axis, len(x.shape))
    shape = (*x.shape[:place], as_expr(size), *x.shape[place + 1 :])
    return te.compute(shape, lambda *i: x(*i), name="leading")


leading.reference(lambda x, *, axis=0, size: np.take(x, range(size), axis))
leading.case([(3, 37)], axis=1, size=5)
leading.case([(3, 37)], axis=0, size=0)


@op("concat", onnx=[Onnx("Concat", 1, {"axis": attribute("axis", 1)})], axis_attrs={"axis": "axis"})
def concat(*tensors: Tensor, axis: int = 0) -> Tensor:
    """The operands one after the other along `axis`."""
    if not tensors:
        raise OpError("concat: needs at least one operand")
    first = tensors[0]
    place = normalize_axis("concat", axis, len(first.shape))
    for t in tensors[1:]:
        if len(t.shape) != len(first.shape) or t.dtype != first.dtype:
            raise OpError(f"concat: operands {first!r} and {t!r} differ in rank or dtype")
        for n, (a, b) in enumerate(zip(first.shape, t.shape, strict=True)):
            if n != place and isinstance(a, Const) and isinstance(b, Const) and a.value != b.value:
                raise OpError(f"concat: operands differ in axis {n}: {a.value} and {b.value}")
    starts: list[Expr] = [const(0)]
    for t in tensors:
        starts.append(simplify(starts[-1] + t.shape[place]))
    shape = [*first.shape[:place], starts[-1], *first.shape[place + 1 :]]

    def element(*point: Expr) -> Expr:
        result: Expr | None = None
        for t, start in reversed(list(zip(tensors, starts[:-1], strict=True))):
            if isinstance(t.shape[place], Const) and t.shape[place].value == 0:  # type: ignore[attr-defined]
                continue
            here = t(*point[:place], point[place] - start, *point[place + 1 :])
            end = start + t.shape[place]
            result = here if result is None else te.if_then_else(point[place] < end, here, result)
        return result if result is not None else const(0, first.dtype)

    return te.compute(shape, element, name="concat")


concat.reference(lambda *arrays, axis=0: np.concatenate(arrays, axis))
concat.case([(2, 3), (2, 5), (2, 0)], axis=1)
concat.case([(2, 17, 3), (1, 17, 3)], axis=-3)
concat.case([(4,)], axis=0)


@op("split", onnx=[], axis_attrs={"axis": "axis"})
def split(x: Tensor, /, *, axis: int = 0, sizes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
    """Consecutive pieces of the given sizes along `axis`."""
    place = normalize_axis("split", axis, len(x.shape))
    total = x.shape[place]
    known = [as_expr(s) for s in sizes]
    if isinstance(total, Const) and all(isinstance(s, Const) for s in known):
        if sum(int(_value(s)) for s in known) != total.value:
            raise OpError(f"split: sizes {tuple(sizes)} do not add up to {total.value} on axis {axis}")
    pieces: list[Tensor] = []
    start: Expr = const(0)
    for number, size in enumerate(known):
        pieces.append(_piece(x, place, size, start, f"split{number}"))
        start = simplify(start + size)
    return tuple(pieces)


def _piece(x: Tensor, place: int, size: Expr, begin: Expr, name: str) -> Tensor:
    return te.compute(
        [*x.shape[:place], size, *x.shape[place + 1 :]],
        lambda *i: x(*i[:place], i[place] + begin, *i[place + 1 :]),
        name=name,
    )


split.reference(lambda x, *, axis=0, sizes: tuple(np.split(x, np.cumsum(sizes)[:-1], axis)))
split.case([(2, 10)], axis=1, sizes=(3, 7))
split.case([(6, 5)], axis=0, sizes=(2, 2, 2))


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@op("pad", axis_attrs={"before": "each", "after": "each"})
def pad(
    x: Tensor, value: Tensor | None = None, /, *, before: tuple[Any, ...], after: tuple[Any, ...],
    mode: str = "constant", constant: float = 0.0,
) -> Tensor:  # fmt: skip
    """`before` and `after` elements added on each axis: a constant (the 0-d operand `value` or `constant`), the mirror
    image without the border (reflect), the border (edge) or the other end (wrap). Negative amounts crop."""
    if mode not in PAD_MODES:
        raise OpError(f"pad: unknown mode {mode!r}", help=f"known modes are {', '.join(PAD_MODES)}")
    low = [as_expr(b) for b in before]
    shape = [simplify(e + b + a) for e, b, a in zip(x.shape, low, map(as_expr, after), strict=True)]

    def element(*point: Expr) -> Expr:
        inside: list[Expr] = []
        source: list[Expr] = []
        for n, v in enumerate(point):
            i = simplify(v - low[n])
            if mode != "constant":
                i = _pad_index(i, x.shape[n], mode)
            elif not (_is_zero(low[n]) and _is_zero(as_expr(after[n]))):
                inside += [c for c in (i >= 0 if not _is_zero(low[n]) else None, i < x.shape[n]) if c is not None]
            source.append(i)
        fill = value.scalar_element() if value is not None else const(constant, x.dtype)
        return te.if_then_else(te.logical_and(*inside), x(*source), fill) if inside else x(*source)

    return te.compute(shape, element, name="pad")


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _pad_index(i: Expr, extent: Expr, mode: str) -> Expr:
    if mode == "wrap":
        return floormod(i, extent)
    if mode == "edge":
        return maximum(const(0), minimum(i, simplify(extent - 1)))
    period = simplify(maximum(2 * extent - 2, const(1)))
    folded = floormod(i, period)
    return minimum(folded, period - folded) if not is_one(extent) else const(0)


@pad.reference
def _pad(x: Any, value: Any = None, *, before: Any, after: Any, mode: str = "constant", constant: float = 0.0) -> Any:
    kwargs: dict[str, Any] = {"constant_values": constant if value is None else value} if mode == "constant" else {}
    how: Any = mode
    return np.pad(x, list(zip(before, after, strict=True)), how, **kwargs)


pad.case([(3, 5)], before=(1, 2), after=(0, 3))
pad.case([(3, 5), ()], before=(0, 2), after=(0, 3))
for _mode in PAD_MODES[1:]:
    pad.case([(3, 5)], before=(1, 4), after=(2, 3), mode=_mode)


@op("expand", onnx=[Onnx("Expand", 8, {"shape": input_value(1)}, inputs=(0,))], axis_attrs={"shape": "each"})
def expand(x: Tensor, /, *, shape: tuple[Any, ...]) -> Tensor:
    """x broadcast together with `shape`."""
    result = broadcast_shapes("expand", [x.shape, tuple(as_expr(s) for s in shape)])
    return te.compute(result, lambda *i: read(x, i), name="expand")


expand.reference(lambda x, *, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))).copy())
expand.case([(3, 1)], shape=(2, 1, 5))
expand.case([(3, 4)], shape=(1,))


@op("tile", onnx=[Onnx("Tile", 6, {"repeats": input_value(1)}, inputs=(0,))], axis_attrs={"repeats": "each"})
def tile(x: Tensor, /, *, repeats: tuple[Any, ...]) -> Tensor:
    """x repeated so often along each axis."""
    counts = [as_expr(r) for r in repeats]
    shape = [simplify(e * r) for e, r in zip(x.shape, counts, strict=True)]
    return te.compute(
        shape,
        lambda *i: x(*[v if is_one(r) else floormod(v, e) for v, e, r in zip(i, x.shape, counts, strict=True)]),
        name="tile",
    )


tile.reference(lambda x, *, repeats: np.tile(x, repeats))
tile.case([(2, 3)], repeats=(2, 1))
tile.case([(2, 3)], repeats=(1, 3))


def wrap_index(index: Expr, extent: Expr) -> Expr:
    """A data-dependent index made safe: negative ones count from the end, and what is still outside is clamped, so that
    a wrong index never reads foreign memory."""
    i = index.astype(dtypes.INDEX)
    wrapped = te.select(i < 0, i + extent, i)
    return maximum(const(0), minimum(wrapped, simplify(extent - 1)))


@op("gather", onnx=[Onnx("Gather", 1, {"axis": attribute("axis", 0)})])
def gather(x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
    """x read along `axis` at integer `indices` of any shape; negative indices count from the end."""
    place = normalize_axis("gather", axis, len(x.shape))
    count = len(indices.shape)
    shape = [*x.shape[:place], *indices.shape, *x.shape[place + 1 :]]

    def element(*point: Expr) -> Expr:
        index = wrap_index(indices(*point[place : place + count]), x.shape[place])
        return x(*point[:place], index, *point[place + count :])

    return te.compute(shape, element, name="gather")


gather.reference(lambda x, indices, *, axis=0: np.take(x, indices, axis))
gather.case([(5, 7), (2, 3)], ["float32", "int64"], low=-4, high=4)
gather.case([(5, 7), ()], ["float32", "int64"], low=-4, high=4, axis=1)


@op("gather_elements", onnx=[Onnx("GatherElements", 11, {"axis": attribute("axis", 0)})], axis_attrs={"axis": "axis"})
def gather_elements(x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
    """x read at the point of `indices` with the coordinate of `axis` replaced by the index."""
    place = normalize_axis("gather_elements", axis, len(x.shape))
    return te.compute(
        indices.shape,
        lambda *i: x(*i[:place], wrap_index(indices(*i), x.shape[place]), *i[place + 1 :]),
        name="gather_elements",
    )


gather_elements.reference(
    lambda x, indices, *, axis=0: np.take_along_axis(x, np.where(indices < 0, indices + x.shape[axis], indices), axis)
)
gather_elements.case([(5, 7), (3, 7)], ["float32", "int64"], low=-4, high=4)


@op("gather_nd", onnx=[Onnx("GatherND", 11, {"batch_dims": attribute("batch_dims", 0)})])
def gather_nd(x: Tensor, indices: Tensor, /, *, batch_dims: int = 0) -> Tensor:
    """x read at index tuples held in the last dimension of `indices`; the first `batch_dims` axes go together."""
    depth_expr = indices.shape[-1]
    if not isinstance(depth_expr, Const):
        raise OpError("gather_nd: the last dimension of the indices must be known")
    depth = int(depth_expr.value)
    lead = len(indices.shape) - 1
    shape = [*indices.shape[:-1], *x.shape[batch_dims + depth :]]

    def element(*point: Expr) -> Expr:
        places = [wrap_index(indices(*point[:lead], const(d)), x.shape[batch_dims + d]) for d in range(depth)]
        return x(*point[:batch_dims], *places, *point[lead:])

    return te.compute(shape, element, name="gather_nd")


@gather_nd.reference
def _gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    if batch_dims == 0:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    return np.stack([_gather_nd(a, b, batch_dims=batch_dims - 1) for a, b in zip(x, indices, strict=True)])


gather_nd.case([(5, 7, 3), (4, 2)], ["float32", "int64"], low=-4, high=4)
gather_nd.case([(2, 7, 3), (2, 4, 1)], ["float32", "int64"], low=-4, high=4, batch_dims=1)


def _space(block: int, name: str) -> int:
    if block < 1:
        raise OpError(f"{name}: blocksize is {block}")
    return block


@op(
    "depth_to_space",
    onnx=[Onnx("DepthToSpace", 1, {"block": attribute("blocksize"), "mode": attribute("mode", "DCR")})],
)
def depth_to_space(x: Tensor, /, *, block: int, mode: str = "DCR") -> Tensor:
    """Channels moved into blocks of block x block pixels, in depth-column-row or column-row-depth order."""
    b = _space(block, "depth_to_space")
    n, c, h, w = x.shape
    depth = simplify(c // (b * b))

    def element(i: Expr, k: Expr, y: Expr, z: Expr) -> Expr:
        inner = floormod(y, b) * b + floormod(z, b)
        channel = inner * depth + k if mode == "DCR" else k * (b * b) + inner
        return x(i, channel, floordiv(y, b), floordiv(z, b))

    return te.compute((n, depth, h * b, w * b), element, name="depth_to_space")


@depth_to_space.reference
def _depth_to_space(x: Any, *, block: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    d = c // block**2
    if mode == "DCR":
        return x.reshape(n, block, block, d, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, d, h * block, w * block)
    return x.reshape(n, d, block, block, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, d, h * block, w * block)


depth_to_space.case([(2, 8, 3, 5)], block=2)
depth_to_space.case([(2, 8, 3, 5)], block=2, mode="CRD")


@op(
    "space_to_depth",
    onnx=[Onnx("SpaceToDepth", 1, {"block": attribute("blocksize"), "mode": attribute("mode", "DCR")})],
)
def space_to_depth(x: Tensor, /, *, block: int, mode: str = "DCR") -> Tensor:
    """Blocks of block x block pixels moved into channels: depth innermost (DCR) or column innermost (CRD)."""
    b = _space(block, "space_to_depth")
    n, c, h, w = x.shape

    def element(i: Expr, k: Expr, y: Expr, z: Expr) -> Expr:
        if mode == "CRD":
            inner, channel = floormod(k, b * b), floordiv(k, b * b)
        else:
            inner, channel = floordiv(k, c), floormod(k, c)
        return x(i, channel, y * b + floordiv(inner, b), z * b + floormod(inner, b))

    return te.compute((n, c * (b * b), h // b, w // b), element, name="space_to_depth")


@space_to_depth.reference
def _space_to_depth(x: Any, *, block: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block)
    z = y.transpose((0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4))
    return z.reshape(n, c * block**2, h // block, w // block)


space_to_depth.case([(2, 3, 4, 6)], block=2)
space_to_depth.case([(2, 3, 4, 6)], block=2, mode="CRD")


@op("trilu", onnx=[])
def trilu(x: Tensor, /, *, k: int = 0, upper: bool = True) -> Tensor:
    """The upper (or lower) triangle of the last two dimensions, counted from diagonal k; the rest is 0."""
    zero = const(0, x.dtype)

    def element(*i: Expr) -> Expr:
        keep = i[-1] >= i[-2] + k if upper else i[-1] <= i[-2] + k
        return te.select(keep, x(*i), zero)

    return te.compute(x.shape, element, name="trilu")


trilu.reference(lambda x, *, k=0, upper=True: np.triu(x, k) if upper else np.tril(x, k))
trilu.case([(2, 5, 7)])
trilu.case([(5, 7)], k=-1, upper=False)


# --------------------------------------------------------------------------------------------------- made from nothing


@op("full")
def full(*, shape: tuple[Any, ...], value: Any = 0, dtype: DType = dtypes.float32) -> Tensor:
    """A tensor of one value."""
    return te.compute(tuple(as_expr(s) for s in shape), lambda *i: const(value, dtype), name="full")


full.reference(lambda *, shape, value=0, dtype=dtypes.float32: np.full(shape, value, dtype.numpy))
full.case([], shape=(3, 5), value=2.5)
full.case([], shape=(), value=7, dtype=dtypes.int64)


@op("shape_of", onnx=[Onnx("Shape", 1), Onnx("Shape", 15, {"start": attribute("start", 0), "end": attribute("end")})])
def shape_of(x: Tensor, /, *, start: int = 0, end: int | None = None) -> Tensor:
    """The dimensions of the operand as int64, sliced by start and end."""
    dims = x.shape[slice(start, end)]

    def element(i: Expr) -> Expr:
        result: Expr = const(0)
        for n, d in enumerate(dims):
            result = te.select(te.equal(i, n), d, result)
        return result

    return te.compute((len(dims),), element, name="shape_of")


shape_of.reference(lambda x, *, start=0, end=None: np.array(x.shape[slice(start, end)], np.int64))
shape_of.case([(3, 5, 7)])
shape_of.case([(3, 5, 7)], start=-2, end=-1)


@op("arange")
def arange(*, start: Any, count: Any, step: Any, dtype: DType = dtypes.int64) -> Tensor:
    """start, start + step, ... of `count` elements."""
    return te.compute(
        (as_expr(count),),
        lambda i: (
            const(start, dtype) + i.astype(dtype) * const(step, dtype)
            if not isinstance(start, Expr)
            else start.astype(dtype) + i.astype(dtype) * as_expr(step).astype(dtype)
        ),
        name="arange",
    )


arange.reference(
    lambda *, start, count, step, dtype=dtypes.int64: (start + np.arange(count) * step).astype(dtype.numpy)
)
arange.case([], start=3, count=7, step=2)


@op("one_hot", onnx=[])
def one_hot(indices: Tensor, values: Tensor, /, *, depth: int, axis: int = -1) -> Tensor:
    """values[1] where the coordinate along the new `axis` equals the index (negative ones wrap), else values[0]."""
    rank = len(indices.shape) + 1
    place = normalize_axis("one_hot", axis, rank)
    shape = [*indices.shape[:place], const(depth), *indices.shape[place:]]

    def element(*point: Expr) -> Expr:
        index = indices(*point[:place], *point[place + 1 :]).astype(dtypes.INDEX)
        wrapped = te.select(index < 0, index + depth, index)
        return te.select(te.equal(wrapped, point[place]), values(1), values(0))

    return te.compute(shape, element, name="one_hot")


@one_hot.reference
def _one_hot(indices: Any, values: Any, *, depth: int, axis: int = -1) -> Any:
    hot = np.equal(np.expand_dims(np.where(indices < 0, indices + depth, indices), -1), np.arange(depth))
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, axis)


one_hot.case([(2, 3), (2,)], ["int64", "float32"], low=-3, high=3, depth=4)


@op("eye_like", onnx=[Onnx("EyeLike", 9, {"k": attribute("k", 0)})])
def eye_like(x: Tensor, /, *, k: int = 0, dtype: DType | None = None) -> Tensor:
    """A matrix of the operand's shape (and type, unless `dtype` is given): ones on diagonal k, else zeros."""
    if len(x.shape) != 2:
        raise OpError(f"eye_like: the operand has {len(x.shape)} dimensions, not 2")
    t = x.dtype if dtype is None else dtype
    return te.compute(x.shape, lambda i, j: te.select(te.equal(j, i + k), const(1, t), const(0, t)), name="eye_like")


@eye_like.reference
def _eye_like(x: Any, *, k: int = 0, dtype: DType | None = None) -> Any:
    rows, columns = x.shape
    return np.eye(rows, columns, k).astype(x.dtype if dtype is None else dtype.numpy)


eye_like.case([(3, 5)], k=1)
eye_like.case([(5, 3)], dtype=dtypes.int64)
