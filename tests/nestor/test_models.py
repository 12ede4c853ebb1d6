"""The demo's and the tests' models: complete, seeded, and answering to their input."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from nestor import models
from tests.models import samples, zoo


def answers(name: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(zoo.load(name)), options).run(None, inputs)


def test_light_models_are_seeded_and_have_each_initializer_once() -> None:
    model = models.light_model("squeezenet")
    names = [tensor.name for tensor in model.graph.initializer]
    assert len(names) == len(set(names))
    assert len(models.data_inputs(model)) == 1
    assert model == models.light_model("squeezenet")
    assert model != models.light_model("squeezenet", seed=1)
    onnx.checker.check_model(model)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_light_model_answers_depend_on_the_input(name: str) -> None:
    [data] = models.data_inputs(onnx.load(zoo.load(name)))
    tops = {int(answers(name, {data: models.image(seed)})[0].argmax()) for seed in range(4)}
    assert len(tops) > 1


def test_unknown_light_model_lists_the_known_ones() -> None:
    with pytest.raises(models.ModelNotAvailable, match="no light model is called 'resnet51'(.|\n)*resnet50"):
        models.light_model("resnet51")


def test_file_type_model_knows_our_files() -> None:
    labels = models.file_type_labels()
    python_file, both = (answers("file_type", inputs)[0] for inputs in zoo.cases("file_type"))
    assert [labels[index] for index in python_file.argmax(-1)] == ["python"]
    assert [labels[index] for index in both.argmax(-1)] == ["toml", "python"]


def test_file_type_features_pad_short_files_and_cut_long_ones() -> None:
    short = models.file_type_features(b"  ab\n")
    assert short.shape == (1, 2048) and short.dtype == np.int32
    assert short[0, :3].tolist() == [97, 98, 256] and short[0, -3:].tolist() == [256, 97, 98]
    long = models.file_type_features(bytes(range(1, 9)) + bytes(10000) + b"end\n")
    assert long[0, 0] == 1 and long[0, 1023] == 0 and long[0, -3:].tolist() == list(b"end")
    assert (models.file_type_features(b"") == 256).all()


def test_missing_file_type_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(models.ModelNotAvailable, match="pip install"):
        models.file_type_model()


def test_text_direction_model_sees_which_lines_stand_upright() -> None:
    [probabilities] = answers("text_direction", {"x": samples.text_pictures(3)})
    assert probabilities.argmax(-1).tolist() == [0, 1, 0]
    assert probabilities.max(-1).min() > 0.9


def test_voice_inputs_take_both_branches() -> None:
    wide, narrow = zoo.cases("voice_activity")
    assert (int(wide["sr"]), int(narrow["sr"])) == (16000, 8000)
    for inputs in (wide, narrow):
        probability, state = answers("voice_activity", inputs)
        assert 0.1 < probability.item() < 0.9 and np.abs(state).max() > 0.5
