"""The whole list: random loop nests keep their bits, every pass is pure, the hot part of known kernels is as meant."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from tensorir import te
from tensorir.expr import Const, IfThenElse, Ramp, Reduce, Var
from tensorir.passes.pipeline import PASSES, lower
from tensorir.printer import func_text
from tensorir.stmt import Allocate, Block, For, Func, If, Stmt, Store
from tensorir.target import Target
from tensorir.visit import walk_exprs, walk_stmt
from tests.tensorir.passes.checking import (
    MASKED,
    PLAIN,
    loop,
    matmul,
    reorder,
    require_same_bits,
    split,
    with_kind,
)


def convolution(h: int, w: int, pad: int, where: bool) -> Func:
    """A 3x3 convolution over 4 channels of 8 lanes, padded taps left out or read as zero."""
    x, k = te.placeholder((h, w, 4), name="X"), te.placeholder((3, 3, 4, 8), name="W")
    ky, kx, c = te.reduce_axis((0, 3), name="ky"), te.reduce_axis((0, 3), name="kx"), te.reduce_axis((0, 4), name="c")

    def element(y: Var, z: Var, o: Var) -> object:
        row, column = y + ky - pad, z + kx - pad
        inside = te.logical_and(row >= 0, row < h, column >= 0, column < w)
        if where:
            return te.sum(x[row, column, c] * k[ky, kx, c, o], axis=[ky, kx, c], where=inside)
        return te.sum(te.if_then_else(inside, x[row, column, c], 0.0) * k[ky, kx, c, o], axis=[ky, kx, c])

    return te.create_func([x, k, te.compute((h + 2 * pad - 2, w + 2 * pad - 2, 8), element, name="Y")], "convolution")


def softmax(n: int, m: int) -> Func:
    x = te.placeholder((n, m), name="X")
    k, q = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="q")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="total")
    return te.create_func([x, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="Y")], "softmax")


def transposed(n: int, m: int) -> Func:
    x = te.placeholder((n, m), "float16", name="X")
    t = te.compute((m, n), lambda i, j: x[j, i] * x[j, i], name="T")
    return te.create_func([x, te.compute((m, n), lambda i, j: t[i, n - 1 - j] + t[i, j], name="Y")], "transposed")


PROGRAMS: tuple[Callable[[random.Random], Func], ...] = (
    lambda r: matmul(r.randint(1, 9), r.randint(1, 20), r.randint(1, 7)),
    lambda r: convolution(r.randint(3, 6), r.randint(3, 6), r.randint(0, 2), True),
    lambda r: convolution(r.randint(3, 6), r.randint(3, 6), r.randint(0, 2), False),
    lambda r: softmax(r.randint(1, 4), r.randint(1, 9)),
    lambda r: transposed(r.randint(1, 7), r.randint(1, 7)),
)


def nests(s: Stmt) -> list[list[For]]:
    """The perfect nests of a program."""
    found = []
    for top in walk_stmt(s):
        if isinstance(top, For) and not any(top in nest for nest in found):
            nest: list[For] = []
            inner: Stmt = top
            while isinstance(inner, For):
                nest.append(inner)
                inner = inner.body
            found.append(nest)
    return found


def randomly_scheduled(func: Func, rng: random.Random) -> Func:
    """Random splits of all loops; new orders of the spatial loops; random kinds of them."""
    for _ in range(rng.randint(0, 4)):
        names = [s.var.name for s in walk_stmt(func.body) if isinstance(s, For) and s.var.name.count("_") < 4]
        func = split(func, rng.choice(names), rng.choice([2, 3, 4, 5, 8, 16]))
    for nest in nests(func.body):
        names = [s.var.name for s in nest]
        everywhere = [s.var.name for s in walk_stmt(func.body) if isinstance(s, For)]
        if any(everywhere.count(n) > 1 for n in names):
            continue
        block = nest[-1].body
        assert isinstance(block, Block)
        reduce = {
            v.name for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in walk_vars(b)
        }
        order = names[:]
        rng.shuffle(order)
        # Reduction loops keep their order among each other: reordering them is another sum.
        kept = iter([n for n in names if n in reduce])
        func = reorder_all(func, names, [next(kept) if n in reduce else n for n in order])
        spatial = [n for n in names if n not in reduce]
        for n in spatial:
            kind = rng.choice(["serial", "serial", "unrolled", "vectorized", "parallel"])
            if kind == "vectorized" and any(
                s.kind == "vectorized" for s in walk_stmt(func.body) if isinstance(s, For) and s.var.name in names
            ):
                continue
            if kind == "unrolled" and int(loop(func, n).extent.value) > 8:  # type: ignore[attr-defined]
                continue
            func = with_kind(func, n, kind)
    return func


def walk_vars(e: object) -> list[Var]:
    from tensorir.visit import free_vars

    return list(free_vars(e))  # type: ignore[arg-type]


def reorder_all(func: Func, names: list[str], order: list[str]) -> Func:
    return func if names == order else reorder(func, order)


def require_flat(func: Func) -> None:
    """What the code generators are promised."""
    assert not any(isinstance(s, Block) for s in walk_stmt(func.body))
    assert not any(isinstance(s, For) and s.kind not in ("serial", "parallel") for s in walk_stmt(func.body))
    assert not any(isinstance(e, Reduce) for e in walk_exprs(func.body))
    for s in walk_stmt(func.body):
        if isinstance(s, Store):
            assert len(s.indices) == 1
        if isinstance(s, Allocate):
            assert s.buffer.rank == 1
        if isinstance(s, For) and isinstance(s.extent, Const):
            assert int(s.extent.value) >= 2
    assert all(p.rank == 1 for p in func.params)
    bound = [id(s.var) for s in walk_stmt(func.body) if isinstance(s, For)]
    assert len(bound) == len(set(bound))


@pytest.mark.parametrize("target", [MASKED, PLAIN], ids=["masked", "plain"])
@pytest.mark.parametrize("seed", range(30))
def test_random_nests_keep_their_bits(seed: int, target: Target) -> None:
    rng = random.Random(seed)
    for make in PROGRAMS:
        plain = make(rng)
        func = randomly_scheduled(plain, rng)
        flat = lower(func, target, check=True)
        require_flat(flat)
        require_same_bits(plain, flat, seed=seed)


@pytest.mark.parametrize("target", [MASKED, PLAIN], ids=["masked", "plain"])
@pytest.mark.parametrize("size", [1, 3, 8, 17])
def test_symbolic_rows(size: int, target: Target) -> None:
    n = Var("n")
    a = te.placeholder((n, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="total")
    out = te.compute((n, 6), lambda i, j: a[i, j] / total[i], name="out")
    func = te.create_func([a, out], "rows")
    for s in [s.var.name for s in walk_stmt(func.body) if isinstance(s, For) and s.var.name.startswith("i")][:1]:
        func = with_kind(split(func, s, 8), f"{s}_i", "vectorized")
    require_same_bits(func, lower(func, target), {n: size})


def register_convolution() -> Func:
    """The 3x3 convolution with a row of 6 points in registers, its padded taps left out."""
    func = convolution(12, 12, 1, True)
    func = split(func, "z", 6)
    func = reorder(func, ["y", "z_o", "ky", "kx", "c", "z_i", "o"])
    return with_kind(with_kind(with_kind(func, "z_i", "unrolled"), "o", "vectorized"), "y", "parallel")


def test_hot_loops_of_a_convolution_carry_no_guard() -> None:
    func = register_convolution()
    flat = lower(func, MASKED, check=True)
    require_flat(flat)
    assert not any(isinstance(s, If) for s in walk_stmt(flat.body))
    assert not any(isinstance(e, IfThenElse) for e in walk_exprs(flat.body))
    assert not any(isinstance(s, Store) and not isinstance(s.indices[0], Ramp) for s in walk_stmt(flat.body))
    require_same_bits(func, flat)


def test_passes_are_pure_and_settle() -> None:
    func = register_convolution()
    before = func_text(func)
    seen: list[str] = []
    timings: dict[str, float] = {}
    flat = lower(func, MASKED, dump=lambda name, f: seen.append(name), timings=timings)
    assert func_text(func) == before
    assert seen == ["input", *(p.name for p in PASSES)] and set(timings) == {p.name for p in PASSES}
    again = lower(flat, MASKED)
    assert func_text(again) == func_text(flat)


def test_lowering_twice_gives_the_same_text() -> None:
    first, second = lower(register_convolution(), MASKED), lower(register_convolution(), MASKED)
    assert func_text(first) == func_text(second)


def test_each_pass_has_a_reason() -> None:
    assert all(p.reason for p in PASSES)
    assert len({p.name for p in PASSES}) == len(PASSES)


def test_large_tile_is_linear() -> None:
    """28 points of 16 lanes over 4 channels: the walk visits a bounded number of expressions a copy."""
    x, w = te.placeholder((56, 4), name="X"), te.placeholder((4, 16), name="W")
    c = te.reduce_axis((0, 4), name="c")
    y = te.compute((56, 16), lambda p, o: te.sum(x[p, c] * w[c, o], axis=c), name="Y")
    func = split(te.create_func([x, w, y], "tile"), "p", 28)
    func = reorder(func, ["p_o", "c", "p_i", "o"])
    func = with_kind(with_kind(with_kind(func, "p_i", "unrolled"), "o", "vectorized"), "c", "unrolled")
    flat = lower(func, MASKED, check=True)
    assert sum(isinstance(s, Store) for s in walk_stmt(flat.body)) == 28 * 4 + 28
    require_same_bits(func, flat)


def test_empty_dimension() -> None:
    n = Var("n")
    a = te.placeholder((n, 3), name="A")
    func = te.create_func([a, te.compute((n, 3), lambda i, j: a[i, j] + 1.0, name="B")], "f")
    func = with_kind(split(func, "i", 4), "i_i", "vectorized")
    for target in (MASKED, PLAIN):
        require_same_bits(func, lower(func, target), {n: 0})
        require_same_bits(func, lower(func, target), {n: 6})


def test_func_keeps_its_face() -> None:
    func = dataclasses.replace(matmul(3, 4, 5), attrs=(("kernel", 1),))
    flat = lower(func, MASKED, check=True)
    assert flat.name == func.name and flat.outputs == 1 and flat.attrs == func.attrs
    assert [p.name for p in flat.params] == ["A", "B", "C"]
