"""Random primitive sequences keep the bits or are refused with a message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule import create_schedule
from tensorir.layout import Dim, Layout
from tests.schedule.bits import require_same_bits
from tests.schedule.random_schedules import PROGRAMS, WEIGHTS, Sample, acceptance, random_schedules


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


@pytest.mark.slow
def test_each_primitive_five_hundred_times() -> None:
    samples = list(random_schedules(2, 2500, steps=10))
    counts = acceptance(samples)
    number = 3
    while any(counts.get(name, (0, 0))[1] < 500 for name in WEIGHTS):
        rare = tuple(name for name in WEIGHTS if counts.get(name, (0, 0))[1] < 500)
        samples += random_schedules(number, 200, steps=10, only=(*rare, "split"))
        counts = acceptance(samples)
        number += 1
    _check(samples)
    assert sum(a for a, _ in counts.values()) >= 0.4 * sum(t for _, t in counts.values()), counts
    print("\n".join(f"{name}: {a} of {t}" for name, (a, t) in counts.items()))
