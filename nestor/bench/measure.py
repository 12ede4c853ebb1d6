"""Engines against each other: each in its own process, alternating windows, the cores probed around every window.

A window counts only if just before and just after it the cores were all there (`CoreProbe.whole`); another is added in
its place, up to a limit. An engine's figures are the shortest run and the median of its best window.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from nestor.bench.engine import read_arrays, write_arrays
from nestor.bench.engines import require_engines
from nestor.bench.probe import CoreProbe, probe_cores
from tensorir.errors import UserError

Progress = Callable[[str], None]
EXTRA_ROUNDS = 2
"""Rounds tried for each that is asked for, where windows are dropped."""


class EngineError(UserError):
    """An engine that cannot run the model, or whose process ended."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of one engine: seconds, runs, and the cores there were before and after it."""

    min: float
    median: float
    count: int
    before: float
    after: float
    kept: bool


@dataclass(slots=True)
class EngineReport:
    """One engine's windows and facts. `difference` is its outputs' largest difference from the first engine's, as a
    share of their largest value."""

    name: str
    version: str
    precision: str
    build_seconds: float
    first_seconds: float
    windows: list[Window] = field(default_factory=list)
    difference: float | None = None

    @property
    def trusted(self) -> bool:
        """True if at least one window had all cores."""
        return any(w.kept for w in self.windows)

    @property
    def best(self) -> Window:
        """The window with the smallest median among those that count, or among all if none does."""
        return min([w for w in self.windows if w.kept] or self.windows, key=lambda w: w.median)

    @property
    def min(self) -> float:
        """The shortest run of the windows that count."""
        return min(w.min for w in ([w for w in self.windows if w.kept] or self.windows))

    @property
    def median(self) -> float:
        """The median of the best window."""
        return self.best.median

    def json(self) -> dict[str, Any]:
        """The report as data."""
        data = asdict(self)
        return {**data, "min": self.min, "median": self.median, "trusted": self.trusted}


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure: seconds of a window, rounds, threads of a run."""

    window: float = 2.0
    rounds: int = 3
    threads: int = 2


class EngineProcess:
    """An engine in its process, from start to `close`."""

    def __init__(self, name: str, model: Path, inputs: Path, threads: int, options: Mapping[str, Any]) -> None:
        self.name = name
        request = {
            "engine": name, "model": str(model), "inputs": str(inputs), "threads": threads, "options": dict(options),
        }  # fmt: skip
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nestor.bench.engine", json.dumps(request)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment,
        )  # fmt: skip

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def facts(self) -> dict[str, Any]:
        """The answer to the start: waits until the engine is built and has run once."""
        return self._read()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer, or its absence, says why
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            tail = "".join(self._errors.readlines()[-5:]).strip()
            raise EngineError(f"the engine {self.name} ended without an answer: {tail or 'it printed nothing'}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"the engine {self.name} failed: {answer['error']}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write('{"do": "quit"}\n')
            self._process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass  # it has ended already
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def compare_engines(
    names: Sequence[str],
    model: Path,
    inputs: Mapping[str, np.ndarray],
    plan: Plan,
    *,
    options: Mapping[str, Any] | None = None,
    failures: dict[str, str] | None = None,
    progress: Progress = lambda text: None,
    probe: Callable[[int], CoreProbe] = probe_cores,
) -> list[EngineReport]:
    """The reports of the engines, in the order of `names`; `options` are arguments of `nestor.compile`.

    A failure of the first engine is raised; another engine that fails is left out, and `failures` gets its message.
    """
    require_engines(tuple(names))
    with tempfile.TemporaryDirectory(prefix="nestor-bench-") as folder:
        given = Path(folder) / "inputs.npz"
        write_arrays(given, inputs)
        processes: list[EngineProcess] = []
        try:
            reports: list[EngineReport] = []
            outputs: list[dict[str, np.ndarray]] = []
            for name in names:
                progress(f"building {name}")
                own = dict(options or {}) if name == "nestor" else {}
                processes.append(EngineProcess(name, model, given, plan.threads, own))
                try:
                    facts = processes[-1].facts()
                    outputs.append(_outputs(processes[-1], Path(folder)))
                except EngineError as error:
                    if not reports or failures is None:
                        raise
                    failures[name] = error.message
                    processes.pop().close()
                    continue
                difference = largest_difference(outputs[-1], outputs[0]) if reports else None
                outputs[1:] = []
                reports.append(
                    EngineReport(
                        name, facts["version"], facts["precision"], facts["seconds"], facts["first"],
                        difference=difference,
                    )
                )  # fmt: skip
            _rounds(processes, reports, plan, progress, probe)
            return reports
        finally:
            for process in processes:
                process.close()


def _rounds(
    processes: Sequence[EngineProcess],
    reports: Sequence[EngineReport],
    plan: Plan,
    progress: Progress,
    probe: Callable[[int], CoreProbe],
) -> None:
    """Windows in turn until every engine has enough that count, or the limit is reached."""
    for number in range(plan.rounds * EXTRA_ROUNDS):
        if number >= plan.rounds and all(sum(w.kept for w in r.windows) >= plan.rounds for r in reports):
            return
        for process, report in zip(processes, reports):
            if sum(w.kept for w in report.windows) >= plan.rounds:
                continue
            progress(f"window {number + 1} of {report.name}")
            before = probe(plan.threads)
            found = process.ask(do="window", seconds=plan.window)
            after = probe(plan.threads)
            kept = before.whole and after.whole
            report.windows.append(
                Window(found["min"], found["median"], found["count"], before.cores, after.cores, kept)
            )


def _outputs(process: EngineProcess, folder: Path) -> dict[str, np.ndarray]:
    """An engine's outputs, by name."""
    path = folder / "outputs.npz"
    process.ask(do="outputs", path=str(path))
    outputs = read_arrays(path)
    path.unlink()
    return outputs


def largest_difference(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> float | None:
    """The largest |got - wanted| over max|wanted| among the outputs that both have; None if they share none."""
    worst: float | None = None
    for name in got.keys() & wanted.keys():
        a, b = got[name].astype(np.float64), wanted[name].astype(np.float64)
        if a.shape != b.shape:
            return float("inf")
        scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
        worst = max(worst or 0.0, float(np.max(np.abs(a - b), initial=0.0)) / scale)
    return worst
