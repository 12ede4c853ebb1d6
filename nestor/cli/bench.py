"""`nestor bench MODEL`: this compiler against other engines, each in its own process, with the floor beside them.

Windows alternate between the engines, the machine's cores are probed around every window, and a window during which
one of them was missing does not count. The floor is the arithmetic of the model's products over the FMA peak of this
machine, measured in the same run.
"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from nestor.cli.options import (
    InputOption,
    OptionError,
    PrecisionOption,
    SeedOption,
    ShapeOption,
    ThreadsOption,
    make_inputs,
    output_console,
    parse_shapes,
    progress_line,
    read_inputs,
    require_file,
)


def bench(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL|OUT.nst", help="An ONNX model, or a saved one.", show_default=False)
    ],
    against: Annotated[
        str, typer.Option("--against", help="Engines, by commas: onnxruntime, openvino, openvino-default; or none.")
    ] = "onnxruntime,openvino",
    threads: ThreadsOption = None,
    window: Annotated[float, typer.Option("--window", min=0.05, help="Seconds of one window.")] = 2.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Windows of each engine.")] = 3,
    precision: PrecisionOption = "default",
    shape: ShapeOption = None,
    inputs: InputOption = None,
    seed: SeedOption = 0,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured.", show_default=False)
    ] = None,
) -> None:
    """Measure a model against other engines."""
    from nestor.bench.engines import require_engines
    from nestor.bench.measure import Plan, compare_engines
    from nestor.bench.probe import machine_floor
    from targets.llvm.runtime import host

    rivals = engine_names(against, require_file(model))
    require_engines(rivals)
    used = threads or host().cores
    console = output_console()
    given = read_inputs(inputs or ())
    with progress_line("reading the model") as line:
        values, work = _prepare(model, given, parse_shapes(shape or ()), seed)
        line.update("measuring the machine")
        floor = machine_floor(used, levels=("DRAM",))
        plan = Plan(window=window, rounds=rounds, threads=used)
        options = {"precision": precision} if model.suffix != ".nst" else {}
        failures: dict[str, str] = {}
        reports = compare_engines(
            ("nestor", *rivals), model, values, plan, options=options, failures=failures,
            progress=lambda text: line.update(text),
        )  # fmt: skip
    flop = None if work is None else work.flop
    console.print(result_table(model.name, reports, flop=flop, peak=floor.fma, threads=used))
    for sentence in remarks(reports, flop=flop, peak=floor.fma, bandwidth=floor.copy["DRAM"], threads=used):
        console.print(sentence, markup=False)
    for message in failures.values():
        console.print(message, markup=False)
    if json is not None:
        data = {
            "model": model.name,
            "threads": used,
            "flop": flop,
            "fma_peak": floor.fma,
            "dram_copy": floor.copy["DRAM"],
            "host": str(host()),
            "command": sys.argv[1:],
            "engines": [r.json() for r in reports],
            "failures": failures,
        }
        json.write_text(json_text.dumps(data, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {json}", markup=False)


def engine_names(text: str, model: Path) -> tuple[str, ...]:
    """`onnxruntime,openvino` as names; "none" is no rival."""
    if text.strip() in ("", "none"):
        return ()
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if "nestor" in names:
        raise OptionError("--against nestor: that is the engine being measured")
    if model.suffix == ".nst":
        raise OptionError(
            f"--against {text}: {model.name} is an artifact, which only nestor runs",
            help="give the ONNX model, or --against none",
        )
    return names


def _prepare(
    model: Path, given: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[Any]], seed: int
) -> tuple[dict[str, np.ndarray], Any]:
    """Values of the inputs, and the work of the model at their shapes (None for an artifact)."""
    import nestor
    from graphir.executor import TensorInfo
    from nestor.bench.work import graph_work

    if model.suffix == ".nst":
        return make_inputs(nestor.load(model).inputs, given, seed=seed), None
    graph = nestor.from_onnx(model, shapes={**shapes, **{n: a.shape for n, a in given.items()}} or None)
    specs = [TensorInfo(v.name, tuple(_size(d) for d in v.shape), str(v.dtype)) for v in graph.inputs]
    values = make_inputs(specs, given, seed=seed)
    return values, graph_work(graph.infer({n: a.shape for n, a in values.items()}))


def _size(dim: Any) -> int | str:
    from graphir import dims

    known = dims.constant(dim)
    return dims.text(dim) if known is None else known


def result_table(name: str, reports: Sequence[Any], *, flop: int | None, peak: float, threads: int) -> Table:
    """The engines, one a row: times, ratio to the first engine, share of the floor, precision, difference."""
    title = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("engine", "precision"):
        table.add_column(heading, no_wrap=True)
    for heading in ("min ms", "median", "ratio", "peak", "error", "build", "kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours = reports[0]
    fastest = min(r.median for r in reports)
    for r in reports:
        median = f"{r.median * 1e3:.3f}"
        table.add_row(
            r.name,
            r.precision,
            f"{r.min * 1e3:.3f}",
            f"[bold green]{median}[/bold green]" if r.median == fastest else median,
            "" if r is ours else f"{ours.median / r.median:.2f}",
            "" if not flop else f"{flop / peak / r.min:.0%}",
            "" if r.difference is None else f"{r.difference:.0e}",
            f"{r.build_seconds:.2f}",
            f"{sum(w.kept for w in r.windows)}/{len(r.windows)}",
        )
    return table


def remarks(reports: Sequence[Any], *, flop: int | None, peak: float, bandwidth: float, threads: int) -> list[str]:
    """Sentences under the table: the floor, the best rival, and what makes figures doubtful."""
    lines = [
        "ratio: nestor's median over this one's; peak: the share of the FMA peak; error: against nestor, of max|y|;",
        "build: seconds; kept: windows with all cores there",
        f"versions: {', '.join(f'{r.name} {r.version}' for r in reports)}",
        f"machine: {peak / 1e9:.0f} GFLOP/s of FMA, {bandwidth / 1e9:.0f} GB/s copied in memory, {threads} threads",
    ]
    if flop:
        lines.append(f"floor: {flop / peak * 1e3:.3f} ms for {flop / 1e9:.3f} GFLOP of products, padded taps left out")
    rivals = [r for r in reports[1:] if r.precision == reports[0].precision]
    if rivals:
        best = min(rivals, key=lambda r: r.median)
        ratio = reports[0].median / best.median
        lines.append(f"against the best at the same precision ({best.name}): {ratio:.2f} of its time")
    doubtful = [r.name for r in reports if not r.trusted]
    if doubtful:
        lines.append(
            f"caution: no window of {', '.join(doubtful)} had all {threads} cores (others use this machine); "
            "these figures are not to be compared"
        )
    return lines
