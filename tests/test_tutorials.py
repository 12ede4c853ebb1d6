"""The lessons run from beginning to end, for their values; `python -m tests.bench.lessons` prints their times."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_runs(path: Path) -> None:
    environment = {**os.environ, "LESSON_SIZE": "96", "PYTHONPATH": str(ROOT)}
    # of PoCL 3.0's ways to run a work group, "loops" loses a private array that is set under a condition
    environment["POCL_WORK_GROUP_METHOD"] = "loopvec"
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_reads_as_a_notebook(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith("# # ")
    assert sum(line.startswith("# %%") for line in lines) >= 8


def test_the_product_takes_at_most_30_lines() -> None:
    path = ROOT / "tutorials" / "matrix_product.py"
    text = path.read_text()
    [function] = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "product"]
    assert function.end_lineno is not None
    lines = text.splitlines()[function.lineno : function.end_lineno]
    assert len([x for x in lines if x.strip() and not x.strip().startswith(('"""', "#"))]) <= 30


def test_bench_is_importable() -> None:
    from tests.bench import lessons

    assert inspect.isfunction(lessons.main)
