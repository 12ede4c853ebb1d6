"""Threads of an executable in the caller's process."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import nestor


def product(size: int) -> Any:
    """y = x @ w, large enough for several threads."""
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((size, size)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity masks")
@pytest.mark.parametrize("threads", [1, 2])
def test_no_thread_is_pinned(threads: int) -> None:
    """apache/tvm#7454, apache/tvm#9977: with one thread every worker was pinned to one core, the caller's own too."""
    allowed = os.sched_getaffinity(0)
    executable = nestor.compile(product(192), threads=threads)
    x = np.ones((192, 192), np.float32)
    [wanted] = executable.run([x])
    answers: list[np.ndarray] = []
    callers = [threading.Thread(target=lambda: answers.append(executable.run([x])[0])) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [a.tobytes() for a in answers] == [wanted.tobytes()] * 2
    for task in Path("/proc/self/task").iterdir():
        assert os.sched_getaffinity(int(task.name)) == allowed
