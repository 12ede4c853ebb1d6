"""A kernel of the `opencl` target: lowered, printed, compiled by the device at the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from targets.arguments import Arguments
from targets.c_family.dialect import OPENCL
from targets.c_family.printer import emit
from targets.c_family.program import device_program
from targets.c_family.runner import DeviceRunner
from targets.opencl.device import open_device
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target


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
            compiled = device.compile(self.text)
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
