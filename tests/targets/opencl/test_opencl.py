"""GPU programs on PoCL: numpy's values, the interpreter's bits, and silence of the sanitiser."""

from __future__ import annotations

import numpy as np
import pytest

from targets.build import build
from tests.targets.gpu_programs import PROGRAMS, check, outputs_of

pytest.importorskip("pyopencl")


@pytest.mark.parametrize("name", PROGRAMS)
def test_opencl_gives_the_values_of_numpy_and_the_bits_of_the_threads(name: str) -> None:
    program = PROGRAMS[name]()
    kernel = build(program.schedule, program.args, target="opencl", name=name)
    outputs = outputs_of(program)
    kernel(*program.inputs, *outputs)
    check(program, outputs)
    kernel.sanitize(*program.inputs, *outputs_of(program))
    lowered = outputs_of(program)
    from tensorir.interpreter import interpret
    from tensorir.passes.pipeline import lower

    interpret(lower(kernel.func, kernel.target, check=True), [*program.inputs, *lowered])
    for got, wanted in zip(outputs, lowered, strict=True):
        assert got.tobytes() == wanted.tobytes()


def test_interpreted_before_lowering_the_program_means_the_same() -> None:
    for name, make in PROGRAMS.items():
        program = make()
        outputs = outputs_of(program)
        build(program.schedule, program.args, target="reference")(*program.inputs, *outputs)
        check(program, outputs)
        assert name


def test_a_kernel_is_called_with_views_and_scalars() -> None:
    program = PROGRAMS["elementwise"]()
    kernel = build(program.schedule, program.args, target="opencl")
    wide = np.zeros(2 * program.inputs[0].size, np.float32)
    wide[::2] = program.inputs[0]
    (out,) = outputs_of(program)
    kernel(wide[::2], out)
    np.testing.assert_array_equal(out, program.wanted[0])
