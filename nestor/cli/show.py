"""`nestor show MODEL`: a model's Graph IR, as read or after named passes, as text or JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from nestor.cli.options import ModelArgument, ShapeOption, parse_shapes, require_file


def show(
    model: ModelArgument,
    passes: Annotated[
        list[str] | None,
        typer.Option("--pass", metavar="NAME", help="Apply this pass first; repeat for more.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    shape: ShapeOption = None,
) -> None:
    """Print a model's graph, before or after passes."""
    import nestor

    graph = nestor.from_onnx(require_file(model), shapes=parse_shapes(shape or ()) or None)
    if passes:
        graph = graph.infer().apply(*passes)
    typer.echo(graph.json() if json else str(graph))
