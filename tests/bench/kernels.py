"""Single kernels against the floor: convolutions and products called alone, their weights warm and cold.

    python -m tests.bench.kernels                  the convolutions of ResNet-50, the products of BERT-base, Winograd
    python -m tests.bench.kernels --only bert      those whose name holds a word
    python -m tests.bench.kernels --write          put the table into tests/bench/RESULTS.md

Warm, a kernel gets the same arrays in every call; cold, its weights are others in every call, more than caches hold,
as in a model that is larger than they are. The floor is the arithmetic of the taps that lie in the input over the FMA
peak probed between the calls; of a Winograd kernel it is that of the direct convolution.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nestor.bench.probe import fma_peak
from targets.build import build, resolve
from targets.llvm.runtime import host
from tensorir import dtypes
from tensorir.expr import Const, const
from tensorir.stmt import Func
from tests.bench.layers import PRODUCTS, RESNET50, VGG16
from tests.bench.table import revision, write_section
from topi.group import GroupInput, GroupNode, GroupSpec, TensorSpec, choose_implementation, compile_group, spec_of
from topi.op import Call
from topi.registry import get_op

COLD_BYTES = 200 << 20
"""Bytes of weights that cold calls walk through."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel by name: an op, the logical shapes of its operands (the first is data, the others known at compile time)
    and of its result, and the arithmetic that the direct way takes."""

    name: str
    op: str
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    attrs: dict[str, object]
    flop: float


def cases() -> Iterator[Case]:
    """The kernels, most models' time first."""
    for shape in RESNET50:
        yield _conv(f"resnet50 conv {_named(shape)}", *shape)
    for m, k, n in PRODUCTS:
        which = "bert product" if m == 128 else "product"
        yield Case(f"{which} {m}x{k} by {k}x{n}", "matmul", ((m, k), (k, n)), (m, n), {}, 2.0 * m * k * n)
    for shape in (*RESNET50, *VGG16):
        ci, co, k, stride, size = shape
        if (k, stride) == (3, 1) and size >= 28:
            for m in (2, 4):
                direct = _conv("", *shape)
                operands = ((1, ci, size, size), ((m + 2) ** 2, co, ci), (co,))
                attrs: dict[str, object] = {"m": m, "padding": (1, 1, 1, 1)}
                name = f"winograd F({m}) {_named(shape)}"
                yield Case(name, "conv2d_winograd", operands, direct.result, attrs, direct.flop)


def _named(shape: Sequence[int]) -> str:
    ci, co, k, stride, size = shape
    return f"{ci},{co} {k}x{k}/{stride} {size}"


def _conv(name: str, ci: int, co: int, k: int, stride: int, size: int) -> Case:
    pad, out = k // 2, -(-size // stride)
    valid = sum(0 <= p * stride + t - pad < size for p in range(out) for t in range(k))
    attrs: dict[str, object] = {"padding": (pad,) * 4, "strides": (stride, stride)}
    operands = ((1, ci, size, size), (co, ci, k, k), (co,))
    return Case(name, "conv2d", operands, (1, co, out, out), attrs, 2.0 * ci * co * valid**2)


@dataclass(frozen=True, slots=True)
class Turn:
    """The FMA peak, operations a second, and right after it the seconds of a call, warm and cold."""

    peak: float
    warm: float
    cold: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel's turns. The speed of a shared machine changes from turn to turn, so shares are taken within turns."""

    case: Case
    config: str
    spills: int
    turns: tuple[Turn, ...]

    def share(self, which: str) -> float:
        """Of the floor, `warm` or `cold`: the median over the turns."""
        return float(np.median([self.case.flop / t.peak / getattr(t, which) for t in self.turns]))

    def best(self, which: str) -> float:
        """The largest `peak`, or the least seconds."""
        values = [getattr(t, which) for t in self.turns]
        return max(values) if which == "peak" else min(values)


def measure(case: Case, threads: int, turns: int = 30) -> Measured:
    """Calls in turn with the probe, so that all see the same machine."""
    target = resolve("llvm")
    op = get_op(case.op)
    specs = [spec_of([const(n) for n in shape], dtypes.float32) for shape in case.operands]
    result = spec_of([const(n) for n in case.result], dtypes.float32)
    known = (False, *(True for _ in specs[1:]))
    call = Call(op, tuple(specs), (result,), case.attrs, known)  # type: ignore[arg-type]
    implementation, _ = choose_implementation(call, target, "default")
    assert implementation is not None, case.name
    layouts, results = implementation.layouts(call, target)
    placed = [TensorSpec(s.shape, s.dtype, x or s.layout) for s, x in zip(specs, layouts, strict=True)]
    result = TensorSpec(result.shape, result.dtype, results[0])
    node = GroupNode(
        case.op, tuple(sorted(case.attrs.items())), tuple(("in", i) for i in range(len(specs))), (result,),  # type: ignore[arg-type]
        implementation.name,
    )  # fmt: skip
    inputs = tuple(GroupInput(s, c) for s, c in zip(placed, known, strict=True))
    made = compile_group(GroupSpec(inputs, (node,), ((0, 0),)), target, name="kernel")
    kernel = build(made.func, target=target, threads=threads)
    data, weight, *others, out = _arrays(made.func)
    copies = min(4000, max(1, COLD_BYTES // weight.nbytes))
    calls = [partial(kernel, data, w, *others, out) for w in (weight, *(weight.copy() for _ in range(copies)))]
    for run in (calls[0], calls[-1]):
        run()
    found: list[Turn] = []
    place = 0
    for _ in range(turns):
        peak = fma_peak(threads, windows=1, window=0.003)
        calls[0]()
        warm = min(_seconds(calls[0]) for _ in range(4))
        cold = []
        for _ in range(4):
            place = place % (len(calls) - 1) + 1
            cold.append(_seconds(calls[place]))
        found.append(Turn(peak, warm, float(np.median(cold))))
    return Measured(case, str(made.config), kernel.spills, tuple(found))


def _arrays(func: Func) -> list[np.ndarray]:
    """Random arrays for the parameters, aligned as an arena is."""
    random = np.random.default_rng(0)
    made = []
    for p in func.params:
        shape = [int(e.value) for e in p.shape if isinstance(e, Const)]
        raw = np.empty(int(np.prod(shape)) + 16, np.float32)
        first = -raw.ctypes.data % 64 // 4
        array = raw[first : first + int(np.prod(shape))].reshape(shape)
        array[...] = random.standard_normal(shape, np.float32) * 0.1
        made.append(array)
    return made


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(m: Measured) -> str:
    """A line of the table."""
    cells = [m.case.name, m.config, str(m.spills), f"{m.best('peak') / 1e9:.0f}"]
    for which in ("warm", "cold"):
        cells += [f"{m.best(which) * 1e6:.0f}", f"**{m.share(which):.0%}**"]
    return "| " + " | ".join(cells) + " |"


def main(arguments: Iterable[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="a word of the name")
    parser.add_argument("--threads", type=int, default=host().cores)
    parser.add_argument("--write", action="store_true", help="write tests/bench/RESULTS.md")
    given = parser.parse_args(None if arguments is None else list(arguments))
    head = [
        "| kernel | tile | spills | peak GFLOP/s | warm us | of the floor | cold us | of the floor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print(*head, sep="\n")
    rows = []
    for case in cases():
        if given.only in case.name:
            rows.append(row(measure(case, given.threads)))
            print(rows[-1], flush=True)
    if given.write:
        intro = (
            f"Revision {revision()}, {datetime.date.today().isoformat()}. {host()}; {given.threads} threads, float32, "
            "untuned. Each kernel is called alone, in turn with the probe of the FMA peak; the floor counts the taps "
            "that lie in the input, for Winograd those of the direct convolution."
        )
        write_section("Kernels", "\n".join(["## Kernels", "", intro, "", *head, *rows, ""]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
