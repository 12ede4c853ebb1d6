"""Every lesson builds and computes what numpy does; in at least 20 nothing differs but the imports, and the page of
differences lists the lines of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from targets.build import build
from tensorir.expr import Const, Var
from tests.te_lessons import intrinsic, matrix_product, pipelines, quantized, recursion, reductions, tensors
from tests.te_lessons.lesson import LESSONS, Lesson

PAGE = Path(__file__).resolve().parents[2] / "schedule" / "COMING_FROM_TE.md"
MODULES = (matrix_product, pipelines, quantized, recursion, reductions, tensors)
SIZES = (37, 50, 19)
"""What the symbols of a lesson become, in the order of first use."""


def _arrays(args: Any, outputs: int, low: float, high: float) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    sizes: dict[Var, int] = {}
    arrays: list[np.ndarray] = []
    for number, tensor in enumerate(args):
        shape = []
        for extent in tensor.shape:
            if isinstance(extent, Const):
                shape.append(int(extent.value))
            else:
                shape.append(sizes.setdefault(extent, SIZES[len(sizes) % len(SIZES)]))
        if number >= len(args) - outputs:
            arrays.append(np.full(shape, np.nan if tensor.dtype.is_float else 77).astype(tensor.dtype.numpy))
        elif tensor.dtype.is_float:
            arrays.append(rng.uniform(low, high, shape).astype(tensor.dtype.numpy))
        else:
            arrays.append(rng.integers(int(low), int(high), shape, endpoint=True).astype(tensor.dtype.numpy))
    return arrays


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda x: x.name)
def test_lesson(lesson: Lesson) -> None:
    made = lesson.make()
    outputs = len(made.schedule.outputs)
    arrays = _arrays(made.args, outputs, made.low, made.high)
    inputs = arrays[: len(arrays) - outputs]
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs]
    wanted = made.reference(*wide)
    build(made.schedule, made.args, target="llvm", name=lesson.name)(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(wanted) == outputs
    for a, w in zip(arrays[len(inputs) :], wanted, strict=True):
        assert a.shape == w.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, w, rtol=made.tolerance, atol=made.tolerance)
        else:
            np.testing.assert_array_equal(a, w.astype(a.dtype))


SMALL = [x for x in LESSONS if x.make.__module__ not in (matrix_product.__name__, tensors.__name__)]


@pytest.mark.parametrize("lesson", SMALL, ids=lambda x: x.name)
def test_the_sanitiser_is_silent(lesson: Lesson) -> None:
    made = lesson.make()
    arrays = _arrays(made.args, len(made.schedule.outputs), made.low, made.high)
    build(made.schedule, made.args, target="reference").sanitize(*arrays)


def test_there_are_25_and_20_differ_by_their_imports_alone() -> None:
    assert len({x.name for x in LESSONS}) == len(LESSONS) >= 25
    assert sum(not x.changed for x in LESSONS) >= 20


def test_the_page_lists_the_lines_that_change() -> None:
    page = PAGE.read_text()
    for lesson in LESSONS:
        for there, here in lesson.changed:
            assert f"`{there}`" in page, f"{lesson.name}: {there}"
            assert f"`{here}`" in page, f"{lesson.name}: {here}"


def test_lessons_import_nothing_but_the_two_names_of_te() -> None:
    assert all(x.changed for x in LESSONS if x.make.__module__ == intrinsic.__name__)
    for module in MODULES:
        lines = Path(module.__file__ or "").read_text().splitlines()
        own = [x for x in lines if x.startswith(("import ", "from ")) and "nestor" in x]
        assert set(own) <= {"import nestor as tvm", "from nestor import te"}, module.__name__
