# %% [markdown]
# # Compute and schedule
#
# A kernel has two halves. The *compute* says what each element of the result is. The *schedule* says in which order
# and on what hardware the elements are computed. Nothing in the second half can change the first: every call is checked
# when it is made, and refused if it would.

# %%
import numpy as np

import nestor as nt
from nestor import te

# %% [markdown]
# The mean of three neighbours, twice: once along the rows, once along the columns.

# %%
H, W = 62, 126
X = te.placeholder((H + 2, W + 2), name="X")
across = te.compute((H + 2, W), lambda y, x: (X[y, x] + X[y, x + 1] + X[y, x + 2]) / 3.0, name="across")
blur = te.compute((H, W), lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) / 3.0, name="blur")

s = nt.create_schedule(blur)
print(s)

# %% [markdown]
# The program runs as it is; a kernel takes numpy arrays, outputs last.

# %%
x = np.random.default_rng(0).uniform(size=(H + 2, W + 2)).astype(np.float32)
wanted = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
wanted = (wanted[:-2] + wanted[1:-1] + wanted[2:]) / 3


def check(schedule: nt.Schedule) -> nt.Kernel:
    """Builds the schedule, runs it and compares with numpy."""
    kernel = nt.build(schedule, [X, blur], target="llvm")
    y = np.full((H, W), np.nan, np.float32)
    kernel(x, y)
    np.testing.assert_allclose(y, wanted, rtol=1e-5)
    return kernel


check(s)

# %% [markdown]
# Cut the result into tiles, and compute for each tile just those rows of `across` that it needs. `split` gives the two
# new loops; `compute_at` works out the region. Look at the size of `across` in the program: 10 rows of 32, not 64 of
# 126.

# %%
y_o, x_o, y_i, x_i = s[blur].tile("y", "x", 8, 32)
s[across].compute_at(s[blur], x_o)
print(s)
check(s)

# %% [markdown]
# Now use the machine: lanes of vectors inside, threads outside.

# %%
s[blur].vectorize(s[blur].split(x_i, factor=16)[1])
s[across].vectorize(s[across].split("x", factor=16)[1])
s[blur].parallel(y_o)
kernel = check(s)

# %% [markdown]
# What is not allowed is refused at once, with the loops it is about and what to do; the schedule stays as it was.

# %%
try:
    s[across].parallel(s[across].axis[0])
except nt.UserError as error:
    print(error)
else:
    raise AssertionError("a parallel loop inside a parallel loop was accepted")

# %% [markdown]
# The calls so far, each with the program after it (in a notebook: with the changed lines marked), and the way back.

# %%
print(s.steps())
print(s.undo().trace[-1])

# %% [markdown]
# Two more ways to trust a schedule: `verify` compares it with the compute it came from, and `sanitize` runs the
# kernel's program in an interpreter that watches every access: bounds, reads of memory never written, races.

# %%
print(s.verify())
print(kernel.sanitize(x, np.empty((H, W), np.float32)))
