"""`python -m tests.models judge [NAME...]`: every model judged at precision=strict, as one table.

Rows are a model at one set of inputs: the largest error of an output against float64 over max|ref|, onnxruntime's,
whether that is within the tolerance of `nestor.accuracy`, and the arena over the peak of live bytes. Each model is
compiled once, in a process of its own, and runs at all its sizes. Names are those of `tests.models.zoo` (all trained
models and light graphs when none is given) or paths of `.onnx` files, which get seeded random inputs, symbolic
dimensions at several sizes; a folder stands for the files in it. `--json FILE` keeps the rows. Exit 1 if one is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

COSINE = 0.9999
"""How alike outputs and onnxruntime's must point for weights of int8."""

SIZES = (3, 1, 6)
"""What the symbolic dimensions of a model without inputs of its own become."""


@dataclass(frozen=True)
class Row:
    """The verdict on a model at one set of inputs; `arena` is over the peak of live bytes."""

    model: str
    inputs: str
    error: float
    rival: float | None
    arena: float
    ok: bool
    reason: str


def judge(name: str) -> list[Row]:
    """The rows of one model, from one compile."""
    import nestor
    from nestor import accuracy
    from tests.models import zoo

    known = not name.endswith(".onnx")
    path = zoo.load(name) if known else Path(name)
    executable = nestor.compile(path, precision="strict", shapes=(zoo.OPEN.get(name) or None) if known else None)
    cases = zoo.cases(name) + zoo.more_cases(name) if known else random_cases(executable.inputs)
    names = [spec.name for spec in executable.outputs]
    rows: list[Row] = []
    for inputs in cases:
        got = dict(zip(names, executable.run(inputs)))
        report = executable.memory
        arena = report.arena / report.peak_live if report.peak_live else 1.0
        rival = accuracy.onnxruntime_outputs(path, inputs)
        found = accuracy.compare(got, accuracy.reference_outputs(path, inputs), rival)
        wrong = [r for r in found if not r.ok]
        worst = max(wrong or found, key=lambda r: r.rel_err)
        reason = "; ".join(f"{r.name}: {r.reason}" for r in wrong)
        blank = [n for n, v in got.items() if is_blank(v)]
        if blank:
            reason += f"{', '.join(blank)}: one value everywhere, which proves nothing"
        if name in zoo.INT8_WEIGHTS:
            angles = [cosine(got[n], rival[n]) for n in names]
            reason += "" if min(angles) >= COSINE else f"cosine {min(angles):.6f}"
        shapes = " ".join("x".join(map(str, v.shape)) or "scalar" for v in inputs.values())
        rows.append(
            Row(name if known else path.stem, shapes, worst.rel_err, worst.ort_rel_err, arena, not reason, reason)
        )
    return rows


def is_blank(value: np.ndarray) -> bool:
    """Whether an output says nothing: many elements, all alike."""
    return value.size > 4 and bool((value == value.flat[0]).all())


def cosine(a: Any, b: Any) -> float:
    """The cosine of the angle between two arrays as vectors."""
    x, y = (np.asarray(v, np.float64).ravel() for v in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def random_cases(specs: Sequence[Any]) -> list[dict[str, np.ndarray]]:
    """Seeded inputs; one set where nothing is symbolic."""
    symbolic = any(not isinstance(size, int) for spec in specs for size in spec.shape)
    return [random_inputs(specs, size) for size in (SIZES if symbolic else SIZES[:1])]


def random_inputs(specs: Sequence[Any], size: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers, or token numbers below 1,000 for integers; a mask is ones."""
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for spec in specs:
        shape = [d if isinstance(d, int) else size for d in spec.shape]
        if "mask" in spec.name and spec.dtype.startswith("int"):
            inputs[spec.name] = np.ones(shape, spec.dtype)
        elif spec.dtype.startswith("int"):
            inputs[spec.name] = rng.integers(0, 1000, shape).astype(spec.dtype)
        else:
            inputs[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
    return inputs


def main(arguments: Sequence[str]) -> int:
    """Judges the models named and prints the table; the number of wrong rows, at most 1."""
    from nestor import models
    from tests.models import zoo

    names, json_file = list(arguments), None
    if "--json" in names:
        place = names.index("--json")
        json_file = Path(names[place + 1])
        del names[place : place + 2]
    names = names or [*zoo.TRAINED, *models.LIGHT_MODELS]
    named = [str(file) for n in names for file in (sorted(Path(n).glob("*.onnx")) if Path(n).is_dir() else [n])]
    rows: list[Row] = []
    print(f"{'model':24} {'error':>8} {'theirs':>8} {'arena':>6}  verdict  inputs", flush=True)
    for name in named:
        start = time.perf_counter()
        for row in _in_process(name):
            rows.append(row)
            print(line(row), flush=True)
        print(f"    {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(r) for r in rows], indent=1), encoding="utf-8")
    wrong = [r for r in rows if not r.ok]
    print(f"{len(rows) - len(wrong)} of {len(rows)} rows are within the tolerance")
    return 1 if wrong else 0


def line(row: Row) -> str:
    """A row as text."""
    rival = "" if row.rival is None else f"{row.rival:.1e}"
    verdict = "ok     " if row.ok else "WRONG  "
    text = f"{row.model:24} {row.error:8.1e} {rival:>8} {row.arena:6.3f}  {verdict}  {row.inputs}"
    return text if row.ok else f"{text}\n    {row.reason}"


def _in_process(name: str) -> list[Row]:
    """The rows of a model, from a process that ends with it."""
    code = "import json, sys, dataclasses; from tests.models.judge import judge; "
    code += "print('rows', json.dumps([dataclasses.asdict(r) for r in judge(sys.argv[1])]))"
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("rows "):
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return [Row(Path(name).stem, "", float("nan"), None, float("nan"), False, reason)]
    found: list[Mapping[str, Any]] = json.loads(last[0][5:])
    return [Row(**r) for r in found]
