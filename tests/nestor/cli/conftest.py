"""A stand-in for the compiler, so that the command line is tested by itself: onnxruntime behind Nestor's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nestor
from nestor import accuracy
from nestor.cli import main

DTYPES = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(int64)": "int64", "tensor(bool)": "bool"}


@dataclass(frozen=True)
class StandInValue:
    name: str
    shape: tuple[int | str, ...]
    dtype: str


class StandIn:
    """An executable by onnxruntime; `spoil` alters its outputs as a faulty compiler would."""

    log = "log of the passes"
    memory = "plan of the memory"

    def __init__(self, path: Path, options: dict[str, Any], spoil: Callable[[np.ndarray, int], np.ndarray]) -> None:
        self.session = accuracy.onnxruntime_session(path)
        self.options = options
        self.spoil = spoil
        shapes = options.get("shapes") or {}
        self.inputs = [
            StandInValue(v.name, tuple(shapes.get(v.name, v.shape)), DTYPES[v.type]) for v in self.session.get_inputs()
        ]
        self.outputs = [StandInValue(v.name, tuple(v.shape), DTYPES[v.type]) for v in self.session.get_outputs()]

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [self.spoil(value, self.options.get("opt_level", 3)) for value in self.session.run(None, inputs)]


class StandInCompiler:
    """`compile` stands in for `nestor.compile`; `made` is what it compiled, `spoil(value, level)` alters outputs."""

    def __init__(self) -> None:
        self.made: list[StandIn] = []
        self.spoil: Callable[[np.ndarray, int], np.ndarray] = lambda value, level: value

    def compile(
        self, model: Path, *, progress: Callable[[int, int, str], None] | None = None, **options: Any
    ) -> StandIn:
        if progress is not None:
            progress(0, 1, "kernel")
        self.made.append(StandIn(model, options, self.spoil))
        return self.made[-1]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> StandInCompiler:
    stand_in = StandInCompiler()
    monkeypatch.setattr(nestor, "compile", stand_in.compile, raising=False)
    return stand_in


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """y = tanh(x * 2 + 1) with x of float32[n,4]."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "two"], ["m"], name="scale"),
            helper.make_node("Add", ["m", "one"], ["a"], name="shift"),
            helper.make_node("Tanh", ["a"], ["y"], name="squash"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(np.float32(value), name) for name, value in (("two", 2), ("one", 1))],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`command("run", "m.onnx")` gives exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call
