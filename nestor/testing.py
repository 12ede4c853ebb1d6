"""A model file and its inputs to its outputs in one call: what suites of test cases drive.

from nestor.testing import run
[y] = run("model.onnx", [x])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphir.errors import UnsupportedError
from graphir.frontends.onnx.load import load_model


def run(path: str | Path, inputs: Sequence[Any], *, opt_level: int = 3, threads: int = 2) -> list[Any]:
    """Compiles the model and runs it once. `inputs` are arrays in the order of the graph's inputs, with or without
    those that have initialisers. Raises `UnsupportedError` for what is no tensor of numbers.
    """
    import nestor

    graph = load_model(path).graph
    initialized = {t.name for t in graph.initializer}
    names = [v.name for v in graph.input]
    if len(inputs) != len(names):
        names = [n for n in names if n not in initialized]
    given: dict[str, np.ndarray] = {}
    for name, value in zip(names, inputs, strict=True):
        if not isinstance(value, (np.ndarray, np.generic)) or np.asarray(value).dtype.kind in "OUS":
            raise UnsupportedError(
                f"the input {name} is {type(value).__name__}; Nestor takes tensors of numbers", missing={}
            )
        given[name] = np.asarray(value)
    params = {n: given.pop(n) for n in initialized & set(given)}
    executable = nestor.compile(path, opt_level=opt_level, threads=threads, params=params or None)
    return list(executable.run({spec.name: given[spec.name] for spec in executable.inputs}))
