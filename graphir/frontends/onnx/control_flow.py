"""If, Loop and Scan: their subgraphs become subgraphs of `if` and `loop` nodes.

An If whose condition is known leaves its branch only. A Loop whose values change shape from one iteration to the next,
or that carries sequences, is unrolled where its trip count is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.errors import GraphError, ModelError, ShapeError, UnsupportedError
from graphir.frontends.onnx.registry import converter
from graphir.ir import Value
from tensorir import dtypes
from tensorir.expr import Expr

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer

UNROLL_LIMIT = 256
"""The largest known trip count of a loop that is unrolled."""


@converter("If")
def _if(importer: _Importer, node: OnnxNode) -> list[Any]:
    """A known condition leaves its branch only; else both become subgraphs over the same captured values."""
    condition = node.operand(0)
    then_proto, else_proto = node.attrs["then_branch"], node.attrs["else_branch"]
    known = importer.data(condition)
    if known is not None:
        return importer.inline(then_proto if bool(known.reshape(-1)[0]) else else_proto)
    if dims.constants(condition.shape) not in ((), (1,)):
        raise ModelError(
            f"node {node.name}: the condition of an If is one bool, not {dims.shape_text(condition.shape)}"
        )
    branches = [importer.subgraph(g, f"{node.name}/{w}") for g, w in ((then_proto, "then"), (else_proto, "else"))]
    if any(not isinstance(v, Value) for outputs, _ in branches for v in outputs):
        raise UnsupportedError(
            f"node {node.name}: a branch gives a sequence, and which one is known only at run time",
            missing={"If": [node.name]},
            inputs=importer.leaves(condition),
        )
    names = list(dict.fromkeys(n for _, inner in branches for n in inner.captures.outside))
    outside = [importer.lookup(n, f"node {node.name}") for n in names]
    graphs = []
    for (outputs, inner), proto in zip(branches, (then_proto, else_proto)):
        builder = inner.builder
        for captured in names:
            inner.lookup(captured, f"node {node.name}")
            builder.inputs.append(inner.captures.inside[captured])
        graphs.append(builder.finish(outputs, [v.name for v in proto.output]))
    made = importer.builder.add(
        "if", [condition, *outside], {}, name=node.name, origins=node.origins, outputs=node.outputs,
        subgraphs=tuple(graphs),
    )  # fmt: skip
    return list(made)


def add_loop(
    importer: _Importer, node: OnnxNode, inner: _Importer, *, outputs: Sequence[Value], names: Sequence[str],
    trips: Expr | int | None, limit: Value | None = None, condition: Value | None = None, carried: Sequence[Value] = (),
    scanned: Sequence[Value] = (), reverse: Sequence[bool] = (),
) -> list[Value]:  # fmt: skip
    """A `loop` node. `inner` is the body's importer; its builder has the inputs iteration, condition, carried and
    slices; `outputs` are its condition, carried values and slices; `names` those of the node's outputs."""
    captured = list(inner.captures.inside)
    inner.builder.inputs += [inner.captures.inside[n] for n in captured]
    body = inner.builder.finish(outputs)
    attrs: dict[str, Any] = {"carried": len(carried), "scanned": len(scanned)}
    if trips is not None:
        attrs["trips"] = trips
    stacks = len(outputs) - 1 - len(carried)
    attrs["reverse"] = tuple(reverse) or (False,) * (len(scanned) + stacks)
    operands = [limit, condition, *carried, *scanned, *(inner.captures.outside[n] for n in captured)]
    return list(
        importer.builder.add(
            "loop", operands, attrs, name=node.name, origins=node.origins, outputs=list(names), subgraphs=(body,)
        )
    )


def body_importer(importer: _Importer, name: str, carried: Sequence[Value], slices: Sequence[Value]) -> _Importer:
    """An importer of a loop's body whose builder has the inputs iteration, condition, carried and slices; a slice has
    the type of the scanned value without its first axis."""
    inner = importer.child(name)
    inner.builder.input("iteration", (), dtypes.int64)
    inner.builder.input("going", (), dtypes.bool_)
    for v in carried:
        inner.builder.input(f"{v.name}.now", v.shape, v.dtype)
    for v in slices:
        inner.builder.input(f"{v.name}.slice", v.shape[1:], v.dtype)
    return inner


def always(inner: _Importer) -> Value:
    """A condition that holds."""
    return inner.builder.constant(np.array(True), "always")


@converter("Loop")
def _loop(importer: _Importer, node: OnnxNode) -> list[Any]:
    body = node.attrs["body"]
    limit, condition = node.input(0), node.input(1)
    carried = node.inputs[2:]
    trips: int | Expr | None = None
    if limit is not None and (known := importer.try_known(limit)) is not None:
        trips = known[0] if isinstance(known, tuple) else known
        if isinstance(trips, int):
            trips = max(trips, 0)
        limit = None
    if condition is not None and (data := importer.data(condition)) is not None:
        if not bool(data.reshape(-1)[0]):
            trips, limit = 0, None
        condition = None
    if trips is None and limit is None and condition is None and node.input(0) is None:
        condition = None  # it ends when its own condition does
    unrollable = isinstance(trips, int) and trips <= UNROLL_LIMIT
    checkpoint = importer.builder.checkpoint()
    try:
        return _rolled(importer, node, body, trips, limit, condition, carried)
    except (GraphError, ShapeError, UnsupportedError, TypeError):
        if not unrollable:
            raise
    importer.builder.restore(checkpoint)
    assert isinstance(trips, int)
    return _unrolled(importer, node, body, trips, condition, list(carried))


def _rolled(
    importer: _Importer, node: OnnxNode, body: Any, trips: Expr | int | None, limit: Value | None,
    condition: Value | None, carried: Sequence[Any],
) -> list[Any]:  # fmt: skip
    if any(not isinstance(v, Value) for v in carried):
        raise UnsupportedError(
            f"node {node.name}: the loop carries a sequence or nothing", missing={"Loop": [node.name]},
            help="Nestor unrolls such a loop where its trip count is known",
        )  # fmt: skip
    inner = body_importer(importer, node.name, carried, ())
    inner.initializers(body, {})
    for info, v in zip(body.input, inner.builder.inputs):
        if info.name:
            inner.scope[info.name] = v
    inner.nodes(body)
    outputs = [inner.lookup(v.name, f"the output {v.name} of {node.name}") for v in body.output]
    count = len(carried)
    names = [o or f"{node.name}:{i}" for i, o in enumerate(node.outputs)]
    first = outputs[0]
    if first.shape:
        [outputs[0]] = inner.builder.add("reshape", [first], {"shape": ()})
    if trips is None and len(outputs) > 1 + count:
        raise UnsupportedError(
            f"node {node.name}: how often the loop runs is known only at run time, so the size of its outputs is not",
            missing={"Loop": [node.name]},
            help="give the trip count as a constant, for example with params=",
            inputs=() if limit is None else importer.leaves(limit),
        )
    if trips is not None and len(outputs) > 1 + count and (condition is not None or not _holds(outputs[0], inner)):
        raise UnsupportedError(
            f"node {node.name}: the loop may end early, so the size of its outputs is known only at run time",
            missing={"Loop": [node.name]},
            inputs=() if condition is None else importer.leaves(condition),
        )
    if condition is not None and condition.shape:
        [condition] = importer.builder.add("reshape", [condition], {"shape": ()})
    if limit is not None and limit.shape:
        [limit] = importer.builder.add("reshape", [limit], {"shape": ()})
    return add_loop(
        importer, node, inner, outputs=outputs, names=names, trips=trips, limit=limit, condition=condition,
        carried=carried,
    )  # fmt: skip


def _holds(going: Value, inner: _Importer) -> bool:
    """True if a loop's next condition is always true, its first one being so."""
    if going is inner.builder.inputs[1]:
        return True
    for n in inner.builder.nodes:
        if going in n.outputs and n.op in ("identity", "reshape"):
            return _holds(n.operands[0], inner)
    data = inner.data(going)
    return data is not None and bool(data.reshape(-1)[0])


def _unrolled(
    importer: _Importer, node: OnnxNode, body: Any, trips: int, condition: Value | None, state: list[Any]
) -> list[Any]:
    if condition is not None:
        raise UnsupportedError(
            f"node {node.name}: whether the loop runs is known only at run time", missing={"Loop": [node.name]},
            inputs=importer.leaves(condition),
        )  # fmt: skip
    count = len(state)
    stacks: list[list[Value]] = [[] for _ in body.output[1 + count :]]
    going = importer.builder.constant(np.array(True), f"{node.name}.going")
    for iteration in range(trips):
        number = importer.builder.constant(np.array(iteration, np.int64), f"{node.name}.iteration")
        given: Mapping[str, Any] = dict(zip([v.name for v in body.input], [number, going, *state]))
        made = importer.inline(body, given)
        going, state = made[0], list(made[1 : 1 + count])
        for stack, v in zip(stacks, made[1 + count :]):
            stack += importer.builder.add("unsqueeze", [v], {"axes": (0,)})
        data = importer.data(going)
        if data is None:
            raise UnsupportedError(
                f"node {node.name}: how often the loop runs is known only at run time, and its values change shape",
                missing={"Loop": [node.name]},
            )
        if not bool(data.reshape(-1)[0]):
            break
    made_stacks: list[Value] = []
    for place, stack in enumerate(stacks):
        if not stack:
            raise UnsupportedError(
                f"node {node.name}: the loop does not run, so the shape of its outputs is not known",
                missing={"Loop": [node.name]},
            )
        name = node.outputs[count + place] if count + place < len(node.outputs) else ""
        made_stacks += importer.builder.add("concat", stack, {"axis": 0}, outputs=[name] if name else None)
    return [*state, *made_stacks]


@converter("Scan")
def _scan(importer: _Importer, node: OnnxNode) -> list[Any]:
    """Scan of opset 9 on: states, then scanned values, each along an axis of its own."""
    if node.version < 9:
        raise UnsupportedError(
            f"node {node.name}: Scan of opset 8 has a batch axis of its own", missing={"Scan": [node.name]},
            help="export the model with opset 9 or later",
        )  # fmt: skip
    body = node.attrs["body"]
    scans = int(node.attrs["num_scan_inputs"])
    states = [node.operand(i) for i in range(len(node.inputs) - scans)]
    axes = node.attrs.get("scan_input_axes") or (0,) * scans
    scanned = []
    for n, axis in enumerate(axes):
        v = node.operand(len(states) + n)
        scanned.append(_axis_first(importer, v, axis % v.rank))
    inner = body_importer(importer, node.name, states, scanned)
    inner.initializers(body, {})
    for info, v in zip(body.input, inner.builder.inputs[2:]):
        inner.scope[info.name] = v
    inner.nodes(body)
    outputs = [inner.lookup(v.name, f"the output {v.name} of {node.name}") for v in body.output]
    stacks = len(outputs) - len(states)
    directions = [
        *(node.attrs.get("scan_input_directions") or (0,) * scans),
        *(node.attrs.get("scan_output_directions") or (0,) * stacks),
    ]
    names = [o or f"{node.name}:{i}" for i, o in enumerate(node.outputs)]
    made = add_loop(
        importer, node, inner, outputs=[always(inner), *outputs], names=names, trips=scanned[0].shape[0],
        carried=states, scanned=scanned, reverse=[bool(d) for d in directions],
    )  # fmt: skip
    for n, axis in enumerate(node.attrs.get("scan_output_axes") or (0,) * stacks):
        v = made[len(states) + n]
        place = axis % v.rank
        order = [*range(1, place + 1), 0, *range(place + 1, v.rank)]
        if place:
            [made[len(states) + n]] = importer.builder.add("transpose", [v], {"axes": tuple(order)})
    return made


def _axis_first(importer: _Importer, v: Value, axis: int) -> Value:
    if axis == 0:
        return v
    order = (axis, *(a for a in range(v.rank) if a != axis))
    return importer.builder.add("transpose", [v], {"axes": order})[0]
