# %% [markdown]
# # A matrix product for a GPU, on any machine
#
# A GPU runs blocks of threads. The threads of a block share a little fast memory and can wait for each other; blocks
# know nothing of one another. Here the same compute as on the CPU is bound to blocks and threads, step by step. OpenCL
# through PoCL runs it on the cores of this machine; `target="cuda"` prints the same kernel for an NVIDIA GPU.

# %%
import os

import numpy as np

import nestor as nt
from nestor import te

N = int(os.environ.get("LESSON_SIZE", "96"))
TILE = 8


def declare(n: int = N, m: int = N + 5, depth: int = N - 3) -> tuple:
    """C = A B; the sizes need not divide by anything."""
    A = te.placeholder((n, depth), name="A")
    B = te.placeholder((depth, m), name="B")
    k = te.reduce_axis(depth, name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def check(s: nt.Schedule, A: te.Tensor, B: te.Tensor, C: te.Tensor) -> nt.Kernel:
    """Runs the schedule by OpenCL and compares with numpy."""
    kernel = nt.build(s, [A, B, C], target="opencl")
    a, b = (np.random.rand(*(int(x.value) for x in t.shape)).astype("float32") for t in (A, B))
    c = np.full((a.shape[0], b.shape[1]), np.nan, "float32")
    kernel(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    return kernel


# %% [markdown]
# ## Step 1: a thread for each element
# The loops over tiles become blocks, the loops inside a tile threads. Each thread reads a row of A and a column of B
# from global memory: every element is read once for each thread that needs it.


# %%
def bind_tiles(s: nt.Schedule, C: te.Tensor) -> tuple:
    """C in tiles: blocks over tiles, threads inside."""
    io, ii = s[C].split("i", factor=TILE)
    jo, ji = s[C].split("j", factor=TILE)
    s[C].reorder(io, jo, ii, ji)
    s[C].bind(io, "blockIdx.y")
    s[C].bind(jo, "blockIdx.x")
    s[C].bind(ii, "threadIdx.y")
    s[C].bind(ji, "threadIdx.x")
    return io, jo, ii, ji


A, B, C = declare()
s = nt.create_schedule(C)
bind_tiles(s, C)
print(s)
check(s, A, B, C)

# %% [markdown]
# ## Step 2: tiles in shared memory
# `cache_read` makes a copy in shared memory, computed at each step of the outer reduce loop. What it must hold is what
# all threads of the block read there, not one: a tile. The threads fetch it together, each an element.


# %%
def tiled(A: te.Tensor, B: te.Tensor, C: te.Tensor) -> nt.Schedule:
    """Tiles of A and B in shared memory, the sum of each thread in local memory."""
    s = nt.create_schedule(C)
    shared = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    own = s.cache_write(C, "local")
    *_, ji = bind_tiles(s, C)
    s[own].compute_at(s[C], ji)
    ko, _ = s[own].split("k", factor=TILE)
    for tile in shared:
        s[tile].compute_at(s[own], ko)
        together = s[tile].fuse(*s[tile].axis)
        _, threads = s[tile].split(together, factor=TILE * TILE)
        ty, tx = s[tile].split(threads, factor=TILE)
        s[tile].bind(ty, "threadIdx.y")
        s[tile].bind(tx, "threadIdx.x")
    return s


A, B, C = declare()
s = tiled(A, B, C)
print(s)

# %% [markdown]
# The program above means: each statement runs for all threads of the block, then the next. Nobody writes a barrier:
# lowering places them, here two in each step. One stands before the tiles are read, because other threads wrote them;
# one before they are written again, because other threads may still read them.

# %%
kernel = check(s, A, B, C)
print(kernel.source("opencl"))
assert kernel.source("opencl").count("barrier(") == 2

# %% [markdown]
# ## Step 3: is it right, or only lucky?
# A kernel without a barrier is often right by luck, on a CPU nearly always. `sanitize` runs the threads one by one from
# barrier to barrier and watches every access: out of bounds, never written, raced, and threads that wait at a barrier
# which others never reach. It is slow, so a small product with the same schedule is enough.

# %%
A, B, C = declare(11, 9, 13)
small = check(tiled(A, B, C), A, B, C)
print(small.sanitize(np.ones((11, 13), "f"), np.ones((13, 9), "f"), np.empty((11, 9), "f")))

# %% [markdown]
# The same run tells what the accesses cost: words of shared memory that lanes of a warp must take in turns, and sectors
# of global memory fetched for a part of them. It is advice, no error: in tiles of 8 x 8 a warp touches four rows.

# %%
for note in small.advice(np.ones((11, 13), "f"), np.ones((13, 9), "f"), np.empty((11, 9), "f")):
    print(note)

# %% [markdown]
# ## The same for CUDA
# The printers share everything but a few words. Where nvcc or NVRTC is installed, `kernel.resources` tells registers,
# spills and shared memory of the compiled kernel, without a GPU.

# %%
print(nt.build(s, [*s.inputs, *s.outputs], target="cuda -arch=sm_80").source("cuda"))

# %% [markdown]
# A GPU of today has more: `s[tile].double_buffer()` with `s[tile].async_copy()` fetches the next tiles while this step
# is computed, and `tensorize` with the intrinsics of `schedule.gpu_intrinsics` multiplies bytes four at a time (`dp4a`)
# or tiles of float16 by a whole warp (`mma`). The interpreter knows what each means, so all of it is checked here.
