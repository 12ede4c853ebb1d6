"""For a machine with an NVIDIA GPU: checks the GPU programs there, prints bandwidth and the share of cuBLAS.

    python -m tests.bench.gpu [--size 2048]

Every program of the tests runs through `target="cuda"` against numpy; then the tiled matrix product and a scaling are
timed with the data on the device. Where cupy is installed its matrix product (cuBLAS) is timed beside ours. Without a
device it says so and exits 2.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from targets.build import build
from targets.cuda.compile import CudaError
from targets.cuda.driver import open_device
from tensorir.errors import NestorError
from tests.targets.gpu_programs import PROGRAMS, check, elementwise, matmul, outputs_of


def best(run: Callable[[], Any], finish: Callable[[], Any], repeats: int = 10, number: int = 10) -> float:
    """Seconds of the shortest call."""
    run()
    finish()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            run()
        finish()
        times.append((time.perf_counter() - start) / number)
    return min(times)


def check_programs() -> int:
    """Runs every program on the device; how many are wrong."""
    wrong = 0
    for name, make in PROGRAMS.items():
        program = make()
        try:
            kernel = build(program.schedule, program.args, target="cuda", name=name)
            outputs = outputs_of(program)
            kernel(*program.inputs, *outputs)
            check(program, outputs)
            print(f"{name:18} ok   {kernel.resources}")
        except (NestorError, AssertionError) as error:
            wrong += 1
            print(f"{name:18} WRONG {str(error).splitlines()[0]}")
    return wrong


def time_on_device(program: Any, name: str) -> float:
    """Seconds of a kernel with its data on the device."""
    kernel = build(program.schedule, program.args, target="cuda", name=name)
    runner = kernel._runner.runner  # type: ignore[attr-defined]
    driver = runner.driver
    memory = {}
    for buffer, array in zip(runner.program.func.params, [*program.inputs, *outputs_of(program)], strict=True):
        memory[buffer] = driver.allocate(array.nbytes)
        driver.upload(memory[buffer], array)
    return best(lambda: runner.run_on_device(dict(memory), {}), driver.finish)


def main() -> int:
    """Prints the report; 2 without a device, 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048)
    size = parser.parse_args().size
    try:
        device = open_device()
    except CudaError as error:
        print(error)
        return 2
    print(f"device {device.arch}")
    wrong = check_programs()
    count = 1 << 26
    seconds = time_on_device(elementwise(count), "scale")
    print(f"scale of {count} floats: {2 * 4 * count / seconds / 1e9:.0f} GB/s (read and written)")
    seconds = time_on_device(matmul(size, size, size, 16), "matmul")
    ours = 2 * size**3 / seconds / 1e12
    print(f"matrix product of {size}: {ours:.2f} TFLOP/s")
    try:
        import cupy
    except ImportError:
        print("cupy is not installed: no share of cuBLAS")
    else:
        a, b = (cupy.asarray(np.random.rand(size, size).astype(np.float32)) for _ in range(2))
        theirs = 2 * size**3 / best(lambda: a @ b, cupy.cuda.Device().synchronize) / 1e12
        print(f"cuBLAS {theirs:.2f} TFLOP/s; ours is {ours / theirs:.1%} of it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
