"""A process that runs cases one after another and says so line by line, so that a crash costs one case.

    python -m tests.onnx_suite.worker CASES.json BACKEND RTOL ATOL [BIND]

Lines are JSON on standard output: {"ready": 1}, {"start": [kind, name]}, {"done": [kind, name], "status": ...}.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.onnx_suite.cases import Case, load_set
from tests.onnx_suite.compare import compare

Backend = Callable[[str, list[Any]], list[Any]]


def load_backend(name: str) -> Backend:
    """The function behind "module:function"."""
    module, _, function = name.rpartition(":")
    found: Backend = getattr(importlib.import_module(module), function)
    return found


def run_case(run: Backend, case: Case, rtol: float, atol: float, bind: str) -> dict[str, Any]:
    """Status, message and seconds of one case: all its data sets must pass."""
    start = time.perf_counter()
    status, message = "pass", ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for place in case["sets"]:
                inputs, expected = load_set(case, place)
                # a copy, so that no expected output lies beside the model
                path = Path(folder) / "model.onnx"
                path.write_bytes(Path(case["model"]).read_bytes())
                if bind:
                    inputs = bind_constants(path, inputs, bind)
                outputs = list(run(str(path), inputs))
                if len(outputs) < len(expected):
                    status, message = "shape", f"{len(outputs)} outputs, expected {len(expected)}"
                for number, (e, a) in enumerate(zip(expected, outputs)):
                    fault = compare(e, a, rtol, atol, f"output {number}")
                    if fault is not None:
                        status, message = fault
                        break
    except Exception as error:
        names = " ".join(c.__name__ for c in type(error).__mro__)
        status = "unsupported" if re.search("NotImplemented|Unsupported|NotSupported", names) else "error"
        message = f"{type(error).__name__}: {error}"
    return {"status": status, "message": message[:300], "seconds": time.perf_counter() - start}


def bind_constants(path: Path, inputs: list[Any], pattern: str) -> list[Any]:
    """Makes inputs after the first whose names match into initialisers, as an exporter would have; the inputs left."""
    import onnx

    model = onnx.load(path)
    known = {t.name for t in model.graph.initializer}
    infos = [v for v in model.graph.input if len(inputs) == len(model.graph.input) or v.name not in known]
    kept, left = [], []
    for number, (info, value) in enumerate(zip(infos, inputs)):
        tensor = info.type.HasField("tensor_type") and value is not None
        if number and tensor and re.fullmatch(pattern, info.name, re.IGNORECASE):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, info.name))
        else:
            kept.append(info)
            left.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    onnx.save(model, path)
    return left


def main() -> None:
    listing, backend, rtol, atol, *rest = sys.argv[1:]
    with os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)  # what a model's run prints does not mix with the lines
        run = load_backend(backend)
        print(json.dumps({"ready": 1}), file=out)
        for case in json.loads(Path(listing).read_text()):
            key = [case["kind"], case["name"]]
            print(json.dumps({"start": key}), file=out)
            result = run_case(run, case, float(rtol), float(atol), rest[0] if rest else "")
            print(json.dumps({"done": key, **result}), file=out)


if __name__ == "__main__":
    main()
