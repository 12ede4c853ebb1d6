"""Any node's value by name, what became of it, and the first node that makes a NaN or an infinity."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from graphir.errors import InputError, NonFiniteError
from graphir.ir import Graph
from tests.graphir.graphs import random

MODEL = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[1, 16, 12, 12] x) => (float[1, 32, 12, 12] y)
{
    a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
    b = BatchNormalization (a, gamma, beta, mean, var)
    c = Relu (b)
    same = Identity (c)
    unused = Exp (c)
    d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (same, v)
    doubled = Add (gamma, gamma)
    column = Reshape (doubled, four)
    e = Mul (d, column)
    y = Tanh (e)
}
"""


def network() -> Graph:
    """Two convolutions with what follows them, an identity, a constant part and a node that nothing needs."""
    model = onnx.parser.parse_model(MODEL)
    arrays = {
        "w": random(32, 16, 3, 3) / 10, "v": random(32, 32, 3, 3, seed=1) / 10, "gamma": random(32, seed=2),
        "beta": random(32, seed=3), "mean": random(32, seed=4), "var": random(32, seed=5) ** 2 + 1,
        "four": np.array([1, 32, 1, 1]),
    }  # fmt: skip
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    return nt.from_onnx(model)


def test_every_value_of_the_model_has_an_answer_at_every_level() -> None:
    g, x = network(), random(1, 16, 12, 12)
    names = ["a", "b", "c", "same", "unused", "d", "e", "y", "x"]
    expected = nt.compile(g, opt_level=0, cache=False).debug([x], names)
    found = nt.compile(g, cache=False).debug([x], names)
    assert set(found) == set(names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-4 * np.abs(expected[name]).max())


def test_what_became_of_a_value() -> None:
    executable = nt.compile(network(), cache=False)
    assert executable.explain("a") == "a was removed by fold_scales"
    assert executable.explain("doubled") == "doubled was removed by fold_constants"
    assert executable.explain("same") == "same was removed by simplify"
    assert executable.explain("unused") == "unused was removed by dead_nodes"
    assert executable.explain("b").startswith("b stays inside the kernel Relu_2: fuse joined ")
    assert "is the result of the kernel Relu_2" in executable.explain("c")
    assert executable.explain("x") == "x is an input"
    assert executable.explain("y").startswith("y is the result of the kernel")


def test_a_node_by_the_name_of_its_place_in_the_file() -> None:
    executable = nt.compile(network(), cache=False)
    x = random(1, 16, 12, 12)
    by_place, by_value = executable.debug([x], ["Relu_2"]), executable.debug([x], ["c"])
    np.testing.assert_allclose(by_place["Relu_2"], by_value["c"], rtol=0, atol=1e-4)
    with pytest.raises(
        InputError, match=r"no value or node of the model is called 'Relu_22'\nhelp: did you mean Relu_2"
    ):
        executable.debug([x], ["Relu_22"])


def test_a_value_that_lies_in_another_order_is_given_as_the_model_has_it() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 6, 7, 16))
    [t] = b.add("transpose", [x], {"axes": (0, 3, 1, 2)})
    [y] = b.add("conv2d", [t, b.constant(random(16, 16, 1, 1), "w")])
    [y] = b.add("transpose", [y], {"axes": (0, 2, 3, 1)})
    [y] = b.add("tanh", [y], outputs=["powers"])
    [y] = b.add("softmax", [y], outputs=["y"])
    executable = nt.compile(b.finish([y]), cache=False)
    found = executable.debug([random(1, 6, 7, 16)], ["powers"])["powers"]
    assert found.shape == (1, 6, 7, 16)
    [want] = nt.compile(b.finish([y]), opt_level=0, cache=False).debug([random(1, 6, 7, 16)], ["powers"]).values()
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)


# -------------------------------------------------------------------------------------------------------- breakpoints


def fragile() -> Graph:
    """log(relu(x) + c) / sum: a zero makes an infinity, a negative c a NaN."""
    b = GraphBuilder()
    x, c = b.input("x", (2, 5)), b.input("c", (1,))
    [r] = b.add("relu", [x], name="clamp", outputs=["r"])
    [s] = b.add("add", [r, c], name="shift", outputs=["s"])
    [g] = b.add("log", [s], name="logarithm", outputs=["g"])
    [t] = b.add("multiply", [g, g], name="square", outputs=["t"])
    [m] = b.add("softmax", [t], name="weights", outputs=["m"])
    return b.finish([m])


@pytest.mark.parametrize("level", [0, 3])
def test_a_breakpoint_names_the_node_the_index_and_the_inputs(level: int) -> None:
    executable = nt.compile(fragile(), opt_level=level, cache=False)
    x = np.abs(random(2, 5)) + 1
    x[1, 3] = -2
    executable.debug([x, np.ones(1, np.float32)], stop_at="either")  # nothing to stop at
    with pytest.raises(NonFiniteError) as caught:
        executable.debug([x, np.full(1, -0.5, np.float32)], stop_at="nan")
    assert caught.value.node == "logarithm" and caught.value.index == (1, 3)
    text = str(caught.value)
    assert "node logarithm (log) makes nan of finite inputs: g[1, 3], one of 1 of 10 elements" in text
    assert "s: float32[2, 5] from -0.5 to " in text and "-0.5 at that place" in text
    with pytest.raises(NonFiniteError, match=r"node logarithm \(log\) makes -inf of finite inputs: g\[1, 3\]"):
        executable.debug([x, np.zeros(1, np.float32)], stop_at="inf")


def test_what_was_not_finite_before_is_not_stopped_at() -> None:
    executable = nt.compile(fragile(), cache=False)
    x = np.full((2, 5), np.nan, np.float32)
    assert np.isnan(executable.debug([x, np.ones(1, np.float32)], stop_at="nan")["m"]).all()
    with pytest.raises(InputError, match="stop_at is 'zero'\nhelp: it is one of nan, inf, either"):
        executable.debug([x, np.ones(1, np.float32)], stop_at="zero")  # type: ignore[arg-type]
