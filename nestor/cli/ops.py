"""`nestor ops`: what Nestor covers, generated from the ops themselves."""

from __future__ import annotations

import json as json_text
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from nestor.cli.options import output_console


@dataclass(frozen=True, slots=True)
class Coverage:
    """An op: the ONNX operators it serves with the schema versions from which, its implementations beside the generic
    schedules, and how many cases its test runs."""

    op: str
    onnx: tuple[str, ...]
    implementations: tuple[str, ...]
    cases: int


def coverage() -> list[Coverage]:
    """Every op, by name."""
    from topi.registry import all_ops

    rows: list[Coverage] = []
    for name, op in sorted(all_ops().items()):
        versions: dict[str, set[int]] = defaultdict(set)
        for entry in op.onnx:
            versions[f"{entry.domain}.{entry.op_type}" if entry.domain else entry.op_type].add(entry.since)
        served = tuple(f"{o} {','.join(map(str, sorted(since)))}" for o, since in sorted(versions.items()))
        implementations = (*(i.name for i in op.implementations), *(f"{kind} schedule" for kind in op.schedules))
        rows.append(Coverage(name, served, implementations, len(op.cases)))
    return rows


def converted() -> list[str]:
    """The ONNX operators that become several nodes or control flow: served by converters of the front end."""
    from graphir.frontends.onnx import importer  # noqa: F401  loads every converter
    from graphir.frontends.onnx.registry import converters

    return sorted(f"{domain}.{name}" if domain else name for domain, name in converters())


def ops(
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown instead of a table.")] = False,
) -> None:
    """List the operators: what they serve, how, and how many cases test them."""
    rows, others = coverage(), converted()
    if json:
        typer.echo(json_text.dumps({"ops": [asdict(r) for r in rows], "converters": others}, indent=1))
        return
    served = {text.rpartition(" ")[0] for r in rows for text in r.onnx} | set(others)
    closing = f"{len(rows)} ops serve {len(served)} ONNX operators; by converters: {', '.join(others)}"
    if markdown:
        typer.echo("\n".join([*_markdown(rows), "", closing]))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("op", "ONNX, from schema version", "implementations"):
        table.add_column(heading, overflow="fold")
    table.add_column("cases", justify="right")
    for r in rows:
        table.add_row(r.op, ", ".join(r.onnx), ", ".join(r.implementations), str(r.cases))
    console = output_console()
    console.print(table)
    console.print(closing, markup=False)


def _markdown(rows: list[Coverage]) -> list[str]:
    lines = ["| op | ONNX, from schema version | implementations | cases |", "|---|---|---|---|"]
    return [*lines, *(f"| {r.op} | {', '.join(r.onnx)} | {', '.join(r.implementations)} | {r.cases} |" for r in rows)]
