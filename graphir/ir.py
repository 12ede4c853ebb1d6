"""Graph IR: values, nodes and graphs. Data only; passes make new graphs.

A graph is a list of nodes in dependence order over values that are each defined once: a graph input, a constant (its
numpy data held by the graph, never in text or keys) or the output of a node. A value's dimensions are canonical
expressions over the graph's symbols (`graphir.dims`), so equal sizes are the same object.

Most nodes name an op of topi. The ops of the graph itself are in `GRAPH_OPS`:

    dims    an integer tensor whose elements are expressions over the symbols (attribute `values`)
    size    an int64 scalar whose value at run time defines a symbol (attributes `symbol`, and `bound`, the largest that
            it can be); the result is the scalar, known as the symbol
    group   several nodes that become one kernel: the one subgraph, its inputs the node's inputs in order
    if      cond, captured values... ; subgraphs then and else, whose inputs are the captured values in order
    loop    limit or none, cond or none, carried..., scanned..., captured... ; one subgraph run while the iteration
            number is below the trip count (attribute `trips`, or the value of limit) and the condition holds. Its
            inputs: iteration number, condition, carried values, the iteration's slice of each scanned value along axis
            0, captured values. Its outputs: the next condition, the next carried values, and slices that are stacked
            along axis 0. The node's outputs: the last carried values, the stacks. `carried` and `scanned` count
            operands; `reverse` says of each scanned operand, then of each stack, whether it runs from the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from tensorir import dtypes
from tensorir.dtypes import DType
from tensorir.expr import Expr, Var
from tensorir.html import changed_lines, text_html
from tensorir.layout import Layout
from tensorir.origin import Origin

if TYPE_CHECKING:
    from pathlib import Path

GRAPH_OPS = ("dims", "size", "group", "if", "loop")
CONTROL_OPS = ("if", "loop")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value:
    """A tensor of a graph. `content`, where known, holds the elements of a small integer tensor, flattened, as
    expressions over the symbols. `layout` says how the logical dimensions lie in memory."""

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    layout: Layout
    content: tuple[Expr, ...] | None = None
    origins: tuple[Origin, ...] = ()

    def __repr__(self) -> str:
        return f"{self.name}: {value_type(self)}"

    @property
    def rank(self) -> int:
        """The number of logical dimensions."""
        return len(self.shape)

    @property
    def physical_shape(self) -> tuple[Expr, ...]:
        """The shape as it lies in memory, padding included."""
        if self.layout.is_plain:
            return self.shape
        return tuple(dims.canonical(d) for d in self.layout.physical_shape(self.shape))

    @property
    def nbytes(self) -> Expr:
        """Bytes in memory, padding included."""
        return dims.canonical(dims.product(self.physical_shape) * self.dtype.nbytes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """One application of an op. An optional operand that is left out is None. `implementation` is the name of the
    topi implementation that the layout pass chose."""

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    name: str = ""
    subgraphs: tuple[Graph, ...] = ()
    origins: tuple[Origin, ...] = ()
    implementation: str | None = None

    def __repr__(self) -> str:
        from graphir.text import node_text  # the printer imports this module

        return node_text(self)

    @property
    def output(self) -> Value:
        """The one output."""
        [only] = self.outputs
        return only

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes by name."""
        return dict(self.attrs)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are there."""
        return tuple(v for v in self.inputs if v is not None)

    @property
    def place(self) -> str:
        """Where the node came from, for messages: the original name if there is one."""
        return self.origins[0].place if self.origins else self.name


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dimension symbol and its bounds (inclusive)."""

    name: str
    low: int = 0
    high: int | None = None

    @property
    def var(self) -> Var:
        """The variable that stands for it in dimensions."""
        return dims.symbol(self.name)

    def __str__(self) -> str:
        if self.high is not None:
            return f"{self.name} in {self.low}..{self.high}"
        return self.name if self.low == 0 else f"{self.name} >= {self.low}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """Inputs, nodes in dependence order, outputs. `constants` maps a constant value to its data, or to None where only
    its type is known (a graph read from JSON without parameters). `output_names` are the names the user sees, which
    stay when a pass replaces an output value."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, np.ndarray | None] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.output_names:
            object.__setattr__(self, "output_names", tuple(v.name for v in self.outputs))

    def __repr__(self) -> str:
        from graphir.text import graph_text  # the printer imports this module

        return graph_text(self)

    def json(self) -> str:
        """The NNVM symbol form; constants by name, shape and hash (their data is `params()`)."""
        from graphir.json_form import graph_json  # the writer imports this module

        return graph_json(self)

    @staticmethod
    def from_json(text: str, params: Mapping[str, np.ndarray] | None = None) -> Graph:
        """A graph from its JSON; `params` gives the data of constants by name."""
        from graphir.json_form import graph_from_json  # the reader imports this module

        return graph_from_json(text, params)

    def params(self) -> dict[str, np.ndarray]:
        """The data of the constants by name, subgraphs included."""
        found = {v.name: a for v, a in self.constants.items() if a is not None}
        for node in self.nodes:
            for sub in node.subgraphs:
                found.update(sub.params())
        return found

    def svg(self, path: str | Path | None = None) -> str:
        """A picture of the graph; written to `path` if given."""
        from graphir.svg import graph_svg  # the painter imports this module

        picture = graph_svg(self)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(picture)
        return picture

    def changes_html(self, before: Graph) -> str:
        """The text of the graph for a notebook, the lines that are not in `before` marked."""
        lines = str(self).splitlines()
        return text_html(lines, changed_lines(str(before).splitlines(), lines))

    def _repr_html_(self) -> str:
        """The picture, and the text beside it."""
        return f"{self.svg()}<details><summary>text</summary>{text_html(str(self).splitlines())}</details>"

    def infer(self, shapes: Mapping[str, Sequence[Any]] | None = None) -> Graph:
        """The graph with every shape, dtype and content derived again; `shapes` fixes dimensions of inputs."""
        from graphir.passes.infer import infer  # passes import this module

        return infer(self, shapes)

    def apply(self, *names: Any, **options: Any) -> Graph:
        """The graph after these passes: names of `graphir.pipeline.PASSES` or user passes, in order."""
        from graphir.pipeline import apply  # the pipeline imports this module

        return apply(self, *names, **options)


# ------------------------------------------------------------------------------------------------------------ reading


def value_type(v: Value) -> str:
    """A value's type as printed: float32[n, 3] or float32[1, 64, 56, 56]@NCHW16c-like layout text."""
    layout = "" if v.layout.is_plain else f"@{v.layout}"
    return f"{v.dtype}{dims.shape_text(v.shape)}{layout}"


def producers(graph: Graph) -> dict[Value, Node]:
    """The node that makes each node output."""
    return {v: node for node in graph.nodes for v in node.outputs}


def consumers(graph: Graph) -> dict[Value, list[Node]]:
    """The nodes that read each value, each node once; subgraph captures are ordinary inputs of their node."""
    found: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in dict.fromkeys(node.operands):
            found.setdefault(v, []).append(node)
    return found


def subgraph_inputs(node: Node) -> list[tuple[tuple[Expr, ...], DType] | None]:
    """Shape and dtype of what a node gives to its subgraphs' inputs, in order (None for an operand left out)."""
    given = [None if v is None else (v.shape, v.dtype) for v in node.inputs]
    if node.op == "if":
        return given[1:]
    if node.op != "loop":
        return given
    first = 2 + int(node.attributes["carried"])
    last = first + int(node.attributes["scanned"])
    slices = [None if g is None else (g[0][1:], g[1]) for g in given[first:last]]
    return [((), dtypes.int64), ((), dtypes.bool_), *given[2:first], *slices, *given[last:]]


def late_symbols(graph: Graph) -> dict[str, Expr]:
    """The symbols that nodes define at run time, each with its bound over the symbols of the inputs."""
    found: dict[str, Expr] = {}
    stack = [graph]
    while stack:
        g = stack.pop()
        for node in g.nodes:
            if node.op == "size":
                found[node.attributes["symbol"]] = dims.substitute(dims.as_dim(node.attributes["bound"]), found)
            stack.extend(node.subgraphs)
    return found


def symbols_used(node: Node) -> set[str]:
    """The names of the symbols in the dimensions, content and attributes of a node, subgraphs left out."""
    used = {s.name for v in (*node.operands, *node.outputs) for d in v.shape for s in dims.symbols_of(d)}
    if node.op == "dims":
        used |= {s.name for v in node.outputs for d in v.content or () for s in dims.symbols_of(d)}
    stack = [value for name, value in node.attrs]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            stack.extend(top)
        elif isinstance(top, Expr):
            used |= {s.name for s in dims.symbols_of(top)}
    return used


def all_values(graph: Graph) -> list[Value]:
    """Every value that the graph defines, in order."""
    return [*graph.inputs, *graph.constants, *(v for node in graph.nodes for v in node.outputs)]


def data_hash(data: np.ndarray) -> str:
    """A short digest of an array's type, shape and bytes."""
    digest = hashlib.sha256(f"{data.dtype}{data.shape}".encode())
    digest.update(np.ascontiguousarray(data).tobytes())
    return digest.hexdigest()[:12]


def with_nodes(graph: Graph, nodes: Iterable[Node], **changes: Any) -> Graph:
    """The graph with other nodes (and other fields), keeping only the constants that something reads."""
    kept = tuple(nodes)
    outputs = changes.get("outputs", graph.outputs)
    constants = changes.pop("constants", graph.constants)
    used = {v for node in kept for v in node.operands} | set(outputs)
    return replace(graph, nodes=kept, constants={v: a for v, a in constants.items() if v in used}, **changes)
