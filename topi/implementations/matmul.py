"""Matrix products with the right operand packed into panels: (N/F, K, F), F a few vectors wide.

A register tile of rows x F is accumulated over all of K, so that partial sums never leave the registers; rows of the
left operand are read as they lie. A right operand known at compile time is packed then; another one is packed in the
kernel, panel by panel, before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from schedule import Schedule, create_schedule
from tensorir import te
from tensorir.arith import simplify
from tensorir.expr import Const, Expr, const, floordiv, floormod
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import ComputeOp, Tensor, input_tensors
from topi.broadcast import broadcast_index, is_one, read
from topi.chunks import LONGEST, cut, find_chunk, sum_of_chunks
from topi.group import Group
from topi.implementations.conv import accumulate_in_registers, extent_product, flatten, split_stages, unflatten
from topi.implementations.tiles import Tile, efficiency, fill, fma_rate, lanes, stream_seconds
from topi.op import Call, Implementation
from topi.ops.matmul import dense, gemm, matmul


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product as rows, columns and depth: which axis of the right operand is N, and the leading batch axes."""

    rows: Expr
    columns: Expr
    depth: Expr
    right_columns_first: bool
    lead: tuple[Expr, ...]
    right_lead: tuple[Expr, ...]


def _size(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) else None


def describe(call: Call) -> Product | str:
    """The product a call stands for, or why it is not one that is packed."""
    a, b = call.inputs[0], call.inputs[1]
    assert a is not None and b is not None
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "an operand is a vector"
    lead = tuple(a.shape[:-2])
    if call.op is dense:
        return Product(a.shape[-2], b.shape[0], a.shape[-1], True, lead, ())
    if call.op is gemm:
        if call.attrs.get("trans_a"):
            return "the left operand is transposed"
        first = bool(call.attrs.get("trans_b"))
        return Product(a.shape[0], b.shape[0 if first else 1], a.shape[1], first, (), ())
    result = tuple(call.outputs[0].shape[:-2])
    return Product(a.shape[-2], b.shape[-1], a.shape[-1], False, result, tuple(b.shape[:-2]))


def _is_flat(product: Product) -> bool:
    """True if all rows of all batches meet one right operand: they are walked as the rows of one product."""
    return (
        bool(product.lead)
        and all(is_one(e) for e in product.right_lead)
        and all(_size(e) is not None for e in (*product.lead[1:], product.rows))
    )


def _rows_together(product: Product) -> Expr:
    """The rows that are tiled as one axis."""
    return simplify(extent_product((*product.lead, product.rows))) if _is_flat(product) else product.rows


def _point(row: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices of a row counted through all batches; without the axes of one step, whose index is always 0, no
    remainder is left where the row stands behind the last one."""
    longer = iter(unflatten(row, [e for e in extents if not is_one(e)]) if not all(map(is_one, extents)) else ())
    return [const(0) if is_one(e) else next(longer) for e in extents]


def _panel(call: Call, target: Target) -> int:
    """Vectors in a panel: few rows want many, to have enough sums under way; many rows share them."""
    product = describe(call)
    assert isinstance(product, Product)
    spec = call.inputs[0]
    assert spec is not None
    width = lanes(target, spec.dtype)
    rows, columns = _size(_rows_together(product)), _size(product.columns)
    vectors = 1 if columns is None else max(1, -(-columns // width))
    if rows is not None and rows <= 6:
        wanted = min(8 if rows <= 2 else 4, vectors, max(1, target.vector_registers // 3))
        best = max(range(1, wanted + 1), key=lambda v: (round(fill(vectors, v), 2) * min(1.0, v / wanted + 0.5), v))
        return best * width
    widths = range(1, min(vectors, max(1, target.vector_registers // 6)) + 1)
    best = min(widths, key=lambda v: min(_seconds(rows, vectors, r, v, target) for r in _heights(rows, v, target)))
    return best * width


def _heights(rows: int | None, blocks: int, target: Target) -> range:
    """How many rows a tile may have: beside the sums there must be room for the panel's vectors, a broadcast element
    and what the compiler keeps at hand."""
    room = max(1, (target.vector_registers - blocks - target.vector_registers // 6) // blocks)
    return range(1, (room if rows is None else min(room, max(rows, 1))) + 1)


def _seconds(rows: int | None, vectors: int, height: int, blocks: int, target: Target) -> float:
    """Time of the product by tiles of height x blocks, in some unit; the last tile has fewer rows."""

    def tile(r: int) -> float:
        return r * blocks / efficiency(Tile(1, r, blocks), target) if r else 0.0

    panels = -(-vectors // blocks)
    if rows is None:
        return panels * tile(height) / height
    return panels * (rows // height * tile(height) + tile(rows % height))


def _reason(call: Call, target: Target) -> str | None:
    spec = call.inputs[0]
    assert spec is not None
    if str(spec.dtype) not in ("float32", "float64"):
        return f"dtype is {spec.dtype}"
    if lanes(target, spec.dtype) < 2:
        return "the target has no vectors"
    product = describe(call)
    if isinstance(product, str):
        return product
    if _size(product.columns) is None or _size(product.depth) is None:
        return "columns or depth are symbolic"
    if _size(product.depth) == 0 or _size(product.columns) == 0:
        return "the product is empty"
    return None


def _constant_applicable(call: Call, target: Target) -> str | None:
    reason = _reason(call, target)
    if reason is not None:
        return reason
    right = call.inputs[1]
    assert right is not None
    if not call.constant[1]:
        return "the right operand is not known at compile time"
    return None if len(right.shape) == 2 else "the right operand has batches"


def _run_time_applicable(call: Call, target: Target) -> str | None:
    reason = _reason(call, target)
    if reason is not None:
        return reason
    product = describe(call)
    assert isinstance(product, Product)
    rows = _size(_rows_together(product))
    return "packing costs more than it saves for few rows" if rows is not None and rows < 4 else None


def _plain_layouts(call: Call) -> tuple[list[Layout | None], tuple[Layout, ...]]:
    wanted = [None if i is None else Layout.plain(len(i.shape)) for i in call.inputs]
    return wanted, tuple(Layout.plain(len(o.shape)) for o in call.outputs)


def _constant_layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    wanted, results = _plain_layouts(call)
    product = describe(call)
    assert isinstance(product, Product)
    logical = "NK" if product.right_columns_first else "KN"
    wanted[1] = Layout.parse(f"NK{_panel(call, target)}n", logical=logical)
    return tuple(wanted), results


def _run_time_layouts(call: Call, target: Target) -> tuple[tuple[Layout | None, ...], tuple[Layout, ...]]:
    wanted, results = _plain_layouts(call)
    return tuple(wanted), results


def _product(call: Call, a: Tensor, packed: Tensor, c: Tensor | None, in_chunks: bool) -> Tensor:
    """The packed product, cut back to N columns, with the op's own scaling and bias."""
    product = describe(call)
    assert isinstance(product, Product)
    panel = packed.shape[-1]
    lead = product.lead
    depth = _size(product.depth)
    assert depth is not None
    chunks = cut(depth, 1, "k") if in_chunks else None
    k = te.reduce_axis(product.depth, "k") if chunks is None else chunks.within
    right_lead = product.right_lead

    def terms(place: Expr, conditions: list[Expr], *i: Expr) -> Expr:
        batch, (m, block, lane) = i[: len(lead)], i[len(lead) :]
        left = a(*broadcast_index(a.shape[:-2], batch), m, place)
        value = left * packed(*broadcast_index(right_lead, batch), block, place, lane)
        return te.sum(value, axis=k, where=te.logical_and(*conditions) if conditions else None)

    flat = _is_flat(product)

    def rows_terms(place: Expr, conditions: list[Expr], *i: Expr) -> Expr:
        return terms(place, conditions, *(_point(i[0], (*lead, product.rows)) if flat else i[:-2]), *i[-2:])

    rows_shape = (_rows_together(product),) if flat else (*lead, product.rows)
    shape = (*rows_shape, packed.shape[-3], panel)
    if chunks is None:
        total = te.compute(shape, lambda *i: rows_terms(k.var, [], *i), name="product")
    else:
        total = sum_of_chunks(shape, chunks, rows_terms, "product")
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)

    def finish(*i: Expr) -> Expr:
        rows = (flatten(i[:-1], (*lead, product.rows)),) if flat else i[:-1]
        value: Expr = total(*rows, floordiv(i[-1], panel), floormod(i[-1], panel))
        if alpha != 1.0:
            value = value * const(alpha, value.dtype)
        if c is None or beta == 0.0:
            return value
        added = read(c, i)
        return value + (added if beta == 1.0 else added * const(beta, added.dtype))

    return te.compute(call.outputs[0].shape, finish, name=call.op.name)


def _constant_compute(
    call: Call, target: Target, a: Tensor, packed: Tensor, c: Tensor | None = None, *, in_chunks: bool = False
) -> Tensor:
    return _product(call, a, packed, c, in_chunks)


def pack_panels(b: Tensor, columns_first: bool, panel: int) -> Tensor:
    """The right operand in panels (..., N/F, K, F), zeros where F reaches past N."""
    columns, depth = (b.shape[-2], b.shape[-1]) if columns_first else (b.shape[-1], b.shape[-2])
    size = _size(columns)
    assert size is not None
    blocks = -(-size // panel)

    def element(*i: Expr) -> Expr:
        batch, (block, k, lane) = i[:-3], i[-3:]
        n = block * panel + lane
        value = b(*batch, n, k) if columns_first else b(*batch, k, n)
        return value if size % panel == 0 else te.if_then_else(n < size, value, const(0, b.dtype))

    return te.compute((*b.shape[:-2], blocks, depth, panel), element, name="packed")


def _run_time_compute(
    call: Call, target: Target, a: Tensor, b: Tensor, c: Tensor | None = None, *, in_chunks: bool = False
) -> Tensor:
    product = describe(call)
    assert isinstance(product, Product)
    return _product(call, a, pack_panels(b, product.right_columns_first, _panel(call, target)), c, in_chunks)


def _terms(call: Call) -> int:
    """Products that go into one element of the result."""
    product = describe(call)
    return _size(product.depth) or 1 if isinstance(product, Product) else 1


def _is_short(call: Call, target: Target) -> str | None:
    return None if _terms(call) > LONGEST else "the sums are short"


def _configs(group: Group, target: Target) -> list[Tile]:
    anchor = group.anchor
    assert anchor is not None
    product = describe(anchor.call)
    assert isinstance(product, Product)
    spec = anchor.call.inputs[0]
    assert spec is not None
    accumulator = split_stages(group)[0]
    blocks = (_size(accumulator.shape[-1]) or 1) // lanes(target, spec.dtype)
    rows = _size(_rows_together(product))
    heights = _heights(rows, blocks, target)
    order = sorted(heights, key=lambda r: (_seconds(rows, blocks, r, blocks, target), -r))
    return [Tile(1, r, blocks) for r in order[:4]]


def schedule_packed(group: Group, target: Target, tile: Tile) -> Schedule:
    """Tiles of rows x one panel in registers; parallel over batches and panels, rows inside."""
    accumulator, output, middle, early = split_stages(group)
    assert group.anchor is not None
    product = describe(group.anchor.call)
    assert isinstance(product, Product)
    s = create_schedule([output])
    for t in middle:
        s[t].compute_inline()
    s[accumulator].set_scope("register")
    width = lanes(target, accumulator.dtype)
    chunk = find_chunk(accumulator.op) if isinstance(accumulator.op, ComputeOp) else None
    for t in early:
        if t is not chunk:
            _schedule_pack(s, t, width)
    axes: list[Any] = list(s[output].op.axis)
    lead, m, n = axes[:-2], axes[-2], axes[-1]
    single: list[Any] = []
    if len(accumulator.shape) == 3 and lead:  # rows of all batches together
        single = [loop for loop, e in zip(lead, output.shape, strict=False) if is_one(e)]
        for loop in reversed([loop for loop in lead if not any(loop is one for one in single)]):
            m = s[output].fuse(loop, m)
        lead = []
    panel = tile.blocks * width
    n_o, n_i = s[output].split(n, factor=panel)
    n_v, lane = s[output].split(n_i, factor=width)
    m_o, m_i = s[output].split(m, factor=tile.columns)
    several = (_size(output.shape[-1]) or 1) > panel
    if several:
        s[output].reorder(*single, *lead, n_o, m_o, m_i, n_v, lane)
    else:  # one panel: its loop has one iteration and stays outside
        s[output].reorder(*single, n_o, *lead, m_o, m_i, n_v, lane)
    panels = -(-(_size(output.shape[-1]) or 1) // panel)
    rows = _size(_rows_together(product))
    apart = rows is not None and rows % tile.columns and not lead and panels > 1 and panels % max(1, target.cores) == 0
    parallel, *rest = [*lead, *([n_o] if several else []), *([] if apart else [m_o])]
    for loop in rest:
        parallel = s[output].fuse(parallel, loop)
    s[output].parallel(parallel)
    if apart:  # the last rows are a tile of their own
        s[output].partition(m_o)
    s[output].unroll(m_i)
    s[output].unroll(n_v)
    s[output].vectorize(lane)
    attach = m_o if apart else parallel
    accumulate_in_registers(s, accumulator, output, attach, width)
    _fetch_next_panel(s, accumulator, tile, attach, target)
    return s


NEAR = 32
"""Steps of a sum that its panel is asked for ahead, from the second-level cache to the first (measured: 16 to 32)."""


def _fetch_next_panel(s: Schedule, accumulator: Tensor, tile: Tile, parallel: Any, target: Target) -> None:
    """A large right operand: while the tiles of rows use one panel, each step of the sum asks for its share of the next
    panel (as convolutions do), and for what it needs itself a little later."""
    operands = input_tensors(accumulator.op)
    if len(operands) < 2:  # it adds up sums of chunks
        return
    packed = operands[1]
    panels, depth, width = [_size(e) or 0 for e in packed.shape[-3:]]
    rows = _size(accumulator.shape[-3])
    if rows is None or len(packed.shape) > 3 or 4 * panels * depth * width <= target.l2_bytes // 2:
        return
    turns = -(-rows // tile.columns)
    steps = next((n for n in (16, 8, 4) if depth % n == 0), 1)
    vector = lanes(target, accumulator.dtype)
    [k] = s[accumulator].reduce_axis
    inner: Any = k
    if turns >= 4 and steps > 1:
        outer, inner = s[accumulator].split(k, factor=steps)
        share = -(-steps * width // (vector * turns))
        done = (parallel % turns) * (depth // steps) + outer
        ahead = depth * width - outer * (steps * width) + done * (share * vector)
        for n in range(share):
            s[accumulator].prefetch(packed, outer, ahead + n * vector)
    for n in range(width // vector):
        s[accumulator].prefetch(packed, inner, NEAR * width + n * vector)


def _schedule_pack(s: Schedule, t: Tensor, width: int) -> None:
    axes: list[Any] = list(s[t].op.axis)
    parallel = axes[0]
    for loop in axes[1:-2]:
        parallel = s[t].fuse(parallel, loop)
    s[t].parallel(parallel)
    _, lane = s[t].split(axes[-1], factor=width)
    s[t].vectorize(lane)


def _cost(call: Call, target: Target) -> float:
    product = describe(call)
    assert isinstance(product, Product)
    work = 1.0
    for e in (*product.lead, product.rows, product.columns, product.depth):
        work *= _size(e) or 1
    spec = call.inputs[0]
    assert spec is not None
    return work / (fma_rate(target, spec.dtype) * 0.9)


def _run_time_cost(call: Call, target: Target) -> float:
    right = call.inputs[1]
    assert right is not None
    moved = 1.0
    for e in right.shape:
        moved *= _size(e) or 1
    return _cost(call, target) + stream_seconds(moved * 8, target) + moved * 8 / 200e9


for _op in (matmul, dense, gemm):
    _op.implementation(
        Implementation(
            "packed", ("llvm",), _constant_applicable, _constant_layouts, _constant_compute, schedule_packed, _configs,
            _cost, terms=_terms,
        )
    )  # fmt: skip
    _op.implementation(
        Implementation(
            "packed_at_run_time", ("llvm",), _run_time_applicable, _run_time_layouts, _run_time_compute,
            schedule_packed, _configs, _run_time_cost, terms=_terms,
        )
    )  # fmt: skip
    _op.implementation(
        Implementation(
            "packed_in_chunks", ("llvm",), lambda c, t: _constant_applicable(c, t) or _is_short(c, t),
            _constant_layouts, partial(_constant_compute, in_chunks=True), schedule_packed, _configs,
            lambda c, t: _cost(c, t) * 1.02,
        )
    )  # fmt: skip
    _op.implementation(
        Implementation(
            "packed_at_run_time_in_chunks", ("llvm",), lambda c, t: _run_time_applicable(c, t) or _is_short(c, t),
            _run_time_layouts, partial(_run_time_compute, in_chunks=True), schedule_packed, _configs,
            lambda c, t: _run_time_cost(c, t) * 1.02,
        )
    )  # fmt: skip
