"""From a schedule or a program to a kernel.

    build(s, [A, B, C], target="llvm")       a kernel to call on numpy arrays
    compile_func(func, target)               an object only: to cache, to link with others, to ship
    load_objects([...])                      objects in this process

`targets.build` runs the Tensor IR passes, emits, compiles and loads. A target whose backend does not stand says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from targets.c_family.runner import Driver
from targets.cuda.driver import open_device as open_cuda
from targets.cuda.kernel import CudaRunner
from targets.kernel import Kernel, NativeRunner, ReferenceRunner
from targets.llvm.compile import CompiledKernel, compile_lowered
from targets.llvm.machine import resolve_host
from targets.llvm.runtime.jit import Library, load_all
from targets.opencl.device import open_device as open_opencl
from targets.opencl.kernel import OpenCLRunner
from tensorir.errors import UserError
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.te import Tensor, create_func


@runtime_checkable
class Scheduled(Protocol):
    """A schedule, as far as building goes: it gives its program."""

    def func(self, args: Any, name: str) -> Func:
        """The program of the schedule with the parameters `args`."""
        ...


BACKENDS = ("llvm", "opencl", "cuda", "reference")

GPU_RUNNERS: dict[str, type[OpenCLRunner] | type[CudaRunner]] = {"opencl": OpenCLRunner, "cuda": CudaRunner}


def resolve(target: str | Target) -> Target:
    """The target with the facts of this machine where it means this machine."""
    return resolve_host(Target.parse(target))


def build(
    program: Scheduled | Func | Tensor,
    args: Sequence[Tensor] | None = None,
    target: str | Target = "llvm",
    *,
    name: str = "main",
    threads: int | None = None,
) -> Kernel:
    """A kernel from a schedule (with the tensors that are its parameters), a program, or an unscheduled tensor.

    `threads` is the most threads of a call, all cores by default. Raises `UserError` for a target without a backend.
    """
    resolved = resolve(target)
    func = program_of(program, args, name)
    require_backend(resolved)
    if resolved.kind == "reference":
        return Kernel(func, resolved, ReferenceRunner(func))
    if resolved.gpu:
        return Kernel(func, resolved, GPU_RUNNERS[resolved.kind](func, resolved))
    # A kernel called from Python refuses arrays that share memory with an output.
    alone = dataclasses.replace(func, attrs=(*func.attrs, ("noalias", True)))
    return Kernel(func, resolved, NativeRunner(compile_func(alone, resolved), threads=threads))


def program_of(program: Scheduled | Func | Tensor, args: Sequence[Tensor] | None, name: str) -> Func:
    """The Tensor IR function meant by what a user hands to `build`."""
    if isinstance(program, Func):
        return program
    if args is None:
        raise UserError(
            "build: the parameters of the kernel are not given", help="pass the tensors: build(s, [A, B, C])"
        )
    if isinstance(program, Tensor):
        return create_func(args, name)
    if isinstance(program, Scheduled):
        return program.func(args, name)
    raise UserError(
        f"build: {type(program).__name__} is neither a schedule nor a program",
        help="pass what create_schedule(...) gave, or a Func",
    )


def require_backend(target: Target) -> None:
    """Raises `UserError` if no code can be generated for a kind of target."""
    if target.kind not in BACKENDS:
        raise UserError(
            f"no backend generates code for the target {target.kind!r} yet",
            help=f"programs can be built for {' and '.join(BACKENDS)}",
        )


def compile_func(
    func: Func, target: str | Target, *, symbol: str | None = None, lowered: bool = False, opt: int = 2
) -> CompiledKernel:
    """Machine code for a program, not loaded. `symbol` names its entry (the program's name by default); `lowered` says
    that `func` is in the flat form; `opt` is LLVM's code generation level, 1 for code that runs only once or twice."""
    resolved = resolve(target)
    require_backend(resolved)
    if resolved.kind != "llvm":
        raise UserError(f"the target {resolved.kind!r} has no machine code")
    flat = func if lowered else lower(func, resolved)
    return compile_lowered(func, flat, resolved, symbol=symbol, opt=opt)


def compile_device(func: Func, target: str | Target) -> OpenCLRunner | CudaRunner:
    """A program for a GPU, to be called on arrays that fit; compiled by the device at the first call."""
    resolved = resolve(target)
    return GPU_RUNNERS[resolved.kind](func, resolved)


def open_driver(target: Target) -> Driver:
    """Memory and launches of the device that a GPU target means. Raises `UserError` if none is here."""
    return open_opencl(target.arch) if target.kind == "opencl" else open_cuda()


def load_objects(objects: Sequence[CompiledKernel | bytes]) -> Library:
    """One library of many objects; `library.address(symbol)` is a kernel's entry. Their symbols must differ."""
    return load_all([o if isinstance(o, bytes) else o.object for o in objects])
