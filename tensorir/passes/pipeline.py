"""From a scheduled function to the flat form that code generators read, as one list.

`PASSES` is that list: each entry has its name, its function and the reason why it stands there. Every pass is a pure
function from `Func` to `Func` that gives the same object back when there was nothing to do.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from tensorir.matrix import expand_matrix
from tensorir.passes.async_copies import insert_waits, plain_copies
from tensorir.passes.check_fragments import check_fragments
from tensorir.passes.check_limits import check_limits
from tensorir.passes.check_registers import check_registers
from tensorir.passes.compact_buffers import compact_buffers
from tensorir.passes.cross_thread import cross_thread
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.expand_intrinsics import expand_intrinsics
from tensorir.passes.flatten import flatten
from tensorir.passes.hoist_invariants import hoist_invariants
from tensorir.passes.insert_barriers import insert_barriers
from tensorir.passes.legalize_half import legalize_half
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.lower_warp import lower_warp
from tensorir.passes.merge_guards import merge_guards
from tensorir.passes.narrow_indices import narrow_indices
from tensorir.passes.partition_loops import partition_loops
from tensorir.passes.simplify_program import simplify_program
from tensorir.passes.sink_allocations import sink_allocations
from tensorir.passes.spmd import lower_threads
from tensorir.passes.tighten_loops import tighten_loops
from tensorir.passes.unmask_registers import unmask_registers
from tensorir.passes.unroll import unroll
from tensorir.passes.vectorize import vectorize
from tensorir.passes.wide_copies import wide_copies
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.verify import verify


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of lowering: `run(func, target)`, and why it stands where it does."""

    name: str
    run: Callable[[Func, Target], Func]
    reason: str


def _plain(run: Callable[[Func], Func]) -> Callable[[Func, Target], Func]:
    """A pass that does not ask the target."""
    return lambda func, target: run(func)


def _legalize_half(func: Func, target: Target) -> Func:
    """All 16-bit float arithmetic in float32: the C printers have no 16-bit arithmetic."""
    return legalize_half(func, dataclasses.replace(target, native_float16=False, native_bfloat16=False))


PASSES: tuple[Pass, ...] = (
    Pass("expand_matrix", expand_matrix, "first: what a target has no instruction for is ordinary loops to all passes"),
    Pass("plain_copies", plain_copies, "at the beginning: where nothing is copied asynchronously, a copy is a load"),
    Pass("sink_allocations", _plain(sink_allocations), "early: it asks blocks which of their variables reduce"),
    Pass(
        "decompose_reductions", _plain(decompose_reductions), "before blocks are gone: no first-step test in hot loops"
    ),
    Pass("lower_blocks", _plain(lower_blocks), "from here on there are loops and stores only"),
    Pass("compact_buffers", _plain(compact_buffers), "needs the multi-dimensional indices; accumulators become tiles"),
    Pass("tighten_loops", tighten_loops, "before partition: a guard that can be a bound needs no copies of the loop"),
    Pass(
        "partition_loops", _plain(partition_loops), "before vectorize and unroll, so that their copies carry no guards"
    ),
    Pass("tighten_tails", tighten_loops, "again: with constant ranges the guards of the parts become bounds too"),
    Pass("expand_intrinsics", _plain(expand_intrinsics), "after the copying of loops, before lanes: scalar expansions"),
    Pass("legalize_half", legalize_half, "after expansion, which makes arithmetic that must be rounded"),
    Pass("flatten", _plain(flatten), "before vectorize: one index, whose coefficient is the stride of the lanes"),
    Pass("vectorize", vectorize, "before unroll: each vector body is made once, then copied"),
    Pass("simplify_program", _plain(simplify_program), "loops of one step, decided conditions; before copies exist"),
    Pass("unmask_registers", _plain(unmask_registers), "once masks are known, before unroll copies them"),
    Pass("hoist_invariants", _plain(hoist_invariants), "before unroll: a named part is walked once, not once a copy"),
    Pass("unroll", _plain(unroll), "last of the loop changes, so that little walks the copies; it leaves them clean"),
    Pass(
        "check_registers",
        _plain(check_registers),
        "as soon as unrolled indices are constants: refuse those that are not",
    ),
    Pass("narrow_indices", narrow_indices, "at the end: no pass has to deal with two index types"),
)


GPU_PASSES: tuple[Pass, ...] = (
    Pass("expand_matrix", expand_matrix, "first: what a target has no instruction for is ordinary loops to all passes"),
    Pass("plain_copies", plain_copies, "at the beginning: where nothing is copied asynchronously, a copy is a load"),
    Pass("cross_thread", cross_thread, "it reads blocks; what it makes is ordinary for all that follow"),
    Pass("sink_allocations", _plain(sink_allocations), "it asks blocks which of their variables reduce"),
    Pass("decompose_reductions", _plain(decompose_reductions), "before blocks are gone: initial values are statements"),
    Pass("lower_blocks", _plain(lower_blocks), "from here on there are loops and stores only"),
    Pass("lower_threads", _plain(lower_threads), "while each statement still means all threads: one launch a kernel"),
    Pass("check_fragments", _plain(check_fragments), "once kernels stand: fragments have no single elements"),
    Pass(
        "lower_warp", lower_warp, "needs the thread axes outside; what other lanes hold is no memory for what follows"
    ),
    Pass("compact_buffers", _plain(compact_buffers), "needs the thread axes outside: what a block shares is its hull"),
    Pass("insert_barriers", _plain(insert_barriers), "needs the indices by dimension; all later passes keep the order"),
    Pass("insert_waits", _plain(insert_waits), "once barriers stand: what they are for is done before them"),
    Pass("merge_guards", _plain(merge_guards), "after barriers, which may not stand inside a condition of a thread"),
    Pass("expand_intrinsics", _plain(expand_intrinsics), "the same polynomials as everywhere"),
    Pass("legalize_half", _legalize_half, "16-bit floats are stored as such and computed in float32"),
    Pass("flatten", _plain(flatten), "before wide copies: alignment is a question about one index"),
    Pass("wide_copies", _plain(wide_copies), "before unroll, which takes the vectorized loops that are no copies"),
    Pass("simplify_program", _plain(simplify_program), "loops of one step, decided conditions; before copies exist"),
    Pass("unroll", _plain(unroll), "last of the loop changes"),
    Pass("check_registers", _plain(check_registers), "as soon as unrolled indices are constants"),
    Pass("check_limits", check_limits, "once memory has its final size"),
    Pass("narrow_indices", narrow_indices, "at the end: no pass has to deal with two index types"),
)
"""The list for targets that are GPUs: threads and barriers instead of vectors and loop partition."""


def lower(
    func: Func,
    target: Target,
    *,
    dump: Callable[[str, Func], None] | None = None,
    timings: dict[str, float] | None = None,
    check: bool | None = None,
    until: str | None = None,
) -> Func:
    """`func` in the flat form for `target`, or as it stands after the pass named `until`.

    `dump(name, func)` is called with the input and after each pass; `timings` collects seconds by pass name; `check`
    runs the verifier in and after each pass (default: where NESTOR_VERIFY is set).
    """
    checking = bool(os.environ.get("NESTOR_VERIFY")) if check is None else check
    if checking:
        verify(func)
    if dump is not None:
        dump("input", func)
    for step in GPU_PASSES if target.gpu else PASSES:
        start = time.perf_counter()
        func = step.run(func, target)
        if timings is not None:
            timings[step.name] = time.perf_counter() - start
        if checking:
            verify(func)
        if dump is not None:
            dump(step.name, func)
        if step.name == until:
            return func
    if checking:
        verify(func, "flat")
    return func


def thread_form(func: Func, target: Target) -> Func:
    """The kernels of a GPU target with their barriers, indices still by dimension: what the sanitiser runs."""
    return lower(func, target, until="merge_guards")
