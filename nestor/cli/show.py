"""`nestor show MODEL`: a model's Graph IR, as read or after named passes, as text, JSON or a picture; with `--memory`
the memory plan; of an artifact, what it says about itself and its graph. Nothing of an artifact is run."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from nestor.cli.options import OptionError, ShapeOption, parse_shapes, require_file


def show(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL|OUT.nst", help="An ONNX model, or a saved one.", show_default=False)
    ],
    passes: Annotated[
        list[str] | None,
        typer.Option("--pass", metavar="NAME", help="Apply this pass first; repeat for more.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    shape: ShapeOption = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Compile, and show who lies where in memory, and when.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Draw the graph, or the memory.", show_default=False),
    ] = None,
) -> None:
    """Print a model's graph, before or after passes, its memory plan, or what an artifact holds."""
    import nestor

    if require_file(model).suffix == ".nst":
        if passes or shape or memory or svg:
            raise OptionError(f"{model.name} is an artifact: its passes have run, its shapes and memory are fixed")
        found = nestor.inspect(model)
        typer.echo(json_text.dumps(found.manifest, indent=1) if json else "\n".join([str(found), *found.graphs]))
        return
    if memory:
        report = nestor.compile(model, shapes=parse_shapes(shape or ()) or None).memory
        typer.echo(f"{report}\n\n{report.drawing()}")
        if svg is not None:
            report.svg(svg)
        return
    graph = nestor.from_onnx(require_file(model), shapes=parse_shapes(shape or ()) or None)
    if passes:
        graph = graph.infer().apply(*passes)
    if svg is not None:
        graph.svg(svg)
    typer.echo(graph.json() if json else str(graph))
