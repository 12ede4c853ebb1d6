"""Kernels bound by memory against the copy rate of the machine: softmax, norms, reductions, transposes, concat, resize,
elementwise chains, with their data in the second-level cache and in memory.

    python -m tests.bench.memory                  all
    python -m tests.bench.memory --only softmax   those whose name holds a word
    python -m tests.bench.memory --level L2       with data in one place only
    python -m tests.bench.memory --write          put the table into tests/bench/RESULTS.md

The share is the bytes read and written once over the copy rate probed before and after; functions such as exp may
need longer than their bytes. What a call from Python takes with nothing to do is subtracted.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphir.builder import GraphBuilder
from graphir.groups import group_call, kernel_nodes
from graphir.ir import Value
from graphir.pipeline import make_context, run_pipeline
from nestor.bench.probe import machine_floor
from targets.build import Kernel, build, resolve
from targets.llvm.runtime import host
from tensorir.expr import Const
from tensorir.stmt import Func
from tests.bench.table import revision, write_section
from topi.group import compile_group

Build = Callable[[GraphBuilder, list[Value]], Value]

ROWS = {"L2": 1, "DRAM": 256}
"""How many times the small sizes, 512 KB an operand, are taken along the first axis: data in one place or the other."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel by name: what it computes of operands whose first axis grows with the place of the data."""

    name: str
    build: Build
    operands: tuple[tuple[int, ...], ...]


def _one(op: str, **attrs: object) -> Build:
    return lambda b, x: b.add(op, x, attrs)[0]


def _chain(b: GraphBuilder, x: list[Value]) -> Value:
    [y] = b.add("multiply", [b.add("add", x)[0], x[0]])
    return b.add("relu", [b.add("subtract", [y, x[1]])[0]])[0]


def cases() -> Iterator[Case]:
    """The kernels."""
    yield Case("copy by relu", _one("relu"), ((128, 1024),))
    yield Case("chain of four", _chain, ((128, 1024), (128, 1024)))
    yield Case("add of a row", _one("add"), ((128, 1024), (1, 1024)))
    for columns in (1024, 128, 49):
        yield Case(f"softmax of {columns}", _one("softmax"), ((131072 // columns, columns),))
    for columns in (768, 96):
        yield Case(
            f"layer norm of {columns}", _one("layer_norm"), ((131072 // columns, columns), (columns,), (columns,))
        )
    yield Case("mean of rows", _one("mean", axes=(1,)), ((128, 1024),))
    yield Case("largest of rows", _one("max", axes=(1,)), ((128, 1024),))
    yield Case("sum of columns", _one("sum", axes=(1,)), ((1, 128, 1024),))
    yield Case("mean of maps", _one("mean", axes=(2, 3)), ((2, 64, 32, 32),))
    yield Case("transpose 2-d", _one("transpose", axes=(0, 2, 1)), ((1, 256, 512),))
    yield Case("transpose of heads", _one("transpose", axes=(0, 2, 1, 3)), ((1, 128, 16, 64),))
    yield Case("transpose to channels last", _one("transpose", axes=(0, 2, 3, 1)), ((1, 128, 32, 32),))
    yield Case("concat of channels", _one("concat", axis=1), ((2, 32, 1024), (2, 32, 1024)))
    yield Case("slice of columns", _one("slice", starts=(0,), ends=(512,), axes=(1,), steps=(1,)), ((128, 1024),))
    yield Case("gelu (erf)", lambda b, x: b.add("multiply", [x[0], b.add("erf", x)[0]])[0], ((128, 1024),))


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel's bytes, its shortest time and the copy rate."""

    case: Case
    nbytes: int
    seconds: float
    copy: float

    @property
    def share(self) -> float:
        """Of the copy rate."""
        return self.nbytes / self.seconds / self.copy


def measure(case: Case, level: str, threads: int, turns: int) -> Measured:
    """The shortest of many calls of the one kernel that the case becomes."""
    shapes = [
        (s[0] * ROWS[level], *s[1:]) if n == 0 or s == case.operands[0] else s for n, s in enumerate(case.operands)
    ]
    kernel, func = _kernel(case, shapes, threads)
    idle, tiny = _kernel(Case("nothing", _one("relu"), ()), [(16,)], threads)
    arrays, small = _arrays(func), _arrays(tiny)
    copy = machine_floor(threads, levels=(level,)).copy[level]
    best = min(_seconds(kernel, arrays) for _ in range(turns)) - min(_seconds(idle, small) for _ in range(200))
    copy = max(copy, machine_floor(threads, levels=(level,)).copy[level])
    return Measured(case, sum(a.nbytes for a in arrays), best, copy)


def _kernel(case: Case, shapes: Sequence[tuple[int, ...]], threads: int) -> tuple[Kernel, Func]:
    """The one kernel that a case becomes."""
    target = resolve("llvm")
    b = GraphBuilder()
    graph = b.finish([case.build(b, [b.input(f"x{n}", s) for n, s in enumerate(shapes)])], ["y"])
    nodes = [n for n, _ in kernel_nodes(run_pipeline(graph, make_context("llvm")), views=False)]
    assert len(nodes) == 1, case.name
    func = compile_group(group_call(nodes[0], lambda v: False).spec, target, name="kernel").func
    return build(func, target=target, threads=threads), func


def _seconds(kernel: Kernel, arrays: Sequence[np.ndarray]) -> float:
    start = time.perf_counter()
    kernel(*arrays)
    return time.perf_counter() - start


def _arrays(func: Func) -> list[np.ndarray]:
    """Arrays for the parameters of a kernel."""
    return [_array(tuple(int(e.value) for e in p.shape if isinstance(e, Const))) for p in func.params]


def _array(shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers, aligned as an arena is."""
    size = int(np.prod(shape))
    raw = np.empty(size + 16, np.float32)
    first = -raw.ctypes.data % 64 // 4
    raw[first : first + size] = np.random.default_rng(0).standard_normal(size, np.float32)
    return raw[first : first + size].reshape(shape)


def main(arguments: Iterable[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="a word of the name")
    parser.add_argument("--level", choices=list(ROWS), help="where the data is")
    parser.add_argument("--threads", type=int, default=host().cores)
    parser.add_argument("--write", action="store_true", help="write tests/bench/RESULTS.md")
    given = parser.parse_args(None if arguments is None else list(arguments))
    head = ["| kernel | data in | us | GB/s | copy GB/s | share |", "|---|---|---|---|---|---|"]
    print(*head, sep="\n")
    rows = []
    for level in ROWS if given.level is None else (given.level,):
        for case in cases():
            if given.only in case.name:
                m = measure(case, level, given.threads, 200 if level == "L2" else 6)
                cells = [case.name, level, f"{m.seconds * 1e6:.1f}", f"{m.nbytes / m.seconds / 1e9:.1f}"]
                rows.append("| " + " | ".join([*cells, f"{m.copy / 1e9:.0f}", f"**{m.share:.0%}**"]) + " |")
                print(rows[-1], flush=True)
    if given.write:
        intro = (
            f"Revision {revision()}, {datetime.date.today().isoformat()}. {host()}; {given.threads} threads, float32. "
            "Bytes read and written once over the rate of a copy with data in the same place."
        )
        write_section("Memory", "\n".join(["## Memory", "", intro, "", *head, *rows, ""]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
