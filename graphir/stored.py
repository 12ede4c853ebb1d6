"""Kernels as stored: machine code with its ABI, from an artifact or the cache, in the place of a compiled one.

A stored kernel has what running needs. Its program, LLVM IR and assembly are made again when asked for, where it is
known from what (the cache knows the group; an artifact holds machine code only).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from targets.build import CompiledKernel
from targets.externs import ExternSignature, extern_signatures
from tensorir.dtypes import dtype_of
from tensorir.errors import UserError
from tensorir.stmt import Func
from topi.group import CompiledGroup


@dataclass(frozen=True, slots=True)
class KernelAbi:
    """What a caller of a kernel must know: buffers, dimensions, and the host functions whose addresses follow the
    buffers."""

    buffers: int
    sizes: int
    externs: tuple[ExternSignature, ...]

    def json(self) -> dict[str, Any]:
        """The ABI as data."""
        externs = [[e.name, [[str(t), rank] for t, rank in e.operands]] for e in self.externs]
        return {"buffers": self.buffers, "sizes": self.sizes, "externs": externs}

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelAbi:
        """What `json` wrote."""
        externs = tuple(
            ExternSignature(str(name), tuple((dtype_of(t), int(rank)) for t, rank in operands))
            for name, operands in data["externs"]
        )
        return KernelAbi(int(data["buffers"]), int(data["sizes"]), externs)


@dataclass(slots=True, eq=False)
class StoredKernel:
    """Machine code of a kernel. `spills` and `vector_bits` were read off its assembly when it was compiled; `again`
    compiles its group anew."""

    symbol: str
    object: bytes
    abi: KernelAbi
    spills: int
    vector_bits: int = 0
    again: Callable[[], CompiledGroup] | None = None
    _made: list[CompiledGroup] = field(default_factory=list)

    @property
    def externs(self) -> tuple[str, ...]:
        """The host functions that it calls."""
        return tuple(e.name for e in self.abi.externs)

    def compiled(self) -> CompiledGroup:
        """The group compiled again, for its texts."""
        if self.again is None:
            raise UserError(
                f"{self.symbol}: an artifact holds machine code, not the program it came from",
                help="compile the model to look at its kernels",
            )
        if not self._made:
            self._made.append(self.again())
        return self._made[0]

    @property
    def native(self) -> CompiledKernel:
        """The kernel compiled again; only native ones are ever stored."""
        kernel = self.compiled().kernel
        assert isinstance(kernel, CompiledKernel)
        return kernel

    @property
    def func(self) -> Func:
        """The scheduled program."""
        return self.compiled().func

    @property
    def lowered(self) -> Func:
        """The program in the flat form."""
        return self.native.lowered

    @property
    def llvm(self) -> str:
        """The LLVM IR."""
        return self.native.llvm

    @property
    def assembly(self) -> str:
        """The assembly."""
        return self.native.assembly


@dataclass(frozen=True, slots=True, eq=False)
class StoredGroup:
    """A group whose kernel is stored; reads like a `CompiledGroup`."""

    kernel: StoredKernel
    implementation: str
    config: str
    log: tuple[str, ...] = ()

    @property
    def func(self) -> Func:
        """The scheduled program, made again."""
        return self.kernel.func


def abi_of(kernel: Any) -> KernelAbi:
    """The ABI of a kernel, stored or compiled here."""
    if isinstance(kernel, StoredKernel):
        return kernel.abi
    signatures = extern_signatures(kernel.func)
    return KernelAbi(len(kernel.func.params), len(kernel.func.dims), tuple(signatures[e] for e in kernel.externs))


def vector_bits_of(kernel: Any) -> int:
    """The widest vectors that a kernel computes with, in bits; 0 for scalar code only."""
    if isinstance(kernel, StoredKernel):
        return kernel.vector_bits
    return widest_vectors(kernel.assembly)


_WIDTHS = ((512, r"%zmm\d"), (256, r"%ymm\d"), (128, r"(?m)^\s+v?\w+p[sd]\s.*%xmm\d|\b[vq]\d+\.\d+[bhsd]\b"))


def widest_vectors(assembly: str) -> int:
    """The widest vectors in assembly text, in bits."""
    return next((bits for bits, pattern in _WIDTHS if re.search(pattern, assembly)), 0)
