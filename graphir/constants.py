"""Running the prologue graph: nodes over constants, once, when compiling.

Moves of elements and single IEEE operations on floats have one right answer, which numpy gives at once (`EXACT`; a test
holds each against its kernel bit by bit). Everything else runs through the op's own program: small ones in the
interpreter, large ones in a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphir import dims
from graphir.groups import group_call, kernel_of
from graphir.ir import Graph, Node, Value
from graphir.kernels import run_kernel
from tensorir.interpreter import interpret
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import create_func
from topi.group import compose
from topi.registry import get_op

EXACT = (
    "identity", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "layout_transform", "concat", "slice",
    "expand", "add", "subtract", "multiply", "divide", "sqrt",
)  # fmt: skip
"""Ops whose float results numpy gives with the same bits."""

SMALL = 4096
"""Elements up to which a node runs in the interpreter, where nothing needs to be compiled."""


def run_constants(graph: Graph, target: Target) -> Mapping[str, np.ndarray]:
    """The outputs of a graph without inputs, by name."""
    known: dict[Value, np.ndarray] = {v: a for v, a in graph.constants.items() if a is not None}
    for node in graph.nodes:
        operands = [None if v is None else known[v] for v in node.inputs]
        known.update(zip(node.outputs, _run(node, operands, target), strict=True))
    return {v.name: known[v] for v in graph.outputs}


def _run(node: Node, operands: list[np.ndarray | None], target: Target) -> list[np.ndarray]:
    floats = all(a is None or a.dtype in (np.float32, np.float64) for a in operands)
    plain = all(v.layout.is_plain for v in (*node.operands, *node.outputs))
    if node.op == "layout_transform" and operands[0] is not None:
        x, [y] = node.operands[0], node.outputs
        sizes = dims.constants(x.shape)
        assert sizes is not None
        return [pack(unpack(operands[0], x.layout, sizes), y.layout)]
    if node.op in EXACT and floats and plain:
        reference = get_op(node.op).numpy
        assert reference is not None
        with np.errstate(all="ignore"):
            made = reference(*operands, **node.attributes)
        v = node.output
        return [np.ascontiguousarray(made, dtype=v.dtype.numpy).reshape(dims.constants(v.shape))]
    call = group_call(node, lambda v: True)
    results = [np.empty(_sizes(v), v.dtype.numpy) for v in call.outputs]
    by_value: dict[Value, Any] = {v: a for v, a in zip(node.inputs, operands) if v is not None}
    arrays = [np.asarray(by_value[v], order="C") for v in call.inputs]
    work = sum(a.size for a in arrays) + sum(r.size for r in results)
    if work <= SMALL or target.kind == "reference":
        group = compose(call.spec, target)
        func = create_func(list(group.args), node.op)
        interpret(func, [*arrays, *results], {})
    else:
        run_kernel(kernel_of(call, target), [*arrays, *results])
    return results


def _sizes(v: Value) -> tuple[int, ...]:
    sizes = dims.constants(v.physical_shape)
    assert sizes is not None
    return sizes


def pack(array: np.ndarray, layout: Layout) -> np.ndarray:
    """The memory of a logical array in a layout; padding lanes are zero."""
    if layout.is_plain:
        return np.ascontiguousarray(array)
    parts = _parts(layout)
    widths = [(0, -size % _block(p)) for size, p in zip(array.shape, parts, strict=True)]
    padded = np.pad(array, widths) if any(w for _, w in widths) else array
    shape: list[int] = []
    where: dict[tuple[int, int], int] = {}
    for axis, p in enumerate(parts):
        for stride, extent in p:
            where[axis, stride] = len(shape)
            shape.append(padded.shape[axis] // stride if extent is None else extent)
    return np.ascontiguousarray(padded.reshape(shape).transpose([where[d.axis, d.stride] for d in layout.dims]))


def unpack(array: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    """The logical array of this shape that memory in a layout holds."""
    if layout.is_plain:
        return np.ascontiguousarray(array.reshape(shape))
    parts = _parts(layout)
    order = [(axis, stride) for axis, p in enumerate(parts) for stride, _ in p]
    place = {(d.axis, d.stride): n for n, d in enumerate(layout.dims)}
    split = array.transpose([place[o] for o in order])
    whole = [s + (-s % _block(p)) for s, p in zip(shape, parts, strict=True)]
    return np.ascontiguousarray(split.reshape(whole)[tuple(slice(s) for s in shape)])


def _parts(layout: Layout) -> list[list[tuple[int, int | None]]]:
    """For each logical axis its parts as (stride, extent), outermost first."""
    return [
        sorted(((d.stride, d.extent) for d in layout.dims if d.axis == axis), reverse=True)
        for axis in range(layout.rank)
    ]


def _block(parts: list[tuple[int, int | None]]) -> int:
    block = 1
    for _, extent in parts:
        block *= extent or 1
    return block
