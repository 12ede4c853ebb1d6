"""`nestor doctor`: what this machine offers, and which optional packages are here."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from rich.table import Table

from nestor.cli.options import output_console

CORE = ("numpy", "llvmlite", "numba", "lark", "ml_dtypes", "onnx", "safetensors", "rich", "typer")
OPTIONAL = {
    "magika": "demo",
    "onnxruntime": "demo, test, bench",
    "openvino": "bench",
    "torch": "torch",
    "pyopencl": "opencl",
    "pocl-binary-distribution": "opencl, test",
    "cuda-bindings": "cuda",
    "pycuda": "pycuda",
}


def doctor() -> None:
    """Say what this machine offers."""
    table = Table(show_header=False, box=None)
    table.add_row("python", f"{sys.version.split()[0]} on {platform.system()} {platform.machine()}")
    table.add_row("processor", f"{_processor()}, {len(os.sched_getaffinity(0))} cores usable")
    for name, value in machine_facts():
        table.add_row(name, value)
    for package in CORE:
        table.add_row(package, version(package) or "[red]missing: pip install nestor-compiler[/red]")
    for package, extra in OPTIONAL.items():
        table.add_row(package, version(package) or f"not installed (extra: {extra})")
    output_console().print(table)


def machine_facts() -> list[tuple[str, str]]:
    """What `llvm` means here, the rates of a quick look, the backends and the cache."""
    from graphir.cache import user_cache
    from nestor.bench.probe import probe_cores
    from targets.build import BACKENDS, resolve
    from targets.llvm.runtime import host

    here, target = host(), resolve("llvm")
    probe = probe_cores(here.cores)
    cache = user_cache()
    alone = "" if probe.whole else "; other work is using this machine"
    return [
        ("machine", str(here)),
        ("target llvm", str(target)),
        ("vectors", f"{target.vector_registers} registers of {target.vector_bits} bits, fma {_yes(target.fma)}"),
        (
            "arithmetic",
            f"float16 {_yes(target.native_float16)}, bfloat16 {_yes(target.native_bfloat16)}, else by float32",
        ),
        ("fma rate", f"{probe.one / 1e9:.0f} GFLOP/s a core, {probe.cores:.2f} of {here.cores} cores{alone}"),
        ("backends", ", ".join(BACKENDS)),
        ("cache", "off" if cache is None else str(cache.info()).replace("\n  ", "; ")),
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def version(package: str) -> str | None:
    """The installed version of a package, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
