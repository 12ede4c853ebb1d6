"""Tensor IR in its flat form to LLVM IR text: a pure function of the program and the target.

    define i32 @name(ptr %context, ptr %data, ptr %dims) alignstack(64) nounwind

The module has no globals and imports nothing. There are no contraction or fast-math flags and no nsw or nuw on the
program's own arithmetic; every operation means what SEMANTICS.md says.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.llvm.runtime.compiler import Passes
from targets.llvm.statements import FuncEmitter
from targets.llvm.text import ModuleWriter
from tensorir.stmt import Allocate, Func
from tensorir.target import Target
from tensorir.visit import walk_stmt


@dataclass(frozen=True, slots=True)
class EmittedModule:
    """LLVM IR text, the exported symbol, the externs whose addresses follow the buffers in `data`, and the passes
    that this kind of kernel wants."""

    text: str
    symbol: str
    externs: tuple[str, ...]
    passes: Passes


def emit(func: Func, target: Target, *, symbol: str | None = None) -> EmittedModule:
    """The module of one function. Raises `InternalError` for what is not in the flat form.

    The function's attribute ("noalias", True) promises that no two of its parameters share memory.
    """
    name = symbol_of(func.name if symbol is None else symbol)
    module = ModuleWriter()
    emitter = FuncEmitter(module, func, target, name)
    emitter.emit()
    return EmittedModule(module.text(), name, tuple(emitter.externs), passes_for(func))


def passes_for(func: Func) -> Passes:
    """Register tiles were unrolled by us and want `sroa` alone; any other kernel gains from LLVM's cleaning."""
    tiled = any(isinstance(s, Allocate) and s.buffer.scope == "register" for s in walk_stmt(func.body))
    return "sroa" if tiled else "O1"


def symbol_of(name: str) -> str:
    """`name` with everything but letters, digits and underscores made underscores."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
