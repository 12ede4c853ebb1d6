"""All trained models of the zoo, at every size of their cases from one compile; the light graphs; big ones are slow.

`NESTOR_EXPORTS` may name a folder of other `.onnx` files (exports of torchvision and transformers, say): each is
compiled and judged with random inputs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestor
from nestor import accuracy, models
from tests.models import zoo

QUICK = ("echo_quality", "voice_sequence")
OTHERS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in zoo.TRAINED
    if name not in zoo.MODELS
]
COSINE = 0.9999


def judged(path: Path | str, cases: list[dict[str, np.ndarray]], **options: Any) -> list[accuracy.OutputReport]:
    """The reports on every output of every case, from one compile."""
    executable = nestor.compile(path, precision="strict", **options)
    names = [spec.name for spec in executable.outputs]
    return [
        report for inputs in cases for report in accuracy.judge(path, inputs, dict(zip(names, executable.run(inputs))))
    ]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """The cosine of the angle between two arrays as vectors."""
    x, y = (np.asarray(v, np.float64).ravel() for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


@pytest.mark.parametrize("name", OTHERS)
def test_trained_model_at_every_size_from_one_compile(name: str) -> None:
    reports = judged(zoo.load(name), zoo.cases(name))
    assert all(report.ok for report in reports), "\n".join(str(report) for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.INT8_WEIGHTS)
def test_int8_weights_point_the_same_way(name: str) -> None:
    path, inputs = zoo.load(name), zoo.cases(name)[0]
    executable = nestor.compile(path)
    expected = accuracy.onnxruntime_outputs(path, inputs)
    for spec, value in zip(executable.outputs, executable.run(inputs)):
        assert cosine(value, expected[spec.name]) >= COSINE


@pytest.mark.slow
@pytest.mark.parametrize("name", models.LIGHT_MODELS)
def test_light_graph(name: str) -> None:
    reports = judged(zoo.load(name), zoo.cases(name))
    assert all(report.ok for report in reports), "\n".join(str(report) for report in reports)


EXPORTS = sorted(Path(os.environ["NESTOR_EXPORTS"]).glob("*.onnx")) if os.environ.get("NESTOR_EXPORTS") else []


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPORTS, ids=lambda p: p.stem)
def test_exported_model(path: Path) -> None:
    executable = nestor.compile(path, precision="strict")
    rng = np.random.default_rng(0)
    inputs = {}
    for spec in executable.inputs:
        shape = [size if isinstance(size, int) else 3 for size in spec.shape]
        if spec.dtype.startswith("int"):
            inputs[spec.name] = rng.integers(0, 1000, shape).astype(spec.dtype)
        else:
            inputs[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
    got = dict(zip([spec.name for spec in executable.outputs], executable.run(inputs)))
    reports = accuracy.judge(path, inputs, got)
    assert all(report.ok for report in reports), "\n".join(str(report) for report in reports)


def test_speech_is_heard_as_speech() -> None:
    """The inputs mean something: the model tells windows of speech from pauses."""
    path, inputs = zoo.load("voice_sequence"), zoo.cases("voice_sequence")[0]
    probabilities = accuracy.onnxruntime_outputs(path, inputs)["speech_probs"]
    assert np.ptp(probabilities) > 0.2
