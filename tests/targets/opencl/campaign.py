"""Many random GPU schedules, each in a process of its own: a device that hangs or aborts costs one sample.

    python -m tests.targets.opencl.campaign --seed 7 --samples 2400 --state FILE [--seconds 60] [--stop-after 500]

Children are forked, so the process that runs this must never have opened a device: others start it as a command
(`run_campaign`).

A sample is right if the interpreter (as scheduled, as lowered, and as threads with races and barriers checked), OpenCL
and numpy agree. Where OpenCL alone fails, the sample runs again under PoCL's other ways to run a work group: if one of
them gives the interpreter's bits, the fault is the device's, counted by name, and the line says which ways fail how.
Results are lines of JSON in FILE, so that a run goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from targets.build import build
from targets.opencl import device
from tensorir.expr import Var
from tensorir.interpreter import interpret
from tensorir.passes.pipeline import lower, thread_form
from tensorir.passes.thread_axes import ThreadError
from tensorir.te import create_func
from tests.schedule.bits import make_arrays
from tests.targets.opencl.random_gpu_schedules import Sample, random_gpu_schedules

METHODS = ("workitemrepl", "loops", "loopvec")
"""PoCL's ways to run a work group. The first is slow and the one without known faults."""


def numpy_value(program: str, inputs: list[np.ndarray]) -> np.ndarray:
    """What numpy makes of the inputs of one of the programs, in double precision where they are floats."""
    x = inputs[0].astype(np.float64) if inputs[0].dtype.kind == "f" else inputs[0]
    match program:
        case "chain":
            return np.exp(x * 2) + x * 2 - x
        case "stencil":
            b = x[:18] + x[2:]
            return b[:14] * b[4:]
        case "symbolic":
            b = x + 1
            return b * b[:, ::-1]
        case "matmul":
            return np.maximum(x @ inputs[1], 0)
        case "int_convolution":
            p, w = np.pad(x, 1), inputs[1]
            return sum(p[r : r + 8, q : q + 7] * w[r, q] for r in range(3) for q in range(3))
        case "softmax":
            e = np.exp(x - x.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)
        case "two_outputs":
            h = inputs[0]
            return (h * h).astype(np.float64) * (h + h[:, ::-1]).astype(np.float64)
    raise KeyError(program)


class Wrong(AssertionError):
    """Two ways to run a sample disagree; `what` is the way that is wrong."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"{what}: {text}")
        self.what = what


def check(sample: Sample, *, checked: bool = True, on_device: bool = True, target: str = "opencl") -> None:
    """Runs a sample in every way. Raises `Wrong`, the device last, so that what is raised for it is the device's."""
    args: list[Any] = [*sample.dims, *sample.schedule.inputs, *sample.outputs]
    func = sample.schedule.func(args, "fuzz")
    kernel = build(func, target=target)
    given = make_arrays(func, sample.dims)
    first = len(given) - func.outputs
    dims: dict[Var, int] = {d: sample.dims[d] for d in func.dims}
    plain = create_func(args[len(sample.dims) :], "plain")

    def outputs(run: Callable[[list[np.ndarray]], Any]) -> list[np.ndarray]:
        arrays = [*given[:first], *[a.copy() for a in given[first:]]]
        run(arrays)
        return arrays[first:]

    wanted = outputs(lambda a: interpret(plain, a, {d: sample.dims[d] for d in plain.dims}))
    right = numpy_value(sample.name.split()[0], given[:first])
    if not np.allclose(wanted[0], right, rtol=1e-5, atol=1e-6):
        raise Wrong("unscheduled", "not numpy's value")

    def compare(what: str, run: Callable[[list[np.ndarray]], Any]) -> list[np.ndarray]:
        found = outputs(run)
        for got, value in zip(found, wanted, strict=True):
            same = got.tobytes() == value.tobytes() if sample.exact else np.allclose(got, value, rtol=1e-5, atol=1e-5)
            if not same:
                raise Wrong(what, f"{sample.name}\n{sample.schedule.trace}\n{got}\n{value}")
        return found

    compare("interpreted", lambda a: interpret(func, a, dims))
    lowered = compare("lowered", lambda a: interpret(lower(func, kernel.target), a, dims))
    if checked:
        threads = thread_form(func, kernel.target)
        compare("threads", lambda a: interpret(threads, a, dims, mode="checked", complete=True))
    if on_device:
        found = compare("opencl", lambda a: kernel(*a))
        for got, same in zip(found, lowered, strict=True):
            if got.tobytes() != same.tobytes():
                raise Wrong("opencl", f"{sample.name}: not the interpreter's bits")


def in_child(work: Callable[[], None], seconds: float) -> tuple[str, str]:
    """Runs `work` in a child: ("ok", ""), or what went wrong ("refused", "wrong ...", "error", "hangs", "dies ...") and
    its text. `seconds` are of processor time; ten times as much may pass on the clock."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        result = ("ok", "")
        try:
            faulthandler.enable()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work()
        except ThreadError as error:
            result = ("refused", str(error))
        except Wrong as error:
            result = (f"wrong {error.what}", str(error))
        except BaseException as error:
            result = ("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}")
        os.write(writer, pickle.dumps((result[0], result[1][:4000])))
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + seconds * 10
    status = None
    while status is None:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = code
        elif time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return "hangs", "asleep"
        else:
            time.sleep(0.005)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return ("hangs", "busy") if name in ("SIGXCPU", "SIGKILL") else ("dies", name)
    return pickle.loads(data)


def by_method(
    sample: Sample, method: str | None, seconds: float, *, checked: bool, target: str = "opencl"
) -> tuple[str, str]:
    """One sample in a child under one of PoCL's methods (None: the one that the target chooses)."""

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="nestor-pocl-") as folder:
            os.environ["POCL_CACHE_DIR"] = folder
            if method is not None:
                os.environ["POCL_WORK_GROUP_METHOD"] = method
                device._METHOD_GIVEN = True
            check(sample, checked=checked, target=target)

    return in_child(work, seconds)


def judge(sample: Sample, seconds: float, target: str = "opencl") -> dict[str, str]:
    """The verdict on a sample: ok, refused, device (PoCL alone is wrong, shown by another method), wrong or error."""
    what, text = by_method(sample, None, seconds, checked=True, target=target)
    line = {"name": sample.name, "verdict": what}
    if what in ("ok", "refused"):
        return line
    if target == "opencl" and what in ("hangs", "dies", "wrong opencl"):
        ours = in_child(lambda: check(sample, checked=True, on_device=False), seconds)
        others = {m: by_method(sample, m, seconds, checked=False)[0] for m in METHODS}
        line["interpreter"] = ours[0]
        line["methods"] = ", ".join(f"{m}: {r}" for m, r in others.items())
        if ours[0] == "ok" and "ok" in others.values():
            return {**line, "verdict": f"device {what}", "text": text}
    return {**line, "verdict": what if what.startswith("wrong") else f"error {what}", "text": text}


def report(lines: list[dict[str, str]]) -> str:
    """The figures of a campaign, with each sample that was not plainly right by its name."""
    counts = Counter(line["verdict"] for line in lines)
    text = [f"{len(lines)} samples: " + ", ".join(f"{n} {v}" for v, n in counts.most_common())]
    for line in lines:
        if line["verdict"] not in ("ok", "refused"):
            text.append(f"  {line['name']}: {line['verdict']} ({line.get('methods', '')})")
    return "\n".join(text)


def run_campaign(
    seed: int, samples: int, *, first: int = 0, seconds: float = 120, target: str = "opencl"
) -> list[dict[str, str]]:
    """The verdicts of a campaign that runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        options = {"seed": seed, "samples": samples, "first": first, "seconds": seconds, "target": target}
        command = [sys.executable, "-m", "tests.targets.opencl.campaign", "--state", str(state)]
        command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
        if not state.exists():
            raise RuntimeError(done.stderr[-2000:])
        return [json.loads(x) for x in state.read_text().splitlines()]


def main() -> int:
    """Runs what is not in the state file yet and prints the figures; 1 if a sample is wrong for a fault of ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--samples", type=int, default=2400)
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a sample")
    parser.add_argument("--stop-after", type=int, default=1 << 30, help="samples of this call")
    args = parser.parse_args()
    lines = [json.loads(x) for x in args.state.read_text().splitlines()] if args.state.exists() else []
    done = len(lines)
    count = min(args.samples - done, args.stop_after)
    with args.state.open("a") as file:
        for sample in random_gpu_schedules(args.seed, max(count, 0), args.first + done):
            line = judge(sample, args.seconds, args.target)
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    print(report(lines))
    return 0 if all(line["verdict"].split()[0] in ("ok", "refused", "device") for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
