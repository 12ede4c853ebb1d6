"""Random primitive sequences keep the bits or are refused with a message."""

from __future__ import annotations

import pytest

from tests.schedule.bits import require_same_bits
from tests.schedule.random_schedules import WEIGHTS, Sample, acceptance, random_schedules


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
