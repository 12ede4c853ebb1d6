"""Reductions: rows, partial results, tuples, softmax, normalisations."""

from __future__ import annotations

import numpy as np

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson


@lesson()
def vector_add() -> Made:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=64)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    return Made(s, [A, B, C], lambda a, b: a + b)


@lesson()
def sum_of_rows() -> Made:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    xo, xi = s[B].split(B.op.axis[0], factor=32)
    s[B].reorder(xo, ko, xi, ki)
    s[B].parallel(xo)
    return Made(s, [A, B], lambda a: a.sum(1))


@lesson()
def rfactor_of_rows() -> Made:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=32)
    s[B].parallel(xo)
    s[BF].compute_at(s[B], xi)
    s[BF].vectorize(s[BF].op.axis[0])
    return Made(s, [A, B], lambda a: a.sum(1))


@lesson()
def parallel_sum_by_rfactor() -> Made:
    A = te.placeholder((1000,), name="A")
    k = te.reduce_axis((0, 1000), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], nparts=4)
    BF = s.rfactor(B, ko)
    s[BF].parallel(s[BF].op.axis[0])
    return Made(s, [A, B], lambda a: a.sum(keepdims=True))


@lesson()
def argmax_as_a_tuple_reduction() -> Made:
    def fcombine(x, y):  # noqa: ANN001, ANN202 - as the lesson has it
        lhs = te.select((x[1] >= y[1]), x[0], y[0])
        rhs = te.select((x[1] >= y[1]), x[1], y[1])
        return lhs, rhs

    def fidentity(t0, t1):  # noqa: ANN001, ANN202
        return te.const(-1, t0), te.min_value(t1)

    argmax = te.comm_reducer(fcombine, fidentity, name="argmax")
    m, n = te.var("m"), te.var("n")
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="int32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    io, ii = s[T0].split(T0.op.axis[0], 4)
    s[T0].parallel(io)

    def reference(idx: np.ndarray, val: np.ndarray) -> tuple[np.ndarray, ...]:
        at = val.argmax(1)[:, None]
        return np.take_along_axis(idx, at, 1)[:, 0], val.max(1)

    return Made(s, [idx, val, T0, T1], reference, low=0, high=1000)


@lesson()
def two_outputs_of_one_compute() -> Made:
    m, n = 12, 30
    A0 = te.placeholder((m, n), name="A0")
    A1 = te.placeholder((m, n), name="A1")
    B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2.0, A1[i, j] * 3.0), name="B")
    s = te.create_schedule(B0.op)
    xo, xi = s[B0].split(B0.op.axis[1], 8)
    s[B0].vectorize(xi)
    return Made(s, [A0, A1, B0, B1], lambda a, b: (a + 2, b * 3))


@lesson()
def softmax() -> Made:
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    k1 = te.reduce_axis((0, n), name="k1")
    k2 = te.reduce_axis((0, n), name="k2")
    M = te.compute((m,), lambda i: te.max(X[i, k1], axis=k1), name="M")
    E = te.compute((m, n), lambda i, j: te.exp(X[i, j] - M[i]), name="E")
    S = te.compute((m,), lambda i: te.sum(E[i, k2], axis=k2), name="S")
    Y = te.compute((m, n), lambda i, j: E[i, j] / S[i], name="Y")
    s = te.create_schedule(Y.op)
    i, j = s[Y].op.axis
    s[Y].parallel(i)
    s[S].compute_at(s[Y], i)
    s[E].compute_at(s[Y], i)
    s[M].compute_at(s[Y], i)
    jo, ji = s[E].split(E.op.axis[1], factor=8)
    s[E].vectorize(ji)
    yo, yi = s[Y].split(j, factor=8)
    s[Y].vectorize(yi)

    def reference(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Made(s, [X, Y], reference)


@lesson()
def batch_norm() -> Made:
    n, c, h, w = 2, 8, 7, 9
    X = te.placeholder((n, c, h, w), name="X")
    Mean = te.placeholder((c, 1, 1), name="Mean")
    Var = te.placeholder((c, 1, 1), name="Var")
    Gamma = te.placeholder((c, 1, 1), name="Gamma")
    Beta = te.placeholder((c, 1, 1), name="Beta")
    C1 = te.compute(X.shape, lambda b, i, y, x: X[b, i, y, x] - Mean[i, 0, 0], name="C1")
    C2 = te.compute((c, 1, 1), lambda i, y, x: te.sqrt(te.abs(Var[i, y, x]) + 1e-5), name="C2")
    Y = te.compute(
        X.shape,
        lambda b, i, y, x: te.maximum(C1[b, i, y, x] / C2[i, 0, 0] * Gamma[i, 0, 0] + Beta[i, 0, 0], 0.0),
        name="Y",
    )
    s = te.create_schedule(Y.op)
    s[C1].compute_inline()
    s[C2].compute_inline()
    b, i, y, x = s[Y].op.axis
    s[Y].parallel(s[Y].fuse(b, i))
    s[Y].vectorize(x)

    def reference(x, mean, var, gamma, beta):  # noqa: ANN001, ANN202
        return np.maximum((x - mean) / np.sqrt(np.abs(var) + 1e-5) * gamma + beta, 0)

    return Made(s, [X, Mean, Var, Gamma, Beta, Y], reference)


@lesson()
def mean_and_variance_in_one_pass() -> Made:
    def fcombine(x, y):  # noqa: ANN001, ANN202
        return x[0] + y[0], x[1] + y[1]

    def fidentity(t0, t1):  # noqa: ANN001, ANN202
        return te.const(0.0, t0), te.const(0.0, t1)

    both = te.comm_reducer(fcombine, fidentity, name="sums")
    X = te.placeholder((6, 50), name="X")
    k = te.reduce_axis((0, 50), name="k")
    S, Q = te.compute((6,), lambda i: both((X[i, k], X[i, k] * X[i, k]), axis=k), name="sums")
    Y = te.compute(
        (6, 50),
        lambda i, j: (X[i, j] - S[i] / 50.0) * te.rsqrt(Q[i] / 50.0 - S[i] / 50.0 * (S[i] / 50.0) + 1e-5),
        name="Y",
    )
    s = te.create_schedule(Y.op)
    s[S].compute_at(s[Y], Y.op.axis[0])
    s[Y].parallel(Y.op.axis[0])
    assert "sums" in str(tvm.lower(s, [X, Y], simple_mode=True))

    def reference(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

    return Made(s, [X, Y], reference, tolerance=1e-3)


@lesson()
def max_pool() -> Made:
    X = te.placeholder((4, 12, 14), name="X")
    dy, dx = te.reduce_axis((0, 3), "dy"), te.reduce_axis((0, 3), "dx")
    P = te.compute((4, 5, 6), lambda c, y, x: te.max(X[c, 2 * y + dy, 2 * x + dx], axis=[dy, dx]), name="P")
    s = te.create_schedule(P.op)
    c, y, x = s[P].op.axis
    s[P].reorder(c, y, dy, dx, x)
    s[P].unroll(dx)
    s[P].vectorize(x)
    s[P].parallel(c)

    def reference(x: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        return windows[:, ::2, ::2].max((-1, -2))

    return Made(s, [X, P], reference)
