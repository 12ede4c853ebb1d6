"""The one door to a CUDA device: cuda-bindings, or pycuda where that is not installed."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from targets.c_family.runner import Driver
from targets.cuda.compile import CudaError

ALIGNMENT = 256
"""Where CUDA's allocations start, so that vector accesses are aligned."""


class CudaDevice(Driver, Protocol):
    """Memory, modules and launches of one device."""

    arch: str

    def load(self, image: bytes, names: list[str]) -> dict[str, Any]: ...


@lru_cache(maxsize=1)
def open_device() -> CudaDevice:
    """The first CUDA device. Raises `CudaError` that says what is missing."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return _open_pycuda()
    try:
        return _BindingsDevice(driver)
    except (RuntimeError, OSError) as error:
        raise _no_device(str(error)) from error


def _no_device(why: str) -> CudaError:
    return CudaError(
        f"no CUDA device is here: {why}",
        help='the kernel compiles and its source is k.source("cuda"); run it on a machine with an NVIDIA GPU, or check'
        ' its meaning with k.sanitize(...) and its numbers with target="opencl"',
    )


def _open_pycuda() -> CudaDevice:
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise _no_device(
            "neither cuda-bindings (pip install 'nestor-compiler[cuda]') nor pycuda is installed"
        ) from error
    try:
        driver.init()
        return _PycudaDevice(driver)
    except driver.Error as error:
        raise _no_device(str(error)) from error


class _Memory:
    """Device memory that is given back when nothing refers to it."""

    def __init__(self, address: int, free: Any) -> None:
        self.address = address
        self._free = free

    def __del__(self) -> None:
        self._free(self.address)


class _Part:
    """A part of device memory; the whole lives as long as it does."""

    def __init__(self, whole: _Memory | _Part, start: int) -> None:
        self.whole = whole
        self.address: int = whole.address + start


class _BindingsDevice:
    """A device over cuda-bindings."""

    alignment = ALIGNMENT

    def __init__(self, driver: Any) -> None:
        self.cu = driver
        self._thread = threading.local()
        self._check(driver.cuInit(0))
        device = self._check(driver.cuDeviceGet(0))
        attribute = driver.CUdevice_attribute
        major = self._check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
        minor = self._check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        self.arch = f"sm_{major}{minor}"
        self.context = self._check(driver.cuDevicePrimaryCtxRetain(device))
        self._enter()
        self.modules: list[Any] = []

    def _enter(self) -> None:
        """Makes the context that of the calling thread."""
        if not getattr(self._thread, "entered", False):
            self._check(self.cu.cuCtxSetCurrent(self.context))
            self._thread.entered = True

    def _check(self, result: Any) -> Any:
        status, *values = result
        if int(status):
            text = self.cu.cuGetErrorString(status)[1]
            raise CudaError(f"CUDA: {text.decode() if isinstance(text, bytes) else status}")
        return values[0] if values else None

    def load(self, image: bytes, names: list[str]) -> dict[str, Any]:
        """The kernels of a cubin."""
        self._enter()
        module = self._check(self.cu.cuModuleLoadData(image))
        self.modules.append(module)
        return {n: self._check(self.cu.cuModuleGetFunction(module, n.encode())) for n in names}

    def allocate(self, nbytes: int) -> _Memory:
        """Undefined memory."""
        cu = self.cu
        self._enter()
        return _Memory(int(self._check(cu.cuMemAlloc(max(nbytes, 1)))), lambda address: cu.cuMemFree(address))

    def part(self, buffer: _Memory | _Part, start: int, nbytes: int) -> _Part:
        """A part of a buffer as a buffer."""
        return _Part(buffer, start)

    def upload(self, buffer: _Memory | _Part, array: np.ndarray, start: int = 0) -> None:
        """Host to device."""
        if array.nbytes:
            self._enter()
            self._check(self.cu.cuMemcpyHtoD(buffer.address + start, array.ctypes.data, array.nbytes))

    def download(self, array: np.ndarray, buffer: _Memory | _Part, start: int = 0) -> None:
        """Device to host; waits."""
        if array.nbytes:
            self._enter()
            flat = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            self._check(self.cu.cuMemcpyDtoH(flat.ctypes.data, buffer.address + start, array.nbytes))
            if flat is not array:
                array[...] = flat

    def copy(
        self, target: _Memory | _Part, target_start: int, source: _Memory | _Part, source_start: int, nbytes: int
    ) -> None:
        """Device to device."""
        if nbytes:
            self._enter()
            addresses = target.address + target_start, source.address + source_start
            self._check(self.cu.cuMemcpyDtoDAsync(*addresses, nbytes, 0))

    def launch(self, kernel: Any, grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
        """Run a kernel."""
        self._enter()
        values = [np.uint64(a.address) if isinstance(a, (_Memory, _Part)) else a for a in args]
        cells = [np.array([v]) for v in values]
        pointers = np.array([c.ctypes.data for c in cells] or [0], np.uint64)
        self._check(self.cu.cuLaunchKernel(kernel, *grid, *block, 0, 0, pointers.ctypes.data, 0))

    def finish(self) -> None:
        """Wait."""
        self._enter()
        self._check(self.cu.cuCtxSynchronize())


class _PycudaDevice:
    """A device over pycuda."""

    alignment = ALIGNMENT

    def __init__(self, driver: Any) -> None:
        self.cu = driver
        device = driver.Device(0)
        self.arch = "sm_{}{}".format(*device.compute_capability())
        self.context = device.retain_primary_context()
        self._thread = threading.local()
        self._enter()

    def _enter(self) -> None:
        """Makes the context that of the calling thread."""
        if not getattr(self._thread, "entered", False):
            self.context.push()
            self._thread.entered = True

    def load(self, image: bytes, names: list[str]) -> dict[str, Any]:
        """The kernels of a cubin."""
        self._enter()
        module = self.cu.module_from_buffer(image)
        return {n: module.get_function(n) for n in names}

    def allocate(self, nbytes: int) -> _Memory:
        """Undefined memory."""
        self._enter()
        memory = self.cu.mem_alloc(max(nbytes, 1))
        return _Memory(int(memory), lambda _: memory.free())

    def part(self, buffer: _Memory | _Part, start: int, nbytes: int) -> _Part:
        """A part of a buffer as a buffer."""
        return _Part(buffer, start)

    def upload(self, buffer: _Memory | _Part, array: np.ndarray, start: int = 0) -> None:
        """Host to device."""
        if array.nbytes:
            self._enter()
            self.cu.memcpy_htod(buffer.address + start, array)

    def download(self, array: np.ndarray, buffer: _Memory | _Part, start: int = 0) -> None:
        """Device to host; waits."""
        if array.nbytes:
            self._enter()
            flat = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            self.cu.memcpy_dtoh(flat, buffer.address + start)
            if flat is not array:
                array[...] = flat

    def copy(
        self, target: _Memory | _Part, target_start: int, source: _Memory | _Part, source_start: int, nbytes: int
    ) -> None:
        """Device to device."""
        if nbytes:
            self._enter()
            self.cu.memcpy_dtod_async(target.address + target_start, source.address + source_start, nbytes)

    def launch(self, kernel: Any, grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
        """Run a kernel."""
        self._enter()
        values = [np.uintp(a.address) if isinstance(a, (_Memory, _Part)) else a for a in args]
        kernel(*values, grid=grid, block=block)

    def finish(self) -> None:
        """Wait."""
        self._enter()
        self.context.synchronize()
