"""`nestor compile MODEL [-o OUT.nst]`: compiles a model, says how it went, and saves it when asked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestor.cli.options import (
    ModelArgument,
    OptLevelOption,
    PrecisionOption,
    ShapeOption,
    TargetOption,
    ThreadsOption,
    compile_options,
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

    console = Console()
    options = compile_options(target, threads, shape, opt_level=opt_level, precision=precision)
    start = time.perf_counter()
    with console.status(f"compiling {require_file(model).name}"):
        executable = nestor.compile(model, **options)
    console.print(f"{model.name}: compiled in {time.perf_counter() - start:.2f} s for {target}", highlight=False)
    for kind, specs in (("input", executable.inputs), ("output", executable.outputs)):
        for spec in specs:
            dims = ",".join(map(str, spec.shape))
            console.print(f"  {kind} {spec.name}: {spec.dtype}[{dims}]", highlight=False, markup=False)
    if log:
        console.print(str(executable.log), highlight=False, markup=False)
    console.print(str(executable.memory), highlight=False, markup=False)
    if output is not None:
        executable.save(output)
        console.print(f"saved as {output}", highlight=False, markup=False)
