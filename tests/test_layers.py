"""The house rules of imports, read from the source text.

Imports run one way between the six packages, wherever in a file they stand; no package holds a cycle; heavy packages
are imported inside functions, behind one door each; `targets` knows no op by name.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# each package with those that it may import: any to its right in
# nestor -> graphir -> topi -> {schedule | targets} -> tensorir
ALLOWED = {
    "tensorir": (),
    "schedule": ("tensorir",),
    "targets": ("tensorir",),
    "topi": ("schedule", "targets", "tensorir"),
    "graphir": ("topi", "schedule", "targets", "tensorir"),
    "nestor": ("graphir", "topi", "schedule", "targets", "tensorir"),
}

# heavy packages, with the files or folders that may import them; inside functions, or in a module that is itself only
# imported inside functions (`test_importing_the_front_door_is_light` holds that)
DOORS = {
    "onnx": ("graphir/frontends/", "nestor/accuracy.py", "nestor/models.py", "nestor/reference_ops.py"),
    "onnxruntime": ("nestor/accuracy.py",),
    "openvino": ("nestor/",),
    "torch": ("graphir/frontends/",),
    "numba": ("targets/",),
    "llvmlite": ("targets/llvm/",),
    "magika": (),
}
HEAVY_AT_IMPORT = (
    "onnx",
    "onnxruntime",
    "openvino",
    "torch",
    "numba",
    "magika",
    "pandas",
    "matplotlib",
    "rich",
    "typer",
)

# methods through which an object that users hold reaches what is written on top of it: a node's text, a graph's passes,
# an op's test, an executable's model as it came in. Nothing else may turn back, by an import inside a function either
FACES = {
    "topi.op": ("test",),
    "graphir.ir": ("json", "from_json", "svg", "infer", "apply"),
    "graphir.executor": ("save", "plain"),
    "graphir.variants": ("save",),
}
PRINTING = ("__repr__", "__str__")

# op names that are also names of scalar arithmetic, which every code generator knows
SCALAR_NAMES = frozenset(
    "abs add and cast ceil clip cos cosh div equal erf exp exp2 expm1 floor floordiv floormod greater isinf isnan less"
    " log log10 log1p log2 max min mod mul neg not or pow prod rem round rsqrt select sigmoid sign sin sinh sqrt sum"
    " sub tan tanh trunc truncdiv truncmod where xor any all argmax argmin acos acosh asin asinh atan atan2 atanh copy"
    " identity reverse pad gather scatter split concat reshape transpose range size shape if loop scan constant".split()
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module name at a place in a file; `function` names the innermost function around it, or is empty."""

    path: str
    line: int
    module: str
    function: str


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_imports(source: str, path: str, module: str, known: frozenset[str]) -> list[Import]:
    """Every import of a file, except under `if TYPE_CHECKING`; `from a import b` is a.b where that is a module."""
    package = module if path.endswith("__init__.py") else module.rpartition(".")[0]

    def visit(node: ast.AST, function: str) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from visit(other, function)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*stem, base] if base else stem)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(path, node.lineno, full if full in known else base, function)
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    return list(dict.fromkeys(visit(ast.parse(source), "")))


@cache
def source_files() -> dict[str, Path]:
    """Every module of the six packages."""
    paths = (path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py")))
    return {module_name(path, ROOT): path for path in paths}


@cache
def all_imports() -> dict[str, list[Import]]:
    known = frozenset(source_files())
    return {
        module: find_imports(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix(), module, known)
        for module, path in source_files().items()
    }


def layer_faults(module: str, imports: list[Import]) -> list[str]:
    package = module.partition(".")[0]
    return [
        f"{found.path}:{found.line}: {package} must not import {found.module}"
        for found in imports
        if (target := found.module.partition(".")[0]) in ALLOWED and target not in (package, *ALLOWED[package])
    ]


def find_cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, or of one that imports itself (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def connect(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges.get(module, ())):
            if target not in index:
                connect(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1 or module in edges.get(module, ()):
                cycles.append(sorted(component))

    for module in sorted(edges):
        if module not in index:
            connect(module)
    return cycles


def test_imports_run_one_way() -> None:
    faults = [fault for module, imports in all_imports().items() for fault in layer_faults(module, imports)]
    assert not faults, "\n".join(faults)


def test_no_package_holds_a_cycle() -> None:
    edges = {
        module: {
            found.module
            for found in imports
            if found.module.partition(".")[0] == module.partition(".")[0]
            and found.function not in (*PRINTING, *FACES.get(module, ()))
        }
        for module, imports in all_imports().items()
    }
    assert not (cycles := find_cycles(edges)), "\n".join(" <-> ".join(cycle) for cycle in cycles)


def test_nothing_imports_the_tests() -> None:
    faults = [f for imports in all_imports().values() for f in imports if f.module.partition(".")[0] == "tests"]
    assert not faults


@pytest.mark.parametrize("heavy", sorted(DOORS))
def test_heavy_packages_have_one_door(heavy: str) -> None:
    faults = [
        f"{found.path}:{found.line}: imports {found.module}"
        for imports in all_imports().values()
        for found in imports
        if found.module.partition(".")[0] == heavy and not found.path.startswith(DOORS[heavy])
    ]
    assert not faults, f"{heavy} may be imported only in {DOORS[heavy]}:\n" + "\n".join(faults)


def test_importing_the_front_door_is_light() -> None:
    program = f"import sys, nestor; print(*[name for name in {HEAVY_AT_IMPORT} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"import nestor also imports {done.stdout}"


def test_targets_know_no_op_by_name() -> None:
    from topi.registry import all_ops

    ops = frozenset(all_ops()) - SCALAR_NAMES
    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        for module, path in source_files().items()
        if module.partition(".")[0] == "targets"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ops
    ]
    assert not faults, "\n".join(faults)


def test_planted_faults_are_found() -> None:
    known = frozenset({"schedule.split", "tensorir.expr", "targets", "targets.llvm"})
    source = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from tensorir import expr\n"
        "if TYPE_CHECKING:\n    import graphir.graph\n"
        "def late():\n    from targets import llvm\n"
        "from . import split\n"
        "from .split import factor\n"
    )
    imports = find_imports(source, "schedule/state.py", "schedule.state", known)
    assert [(found.module, found.function) for found in imports[2:]] == [
        ("tensorir.expr", ""),
        ("targets.llvm", "late"),
        ("schedule.split", ""),
        ("schedule.split", ""),
    ]
    assert layer_faults("schedule.state", imports) == ["schedule/state.py:7: schedule must not import targets.llvm"]
    assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"e"}}) == [["a", "b", "c"], ["e"]]
