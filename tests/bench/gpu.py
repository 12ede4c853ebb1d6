"""For a machine with an NVIDIA GPU: checks there what is checked elsewhere without one, and prints shares of the copy
bandwidth and of cuBLAS.

    python -m tests.bench.gpu [--target cuda] [--size 2048] [--samples 100] [--models NAME ...] [--only programs ...]
    python -m tests.bench.gpu --dry            the same checks on PoCL, small, no times: does the script itself work?

programs   every program of the tests against numpy, with the resources of its kernels
families   every family of the default schedules against numpy
models     light SqueezeNet and the text-direction net against the same model on the CPU, with the time of a run
fuzz       random schedules, each in a process of its own, against the interpreter's bits
times      a scaling against the device's own copy, a tiled matrix product against cuBLAS (where cupy is installed)

Without a device it says so and exits 2; 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphir.compile import compile as compile_model
from graphir.reference import evaluate
from targets.build import build, open_driver, resolve
from tensorir.errors import NestorError, UserError
from tests.models import zoo
from tests.targets.gpu_programs import PROGRAMS, check, elementwise, matmul, outputs_of
from tests.targets.opencl.campaign import report, run_campaign
from tests.topi.test_schedules_gpu import CASES, graph_of

CHECKS = ("programs", "families", "models", "fuzz", "times")


def best(run: Callable[[], Any], finish: Callable[[], Any], repeats: int = 10, number: int = 10) -> float:
    """Seconds of the shortest call."""
    run()
    finish()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            run()
        finish()
        times.append((time.perf_counter() - start) / number)
    return min(times)


def check_programs(target: str, names: Sequence[str]) -> int:
    """Runs programs on the device against numpy; how many are wrong."""
    wrong = 0
    for name in names:
        program = PROGRAMS[name]()
        try:
            kernel = build(program.schedule, program.args, target=target, name=name)
            outputs = outputs_of(program)
            kernel(*program.inputs, *outputs)
            check(program, outputs)
            print(f"  {name:28} ok   {kernel.resources if resolve(target).kind == 'cuda' else ''}")
        except (NestorError, AssertionError) as error:
            wrong += 1
            print(f"  {name:28} WRONG {_first_line(error)}")
    return wrong


def check_families(target: str, names: Sequence[str]) -> int:
    """The default schedules at odd sizes against numpy; how many are wrong."""
    wrong = 0
    for name in names:
        graph, given = graph_of(name)
        wanted = evaluate(graph, given)
        try:
            exe = compile_model(graph, target)
            for info, found in zip(exe.outputs, exe.run(given), strict=True):
                scale = max(1.0, float(np.abs(wanted[info.name]).max()))
                np.testing.assert_allclose(found, wanted[info.name], rtol=0, atol=1e-5 * scale)
            print(f"  {name:28} ok")
        except (NestorError, AssertionError) as error:
            wrong += 1
            print(f"  {name:28} WRONG {_first_line(error)}")
    return wrong


def check_models(target: str, names: Sequence[str], repeats: int) -> int:
    """Models against themselves on the CPU; how many are wrong."""
    wrong = 0
    for name in names:
        inputs = zoo.cases(name)[0]
        wanted = compile_model(zoo.load(name), "llvm", precision="strict").run(inputs)
        try:
            exe = compile_model(zoo.load(name), target, precision="strict")
            found = exe.run(inputs)
            error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)) for a, b in zip(found, wanted))
            seconds = min(_seconds(lambda exe=exe, inputs=inputs: exe.run(inputs)) for _ in range(repeats))
            wrong += error > 1e-4
            state = "ok" if error <= 1e-4 else "WRONG"
            print(f"  {name:28} {state}   error {error:.1e} of the largest value, {seconds * 1e3:.2f} ms a run")
            print("  " + str(exe.memory).splitlines()[-1 - len(exe.memory.devices[-1].blocks)])
        except NestorError as error:
            wrong += 1
            print(f"  {name:28} WRONG {_first_line(error)}")
    return wrong


def check_fuzz(target: str, samples: int) -> int:
    """Random schedules against the interpreter; how many are wrong."""
    lines = run_campaign(11, samples, target=target)
    print("  " + report(lines).replace("\n", "\n  "))
    return sum(line["verdict"].split()[0] not in ("ok", "refused", "device") for line in lines)


def time_on_device(program: Any, name: str, target: str) -> float:
    """Seconds of a kernel with its data on the device."""
    kernel = build(program.schedule, program.args, target=target, name=name)
    runner = kernel._runner.runner  # type: ignore[attr-defined]
    driver = runner.driver
    memory = {}
    for buffer, array in zip(runner.program.func.params, [*program.inputs, *outputs_of(program)], strict=True):
        memory[buffer] = driver.allocate(array.nbytes)
        driver.upload(memory[buffer], array)
    return best(lambda: runner.run_on_device(dict(memory), {}), driver.finish)


def print_times(target: str, size: int, count: int) -> None:
    """Shares of the copy bandwidth and of cuBLAS."""
    driver = open_driver(resolve(target))
    nbytes = 4 * count
    source, copy = driver.allocate(nbytes), driver.allocate(nbytes)
    driver.upload(source, np.zeros(nbytes, np.uint8))
    copied = 2 * nbytes / best(lambda: driver.copy(copy, 0, source, 0, nbytes), driver.finish) / 1e9
    scaled = 2 * nbytes / time_on_device(elementwise(count), "scale", target) / 1e9
    print(f"  scale of {count} floats: {scaled:.1f} GB/s, {scaled / copied:.1%} of the {copied:.1f} of a copy")
    ours = 2 * size**3 / time_on_device(matmul(size, size, size, 16), "matmul", target) / 1e12
    print(f"  matrix product of {size}: {ours:.3f} TFLOP/s by the schedule of the lesson")
    theirs = _cublas(size)
    if theirs is None:
        print("  cupy is not installed: no share of cuBLAS")
    else:
        print(f"  cuBLAS {theirs:.2f} TFLOP/s; ours is {ours / theirs:.1%} of it")


def _cublas(size: int) -> float | None:
    try:
        import cupy
    except ImportError:
        return None
    a, b = (cupy.asarray(np.random.rand(size, size).astype(np.float32)) for _ in range(2))
    return 2 * size**3 / best(lambda: a @ b, cupy.cuda.Device().synchronize) / 1e12


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report; 2 without a device, 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--models", nargs="*", default=["squeezenet", "text_direction"])
    parser.add_argument("--only", nargs="*", default=list(CHECKS), choices=CHECKS)
    parser.add_argument("--dry", action="store_true", help="on PoCL, a few of each")
    args = parser.parse_args(argv)
    target = "opencl" if args.dry else args.target
    try:
        device = open_driver(resolve(target))
    except UserError as error:
        print(error)
        return 2
    print(f"target {target}, device {getattr(device, 'arch', None) or type(device).__name__}")
    few = 3 if args.dry else None
    wrong = 0
    for name in args.only:
        print(name)
        match name:
            case "programs":
                wrong += check_programs(target, list(PROGRAMS)[:few])
            case "families":
                wrong += check_families(target, list(CASES)[:few])
            case "models":
                wrong += check_models(target, [] if args.dry else args.models, 10)
            case "fuzz":
                wrong += check_fuzz(target, 3 if args.dry else args.samples)
            case "times":
                print_times(target, 64 if args.dry else args.size, 1 << 12 if args.dry else 1 << 26)
    print("all right" if not wrong else f"{wrong} are WRONG")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
