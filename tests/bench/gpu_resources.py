"""What the CUDA kernels of a fixed list take of a multiprocessor, at sizes of real use.

    python -m tests.bench.gpu_resources [--arch sm_80]

Compiles each for sm_75, sm_80 and sm_90 (no GPU is needed) and prints registers a thread, bytes spilled, bytes of
shared memory and threads a block.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from targets.c_family.dialect import CUDA
from targets.c_family.printer import emit
from targets.c_family.program import device_program
from targets.cuda.compile import compile_cuda
from tensorir.passes.pipeline import lower
from tensorir.target import Target
from tests.targets import gpu_programs as programs
from tests.targets.gpu_programs import Program

KERNELS: dict[str, Callable[[], Program]] = {
    "matmul": lambda: programs.matmul(1024, 1024, 1024, 16),
    "conv2d": lambda: programs.conv2d(56, 64, 64),
    "softmax": lambda: programs.softmax(512, 1000, 128),
    "layer_norm": lambda: programs.layer_norm(512, 768, 128),
    "argmax": lambda: programs.argmax(512, 1000, 128),
    "prefix_sum": lambda: programs.prefix_sum(1000, 128),
    "transpose": lambda: programs.transpose(1024, 1024, 32),
    "warp_reduction": lambda: programs.row_reduction("sum", 1024, 1000, 32),
    "dp4a_matmul": lambda: programs.dp4a_matmul(256, 256, 256),
    "mma_matmul": lambda: programs.mma_matmul(1024, 1024, 256, warps=4, tiles=(2, 4)),
    "async_matmul": lambda: programs.async_matmul(1024, 1024, 1024, 16, 4),
}


def main() -> None:
    """Prints one row a kernel and architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append")
    print(f"{'kernel':16}{'arch':>7}{'threads':>9}{'registers':>11}{'spilled':>9}{'shared':>8}{'stack':>7}")
    for name, make in KERNELS.items():
        made = make()
        func = made.schedule.func(made.args, name)
        for arch in parser.parse_args().arch or ("sm_75", "sm_80", "sm_90"):
            program = device_program(lower(func, Target.parse(f"cuda -arch={arch}")))
            (kernel,) = program.kernels
            found = compile_cuda(emit(program, CUDA), arch).resources[kernel.name]
            x, y, z = kernel.block
            spilled = found.spill_loads + found.spill_stores
            print(f"{name:16}{arch:>7}{x * y * z:9}{found.registers:11}{spilled:9}{found.shared:8}{found.stack:7}")


if __name__ == "__main__":
    main()
