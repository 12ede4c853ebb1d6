"""Advice on accesses: bank conflicts and transactions, at examples whose numbers are known."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import create_schedule
from targets.advice import Advice, advise
from targets.build import build
from tensorir import te
from tensorir.errors import UserError
from tensorir.parser import parse_func
from tensorir.target import Target
from tests.targets.gpu_programs import F, Program, elementwise, outputs_of, transpose

CUDA = Target.parse("cuda -arch=sm_80")


def advice_on(program: Program) -> dict[str, Advice]:
    """By "read" or "write" and the buffer."""
    kernel = build(program.schedule, program.args, target=CUDA, name="f")
    found = kernel.advice(*program.inputs, *outputs_of(program))
    return {f"{a.access.split()[0]} {a.buffer}": a for a in found}


def columns(aligned: bool) -> Program:
    """Each thread sums a row of a tile of 32 x 32: at each step the lanes read a column."""
    x = te.placeholder((32, 32), name="X")
    k = te.reduce_axis(32, "k")
    out = te.compute((32,), lambda i: te.sum(x[i, k], axis=k), name="out")
    s = create_schedule(out)
    tile = s.cache_read(x, "shared", [out])
    outer, inner = s[out].split("i", factor=32)
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[tile].compute_at(s[out], outer)
    s[tile].bind(s[tile].axis[1], "threadIdx.x")
    if aligned:
        s[tile].storage_align(s[tile].axis[0], 32, 1)
    a = np.random.default_rng(0).standard_normal((32, 32)).astype(F)
    return Program(s, [x, out], [a], [a.sum(1)], 1e-5)


def test_a_column_of_a_tile_of_32_is_one_bank_and_alignment_spreads_it() -> None:
    found = advice_on(columns(False))
    read = found["read X_shared"]
    assert (read.degree, read.warps, read.is_bad) == (32, 32, True)
    assert "32-way bank conflict" in str(read) and "storage_align" in str(read)
    assert found["write X_shared"].degree == 1 and not found["read X"].is_bad
    read = advice_on(columns(True))["read X_shared"]
    assert (read.degree, read.is_bad) == (1, False) and "no bank conflict" in str(read)


def naive_transpose(n: int = 32) -> Program:
    x = te.placeholder((n, n), name="X")
    out = te.compute((n, n), lambda i, j: x[j, i], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.x")
    a = np.random.default_rng(0).standard_normal((n, n)).astype(F)
    return Program(s, [x, out], [a], [a.T.copy()])


def test_a_transpose_reads_a_sector_a_lane_until_it_goes_through_a_tile() -> None:
    found = advice_on(naive_transpose())
    assert (found["read X"].transactions, found["read X"].fewest) == (32, 4)
    assert (found["write out"].transactions, found["write out"].fewest) == (4, 4)
    assert found["read X"].is_bad and "32 transactions of 32 bytes where 4 hold the bytes" in str(found["read X"])
    tiled = advice_on(transpose(32, 32, 32))
    assert (tiled["read A"].transactions, tiled["write C"].transactions) == (4, 4)
    assert not any(a.is_bad for a in tiled.values())


def kernel_advice(body: str, lanes: int = 32) -> dict[str, Advice]:
    lines = "".join(f"      {line}\n" for line in body.splitlines())
    func = parse_func(
        "func f(A: float32[256], C: float32[256]) outputs 1:\n"
        f"  for t in 0..{lanes} thread 'threadIdx.x':\n    for u in 0..1:\n{lines}"
    )
    found = advise(func, CUDA, [np.ones(256, F), np.zeros(256, F)])
    return {f"{a.access.split()[0]} {a.buffer}": a for a in found}


@pytest.mark.parametrize(("stride", "degree", "sectors"), [(1, 1, 4), (2, 2, 8), (4, 4, 16), (8, 8, 32), (3, 1, 12)])
def test_strides(stride: int, degree: int, sectors: int) -> None:
    body = f"alloc S: float32[256] @shared:\n  S[t * {stride}] = 1.0\n  C[t * {stride}] = S[t * {stride}]"
    found = kernel_advice(body)
    assert found["write S"].degree == found["read S"].degree == degree
    assert (found["write C"].transactions, found["write C"].fewest) == (sectors, 4)


def test_one_word_for_all_lanes_is_no_conflict() -> None:
    body = "alloc S: float32[256] @shared:\n  S[t] = 1.0\n  C[t] = S[0] + A[7]"
    found = kernel_advice(body)
    assert found["read S"].degree == 1 and not found["read S"].is_bad
    assert (found["read A"].transactions, found["read A"].fewest) == (1, 1)


def test_four_words_a_lane_are_served_a_quarter_of_a_warp_at_a_time() -> None:
    x = te.placeholder((128,), name="X")
    out = te.compute((128,), lambda i: x[i] * 2.0, name="out")
    s = create_schedule(out)
    tile = s.cache_read(x, "shared", [out])
    outer, inner = s[out].split("i", factor=32)
    s[out].bind(inner, "threadIdx.x")
    s[tile].compute_root()
    s[out].reorder(inner, outer)
    s[tile].compute_at(s[out], inner)
    thread, lane = s[tile].split(s[tile].axis[0], factor=4)
    s[tile].bind(thread, "threadIdx.x")
    s[tile].vectorize(lane)
    a = np.ones(128, F)
    found = advice_on(Program(s, [x, out], [a], [a * F(2)]))
    assert (found["read X"].transactions, found["read X"].fewest, found["write X_shared"].degree) == (16, 16, 1)


def test_advice_is_for_gpus() -> None:
    program = elementwise()
    kernel = build(program.schedule, program.args, target="opencl")
    assert all(isinstance(a, Advice) for a in kernel.advice(*program.inputs, *outputs_of(program)))
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    with pytest.raises(UserError, match="there is advice for kernels of a GPU only"):
        build(y, [x, y], target="llvm").advice(np.ones(4, F), np.ones(4, F))
