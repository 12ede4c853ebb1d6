"""Compiling the kernels of a model on several cores: this process takes them from the front, workers from the back.

LLVM is used under one lock in a process, and scheduling is Python, so another core needs another process: `python -m
graphir.worker`, which knows nothing of the user's script. `NESTOR_JOBS` is the most processes that compile, this one
included (all cores by default; 1 turns workers off). A kernel that a worker cannot make is made here, with what the
worker said in the log; a worker that dies ends the compilation with an error that names the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from graphir.cache import is_to_be_compiled
from graphir.groups import GroupCall, adopt_kernel, is_known, kernel_name
from graphir.worker import FAILED, read_message, spec_json, write_message
from tensorir.errors import UserError
from tensorir.target import Target

FEWEST = 6
"""Kernels below which no worker is worth its start."""

_ROOT = Path(__file__).resolve().parent.parent


class WorkerError(UserError):
    """A worker process died while it compiled a kernel."""


def jobs() -> int:
    """The most processes that compile. Raises `UserError` if NESTOR_JOBS is no number from 1 on."""
    text = os.environ.get("NESTOR_JOBS", "")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"NESTOR_JOBS is {text!r}", help="it is the most processes that compile, 1 or more")
    return int(text)


def in_turn(calls: Sequence[GroupCall], target: Target, note: Callable[[str], None]) -> Iterator[GroupCall]:
    """The calls, each when its kernel is to be had: one that a worker made is known by then, any other is for this
    process to compile. Raises `WorkerError`."""
    fresh = [c for c in calls if not is_known(c, target) and is_to_be_compiled(c.spec, target, kernel_name(c, target))]
    count = min(jobs() - 1, len(fresh) // FEWEST)
    if count < 1 or not sys.executable:
        yield from calls
        return
    waiting = set(map(id, fresh))
    yield from (c for c in calls if id(c) not in waiting)
    queue = deque(fresh)
    workers = [_Worker(queue, target) for _ in range(count)]
    try:
        while queue:
            try:
                call = queue.popleft()
            except IndexError:
                break
            yield call
        for worker in workers:
            worker.thread.join()
            if worker.died is not None:
                raise worker.died
            for call, failure in worker.finished:
                if failure is not None:
                    note(f"kernels: a worker could not compile {call.label}, it is compiled here: {failure}")
                yield call
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A worker process and the thread that feeds it."""

    def __init__(self, queue: deque[GroupCall], target: Target) -> None:
        self.queue = queue
        self.target = target
        self.finished: list[tuple[GroupCall, str | None]] = []
        self.died: BaseException | None = None
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "graphir.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NESTOR_JOBS": "1"},
        )  # fmt: skip
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Feeds the worker; what goes wrong is kept for the thread that waits."""
        try:
            self.feed()
        except BaseException as error:
            self.died = error

    def feed(self) -> None:
        """Hands the worker one call after another, from the back of the queue."""
        assert self.process.stdin is not None and self.process.stdout is not None
        while True:
            try:
                call = self.queue.pop()
            except IndexError:
                return
            request = {
                "name": kernel_name(call, self.target), "target": str(self.target), "symbols": call.symbols,
                "spec": spec_json(call.spec),
            }  # fmt: skip
            try:
                write_message(self.process.stdin, json.dumps(request).encode())
                reply = read_message(self.process.stdout)
            except OSError:
                reply = None
            if reply is None:
                status = self.process.wait()
                how = f"signal {-status}" if status < 0 else f"exit code {status}"
                raise WorkerError(
                    f"the worker that compiled {call.label} died ({how})",
                    help="NESTOR_JOBS=1 compiles in one process, where the error shows",
                )
            if reply[:1] == FAILED:
                self.finished.append((call, reply[1:].decode(errors="replace")))
            else:
                adopt_kernel(call, self.target, reply[1:])
                self.finished.append((call, None))

    def stop(self) -> None:
        """Ends the process."""
        self.queue.clear()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        self.thread.join(timeout=10)
