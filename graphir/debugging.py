"""Looking inside a run: the value of any node of the model as it came in, and the first node that makes a NaN.

An optimised plan stores few of the model's values: others are folded, joined into a kernel, or turned. What is not
stored is computed by the model's own nodes, each as its own kernel (level 0), so that every name has an answer;
`explain` says which pass took the node away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphir.errors import InputError, NonFiniteError
from graphir.ir import Graph, Node, Value, producers, with_nodes

if TYPE_CHECKING:
    from graphir.executor import Executable

StopAt = Literal["nan", "inf", "either"]
STOPS: dict[str, Any] = {
    "nan": np.isnan,
    "inf": np.isinf,
    "either": lambda a: ~np.isfinite(a),
}
"""What a breakpoint stops at."""


def base_name(name: str) -> str:
    """The name of a value before passes stored it in another layout or order of axes."""
    return name.split("@")[0]


def original_values(graph: Graph) -> dict[str, Value]:
    """The values of a model by name: of a value, or of a node (or its place in the model's file) for its first
    result."""
    found: dict[str, Value] = {}
    for node in graph.nodes:
        if node.outputs:
            found.setdefault(node.name, node.outputs[0])
            for origin in node.origins:
                found.setdefault(origin.place, node.outputs[0])
                found.setdefault(origin.place.split(" (")[0], node.outputs[0])
    return {**found, **{v.name: v for n in graph.nodes for v in n.outputs}, **{v.name: v for v in graph.inputs}}


def find_original(graph: Graph, name: str) -> Value:
    """The value of a model that a name means. Raises `InputError` with the nearest names."""
    values = original_values(graph)
    if name not in values:
        near = get_close_matches(name, values, 3, 0.5)
        listed = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(list(values)[:12])}"
        raise InputError(f"no value or node of the model is called {name!r}", help=listed)
    return values[name]


def pruned(graph: Graph, outputs: Sequence[Value]) -> Graph:
    """The graph as far as these values need it; its inputs stay."""
    made, needed, kept = producers(graph), list(outputs), {}
    while needed:
        node = made.get(needed.pop())
        if node is not None and node not in kept:
            kept[node] = True
            needed.extend(node.operands)
    sizes = {n for n in graph.nodes if n.op == "size"}
    for n in sizes:  # what defines a symbol is needed by every shape that has it
        kept[n] = True
        needed.extend(n.operands)
    while needed:
        node = made.get(needed.pop())
        if node is not None and node not in kept:
            kept[node] = True
            needed.extend(node.operands)
    return with_nodes(
        graph,
        [n for n in graph.nodes if n in kept],
        outputs=tuple(outputs),
        output_names=tuple(v.name for v in outputs),
    )


def compute_originals(exe: Executable, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of the model as it came in, by its own nodes at level 0."""
    if not exe.has_graph:
        raise InputError(
            f"{names[0]!r} is not stored by this artifact, which holds no graph to compute it by",
            help="compile the model, or ask for one of the stored values: exe.debug(inputs)",
        )
    graph = exe.source
    wanted = {name: find_original(graph, name) for name in names}
    found = {n: np.asarray(inputs[v.name]) for n, v in wanted.items() if v in graph.inputs}
    computed = list(dict.fromkeys(v for v in wanted.values() if v not in graph.inputs))
    if computed:
        plain = exe.plain(pruned(graph, computed))
        results = dict(zip(computed, plain.run({v.name: inputs[v.name] for v in plain.plan.inputs})))
        found |= {n: results[v] for n, v in wanted.items() if v in results}
    return found


def explain(exe: Executable, name: str) -> str:
    """Where a value of the model went: stored, joined into a kernel, or removed by which pass. Raises `InputError`."""
    v = find_original(exe.source, name)
    if v in exe.source.inputs:
        return f"{v.name} is an input"
    for node in exe.graph.nodes:
        for made in node.outputs:
            if base_name(made.name) == v.name:
                how = f", stored as {made.name.partition('@')[2]}" if "@" in made.name else ""
                return f"{v.name} is the result of the kernel {node.name}{how}"
        for sub in node.subgraphs:
            if node.op == "group" and any(base_name(m.name) == v.name for n in sub.nodes for m in n.outputs):
                joined = ", ".join(n.name for n in sub.nodes)
                return f"{v.name} stays inside the kernel {node.name}: fuse joined {joined}"
    if v in exe.source.outputs:
        return f"{v.name} is an output"
    by = exe.removed.get(v.name)
    return f"{v.name} was removed by {by}" if by is not None else f"{v.name} is not computed: no output needs it"


# -------------------------------------------------------------------------------------------------------- breakpoints


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Stops a run at the first node that makes such a number from numbers that are finite."""

    kind: StopAt

    def check(self, node: Node, inputs: Mapping[Value, np.ndarray], outputs: Mapping[Value, np.ndarray]) -> None:
        """Raises `NonFiniteError` if this node is the one. Arrays have their logical shapes."""
        for v, array in outputs.items():
            if array.dtype.kind not in "fV":
                continue
            wide = array.astype(np.float32) if array.dtype.itemsize < 4 or array.dtype.kind == "V" else array
            bad = STOPS[self.kind](wide)
            if not bad.any() or not all(map(_is_finite, inputs.values())):
                continue
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            members = node.subgraphs[0].nodes if node.op == "group" else (node,)
            ops = "+".join(n.op for n in members)
            sizes = array.shape
            notes = [
                f"  {x.name}: {_described(given, place if np.shape(given) == sizes else None)}"
                for x, given in inputs.items()
            ]
            raise NonFiniteError(
                f"node {node.place} ({ops}) makes {wide[place]} of finite inputs: {base_name(v.name)}{list(place)}, "
                f"one of {int(bad.sum())} of {bad.size} elements",
                notes=tuple(notes),
                node=node.name,
                index=place,
            )


def _is_finite(array: np.ndarray) -> bool:
    if array.dtype.kind not in "fV":
        return True
    return bool(np.isfinite(array.astype(np.float32) if array.dtype.kind == "V" else array).all())


def _described(array: np.ndarray, place: tuple[int, ...] | None) -> str:
    """Type, range, and the element at the place that went wrong where there is one."""
    text = f"{array.dtype}{list(array.shape)}"
    if array.size and array.dtype.kind in "fiuV":
        wide = array.astype(np.float64)
        text += f" from {wide.min():.6g} to {wide.max():.6g}"
    return text if place is None or not array.size else f"{text}; {array[place]} at that place"
