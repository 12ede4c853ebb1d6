"""`nestor run MODEL`: runs a model once on the given or drawn inputs, and prints or saves its outputs.

`--node NAME` prints the value of any node of the model too, and says what became of it; `--stop-at nan` stops at the
first node that makes a NaN of finite inputs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from nestor.cli.options import (
    InputOption,
    OptionError,
    OptLevelOption,
    PrecisionOption,
    SeedOption,
    ShapeOption,
    TargetOption,
    ThreadsOption,
    compile_options,
    describe,
    make_inputs,
    output_console,
    progress_line,
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
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="NAME", help="Print this node's or value's result too; repeat.", show_default=False
        ),
    ] = None,
    stop_at: Annotated[
        str | None,
        typer.Option(
            "--stop-at", metavar="nan|inf|either", help="Stop at the first node that makes one of finite inputs.",
            show_default=False,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Run a model once and print its outputs."""
    import nestor
    from graphir.debugging import STOPS

    if stop_at is not None and stop_at not in STOPS:
        raise OptionError(f"--stop-at {stop_at}: it is one of {', '.join(STOPS)}")

    given = read_inputs(inputs or ())
    if require_file(model).suffix == ".nst":
        executable = nestor.load(model)
    else:
        with progress_line(f"compiling {model.name}"):
            executable = nestor.compile(
                model, **compile_options(target, threads, shape, opt_level=opt_level, precision=precision)
            )
    arrays = make_inputs(executable.inputs, given, seed=seed)
    inside = executable.debug(arrays, node or [], stop_at=stop_at) if node or stop_at else {}
    values = executable.run(arrays)
    console = output_console()
    for name, value in inside.items():
        console.print(f"{name}: {describe(value)}; {executable.explain(name)}", highlight=False, markup=False)
        console.print(np.array2string(value, threshold=20, edgeitems=3, precision=6), highlight=False, markup=False)
    for spec, value in zip(executable.outputs, values):
        console.print(f"{spec.name}: {describe(value)}", highlight=False, markup=False)
        console.print(np.array2string(value, threshold=20, edgeitems=3, precision=6), highlight=False, markup=False)
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            np.save(save / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', spec.name)}.npy", value)
