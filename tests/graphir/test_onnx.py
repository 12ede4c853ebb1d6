"""The ONNX front end: what is read, how, and each way in which a model can be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nestor as nt
from graphir import dims
from graphir.errors import ModelError, ShapeError, UnsupportedError
from tests.graphir.graphs import ops, random


def model(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of these nodes; inputs are (element type, shape)."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


F = TensorProto.FLOAT
node = helper.make_node


# -------------------------------------------------------------------------------------------------------------- files


def test_each_way_a_file_can_fail(tmp_path: Path) -> None:
    good = model([node("Relu", ["x"], ["y"])], {"x": (F, [2])}, ["y"]).SerializeToString()
    big = model(
        [node("Add", ["x", "c"], ["y"])], {"x": (F, [100])}, ["y"], {"c": np.ones(100, np.float32)}
    ).SerializeToString()
    (tmp_path / "cut.onnx").write_bytes(big[: len(big) // 2])
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "text.onnx").write_text("hello world, this is not a model")
    (tmp_path / "good.onnx").write_bytes(good)
    for path, message in [
        ("none.onnx", "there is no file"),
        (".", "is a directory"),
        ("empty.onnx", "the file is empty"),
        ("text.onnx", "is not an ONNX model"),
        ("cut.onnx", "cut short or damaged"),
    ]:
        with pytest.raises(ModelError) as caught:
            nt.from_onnx(tmp_path / path)
        assert message in str(caught.value), path
    for source in (tmp_path / "good.onnx", str(tmp_path / "good.onnx"), good, onnx.load_from_string(good)):
        assert ops(nt.from_onnx(source)) == ["relu"]


def test_every_cut_of_a_model_is_a_clear_error() -> None:
    content = model(
        [node("Add", ["x", "c"], ["y"], name="n")], {"x": (F, [3])}, ["y"], {"c": np.ones(3, np.float32)}
    ).SerializeToString()
    for end in range(0, len(content), 7):
        with pytest.raises(ModelError):
            nt.from_onnx(content[:end])


def test_opsets_and_domains() -> None:
    m = model([node("Relu", ["x"], ["y"])], {"x": (F, [2])}, ["y"])
    m.opset_import[0].version = 999
    with pytest.raises(ModelError, match="uses opset 999, but the newest one known here is"):
        nt.from_onnx(m)
    m = model([node("Magic", ["x"], ["y"], domain="com.example", name="magic")], {"x": (F, [2])}, ["y"])
    m.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedError, match="com.example.Magic: magic"):
        nt.from_onnx(m)


def test_all_unsupported_operators_at_once_with_their_nodes() -> None:
    inner = helper.make_graph(
        [node("Foo", ["x"], ["z"], name="deep")], "b", [], [helper.make_empty_tensor_value_info("z")]
    )
    m = model(
        [
            node("Foo", ["x"], ["a"], name="first"),
            node("Relu", ["a"], ["b"]),
            node("Bar", ["b"], ["c"], name="second"),
            node("If", ["k"], ["y"], name="choice", then_branch=inner, else_branch=inner),
        ],
        {"x": (F, [2]), "k": (TensorProto.BOOL, [])},
        ["c", "y"],
    )
    assert nt.unsupported(m) == {"Foo": ["first", "choice/deep", "choice/deep"], "Bar": ["second"]}
    with pytest.raises(UnsupportedError) as caught:
        nt.from_onnx(m)
    assert "2 operators" in str(caught.value) and "first" in str(caught.value) and "second" in str(caught.value)
    assert nt.unsupported(model([node("Relu", ["x"], ["y"])], {"x": (F, [2])}, ["y"])) == {}


def test_shapes_that_do_not_fit_name_the_node_where_it_first_goes_wrong() -> None:
    m = model(
        [node("Relu", ["x"], ["a"], name="fine"), node("MatMul", ["a", "w"], ["y"], name="wrong")],
        {"x": (F, [2, 3])},
        ["y"],
        {"w": random(4, 5)},
    )
    with pytest.raises(ShapeError) as caught:
        nt.from_onnx(m)
    for part in ("node wrong", "matmul", "a: float32[2, 3]", "w: float32[4, 5]", "node 1"):
        assert part in str(caught.value)


def test_a_value_that_must_be_known_when_compiling() -> None:
    m = model([node("Reshape", ["x", "s"], ["y"], name="rs")], {"x": (F, [2, 3]), "s": (TensorProto.INT64, [2])}, ["y"])
    with pytest.raises(UnsupportedError, match="node rs: Reshape needs operand 1 .s. when compiling"):
        nt.from_onnx(m)
    g = nt.from_onnx(m, params={"s": np.array([3, 2])})
    assert dims.constants(g.outputs[0].shape) == (3, 2)


def test_shapes_and_params_that_do_not_exist_or_fit() -> None:
    m = model([node("Relu", ["x"], ["y"])], {"x": (F, ["n", 3])}, ["y"])
    for options, message in [
        ({"shapes": {"z": (1,)}}, "no input called 'z'"),
        ({"shapes": {"x": (1,)}}, "has 2 dimensions, but 1 sizes are given"),
        ({"shapes": {"x": (1, 4)}}, "dimension 1 of the input x is 3 in the model, not 4"),
        ({"params": {"z": random(1)}}, "no input or initialiser called 'z'"),
    ]:
        with pytest.raises(ModelError) as caught:
            nt.from_onnx(m, **options)
        assert message in str(caught.value)
    assert dims.constants(nt.from_onnx(m, {"x": (5, None)}).inputs[0].shape) == (5, 3)
    assert dims.text(nt.from_onnx(m, {"x": ("batch", 3)}).inputs[0].shape[0]) == "batch"


# ---------------------------------------------------------------------------------------------------------- dimensions


def test_named_dimensions_are_symbols_and_nameless_ones_their_own() -> None:
    m = model(
        [node("Relu", ["x"], ["y"]), node("Relu", ["z"], ["w"])],
        {"x": (F, ["batch size", 3, "?", None]), "z": (F, ["batch size", "?", -1, 7])},
        ["y", "w"],
    )
    x, z = nt.from_onnx(m).inputs
    assert [dims.text(d) for d in x.shape] == ["batch_size", "3", "x_2", "x_3"]
    assert [dims.text(d) for d in z.shape] == ["batch_size", "z_1", "z_2", "7"]


def test_shape_arithmetic_leaves_no_nodes() -> None:
    i64 = np.int64
    constants = {
        "zero": np.array(0, i64), "one": np.array([1], i64), "minus": np.array([-1], i64), "two": np.array([2], i64),
        "start": np.array([1], i64), "end": np.array([3], i64),
    }  # fmt: skip
    m = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "zero_axes"], ["n1"]),
            node("Slice", ["s", "start", "end"], ["hw"]),
            node("Cast", ["hw"], ["hw32"], to=TensorProto.INT32),
            node("Cast", ["hw32"], ["hw64"], to=TensorProto.INT64),
            node("Mul", ["hw64", "two"], ["hw2"]),
            node("Div", ["hw2", "two"], ["hw3"]),
            node("ReduceProd", ["hw3"], ["area"], keepdims=1),
            node("Concat", ["n1", "area", "minus"], ["target"], axis=0),
            node("Reshape", ["x", "target"], ["y"]),
            node("ConstantOfShape", ["n1"], ["zeros"]),
            node("Expand", ["one_f", "s"], ["wide"]),
        ],
        {"x": (F, ["n", 4, "w", 2])},
        ["y", "zeros", "wide"],
        {**constants, "zero_axes": np.array([0], i64), "one_f": np.ones((1,), np.float32)},
    )
    g = nt.from_onnx(m).apply("dead_nodes")
    assert ops(g) == ["reshape", "full", "expand"]
    assert [dims.shape_text(v.shape) for v in g.outputs] == ["[n, 4*w, 2]", "[n]", "[n, 4, w, 2]"]
    x = random(3, 4, 5, 2)
    y, zeros, wide = nt.compile(g).run([x])
    np.testing.assert_array_equal(y, x.reshape(3, 20, 2))
    assert zeros.tolist() == [0, 0, 0] and wide.shape == x.shape and (wide == 1).all()


def test_constants_to_tensor_to_shape_to_reshape() -> None:
    """apache/tvm#20192, #20193: shapes computed from constants and shapes."""
    m = model(
        [
            node("Constant", [], ["a"], value_ints=[2, 3]),
            node("Shape", ["x"], ["b"]),
            node("Shape", ["b"], ["rank"]),
            node("Concat", ["rank", "three"], ["c"], axis=0),
            node("Reshape", ["x", "c"], ["y"]),
            node("Reshape", ["y", "a"], ["z"]),
            node("Add", ["z", "z"], ["w"]),
        ],
        {"x": (F, [6, 1])},
        ["w"],
        {"three": np.array([3], np.int64)},
    )
    [w] = nt.compile(m).run([random(6, 1)])
    np.testing.assert_array_equal(w, 2 * random(6, 1).reshape(2, 3))


def test_reshape_zeros_and_one_shape_for_two() -> None:
    """apache/tvm#20151, #20174, #7109: 0 in a shape, and one shape for two nodes."""
    shape = np.array([0, 3], np.int64)
    m = model(
        [node("Reshape", ["x", "s"], ["y"]), node("Reshape", ["c", "s"], ["z"])],
        {"x": (F, ["n", 3])},
        ["y", "z"],
        {"s": shape, "c": random(2, 3)},
    )
    y, z = nt.compile(m).run([random(4, 3)])
    assert y.shape == (4, 3) and z.shape == (2, 3)
    m = model(
        [node("Reshape", ["x", "s"], ["y"], allowzero=1)], {"x": (F, [2, 0])}, ["y"], {"s": np.array([0, 2], np.int64)}
    )
    assert nt.compile(m).run([np.zeros((2, 0), np.float32)])[0].shape == (0, 2)


# -------------------------------------------------------------------------------------------------- against onnxruntime


def agree(m: onnx.ModelProto, inputs: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Every level gives what onnxruntime gives."""
    import onnxruntime

    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    for level in (0, 3):
        for got, want in zip(nt.compile(m, opt_level=level).run(inputs), expected, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "constants"),
    [
        ("Gemm", [(3, 4), (4, 5), (5,)], {}, {}),
        ("Gemm", [(4, 3), (5, 4), (3, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, {}),
        ("Gemm", [(3, 4), (5, 4), (5,)], {"transB": 1}, {}),
        ("Gemm", [(3, 4), (4, 5)], {"alpha": 2.0}, {}),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (3,)], {"epsilon": 1e-2}, {}),
        ("Pad", [(2, 3)], {}, {"pads": np.array([0, 1, 2, 0]), "value": np.array(1.5, np.float32)}),
        ("Pad", [(2, 5)], {"mode": "reflect"}, {"pads": np.array([1, 2, 0, 1])}),
        ("Trilu", [(4, 5)], {"upper": 0}, {"k": np.array(1)}),
        ("Conv", [(1, 2, 7, 8), (3, 2, 3, 3), (3,)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {}),
        ("Conv", [(1, 4, 9), (4, 2, 3)], {"group": 2, "pads": [1, 2]}, {}),
        ("MaxPool", [(1, 2, 7, 7)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {}),
        ("AveragePool", [(1, 2, 6, 6)], {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}, {}),
        ("Softmax", [(2, 3, 4)], {"axis": 1}, {}),
        ("Clip", [(3, 4)], {}, {"low": np.array(-0.5, np.float32), "high": np.array(0.5, np.float32)}),
        ("Clip", [(3, 4)], {}, {"": np.array(0), "high": np.array(0.5, np.float32)}),
        ("Transpose", [(2, 3, 4)], {"perm": [2, 0, 1]}, {}),
        ("ReduceMean", [(2, 3, 4)], {"axes": [1], "keepdims": 0}, {}),
        ("LayerNormalization", [(2, 3, 8), (8,), (8,)], {}, {}),
    ],
)
def test_operators_agree_with_onnxruntime(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], constants: dict[str, np.ndarray]
) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    m = model(
        [node(op, [*names, *constants], ["y"], **attrs)],
        {n: (F, s) for n, s in zip(names, shapes)},
        ["y"],
        {n: a for n, a in constants.items() if n},
    )
    inputs = {n: np.abs(random(*s, seed=i)) + 0.1 for i, (n, s) in enumerate(zip(names, shapes))}
    agree(m, inputs)


def test_split_by_sizes_by_count_and_with_a_rest() -> None:
    m = model(
        [
            node("Split", ["x", "sizes"], ["a", "b"], axis=1),
            node("Split", ["x"], ["c", "d", "e"], axis=1, num_outputs=3),
        ],
        {"x": (F, [2, 8])},
        ["a", "b", "c", "d", "e"],
        {"sizes": np.array([5, 3], np.int64)},
        opset=18,
    )
    agree(m, {"x": random(2, 8)})


def test_casts_of_floats_to_small_integers() -> None:
    """apache/tvm#19542: 300 to int8 is 44."""
    m = model([node("Cast", ["x"], ["y"], to=TensorProto.INT8)], {"x": (F, [4])}, ["y"])
    [y] = nt.compile(m).run([np.array([300.0, 50.7, -50.7, 0.0], np.float32)])
    assert y.tolist() == [44, 50, -50, 0] and y.dtype == np.int8


def test_dropout_is_nothing_when_inferring() -> None:
    m = model([node("Dropout", ["x"], ["y", "mask"]), node("Relu", ["y"], ["z"])], {"x": (F, [3])}, ["z", "mask"])
    agree(m, {"x": random(3)})


def test_batch_norm_by_given_and_by_own_statistics() -> None:
    """apache/tvm#18703: the given statistics unless training."""
    names = ["x", "s", "b", "m", "v"]
    inputs = {n: (F, [2, 3, 4] if n == "x" else [3]) for n in names}
    values = {n: np.abs(random(*s[1], seed=i)) + 0.1 for i, (n, s) in enumerate(inputs.items())}
    given = model([node("BatchNormalization", names, ["y"])], inputs, ["y"])
    agree(given, values)
    training = model([node("BatchNormalization", names, ["y", "rm", "rv"], training_mode=1)], inputs, ["y", "rm", "rv"])
    agree(training, values)
    assert ops(nt.from_onnx(training)) == ["batch_norm_training"]


# --------------------------------------------------------------------------------------------------------- control flow


def branchy(condition: str = "k") -> onnx.ModelProto:
    """If with captured inputs, weights of the outer graph, a nested If and a value made outside."""

    def out(*names: str) -> list[Any]:
        return [helper.make_empty_tensor_value_info(n) for n in names]

    inner_then = helper.make_graph([node("Exp", ["r"], ["i1"])], "it", [], out("i1"))
    inner_else = helper.make_graph([node("Neg", ["x"], ["i2"])], "ie", [], out("i2"))
    then = helper.make_graph(
        [
            node("MatMul", ["r", "w"], ["t0"]),
            node("If", ["k2"], ["t1"], name="inner", then_branch=inner_then, else_branch=inner_else),
            node("Add", ["t0", "t1"], ["t2"]),
            node("Identity", ["r"], ["t3"]),
        ],
        "then", [], out("t2", "t3"),
    )  # fmt: skip
    other = helper.make_graph(
        [node("Sub", ["x", "w"], ["e"]), node("Identity", ["x"], ["e2"])], "else", [], out("e", "e2")
    )
    return model(
        [
            node("Relu", ["x"], ["r"]),
            node("If", [condition], ["y", "z"], name="choice", then_branch=then, else_branch=other),
            node("Add", ["y", "r"], ["last"]),
        ],
        {"x": (F, [3, 3]), "k": (TensorProto.BOOL, []), "k2": (TensorProto.BOOL, [1])},
        ["last", "z"],
        {"w": random(3, 3, seed=5), "yes": np.array(True)},
    )


@pytest.mark.parametrize("k", [True, False])
@pytest.mark.parametrize("k2", [True, False])
def test_if_takes_either_branch(k: bool, k2: bool) -> None:
    """apache/tvm#14647: If with captured values and a branch in a branch."""
    inputs = {"x": random(3, 3), "k": np.array(k), "k2": np.array([k2])}
    agree(branchy(), inputs)
    executable = nt.compile(branchy(), opt_level=2)
    got = executable.debug(inputs)
    for name, array in zip([o.name for o in executable.outputs], executable.run(inputs)):
        assert got[name].tobytes() == array.tobytes()


def test_a_known_condition_leaves_one_branch() -> None:
    g = nt.from_onnx(branchy("yes"))
    assert [op.split("[")[0] for op in ops(g)] == ["relu", "matmul", "if", "add", "identity", "add"]


def test_branches_of_different_types_are_refused() -> None:
    def branch(shape: list[int]) -> Any:
        constant = numpy_helper.from_array(np.zeros(shape, np.float32), "c")
        return helper.make_graph(
            [node("Constant", [], ["v"], value=constant)], "b", [], [helper.make_empty_tensor_value_info("v")]
        )

    m = model(
        [node("If", ["k"], ["y"], name="choice", then_branch=branch([2]), else_branch=branch([3]))],
        {"k": (TensorProto.BOOL, [])},
        ["y"],
    )
    with pytest.raises(nt.UserError, match="node choice.*float32.2. in one branch and float32.3. in the other"):
        nt.from_onnx(m)
