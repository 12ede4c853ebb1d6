"""All trained models of the zoo, at every size of their cases from one compile; the light graphs; big ones are slow.

`NESTOR_EXPORTS` may name a folder of other `.onnx` files (exports of torchvision and transformers, say): each is
compiled and judged with random inputs. `python -m tests.models judge` does the same and prints a table.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nestor import accuracy, models
from tests.models import zoo
from tests.models.judge import judge, line
from tests.models.seed_heads import seed_heads

QUICK = ("echo_quality", "voice_sequence")
OTHERS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in zoo.TRAINED
    if name not in zoo.MODELS
]
ARENA = 1.15
"""The most that the arena may be, over the peak of live bytes."""


def check(name: str) -> None:
    rows = judge(name)
    assert rows
    assert all(row.ok and row.arena <= ARENA for row in rows), "\n".join(map(line, rows))


@pytest.mark.parametrize("name", OTHERS)
def test_trained_model_at_every_size_from_one_compile(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*models.LIGHT_MODELS, *(n for n in zoo.MODELS if n in zoo.TRAINED)])
def test_light_graph_and_small_model_at_strict(name: str) -> None:
    check(name)


EXPORTS = sorted(Path(os.environ["NESTOR_EXPORTS"]).glob("*.onnx")) if os.environ.get("NESTOR_EXPORTS") else []


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPORTS, ids=lambda p: p.stem)
def test_exported_model(path: Path) -> None:
    check(str(path))


def test_a_head_of_zeros_is_told_and_seeded(tmp_path: Path) -> None:
    """An export whose answer is zero everywhere proves nothing, so it is no row that passes."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16])
    head = numpy_helper.from_array(np.zeros((16, 8), np.float32), "head")
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "head"], ["y"], transB=1)], "g", [x], [y], [head])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "head.onnx"
    onnx.save(model, path)
    [row] = judge(str(path))
    assert not row.ok and "proves nothing" in row.reason
    assert seed_heads(model) == ["head"] and seed_heads(model) == []
    onnx.save(model, path)
    [row] = judge(str(path))
    assert row.ok and row.error > 0


def test_speech_is_heard_as_speech() -> None:
    """The inputs mean something: the model tells windows of speech from pauses."""
    path, inputs = zoo.load("voice_sequence"), zoo.cases("voice_sequence")[0]
    probabilities = accuracy.onnxruntime_outputs(path, inputs)["speech_probs"]
    assert np.ptp(probabilities) > 0.2
