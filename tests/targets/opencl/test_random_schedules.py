"""Random GPU schedules: the unscheduled program, the scheduled one, its threads with barriers, and OpenCL agree."""

from __future__ import annotations

import numpy as np
import pytest

from targets.build import build
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import lower, thread_form
from tensorir.passes.thread_axes import ThreadError
from tensorir.te import create_func
from tests.schedule.bits import make_arrays
from tests.targets.opencl.random_gpu_schedules import Sample, random_gpu_schedules

pytest.importorskip("pyopencl")


def sweep(seed: int, count: int) -> tuple[int, int]:
    """Runs samples; how many ran and how many a limit or an axis refused."""
    ran = refused = 0
    for sample in random_gpu_schedules(seed, count):
        try:
            check(sample, checked=ran % 5 == 0)
            ran += 1
        except ThreadError:
            refused += 1
    return ran, refused


def check(sample: Sample, *, checked: bool, device: bool = True) -> None:
    args = [*sample.dims, *sample.schedule.inputs, *sample.outputs]
    func = sample.schedule.func(args, "fuzz")
    kernel = build(func, target="opencl")
    given = make_arrays(func, sample.dims)
    first = len(given) - func.outputs
    dims = {d: sample.dims[d] for d in func.dims}

    def outputs(run: object) -> list[np.ndarray]:
        arrays = [*given[:first], *[a.copy() for a in given[first:]]]
        run(arrays)  # type: ignore[operator]
        return arrays[first:]

    plain = create_func(args[len(sample.dims) :], "plain")
    wanted = outputs(lambda a: interpret(plain, a, {d: sample.dims[d] for d in plain.dims}))
    found = {
        "interpreted": outputs(lambda a: interpret(func, a, dims)),
        "lowered": outputs(lambda a: interpret(lower(func, kernel.target), a, dims)),
    }
    if device:
        found["opencl"] = outputs(lambda a: kernel(*a))
    if checked:
        threads = thread_form(func, kernel.target)
        found["threads"] = outputs(lambda a: interpret(threads, a, dims, mode="checked", complete=True))
    for what, arrays in found.items():
        for got, right in zip(arrays, wanted, strict=True):
            message = f"{sample.name}: {what}\n{sample.schedule.trace}"
            if sample.exact:
                assert got.tobytes() == right.tobytes(), message
            else:
                np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5, err_msg=message)
    for got, same in zip(found.get("opencl", []), found["lowered"], strict=device):
        assert got.tobytes() == same.tobytes(), f"{sample.name}: OpenCL and the interpreter"


def test_a_sample_of_random_schedules() -> None:
    ran, _ = sweep(2, 21)
    assert ran >= 12


def test_barriers_in_three_nested_loops() -> None:
    """PoCL 3.0 never comes back from this one, so that the interpreter alone runs its threads and barriers."""
    [*_, sample] = random_gpu_schedules(1, 19)
    assert sample.name == "int_convolution 1.18"
    check(sample, checked=True, device=False)


@pytest.mark.slow
def test_two_thousand_random_schedules() -> None:
    ran, refused = sweep(7, 2400)
    assert ran >= 2000, refused
