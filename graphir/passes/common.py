"""Computes equal nodes once.

p = a * b; q = a * b      ->      p = a * b, and readers of q read p
"""

from __future__ import annotations

from typing import Any

from graphir.attrs import attr_text
from graphir.builder import GraphEditor
from graphir.ir import Graph, Node


def common_nodes(graph: Graph, context: Any = None) -> Graph:
    """The graph with every group of equal nodes replaced by its first. Nodes with subgraphs are left."""
    edit = GraphEditor(graph)
    seen: dict[tuple[Any, ...], Node] = {}
    for node in graph.nodes:
        made = edit.mapped(node)
        key = (
            made.op,
            tuple(-1 if v is None else id(v) for v in made.inputs),
            tuple((k, attr_text(v)) for k, v in made.attrs),
            made.implementation,
            tuple(str(v.layout) for v in made.outputs),
        )
        first = seen.get(key)
        if made.subgraphs or first is None:
            seen[key] = edit.keep(node)
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):
            edit.replace(old, new)
        if context is not None:
            context.note(f"common_nodes: {node.name} is {first.name}")
    return edit.finish_edit()
