# %% [markdown]
# # Tensorize with the dot product of bytes
#
# Processors have an instruction that multiplies four unsigned by four signed bytes in each lane and adds the four
# products to a 32-bit sum: four multiply-adds where a float lane does one. A schedule does not find such an instruction
# by itself: *tensorize* puts it where a loop nest computes exactly what the instruction does, and is refused elsewhere.

# %%
import os

import numpy as np

import nestor as nt
from nestor import te

N = int(os.environ.get("LESSON_SIZE", "1024"))

# %% [markdown]
# The intrinsic is declared by its meaning, a compute, and by its implementation, a statement on windows of memory. Both
# are run against each other when it is declared, so a wrong implementation is found here.

# %%
bytes_a = te.placeholder((4,), "uint8", name="a")
bytes_b = te.placeholder((16, 4), "int8", name="b")
q = te.reduce_axis(4, name="q")
sums = te.compute((16,), lambda i: te.sum(bytes_a[q].astype("int32") * bytes_b[i, q].astype("int32"), axis=q), name="c")


def implement(a, b, c):
    """One vector instruction: c[i] += a[0] b[i, 0] + ... + a[3] b[i, 3] in 16 lanes."""
    four = te.pack4(*[a[j] for j in range(4)])
    return c.loop(0, lambda i: c.store(i, value=te.dot4_i8(c[i], four, te.pack4(*[b[i, j] for j in range(4)]))))


dot = nt.tensor_intrinsic([bytes_a, bytes_b], sums, implement, name="dot_16x4_u8i8")

# %% [markdown]
# The product of an (n, k) matrix of unsigned bytes with a (k, m) matrix of signed ones. B is stored so that the four
# bytes of a lane lie together, 16 lanes side by side; weights of a network are stored so once. As in the lesson on the
# float product, a tile of sums stays in registers. k is a multiple of 4 and m of 16: pad with zeros where it is not.


# %%
def product(n: int = N, m: int = N, depth: int = N, *, rows: int = 12, vectors: int = 2) -> tuple:
    """C = A B of bytes, rows x vectors of sums in registers."""
    A = te.placeholder((n, depth), "uint8", name="A")
    B = te.placeholder((m // 16, depth // 4, 16, 4), "int8", name="B")
    k = te.reduce_axis(depth, name="k")
    T = te.compute(
        (n, m // 16, 16),
        lambda i, b, j: te.sum(A[i, k].astype("int32") * B[b, k // 4, j, k % 4].astype("int32"), axis=k),
        name="T",
    )
    C = te.compute((n, m), lambda i, j: T[i, j // 16, j % 16], name="C")
    s = nt.create_schedule(C)
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", rows, 16 * vectors)
    s[C].reorder(j_o, i_o, i_i, j_i)
    s[T].set_scope("register")
    s[T].compute_at(s[C], i_o)
    i, b, j = s[T].axis
    k_o, k_i = s[T].split(k, factor=4)
    s[T].reorder(k_o, i, b, j, k_i)
    s[T].decompose_reduction(k_o)
    s[T].unroll(i), s[T].unroll(b)
    s[T].tensorize(j, dot)
    v, lane = s[C].split(j_i, factor=16)
    s[C].unroll(i_i), s[C].unroll(v), s[C].vectorize(lane)
    s[C].parallel(j_o)
    return s, [A, B, C]


print(product(24, 64, 8)[0])


# %%
def arrays(n: int, m: int, depth: int) -> list[np.ndarray]:
    """Bytes, and room for the sums."""
    rng = np.random.default_rng(4)
    a = rng.integers(0, 256, (n, depth)).astype(np.uint8)
    b = rng.integers(-128, 128, (m // 16, depth // 4, 16, 4)).astype(np.int8)
    return [a, b, np.full((n, m), -1, np.int32)]


def check(n: int, m: int, depth: int) -> nt.Kernel:
    """Builds, runs and compares with numpy, exactly."""
    kernel = nt.build(*product(n, m, depth), target="llvm")
    a, b, c = arrays(n, m, depth)
    kernel(a, b, c)
    plain = b.transpose(1, 3, 0, 2).reshape(depth, m)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ plain.astype(np.int32))
    return kernel


for shape in ((24, 64, 8), (13, 48, 20), (N, N, N)):
    kernel = check(*shape)
assert kernel.spills == 0
print(kernel.source("asm").count("vpdpbusd"), "dot instructions (where the processor has them)")

# %% [markdown]
# Where the loops compute something else, tensorize says what differs.

# %%
A = te.placeholder((8, 64), "int8", name="A")
B = te.placeholder((4, 16, 16, 4), "int8", name="B")
k = te.reduce_axis(64, name="k")
C = te.compute(
    (8, 4, 16),
    lambda i, b, j: te.sum(A[i, k].astype("int32") * B[b, k // 4, j, k % 4].astype("int32"), axis=k),
    name="C",
)
s = nt.create_schedule(C)
k_o, k_i = s[C].split(k, factor=4)
s[C].reorder("i", "b", k_o, "j", k_i)
try:
    s[C].tensorize("j", dot)
except nt.UserError as error:
    print(error)
else:
    raise AssertionError("signed bytes were taken for unsigned ones")
