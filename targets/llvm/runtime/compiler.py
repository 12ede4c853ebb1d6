"""LLVM IR text to a relocatable object, the readable assembly beside it.

The emitter unrolls, vectorises and places registers itself, so LLVM is asked for little: `sroa` puts register buffers
into registers (hot kernels), `O1` without vectorisers and unroller cleans up generic kernels, `none` is for text that
is already in SSA form. None of them re-associates or contracts floats: the text holds no fast-math flags.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

import llvmlite.binding as llvm

from targets.llvm.runtime.host import Machine
from targets.llvm.runtime.objects import Symbols, read_symbols
from targets.llvm.runtime.spills import vector_spills
from tensorir.errors import InternalError

Passes = Literal["sroa", "O1", "none"]


@dataclass(frozen=True, eq=False)
class CompiledObject:
    """One compiled module: `object` is loadable, cacheable and linkable; `llvm` is the text it was made from."""

    object: bytes
    llvm: str
    machine: Machine
    passes: Passes

    @functools.cached_property
    def symbols(self) -> Symbols:
        """What the object defines and what it needs."""
        return read_symbols(self.object)

    @functools.cached_property
    def assembly(self) -> str:
        """The assembly of `object`, generated when first asked for (as long as compiling again)."""
        return self.machine.handle.emit_assembly(_optimised(self.llvm, self.machine, self.passes))

    @functools.cached_property
    def optimised(self) -> str:
        """The LLVM IR after the passes."""
        return str(_optimised(self.llvm, self.machine, self.passes))

    @functools.cached_property
    def spills(self) -> int:
        """Vector stack traffic in the innermost loops, see `spills.py`."""
        return vector_spills(self.assembly)


def compile_ir(text: str, *, machine: Machine, passes: Passes = "sroa") -> CompiledObject:
    """Compile a module for `machine`. Text that LLVM does not accept is an `InternalError` that shows the line."""
    module = _optimised(text, machine, passes)
    return CompiledObject(machine.handle.emit_object(module), text, machine, passes)


def _optimised(text: str, machine: Machine, passes: Passes) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = machine.data_layout
        module.verify()
    except RuntimeError as error:
        raise InternalError(_explain(text, str(error))) from None
    match passes:
        case "none":
            return module
        case "sroa":
            options = llvm.create_pipeline_tuning_options(speed_level=0)
            builder = llvm.create_pass_builder(machine.handle, options)
            manager = llvm.create_new_module_pass_manager()
            manager.add_sroa_pass()
        case "O1":
            options = llvm.create_pipeline_tuning_options(speed_level=1)
            options.loop_vectorization = False
            options.slp_vectorization = False
            options.loop_interleaving = False
            options.loop_unrolling = False
            builder = llvm.create_pass_builder(machine.handle, options)
            manager = builder.getModulePassManager()
    manager.run(module, builder)
    return module


def _explain(text: str, message: str) -> str:
    """LLVM's complaint with the lines around it."""
    shown = f"LLVM does not accept a generated module: {message.strip()}"
    place = re.search(r":(\d+):\d+: error", message)
    if place:
        lines = text.splitlines()
        at = int(place[1])
        for number in range(max(at - 3, 1), min(at + 2, len(lines)) + 1):
            shown += f"\n{'>' if number == at else ' '} {number:5} | {lines[number - 1]}"
    return shown
