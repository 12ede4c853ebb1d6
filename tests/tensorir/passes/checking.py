"""What the tests of the passes share: loops split by hand, programs as text, bits before and after."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from tensorir import te
from tensorir.expr import Expr, Var, const, less, logical_and
from tensorir.interpreter import interpret
from tensorir.stmt import Block, For, Func, Stmt
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, substitute, walk_stmt, with_body

MASKED = Target.parse("llvm -mcpu=znver4")
PLAIN = Target.parse("llvm -mcpu=x86-64")


def text(func: Func) -> str:
    """The body of a function as text, without its first line."""
    return textwrap.dedent("\n".join(repr(func).splitlines()[1:]))


def expected(program: str) -> str:
    """An indented literal as `text` gives it."""
    return textwrap.dedent(program).strip("\n")


def loops(func: Func, name: str) -> list[For]:
    """The loops over variables of this name, in program order."""
    return [s for s in walk_stmt(func.body) if isinstance(s, For) and s.var.name == name]


def loop(func: Func, name: str) -> For:
    """The one loop over a variable of this name."""
    (found,) = loops(func, name)
    return found


def with_kind(func: Func, name: str, kind: str) -> Func:
    """The loops of this name made vectorized, unrolled, parallel or serial."""

    def stmt(s: Stmt) -> Stmt:
        return dataclasses.replace(s, kind=kind) if isinstance(s, For) and s.var.name == name else s

    return with_body(func, rewrite_stmt(func.body, stmt=stmt))


def split(func: Func, name: str, factor: int) -> Func:
    """Each loop `name` as `name_o` around `name_i` of `factor` steps, the blocks below guarded where it does not
    divide."""

    def stmt(s: Stmt) -> Stmt:
        if not (isinstance(s, For) and s.var.name == name):
            return s
        outer, inner = Var(f"{name}_o"), Var(f"{name}_i")
        value = outer * factor + inner
        guard = less(value, s.extent)

        def below(x: Stmt) -> Stmt:
            if not isinstance(x, Block):
                return x
            bindings = tuple(substitute(b, {s.var: value}) for b in x.bindings)
            predicate = logical_and(substitute(x.predicate, {s.var: value}), guard)
            return dataclasses.replace(x, bindings=bindings, predicate=predicate)

        body = For(inner, const(0), const(factor), "serial", rewrite_stmt(s.body, stmt=below))
        return For(outer, const(0), (s.extent + (factor - 1)) // factor, "serial", body)

    return with_body(func, rewrite_stmt(func.body, stmt=stmt))


def sizes(func: Func, dims: Mapping[Var, int]) -> list[tuple[int, ...]]:
    """The shapes of the parameters as numbers."""
    values: dict[Var, Expr] = {v: const(n) for v, n in dims.items()}
    return [tuple(int(te.const(0).value + _value(substitute(e, values))) for e in p.shape) for p in func.params]


def _value(e: Expr) -> int:
    from tensorir.passes.linear import IndexScope

    return IndexScope().form(e).constant


def run(func: Func, arrays: Sequence[np.ndarray], dims: Mapping[Var, int], mode: str = "checked") -> list[np.ndarray]:
    """The outputs of `func` on copies of `arrays`, poisoned before."""
    own = [a.copy() for a in arrays]
    shaped = [a.reshape(s) for a, s in zip(own, sizes(func, dims), strict=True)]
    for a in own[len(own) - func.outputs :]:
        a[...] = np.nan if a.dtype.kind == "f" else 77
    interpret(func, shaped, dims=dims, mode=mode)
    return own[len(own) - func.outputs :]


def require_same_bits(before: Func, after: Func, dims: Mapping[Var, int] | None = None, seed: int = 0) -> None:
    """Both functions give the same bits on random inputs, and the second breaks no rule of memory."""
    rng = np.random.default_rng(seed)
    known = dims or {}
    arrays = []
    for p, shape in zip(before.params, sizes(before, known), strict=True):
        if p.dtype.is_float:
            arrays.append(rng.standard_normal(shape).astype(p.dtype.numpy))
        else:
            arrays.append(rng.integers(-9, 9, shape).astype(p.dtype.numpy))
    for want, got in zip(run(before, arrays, known, "plain"), run(after, arrays, known), strict=True):
        assert np.array_equal(want.reshape(-1).view(np.uint8), got.reshape(-1).view(np.uint8))


def scaled(n: int | Expr, name: str = "i") -> tuple[te.Tensor, Func]:
    """B[i] = A[i] * 2 + 1 over n elements."""
    a = te.placeholder((n,), name="A")
    i = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B")
    return a, te.create_func([a, i], "scaled")


def matmul(n: int, m: int, k: int) -> Func:
    """C[i, j] = sum over k of A[i, k] * B[k, j]."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_func([a, b, c], "matmul")


def reorder(func: Func, names: Sequence[str]) -> Func:
    """The perfect nest of loops `names` (outermost first now) in this new order."""
    found = {n: loop(func, n) for n in names}
    members = list(found.values())
    top = next(s for s in walk_stmt(func.body) if any(s is m for m in members))
    inner: Stmt = top
    while any(inner is m for m in members):
        assert isinstance(inner, For)
        inner = inner.body
    for n in reversed(names):
        inner = dataclasses.replace(found[n], body=inner)
    return (
        with_body(func, rewrite_stmt(func.body, stmt=lambda s: s))
        if inner is top
        else with_body(func, _replaced(func.body, top, inner))
    )


def _replaced(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    from tensorir.stmt import Allocate, Seq, seq

    if s is old:
        return new
    if isinstance(s, (For, Allocate)):
        return dataclasses.replace(s, body=_replaced(s.body, old, new))
    if isinstance(s, Seq):
        return seq(*[_replaced(x, old, new) for x in s.stmts])
    return s
