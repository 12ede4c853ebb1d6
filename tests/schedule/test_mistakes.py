"""Mistakes that users make with computes and schedules, each with its whole message as golden text in `mistakes/`.

Write the texts anew with `NESTOR_UPDATE_GOLDEN=1 pytest tests/schedule/test_mistakes.py`, and read them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from schedule import Schedule, create_schedule, tensor_intrinsic
from tensorir import te
from tensorir.errors import UserError
from tensorir.layout import Layout

GOLDEN = Path(__file__).parent / "mistakes"
Mistake = Callable[[], object]
MISTAKES: dict[str, Mistake] = {}


def mistake(function: Mistake) -> Mistake:
    """Adds a function to the table."""
    MISTAKES[function.__name__] = function
    return function


def two_stages(n: object = 20, m: object = 8) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    return create_schedule(c), a, b, c


def product(dtype: str = "float32") -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((8, 6), dtype, name="A"), te.placeholder((6, 8), dtype, name="B")
    k = te.reduce_axis((0, 6), name="k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return create_schedule(c), a, b, c


# ------------------------------------------------------------------------------------------------------ in computes


@mistake
def index_out_of_bounds() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: a[i] + a[i + 1], name="B")


@mistake
def reduce_axis_longer_than_the_tensor() -> None:
    a = te.placeholder((3,), name="K")
    k = te.reduce_axis(64, "k")
    te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")


@mistake
def too_few_indices() -> None:
    a = te.placeholder((8, 4), name="A")
    te.compute((8,), lambda i: a[i], name="B")


@mistake
def lambda_of_the_wrong_arity() -> None:
    te.compute((8, 4), lambda i: te.const(1.0), name="B")


@mistake
def python_if_on_an_expression() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: a[i] if i > 2 else 0.0, name="B")


@mistake
def reduction_inside_an_expression() -> None:
    a = te.placeholder((8, 4), name="A")
    k = te.reduce_axis(4, "k")
    te.compute((8,), lambda i: te.sum(a[i, k], axis=k) + 1.0, name="B")


@mistake
def reduction_over_a_spatial_axis() -> None:
    a = te.placeholder((8, 4), name="A")
    te.compute((8,), lambda i: te.sum(a[i, 0], axis=i), name="B")


@mistake
def division_of_integers() -> None:
    a = te.placeholder((8,), "int32", name="A")
    te.compute((8,), lambda i: a[i] / 2, name="B")


@mistake
def sum_of_bools() -> None:
    a = te.placeholder((8,), "bool", name="A")
    k = te.reduce_axis(8, "k")
    te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")


@mistake
def float_index() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: a[a[i]], name="B")


@mistake
def whole_tensor_arithmetic() -> None:
    a = te.placeholder((8, 4), name="A")
    a + 1.0


@mistake
def comparison_of_a_tensor() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: te.select(a == 0, 1.0, a[i]), name="B")


@mistake
def tensor_as_a_number() -> None:
    float(te.placeholder((8,), name="A"))


@mistake
def matrix_product_by_a_sign() -> None:
    te.placeholder((8, 4), name="A") @ te.placeholder((4, 8), name="B")


@mistake
def iteration_over_a_tensor() -> None:
    sum(x for x in te.placeholder((8,), name="A"))


@mistake
def assigned_element() -> None:
    a = te.placeholder((8,), name="A")
    a[0] = 1.0


@mistake
def reduction_without_an_axis() -> None:
    a, k = te.placeholder((8, 4), name="A"), te.reduce_axis(4, "k")
    te.compute((8,), lambda i: te.sum(a[i, k]), name="B")


@mistake
def axis_that_is_not_reduced() -> None:
    a, k = te.placeholder((8, 4), name="A"), te.reduce_axis(4, "k")
    b = te.compute((8,), lambda i: a[i, k] * 2.0, name="B")
    print(create_schedule(b).func())


@mistake
def range_of_an_axis_in_two_arguments() -> None:
    te.reduce_axis(0, 4)


@mistake
def python_and_of_conditions() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: te.if_then_else(i > 0 and i < 7, a[i], 0.0), name="B")


@mistake
def python_max() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: max(a[i], 0.0), name="B")


@mistake
def function_of_math() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: math.exp(a[i]), name="B")


@mistake
def function_of_numpy() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: np.exp(a[i]), name="B")


@mistake
def list_indexed_by_an_axis() -> None:
    weights = [1.0, 2.0, 1.0]
    te.compute((3,), lambda i: weights[i], name="B")


@mistake
def function_that_returns_nothing() -> None:
    te.compute((3,), lambda i: None, name="B")


@mistake
def slice_as_an_index() -> None:
    a = te.placeholder((8, 4), name="A")
    te.compute((8,), lambda i: a[i, 0:2], name="B")


@mistake
def negative_size() -> None:
    te.placeholder((8, -1), name="A")


@mistake
def bits_of_a_float() -> None:
    a = te.placeholder((8,), name="A")
    te.compute((8,), lambda i: a[i] & 1, name="B")


# ---------------------------------------------------------------------------------------------------- in schedules


@mistake
def schedule_of_an_input() -> None:
    create_schedule(te.placeholder((8,), name="A"))


@mistake
def collected_scan() -> None:
    x, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    first = te.compute((1, 4), lambda _, i: x[0, i], name="first")
    update = te.compute((6, 4), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    total = te.scan(first, update, state, name="total")
    create_schedule(total).cache_write(total, "local")


@mistake
def split_by_zero() -> None:
    s, _, _, c = product()
    s[c].split("k", factor=0)


@mistake
def loop_that_was_split() -> None:
    s, _, _, c = two_stages()
    i = s[c].op.axis[0]
    s[c].split(i, factor=4)
    s[c].vectorize(i)


@mistake
def misspelled_loop() -> None:
    s, _, _, c = two_stages()
    s[c].split("x", factor=4)


@mistake
def loop_of_another_stage() -> None:
    s, _, b, c = two_stages()
    s[b].split(c.op.axis[0], factor=4)


@mistake
def fuse_of_loops_apart() -> None:
    s, _, _, c = product()
    s[c].reorder("i", "k", "j")
    s[c].fuse("i", "j")


@mistake
def fuse_of_spatial_and_reduce() -> None:
    s, _, _, c = product()
    s[c].fuse("j", "k")


@mistake
def vectorize_of_a_symbolic_extent() -> None:
    s, _, _, c = two_stages(te.var("n"))
    s[c].vectorize("i")


@mistake
def parallel_reduce_loop() -> None:
    s, _, _, c = product()
    s[c].parallel("k")


@mistake
def parallel_in_parallel() -> None:
    s, _, _, c = two_stages()
    s[c].parallel("i")
    s[c].parallel("j")


@mistake
def annotation_before_split() -> None:
    s, _, _, c = two_stages()
    s[c].parallel("i")
    s[c].split("i", factor=4)


@mistake
def compute_at_with_a_reader_outside() -> None:
    a = te.placeholder((8, 8), name="A")
    p = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="p")
    q = te.compute((8, 8), lambda i, j: p[i, j] * 2.0, name="q")
    r = te.compute((8, 8), lambda i, j: p[i, j] + q[i, j], name="r")
    s = create_schedule(r)
    s[p].compute_at(s[q], "i")


@mistake
def compute_at_in_a_vectorized_loop() -> None:
    s, _, b, c = two_stages()
    s[c].vectorize("j")
    s[b].compute_at(s[c], "j")


@mistake
def compute_at_of_an_input() -> None:
    s, a, _, c = two_stages()
    s[a].compute_at(s[c], "i")


@mistake
def inlined_reduction() -> None:
    _, _, _, c = product()
    d = te.compute((8, 8), lambda i, j: c[i, j] + 1.0, name="D")
    create_schedule(d)[c].compute_inline()


@mistake
def inlined_output() -> None:
    s, _, _, c = two_stages()
    s[c].compute_inline()


@mistake
def late_cache_write() -> None:
    s, _, _, c = product()
    s[c].split("i", factor=4)
    s.cache_write(c, "register")


@mistake
def unknown_scope() -> None:
    s, _, _, c = product()
    s.cache_write(c, "L1")


@mistake
def init_inside_the_reduction() -> None:
    s, _, _, c = product()
    s[c].reorder("k", "i", "j")
    s[c].decompose_reduction("j")


@mistake
def reorder_of_a_reducer_without_algebra() -> None:
    a = te.placeholder((4, 3, 3), "int32", name="A")
    k, r = te.reduce_axis(3, "k"), te.reduce_axis(3, "r")
    minus = te.comm_reducer(lambda x, y: x - y, lambda t: te.const(0, t), "minus", commutative=False)
    c = te.compute((4,), lambda i: minus(a[i, k, r], axis=(k, r)), name="C")
    create_schedule(c)[c].reorder(r, k)


@mistake
def factor_of_a_spatial_loop() -> None:
    s, _, _, c = product()
    s[c].rfactor("i")


@mistake
def reverse_compute_at_too_early() -> None:
    _, _, _, c = product()
    d = te.compute((8, 8), lambda i, j: c[i, j] + 1.0, name="D")
    s = create_schedule(d)
    s[d].reverse_compute_at(s[c], "k")


@mistake
def stencil_behind_a_row() -> None:
    a = te.placeholder((12, 8), name="A")
    b = te.compute((12, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((10, 8), lambda i, j: b[i, j] + b[i + 2, j], name="C")
    s = create_schedule(c)
    s[c].reverse_compute_at(s[b], "i")


@mistake
def double_buffer_at_root() -> None:
    s, _, b, _ = two_stages()
    s[b].double_buffer()


@mistake
def alignment_of_the_last_axis() -> None:
    s, _, b, _ = two_stages()
    s[b].storage_align("j", 16)


@mistake
def tensorize_of_another_size() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    inc = tensor_intrinsic([a], b, lambda a, b: b.loop(0, lambda i: b.store(i, value=a[i] + 1.0)), "increment_4")
    s, _, _, c = two_stages()
    s[c].tensorize("j", inc)


@mistake
def split_inside_a_block() -> None:
    s, _, _, c = two_stages()
    s[c].blockize("j")
    s[c].split("j", factor=4)


@mistake
def layout_with_the_wrong_rank() -> None:
    s, _, b, _ = two_stages()
    s[b].transform_layout(Layout.parse("NCHW16c", logical="NCHW"))


@mistake
def missing_argument() -> None:
    s, _, _, c = two_stages()
    s.func([c])


@mistake
def stage_of_another_schedule() -> None:
    s, *_ = two_stages()
    _, _, _, other = product()
    s[te.compute((2,), lambda i: te.const(1.0), name="other")].split("i", factor=2)


@mistake
def bound_loop_of_another_extent() -> None:
    s, _, _, c = two_stages()
    s[c].bind("j", te.thread_axis((0, 4), "threadIdx.x"))


def message_of(name: str) -> str:
    """The message of a mistake, without the places of this file."""
    with pytest.raises(UserError) as caught:
        MISTAKES[name]()
    text = f"{type(caught.value).__name__}: {caught.value}\n"
    return re.sub(r"[^\s(]*/(\w+\.py):\d+", r"\1:N", text)


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_message(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = message_of(name)
    if os.environ.get("NESTOR_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"the message of {name} changed"


def test_every_text_has_its_mistake_and_says_what_to_do() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(MISTAKES) and len(MISTAKES) >= 30
    without = [p.stem for p in GOLDEN.glob("*.txt") if "\nhelp: " not in p.read_text()]
    assert not without
