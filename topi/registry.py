"""Finding ops by name or by ONNX operator, loading each op file on first use.

`INDEX` maps every op to the module under `topi.ops` that defines it and `ONNX_INDEX` every ONNX operator to the ops
that may serve it; `tests/topi/test_registry.py` holds both against what the files define.
"""

from __future__ import annotations

import difflib
import importlib
import sys

from topi.index import INDEX, ONNX_INDEX
from topi.op import Onnx, Op, OpError, registered_ops

IMPLEMENTATIONS = {"conv": ("conv", "winograd", "conv_gpu"), "matmul": ("matmul",), "winograd": ("winograd",)}
"""Files under `topi.implementations` that belong to an op file."""


_LOADED: set[str] = set()


def _load(module: str) -> None:
    _LOADED.add(module)
    importlib.import_module(f"topi.ops.{module}")
    for name in IMPLEMENTATIONS.get(module, ()):
        importlib.import_module(f"topi.implementations.{name}")


def get_op(name: str) -> Op:
    """The op of this name. Raises `OpError` with the nearest known names."""
    found, module = registered_ops().get(name), INDEX.get(name)
    if found is not None:
        if module in IMPLEMENTATIONS and module not in _LOADED and f"topi.ops.{module}" in sys.modules:
            _load(module)  # another implementation may have brought the op file, but not what belongs to it
        return found
    if module is None:
        near = difflib.get_close_matches(name, [*INDEX, *registered_ops()], 3)
        raise OpError(f"no op is called {name!r}", help=f"did you mean {', '.join(near)}?" if near else None)
    _load(module)
    return registered_ops()[name]


def all_ops() -> dict[str, Op]:
    """Every op, with all op files loaded."""
    for module in sorted(set(INDEX.values())):
        _load(module)
    return dict(registered_ops())


def find_onnx(op_type: str, domain: str = "") -> list[tuple[Op, Onnx]]:
    """The ops that say they serve an ONNX operator, with each of their entries for it; empty if none does."""
    domain = "" if domain == "ai.onnx" else domain
    names = [*ONNX_INDEX.get((domain, op_type), ()), *(n for n in registered_ops() if n not in INDEX)]
    return [
        (op, entry)
        for op in map(get_op, dict.fromkeys(names))
        for entry in op.onnx
        if entry.op_type == op_type and entry.domain == domain
    ]
