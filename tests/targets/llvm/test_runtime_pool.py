"""The thread pool: each index once, on any number of threads, from any thread, after fork, and to a clean exit."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from targets.llvm.runtime import (
    Context,
    KernelError,
    NativeFunction,
    Pool,
    PoolSystem,
    compile_ir,
    compile_pool,
    host,
    host_machine,
    load,
    pool_imports,
    process_pool,
    target_machine,
)
from tests.targets.llvm.runtime_kernels import FAIL, INCREMENT, LATE, NESTED, RENDEZVOUS, build

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A wake-up that is lost shows as the stacks of a hung test, not as a hung run."""
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def increment(function: NativeFunction, n: int) -> np.ndarray:
    """Run INCREMENT on fresh arrays, check the values, return the parts."""
    x = np.arange(n, dtype=np.float32)
    part = np.full(n, -1, np.int64)
    function([x, part], [n])
    np.testing.assert_array_equal(x, np.arange(n, dtype=np.float32) + 1)
    return part


@pytest.mark.parametrize("threads", range(1, 9))
def test_each_index_runs_once_in_even_parts(threads: int) -> None:
    function = build(INCREMENT, data=2, dims=1, threads=threads)
    for n in (0, 1, 2, 3, 7, 8, 64, 1001):
        part = increment(function, n)
        _, sizes = np.unique(part, return_counts=True)
        assert len(sizes) == min(threads, n)
        if n:
            assert sizes.max() - sizes.min() <= 1
    assert process_pool().workers >= threads - 1


def test_the_pool_grows_only_as_far_as_asked() -> None:
    pool = Pool()
    function = build(INCREMENT, data=2, dims=1)
    assert pool.workers == 0
    for threads, workers in ((1, 0), (3, 2), (2, 2), (5, 4)):
        run_with(function, Context(threads, pool=pool), 100)
        assert pool.workers == workers


def test_more_threads_than_the_pool_holds() -> None:
    pool = Pool()
    run_with(build(INCREMENT, data=2, dims=1), Context(1000, pool=pool), 5000)
    assert 0 < pool.workers <= 255


def run_with(function: NativeFunction, context: Context, n: int) -> None:
    """Run INCREMENT once in a given context."""
    x = np.zeros(n, np.float32)
    part = np.full(n, -1, np.int64)
    assert function.call_in(context, [x.ctypes.data, part.ctypes.data], [n]) == 0
    np.testing.assert_array_equal(x, 1)


def test_both_threads_run_at_once_even_when_the_worker_slept() -> None:
    function = build(RENDEZVOUS, data=1, threads=2)
    points = np.zeros(16, np.int64)
    for pause in (0, 0, 0, 0.0001, 0.001, 0.01, 0, 0.01):
        time.sleep(pause)
        function([points])
    assert points[0] == points[8] == 8


@pytest.mark.parametrize("futex", [True, False])
def test_sleeping_and_waking_without_any_spin(futex: bool) -> None:
    system = PoolSystem.of(host().triple)
    if futex and not system.futex:
        pytest.skip("no futex on this system")
    pool = Pool(spin_ns=0, system=PoolSystem(system.arch, futex, system.monotonic_clock, system.set_mask))
    meet = build(RENDEZVOUS, data=1)
    points = np.zeros(16, np.int64)
    context = Context(2, pool=pool)
    for _ in range(300):
        assert meet.call_in(context, [points.ctypes.data]) == 0
    assert points[0] == points[8] == 300
    late = build(LATE, data=1)
    for _ in range(50):
        points[:] = 0
        assert late.call_in(context, [points.ctypes.data]) == 0
        assert points[0] == 200_000
    function = build(INCREMENT, data=2, dims=1)
    for threads in (2, 4, 7):
        context = Context(threads, pool=pool)
        for n in range(1, 200):
            run_with(function, context, n)


def test_sixteen_python_threads_with_several_kernels() -> None:
    functions = [build(INCREMENT, data=2, dims=1, threads=threads) for threads in (1, 2, 3, 8)]
    nested = build(NESTED, data=1, dims=2, threads=4)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(100):
                increment(functions[random.integers(len(functions))], int(random.integers(0, 400)))
                x = np.zeros((5, 9), np.int64)
                nested([x], [5, 9])
                assert (x == 1).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not failures


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_of_any_part_is_the_result(threads: int) -> None:
    function = build(FAIL, data=1, dims=1, threads=threads)
    for at in (0, 3, 49, 50, 99):
        codes = np.zeros(100, np.int64)
        codes[at] = 2
        with pytest.raises(KernelError, match=f"index {at} is out of bounds") as caught:
            function([codes], [100])
        assert (caught.value.code, caught.value.detail) == (2, at)
    function([np.zeros(100, np.int64)], [100])


def test_code_and_detail_belong_to_the_same_error() -> None:
    function = build(FAIL, data=1, dims=1, threads=4)
    codes = np.arange(1000, 1100)
    for _ in range(200):
        with pytest.raises(KernelError) as caught:
            function([codes], [100])
        assert caught.value.detail == caught.value.code - 1000


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_nested_region_runs_serially_inside(threads: int) -> None:
    function = build(NESTED, data=1, dims=2, threads=threads)
    for rows, columns in ((2, 50), (3, 7), (16, 5)):
        x = np.zeros((rows, columns), np.int64)
        function([x], [rows, columns])
        assert (x == 1).all()


def test_an_outer_region_of_one_part_leaves_the_threads_to_the_inner() -> None:
    x = np.zeros((1, 50), np.int64)
    build(NESTED, data=1, dims=2, threads=1)([x], [1, 50])
    assert (x == 1).all()
    with pytest.raises(KernelError, match="status 301"):
        build(NESTED, data=1, dims=2, threads=2)([x], [1, 50])


def test_a_region_after_a_nested_one_is_parallel_again() -> None:
    context = Context(2)
    x = np.zeros((4, 3), np.int64)
    points = np.zeros(16, np.int64)
    assert build(NESTED, data=1, dims=2).call_in(context, [x.ctypes.data], [4, 3]) == 0
    assert context.struct.in_region == 0
    assert build(RENDEZVOUS, data=1).call_in(context, [points.ctypes.data]) == 0


def in_subprocess(code: str) -> None:
    """Run a script in a fresh interpreter; it must end by itself, with status 0."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_child_has_its_own_workers() -> None:
    in_subprocess("""
        import os
        import numpy as np
        from targets.llvm.runtime import process_pool
        from tests.targets.llvm.runtime_kernels import RENDEZVOUS, build

        function = build(RENDEZVOUS, data=1, threads=2)
        points = np.zeros(16, np.int64)
        function([points])
        for generation in range(3):
            child = os.fork()
            if child:
                for _ in range(20):
                    function([points])
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                break
            assert process_pool().workers == 0
            for _ in range(20):
                function([points])
            assert process_pool().workers == 1
            again = build(RENDEZVOUS, data=1, threads=2)
            again([points])
    """)


def test_fork_while_other_threads_compile_and_run() -> None:
    in_subprocess("""
        import os, threading
        import numpy as np
        from tests.targets.llvm.runtime_kernels import INCREMENT, build

        stop = threading.Event()
        def work():
            while not stop.is_set():
                function = build(INCREMENT, data=2, dims=1, threads=2)
                for _ in range(50):
                    function([np.zeros(99, np.float32), np.zeros(99, np.int64)], [99])
        function = build(INCREMENT, data=2, dims=1, threads=3)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            child = os.fork()
            if not child:
                x = np.zeros(50, np.float32)
                function([x, np.zeros(50, np.int64)], [50])
                build(INCREMENT, data=2, dims=1, threads=2)([x, np.zeros(50, np.int64)], [50])
                os._exit(0 if (x == 2).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stop.set()
        for thread in threads:
            thread.join()
    """)


def test_the_process_ends_while_workers_spin_and_a_daemon_thread_runs() -> None:
    in_subprocess("""
        import threading
        import numpy as np
        from tests.targets.llvm.runtime_kernels import INCREMENT, build

        function = build(INCREMENT, data=2, dims=1, threads=4)
        def work():
            x, part = np.zeros(1000, np.float32), np.zeros(1000, np.int64)
            while True:
                function([x, part], [1000])
        threading.Thread(target=work, daemon=True).start()
        function([np.zeros(99, np.float32), np.zeros(99, np.int64)], [99])
    """)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_workers_leave_signals_to_python() -> None:
    build(INCREMENT, data=2, dims=1, threads=2)([np.zeros(9, np.float32), np.zeros(9, np.int64)], [9])
    masks = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
        masks[task] = int(lines["SigBlk"], 16)
    interrupt, segmentation = 1 << 1, 1 << 10
    assert any(mask & interrupt and not mask & segmentation for mask in masks.values())
    assert not masks[str(os.getpid())] & interrupt


def test_the_allocator_aligns_and_frees() -> None:
    text = """
    define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
      %bytes = load i64, ptr %dims
      %at_alloc = getelementptr i8, ptr %ctx, i64 16
      %alloc = load ptr, ptr %at_alloc
      %at_free = getelementptr i8, ptr %ctx, i64 24
      %free = load ptr, ptr %at_free
      %p = call ptr %alloc(ptr %ctx, i64 %bytes)
      %a = ptrtoint ptr %p to i64
      %low = and i64 %a, 63
      %crooked = icmp ne i64 %low, 0
      %null = icmp eq ptr %p, null
      call void %free(ptr %ctx, ptr %p)
      %c = zext i1 %crooked to i32
      %status = select i1 %null, i32 1, i32 %c
      ret i32 %status
    }"""
    function = build(text, data=0, dims=1)
    for size in (1, 63, 64, 1000, 1 << 20):
        function([], [size])
    with pytest.raises(KernelError, match="out of memory"):
        function([], [1 << 60])


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx13.0.0", "x86_64-unknown-linux-gnu"]
)
def test_the_pool_compiles_for_other_systems(triple: str) -> None:
    system = PoolSystem.of(triple)
    compiled = compile_pool(target_machine(triple), system)
    assert compiled.symbols.undefined <= {*pool_imports(system), "memset", "bzero"}
    assert "nestor_parallel_for" in compiled.symbols.defined


def test_a_kernel_on_one_thread_starts_no_worker() -> None:
    in_subprocess("""
        import numpy as np
        from targets.llvm.runtime import process_pool
        from tests.targets.llvm.runtime_kernels import INCREMENT, build
        build(INCREMENT, data=2, dims=1, threads=1)([np.zeros(9, np.float32), np.zeros(9, np.int64)], [9])
        assert process_pool().workers == 0
    """)


def test_codegen_of_the_pool_is_shared_by_jit_and_export() -> None:
    machine = host_machine()
    first = compile_pool(machine, PoolSystem.of(machine.triple))
    second = compile_pool(machine, PoolSystem.of(machine.triple))
    assert first.object == second.object
    assert compile_ir(INCREMENT, machine=machine).symbols.undefined == frozenset()
    assert load(compile_ir(INCREMENT, machine=machine)).symbols == {"kernel"}
