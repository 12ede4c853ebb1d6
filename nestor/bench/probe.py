"""What this machine can do right now: its FMA peak and its copy bandwidths, measured by programs in the flat form.

    fma_peak(1)                    # operations a second of one core, multiply and add counted as two
    fma_peak(2) / fma_peak(1)      # how many cores are there: near 2 on a quiet machine
    copy_bandwidth("L2", 2)        # bytes read and written a second

A rate is the best of several short windows; a program runs once before it is timed.
"""

from __future__ import annotations

import concurrent.futures
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from targets.build import compile_func, resolve
from targets.llvm.runtime import NativeFunction, host, load
from tensorir import dtypes
from tensorir.buffer import Buffer
from tensorir.expr import Expr, Var, const, fma, ramp
from tensorir.expr import load as read
from tensorir.stmt import Allocate, For, Func, LetStmt, Stmt, Store, seq
from tensorir.target import Target

ACCUMULATORS = 12
"""Independent sums: more than latency times units on any CPU known, few enough for 16 registers with two factors."""
LEVELS = ("L1", "L2", "L3", "DRAM")
WINDOW = 0.01
"""Seconds of one timed window."""
WHOLE_CORES = 0.95
"""The share of its own rate that every core must reach for the cores to count as all there."""


def fma_program(target: Target, threads: int) -> Func:
    """`n` rounds of fused multiply-adds on ACCUMULATORS vectors, in each of `threads` parts."""
    lanes = target.lanes(dtypes.float32)
    vector = dtypes.float32.with_lanes(lanes)
    factors = Buffer("factors", (const(2 * lanes),), dtypes.float32)
    sums = Buffer("sums", (const(threads * lanes),), dtypes.float32)
    tile = Buffer("tile", (const(ACCUMULATORS * lanes),), dtypes.float32, "register")
    n, i, part = Var("n"), Var("i"), Var("part")
    x, y = Var("x", vector), Var("y", vector)
    places: list[Expr] = [ramp(const(k * lanes), 1, lanes) for k in range(ACCUMULATORS)]
    rounds = For(i, const(0), n, "serial", seq(*(Store(tile, (p,), fma(read(tile, (p,)), x, y)) for p in places)))
    total: Expr = read(tile, (places[0],))
    for p in places[1:]:
        total = total + read(tile, (p,))
    body: Stmt = seq(
        *(Store(tile, (p,), y) for p in places), rounds, Store(sums, (ramp(part * lanes, 1, lanes),), total)
    )
    body = LetStmt(y, read(factors, (ramp(const(lanes), 1, lanes),)), Allocate(tile, body))
    body = LetStmt(x, read(factors, (ramp(const(0), 1, lanes),)), body)
    return Func("fma_peak", (factors, sums), (n,), For(part, const(0), const(threads), "parallel", body), 1)


def copy_program(target: Target, threads: int, unroll: int = 4) -> Func:
    """`repeats` copies of `vectors` groups of `unroll` vectors, each of `threads` parts over its own memory."""
    lanes = target.lanes(dtypes.float32)
    vectors, repeats = Var("vectors"), Var("repeats")
    size = vectors * (threads * unroll * lanes)
    source = Buffer("source", (size,), dtypes.float32)
    copied = Buffer("copied", (size,), dtypes.float32)
    part, again, i = Var("part"), Var("again"), Var("i")
    at = [ramp((part * vectors + i) * (unroll * lanes) + k * lanes, 1, lanes) for k in range(unroll)]
    body: Stmt = seq(*(Store(copied, (p,), read(source, (p,))) for p in at))
    body = For(again, const(0), repeats, "serial", For(i, const(0), vectors, "serial", body))
    parallel = For(part, const(0), const(threads), "parallel", body)
    return Func("copy", (source, copied), (vectors, repeats), parallel, 1)


@functools.cache
def _native(kind: str, threads: int) -> tuple[NativeFunction, int]:
    """A probe's program in this process, and the lanes of its vectors."""
    target = resolve("llvm")
    func = fma_program(target, threads) if kind == "fma" else copy_program(target, threads)
    compiled = compile_func(func, target, symbol=f"{func.name}_{threads}", lowered=True)
    function = NativeFunction(
        load(compiled.object), compiled.symbol, data=len(func.params), dims=len(func.dims), threads=threads
    )
    return function, target.lanes(dtypes.float32)


def fma_peak(threads: int = 1, *, windows: int = 5, window: float = WINDOW) -> float:
    """Float32 operations a second of fused multiply-adds on registers, `threads` threads together."""
    function, lanes = _native("fma", threads)
    factors = np.repeat(np.array([0.999, 0.001], np.float32), lanes)
    sums = np.empty(threads * lanes, np.float32)
    rounds, best = _best_time(lambda n: function([factors, sums], [n]), 1000, windows, window)
    return 2.0 * ACCUMULATORS * lanes * rounds * threads / best


def copy_bandwidth(level: str = "DRAM", threads: int = 1, *, windows: int = 5, window: float = WINDOW) -> float:
    """Bytes a second that `threads` threads read and write together, the data of each in its cache `level`.

    For DRAM the better of plain and library copies (which may write past the caches).
    """
    function, lanes = _native("copy", threads)
    group = 4 * lanes * 4
    vectors = max(_bytes_of(level, threads) // (2 * threads * group), 1)
    count = vectors * threads * 4 * lanes
    source, copied = _aligned(count), _aligned(count)
    source[:] = 1.0
    copied[:] = 0.0
    repeats, best = _best_time(lambda n: function([source, copied], [vectors, n]), 1, windows, window)
    rate = 2.0 * source.nbytes * repeats / best
    return max(rate, _library_copy(source, copied, threads, windows)) if level == "DRAM" else rate


def _library_copy(source: np.ndarray, copied: np.ndarray, threads: int, windows: int) -> float:
    """The same by numpy, a Python thread for each part."""
    parts = list(zip(np.array_split(copied, threads), np.array_split(source, threads)))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:

        def run() -> None:
            list(pool.map(lambda pair: np.copyto(*pair), parts))

        run()
        return 2.0 * source.nbytes / min(_time(run) for _ in range(windows))


def _bytes_of(level: str, threads: int) -> int:
    """Bytes of source and copy together, all threads, that fit well into a level and badly into the one before."""
    here = host()
    l1, l2, l3 = here.l1_bytes or 32 << 10, here.l2_bytes or 1 << 20, here.l3_bytes or 32 << 20
    sizes = {
        "L1": threads * l1 // 2,
        "L2": threads * l2 // 2,
        "L3": max(min(l3 // 2, 16 << 20), 2 * threads * l2),
        "DRAM": max(4 * min(l3, 64 << 20), 128 << 20),
    }
    return sizes[level]


def _aligned(count: int) -> np.ndarray:
    raw = np.empty(count + 16, np.float32)
    offset = -raw.__array_interface__["data"][0] % 64 // 4
    return raw[offset : offset + count]


def _best_time(call: Callable[[int], object], number: int, windows: int, window: float) -> tuple[int, float]:
    """A number of rounds that takes about `window` seconds, and the shortest time for it."""

    def seconds() -> float:
        return _time(lambda: call(number))

    while (taken := seconds()) < window / 2:
        number = int(number * min(max(window / max(taken, 1e-9), 2.0), 100.0))
    return number, min(seconds() for _ in range(windows))


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class CoreProbe:
    """FMA rates of one thread and of all `threads`, measured one right after the other."""

    threads: int
    one: float
    all: float

    @property
    def cores(self) -> float:
        """How many cores' worth of arithmetic the threads got."""
        return self.all / self.one

    @property
    def whole(self) -> bool:
        """True if every thread had a core to itself (1.9 of 2)."""
        return self.cores >= WHOLE_CORES * self.threads


def probe_cores(threads: int, *, windows: int = 3) -> CoreProbe:
    """A quick look at whether all cores are there."""
    one = fma_peak(1, windows=windows, window=0.004)
    return CoreProbe(threads, one, one if threads == 1 else fma_peak(threads, windows=windows, window=0.004))


@dataclass(frozen=True, slots=True)
class MachineFloor:
    """The rates that a floor is taken from: FMA peak and copy bandwidth by level, all `threads` together."""

    threads: int
    fma: float
    copy: dict[str, float]

    def seconds(self, flop: float, nbytes: float) -> float:
        """The shortest time for this much arithmetic and memory traffic, whichever takes longer."""
        return max(flop / self.fma, nbytes / self.copy[self.level(nbytes)] if nbytes else 0.0)

    def level(self, nbytes: float) -> str:
        """The level whose capacity holds this many bytes, all threads together."""
        here = host()
        sizes = (self.threads * here.l1_bytes, self.threads * here.l2_bytes, here.l3_bytes)
        for name, size in zip(LEVELS, sizes):
            if nbytes <= size:
                return name
        return "DRAM"


def machine_floor(threads: int, levels: Sequence[str] = LEVELS) -> MachineFloor:
    """The rates of this machine, measured now; levels that are left out get the rate of the next one probed."""
    copy: dict[str, float] = {}
    for level in reversed(LEVELS):
        copy[level] = copy_bandwidth(level, threads) if level in levels or not copy else next(reversed(copy.values()))
    return MachineFloor(threads, fma_peak(threads), {level: copy[level] for level in LEVELS})
