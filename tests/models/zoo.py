"""The models the product is held to, by name, with meaningful inputs.

`load(name)` gives the path of the `.onnx` file, `cases(name)` the input sets: a text-like picture for the text
direction model, a source file for the file-type model, speech-like sound at both rates for the voice model, a blocky
picture for the classifiers (`tests.models.samples` makes them).
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import numpy as np

from nestor import models
from tests.models import samples
from tests.models.fetch import cache_folder, model_path

MODELS = ("text_direction", "file_type", "voice_activity", "squeezenet", "resnet50")
"""The quick ones, judged at every level."""

TRAINED = (
    "text_detection",
    "text_direction",
    "file_type",
    "speech_quality",
    "echo_quality",
    "voice_sequence",
    "voice_activity",
    "sentence_embedding",
    "molecule_fingerprint",
)
"""Trained models that other people ship; each is judged at its inputs, at two other sizes where it is symbolic."""

OPEN: dict[str, dict[str, tuple[int | str, ...]]] = {"text_direction": {"x": ("n", 3, 48, 192)}}
"""Dimensions left open where the file fixes them otherwise."""

INT8_WEIGHTS = ("sentence_embedding",)
"""Models whose weights were rounded to int8: judged by the cosine of their outputs."""


def load(name: str) -> Path:
    """The path of a model's file; seeded light models are written into the cache folder once."""
    if name == "file_type":
        return models.file_type_model()
    if name in models.LIGHT_MODELS:
        return _light_file(name)
    return model_path(name)


def cases(name: str) -> list[dict[str, np.ndarray]]:
    """Input sets for a model, small in number, each with something to see in it."""
    match name:
        case "text_detection":
            return [{"x": samples.page(*size)} for size in ((1, 128, 192), (1, 64, 320), (2, 96, 96))]
        case "speech_quality":
            return [{"input_1": np.stack([samples.speech(9.01, 16000, seed=n) for n in range(b)])} for b in (1, 2)]
        case "echo_quality":
            hidden = np.zeros((4, 1, 64), np.float32)
            return [{"input": samples.spectrograms(1, frames), "h0": hidden} for frames in (60, 41, 100)]
        case "voice_sequence":
            state = 0.1 * np.random.default_rng(0).standard_normal((2, 1, 1, 128)).astype(np.float32)
            return [{"input": samples.voice_windows(t), "h": state[0], "c": state[1]} for t in (20, 1, 7)]
        case "sentence_embedding":
            return [samples.sentences(*size) for size in ((2, 32), (1, 9), (3, 17))]
        case "molecule_fingerprint":
            return [samples.molecules(sizes) for sizes in ((9, 6, 14), (7,), (5, 12, 3, 8))]
    if name == "text_direction":
        return [{"x": samples.text_pictures(batch)} for batch in (1, 3)]
    if name == "file_type":
        python_file = models.file_type_features(Path(models.__file__).read_bytes())
        settings = models.file_type_features(Path(__file__).parents[2].joinpath("pyproject.toml").read_bytes())
        return [{"bytes": python_file}, {"bytes": np.concatenate([settings, python_file])}]
    if name == "voice_activity":
        return [voice_inputs(16000), voice_inputs(8000)]
    return [{data_input(name): models.image()}]


def more_cases(name: str) -> list[dict[str, np.ndarray]]:
    """Further sizes of models with a symbolic batch, beside those of `cases`."""
    match name:
        case "text_direction":
            return [{"x": samples.text_pictures(7)}]
        case "file_type":
            return [{"bytes": np.concatenate([c["bytes"] for c in cases(name)])}]
        case "speech_quality":
            return [{"input_1": np.stack([samples.speech(9.01, 16000, seed=n + 5) for n in range(3)])}]
        case "voice_activity":
            joined: list[dict[str, np.ndarray]] = []
            for rate, batch in ((16000, 3), (8000, 2)):
                windows = [voice_inputs(rate, seed=n) for n in range(batch)]
                joined.append(
                    {
                        "input": np.concatenate([w["input"] for w in windows]),
                        "sr": windows[0]["sr"],
                        "state": np.concatenate([w["state"] for w in windows], axis=1),
                    }
                )
            return joined
    return []


@functools.cache
def data_input(name: str) -> str:
    """The name of a light model's one data input."""
    import onnx

    [only] = models.data_inputs(onnx.load(load(name)))
    return only


def voice_inputs(rate: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """One window of speech-like sound for the voice model, and a state as after earlier windows: `sr` 16000 takes one
    branch of its If, 8000 the other."""
    rng = np.random.default_rng(seed)
    length = 576 if rate == 16000 else 288
    sound = samples.speech(2.0, rate, seed=seed)[rate // 2 : rate // 2 + length]
    state = 0.2 * rng.standard_normal((2, 1, 128))
    return {"input": sound[None], "sr": np.array(rate, np.int64), "state": state.astype(np.float32)}


@functools.cache
def _light_file(name: str) -> Path:
    target = cache_folder() / f"light_{name}.onnx"
    newest_source = max(Path(models.__file__).stat().st_mtime, models.CALIBRATION.stat().st_mtime)
    if not target.is_file() or target.stat().st_mtime < newest_source:
        target.parent.mkdir(parents=True, exist_ok=True)
        # written beside and moved, so that two test processes never see half a file
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
            part.write(models.light_model(name).SerializeToString())
        os.replace(part.name, target)
    return target
