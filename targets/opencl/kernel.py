"""A kernel of the `opencl` target: lowered, printed, compiled by the device at the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from targets.arguments import Arguments
from targets.c_family.dialect import OPENCL
from targets.c_family.printer import emit
from targets.c_family.program import DeviceKernel, device_program
from targets.c_family.runner import DeviceRunner
from targets.opencl.device import open_device
from tensorir.passes.pipeline import lower
from tensorir.passes.thread_axes import is_barrier
from tensorir.stmt import Allocate, Func, If, Store
from tensorir.target import Target
from tensorir.visit import walk_stmt


class OpenCLRunner:
    """A program for an OpenCL device."""

    def __init__(self, func: Func, target: Target) -> None:
        self.target = target
        self.lowered = lower(func, target)
        self.program = device_program(self.lowered)
        self.text = emit(self.program, OPENCL)
        self._runner: DeviceRunner | None = None

    @property
    def runner(self) -> DeviceRunner:
        """The compiled kernels."""
        if self._runner is None:
            device = open_device(self.target.arch)
            plain = any(map(keeps_under_condition, self.program.kernels))
            compiled = device.compile(self.text, plain=plain)
            functions: dict[str, Any] = {k.name: getattr(compiled, k.name) for k in self.program.kernels}
            self._runner = DeviceRunner(self.program, device, functions)
        return self._runner

    def call(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        """Runs on arrays known to fit."""
        self.runner.run(arrays, sizes)

    def run(self, arguments: Arguments) -> None:
        """Copies to the device, runs, copies back."""
        self.runner.run(arguments.arrays, arguments.dims)

    def sources(self) -> tuple[str, ...]:
        """The kinds of text."""
        return ("lowered", "opencl")

    def source(self, kind: str) -> str:
        """One of the texts."""
        return repr(self.lowered) if kind == "lowered" else self.text

    @property
    def spills(self) -> int:
        """Not known: the device's compiler does not tell."""
        return 0


def keeps_under_condition(kernel: DeviceKernel) -> bool:
    """True for a kernel whose threads meet at a barrier and set memory of their own under a condition."""
    if not any(is_barrier(x) for x in walk_stmt(kernel.body)):
        return False
    own = {x.buffer for x in walk_stmt(kernel.body) if isinstance(x, Allocate) and x.buffer.scope != "shared"}
    conditions = (x for x in walk_stmt(kernel.body) if isinstance(x, If))
    return any(isinstance(y, Store) and y.buffer in own for x in conditions for y in walk_stmt(x))
