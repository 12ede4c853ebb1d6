"""A lowered program compiled to an object: emitted, optimised as far as its kind wants, turned into machine code."""

from __future__ import annotations

from dataclasses import dataclass

from targets.llvm.emit import emit
from targets.llvm.machine import machine_of
from targets.llvm.runtime.compiler import CompiledObject, compile_ir
from tensorir.stmt import Func
from tensorir.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class CompiledKernel:
    """One compiled program, not loaded: `object` can be cached, linked with others and shipped. `symbol` follows the
    kernel ABI; the addresses of `externs` follow the buffers in its `data`."""

    func: Func
    lowered: Func
    target: Target
    symbol: str
    externs: tuple[str, ...]
    compiled: CompiledObject

    @property
    def object(self) -> bytes:
        """The relocatable object file."""
        return self.compiled.object

    @property
    def llvm(self) -> str:
        """The LLVM IR that was emitted."""
        return self.compiled.llvm

    @property
    def assembly(self) -> str:
        """The assembly, generated when first asked for."""
        return self.compiled.assembly

    @property
    def spills(self) -> int:
        """Instructions of the innermost loops that move vectors to or from the stack."""
        return self.compiled.spills


def compile_lowered(
    func: Func, lowered: Func, target: Target, *, symbol: str | None = None, opt: int = 2
) -> CompiledKernel:
    """Machine code for `lowered`, the flat form of `func`, on a resolved target."""
    module = emit(lowered, target, symbol=symbol)
    compiled = compile_ir(module.text, machine=machine_of(target, opt), passes=module.passes)
    return CompiledKernel(func, lowered, target, module.symbol, module.externs, compiled)
