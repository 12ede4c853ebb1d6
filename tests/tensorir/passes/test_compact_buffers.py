"""sink_allocations and compact_buffers: memory as deep and as small as its use."""

from __future__ import annotations

import dataclasses

import pytest

from tensorir import te
from tensorir.buffer import Buffer
from tensorir.expr import Var, const
from tensorir.passes.compact_buffers import compact_buffers
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.sink_allocations import sink_allocations
from tensorir.stmt import Allocate, For, Func, If, Stmt, Store, seq
from tensorir.visit import walk_stmt
from tests.tensorir.passes.checking import expected, require_same_bits, text


def sizes(func: Func) -> list[tuple[str, str]]:
    return [
        (s.buffer.name, ", ".join(repr(e) for e in s.buffer.shape))
        for s in walk_stmt(func.body)
        if isinstance(s, Allocate)
    ]


def tile_program(tile: int, n: int, halo: int = 0) -> Func:
    """T computed by tiles inside the loop of its consumer, its memory at the root."""
    a, b = (
        Buffer("A", (const(n + halo),), te.placeholder((1,)).dtype),
        Buffer("B", (const(n),), te.placeholder((1,)).dtype),
    )
    t = Buffer("T", (const(n + halo),), a.dtype)
    io, i, j = Var("io"), Var("i"), Var("j")
    fill = For(
        i,
        const(0),
        const(tile + halo),
        "serial",
        If(io * tile + i < n + halo, Store(t, (io * tile + i,), a[io * tile + i] * 3.0)),
    )
    use = For(
        j,
        const(0),
        const(tile),
        "serial",
        If(io * tile + j < n, Store(b, (io * tile + j,), t[io * tile + j] + t[io * tile + j + halo])),
    )
    outer = For(io, const(0), const(-(-n // tile)), "serial", seq(fill, use))
    return Func("tiles", (a, b), (), Allocate(t, outer))


@pytest.mark.parametrize("n", [20, 23])
def test_tile_is_as_large_as_its_halo(n: int) -> None:
    func = tile_program(5, n, 2)
    # Written by hand, so its conditions might be anything: the allocation stays outside the loop.
    assert isinstance(sink_allocations(func).body, Allocate)
    loop = func.body.body  # type: ignore[attr-defined]
    inside = dataclasses.replace(func, body=dataclasses.replace(loop, body=Allocate(func.body.buffer, loop.body)))  # type: ignore[attr-defined]
    compact = compact_buffers(inside)
    assert sizes(compact) == [("T", "7")]
    require_same_bits(func, compact)


def test_loose_bounds() -> None:
    """apache/tvm#2564: rows i to i + 2 of a tile of 10 rows are 12 rows."""
    a = te.placeholder((12, 20), name="A")
    b = te.compute((21, 20), lambda i, j: a[te.minimum(i, 11), j] + 1.0, name="B")
    k, r = te.reduce_axis((0, 20), name="k"), te.reduce_axis((0, 3), name="r")
    c = te.compute((10,), lambda i: te.sum(b[i + r, k], axis=[r, k]), name="C")
    func = te.create_func([a, c], "rows")
    # The producer fills what its own loops say: only a schedule may cut those, so the memory stays.
    assert sizes(compact_buffers(lower_blocks(func))) == [("B", "21, 20")]


def test_accumulator_sinks_to_its_tile() -> None:
    a = te.placeholder((6, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    acc = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="acc")
    out = te.compute((6,), lambda i: acc[i] + 1.0, name="out")
    func = te.create_func([a, out], "rows")
    first, second = func.body.body.stmts  # type: ignore[attr-defined]
    together = For(
        first.var,
        first.begin,
        first.extent,
        "parallel",
        seq(first.body, dataclasses.replace(second.body, bindings=(first.var,))),
    )
    func = dataclasses.replace(func, body=Allocate(func.body.buffer, together))  # type: ignore[attr-defined]
    sunk = sink_allocations(func)
    assert isinstance(sunk.body, For)
    compact = compact_buffers(lower_blocks(sunk))
    assert sizes(compact) == [("acc", "1")]
    require_same_bits(func, compact)


def test_value_carried_between_iterations_stays_outside() -> None:
    a, b = te.placeholder((8,), name="A"), Buffer("B", (const(8),), te.placeholder((1,)).dtype)
    t = Buffer("T", (const(9),), b.dtype)
    i = Var("i")
    step: Stmt = seq(Store(t, (i + 1,), t[i] + a[i]), Store(b, (i,), t[i + 1]))
    body = Allocate(t, seq(Store(t, (const(0),), const(0.0)), For(i, const(0), const(8), "serial", step)))
    func = Func("scan", (a, b), (), body)
    assert sink_allocations(func) is func
    require_same_bits(func, compact_buffers(func))


def test_reduction_over_the_outer_loop_stays_outside() -> None:
    a = te.placeholder((5, 7), name="A")
    k = te.reduce_axis((0, 5), name="k")
    acc = te.compute((7,), lambda j: te.sum(a[k, j], axis=k), name="acc")
    out = te.compute((7,), lambda j: acc[j] * 2.0, name="out")
    func = te.create_func([a, out], "columns")
    first, second = func.body.body.stmts  # type: ignore[attr-defined]
    swapped = dataclasses.replace(first.body, body=dataclasses.replace(first, body=first.body.body))
    func = dataclasses.replace(func, body=Allocate(func.body.buffer, seq(swapped, second)))  # type: ignore[attr-defined]
    assert sizes(compact_buffers(lower_blocks(sink_allocations(func)))) == [("acc", "7")]
    require_same_bits(func, lower_blocks(sink_allocations(func)))


def test_symbolic_hull_stays_an_expression() -> None:
    n, m = Var("n"), Var("m")
    dtype = te.placeholder((1,)).dtype
    a, b, t = Buffer("A", (n, m), dtype), Buffer("B", (n, m), dtype), Buffer("T", (n, m), dtype)
    i, j, j2 = Var("i"), Var("j"), Var("j2")
    body = For(
        i,
        const(0),
        n,
        "serial",
        Allocate(
            t,
            seq(
                For(j, const(0), m, "serial", Store(t, (i, j), a[i, j] + 1.0)),
                For(j2, const(0), m, "serial", Store(b, (i, j2), t[i, m - 1 - j2])),
            ),
        ),
    )
    func = Func("rows", (a, b), (n, m), body)
    compact = compact_buffers(func)
    assert sizes(compact) == [("T", "1, m")]
    assert "T[0, j]" in text(compact)
    for shape in ((1, 1), (3, 5)):
        require_same_bits(func, compact, dict(zip((n, m), shape, strict=True)))


def test_addressed_memory_is_left_alone() -> None:
    """apache/tvm#13976: memory whose address is passed on is used to the end."""
    dtype = te.placeholder((1,)).dtype
    t = Buffer("T", (const(8),), dtype)
    from tensorir import dtypes
    from tensorir.expr import Call
    from tensorir.stmt import Evaluate

    i = Var("i")
    address = Call("address", (t[const(0)],), dtypes.uint64)
    call = Evaluate(Call("extern:f", (address,), dtypes.int32))
    func = Func(
        "f", (), (), Allocate(t, seq(For(i, const(0), const(4), "serial", Store(t, (i,), const(1.0))), call)), 0
    )
    assert compact_buffers(func) is func
    assert expected("alloc T: float32[8]") in text(func)
