"""Products of bytes and of tiles on a GPU: values in both forms of the interpreter, sources for three architectures,
what is refused, and what the sanitiser says of warps that come apart."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import create_schedule
from schedule.gpu_intrinsics import mma, mma_load, mma_store
from targets.build import build
from targets.cuda.compile import compile_cuda, has_compiler
from tensorir import te
from tensorir.errors import UserError
from tensorir.interpreter import SanitizerError, interpret
from tensorir.parser import parse_func
from tensorir.passes.pipeline import lower, thread_form
from tensorir.passes.thread_axes import ThreadError, is_barrier
from tensorir.target import Target
from tensorir.visit import walk_stmt
from tests.targets.gpu_programs import Program, check, dp4a_matmul, mma_matmul, outputs_of

CUDA = Target.parse("cuda -arch=sm_80")


def run(program: Program) -> str:
    """Checked values of the schedule, its threads and its flat form; the CUDA source."""
    func = program.schedule.func(program.args, "product")
    for form in (func, thread_form(func, CUDA), lower(func, CUDA, check=True)):
        outputs = outputs_of(program)
        interpret(form, [*program.inputs, *outputs], mode="checked", complete=True)
        check(program, outputs)
    return build(program.schedule, program.args, target=CUDA, name="product").source("cuda")


@pytest.mark.parametrize(("signed", "call"), [(True, "__dp4a"), (False, "dp4a.u32.s32")])
def test_four_products_of_bytes_are_one_instruction_on_words(signed: bool, call: str) -> None:
    text = run(dp4a_matmul(signed=signed))
    assert call in text and text.count("*(const u32 *)") == 2


def test_bytes_that_are_not_aligned_are_packed() -> None:
    a, b = te.placeholder((3, 9), "int8", name="A"), te.placeholder((3, 8), "int8", name="B")
    k = te.reduce_axis(8, "k")
    c = te.compute((3,), lambda i: te.sum(a[i, k + 1].astype("int32") * b[i, k].astype("int32"), axis=k), name="C")
    s = create_schedule(c)
    s[c].bind(s[c].axis[0], "threadIdx.x")
    _, ki = s[c].split(s[c].reduce_axis[0], factor=4)
    s[c].tensorize(ki, "dp4a")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, 9), (3, 8)))
    wanted = (x[:, 1:].astype(np.int32) * y).sum(1).astype(np.int32)
    assert run(Program(s, [a, b, c], [x, y], [wanted])).count("*(const u32 *)") == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda: mma_matmul(),
        lambda: mma_matmul(32, 32, 16, warps=1, tiles=(2, 2)),
        lambda: mma_matmul(64, 16, 32, tiles=(2, 1), nt=True),
    ],
)
def test_tiles_of_matrices_by_warps(program: object) -> None:
    made = program()  # type: ignore[operator]
    text = run(made)
    assert "mma_sync_row_" in text and "__align__(32) u16 A_shared" in text
    threads = thread_form(made.schedule.func(made.args, "f"), CUDA)
    assert sum(is_barrier(s) for s in walk_stmt(threads.body)) <= 2


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_they_compile_without_spills(arch: str) -> None:
    for program in (mma_matmul(nt=True), mma_matmul(32, 32, 16, warps=1, tiles=(2, 2)), dp4a_matmul(signed=False)):
        kernel = build(program.schedule, program.args, target=f"cuda -arch={arch}", name="product")
        found = compile_cuda(kernel.source("cuda"), arch).resources["product"]
        assert found.spill_loads == found.spill_stores == found.stack == 0


def test_without_matrix_instructions_the_first_lane_does_what_they_mean() -> None:
    program = mma_matmul()
    text = repr(thread_form(program.schedule.func(program.args, "f"), Target.parse("opencl")))
    assert "mma_" not in text and "@fragment" not in text and "if i0_i1_i == 0:" in text
    func = create_matmul_on_the_cpu()
    x, y = (np.random.default_rng(n).standard_normal((16, 16)).astype(np.float16) for n in range(2))
    out = np.full((16, 16), np.nan, np.float32)
    build(func, target="llvm")(x, y, out)
    np.testing.assert_allclose(out, x.astype(np.float32) @ y.astype(np.float32), rtol=1e-5, atol=1e-5)


def create_matmul_on_the_cpu() -> object:
    a, b = (te.placeholder((16, 16), "float16", name=n) for n in "AB")
    k = te.reduce_axis(16, "k")
    c = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="C"
    )
    s = create_schedule(c)
    s[c].tensorize("i", mma())
    return s.func([a, b, c], "cpu")


def test_an_element_of_a_fragment_is_nobodys() -> None:
    with pytest.raises(ThreadError, match="A_shared_fragment is a fragment, spread over the lanes of a warp, but is"):
        lower(copy_through_a_fragment(32, stored=False), CUDA)  # type: ignore[arg-type]


def copy_through_a_fragment(threads: int, *, stored: bool = True) -> object:
    """A tile fetched into shared memory by `threads`, from there into a fragment, and stored."""
    a = te.placeholder((16, 32), "float32", name="A")
    c = te.compute((16, 16), lambda i, j: a[i, j], name="C")
    s = create_schedule(c)
    shared = s.cache_read(a, "shared", [c])
    held = s.cache_read(shared, "fragment", [c])
    outer, inner = s[c].split(s[c].axis[0], factor=16)
    s[c].bind(outer, "blockIdx.x")
    if stored:
        s[c].tensorize(inner, mma_store())
    for stage in (held, shared):
        s[stage].compute_at(s[c], outer)
    s[held].tensorize(s[held].axis[0], mma_load("float32"))
    _, lane = s[shared].split(s[shared].fuse(*s[shared].axis), factor=threads)
    s[shared].bind(lane, "threadIdx.x")
    return s.func([a, c], "f")


def kernel(lanes: int, body: str, scope: str = "fragment") -> object:
    lines = "".join(f"      {line}\n" for line in body.splitlines())
    return parse_func(
        "func f(A: float16[16, 16], C: float32[16, 16]) outputs 1 attrs(thread_form=True):\n"
        f"  for t in 0..{lanes} thread 'threadIdx.x':\n"
        f"    alloc D: float32[16, 16] @{scope}:\n{lines}"
    )


FILL = "eval mma_fill(address(D[0, 0]), address(D[1, 0]), 2.0)\n"
STORE = "eval mma_store(address(C[0, 0]), address(C[1, 0]), address(D[0, 0]), address(D[1, 0]))\n"


def sanitize(func: object) -> np.ndarray:
    out = np.full((16, 16), np.nan, np.float32)
    interpret(func, [np.ones((16, 16), np.float16), out], mode="checked")  # type: ignore[arg-type]
    return out


def test_the_lanes_of_a_warp_meet_at_an_instruction() -> None:
    assert (sanitize(kernel(32, FILL + STORE)) == 2).all()
    with pytest.raises(
        SanitizerError, match="is at a matrix instruction mma_fill, to which lane 8 of its warp does not"
    ):
        sanitize(kernel(32, "if t < 8:\n  " + FILL + STORE))
    with pytest.raises(SanitizerError, match="16 lanes of a warp come, it takes 32"):
        sanitize(kernel(16, FILL + STORE))
    apart = FILL + STORE.replace("C[0, 0]", "C[t % 2, 0]").replace("C[1, 0]", "C[t % 2 + 1, 0]")
    with pytest.raises(SanitizerError, match="lane 1 of a warp speaks of other tiles than lane 0"):
        sanitize(kernel(32, apart))


def test_a_tile_out_of_bounds_or_never_written_is_told() -> None:
    moved = STORE.replace("C[0, 0]", "C[0, 4]").replace("C[1, 0]", "C[1, 4]")
    with pytest.raises(SanitizerError, match="write out of bounds: C"):
        sanitize(kernel(32, FILL + moved))
    with pytest.raises(SanitizerError, match=r"read of memory never written: D\[0, 0\]"):
        sanitize(kernel(32, STORE))


def test_a_warp_races_with_its_own_lanes() -> None:
    body = FILL + "C[0, t % 16] = 1.0\n" + STORE
    with pytest.raises(SanitizerError, match="race: C"):
        sanitize(kernel(16 * 2, body))
    with pytest.raises(SanitizerError, match="race: C"):
        sanitize(kernel(32, FILL + "if t == 0:\n  C[0, 0] = 1.0\n" + STORE))


def test_what_matrix_instructions_cannot_do_is_named() -> None:
    assert "mma_store" in repr(lower(copy_through_a_fragment(32), CUDA))  # type: ignore[arg-type]
    with pytest.raises(ThreadError, match="the 32 lanes of a warp do, but threadIdx.x runs over 16 threads"):
        lower(copy_through_a_fragment(16), CUDA)  # type: ignore[arg-type]
    program = mma_matmul()
    stage = next(v for v in program.schedule.stages if v.tensor.name == "A_shared")
    stage.storage_align(stage.axis[0], 8, 4)
    with pytest.raises(UserError, match="takes a tile of A_shared at .* but a tile begins at a multiple of 32 bytes"):
        build(program.schedule, program.args, target=CUDA)
