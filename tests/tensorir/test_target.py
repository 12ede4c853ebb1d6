"""Target strings: facts, round trips, and what a user gets wrong."""

from __future__ import annotations

import pytest

from tensorir import dtypes
from tensorir.target import CPUS, Target, TargetError

GOOD = [
    "llvm",
    "llvm -mcpu=znver4",
    "llvm -mcpu=x86-64-v3 -mattr=-fma,+avx512f",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -cores=4 -l2=524288",
    "reference",
    "cuda -arch=sm_90",
    "opencl -max-threads=128",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_target_prints_as_a_string_that_parses_to_it(text: str) -> None:
    target = Target.parse(text)
    assert str(target) == text
    assert Target.parse(str(target)) == target
    assert Target.parse(target) is target


@pytest.mark.parametrize("cpu", CPUS)
def test_every_known_cpu_parses_and_has_vectors(cpu: str) -> None:
    target = Target.parse(f"llvm -mcpu={cpu}")
    assert target.vector_bits in (128, 256, 512)
    assert target.vector_registers in (16, 32)


def test_facts_follow_cpu_and_features() -> None:
    zen = Target.parse("llvm -mcpu=znver4")
    assert (zen.vector_bits, zen.vector_registers, zen.masked_memory, zen.fma) == (512, 32, True, True)
    assert zen.lanes(dtypes.float32) == 16
    assert zen.channel_block == 16
    assert zen.has_masked_memory(dtypes.int8)
    haswell = Target.parse("llvm -mcpu=haswell")
    assert (haswell.vector_bits, haswell.vector_registers) == (256, 16)
    assert haswell.has_masked_memory(dtypes.float32) and not haswell.has_masked_memory(dtypes.int8)
    baseline = Target.parse("llvm -mcpu=x86-64")
    assert (baseline.vector_bits, baseline.masked_memory, baseline.fma) == (128, False, False)
    assert Target.parse("llvm -mcpu=x86-64 -mattr=+avx512f").vector_bits == 512
    assert not Target.parse("llvm -mcpu=haswell -mattr=-fma").fma
    arm = Target.parse("llvm -mtriple=aarch64-linux-gnu")
    assert (arm.arch, arm.vector_bits, arm.vector_registers, arm.fma) == ("aarch64", 128, 32, True)
    assert Target.parse("llvm -mcpu=sapphirerapids").native_float16
    assert Target.parse("llvm").mcpu == "host"


def test_gpu_targets_parse_as_data() -> None:
    cuda = Target.parse("cuda -arch=sm_90")
    assert cuda.gpu and cuda.arch == "sm_90" and cuda.max_threads == 1024 and cuda.native_bfloat16
    assert Target.parse("opencl").gpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lvm", "unknown target 'lvm'\nhelp: known targets are llvm, reference, cuda, opencl"),
        ("", "an empty target string"),
        ("llvm -mcpi=znver4", "target llvm: unknown option -mcpi\nhelp: the options of llvm are -mtriple, -mcpu"),
        ("llvm -mcpu=zen9", "unknown CPU 'zen9'\nhelp: known are host, x86-64,"),
        ("llvm znver4", "'znver4' is not an option"),
        ("llvm -mattr=avx2", "must begin with + or -"),
        ("llvm -cores=0", "a whole number above 0"),
        ("llvm -mtriple=sparc-linux", "no code is generated for the triple"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4", "the CPU znver4 is x86_64, but the triple"),
        ("reference -mcpu=znver4", "reference has no options"),
        ("cuda -arch=90", "unknown architecture '90'"),
    ],
)
def test_a_wrong_target_says_what_is_known(text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse(text)
    assert message in str(caught.value)
