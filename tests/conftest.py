"""Fixtures that every test may use: the real models and their inputs.

A test that asks for a model which cannot be had fails; it is never skipped.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.models import zoo

os.environ["NESTOR_CACHE"] = "off"  # what a test sees is compiled now; tests of the cache name a folder of their own
os.environ["NESTOR_JOBS"] = "1"  # test processes run side by side; tests of compile workers ask for them

# PoCL keeps what it compiled by the program's text, not by how it was told to compile it, and test processes run side
# by side: each has a folder of its own, which ends with it.
_POCL = tempfile.TemporaryDirectory(prefix="nestor-pocl-")
os.environ["POCL_CACHE_DIR"] = _POCL.name


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """`model_file(name)` is the path of a model of `tests.models.zoo`, fetched when it is not there yet."""
    return zoo.load


@pytest.fixture(scope="session")
def model_cases() -> Callable[[str], list[dict[str, np.ndarray]]]:
    """`model_cases(name)` is the list of meaningful input sets of a model."""
    return zoo.cases
