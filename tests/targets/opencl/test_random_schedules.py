"""Random GPU schedules: the unscheduled program, the scheduled one, its threads with barriers, and OpenCL agree."""

from __future__ import annotations

import os

import pytest

from schedule import ScheduleError, create_schedule
from tensorir import te
from tests.targets.opencl.campaign import Wrong, in_child, run_campaign

pytest.importorskip("pyopencl")


def test_a_sample_of_random_schedules() -> None:
    """Each in a process of its own; a fault of the device would be named by `tests.targets.opencl.campaign`."""
    verdicts = run_campaign(2, 21)
    assert not [v for v in verdicts if v["verdict"] not in ("ok", "refused")], verdicts
    assert sum(v["verdict"] == "ok" for v in verdicts) >= 12


def test_barriers_in_three_nested_loops() -> None:
    """PoCL 3.0 loses what a thread keeps over a barrier if it was set under a condition, so it does not optimise it."""
    assert run_campaign(1, 1, first=18) == [{"name": "int_convolution 1.18", "verdict": "ok"}]


def test_what_hangs_dies_or_is_wrong_is_told_apart() -> None:
    def spin() -> None:
        while True:
            pass

    def wrong() -> None:
        raise Wrong("opencl", "other bits")

    assert in_child(lambda: None, 5) == ("ok", "")
    assert in_child(spin, 1)[0] == "hangs"
    assert in_child(os.abort, 5) == ("dies", "SIGABRT")
    assert in_child(wrong, 5)[0] == "wrong opencl"


def test_threads_that_reduce_together_must_all_be_there() -> None:
    """Two of six threads would have summed: found by sample softmax 7.1034."""
    x = te.placeholder((4, 6), name="X")
    k = te.reduce_axis(6, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((4,), lambda i: total[i] * 2.0, name="out")
    s = create_schedule(out)
    outer, inner = s[out].split("i", factor=2)
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[total].compute_at(s[out], inner)
    s[total].set_scope("shared")
    with pytest.raises(ScheduleError, match="needs 6 threads to reduce together, but i_i around it has 2 of them"):
        s[total].bind(s[total].reduce_axis[0], "threadIdx.x")


@pytest.mark.slow
def test_two_thousand_random_schedules() -> None:
    verdicts = [line["verdict"].split()[0] for line in run_campaign(7, 3000)]
    assert set(verdicts) <= {"ok", "refused", "device"}
    assert verdicts.count("ok") >= 2000
