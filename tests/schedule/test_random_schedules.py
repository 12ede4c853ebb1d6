"""Random primitive sequences keep the bits or are refused with a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule import PRIMITIVES, create_schedule
from tensorir.layout import Dim, Layout
from tensorir.passes.check_registers import RegisterError
from tensorir.target import Target
from tests.schedule.bits import require_same_bits
from tests.schedule.random_schedules import PROGRAMS, WEIGHTS, Sample, acceptance, pairs, random_schedules
from tests.schedule.test_lowered import _check as check_lowered


def _check(samples: list[Sample]) -> None:
    for sample in samples:
        for name, accepted, message in sample.attempts:
            assert accepted or message.startswith(f"{name}("), message
        require_same_bits(sample.schedule, sample.dims)


def test_random_schedules_keep_bits() -> None:
    samples = list(random_schedules(1, 60))
    _check(samples)
    counts = acceptance(samples)
    assert sum(a for a, _ in counts.values()) >= 0.4 * sum(t for _, t in counts.values()), counts


def test_every_primitive_is_tried_and_accepted() -> None:
    samples = list(random_schedules(21, 250, steps=12))
    accepted = {name for name, (good, _) in acceptance(samples).items() if good}
    assert accepted == set(WEIGHTS)
    assert set(WEIGHTS) == set(PRIMITIVES)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_random_schedule_keeps_bits(seed: int) -> None:
    _check(list(random_schedules(seed, 1, steps=12)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_traces_replay_to_the_same_program(seed: int) -> None:
    for sample in random_schedules(seed, 1, steps=12):
        make = next(p for p in PROGRAMS if p.__name__ == sample.program)
        again = create_schedule(make()[0])
        exec("\n".join(sample.schedule.trace), {"s": again, "Layout": Layout, "Dim": Dim})
        assert str(again) == str(sample.schedule)


def campaign(seed: int, count: int, *, native_every: int = 4, log: Callable[[str], None] = print) -> list[Sample]:
    """`count` random schedules, each compared on the interpreter, every so many in native code too; then as many more
    as each ordered pair of primitives needs to be met 20 times. Raises at the first wrong one."""
    samples: list[Sample] = []

    def take(made: Iterator[Sample]) -> None:
        for sample in made:
            _check([sample])
            if len(samples) % native_every == 0:
                try:
                    check_lowered(sample, Target.parse("llvm"), native=True)
                except RegisterError:  # the index of a register must be constant; the message says which loop to unroll
                    pass
            samples.append(sample)
            if len(samples) % 1000 == 0:
                log(f"{len(samples)} schedules")

    take(random_schedules(seed, count, steps=12))
    for number in range(200):
        met = pairs(samples)
        rare = [(a, b) for a in WEIGHTS for b in WEIGHTS if met[a, b] < 20]
        if not rare:
            break
        wanted = rare[number % len(rare)]
        take(random_schedules(seed + 1 + number, 60, steps=12, only=(*wanted, "compute_at", "cache_read")))
    return samples


def report(samples: list[Sample]) -> str:
    """Acceptance by primitive and over all, and the pair of primitives that was met least."""
    counts, met = acceptance(samples), pairs(samples)
    accepted, tried = sum(a for a, _ in counts.values()), sum(t for _, t in counts.values())
    least = min((met[a, b], a, b) for a in WEIGHTS for b in WEIGHTS)
    lines = [f"{name:24} {a:6} of {t:6}  {100 * a / t:3.0f} %" for name, (a, t) in counts.items()]
    lines.append(f"{'all':24} {accepted:6} of {tried:6}  {100 * accepted / tried:3.0f} % in {len(samples)} schedules")
    lines.append(f"the least ordered pair: {least[1]}, {least[2]}: {least[0]} times")
    return "\n".join(lines)


@pytest.mark.slow
def test_twenty_thousand_pairs() -> None:
    samples = campaign(2, 20_000)
    print(report(samples))
    counts = acceptance(samples)
    assert sum(a for a, _ in counts.values()) >= 0.4 * sum(t for _, t in counts.values())
    assert set(counts) == set(WEIGHTS) and min(pairs(samples)[a, b] for a in WEIGHTS for b in WEIGHTS) >= 20
