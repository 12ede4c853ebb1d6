"""Single layers as one-node models: the convolutions of ResNet-50, the products of BERT-base, depthwise, grouped, VGG.

Each is timed as a model of its own, so an engine also pays its call and any reordering of its input and output: read
the columns against each other, not as the quality of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RESNET50 = (
    (3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
    (128, 128, 3, 2, 56), (128, 128, 3, 1, 28), (512, 128, 1, 1, 28), (256, 256, 3, 1, 14), (1024, 256, 1, 1, 14),
    (256, 1024, 1, 1, 14), (512, 512, 3, 1, 7), (2048, 512, 1, 1, 7),
)  # fmt: skip
"""Input channels, output channels, kernel, stride, height and width."""
VGG16 = ((64, 64, 3, 1, 224), (128, 128, 3, 1, 112), (256, 256, 3, 1, 56), (512, 512, 3, 1, 28), (512, 512, 3, 1, 14))
DEPTHWISE = ((32, 112, 1), (144, 56, 1), (144, 56, 2), (384, 14, 1), (960, 7, 1))
"""Channels, height and width, stride; kernel 3."""
PRODUCTS = (
    (128, 768, 768), (128, 768, 3072), (128, 3072, 768), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024),
    (1, 4096, 4096),
)  # fmt: skip
"""Rows, inner size, columns; the right operand is a constant."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer by name, as an ONNX file."""

    name: str
    path: Path


def layers(folder: Path) -> Iterator[Layer]:
    """The layers, written into the folder one by one."""
    for ci, co, k, stride, size in RESNET50:
        yield _conv(folder, f"conv {ci},{co} {k}x{k}/{stride} {size}", ci, co, k, stride, size)
    for ci, co, k, stride, size in VGG16:
        yield _conv(folder, f"vgg conv {ci},{co} {k}x{k} {size}", ci, co, k, stride, size)
    for channels, size, stride in DEPTHWISE:
        yield _conv(
            folder, f"depthwise {channels} 3x3/{stride} {size}", channels, channels, 3, stride, size, groups=channels
        )
    yield _conv(folder, "grouped 32 groups 128,128 3x3 56", 128, 128, 3, 1, 56, groups=32)
    for m, k, n in PRODUCTS:
        yield _product(folder, m, k, n)


def _conv(folder: Path, name: str, ci: int, co: int, k: int, stride: int, size: int, *, groups: int = 1) -> Layer:
    from onnx import helper

    random = np.random.default_rng(0)
    scale = np.sqrt(2.0 / (ci // groups * k * k))
    weight = (scale * random.standard_normal((co, ci // groups, k, k))).astype(np.float32)
    bias = random.standard_normal(co, np.float32)
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[k // 2] * 4, strides=[stride, stride], group=groups)
    out = -(-size // stride)
    return _write(
        folder, name, [conv, helper.make_node("Relu", ["c"], ["y"])], (1, ci, size, size), (1, co, out, out),
        {"w": weight, "b": bias},
    )  # fmt: skip


def _product(folder: Path, m: int, k: int, n: int) -> Layer:
    from onnx import helper

    weight = (np.random.default_rng(0).standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
    return _write(
        folder, f"product {m}x{k} by {k}x{n}", [helper.make_node("MatMul", ["x", "w"], ["y"])], (m, k), (m, n),
        {"w": weight},
    )  # fmt: skip


def _write(
    folder: Path,
    name: str,
    nodes: list,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    weights: dict[str, np.ndarray],
) -> Layer:
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    path = folder / "layer.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return Layer(name, path)
