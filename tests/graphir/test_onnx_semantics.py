"""What ONNX operators give at the edges, from public reports: with every operand known at run time only and with every
operand a constant (so folded), at every opt level. Each case names the report; its values are the right ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import nestor as nt
from tensorir.errors import UserError
from tests.graphir.test_onnx import model, node

NAN, INF = np.nan, np.inf
FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
LEVELS = (0, 1, 2, 3)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One node: its operands (None: left out), its attributes, its results. `held` operands are always constants."""

    report: str
    op: str
    operands: tuple[np.ndarray | None, ...]
    results: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 18
    held: tuple[int, ...] = ()
    tolerance: float = 0.0


TABLE = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
TEN = np.arange(10, dtype=np.float32)
SQUARE = np.arange(9, dtype=np.float32).reshape(3, 3)
CUBE = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
X4 = np.random.default_rng(0).standard_normal((1, 4, 4, 4)).astype(np.float32)
SLOPES = [np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((1,), (4, 1, 1), (1, 4, 4, 4))]
ORDER = np.array([0, 0, 0, 1, 1, 2, 2])
Q8 = np.array([[1, 1, 1], [4, 4, 4]], np.int8)
LOW8 = np.full((1, 1, 3, 3), -5, np.int8)
BATCH = np.random.default_rng(2).integers(-4, 5, (1, 8, 4, 5, 3, 1)).astype(np.float32)
MATRIX = np.random.default_rng(3).integers(-4, 5, (1, 1, 1, 1, 3, 3)).astype(np.float32)
SIGNED = f32(2, -3)

CASES = [
    Case("apache/tvm#19436", "Gather", (TABLE, i64(0, -1)), (TABLE[[0, 2]],)),
    Case("apache/tvm#20316", "GatherND", (TABLE, np.array([[0, -1], [-3, 1]])), (f32(4, 2),)),
    Case("apache/tvm#20316 batch_dims", "GatherND", (CUBE, np.array([[-1], [0]])), (CUBE[[0, 1], [1, 0]],),
         {"batch_dims": 1}),
    Case("apache/tvm#19532", "Slice", (TEN, i64(0), i64(5), i64(0), i64(-1)), (TEN[:0],)),
    Case("apache/tvm#20263", "Slice", (TEN, i64(-2), i64(10), i64(0)), (TEN[-2:],)),
    Case("apache/tvm#6263", "Slice", (TEN, i64(-2), i64(LAST), i64(0)), (TEN[-2:],)),
    Case("microsoft/onnxruntime#11107", "Slice", (TEN, i64(-1), i64(FIRST), i64(0), i64(-1)), (TEN[::-1],)),
    Case("microsoft/onnxruntime#11107 by the rule", "Slice", (TEN, i64(-1), i64(LAST), i64(0), i64(-1)), (TEN[:0],)),
    Case("apache/tvm#20170 integers", "Mod", (i64(-5, 5), i64(3, -3)), (i64(1, -1),)),
    Case("apache/tvm#6160", "Mod", (i64(-5, 5), i64(3, -3)), (i64(-2, 2),), {"fmod": 1}),
    Case("apache/tvm#20170 floats", "Mod", (f32(-5.5, 5.5), f32(3, -3)), (f32(-2.5, 2.5),), {"fmod": 1}),
    Case("onnx/onnx#7570", "Div", (i64(8, -8, 7, -7), i64(-3, 3, -2, 2)), (i64(-2, -2, -3, -3),)),
    Case("apache/tvm#19579", "Max", (f32(NAN, 1, 2), f32(1, NAN, 3)), (f32(NAN, NAN, 3),)),
    Case("apache/tvm#19572", "Min", (f32(NAN, 1, 2), f32(1, NAN, 3)), (f32(NAN, NAN, 2),)),
    Case("apache/tvm#19540", "Relu", (f32(NAN, -1, 2, -INF),), (f32(NAN, 0, 2, 0),)),
    Case("apache/tvm#19540 sign", "Sign", (f32(NAN, -3, 0),), (f32(NAN, -1, 0),)),
    Case("apache/tvm#19579 reduction", "ReduceMax", (f32([NAN, 1], [2, NAN], [2, 1]), i64(1)), (f32(NAN, NAN, 2),),
         {"keepdims": 0}, held=(1,)),
    Case("pytorch/pytorch#184893", "ArgMax", (f32([1, 1, 0], [1, 0, 1]),), (i64(0, 0),), {"axis": 1, "keepdims": 0}),
    Case("pytorch/pytorch#184893 last", "ArgMax", (f32([1, 1, 0], [1, 0, 1]),), (i64(1, 2),),
         {"axis": 1, "keepdims": 0, "select_last_index": 1}),
    Case("pytorch/pytorch#38922", "ArgMax", (np.zeros((4, 90, 1), np.float32),), (np.zeros((4, 90, 1), np.int64),),
         {"axis": 2}),
    Case("apache/tvm#19542", "Cast", (f32(300, NAN, INF, -INF, 50, -50),),
         (np.array([44, 0, 0, 0, 50, -50], np.int8),), {"to": TensorProto.INT8}),
    Case("pytorch/pytorch#33382", "MaxPool", (LOW8,), (LOW8,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("pytorch/pytorch#41294", "MaxPool", (LOW8.view(np.uint8),), (LOW8.view(np.uint8),),
         {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("apache/mxnet#6191", "MaxPool", (LOW8.astype(np.float32),), (LOW8.astype(np.float32),),
         {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("apache/tvm#19570", "Resize", (SQUARE, None, f32(2.5, 2.5)), (SQUARE[np.ix_(ORDER, ORDER)],), held=(2,)),
    Case("apache/tvm#19570 linear", "Resize", (SQUARE[:1], None, f32(1, 2.5)),
         (f32([0, 0.1, 0.5, 0.9, 1.3, 1.7, 2]),), {"mode": "linear"}, held=(2,), tolerance=1e-6),
    Case("apache/tvm#13020, onnx/onnx#4583", "Resize", (SQUARE[:1], None, f32(1, 2.5)),
         (f32([0, 0, 0, 1, 1, 2, 2]),),
         {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, held=(2,)),
    *(Case(f"apache/tvm#18598 {s.shape}", "PRelu", (X4, s), (np.where(X4 < 0, X4 * s, X4),)) for s in SLOPES),
    Case("microsoft/onnxruntime#19147", "ReduceSum", (SIGNED, i64()), (SIGNED,),
         {"noop_with_empty_axes": 1, "keepdims": 0}, held=(1,)),
    Case("microsoft/onnxruntime#25095", "ReduceSumSquare", (SIGNED,), (f32(4, 9),), {"noop_with_empty_axes": 1}),
    Case("onnx/onnx#7140", "ReduceL1", (SIGNED, i64()), (f32(2, 3),), {"noop_with_empty_axes": 1}, held=(1,)),
    Case("microsoft/onnxruntime#16586", "ReduceL2", (SIGNED,), (f32(2, 3),), {"noop_with_empty_axes": 1}),
    Case("openvino#35889", "ReduceSum", (SIGNED, i64()), (np.array(-1, np.float32),), {"keepdims": 0}, held=(1,)),
    Case("apache/tvm#18072", "ReduceSum", (f32([1, 2], [3, 4]),), (f32([3], [7]),), {"axes": [1]}, opset=11),
    Case("sonos/tract#2849", "DequantizeLinear", (Q8, f32(0.5, 2, 10), np.array([0, 1, -1], np.int8)),
         (f32([0.5, 0, 20], [2, 6, 50]),), {"axis": 1}),
    Case("apache/tvm#9028", "DequantizeLinear", (Q8[1], np.array(0.5, np.float32)), (f32(2, 2, 2),)),
    Case("apache/tvm#20126", "QuantizeLinear", (np.array(-300, np.float32), np.array(1, np.float32),
         np.array(0, np.int8)), (np.array(-128, np.int8),)),
    Case("apache/tvm#20126 even", "QuantizeLinear", (f32(0.5, 1.5, 2.5, -1, 300), np.array(1, np.float32)),
         (np.array([0, 2, 2, 0, 255], np.uint8),)),
    Case("apache/tvm#18135", "CumSum", (f32(1, 2, 3), np.array(0)), (f32(1, 3, 6),), held=(1,)),
    Case("apache/tvm#18135 reverse", "CumSum", (f32(1, 2, 3), np.array(0)), (f32(6, 5, 3),), {"reverse": 1}, held=(1,)),
    Case("apache/tvm#15728", "CumSum", (f32(1, 2, 3), np.array(0)), (f32(0, 1, 3),), {"exclusive": 1}, held=(1,)),
    Case("apache/tvm#15728 both", "CumSum", (f32(1, 2, 3), np.array(-1)), (f32(5, 3, 0),),
         {"exclusive": 1, "reverse": 1}, held=(1,)),
    Case("apache/tvm#18241, microsoft/onnxruntime#10491", "Softplus", (f32(100, -12.3392),),
         (f32(100, 4.3767584e-6),), tolerance=1e-6),
    Case("apache/tvm#19592", "LayerNormalization", (f32([80000, 80001, 80002, 80003]), np.ones(4, np.float32)),
         (f32([-1.3416355, -0.4472118, 0.4472118, 1.3416355]),), tolerance=1e-5),
    Case("microsoft/onnxruntime#29043", "LayerNormalization",
         (np.array([[300, -300, 300, -300]], np.float16), np.ones(4, np.float16)),
         (np.array([[1, -1, 1, -1]], np.float16),), tolerance=1e-3),
    Case("apache/tvm#19559", "Sinh", (f32(88.85, 89, 89.2, -88.95),),
         (f32(1.9321198e38, 2.2448064e38, 2.7418043e38, -2.1353193e38),), tolerance=1e-5),
    Case("apache/tvm#17991", "BitwiseNot", (np.array([0, 1, -128], np.int8),), (np.array([-1, -2, 127], np.int8),)),
    Case("apache/tvm#3361", "TopK", (f32(1, 2, 1, 2, 0), i64(4)), (f32(2, 2, 1, 1), i64(1, 3, 0, 2)), held=(1,)),
    Case("apache/tvm#4860", "TopK", (f32(1, 2, 1, 2, 0), i64(4)), (f32(0, 1, 1, 2), i64(4, 0, 2, 1)),
         {"largest": 0}, held=(1,)),
    Case("apache/tvm#20151", "Reshape", (SQUARE[:2], i64(0, 3)), (SQUARE[:2],), held=(1,)),
    Case("apache/tvm#20174", "Reshape", (np.zeros((2, 0), np.float32), i64(0, 2)), (np.zeros((0, 2), np.float32),),
         {"allowzero": 1}, held=(1,)),
    Case("apache/tvm#19578", "MatMul", (np.zeros((4, 0), np.float32), np.zeros((0, 4), np.float32)),
         (np.zeros((4, 4), np.float32),)),
    Case("apache/tvm#19578 sum", "ReduceSum", (np.zeros((2, 0), np.float32), i64(1)), (f32(0, 0),), {"keepdims": 0},
         held=(1,)),
    Case("apache/tvm#19578 product", "ReduceProd", (np.zeros((2, 0), np.float32), i64(1)), (f32(1, 1),),
         {"keepdims": 0}, held=(1,)),
    Case("apache/tvm#19676", "ReduceMax", (np.array(3, np.float32),), (np.array(3, np.float32),)),
    Case("tt-tvm#85", "MatMul", (MATRIX, BATCH), (MATRIX @ BATCH,)),
    Case("onnx-tool#30", "MatMul", (TABLE[:2, :3], np.arange(60, dtype=np.float32).reshape(4, 3, 5)),
         (TABLE[:2, :3] @ np.arange(60, dtype=np.float32).reshape(4, 3, 5),)),
]  # fmt: skip


def require(found: list[np.ndarray], case: Case, form: str) -> None:
    for got, want in zip(found, case.results, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, form
        np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=0, err_msg=form)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.op}-{c.report}" for c in CASES])
def test_a_reported_case(case: Case) -> None:
    given = {f"x{i}": a for i, a in enumerate(case.operands) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(case.operands)]
    outputs = [f"y{i}" for i in range(len(case.results))]
    op = node(case.op, names, outputs, **case.attrs)
    held = {f"x{i}": given.pop(f"x{i}") for i in case.held}
    inputs = {n: (helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in given.items()}
    at_run_time = model([op], inputs, outputs, held, case.opset)
    constant = model([op], {}, outputs, {**given, **held}, case.opset)
    for level in LEVELS:
        require(nt.compile(at_run_time, opt_level=level).run(given), case, f"run time, level {level}")
        require(nt.compile(constant, opt_level=level).run({}), case, f"constants, level {level}")


def test_a_sum_of_small_integers_wraps_before_it_is_widened() -> None:
    """pytorch/pytorch#105264: int16(x + x) with x = 128 of uint8 is 0, also where both nodes become one kernel."""
    nodes = [node("Add", ["x", "x"], ["s"]), node("Cast", ["s"], ["y"], to=TensorProto.INT16)]
    m = model(nodes, {"x": (TensorProto.UINT8, ["n"])}, ["y"])
    for level in LEVELS:
        [y] = nt.compile(m, opt_level=level).run([np.array([128, 200, 1], np.uint8)])
        assert y.dtype == np.int16 and y.tolist() == [0, 144, 2]


def test_a_gather_from_a_strided_view() -> None:
    """iree-org/iree#19749: x (57, 2, 128) float16, select index 0 of axis 1, then rows of the result."""
    nodes = [node("Gather", ["x", "zero"], ["plane"], axis=1), node("Gather", ["plane", "rows"], ["y"])]
    m = model(
        nodes,
        {"x": (TensorProto.FLOAT16, [57, 2, 128]), "rows": (TensorProto.INT64, [2])},
        ["y"],
        {"zero": np.array(0)},
    )
    x = np.arange(57 * 2 * 128).reshape(57, 2, 128).astype(np.float16)
    for level in LEVELS:
        [y] = nt.compile(m, opt_level=level).run({"x": x, "rows": i64(3, -1)})
        np.testing.assert_array_equal(y, x[[3, 56], 0])


def test_additions_into_a_tensor_are_done_before_it_is_gathered() -> None:
    """pytorch/pytorch#171493: u = f^2 + 0.00987654321 of ones, added into one element, u over that element gathered."""
    n = 256
    nodes = [
        node("Mul", ["f", "f"], ["square"]),
        node("Add", ["square", "small"], ["u"]),
        node("ScatterElements", ["zero", "seg", "u"], ["total"], axis=0, reduction="add"),
        node("Gather", ["total", "rows"], ["back"], axis=0),
        node("Add", ["back", "tiny"], ["below"]),
        node("Div", ["u", "below"], ["y"]),
    ]
    m = model(
        nodes,
        {"f": (TensorProto.FLOAT, [n, 1]), "seg": (TensorProto.INT64, [n, 1]), "rows": (TensorProto.INT64, [n])},
        ["y"],
        {"small": f32(0.00987654321), "zero": np.zeros((1, 1), np.float32), "tiny": f32(1e-6)},
        18,
    )
    given = {"f": np.ones((n, 1), np.float32), "seg": np.zeros((n, 1), np.int64), "rows": np.zeros(n, np.int64)}
    for level in LEVELS:
        [y] = nt.compile(m, opt_level=level).run(given)
        np.testing.assert_allclose(y, np.full((n, 1), 1 / n, np.float32), rtol=1e-5)


def test_a_comparison_of_constants_stays_bool() -> None:
    """apache/tvm#20282: Less of two initialisers is an output, and is used once more."""
    m = model(
        [node("Less", ["a", "b"], ["l"]), node("Where", ["l", "x", "a"], ["y"])],
        {"x": (TensorProto.FLOAT, [2])},
        ["l", "y"],
        {"a": f32(1, 3), "b": f32(2, 2)},
    )
    for level in LEVELS:
        less, y = nt.compile(m, opt_level=level).run([f32(7, 8)])
        assert less.dtype == np.bool_ and less.tolist() == [True, False] and y.tolist() == [7, 3]


def test_two_equal_casts_are_two_outputs() -> None:
    """hidet-org/hidet#379, #381: two identical casts of float16 (41,) returned, and one mean returned twice."""
    m = model(
        [
            node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
            node("Cast", ["x"], ["b"], to=TensorProto.FLOAT),
            node("ReduceMean", ["a"], ["m"], keepdims=0),
            node("Identity", ["m"], ["m2"]),
        ],
        {"x": (TensorProto.FLOAT16, [41])},
        ["a", "b", "m", "m2"],
    )
    x = np.ones(41, np.float16)
    for level in LEVELS:
        outputs = [np.full(41, NAN, np.float32) for _ in range(2)] + [np.full((), NAN, np.float32) for _ in range(2)]
        nt.compile(m, opt_level=level).run([x], outputs=outputs)
        assert all((y == 1).all() for y in outputs)


def test_rewrites_that_meet_keep_every_output() -> None:
    """microsoft/onnxruntime#4110, #32416: a Cast to its own type feeds Mul by 1; each intermediate is an output."""
    m = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Cast", ["r"], ["c"], to=TensorProto.FLOAT),
            node("Mul", ["c", "one"], ["p"]),
            node("Add", ["p", "x"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, ["n"])},
        ["c", "p", "y", "r"],
        {"one": f32(1)},
    )
    x = f32(-1, 2, -3)
    for level in LEVELS:
        c, p, y, r = nt.compile(m, opt_level=level).run([x])
        assert c.tolist() == p.tolist() == r.tolist() == [0, 2, 0] and y.tolist() == [-1, 4, -3]


def test_squeeze_with_axes_as_an_attribute_before_a_transpose() -> None:
    """apache/tvm#8284: opset 11, Squeeze of axis 1 of (2, 1, 3, 1), whose other axis of 1 stays, then Transpose."""
    nodes = [node("Squeeze", ["x"], ["s"], axes=[1]), node("Transpose", ["s"], ["y"], perm=[2, 0, 1])]
    m = model(nodes, {"x": (TensorProto.FLOAT, [2, 1, 3, 1])}, ["y"], opset=11)
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3, 1)
    for level in LEVELS:
        np.testing.assert_array_equal(nt.compile(m, opt_level=level).run([x])[0], x[:, 0].transpose(2, 0, 1))


def test_top_k_of_as_many_as_a_dimension_says() -> None:
    """apache/tvm#19965: k is gathered from the shape of another tensor."""
    nodes = [
        node("Shape", ["other"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["k"]),
        node("TopK", ["x", "k"], ["y", "places"]),
    ]
    m = model(
        nodes,
        {"x": (TensorProto.FLOAT, [6]), "other": (TensorProto.FLOAT, ["n", 2])},
        ["y", "places"],
        {"zero": np.array(0), "axes": i64(0)},
    )
    for level in (0, 3):
        exe = nt.compile(m, opt_level=level)
        for n in (1, 4, 2):
            y, places = exe.run({"x": f32(3, 1, 4, 1, 5, 9), "other": np.zeros((n, 2), np.float32)})
            assert y.tolist() == [9, 5, 4, 3][:n] and places.tolist() == [5, 4, 2, 0][:n]


def test_reshape_by_a_shape_that_is_an_input() -> None:
    """apache/tvm#7109: one run-time shape for two Reshapes; 0 copies a size and -1 takes the rest."""
    nodes = [node("Reshape", ["x", "s"], ["y"]), node("Reshape", ["z", "s"], ["w"])]
    inputs = {"x": (TensorProto.FLOAT, [2, 6]), "z": (TensorProto.FLOAT, [2, 3]), "s": (TensorProto.INT64, [2])}
    exe = nt.compile(model(nodes, inputs, ["y", "w"]), opt_level=1)
    x, z = np.arange(12, dtype=np.float32).reshape(2, 6), SQUARE[:2]
    for shape, first in ((i64(0, -1), (2, 6)), (i64(-1, 3), (4, 3)), (i64(3, -1), (3, 4))):
        y, w = exe.run({"x": x, "z": z, "s": shape})
        np.testing.assert_array_equal(y, x.reshape(first))
        np.testing.assert_array_equal(w, z.reshape((2, 3) if shape[0] == 0 else tuple(shape)))


def test_a_scan_and_a_loop_that_sum() -> None:
    """apache/tvm#14637, #14647: a running sum by Scan, and one by Loop whose body slices what it stacks."""
    import onnxruntime

    def info(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [node("Add", ["total", "row"], ["next"]), node("Identity", ["next"], ["out"])],
        "scan", [info("total", [2]), info("row", [2])], [info("next", [2]), info("out", [2])],
    )  # fmt: skip
    step = helper.make_graph(
        [
            node("Add", ["sum", "start"], ["sum2"]),
            node("Slice", ["sum2", "one", "two"], ["part"]),
            node("Identity", ["go"], ["go2"]),
        ],
        "loop",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("sum", [2])],
        [info("go2", [], TensorProto.BOOL), info("sum2", [2]), info("part", [1])],
    )
    m = model(
        [
            node("Scan", ["start", "x"], ["last", "all"], num_scan_inputs=1, body=body),
            node("Loop", ["trips", "", "last"], ["end", "parts"], body=step),
        ],
        {"start": (TensorProto.FLOAT, [2]), "x": (TensorProto.FLOAT, [3, 2])},
        ["last", "all", "end", "parts"],
        {"trips": np.array(4), "one": i64(1), "two": i64(2)},
    )
    given = {"start": f32(1, 2), "x": np.arange(6, dtype=np.float32).reshape(3, 2)}
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, given)
    for level in LEVELS:
        for got, want in zip(nt.compile(m, opt_level=level).run(given), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_operator_on_a_type_that_it_cannot_take_names_its_node() -> None:
    """apache/tvm#18767, #20399: Tanh of int16 and Div of bool are refused by node and type while reading the model."""
    for op, count, kind, name in (("Tanh", 1, TensorProto.INT16, "int16"), ("Div", 2, TensorProto.BOOL, "bool")):
        m = model([node(op, ["x"] * count, ["y"], name="the_node")], {"x": (kind, [4])}, ["y"])
        with pytest.raises(UserError, match="the_node") as caught:
            nt.compile(m)
        assert name in str(caught.value)


@pytest.mark.parametrize("power", [2.0, 3.0])
def test_squares_and_cubes_are_products(power: float) -> None:
    m = model([node("Pow", ["x", "p"], ["y"])], {"x": (TensorProto.FLOAT, [9])}, ["y"], {"p": f32(power)})
    x = f32(0.0, -0.0, INF, -INF, NAN, 1e-30, -1e30, 1.1, -3.7)
    graph = nt.from_onnx(m)
    assert {n.op for n in graph.nodes} == {"multiply"}
    with np.errstate(all="ignore"):
        want = np.power(x, np.float32(power))
    for level in LEVELS:
        [y] = nt.compile(m, opt_level=level).run([x])
        np.testing.assert_allclose(y, want, rtol=2e-7, atol=0)
        assert (np.signbit(y) == np.signbit(want))[~np.isnan(want)].all()
