"""Warps: reductions by shuffles, memory spread over lanes, and what the sanitiser says of shuffles."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import create_schedule
from targets.build import build
from targets.cuda.compile import compile_cuda, has_compiler
from tensorir import te
from tensorir.interpreter import SanitizerError, interpret
from tensorir.parser import parse_func
from tensorir.passes.pipeline import lower, thread_form
from tensorir.passes.thread_axes import ThreadError, is_barrier
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.visit import walk_stmt
from tests.targets.gpu_programs import F, Program, argmax, check, outputs_of, pooled_mean, row_reduction, two_axes

CUDA = Target.parse("cuda -arch=sm_80")


def run(program: Program) -> tuple[int, int]:
    """Checked values in both forms; how many shuffles and barriers there are."""
    func = program.schedule.func(program.args, "f")
    threads = thread_form(func, CUDA)
    for form in (threads, lower(func, CUDA, check=True)):
        outputs = outputs_of(program)
        interpret(form, [*program.inputs, *outputs], mode="checked", complete=True)
        check(program, outputs)
    return repr(threads).count("shuffle"), sum(is_barrier(s) for s in walk_stmt(threads.body))


@pytest.mark.parametrize(
    ("threads", "shuffles"), [(1, 0), (2, 1), (3, 2), (5, 3), (8, 3), (None, 4), (16, 4), (31, 5), (32, 5)]
)
def test_the_threads_of_one_warp_reduce_by_shuffles_alone(threads: int | None, shuffles: int) -> None:
    assert run(row_reduction("max", n=2, m=11, threads=threads)) == (min(shuffles, 4) if threads else 4, 0)


def test_whole_warps_need_five_steps() -> None:
    assert run(row_reduction("sum", n=2, m=70, threads=32)) == (5, 0)


@pytest.mark.parametrize(("m", "threads"), [(96, 128), (100, 33), (77, 77), (130, 64), (1000, None)])
def test_several_warps_meet_once_in_shared_memory(m: int, threads: int | None) -> None:
    shuffles, barriers = run(row_reduction("sum", n=2, m=m, threads=threads))
    assert barriers == 1 and shuffles > 5


def test_guards_several_axes_and_pairs_of_values() -> None:
    assert run(pooled_mean(threads=16)) == (4, 0)
    assert run(two_axes(4, 8)) == (5, 0)
    assert run(two_axes(4, 10))[1] == 1
    assert run(argmax(threads=5)) == (6, 0)


def rows_of_threads(width: int, rows: int = 3, m: int = 19) -> Program:
    """Each row of threads reduces a row of the matrix."""
    x = te.placeholder((rows * 2, m), name="X")
    k = te.reduce_axis(m, "k")
    out = te.compute((rows * 2,), lambda i: te.sum(x[i, k], axis=k), name="out")
    s = create_schedule(out)
    block, row = s[out].split(s[out].axis[0], factor=rows)
    _, lane = s[out].split(s[out].reduce_axis[0], factor=width)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(row, "threadIdx.y")
    s[out].bind(lane, "threadIdx.x")
    a = np.random.default_rng(0).integers(-9, 9, (rows * 2, m)).astype(F)
    return Program(s, [x, out], [a], [a.sum(1)])


@pytest.mark.parametrize(("width", "by_shuffles"), [(8, True), (16, True), (32, True), (5, False), (12, False)])
def test_rows_of_threads_are_parts_of_warps_only_where_they_fit(width: int, by_shuffles: bool) -> None:
    shuffles, barriers = run(rows_of_threads(width, m=40))
    assert (shuffles > 0, barriers == 0) == (by_shuffles, by_shuffles)


def reversed_lanes(lanes: int = 20, width: int | None = None) -> tuple[te.Tensor, te.Tensor, Program]:
    x = te.placeholder((4, lanes), name="X")
    out = te.compute((4, lanes), lambda i, j: x[i, lanes - 1 - j] * 2.0 + x[i, 0], name="out")
    s = create_schedule(out)
    held = s.cache_read(x, "warp", [out])
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.x")
    s[held].compute_at(s[out], s[out].axis[0])
    inner = s[held].axis[1]
    if width is not None:
        _, inner = s[held].split(inner, factor=width)
    s[held].bind(inner, "threadIdx.x")
    a = np.random.default_rng(1).standard_normal((4, lanes)).astype(F)
    return x, out, Program(s, [x, out], [a], [a[:, ::-1] * F(2) + a[:, :1]])


@pytest.mark.parametrize("lanes", [1, 2, 20, 32])
def test_memory_spread_over_lanes_is_read_by_shuffles(lanes: int) -> None:
    shuffles, barriers = run(reversed_lanes(lanes)[2])
    assert (shuffles, barriers) == (0 if lanes == 1 else 2, 0)


def test_without_warps_it_is_shared_memory() -> None:
    program = reversed_lanes()[2]
    text = repr(thread_form(program.schedule.func(program.args, "f"), Target.parse("opencl")))
    assert "@shared" in text and "shuffle" not in text and text.count("barrier") == 1


def test_lanes_write_no_element_of_another() -> None:
    program = reversed_lanes(20, width=5)[2]
    with pytest.raises(ThreadError, match=r"X_warp\[.*\] is in warp memory, but lanes write other elements"):
        thread_form(program.schedule.func(program.args, "f"), CUDA)


def kernel(threads: int, body: str) -> Func:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return parse_func(
        f"func f(A: float32[64], C: float32[64]) outputs 1 attrs(thread_form=True):\n"
        f"  for t in 0..{threads} thread 'threadIdx.x':\n{lines}"
    )


def sanitize(func: Func) -> np.ndarray:
    out = np.zeros(64, F)
    interpret(func, [np.arange(64, dtype=F), out], mode="checked")
    return out


def test_a_shuffle_gives_the_value_of_the_lane_named() -> None:
    body = "let v: float32 = shuffle(A[t], (t + 1) % 8, True, 8):\n  C[t] = v"
    found = sanitize(kernel(24, body))
    wanted = np.arange(24).reshape(3, 8)
    np.testing.assert_array_equal(found[:24], np.roll(wanted, -1, axis=1).ravel())
    body = "let v: float32 = shuffle_down(A[t], 3, t + 3 < 24, 32):\n  if t + 3 < 24:\n    C[t] = v"
    np.testing.assert_array_equal(sanitize(kernel(24, body))[:21], np.arange(3, 24))


def test_a_shuffle_in_divergent_code_is_told() -> None:
    body = "if t < 5:\n  let v: float32 = shuffle_down(A[t], 1, True, 32):\n    C[t] = v"
    with pytest.raises(SanitizerError, match="divergence: thread 0 of threadIdx.x is at a shuffle, to which lane 5"):
        sanitize(kernel(24, body))
    half = "if t < 16:\n  let v: float32 = shuffle(A[t], (t + 1) % 16, True, 16):\n    C[t] = v"
    assert sanitize(kernel(24, half))[:2].tolist() == [1, 2]  # all lanes of a segment come


def test_a_shuffle_from_a_lane_that_does_not_run_is_told() -> None:
    body = "let v: float32 = shuffle_down(A[t], 8, t < 8, 16):\n  C[t] = v"
    with pytest.raises(SanitizerError, match="lane 3 reads lane 11 of its warp, of which 11 lanes run"):
        sanitize(kernel(11, body))


def test_a_shuffle_that_brings_nothing_is_not_used() -> None:
    body = "let v: float32 = shuffle_down(A[t], 3, t + 3 < 8, 32):\n  C[t] = v + 1.0"
    with pytest.raises(SanitizerError, match="the result of a shuffle is used by a lane that no other brings a value"):
        sanitize(kernel(8, body))


def test_a_shuffle_of_what_a_lane_never_wrote_is_told() -> None:
    body = (
        "alloc P: float32[1] @local:\n  if t < 4:\n    P[0] = A[t]\n"
        "  let v: float32 = shuffle_down(P[0], 2, t < 4, 32):\n    C[t] = v"
    )
    with pytest.raises(SanitizerError, match="lane 2 reads what lane 4 of its warp never wrote"):
        sanitize(kernel(8, body))


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
def test_the_masks_name_the_lanes_that_run() -> None:
    texts = {}
    for threads in (5, 32, 40):
        program = row_reduction("sum", n=2, m=96, threads=threads)
        texts[threads] = build(program.schedule, program.args, target=CUDA, name=f"row{threads}").source("cuda")
        assert compile_cuda(texts[threads], "sm_75").resources[f"row{threads}"].spill_loads == 0
    assert "__shfl_down_sync(0x1fu, out_parts[0], 2, 32)" in texts[5]
    assert "__shfl_down_sync(0xffffffffu, out_parts[0], 16, 32)" in texts[32]
    assert "const u32 segment = (first + 32 <= 40 ? 0xffffffffu : 0xffu) << (first & 31u);" in texts[40]
    program = rows_of_threads(8)
    text = build(program.schedule, program.args, target=CUDA, name="rows").source("cuda")
    assert "__shfl_down_sync(segment, out_parts[0], 4, 8)" in text and "0xffu << (first & 31u)" in text
