"""Loops: recurrent operators, Scan and Loop of ONNX, run natively, interpreted and by the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nestor as nt
from graphir import reference
from graphir.errors import UnsupportedError
from nestor import accuracy
from tests.graphir.test_onnx import F, model, node

I64, BOOL = TensorProto.INT64, TensorProto.BOOL


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return (0.5 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def recurrent(op: str, direction: str, *, lengths: bool = False, **attrs: Any) -> onnx.ModelProto:
    """A recurrent node over x [t, 2, 3] with 5 hidden units and every operand given."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    d = 2 if direction == "bidirectional" else 1
    constants = {
        "w": random(d, gates * 5, 3, seed=1),
        "r": random(d, gates * 5, 5, seed=2),
        "b": random(d, 2 * gates * 5, seed=3),
    }
    names = ["x", "w", "r", "b", "lengths" if lengths else "", "h"]
    inputs: dict[str, Any] = {"x": (F, ["t", 2, 3]), "h": (F, [d, 2, 5])}
    outputs = ["y", "yh"]
    if op == "LSTM":
        inputs["c"] = (F, [d, 2, 5])
        names.append("c")
        outputs.append("yc")
        if attrs.pop("peephole", False):
            constants["p"] = random(d, 15, seed=4)
            names.append("p")
    if lengths:
        inputs["lengths"] = (TensorProto.INT32, [2])
    made = node(op, names, outputs, hidden_size=5, direction=direction, **attrs)
    return model([made], inputs, outputs, constants, opset=14)


def feed(m: onnx.ModelProto, steps: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for seed, v in enumerate(m.graph.input):
        shape = [d.dim_value or steps for d in v.type.tensor_type.shape.dim]
        found[v.name] = random(*shape, seed=10 + seed)
    if "lengths" in found:
        found["lengths"] = np.array([steps, max(steps - 2, 1)], np.int32)
    return found


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1}),
    ("LSTM", {}),
    ("LSTM", {"peephole": True, "clip": 0.4}),
    ("LSTM", {"input_forget": 1}),
]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "attrs"), CELLS)
def test_recurrent_operators_at_several_lengths_from_one_compile(
    op: str, attrs: dict[str, Any], direction: str
) -> None:
    copies = 2 if direction == "bidirectional" else 1
    attrs = {k: v * copies if isinstance(v, list) else v for k, v in attrs.items()}
    m = recurrent(op, direction, **attrs)
    exe = nt.compile(m)
    for steps in (4, 1, 7):
        inputs = feed(m, steps)
        expected = accuracy.onnxruntime_outputs(m, inputs)
        for name, found in zip([o.name for o in exe.outputs], exe.run(inputs)):
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6, err_msg=f"{name} at {steps}")


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_lengths_of_sequences(op: str) -> None:
    m = recurrent(op, "bidirectional", lengths=True)
    exe = nt.compile(m)
    inputs = feed(m, 5)
    expected = accuracy.onnxruntime_outputs(m, inputs)
    for name, found in zip([o.name for o in exe.outputs], exe.run(inputs)):
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


def test_every_way_of_running_a_loop_agrees() -> None:
    m = recurrent("LSTM", "bidirectional")
    inputs = feed(m, 6)
    graph = nt.from_onnx(m)
    expected = reference.evaluate(graph, inputs)
    for level in range(4):
        exe = nt.compile(graph, opt_level=level)
        native, stepped = exe.run(inputs), exe.debug(inputs)
        for spec, value in zip(exe.outputs, native):
            np.testing.assert_allclose(value, expected[spec.name], rtol=1e-5, atol=1e-6)
            assert stepped[spec.name].tobytes() == value.tobytes()
    assert "loop t times" in str(exe.plan)


def body(
    nodes: list[Any], inputs: dict[str, tuple[int, Any]], outputs: list[str], constants: dict[str, Any] | None = None
) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )


def counting(limit: float | None) -> onnx.GraphProto:
    """total += x while total < limit; gives every total and the number of the iteration."""
    nodes = [node("Add", ["total", "x"], ["next"])]
    if limit is None:
        nodes.append(node("Identity", ["going"], ["again"]))
    else:
        nodes += [node("ReduceSum", ["next"], ["sum"], keepdims=0), node("Less", ["sum", "limit"], ["again"])]
    constants = {} if limit is None else {"limit": np.array(limit, np.float32)}
    return body(nodes, {"i": (I64, []), "going": (BOOL, []), "total": (F, [2])}, ["again", "next"], constants)


def test_a_loop_by_trip_count_by_condition_and_by_both() -> None:
    x = np.array([1, 2], np.float32)
    nodes = [node("Loop", ["trips", "go", "start"], ["y"], body=counting(20.0))]
    start = {"start": np.zeros(2, np.float32)}
    m = model(nodes, {"x": (F, [2]), "trips": (I64, []), "go": (BOOL, [])}, ["y"], start)
    exe = nt.compile(m)
    for trips, go, times in ((3, True, 3), (100, True, 7), (0, True, 0), (5, False, 0)):
        [y] = exe.run({"x": x, "trips": np.array(trips), "go": np.array(go)})
        np.testing.assert_array_equal(y, times * x)
    endless = model([node("Loop", ["", "", "start"], ["y"], body=counting(20.0))], {"x": (F, [2])}, ["y"], start)
    np.testing.assert_array_equal(nt.compile(endless).run([x])[0], 7 * x)


def test_a_loop_whose_trips_are_a_size_stacks_its_outputs() -> None:
    inner = body(
        [
            node("Add", ["total", "x"], ["next"]),
            node("Cast", ["i"], ["number"], to=F),
            node("Mul", ["next", "number"], ["shown"]),
            node("Identity", ["going"], ["again"]),
        ],
        {"i": (I64, []), "going": (BOOL, []), "total": (F, [2])},
        ["again", "next", "shown"],
    )
    nodes = [
        node("Shape", ["data"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["trips"]),
        node("Loop", ["trips", "", "x"], ["last", "all"], body=inner),
    ]
    m = model(nodes, {"data": (F, ["n", 3]), "x": (F, [2])}, ["last", "all"], {"first": np.array(0, np.int64)})
    exe = nt.compile(m)
    x = np.array([1, 2], np.float32)
    for n in (4, 1, 0):
        last, stacked = exe.run([np.zeros((n, 3), np.float32), x])
        np.testing.assert_array_equal(last, (n + 1) * x)
        np.testing.assert_array_equal(stacked, np.array([k * (k + 2) * x for k in range(n)], np.float32).reshape(n, 2))


def test_values_that_change_shape_are_unrolled() -> None:
    inner = body(
        [node("Concat", ["grown", "x"], ["next"], axis=0), node("Identity", ["going"], ["again"])],
        {"i": (I64, []), "going": (BOOL, []), "grown": (F, None)},
        ["again", "next"],
    )
    m = model(
        [node("Loop", ["trips", "", "x"], ["y"], body=inner)], {"x": (F, [2])}, ["y"], {"trips": np.array(3, np.int64)}
    )
    np.testing.assert_array_equal(nt.compile(m).run([np.array([1, 2], np.float32)])[0], [1, 2] * 4)


def test_swapped_and_kept_carried_values() -> None:
    inner = body(
        [node("Identity", ["going"], ["again"]), node("Identity", ["b"], ["a2"]), node("Identity", ["a"], ["b2"])],
        {"i": (I64, []), "going": (BOOL, []), "a": (F, [2]), "b": (F, [2]), "c": (F, [2])},
        ["again", "a2", "b2", "c"],
    )
    m = model(
        [node("Loop", ["trips", "", "x", "z", "x"], ["p", "q", "r"], body=inner)],
        {"x": (F, [2]), "z": (F, [2]), "trips": (I64, [])},
        ["p", "q", "r"],
    )
    exe = nt.compile(m)
    x, z = random(2, seed=1), random(2, seed=2)
    for trips in (0, 1, 2, 5):
        p, q, r = exe.run([x, z, np.array(trips, np.int64)])
        expected = (x, z) if trips % 2 == 0 else (z, x)
        np.testing.assert_array_equal([p, q, r], [*expected, x])


def test_scan_in_both_directions_along_other_axes() -> None:
    inner = body(
        [node("Add", ["s", "a"], ["s2"]), node("Mul", ["s2", "b"], ["out"])],
        {"s": (F, [2]), "a": (F, [2]), "b": (F, [2])},
        ["s2", "out"],
    )
    made = node(
        "Scan", ["s0", "a_in", "b_in"], ["last", "all"], body=inner, num_scan_inputs=2, scan_input_axes=[1, 0],
        scan_input_directions=[1, 0], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    m = model([made], {"s0": (F, [2]), "a_in": (F, [2, "n"]), "b_in": (F, ["n", 2])}, ["last", "all"])
    exe = nt.compile(m)
    for n in (5, 2):
        inputs = {"s0": random(2), "a_in": random(2, n, seed=1), "b_in": random(n, 2, seed=2)}
        expected = accuracy.onnxruntime_outputs(m, inputs)
        for name, found in zip(("last", "all"), exe.run(inputs)):
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


def test_a_loop_inside_a_loop() -> None:
    innermost = body(
        [node("Add", ["t", "x"], ["t2"]), node("Identity", ["g2"], ["again2"])],
        {"j": (I64, []), "g2": (BOOL, []), "t": (F, [2])},
        ["again2", "t2", "t2"],
    )
    middle = body(
        [
            node("Loop", ["trips", "", "total"], ["next", "inside"], body=innermost),
            node("Identity", ["going"], ["again"]),
        ],
        {"i": (I64, []), "going": (BOOL, []), "total": (F, [2])},
        ["again", "next", "inside"],
    )
    m = model(
        [node("Loop", ["trips", "", "zero"], ["last", "all"], body=middle)],
        {"x": (F, [2])},
        ["last", "all"],
        {"trips": np.array(3, np.int64), "zero": np.zeros(2, np.float32)},
    )
    x = np.array([1, 2], np.float32)
    last, stacked = nt.compile(m).run([x])
    np.testing.assert_array_equal(last, 9 * x)
    np.testing.assert_array_equal(stacked, np.arange(1, 10).reshape(3, 3, 1) * x)


def test_outputs_whose_size_only_running_tells_are_refused() -> None:
    inner = body(
        [
            node("Add", ["t", "x"], ["t2"]),
            node("ReduceSum", ["t2"], ["s"], keepdims=0),
            node("Less", ["s", "m"], ["go"]),
        ],
        {"i": (I64, []), "g": (BOOL, []), "t": (F, [2])},
        ["go", "t2", "t2"],
        {"m": np.array(9, np.float32)},
    )
    m = model([node("Loop", ["", "", "x"], ["last", "all"], body=inner)], {"x": (F, [2])}, ["last", "all"])
    with pytest.raises(UnsupportedError, match="only at run time"):
        nt.compile(m)


def test_sequences_of_known_length() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("SequenceAt", ["parts", "last"], ["a"]),
        node("SequenceInsert", ["parts", "a", "zero"], ["more"]),
        node("SequenceErase", ["more", "last"], ["fewer"]),
        node("ConcatFromSequence", ["fewer"], ["y"], axis=1),
        node("SequenceLength", ["more"], ["n"]),
    ]
    constants = {"sizes": np.array([1, 2, 3]), "last": np.array(-1), "zero": np.array(0)}
    m = model(nodes, {"x": (F, ["b", 6])}, ["y", "n"], constants)
    x = random(2, 6)
    y, n = nt.compile(m).run([x])
    np.testing.assert_array_equal(y, np.concatenate([x[:, 3:], x[:, :3]], 1))
    assert n == 4
