"""A kernel of the `cuda` target: lowered, printed, compiled to a cubin when its resources or a run are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from targets.arguments import Arguments
from targets.c_family.dialect import CUDA
from targets.c_family.printer import emit
from targets.c_family.program import device_program
from targets.c_family.runner import DeviceRunner
from targets.cuda.compile import Cubin, Resources, compile_cuda
from targets.cuda.driver import open_device
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target


class CudaRunner:
    """A program for a CUDA device."""

    def __init__(self, func: Func, target: Target) -> None:
        self.target = target
        self.func = func
        self.lowered = lower(func, target)
        self.program = device_program(self.lowered)
        self.text = emit(self.program, CUDA)

    @cached_property
    def cubin(self) -> Cubin:
        """The machine code for the target's architecture."""
        return compile_cuda(self.text, self.target.arch)

    @cached_property
    def runner(self) -> DeviceRunner:
        """The kernels on the device of this machine, lowered for it where the target did not name an architecture."""
        device = open_device()
        made = self
        if not self.target.option("arch") and device.arch != self.target.arch:
            made = CudaRunner(self.func, Target.make("cuda", {**dict(self.target.options), "arch": device.arch}))
        functions = device.load(made.cubin.image, [k.name for k in made.program.kernels])
        return DeviceRunner(made.program, device, functions)

    @property
    def resources(self) -> dict[str, Resources]:
        """Registers, spills and shared memory of each kernel."""
        return self.cubin.resources

    def call(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        """Runs on arrays known to fit."""
        self.runner.run(arrays, sizes)

    def run(self, arguments: Arguments) -> None:
        """Copies to the device, runs, copies back."""
        self.runner.run(arguments.arrays, arguments.dims)

    def sources(self) -> tuple[str, ...]:
        """The kinds of text."""
        return ("lowered", "cuda")

    def source(self, kind: str) -> str:
        """One of the texts."""
        return repr(self.lowered) if kind == "lowered" else self.text

    @property
    def spills(self) -> int:
        """Bytes that the kernels spill."""
        return sum(r.spill_stores + r.spill_loads for r in self.resources.values())
