"""`nestor run MODEL`: runs a model once on the given or drawn inputs, and prints or saves its outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from nestor.cli.options import (
    InputOption,
    OptLevelOption,
    PrecisionOption,
    SeedOption,
    ShapeOption,
    TargetOption,
    ThreadsOption,
    compile_options,
    describe,
    make_inputs,
    read_inputs,
    require_file,
)


def run(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL|OUT.nst", help="An ONNX model, or a saved one.", show_default=False)
    ],
    inputs: InputOption = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Write each output as .npy.", show_default=False)
    ] = None,
    target: TargetOption = "llvm",
    threads: ThreadsOption = None,
    opt_level: OptLevelOption = 3,
    precision: PrecisionOption = "default",
    shape: ShapeOption = None,
    seed: SeedOption = 0,
) -> None:
    """Run a model once and print its outputs."""
    import nestor

    given = read_inputs(inputs or ())
    if require_file(model).suffix == ".nst":
        executable = nestor.load(model)
    else:
        executable = nestor.compile(
            model, **compile_options(target, threads, shape, opt_level=opt_level, precision=precision)
        )
    values = executable.run(make_inputs(executable.inputs, given, seed=seed))
    console = Console()
    for spec, value in zip(executable.outputs, values):
        console.print(f"{spec.name}: {describe(value)}", highlight=False, markup=False)
        console.print(np.array2string(value, threshold=20, edgeitems=3, precision=6), highlight=False, markup=False)
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', spec.name)}.npy", value)
