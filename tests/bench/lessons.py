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
from schedule import create_schedule
from targets.build import build
from tensorir import te

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 4
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
            schedule, args = lesson.product(n, m, k, threads=count)
            start = time.perf_counter()
            kernel = build(schedule, args, target="llvm", threads=count)
            built = time.perf_counter() - start
            theirs = ours = float("inf")
            for _ in range(ROUNDS):
                theirs = min(theirs, numpy_seconds(shape, count))
                ours = min(ours, best(kernel, arrays))
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
        defaults = {"packed": lambda: lesson.product(size, size, size, threads=1)}
        defaults["threads"] = lambda: lesson.product(size, size, size)
        schedule, args = defaults.get(name, lambda name=name: at_size(lesson, name, size))()
        seconds = best(build(schedule, args, target="llvm"), arrays, repeats=3)
        print(f"{name:>18} {seconds * 1e3:9.2f} ms {2e-9 * size**3 / seconds:8.1f} GFLOP/s")


def dot_peak(lesson: Any, threads: int) -> float:
    """The rate of the dot instruction, in 10^9 operations a second: a tile of the lesson again and again on the same
    bytes, which lie in the first-level cache."""
    repeats, depth = 512 * threads, 512
    A, B = te.placeholder((12, depth), "uint8", name="A"), te.placeholder((2, depth // 4, 16, 4), "int8", name="B")
    k = te.reduce_axis(depth, name="k")

    def body(r: Any, i: Any, b: Any, j: Any) -> Any:
        return te.sum(A[i, k].astype("int32") * B[b, k // 4, j, k % 4].astype("int32"), axis=k)

    T = te.compute((repeats, 12, 2, 16), body, name="T")
    C = te.compute((repeats, 12, 2, 16), lambda r, i, b, j: T[r, i, b, j], name="C")
    s = create_schedule(C)
    s[T].set_scope("register")
    r, i, b, j = s[C].op.axis
    s[T].compute_at(s[C], r)
    s[C].unroll(i), s[C].unroll(b), s[C].vectorize(j), s[C].parallel(r)
    _, i, b, j = s[T].axis
    k_o, k_i = s[T].split(k, factor=4)
    s[T].reorder(k_o, i, b, j, k_i)
    s[T].decompose_reduction(k_o)
    s[T].unroll(i), s[T].unroll(b)
    s[T].tensorize(j, lesson.dot)
    arrays = [np.ones((12, depth), np.uint8), np.ones((2, depth // 4, 16, 4), np.int8)]
    kernel = build(s, [A, B, C], target="llvm", threads=threads)
    return 2e-9 * repeats * 12 * 32 * depth / best(kernel, [*arrays, np.empty((repeats, 12, 2, 16), np.int32)], 100)


def bytes_products(threads: list[int]) -> None:
    """The product of bytes against the rate of the dot instruction."""
    lesson = load("int8_dot")
    shape = (1024, 1024, 1024)
    work = 2e-9 * shape[0] * shape[1] * shape[2]
    for count in threads:
        kernel = build(*lesson.product(*shape), target="llvm", threads=count)
        arrays = lesson.arrays(*shape)
        peak = rate = 0.0
        for _ in range(ROUNDS):
            peak = max(peak, dot_peak(lesson, count))
            rate = max(rate, work / best(kernel, arrays, 100))
        print(f"bytes, {count} threads: {rate:.0f} of {peak:.0f} GOP/s, {rate / peak:.2f}")


def primitives() -> None:
    """The time of each primitive of a convolution's schedule, and of its build."""
    x, w = te.placeholder((1, 4, 58, 58, 16), name="X"), te.placeholder((4, 4, 3, 3, 16, 16), name="W")
    b = te.placeholder((4, 16), name="bias")
    axes = [te.reduce_axis(extent, name) for extent, name in ((4, "ci"), (3, "kh"), (3, "kw"), (16, "c"))]
    ci, kh, kw, c = axes

    def body(n: Any, o: Any, y: Any, z: Any, v: Any) -> Any:
        return te.sum(x[n, ci, y + kh, z + kw, c] * w[o, ci, kh, kw, c, v], axis=axes)

    conv = te.compute((1, 4, 56, 56, 16), body, name="conv")
    relu = te.compute(
        (1, 4, 56, 56, 16), lambda n, o, y, z, v: te.maximum(conv[n, o, y, z, v] + b[o, v], 0.0), name="relu"
    )
    times: list[tuple[float, str]] = []
    s = create_schedule(relu)

    def call(stage: te.Tensor, name: str, *args: Any) -> Any:
        start = time.perf_counter()
        result = getattr(s[stage], name)(*args)
        times.append(((time.perf_counter() - start) * 1e3, name))
        return result

    n, o, y, z, lane = s[relu].op.axis
    z_o, z_i = call(relu, "split", z, 28)
    call(relu, "reorder", n, o, y, z_o, z_i, lane)
    call(conv, "set_scope", "register")
    call(conv, "compute_at", s[relu], z_o)
    call(relu, "vectorize", lane)
    call(relu, "unroll", z_i)
    _, _, _, z, lane = s[conv].op.axis
    call(conv, "reorder", ci, kh, kw, c, z, lane)
    call(conv, "unroll", z)
    call(conv, "vectorize", lane)
    call(conv, "decompose_reduction", ci)
    call(relu, "parallel", call(relu, "fuse", n, o))
    start = time.perf_counter()
    kernel = build(s, [x, w, b, relu], target="llvm")
    built = time.perf_counter() - start
    longest = max(times)
    median = sorted(times)[len(times) // 2][0]
    print(
        f"conv2d: {len(times)} primitives, median {median:.2f} ms, longest {longest[0]:.2f} ms ({longest[1]}); ", end=""
    )
    print(f"built in {built:.2f} s, {kernel.spills} spills")


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
    for _ in range(3):
        primitives()


if __name__ == "__main__":
    main()
