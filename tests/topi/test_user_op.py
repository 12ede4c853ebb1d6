"""An op in one cell, as a user writes it: compute, schedule, reference, ONNX custom domain; its own test; and a model
with a dynamic batch that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nestor as nt
from nestor import te
from topi.op import registered_ops
from topi.op_test import OpTestError


@pytest.fixture(autouse=True)
def forget_ops() -> Iterator[None]:
    """Ops of a test are gone after it."""
    yield
    for name in ("my_op", "probe"):
        registered_ops().pop(name, None)


def define_my_op() -> Any:
    """y[n, j] = scale * sum over k of |x[n, k] - w[j, k]|: what a notebook cell says of it."""

    @nt.op("my_op", onnx=[nt.Onnx("MyOp", domain="my.domain", attrs={"scale": nt.attribute("scale", 1.0)})])
    def my_op(x: Any, w: Any, /, *, scale: float = 1.0) -> Any:
        """Scaled distances of rows."""
        k = te.reduce_axis((0, x.shape[1]), name="k")
        d = te.compute(
            (x.shape[0], w.shape[0]), lambda n, j: te.sum(te.abs(x[n, k] - w[j, k]), axis=k), name="distance"
        )
        return te.compute(d.shape, lambda n, j: d[n, j] * te.const(scale, x.dtype), name="my_op")

    @my_op.schedule("llvm")
    def _(group: Any, target: Any) -> Any:
        s = nt.create_schedule(group.outputs)
        [last] = group.outputs
        n, j = s[last].axis
        j_o, j_i = s[last].split(j, factor=4)
        s[last].unroll(j_i)
        s[last].parallel(n)
        for stage in s.stages:
            if stage.name == "distance":
                stage.compute_at(s[last], j_o)
        return s

    @my_op.reference
    def _(x: Any, w: Any, *, scale: float = 1.0) -> Any:
        return scale * np.abs(x[:, None, :] - w[None, :, :]).sum(-1)

    my_op.case([("n", 8), (5, 8)])
    my_op.case([(4, 16), (16, 16)], scale=0.5)
    return my_op


def model(batch: str | int = "batch") -> onnx.ModelProto:
    """Relu, MyOp, Add."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("MyOp", ["r", "w"], ["d"], domain="my.domain", scale=0.25, name="distances"),
        helper.make_node("Add", ["d", "b"], ["y"]),
    ]
    rng = np.random.default_rng(3)
    w, b = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def expected(x: np.ndarray) -> np.ndarray:
    """What the model means."""
    w, b = (onnx.numpy_helper.to_array(t) for t in model().graph.initializer)
    return 0.25 * np.abs(np.maximum(x, 0)[:, None, :] - w[None]).sum(-1) + b


def test_my_op_passes_its_own_test() -> None:
    report = define_my_op().test()
    assert report.runs > 30
    assert str(report).startswith("my_op: ")


@pytest.mark.parametrize("opt_level", [0, 3])
def test_a_model_with_my_op_runs_at_any_batch(opt_level: int) -> None:
    define_my_op()
    exe = nt.compile(model(), target="llvm", opt_level=opt_level)
    for batch in (1, 3, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
        [y] = exe.run({"x": x})
        np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-5)


def test_the_reference_target_agrees() -> None:
    define_my_op()
    x = np.random.default_rng(5).standard_normal((3, 8)).astype(np.float32)
    [a] = nt.compile(model(), target="reference").run({"x": x})
    np.testing.assert_allclose(a, expected(x), rtol=1e-5, atol=1e-5)


def test_without_the_op_the_model_says_what_is_missing() -> None:
    assert nt.unsupported(model()) == {"my.domain.MyOp": ["distances"]}
    define_my_op()
    assert nt.unsupported(model()) == {}


def test_a_cell_may_be_run_again() -> None:
    define_my_op()
    again = define_my_op()
    assert registered_ops()["my_op"] is again


# ------------------------------------------------------------------------------------------------ what the test finds


def simple(compute: Any, reference: Any = None) -> Any:
    """An op of one operand with one case."""
    made = nt.op("probe")(compute)
    made.reference(reference or (lambda x: np.tanh(x)))
    made.case([(6, 8)])
    return made


def test_a_wrong_compute_is_found() -> None:
    def compute(x: Any, /) -> Any:
        return te.compute(x.shape, lambda i, j: te.select(i < 3, te.tanh(x[i, j]), x[i, j]), name="probe")

    with pytest.raises(
        OpTestError, match=r"case \[\(6, 8\)\], compute: the result is .* at \[3, 0\] where the reference"
    ):
        simple(compute).test()


def test_a_compute_that_reads_out_of_bounds_is_found() -> None:
    def compute(x: Any, /) -> Any:
        at = lambda i, j: te.select(j > 0, x[i, j - 1], x[i, j])  # noqa: E731 - both sides are read
        return te.compute(x.shape, at, name="probe")

    with pytest.raises(OpTestError, match="out of bounds|outside|leaves"):
        simple(compute, lambda x: np.concatenate([x[:, :1], x[:, :-1]], 1)).test()


def test_an_illegal_schedule_is_found() -> None:
    def compute(x: Any, /) -> Any:
        k = te.reduce_axis(x.shape[1], "k")
        return te.compute(x.shape[:1], lambda i: te.sum(x[i, k], axis=k), name="probe")

    made = simple(compute, lambda x: x.sum(1))

    @made.schedule("llvm")
    def _(group: Any, target: Any) -> Any:
        s = nt.create_schedule(group.outputs)
        s[group.outputs[0]].parallel(s[group.outputs[0]].reduce_axis[0])
        return s

    with pytest.raises(OpTestError, match="llvm, own schedule: ScheduleError: parallel"):
        made.test()


def test_a_shape_that_breaks_is_found() -> None:
    def compute(x: Any, /) -> Any:
        half = int(x.shape[1].value) // 2
        k = te.reduce_axis(half, "k")
        return te.compute(x.shape[:1], lambda i: te.sum(x[i, k] + x[i, k + half], axis=k), name="probe")

    with pytest.raises(OpTestError, match=r"case \[\(6, 1\)\], compute"):
        simple(compute, lambda x: x.sum(1)).test()


def test_a_compute_that_cannot_take_a_symbol_is_found() -> None:
    def compute(x: Any, /) -> Any:
        rows = int(x.shape[0].value)
        return te.compute((rows, x.shape[1]), lambda i, j: te.tanh(x[i, j]), name="probe")

    made = simple(compute)
    made.case([("n", 4)])
    with pytest.raises(OpTestError, match="compute with symbolic n"):
        made.test()


def test_an_op_without_cases_or_reference_says_so() -> None:
    made = nt.op("probe")(lambda x, /: te.compute(x.shape, lambda *i: x[i], name="probe"))
    with pytest.raises(OpTestError, match="there is no case"):
        made.test()
    made.case([(3,)])
    with pytest.raises(OpTestError, match="there is no reference"):
        made.test()
