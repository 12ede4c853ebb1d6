"""Joins nodes into groups, each of which becomes one kernel.

    y = conv2d(x, w); z = relu(y)      ->      z = group(x, w) { y = conv2d(x, w); z = relu(y) }

A group has at most one anchor (a contraction, reduction or composite). Walking in dependence order, a node joins the
group that makes one of its operands:

    epilogue   elementwise or broadcast node after an anchor's result, computed on the tile just produced
    chain      elementwise, broadcast or injective node after others of those kinds
    prologue   a reduction or composite that reads what an elementwise chain makes, computed as it is read

What a kernel cannot do at all is `_illegal`; what it could do but should not is decided by the guards, each of which
can be turned off by name. Refusals are in the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from graphir import dims
from graphir.groups import is_view
from graphir.ir import GRAPH_OPS, Graph, Node, Value, consumers, symbols_used, with_nodes
from graphir.kinds import node_kind
from graphir.passes.guards import GUARDS, HEAVY, Fusion
from topi.registry import get_op

if TYPE_CHECKING:
    from graphir.pipeline import PassContext

LIGHT = ("elementwise", "broadcast")


def fuse(graph: Graph, context: PassContext) -> Graph:
    """The graph with every node in a group, views and graph ops left as they are; subgraphs likewise."""
    walk = _Grouping(graph, context)
    for node in graph.nodes:
        walk.place(node)
    return walk.finish()


class _Grouping:
    """Groups under construction: lists of nodes; a node's group is looked up by identity."""

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.guards = [g for g in GUARDS if g.name not in context.disabled]
        self.readers = consumers(graph)
        self.outputs = set(graph.outputs)
        self.groups: list[list[Node]] = []
        self.group_of: dict[Node, int] = {}
        self.maker: dict[Value, Node] = {}
        self.late = {n.attributes["symbol"]: n for n in graph.nodes if n.op == "size"}

    def place(self, node: Node) -> None:
        """Puts a node into a group of its own or joins it to one that feeds it."""
        self.maker.update({v: node for v in node.outputs})
        number = len(self.groups)
        self.groups.append([node])
        self.group_of[node] = number
        if _stands_alone(node):
            return
        refusals: dict[Value, str] = {}
        joined = True
        while joined:  # a join may bring in the last reader of another operand: x * sigmoid(x)
            joined = False
            for value in dict.fromkeys(v for n in self.groups[self.group_of[node]] for v in n.operands):
                feeder = self.maker.get(value)
                if feeder is None or self.group_of[feeder] == self.group_of[node]:
                    continue
                if _stands_alone(feeder) and not _is_control_flow(feeder):
                    continue
                reason = self.join(self.group_of[feeder], node, value)
                if reason is None:
                    refusals.pop(value, None)
                    joined = True
                    break
                refusals[value] = f"fuse: {node.name} not joined to {feeder.name}: {reason}"
        for line in refusals.values():
            self.context.note(line)

    def join(self, number: int, node: Node, value: Value) -> str | None:
        """Joins the node's group into group `number` if that is legal and no guard objects; else says why not."""
        own = self.group_of[node]
        group, joining = self.groups[number], self.groups[own]
        fusion = Fusion(
            tuple([*group, *(n for n in joining if n is not node)]), node, value, tuple(self.readers.get(value, ())),
            value in self.outputs, self.context,
        )  # fmt: skip
        refused = ((guard.name, guard.refuse(fusion)) for guard in self.guards)
        reason = next((f"[{name}] {why}" for name, why in refused if why is not None), None)
        if reason is None:
            reason = self.illegal(group, joining, node, value)
        if reason is not None:
            return reason
        for n in joining:
            self.group_of[n] = number
        group.extend(joining)
        self.groups[own] = []
        return None

    def illegal(self, group: list[Node], joining: list[Node], node: Node, value: Value) -> str | None:
        """Why one kernel cannot compute both, if so."""
        if self.late:
            known = set().union(*(symbols_used(n) for n in group)) & self.late.keys()
            asked = set().union(*(symbols_used(n) for n in joining)) & self.late.keys()
            if not asked <= known:
                return f"{node.name} has a size that is known only after {value.name}"
        anchors = [n for n in (*group, *joining) if node_kind(n) in HEAVY]
        if len(anchors) > 1:
            return f"{anchors[0].name} and {anchors[-1].name} are both anchors"
        kinds = [node_kind(n) for n in (*group, *joining)]
        if "opaque" in kinds:
            return "host work is not fused"
        members = {*group, *joining}
        anchor = anchors[0] if anchors else None
        if anchor in group:
            for n in joining:
                if node_kind(n) not in LIGHT:
                    return f"{n.name} is {node_kind(n)}, which cannot follow an anchor on its tile"
            if node_kind(anchor) == "composite":
                return f"{anchor.name} has several reductions and ends its kernel"
            if len(anchor.outputs) != 1 or len(node.outputs) != 1:
                return "several results of one anchor are kept apart"
            if not dims.same_shape(node.output.shape, anchor.output.shape):
                return f"{node.name} has another shape than its anchor's result"
        elif anchor is not None:
            if node_kind(anchor) == "contraction":
                return f"{anchor.name} reads its operands many times and wants them stored"
            if node_kind(anchor) == "composite":
                return f"{anchor.name} has several reductions that would each compute {value.name} again"
        if any(len(n.outputs) > 1 for n in members) and len(members) > 1:
            return "a node with several results has its own kernel"
        for v in (v for n in members for v in n.outputs):
            outside = v in self.outputs or any(r not in members for r in self.readers.get(v, ()))
            is_last = v in node.outputs
            if outside and not is_last:
                if anchor is not None:
                    return f"[outputs] {v.name} is needed outside, and a group with an anchor has one result"
                if "outputs" not in self.context.disabled:
                    return f"[outputs] {v.name} is needed outside"
        if self.has_other_path(group, joining, node):
            return "the join would make a cycle: another path leads from the group to the node"
        return None

    def has_other_path(self, group: list[Node], joining: list[Node], node: Node) -> bool:
        """True if the joining nodes depend on the group through nodes outside both."""
        inside = {*group, *joining}
        stack = [self.maker[v] for n in joining for v in n.operands if v in self.maker and self.maker[v] not in inside]
        seen: set[Node] = set()
        first = min(self.position(n) for n in group)
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            # another group is computed as one: to depend on a part is to depend on all that it reads
            for member in self.groups[self.group_of[at]]:
                for v in member.operands:
                    maker = self.maker.get(v)
                    if maker is None or maker in self.groups[self.group_of[at]]:
                        continue
                    if maker in inside and maker in group:
                        return True
                    if self.position(maker) >= first:
                        stack.append(maker)
        return False

    def position(self, node: Node) -> int:
        """The node's place in the graph."""
        if not hasattr(self, "_positions"):
            self._positions = {n: i for i, n in enumerate(self.graph.nodes)}
        return self._positions[node]

    def finish(self) -> Graph:
        """The graph of groups, in an order that respects every dependence."""
        made = [self.as_node(g) for g in self.groups if g]
        changed = any(a.op == "group" for a in made)
        made = [self.fuse_subgraphs(n) for n in made]
        if not changed and all(a is b for a, b in zip(made, self.graph.nodes)):
            return self.graph
        return with_nodes(self.graph, _ordered(made))

    def fuse_subgraphs(self, node: Node) -> Node:
        """The branches of control flow, fused on their own."""
        if node.op == "group" or not node.subgraphs:
            return node
        new = tuple(fuse(s, self.context) for s in node.subgraphs)
        same = all(a is b for a, b in zip(new, node.subgraphs))
        return node if same else replace(node, subgraphs=new)

    def as_node(self, members: list[Node]) -> Node:
        """A group as one node; a single node as it is."""
        if len(members) == 1:
            return members[0]
        members = sorted(members, key=self.position)
        inside = {v for n in members for v in n.outputs}
        inputs = tuple(dict.fromkeys(v for n in members for v in n.operands if v not in inside))
        chosen = set(members)
        results = tuple(
            v for n in members for v in n.outputs
            if v in self.outputs or any(r not in chosen for r in self.readers.get(v, ()))
        )  # fmt: skip
        name = "+".join(n.op for n in members[:4]) + ("+..." if len(members) > 4 else "")
        body = Graph(name, inputs, results, tuple(members))
        origins = tuple(dict.fromkeys(o for n in members for o in n.origins))
        self.context.note(f"fuse: one kernel for {', '.join(n.name for n in members)}")
        return Node("group", inputs, results, (), members[-1].name, (body,), origins)


def _stands_alone(node: Node) -> bool:
    """Views need no kernel, graph ops are instructions of the plan; neither joins a group."""
    return node.op in GRAPH_OPS or get_op(node.op).view or is_view(node) or node_kind(node) == "opaque"


def _is_control_flow(node: Node) -> bool:
    """True for a node with graphs of its own other than a group."""
    return bool(node.subgraphs) and node.op != "group"


def _ordered(nodes: list[Node]) -> list[Node]:
    """Nodes in dependence order, keeping the given order where it is free."""
    maker = {v: n for n in nodes for v in n.outputs}
    late = {n.attributes["symbol"]: n for n in nodes if n.op == "size"}
    done: dict[Node, bool] = {}
    result: list[Node] = []
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            waiting = [maker[v] for v in node.operands if v in maker and maker[v] not in done]
            if late:
                inner = [n for sub in node.subgraphs for n in sub.nodes]
                used = set().union(*(symbols_used(n) for n in (node, *inner)))
                waiting += [late[s] for s in used & late.keys() if late[s] not in done and late[s] is not node]
            if waiting:
                stack.extend(waiting)
                continue
            done[node] = True
            result.append(node)
            stack.pop()
    return result
