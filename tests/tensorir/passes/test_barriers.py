"""Thread form and barriers: the text of a kernel after each, and where a barrier must and must not stand."""

from __future__ import annotations

import pytest

from schedule import create_schedule
from tensorir import te
from tensorir.parser import parse_func
from tensorir.passes.cross_thread import cross_thread
from tensorir.passes.insert_barriers import insert_barriers
from tensorir.passes.merge_guards import merge_guards
from tensorir.passes.spmd import lower_threads
from tensorir.passes.thread_axes import ThreadError, is_barrier
from tensorir.stmt import Func
from tensorir.visit import walk_stmt

HEAD = "func f(A: float32[64], C: float32[64]) outputs 1:\n"


def kernel(body: str) -> Func:
    """A function over A and C; `body` is indented by two."""
    return parse_func(HEAD + body)


def barriers(body: str) -> int:
    """How many barriers a kernel gets."""
    return sum(is_barrier(s) for s in walk_stmt(insert_barriers(lower_threads(kernel(body))).body))


THREADS = """  for b in 0..2 thread 'blockIdx.x':
    alloc S: float32[64] @shared
    for t in 0..32 thread 'threadIdx.x':
"""


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ("S[t] = A[t]\nC[b * 32 + t] = S[t]", 0),
        ("S[t] = A[t]\nC[b * 32 + t] = S[31 - t]", 1),
        ("S[t] = A[t]\nS[t + 32] = A[t]\nC[b * 32 + t] = S[31 - t] + S[63 - t]", 1),
        ("S[t] = A[t]\nC[b * 32 + t] = S[t + 32]", 0),
        ("S[t * 2] = A[t]\nC[b * 32 + t] = S[t * 2]", 0),
        ("S[t * 2] = A[t]\nC[b * 32 + t] = S[t * 2 + 1]", 0),
        ("S[0] = A[t]\nC[b * 32 + t] = A[t]", 0),
    ],
)
def test_barriers_stand_where_another_thread_may_have_been(steps: str, count: int) -> None:
    body = THREADS + "".join(f"      {line}\n" for line in steps.splitlines())
    assert barriers(body) == count


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ("S[t] = A[k * 8 + t]\nC[b * 32 + t] = S[31 - t]", 2),  # and one before the next iteration writes again
        ("S[t] = A[k * 8 + t]\nC[b * 32 + t] = S[t]", 0),
        ("C[t] = A[t]", 0),
    ],
)
def test_a_loop_meets_what_its_last_iteration_left(steps: str, count: int) -> None:
    body = THREADS + "      for k in 0..4:\n" + "".join(f"        {line}\n" for line in steps.splitlines())
    assert barriers(body) == count


def test_a_shorter_loop_is_a_condition_and_a_statement_outside_runs_in_the_first_thread() -> None:
    func = lower_threads(
        kernel(
            """  for b in 0..2 thread 'blockIdx.x':
    alloc S: float32[32] @shared
    S[0] = 1.0
    for t in 0..32 thread 'threadIdx.x':
      S[t] = A[t]
    for u in 0..8 thread 'threadIdx.x':
      C[b * 8 + u] = S[u]
"""
        )
    )
    text = repr(func)
    assert "if t == 0:" in text and "if t < 8:" in text and text.count("thread 'threadIdx.x'") == 1


def test_equal_guards_become_one_and_leave_loops() -> None:
    func = merge_guards(
        kernel(
            """  for t in 0..32 thread 'threadIdx.x':
    if t < 5:
      C[t] = 0.0
    for k in 0..8:
      if t < 5:
        C[t] = C[t] + A[k]
"""
        )
    )
    assert repr(func).count("if t < 5") == 1


def test_partial_results_need_a_reducer_that_is_known() -> None:
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis(8, "k")
    c = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="C")
    s = create_schedule(c)
    s[c].bind(s[c].reduce_axis[0], "threadIdx.x")
    text = repr(cross_thread(s.func([a, c])))
    assert "C_parts: float32[8] @shared" in text and "if k == 0:" in text


def test_a_condition_on_data_is_asked_once_by_each_thread() -> None:
    func = insert_barriers(
        lower_threads(
            kernel(
                """  for t in 0..32 thread 'threadIdx.x':
    if A[t] < 0.0:
      alloc S: float32[32] @shared
      S[t] = A[t]
      C[t] = S[31 - t]
"""
            )
        )
    )
    text = repr(func)
    assert "let flag" in text and text.index("let flag") < text.index("eval barrier()")


def test_a_loop_that_differs_between_threads_holds_no_threads() -> None:
    with pytest.raises(ThreadError, match="which differs between threads"):
        lower_threads(
            kernel(
                """  for t in 0..32 thread 'threadIdx.x':
    for k in 0..t:
      for u in 0..4 thread 'threadIdx.y':
        C[t] = A[k]
"""
            )
        )
