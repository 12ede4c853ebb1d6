"""Convolutions and moves of data: packed layouts, depthwise, Winograd, transposition."""

from __future__ import annotations

import numpy as np

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson


def convolved(x: np.ndarray, w: np.ndarray, pad: int) -> np.ndarray:
    """The convolution of (C, H, W) with (out, C, R, S)."""
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (1, 2))
    return np.einsum("cyxrs,ocrs->oyx", windows, w)


@lesson()
def conv2d_direct() -> Made:
    C, H, W, OC, R = 3, 14, 15, 8, 3
    Input = te.placeholder((C, H, W), name="Input")
    Filter = te.placeholder((OC, C, R, R), name="Filter")
    Pad = te.compute(
        (C, H + 2, W + 2),
        lambda c, y, x: te.if_then_else(
            te.all(y >= 1, y < H + 1, x >= 1, x < W + 1), Input[c, y - 1, x - 1], te.const(0.0, "float32")
        ),
        name="Pad",
    )
    rc = te.reduce_axis((0, C), name="rc")
    ry = te.reduce_axis((0, R), name="ry")
    rx = te.reduce_axis((0, R), name="rx")
    Conv = te.compute(
        (OC, H, W),
        lambda o, y, x: te.sum(Pad[rc, y + ry, x + rx] * Filter[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="Conv",
    )
    s = te.create_schedule(Conv.op)
    o, y, x = s[Conv].op.axis
    yo, yi = s[Conv].split(y, factor=4)
    s[Conv].reorder(o, yo, rc, ry, rx, yi, x)
    s[Conv].vectorize(x)
    s[Conv].parallel(o)
    return Made(s, [Input, Filter, Conv], lambda x, w: convolved(x, w, 1))


@lesson()
def conv2d_in_packed_layout() -> Made:
    CO, CI, H, W, R, b = 2, 2, 9, 12, 3, 8
    X = te.placeholder((CI, H + 2, W + 2, b), name="X")
    K = te.placeholder((CO, CI, R, R, b, b), name="K")
    ci = te.reduce_axis((0, CI), name="ci")
    cb = te.reduce_axis((0, b), name="cb")
    ry = te.reduce_axis((0, R), name="ry")
    rx = te.reduce_axis((0, R), name="rx")
    Y = te.compute(
        (CO, H, W, b),
        lambda co, y, x, ob: te.sum(X[ci, y + ry, x + rx, cb] * K[co, ci, ry, rx, cb, ob], axis=[ci, ry, rx, cb]),
        name="Y",
    )
    s = te.create_schedule(Y.op)
    YL = s.cache_write(Y, "local")
    co, y, x, ob = s[Y].op.axis
    xo, xi = s[Y].split(x, factor=4)
    s[Y].reorder(co, y, xo, xi, ob)
    s[Y].vectorize(ob)
    fused = s[Y].fuse(co, y)
    s[Y].parallel(fused)
    s[YL].compute_at(s[Y], xo)
    _, _, xl, obl = s[YL].op.axis
    cil, ryl, rxl, cbl = s[YL].op.reduce_axis
    s[YL].reorder(cil, ryl, rxl, cbl, xl, obl)
    s[YL].unroll(xl)
    s[YL].vectorize(obl)

    def reference(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (R, R), (1, 2))
        return np.einsum("iyxbrs,oirsbp->oyxp", windows, k)

    return Made(s, [X, K, Y], reference)


@lesson(
    (
        "s[Pad].compute_at(s[Z], yo); s[Y].compute_at(s[Z], yo)",
        "s[Y].compute_at(s[Z], yo); s[Pad].compute_at(s[Z], yo)",
    )
)
def depthwise() -> Made:
    C, H, W = 6, 10, 16
    X = te.placeholder((C, H, W), name="X")
    K = te.placeholder((C, 3, 3), name="K")
    Pad = te.compute(
        (C, H + 2, W + 2),
        lambda c, y, x: te.if_then_else(
            te.all(y >= 1, y <= H, x >= 1, x <= W), X[c, y - 1, x - 1], te.const(0.0, "float32")
        ),
        name="Pad",
    )
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    Y = te.compute((C, H, W), lambda c, y, x: te.sum(Pad[c, y + ry, x + rx] * K[c, ry, rx], axis=[ry, rx]), name="Y")
    Z = te.compute((C, H, W), lambda c, y, x: te.maximum(Y[c, y, x], te.const(0.0, "float32")), name="Z")
    s = te.create_schedule(Z.op)
    c, y, x = s[Z].op.axis
    yo, yi = s[Z].split(y, factor=2)
    s[Y].compute_at(s[Z], yo)
    s[Pad].compute_at(s[Z], yo)
    _, yl, xl = s[Y].op.axis
    s[Y].reorder(ry, rx, yl, xl)
    s[Y].vectorize(xl)
    s[Y].unroll(rx)
    s[Z].vectorize(x)
    s[Z].parallel(c)

    def reference(x: np.ndarray, k: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
        return np.maximum(np.einsum("cyxrs,crs->cyx", windows, k), 0)

    return Made(s, [X, K, Z], reference)


def const_matrix(matrix: list[list[float]], name: str):  # noqa: ANN201 - as the lesson has it
    """A small constant matrix as a compute of selects."""
    rows, columns = len(matrix), len(matrix[0])

    def element(i, j):  # noqa: ANN001, ANN202
        now = te.const(0.0, "float32")
        for ii in range(rows):
            for jj in range(columns):
                now = te.select(te.all(te.floormod(i, rows) == ii, j == jj), te.const(matrix[ii][jj], "float32"), now)
        return now

    return te.compute((rows, columns), element, name=name)


@lesson()
def winograd() -> Made:
    C, OC, H, W, m, r = 4, 8, 8, 12, 2, 3
    alpha, th, tw = m + r - 1, H // m, W // m
    X = te.placeholder((C, H + 2, W + 2), name="X")
    K = te.placeholder((OC, C, r, r), name="K")
    G = const_matrix([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], "G")
    B = const_matrix([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], "B")
    A = const_matrix([[1, 0], [1, 1], [1, -1], [0, -1]], "A")
    r1, r2 = te.reduce_axis((0, r), "r1"), te.reduce_axis((0, r), "r2")
    U = te.compute(
        (alpha, alpha, C, OC),
        lambda e, n, c, o: te.sum(K[o, c, r1, r2] * G[e, r1] * G[n, r2], axis=[r1, r2]),
        name="U",
    )
    a1, a2 = te.reduce_axis((0, alpha), "a1"), te.reduce_axis((0, alpha), "a2")
    V = te.compute(
        (alpha, alpha, C, th * tw),
        lambda e, n, c, t: te.sum(
            X[c, te.floordiv(t, tw) * m + a1, te.floormod(t, tw) * m + a2] * B[a1, e] * B[a2, n], axis=[a1, a2]
        ),
        name="V",
    )
    c = te.reduce_axis((0, C), "c")
    M = te.compute(
        (alpha, alpha, OC, th * tw), lambda e, n, o, t: te.sum(U[e, n, c, o] * V[e, n, c, t], axis=c), name="M"
    )
    b1, b2 = te.reduce_axis((0, alpha), "b1"), te.reduce_axis((0, alpha), "b2")
    Y = te.compute(
        (OC, th * tw, m, m),
        lambda o, t, y, x: te.sum(M[b1, b2, o, t] * A[b1, y] * A[b2, x], axis=[b1, b2]),
        name="Y",
    )
    Out = te.compute(
        (OC, H, W),
        lambda o, y, x: Y[o, te.floordiv(y, m) * tw + te.floordiv(x, m), te.floormod(y, m), te.floormod(x, m)],
        name="Out",
    )
    s = te.create_schedule(Out.op)
    for matrix in (A, B, G):
        s[matrix].compute_inline()
    e, n, o, t = s[M].op.axis
    to, ti = s[M].split(t, factor=8)
    s[M].reorder(e, n, o, to, c, ti)
    s[M].vectorize(ti)
    s[M].parallel(s[M].fuse(e, n))
    ue, un, uc, uo = s[U].op.axis
    s[U].reorder(ue, un, uc, r1, r2, uo)
    s[U].vectorize(uo)
    ve, vn, vc, vt = s[V].op.axis
    s[V].unroll(a2)
    s[V].parallel(ve)
    s[Out].parallel(s[Out].op.axis[0])
    return Made(s, [X, K, Out], lambda x, k: convolved(x, k, 0))


@lesson()
def transposition_in_tiles() -> Made:
    A = te.placeholder((50, 34), name="A")
    B = te.compute((34, 50), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    AA = s.cache_read(A, "local", [B])
    xo, yo, xi, yi = s[B].tile(s[B].op.axis[0], s[B].op.axis[1], x_factor=8, y_factor=8)
    s[AA].compute_at(s[B], yo)
    s[B].vectorize(yi)
    s[B].parallel(xo)
    return Made(s, [A, B], lambda a: a.T)


@lesson()
def prefetched_copy() -> Made:
    A = te.placeholder((64, 48), name="A")
    B = te.compute((64, 48), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    s[B].prefetch(A, i, 48)
    s[B].vectorize(s[B].split(j, factor=16)[1])
    s[B].pragma(i, "unroll_explicit", True)
    assert tvm.lower(s, [A, B])
    return Made(s, [A, B], lambda a: 2 * a)


@lesson()
def intrinsics() -> Made:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute(
        A.shape,
        lambda i: te.tanh(te.exp(A[i])) + te.sqrt(te.abs(A[i])) * te.sigmoid(A[i]) + te.power(A[i], 2.0),
        name="B",
    )
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(B.op.axis[0], factor=16)
    s[B].vectorize(inner)
    return Made(s, [A, B], lambda a: np.tanh(np.exp(a)) + np.sqrt(np.abs(a)) / (1 + np.exp(-a)) + a**2)
