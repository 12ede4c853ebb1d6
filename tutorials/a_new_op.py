# %% [markdown]
# # A new op in one cell
#
# An op is a compute, a reference in numpy, a few test cases and, if the generic one is not good enough, a schedule.
# From these come its shape inference, its fusion with neighbours, its kernels and its place in ONNX models.

# %%
import numpy as np
import onnx
from onnx import TensorProto, helper

import nestor as nt
from nestor import te


@nt.op("soft_shrink_sum", onnx=[nt.Onnx("SoftShrinkSum", domain="my.domain", attrs={"lam": nt.attribute("lam", 0.5)})])
def soft_shrink_sum(x, /, *, lam=0.5):
    """Per row: the sum of the elements, each moved towards 0 by lam."""
    k = te.reduce_axis(x.shape[1], name="k")
    limit = te.const(lam, x.dtype)
    shrunk = te.compute(
        x.shape,
        lambda i, j: te.select(x[i, j] > limit, x[i, j] - limit, te.select(x[i, j] < -limit, x[i, j] + limit, 0.0)),
        name="shrunk",
    )
    return te.compute((x.shape[0],), lambda i: te.sum(shrunk[i, k], axis=k), name="soft_shrink_sum")


@soft_shrink_sum.reference
def _(x, *, lam=0.5):
    return (np.sign(x) * np.maximum(np.abs(x) - lam, 0)).sum(1)


soft_shrink_sum.case([(4, 10)])
soft_shrink_sum.case([("n", 33)], lam=0.1)

# %% [markdown]
# `test` runs the cases on every target, with one and two threads, with the named dimension symbolic, and at sizes of
# its own choosing. It finds a wrong compute, a schedule that is refused, a shape that breaks.

# %%
print(soft_shrink_sum.test())

# %% [markdown]
# A schedule of our own: rows on threads, the intermediate stage never stored.


# %%
@soft_shrink_sum.schedule("llvm")
def _(group, target):
    [total] = group.outputs
    s = nt.create_schedule(total)
    s["shrunk"].compute_inline()
    s[total].parallel(s[total].axis[0])
    return s


print(soft_shrink_sum.test())

# %% [markdown]
# A wrong one is found. (Reading one column too many is an error of the compute; adding in parallel, of the schedule.)


# %%
@soft_shrink_sum.schedule("llvm")
def _(group, target):
    [total] = group.outputs
    s = nt.create_schedule(total)
    s[total].parallel(s[total].reduce_axis[0])
    return s


try:
    soft_shrink_sum.test()
except nt.UserError as error:
    print(error.notes[0])
else:
    raise AssertionError("a parallel reduction was accepted")
del soft_shrink_sum.schedules["llvm"]

# %% [markdown]
# A model that uses it, with a batch that is known only when it runs.

# %%
nodes = [
    helper.make_node("Relu", ["x"], ["r"]),
    helper.make_node("SoftShrinkSum", ["r"], ["s"], domain="my.domain", lam=0.25),
    helper.make_node("Exp", ["s"], ["y"]),
]
graph = helper.make_graph(
    nodes,
    "net",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)])
exe = nt.compile(model)
for batch in (1, 3, 7):
    x = np.random.default_rng(batch).standard_normal((batch, 6)).astype(np.float32)
    [y] = exe.run({"x": x})
    np.testing.assert_allclose(y, np.exp(np.maximum(np.maximum(x, 0) - 0.25, 0).sum(1)), rtol=1e-5)
assert onnx.__version__
