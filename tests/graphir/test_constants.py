"""The prologue: what numpy computes has the bits of the kernels; layouts pack and unpack."""

from __future__ import annotations

import numpy as np
import pytest

from graphir.builder import GraphBuilder
from graphir.compile import compile as compile_graph
from graphir.constants import EXACT, pack, run_constants, unpack
from tensorir import dtypes
from tensorir.layout import Layout
from tests.graphir.graphs import context, random

ATTRS: dict[str, dict[str, object]] = {
    "reshape": {"shape": (35, 3)}, "flatten": {"axis": 2}, "squeeze": {"axes": (1,)}, "unsqueeze": {"axes": (0,)},
    "transpose": {"axes": (2, 0, 3, 1)}, "concat": {"axis": 2}, "expand": {"shape": (2, 5, 4, 7, 3)},
    "slice": {"starts": (1, -1), "ends": (4, -9), "axes": (0, 2), "steps": (1, -2)}, "cast": {"dtype": dtypes.float64},
}  # fmt: skip
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1.5]


@pytest.mark.parametrize("op", [o for o in EXACT if o != "layout_transform"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_gives_the_bits_of_the_kernel(op: str, dtype: str) -> None:
    count = 2 if op in ("add", "subtract", "multiply", "divide", "concat") else 1
    arrays = [random(5, 1, 7, 3, seed=i).astype(dtype) for i in range(count)]
    for n, array in enumerate(arrays):
        array.reshape(-1)[: len(SPECIAL)] = SPECIAL[n:] + SPECIAL[:n]
    b = GraphBuilder()
    inputs = [b.input(f"x{i}", a.shape, dtype) for i, a in enumerate(arrays)]
    folded = GraphBuilder()
    constants = [folded.constant(a, f"x{i}") for i, a in enumerate(arrays)]
    attrs = ATTRS.get(op, {})
    g = b.finish([b.add(op, inputs, attrs)[0]], ["y"])
    prologue = folded.finish([folded.add(op, constants, attrs)[0]], ["y"])
    [kernel] = compile_graph(g, opt_level=0).run(arrays)
    [value] = run_constants(prologue, context().target).values()
    same = (kernel == value) | (np.isnan(kernel) & np.isnan(value))
    assert kernel.shape == value.shape and kernel.dtype == value.dtype and same.all()
    assert (np.signbit(kernel) == np.signbit(value))[~np.isnan(value)].all()


@pytest.mark.parametrize("text", ["NCHW16c", "NCHW8c", "HWNC4n8c", "NHWC", "CNHW2h"])
def test_layouts_pack_and_unpack(text: str) -> None:
    layout = Layout.parse(text, logical="NCHW")
    array = random(3, 19, 5, 6)
    packed = pack(array, layout)
    assert packed.shape == tuple(int(repr(d)) for d in layout.physical_shape(array.shape))
    np.testing.assert_array_equal(unpack(packed, layout, array.shape), array)
    assert np.abs(packed).sum() == pytest.approx(np.abs(array).sum(), rel=1e-5)  # padding lanes are zero
    for index in ((0, 0, 0, 0), (2, 18, 4, 5), (1, 17, 3, 2)):
        at = tuple(int(repr(i)) for i in layout.physical_indices(index))
        assert packed[at] == array[index]


def test_scalars_are_folded() -> None:
    b = GraphBuilder()
    whole = b.constant(np.arange(3, dtype=np.int64), "whole")
    [y] = b.add("add", [whole, b.constant(np.array(2, np.int64), "two")])
    [z] = b.add("cast", [b.constant(np.array(True), "flag")], {"dtype": dtypes.int64})
    made = run_constants(b.finish([y, z], ["y", "z"]), context().target)
    np.testing.assert_array_equal(made[y.name], [2, 3, 4])
    assert made[z.name].shape == () and made[z.name] == 1
