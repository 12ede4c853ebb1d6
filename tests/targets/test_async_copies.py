"""Asynchronous copies: where they are waited for, what the sanitiser says without a wait, sources, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from schedule import ScheduleError, create_schedule
from targets.build import build
from targets.cuda.compile import compile_cuda, has_compiler
from tensorir import te
from tensorir.errors import UserError
from tensorir.expr import Call
from tensorir.interpreter import SanitizerError, interpret
from tensorir.parser import parse_func
from tensorir.passes.pipeline import lower, thread_form
from tensorir.stmt import Evaluate, Func, Seq, Stmt, seq
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, walk_stmt, with_body
from tests.targets.gpu_programs import F, Program, async_matmul, check, outputs_of

CUDA = Target.parse("cuda -arch=sm_80")


def threads_of(program: Program) -> Func:
    return thread_form(program.schedule.func(program.args, "f"), CUDA)


def run(func: Func, program: Program, mode: str = "checked") -> None:
    outputs = outputs_of(program)
    interpret(func, [*program.inputs, *outputs], mode=mode)
    check(program, outputs)


PROGRAMS = [lambda: async_matmul(), lambda: async_matmul(8, 8, 8, lanes=4), lambda: async_matmul(5, 9, 4)]


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("mode", ["plain", "checked"])
def test_copies_are_done_when_they_are_read(make: object, mode: str) -> None:
    program = make()  # type: ignore[operator]
    func = program.schedule.func(program.args, "f")
    for form in (func, threads_of(program), lower(func, CUDA, check=True)):
        run(form, program, mode)


def test_one_wait_a_step_and_none_where_the_other_half_is_read() -> None:
    text = repr(threads_of(async_matmul()))
    assert text.count("copy_wait") == text.count("copy_commit") == text.count("barrier") == 1
    body = text[text.index("for k_o") :]
    assert body.index("copy_commit") < body.index("copy_wait") < body.index("barrier") < body.index("async_copy")
    assert body.index("async_copy") < body.index("fma")  # the next tile is on its way while this one is used
    two = repr(threads_of(async_matmul(8, 8, 8, lanes=4)))  # of two steps, k % 2 is k
    assert two.count("copy_wait") == two.count("barrier") == 1


@pytest.mark.parametrize("left_out", ["copy_wait", "copy_commit", "barrier"])
def test_each_wait_group_and_barrier_is_needed(left_out: str) -> None:
    program = async_matmul()
    func = threads_of(program)

    def rule(s: Stmt) -> Stmt:
        return seq(*[x for x in s.stmts if not _is(x, left_out)]) if isinstance(s, Seq) else s

    assert any(_is(s, left_out) for s in walk_stmt(func.body))
    with pytest.raises(SanitizerError):
        run(with_body(func, rewrite_stmt(func.body, stmt=rule)), program)


def _is(s: Stmt, name: str) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name == name


def kernel(body: str) -> Func:
    lines = "".join(f"      {line}\n" for line in body.splitlines())
    return parse_func(
        "func f(A: float32[8], C: float32[8]) outputs 1 attrs(thread_form=True):\n"
        "  for t in 0..8 thread 'threadIdx.x':\n    alloc S: float32[2, 8] @shared:\n" + lines
    )


def sanitize(body: str) -> np.ndarray:
    out = np.full(8, np.nan, F)
    interpret(kernel(body), [np.arange(8, dtype=F), out], mode="checked")
    return out


BEGIN = "S[0, t] = async_copy(A[t])\n"
WAIT = "eval copy_commit()\neval copy_wait(int32(0))\n"


def test_the_sanitiser_knows_which_copies_are_done() -> None:
    np.testing.assert_array_equal(sanitize(BEGIN + WAIT + "C[t] = S[0, t]"), np.arange(8))
    with pytest.raises(SanitizerError, match=r"read of S\[0, 0\], which an asynchronous copy still fills"):
        sanitize(BEGIN + "C[t] = S[0, t]")
    with pytest.raises(SanitizerError, match="which an asynchronous copy still fills"):
        sanitize(BEGIN + "eval copy_wait(int32(0))\nC[t] = S[0, t]")  # it is in no group
    with pytest.raises(SanitizerError, match="write of S"):
        sanitize(BEGIN + "S[0, t] = 1.0\nC[t] = 0.0")
    with pytest.raises(SanitizerError, match="race: S"):
        sanitize(BEGIN + WAIT + "C[t] = S[0, t // 2]")  # another thread's, without a barrier
    assert sanitize(BEGIN + WAIT + "eval barrier()\nC[t] = S[0, 7 - t]")[0] == 7
    other = BEGIN + "eval copy_commit()\nS[1, t] = async_copy(A[7 - t])\neval copy_commit()\n"
    assert sanitize(other + "eval copy_wait(int32(1))\nC[t] = S[0, t]")[3] == 3
    with pytest.raises(SanitizerError, match=r"read of S\[1, 0\], which an asynchronous copy still fills"):
        sanitize(other + "eval copy_wait(int32(1))\nC[t] = S[1, t]")


@pytest.mark.skipif(not has_compiler(), reason="neither nvcc nor NVRTC is here")
def test_sources_of_old_and_new_architectures() -> None:
    for lanes, size in ((1, 4), (4, 16)):
        program = async_matmul(8, 8, 8, lanes=lanes)
        for arch in ("sm_80", "sm_90"):
            kernel = build(program.schedule, program.args, target=f"cuda -arch={arch}", name="product")
            text = kernel.source("cuda")
            assert f"copy_async{size}(" in text and "cp.async.wait_group 0;" in text
            assert compile_cuda(text, arch).resources["product"].spill_loads == 0
        for target in ("cuda -arch=sm_75", "opencl"):  # a plain copy
            text = build(program.schedule, program.args, target=target).source(target.split()[0])
            assert "async" not in text


def copied(
    dtype: str = "float32", scope: str = "shared", factor: float | None = None
) -> tuple[object, list[te.Tensor]]:
    a = te.placeholder((32,), dtype, name="A")
    b = te.compute((32,), lambda i: a[i] if factor is None else a[i] * factor, name="B")
    c = te.compute((32,), lambda i: b[31 - i], name="C")
    s = create_schedule(c)
    s[b].set_scope(scope)
    outer, inner = s[c].split("i", factor=32)
    s[c].bind(outer, "blockIdx.x")
    s[c].bind(inner, "threadIdx.x")
    s[b].compute_at(s[c], outer)
    s[b].bind(s[b].axis[0], "threadIdx.x")
    s[b].async_copy()
    return s, [a, c]


def test_what_cannot_be_copied_asynchronously_is_named() -> None:
    with pytest.raises(ScheduleError, match="B is not a copy of another tensor"):
        copied(factor=2.0)
    with pytest.raises(ScheduleError, match="B is in local memory"):
        copied(scope="local")
    s, args = copied("float16")
    with pytest.raises(UserError, match="B is copied asynchronously, 2 bytes at once, but a copy takes 4, 8 or 16"):
        build(s, args, target=CUDA)  # type: ignore[arg-type]
    s, args = copied()
    x, out = np.arange(32, dtype=F), np.full(32, np.nan, F)
    kernel = build(s, args, target=CUDA)  # type: ignore[arg-type]
    assert "copy_async4" in kernel.source("cuda")
    kernel.sanitize(x, out)
    text = str(s)
    replayed = create_schedule(args[1])
    exec("\n".join(s.trace), {"s": replayed})  # type: ignore[attr-defined]
    assert str(replayed) == text and "async_copy(A[" in text
