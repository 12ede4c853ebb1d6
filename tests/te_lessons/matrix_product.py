"""A matrix product in six steps: blocks, vectors, loop order, a packed operand, a write cache, threads."""

from __future__ import annotations

from typing import Any

import nestor as tvm
from nestor import te
from tests.te_lessons.lesson import Made, lesson

M, N, K = 64, 96, 80
BN, KFACTOR = 16, 4


def declare() -> tuple[Any, ...]:
    """The compute of all steps but those that pack."""
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
    return A, B, C


def declare_packed() -> tuple[Any, ...]:
    """The compute that reads B in panels of BN columns."""
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    packedB = te.compute((N // BN, K, BN), lambda bigN, k, littleN: B[k, bigN * BN + littleN], name="packedB")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packedB[n // BN, k, te.floormod(n, BN)], axis=k),
        name="C",
    )
    return A, B, packedB, C


def product(a: Any, b: Any) -> Any:
    """What every step computes."""
    return a @ b


@lesson()
def step_1_blocking() -> Made:
    A, B, C = declare()
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=KFACTOR)
    s[C].reorder(mo, no, ko, ki, mi, ni)
    assert tvm.lower(s, [A, B, C], simple_mode=True)
    return Made(s, [A, B, C], product)


@lesson()
def step_2_vectorization() -> Made:
    A, B, C = declare()
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=KFACTOR)
    s[C].reorder(mo, no, ko, ki, mi, ni)
    s[C].vectorize(ni)
    return Made(s, [A, B, C], product)


@lesson()
def step_3_loop_permutation() -> Made:
    A, B, C = declare()
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=KFACTOR)
    s[C].reorder(mo, no, ko, mi, ki, ni)
    s[C].vectorize(ni)
    return Made(s, [A, B, C], product)


@lesson()
def step_4_array_packing() -> Made:
    A, B, packedB, C = declare_packed()
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=KFACTOR)
    s[C].reorder(mo, no, ko, mi, ki, ni)
    s[C].vectorize(ni)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    return Made(s, [A, B, C], product)


@lesson()
def step_5_write_cache() -> Made:
    A, B, packedB, C = declare_packed()
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=KFACTOR)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    return Made(s, [A, B, C], product)


@lesson()
def step_6_parallel() -> Made:
    A, B, packedB, C = declare_packed()
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], BN, BN)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=KFACTOR)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    return Made(s, [A, B, C], product)


@lesson()
def dynamic_shapes() -> Made:
    n, m, depth = te.var("n"), te.var("m"), te.var("l")
    A = te.placeholder((n, depth), name="A")
    B = te.placeholder((m, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    s[C].parallel(xo)
    s[C].unroll(yi)
    return Made(s, [A, B, C], lambda a, b: a @ b.T)


@lesson()
def batched() -> Made:
    A = te.placeholder((5, 17, 24), name="A")
    B = te.placeholder((5, 19, 24), name="B")
    k = te.reduce_axis((0, 24), name="k")
    C = te.compute((5, 17, 19), lambda b, i, j: te.sum(A[b, i, k] * B[b, j, k], axis=k), name="C")
    s = te.create_schedule([C.op])
    b, i, j = s[C].op.axis
    io, ii = s[C].split(i, 4)
    jo, ji = s[C].split(j, 8)
    s[C].reorder(b, io, jo, k, ii, ji)
    s[C].vectorize(ji)
    bi = s[C].fuse(b, io)
    s[C].parallel(bi)
    return Made(s, [A, B, C], lambda a, b: a @ b.transpose(0, 2, 1))
