"""Recursion by te.scan: sums along an axis, two states, steps of several stages."""

from __future__ import annotations

import numpy as np

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson


@lesson()
def sums_along_an_axis() -> Made:
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n), name="state")
    s_init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    s_update = te.compute((m, n), lambda t, i: s_state[t - 1, i] + X[t, i], name="update")
    s_scan = te.scan(s_init, s_update, s_state, inputs=[X])
    s = te.create_schedule(s_scan.op)
    xo, xi = s[s_init].split(s_init.op.axis[1], factor=16)
    s[s_init].vectorize(xi)
    xo, xi = s[s_update].split(s_update.op.axis[1], factor=16)
    s[s_update].vectorize(xi)
    assert tvm.lower(s, [X, s_scan], simple_mode=True)
    return Made(s, [X, s_scan], lambda x: x.cumsum(0), tolerance=1e-3)


@lesson()
def two_states_at_once() -> Made:
    m, n, depth = 12, 7, 10
    X = te.placeholder((m, n), name="X")
    L = te.placeholder((m, depth), name="L")
    s_state1 = te.placeholder((m, n), name="state1")
    s_state2 = te.placeholder((m, depth), name="state2")
    s_init1 = te.compute((1, n), lambda _, i: X[0, i], name="init1")
    s_init2 = te.compute((1, depth), lambda _, i: te.const(0.0, "float32"), name="init2")
    s_update1 = te.compute((m, n), lambda t, i: s_state1[t - 1, i] * 0.5 + X[t, i], name="update1")
    s_update2 = te.compute((m, depth), lambda t, i: L[t, i] + s_state2[t - 1, 0] * 0.25, name="update2")
    s_scan1, s_scan2 = te.scan([s_init1, s_init2], [s_update1, s_update2], [s_state1, s_state2], inputs=[X, L])
    s = te.create_schedule(s_scan1.op)

    def reference(x: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, ...]:
        a, b = np.empty_like(x), np.zeros_like(other)
        a[0] = x[0]
        for t in range(1, m):
            a[t] = a[t - 1] * 0.5 + x[t]
            b[t] = other[t] + b[t - 1, 0] * 0.25
        return a, b

    return Made(s, [X, L, s_scan1, s_scan2], reference)


@lesson()
def a_step_of_two_stages() -> Made:
    m, n = 9, 20
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n), name="state")
    s_init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    s_half = te.compute((m, n), lambda t, i: s_state[t - 1, i] * 0.5, name="half")
    s_update = te.compute((m, n), lambda t, i: s_half[t, i] + X[t, i], name="update")
    s_scan = te.scan(s_init, s_update, s_state, inputs=[X])
    s = te.create_schedule(s_scan.op)
    xo, xi = s[s_update].split(s_update.op.axis[1], factor=8)
    s[s_half].compute_at(s[s_update], xo)

    def reference(x: np.ndarray) -> np.ndarray:
        a = x.copy()
        for t in range(1, m):
            a[t] = a[t - 1] * 0.5 + x[t]
        return a

    return Made(s, [X, s_scan], reference)


@lesson()
def a_recurrent_network() -> Made:
    steps, batch, hidden = 6, 3, 16
    X = te.placeholder((steps, batch, hidden), name="X")
    W = te.placeholder((hidden, hidden), name="W")
    s_state = te.placeholder((steps, batch, hidden), name="state")
    s_init = te.compute((1, batch, hidden), lambda _, i, j: te.const(0.0, "float32"), name="init")
    k = te.reduce_axis((0, hidden), name="k")
    s_mul = te.compute(
        (steps, batch, hidden), lambda t, i, j: te.sum(s_state[t - 1, i, k] * W[j, k], axis=k), name="mul"
    )
    s_update = te.compute((steps, batch, hidden), lambda t, i, j: te.tanh(s_mul[t, i, j] + X[t, i, j]), name="update")
    s_scan = te.scan(s_init, s_update, s_state, inputs=[X, W])
    s = te.create_schedule(s_scan.op)
    ko, ki = s[s_mul].split(s_mul.op.reduce_axis[0], factor=4)
    s[s_mul].unroll(ki)

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        a = np.zeros_like(x)
        for t in range(1, steps):
            a[t] = np.tanh(a[t - 1] @ w.T + x[t])
        return a

    return Made(s, [X, W, s_scan], reference)
