"""One engine in a process of its own, measured on command.

    python -m nestor.bench.engine '{"engine": "openvino", "model": "m.onnx", "inputs": "in.npz", "threads": 2}'

The answer to the start, and to each line on standard input, is one line of JSON on standard output:

    (start)                  -> {"version": ..., "precision": ..., "seconds": of building, "first": of the first run}
    {"do": "window", "seconds": 2.0}   -> {"min": ..., "median": ..., "count": ..., "times": of at most 1000 runs}
    {"do": "outputs", "path": "o.npz"} -> {"names": [...]}, the outputs written to the file
    {"do": "quit"}

A failure is {"error": message}, and the end of the process. Whatever the engine itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from nestor.bench.engines import BUILDERS, Engine, EngineRequest
from tensorir.errors import UserError

KEPT_TIMES = 1000
WARM_UP_RUNS = 3


def main(argument: str) -> int:
    """Builds the engine that `argument` describes, then answers commands until the input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        engine, facts = _build(json.loads(argument))
        _answer(channel, facts)
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "quit":
                break
            _answer(channel, COMMANDS[command["do"]](engine, command))
    except Exception as error:  # noqa: BLE001 - the other side decides what becomes of it
        traceback.print_exc()
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        _answer(channel, {"error": text})
        return 1
    return 0


def _build(request: Mapping[str, Any]) -> tuple[Engine, dict[str, Any]]:
    inputs = read_arrays(Path(request["inputs"]))
    start = time.perf_counter()
    engine = BUILDERS[request["engine"]](
        EngineRequest(Path(request["model"]), inputs, request["threads"], request.get("options", {}))
    )
    built = time.perf_counter() - start
    start = time.perf_counter()
    engine.run()
    first = time.perf_counter() - start
    return engine, {"version": engine.version, "precision": engine.precision, "seconds": built, "first": first}


def _window(engine: Engine, command: Mapping[str, Any]) -> dict[str, Any]:
    """Runs for the given time after a short warm-up; at least five runs."""
    run, clock = engine.run, time.perf_counter
    for _ in range(WARM_UP_RUNS):
        run()
    times: list[float] = []
    end = clock() + command["seconds"]
    while len(times) < 5 or clock() < end:
        start = clock()
        run()
        times.append(clock() - start)
    step = -(-len(times) // KEPT_TIMES)
    return {"min": min(times), "median": statistics.median(times), "count": len(times), "times": times[::step]}


def _outputs(engine: Engine, command: Mapping[str, Any]) -> dict[str, Any]:
    outputs = engine.outputs()
    write_arrays(Path(command["path"]), outputs)
    return {"names": list(outputs)}


COMMANDS: dict[str, Callable[[Engine, Mapping[str, Any]], dict[str, Any]]] = {"window": _window, "outputs": _outputs}


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Named arrays to a .npz file; names may hold any characters, dtypes beyond numpy's are kept as bytes."""
    names = list(arrays)
    plain: dict[str, Any] = {
        f"a{n}": np.ascontiguousarray(arrays[name]).view(_carrier(arrays[name])) for n, name in enumerate(names)
    }
    facts = [[name, arrays[name].dtype.name, list(arrays[name].shape)] for name in names]
    np.savez(path, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **plain)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote."""
    import ml_dtypes  # noqa: F401  numpy knows bfloat16 by name from here on

    with np.load(path, allow_pickle=False) as archive:
        facts = json.loads(archive["facts"].tobytes())
        return {
            name: archive[f"a{n}"].view(np.dtype(dtype)).reshape(shape) for n, (name, dtype, shape) in enumerate(facts)
        }


def _carrier(array: np.ndarray) -> np.dtype:
    return array.dtype if array.dtype.kind in "biufc" else np.dtype(f"u{array.dtype.itemsize}")


def _answer(channel: TextIO, data: Mapping[str, Any]) -> None:
    channel.write(json.dumps(data) + "\n")
    channel.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
