"""What this machine is, and the LLVM target machine that generates code for it (or for another one).

`host()` asks LLVM and the operating system once a process. `target_machine` is the only place where LLVM targets are
initialised and target machines are made. Code is position independent with the small code model, so that one object
serves the JIT, the cache, the artifact and an exported library alike.
"""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import llvmlite.binding as llvm

from tensorir.errors import UserError

_SYSTEM_CPU = Path("/sys/devices/system/cpu/cpu0/cache")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class Host:
    """The machine this process runs on. Cache sizes are bytes as one core sees them, 0 where not known."""

    triple: str
    cpu: str
    features: str
    cores: int
    vector_bits: int
    line_bytes: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    def __str__(self) -> str:
        caches = ", ".join(
            f"L{level} {size // 1024} KB" for level, size in enumerate((self.l1_bytes, self.l2_bytes, self.l3_bytes), 1)
        )
        return f"{self.cpu} ({self.triple}), {self.cores} cores, {self.vector_bits}-bit vectors, {caches}"


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """An LLVM target machine with the facts it was made from; `key` names the code it generates."""

    triple: str
    cpu: str
    features: str
    opt: int
    handle: llvm.TargetMachine = field(repr=False)
    data_layout: str = field(repr=False)

    @property
    def key(self) -> str:
        """Two machines with equal keys generate equal code with the same llvmlite."""
        version = ".".join(str(part) for part in llvm.llvm_version_info)
        return f"llvm-{version}|{self.triple}|{self.cpu}|{self.features}|O{self.opt}"

    @property
    def vector_bits(self) -> int:
        return vector_bits(self.triple, self.features)


@functools.cache
def host() -> Host:
    """This machine, detected once a process."""
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features().flatten()
    caches = _cache_sizes()
    return Host(
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        features=features,
        cores=available_cores(),
        vector_bits=vector_bits(triple, features),
        line_bytes=caches.get(0, 64),
        l1_bytes=caches.get(1, 0),
        l2_bytes=caches.get(2, 0),
        l3_bytes=caches.get(3, 0),
    )


def available_cores() -> int:
    """The cores this process may use: its affinity mask, and a container's quota where there is one."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no such file, or another form of it: the affinity mask decides
    return max(cores, 1)


def vector_bits(triple: str, features: str) -> int:
    """The widest vector register that `features` offers, in bits."""
    enabled = set(features.split(","))
    if triple.startswith(("x86_64", "i686", "amd64")):
        if "+avx512f" in enabled:
            return 512
        return 256 if "+avx" in enabled or "+avx2" in enabled else 128
    return 128


@functools.cache
def target_machine(triple: str, cpu: str = "", features: str = "", opt: int = 2) -> Machine:
    """The target machine for `triple`; `opt` is the code generator's level, 0 to 3 (0: quick to compile, slow to run).

    A triple that LLVM does not know is a `UserError`.
    """
    _initialise(triple)
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise UserError(
            f"unknown target triple {triple!r}: {str(error).strip()}",
            help=f"this machine is {llvm.get_process_triple()}; another common one is aarch64-unknown-linux-gnu",
        ) from None
    handle = target.create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small")
    return Machine(triple, cpu, features, opt, handle, str(handle.target_data))


def host_machine(opt: int = 2) -> Machine:
    """The target machine for this machine, with every feature it has."""
    here = host()
    return target_machine(here.triple, here.cpu, here.features, opt)


@functools.cache
def _initialise_native() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _initialise_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _initialise(triple: str) -> None:
    _initialise_native()
    if triple.split("-")[0] != llvm.get_process_triple().split("-")[0]:
        _initialise_all()


def _cache_sizes() -> dict[int, int]:
    """Level to bytes of the data or unified cache; level 0 holds the line size. Empty where the system does not say."""
    sizes: dict[int, int] = {}
    try:
        for index in sorted(_SYSTEM_CPU.glob("index*")):
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            sizes[level] = _parse_size((index / "size").read_text())
            sizes[0] = int((index / "coherency_line_size").read_text())
    except (OSError, ValueError):
        pass  # a partial answer is still one
    return sizes


def _parse_size(text: str) -> int:
    text = text.strip()
    factors = {"K": 1024, "M": 1024**2, "G": 1024**3}
    return int(text[:-1]) * factors[text[-1]] if text[-1] in factors else int(text)


def _guard_fork() -> None:
    """Fork only while no thread is inside LLVM, or the child would inherit llvmlite's lock held by nobody."""
    lock = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


_guard_fork()
