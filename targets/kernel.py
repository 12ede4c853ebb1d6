"""A kernel: a program compiled for a target, called on numpy arrays.

k = build(s, [A, B, C], target="llvm")
k(a, b, c)                    # inputs, then outputs, which are written in place
k.source("llvm")              # tir, lowered, llvm, asm
k.time(a, b, c)               # min and median of a call
"""

from __future__ import annotations

import html
import statistics
import time
from dataclasses import dataclass
from typing import Any, Protocol

from targets.advice import Advice, advise
from targets.arguments import Arguments, Signature
from targets.externs import HostFunction, extern_signatures
from targets.llvm.compile import CompiledKernel
from targets.llvm.machine import require_runnable
from targets.llvm.runtime import KernelError, NativeFunction, Status, load
from targets.reference import ReferenceKernel
from targets.sanitize import sanitize
from tensorir.errors import UserError
from tensorir.html import func_html
from tensorir.interpreter import interpret
from tensorir.stmt import Func
from tensorir.target import Target


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the shortest and the median of `repeats` windows of `number` calls each."""

    min: float
    median: float
    repeats: int
    number: int

    def __str__(self) -> str:
        return f"min {_duration(self.min)}, median {_duration(self.median)} ({self.repeats} x {self.number} calls)"


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


class Runner(Protocol):
    """What runs the checked arrays, and the texts it can show."""

    def run(self, arguments: Arguments) -> None: ...

    def sources(self) -> tuple[str, ...]: ...

    def source(self, kind: str) -> str: ...

    @property
    def spills(self) -> int: ...


class Kernel:
    """A compiled program. `func` is the program as it was given, `target` what it was compiled for."""

    def __init__(self, func: Func, target: Target, runner: Runner) -> None:
        self.func = func
        self.target = target
        self._runner = runner
        self._signature = Signature(func)

    def __repr__(self) -> str:
        return f"Kernel({self.func.name}, target={str(self.target)!r})"

    def _repr_html_(self) -> str:
        """The program for a notebook, with its target."""
        title = f"<b>{html.escape(self.name)}</b> for <code>{html.escape(str(self.target))}</code>"
        return title + func_html(self.func)

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.func.name

    def __call__(self, *arrays: Any, **dims: int) -> None:
        """Run on one array a parameter, outputs last and written in place. `dims` gives by name the dimension symbols
        that no argument has as an axis. Raises `ArgumentError`, or `KernelError` when the kernel stops."""
        self._runner.run(self._signature.check(arrays, dims))

    def source(self, kind: str = "tir") -> str:
        """The program at one stage: "tir" as given, "lowered", "llvm", "asm" (what there is depends on the target)."""
        if kind == "tir":
            return repr(self.func)
        if kind not in self._runner.sources():
            raise UserError(
                f"{self.name}: no source of the kind {kind!r}",
                help=f"there are {', '.join(('tir', *self._runner.sources()))}",
            )
        return self._runner.source(kind)

    def sanitize(self, *arrays: Any, **dims: int) -> str:
        """Runs the kernel's program on copies of the arrays in the checked interpreter, so best at small sizes. Raises
        `SanitizerError` on an access out of bounds, a read of memory never written, an output never written whole, and
        a race between parallel iterations or vector lanes, with the loops and both accesses. For a GPU its lowered
        form runs too, each thread on its own from barrier to barrier: races within and between blocks, threads that do
        not meet at a barrier, lanes of a warp that come apart, copies not waited for, and other results than the
        program's. Gives a sentence."""
        checked = self._signature.check(arrays, dims)
        sizes = dict(zip(self.func.dims, checked.dims, strict=True))
        sanitize(self.func, self.target, checked.arrays, sizes)
        if self.target.gpu:
            return (
                f"{self.name}: every access is in bounds and of written memory, no two threads or blocks race,"
                " all threads of a block meet at every barrier, and they do what the program does"
            )
        return f"{self.name}: every access is in bounds and of written memory, no two iterations race"

    def advice(self, *arrays: Any, **dims: int) -> tuple[Advice, ...]:
        """What each access of a kernel for a GPU costs, seen in a run of the interpreter, so best at small sizes: bank
        conflicts in shared memory, transactions of global memory. `is_bad` says where there is something to gain."""
        if not self.target.gpu:
            raise UserError(f"{self.name}: there is advice for kernels of a GPU only, not for {self.target}")
        checked = self._signature.check(arrays, dims)
        sizes = dict(zip(self.func.dims, checked.dims, strict=True))
        return advise(self.func, self.target, checked.arrays, sizes)

    @property
    def resources(self) -> dict[str, Any]:
        """What each kernel of a CUDA program takes of a multiprocessor: registers, spills, shared memory, stack."""
        found = getattr(self._runner, "resources", None)
        if found is None:
            raise UserError(f"{self.name}: the resources of a kernel for {self.target} are not known")
        return found

    @property
    def spills(self) -> int:
        """Instructions of the innermost loops that move vectors to or from the stack."""
        return self._runner.spills

    def time(self, *arrays: Any, repeats: int = 10, min_window: float = 1e-3, **dims: int) -> Timing:
        """The time of one call, arguments checked once: `repeats` windows of at least `min_window` seconds."""
        checked = self._signature.check(arrays, dims)
        run, clock = self._runner.run, time.perf_counter
        run(checked)
        number = 1
        while True:
            start = clock()
            for _ in range(number):
                run(checked)
            window = clock() - start
            if window >= min_window:
                break
            number = max(number * 2, int(number * min_window / max(window, 1e-9)))
        windows = []
        for _ in range(repeats):
            start = clock()
            for _ in range(number):
                run(checked)
            windows.append((clock() - start) / number)
        return Timing(min(windows), statistics.median(windows), repeats, number)


class NativeRunner:
    """A kernel of the `llvm` target in this process."""

    def __init__(self, compiled: CompiledKernel, *, threads: int | None) -> None:
        require_runnable(compiled.target)
        self.compiled = compiled
        signatures = extern_signatures(compiled.func)
        self._hosts = [HostFunction(signatures[name]) for name in compiled.externs]
        self._extra = [host.address for host in self._hosts]
        self.function = NativeFunction(
            load(compiled.object),
            compiled.symbol,
            data=len(compiled.func.params) + len(self._hosts),
            dims=len(compiled.func.dims),
            threads=threads,
            name=compiled.func.name,
        )

    def run(self, arguments: Arguments) -> None:
        """Call the native function."""
        if not self._hosts:
            self.function.call_addresses(arguments.addresses, arguments.dims)
            return
        try:
            self.function.call_addresses([*arguments.addresses, *self._extra], arguments.dims)
        except KernelError as error:
            if error.code == Status.EXTERN_FAILED:
                for host in self._hosts:
                    host.raise_error()
            raise

    def sources(self) -> tuple[str, ...]:
        """The kinds of text."""
        return ("lowered", "llvm", "asm")

    def source(self, kind: str) -> str:
        """One of the texts."""
        match kind:
            case "lowered":
                return repr(self.compiled.lowered)
            case "llvm":
                return self.compiled.llvm
            case _:
                return self.compiled.assembly

    @property
    def spills(self) -> int:
        """Vector stack traffic of the innermost loops."""
        return self.compiled.spills


class ReferenceRunner:
    """A kernel of the `reference` target: the interpreter on the program as it was given."""

    def __init__(self, func: Func) -> None:
        self.kernel = ReferenceKernel(func)

    def run(self, arguments: Arguments) -> None:
        """Interpret the program."""
        dims = dict(zip(self.kernel.func.dims, arguments.dims, strict=True))
        interpret(self.kernel.func, arguments.arrays, dims)

    def sources(self) -> tuple[str, ...]:
        """The kinds of text."""
        return ("python",)

    def source(self, kind: str) -> str:
        """The Python source that the interpreter runs."""
        return self.kernel.python

    @property
    def spills(self) -> int:
        """There are no registers to spill."""
        return 0
