"""Hard inputs from bug reports against compilers of GPU code, by the address of the report: values on PoCL, the threads
of the interpreter with and without warps, and source text where alignment or limits are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from schedule import ScheduleError, create_schedule
from targets.build import build
from tensorir import te
from tensorir.errors import UserError
from tensorir.passes.check_limits import LimitError
from tensorir.passes.thread_axes import ThreadError
from tests.targets.gpu_programs import PROGRAMS, Program, check, outputs_of, pooled_mean, row_reduction

pytest.importorskip("pyopencl")


def run(program: Program, *, sanitize: bool = True) -> str:
    """Compares with numpy on PoCL, and the threads of both targets with the program; the source."""
    kernel = build(program.schedule, program.args, target="opencl", name="case")
    outputs = outputs_of(program)
    kernel(*program.inputs, *outputs)
    check(program, outputs)
    if sanitize:
        kernel.sanitize(*program.inputs, *outputs_of(program))
        build(program.schedule, program.args, target="cuda", name="case").sanitize(
            *program.inputs, *outputs_of(program)
        )
    return kernel.source("opencl")


def shifted_copy(offset: int, n: int = 16, dtype: str = "float32", lanes: int = 4) -> Program:
    x = te.placeholder((n + 4,), dtype, name="X")
    out = te.compute((n,), lambda i: x[i + offset], name="out")
    s = create_schedule(out)
    outer, inner = s[out].split("i", factor=lanes)
    block, thread = s[out].split(outer, factor=2)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(thread, "threadIdx.x")
    s[out].vectorize(inner)
    a = np.arange(n + 4).astype(dtype)
    return Program(s, [x, out], [a], [a[offset : offset + n]])


@pytest.mark.parametrize(("offset", "is_wide"), [(0, True), (1, False), (2, False), (4, True)])
def test_wide_access_only_where_alignment_is_proved(offset: int, is_wide: bool) -> None:
    assert ("float4" in run(shifted_copy(offset))) == is_wide


def test_half_pairs_at_an_odd_offset_stay_scalar() -> None:  # apache/tvm#8540
    x = te.placeholder((1, 3), "float16", name="X")
    out = te.compute((1, 2), lambda i, j: x[i, j + 1], name="out")
    s = create_schedule(out)
    s[out].vectorize(s[out].axis[1])
    s[out].bind(s[out].axis[0], "threadIdx.x")
    a = np.array([[1, 2, 3]], np.float16)
    assert "ushort2" not in run(Program(s, [x, out], [a], [a[:, 1:]]))
    assert "ushort2" in run(shifted_copy(0, dtype="float16", lanes=2))


@pytest.mark.parametrize("threads", [None, 1, 2, 4, 5, 8, 16])
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_reductions_over_any_number_of_threads(kind: str, threads: int | None) -> None:  # apache/tvm#12274
    run(row_reduction(kind, n=3, m=11, threads=threads), sanitize=threads in (None, 5))


def test_reductions_with_a_guard_in_a_serial_loop() -> None:  # apache/tvm#12976
    run(pooled_mean(threads=16))


def test_wide_reduction_on_more_threads_than_it_divides_by() -> None:  # tile-ai/tilelang#2399
    run(row_reduction("sum", n=2, m=96, threads=128), sanitize=False)


@pytest.mark.parametrize("axis", ["blockIdx.y", "blockIdx.z"])
def test_large_extents_belong_on_grid_x(axis: str) -> None:  # apache/tvm#20106
    a = te.placeholder((65536,), name="A")
    c = te.compute((65536,), lambda i: a[i] + 1.0, name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], axis)
    with pytest.raises(LimitError, match=f"the loop i is bound to {axis} and runs over 65536 blocks") as caught:
        build(s, [a, c], target="opencl")
    assert "blockIdx.x" in str(caught.value)
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "blockIdx.x")
    x, out = np.zeros(65536, np.float32), np.full(65536, np.nan, np.float32)
    build(s, [a, c], target="opencl")(x, out)
    assert (out == 1).all()


def test_too_many_threads_and_too_much_shared_memory_are_named() -> None:
    a = te.placeholder((64, 64), name="A")
    c = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "threadIdx.y")
    s[c].bind(s[c].axis[1], "threadIdx.x")
    with pytest.raises(LimitError, match=r"a block has 4096 threads, j \(threadIdx.x, 64\) x i \(threadIdx.y, 64\)"):
        build(s, [a, c], target="cuda")
    s = create_schedule(c)
    shared = s.cache_read(a, "shared", [c])
    s[c].bind(s[c].axis[0], "threadIdx.x")
    s[shared].compute_at(s[c], s[c].axis[0])
    big = te.placeholder((200, 200), name="big")
    d = te.compute((200, 200), lambda i, j: big[j, i], name="D")
    s = create_schedule(d)
    shared = s.cache_read(big, "shared", [d])
    s[d].bind(s[d].axis[0], "threadIdx.x")
    s[shared].compute_at(s[d], s[d].axis[0])
    with pytest.raises(LimitError, match=r"bytes of shared memory \(big_shared 160000\)"):
        build(s, [big, d], target="opencl")


def test_the_third_axis_of_a_block_is_short() -> None:
    a = te.placeholder((65,), name="A")
    c = te.compute((65,), lambda i: a[i] + 1.0, name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "threadIdx.z")
    with pytest.raises(LimitError, match="the loop i is bound to threadIdx.z and runs over 65 threads, the most is 64"):
        build(s, [a, c], target="cuda")


def test_thread_extents_must_be_constant() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "threadIdx.x")
    with pytest.raises(LimitError, match="the loop i is bound to threadIdx.x and runs to n"):
        build(s, [n, a, c], target="opencl")


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65])
def test_symbolic_sizes_and_empty_launches(n: int) -> None:
    size = te.var("n")
    a = te.placeholder((size, 4), name="A")
    c = te.compute((size, 4), lambda i, j: te.const(0.0) - a[i, j], name="C")
    s = create_schedule(c)
    flat = s[c].fuse(*s[c].axis)
    outer, inner = s[c].split(flat, factor=64)
    s[c].bind(outer, "blockIdx.x")
    s[c].bind(inner, "threadIdx.x")
    x = np.arange(4 * n).reshape(n, 4).astype(np.float32)
    out = np.full((n, 4), np.nan, np.float32)
    build(s, [size, a, c], target="opencl")(x, out)
    np.testing.assert_array_equal(out, np.float32(0) - x)


def test_zero_sized_tensors_launch_nothing() -> None:  # apache/tvm#20278
    a = te.placeholder((0, 4), name="A")
    c = te.compute((0, 4), lambda i, j: te.const(0.0) - a[i, j], name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "blockIdx.x")
    s[c].bind(s[c].axis[1], "threadIdx.x")
    build(s, [a, c], target="opencl")(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))


def test_a_fused_take_keeps_its_index() -> None:  # apache/tvm#20421
    x, ids = te.placeholder((4, 4), "float16", name="X"), te.placeholder((1,), "int32", name="ids")
    y = te.compute((4, 4), lambda i, j: x[i, j] + te.const(1.0, "float16"), name="Y")
    out = te.compute((1, 4), lambda i, j: y[ids[0], j], name="out")
    s = create_schedule(out)
    s[y].compute_inline()
    s[out].bind(s[out].axis[1], "threadIdx.x")
    a = np.arange(16).reshape(4, 4).astype(np.float16)
    run(Program(s, [x, ids, out], [a, np.array([2], np.int32)], [a[2:3] + np.float16(1)]))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64", "bool"])
def test_selection_by_a_bool(dtype: str) -> None:  # halide/Halide#939, apache/tvm#14833
    a, b = te.placeholder((9,), dtype, name="A"), te.placeholder((9,), dtype, name="B")
    m = te.placeholder((9,), "bool", name="M")
    out = te.compute((9,), lambda i: te.select(m[i], a[i], b[i]), name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "threadIdx.x")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2, 9).astype(dtype) for _ in range(2))
    mask = rng.integers(0, 2, 9).astype(bool)
    run(Program(s, [a, b, m, out], [x, y, mask], [np.where(mask, x, y)]))


def test_a_comparison_as_a_byte_in_a_maximum() -> None:  # apache/tvm#11488, apache/tvm#2821
    a = te.placeholder((7,), "uint8", name="A")
    b = te.placeholder((7,), "int32", name="B")
    out = te.compute((7,), lambda i: te.maximum(a[i], te.cast(b[i] > 0, "uint8")), name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "threadIdx.x")
    x, y = np.array([0, 0, 1, 2, 0, 5, 0], np.uint8), np.array([1, -1, 1, 0, 5, -7, 0], np.int32)
    run(Program(s, [a, b, out], [x, y], [np.maximum(x, (y > 0).astype(np.uint8))]))


def test_integers_wrap_divide_and_shift_as_on_the_semantics_page() -> None:
    a, b = te.placeholder((8,), "int32", name="A"), te.placeholder((8,), "int32", name="B")
    outs = te.compute(
        (8,), lambda i: (a[i] * b[i], a[i] // b[i], a[i] % b[i], te.truncdiv(a[i], b[i]), a[i] << b[i]), name="out"
    )
    s = create_schedule(list(outs))
    s[outs[0]].bind(s[outs[0]].axis[0], "threadIdx.x")
    low = -(1 << 31)
    x = np.array([low, 7, -7, 7, -7, 1 << 30, 5, low], np.int32)
    y = np.array([-1, 3, 3, -3, -3, 31, 0, 1], np.int32)
    results = [np.full(8, 77, np.int32) for _ in outs]
    wanted = [r.copy() for r in results]
    build(s, [a, b, *outs], target="opencl")(x, y, *results)
    build(s, [a, b, *outs], target="reference")(x, y, *wanted)
    for got, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_every_operation(dtype: str) -> None:
    x = te.placeholder((3, 3, 3), dtype, name="X")
    out = te.compute((3, 3), lambda i, j: x[i, j, 0] * te.sqrt(x[j, i, 1]) + x[i, j, 2], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "threadIdx.x")
    a = (np.abs(np.random.default_rng(0).standard_normal((3, 3, 3))) * 9).astype(x.dtype.numpy)
    got, right = np.zeros((3, 3), x.dtype.numpy), np.ones((3, 3), x.dtype.numpy)
    build(s, [x, out], target="opencl")(a, got)
    build(s, [x, out], target="reference")(a, right)
    assert got.tobytes() == right.tobytes()


def test_stages_of_one_axis_with_other_extents() -> None:  # apache/tvm#17002
    run(PROGRAMS["two_extents"]())


@pytest.mark.parametrize(("wide", "narrow"), [(32, 16), (16, 8)])
def test_threads_along_y_of_two_stages(wide: int, narrow: int) -> None:  # apache/tvm#17002
    x = te.placeholder((2, wide), name="X")
    b = te.compute((2, wide), lambda i, j: x[i, j] * 2.0, name="B")
    out = te.compute((2, narrow), lambda i, j: b[i, wide - 1 - j] + b[i, j], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.y")
    s[b].set_scope("shared")
    s[b].compute_at(s[out], s[out].axis[0])
    s[b].bind(s[b].axis[1], "threadIdx.y")
    a = np.random.default_rng(0).standard_normal((2, wide)).astype(np.float32)
    y = a * np.float32(2)
    text = run(Program(s, [x, out], [a], [y[:, ::-1][:, :narrow] + y[:, :narrow]]))
    assert f"< {narrow}" in text


def test_a_reduction_in_a_loop_over_rows() -> None:  # apache/tvm#2937, apache/tvm#8931
    run(PROGRAMS["rows_in_turn"]())


def test_a_buffer_written_by_fewer_threads_than_read_it() -> None:  # tile-ai/tilelang#2957
    x = te.placeholder((256,), name="X")
    b = te.compute((256,), lambda i: x[i] + 1.0, name="B")
    out = te.compute((256,), lambda i: b[255 - i] * 2.0, name="out")
    s = create_schedule(out)
    outer, inner = s[out].split("i", factor=256)
    s[out].bind(outer, "blockIdx.x")
    s[out].bind(inner, "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[out], outer)
    _, narrow = s[b].split(s[b].axis[0], factor=100)
    s[b].bind(narrow, "threadIdx.x")
    a = np.arange(256, dtype=np.float32)
    run(Program(s, [x, out], [a], [(a[::-1] + 1) * 2]))


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_a_bound_known_at_the_call_in_a_vectorized_condition(n: int) -> None:  # tile-ai/tilelang#290
    size = te.var("n")
    x = te.placeholder((size,), name="X")
    out = te.compute((16,), lambda i: te.if_then_else(i < size - 1, x[i + 1], te.const(-1.0)), name="out")
    s = create_schedule(out)
    outer, inner = s[out].split("i", factor=4)
    s[out].bind(outer, "threadIdx.x")
    s[out].vectorize(inner)
    a = np.arange(n, dtype=np.float32) + 1
    got, wanted = np.full(16, np.nan, np.float32), np.full(16, -1, np.float32)
    wanted[: n - 1] = a[1:]
    kernel = build(s, [size, x, out], target="opencl")
    kernel(a, got)
    np.testing.assert_array_equal(got, wanted)
    kernel.sanitize(a, got)


def test_more_threads_inside_fewer_are_refused_by_name() -> None:
    x = te.placeholder((3, 12), name="X")
    b = te.compute((3, 12), lambda i, j: x[i, j] + 1.0, name="B")
    out = te.compute((3, 5), lambda i, j: b[i, j] + b[i, 11 - j], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[1], "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[out], s[out].axis[1])
    s[b].bind(s[b].axis[1], "threadIdx.x")
    with pytest.raises(ThreadError, match="runs over 12 threads inside the loop j over 5 of the same threads"):
        build(s, [x, out], target="opencl")


def test_nothing_is_computed_between_two_loops_over_blocks() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, 7 - j], name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "blockIdx.y")
    s[c].bind(s[c].axis[1], "blockIdx.x")
    s[b].compute_at(s[c], s[c].axis[0])
    with pytest.raises(ThreadError, match="B is computed between two loops over blocks"):
        build(s, [a, c], target="opencl")


def test_bindings_that_leave_work_out_are_refused() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, 7 - j], name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "threadIdx.x")
    s[b].compute_at(s[c], s[c].axis[0])
    with pytest.raises(ScheduleError, match="each thread would compute one part"):
        s[b].bind(s[b].axis[1], "threadIdx.x")
    with pytest.raises(ScheduleError, match="inside a loop that is bound to threads"):
        s[b].bind(s[b].axis[1], "blockIdx.x")
    with pytest.raises(ScheduleError, match="are both bound to threadIdx.x"):
        s[c].bind(s[c].axis[1], "threadIdx.x")


def plus_one(a: te.Tensor) -> Callable[..., Any]:
    return lambda i, j: a[i, j] + 1.0


def test_indices_take_64_bits_where_32_are_not_enough() -> None:
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    c = te.compute((n, 4), lambda i, j: a[i, j] + 1.0, name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "blockIdx.x")
    s[c].bind(s[c].axis[1], "threadIdx.x")
    assert "const i64 i = (i64)get_group_id(0)" in build(s, [n, a, c], target="opencl").source("opencl")
    for rows, wide in ((50000, False), (70000, True)):  # of 40000 elements: 2.0e9 and 2.8e9
        a = te.placeholder((rows, 40000), name="A")
        c = te.compute((rows, 40000), plus_one(a), name="C")
        s = create_schedule(c)
        s[c].bind(s[c].axis[0], "blockIdx.x")
        s[c].bind(s[c].split("j", factor=64)[1], "threadIdx.x")
        text = build(s, [a, c], target="cuda").source("cuda")
        assert ("* 40000LL" in text) is wide and ("* 40000)" in text) is not wide


def test_no_device_by_that_name_is_said() -> None:
    program = PROGRAMS["elementwise"]()
    kernel = build(program.schedule, program.args, target="opencl -device=nosuch")
    with pytest.raises(UserError, match="no OpenCL device 'nosuch' is here"):
        kernel(*program.inputs, *outputs_of(program))
