"""The commands: what they print, what they pass on, and how they leave, with the compiler replaced by a stand-in."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestor
from nestor.cli import options
from tensorir import te
from tensorir.errors import UserError
from tests.nestor.cli.conftest import StandInCompiler, StandInValue
from topi.op import Op, registered_ops
from topi.registry import get_op

Command = Callable[..., tuple[int, str, str]]


def test_compile_passes_its_options_on(command: Command, compiler: StandInCompiler, small_model: Path) -> None:
    code, out, _ = command(
        "compile", small_model, "--shape", "x=3,4", "--threads", 2, "--opt-level", 1, "--precision", "strict"
    )
    assert code == 0
    expected = {"target": "llvm", "threads": 2, "opt_level": 1, "precision": "strict", "shapes": {"x": (3, 4)}}
    assert compiler.made[0].options == expected
    assert "input x: float32[3,4]" in out and "plan of the memory" in out and "log of the passes" not in out


def test_compile_prints_the_log_when_asked(command: Command, compiler: StandInCompiler, small_model: Path) -> None:
    _, out, _ = command("compile", small_model, "--log")
    assert "log of the passes" in out
    assert "threads" not in compiler.made[0].options and "shapes" not in compiler.made[0].options


def test_run_takes_inputs_and_saves_outputs(
    command: Command, compiler: StandInCompiler, small_model: Path, tmp_path: Path
) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.save(tmp_path / "x.npy", x)
    code, out, _ = command("run", small_model, "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out")
    assert code == 0 and "y: float32[2,4]" in out
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), np.tanh(2 * x + 1), rtol=1e-6)


def test_check_passes_at_every_level(command: Command, compiler: StandInCompiler, small_model: Path) -> None:
    code, out, err = command("check", small_model, "--opt-level", "all")
    assert code == 0, err
    assert [executable.options["opt_level"] for executable in compiler.made] == [0, 1, 2, 3]
    assert "ok" in out and "WRONG" not in out


def test_check_exits_1_beyond_tolerance(command: Command, compiler: StandInCompiler, small_model: Path) -> None:
    compiler.spoil = lambda value, level: value + np.float32(1e-3)
    code, out, err = command("check", small_model)
    assert code == 1 and "WRONG" in out and "level 3, y: error" in err
    assert command("check", small_model, "--tolerance", "0.1")[0] == 0


def test_check_finds_levels_that_differ_in_a_bit(
    command: Command, compiler: StandInCompiler, small_model: Path
) -> None:
    compiler.spoil = lambda value, level: np.nextafter(value, np.float32(9)) if level == 2 else value
    code, out, err = command("check", small_model, "--opt-level", "all")
    assert code == 1 and "WRONG" not in out and "level 2, y: not the bits of level 0" in err
    assert "level 1" not in err


def test_check_nodes_judges_every_tensor(command: Command, compiler: StandInCompiler, small_model: Path) -> None:
    code, out, _ = command("check", small_model, "--nodes")
    assert code == 0
    assert [value.name for value in compiler.made[0].outputs] == ["y", "m", "a"]
    assert out.count("ok") == 3


def test_show_applies_passes(command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def __init__(self, names: tuple[str, ...]) -> None:
            self.names = names

        def infer(self) -> Graph:
            return Graph((*self.names, "infer"))

        def apply(self, *names: str) -> Graph:
            return Graph((*self.names, *names))

        def json(self) -> str:
            return "{}"

        def __str__(self) -> str:
            return f"graph after {self.names}"

    monkeypatch.setattr(nestor, "from_onnx", lambda path, shapes: Graph(()), raising=False)
    assert command("show", small_model)[1] == "graph after ()\n"
    assert command("show", small_model, "--pass", "fuse")[1] == "graph after ('infer', 'fuse')\n"
    assert command("show", small_model, "--json")[1] == "{}\n"


def test_demo_tells_the_kind_of_a_file(
    command: Command, compiler: StandInCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nestor.cli.demo.TIMED_SECONDS", 0.1)
    code, out, err = command("demo", Path(__file__).parents[3] / "pyproject.toml")
    assert code == 0, err
    assert "pyproject.toml is toml" in out
    assert out.count("same top answer, largest difference 0.0e+00") == 2
    assert "ResNet-50" in out and "compiled in" in out
    assert [list(executable.options["shapes"].values()) for executable in compiler.made] == [
        [(1, 2048)],
        [(1, 3, 224, 224)],
    ]


def test_demo_says_when_the_answer_differs(
    command: Command, compiler: StandInCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nestor.cli.demo.TIMED_SECONDS", 0.1)
    compiler.spoil = lambda value, level: value[:, ::-1].copy()
    assert command("demo")[1].count("ANOTHER top answer") == 2


def test_doctor_lists_packages(command: Command) -> None:
    code, out, _ = command("doctor")
    assert code == 0 and "llvmlite" in out and "cores usable" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "{folder}/absent.onnx"], "there is no file"),
        (["run", "{folder}"], "is a folder, not a model file"),
        (["run", "{model}", "--input", "z={array}"], "--input z: the model has no such input\nhelp: its inputs are x"),
        (["run", "{model}", "--input", "x={model}"], "is not a .npy file"),
        (["run", "{model}", "--input", "x"], "not of the form NAME=VALUE"),
        (["run", "{model}", "--shape", "x=1,-3"], "'-3' is no dimension"),
        (["check", "{model}", "--opt-level", "4"], "--opt-level 4: no such level"),
        (["check", "{model}", "--against", "tvm"], "the known one is onnxruntime"),
        (["demo", "{folder}/absent.txt"], "there is no file"),
    ],
)
def test_user_mistakes_are_one_message_and_exit_2(
    command: Command, compiler: StandInCompiler, small_model: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    filled = [text.format(folder=tmp_path, model=small_model, array=tmp_path / "x.npy") for text in arguments]
    code, out, err = command(*filled)
    assert code == 2 and message in err and "Traceback" not in err
    assert err.startswith("nestor: ") and out == ""


def test_unknown_command_and_option_exit_2(command: Command, small_model: Path) -> None:
    assert command("compil", small_model)[0] == 2
    code, _, err = command("run", small_model, "--thread", 2)
    assert code == 2 and "--thread" in err


def test_the_compilers_own_user_errors_exit_2(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: Path, **options: object) -> None:
        raise UserError("node squash: op Tanh is not supported", help="ask for it")

    monkeypatch.setattr(nestor, "compile", refuse, raising=False)
    code, _, err = command("compile", small_model)
    assert (code, err) == (2, "nestor: node squash: op Tanh is not supported\nhelp: ask for it\n")


def test_internal_errors_ask_for_a_report(
    command: Command, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(model: Path, **options: object) -> None:
        raise KeyError("lost block")

    monkeypatch.setattr(nestor, "compile", break_down, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = command("compile", small_model)
    assert code == 70 and "internal error: KeyError: 'lost block'" in err and "Traceback" not in err
    [report] = tmp_path.glob("nestor-error-*.txt")
    assert str(report) in err and "break_down" in report.read_text()
    monkeypatch.setenv("NESTOR_DEBUG", "1")
    with pytest.raises(KeyError):
        nestor.cli.main(["compile", str(small_model)])


def test_an_open_dimension_needs_a_size() -> None:
    specs = [StandInValue("x", ("n", 3, "h"), "float32"), StandInValue("m", ("n", "h"), "bool")]
    with pytest.raises(options.OptionError, match=r"input x: dimension 2 \(h\) has no size(.|\n)*--shape x=1,3,32"):
        options.make_inputs(specs, {}, seed=0)
    made = options.make_inputs(specs, {"m": np.zeros((2, 5), bool)}, seed=0)
    assert made["x"].shape == (2, 3, 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool"])
def test_drawn_inputs_have_the_dtype_and_the_seed(dtype: str) -> None:
    for shape in ((), (7,), (0, 3)):
        spec = StandInValue("x", shape, dtype)
        [first, again] = [options.make_inputs([spec], {}, seed=3)["x"] for _ in range(2)]
        assert first.dtype.name == dtype and first.shape == shape
        np.testing.assert_array_equal(first.astype(np.float64), again.astype(np.float64))


def test_shapes_are_numbers_and_names() -> None:
    parsed = options.parse_shapes(["x=1,3,n", "a:0=8", "s="])
    assert parsed == {"x": (1, 3, "n"), "a:0": (8,), "s": ()}


def test_python_m_nestor_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "nestor", "doctor"], capture_output=True, text=True)
    assert done.returncode == 0 and "llvmlite" in done.stdout


# ------------------------------------------------------------------------------------------------ the compiler itself


def plant(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]) -> None:
    """Gives an op a wrong compute, with no cache that would know a kernel of the right one."""
    definition = replace_op(get_op(name), wrong)
    monkeypatch.setenv("NESTOR_CACHE", "off")
    monkeypatch.setitem(registered_ops(), name, definition)


def replace_op(right: Op, wrong: Callable[..., Any]) -> Op:
    """A copy of an op with another compute."""
    made = copy.copy(right)
    made.compute = wrong
    return made


def test_check_nodes_names_the_first_node_that_diverges(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = get_op("add").compute

    def wrong(a: te.Tensor, b: te.Tensor, /) -> te.Tensor:
        total = right(a, b)
        return te.compute(total.shape, lambda *i: total(*i) * 1.001, name="wrong")

    plant(monkeypatch, "add", wrong)
    code, out, err = command("check", small_model, "--nodes")
    assert code == 1 and "level 0, a: error" in err
    text = " ".join(out.split())
    for engine in ("float64", "onnxruntime"):
        assert f"the first node to diverge from {engine} is shift (Add, node 1): a, which reads m, one; error" in text


def test_check_nodes_says_that_none_diverges(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = command("check", small_model, "--nodes")
    assert code == 0
    assert "level 0: no node diverges from float64" in out and "level 0: no node diverges from onnxruntime" in out


def test_run_stops_at_the_first_node_that_makes_a_nan(
    command: Command, small_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 4), 3e38, np.float32))
    code, _, err = command("run", small_model, "--input", f"x={tmp_path / 'x.npy'}", "--stop-at", "inf")
    assert code == 2 and "makes inf of finite inputs: m[0, 0], one of 8 of 8 elements" in err
    code, out, _ = command("run", small_model, "--stop-at", "either")
    assert code == 0 and "y: float32" in out
    code, _, err = command("run", small_model, "--stop-at", "zero")
    assert code == 2 and "--stop-at zero: it is one of nan, inf, either" in err


def test_show_draws_the_memory(command: Command, small_model: Path, tmp_path: Path) -> None:
    code, out, _ = command("show", small_model, "--memory", "--svg", tmp_path / "plan.svg")
    assert code == 0 and "host: arena" in out and "at n=" in out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
