"""Runs a device program on arrays of the host, or on memory of the device: what any device of the C family needs from
its driver is `Driver`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from targets.c_family.program import (
    DeviceKernel,
    DeviceProgram,
    HostIf,
    HostLet,
    HostLoop,
    Launch,
    Step,
    Workspace,
)
from tensorir.buffer import Buffer
from tensorir.expr import Expr, Var
from tensorir.interpreter import evaluate
from tensorir.passes.check_limits import require_grid
from tensorir.visit import free_vars

Grid = tuple[int, int, int]


class Driver(Protocol):
    """Memory and launches of one device. What it is asked for happens in that order; `start` is in bytes."""

    alignment: int
    """Where a part of a buffer may start for a kernel to take it, in bytes."""

    def allocate(self, nbytes: int) -> Any: ...

    def part(self, buffer: Any, start: int, nbytes: int) -> Any: ...

    def upload(self, buffer: Any, array: np.ndarray, start: int = 0) -> None: ...

    def download(self, array: np.ndarray, buffer: Any, start: int = 0) -> None: ...

    def copy(self, target: Any, target_start: int, source: Any, source_start: int, nbytes: int) -> None: ...

    def launch(self, kernel: Any, grid: Grid, block: Grid, args: list[Any]) -> None: ...

    def finish(self) -> None: ...


class DeviceRunner:
    """The steps of a program on a device; `functions` are its compiled kernels by name."""

    def __init__(self, program: DeviceProgram, driver: Driver, functions: Mapping[str, Any]) -> None:
        self.program = program
        self.driver = driver
        self.functions = functions
        self._workspaces: dict[Buffer, tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def run(self, arrays: Sequence[np.ndarray], dims: Sequence[int]) -> None:
        """Runs on one array a parameter and a value a dimension; outputs are copied back."""
        func = self.program.func
        memory: dict[Buffer, Any] = {}
        for buffer, array in zip(func.params, arrays, strict=True):
            memory[buffer] = self.driver.allocate(array.nbytes)
            self.driver.upload(memory[buffer], array)
        self.run_on_device(memory, dict(zip(func.dims, dims, strict=True)))
        first = len(func.params) - func.outputs
        for buffer, array in zip(func.params[first:], arrays[first:], strict=True):
            self.driver.download(array, memory[buffer])
        self.driver.finish()

    def run_on_device(self, memory: dict[Buffer, Any], dims: Mapping[Var, int]) -> None:
        """Runs on memory of the device, which stays there."""
        with self._lock:  # arguments are set one by one, and workspaces are kept: one run is asked for after the other
            self._steps(self.program.steps, memory, dict(dims))

    def _steps(self, steps: tuple[Step, ...], memory: dict[Buffer, Any], values: dict[Var, int]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step.kernel, memory, values)
            elif isinstance(step, Workspace):
                size = 1
                for extent in step.buffer.shape:
                    size *= value_of(extent, values)
                memory[step.buffer] = self._workspace(step.buffer, size * step.buffer.dtype.nbytes)
                self._steps(step.steps, memory, values)
            elif isinstance(step, HostLoop):
                begin = value_of(step.begin, values)
                for i in range(begin, begin + value_of(step.extent, values)):
                    self._steps(step.steps, memory, {**values, step.var: i})
            elif isinstance(step, HostLet):
                self._steps(step.steps, memory, {**values, step.var: value_of(step.value, values)})
            elif isinstance(step, HostIf):
                self._steps(step.then if value_of(step.condition, values) else step.otherwise, memory, values)

    def _workspace(self, buffer: Buffer, nbytes: int) -> Any:
        """Memory for a workspace, kept for the next run."""
        known = self._workspaces.get(buffer)
        if known is None or known[0] < nbytes:
            known = self._workspaces[buffer] = (nbytes, self.driver.allocate(nbytes))
        return known[1]

    def _launch(self, kernel: DeviceKernel, memory: dict[Buffer, Any], values: dict[Var, int]) -> None:
        x, y, z = (value_of(e, values) for e in kernel.grid)
        if x <= 0 or y <= 0 or z <= 0:
            return  # an empty launch is an error of the driver
        require_grid((x, y, z), kernel.name)
        args: list[Any] = [memory[b] for b in kernel.buffers]
        args += [v.dtype.numpy.type(values[v]) for v in kernel.scalars]
        self.driver.launch(self.functions[kernel.name], (x, y, z), kernel.block, args)


def value_of(e: Expr, values: Mapping[Var, int]) -> int:
    """The value of an expression over dimensions and host loops."""
    return int(evaluate(e, {v: values[v] for v in free_vars(e)}))
