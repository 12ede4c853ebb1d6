"""Measuring: probes, the work of a model, engines in their own processes, windows that count, what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nestor
from nestor.bench.engine import read_arrays, write_arrays
from nestor.bench.engines import require_engines
from nestor.bench.measure import (
    EngineError,
    EngineProcess,
    EngineReport,
    Plan,
    Window,
    compare_engines,
    largest_difference,
)
from nestor.bench.probe import (
    LEVELS,
    CoreProbe,
    MachineFloor,
    copy_bandwidth,
    copy_program,
    fma_peak,
    fma_program,
)
from nestor.bench.work import graph_work
from nestor.cli.bench import engine_names, remarks, result_table
from nestor.cli.options import OptionError
from targets.build import resolve
from tensorir.errors import UserError
from tensorir.interpreter import interpret

Command = Callable[..., tuple[int, str, str]]


def _model(tmp_path: Path, nodes: list[onnx.NodeProto], shape: list[int | str], weights: dict[str, np.ndarray]) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def tanh_model(tmp_path: Path) -> Path:
    return _model(tmp_path, [helper.make_node("Tanh", ["x"], ["y"])], ["n", 4], {})


# ---------------------------------------------------------------------------------------------------------- probes


@pytest.mark.parametrize("threads", [1, 2])
def test_the_fma_program_computes_what_it_counts(threads: int) -> None:
    func = fma_program(resolve("llvm"), threads)
    lanes = resolve("llvm").vector_bits // 32
    factors = np.repeat(np.array([0.5, 1.0], np.float32), lanes)
    sums = np.full(threads * lanes, np.nan, np.float32)
    interpret(func, [factors, sums], {func.dims[0]: 3})
    np.testing.assert_array_equal(sums, np.float32(12 * 1.875))  # ((1/2 + 1)/2 + 1)/2 + 1


def test_the_copy_program_copies_everything() -> None:
    target = resolve("llvm")
    func = copy_program(target, 2)
    source = np.arange(2 * 3 * 4 * (target.vector_bits // 32), dtype=np.float32)
    copied = np.full_like(source, np.nan)
    interpret(func, [source, copied], dict(zip(func.dims, (3, 2))))
    np.testing.assert_array_equal(copied, source)


def test_rates_are_possible_ones() -> None:
    for threads in (1, 2):
        assert 1e8 < fma_peak(threads, windows=1, window=0.001) < 1e13
    for level in LEVELS[:2]:
        assert 1e7 < copy_bandwidth(level, 1, windows=1, window=0.001) < 1e13


def test_cores_are_whole_at_95_percent_each() -> None:
    assert CoreProbe(2, 100.0, 190.0).whole and not CoreProbe(2, 100.0, 189.0).whole
    assert CoreProbe(1, 100.0, 100.0).whole


def test_a_floor_is_the_longer_of_arithmetic_and_traffic() -> None:
    floor = MachineFloor(2, 1e11, {"L1": 4e11, "L2": 2e11, "L3": 1e11, "DRAM": 1e10})
    assert floor.seconds(1e9, 1000) == pytest.approx(0.01)
    assert floor.seconds(0, 1e10) == pytest.approx(1.0)
    assert floor.seconds(0, 0) == 0.0


# ------------------------------------------------------------------------------------------------------------ work


def test_padded_taps_are_no_work(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2])
    path = _model(
        tmp_path,
        [conv, helper.make_node("Relu", ["c"], ["y"])],
        [1, 3, 7, 9],
        {"w": np.zeros((5, 3, 3, 3), np.float32)},
    )
    taps = [sum(0 <= 2 * o + k - 1 < size for o in range(-(-size // 2)) for k in range(3)) for size in (7, 9)]
    assert graph_work(nestor.from_onnx(path)).flop == 2 * 5 * 3 * taps[0] * taps[1]


def test_work_beyond_32_bits_is_exact() -> None:
    """apache/tvm#10935: a product of 4096 x 4096 x 4096 is 2^37 operations, and counts add up."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "n"])
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("MatMul", ["p", "x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "n"])])
    made = nestor.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert graph_work(made, {"n": 4096}).flop == 2 * (1 << 37)


def test_products_are_counted_at_the_given_sizes(tmp_path: Path) -> None:
    path = _model(
        tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", 7], {"w": np.zeros((7, 11), np.float32)}
    )
    graph = nestor.from_onnx(path)
    work = graph_work(graph, {"n": 5})
    assert (work.flop, work.nbytes) == (2 * 5 * 7 * 11, 4 * (5 * 7 + 7 * 11 + 5 * 11))
    assert graph_work(nestor.from_onnx(path, shapes={"x": (5, 7)})) == work


# --------------------------------------------------------------------------------------------------------- engines


def test_arrays_survive_the_exchange(tmp_path: Path) -> None:
    import ml_dtypes

    arrays = {
        "a/b:0": np.arange(6, dtype=np.int64).reshape(2, 3),
        "": np.float32(3).reshape(()),
        "b": np.array([1.5, -2], ml_dtypes.bfloat16),
        "e": np.zeros((0, 3), np.float16),
        "t": np.array([True, False]),
    }
    write_arrays(tmp_path / "a.npz", arrays)
    found = read_arrays(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_engines_answer_the_same_in_processes_of_their_own(tanh_model: Path) -> None:
    probes = iter([2.0, 2.0, 1.5, 2.0, 2.0, 2.0] + [2.0] * 40)
    steps: list[str] = []
    reports = compare_engines(
        ("nestor", "onnxruntime"),
        tanh_model,
        {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)},
        Plan(window=0.05, rounds=2, threads=2),
        progress=steps.append,
        probe=lambda threads: CoreProbe(threads, 1.0, next(probes)),
    )
    ours, rival = reports
    assert (ours.name, ours.precision, rival.precision) == ("nestor", "float32", "float32")
    assert rival.difference is not None and rival.difference < 1e-6 and ours.difference is None
    assert [w.kept for w in ours.windows] == [True, True] and [w.kept for w in rival.windows] == [False, True, True]
    assert all(0 < r.min <= r.median for r in reports) and rival.trusted
    assert steps[:2] == ["building nestor", "building onnxruntime"]
    assert steps[2:5] == ["window 1 of nestor", "window 1 of onnxruntime", "window 2 of nestor"]


def test_openvino_is_held_to_float32_and_its_default_is_named(tanh_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    write_arrays(tmp_path / "in.npz", {"x": np.ones((1, 4), np.float32)})
    with EngineProcess("openvino", tanh_model, tmp_path / "in.npz", 2, {}) as process:
        assert process.facts()["precision"] == "float32"
        assert process.ask(do="window", seconds=0.01)["count"] >= 5
    with EngineProcess("openvino-default", tanh_model, tmp_path / "in.npz", 2, {}) as process:
        assert process.facts()["precision"] in ("float32", "bfloat16", "float16")


def test_an_engine_that_cannot_run_the_model_says_why(tmp_path: Path) -> None:
    strange = _model(tmp_path, [helper.make_node("Strange", ["x"], ["y"], domain="nowhere")], [1, 4], {})
    inputs = {"x": np.ones((1, 4), np.float32)}
    with pytest.raises(EngineError, match="the engine onnxruntime failed"):
        compare_engines(("onnxruntime",), strange, inputs, Plan(0.01, 1))
    with pytest.raises(EngineError, match=r"the engine nestor failed: (.|\n)*nowhere.Strange"):
        compare_engines(("nestor",), strange, inputs, Plan(0.01, 1), failures={})


def test_a_rival_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tanh_model: Path) -> None:
    start = EngineProcess.facts

    def facts(self: EngineProcess) -> dict[str, object]:
        if self.name == "onnxruntime":
            raise EngineError("the engine onnxruntime failed: no such operator")
        return start(self)

    monkeypatch.setattr(EngineProcess, "facts", facts)
    failures: dict[str, str] = {}
    whole = CoreProbe(1, 1.0, 1.0)
    reports = compare_engines(
        ("nestor", "onnxruntime"),
        tanh_model,
        {"x": np.ones((1, 4), np.float32)},
        Plan(0.01, 1, 1),
        failures=failures,
        probe=lambda threads: whole,
    )
    assert [r.name for r in reports] == ["nestor"] and "no such operator" in failures["onnxruntime"]


def test_unknown_and_missing_engines_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no engine is called 'tvm'(.|\n)*onnxruntime"):
        require_engines(("tvm",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="openvino is not installed"):
        require_engines(("openvino",))


def test_engine_names() -> None:
    model = Path("m.onnx")
    assert engine_names(" openvino , onnxruntime,openvino", model) == ("openvino", "onnxruntime")
    assert engine_names("none", Path("m.nst")) == ()
    with pytest.raises(OptionError, match="an artifact, which only nestor runs"):
        engine_names("onnxruntime", Path("m.nst"))


def test_differences_are_relative_to_the_largest_value() -> None:
    wanted = {"y": np.array([1.0, -4.0]), "only": np.ones(1)}
    assert largest_difference({"y": np.array([1.0, -3.0])}, wanted) == 0.25
    assert largest_difference({"y": np.ones(3)}, wanted) == float("inf")
    assert largest_difference({}, wanted) is None


# --------------------------------------------------------------------------------------------------------- reports


def _report(name: str, precision: str, median: float, *, kept: bool = True) -> EngineReport:
    window = Window(median * 0.9, median, 100, 2.0, 2.0, kept)
    slow = Window(median * 0.1, median * 0.2, 100, 1.0, 1.0, False)
    return EngineReport(name, "1.0", precision, 1.0, 0.1, [slow, window])


def test_dropped_windows_do_not_count() -> None:
    report = _report("nestor", "float32", 0.010)
    assert (report.min, report.median, report.trusted) == (pytest.approx(0.009), 0.010, True)
    doubtful = _report("nestor", "float32", 0.010, kept=False)
    assert not doubtful.trusted and doubtful.median == pytest.approx(0.002)


def test_the_verdict_is_against_the_same_precision() -> None:
    reports = [
        _report("nestor", "float32", 0.010),
        _report("onnxruntime", "float32", 0.020),
        _report("openvino-default", "bfloat16", 0.005, kept=False),
    ]
    lines = remarks(reports, flop=10**9, peak=2e11, bandwidth=1e10, threads=2)
    assert "against the best at the same precision (onnxruntime): 0.50 of its time" in lines
    assert "floor: 5.000 ms for 1.000 GFLOP of products, padded taps left out" in lines
    assert any("caution: no window of openvino-default had all 2 cores" in line for line in lines)
    table = result_table("m", reports, flop=10**9, peak=2e11, threads=2)
    assert [list(c.cells) for c in table.columns][:5] == [
        ["nestor", "onnxruntime", "openvino-default"],
        ["float32", "float32", "bfloat16"],
        ["9.000", "18.000", "0.500"],
        ["10.000", "20.000", "[bold green]1.000[/bold green]"],
        ["", "0.50", "10.00"],
    ]


def test_bench_prints_a_table_and_writes_json(tanh_model: Path, tmp_path: Path) -> None:
    written = tmp_path / "b.json"
    command = ["bench", tanh_model, "--shape", "x=3,4", "--against", "onnxruntime", "--window", "0.05", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "nestor", *map(str, command), "--json", str(written)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "nestor" in done.stdout and "onnxruntime" in done.stdout and "GFLOP/s of FMA" in done.stdout
    data = json.loads(written.read_text())
    assert [e["name"] for e in data["engines"]] == ["nestor", "onnxruntime"]
    assert data["engines"][1]["difference"] < 1e-6 and data["fma_peak"] > 0
