"""The one door to pyopencl: finding a device, compiling for it, running on it."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from tensorir.errors import UserError

_LOCK = threading.Lock()
_OURS = "NESTOR_CHOOSES_POCL_METHOD"
_METHOD_GIVEN = "POCL_WORK_GROUP_METHOD" in os.environ and _OURS not in os.environ
"""True if the user chose the method: what a parent process of ours set for its own kernel is no choice."""
METHOD = "loops"
"""How PoCL runs the threads of a group, set before it compiles anything, since it seems to be read once a process. Its
default vectorises over threads with the promise that they never meet in memory, which is wrong where one thread
combines what others left in local memory (PoCL 3.0: wrong sums)."""


class OpenCLError(UserError):
    """No OpenCL device, or a kernel that the device's compiler refuses."""


def require_pyopencl() -> Any:
    """The module pyopencl. Raises `OpenCLError` that says how to get it."""
    try:
        import pyopencl
    except ImportError as error:
        raise OpenCLError(
            "the target opencl needs pyopencl, which is not installed",
            help="pip install 'nestor-compiler[opencl]' brings it, with PoCL for machines without a GPU",
        ) from error
    return pyopencl


@lru_cache(maxsize=8)
def open_device(name: str) -> OpenCLDevice:
    """The first device whose name or platform holds `name` ("any": a GPU before anything else)."""
    cl = require_pyopencl()
    try:
        found = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.Error as error:
        raise OpenCLError(
            f"no OpenCL platform answers: {error}", help="pip install pocl-binary-distribution runs it on the CPU"
        ) from error
    if name != "any":
        found = [d for d in found if name.lower() in f"{d.platform.name} {d.name}".lower()]
    if not found:
        raise OpenCLError(
            f"no OpenCL device {'' if name == 'any' else repr(name) + ' '}is here",
            help="pip install pocl-binary-distribution runs OpenCL on the CPU",
        )
    found.sort(key=lambda d: 0 if d.type & cl.device_type.GPU else 1)
    return OpenCLDevice(cl, found[0])


class OpenCLDevice:
    """One device with its context and queue."""

    def __init__(self, cl: Any, device: Any) -> None:
        self.cl = cl
        self.device = device
        if self.is_pocl and not _METHOD_GIVEN:
            os.environ[_OURS] = "1"
            os.environ["POCL_WORK_GROUP_METHOD"] = METHOD
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.alignment = max(device.mem_base_addr_align // 8, 1)

    def compile(self, source: str, *, plain: bool = False) -> Any:
        """The kernels of a source text. With `plain`, PoCL does not optimise: it loses memory of a thread that is set
        under a condition and kept over a barrier (3.0, every way to run a group), and without its optimiser it does
        not. Raises `OpenCLError` with the compiler's words."""
        options = ["-cl-std=CL1.2"]
        if self._is_exact():
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        if plain and self.is_pocl:
            options.append("-cl-opt-disable")
        with _LOCK:
            try:
                return self.cl.Program(self.context, source).build(options=options)
            except self.cl.Error as error:
                raise OpenCLError(f"{self.device.name} refuses the kernel", notes=(str(error)[:2000],)) from error

    @property
    def is_pocl(self) -> bool:
        """Whether the device is PoCL's."""
        return "Portable Computing Language" in self.device.platform.name

    def _is_exact(self) -> bool:
        config = self.device.get_info(self.cl.device_info.SINGLE_FP_CONFIG)
        return bool(config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)

    def allocate(self, nbytes: int) -> Any:
        """Undefined memory on the device."""
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(nbytes, 1))

    def part(self, buffer: Any, start: int, nbytes: int) -> Any:
        """A part of a buffer as a buffer."""
        return buffer.get_sub_region(start, max(nbytes, 1))

    def upload(self, buffer: Any, array: np.ndarray, start: int = 0) -> None:
        """Host to device."""
        if array.nbytes:
            self.cl.enqueue_copy(self.queue, buffer, array.reshape(-1).view(np.uint8), dst_offset=start)

    def download(self, array: np.ndarray, buffer: Any, start: int = 0) -> None:
        """Device to host; waits."""
        if array.nbytes == 0:
            return
        if array.flags.c_contiguous:
            self.cl.enqueue_copy(self.queue, array.reshape(-1).view(np.uint8), buffer, src_offset=start)
            return
        flat = np.empty(array.nbytes, np.uint8)
        self.cl.enqueue_copy(self.queue, flat, buffer, src_offset=start)
        array[...] = flat.view(array.dtype).reshape(array.shape)

    def copy(self, target: Any, target_start: int, source: Any, source_start: int, nbytes: int) -> None:
        """Device to device."""
        if nbytes:
            self.cl.enqueue_copy(
                self.queue, target, source, byte_count=nbytes, src_offset=source_start, dst_offset=target_start
            )

    def launch(self, kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], args: list[Any]) -> None:
        """Run a kernel; `args` are buffers and numpy scalars."""
        kernel.set_args(*args)
        size = tuple(g * b for g, b in zip(grid, block, strict=True))
        self.cl.enqueue_nd_range_kernel(self.queue, kernel, size, block)

    def finish(self) -> None:
        """Wait for all that was asked for."""
        self.queue.finish()
