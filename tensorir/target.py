"""Targets as data: what a machine offers, parsed from a string. Passes ask a `Target`; none compares target names.

    Target.parse("llvm -mcpu=znver4")                 # facts of that CPU
    Target.parse("llvm -mtriple=aarch64-linux-gnu")   # cross compilation
    Target.parse("cuda -arch=sm_90")

`llvm` alone means the machine at hand. Finding out what that is needs LLVM, so `targets.resolve` does it; until then
the facts are those of the baseline of the architecture. `str(target)` gives a string that parses to an equal target.
A backend that lives elsewhere adds its kind with `register_kind`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorir.dtypes import DType
from tensorir.errors import UserError


class TargetError(UserError):
    """A target string that names no known kind, option, CPU or value."""


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A kind of code, the options it was asked with, and the facts that passes and schedules rely on.

    Sizes are bytes. `vector_registers` counts registers of `vector_bits`; `masked_memory` says that a masked vector
    access is about as cheap as a plain one; `fma_units` counts the FMAs of a whole vector that a core begins in a
    cycle; `native_*` say that arithmetic exists in that type (else it is legalised to float32 with rounding after each
    operation). `max_threads` is the most threads of a GPU block (1 on a CPU).
    `matrix` says that a warp multiplies tiles of matrices in one instruction; `async_copies` that threads can go on
    while memory is copied from global to shared: on a target without, `async_copy` is a plain copy.
    `channels_last` says that convolutions without a blocked implementation run with their channels innermost.
    """

    kind: str
    options: tuple[tuple[str, str], ...] = ()
    arch: str = ""
    features: frozenset[str] = frozenset()
    vector_bits: int = 0
    vector_registers: int = 0
    masked_memory: bool = False
    fma: bool = False
    fma_units: int = 1
    native_float16: bool = False
    native_bfloat16: bool = False
    index_bits: int = 64
    cores: int = 1
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    max_threads: int = 1
    warp_size: int = 1
    shared_bytes: int = 0
    gpu: bool = False
    matrix: bool = False
    async_copies: bool = False
    channels_last: bool = False

    @staticmethod
    def parse(text: str | Target) -> Target:
        """The target that a string names; a `Target` as it is. Raises `TargetError` listing what is known."""
        if isinstance(text, Target):
            return text
        words = str(text).split()
        if not words or words[0] not in KINDS:
            named = f"unknown target {words[0]!r}" if words else "an empty target string"
            raise TargetError(named, help=f"known targets are {', '.join(KINDS)}")
        options: dict[str, str] = {}
        for word in words[1:]:
            match = re.fullmatch(r"--?([\w-]+)=(\S+)", word)
            if match is None:
                raise TargetError(
                    f"target {text!r}: {word!r} is not an option", help=f"write -option=value; {_option_list(words[0])}"
                )
            options[match[1]] = match[2]
        return Target.make(words[0], options)

    @staticmethod
    def make(kind: str, options: Mapping[str, Any]) -> Target:
        """The target of this kind with these options, its facts filled in. Raises `TargetError`."""
        if kind not in KINDS:
            raise TargetError(f"unknown target {kind!r}", help=f"known targets are {', '.join(KINDS)}")
        entry = KINDS[kind]
        for name in options:
            if name not in entry.options:
                raise TargetError(f"target {kind}: unknown option -{name}", help=_option_list(kind))
        ordered = tuple((name, str(options[name])) for name in entry.options if name in options)
        return Target(kind, ordered, **entry.facts(dict(ordered)))

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{name}={value}" for name, value in self.options)])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def option(self, name: str, default: str = "") -> str:
        """The value of an option as it was given."""
        return dict(self.options).get(name, default)

    @property
    def mcpu(self) -> str:
        """The CPU; "host" where the machine at hand is meant and not yet resolved."""
        return self.option("mcpu", "" if self.mtriple else "host")

    @property
    def mattr(self) -> str:
        """Features added or taken away, as LLVM spells them: "+avx512f,-avx2"."""
        return self.option("mattr")

    @property
    def mtriple(self) -> str:
        """The triple of a cross target, else empty."""
        return self.option("mtriple")

    @property
    def channel_block(self) -> int:
        """Float channels of one vector: the preferred block of packed convolution layouts."""
        return max(self.vector_bits // 32, 4)

    def lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` one vector register holds, at least 1."""
        return max(self.vector_bits // dtype.bits, 1)

    def has_masked_memory(self, dtype: DType) -> bool:
        """True if a masked access of vectors of `dtype` is cheap: 8 and 16 bits need more than 32 and 64 bits do."""
        return self.masked_memory and (dtype.bits >= 32 or "avx512bw" in self.features or self.arch != "x86_64")


# ----------------------------------------------------------------------------------------------------------- kinds


@dataclass(frozen=True, slots=True)
class TargetKind:
    """One kind: its options with a line on each, in printed order, and the facts that options lead to."""

    name: str
    options: Mapping[str, str]
    facts: Callable[[dict[str, str]], dict[str, Any]]


KINDS: dict[str, TargetKind] = {}


def register_kind(kind: TargetKind) -> TargetKind:
    """Adds a kind of target to the table."""
    KINDS[kind.name] = kind
    return kind


def _option_list(kind: str) -> str:
    options = KINDS[kind].options
    return f"the options of {kind} are {', '.join(f'-{o}' for o in options)}" if options else f"{kind} has no options"


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise TargetError(f"target option -{name}={text}: a whole number above 0 is wanted")
    return int(text)


LAYOUTS = {"NCHW": False, "NHWC": True}
"""What the option -layout says of channels: whether they come last."""
_LAYOUT_OPTION = "layout of convolutions that have no blocked implementation, NCHW (the default) or NHWC"


def _channels_last(options: dict[str, str]) -> bool:
    text = options.get("layout", "NCHW")
    if text not in LAYOUTS:
        raise TargetError(f"target option -layout={text}: no such layout", help=f"it is one of {', '.join(LAYOUTS)}")
    return LAYOUTS[text]


_BASE = frozenset({"sse2"})
_V2 = _BASE | {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"}
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _V4 | {"avx512vnni"}
_ICELAKE = _VNNI | {"avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"}
_SAPPHIRE = _ICELAKE | {"avx512bf16", "avx512fp16", "amx-tile", "amx-int8", "amx-bf16"}
_NEON = frozenset({"neon"})
_ARMV82 = _NEON | {"fullfp16", "dotprod", "lse"}
_ARMV84 = _ARMV82 | {"bf16", "i8mm", "sve"}

_ONE_FMA = frozenset(
    {"x86-64", "x86-64-v2", "x86-64-v4", "nehalem", "sandybridge", "icelake-client", "znver1", "znver4"}
)
"""CPUs with one FMA of the widest vector a cycle, or of which it is not known."""

CPUS: dict[str, tuple[str, frozenset[str]]] = {
    "x86-64": ("x86_64", _BASE),
    "x86-64-v2": ("x86_64", _V2),
    "x86-64-v3": ("x86_64", _V3),
    "x86-64-v4": ("x86_64", _V4),
    "nehalem": ("x86_64", _V2),
    "sandybridge": ("x86_64", _V2 | {"avx"}),
    "haswell": ("x86_64", _V3),
    "broadwell": ("x86_64", _V3),
    "skylake": ("x86_64", _V3),
    "alderlake": ("x86_64", _V3 | {"avxvnni"}),
    "skylake-avx512": ("x86_64", _V4),
    "cascadelake": ("x86_64", _VNNI),
    "cooperlake": ("x86_64", _VNNI | {"avx512bf16"}),
    "icelake-client": ("x86_64", _ICELAKE),
    "icelake-server": ("x86_64", _ICELAKE),
    "sapphirerapids": ("x86_64", _SAPPHIRE),
    "emeraldrapids": ("x86_64", _SAPPHIRE),
    "graniterapids": ("x86_64", _SAPPHIRE),
    "znver1": ("x86_64", _V3),
    "znver2": ("x86_64", _V3),
    "znver3": ("x86_64", _V3),
    "znver4": ("x86_64", _ICELAKE | {"avx512bf16"}),
    "znver5": ("x86_64", _ICELAKE | {"avx512bf16"}),
    "generic": ("aarch64", _NEON),
    "cortex-a53": ("aarch64", _NEON),
    "cortex-a72": ("aarch64", _NEON),
    "cortex-a76": ("aarch64", _ARMV82),
    "neoverse-n1": ("aarch64", _ARMV82),
    "neoverse-v1": ("aarch64", _ARMV84),
    "neoverse-n2": ("aarch64", _ARMV84),
    "neoverse-v2": ("aarch64", _ARMV84),
    "apple-m1": ("aarch64", _ARMV82),
    "apple-m2": ("aarch64", _ARMV82 | {"bf16", "i8mm"}),
}
"""CPU name to architecture and the features that code generation choices hang on (LLVM knows the full lists)."""

KNOWN_FEATURES = frozenset().union(*(features for _, features in CPUS.values()))

_ARCH_OF_TRIPLE = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_BASELINE = {"x86_64": _BASE, "aarch64": _NEON}


def _llvm_facts(options: dict[str, str]) -> dict[str, Any]:
    triple, cpu = options.get("mtriple", ""), options.get("mcpu", "")
    arch = _ARCH_OF_TRIPLE.get(triple.split("-")[0]) if triple else None
    if triple and arch is None:
        raise TargetError(
            f"target llvm: no code is generated for the triple {triple!r}",
            help=f"known architectures are {', '.join(_ARCH_OF_TRIPLE)}, as in aarch64-linux-gnu",
        )
    if cpu and cpu != "host":
        if cpu not in CPUS:
            raise TargetError(f"target llvm: unknown CPU {cpu!r}", help=f"known are host, {', '.join(CPUS)}")
        cpu_arch, features = CPUS[cpu]
        if arch is not None and arch != cpu_arch:
            raise TargetError(f"target llvm: the CPU {cpu} is {cpu_arch}, but the triple {triple} is {arch}")
        arch = cpu_arch
    else:
        if cpu == "host" and triple:
            raise TargetError("target llvm: -mcpu=host with a triple; name the CPU of the other machine")
        arch = arch or "x86_64"
        features = _BASELINE[arch]
    features = _with_attributes(features, options.get("mattr", ""))
    wide, x86 = "avx512f" in features, arch == "x86_64"
    return {
        "arch": arch,
        "features": features,
        "vector_bits": (512 if wide else 256 if "avx" in features else 128) if x86 else 128,
        "vector_registers": 32 if wide or not x86 else 16,
        "masked_memory": bool({"avx512f", "avx2", "avx"} & features),
        "fma": "fma" in features or wide or not x86,
        "fma_units": 1 if cpu in _ONE_FMA else 2,
        "native_float16": "avx512fp16" in features or "fullfp16" in features,
        "native_bfloat16": False,
        "cores": _number(options, "cores", 1),
        "l1_bytes": _number(options, "l1", 32 << 10),
        "l2_bytes": _number(options, "l2", 1 << 20),
        "l3_bytes": _number(options, "l3", 32 << 20),
        "channels_last": _channels_last(options),
    }


def _with_attributes(features: frozenset[str], mattr: str) -> frozenset[str]:
    result = set(features)
    for item in filter(None, mattr.split(",")):
        if item[0] not in "+-" or len(item) < 2:
            raise TargetError(f"target option -mattr: {item!r} must begin with + or -", help="as in -mattr=+avx2,-fma")
        (result.add if item[0] == "+" else result.discard)(item[1:])
    return frozenset(result)


def _cuda_facts(options: dict[str, str]) -> dict[str, Any]:
    arch = options.get("arch", "sm_80")
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None:
        raise TargetError(f"target cuda: unknown architecture {arch!r}", help="as in -arch=sm_90")
    level = int(match[1])
    return {
        "arch": arch, "vector_bits": 128, "vector_registers": 64, "fma": True, "native_float16": level >= 53,
        "native_bfloat16": level >= 80, "index_bits": 32, "max_threads": 1024, "warp_size": 32,
        "shared_bytes": 48 << 10, "gpu": True, "matrix": level >= 70,
        "async_copies": level >= 80, "channels_last": _channels_last(options),
    }  # fmt: skip


def _opencl_facts(options: dict[str, str]) -> dict[str, Any]:
    return {
        "arch": options.get("device", "any"), "vector_bits": 128, "vector_registers": 64, "fma": True,
        "index_bits": 32, "max_threads": _number(options, "max-threads", 256), "shared_bytes": 32 << 10, "gpu": True,
        "channels_last": _channels_last(options),
    }  # fmt: skip


def _reference_facts(options: dict[str, str]) -> dict[str, Any]:
    return {
        "arch": "any", "vector_bits": 128, "vector_registers": 16, "masked_memory": True, "fma": True,
        "native_float16": True, "native_bfloat16": True,
    }  # fmt: skip


register_kind(
    TargetKind(
        "llvm",
        {
            "mtriple": "triple of another machine",
            "mcpu": "CPU, or host",
            "mattr": "features, as in +avx2,-fma",
            "cores": "cores to plan for",
            "l1": "bytes of a core's L1 data cache",
            "l2": "bytes of L2 as a core sees it",
            "l3": "bytes of L3",
            "layout": _LAYOUT_OPTION,
        },
        _llvm_facts,
    )
)
register_kind(TargetKind("reference", {}, _reference_facts))
register_kind(TargetKind("cuda", {"arch": "compute architecture, as in sm_90", "layout": _LAYOUT_OPTION}, _cuda_facts))
register_kind(
    TargetKind(
        "opencl",
        {"device": "name of a device", "max-threads": "most threads of a work group", "layout": _LAYOUT_OPTION},
        _opencl_facts,
    )
)
