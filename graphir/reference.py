"""A graph evaluated by the numpy references of its ops: slow, independent of every schedule and code generator.

Floats are computed in float64 and rounded to the declared dtype of each value, so this judges a compiled graph; it is
not bit-equal to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphir import dims
from graphir.ir import Graph, Node, Value
from tensorir.errors import InternalError
from tensorir.expr import Expr
from topi.registry import get_op


def evaluate(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name."""
    arrays = {v: np.asarray(inputs[v.name]) for v in graph.inputs}
    symbols = bind_symbols(graph, {v.name: a.shape for v, a in arrays.items()})
    values = evaluate_values(graph, arrays, symbols)
    return {name: values[v] for name, v in zip(graph.output_names, graph.outputs, strict=True)}


def bind_symbols(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The symbols' values by the shapes of the inputs: those that stand alone as a dimension."""
    found: dict[str, int] = {}
    for v in graph.inputs:
        for d, size in zip(v.shape, shapes[v.name], strict=True):
            names = dims.symbols_of(d)
            if len(names) == 1 and d is names[0]:
                found.setdefault(names[0].name, int(size))
    return found


def evaluate_values(
    graph: Graph, arrays: Mapping[Value, np.ndarray], symbols: Mapping[str, int]
) -> dict[Value, np.ndarray]:
    """Every value of a graph by the arrays of its inputs."""
    known: dict[Value, np.ndarray] = dict(arrays)
    for v, data in graph.constants.items():
        if data is None:
            raise InternalError(f"the constant {v.name} has no data")
        known[v] = data
    for node in graph.nodes:
        operands = [None if v is None else known[v] for v in node.inputs]
        if node.op == "size":
            assert operands[0] is not None
            symbols = {**symbols, node.attributes["symbol"]: int(operands[0])}
        known.update(zip(node.outputs, evaluate_node(node, operands, symbols), strict=True))
    return known


def evaluate_node(node: Node, operands: Sequence[np.ndarray | None], symbols: Mapping[str, int]) -> list[np.ndarray]:
    """The outputs of one node."""
    match node.op:
        case "dims":
            v = node.output
            assert v.content is not None
            numbers = [dims.evaluate(c, symbols) for c in v.content]
            return [np.array(numbers, v.dtype.numpy).reshape(dims.evaluate_shape(v.shape, symbols))]
        case "size":
            return [np.asarray(operands[0])]
        case "group":
            return _subgraph(node.subgraphs[0], operands, symbols)
        case "if":
            condition = operands[0]
            assert condition is not None
            taken = node.subgraphs[0 if bool(condition.reshape(-1)[0]) else 1]
            return _subgraph(taken, operands[1:], symbols)
        case "loop":
            return _loop(node, operands, symbols)
    definition = get_op(node.op)
    if definition.numpy is None:
        raise InternalError(f"{node.op} has no numpy reference")
    wide = [_widened(a) for a in operands]
    attrs = {k: _number(v, symbols) for k, v in node.attrs}
    with np.errstate(all="ignore"):
        result = definition.numpy(*wide, **attrs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        return [
            np.asarray(r).astype(v.dtype.numpy).reshape(dims.evaluate_shape(v.shape, symbols))
            for r, v in zip(results, node.outputs, strict=True)
        ]


def _loop(node: Node, operands: Sequence[np.ndarray | None], symbols: Mapping[str, int]) -> list[np.ndarray]:
    """A loop, iteration by iteration."""
    attrs = node.attributes
    carried, scanned = int(attrs["carried"]), int(attrs["scanned"])
    limit, condition = operands[0], operands[1]
    trips = dims.evaluate(dims.as_dim(attrs["trips"]), symbols) if "trips" in attrs else None
    if trips is None and limit is not None:
        trips = int(limit.reshape(-1)[0])
    state = list(operands[2 : 2 + carried])
    scans = operands[2 + carried : 2 + carried + scanned]
    going = condition is None or bool(condition.reshape(-1)[0])
    stacks: list[list[np.ndarray]] = [[] for _ in node.outputs[carried:]]
    count = 0
    while going and (trips is None or count < trips):
        slices = [
            a[a.shape[0] - 1 - count if backwards else count]
            for a, backwards in zip(scans, attrs["reverse"])
            if a is not None
        ]
        given = [np.array(count, np.int64), np.array(going), *state, *slices, *operands[2 + carried + scanned :]]
        made = _subgraph(node.subgraphs[0], given, symbols)
        going, state = bool(made[0].reshape(-1)[0]), list(made[1 : 1 + carried])
        for stack, part in zip(stacks, made[1 + carried :], strict=True):
            stack.append(part)
        count += 1
    results = [s for s in state if s is not None]
    for v, stack, backwards in zip(node.outputs[carried:], stacks, attrs["reverse"][scanned:], strict=True):
        shape = dims.evaluate_shape(v.shape, symbols)
        ordered = stack[::-1] if backwards else stack
        results.append(np.stack(ordered) if ordered else np.empty(shape, v.dtype.numpy))
    return results


def _subgraph(graph: Graph, operands: Sequence[np.ndarray | None], symbols: Mapping[str, int]) -> list[np.ndarray]:
    arrays = {v: a for v, a in zip(graph.inputs, operands, strict=True) if a is not None}
    values = evaluate_values(graph, arrays, symbols)
    return [values[v] for v in graph.outputs]


def _widened(array: np.ndarray | None) -> Any:
    if array is None or array.dtype.kind not in "fV":
        return array
    return array.astype(np.float64)


def _number(value: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_number(v, symbols) for v in value)
    return dims.evaluate(value, symbols) if isinstance(value, Expr) else value
