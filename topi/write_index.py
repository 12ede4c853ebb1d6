"""Writes `topi/index.py` from the op files: `python -m topi.write_index` after an op was added or renamed."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import topi.ops
from topi.op import registered_ops

HEAD = '''"""Which file of `topi/ops` defines each op, and which ops serve each ONNX operator.

Written by `python -m topi.write_index`; a test holds it against what the op files define.
"""

from __future__ import annotations

'''


def index_text() -> str:
    """The text of `topi/index.py` as the op files say it must be."""
    index: dict[str, str] = {}
    for file in sorted(pkgutil.iter_modules(topi.ops.__path__), key=lambda f: f.name):
        importlib.import_module(f"topi.ops.{file.name}")
    for name, op in registered_ops().items():
        if op.compute.__module__.startswith("topi.ops."):
            index[name] = op.compute.__module__.removeprefix("topi.ops.")
    onnx: dict[tuple[str, str], list[str]] = {}
    for name in sorted(index):
        for entry in registered_ops()[name].onnx:
            served = onnx.setdefault((entry.domain, entry.op_type), [])
            if name not in served:
                served.append(name)
    lines = ["INDEX: dict[str, str] = {", *(f'    "{n}": "{m}",' for n, m in sorted(index.items())), "}", ""]
    lines.append("ONNX_INDEX: dict[tuple[str, str], tuple[str, ...]] = {")
    for (domain, op_type), names in sorted(onnx.items()):
        listed = ", ".join(f'"{n}"' for n in names) + ("," if len(names) == 1 else "")
        lines.append(f'    ("{domain}", "{op_type}"): ({listed}),')
    return HEAD + "\n".join([*lines, "}"]) + "\n"


def main() -> None:
    """Writes the file."""
    Path(__file__).with_name("index.py").write_text(index_text())


if __name__ == "__main__":
    main()
