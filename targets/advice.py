"""Advice on how the threads of a GPU kernel touch memory: never an error, what each access costs.

    for note in kernel.advice(a, b, c): print(note)
    read of S[j * 32]: S in shared memory: 32-way bank conflict ...

Shared memory has 32 banks of 4 bytes: lanes of a warp that ask for different words of one bank wait for each other, so
an access of degree n takes n turns. Global memory moves in sectors of 32 bytes: an access takes as many transactions as
its warp touches sectors; the fewest are those that hold the bytes asked for. Accesses of 8 (16) bytes a lane are served
half (a quarter) of a warp at a time. The kernel runs in the interpreter: conditions and sizes are the real ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorir.expr import Var
from tensorir.interpreter.memory import CheckedMemory
from tensorir.interpreter.run import traced
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target

BANKS, BANK_BYTES, SECTOR, WARP = 32, 4, 32, 32


@dataclass(frozen=True, slots=True)
class Advice:
    """One access of a kernel: `access` as the lowered program writes it, the buffer and its scope, how often a warp
    does it. In shared memory `degree` is the most turns that a warp takes for one; in global memory `transactions` is
    the mean number of sectors a warp touches, `fewest` that of sectors that would hold the bytes."""

    access: str
    buffer: str
    scope: str
    warps: int
    degree: int
    transactions: float
    fewest: float

    @property
    def is_bad(self) -> bool:
        """Whether there is something to gain: lanes that wait for each other, or sectors fetched for a part of them."""
        return self.degree > 1 if self.scope == "shared" else self.transactions > 1.25 * self.fewest + 1

    def __str__(self) -> str:
        head = f"{self.access}: {self.buffer} in {self.scope} memory, {self.warps} times a warp: "
        if self.scope == "shared":
            what = f"{self.degree}-way bank conflict" if self.degree > 1 else "no bank conflict"
            hint = "; make its rows longer by one (storage_align)" if self.degree > 1 else ""
        else:
            what = f"{self.transactions:.3g} transactions of {SECTOR} bytes where {self.fewest:.3g} hold the bytes"
            hint = "; let neighbouring lanes touch neighbouring elements" if self.is_bad else ""
        return f"{head}{what}{hint}"


class _Trace:
    """Collects the positions that each thread touches at each access, in order."""

    def __init__(self) -> None:
        self.thread: tuple[int, int] | None = None
        self.memories: dict[int, CheckedMemory] = {}
        self.touched: dict[tuple[int, int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def touch(self, memory: CheckedMemory, position: int, site: int) -> None:
        if self.thread is None or memory.scope not in ("global", "shared"):
            return
        block, number = self.thread
        self.memories[site] = memory
        self.touched[site, block, number // WARP][number % WARP].append(position)


def advise(
    func: Func, target: Target, arrays: Sequence[np.ndarray], dims: Mapping[Var, int] | None = None
) -> tuple[Advice, ...]:
    """What the accesses of the kernels of `func` cost, in the order of the program; `arrays` stay as they are."""
    flat = lower(func, target, until="check_limits")  # before indices are narrowed: the text stays readable
    trace = _Trace()
    program = traced(flat, [a.copy() for a in arrays], dims, trace)
    costs: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
    for (site, _, _), lanes in sorted(trace.touched.items()):
        memory, width = trace.memories[site], program.widths[site]
        found = costs.setdefault((program.sites[site](), memory.name, memory.scope), [])
        count = max(len(positions) for positions in lanes.values()) // width
        for number in range(count):
            pieces = [p[number * width : (number + 1) * width] for _, p in sorted(lanes.items())]
            starts = [min(p) * memory.nbytes for p in pieces if len(p) == width]
            if starts:
                found.append(_cost(starts, width * memory.nbytes, memory.scope))
    return tuple(_summary(*key, found) for key, found in costs.items() if found)


def _cost(starts: list[int], nbytes: int, scope: str) -> tuple[int, int, int]:
    """(degree, sectors, fewest sectors) of one access by the lanes of a warp, each of `nbytes` from its start."""
    group = max(1, WARP * BANK_BYTES // max(nbytes, BANK_BYTES))
    degree = 0
    if scope == "shared":
        for first in range(0, len(starts), group):
            words: dict[int, set[int]] = defaultdict(set)
            for start in starts[first : first + group]:
                for word in range(start // BANK_BYTES, (start + nbytes - 1) // BANK_BYTES + 1):
                    words[word % BANKS].add(word)
            degree = max(degree, *(len(w) for w in words.values()))
    sectors = {s for start in starts for s in range(start // SECTOR, (start + nbytes - 1) // SECTOR + 1)}
    asked = len(set(starts)) * nbytes
    return degree, len(sectors), -(-asked // SECTOR)


def _summary(access: str, buffer: str, scope: str, found: list[tuple[int, int, int]]) -> Advice:
    n = len(found)
    return Advice(
        access, buffer, scope, n, max(d for d, _, _ in found), sum(s for _, s, _ in found) / n,
        sum(f for _, _, f in found) / n,
    )  # fmt: skip
