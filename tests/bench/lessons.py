"""The speeds of the lessons on this machine: `python -m tests.bench.lessons [--size 1024] [--threads 1,2]`.

Each figure is the best of alternating windows, with numpy's and the multiply-add peak of a core taken in the same run.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from nestor.bench.probe import fma_peak
from targets.build import build

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ((1024, 1024, 1024), (1000, 1000, 1000), (1023, 1025, 1024))


def load(name: str) -> Any:
    """A lesson as a module, its checks run at a small size."""
    os.environ["LESSON_SIZE"] = "96"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tutorials" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numpy_seconds(shape: tuple[int, int, int], threads: int) -> float:
    """The best time of numpy's product, in a process of its own with so many threads."""
    n, m, k = shape
    code = (
        "import numpy as np, time\n"
        f"a, b = np.ones(({n}, {k}), np.float32), np.ones(({k}, {m}), np.float32)\n"
        f"c = np.empty(({n}, {m}), np.float32)\n"
        "best = 1e9\n"
        "for _ in range(30):\n"
        "    t = time.perf_counter(); np.matmul(a, b, out=c); best = min(best, time.perf_counter() - t)\n"
        "print(best)\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def best(kernel: Any, arrays: list[np.ndarray], repeats: int = 30) -> float:
    """The shortest of several calls."""
    shortest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel(*arrays)
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def products(threads: list[int]) -> None:
    """The last step of the lesson against numpy."""
    lesson = load("matrix_product")
    peaks = {count: fma_peak(count) / 1e9 for count in threads}
    print(f"{'shape':>18} {'threads':>7} {'lesson':>9} {'numpy':>9} {'ratio':>6}   GFLOP/s")
    for shape in SHAPES:
        n, m, k = shape
        rng = np.random.default_rng(0)
        arrays = [
            rng.standard_normal((n, k)).astype(np.float32),
            rng.standard_normal((k, m)).astype(np.float32),
            np.empty((n, m), np.float32),
        ]
        for count in threads:
            schedule, args = lesson.product(n, m, k)
            start = time.perf_counter()
            kernel = build(schedule, args, target="llvm", threads=count)
            built = time.perf_counter() - start
            theirs = numpy_seconds(shape, count)
            ours = best(kernel, arrays)
            theirs = min(theirs, numpy_seconds(shape, count))
            print(
                f"{n:>5} x{m:>5} x{k:>4} {count:>7} {ours * 1e3:>7.2f}ms {theirs * 1e3:>7.2f}ms {theirs / ours:>6.2f}"
                f"   {2e-9 * n * m * k / ours:.0f} of {peaks[count]:.0f}"
                f"   (built in {built:.2f} s, {kernel.spills} spills)"
            )


def steps(size: int) -> None:
    """Every step of the lesson at one size."""
    lesson = load("matrix_product")
    lesson.N = size
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
    arrays.append(np.empty((size, size), np.float32))
    for name in lesson.STEPS:
        defaults = {"packed": lambda: lesson.product(size, size, size, threads=False)}
        defaults["threads"] = lambda: lesson.product(size, size, size)
        schedule, args = defaults.get(name, lambda name=name: at_size(lesson, name, size))()
        seconds = best(build(schedule, args, target="llvm"), arrays, repeats=3)
        print(f"{name:>18} {seconds * 1e3:9.2f} ms {2e-9 * size**3 / seconds:8.1f} GFLOP/s")


def bytes_products(threads: list[int]) -> None:
    """The product of bytes against the rate of the dot instruction on operands in the first-level cache."""
    lesson = load("int8_dot")
    probe = build(*lesson.product(12 * 64, 32, 512, rows=12), target="llvm", threads=1)
    small = lesson.arrays(12 * 64, 32, 512)
    shape = (1024, 1024, 1024)
    work = 2e-9 * shape[0] * shape[1] * shape[2]
    for count in threads:
        kernel = build(*lesson.product(*shape), target="llvm", threads=count)
        arrays = lesson.arrays(*shape)
        peak = 2e-9 * 12 * 64 * 32 * 512 / best(probe, small, 200) * count
        rate = work / best(kernel, arrays)
        peak = max(peak, 2e-9 * 12 * 64 * 32 * 512 / best(probe, small, 200) * count)
        print(f"bytes, {count} threads: {rate:.0f} of {peak:.0f} GOP/s, {rate / peak:.2f}")


def at_size(lesson: Any, name: str, size: int) -> Any:
    """A step whose compute is declared at the lesson's own size."""
    lesson.declare.__defaults__ = (size, size, size)
    return lesson.STEPS[name]()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", default="1,2")
    given = parser.parse_args()
    steps(given.size)
    print()
    threads = [int(t) for t in given.threads.split(",")]
    products(threads)
    bytes_products(threads)


if __name__ == "__main__":
    main()
