"""Tensorize: part of a loop nest becomes one operation that is declared beside it."""

from __future__ import annotations

from nestor import te
from schedule import tensor_intrinsic
from tensorir.stmt import seq
from tests.te_lessons.lesson import Made, lesson


@lesson(
    (
        "te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})",
        'tensor_intrinsic([a, b], c, implement, name="gemv_16")',
    ),
    (
        'ib.emit(tvm.tir.call_extern("int32", "gemv_update", cc.access_ptr("w"), ...))',
        "return c.loop(0, lambda i: c.store(i, value=te.fma(a[j], b[i, j], c[i])))",
    ),
)
def tensorized_gemv() -> Made:
    N, M, L, factor = 20, 48, 24, 16
    A = te.placeholder((N, L), name="A")
    B = te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=factor)
    zo, zi = s[C].split(z, factor=4)
    s[C].reorder(x, yo, zo, yi, zi)

    a = te.placeholder((4,), name="a")
    b = te.placeholder((factor, 4), name="b")
    q = te.reduce_axis((0, 4), name="q")
    c = te.compute((factor,), lambda i: te.sum(a[q] * b[i, q], axis=q), name="c")

    def implement(a, b, c):  # noqa: ANN001, ANN202
        def step(j):  # noqa: ANN001, ANN202
            return c.loop(0, lambda i: c.store(i, value=te.fma(a[j], b[i, j], c[i])))

        return seq(*[step(j) for j in range(4)])

    gemv = tensor_intrinsic([a, b], c, implement, name="gemv_16")
    s[C].tensorize(yi, gemv)
    s[C].parallel(x)
    return Made(s, [A, B, C], lambda a, b: a @ b.T)
