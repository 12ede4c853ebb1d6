"""`python -m tests.models seed FILE [OUT]`: random numbers where an export has weights of zeros.

torchvision makes the head of vit_b_16 of zeros, so the answer is zero whatever the input, and any compiler is right.
Every weight of two and more dimensions that is all zero gets seeded normal numbers, scaled by the number of inputs that
one output sums up; all else, and a file without such weights, stays as it is.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper


def seed_heads(model: onnx.ModelProto, *, seed: int = 0) -> list[str]:
    """Fills the weights of zeros that a product reads; their names."""
    rng = np.random.default_rng(seed)
    products = [n for n in model.graph.node if n.op_type in ("Gemm", "MatMul", "Conv")]
    weights = {n.input[1]: n for n in products if len(n.input) > 1}
    filled: list[str] = []
    for tensor in model.graph.initializer:
        if len(tensor.dims) < 2 or tensor.name not in weights:
            continue
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind != "f" or value.any():
            continue
        terms = value.shape[0] if weights[tensor.name].op_type == "MatMul" else math.prod(value.shape[1:])
        made = rng.standard_normal(value.shape) / math.sqrt(max(terms, 1))
        tensor.CopyFrom(numpy_helper.from_array(made.astype(value.dtype), tensor.name))
        filled.append(tensor.name)
    return filled


def main(arguments: Sequence[str]) -> None:
    """Rewrites a file, or writes another one."""
    if not 1 <= len(arguments) <= 2:
        sys.exit("usage: python -m tests.models seed FILE [OUT]")
    source, target = Path(arguments[0]), Path(arguments[-1])
    model = onnx.load(source)
    filled = seed_heads(model)
    print(f"{source}: {', '.join(filled) if filled else 'no weights of zeros'}")
    if filled or target != source:
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
            part.write(model.SerializeToString())
        os.replace(part.name, target)
