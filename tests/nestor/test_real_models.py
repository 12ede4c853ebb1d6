"""Real models end to end on the CPU: every opt level within the accuracy that `nestor.accuracy` states, levels 1 and 2
with the bits of level 0, symbolic sizes from one compile, both branches of an If."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import nestor
from nestor import accuracy, models
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
@pytest.mark.parametrize("name", [n for n in zoo.MODELS if n != "resnet50"])
def test_accuracy_at_every_level(name: str, level: int) -> None:
    for case in range(len(zoo.cases(name))):
        reference, rival = expected(name, case)
        reports = accuracy.compare(results(name, level, case), reference, rival)
        assert all(report.ok for report in reports), "\n".join(str(report) for report in reports)


@cache
def pictures() -> list[tuple[dict[str, np.ndarray], dict[str, Any], dict[str, Any]]]:
    """Four inputs of ResNet-50, the outputs in float64, and onnxruntime's."""
    path, [case] = zoo.load("resnet50"), zoo.cases("resnet50")
    given = [{name: models.image(seed) for name in case} for seed in range(4)]
    return [(x, accuracy.reference_outputs(path, x), accuracy.onnxruntime_outputs(path, x)) for x in given]


@pytest.mark.parametrize("precision", ["strict", "default"])
@pytest.mark.parametrize("level", [0, 3])
def test_accuracy_of_a_deep_network_over_several_pictures(level: int, precision: str) -> None:
    """The error of the one largest probability is a draw: onnxruntime's own lies between 1.4e-5 and 6.0e-5 for these
    four pictures. So the worst of four is held against its worst of four."""
    exe = nestor.compile(zoo.load("resnet50"), opt_level=level, precision=precision)
    ours, theirs = 0.0, 0.0
    for inputs, reference, rival in pictures():
        outputs = dict(zip([spec.name for spec in exe.outputs], exe.run(inputs), strict=True))
        for report in accuracy.compare(outputs, reference, rival):
            assert report.ort_rel_err is not None and np.isfinite(report.rel_err), report
            ours, theirs = max(ours, report.rel_err), max(theirs, report.ort_rel_err)
    assert 0 < ours <= max(accuracy.FACTOR * theirs, accuracy.TOLERANCE), (ours, theirs)


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
