"""Kernels compiled by worker processes: the same kernels, errors that are carried back, deaths that are named."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import nestor as nt
from graphir import groups, workers
from graphir.builder import GraphBuilder
from graphir.groups import group_call, kernel_nodes
from graphir.ir import Graph
from graphir.worker import spec_from_json, spec_json
from graphir.workers import WorkerError
from tensorir.errors import UserError
from tests.graphir.graphs import random
from tests.graphir.test_memory import pyramid


def chain(length: int = 14) -> Graph:
    """Many small kernels, no two alike."""
    b = GraphBuilder()
    v = b.input("x", (3, 4))
    for n in range(length):
        [v] = b.add("pad", [v], {"before": (0, 0), "after": (0, 1)}, name=f"pad{n}")
        [v] = b.add("tanh", [v], name=f"tanh{n}")
    return b.finish([v])


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled yet, and two processes may compile."""
    monkeypatch.setattr(groups, "_COMPILED", {})
    monkeypatch.setenv("NESTOR_JOBS", "2")


def compiled(**options: Any) -> Any:
    return nt.compile(chain(), opt_level=0, cache=False, **options)


def test_a_group_reads_back_as_it_was() -> None:
    for g in (pyramid(), pyramid().apply("fold_scales", "layouts", "pack_constants", "fuse")):
        for node, constants in kernel_nodes(g, views=True):
            spec = group_call(node, constants.__contains__).spec
            assert spec_from_json(spec_json(spec)).key() == spec.key()


def test_workers_make_the_same_kernels(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, str]] = []
    both = compiled(progress=lambda done, total, name: seen.append((done, total, name)))
    adopted = [k for k in both.plan.kernels if type(k.group).__name__ == "StoredGroup"]
    assert adopted, "no kernel came from the worker"
    assert [d for d, _, _ in seen] == list(range(len(both.plan.kernels) + 1))
    monkeypatch.setattr(groups, "_COMPILED", {})
    monkeypatch.setenv("NESTOR_JOBS", "1")
    alone = compiled()
    assert {k.name: k.group.kernel.object for k in both.plan.kernels} == {
        k.name: k.group.kernel.object for k in alone.plan.kernels
    }
    x = random(3, 4)
    assert both.run([x])[0].tobytes() == alone.run([x])[0].tobytes()
    assert str(adopted[0].group.func) == str(
        next(k.group.func for k in alone.plan.kernels if k.name == adopted[0].name)
    )


def test_what_a_worker_cannot_compile_is_compiled_here_and_said(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any) -> Any:
        data = spec_json(spec)
        data["nodes"][0]["op"] = "nothing"
        return data

    monkeypatch.setattr(workers, "spec_json", broken)
    executable = compiled()
    failures = [line for line in executable.log if "a worker could not compile" in line]
    assert failures and "it is compiled here" in failures[0] and "Traceback" in failures[0]
    assert "OpError: no op is called 'nothing'" in failures[0]
    assert np.isfinite(executable.run([random(3, 4)])[0]).all()


def test_the_death_of_a_worker_names_the_kernel(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen

    def dying(command: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", "import sys; sys.stdin.buffer.read(9); sys.exit(7)"], **options)

    monkeypatch.setattr(subprocess, "Popen", dying)
    with pytest.raises(
        WorkerError, match=r"the worker that compiled (tanh|pad) died \(exit code 7\)\nhelp: NESTOR_JOBS=1"
    ):
        compiled()


def test_one_job_starts_no_worker(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("NESTOR_JOBS", "1")
    compiled()
    monkeypatch.setattr(groups, "_COMPILED", {})
    monkeypatch.setenv("NESTOR_JOBS", "none")
    with pytest.raises(UserError, match="NESTOR_JOBS is 'none'\nhelp: it is the most processes that compile"):
        compiled()


def test_few_kernels_start_no_worker(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a worker was started"))
    nt.compile(chain(2), opt_level=0, cache=False)
