"""What a legal graph is, in one list; checked before and after every pass."""

from __future__ import annotations

from graphir import dims
from graphir.builder import infer_node
from graphir.ir import GRAPH_OPS, Graph, Node, Value, subgraph_inputs, value_type
from tensorir.errors import InternalError
from topi.registry import get_op


def verify_graph(graph: Graph, *, where: str = "", types: bool = True) -> Graph:
    """The graph itself if it is legal; else an `InternalError` that lists what is wrong (`where` says after what).

    Every value has one definition and stands before its readers; names are unique; every dimension is canonical and
    speaks only of the graph's symbols; arities are the op's; with `types`, shapes and dtypes are what the op's compute
    gives; subgraph inputs match the captured values.
    """
    faults: list[str] = []
    _check(graph, faults, {s.name for s in graph.symbols}, types)
    if faults:
        listed = "\n".join(f"  {f}" for f in faults[:20])
        raise InternalError(f"the graph {graph.name} is not well formed{f' after {where}' if where else ''}:\n{listed}")
    return graph


def _check(graph: Graph, faults: list[str], symbols: set[str], types: bool) -> None:
    defined: set[Value] = set()
    names: dict[str, str] = {}

    def define(v: Value, by: str) -> None:
        if v in defined:
            faults.append(f"{v.name} is defined twice, the second time by {by}")
        if v.name in names:
            faults.append(f"the name {v.name} is used by {names[v.name]} and by {by}")
        names[v.name] = by
        defined.add(v)
        for d in v.shape:
            if dims.canonical(d) is not d:
                faults.append(f"{v.name}: dimension {d!r} is not in canonical form")
            for s in dims.symbols_of(d):
                if s.name not in symbols:
                    faults.append(f"{v.name}: the symbol {s.name} is not one of the graph's")

    for v in graph.inputs:
        define(v, "the inputs")
    for v, data in graph.constants.items():
        define(v, "the constants")
        if data is not None and (tuple(data.shape) != dims.constants(v.physical_shape) or data.dtype != v.dtype.numpy):
            faults.append(f"the constant {v.name} says {value_type(v)} but its data is {data.dtype}{list(data.shape)}")
    for node in graph.nodes:
        for v in node.operands:
            if v not in defined:
                faults.append(f"node {node.name} reads {v.name} before it is defined")
        for v in node.outputs:
            define(v, f"node {node.name}")
        _check_node(node, faults, types)
        for sub in node.subgraphs:
            _check(sub, faults, symbols, types)
    for v in graph.outputs:
        if v not in defined:
            faults.append(f"the output {v.name} is not defined")
    if len(graph.output_names) != len(graph.outputs):
        faults.append(f"{len(graph.outputs)} outputs have {len(graph.output_names)} names")


def _check_node(node: Node, faults: list[str], types: bool) -> None:
    if node.op not in GRAPH_OPS:
        definition = get_op(node.op)
        if not definition.variadic and not definition.required <= len(node.inputs) <= len(definition.operands):
            faults.append(f"node {node.name}: {node.op} has {len(node.inputs)} operands")
    captured = subgraph_inputs(node)
    for sub in node.subgraphs:
        if len(sub.inputs) != len(captured):
            faults.append(f"node {node.name}: a subgraph has {len(sub.inputs)} inputs for {len(captured)} values")
            continue
        for inside, outside in zip(sub.inputs, captured, strict=True):
            if outside is None or inside.dtype != outside[1] or not dims.same_shape(inside.shape, outside[0]):
                faults.append(f"node {node.name}: the subgraph input {inside.name} does not fit what it is given")
    if not types:
        return
    inferred = infer_node(node.op, node.inputs, node.attrs, node.subgraphs, node.name, node.origins)
    if len(inferred) != len(node.outputs):
        faults.append(f"node {node.name}: {node.op} has {len(inferred)} results, the node {len(node.outputs)}")
        return
    for v, (shape, dtype) in zip(node.outputs, inferred, strict=True):
        if v.dtype != dtype or not dims.same_shape(v.shape, shape):
            faults.append(
                f"node {node.name}: {v.name} is {value_type(v)}, the op gives {dtype}{dims.shape_text(shape)}"
            )
