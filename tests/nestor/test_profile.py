"""`nestor profile`, `ops`, `cache`, `doctor`, `show` of an artifact, and the table of speed: what they print."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nestor
from graphir.stored import widest_vectors
from nestor.bench.measure import EngineReport, Plan, Window
from nestor.bench.probe import MachineFloor
from nestor.bench.profile import KernelProfile, ModelProfile, profile_model, roofline_svg
from nestor.bench.work import Work
from nestor.cli import main
from nestor.cli.ops import converted, coverage
from nestor.cli.options import OptionError, parse_shape_sets
from nestor.cli.profile import summary
from tests.bench.table import Row, draw, markdown, measure, write_section

FLOOR = MachineFloor(2, 1e11, {"L1": 4e11, "L2": 2e11, "L3": 1e11, "DRAM": 1e10})
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("ops")` gives exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = softmax(relu(x w)) with x of float32[n,32]."""
    weight = np.random.default_rng(0).standard_normal((32, 48), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
            helper.make_node("Relu", ["a"], ["b"], name="clip"),
            helper.make_node("Softmax", ["b"], ["y"], axis=-1, name="soft"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 48])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path_factory.mktemp("profile") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


# --------------------------------------------------------------------------------------------------------- profile


def test_a_profile_knows_the_work_of_each_kernel(model: Path, tmp_path: Path) -> None:
    exe = nestor.compile(model, threads=1)
    inputs = {"x": np.ones((5, 32), np.float32)}
    found = profile_model(exe, inputs, FLOOR, repeats=2)
    assert sum(k.flop or 0 for k in found.kernels) == 2 * 5 * 32 * 48
    [product] = [k for k in found.kernels if k.flop]
    assert "matmul" in product.ops or "dense" in product.ops
    assert product.nbytes >= 4 * (5 * 32 + 32 * 48 + 5 * 48)
    assert product.floor == FLOOR.seconds(product.flop or 0, product.nbytes) and product.seconds > 0
    assert all(k.vector_bits in (0, 128, 256, 512) for k in found.kernels)
    assert found.run_seconds > 0 and json.dumps(found.json())
    exe.save(tmp_path / "m.nst")
    stored = profile_model(nestor.load(tmp_path / "m.nst"), inputs, FLOOR, repeats=1)
    assert [k.nbytes for k in stored.kernels] == [k.nbytes for k in found.kernels]
    assert [k.vector_bits for k in stored.kernels] == [k.vector_bits for k in found.kernels]
    assert [k.implementation for k in stored.kernels] == [k.implementation for k in found.kernels]


def test_profile_prints_a_table_json_and_a_picture(command: Command, model: Path, tmp_path: Path) -> None:
    code, out, err = command(
        "profile",
        model,
        "--shape",
        "x=3,32",
        "--repeats",
        1,
        "--json",
        tmp_path / "p.json",
        "--svg",
        tmp_path / "p.svg",
    )
    assert code == 0, err
    assert "GFLOP/s" in out and "softmax" in out and "kernels take" in out and "floor" in out
    data = json.loads((tmp_path / "p.json").read_text())
    assert {"node", "seconds", "flop", "nbytes", "floor", "spills", "vector_bits", "share"} <= set(data["kernels"][0])
    assert xml.etree.ElementTree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")


def test_a_summary_says_where_there_is_most_to_gain() -> None:
    fast = KernelProfile("a", "conv2d", 1e-3, 10**8, 10**6, 1e-3, 0, 512, "direct")
    slow = KernelProfile("b<c>", "matmul", 5e-3, 10**8, 10**6, 1e-3, 3, 256, "packed")
    found = ModelProfile((fast, slow), 4e-3, FLOOR)
    lines = summary(found)
    assert "2 kernels take 6.000 ms one by one" in lines[0] and "a run takes 4.000 ms" in lines[0]
    assert "floor 2.000 ms (50% of the run)" in lines[1]
    assert lines[2].startswith("most to gain: b<c> 4000 us")
    picture = xml.etree.ElementTree.fromstring(roofline_svg(found, "m & n"))
    titles = [t.text or "" for t in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 2 and "b<c> (matmul): 5000.0 us, 20.0 GFLOP/s, 20% of the floor" in titles[1]


def test_vector_width_is_read_off_the_code() -> None:
    assert widest_vectors("\tvfmadd231ps\t%zmm1, %zmm2, %zmm3\n\tvaddps\t%ymm1, %ymm2, %ymm3") == 512
    assert widest_vectors("\tvaddps\t(%rax), %ymm2, %ymm3") == 256
    assert widest_vectors("\taddps\t%xmm1, %xmm2") == 128
    assert widest_vectors("\tfmla\tv0.4s, v1.4s, v2.4s") == 128
    assert widest_vectors("\taddss\t%xmm1, %xmm2\n\tret") == 0


# ------------------------------------------------------------------------------------------------- ops and the rest


def test_every_op_is_in_the_coverage_table() -> None:
    from topi.index import INDEX, ONNX_INDEX

    rows = {r.op: r for r in coverage()}
    assert set(rows) >= set(INDEX)
    assert "Softmax 1,13" in rows["softmax"].onnx
    assert rows["conv2d"].implementations and rows["conv2d"].cases > 5
    served = {text.rpartition(" ")[0] for r in rows.values() for text in r.onnx}
    assert {name for domain, name in ONNX_INDEX if not domain} <= served
    assert {"If", "LSTM", "Constant"} <= set(converted())


def test_ops_prints_the_table(command: Command) -> None:
    code, out, _ = command("ops")
    assert code == 0 and "softmax" in out and "ONNX operators; by converters: " in out
    lines = command("ops", "--markdown")[1].splitlines()
    assert lines[0].startswith("| op | ONNX") and all(line.count("|") == 5 for line in lines[: len(coverage())])
    data = json.loads(command("ops", "--json")[1])
    assert len(data["ops"]) == len(coverage()) and data["converters"]


def test_doctor_says_what_the_machine_offers(command: Command) -> None:
    code, out, _ = command("doctor")
    assert code == 0
    for what in ("target llvm", "GFLOP/s a core", "512" if "512" in out else "bits", "cache", "backends", "llvmlite"):
        assert what in out


def test_the_cache_commands(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphir.cache import user_cache

    monkeypatch.setenv("NESTOR_CACHE", str(tmp_path / "c"))
    found = user_cache()
    assert found is not None
    found.keep("kernels", "k", lambda path: path.write_bytes(bytes(2048)))
    assert "kernels: 1, 2.0 KB" in command("cache", "info")[1]
    assert command("cache", "clear")[1].startswith("1 files removed from")
    assert "kernels: 0" in command("cache", "info")[1]
    monkeypatch.setenv("NESTOR_CACHE", "off")
    assert "the cache is off" in command("cache", "info")[1]
    assert command("cache", "clear")[0] == 2


def test_several_shapes_become_one_artifact(command: Command, model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "m.nst"
    code, out, err = command("compile", model, "-o", saved, "--shape", "x=2,32", "--shape", "x=5,32")
    assert code == 0 and out.count("compiled in") == 2, err
    for rows in (2, 5):
        np.save(tmp_path / "x.npy", np.ones((rows, 32), np.float32))
        assert f"y: float32[{rows},48]" in command("run", saved, "--input", f"x={tmp_path / 'x.npy'}")[1]
    assert command("profile", saved, "--repeats", 1)[0] == 0
    np.save(tmp_path / "x.npy", np.ones((3, 32), np.float32))
    code, _, err = command("run", saved, "--input", f"x={tmp_path / 'x.npy'}")
    assert code == 2 and "fit none of the shapes" in err
    assert parse_shape_sets(["x=1,3", "s=2", "x=8,3"]) == [{"x": (1, 3), "s": (2,)}, {"x": (8, 3), "s": (2,)}]
    assert parse_shape_sets([]) == [{}]
    with pytest.raises(OptionError, match="--shape s: given 2 times, but another input 3 times"):
        parse_shape_sets(["x=1", "x=2", "x=3", "s=1", "s=2"])


def test_an_artifact_is_shown_run_and_profiled(command: Command, model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "m.nst"
    assert command("compile", model, "-o", saved, "--shape", "x=2,32")[0] == 0
    code, out, _ = command("show", saved)
    assert code == 0 and "input x: float32[2, 32]" in out and "softmax" in out
    assert json.loads(command("show", saved, "--json")[1])["format"] == 1
    assert "y: float32[2,48]" in command("run", saved)[1]
    assert command("profile", saved, "--repeats", 1)[0] == 0
    assert command("show", saved, "--pass", "fuse")[0] == 2
    saved.write_bytes(saved.read_bytes()[:-100])
    code, _, err = command("run", saved)
    assert code == 2 and "is not an artifact, or it is damaged" in err


# ----------------------------------------------------------------------------------------------------- the table


def test_the_table_of_results(tmp_path: Path, model: Path) -> None:
    def report(name: str, median: float, kept: bool = True) -> EngineReport:
        windows = [Window(median * 0.9, median, 9, 2.0, 2.0, kept)]
        return EngineReport(name, "1", "float32", 1.0, 0.1, windows, None if name == "nestor" else 1e-7)

    rows = [
        Row("a", Work(10**9, 0), {n: report(n, t) for n, t in (("nestor", 0.02), ("onnxruntime", 0.04))}),
        Row("b", Work(10**9, 0), {n: report(n, t) for n, t in (("nestor", 0.04), ("openvino", 0.02))}),
        Row("c", Work(), {"onnxruntime": report("onnxruntime", 0.01, kept=False)}, "the engine nestor failed: why"),
    ]
    text = markdown("Models", rows, FLOOR, Plan(), "default")
    assert "| a | 20.00 (18.00) | 40.00 (36.00) |  | **0.50** | 10.00 | 50% | 1e-07 |" in text
    assert "| c |  | ~10.00 (9.00) |  |  | 0.00 |  |  |" in text and "- c: the engine nestor failed: why" in text
    assert "best rival: **1.00** over 2; largest 2.00" in text
    path = tmp_path / "RESULTS.md"
    write_section("Models", text, path)
    write_section("Layers", markdown("Layers", rows[:1], FLOOR, Plan(), "default"), path)
    write_section("Models", markdown("Models", rows[1:2], FLOOR, Plan(), "default"), path)
    written = path.read_text()
    assert written.count("## Models") == written.count("## Layers") == 1 and "| b |" in written
    assert written.index("## Models") < written.index("## Layers") and written.count("| a |") == 1


def test_a_model_that_we_cannot_read_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    row = measure("bad", tmp_path / "bad.onnx", None, Plan(0.01, 1, 1), "default")
    assert row.problem and not row.reports and row.ratio is None


def test_drawn_inputs_index_anything(model: Path) -> None:
    drawn = draw(nestor.from_onnx(model, shapes={"x": (3, 32)}))
    assert drawn["x"].shape == (3, 32) and drawn["x"].dtype == np.float32
