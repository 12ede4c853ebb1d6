# %% [markdown]
# # A matrix product, step by step, to the peak of the machine
#
# A processor core multiplies and adds two vectors at a time, from registers. The whole art is to let it: to load little
# for each multiply-add. Each step below changes only the schedule (or stores an operand in another order).
#
# The size comes from the environment variable LESSON_SIZE, so that the lesson can be run at full size and checked at a
# small one.

# %%
import os

import numpy as np

import nestor as nt
from nestor import te

N = int(os.environ.get("LESSON_SIZE", "1024"))
TARGET = nt.Target.parse("llvm")


def declare(n: int = N, m: int = N, depth: int = N) -> tuple:
    """C = A B."""
    A = te.placeholder((n, depth), name="A")
    B = te.placeholder((depth, m), name="B")
    k = te.reduce_axis(depth, name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, k


# %% [markdown]
# ## Step 0: three loops
# Each multiply-add loads one element of A and one of B, and B column by column: one cache line for each element.


# %%
def three_loops() -> tuple:
    """The compute as it is."""
    A, B, C, _ = declare()
    return nt.create_schedule(C), [A, B, C]


print(three_loops()[0])

# %% [markdown]
# ## Step 1: vectors along j
# With `k` outside, neighbouring columns of B and C are used together: one vector of lanes at a time.


# %%
def vectors() -> tuple:
    """i, k, then lanes of j."""
    A, B, C, k = declare()
    s = nt.create_schedule(C)
    j_o, j_i = s[C].split("j", factor=16)
    s[C].reorder("i", j_o, k, j_i)
    s[C].vectorize(j_i)
    return s, [A, B, C]


# %% [markdown]
# ## Step 2: a tile in registers
# Six rows of two vectors are twelve accumulators: for each k, two loads of B and six of A serve twelve multiply-adds. A
# `register` buffer must have constant indices, so the loops around it are unrolled.


# %%
def register_tile(rows: int = 6, panel: int = 32) -> tuple:
    """A tile of rows x panel accumulated over all of k."""
    A, B, C, k = declare()
    s = nt.create_schedule(C)
    T = s.cache_write(C, "register")
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", rows, panel)
    s[T].compute_at(s[C], j_o)
    i, j = s[T].axis
    v, lane = s[T].split(j, factor=16)
    s[T].reorder(k, i, v, lane)
    s[T].unroll(i), s[T].unroll(v), s[T].vectorize(lane)
    s[T].decompose_reduction(k)
    w, lane = s[C].split(j_i, factor=16)
    s[C].unroll(i_i), s[C].unroll(w), s[C].vectorize(lane)
    return s, [A, B, C]


# %% [markdown]
# ## Step 3: packed operands
# The tile walks down k: 32 columns of B in rows that lie far apart, and 12 rows of A whose lines fall into the same few
# sets of the first-level cache. Two small computes store both in the order in which the tile reads them; they cost n²
# work beside n³. Sizes that the tile does not divide are padded with zeros and cut off at the end.
#
# ## Step 4: threads, and what they share
# Each thread takes its own half of the tiles of A, and all take six panels of B at a time: these stay in the
# second-level cache while the tiles pass by once, each used for all six. Without the six, every panel would fetch all
# of A again from the cache that both cores share. The rows that come next are asked for a few steps ahead. Of two
# tiles with 24 accumulators, the one is taken that pads the product less. This is all of it, for any size, in 30 lines:


# %%
def product(n: int = N, m: int = N, depth: int = N, *, threads: int = 2) -> tuple:
    """C = A B from packed panels, rows x panel accumulated in registers."""
    rows, panel = min(((12, 32), (8, 48)), key=lambda tile: -(-n // tile[0]) * tile[0] * -(-m // tile[1]) * tile[1])
    A, B = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    n_t, m_t, k = -(-n // rows), -(-m // panel), te.reduce_axis(depth, name="k")
    PA = te.compute(
        (n_t, depth, rows), lambda t, k, i: te.if_then_else(t * rows + i < n, A[t * rows + i, k], 0.0), name="PA"
    )
    PB = te.compute(
        (m_t, depth, panel), lambda t, k, j: te.if_then_else(t * panel + j < m, B[k, t * panel + j], 0.0), name="PB"
    )
    T = te.compute((m_t, n_t, rows, panel), lambda b, a, i, j: te.sum(PA[a, k, i] * PB[b, k, j], axis=k), name="T")
    C = te.compute((n, m), lambda i, j: T[j // panel, i // rows, i % rows, j % panel], name="C")
    s = nt.create_schedule(C)
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", rows, panel)
    thread, i_o = s[C].split(i_o, nparts=min(threads, n_t))
    six, j_o = s[C].split(j_o, factor=6)
    s[C].reorder(thread, six, i_o, j_o, i_i, j_i)
    s[T].set_scope("register"), s[T].compute_at(s[C], j_o)
    v, lane = s[T].split(s[T].axis[3], factor=16)
    s[T].reorder(k, s[T].axis[2], v, lane)
    s[T].unroll(s[T].axis[2]), s[T].unroll(v), s[T].vectorize(lane)
    s[T].decompose_reduction(k)
    s[T].prefetch(PA, k, 16 * rows), s[T].prefetch(PB, k, 16 * panel)
    w, lane = s[C].split(j_i, factor=16)
    s[C].unroll(i_i), s[C].unroll(w), s[C].vectorize(lane)
    s[PB].vectorize(s[PB].split(s[PB].axis[2], factor=16)[1])
    k_o, k_i = s[PA].split(s[PA].axis[1], factor=16)
    s[PA].reorder(k_o, s[PA].axis[2], k_i), s[PA].vectorize(k_i)
    for stage, loop in ((C, thread), (PA, s[PA].axis[0]), (PB, s[PB].axis[0])) if threads > 1 else ():
        s[stage].parallel(loop)
    return s, [A, B, C]


def packed() -> tuple:
    """The product on one thread."""
    return product(threads=1)


STEPS = {
    "three loops": three_loops,
    "vectors": vectors,
    "register tile": register_tile,
    "packed": packed,
    "threads": product,
}

# %% [markdown]
# Every step computes the same. (Small sizes, and sizes that nothing divides.)

# %%


def check(schedule: nt.Schedule, args: list) -> nt.Kernel:
    """Builds, runs and compares with numpy."""
    kernel = nt.build(schedule, args, target="llvm")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal([int(e.value) for e in t.shape]).astype(np.float32) for t in args[:2])
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)
    return kernel


kernels = {name: check(*make()) for name, make in STEPS.items()}
for n, m, depth in ((37, 70, 19), (12, 32, 5), (1, 1, 1)):
    check(*product(n, m, depth))
assert kernels["packed"].spills == 0

# %% [markdown]
# The speeds at full size, with a picture where matplotlib is installed. (The bench command
# `python -m tests.bench.lessons` prints them beside numpy's and the machine's peak.)

# %%


def speeds() -> dict[str, float]:
    """Multiply-adds a second of each step, in 10^9 floating point operations."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    c = np.empty((N, N), np.float32)
    return {name: 2e-9 * N**3 / kernel.time(a, b, c, repeats=3).min for name, kernel in kernels.items()}


def picture(found: dict[str, float]) -> None:
    """The speeds as bars."""
    try:
        from matplotlib import pyplot
    except ImportError:
        print("install matplotlib to see the picture")
        return
    figure, axes = pyplot.subplots(figsize=(7, 2.5))
    axes.barh(list(found), list(found.values()))
    axes.invert_yaxis()
    axes.set_xlabel("GFLOP/s")
    figure.tight_layout()
    pyplot.show()


if N >= 512:
    picture(speeds())
