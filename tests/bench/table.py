"""The table of speed: models and layers against onnxruntime and OpenVINO, with the revision it was measured at.

    python -m tests.bench.table --models FOLDER        every .onnx of the folder (exports), and the models of the tests
    python -m tests.bench.table --layers               single layers
    python -m tests.bench.table --models FOLDER --only resnet50,bert_base --window 1 --rounds 2 --write

Every engine runs in its own process, in alternating windows, OpenVINO held to float32 (see `nestor.bench.measure`).
With `--write` the tables go to tests/bench/RESULTS.md, each under its own heading; a table that is not measured stays.
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nestor
from nestor.bench.measure import EngineError, EngineReport, Plan, compare_engines
from nestor.bench.probe import MachineFloor, machine_floor
from nestor.bench.work import Work, graph_work
from targets.llvm.runtime import host
from tensorir.errors import NestorError
from tests.bench.layers import layers

RESULTS = Path(__file__).with_name("RESULTS.md")
ENGINES = ("nestor", "onnxruntime", "openvino")
HEADINGS = {"models": "Models", "layers": "Layers"}


@dataclass(frozen=True, slots=True)
class Row:
    """One model or layer: the engines' reports by name, or what went wrong."""

    name: str
    work: Work
    reports: Mapping[str, EngineReport]
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """Nestor's median over that of the best rival."""
        rivals = [r.median for n, r in self.reports.items() if n != "nestor"]
        return self.reports["nestor"].median / min(rivals) if rivals and "nestor" in self.reports else None


def measure(name: str, path: Path, inputs: Mapping[str, np.ndarray] | None, plan: Plan, precision: str) -> Row:
    """Measures one model; a failure of ours becomes the row's problem, the rivals are measured all the same."""
    work = Work()
    try:
        graph = nestor.from_onnx(path, shapes=None if inputs is None else {n: a.shape for n, a in inputs.items()})
        work = graph_work(graph)
        inputs = inputs if inputs is not None else draw(graph)
    except NestorError as error:
        return Row(name, work, {}, _line(error))
    options = {"precision": precision}
    failures: dict[str, str] = {}
    try:
        reports = compare_engines(ENGINES, path, inputs, plan, options=options, failures=failures)
        return Row(name, work, {r.name: r for r in reports}, "; ".join(map(_line, failures.values())))
    except EngineError as error:
        rivals = compare_engines(ENGINES[1:], path, inputs, plan, failures=failures)
        return Row(name, work, {r.name: r for r in rivals}, _line(error))


def draw(graph: nestor.Graph) -> dict[str, np.ndarray]:
    """Seeded inputs: normal floats, integers that are good as indices of anything (0 and 1)."""
    from graphir import dims

    random = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {}
    for v in graph.inputs:
        shape = tuple(dims.constant(d) or 1 for d in v.shape)
        kind = v.dtype.numpy
        made[v.name] = random.integers(0, 2, shape).astype(kind) if kind.kind in "iub" else (
            random.standard_normal(shape).astype(kind)
        )  # fmt: skip
    return made


def _line(error: object) -> str:
    return str(error).splitlines()[0][:160]


# ----------------------------------------------------------------------------------------------------------- tables


def markdown(title: str, rows: Sequence[Row], floor: MachineFloor, plan: Plan, precision: str) -> str:
    """A section: what was measured, where and when, and the table."""
    lines = [
        f"## {title}",
        "",
        f"Revision {revision()}, {datetime.date.today().isoformat()}. {host()}; {plan.threads} threads, batch 1, "
        f"float32 (`precision={precision!r}`), untuned. Machine: {floor.fma / 1e9:.0f} GFLOP/s of FMA, "
        f"{floor.copy['DRAM'] / 1e9:.0f} GB/s copied in memory. {plan.rounds} windows of {plan.window:g} s an engine; "
        "medians of the best window, minima behind them. A ~ marks figures during which the cores were not all there.",
        "",
        "| | nestor ms | onnxruntime ms | OpenVINO f32 ms | ratio | floor ms | of the floor | differs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(_row(row, floor))
    ratios = [r.ratio for r in rows if r.ratio]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        found = f"**{mean:.2f}** over {len(ratios)}; largest {max(ratios):.2f}"
        lines += ["", f"Geometric mean of the ratios to the best rival: {found}."]
    if problems := [r for r in rows if r.problem]:
        lines += ["", *(f"- {r.name}: {r.problem}" for r in problems)]
    versions = {n: r.version for row in rows for n, r in row.reports.items() if n != "nestor"}
    lines += ["", ", ".join(f"{n} {v}" for n, v in sorted(versions.items())), ""]
    return "\n".join(lines)


def _row(row: Row, floor: MachineFloor) -> str:
    cells = [row.name]
    for engine in ENGINES:
        report = row.reports.get(engine)
        if report is None:
            cells.append("")
        else:
            mark = "" if report.trusted else "~"
            cells.append(f"{mark}{report.median * 1e3:.2f} ({report.min * 1e3:.2f})")
    ours, ratio = row.reports.get("nestor"), row.ratio
    seconds = row.work.flop / floor.fma
    differences = [r.difference for r in row.reports.values() if r.difference is not None]
    cells += [
        "" if ratio is None else f"**{ratio:.2f}**",
        f"{seconds * 1e3:.2f}",
        f"{seconds / ours.median:.0%}" if ours and seconds else "",
        f"{max(differences):.0e}" if differences and ours else "",
    ]
    return "| " + " | ".join(cells) + " |"


def revision() -> str:
    """The git revision of the sources, with + where they were changed since."""
    root = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def write_section(title: str, text: str, path: Path = RESULTS) -> None:
    """Puts a section into the file in the place of the one with its heading, or at the end."""
    head = "# Speed\n\nMeasured by `python -m tests.bench.table`; nothing here is asserted.\n\n"
    old = path.read_text(encoding="utf-8") if path.is_file() else head
    section = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    new = section.sub(lambda _: text + "\n", old) if section.search(old) else f"{old.rstrip()}\n\n{text}\n"
    path.write_text(new.rstrip() + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------- runs


def models(folder: Path | None) -> Iterator[tuple[str, Path, Mapping[str, np.ndarray] | None]]:
    """The models: those of a folder at their fixed shapes, and those of the tests at their first input."""
    from tests.models import zoo

    if folder is not None:
        for path in sorted(folder.glob("*.onnx")):
            yield path.stem, path, None
        return
    for name in zoo.MODELS:
        yield name, zoo.load(name), zoo.cases(name)[0]


def main(arguments: Iterable[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="a folder of .onnx files with fixed shapes")
    parser.add_argument("--layers", action="store_true", help="single layers instead of models")
    parser.add_argument("--only", default="", help="names, by commas")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a window")
    parser.add_argument("--rounds", type=int, default=3, help="windows of each engine")
    parser.add_argument("--threads", type=int, default=host().cores)
    parser.add_argument("--precision", default="default")
    parser.add_argument("--write", action="store_true", help="write tests/bench/RESULTS.md")
    given = parser.parse_args(None if arguments is None else list(arguments))
    plan = Plan(given.window, given.rounds, given.threads)
    only = {name for name in given.only.split(",") if name}
    floor = machine_floor(given.threads, levels=("DRAM",))
    title = HEADINGS["layers" if given.layers else "models"]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        listed = (
            ((layer.name, layer.path, None) for layer in layers(Path(folder))) if given.layers else models(given.models)
        )
        for name, path, inputs in listed:
            if only and name not in only:
                continue
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows.append(measure(name, path, inputs, plan, given.precision))
            print(_row(rows[-1], floor), rows[-1].problem, file=sys.stderr, flush=True)
            if given.write:
                write_section(title, markdown(title, rows, floor, plan, given.precision))
    print(markdown(title, rows, floor, plan, given.precision))
    return 0


if __name__ == "__main__":
    sys.exit(main())
