"""`nestor demo [FILE]`: two real models, compiled here and now, with their answers, their agreement and their times.

First a trained network says what kind of file FILE is; then ResNet-50, a graph that other people wrote, with seeded
weights, names the class of a picture. onnxruntime, where it is installed, runs the same for comparison.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from nestor import models
from nestor.cli.options import TargetOption, ThreadsOption, compile_options, output_console, require_file

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMED_SECONDS = 1.0
STEPS = ("make the weights", "compile", "run", "run onnxruntime")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one model did: its answer, times in seconds, and its agreement with onnxruntime, None without it."""

    answer: np.ndarray
    compile_seconds: float
    run_seconds: float
    rival: np.ndarray | None
    rival_seconds: float | None

    @property
    def agreement(self) -> str:
        if self.rival is None:
            return "onnxruntime is not installed: pip install 'nestor-compiler[demo]'"
        difference = float(np.max(np.abs(self.answer - self.rival)) / np.max(np.abs(self.rival)))
        same = "same top answer" if int(self.answer.argmax()) == int(self.rival.argmax()) else "ANOTHER top answer"
        return f"{same}, largest difference {difference:.1e} of the largest value"


def demo(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Any file; one of ours unless given.", show_default=False)
    ] = None,
    target: TargetOption = "llvm",
    threads: ThreadsOption = None,
) -> None:
    """Compile and run two real models, and say what happened."""
    console = output_console()
    options = compile_options(target, threads, None)
    _file_type(console, require_file(file) if file is not None else Path(models.__file__), options)
    _resnet50(console, options)


def _file_type(console: Console, file: Path, options: Mapping[str, Any]) -> None:
    path = models.file_type_model()
    features = models.file_type_features(file.read_bytes())
    with console.status("compiling the file-type model"):
        outcome = run_model(path, {"bytes": features}, options)
    labels = models.file_type_labels()
    probabilities = outcome.answer[0]
    best = probabilities.argsort()[::-1][:3]
    console.print(f"[bold]{file.name}[/bold] is [bold green]{labels[best[0]]}[/bold green]", end=" ")
    console.print(f"({', '.join(f'{labels[index]} {probabilities[index]:.1%}' for index in best)})")
    _print_outcome(console, "the file-type model (magika)", outcome)


def _resnet50(console: Console, options: Mapping[str, Any]) -> None:
    columns = (SpinnerColumn(), TextColumn("ResNet-50: {task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress, tempfile.TemporaryDirectory() as folder:
        task = progress.add_task(STEPS[0], total=len(STEPS))

        def step(name: str) -> None:
            progress.update(task, description=name, completed=STEPS.index(name))

        model = models.light_model("resnet50")
        path = Path(folder) / "resnet50.onnx"
        path.write_bytes(model.SerializeToString())
        [data] = models.data_inputs(model)
        outcome = run_model(path, {data: models.image()}, options, step=step)
    best = outcome.answer[0].argsort()[::-1][:3]
    console.print("[bold]ResNet-50[/bold], seeded weights, on a seeded picture:", end=" ")
    console.print(", ".join(f"class {index} {outcome.answer[0][index]:.2%}" for index in best))
    _print_outcome(console, "ResNet-50 (224 x 224, batch 1)", outcome)


def run_model(
    path: Path,
    inputs: dict[str, np.ndarray],
    options: Mapping[str, Any],
    *,
    step: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Compiles a model for the shapes of these inputs, runs and times it, and onnxruntime after it."""
    import nestor

    step("compile")
    start = time.perf_counter()
    shapes = {name: value.shape for name, value in inputs.items()}
    executable = nestor.compile(path, **options, shapes=shapes)
    compile_seconds = time.perf_counter() - start
    step("run")
    [answer] = executable.run(inputs)
    run_seconds = best_time(lambda: executable.run(inputs))
    rival, rival_seconds = None, None
    if importlib.util.find_spec("onnxruntime") is not None:
        from nestor.accuracy import onnxruntime_session

        step("run onnxruntime")
        session = onnxruntime_session(path, threads=options.get("threads") or 0)
        [rival] = session.run(None, inputs)
        rival_seconds = best_time(lambda: session.run(None, inputs))
    return Outcome(answer, compile_seconds, run_seconds, rival, rival_seconds)


def best_time(call: Callable[[], object], *, seconds: float = TIMED_SECONDS) -> float:
    """The shortest of the calls that fit into the given time, in seconds; at least three are made."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _print_outcome(console: Console, name: str, outcome: Outcome) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("model", name)
    table.add_row("compiled in", f"{outcome.compile_seconds:.2f} s")
    table.add_row("runs in", f"{outcome.run_seconds * 1e3:.2f} ms, best of {TIMED_SECONDS:g} s")
    if outcome.rival_seconds is not None:
        table.add_row("onnxruntime", f"{outcome.rival_seconds * 1e3:.2f} ms, in this same process")
    table.add_row("agreement", outcome.agreement)
    console.print(table)
