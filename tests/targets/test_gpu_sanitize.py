"""The sanitiser on kernels in thread form: silent on every program; with a barrier, a guard or a bound changed, one
at a time, it finds each change that alters the result. No barrier is needless: without it the sanitiser speaks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from targets.build import build
from targets.sanitize import sanitize_threads
from tensorir.expr import const
from tensorir.interpreter import SanitizerError, interpret
from tensorir.parser import parse_func
from tensorir.passes.pipeline import thread_form
from tensorir.passes.thread_axes import is_barrier
from tensorir.stmt import For, Func, If, Seq, Stmt, seq
from tensorir.target import Target
from tensorir.visit import rewrite_stmt, walk_stmt, with_body
from tests.targets.gpu_programs import PROGRAMS, Program, mma_matmul, outputs_of

OPENCL, CUDA = Target.parse("opencl"), Target.parse("cuda -arch=sm_80")
WARPS = ("softmax", "layer_norm", "row_reduction", "argmax", "pooled_mean", "two_axes", "rows_in_turn", "async_matmul")
"""Programs whose threads do other things where there are warps and asynchronous copies."""
CASES = [
    *((name, OPENCL) for name in PROGRAMS if name != "mma_matmul"),
    *((name, CUDA) for name in (*WARPS, "mma_matmul")),
]
EACH = pytest.mark.parametrize(("name", "target"), CASES, ids=[f"{name}-{target.kind}" for name, target in CASES])


def made(name: str) -> Program:
    return mma_matmul(16, 16, 16, warps=1) if name == "mma_matmul" else PROGRAMS[name]()


def run(program: Program, func: Func, mode: str = "checked") -> list[np.ndarray]:
    outputs = outputs_of(program)
    interpret(func, [*program.inputs, *outputs], mode=mode, complete=mode == "checked")
    return outputs


def without_barrier(func: Func, number: int) -> Func:
    seen = -1

    def rule(s: Stmt) -> Stmt:
        nonlocal seen
        if not isinstance(s, Seq):
            return s
        kept = []
        for x in s.stmts:
            if is_barrier(x):
                seen += 1
                if seen == number:
                    continue
            kept.append(x)
        return seq(*kept)

    return with_body(func, rewrite_stmt(func.body, stmt=rule))


def changed_guards(func: Func) -> Iterator[tuple[str, Func]]:
    """The program with one guard removed, or one loop a step longer."""
    for target in [s for s in walk_stmt(func.body) if isinstance(s, (If, For))]:
        done = False

        def rule(s: Stmt, target: Stmt = target) -> Stmt:
            nonlocal done
            if done or not _same(s, target):
                return s
            done = True
            if isinstance(s, If):
                return s.then
            assert isinstance(s, For)
            return dataclasses.replace(s, extent=s.extent + const(1))

        yield repr(target).splitlines()[0], with_body(func, rewrite_stmt(func.body, stmt=rule))


def _same(s: Stmt, target: Stmt) -> bool:
    """Whether a rebuilt statement is the one meant: conditions and loop variables stay the same objects."""
    if isinstance(s, If) and isinstance(target, If):
        return s.condition is target.condition
    return isinstance(s, For) and isinstance(target, For) and s.var is target.var


@EACH
def test_it_is_silent_on_every_program(name: str, target: Target) -> None:
    program = made(name)
    kernel = build(program.schedule, program.args, target=target, name=name)
    assert "they do what the program does" in kernel.sanitize(*program.inputs, *outputs_of(program))


@EACH
def test_every_barrier_is_needed_and_found_missing(name: str, target: Target) -> None:
    program = made(name)
    func = thread_form(program.schedule.func(program.args, name), target)
    for number in range(sum(is_barrier(s) for s in walk_stmt(func.body))):
        with pytest.raises(SanitizerError):
            run(program, without_barrier(func, number))


BY_VALUE = {
    ("double_buffered", "opencl"): ["for k_o in 0..5:"],  # a step too many reads the tile before last
    ("async_matmul", "opencl"): ["for k_o in 0..3:"],
    ("async_matmul", "cuda"): ["for k_o in 0..3:"],
}
"""Changes after which every access is in bounds, written and free of races: the other results alone tell."""


@EACH
def test_a_removed_guard_and_a_longer_loop_are_found(name: str, target: Target) -> None:
    program = made(name)
    func = program.schedule.func(program.args, name)
    threads = thread_form(func, target)
    right = run(program, threads, "plain")
    wanted = run(program, func)
    by_value, missed = [], []
    for what, changed in changed_guards(threads):
        try:
            found = run(program, changed, "plain")
            same = all(a.tobytes() == b.tobytes() for a, b in zip(found, right, strict=True))
        except SanitizerError:
            same = False
        if same:
            continue
        try:
            arrays = [*program.inputs, *outputs_of(program)]
            sanitize_threads(func, changed, target, arrays, [*program.inputs, *wanted])
            missed.append(what)
        except SanitizerError as error:
            if "the threads do not what the program does" in str(error):
                by_value.append(what)
    assert missed == []
    assert by_value == BY_VALUE.get((name, target.kind), [])


def test_divergence_is_told_with_both_threads() -> None:
    func = parse_func(
        """func f(A: float32[4]) outputs 1 attrs(thread_form=True):
  for t in 0..4 thread 'threadIdx.x':
    if t < 2:
      eval barrier()
    A[t] = 1.0
"""
    )
    with pytest.raises(SanitizerError, match="thread 0 of threadIdx.x waits at a barrier that thread 2 never"):
        interpret(func, [np.zeros(4, np.float32)], mode="checked")


def test_blocks_that_write_one_element_race() -> None:
    func = parse_func(
        """func f(A: float32[4]) outputs 1 attrs(thread_form=True):
  for b in 0..2 thread 'blockIdx.x':
    for t in 0..4 thread 'threadIdx.x':
      A[t] = 1.0
"""
    )
    with pytest.raises(SanitizerError, match="race: A.0. is written by two iterations"):
        interpret(func, [np.zeros(4, np.float32)], mode="checked")
