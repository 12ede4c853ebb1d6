"""Compiled groups made callable: one library of all the kernels of a plan, or the interpreter for `reference`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphir.groups import GraphKernel
from graphir.stored import StoredKernel, abi_of
from targets.build import CompiledKernel, load_objects
from targets.externs import HostFunction
from targets.llvm.runtime import KernelError, NativeFunction, Status
from tensorir.interpreter import interpret


class KernelCalls:
    """The kernels of a plan, each callable on addresses. `symbols` and `hosts` serve the entry function: the symbol of
    each kernel, and the addresses of host functions that follow its buffers."""

    def __init__(self, kernels: Sequence[GraphKernel], threads: int | None) -> None:
        self.kernels = tuple(kernels)
        self.hosts: list[list[HostFunction]] = []
        self.functions: list[NativeFunction | None] = []
        self.library: Any = None
        compiled = [k.group.kernel for k in kernels]
        native = [k for k in compiled if isinstance(k, (CompiledKernel, StoredKernel))]
        self.is_native = len(native) == len(kernels)
        self.symbols = [k.symbol for k in native] if self.is_native else []
        if native:
            self.library = load_objects([k.object for k in native])
        for k, kernel in zip(kernels, compiled):
            self.functions.append(None)
            self.hosts.append([])
            if not isinstance(kernel, (CompiledKernel, StoredKernel)):
                continue
            abi = abi_of(kernel)
            self.hosts[-1] = [HostFunction(e) for e in abi.externs]
            self.functions[-1] = NativeFunction(
                self.library,
                kernel.symbol,
                data=abi.buffers + len(abi.externs),
                dims=abi.sizes,
                threads=threads,
                name=k.name,
            )

    def call(self, number: int, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        """Runs one kernel on arrays of physical shape."""
        function = self.functions[number]
        device = getattr(self.kernels[number].group.kernel, "call", None)
        if device is not None:
            device(arrays, sizes)
            return
        if function is None:
            func = self.kernels[number].group.func
            interpret(func, list(arrays), dict(zip(func.dims, sizes, strict=True)))
            return
        addresses = [a.__array_interface__["data"][0] for a in arrays]
        try:
            function.call_addresses([*addresses, *(h.address for h in self.hosts[number])], sizes)
        except KernelError as error:
            self.raise_host_error(error)
            raise

    def call_on_device(self, number: int, memory: Sequence[Any], sizes: Sequence[int]) -> None:
        """Runs one kernel of a device on memory of that device, in the order of its parameters."""
        runner = self.kernels[number].group.kernel.runner  # type: ignore[union-attr]
        func = runner.program.func
        runner.run_on_device(dict(zip(func.params, memory, strict=True)), dict(zip(func.dims, sizes, strict=True)))

    def raise_host_error(self, error: KernelError) -> None:
        """Raises what a host function raised, if one failed."""
        if error.code == Status.EXTERN_FAILED:
            for hosts in self.hosts:
                for host in hosts:
                    host.raise_error()


def run_kernel(kernel: GraphKernel, arrays: Sequence[np.ndarray]) -> None:
    """Runs a kernel without symbols once."""
    KernelCalls([kernel], None).call(0, arrays, ())
