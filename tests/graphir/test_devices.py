"""Plans whose kernels run on a device: what is copied, what stays, what the host does in between."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import nestor as nt
from graphir import devices
from graphir.builder import GraphBuilder
from graphir.executor import Executable
from graphir.ir import Graph
from graphir.plan import Copy, Launch
from nestor import accuracy
from targets.c_family.program import DeviceKernel
from targets.cuda import kernel as cuda_kernel
from targets.cuda.compile import Cubin
from targets.opencl.device import OpenCLDevice
from tensorir.expr import Var
from tensorir.interpreter import interpret
from tensorir.passes.thread_axes import BLOCK_AXES
from tensorir.stmt import Func
from tests.graphir.graphs import random, run_levels
from tests.graphir.test_loops import BOOL, I64, F, body, counting, feed, model, node, recurrent

pytest.importorskip("pyopencl")

BYTES = ("upload", "download", "copy")


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each way of copying is used; with " bytes" after it, how much."""
    counts: Counter[str] = Counter()
    for name in BYTES:
        real = getattr(OpenCLDevice, name)

        def counted(self: Any, *args: Any, _real: Any = real, _name: str = name) -> None:
            counts[_name] += 1
            counts[f"{_name} bytes"] += next((a.nbytes for a in args if isinstance(a, np.ndarray)), 0)
            _real(self, *args)

        monkeypatch.setattr(OpenCLDevice, name, counted)
    yield counts


def network() -> Graph:
    """Two inputs, four kernels and more, two outputs, three weights."""
    b = GraphBuilder()
    x, y = b.input("x", ("n", 5, 6)), b.input("y", (6, 7))
    [p] = b.add("matmul", [x, b.constant(random(6, 6, seed=1), "w")])
    [p] = b.add("relu", [b.add("add", [p, b.constant(random(6, seed=2), "bias")])[0]])
    [t] = b.add("transpose", [p], {"axes": (0, 2, 1)})
    [t] = b.add("reshape", [t], {"shape": (-1, 6, 5)})
    [s] = b.add("sum", [t], {"axes": (2,), "keepdims": True})
    [q] = b.add("matmul", [p, y])
    [z] = b.add("divide", [t, b.add("exp", [s])[0]])
    return b.finish([z, q], ["z", "q"])


def agree(exe: Executable, graph: Any, inputs: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    wanted = nt.compile(graph, cache=False).run(inputs)
    for info, found, right in zip(exe.outputs, exe.run(inputs), wanted, strict=True):
        assert found.dtype == right.dtype and found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance, err_msg=info.name)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_one_copy_an_input_one_an_output_and_weights_once(level: int, traffic: Counter[str]) -> None:
    graph = network()
    exe = nt.compile(graph, target="opencl", opt_level=level)
    for n in (3, 1, 4):
        inputs = {"x": random(n, 5, 6, seed=3), "y": random(6, 7, seed=4)}
        exe.run(inputs)
        traffic.clear()
        agree(exe, graph, inputs)
        assert (traffic["upload"], traffic["download"], traffic["copy"]) == (2, 2, 0), traffic
        assert traffic["upload bytes"] == sum(a.nbytes for a in inputs.values())
    fresh = nt.compile(graph, target="opencl", opt_level=level)
    traffic.clear()
    fresh.run(inputs)
    assert traffic["upload"] == 2 + len(fresh.plan.constants_on(1)) and fresh.plan.constants_on(1)
    launches = [i for i in exe.plan.walk() if isinstance(i, Launch)]
    assert len(launches) >= 3 and all(i.device == 1 and {s.device for s in i.slots} == {1} for i in launches)


def test_the_memory_report_names_the_devices() -> None:
    exe = nt.compile(network(), target="opencl")
    host, device = exe.memory.devices
    assert (host.device, host.arena) == ("host", 0)
    assert device.device == "opencl" and device.arena > 0 and device.constants > 0
    assert "opencl: arena" in str(exe.memory) and "host: arena 0 bytes" in str(exe.memory)
    assert "on opencl" in str(exe.plan) and "copy input0 to opencl:arena" in str(exe.plan)
    assert all(b.offset % 512 == 0 for b in device.blocks)
    assert [d.device for d in nt.compile(network(), cache=False).memory.devices] == ["host"]


def test_an_output_that_is_an_input_a_constant_or_made_twice(traffic: Counter[str]) -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 3))
    c = b.constant(random(3), "c")
    [y] = b.add("add", [x, c])
    [v] = b.add("reshape", [y], {"shape": (3, 4)})
    graph = b.finish([y, v, x, c, y], list("abcde"))
    exe = nt.compile(graph, target="opencl")
    exe.run([random(4, 3)])
    traffic.clear()
    agree(exe, graph, {"x": random(4, 3)})
    assert (traffic["upload"], traffic["download"]) == (1, 3)


def test_work_of_the_host_is_given_what_it_reads_and_no_more(traffic: Counter[str]) -> None:
    """A sort (numba) between kernels of the device: its operand comes over, its results go back where they are read."""
    nodes = [
        node("Mul", ["x", "x"], ["s"]), node("TopK", ["s", "k"], ["v", "i"], axis=1), node("Exp", ["v"], ["e"]),
        node("Add", ["s", "one"], ["t"]),
    ]  # fmt: skip
    m = model(
        nodes, {"x": (F, [4, 9])}, ["e", "i", "t"], {"k": np.array([3]), "one": np.array(1, np.float32)}, opset=11
    )
    exe = nt.compile(m, target="opencl")
    x = random(4, 9)
    exe.run([x])
    traffic.clear()
    agree(exe, m, {"x": x})
    assert (traffic["upload"], traffic["download"], traffic["copy"]) == (2, 3, 0), f"{traffic}\n{exe.plan}"


def test_a_condition_brings_one_byte_over(traffic: Counter[str]) -> None:
    then = onnx.helper.make_graph(
        [node("Exp", ["y"], ["o"])], "then", [], [onnx.helper.make_empty_tensor_value_info("o")]
    )
    other = onnx.helper.make_graph(
        [node("Neg", ["w"], ["o"])], "else", [], [onnx.helper.make_empty_tensor_value_info("o")]
    )
    nodes = [
        node("Mul", ["x", "x"], ["y"]), node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Less", ["s", "limit"], ["c"]), node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        node("Add", ["z", "y"], ["out"]),
    ]  # fmt: skip
    m = model(nodes, {"x": (F, [3, 4]), "w": (F, [3, 4])}, ["out"], {"limit": np.array(5, np.float32)}, opset=13)
    exe = nt.compile(m, target="opencl")
    for scale in (0.1, 10):
        inputs = {"x": random(3, 4) * np.float32(scale), "w": random(3, 4, seed=1)}
        exe.run(inputs)
        traffic.clear()
        agree(exe, m, inputs)
        assert traffic["download"] == 2 and traffic["download bytes"] == 1 + 48
        assert traffic["upload"] == (1 if scale < 1 else 2), "an input that only the other branch reads stays"


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_loops_keep_their_state_on_the_device(op: str, direction: str, traffic: Counter[str]) -> None:
    m = recurrent(op, direction)
    exe = nt.compile(m, target="opencl")
    for steps in (1, 4):
        inputs = feed(m, steps)
        exe.run(inputs)
        traffic.clear()
        agree(exe, m, inputs, 1e-4)
        assert traffic["download"] == len(exe.outputs), exe.plan
        assert traffic["upload"] <= len(inputs) + 2, exe.plan


def test_loops_by_trips_and_conditions() -> None:
    nodes = [node("Loop", ["trips", "go", "start"], ["y"], body=counting(20.0))]
    start = {"start": np.zeros(2, np.float32)}
    m = model(nodes, {"x": (F, [2]), "trips": (I64, []), "go": (BOOL, [])}, ["y"], start)
    exe = nt.compile(m, target="opencl")
    for trips, go in ((3, True), (100, True), (0, True), (5, False)):
        agree(exe, m, {"x": np.array([1, 2], np.float32), "trips": np.array(trips), "go": np.array(go)})


def test_slices_reach_the_device() -> None:
    """Rows of 3 floats start where no OpenCL device lets a buffer start, so they are copied aside."""
    scan = body(
        [node("Add", ["sum", "row"], ["next"]), node("Mul", ["next", "row"], ["seen"])],
        {"sum": (F, [3]), "row": (F, [3])},
        ["next", "seen"],
    )
    m = model(
        [node("Scan", ["start", "x"], ["total", "all"], body=scan, num_scan_inputs=1)],
        {"x": (F, ["n", 3])},
        ["total", "all"],
        {"start": np.zeros(3, np.float32)},
        opset=13,
    )
    exe = nt.compile(m, target="opencl")
    for n in (1, 5):
        inputs = {"x": random(n, 3)}
        agree(exe, m, inputs)
        x = inputs["x"]
        np.testing.assert_allclose(exe.run(inputs)[1], x.cumsum(0) * x, rtol=1e-5, atol=1e-6)


def test_sizes_that_values_decide() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Cast", ["places"], ["f"], to=F),
        node("Mul", ["f", "f"], ["y"]),
    ]
    m = model(nodes, {"x": (F, [3, 5])}, ["y"], opset=13)
    exe = nt.compile(m, target="opencl")
    for seed in range(3):
        x = random(3, 5, seed=seed)
        [y] = exe.run([x])
        np.testing.assert_array_equal(y, np.stack(np.nonzero(np.maximum(x, 0))).astype(np.float32) ** 2)


def test_debug_and_profile_on_a_device() -> None:
    graph = network()
    exe = nt.compile(graph, target="opencl", opt_level=0)
    inputs = {"x": random(2, 5, 6), "y": random(6, 7)}
    found, wanted = exe.debug(inputs), nt.compile(graph, opt_level=0, cache=False).debug(inputs)
    assert found.keys() == wanted.keys()
    for name in found:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)
    assert len(exe.profile(inputs).times) == len(wanted) - 2


def test_threads_share_a_device() -> None:
    graph = network()
    exe = nt.compile(graph, target="opencl")
    cases = [{"x": random(n, 5, 6, seed=n), "y": random(6, 7, seed=n)} for n in range(1, 5)]
    wanted = [exe.run(c) for c in cases]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for _ in range(10):
            for a, b in zip(exe.run(cases[number]), wanted[number], strict=True):
                if a.tobytes() != b.tobytes():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


class InterpretedCuda:
    """A CUDA device whose memory is numpy's and whose kernels the interpreter runs: the host's side without a GPU."""

    arch = "sm_80"
    alignment = 256

    def __init__(self) -> None:
        self.programs: dict[tuple[bytes, str], DeviceKernel] = {}
        self.counts: Counter[str] = Counter()

    def load(self, image: bytes, names: list[str]) -> dict[str, Any]:
        return {n: (image, n) for n in names}

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.full(max(nbytes, 1), 0xFF, np.uint8)

    def part(self, buffer: np.ndarray, start: int, nbytes: int) -> np.ndarray:
        assert start % self.alignment == 0
        return buffer[start : start + nbytes]

    def upload(self, buffer: np.ndarray, array: np.ndarray, start: int = 0) -> None:
        self.counts["upload"] += 1
        buffer[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, buffer: np.ndarray, start: int = 0) -> None:
        self.counts["download"] += 1
        array.reshape(-1).view(np.uint8)[:] = buffer[start : start + array.nbytes]

    def copy(self, target: Any, target_start: int, source: Any, source_start: int, nbytes: int) -> None:
        self.counts["copy"] += 1
        target[target_start : target_start + nbytes] = source[source_start : source_start + nbytes]

    def launch(self, kernel: tuple[bytes, str], grid: tuple[int, ...], block: tuple[int, ...], args: list[Any]) -> None:
        program = self.programs[kernel]
        nest = program.body
        for axis in reversed(program.axes):
            nest = type(axis)(axis.var, axis.begin, axis.extent, axis.kind, nest, axis.thread)
        func = Func(
            program.name, program.buffers, program.scalars, nest, len(program.written), attrs=(("thread_form", True),)
        )
        values: dict[Var, int] = dict(zip(program.scalars, map(int, args[len(program.buffers) :]), strict=True))
        extents = dict(zip(BLOCK_AXES, grid, strict=True))
        assert all(n > 0 for n in extents.values()) and block == program.block
        arrays = []
        for b, memory in zip(program.buffers, args):
            count = memory.nbytes // b.dtype.nbytes
            arrays.append(memory[: count * b.dtype.nbytes].view(b.dtype.numpy))
        interpret(func, arrays, values)

    def finish(self) -> None:
        self.counts["finish"] += 1


def test_the_same_plan_runs_through_the_interface_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops bound to threads as the interpreter runs them, on memory of a driver in the place of CUDA's."""
    device = InterpretedCuda()
    monkeypatch.setattr(cuda_kernel, "open_device", lambda: device)
    monkeypatch.setattr(cuda_kernel, "compile_cuda", lambda source, arch: Cubin(source.encode(), arch, {}))
    monkeypatch.setattr(devices, "open_driver", lambda target: device)
    graph = network()
    exe = nt.compile(graph, target="cuda")
    assert [d.device for d in exe.memory.devices] == ["host", "cuda"]
    for k in exe.plan.kernels:
        runner: Any = k.group.kernel
        device.programs.update({(runner.text.encode(), p.name): p for p in runner.program.kernels})
    inputs = {"x": random(2, 5, 6, seed=3), "y": random(6, 7, seed=4)}
    exe.run(inputs)
    device.counts.clear()
    agree(exe, graph, inputs)
    assert (device.counts["upload"], device.counts["download"], device.counts["copy"]) == (2, 2, 0)


def test_a_plan_for_the_host_has_one_device() -> None:
    for exe in run_levels(network(), {"x": random(2, 5, 6), "y": random(6, 7)}).values():
        assert exe.plan.devices == ("host",) and len(exe.plan.arenas) == 1
        assert all(not i.source.device and not i.target.device for i in exe.plan.walk() if isinstance(i, Copy))


def test_what_verifies_accuracy_takes_a_device() -> None:
    m = recurrent("GRU", "forward")
    inputs = feed(m, 3)
    expected = accuracy.onnxruntime_outputs(m, inputs)
    exe = nt.compile(m, target="opencl", precision="strict")
    for info, value in zip(exe.outputs, exe.run(inputs), strict=True):
        np.testing.assert_allclose(value, expected[info.name], rtol=1e-5, atol=1e-6)
