"""A picture of a graph as SVG, drawn here: nodes in rows by depth, edges with the type of what flows along."""

from __future__ import annotations

from html import escape

from graphir.attrs import attr_text
from graphir.ir import Graph, Node, Value, producers, value_type

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 210, 38, 24, 46
_COLOURS = {"input": "#d9ead3", "output": "#fff2cc", "group": "#cfe2f3", "if": "#f4cccc", "loop": "#f4cccc"}


def graph_svg(graph: Graph) -> str:
    """The SVG text of a graph; constants are left out, subgraphs are listed in their node's tooltip."""
    made = producers(graph)
    depth: dict[Value, int] = {v: 0 for v in graph.inputs}
    boxes: list[tuple[str, str, str, str, int]] = [
        ("i" + v.name, v.name, value_type(v), "input", 0) for v in graph.inputs
    ]
    edges: list[tuple[str, str, str]] = []

    def source(v: Value) -> str | None:
        return f"n{made[v].name}" if v in made else None if v in graph.constants else f"i{v.name}"

    for node in graph.nodes:
        row = 1 + max((depth.get(v, 0) for v in node.operands), default=0)
        for v in node.outputs:
            depth[v] = row
        boxes.append((f"n{node.name}", node.op, _tooltip(node), node.op, row))
        for v in node.operands:
            if (start := source(v)) is not None:
                edges.append((start, f"n{node.name}", value_type(v)))
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        boxes.append((f"o{name}", name, value_type(v), "output", depth.get(v, 0) + 1))
        if (start := source(v)) is not None:
            edges.append((start, f"o{name}", value_type(v)))
    return _draw(boxes, edges)


def _tooltip(node: Node) -> str:
    inner = [n.op for s in node.subgraphs for n in s.nodes]
    attrs = ", ".join(f"{k}={attr_text(v)}" for k, v in node.attrs)
    return f"{node.name}: {' + '.join(inner) or attrs or node.op}"


def _draw(boxes: list[tuple[str, str, str, str, int]], edges: list[tuple[str, str, str]]) -> str:
    columns: dict[int, int] = {}
    at: dict[str, tuple[int, int]] = {}
    shapes: list[str] = []
    for key, label, tooltip, kind, row in boxes:
        column = columns.get(row, 0)
        columns[row] = column + 1
        x, y = _GAP_X + column * (_WIDTH + _GAP_X), _GAP_Y // 2 + row * (_HEIGHT + _GAP_Y)
        at[key] = (x, y)
        shapes.append(
            f'<g><title>{escape(tooltip)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
            f'fill="{_COLOURS.get(kind, "#ffffff")}" stroke="#333"/>'
            f'<text x="{x + _WIDTH // 2}" y="{y + 24}" text-anchor="middle">{escape(label[:28])}</text></g>'
        )
    lines: list[str] = []
    for start, end, label in edges:
        (x0, y0), (x1, y1) = at[start], at[end]
        x0, x1, y0 = x0 + _WIDTH // 2, x1 + _WIDTH // 2, y0 + _HEIGHT
        lines.append(
            f'<g><title>{escape(label)}</title><path d="M {x0} {y0} C {x0} {y0 + 24}, {x1} {y1 - 24}, {x1} {y1}" '
            'fill="none" stroke="#777"/>'
            f'<text x="{x1 + 4}" y="{y1 - 6}" fill="#777" font-size="9">{escape(label)}</text></g>'
        )
    width = _GAP_X + max(columns.values(), default=1) * (_WIDTH + _GAP_X)
    height = _GAP_Y + (max(columns, default=0) + 1) * (_HEIGHT + _GAP_Y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12">{"".join(lines)}{"".join(shapes)}</svg>'
    )
