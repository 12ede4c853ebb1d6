"""Passes one by one on small graphs: what each leaves, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from graphir.errors import PassError
from graphir.ir import Graph, Value
from graphir.pipeline import PIPELINE, diff_dumps
from tensorir import dtypes
from tensorir.errors import InternalError
from tests.graphir.graphs import ops, random, run_levels


def build(*steps: tuple[str, dict[str, object]], shape: tuple[object, ...] = (2, 3, 4)) -> Graph:
    """A chain of one-operand ops on x."""
    b = GraphBuilder()
    value: Value = b.input("x", shape)
    for op, attrs in steps:
        [value] = b.add(op, [value], attrs)
    return b.finish([value], ["y"])


X = random(2, 3, 4)


# ----------------------------------------------------------------------------------------------------------- simplify


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("identity", {}), ("relu", {})], ["relu"]),
        ([("cast", {"dtype": dtypes.float32}), ("relu", {})], ["relu"]),
        ([("transpose", {"axes": (1, 0, 2)}), ("transpose", {"axes": (1, 0, 2)}), ("relu", {})], ["relu"]),
        ([("transpose", {"axes": (2, 0, 1)}), ("transpose", {"axes": (2, 0, 1)})], ["transpose"]),
        ([("transpose", {"axes": (0, 1, 2)}), ("relu", {})], ["relu"]),
        ([("reshape", {"shape": (6, 4)}), ("reshape", {"shape": (2, 12)})], ["reshape"]),
        ([("reshape", {"shape": (6, 4)}), ("reshape", {"shape": (2, 3, 4)}), ("relu", {})], ["relu"]),
        ([("unsqueeze", {"axes": (0,)}), ("squeeze", {"axes": (0,)}), ("relu", {})], ["relu"]),
        ([("slice", {"starts": (0,), "ends": (99,), "axes": (1,)}), ("relu", {})], ["relu"]),
        ([("relu", {}), ("cast", {"dtype": dtypes.float64})], ["relu", "cast"]),
    ],
)
def test_simplify(steps: list[tuple[str, dict[str, object]]], left: list[str]) -> None:
    g = build(*steps)
    assert ops(g.apply("simplify", "dead_nodes")) == left
    run_levels(g, {"x": X})


def test_simplify_neutral_constants_and_what_it_must_leave() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    one, zero = b.constant(np.ones((1, 3), np.float32), "one"), b.constant(np.zeros((), np.float32), "zero")
    minus_zero = b.constant(np.array(-0.0, np.float32), "minus_zero")
    ones = b.constant(np.ones((4, 1, 1), np.float32), "ones")
    [a] = b.add("multiply", [one, x])
    [d] = b.add("divide", [a, one])
    [s] = b.add("subtract", [d, zero])
    [p] = b.add("add", [s, zero])  # turns -0.0 into 0.0: stays
    [q] = b.add("subtract", [p, minus_zero])  # as well
    [r] = b.add("multiply", [q, ones])  # changes the shape: stays
    g = b.finish([r])
    assert ops(g.apply("simplify", "dead_nodes")) == ["add", "subtract", "multiply"]
    run_levels(g, {"x": np.array([[-0.0, 0.0, 1.0], [np.inf, -np.inf, 2.0]], np.float32)})


# ------------------------------------------------------------------------------------------------- common, dead, infer


def test_common_nodes_are_computed_once() -> None:
    """apache/tvm#16057: p = a * b and q = a * b, one compared, one returned."""
    b = GraphBuilder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    [p] = b.add("multiply", [x, y])
    [q] = b.add("multiply", [x, y])
    [other] = b.add("multiply", [y, x])
    [gt] = b.add("greater", [p, other])
    g = b.finish([gt, q], ["gt", "q"])
    assert ops(g.apply("common_nodes")) == ["multiply", "multiply", "greater"]
    run_levels(g, {"x": random(2, 3), "y": random(2, 3, seed=1)})


def test_common_nodes_keeps_equal_ops_with_other_attributes_apart() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    a, c = (b.add("leaky_relu", [x], {"alpha": alpha})[0] for alpha in (0.1, 0.2))
    g = b.finish([b.add("add", [a, c])[0]])
    assert g.apply("common_nodes") is g


def test_dead_nodes_and_their_constants_go() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    b.add("add", [x, b.constant(random(3), "unused")])
    g = b.finish([b.add("relu", [x])[0]])
    made = g.apply("dead_nodes")
    assert ops(made) == ["relu"] and not made.constants


def test_a_pass_without_effect_gives_the_same_graph() -> None:
    g = build(("relu", {}))
    for entry in PIPELINE:
        if entry.name not in ("layouts",):
            assert g.apply(entry.name) is g, entry.name


# ---------------------------------------------------------------------------------------------------------- constants


def test_constants_are_folded_with_the_bits_of_run_time() -> None:
    b = GraphBuilder()
    x = b.input("x", (5,))
    c = b.constant(random(5, seed=3), "c")
    [e] = b.add("exp", [c])
    [t] = b.add("tanh", [e])
    [m] = b.add("mean", [t], {"axes": (0,), "keepdims": True})
    g = b.finish([b.add("add", [x, m])[0]])
    assert ops(g.apply("fold_constants")) == ["add"]
    run_levels(g, {"x": random(5)})


def test_folding_keeps_bool() -> None:
    """apache/tvm#20282: Less of two constants is an output and is used."""
    b = GraphBuilder()
    x = b.input("x", (3,))
    p, q = b.constant(random(3, seed=1), "p"), b.constant(random(3, seed=2), "q")
    [less] = b.add("less", [p, q])
    g = b.finish([less, b.add("where", [less, x, p])[0]], ["less", "y"])
    made = run_levels(g, {"x": random(3)})
    assert all(e.outputs[0].dtype == "bool" for e in made.values())


def test_integer_division_by_a_constant_zero_does_not_stop_the_compiler() -> None:
    """apache/tvm#17745: 7 / 0 and 7 mod 0 of constants."""
    b = GraphBuilder()
    x = b.input("x", (2,), "int32")
    zero = b.constant(np.zeros(200, np.int32).reshape(100, 2), "zero")
    seven = b.constant(np.full((100, 2), 7, np.int32), "seven")
    b.add("divide", [seven, zero])
    g = b.finish([b.add("add", [x, x])[0]])
    run_levels(g, {"x": np.array([3, 4], np.int32)})
    used = GraphBuilder()
    zero = used.constant(np.zeros((100, 2), np.int32), "zero")
    seven = used.constant(np.full((100, 2), 7, np.int32), "seven")
    [y] = used.add("mod", [seven, zero])
    x = used.input("x", (2,), "int32")
    nt.compile(used.finish([used.add("add", [x, y])[0]]), opt_level=1)


def test_large_expansions_of_small_constants_are_left() -> None:
    b = GraphBuilder()
    x = b.input("x", (300, 300))
    [big] = b.add("expand", [b.constant(random(1, 1), "c")], {"shape": (300, 300)})
    g = b.finish([b.add("add", [x, big])[0]])
    assert ops(g.apply("fold_constants")) == ["expand", "add"]


# ------------------------------------------------------------------------------------------------------------- scales


def test_batch_norm_folds_into_weights_and_bias() -> None:
    sym = nt.sym
    for use_bias in (True, False):
        net = sym.batch_norm(sym.conv2d(sym.Variable("x"), channels=5, kernel_size=(3, 3), use_bias=use_bias))
        g = nt.from_symbol(net, shapes={"x": (2, 3, 7, 8)})
        made = g.apply("fold_scales", "fold_constants", "dead_nodes")
        assert ops(made) == ["conv2d"] and len(made.nodes[0].operands) == 3
        run_levels(g, {"x": random(2, 3, 7, 8)}, 2e-5)


def test_scales_fold_through_grouped_convolutions_dense_and_matmul() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 4, 6, 6))
    [y] = b.add("conv2d", [x, b.constant(random(8, 2, 3, 3), "w")], {"groups": 2, "padding": (1, 1, 1, 1)})
    [y] = b.add("multiply", [y, b.constant(random(8, 1, 1, seed=2), "s")])
    [y] = b.add("add", [y, b.constant(random(1, 8, 1, 1, seed=3), "t")])
    [y] = b.add("flatten", [y])
    [y] = b.add("matmul", [y, b.constant(random(288, 5, seed=4), "m")])
    [y] = b.add("multiply", [y, b.constant(random(5, seed=5), "c")])
    [y] = b.add("dense", [y, b.constant(random(3, 5, seed=6), "d"), b.constant(random(3), "bias")])
    [y] = b.add("multiply", [b.constant(random(3, seed=7), "e"), y])
    g = b.finish([y])
    assert ops(g.apply("fold_scales", "fold_constants")) == ["conv2d", "flatten", "matmul", "dense"]
    run_levels(g, {"x": random(2, 4, 6, 6)}, 2e-5)


def test_a_scale_stays_where_others_read_the_result() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 5, 5))
    [y] = b.add("conv2d", [x, b.constant(random(4, 3, 1, 1), "w")])
    [z] = b.add("multiply", [y, b.constant(random(4, 1, 1), "s")])
    g = b.finish([y, z], ["y", "z"])
    assert ops(g.apply("fold_scales", "fold_constants")).count("multiply") == 1
    run_levels(g, {"x": random(1, 3, 5, 5)})


def test_a_batch_norm_after_something_else_is_one_scale_and_one_shift() -> None:
    sym = nt.sym
    g = nt.from_symbol(sym.batch_norm(sym.relu(sym.Variable("x"))), shapes={"x": ("n", 3, 4, 4)})
    assert ops(g.apply("fold_scales", "fold_constants")) == ["relu", "multiply", "add"]
    run_levels(g, {"x": random(2, 3, 4, 4)})


def test_a_training_batch_norm_is_never_folded_or_fused() -> None:
    sym = nt.sym
    net = sym.relu(sym.batch_norm(sym.conv2d(sym.Variable("x"), channels=4, kernel_size=1), training=True))
    g = nt.from_symbol(net, shapes={"x": (2, 3, 4, 4)})
    made = g.apply("fold_scales", "fold_constants", "fuse")
    assert ops(made) == ["conv2d", "batch_norm_training", "relu"]
    run_levels(g, {"x": random(2, 3, 4, 4)})


# ------------------------------------------------------------------------------------------------------------ layouts


def conv_net(channels: int = 32) -> Graph:
    sym = nt.sym
    x = sym.Variable("x")
    a = sym.relu(sym.conv2d(x, channels=channels, kernel_size=(3, 3), padding=(1, 1)))
    b = sym.conv2d(sym.max_pool2d(a, pool_size=(2, 2)), channels=channels, kernel_size=(1, 1))
    c = sym.relu(b + sym.conv2d(b, channels=channels, kernel_size=(3, 3), padding=(1, 1)))
    return nt.from_symbol(sym.dense(sym.flatten(sym.global_avg_pool(c)), units=10), shapes={"x": (1, 16, 16, 16)})


def test_layouts_stay_packed_from_the_first_convolution_to_the_last() -> None:
    g = conv_net()
    made = g.apply("layouts", "pack_constants", "dead_nodes")
    assert ops(made).count("layout_transform") <= 1
    assert all(not v.layout.is_plain for n in made.nodes if n.op in ("conv2d", "relu", "max_pool2d") for v in n.outputs)
    assert all(v.layout.is_plain for v in made.outputs)
    run_levels(g, {"x": random(1, 16, 16, 16)}, 2e-5)


def test_channel_counts_that_do_not_divide() -> None:
    run_levels(conv_net(channels=19), {"x": random(1, 16, 16, 16)}, 2e-5)


def test_a_constant_of_one_element_through_a_blocked_layout() -> None:
    """apache/tvm#4508: convolution, bias, relu, a constant of shape (1,)."""
    b = GraphBuilder()
    x = b.input("x", (1, 10, 10, 64))
    [t] = b.add("transpose", [x], {"axes": (0, 3, 1, 2)})
    [y] = b.add("conv2d", [t, b.constant(random(64, 64, 3, 3) / 20, "w")], {"padding": (1, 1, 1, 1)})
    [y] = b.add("transpose", [y], {"axes": (0, 2, 3, 1)})
    [y] = b.add("add", [y, b.constant(random(64, seed=1), "bias")])
    [y] = b.add("relu", [y])
    [y] = b.add("multiply", [y, b.constant(random(1, seed=2), "one")])
    run_levels(b.finish([y]), {"x": random(1, 10, 10, 64)}, 2e-5)


def test_a_broadcast_constant_stays_plain_beside_packed_values() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 16, 6, 6))
    [y] = b.add("conv2d", [x, b.constant(random(32, 16, 3, 3) / 10, "w")], {"padding": (1, 1, 1, 1)})
    [y] = b.add("exp", [y])  # not zero on padding lanes
    [y] = b.add("multiply", [y, b.constant(random(1), "one")])
    [y] = b.add("maximum", [y, b.constant(random(6, seed=1), "row")])
    [y] = b.add("conv2d", [y, b.constant(random(16, 32, 1, 1), "v")])
    run_levels(b.finish([y]), {"x": random(1, 16, 6, 6)}, 2e-5)


def test_a_slice_across_a_blocked_axis() -> None:
    """apache/tvm#8759: every fifth channel of a packed convolution."""
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8))
    [y] = b.add("conv2d", [x, b.constant(random(24, 16, 1, 1), "w")])
    [y] = b.add("slice", [y], {"starts": (0, 3), "ends": (1, -1), "axes": (0, 1), "steps": (1, 5)})
    run_levels(b.finish([y]), {"x": random(1, 16, 8, 8)}, 2e-5)


@pytest.mark.parametrize(
    "attrs",
    [
        {"padding": (0, 0, 1, 1)},
        {"padding": (3, 3, 2, 2)},
        {"padding": (1, 2, 2, 1), "strides": (2, 2)},
        {"dilations": (1, 2), "padding": (2, 2, 2, 2)},
        {"groups": 16, "dilations": (2, 2)},
    ],
)
@pytest.mark.parametrize("channels", [16, 13])
def test_convolution_attributes_in_packed_layouts(attrs: dict[str, object], channels: int) -> None:
    """apache/tvm#7142, #4511: pads, strides and dilations of each axis."""
    groups = channels if "groups" in attrs else 1
    b = GraphBuilder()
    x = b.input("x", (1, channels, 9, 11))
    w = b.constant(random(channels, channels // groups, 3, 3) / 5, "w")
    [y] = b.add("conv2d", [x, w], {**attrs, "groups": groups})
    run_levels(b.finish([y]), {"x": random(1, channels, 9, 11)}, 2e-5)


@pytest.mark.parametrize("channels", [16, 13])
@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((5, 5), {"padding": (1, 1, 2, 2), "strides": (2, 2)}),
        ((3, 2), {"padding": (1, 0, 1, 3), "dilations": (1, 4)}),
        ((2, 3), {"padding": (0, 2, 1, 0), "dilations": (3, 1), "strides": (1, 3)}),
    ],
)
def test_convolutions_whose_axes_differ(kernel: tuple[int, int], attrs: dict[str, object], channels: int) -> None:
    """apache/tvm#7142, #6267, Tencent/ncnn#315: each axis has its own kernel, stride, dilation and padding at each end;
    in packed and plain layouts."""
    b = GraphBuilder()
    x = b.input("x", (1, channels, 9, 11))
    [y] = b.add("conv2d", [x, b.constant(random(channels, channels, *kernel) / 5, "w")], attrs)
    run_levels(b.finish([y]), {"x": random(1, channels, 9, 11)}, 2e-5)


def test_a_dilated_depthwise_convolution_of_four_channels() -> None:
    """apache/tvm#4511: depthwise 3x3 with dilation 2 on 5x5 and 4 channels leaves one point a channel."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 5, 5))
    [y] = b.add("conv2d", [x, b.constant(random(4, 1, 3, 3), "w")], {"groups": 4, "dilations": (2, 2)})
    [found] = run_levels(b.finish([y]), {"x": random(1, 4, 5, 5)})[3].run([random(1, 4, 5, 5)])
    assert found.shape == (1, 4, 1, 1)


# ------------------------------------------------------------------------------------------- users' passes, dumps, logs


def test_a_users_pass_runs_by_name_and_is_verified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @nt.graph_pass
    def drop_relu(graph: Graph) -> Graph:
        """Takes relu away."""
        from graphir.builder import GraphEditor

        edit = GraphEditor(graph)
        for node in graph.nodes:
            if node.op == "relu":
                edit.replace(node.output, edit.current(node.operands[0]))
            else:
                edit.keep(node)
        return edit.finish_edit()

    monkeypatch.setenv("NESTOR_LOG", "debug")
    g = build(("relu", {}), ("exp", {}))
    assert ops(g.apply("drop_relu")) == ["exp"] and ops(g.apply(drop_relu)) == ["exp"]
    assert "drop_relu: 2 nodes to 1" in capsys.readouterr().err

    @nt.graph_pass(name="broken")
    def broken(graph: Graph) -> Graph:
        return Graph(graph.name, graph.inputs, graph.outputs, graph.nodes[1:])

    with pytest.raises(InternalError, match="not well formed after broken"):
        g.apply("broken")


def test_unknown_passes_and_guards() -> None:
    g = build(("relu", {}))
    with pytest.raises(PassError, match="no pass is called 'fold_constant'") as caught:
        g.apply("fold_constant")
    assert "did you mean fold_constants" in str(caught.value)
    with pytest.raises(PassError, match="no pass or fusion guard is called 'guard'"):
        nt.compile(g, disabled=["guard"])


def test_dumps_around_every_pass_and_their_diff(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTOR_DUMP", f"{tmp_path}/dumps")
    dumps: dict[str, tuple[str, str]] = {}
    g = build(("identity", {}), ("relu", {}))
    nt.compile(g, dumps=dumps)
    assert [name.split("-")[1] for name in dumps] == [p.name for p in PIPELINE]
    before, after = next(v for k, v in dumps.items() if k.endswith("simplify"))
    assert "-  identity:out" in nt.diff_dumps(before, after) and diff_dumps(before, before) == ""
    from pathlib import Path

    assert len(list(Path(f"{tmp_path}/dumps").iterdir())) == 2 * len(PIPELINE)


def test_passes_can_be_turned_off() -> None:
    g = build(("relu", {}), ("exp", {}))
    assert ops(nt.compile(g, disabled=["fuse"]).graph) == ["relu", "exp"]
