"""Removes nodes whose results nothing needs.

y = relu(x); z = exp(x); return y      ->      y = relu(x); return y
"""

from __future__ import annotations

from typing import Any

from graphir import dims
from graphir.ir import Graph, Node, Value, symbols_used, with_nodes


def dead_nodes(graph: Graph, context: Any = None) -> Graph:
    """The graph without them, and without constants that only they read."""
    needed: set[Value] = set(graph.outputs)
    symbols = {s.name for v in graph.outputs for d in v.shape for s in dims.symbols_of(d)}
    kept = []
    for node in reversed(graph.nodes):
        defines = node.op == "size" and node.attributes["symbol"] in symbols
        if defines or any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.operands)
            symbols.update(*(symbols_used(n) for n in _with_inner(node)))
    if len(kept) == len(graph.nodes) and all(v in needed for v in graph.constants):
        return graph
    return with_nodes(graph, reversed(kept))


def _with_inner(node: Node) -> list[Node]:
    """A node and the nodes of its subgraphs."""
    found = [node]
    for outer in found:
        found.extend(n for sub in outer.subgraphs for n in sub.nodes)
    return found
