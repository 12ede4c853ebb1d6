"""Computes what depends on constants only, once, when compiling.

    w' = multiply(w, scale)   (w and scale constants)      ->      w' a constant

The foldable nodes form the prologue graph. It runs through the same kernels as everything else
(`context.run_constants`), so a folded value has the bits it would have had at run time. A node that only makes much
out of little (an expanded constant) is left, and so is a prologue whose run fails (an integer division by zero): the
branch may never be taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphir import dims
from graphir.builder import GraphEditor
from graphir.errors import GraphError
from graphir.ir import GRAPH_OPS, Graph, Node, Value
from graphir.kinds import is_training
from tensorir.errors import NestorError

if TYPE_CHECKING:
    from graphir.pipeline import PassContext

GROWTH_LIMIT = 1 << 16
"""Bytes up to which a folded result may be larger than its operands together, however small they are."""

GROWTH_FACTOR = 8
"""How many times its operands a folded result may be: a transformed weight is four times the weight, or seven."""


def fold_constants(graph: Graph, context: PassContext) -> Graph:
    """The graph with the prologue's results as constants."""
    known: set[Value] = {v for v, data in graph.constants.items() if data is not None}
    folded: list[Node] = []
    for node in graph.nodes:
        if _is_foldable(node, known):
            folded.append(node)
            known.update(node.outputs)
    if not folded or context.run_constants is None:
        return graph
    inside = set(folded)
    wanted = {v for node in graph.nodes if node not in inside for v in node.operands} | set(graph.outputs)
    results = [v for node in folded for v in node.outputs if v in wanted]
    try:
        data = context.run_constants(_prologue(graph, folded, results), context.target)
    except GraphError:
        raise
    except (NestorError, ZeroDivisionError) as error:
        context.note(f"fold_constants: left unfolded: {str(error).splitlines()[0]}")
        return graph
    edit = GraphEditor(graph)
    for v in results:
        edit.replace(v, edit.constant(data[v.name], v.name, like=v))
    for node in graph.nodes:
        if node not in inside:
            edit.keep(node)
    context.note(f"fold_constants: {len(folded)} nodes give {len(results)} constants")
    return edit.finish_edit()


def _is_foldable(node: Node, known: set[Value]) -> bool:
    if node.op in GRAPH_OPS or not node.operands or is_training(node):
        return False
    if not all(v in known for v in node.operands):
        return False
    sizes = [dims.constant(v.nbytes) for v in node.outputs]
    if any(s is None for s in sizes):
        return False
    made = sum(s for s in sizes if s is not None)
    given = sum(dims.constant(v.nbytes) or 0 for v in node.operands)
    return made <= max(given + GROWTH_LIMIT, GROWTH_FACTOR * given)


def _prologue(graph: Graph, folded: list[Node], results: list[Value]) -> Graph:
    used = {v for node in folded for v in node.operands}
    constants = {v: a for v, a in graph.constants.items() if v in used}
    return Graph(f"{graph.name}.prologue", (), tuple(results), tuple(folded), constants)
