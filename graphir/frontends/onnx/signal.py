"""Discrete Fourier transforms: products with matrices of cosines and sines, made when compiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.errors import UnsupportedError
from graphir.frontends.onnx.registry import converter
from graphir.ir import Value

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer


def _scalar(importer: _Importer, node: OnnxNode, index: int, what: str, default: int | None) -> Any:
    if node.input(index) is None:
        return default
    found = importer.known(node.operand(index), node, what)
    return int(found[0] if isinstance(found, tuple) else found)


def _length(importer: _Importer, node: OnnxNode, v: Value, axis: int, what: str) -> int:
    size = dims.constant(v.shape[axis])
    if size is None:
        raise UnsupportedError(
            f"node {node.name}: {what} must be known when compiling", missing={node.op_type: [node.name]}
        )
    return size


def transformed(
    importer: _Importer, real: Value, imaginary: Value | None, length: int, *, inverse: bool, onesided: bool
) -> tuple[Value, Value]:
    """Real and imaginary part of the transform of the last axis, cut or padded with zeros to `length`."""
    add = importer.builder.add
    given = dims.constant(real.shape[-1])
    assert given is not None
    used = min(given, length)
    if used < given:
        bounds = {"starts": (0,), "ends": (used,), "axes": (real.rank - 1,), "steps": (1,)}
        [real] = add("slice", [real], bounds)
        imaginary = None if imaginary is None else add("slice", [imaginary], bounds)[0]
    results = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi * (np.outer(np.arange(used), np.arange(results)) % length) / length
    scale = 1 / length if inverse else 1.0
    kind = real.dtype.numpy
    cosines = importer.builder.constant((np.cos(angle) * scale).astype(kind), "cosines")
    sines = importer.builder.constant(((1 if inverse else -1) * np.sin(angle) * scale).astype(kind), "sines")
    out_real, out_imaginary = add("matmul", [real, cosines])[0], add("matmul", [real, sines])[0]
    if imaginary is not None:
        [other] = add("matmul", [imaginary, sines])
        [out_real] = add("subtract", [out_real, other])
        [other] = add("matmul", [imaginary, cosines])
        [out_imaginary] = add("add", [out_imaginary, other])
    return out_real, out_imaginary


def _parts(importer: _Importer, x: Value) -> tuple[Value, Value | None]:
    """Real and imaginary part of a signal whose last axis holds them."""
    add = importer.builder.add

    def part(n: int) -> Value:
        bounds = {"starts": (n,), "ends": (n + 1,), "axes": (x.rank - 1,), "steps": (1,)}
        return add("squeeze", [add("slice", [x], bounds)[0]], {"axes": (x.rank - 1,)})[0]

    return part(0), part(1) if dims.constant(x.shape[-1]) == 2 else None


def _joined(importer: _Importer, real: Value, imaginary: Value, axis: int, name: str | None) -> Value:
    """Both parts along a new last axis, the transformed axis moved back from the end to `axis`."""
    add = importer.builder.add
    parts = []
    for v in (real, imaginary):
        order = [a for a in range(v.rank - 1)]
        order.insert(axis, v.rank - 1)
        if axis != v.rank - 1:
            [v] = add("transpose", [v], {"axes": tuple(order)})
        parts.append(add("unsqueeze", [v], {"axes": (v.rank,)})[0])
    return add("concat", parts, {"axis": parts[0].rank - 1}, outputs=[name] if name else None)[0]


@converter("DFT")
def _dft(importer: _Importer, node: OnnxNode) -> list[Value]:
    x = node.operand(0)
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    axis = node.attrs.get("axis", 1) if node.version < 20 else _scalar(importer, node, 2, "the axis", -2)
    axis %= x.rank
    given = _length(importer, node, x, axis, "the length of the transform")
    whole = 2 * (given - 1) if inverse and onesided else given
    length = _scalar(importer, node, 1, "the length", whole)
    real, imaginary = _parts(importer, x)
    if axis != real.rank - 1:
        order = (*(a for a in range(real.rank) if a != axis), axis)
        [real] = importer.builder.add("transpose", [real], {"axes": order})
        if imaginary is not None:
            [imaginary] = importer.builder.add("transpose", [imaginary], {"axes": order})
    if inverse and onesided:
        return [_real_inverse(importer, real, imaginary, length, axis, node.outputs[0])]
    made = transformed(importer, real, imaginary, length, inverse=inverse, onesided=onesided)
    return [_joined(importer, *made, axis, node.outputs[0])]


def _real_inverse(
    importer: _Importer, real: Value, imaginary: Value | None, length: int, axis: int, name: str
) -> Value:
    """The real signal whose one-sided spectrum is given: every bin but the first and the middle one counts twice."""
    add = importer.builder.add
    bins = dims.constant(real.shape[-1])
    assert bins is not None
    used = min(bins, length // 2 + 1)
    if used < bins:
        bounds = {"starts": (0,), "ends": (used,), "axes": (real.rank - 1,), "steps": (1,)}
        [real] = add("slice", [real], bounds)
        imaginary = None if imaginary is None else add("slice", [imaginary], bounds)[0]
    weight = np.full(used, 2.0)
    weight[0] = 1.0
    if length % 2 == 0 and used == length // 2 + 1:
        weight[-1] = 1.0
    angle = 2 * np.pi * (np.outer(np.arange(used), np.arange(length)) % length) / length
    kind = real.dtype.numpy
    cosines = importer.builder.constant((weight[:, None] * np.cos(angle) / length).astype(kind), "cosines")
    sines = importer.builder.constant((weight[:, None] * np.sin(angle) / length).astype(kind), "sines")
    [result] = add("matmul", [real, cosines])
    if imaginary is not None:
        [other] = add("matmul", [imaginary, sines])
        [result] = add("subtract", [result, other])
    order = [a for a in range(result.rank - 1)]
    order.insert(axis, result.rank - 1)
    if axis != result.rank - 1:
        [result] = add("transpose", [result], {"axes": tuple(order)})
    return add("unsqueeze", [result], {"axes": (result.rank,)}, outputs=[name])[0]


@converter("STFT")
def _stft(importer: _Importer, node: OnnxNode) -> list[Value]:
    """Frames of the signal, each times the window, transformed: [batch, frames, bins, 2]."""
    add = importer.builder.add
    x = node.operand(0)
    step = _scalar(importer, node, 1, "the frame step", None)
    window = node.input(2)
    length = _scalar(importer, node, 3, "the frame length", None)
    if length is None:
        if window is None:
            raise UnsupportedError(f"node {node.name}: neither window nor frame length", missing={"STFT": [node.name]})
        length = _length(importer, node, window, 0, "the window")
    total = _length(importer, node, x, 1, "the length of the signal")
    frames = (total - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    index = importer.builder.constant(places.astype(np.int64), "frames")
    if x.rank == 2:
        [x] = add("unsqueeze", [x], {"axes": (2,)})
    made: list[Value | None] = []
    for v in _parts(importer, x):
        if v is None:
            made.append(None)
            continue
        [v] = add("gather", [v, index], {"axis": 1})
        if window is not None:
            [v] = add("multiply", [v, window])
        made.append(v)
    real, imaginary = made
    assert real is not None
    parts = transformed(importer, real, imaginary, length, inverse=False, onesided=bool(node.attrs.get("onesided", 1)))
    return [_joined(importer, *parts, 2, node.outputs[0])]
