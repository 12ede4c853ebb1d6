"""CUDA sources: goldens for a fixed list (written anew where NESTOR_UPDATE_GOLDENS is set), compiled for three
architectures with what they need, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from targets.build import build
from targets.c_family.dialect import CUDA, OPENCL
from targets.c_family.printer import emit
from targets.c_family.program import device_program
from targets.cuda.compile import CudaError, compile_cuda, has_compiler, parse_resources
from targets.cuda.driver import open_device
from tensorir.passes.pipeline import lower
from tensorir.target import Target
from tests.targets.gpu_programs import PROGRAMS, outputs_of

GOLDENS = Path(__file__).parent / "goldens"
BARRIERS = {
    "elementwise": 0, "matmul": 2, "transpose": 1, "two_extents": 1, "row_reduction": 0, "virtual_threads": 0,
    "conv2d": 1, "softmax": 2, "layer_norm": 2, "argmax": 0, "prefix_sum": 0, "dp4a_matmul": 0, "mma_matmul": 2,
    "async_matmul": 1,
}  # fmt: skip
"""The kernels with goldens and the barriers of each; that none is needless shows tests/targets/test_gpu_sanitize.py."""
FIXED = (
    *((name, "cuda") for name in BARRIERS),
    *((name, "opencl") for name in tuple(BARRIERS)[:6]),
)


def _source(name: str, target: str) -> str:
    program = PROGRAMS[name]()
    text = build(program.schedule, program.args, target=target, name=name).source(target.split()[0])
    return text[text.index("__kernel" if target == "opencl" else 'extern "C"') :]


@pytest.mark.parametrize(("name", "target"), FIXED)
def test_sources_are_the_goldens(name: str, target: str) -> None:
    path = GOLDENS / f"{name}.{'cu' if target == 'cuda' else 'cl'}"
    text = _source(name, target)
    if os.environ.get("NESTOR_UPDATE_GOLDENS"):
        path.write_text(text)
    assert text == path.read_text()
    if target == "cuda":
        assert text.count("__syncthreads()") == BARRIERS[name]


def test_emission_is_pure() -> None:
    program = PROGRAMS["matmul"]()
    func = program.schedule.func(program.args, "matmul")
    flat = lower(func, Target.parse("cuda"))
    for dialect in (CUDA, OPENCL):
        assert emit(device_program(flat), dialect) == emit(device_program(flat), dialect)


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_every_program_compiles_and_tells_its_resources(arch: str) -> None:
    programs = []
    for name, make in PROGRAMS.items():
        program = make()
        func = program.schedule.func(program.args, name)
        programs.append(device_program(lower(func, Target.parse(f"cuda -arch={arch}"))))
    found = compile_cuda(emit(programs, CUDA), arch).resources
    assert set(found) == {k.name for p in programs for k in p.kernels}
    assert all(r.registers > 0 and r.spill_loads == r.spill_stores == 0 for r in found.values())
    assert found["matmul"].shared == 2 * 16 * 4


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
def test_a_kernel_tells_its_resources_and_needs_a_device_to_run() -> None:
    program = PROGRAMS["matmul"]()
    kernel = build(program.schedule, program.args, target="cuda -arch=sm_80", name="matmul")
    assert kernel.resources["matmul"].shared == 128
    try:
        open_device()
    except CudaError as error:
        assert "no CUDA device is here" in str(error) and "opencl" in str(error)
        with pytest.raises(CudaError, match="no CUDA device is here"):
            kernel(*program.inputs, *outputs_of(program))
    else:
        outputs = outputs_of(program)
        kernel(*program.inputs, *outputs)
        np.testing.assert_allclose(outputs[0], program.wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
def test_bad_source_shows_the_compilers_words() -> None:
    with pytest.raises(CudaError, match="refuses the kernel"):
        compile_cuda("__global__ void f() { undeclared = 1; }", "sm_80")


def test_resources_are_read_from_the_report() -> None:
    report = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_80'
ptxas info    : Function properties for f
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 29 registers, used 1 barriers, 16 bytes cumulative stack size, 512 bytes smem, 376 bytes cmem[0]
"""
    (found,) = parse_resources(report).values()
    assert (found.registers, found.spill_stores, found.spill_loads, found.shared, found.stack) == (29, 8, 12, 512, 16)
