"""Runs cases of the ONNX backend suite in worker processes and reports them by kind and by op.

    python -m tests.onnx_suite --kinds node --filter '^test_conv' --show-failures
    python -m tests.onnx_suite --json results.json --min-pass 1000

A case that crashes or hangs costs itself only: its worker is started again for the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.onnx_suite.cases import KINDS, NOT_COUNTED, Case, build_cache

BIND = (
    "shape|axes|axis|pads|scales|sizes|size|roi|split|repeats|starts|ends|steps|k|depth|start|limit|delta|"
    "output_shape|target_shape|trip_count|max_trip_count|tile|num_classes|dft_length|n_fft|frame_length|frame_step|"
    "block_size|diag|image_shape|max_output_boxes_per_class|iou_threshold|score_threshold|"
    "x_scale|y_scale|a_scale|b_scale|x_zero_point|y_zero_point|a_zero_point|b_zero_point|w_zero_point|w_scale|ratio|"
    "new_shape"
)
STATUSES = ("pass", "wrong", "shape", "dtype", "unsupported", "error", "crash", "timeout")

Key = tuple[str, str]
Results = dict[Key, dict[str, Any]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="nestor.testing:run", help="module:function")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--filter", default="", help="regular expression on the case's name")
    parser.add_argument("--no-expanded", action="store_true", help="without the cases of expanded functions")
    parser.add_argument("--bind", nargs="?", const=BIND, default="", help="inputs of these names become initialisers")
    parser.add_argument("--batch", type=int, default=60, help="cases a worker runs before a new one takes over")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds a case, six times that for light ones")
    parser.add_argument("--rtol", type=float, default=1e-3)
    parser.add_argument("--atol", type=float, default=1e-5)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "onnx_suite")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--by-op", action="store_true", help="a line for every op")
    parser.add_argument("--show-failures", action="store_true")
    parser.add_argument("--min-pass", type=int, default=0, help="exit 1 when fewer cases pass")
    return parser.parse_args()


def run_batch(batch: list[Case], options: argparse.Namespace, results: Results) -> None:
    """Runs cases in one worker after another until each has a result."""
    while left := [c for c in batch if (c["kind"], c["name"]) not in results]:
        with tempfile.TemporaryDirectory() as folder:
            listing = Path(folder) / "cases.json"
            listing.write_text(json.dumps(left))
            command = [sys.executable, "-m", "tests.onnx_suite.worker", str(listing), options.backend]
            command += [str(options.rtol), str(options.atol), options.bind]
            with (Path(folder) / "log").open("w+b") as log:
                worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
                running, why = _listen(worker, options.timeout, results)
                if running is None:
                    if why is None and all((c["kind"], c["name"]) in results for c in left):
                        continue
                    log.seek(0)
                    if not any((c["kind"], c["name"]) in results for c in left):
                        sys.exit(f"the worker did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                    running = next((c["kind"], c["name"]) for c in left if (c["kind"], c["name"]) not in results)
                log.seek(0)
                tail = log.read()[-300:].decode(errors="replace").strip()
                results[running] = {"status": why or "crash", "message": why or f"exit {worker.returncode}: {tail}"}


def _listen(worker: subprocess.Popen[bytes], timeout: float, results: Results) -> tuple[Key | None, str | None]:
    """Reads a worker's lines until it ends or a case takes too long: the case it was at, and "timeout" for that."""
    assert worker.stdout is not None
    running: Key | None = None
    limit, buffer = time.time() + 300, b""
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(limit - time.time(), 0)):
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                return running, "timeout"
            chunk = os.read(worker.stdout.fileno(), 1 << 16)
            if not chunk:
                worker.wait()
                return running, None
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if "start" in event:
                    running = tuple(event["start"])
                    limit = time.time() + timeout * (6 if running[0] == "light" else 1)
                elif "done" in event:
                    results[tuple(event.pop("done"))] = event
                    running, limit = None, time.time() + 300


def report(cases: list[Case], results: Results, options: argparse.Namespace) -> int:
    """Prints the tables; the number of passes."""

    def line(label: str, rows: list[Case]) -> None:
        found = Counter(results[c["kind"], c["name"]]["status"] for c in rows)
        rest = "  ".join(f"{s}={found[s]}" for s in STATUSES[1:] if found[s])
        print(f"{label:40} {found['pass']:5}/{len(rows):<5} {found['pass'] / max(len(rows), 1):6.1%}  {rest}")

    if options.by_op:
        by_op: dict[str, list[Case]] = defaultdict(list)
        for c in cases:
            if c["kind"] == "node":
                by_op[c["op"]].append(c)
        for op in sorted(by_op):
            line(op, by_op[op])
    for kind in KINDS:
        rows = [c for c in cases if c["kind"] == kind]
        if rows:
            line(kind, rows)
    line("all", cases)
    if options.show_failures:
        for c in cases:
            result = results[c["kind"], c["name"]]
            if result["status"] != "pass":
                first = (result["message"].splitlines() or [""])[0]
                print(f"{result['status']:12} {c['kind']}/{c['name']}  {first[:160]}")
    return sum(r["status"] == "pass" for r in results.values())


def main() -> None:
    options = arguments()
    kinds = options.kinds.split(",")
    cases = [
        c
        for c in build_cache(options.cache)
        if c["kind"] in kinds
        and re.search(options.filter, c["name"])
        and not (options.no_expanded and c["expanded"])
        and not NOT_COUNTED.match(c["name"])
    ]
    results: Results = {}
    for start in range(0, len(cases), options.batch):
        run_batch(cases[start : start + options.batch], options, results)
        print(f"\r{len(results)} of {len(cases)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    passed = report(cases, results, options)
    if options.json is not None:
        rows = [{**c, **results[c["kind"], c["name"]]} for c in cases]
        options.json.write_text(json.dumps({"backend": options.backend, "passed": passed, "results": rows}, indent=0))
    if passed < options.min_pass:
        sys.exit(1)


if __name__ == "__main__":
    main()
