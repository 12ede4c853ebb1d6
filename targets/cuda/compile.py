"""CUDA C to cubin, by nvcc where it is installed, else by NVRTC; and what the machine code needs.

    compiled = compile_cuda(source, "sm_80")
    compiled.resources["main"].registers

`-fmad=false` keeps Tensor IR's meaning: a fused multiply-add is a node, never a compiler's choice.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache

from tensorir.errors import UserError

_FLAGS = ("-fmad=false",)


class CudaError(UserError):
    """No CUDA compiler or device here, or a kernel that is refused."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes of a multiprocessor: registers a thread, bytes spilled to and from local memory a thread,
    bytes of shared memory a block, bytes of stack a thread."""

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    stack: int


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one architecture and the resources of its kernels by name."""

    image: bytes
    arch: str
    resources: dict[str, Resources]


@lru_cache(maxsize=1)
def find_nvcc() -> str | None:
    """The path of nvcc, if it is on the path or where the toolkit usually is."""
    return shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda*/bin/nvcc")), None)


@lru_cache(maxsize=1)
def find_nvrtc() -> ctypes.CDLL | None:
    """NVRTC from a wheel or from the system."""
    places = [os.path.join(p, "nvidia", "*", "lib", "libnvrtc.so*") for p in sys.path]
    candidates = [f for place in places for f in sorted(glob.glob(place)) if "builtins" not in f and "alt" not in f]
    for name in (*candidates, "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def has_compiler() -> bool:
    """Whether CUDA C can be compiled here."""
    return find_nvcc() is not None or find_nvrtc() is not None


@lru_cache(maxsize=256)
def compile_cuda(source: str, arch: str) -> Cubin:
    """The machine code of a source for an architecture such as sm_90. Raises `CudaError`."""
    if find_nvcc() is not None:
        return _by_nvcc(source, arch)
    if find_nvrtc() is not None:
        return _by_nvrtc(source, arch)
    raise CudaError(
        "no CUDA compiler is here: neither nvcc nor NVRTC",
        help="pip install 'nestor-compiler[cuda]' brings NVRTC; the source is k.source(\"cuda\") without it",
    )


def _by_nvcc(source: str, arch: str) -> Cubin:
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = os.path.join(folder, "kernel.cu"), os.path.join(folder, "kernel.cubin")
        with open(text, "w") as file:
            file.write(source)
        command = [find_nvcc() or "nvcc", "-cubin", f"-arch={arch}", *_FLAGS, "-Xptxas", "-v", "-o", cubin, text]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CudaError(f"nvcc refuses the kernel for {arch}", notes=(done.stderr[:2000],))
        with open(cubin, "rb") as binary:
            return Cubin(binary.read(), arch, parse_resources(done.stderr + done.stdout))


def _by_nvrtc(source: str, arch: str) -> Cubin:
    rtc = find_nvrtc()
    assert rtc is not None
    program = ctypes.c_void_p()
    _check(rtc, rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    options = [f"--gpu-architecture={arch}", *_FLAGS, "--ptxas-options=-v"]
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    status = rtc.nvrtcCompileProgram(program, len(options), array)
    log = _bytes(rtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode()
    if status:
        raise CudaError(f"NVRTC refuses the kernel for {arch}", notes=(log[:2000],))
    image = _bytes(rtc, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    return Cubin(image, arch, parse_resources(log))


def _bytes(rtc: ctypes.CDLL, program: ctypes.c_void_p, size_of: str, get: str) -> bytes:
    size = ctypes.c_size_t()
    _check(rtc, getattr(rtc, size_of)(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(rtc, getattr(rtc, get)(program, buffer))
    return buffer.raw


def _check(rtc: ctypes.CDLL, status: int) -> None:
    if status:
        raise CudaError(f"NVRTC fails with status {status}")


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(report: str) -> dict[str, Resources]:
    """The resources of each kernel from what `ptxas -v` says."""
    found: dict[str, Resources] = {}
    name, spills = "", (0, 0, 0)
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            name, spills = match[1], (0, 0, 0)
        if match := _SPILLS.search(line):
            spills = (int(match[1]), int(match[2]), int(match[3]))
        if match := _USED.search(line):
            shared = _SHARED.search(line)
            found[name] = Resources(int(match[1]), spills[1], spills[2], int(shared[1]) if shared else 0, spills[0])
    return found
