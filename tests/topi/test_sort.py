"""Sorting and what is made of it: NaN and ties, data-decided sizes, sorting in a compiled model."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nestor as nt
from targets.build import build
from tensorir.te import create_func, placeholder
from topi.registry import find_onnx, get_op


def run(name: str, *arrays: np.ndarray, **attrs: Any) -> list[np.ndarray]:
    """An op's compute, built as it is."""
    inputs = [placeholder(a.shape, str(a.dtype), f"in{n}") for n, a in enumerate(arrays)]
    outputs = get_op(name)(*inputs, **attrs)
    results = [np.empty([int(e.value) for e in t.shape], t.dtype.numpy) for t in outputs]
    build(create_func([*inputs, *outputs]), target="llvm")(*arrays, *results)
    return results


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 257])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_nan_is_the_largest(count: int, descending: bool) -> None:
    """apache/tvm#3361, #4860: equal keys keep their order."""
    rng = np.random.default_rng(count)
    x = rng.integers(0, 9, count).astype(np.float32)
    x[rng.random(count) < 0.2] = np.nan
    values, places = run("sort", x, descending=descending)
    key = np.where(np.isnan(x), np.inf, x)
    wanted = np.argsort(-key if descending else key, kind="stable")
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, x[wanted])


def test_unique_of_one_value_and_in_order_of_first_places() -> None:
    values, first, inverse, counts, number = run("unique", np.array([4, 4, 4], np.int32))
    assert (number, values[0], first[0], counts[0]) == (1, 4, 0, 3)
    assert inverse.tolist() == [0, 0, 0]
    values, first, inverse, counts, number = run("unique", np.array([7, 2, 7, 5, 2], np.int64), is_sorted=False)
    assert (values[:3].tolist(), first[:3].tolist(), counts[:3].tolist()) == ([7, 2, 5], [0, 1, 3], [2, 2, 1])
    assert inverse.tolist() == [0, 1, 0, 2, 1]


def test_boxes_that_touch_do_not_overlap() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 1, 1, 2], [0, 0.1, 1, 1.1]]], np.float32)
    scores = np.array([[[0.5, 0.9, 0.8]]], np.float32)
    selected, number = run(
        "non_max_suppression", boxes, scores, max_output_boxes_per_class=3, iou_threshold=0.5, score_threshold=0.0
    )
    assert number == 2
    assert selected[:2].tolist() == [[0, 0, 1], [0, 0, 2]]


def test_sizes_that_the_data_decide_are_not_offered_to_graphs_without_symbols_for_them() -> None:
    for op_type, name in (("NonZero", "nonzero"), ("Unique", "unique"), ("NonMaxSuppression", "non_max_suppression")):
        assert all(op.name != name for op, _ in find_onnx(op_type))
        assert {e.op_type for e in get_op(name).bounded} == {op_type}


def model() -> onnx.ModelProto:
    """The three largest of 2x, and their places."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("TopK", ["y", "k"], ["values", "places"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 40])],
        [
            helper.make_tensor_value_info("values", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("places", TensorProto.INT64, ["batch", 3]),
        ],
        [onnx.numpy_helper.from_array(np.array([3], np.int64), "k")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_top_k_in_a_model_of_any_batch_runs_no_python_body() -> None:
    exe = nt.compile(model(), target="llvm")
    called: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "externs" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    for batch in (1, 2, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 40)).astype(np.float32)
        sys.setprofile(watch)
        try:
            values, places = exe.run({"x": x})
        finally:
            sys.setprofile(None)
        wanted = np.argsort(-x, axis=1, kind="stable")[:, :3]
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, 2 * np.take_along_axis(x, wanted, 1))
    assert called == []
