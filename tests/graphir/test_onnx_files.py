"""ONNX models as people have them: weights in other files, duplicate and empty names, scopes, old and new versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nestor as nt
from graphir.errors import ModelError, ShapeError, UnsupportedError
from tests.graphir.test_onnx import F, model, node

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def rival(m: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime's outputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, inputs)
    return found


def run(m: Any, inputs: dict[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    return nt.compile(m, opt_level=1, **options).run(inputs)


# ------------------------------------------------------------------------------------------------------ external data


def external(folder: Path, location: str, *, offset: int | None = None, length: int | None = None) -> Path:
    """A model y = x + w whose w (three float32) is said to lie at `location`."""
    m = model([node("Add", ["x", "w"], ["y"])], {"x": (F, [1, 3])}, ["y"], {"w": np.zeros(3, np.float32)})
    [w] = m.graph.initializer
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length}
    for key, value in entries.items():
        if value is not None:
            w.external_data.add(key=key, value=str(value))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


W = np.array([10, 20, 30], np.float32)


@pytest.mark.parametrize("folder", ["plain", "with space", "größe-模型"])
def test_weights_in_a_file_beside_the_model(tmp_path: Path, folder: str) -> None:
    path = external(tmp_path / folder, "data/w ü.bin", offset=4, length=12)
    (tmp_path / folder / "data").mkdir()
    (tmp_path / folder / "data" / "w ü.bin").write_bytes(b"xxxx" + W.tobytes() + b"rest")
    [y] = run(path, {"x": X})
    np.testing.assert_array_equal(y, X + W)
    [y] = run(str(path), {"x": X})
    np.testing.assert_array_equal(y, X + W)


def test_external_data_that_is_missing_short_or_outside_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(W.tobytes())
    folder = tmp_path / "model"
    for location, message in [
        ("w.bin", "which is not there"),
        ("../secret.bin", "outside the model's folder"),
        (str(secret), "outside the model's folder"),
        ("a/../../secret.bin", "outside the model's folder"),
        ("", "outside the model's folder"),
    ]:
        with pytest.raises(ModelError, match=message):
            run(external(folder, location), {"x": X})
    (folder / "link.bin").symlink_to(secret)
    with pytest.raises(ModelError, match="outside the model's folder"):
        run(external(folder, "link.bin"), {"x": X})
    (folder / "w.bin").write_bytes(W.tobytes()[:8])
    for options in ({}, {"offset": 4}, {"offset": -1}, {"length": 8}, {"length": 1 << 40}):
        with pytest.raises(ModelError, match="wants 12 bytes from byte"):
            run(external(folder, "w.bin", **options), {"x": X})


def test_external_data_at_names_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="which is no file name"):
        run(external(tmp_path, "a\0b"), {"x": X})
    with pytest.raises(ModelError, match="which is no file name"):
        run(external(tmp_path, "a" * 5000), {"x": X})
    with pytest.raises(ModelError, match="which is not there"):
        run(external(tmp_path, "a" * 300), {"x": X})
    (tmp_path / "d").symlink_to(tmp_path.parent, target_is_directory=True)
    with pytest.raises(ModelError, match="outside the model's folder"):
        run(external(tmp_path, "d/w.bin"), {"x": X})
    path = external(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    m = onnx.load(path, load_external_data=False)
    m.graph.initializer[0].dims[0] = -3
    path.write_bytes(m.SerializeToString())
    with pytest.raises(ModelError, match="negative size"):
        run(path, {"x": X})


def added(w: TensorProto) -> onnx.ModelProto:
    """y = x + w."""
    m = model([node("Add", ["x", "w"], ["y"])], {"x": (F, [1, 3])}, ["y"])
    m.graph.initializer.append(w)
    return m


@pytest.mark.parametrize(
    ("sizes", "kind", "data", "message"),
    [
        ([1 << 40], TensorProto.FLOAT, b"", "do not fill its shape"),
        ([1 << 32, 1 << 32], TensorProto.FLOAT, b"", "do not fill its shape"),
        ([3], TensorProto.FLOAT, b"12345", "do not fill its shape"),
        ([3], TensorProto.FLOAT, W.tobytes() * 2, "do not fill its shape"),
        ([-3], TensorProto.FLOAT, W.tobytes(), "negative size"),
        ([3], 99, W.tobytes(), "element type number 99"),
        ([3], 0, W.tobytes(), "element type number 0"),
        ([3], TensorProto.STRING, b"", "do not fill its shape"),
    ],
)
def test_initialisers_whose_data_do_not_fit(sizes: list[int], kind: int, data: bytes, message: str) -> None:
    w = TensorProto(name="w", data_type=kind, dims=sizes, raw_data=data)
    with pytest.raises(ModelError, match=message) as caught:
        nt.from_onnx(added(w).SerializeToString())
    assert "the initialiser w" in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [([-2, 3], "negative size"), ([1 << 20, 1 << 20], "bytes, more than"), ([1 << 33, 1 << 33], "bytes, more than")],
)
def test_constants_of_impossible_shapes(sizes: list[int], message: str) -> None:
    m = model([node("ConstantOfShape", ["s"], ["y"], name="made")], {}, ["y"], {"s": np.array(sizes)})
    with pytest.raises(ModelError, match=message) as caught:
        nt.from_onnx(m)
    assert "node made" in str(caught.value)


def test_a_result_that_no_memory_holds_is_refused() -> None:
    w = np.zeros((1, 1, 1, 1), np.float32)
    far = model(
        [node("Conv", ["x", "w"], ["y"], name="far", pads=[1 << 40] * 4)], {"x": (F, [1, 1, 4, 4])}, ["y"], {"w": w}
    )
    with pytest.raises(ShapeError, match="node far.*more than any memory holds"):
        nt.from_onnx(far)


def test_attributes_of_another_type_are_refused() -> None:
    with pytest.raises(ModelError, match="the attribute axis of Softmax is of type STRING, not INT"):
        nt.from_onnx(model([node("Softmax", ["x"], ["y"], axis="last")], {"x": (F, [3])}, ["y"]))


@pytest.mark.parametrize("sizes", [[-1, 4], [1, 1, 1]])
def test_splits_that_cannot_be(sizes: list[int]) -> None:
    m = model([node("Split", ["x", "s"], ["y", "z"])], {"x": (F, [3])}, ["y", "z"], {"s": np.array(sizes)})
    with pytest.raises(ShapeError, match="one size for each output, none of them negative"):
        nt.from_onnx(m)


def test_the_nearest_operator_is_offered() -> None:
    m = model([node("Rleu", ["x"], ["y"]), node("Sofmax", ["y"], ["z"])], {"x": (F, [3])}, ["z"])
    with pytest.raises(UnsupportedError, match=r"did you mean Relu for Rleu\? did you mean Softmax for Sofmax\?"):
        nt.from_onnx(m)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "a")])
def test_a_cycle_is_refused(names: tuple[str, str]) -> None:
    first, second = names
    m = model([node("Relu", [second], [first]), node("Relu", [first], ["b"])], {"x": (F, [3])}, ["b"])
    with pytest.raises(ModelError, match="which nothing defines"):
        nt.from_onnx(m)


def test_external_data_of_a_model_without_a_path_asks_for_one(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ModelError, match="lies in another file"):
        nt.from_onnx(path.read_bytes())


# -------------------------------------------------------------------------------------------------------------- names


def test_of_duplicate_initialisers_the_last_holds_as_in_onnxruntime() -> None:
    m = model([node("Add", ["x", "w"], ["y"])], {"x": (F, [1, 3])}, ["y"], {"w": W})
    m.graph.initializer.append(numpy_helper.from_array(2 * W, "w"))
    [y] = run(m, {"x": X})
    np.testing.assert_array_equal(y, X + 2 * W)
    np.testing.assert_array_equal(rival(m, {"x": X})[0], y)


def test_initialisers_that_are_inputs_too() -> None:
    m = model([node("Add", ["x", "w"], ["y"])], {"x": (F, [1, 3]), "w": (F, [3])}, ["y"], {"w": W})
    exe = nt.compile(m, opt_level=1)
    assert [i.name for i in exe.inputs] == ["x"]
    np.testing.assert_array_equal(exe.run([X])[0], X + W)
    [y] = run(m, {"x": X}, params={"w": -W})
    np.testing.assert_array_equal(y, X - W)


def test_nodes_without_names_or_with_one_name() -> None:
    nodes = [node("Relu", ["x"], ["a"], name="n"), node("Neg", ["a"], ["b"], name="n"), node("Abs", ["b"], ["y"])]
    [y] = run(model(nodes, {"x": (F, [1, 3])}, ["y"]), {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_a_name_defined_twice_is_refused() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["y"])]
    with pytest.raises(ModelError, match="'a', which is defined already"):
        run(model(nodes, {"x": (F, [1, 3])}, ["y"]), {"x": X})


def test_optional_operands_left_out_by_an_empty_name() -> None:
    nodes = [node("Clip", ["x", "", "top"], ["y"])]
    [y] = run(model(nodes, {"x": (F, [1, 3])}, ["y"], {"top": np.array(2, np.float32)}), {"x": X})
    np.testing.assert_array_equal(y, np.minimum(X, 2))


def test_a_subgraph_sees_outer_values_and_keeps_its_own() -> None:
    def branch(name: str, factor: float) -> onnx.GraphProto:
        constant = numpy_helper.from_array(np.array(factor, np.float32), "c")  # the same name in both branches
        nodes = [node("Mul", ["outer", "c"], ["t"]), node("Add", ["t", "x"], [f"{name}_out"])]
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_out")], [constant])

    nodes = [
        node("Neg", ["x"], ["outer"]),
        node("If", ["k"], ["y"], then_branch=branch("yes", 2.0), else_branch=branch("no", 5.0)),
    ]
    m = model(nodes, {"x": (F, [1, 3]), "k": (TensorProto.BOOL, [])}, ["y"])
    exe = nt.compile(m)
    for k, factor in ((True, 2), (False, 5)):
        [y] = exe.run({"x": X, "k": np.array(k)})
        np.testing.assert_array_equal(y, -X * factor + X)


# ----------------------------------------------------------------------------------------------------------- versions


def test_broadcasting_before_opset_7_is_along_an_axis() -> None:
    nodes = [node("Add", ["x", "w"], ["y"], broadcast=1, axis=1), node("Max", ["y", "x"], ["z"])]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    [z] = run(model(nodes, {"x": (F, [2, 3, 4])}, ["z"], {"w": W}, opset=6), {"x": x})
    np.testing.assert_array_equal(z, np.maximum(x + W[:, None], x))


def test_format_and_opset_versions() -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    newest = onnx.defs.onnx_opset_version()
    for opset in (1, 6, newest):
        [y] = run(model(nodes, {"x": (F, [1, 3])}, ["y"], opset=opset), {"x": X})
        np.testing.assert_array_equal(y, np.maximum(X, 0))
    with pytest.raises(ModelError, match=f"opset {newest + 1}"):
        run(model(nodes, {"x": (F, [1, 3])}, ["y"], opset=newest + 1), {"x": X})
    late = model(nodes, {"x": (F, [1, 3])}, ["y"])
    late.ir_version = onnx.IR_VERSION + 1
    with pytest.raises(ModelError, match="format version"):
        run(late, {"x": X})
    early = model(nodes, {"x": (F, [1, 3])}, ["y"])
    early.ir_version = 2
    del early.opset_import[:]
    np.testing.assert_array_equal(run(early, {"x": X})[0], np.maximum(X, 0))


# ---------------------------------------------------------------------------------------------------------- functions


def test_functions_of_the_model_and_of_schemas() -> None:
    body = [
        node("Constant", [], ["c"], value_float=0.0),
        node("Mul", ["a", "c2"], ["t"]),
        node("Add", ["t", "c"], ["r"]),
    ]
    constant = body[0]
    scale = onnx.NodeProto()
    scale.op_type = "Constant"
    scale.output.append("c2")
    attribute = scale.attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "factor", onnx.AttributeProto.FLOAT
    function = helper.make_function(
        "own", "scaled", ["a"], ["r"], [constant, scale, *body[1:]], [helper.make_opsetid("", 17)], ["factor"]
    )
    nodes = [node("scaled", ["x"], ["s"], domain="own", factor=3.0), node("Celu", ["s"], ["y"], alpha=1.0)]
    m = model(nodes, {"x": (F, [1, 3])}, ["y"])
    m.opset_import.append(helper.make_opsetid("own", 1))
    m.functions.append(function)
    [y] = run(m, {"x": X})
    np.testing.assert_allclose(y, np.where(X > 0, 3 * X, np.exp(np.minimum(3 * X, 0)) - 1), rtol=1e-6)
    normalized = model(
        [node("LayerNormalization", ["x", "w"], ["y", "mean", "inverse"])], {"x": (F, [1, 3])}, ["y", "mean"], {"w": W}
    )
    y, mean = run(normalized, {"x": X})
    np.testing.assert_allclose(mean, X.mean(-1, keepdims=True), rtol=1e-6)


# ----------------------------------------------------------------------------------- shapes that input values decide


def sliced() -> onnx.ModelProto:
    """y = x[starts:ends:steps], all of them inputs."""
    integers = (TensorProto.INT64, [1])
    return model(
        [node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
        {"x": (F, ["n", 10]), "starts": integers, "ends": integers, "axes": integers, "steps": integers},
        ["y"],
    )


def test_a_slice_by_run_time_bounds() -> None:
    """apache/tvm#20263: starts = [-2] known at run time only."""
    exe = nt.compile(sliced(), opt_level=1)
    x = np.arange(30, dtype=np.float32).reshape(3, 10)
    for axis, start, end, step in ((1, -2, 1 << 62, 1), (0, 1, 3, 1), (1, -1, -100, -3), (1, 2, 2, 1), (1, -2, 99, 1)):
        values = {"starts": start, "ends": end, "axes": axis, "steps": step}
        [y] = exe.run({"x": x, **{n: np.array([v], np.int64) for n, v in values.items()}})
        bounds = [slice(None), slice(None)]
        bounds[axis] = slice(start, None if end == -100 else end, step)
        np.testing.assert_array_equal(y, x[tuple(bounds)])
    assert [i.name for i in exe.inputs] == ["x", "starts", "ends", "axes", "steps"]
    with pytest.raises(UnsupportedError, match="depend on the values of inputs"):
        exe.save("m.nst")


def test_a_value_that_no_input_decides_alone_is_asked_for() -> None:
    nodes = [node("ReduceSum", ["x"], ["s"]), node("Cast", ["s"], ["i"], to=TensorProto.INT64)]
    nodes += [node("Reshape", ["i", "one"], ["shape"]), node("Expand", ["x", "shape"], ["y"])]
    m = model(nodes, {"x": (F, [1, 3])}, ["y"], {"one": np.array([1], np.int64)})
    exe = nt.compile(m, opt_level=1)  # x decides it
    np.testing.assert_array_equal(exe.run([np.array([[1, 1, 1]], np.float32)])[0], np.ones((1, 3), np.float32))


# -------------------------------------------------------------------------------------------- sizes that data decide


@pytest.mark.parametrize("level", [0, 2, 3])
def test_sizes_that_the_data_decide(level: int) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["r", "rows"], ["values"]),
        node("Mul", ["values", "values"], ["squares"]),
        node("ReduceSum", ["squares"], ["total"], keepdims=0),
        node("Compress", ["x", "keep"], ["kept"], axis=1),
    ]
    m = model(nodes, {"x": (F, ["n", 4]), "keep": (TensorProto.BOOL, [4])}, ["places", "squares", "total", "kept"])
    exe = nt.compile(m, opt_level=level)
    rng = np.random.default_rng(0)
    for rows in (3, 1, 5):
        x = rng.standard_normal((rows, 4)).astype(np.float32)
        keep = rng.integers(0, 2, 4).astype(bool)
        r = np.maximum(x, 0)
        expected = [np.stack(np.nonzero(r)), r[r > 0] ** 2, (r[r > 0] ** 2).sum(), x[:, keep]]
        for found in (exe.run([x, keep]), [exe.debug([x, keep])[n] for n in ("places", "squares", "total", "kept")]):
            for a, b in zip(found, expected):
                np.testing.assert_allclose(a, b, rtol=1e-5)
    nothing = np.full((2, 4), -1, np.float32)
    places, squares, total, _ = exe.run([nothing, keep])
    assert places.shape == (2, 0) and squares.shape == (0,) and total == 0
