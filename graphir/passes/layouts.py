"""Chooses implementations and the layouts they want, and puts the transforms where layouts change.

    y = conv2d(x, w); z = relu(y); p = max_pool2d(z)
        ->  x' = layout_transform(x); y' = conv2d(x', w') by direct; z' = relu(y'); p' = max_pool2d(z'); p =
        layout_transform(p')

topi's `choose_implementation` picks the implementation of each op and says which layouts it wants. A node without an
implementation takes the layout of what it reads where that is possible: an elementwise node if its operands have the
result's shape (a broadcast operand stays plain), any other if its compute leaves the split axes alone, as pools do. A
transform back and forth cancels, since the plain form of a value is kept beside its packed ones.

A transpose is a layout transform too: its result in another layout is the memory of its operand. So beside a packed
value it costs nothing, and joins the transform that would follow:

    t = transpose(y', axes=(0, 2, 3, 1)); y' = conv2d(...) in NCHW16c
        ->  y'' = layout_transform(y', NHWC); t = transpose(y''), a view

On a target that prefers channels last, convolutions without a blocked implementation read and write NHWC, and all else
follows in the same way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from graphir import dims
from graphir.axes import inverse, transpose_axes
from graphir.builder import GraphEditor
from graphir.groups import spec_of
from graphir.ir import GRAPH_OPS, Graph, Node, Value, consumers, producers, with_nodes
from graphir.kinds import keeps_axis, node_kind
from tensorir.layout import Layout
from topi.group import choose_implementation
from topi.op import Call
from topi.registry import get_op

if TYPE_CHECKING:
    from graphir.pipeline import PassContext


def layouts(graph: Graph, context: PassContext) -> Graph:
    """The graph with implementations chosen and layouts in place; graph inputs and outputs stay plain."""
    walk = _Walk(graph, context)
    for node in graph.nodes:
        walk.visit(node)
    return walk.finish()


class _Walk:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.edit = GraphEditor(graph)
        self.forms: dict[Value, dict[Layout, Value]] = {}
        self.fixed: set[Value] = {v for v, data in graph.constants.items() if data is not None}
        self.transposes: dict[Value, Node] = {}
        """The transpose that makes an old value, where it is not yet said how: see `turn`."""

    def form(self, old: Value, layout: Layout) -> Value:
        """The value `old` of the old graph in this layout, transformed once if nothing has it yet."""
        known = self.forms.setdefault(old, {} if old in self.transposes else {old.layout: old})
        if layout in known:
            return known[layout]
        made = old
        if not layout.is_plain or old in known.values():
            made = replace(old, name=self.edit.unique(f"{old.name}@{layout}"), layout=layout, content=None)
        if old in self.transposes:
            node = self.transposed(self.transposes[old], made)
        else:
            node = Node(
                "layout_transform", (next(iter(known.values())),), (made,), (("layout", layout),),
                self.edit.unique_node(f"{old.name}.layout"), origins=old.origins,
            )  # fmt: skip
        self.edit.emit(node)
        known[layout] = made
        if old in self.fixed:
            self.fixed.add(made)
        return made

    def plain(self, old: Value) -> Value:
        """The value row-major."""
        return self.form(old, Layout.plain(old.rank))

    def transposed(self, node: Node, made: Value) -> Node:
        """The transpose that gives `made`: of the operand in the layout of which it is a view; a plain one of a plain
        operand stays as it is."""
        [x] = node.operands
        if made.layout.is_plain and self.packed(x) is None and not self.context.target.channels_last:
            return replace(node, inputs=(self.plain(x),), outputs=(made,))
        source = self.form(x, made.layout.transpose(inverse(transpose_axes(node))))
        name = self.edit.unique_node(node.name) if self.forms[node.output] else node.name
        return replace(node, inputs=(source,), outputs=(made,), name=name)

    def packed(self, old: Value) -> Layout | None:
        """The layout that a node made the value in, if it is not plain."""
        if old in self.transposes:
            node = self.transposes[old]
            [x] = node.operands
            source = self.packed(x)
            if source is None and not self.context.target.channels_last:
                return None
            first = (source or Layout.plain(x.rank)).transpose(transpose_axes(node))
        else:
            first = next(iter(self.forms.get(old, {})), old.layout)
        return None if first.is_plain else first

    def visit(self, node: Node) -> None:
        """Keeps a node with its operands in the layouts it wants."""
        if node.op in GRAPH_OPS:
            subgraphs = tuple(layouts(s, self.context) for s in node.subgraphs)
            self.keep(
                node,
                [None if v is None else v.layout for v in node.inputs],
                [v.layout for v in node.outputs],
                subgraphs,
            )
            return
        if node.op == "transpose":
            self.transposes[node.output] = node
            if node.operands[0] in self.fixed:
                self.fixed.add(node.output)
            return
        call = Call(
            get_op(node.op),
            tuple(None if v is None else spec_of(v) for v in node.inputs),
            tuple(map(spec_of, node.outputs)),
            node.attributes,
            tuple(v is not None and v in self.fixed for v in node.inputs),
        )
        chosen, reasons = choose_implementation(call, self.context.target, self.context.precision)
        if chosen is not None or reasons:
            by = "its plain compute" if chosen is None else chosen.name
            bounded = " (bounded accuracy)" if chosen is not None and chosen.accuracy == "bounded" else ""
            refused = f"; not {'; not '.join(reasons)}" if reasons else ""
            self.context.note(f"layouts: {node.name} ({node.op}) by {by}{bounded}{refused}")
        if chosen is not None:
            operands, results = chosen.layouts(call, self.context.target)
            wanted = [
                None if v is None else (layout if layout is not None else Layout.plain(v.rank))
                for v, layout in zip(node.inputs, operands, strict=True)
            ]
            self.keep(replace(node, implementation=chosen.name), wanted, list(results))
            return
        follows = self.followed(node)
        if follows is not None:
            layout, wanted = follows
            self.keep(node, wanted, [layout] * len(node.outputs))
            return
        self.keep(
            node,
            [None if v is None else self.read(node, v) for v in node.inputs],
            [Layout.plain(v.rank) for v in node.outputs],
        )

    def read(self, node: Node, v: Value) -> Layout:
        """The layout in which a node that writes a plain result reads an operand: a reduction takes its axes as they
        lie, unless they are split."""
        packed = self.packed(v)
        if packed is not None and max(packed.block) == 1 and node_kind(node) == "reduction":
            return packed
        return Layout.plain(v.rank)

    def followed(self, node: Node) -> tuple[Layout, list[Layout | None]] | None:
        """The packed layout that a node without an implementation can keep, and what its operands then want."""
        out = node.outputs[0]
        packed = [(n, self.packed(v)) for n, v in enumerate(node.inputs) if v is not None]
        candidates = [layout for n, layout in packed if layout is not None]
        if node_kind(node) in ("elementwise", "broadcast"):  # the large operands decide, not a row for all
            sized = ((layout, node.inputs[n]) for n, layout in packed)
            candidates = [
                layout for layout, v in sized
                if layout is not None and v is not None and dims.same_shape(v.shape, out.shape)
            ]  # fmt: skip
        if not candidates or node_kind(node) == "opaque":
            return None
        layout = candidates[0]
        if any(v.rank != layout.rank for v in node.outputs):
            return None
        split = [axis for axis, block in enumerate(layout.block) if block > 1]
        blocked = bool(split)
        split = split or [layout.dims[-1].axis]  # the axis whose elements lie side by side
        wanted: list[Layout | None] = []
        for n, v in enumerate(node.inputs):
            if v is None:
                wanted.append(None)
            elif v.rank == layout.rank and all(dims.same(v.shape[a], out.shape[a]) for a in split):
                if not all(keeps_axis(node, n, a) for a in split):
                    if not self.joins(node, layout):
                        return None
                wanted.append(layout)
            elif not blocked:
                wanted.append(self.packed(v) or Layout.plain(v.rank))
            else:
                if self.packed(v) is not None and not self.joins(node, layout):
                    return None
                wanted.append(layout if self.joins(node, layout) else Layout.plain(v.rank))
        return layout, wanted

    def joins(self, node: Node, layout: Layout) -> bool:
        """True for a concatenation whose parts are whole blocks, all of them packed alike."""
        if node.op != "concat":
            return False
        axis = int(node.attributes.get("axis", 0)) % layout.rank
        block = layout.block[axis]
        sizes = [dims.constant(v.shape[axis]) for v in node.operands]
        whole = block == 1 or all(s is not None and s % block == 0 for s in sizes)
        return whole and all(self.packed(v) == layout for v in node.operands)

    def keep(
        self, node: Node, wanted: list[Layout | None], results: list[Layout], subgraphs: tuple[Graph, ...] | None = None
    ) -> None:
        """Adds a node reading its operands in `wanted` and making its results in `results`."""
        inputs = tuple(
            None if v is None or layout is None else self.form(v, layout)
            for v, layout in zip(node.inputs, wanted, strict=True)
        )
        outputs: list[Value] = []
        for v, layout in zip(node.outputs, results, strict=True):
            made = v
            if layout != v.layout:
                made = replace(v, name=self.edit.unique(f"{v.name}@{layout}"), layout=layout)
            self.forms[v] = {layout: made}
            outputs.append(made)
        same = all(a is b for a, b in zip(inputs, node.inputs)) and all(a is b for a, b in zip(outputs, node.outputs))
        if subgraphs is not None and any(a is not b for a, b in zip(subgraphs, node.subgraphs)):
            same = False
            node = replace(node, subgraphs=subgraphs)
        new = node if same else replace(node, inputs=inputs, outputs=tuple(outputs))
        self.edit.nodes.append(new)
        if node.operands and all(v in self.fixed for v in new.operands) and node.op not in GRAPH_OPS:
            self.fixed.update([*new.outputs, *node.outputs])

    def finish(self) -> Graph:
        """The graph; outputs are plain."""
        for v in self.graph.outputs:
            self.edit.replace(v, self.plain(v))
        return _written_at_once(self.edit.finish_edit())


def _written_at_once(graph: Graph) -> Graph:
    """The graph without transforms that only re-lay what a reduction or a move has just written: such a node can write
    any layout. (An elementwise node may become an epilogue of a packed contraction, so it is left.)"""
    made = producers(graph)
    readers = consumers(graph)
    outputs = set(graph.outputs)
    replaced: dict[Node, Node | None] = {}
    for node in graph.nodes:
        if node.op != "layout_transform":
            continue
        [x] = node.operands
        maker = made.get(x)
        if maker is None or maker.op in GRAPH_OPS or maker.implementation is not None or maker in replaced:
            continue
        movable = node_kind(maker) in ("reduction", "injective", "composite") and len(maker.outputs) == 1
        if movable and maker.op != "layout_transform" and readers.get(x) == [node] and x not in outputs:
            replaced[maker] = replace(maker, outputs=node.outputs)
            replaced[node] = None
    if not replaced:
        return graph
    kept = (replaced.get(n, n) for n in graph.nodes)
    return with_nodes(graph, [n for n in kept if n is not None])
