"""What only shows over a minute or in a process of its own: `pytest -m slow -s tests/nestor/test_endurance.py`.

Many threads on one executable and on two, for `NESTOR_MINUTE` seconds (60 by default): right answers, no growth of
memory. The peak of memory of a process that loads ResNet-50; the time of its first compilation and of the next one,
each in a new process, on a machine that is not busy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestor
from tests.models import zoo

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("NESTOR_MINUTE", "60"))
THREADS = 16
GROWTH = 8 << 20
"""The most that the process may grow, in bytes, after the first tenth of the time."""
MB = 1 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wear(executables: list[Any], cases: list[list[dict[str, np.ndarray]]], seconds: float) -> tuple[int, int]:
    """Runs the executables from 16 threads, every answer compared with the first one; the number of runs, and by how
    much memory grew after the first tenth of the time."""
    wanted = [[[v.copy() for v in e.run(inputs)] for inputs in own] for e, own in zip(executables, cases, strict=True)]
    begin, failures, counts = time.monotonic(), list[str](), [0] * THREADS

    def work(number: int) -> None:
        step = number
        while time.monotonic() - begin < seconds and not failures:
            which = step % len(executables)
            case = step // len(executables) % len(cases[which])
            got = executables[which].run(cases[which][case])
            if any(a.tobytes() != b.tobytes() for a, b in zip(got, wanted[which][case], strict=True)):
                failures.append(f"thread {number}, run {step}: executable {which}, case {case}")
            step += 1
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 10)
    before = resident()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert min(counts) > 0, "a thread never ran"
    return sum(counts), resident() - before


def test_sixteen_threads_on_one_executable() -> None:
    executable = nestor.compile(zoo.load("text_direction"), shapes=zoo.OPEN["text_direction"])
    cases = [*zoo.cases("text_direction"), *zoo.more_cases("text_direction")]
    runs, growth = wear([executable], [cases], SECONDS)
    print(f"{runs} runs in {SECONDS:.0f} s from {THREADS} threads, memory grew by {growth / MB:.1f} MB")
    assert growth < GROWTH


def test_sixteen_threads_on_two_executables() -> None:
    names = ("voice_activity", "file_type")
    executables = [nestor.compile(zoo.load(n)) for n in names]
    runs, growth = wear(executables, [zoo.cases(n) for n in names], SECONDS / 3)
    print(f"{runs} runs in {SECONDS / 3:.0f} s from {THREADS} threads, memory grew by {growth / MB:.1f} MB")
    assert growth < GROWTH


def in_new_process(code: str, *arguments: str, cache: str = "off") -> dict[str, Any]:
    """What a new process prints as JSON in its last line."""
    environment = {**os.environ, "NESTOR_CACHE": cache}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


LOADED = """
import json, re, sys
import numpy as np
import nestor
exe = nestor.load(sys.argv[1])
[x] = exe.inputs
for seed in range(3):
    exe.run([np.random.default_rng(seed).standard_normal(x.shape).astype(x.dtype)])
peak = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())  # getrusage also counts the parent's
print(json.dumps({"peak": int(peak[1]) * 1024, "arena": exe.memory.arena}))
"""


def test_memory_of_a_loaded_resnet50(tmp_path: Path) -> None:
    path = tmp_path / "resnet50.nst"
    nestor.compile(zoo.load("resnet50")).save(path)
    found = in_new_process(LOADED, str(path))
    limit = path.stat().st_size + 2 * found["arena"] + 100 * MB
    print(
        f"peak {found['peak'] / MB:.0f} MB; the artifact has {path.stat().st_size / MB:.0f} MB, the arena "
        f"{found['arena'] / MB:.1f} MB: at most {limit / MB:.0f} MB"
    )
    assert found["peak"] <= limit


COMPILED = """
import json, sys, time
start = time.perf_counter()
import nestor
exe = nestor.compile(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start}))
"""


def test_seconds_to_compile_resnet50(tmp_path: Path) -> None:
    model = str(zoo.load("resnet50"))
    cold = in_new_process(COMPILED, model, cache=str(tmp_path / "cache"))["seconds"]
    again = in_new_process(COMPILED, model, cache=str(tmp_path / "cache"))["seconds"]
    print(f"ResNet-50 compiles cold in {cold:.1f} s, from the cache in {again:.1f} s")
    assert cold < 40
    assert again < 3
