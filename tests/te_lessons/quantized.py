"""Integers of 8 bits: products summed in 32, requantised."""

from __future__ import annotations

import numpy as np

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson


@lesson()
def int8_product() -> Made:
    M, N, K = 24, 32, 64
    A = te.placeholder((M, K), dtype="uint8", name="A")
    B = te.placeholder((N // 16, K // 4, 16, 4), dtype="int8", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(A[i, k].astype("int32") * B[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    jo, ji = s[C].split(j, factor=16)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(i, jo, ko, ki, ji)
    s[C].vectorize(ji)
    s[C].parallel(i)

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        plain = b.transpose(0, 2, 1, 3).reshape(N, K)
        return a.astype(np.int32) @ plain.astype(np.int32).T

    return Made(s, [A, B, C], reference, low=0, high=100)


@lesson()
def requantised_dense() -> Made:
    M, N, K = 9, 20, 33
    A = te.placeholder((M, K), dtype="int8", name="A")
    B = te.placeholder((N, K), dtype="int8", name="B")
    bias = te.placeholder((N,), dtype="int32", name="bias")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k), name="C")
    D = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="D")
    E = te.compute(
        (M, N),
        lambda i, j: te.maximum(te.minimum(D[i, j] >> 6, 127), -128).astype("int8"),
        name="E",
    )
    s = te.create_schedule(E.op)
    s[D].compute_inline()
    i, j = s[E].op.axis
    jo, ji = s[E].split(j, factor=8)
    s[C].compute_at(s[E], jo)
    s[E].vectorize(ji)
    s[E].parallel(i)
    assert tvm.lower(s, [A, B, bias, E])

    def reference(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return np.clip((a.astype(np.int32) @ b.astype(np.int32).T + bias) >> 6, -128, 127)

    return Made(s, [A, B, bias, E], reference, low=-100, high=100)
