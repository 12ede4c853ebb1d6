"""What the kernels of models take of an NVIDIA GPU, from the compiler's own report; needs no GPU.

    python -m tests.bench.cuda_resources [MODEL.onnx ...] [--shape x=1,3,48,192] [--arch sm_75 sm_80 sm_90] [--kernels]

Every kernel of every model is compiled to machine code for every architecture; a row of the table says how many there
are, the most registers a thread, spilled bytes of all kernels, the most shared memory a block and the most stack.
Without models: light SqueezeNet and the text-direction net.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphir.compile import compile as compile_model
from targets.cuda.compile import Resources
from targets.cuda.kernel import CudaRunner
from tensorir.errors import NestorError
from tests.models import zoo

ARCHES = ("sm_75", "sm_80", "sm_90")
MODELS: dict[str, dict[str, tuple[int, ...]]] = {"squeezenet": {}, "text_direction": {"x": (1, 3, 48, 192)}}


@dataclass(frozen=True, slots=True)
class Row:
    """The kernels of one model on one architecture."""

    model: str
    arch: str
    kernels: dict[str, Resources]
    seconds: float

    def __str__(self) -> str:
        all_of = self.kernels.values()
        spills = sum(r.spill_stores + r.spill_loads for r in all_of)
        return (
            f"{self.model:20} {self.arch:6} {len(self.kernels):7} {max(r.registers for r in all_of):9} {spills:7} "
            f"{max(r.shared for r in all_of):12} {max(r.stack for r in all_of):6} {self.seconds:8.1f}"
        )


HEAD = (
    f"{'model':20} {'arch':6} {'kernels':>7} {'registers':>9} {'spilled':>7} {'shared bytes':>12} {'stack':>6} "
    f"{'seconds':>8}"
)


def rows(path: str, shapes: dict[str, tuple[int, ...]], arches: Sequence[str]) -> Iterator[Row]:
    """The resources of a model's kernels, an architecture after the other."""
    for arch in arches:
        start = time.perf_counter()
        exe = compile_model(path, f"cuda -arch={arch}", shapes=shapes or None, cache=False)
        found: dict[str, Resources] = {}
        for k in exe.plan.kernels:
            runner = k.group.kernel
            if isinstance(runner, CudaRunner):
                found.update(runner.resources)
        yield Row(Path(path).stem, arch, found, time.perf_counter() - start)


def main() -> int:
    """Prints the table; 1 if a kernel does not compile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--arch", nargs="+", default=list(ARCHES))
    parser.add_argument("--kernels", action="store_true", help="a line for each kernel too")
    args = parser.parse_args()
    given = {name: tuple(map(int, sizes.split(","))) for name, sizes in (s.split("=") for s in args.shape)}
    wanted = {m: given for m in args.models} or {str(zoo.load(name)): shapes for name, shapes in MODELS.items()}
    wrong = 0
    print(HEAD)
    for path, shapes in wanted.items():
        try:
            for row in rows(path, shapes, args.arch):
                print(row, flush=True)
                for name, r in row.kernels.items() if args.kernels else ():
                    spilled = r.spill_stores + r.spill_loads
                    print(f"    {name:60} {r.registers:4} registers, {spilled} spilled, {r.shared} shared")
        except NestorError as error:
            wrong = 1
            print(f"{Path(path).stem}: {error}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
