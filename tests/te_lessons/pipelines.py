"""Pipelines of stages: blur, recursion, host work."""

from __future__ import annotations

import numpy as np

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson

H, W = 40, 64


def declare_blur():  # noqa: ANN201 - as the lesson has it
    """Two 3-point means, first across and then down."""
    X = te.placeholder((H + 2, W + 2), name="X")
    BX = te.compute((H + 2, W), lambda y, x: (X[y, x] + X[y, x + 1] + X[y, x + 2]) / 3.0, name="BX")
    BY = te.compute((H, W), lambda y, x: (BX[y, x] + BX[y + 1, x] + BX[y + 2, x]) / 3.0, name="BY")
    return X, BX, BY


def blurred(x: np.ndarray) -> np.ndarray:
    """What each schedule of the blur computes."""
    across = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (across[:-2] + across[1:-1] + across[2:]) / 3


@lesson()
def blur_at_root() -> Made:
    X, BX, BY = declare_blur()
    s = te.create_schedule(BY.op)
    s[BX].parallel(BX.op.axis[0])
    s[BY].parallel(BY.op.axis[0])
    return Made(s, [X, BY], blurred)


@lesson()
def blur_inlined() -> Made:
    X, BX, BY = declare_blur()
    s = te.create_schedule(BY.op)
    s[BX].compute_inline()
    s[BY].vectorize(s[BY].split(BY.op.axis[1], factor=8)[1])
    return Made(s, [X, BY], blurred)


@lesson()
def blur_in_tiles() -> Made:
    X, BX, BY = declare_blur()
    s = te.create_schedule(BY.op)
    yo, xo, yi, xi = s[BY].tile(BY.op.axis[0], BY.op.axis[1], 8, 32)
    s[BX].compute_at(s[BY], xo)
    s[BX].vectorize(s[BX].split(BX.op.axis[1], factor=8)[1])
    s[BY].vectorize(s[BY].split(xi, factor=8)[1])
    s[BY].parallel(yo)
    assert "BX" in str(tvm.lower(s, [X, BY], simple_mode=True))
    return Made(s, [X, BY], blurred)


@lesson()
def three_stages_one_inlined() -> Made:
    A = te.placeholder((100,), name="A")
    B = te.compute((98,), lambda i: A[i] + A[i + 2], name="B")
    C = te.compute((98,), lambda i: B[i] * 0.5, name="C")
    D = te.compute((96,), lambda i: C[i + 2] - C[i], name="D")
    s = te.create_schedule(D.op)
    s[C].compute_inline()
    io, ii = s[D].split(D.op.axis[0], nparts=4)
    s[B].compute_at(s[D], io)
    s[D].parallel(io)

    def reference(a: np.ndarray) -> np.ndarray:
        c = (a[:-2] + a[2:]) / 2
        return c[2:] - c[:-2]

    return Made(s, [A, D], reference)


@lesson(
    (
        'te.extern((n,), [A], lambda ins, outs: tvm.tir.call_packed("my.sort", ins[0], outs[0]), dtype="float32")',
        'te.extern([((n,), "float32")], [A], "my_module:sort")',
    )
)
def host_work_by_an_extern() -> Made:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = te.extern([((n,), "float32")], [B], "tests.te_lessons.host:sort", name="C")
    D = te.compute((n,), lambda i: C[n - 1 - i] + 1.0, name="D")
    s = te.create_schedule(D.op)
    s[B].parallel(B.op.axis[0])
    return Made(s, [A, D], lambda a: np.sort(2 * a)[::-1] + 1)
