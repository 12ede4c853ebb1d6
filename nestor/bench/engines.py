"""The engines that are measured: how each is built for a model, run, and what precision it computes in.

    nestor              this compiler; precision as compiled
    onnxruntime         float32, all graph optimisations, static shapes where the inputs fix them
    openvino            held to float32: INFERENCE_PRECISION_HINT=f32, PERFORMANCE_HINT=LATENCY
    openvino-default    as it comes: on many CPUs that means bfloat16

Each is made in a process of its own (`nestor.bench.engine`), never beside another: their thread pools spin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorir.errors import UserError


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What an engine is built from: the model file, the inputs it will get, the threads of a run, and for `nestor`
    further arguments of `nestor.compile`."""

    model: Path
    inputs: Mapping[str, np.ndarray]
    threads: int
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine: `run` computes once and gives the outputs by name."""

    version: str
    precision: str
    run: Callable[[], object]
    outputs: Callable[[], dict[str, np.ndarray]]


def build_nestor(request: EngineRequest) -> Engine:
    """This compiler, or an artifact that it saved."""
    import nestor

    if request.model.suffix == ".nst":
        executable = nestor.load(request.model)  # type: ignore[attr-defined]
    else:
        shapes = {name: array.shape for name, array in request.inputs.items()}
        executable = nestor.compile(  # type: ignore[attr-defined]
            request.model, threads=request.threads, shapes=shapes, **request.options
        )
    arrays = dict(request.inputs)
    names = [o.name for o in executable.outputs]
    precision = request.options.get("precision", "default")
    described = {"bf16": "bfloat16", "strict": "float32, strict", "default": "float32"}.get(precision, precision)
    return Engine(
        _version("nestor-compiler"),
        described,
        lambda: executable.run(arrays),
        lambda: dict(zip(names, executable.run(arrays))),
    )


def build_onnxruntime(request: EngineRequest) -> Engine:
    """onnxruntime on the CPU."""
    onnxruntime = _require("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    for symbol, size in _symbol_sizes(request).items():
        options.add_free_dimension_override_by_name(symbol, size)
    session = onnxruntime.InferenceSession(str(request.model), options, providers=["CPUExecutionProvider"])
    inputs = dict(request.inputs)
    names = [o.name for o in session.get_outputs()]
    return Engine(
        onnxruntime.__version__,
        "float32",
        lambda: session.run(None, inputs),
        lambda: dict(zip(names, session.run(None, inputs))),
    )


def build_openvino(request: EngineRequest) -> Engine:
    """OpenVINO held to float32."""
    return _openvino(request, {"INFERENCE_PRECISION_HINT": "f32"})


def build_openvino_default(request: EngineRequest) -> Engine:
    """OpenVINO in the precision that it chooses itself."""
    return _openvino(request, {})


def _openvino(request: EngineRequest, more: Mapping[str, str]) -> Engine:
    openvino = _require("openvino")
    core = openvino.Core()
    model = core.read_model(str(request.model))
    names = [port.get_any_name() for port in model.inputs]
    model.reshape({name: list(request.inputs[name].shape) for name in names})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": request.threads, **more}
    compiled = core.compile_model(model, "CPU", settings)
    call = compiled.create_infer_request()
    arrays = [np.ascontiguousarray(request.inputs[name]) for name in names]
    for name, array in zip(names, arrays):
        call.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    precision = str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())

    def run() -> list[np.ndarray]:
        call.infer()
        return arrays  # which the request reads: they must live as long as it is run

    def outputs() -> dict[str, np.ndarray]:
        run()
        return {port.get_any_name(): call.get_tensor(port).data.copy() for port in compiled.outputs}

    described = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}.get(precision, precision)
    return Engine(openvino.__version__.split("-")[0], described, run, outputs)


BUILDERS: dict[str, Callable[[EngineRequest], Engine]] = {
    "nestor": build_nestor,
    "onnxruntime": build_onnxruntime,
    "openvino": build_openvino,
    "openvino-default": build_openvino_default,
}
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "openvino-default": "openvino"}
"""The package that each rival needs."""


def require_engines(names: tuple[str, ...]) -> None:
    """Raises `UserError` for an engine that is not known or not installed, without importing it."""
    import importlib.util

    for name in names:
        if name not in BUILDERS:
            raise UserError(f"no engine is called {name!r}", help=f"the known ones are {', '.join(BUILDERS)}")
        package = PACKAGES.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise UserError(
                f"the engine {name} is not installed", help=f"pip install 'nestor-compiler[bench]', or {package}"
            )


def _symbol_sizes(request: EngineRequest) -> dict[str, int]:
    """The sizes that the inputs give to the symbols of the model's own input shapes."""
    from nestor.accuracy import load_model

    model = load_model(request.model)
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        array = request.inputs.get(value.name)
        if array is None:
            continue
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape):
            if dim.dim_param:
                sizes[dim.dim_param] = size
    return sizes


def _require(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise UserError(f"{package} is not installed", help="pip install 'nestor-compiler[bench]'") from None


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source"
