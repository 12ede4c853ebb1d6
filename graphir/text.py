"""The text form of a graph, for people.

graph main(x: float32[n, 3]; n) {
  const w: float32[3, 4] #1a2b3c4d5e6f
  y: float32[n, 4] = matmul(x, w)   # fc1
  return y
}
"""

from __future__ import annotations

from graphir import dims
from graphir.attrs import attr_text
from graphir.ir import Graph, Node, Value, data_hash, value_type


def node_text(node: Node) -> str:
    """One node in a line, its subgraphs left out."""
    outputs = ", ".join(f"{v.name}: {value_type(v)}" for v in node.outputs)
    operands = ["none" if v is None else v.name for v in node.inputs]
    attrs = [f"{k}={attr_text(v)}" for k, v in node.attrs]
    by = f" by {node.implementation}" if node.implementation else ""
    places = [o.place for o in node.origins if o.place != node.name]
    place = f"   # {', '.join(places[:4])}{', ...' if len(places) > 4 else ''}" if places else ""
    return f"{outputs} = {node.op}({', '.join([*operands, *attrs])}){by}{place}"


def graph_text(graph: Graph, indent: str = "") -> str:
    """The whole graph with its subgraphs."""
    symbols = f"; {', '.join(map(str, graph.symbols))}" if graph.symbols else ""
    inputs = ", ".join(f"{v.name}: {value_type(v)}" for v in graph.inputs)
    lines = [f"{indent}graph {graph.name}({inputs}{symbols}) {{"]
    inner = indent + "  "
    for v, data in graph.constants.items():
        lines.append(f"{inner}const {v.name}: {value_type(v)} {_constant_text(v, data)}")
    for node in graph.nodes:
        lines.append(inner + node_text(node))
        lines += [graph_text(sub, inner + "  ") for sub in node.subgraphs]
    named = [n if n == v.name else f"{n}={v.name}" for n, v in zip(graph.output_names, graph.outputs, strict=True)]
    lines += [f"{inner}return {', '.join(named)}", f"{indent}}}"]
    return "\n".join(lines)


def _constant_text(v: Value, data: object) -> str:
    if v.content is not None and len(v.content) <= 8:
        inner = ", ".join(map(dims.text, v.content))
        return f"= {inner}" if not v.shape else f"= [{inner}]"
    return "(data not given)" if data is None else f"#{data_hash(data)}"  # type: ignore[arg-type]
