"""Puts another algorithm in an op's place where the model says it is faster: Winograd for 3x3 convolutions.

    y = conv2d(x, w, b, padding=(1, 1, 1, 1))
        ->  u = winograd_weight(w, m=4); y = conv2d_winograd(x, u, b, m=4, padding=(1, 1, 1, 1))

Another algorithm rounds differently, so this is a choice about the graph, never a schedule; `precision="strict"`
turns it off, and each replaced node is named in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphir.builder import GraphEditor
from graphir.groups import spec_of
from graphir.ir import GRAPH_OPS, Graph, Node
from topi.group import choose_implementation
from topi.op import Algorithm, Call
from topi.registry import get_op

if TYPE_CHECKING:
    from graphir.pipeline import PassContext


def algorithms(graph: Graph, context: PassContext) -> Graph:
    """The graph with nodes replaced by faster algorithms of bounded accuracy."""
    if context.precision == "strict":
        return graph
    edit = GraphEditor(graph)
    fixed = {v for v, data in graph.constants.items() if data is not None}
    for node in graph.nodes:
        found = None if node.op in GRAPH_OPS else _choose(node, fixed, context)
        if found is None:
            edit.keep(node)
            if node.operands and all(v in fixed for v in node.operands):
                fixed.update(node.outputs)
            continue
        algorithm, call = found
        mapped = edit.mapped(node)
        inputs = list(mapped.inputs)
        for number, (op, attrs) in algorithm.operands(call).items():
            inputs[number] = edit.add(op, [inputs[number]], attrs, name=f"{node.name}.{op}", origins=node.origins)[0]
        edit.release(node)
        made = edit.add(
            algorithm.op, inputs, algorithm.attrs(call), name=node.name, origins=node.origins,
            outputs=[v.name for v in node.outputs],
        )  # fmt: skip
        for old, new in zip(node.outputs, made, strict=True):
            edit.replace(old, new)
        context.note(f"algorithms: {node.name} ({node.op}) by {algorithm.name} (bounded accuracy)")
    return edit.finish_edit()


def _choose(node: Node, fixed: set, context: PassContext) -> tuple[Algorithm, Call] | None:
    op = get_op(node.op)
    if not op.algorithms:
        return None
    call = Call(
        op,
        tuple(None if v is None else spec_of(v) for v in node.inputs),
        tuple(map(spec_of, node.outputs)),
        node.attributes,
        tuple(v is not None and v in fixed for v in node.inputs),
    )
    implementation, _ = choose_implementation(call, context.target, context.precision)
    if implementation is None:
        return None
    best, limit = None, implementation.cost(call, context.target)
    refused: dict[str, list[str]] = {}
    for candidate in op.algorithms:
        reason = candidate.applicable(call, context.target)
        if reason is not None:
            refused.setdefault(reason, []).append(candidate.name)
            continue
        cost = candidate.cost(call, context.target)
        if cost < limit:
            best, limit = candidate, cost
        else:
            refused.setdefault("the model finds it slower", []).append(candidate.name)
    if best is None:
        reasons = "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in refused.items())
        context.note(f"algorithms: {node.name} ({node.op}) stays as it is; not by {reasons}")
        return None
    return best, call
