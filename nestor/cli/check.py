"""`nestor check MODEL`: the error of every output against float64, beside onnxruntime's; exit 1 beyond tolerance.

With `--opt-level all` every level is judged, and levels 1 and 2 must give the bits of level 0. With `--nodes` every
tensor of the main graph is made an output, at level 0 unless another is asked for, and the first node that diverges is
named: from float64, and from onnxruntime.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from nestor.accuracy import FACTOR, TOLERANCE, OutputReport
from nestor.cli.options import (
    InputOption,
    ModelArgument,
    OptionError,
    PrecisionOption,
    SeedOption,
    ShapeOption,
    TargetOption,
    ThreadsOption,
    compile_options,
    make_inputs,
    output_console,
    progress_line,
    read_inputs,
    require_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BIT_EQUAL_LEVELS = (0, 1, 2)


def check(
    model: ModelArgument,
    against: Annotated[str, typer.Option("--against", help="The engine whose error sets the scale.")] = "onnxruntime",
    opt_level: Annotated[
        str | None, typer.Option("--opt-level", help="0 to 3, or all; 3, or 0 with --nodes.", show_default=False)
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Judge every node's output and name the first that diverges.")
    ] = False,
    inputs: InputOption = None,
    target: TargetOption = "llvm",
    threads: ThreadsOption = None,
    precision: PrecisionOption = "default",
    shape: ShapeOption = None,
    seed: SeedOption = 0,
    factor: Annotated[float, typer.Option("--factor", help="Allowed error, in onnxruntime's errors.")] = FACTOR,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Allowed error, of max|ref|.")] = TOLERANCE,
) -> None:
    """Judge a model's numbers against float64 and onnxruntime."""
    if against != "onnxruntime":
        raise OptionError(f"--against {against}: no such engine here", help="the known one is onnxruntime")
    levels = parse_levels(opt_level or ("0" if nodes else "3"))
    given = read_inputs(inputs or ())
    options = compile_options(target, threads, shape, precision=precision)
    with tempfile.TemporaryDirectory() as folder:
        path = _with_every_node(require_file(model), Path(folder)) if nodes else require_file(model)
        results, values = run_levels(path, levels, options, given, seed)
        reports, rival = judge_levels(path, results, values, factor=factor, tolerance=tolerance)
    output_console().print(_table(model.name, reports))
    if nodes:
        for level, found in reports.items():
            for line in first_to_diverge(model, results[level], found, rival, factor=factor, tolerance=tolerance):
                typer.echo(f"level {level}: {line}")
    failed = [(level, report) for level, found in reports.items() for report in found if not report.ok]
    unequal = unequal_levels(results)
    for level, report in failed:
        typer.echo(f"level {level}, {report.name}: {report.reason}", err=True)
    for level, name in unequal:
        typer.echo(f"level {level}, {name}: not the bits of level {BIT_EQUAL_LEVELS[0]}", err=True)
    if failed or unequal:
        raise typer.Exit(1)


def parse_levels(text: str) -> tuple[int, ...]:
    """ "all" is every opt level, a number is that one."""
    if text == "all":
        return (0, 1, 2, 3)
    if text in ("0", "1", "2", "3"):
        return (int(text),)
    raise OptionError(f"--opt-level {text}: no such level", help="levels are 0, 1, 2 and 3, or all")


def run_levels(
    path: Path, levels: Sequence[int], options: Mapping[str, Any], given: Mapping[str, np.ndarray], seed: int
) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Each level's outputs by name, and the inputs that they were computed from."""
    import nestor

    results: dict[int, dict[str, np.ndarray]] = {}
    values: dict[str, np.ndarray] = {}
    for level in levels:
        with progress_line(f"compiling at level {level}"):
            executable = nestor.compile(path, opt_level=level, **options)
        values = make_inputs(executable.inputs, given, seed=seed)
        names = [spec.name for spec in executable.outputs]
        results[level] = dict(zip(names, executable.run(values)))
    return results, values


def judge_levels(
    path: Path,
    results: Mapping[int, Mapping[str, np.ndarray]],
    values: Mapping[str, np.ndarray],
    *,
    factor: float,
    tolerance: float,
) -> tuple[dict[int, list[OutputReport]], dict[str, Any]]:
    """The reports of every level, and onnxruntime's outputs; the reference and onnxruntime run once."""
    from nestor.accuracy import compare, load_model, onnxruntime_outputs, reference_outputs

    names = list(next(iter(results.values())))
    rival = onnxruntime_outputs(path, values, names)
    reference = reference_outputs(load_model(path), values, names)
    reports = {
        level: compare(outputs, reference, rival, factor=factor, tolerance=tolerance)
        for level, outputs in results.items()
    }
    return reports, rival


def first_to_diverge(
    path: Path,
    outputs: Mapping[str, np.ndarray],
    reports: Sequence[OutputReport],
    rival: Mapping[str, Any],
    *,
    factor: float,
    tolerance: float,
) -> list[str]:
    """A sentence for each reference: the first node, in the model's order, whose output is not right by it. By
    onnxruntime an output may be as far off as both errors against float64 may be together."""
    from nestor.accuracy import compare, load_model

    by_float64 = {r.name.split("[")[0]: r for r in reversed(reports)}
    by_rival: dict[str, OutputReport] = {}
    for report in reversed(compare(outputs, rival)):
        own = by_float64.get(report.name)
        allowed = max(2 * tolerance, (factor + 1) * ((own.ort_rel_err or 0.0) if own is not None else 0.0))
        right = report.ok or (np.isfinite(report.rel_err) and report.rel_err <= allowed)
        by_rival[report.name.split("[")[0]] = report if not right else replace(report, ok=True)
    lines = []
    for engine, found in (("float64", by_float64), ("onnxruntime", by_rival)):
        wrong = (
            (number, node, name)
            for number, node in enumerate(load_model(path).graph.node)
            for name in node.output
            if name in found and not found[name].ok
        )
        first = next(wrong, None)
        if first is None:
            lines.append(f"no node diverges from {engine}")
            continue
        number, node, name = first
        called = f"{node.name} ({node.op_type}, node {number})" if node.name else f"node {number} ({node.op_type})"
        reads = ", ".join(n for n in node.input if n) or "nothing"
        lines.append(
            f"the first node to diverge from {engine} is {called}: {name}, which reads {reads}; {found[name].reason}"
        )
    return lines


def unequal_levels(results: Mapping[int, Mapping[str, np.ndarray]]) -> list[tuple[int, str]]:
    """The (level, output) pairs among levels 1 and 2 whose bits differ from level 0's."""
    base, *others = BIT_EQUAL_LEVELS
    if base not in results:
        return []
    return [
        (level, name)
        for level in others
        if level in results
        for name, value in results[base].items()
        if value.tobytes() != results[level][name].tobytes()
    ]


def _with_every_node(path: Path, folder: Path) -> Path:
    """A copy of the model, in a folder of its own, that gives every node's output."""
    from nestor.accuracy import load_model, node_outputs, with_outputs

    model = load_model(path)
    opened = folder / path.name
    opened.write_bytes(with_outputs(model, node_outputs(model)).SerializeToString())
    return opened


def _table(title: str, reports: Mapping[int, Sequence[OutputReport]]) -> Table:
    table = Table(title=f"{title}: error of max|ref| against float64")
    for heading in ("level", "output", "max|ref|", "error", "onnxruntime's", "verdict"):
        table.add_column(heading, justify="left" if heading in ("output", "verdict") else "right")
    for level, found in reports.items():
        for report in found:
            rival = "" if report.ort_rel_err is None else f"{report.ort_rel_err:.2e}"
            verdict = "ok" if report.ok else "[red]WRONG[/red]"
            table.add_row(str(level), report.name, f"{report.max_ref:.4g}", f"{report.rel_err:.2e}", rival, verdict)
    return table
