"""Real models end to end on the CPU: every opt level within the accuracy that `nestor.accuracy` states, levels 1 and 2
with the bits of level 0, symbolic sizes from one compile, both branches of an If."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import nestor
from nestor import accuracy
from tests.models import samples, zoo

# dimensions left open: batch, and the voice model's window, whose length goes with the branch taken
SHAPES: dict[str, dict[str, tuple[int | str, ...]]] = {
    "text_direction": {"x": ("n", 3, 48, 192)},
    "file_type": {},
    "voice_activity": {},
    "squeezenet": {},
    "resnet50": {},
}


@cache
def compiled(name: str, level: int) -> Any:
    return nestor.compile(zoo.load(name), opt_level=level, shapes=SHAPES.get(name) or None)


@cache
def expected(name: str, case: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs in float64, and onnxruntime's."""
    path, inputs = zoo.load(name), zoo.cases(name)[case]
    return accuracy.reference_outputs(path, inputs), accuracy.onnxruntime_outputs(path, inputs)


@cache
def results(name: str, level: int, case: int) -> dict[str, np.ndarray]:
    executable = compiled(name, level)
    outputs = executable.run(zoo.cases(name)[case])
    return dict(zip([spec.name for spec in executable.outputs], outputs))


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("name", zoo.MODELS)
def test_accuracy_at_every_level(name: str, level: int) -> None:
    for case in range(len(zoo.cases(name))):
        reference, rival = expected(name, case)
        reports = accuracy.compare(results(name, level, case), reference, rival)
        assert all(report.ok for report in reports), "\n".join(str(report) for report in reports)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("name", zoo.MODELS)
def test_levels_1_and_2_have_the_bits_of_level_0(name: str, level: int) -> None:
    for case in range(len(zoo.cases(name))):
        for output, value in results(name, 0, case).items():
            assert value.tobytes() == results(name, level, case)[output].tobytes(), output


@pytest.mark.parametrize("threads", [1, 3])
def test_thread_count_keeps_the_bits(threads: int) -> None:
    inputs = zoo.cases("text_direction")[1]
    other = nestor.compile(zoo.load("text_direction"), threads=threads, shapes=SHAPES["text_direction"])
    [value] = other.run(inputs)
    [first] = compiled("text_direction", 3).run(inputs)
    assert value.tobytes() == first.tobytes()


def test_text_direction_at_any_batch_from_one_compile() -> None:
    executable = compiled("text_direction", 3)
    for batch in (1, 3, 7):
        inputs = {"x": samples.text_pictures(batch)}
        [probabilities] = executable.run(inputs)
        [report] = accuracy.judge(zoo.load("text_direction"), inputs, {executable.outputs[0].name: probabilities})
        assert report.ok, report
        assert probabilities.argmax(-1).tolist() == [index % 2 for index in range(batch)]


def test_inputs_are_left_as_they_were_and_outputs_are_fresh() -> None:
    inputs = zoo.cases("text_direction")[0]
    before = inputs["x"].copy()
    [first] = compiled("text_direction", 3).run(inputs)
    kept = first.copy()
    [second] = compiled("text_direction", 3).run({"x": -inputs["x"]})
    np.testing.assert_array_equal(inputs["x"], before)
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second)


def test_outputs_given_by_the_caller_are_written_whole() -> None:
    executable = compiled("text_direction", 3)
    inputs = zoo.cases("text_direction")[0]
    [expected_value] = executable.run(inputs)
    given = np.full_like(expected_value, np.nan)
    executable.run(inputs, outputs=[given])
    np.testing.assert_array_equal(given, expected_value)


def fallbacks(log: tuple[str, ...]) -> list[str]:
    """The lines that say that a kernel could not be had as chosen."""
    return [line for line in log if line.startswith("kernels: ") and "failed" in line]


OTHERS = [n for n in zoo.TRAINED if n not in (*zoo.MODELS, "voice_sequence")]


@pytest.mark.parametrize(
    "name", [*zoo.MODELS, "voice_sequence", *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_every_kernel_is_the_chosen_one(name: str) -> None:
    assert not fallbacks(compiled(name, 3).log)


def test_a_kernel_that_fails_is_noted_and_the_answer_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise nestor.UserError("planted")

    monkeypatch.setattr("graphir.compile.kernel_of", fail)
    with pytest.warns(nestor.FallbackWarning, match="the generic schedule of .* failed, it runs unscheduled: planted"):
        log = nestor.compile(zoo.load("file_type"), opt_level=3).log
    assert any("the generic schedule" in line and line.endswith("planted") for line in fallbacks(log))
