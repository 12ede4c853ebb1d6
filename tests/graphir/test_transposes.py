"""Models with channels last: transposes pushed to the borders, cancelled with each other and with layout transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphir.axes import free_rank, result_axes, transposed_attrs
from graphir.builder import GraphBuilder
from graphir.compile import compile as compile_graph
from graphir.frontends.onnx import from_onnx
from graphir.groups import is_view
from graphir.ir import Graph, Node, Value
from graphir.reference import evaluate
from tensorir.target import Target, TargetError
from tests.graphir.graphs import ops, random, run_levels
from topi.registry import all_ops

TO_FIRST, TO_LAST = {"axes": (0, 3, 1, 2)}, {"axes": (0, 2, 3, 1)}


class ChannelsLast(GraphBuilder):
    """Builds what an exporter makes of a model with channels last."""

    def one(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """A node with one result."""
        return self.add(op, inputs, attrs)[0]

    def first(self, op: str, x: Value, *operands: Value, **attrs: Any) -> Value:
        """An op that wants channels first, between two transposes."""
        made = self.one(op, self.one("transpose", x, **TO_FIRST), *operands, **attrs)
        return self.one("transpose", made, **TO_LAST)

    def conv(self, x: Value, out: int, kernel: int = 3, dtype: str = "float32", **attrs: Any) -> Value:
        """Convolution, then a bias added with the channels last."""
        channels = int(x.shape[3].value) // attrs.get("groups", 1)  # type: ignore[attr-defined]
        w = self.constant((random(out, channels, kernel, kernel) / (3 * kernel)).astype(dtype), "w")
        y = self.first("conv2d", x, w, padding=(kernel // 2,) * 4, **attrs)
        return self.one("add", y, self.constant(random(out, seed=out).astype(dtype), "bias"))


def moves(graph: Graph) -> list[str]:
    """The nodes that move elements and compute nothing: transposes that are not views, and layout transforms. Those in
    one group are one trip through memory."""

    def is_move(node: Node) -> bool:
        return node.op in ("transpose", "layout_transform") and not is_view(node)

    found = []
    for node in graph.nodes:
        members = node.subgraphs[0].nodes if node.op == "group" else (node,)
        if any(map(is_move, members)):
            found.append("+".join(n.op for n in members))
    return found


def network(dtype: str = "float32", out: int = 48) -> Graph:
    """Residual blocks, pools, pad, concat, squeeze and excite, resize and a reduction over the image."""
    b = ChannelsLast()
    x = b.input("x", (1, 17, 18, 3), dtype)
    y = b.one("relu", b.conv(x, 32, dtype=dtype))
    z = b.one("relu", b.conv(y, 32, dtype=dtype))
    z = b.conv(z, 32, groups=32, dtype=dtype)
    y = b.one("relu", b.one("add", y, z))
    y = b.first("max_pool2d", y, kernel=(2, 2), strides=(2, 2))
    y = b.one("pad", y, before=(0, 1, 2, 0), after=(0, 0, 1, 0))
    y = b.one("concat", b.conv(y, 16, 1, dtype), b.conv(y, out, 3, dtype), y, axis=3)
    gate = b.one("sigmoid", b.conv(b.one("mean", y, axes=(1, 2), keepdims=True), 48 + out, 1, dtype))
    y = b.one("multiply", y, gate)
    y = b.one("resize", y, sizes=(1, 11, 24, 48 + out), mode="linear")
    y = b.one("slice", y, starts=(1, 0), ends=(10, 48), axes=(1, 3))
    y = b.conv(y, 24, dtype=dtype)
    mean = b.one("mean", y, axes=(1, 2), keepdims=False)
    return b.finish([y, mean], ["y", "mean"])


def test_a_network_with_channels_last_moves_its_input_and_its_two_outputs_alone() -> None:
    made = compile_graph(network(), cache=False).graph
    assert moves(made) == ["transpose", "layout_transform+mean", "layout_transform"]


def test_it_gives_the_right_numbers_at_every_level() -> None:
    run_levels(network(), {"x": random(1, 17, 18, 3)}, 3e-5)


def test_channels_that_do_not_fill_a_block() -> None:
    run_levels(network(out=19), {"x": random(1, 17, 18, 3)}, 3e-5)


def test_a_target_with_channels_last_moves_nothing() -> None:
    """Without a blocked implementation (here: float64) convolutions read and write channels last."""
    g, x = network("float64"), random(1, 17, 18, 3).astype(np.float64)
    expected = list(evaluate(g, {"x": x}).values())
    plain, last = (compile_graph(g, target=t, cache=False) for t in ("llvm", "llvm -layout=NHWC"))
    assert moves(last.graph) == []
    assert moves(plain.graph) == ["transpose", "transpose"]
    convolutions = [
        n for s in last.graph.nodes for n in (s.subgraphs[0].nodes if s.subgraphs else (s,)) if "conv" in n.op
    ]
    assert convolutions and all(str(n.output.layout) == "ACDB" for n in convolutions)
    for first, second, want in zip(plain.run({"x": x}), last.run({"x": x}), expected, strict=True):
        np.testing.assert_allclose(
            first, want, rtol=0, atol=1e-5 * float(np.abs(want).max())
        )  # resize counts in float32
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-12 * float(np.abs(want).max()))


def test_a_model_with_channels_first_on_a_target_with_channels_last() -> None:
    b = ChannelsLast()
    y = b.input("x", (1, 5, 9, 11), "float64")
    for n in range(3):
        w = b.constant(random(7, 5 if n == 0 else 7, 3, 3, seed=n).astype(np.float64) / 5, "w")
        y = b.one("relu", b.one("conv2d", y, w, padding=(1, 1, 1, 1)))
    g, x = b.finish([y]), random(1, 5, 9, 11).astype(np.float64)
    made = compile_graph(g, target="llvm -layout=NHWC", cache=False)
    assert len(moves(made.graph)) <= 2, moves(made.graph)
    [want] = evaluate(g, {"x": x}).values()
    np.testing.assert_allclose(made.run({"x": x})[0], want, rtol=0, atol=1e-11 * float(np.abs(want).max()))


def test_the_option_of_the_target() -> None:
    assert Target.parse("opencl -layout=NHWC").channels_last and not Target.parse("llvm -layout=NCHW").channels_last
    assert str(Target.parse("llvm -layout=NHWC")) == "llvm -layout=NHWC"
    with pytest.raises(TargetError, match=r"-layout=CHWN: no such layout\n.*NCHW, NHWC"):
        Target.parse("llvm -layout=CHWN")


EXPORTED = """
<ir_version: 8, opset_import: ["" : 13]>
tf_model (float[unk__1, 32, 32, 3] input_1) => (float[unk__1, 16] dense, float[unk__1, 4, 4, 16] image)
<
    int64[8] pads = {0, 0, 0, 0, 0, 1, 1, 0}
>
{
    padded = Pad(input_1, pads)
    nchw = Transpose <perm = [0, 3, 1, 2]> (padded)
    conv = Conv <kernel_shape = [3, 3], strides = [2, 2]> (nchw, kernel)
    nhwc = Transpose <perm = [0, 2, 3, 1]> (conv)
    biased = Add(nhwc, bias)
    zero = Constant <value = float {0.0}> ()
    six = Constant <value = float {6.0}> ()
    clipped = Clip(biased, zero, six)
    nchw2 = Transpose <perm = [0, 3, 1, 2]> (clipped)
    pooled = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (nchw2)
    conv2 = Conv <kernel_shape = [1, 1]> (pooled, kernel2, bias)
    nhwc2 = Transpose <perm = [0, 2, 3, 1]> (conv2)
    scaled = Mul(nhwc2, scale)
    again = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (nchw2)
    back = Transpose <perm = [0, 2, 3, 1]> (again)
    image = Add(scaled, back)
    dense = ReduceMean <axes = [1, 2], keepdims = 0> (image)
}
"""


def test_the_pattern_of_an_exporter() -> None:
    """As tf2onnx writes it: Pad, Transpose, Conv, Transpose, Add, Clip, Transpose; a symbolic batch."""
    model = onnx.parser.parse_model(EXPORTED)
    shapes = {"kernel": (16, 3, 3, 3), "kernel2": (16, 16, 1, 1), "bias": (16,), "scale": (1, 1, 1, 16)}
    for name, shape in shapes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random(*shape) / 3, name))
    g = from_onnx(model)
    made = compile_graph(g, cache=False).graph
    assert moves(made) == ["transpose+pad", "layout_transform+mean", "layout_transform"]
    assert [n.op for n in made.nodes if n.op == "group"] and "add" not in ops(
        made
    )  # the biases are in the convolutions
    for batch in (1, 3):
        run_levels(g, {"input_1": random(batch, 32, 32, 3)}, 2e-5)


def test_nothing_is_turned_where_nothing_is_gained() -> None:
    b = ChannelsLast()
    q, k = (b.one("transpose", b.input(n, (2, 7, 3, 8)), axes=(0, 2, 1, 3)) for n in "qk")
    scores = b.one(
        "matmul", b.one("multiply", q, b.constant(random(1), "scale")), b.one("transpose", k, axes=(0, 1, 3, 2))
    )
    g = b.finish([b.one("transpose", b.one("softmax", scores), axes=(0, 2, 1, 3))]).apply("simplify")
    assert g.apply("transposes") is g


def test_a_transpose_goes_behind_what_follows_a_contraction() -> None:
    b = ChannelsLast()
    y = b.one("relu", b.conv(b.input("x", (1, 8, 8, 16)), 16))
    assert ops(b.finish([y]).apply("transposes", "fold_constants", "fold_scales", "fold_constants")) == [
        "transpose", "conv2d", "relu", "transpose",
    ]  # fmt: skip


def test_a_transpose_that_moves_single_elements_is_a_view() -> None:
    b = ChannelsLast()
    y = b.one("exp", b.one("softmax", b.input("x", ("n", 1, 5, 1)), axis=2))
    g = b.finish([b.one("relu", b.one("reshape", b.one("transpose", y, axes=(0, 3, 1, 2)), shape=(-1, 5)))])
    made = run_levels(g, {"x": random(2, 1, 5, 1)})
    assert moves(made[3].graph) == [] and len(made[1].plan.kernels) == len(made[3].plan.kernels) + 2


def test_every_op_that_says_how_its_axes_follow_tells_the_truth() -> None:
    """The reference on transposed operands, its attributes following, gives the transposed results."""
    rng = np.random.default_rng(0)
    judged = set()
    for op in all_ops().values():
        for case in op.cases if op.axis_attrs is not None else ():
            if any(s is None or any(isinstance(d, str) for d in s) for s in case.shapes) or op.numpy is None:
                continue
            b = GraphBuilder()
            values = [b.input(f"x{n}", s, t) for n, (s, t) in enumerate(zip(case.shapes, case.dtypes))]
            made = b.add(op.name, values, case.attrs)
            node = b.nodes[-1]
            rank = free_rank(node)
            if rank is None:
                continue
            arrays = [rng.integers(0, 3, s).astype(v.dtype.numpy) for s, v in zip(case.shapes, values)]
            axes = tuple(rng.permutation(rank).tolist())
            turned = [a.transpose(axes) if a.ndim == rank else a for a in arrays]
            with np.errstate(all="ignore"):
                plain = op.numpy(*arrays, **node.attributes)
                other = op.numpy(*turned, **transposed_attrs(node, axes))
            for p, o in zip(*(r if isinstance(r, tuple) else (r,) for r in (plain, other)), strict=True):
                np.testing.assert_allclose(np.transpose(p, result_axes(node, axes)), o, rtol=1e-6, err_msg=repr(node))
            judged.add(op.name)
            assert len(made) >= 1
    assert {"concat", "pad", "slice", "mean", "argmax", "softmax", "resize", "split"} <= judged


PERMUTATIONS = ((0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2), (3, 0, 1, 2))


@st.composite
def networks(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """Five to ten nodes over images of one size in all orders of their axes, transposes everywhere."""
    b = ChannelsLast()
    shape = (2, 4, 5, 16)
    values = [b.input("x", shape), b.input("y", shape)]
    for number in range(draw(st.integers(5, 10))):
        x = values[draw(st.integers(max(0, len(values) - 3), len(values) - 1))]
        kinds = [
            "unary",
            "binary",
            "transpose",
            "transpose",
            "conv",
            "pad",
            "concat",
            "reduce",
            "bias",
            "softmax",
            "split",
        ]
        match draw(st.sampled_from(kinds)):
            case "unary":
                v = b.one(draw(st.sampled_from(["relu", "tanh", "negative"])), x)
            case "binary":
                alike = [o for o in values if [d.value for d in o.shape] == [d.value for d in x.shape]]  # type: ignore[attr-defined]
                v = b.one(draw(st.sampled_from(["add", "maximum"])), x, draw(st.sampled_from(alike)))
            case "conv" if x.shape[1].value * x.shape[0].value < 200:  # type: ignore[attr-defined]
                channels = int(x.shape[1].value)  # type: ignore[attr-defined]
                w = b.constant(random(16, channels, 1, 1, seed=number) / channels, "w")
                v = b.one("conv2d", x, w)
            case "pad":
                v = b.one("pad", x, before=(0, 0, 1, 0), after=(0, 0, 0, 0))
            case "concat":
                v = b.one("concat", x, x, axis=draw(st.integers(0, 3)))
                if int(np.prod([d.value for d in v.shape])) > 20000:  # type: ignore[attr-defined]
                    v = x
            case "reduce":
                axes = draw(st.sampled_from([(1, 2), (3,), (2, 3), (0, 1)]))
                v = b.one("add", x, b.one("mean", x, axes=axes, keepdims=True))
            case "bias":
                v = b.one("add", x, b.constant(random(int(x.shape[3].value), seed=number), "row"))  # type: ignore[attr-defined]
            case "softmax":
                v = b.one("softmax", x, axis=draw(st.integers(0, 3)))
            case "split":
                size = int(x.shape[2].value)  # type: ignore[attr-defined]
                v = b.add("split", [x], {"axis": 2, "sizes": (1, size - 1)})[1] if size > 1 else x
            case _:
                v = b.one("transpose", x, axes=draw(st.sampled_from(PERMUTATIONS)))
        values.append(v)
    extra = values[draw(st.integers(0, len(values) - 1))]
    last = b.one("mean", values[-1], axes=(1, 2), keepdims=False)
    g = b.finish([values[-1], extra, last], ["out", "extra", "last"])
    return g, {"x": random(*shape), "y": random(*shape, seed=1)}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(networks())
def test_random_networks_agree_at_every_level(case: tuple[Graph, dict[str, np.ndarray]]) -> None:
    run_levels(*case, 3e-5)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(networks())
def test_random_networks_agree_with_channels_last(case: tuple[Graph, dict[str, np.ndarray]]) -> None:
    g, inputs = case
    executable = compile_graph(g, target="llvm -layout=NHWC -mattr=-avx512f", cache=False)
    for got, want in zip(executable.run(inputs), evaluate(g, inputs).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * max(1.0, float(np.abs(want).max())))
