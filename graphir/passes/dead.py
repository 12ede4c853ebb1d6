"""Removes nodes whose results nothing needs.

y = relu(x); z = exp(x); return y      ->      y = relu(x); return y
"""

from __future__ import annotations

from typing import Any

from graphir.ir import Graph, Value, with_nodes


def dead_nodes(graph: Graph, context: Any = None) -> Graph:
    """The graph without them, and without constants that only they read."""
    needed: set[Value] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.operands)
    if len(kept) == len(graph.nodes) and all(v in needed for v in graph.constants):
        return graph
    return with_nodes(graph, reversed(kept))
