"""The README is true: its commands have the form that CI calls, and its Python runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from nestor import models
from tests.models import zoo

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def test_readme_opens_with_the_two_commands() -> None:
    demo, tests = blocks("sh")[0].splitlines()
    assert README.index("```sh") < 40
    assert demo.endswith("nestor demo") and "pytest" in tests


def test_kernel_of_the_readme_runs() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    np.testing.assert_array_equal(names["c"], np.full((1000, 300), 512, np.float32))


def test_model_of_the_readme_runs() -> None:
    path = zoo.load("squeezenet")
    text = blocks("python")[1].replace("model.onnx", str(path)).replace('"x"', repr(zoo.data_input("squeezenet")))
    names: dict[str, Any] = {"picture": models.image()}
    exec(text, names)
    assert names["answer"].shape == (1, 1000, 1, 1)
