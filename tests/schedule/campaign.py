"""Random (compute, schedule) pairs by the thousand: none may be wrong, none may crash.

    python -m tests.schedule.campaign --count 20000 --state /tmp/campaign.json     # again to go on
    python -m tests.schedule.campaign --seed 4711                                  # one case, in this process
    python -m tests.schedule.campaign --seed 4711 --only split,fuse

A case is one seed: a random program under a random schedule. The scheduled program on the checking interpreter must
give the bits of the unscheduled one (a schedule that says it changes the order of a float sum: within a tolerance), and
so must, at every fourth seed, the lowered one there, checked after each pass, and at every fourth its machine code
between guard elements, for one of three processors with two threads; `--thorough` runs all forms of each. Slices of
seeds run in child processes, so that a crash or an endless loop is one more figure; what is found so far is kept in
the state file. After `count` cases the rarest ordered pairs of primitives are sought until each was met 20 times.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from schedule.verify import run_packed
from targets.llvm.machine import resolve_host
from tensorir import te
from tensorir.errors import NestorError
from tensorir.expr import Var
from tensorir.interpreter import interpret
from tensorir.passes.check_registers import RegisterError
from tensorir.passes.pipeline import lower
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, with_body
from tests.schedule.bits import make_arrays, same, unbound
from tests.schedule.random_schedules import WEIGHTS, Sample, pairs, random_case
from tests.targets.llvm.flat_programs import run_native

TARGETS = ("llvm", "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3")
SLICE = 200
SECONDS = 120
LEAST = 20
MARGIN = 64
FILLING = 1_000_000
"""Seeds from here on seek rare pairs."""


# ------------------------------------------------------------------------------------------------------------- one case


def check_case(seed: int, only: tuple[str, ...] | None = None, *, thorough: bool = True) -> Sample:
    """Makes the case of a seed and runs it, in every form if `thorough`. Raises what goes wrong."""
    sample = random_case(seed, only=only)
    for name, accepted, message in sample.attempts:
        assert accepted or message.startswith(f"{name}("), message
    check_sample(sample, seed, thorough=thorough)
    return sample


def check_sample(sample: Sample, seed: int, *, thorough: bool = True) -> None:
    """Runs one schedule on random inputs with the edges of their types among them."""
    s = sample.schedule
    plain = te.create_func((*s.inputs, *s.outputs))
    arrays = make_arrays(plain, sample.dims, seed)
    inputs, outputs = arrays[: len(s.inputs)], arrays[len(s.inputs) :]
    if not s.state.reassociated and sample.program == "random_program":
        _put_edges(inputs, seed)
    wanted = [a.copy() for a in outputs]
    interpret(plain, [*inputs, *wanted], sample.dims)
    func = s.func()
    func = with_body(func, rewrite_stmt(func.body, stmt=unbound))
    wide = "float64" in str(plain)  # whose fused multiply-add x86-64 has not
    target = resolve_host(Target.parse(TARGETS[0 if wide else (0, 0, 1, 2)[seed // 4 % 4]]))

    def on_interpreter(given: Func, data: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        interpret(given, data, sizes, mode="checked")

    def on_cpu(given: Func, data: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        guarded = [_guarded(a) for a in data]
        run_native(given, [a for a, _ in guarded], [sizes[d] for d in given.dims], target=target, threads=2)
        for array, (inner, whole) in zip(data, guarded):
            _require_margins(whole)
            array.reshape(-1)[...] = inner

    def compare(run: Any, given: Func, form: str) -> None:
        found = run_packed(s, run, given, inputs, outputs, sample.dims)
        for tensor, w, f in zip(s.outputs, wanted, found, strict=True):
            assert _agree(s, w, f), f"{form}: {tensor.name} differs\n{chr(10).join(s.trace)}\n{s}\n{w}\n{f}"

    compare(on_interpreter, func, "scheduled")
    interpreted, native = thorough or seed % 4 == 0, thorough or seed % 4 == 1
    if not interpreted and not native:
        return
    try:
        flat = lower(func, target, check=interpreted)
    except RegisterError:  # the index of a register must be constant; the message says which loop to unroll
        return

    def flattened(given: Func, data: list[np.ndarray], sizes: Mapping[Var, int]) -> None:
        on_interpreter(given, [a.reshape(-1) for a in data], sizes)

    if interpreted:
        compare(flattened, flat, f"lowered for {target}")
    if native:
        compare(on_cpu, flat, f"machine code for {target}")


def _agree(s: Any, wanted: np.ndarray, found: np.ndarray) -> bool:
    if s.state.reassociated:
        return same(s, wanted, found) or np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f")
    if wanted.dtype.kind in "biu":
        return wanted.tobytes() == found.tobytes()
    nans = (wanted != wanted) & (found != found)
    word = np.dtype(f"u{wanted.dtype.itemsize}")
    return bool((nans | (wanted.view(word) == found.view(word))).all())


def _put_edges(inputs: list[np.ndarray], seed: int) -> None:
    """Zeros of both signs, infinities, NaN, and the ends of the integers at a few places; not where indices may be."""
    rng = np.random.default_rng(seed)
    for array in inputs:
        if array.dtype == np.int32 and array.size and array.min() >= 0 and array.max() < 3:
            continue
        if array.dtype.kind == "b" or not array.size:
            continue
        if array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            edges: Any = [info.min, info.max, 0, info.max // 2]
        else:
            edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 300.0, 0.5]
        for _ in range(max(1, array.size // 8)):
            array.reshape(-1)[rng.integers(array.size)] = edges[rng.integers(len(edges))]


def _guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    whole = np.full(array.size + 2 * MARGIN, 85).astype(array.dtype)
    inner = whole[MARGIN : MARGIN + array.size]
    inner[...] = array.reshape(-1)
    return inner, whole


def _require_margins(whole: np.ndarray) -> None:
    edges = np.concatenate([whole[:MARGIN], whole[len(whole) - MARGIN :]])
    assert edges.tobytes() == np.full(2 * MARGIN, 85).astype(whole.dtype).tobytes(), "a write out of bounds"


# ------------------------------------------------------------------------------------------------------------- figures


@dataclass
class Figures:
    """What a campaign found so far. `wrong` and `crashed` hold [seed, only, message]."""

    first: int = 0
    next: int = 0
    filling: int = FILLING
    cases: int = 0
    random_computes: int = 0
    tried: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    pairs: dict[str, int] = field(default_factory=dict)
    wrong: list[list[Any]] = field(default_factory=list)
    crashed: list[list[Any]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, line: dict[str, Any]) -> None:
        """Counts one case."""
        self.cases += 1
        self.random_computes += line.get("program") == "random_program"
        for name, good in line.get("attempts", ()):
            self.tried[name] = self.tried.get(name, 0) + 1
            self.accepted[name] = self.accepted.get(name, 0) + good
        for pair in line.get("pairs", ()):
            self.pairs[pair] = self.pairs.get(pair, 0) + 1
        if "wrong" in line:
            self.wrong.append([line["seed"], line["only"], line["wrong"]])
        if "crashed" in line:
            self.crashed.append([line["seed"], line["only"], line["crashed"]])

    def rare(self) -> list[tuple[str, str]]:
        """The ordered pairs of primitives met less than 20 times."""
        return [(a, b) for a in WEIGHTS for b in WEIGHTS if self.pairs.get(f"{a} {b}", 0) < LEAST]

    def share(self) -> float:
        """Accepted calls over all calls."""
        return sum(self.accepted.values()) / max(1, sum(self.tried.values()))

    def report(self) -> str:
        """Acceptance by primitive and over all, the rarest pair, and what went wrong."""
        lines = [
            f"{n:24} {self.accepted.get(n, 0):6} of {t:6}  {100 * self.accepted.get(n, 0) / t:3.0f} %"
            for n, t in sorted(self.tried.items())
        ]
        accepted, tried = sum(self.accepted.values()), sum(self.tried.values())
        lines.append(f"{'all':24} {accepted:6} of {tried:6}  {100 * self.share():3.0f} %")
        least = min((self.pairs.get(f"{a} {b}", 0), a, b) for a in WEIGHTS for b in WEIGHTS)
        lines.append(f"the least ordered pair of {len(WEIGHTS) ** 2}: {least[1]}, {least[2]}: {least[0]} times")
        lines.append(
            f"{self.cases} cases, {self.random_computes} of random computes, in {self.seconds:.0f} s: "
            f"{len(self.wrong)} wrong, {len(self.crashed)} crashes"
        )
        for kind, found in (("wrong", self.wrong), ("crashed", self.crashed)):
            for seed, only, message in found[:20]:
                extra = f" --only {','.join(only)}" if only else ""
                lines.append(f"{kind}: --seed {seed}{extra}: {message.splitlines()[0][:160]}")
        return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------- running

Case = tuple[int, tuple[str, ...] | None]


def run_cases(cases: list[Case], *, thorough: bool = True) -> Iterator[dict[str, Any]]:
    """One line a case. They run in a child process; where it dies, the case is a crash and a new child goes on."""
    while cases:
        done = 0
        for line in _in_child(cases, thorough):
            done += 1
            yield line
        cases = cases[done:]


def _in_child(cases: list[Case], thorough: bool) -> Iterator[dict[str, Any]]:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        status = 1
        try:
            gc.freeze()
            gc.set_threshold(100_000)
            with os.fdopen(send, "w") as out:
                for seed, only in cases:
                    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
                    out.write(json.dumps(_outcome(seed, only, thorough)) + "\n")
                    out.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(send)
    done, whole = 0, False
    try:
        with os.fdopen(receive) as lines:
            for text in lines:
                if not text.endswith("\n"):
                    break
                done += 1
                yield json.loads(text)
        whole = True
    finally:
        if not whole:  # nobody wants the rest
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if done < len(cases):
        seed, only = cases[done]
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        yield {"seed": seed, "only": only, "crashed": f"the process died of {name}"}


def _outcome(seed: int, only: tuple[str, ...] | None, thorough: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"seed": seed, "only": only}
    try:
        sample = check_case(seed, only, thorough=thorough)
    except (AssertionError, NestorError) as error:
        return {**line, "wrong": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {**line, "crashed": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}
    return {
        **line,
        "program": sample.program,
        "attempts": [(name, good) for name, good, _ in sample.attempts],
        "pairs": [f"{a} {b}" for a, b in pairs([sample])],
    }


def campaign(
    count: int, *, first: int = 0, state: Path | None = None, most_filling: int = 20_000, thorough: bool = False
) -> Figures:
    """Cases first..first + count and those that rare pairs need; goes on from the state file if there is one."""
    figures = Figures(first=first, next=first)
    if state is not None and state.exists():
        figures = Figures(**json.loads(state.read_text()))
    while True:
        start = time.perf_counter()
        rare = figures.rare()
        if figures.next < figures.first + count:
            stop = min(figures.next + SLICE, figures.first + count)
            cases: list[Case] = [(seed, None) for seed in range(figures.next, stop)]
            figures.next = stop
        elif rare and figures.filling < FILLING + most_filling:
            cases = []
            for seed in range(figures.filling, figures.filling + SLICE):
                wanted = rare[seed % len(rare)]
                cases.append((seed, (*wanted, "compute_at", "cache_read")))
            figures.filling += SLICE
        else:
            return figures
        for line in run_cases(cases, thorough=thorough):
            figures.add(line)
        figures.seconds += time.perf_counter() - start
        if state is not None:
            state.with_suffix(".new").write_text(json.dumps(asdict(figures)))
            state.with_suffix(".new").rename(state)


def main() -> None:
    """Runs a campaign, or one case of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only")
    parser.add_argument("--thorough", action="store_true")
    given = parser.parse_args()
    if given.seed is not None:
        only = tuple(given.only.split(",")) if given.only else None
        print("\n".join(check_case(given.seed, only).schedule.trace))
        return
    figures = campaign(given.count, first=given.first, state=given.state, thorough=given.thorough)
    print(figures.report())
    sys.exit(1 if figures.wrong or figures.crashed else 0)


if __name__ == "__main__":
    main()
