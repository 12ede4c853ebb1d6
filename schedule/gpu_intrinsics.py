"""Instructions of GPUs as tensor intrinsics.

    s[C].tensorize(k_i, dp4a())              four products of bytes and their sum, in one instruction of one thread
    s[AF].tensorize(i, mma_load())           the lanes of a warp fetch a tile of 16 x 16 into a fragment,
    s[CF].tensorize(i_i, mma())              multiply two and add the product to a third,
    s[C].tensorize(i_i, mma_store())         and store it

threadIdx.x, of 32 threads, has no loop around the last three: all its lanes do them. On a device without such
instructions they are what they mean, element by element.
"""

from __future__ import annotations

from functools import lru_cache

from schedule.intrinsic import TensorIntrinsic, Window, tensor_intrinsic
from tensorir import dtypes, te
from tensorir.expr import Call, Expr, const
from tensorir.matrix import SIZE
from tensorir.stmt import Evaluate, Stmt


@lru_cache(maxsize=2)
def dp4a(signed: bool = True) -> TensorIntrinsic:
    """c[0] += a[0] b[0] + .. + a[3] b[3] of int8 (`a` of uint8 if not `signed`), summed in int32."""
    name = "dp4a" if signed else "dp4a_u8s8"
    dot = te.dot4_s8 if signed else te.dot4_i8
    a, b = te.placeholder((4,), "int8" if signed else "uint8", name="a"), te.placeholder((4,), "int8", name="b")
    k = te.reduce_axis(4, "k")
    c = te.compute((1,), lambda i: te.sum(a[k].astype("int32") * b[k].astype("int32"), axis=k), name="c")

    def implement(a: Window, b: Window, c: Window) -> Stmt:
        words = [te.pack4(*[x[j] for j in range(4)]) for x in (a, b)]
        return c.store(0, value=dot(c[0], *words))

    return tensor_intrinsic([a, b], c, implement, name=name)


@lru_cache(maxsize=2)
def mma(*, transposed: bool = False) -> TensorIntrinsic:
    """c += a b of tiles of 16 x 16 in fragments, float16 summed in float32; b is indexed [n, k] if `transposed`."""
    name = "mma_16x16x16_nt" if transposed else "mma_16x16x16"
    a, b = (te.placeholder((SIZE, SIZE), "float16", name=x) for x in "ab")
    k = te.reduce_axis(SIZE, "k")
    c = te.compute(
        (SIZE, SIZE),
        lambda i, j: te.sum(a[i, k].astype("float32") * (b[j, k] if transposed else b[k, j]).astype("float32"), axis=k),
        name="c",
    )

    def implement(a: Window, b: Window, c: Window) -> Stmt:
        return _instruction("mma_sync", *c.tile(), *a.tile(), *b.tile(), const(False), const(transposed))

    def fill(c: Window) -> Stmt:
        return _instruction("mma_fill", *c.tile(), te.const(0.0))

    return tensor_intrinsic([a, b], c, implement, name=name, fill=fill)


@lru_cache(maxsize=2)
def mma_load(dtype: str = "float16") -> TensorIntrinsic:
    """A fragment of 16 x 16 takes a tile of shared or global memory."""
    return _copy("mma_load", dtype)


@lru_cache(maxsize=1)
def mma_store() -> TensorIntrinsic:
    """A tile of shared or global memory takes a fragment of 16 x 16 sums."""
    return _copy("mma_store", "float32")


def _copy(name: str, dtype: str) -> TensorIntrinsic:
    a = te.placeholder((SIZE, SIZE), dtype, name="a")
    c = te.compute((SIZE, SIZE), lambda i, j: a[i, j], name="c")
    return tensor_intrinsic([a], c, lambda a, c: _instruction(name, *c.tile(), *a.tile()), name=f"{name}_{dtype}")


def _instruction(name: str, *args: Expr) -> Stmt:
    return Evaluate(Call(name, args, dtypes.int32))
