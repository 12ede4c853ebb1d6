"""The front door: compile, build, load, run and check; it wires the packages below and holds no compiler logic.

    import nestor as nt
    exe = nt.compile("m.onnx")
    [y] = exe.run({"x": x})

Every name loads its package on first use, so that `import nestor` is quick.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    # models
    "compile": "graphir.compile:compile",
    "load": "graphir.artifact:load",
    "save": "graphir.artifact:save",
    "inspect": "graphir.artifact:inspect",
    "Executable": "graphir.executor:Executable",
    "Graph": "graphir.ir:Graph",
    "from_onnx": "graphir.frontends.onnx:from_onnx",
    "from_symbol": "graphir.symbol:from_symbol",
    "unsupported": "graphir.frontends.onnx:unsupported",
    "graph_pass": "graphir.pipeline:graph_pass",
    "diff_dumps": "graphir.pipeline:diff_dumps",
    "sym": "graphir.symbol:sym",
    # kernels
    "te": "nestor.te:",
    "lower": "nestor.te:lower",
    "create_schedule": "schedule:create_schedule",
    "Schedule": "schedule:Schedule",
    "tensor_intrinsic": "schedule:tensor_intrinsic",
    "build": "targets.build:build",
    "Kernel": "targets.kernel:Kernel",
    "Target": "tensorir.target:Target",
    "op": "topi.op:op",
    "Onnx": "topi.op:Onnx",
    "attribute": "topi.op:attribute",
    "input_value": "topi.op:input_value",
    # errors
    "NestorError": "tensorir.errors:NestorError",
    "UserError": "tensorir.errors:UserError",
    "InternalError": "tensorir.errors:InternalError",
    "FallbackWarning": "graphir.errors:FallbackWarning",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

_PACKAGES = ("tensorir", "schedule", "targets", "topi", "graphir")


def __getattr__(name: str) -> Any:
    place = _EXPORTS.get(name)
    if place is None:
        raise AttributeError(f"module 'nestor' has no attribute {name!r}")
    module, _, attribute = place.partition(":")
    _require_own(module.split(".")[0])
    found = importlib.import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


def _require_own(package: str) -> None:
    """Says so in one sentence where another project's module stands under one of our names."""
    own = Path(__file__).resolve().parent.parent
    spec = importlib.util.find_spec(package)
    origin = getattr(spec, "origin", None)
    if origin is not None and Path(origin).resolve().parent.parent != own:
        raise ImportError(
            f"Nestor's package {package!r} is hidden by another module of that name at {origin}; "
            f"uninstall that one, or put {own} before it on the path"
        )
