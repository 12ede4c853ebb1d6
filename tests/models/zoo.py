"""The models the product is held to, by name, with meaningful inputs.

`load(name)` gives the path of the `.onnx` file, `cases(name)` the input sets: a text-like picture for the text
direction model, a source file for the file-type model, speech-like sound at both rates for the voice model, a blocky
picture for the classifiers.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import numpy as np

from nestor import models
from tests.models.fetch import cache_folder, model_path

MODELS = ("text_direction", "file_type", "voice_activity", "squeezenet", "resnet50")


def load(name: str) -> Path:
    """The path of a model's file; seeded light models are written into the cache folder once."""
    if name == "file_type":
        return models.file_type_model()
    if name in models.LIGHT_MODELS:
        return _light_file(name)
    return model_path(name)


def cases(name: str) -> list[dict[str, np.ndarray]]:
    """Input sets for a model, small in number, each with something to see in it."""
    if name == "text_direction":
        return [{"x": text_pictures(batch)} for batch in (1, 3)]
    if name == "file_type":
        python_file = models.file_type_features(Path(models.__file__).read_bytes())
        settings = models.file_type_features(Path(__file__).parents[2].joinpath("pyproject.toml").read_bytes())
        return [{"bytes": python_file}, {"bytes": np.concatenate([settings, python_file])}]
    if name == "voice_activity":
        return [voice_inputs(16000), voice_inputs(8000)]
    return [{data_input(name): models.image()}]


@functools.cache
def data_input(name: str) -> str:
    """The name of a light model's one data input."""
    import onnx

    [only] = models.data_inputs(onnx.load(load(name)))
    return only


def text_pictures(batch: int, *, seed: int = 0) -> np.ndarray:
    """Lines of text as the text-direction model sees them, float32[batch,3,48,192] in -1..1; odd ones upside down.

    Dark strokes on light paper: letters of upright stems with bars and bows, on a base line, with gaps for words.
    """
    pictures = np.empty((batch, 3, 48, 192), np.float32)
    for index in range(batch):
        rng = np.random.default_rng(seed + index)
        paper = np.full((48, 192), 0.9)
        left = 8
        while left < 176:
            width = int(rng.integers(6, 12))
            top = int(rng.choice([6, 16]))
            paper[top:38, left : left + 3] = 0.1  # the stem
            bar = int(rng.choice([top, 20, 35]))
            paper[bar : bar + 3, left : left + width] = 0.1  # a bar
            if rng.random() < 0.4:
                paper[16:38, left + width - 3 : left + width] = 0.1  # a second stem: n, o, h, b
            if rng.random() < 0.15:
                paper[38:46, left : left + 3] = 0.1  # a descender
            left += width + int(rng.choice([4, 4, 4, 12]))
        paper += 0.03 * rng.standard_normal(paper.shape)
        if index % 2:
            paper = paper[::-1, ::-1]
        pictures[index] = 2 * paper - 1
    return pictures


def voice_inputs(rate: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """One window of speech-like sound for the voice model: `sr` 16000 takes one branch of its If, 8000 the other.

    A gliding voice pitch with its harmonics under two formants, a little noise, and a state as after earlier windows.
    """
    rng = np.random.default_rng(seed)
    length = 576 if rate == 16000 else 288
    time = np.arange(length) / rate
    pitch = 2 * np.pi * np.cumsum(130 + 300 * time) / rate
    sound = np.zeros(length)
    for harmonic in range(1, 20):
        frequency = 140 * harmonic
        strength = np.exp(-(((frequency - 600) / 300) ** 2)) + 0.5 * np.exp(-(((frequency - 1500) / 400) ** 2))
        sound += strength * np.sin(harmonic * pitch)
    sound = 0.3 * sound / np.abs(sound).max() + 0.005 * rng.standard_normal(length)
    state = 0.2 * rng.standard_normal((2, 1, 128))
    return {
        "input": sound[None].astype(np.float32),
        "sr": np.array(rate, np.int64),
        "state": state.astype(np.float32),
    }


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
