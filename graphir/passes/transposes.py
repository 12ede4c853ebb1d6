"""Pushes transposes to the borders: through every node that can take its axes in another order.

    t = transpose(conv2d(x, w), axes=(0, 2, 3, 1)); r = relu(t + b); y = conv2d(transpose(r, axes=(0, 3, 1, 2)), v)
        ->  y = conv2d(relu(conv2d(x, w) + b'), v)

Models that hold images with their channels last (exports of tf2onnx) wrap every convolution in such a pair. A region is
a set of such nodes joined by the values between them; all of it is turned at once, by the order in which the transposes
at its edge move the fewest bytes. At equal bytes the transpose goes behind what follows a contraction, so that this can
join the contraction's kernel. Nothing changes where nothing is gained. (The transposes that are left are joined with
the layout transforms beside them by `layouts`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphir import dims
from graphir.arena import REPRESENTATIVE
from graphir.axes import (
    Axes,
    follows,
    free_rank,
    inverse,
    joined,
    moves_nothing,
    result_axes,
    transpose_axes,
    transposed_attrs,
)
from graphir.builder import GraphEditor
from graphir.ir import GRAPH_OPS, Graph, Node, Value, consumers, producers
from graphir.kinds import node_kind
from graphir.passes.dead import dead_nodes
from tensorir.expr import const

if TYPE_CHECKING:
    from graphir.pipeline import PassContext


def transposes(graph: Graph, context: PassContext) -> Graph:
    """The graph with regions turned until nothing is gained: each turn leaves fewer bytes to move."""
    for _ in graph.nodes:
        chosen = _Search(graph).turns()
        if not chosen:
            break
        for region, axes in chosen:
            first = region[0].name + (f" and {len(region) - 1} more" if len(region) > 1 else "")
            context.note(f"transposes: {first} take their axes in the order {axes}")
        graph = dead_nodes(_turned(graph, chosen))
    return graph


Turn = tuple[list[Node], Axes]


@dataclass(frozen=True, slots=True, order=True)
class _Cost:
    """Bytes that transposes move, then how many of them stand right behind a contraction, then how many there are."""

    nbytes: int = 0
    behind: int = 0
    count: int = 0

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(self.nbytes + other.nbytes, self.behind + other.behind, self.count + other.count)


class _Search:
    """What is asked of one graph: its regions, and what turning one costs."""

    def __init__(self, graph: Graph) -> None:
        self.maker = producers(graph)
        self.readers = consumers(graph)
        self.outputs = set(graph.outputs)
        self.fixed = {v for v, data in graph.constants.items() if data is not None}
        for node in graph.nodes:
            if node.op not in GRAPH_OPS and node.operands and all(v in self.fixed for v in node.operands):
                self.fixed.update(node.outputs)
        ranks = {n: free_rank(n) for n in graph.nodes if not all(v in self.fixed for v in n.outputs)}
        self.rank = {n: r for n, r in ranks.items() if r is not None and r > 1}

    def turns(self) -> list[Turn]:
        """The regions worth turning, each with its order; two that share a transpose are not turned together."""
        chosen: list[Turn] = []
        claimed: set[Value] = set()
        for region in self.regions():
            edge = self.edge(region)
            candidates = dict.fromkeys(edge.values())
            if not candidates or not claimed.isdisjoint(edge):
                continue
            now = self.cost(region, tuple(range(self.rank[region[0]])))
            best = min(candidates, key=lambda axes: self.cost(region, axes))
            if self.cost(region, best) < now:
                chosen.append((region, best))
                claimed.update(edge)
        return chosen

    def regions(self) -> list[list[Node]]:
        """The nodes that can be turned, in classes joined by a value between two of them, or by one transpose that
        several read."""
        leader: dict[Node, Node] = {n: n for n in self.rank}

        def find(n: Node) -> Node:
            while leader[n] is not n:
                n = leader[n]
            return n

        for v, readers in self.readers.items():
            if v in self.fixed:
                continue
            maker = self.maker.get(v)
            related = [n for n in readers if n in self.rank and self.rank[n] == v.rank]
            if maker is not None and maker in self.rank and self.rank[maker] == v.rank:
                related.append(maker)
            elif maker is None or maker.op != "transpose":
                continue
            for other in related[1:]:
                leader[find(other)] = find(related[0])
        found: dict[Node, list[Node]] = {}
        for n in self.rank:
            found.setdefault(find(n), []).append(n)
        return list(found.values())

    def edge(self, region: Sequence[Node]) -> dict[Value, Axes]:
        """The results of the transposes at the edge of a region, each with the order that would cancel it."""
        inside, found = set(region), {}
        for n in region:
            for v in n.operands:
                if (source := self.transpose(v)) is not None and v.rank == self.rank[n]:
                    found[v] = inverse(transpose_axes(source))
            for v in n.outputs:
                for reader in self.readers.get(v, ()):
                    if reader.op == "transpose" and reader not in inside and v.rank == self.rank[n]:
                        found[reader.output] = transpose_axes(reader)
        return found

    def transpose(self, v: Value) -> Node | None:
        """The transpose that makes a value that is not known when compiling."""
        node = self.maker.get(v)
        return node if node is not None and node.op == "transpose" and v not in self.fixed else None

    def move(self, v: Value, axes: Axes) -> _Cost:
        """A transpose of `v`."""
        if axes == tuple(range(v.rank)):
            return _Cost()
        maker = self.maker.get(v)
        behind = maker is not None and maker.op not in GRAPH_OPS and node_kind(maker) == "contraction"
        symbols = {s.name: REPRESENTATIVE for s in dims.symbols_of(v.nbytes)}
        nbytes = 0 if moves_nothing(v.shape, axes) else dims.evaluate(v.nbytes, symbols)
        return _Cost(nbytes, int(behind), 1)

    def cost(self, region: Sequence[Node], axes: Axes) -> _Cost:
        """What the transposes at the edge of a region cost when its nodes take their axes in this order."""
        total, inside = _Cost(), set(region)
        same = tuple(range(len(axes)))
        for v in dict.fromkeys(v for n in region for v in n.operands if follows(n, v, self.rank[n])):
            if self.maker.get(v) in inside or v in self.fixed:
                continue
            source = self.transpose(v)
            if source is not None and v.rank == len(axes):
                x = source.operands[0]
                order = joined(transpose_axes(source), axes)
                stays = v in self.outputs or any(r not in inside for r in self.readers[v])
                if not (stays and axes == same):  # then it is there already
                    total += self.move(x, order)
                continue
            total += self.move(v, _of_rank(axes, v))
        for n in region:
            for v in n.outputs:
                leaving = inverse(result_axes(n, axes))
                plain = v in self.outputs
                for reader in self.readers.get(v, ()):
                    if reader in inside and v.rank == len(axes):
                        continue
                    if reader.op == "transpose":
                        total += self.move(v, joined(leaving, transpose_axes(reader)))
                    else:
                        plain = True
                if plain:
                    total += self.move(v, leaving)
        return total


def _of_rank(axes: Axes, v: Value) -> Axes:
    """The order of a broadcast operand's axes; those that it lacks in front have one element and do not matter."""
    missing = len(axes) - v.rank
    return tuple(a - missing for a in axes if a >= missing)


class _Turned(GraphEditor):
    """A graph being remade with some regions turned. `turned` has the new value and its order for an old one."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.turned: dict[Value, tuple[Value, Axes]] = {}
        self.moved: dict[tuple[Value, Axes], Value] = {}
        self.maker: dict[Value, Node] = {}

    def transposed(self, v: Value, axes: Axes) -> Value:
        """The new value `v` transposed, through the transpose that makes it; made once."""
        maker = self.maker.get(v)
        if maker is not None and maker.op == "transpose":
            axes = joined(transpose_axes(maker), axes)
            v = maker.operands[0]
        if axes == tuple(range(v.rank)):
            return v
        if (v, axes) in self.moved:
            return self.moved[v, axes]
        [made] = self.add("transpose", [v], {"axes": axes}, name=f"{v.name}.transpose", origins=v.origins)
        self.moved[v, axes] = made
        if self.nodes and made in self.nodes[-1].outputs:
            self.maker[made] = self.nodes[-1]
        return made

    def plain(self, old: Value) -> Value:
        """What stands for an old value with its axes as they were."""
        if old in self.turned:
            made, axes = self.turned[old]
            return self.transposed(made, inverse(axes))
        return self.current(old)

    def operand(self, node: Node, old: Value | None, axes: Axes) -> Value | None:
        """An operand of a node that takes its axes in this order."""
        if old is None or not follows(node, old, len(axes)):
            return None if old is None else self.plain(old)
        if old in self.turned:
            made, known = self.turned[old]
            if len(known) == len(axes):
                return self.transposed(made, joined(inverse(known), axes))
        v = self.plain(old)
        if v.rank < len(axes):
            shape = (*(const(1),) * (len(axes) - v.rank), *v.shape)
            [v] = self.add(
                "reshape", [v], {"shape": shape, "allowzero": True}, name=f"{v.name}.reshape", origins=v.origins
            )
        return self.transposed(v, axes)

    def turn(self, node: Node, axes: Axes) -> None:
        """Adds a node with its axes in another order."""
        inputs = [self.operand(node, v, axes) for v in node.inputs]
        made = self.add(
            node.op, inputs, transposed_attrs(node, axes), name=node.name, origins=node.origins,
            outputs=[f"{v.name}@turned" for v in node.outputs],
        )  # fmt: skip
        for old, new in zip(node.outputs, made, strict=True):
            self.turned[old] = new, result_axes(node, axes)


def _turned(graph: Graph, turns: Sequence[Turn]) -> Graph:
    """The graph with these regions turned."""
    order = {n: axes for region, axes in turns for n in region}
    edit = _Turned(graph)
    edit.node_names = {n.name for n in graph.nodes if n not in order}
    for node in graph.nodes:
        if node in order:
            edit.turn(node, order[node])
        elif node.op == "transpose" and node.operands[0] in edit.turned:
            edit.replace(node.output, edit.transposed(edit.plain(node.operands[0]), transpose_axes(node)))
        else:
            for v in node.operands:
                if v in edit.turned and v not in edit.replaced:
                    edit.replace(v, edit.plain(v))
            kept = edit.keep(node)
            edit.maker.update({v: kept for v in kept.outputs})
    for v in graph.outputs:
        if v in edit.turned and v not in edit.replaced:
            edit.replace(v, edit.plain(v))
    return edit.finish_edit()
