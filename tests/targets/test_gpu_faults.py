"""Faults seeded into the passes for GPUs: the sanitiser, or another result than the program's, finds each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from schedule import create_schedule
from targets.sanitize import sanitize
from tensorir import te
from tensorir.errors import NestorError
from tensorir.target import Target
from tests.faults.fault import Fault, seeded
from tests.targets.gpu_programs import PROGRAMS, F, Program, mma_matmul, outputs_of, row_reduction

_PASSES = "tensorir.passes"


def check(make: Callable[[], Program], target: str) -> Callable[[], None]:
    """The threads of a program do what it does."""

    def run() -> None:
        program = make()
        func = program.schedule.func(program.args, "f")
        sanitize(func, Target.parse(target), [*program.inputs, *outputs_of(program)], {})

    return run


def of_one_thread() -> Program:
    """What a block shares is computed by its first thread alone."""
    x = te.placeholder((3, 8), name="X")
    b = te.compute((3,), lambda i: x[i, 0] * 2.0, name="B")
    out = te.compute((3, 8), lambda i, j: x[i, j] + b[i], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[out], s[out].axis[0])
    a = np.random.default_rng(0).standard_normal((3, 8)).astype(F)
    return Program(s, [x, out], [a], [a + a[:, :1] * F(2)])


def own_copies() -> Program:
    """Each thread reads what it copied itself: no barrier, but a wait."""
    x = te.placeholder((3, 8), name="X")
    out = te.compute((3, 8), lambda i, j: x[i, j] * 2.0, name="out")
    s = create_schedule(out)
    tile = s.cache_read(x, "shared", [out])
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.x")
    s[tile].compute_at(s[out], s[out].axis[0])
    s[tile].bind(s[tile].axis[1], "threadIdx.x")
    s[tile].async_copy()
    a = np.random.default_rng(0).standard_normal((3, 8)).astype(F)
    return Program(s, [x, out], [a], [a * F(2)])


def guarded_sum() -> Program:
    """A condition that depends on the inner loop."""
    x = te.placeholder((5, 7), name="X")
    k = te.reduce_axis(7, "k")
    out = te.compute((5,), lambda i: te.sum(x[i, k], axis=k), name="out")
    s = create_schedule(out)
    s[out].split(k, factor=4)
    s[out].bind(s[out].axis[0], "threadIdx.x")
    a = np.random.default_rng(0).standard_normal((5, 7)).astype(F)
    return Program(s, [x, out], [a], [a.sum(1)], 1e-5)


def neighbours() -> Program:
    """Each thread reads its own element and the next."""
    x = te.placeholder((3, 9), name="X")
    b = te.compute((3, 9), lambda i, j: x[i, j] * 2.0, name="B")
    out = te.compute((3, 8), lambda i, j: b[i, j] + b[i, j + 1], name="out")
    s = create_schedule(out)
    s[out].bind(s[out].axis[0], "blockIdx.x")
    s[out].bind(s[out].axis[1], "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[out], s[out].axis[0])
    s[b].bind(s[b].axis[1], "threadIdx.x")
    a = np.random.default_rng(0).standard_normal((3, 9)).astype(F)
    return Program(s, [x, out], [a], [a[:, :-1] * F(2) + a[:, 1:] * F(2)])


OPENCL, CUDA = "opencl", "cuda -arch=sm_80"


def fault(name: str, place: str, old: str, new: str, make: Callable[[], Program], target: str) -> Fault:
    return Fault(name, f"{_PASSES}.{place}", old, new, (check(make, target),))


FAULTS = (
    fault(
        "no barrier between two statements", "insert_barriers:_Barriers._sequence",
        "if self.conflicts.meets(pending, part.entry, common):", "if False:", PROGRAMS["transpose"], OPENCL,
    ),
    fault(
        "no barrier between two iterations", "insert_barriers:_Barriers._loop",
        "if not _is_one(s.extent) and self.conflicts.meets(inner.exit, inner.entry, common, s.var):", "if False:",
        PROGRAMS["matmul"], OPENCL,
    ),
    fault(
        "the halves of a tile are taken to differ in all iterations", "conflicts:Conflicts._never_equal",
        "if not between.is_const or not all(self._is_common(t, common) for t in first[0].terms):",
        "if not between.is_const:", PROGRAMS["double_buffered"], OPENCL,
    ),
    fault(
        "an index is taken to tell which thread it is", "conflicts:Conflicts._fixed",
        "if reach is None or abs(f.coefficient(last)) <= reach:", "if False:", neighbours, OPENCL,
    ),
    fault(
        "a condition on threads bounds them one too low", "conflicts:Conflicts._learn",
        "room // -k + 1), room // -k + 1)", "room // -k), room // -k)", PROGRAMS["row_reduction"], OPENCL,
    ),
    fault(
        "a shorter loop has all the threads", "spmd:_Kernel._thread_loop",
        "if size is not None and launched is not None and size < launched:", "if False:",
        PROGRAMS["two_extents"], OPENCL,
    ),
    fault(
        "what one thread does all do", "spmd:_Kernel._leaf", "conditions = (*alone, *guards)", "conditions = guards",
        of_one_thread, OPENCL,
    ),
    fault(
        "the turns of a virtual thread are one", "spmd:_Kernel._leaf",
        "body = For(turn, const(0), axis.extent,", "body = For(turn, const(0), const(1),",
        PROGRAMS["virtual_threads"], OPENCL,
    ),
    fault(
        "shared memory has room for one thread", "compact_buffers:_plan", "inner |= threads", "pass",
        PROGRAMS["matmul"], OPENCL,
    ),
    fault(
        "the tree reads behind its last element", "cross_thread:_Tree._reduce", "const(min(offset, count - offset))",
        "const(offset)", PROGRAMS["row_reduction"], OPENCL,
    ),
    fault(
        "a lane reads one that does not run", "cross_thread:_Tree._reduce", "const(min(offset, count - offset))",
        "const(offset)", PROGRAMS["row_reduction"], CUDA,
    ),
    fault(
        "the tree leaves out half of the threads", "cross_thread:_Tree._reduce", "while offset * 2 < width:",
        "while offset * 4 < width:", PROGRAMS["row_reduction"], CUDA,
    ),
    fault(
        "the last warp is taken to be whole", "cross_thread:_Tree._reduce", "if count % width:", "if False:",
        lambda: row_reduction("sum", 2, 96, 40), CUDA,
    ),
    fault(
        "the warps' results are stored by every lane", "cross_thread:_Tree.write",
        "steps.append(If(EQ(lane, const(0), dtypes.bool_), seq(*first)))", "steps.append(seq(*first))",
        lambda: row_reduction("sum", 2, 96, 64), CUDA,
    ),
    fault(
        "a reduction goes on where it should begin", "cross_thread:_expand",
        "last = again if block.init is None else first", "last = again", PROGRAMS["row_reduction"], OPENCL,
    ),
    fault(
        "a condition is left out behind a shuffle", "lower_warp:_Lowering._guarded",
        "return If(conjunction(guards), s) if guards else s", "return s", PROGRAMS["two_axes"], CUDA,
    ),
    fault(
        "a shuffle is asked for in every lane", "lower_warp:_Lowering._read",
        "(own, selector, valid, const(part.width))", "(own, selector, const(0) == 0, const(part.width))",
        PROGRAMS["row_reduction"], CUDA,
    ),
    fault(
        "a shuffle brings its own value", "lower_warp:_Lowering._read", "if distance == 0:", "if distance is not None:",
        PROGRAMS["row_reduction"], CUDA,
    ),
    fault(
        "a barrier does not wait for copies", "async_copies:_Waits.visit",
        "return _behind_wait(s, bool(pending)), ()", "return s, ()", PROGRAMS["async_matmul"], CUDA,
    ),
    fault(
        "a thread does not wait for its own copies", "async_copies:_Waits.visit",
        "waits = self._reads(s, pending, common)", "waits = False", own_copies, CUDA,
    ),
    fault(
        "a tile of a matrix is taken for its first element", "accesses:collect_accesses", "tile.at(ROW, COLUMN)",
        "tile.first", lambda: mma_matmul(16, 16, 16, warps=1), CUDA,
    ),
    fault(
        "what a matrix instruction reads needs no barrier", "accesses:collect_accesses",
        "for number, tile in enumerate(tiles(s)):", "for number, tile in enumerate(tiles(s)[:1]):",
        lambda: mma_matmul(16, 16, 32, warps=1), CUDA,
    ),
    fault(
        "the lanes of other warps are taken to act together", "conflicts:Conflicts._conflicts",
        "if a.warp and b.warp:", "if a.warp or b.warp:", lambda: mma_matmul(16, 16, 32, warps=1), CUDA,
    ),
    fault(
        "a condition leaves the loop that it asks about", "merge_guards:_merge",
        "if _is_pure(c) and not any(n is s.var for n in walk_expr(c))", "if _is_pure(c)", guarded_sum, OPENCL,
    ),
)  # fmt: skip


@pytest.mark.parametrize("make", [of_one_thread, own_copies, guarded_sum, neighbours], ids=lambda m: m.__name__)
@pytest.mark.parametrize("target", [OPENCL, CUDA])
def test_the_programs_are_right(make: Callable[[], Program], target: str) -> None:
    check(make, target)()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "_"))
def test_a_fault_is_found(fault: Fault) -> None:
    with seeded(fault), pytest.raises((AssertionError, NestorError)):
        for run in fault.checks:
            run()
