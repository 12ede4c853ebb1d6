"""Random primitive sequences keep the bits or are refused with a message."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule import PRIMITIVES, create_schedule
from tensorir.layout import Dim, Layout
from tests.schedule.bits import require_same_bits
from tests.schedule.campaign import campaign
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


def test_every_primitive_is_tried_and_accepted() -> None:
    samples = list(random_schedules(21, 250, steps=12))
    accepted = {name for name, (good, _) in acceptance(samples).items() if good}
    assert accepted == set(WEIGHTS)
    assert set(WEIGHTS) == set(PRIMITIVES) - {"async_copy"}  # shared memory of a GPU alone: tests/targets


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


def test_a_sample_of_the_campaign() -> None:
    found = campaign(60, first=3_000, most_filling=0, thorough=True)
    assert found.cases == 60 and found.random_computes > 15
    assert not found.wrong and not found.crashed, found.report()


def test_crashes_and_wrong_results_are_counted() -> None:
    def outcome(seed: int, only: object, thorough: bool) -> dict[str, object]:
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": seed, "only": only, **({"wrong": "AssertionError: differs"} if seed == 5 else {})}

    with mock.patch("tests.schedule.campaign._outcome", outcome):
        found = campaign(8, most_filling=0)
    assert (found.cases, [w[0] for w in found.wrong], [c[0] for c in found.crashed]) == (8, [5], [3])
    assert "SIGKILL" in found.report() and "--seed 5" in found.report()


@pytest.mark.slow
def test_twenty_thousand_pairs() -> None:
    state = os.environ.get("NESTOR_CAMPAIGN")  # a file that keeps what was done, so that the next run goes on
    found = campaign(20_000, state=Path(state) if state else None)
    print(found.report())
    assert not found.wrong and not found.crashed
    assert found.cases >= 20_000 and found.share() >= 0.4
    assert set(found.tried) == set(WEIGHTS) and not found.rare()
