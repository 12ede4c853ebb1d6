"""From a node of a fused graph to the group that topi compiles, and the kernels of a graph, each compiled once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphir.axes import moves_nothing, transpose_axes
from graphir.cache import adopt_bytes, find_or_compile
from graphir.ir import CONTROL_OPS, GRAPH_OPS, Graph, Node, Value
from graphir.stored import StoredGroup
from targets.build import CudaRunner, OpenCLRunner, compile_device, compile_func
from tensorir.target import Target
from tensorir.te import create_func
from topi.group import CompiledGroup, GroupInput, GroupNode, GroupSpec, Reference, compose
from topi.op import TensorSpec
from topi.registry import get_op


@dataclass(frozen=True, slots=True, eq=False)
class GroupCall:
    """A node as a kernel call: what is compiled, and the values of its parameters in order."""

    spec: GroupSpec
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: tuple[str, ...]

    @property
    def label(self) -> str:
        """The ops of the group, for kernel names."""
        names = [n.op for n in self.spec.nodes]
        return "_".join(names[:3]) + (f"_and_{len(names) - 3}" if len(names) > 3 else "")


@dataclass(frozen=True, slots=True, eq=False)
class GraphKernel:
    """A compiled group. `dims` are the symbols of its ABI as positions in the symbols of the spec it was made from, so
    that an equal group over other symbols can call it."""

    name: str
    group: CompiledGroup | StoredGroup
    dims: tuple[int, ...]
    key: str


def is_kernel(node: Node, *, views: bool) -> bool:
    """True for a node that runs as a kernel; a view does not where the plan aliases (`views`)."""
    if node.op in ("dims", "size", *CONTROL_OPS):
        return False
    return node.op == "group" or not (views and is_view(node))


def runs_on_device(kernel: GraphKernel) -> bool:
    """True for a kernel whose arrays lie on a device, not in the host's memory."""
    return isinstance(kernel.group.kernel, (OpenCLRunner, CudaRunner))


def is_view(node: Node) -> bool:
    """True if the result is the operand's memory: under another shape, or under the transposed one where the layouts
    make up for it or only axes of one element move."""
    if node.op in GRAPH_OPS:
        return False
    if node.op == "transpose":
        [x], axes = node.operands, transpose_axes(node)
        plain = x.layout.is_plain and node.output.layout.is_plain
        return node.output.layout == x.layout.transpose(axes) or (plain and moves_nothing(x.shape, axes))
    if not get_op(node.op).view:
        return False
    [x] = node.operands[:1]
    return x.layout.is_plain and node.output.layout.is_plain and x.dtype == node.output.dtype


def group_call(node: Node, is_constant: Callable[[Value], bool]) -> GroupCall:
    """The group of a node: a `group` node's members, or the node alone."""
    members = node.subgraphs[0].nodes if node.op == "group" else (node,)
    inside = {v for n in members for v in n.outputs}
    inputs = tuple(dict.fromkeys(v for n in members for v in n.operands if v not in inside))
    place: dict[Value, Reference] = {v: ("in", i) for i, v in enumerate(inputs)}
    for number, member in enumerate(members):
        for output, v in enumerate(member.outputs):
            place[v] = ("node", number, output)
    nodes = tuple(
        GroupNode(
            n.op, n.attrs, tuple(None if v is None else place[v] for v in n.inputs), tuple(map(spec_of, n.outputs)),
            n.implementation,
        )
        for n in members
    )  # fmt: skip
    results: list[tuple[int, int]] = []
    for v in node.outputs:
        reference = place[v]
        assert reference is not None and reference[0] == "node"
        results.append((reference[1], reference[2]))  # type: ignore[misc]
    spec = GroupSpec(tuple(GroupInput(spec_of(v), is_constant(v)) for v in inputs), nodes, tuple(results))
    return GroupCall(spec, inputs, node.outputs, tuple(v.name for v in spec.symbols()))


def spec_of(v: Value) -> TensorSpec:
    """A value's type as topi sees it."""
    return TensorSpec(v.shape, v.dtype, v.layout)


_COMPILED: dict[tuple[str, str], tuple[GraphKernel, object]] = {}
"""Kernels of this process by group key and target; the op objects say whether an op has been defined anew since."""


def kernel_of(call: GroupCall, target: Target) -> GraphKernel:
    """The kernel of a group, compiled if no equal group was compiled in this process."""
    key = call.spec.key()
    definitions = tuple(get_op(n.op) for n in call.spec.nodes)
    known = _COMPILED.get((key, str(target)))
    if known is not None and known[1] == definitions:
        return known[0]
    name = kernel_name(call, target)
    if known is not None:
        name += f"_{len(_COMPILED)}"
    group, positions = find_or_compile(call.spec, call.symbols, target, name=name)
    made = GraphKernel(name, group, positions, key)
    _COMPILED[(key, str(target))] = (made, definitions)
    return made


def kernel_name(call: GroupCall, target: Target) -> str:
    """The name of a group's kernel: its ops and a digest."""
    return f"{call.label}_{hashlib.sha256((call.spec.key() + str(target)).encode()).hexdigest()[:10]}"


def is_known(call: GroupCall, target: Target) -> bool:
    """True if this process has compiled an equal group for the target, whatever its ops were then."""
    return (call.spec.key(), str(target)) in _COMPILED


def adopt_kernel(call: GroupCall, target: Target, data: bytes) -> None:
    """Takes a kernel that another process compiled (`graphir.cache.compiled_bytes`) for one of this process."""
    name, key = kernel_name(call, target), call.spec.key()
    group, positions = adopt_bytes(call.spec, target, data, name=name)
    definitions = tuple(get_op(n.op) for n in call.spec.nodes)
    _COMPILED[(key, str(target))] = (GraphKernel(name, group, positions, key), definitions)


def unscheduled_kernel(call: GroupCall, target: Target) -> GraphKernel:
    """The kernel of a group's unscheduled program: slow, for what no schedule can take yet."""
    key = f"unscheduled {call.spec.key()}"
    name = f"{call.label}_{hashlib.sha256((key + str(target)).encode()).hexdigest()[:10]}"
    func = create_func(list(compose(call.spec, target).args), name)
    kernel = compile_device(func, target) if target.gpu else compile_func(func, target, symbol=name)
    group = CompiledGroup(kernel, func, "unscheduled", None)
    return GraphKernel(name, group, tuple(call.symbols.index(v.name) for v in func.dims), key)


def kernel_nodes(graph: Graph, *, views: bool) -> Iterable[tuple[Node, Mapping[Value, Any]]]:
    """Every node of a graph and its subgraphs that runs as a kernel, each with the constants of its graph."""
    for node in graph.nodes:
        if is_kernel(node, views=views):
            yield node, graph.constants
        elif node.subgraphs:
            for sub in node.subgraphs:
                yield from kernel_nodes(sub, views=views)
