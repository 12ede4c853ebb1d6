"""The judge: its reference is right and wide, and it finds planted errors."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nestor import accuracy
from nestor.accuracy import compare
from tests.models import zoo

FLOAT = TensorProto.FLOAT


def one_node(
    op: str, inputs: dict[str, np.ndarray], *, opset: int = 21, outputs: int = 1, **attributes: object
) -> dict:
    """The float64 reference of one node."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, list(inputs), [f"y{i}" for i in range(outputs)], **attributes)],
            "one",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for name, value in inputs.items()
            ],
            [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    return accuracy.reference_outputs(model, inputs)


def branching_model() -> onnx.ModelProto:
    """x -> Cast to float -> + 0.1 -> If(flag) { * a float constant } else { + ConstantOfShape } -> y."""

    def branch(op: str, node: onnx.NodeProto, output: str) -> onnx.GraphProto:
        nodes = [node, helper.make_node(op, ["h", node.output[0]], [output])]
        return helper.make_graph(nodes, output, [], [helper.make_tensor_value_info(output, FLOAT, None)])

    third = numpy_helper.from_array(np.float32(1 / 3))
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=FLOAT),
        helper.make_node("Constant", [], ["tenth"], value_float=0.1),
        helper.make_node("Add", ["c", "tenth"], ["h"]),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            then_branch=branch("Mul", helper.make_node("Constant", [], ["third"], value=third), "t"),
            else_branch=branch("Add", helper.make_node("ConstantOfShape", ["one"], ["zero"]), "e"),
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "branching",
        [
            helper.make_tensor_value_info("x", TensorProto.INT32, [3]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", FLOAT, [3])],
        [numpy_helper.from_array(np.array([1], np.int64), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("flag", [True, False])
def test_reference_is_float64_through_casts_constants_and_subgraphs(flag: bool) -> None:
    x = np.array([1, 2, 3], np.int32)
    got = accuracy.reference_outputs(branching_model(), {"x": x, "flag": np.array(flag)})["y"]
    hidden = x + np.float64(np.float32(0.1))
    expected = hidden * np.float64(np.float32(1 / 3)) if flag else hidden
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, expected)  # a float32 step on the way would show in the last bits


def test_intermediate_and_initializer_outputs_on_both_sides() -> None:
    model = branching_model()
    inputs = {"x": np.array([1, 2, 3], np.int32), "flag": np.array(True)}
    names = ["h", "y", "one"]
    reference = accuracy.reference_outputs(model, inputs, names)
    rival = accuracy.onnxruntime_outputs(model, inputs, names)
    assert list(reference) == list(rival) == names
    assert all(report.ok for report in compare(rival, reference, rival))
    assert [value.name for value in model.graph.output] == ["y"]  # the caller's model is left as it was
    assert accuracy.node_outputs(model) == ["c", "tenth", "h", "y"]


@pytest.mark.parametrize("name", ["text_direction", "file_type", "voice_activity", "squeezenet"])
def test_reference_and_onnxruntime_agree_on_real_models(name: str) -> None:
    for inputs in zoo.cases(name):
        model = accuracy.load_model(zoo.load(name))
        for value in model.graph.output:
            assert value.type.tensor_type.elem_type == FLOAT
        reference = accuracy.reference_outputs(model, inputs)
        for report in compare(accuracy.onnxruntime_outputs(model, inputs), reference):
            assert report.rel_err < 5e-6, report


def test_batch_norm_with_momentum_is_inference() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    inputs = {"x": x} | {name: rng.random(3).astype(np.float32) + 1 for name in ("s", "b", "m", "v")}
    scale, bias, mean, variance = (inputs[name].astype(np.float64)[:, None] for name in ("s", "b", "m", "v"))
    expected = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias
    for opset in (9, 14, 15):
        got = one_node("BatchNormalization", inputs, opset=opset, momentum=0.9)["y0"]
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_batch_norm_in_training_mode_uses_the_batch() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)
    ones = np.ones(3, np.float32)
    inputs = {"x": x, "s": ones, "b": 0 * ones, "m": 0 * ones, "v": ones}
    y, mean, _ = one_node("BatchNormalization", inputs, opset=15, outputs=3, training_mode=1, momentum=0.75).values()
    np.testing.assert_allclose(y.mean((0, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(mean, 0.25 * x.astype(np.float64).mean((0, 2)), rtol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_global_max_pool_of_any_rank(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = one_node("GlobalMaxPool", {"x": x})["y0"]
    np.testing.assert_array_equal(got, x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_flattens_before_opset_13(op: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    wide = x.astype(np.float64)

    def along(values: np.ndarray, axis: int) -> np.ndarray:
        if op == "Hardmax":
            best = np.expand_dims(values.argmax(axis), axis)
            return (np.indices(values.shape)[axis] == best).astype(np.float64)
        soft = np.exp(values) / np.exp(values).sum(axis, keepdims=True)
        return soft if op == "Softmax" else np.log(soft)

    old = one_node(op, {"x": x}, opset=11)["y0"]
    np.testing.assert_allclose(old, along(wide.reshape(2, 12), 1).reshape(x.shape), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one_node(op, {"x": x})["y0"], along(wide, 2), rtol=1e-12, atol=1e-12)
    for axis in (0, 1, -2):
        got = one_node(op, {"x": x}, axis=axis)["y0"]
        np.testing.assert_allclose(got, along(wide, axis % 3), rtol=1e-12, atol=1e-12)


REF = np.array([[1.0, -2.0, 0.5], [4.0, 0.0, -8.0]])
GOOD = REF.astype(np.float32)


def verdict(got: object, ref: object = REF, ort: object = None, **limits: float) -> accuracy.OutputReport:
    [report] = compare({"y": got}, {"y": ref}, None if ort is None else {"y": ort}, **limits)
    assert report.name == "y"
    return report


def test_equal_outputs_pass_and_are_measured() -> None:
    report = verdict(GOOD, ort=GOOD)
    assert report.ok and report.max_abs_err == 0 and report.max_ref == 8 and report.ort_rel_err == 0


def test_tolerance_is_of_the_largest_reference_value() -> None:
    near, far = GOOD.copy(), GOOD.copy()
    near[1, 1], far[1, 1] = 7e-5, 9e-5
    assert verdict(near).ok
    report = verdict(far)
    assert not report.ok and "above 1e-05" in report.reason and report.rel_err == pytest.approx(9e-5 / 8, rel=1e-3)
    assert verdict(far, tolerance=1e-4).ok


def test_factor_is_of_onnxruntimes_error() -> None:
    got, ort = GOOD.copy(), GOOD.copy()
    got[0, 0] += 1e-2
    ort[1, 2] += 3e-3
    assert verdict(got, ort=ort).ok
    report = verdict(got, ort=ort, factor=3)
    assert not report.ok and "3 times onnxruntime's" in report.reason


def test_an_error_shared_with_onnxruntime_excuses_nothing_when_it_is_large() -> None:
    wrong = GOOD + 1
    report = verdict(wrong, ort=wrong)
    assert not report.ok and "disagree about the model" in report.reason


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        (GOOD.T.copy(), r"the shape is \[3, 2\], not \[2, 3\]"),
        (GOOD[None], r"the shape is \[1, 2, 3\]"),
        (GOOD.astype(np.float64), "the dtype is float64, not float32"),
        (GOOD.astype(np.int32), "the dtype is int32"),
    ],
)
def test_shape_and_dtype_must_be_right(got: np.ndarray, reason: str) -> None:
    report = verdict(got, ort=GOOD)
    assert not report.ok and re.search(reason, report.reason)


def test_float_against_integer_is_found_without_onnxruntime() -> None:
    assert not verdict(GOOD.astype(np.int64)).ok
    assert not verdict(np.float32([1, 2]), ref=np.array([1, 2])).ok


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_must_stand_in_the_same_places(special: float) -> None:
    got, ref = GOOD.copy(), REF.copy()
    got[1, 0] = special
    report = verdict(got)
    assert not report.ok and "[1, 0]" in report.reason
    ref[1, 0] = special
    assert verdict(got, ref=ref).ok
    assert not verdict(GOOD, ref=ref).ok
    ref[1, 0] = -special if np.isinf(special) else np.inf
    assert not verdict(got, ref=ref).ok


def test_an_unwritten_output_full_of_nan_fails() -> None:
    assert not verdict(np.full_like(GOOD, np.nan), ort=GOOD).ok


def test_overflow_of_the_output_type_is_infinity() -> None:
    assert verdict(np.float32([np.inf, 1]), ref=np.array([1e39, 1.0])).ok
    assert not verdict(np.float32([3e38, 1]), ref=np.array([1e39, 1.0])).ok


def test_an_error_beside_an_infinity_is_still_seen() -> None:
    assert not verdict(np.float32([np.inf, 1.5]), ref=np.array([np.inf, 1.0])).ok


def test_integers_booleans_and_strings_are_exact() -> None:
    whole = np.array([2**62, 2**62 + 1, -5])
    assert verdict(whole.copy(), ref=whole).ok
    report = verdict(whole + [0, 1, 0], ref=whole)
    assert not report.ok and report.max_abs_err == 1 and "1 of 3 elements differ, first at [1]" in report.reason
    assert not verdict(np.array([True, False]), ref=np.array([True, True])).ok
    assert not verdict(np.array([1, 0], np.int8), ref=np.array([True, False])).ok
    assert not verdict(np.array(["a", "b"], object), ref=np.array(["a", "c"], object)).ok
    assert not verdict(np.array([3]), ref=np.array([2]), ort=np.array([2])).ok
    assert verdict(np.array([3]), ref=np.array([2]), ort=np.array([3])).ok


def test_unsigned_difference_does_not_wrap() -> None:
    assert verdict(np.array([0], np.uint8), ref=np.array([255], np.uint8)).max_abs_err == 255


def test_missing_and_extra_outputs_fail() -> None:
    reports = compare({"z": GOOD}, {"y": REF})
    assert [(report.name, report.ok) for report in reports] == [("y", False), ("z", False)]


def test_empty_and_scalar_outputs() -> None:
    assert verdict(np.zeros((0, 4), np.float32), ref=np.zeros((0, 4))).ok
    assert not verdict(np.zeros((4, 0), np.float32), ref=np.zeros((0, 4))).ok
    assert verdict(np.float32(2), ref=np.float64(2)).ok
    assert verdict(np.zeros(3, np.float32), ref=np.zeros(3)).ok
    assert not verdict(np.float32([0, 1e-30]), ref=np.zeros(2)).ok


def test_sequences_are_compared_element_by_element() -> None:
    reports = compare({"s": [GOOD, GOOD + 1]}, {"s": [REF, REF]})
    assert [(report.name, report.ok) for report in reports] == [("s: length", True), ("s[0]", True), ("s[1]", False)]
    assert not all(report.ok for report in compare({"s": [GOOD]}, {"s": [REF, REF]}))


def test_judge_runs_everything() -> None:
    model = branching_model()
    inputs = {"x": np.array([1, 2, 3], np.int32), "flag": np.array(True)}
    right = accuracy.onnxruntime_outputs(model, inputs)["y"]
    assert [report.ok for report in accuracy.judge(model, inputs, {"y": right})] == [True]
    assert [report.ok for report in accuracy.judge(model, inputs, {"y": right + np.float32(1e-3)})] == [False]


def test_max_pool_with_ceil_mode_starts_no_window_in_the_padding_behind() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 12)])
    data = np.random.default_rng(0).standard_normal((1, 2, 112, 7)).astype(np.float32)
    found = accuracy.reference_outputs(model, {"x": data})["y"]
    assert found.shape == (1, 2, 56, 3)
    np.testing.assert_array_equal(
        found[..., -1, :], data[:, :, 110:].max(2)[:, :, [0, 1, 2, 2, 3, 4, 4, 5, 6]].reshape(1, 2, 3, 3).max(-1)
    )


def test_local_response_normalization_sums_around_every_channel() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("LRN", ["x"], ["y"], size=5, alpha=0.5, beta=0.75, bias=2.0)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 13)])
    data = np.random.default_rng(0).standard_normal((1, 6, 2, 2)).astype(np.float32)
    inputs = {"x": data}
    found, rival = accuracy.reference_outputs(model, inputs)["y"], accuracy.onnxruntime_outputs(model, inputs)["y"]
    np.testing.assert_allclose(found, rival, rtol=1e-6)


def test_gather_elements_with_one_row_of_indices() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    i = helper.make_tensor_value_info("i", TensorProto.INT64, None)
    model = helper.make_model(helper.make_graph([node], "g", [x, i], [y]), opset_imports=[helper.make_opsetid("", 13)])
    data, places = np.arange(8, dtype=np.float32).reshape(1, 8), np.array([[7, -8, 3]])
    found = accuracy.reference_outputs(model, {"x": data, "i": places})["y"]
    np.testing.assert_array_equal(found, [[7, 0, 3]])
