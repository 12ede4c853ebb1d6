"""`nestor compile MODEL [-o OUT.nst]`: compiles a model, says how it went, and saves it when asked.

An input whose `--shape` is given several times makes as many variants, all in one artifact.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from nestor.cli.options import (
    ModelArgument,
    OptLevelOption,
    PrecisionOption,
    ShapeOption,
    TargetOption,
    ThreadsOption,
    compile_options,
    output_console,
    parse_shape_sets,
    progress_line,
    require_file,
)


def compile_model(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT.nst", help="Where to save.", show_default=False)
    ] = None,
    target: TargetOption = "llvm",
    threads: ThreadsOption = None,
    opt_level: OptLevelOption = 3,
    precision: PrecisionOption = "default",
    shape: ShapeOption = None,
    log: Annotated[bool, typer.Option("--log", help="Print what each pass did.")] = False,
) -> None:
    """Compile a model; say how long it took and what memory it plans."""
    import nestor

    console, made = output_console(), []
    options = compile_options(target, threads, None, opt_level=opt_level, precision=precision)
    with progress_line(f"compiling {require_file(model).name}") as status:

        def progress(done: int, total: int, name: str) -> None:
            status.update(f"compiling {model.name}: kernel {done} of {total} {name}")

        for shapes in parse_shape_sets(shape or ()):
            more = {"shapes": shapes} if shapes else {}
            start = time.perf_counter()
            executable = nestor.compile(model, progress=progress, **more, **options)
            made.append((executable, time.perf_counter() - start))
    for executable, seconds in made:
        console.print(f"{model.name}: compiled in {seconds:.2f} s for {target}", markup=False)
        for kind, specs in (("input", executable.inputs), ("output", executable.outputs)):
            for spec in specs:
                dims = ",".join(map(str, spec.shape))
                console.print(f"  {kind} {spec.name}: {spec.dtype}[{dims}]", markup=False)
        if log:
            console.print(lines_of(executable.log), markup=False)
        lines = str(executable.memory).splitlines()
        console.print("\n".join(line for line in lines if log or not line.startswith(" ")), markup=False)
    if output is not None:
        nestor.save([executable for executable, _ in made], output)
        console.print(f"saved as {output}", markup=False)


def lines_of(log: Any) -> str:
    """A log as text, one entry a line."""
    return log if isinstance(log, str) else "\n".join(map(str, log))
