"""`nestor profile MODEL`: what each kernel takes, what the machine's limits would allow, and how its code looks."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from nestor.cli.options import (
    InputOption,
    OptLevelOption,
    PrecisionOption,
    SeedOption,
    ShapeOption,
    ThreadsOption,
    compile_options,
    make_inputs,
    output_console,
    progress_line,
    read_inputs,
    require_file,
)


def profile(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL|OUT.nst", help="An ONNX model, or a saved one.", show_default=False)
    ],
    inputs: InputOption = None,
    threads: ThreadsOption = None,
    opt_level: OptLevelOption = 3,
    precision: PrecisionOption = "default",
    shape: ShapeOption = None,
    seed: SeedOption = 0,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs; the shortest counts.")] = 20,
    top: Annotated[int, typer.Option("--top", min=0, help="Kernels shown, longest first; 0 for all.")] = 25,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured.", show_default=False)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the roofline.", show_default=False)
    ] = None,
) -> None:
    """Say where the time of a model goes."""
    import nestor
    from nestor.bench.probe import machine_floor
    from nestor.bench.profile import profile_model, roofline_svg
    from targets.llvm.runtime import host

    given = read_inputs(inputs or ())
    with progress_line(f"compiling {require_file(model).name}") as status:
        if model.suffix == ".nst":
            exe = nestor.load(model)
        else:
            options = compile_options("llvm", threads, shape, opt_level=opt_level, precision=precision)
            exe = nestor.compile(model, **options)
        values = make_inputs(exe.inputs, given, seed=seed)
        exe = exe.pick(values) if hasattr(exe, "pick") else exe
        status.update("measuring the machine")
        floor = machine_floor(exe.threads or host().cores)
        status.update("measuring the kernels")
        found = profile_model(exe, values, floor, repeats=repeats)
    console = output_console()
    console.print(kernel_table(model.name, found, top))
    for line in summary(found):
        console.print(line, markup=False)
    if json is not None:
        json.write_text(json_text.dumps(found.json(), indent=1) + "\n", encoding="utf-8")
    if svg is not None:
        svg.write_text(roofline_svg(found, model.name), encoding="utf-8")


def kernel_table(name: str, found: Any, top: int) -> Table:
    """The kernels that take longest, one a row."""
    table = Table(title=f"{name}: kernels", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("us", "share", "floor", "GFLOP/s", "GB/s", "bits", "spills"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("node: ops, implementation", overflow="fold")
    ordered = sorted(found.kernels, key=lambda k: -k.seconds)
    for k in ordered[: top or None]:
        table.add_row(
            f"{k.seconds * 1e6:.1f}",
            f"{k.seconds / (found.kernel_seconds or 1):.1%}",
            _verdict(k.share),
            "?" if k.flop is None else f"{k.flop / k.seconds / 1e9:.1f}" if k.flop else "",
            f"{k.nbytes / k.seconds / 1e9:.1f}",
            str(k.vector_bits) if k.vector_bits else "scalar",
            f"[red]{k.spills}[/red]" if k.spills else "",
            f"{k.node}: {k.ops.replace('+', ' ')}, {k.implementation}".replace("[", r"\["),
        )
    return table


def _verdict(share: float) -> str:
    color = "green" if share >= 0.8 else "yellow" if share >= 0.4 else "red"
    return f"[{color}]{share:.0%}[/{color}]"


def summary(found: Any) -> list[str]:
    """Sentences under the table."""
    m = found.machine
    rates = ", ".join(f"{level} {rate / 1e9:.0f}" for level, rate in m.copy.items())
    lines = [
        f"{len(found.kernels)} kernels take {found.kernel_seconds * 1e3:.3f} ms one by one, each called from Python; "
        f"a run takes {found.run_seconds * 1e3:.3f} ms",
        f"floor {found.floor * 1e3:.3f} ms ({found.floor / found.run_seconds:.0%} of the run): the longer of products "
        f"over {m.fma / 1e9:.0f} GFLOP/s and bytes over the copy rate (GB/s: {rates}), {m.threads} threads",
    ]
    if any(k.share > 1.05 for k in found.kernels):
        lines.append("caution: a floor above 100% means that the machine was busy while its rates were measured")
    if lost := sorted(found.kernels, key=lambda k: k.floor - k.seconds)[:3]:
        gains = ", ".join(f"{k.node} {max(k.seconds - k.floor, 0) * 1e6:.0f} us" for k in lost)
        lines.append(f"most to gain: {gains}")
    return lines
