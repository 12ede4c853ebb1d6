"""How many random (compute, schedule) pairs each seeded fault needs to be found: `python -m tests.faults.campaign`.

    python -m tests.faults.campaign --state /tmp/faults.json        # again to go on
    python -m tests.faults.campaign --fault unroll                  # the faults with this in their names

The cases are those of tests/schedule/campaign.py, made and run with the fault in the compiler, and they are not chosen
for any fault: the seeds 0, 1, 2, ... of every fault are the same. A case finds a fault when its result is wrong, when
the compiler's own checks refuse what it made, or when it crashes. `tests/faults/test_faults.py` finds each fault by a
small check of its own as well. Faults above the loop nests (graphs, operators) and those of what no schedule reaches
are not sought here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.faults.fault import Fault, seeded
from tests.faults.faults import ARITHMETIC, CODE, LOWERING, SCHEDULE
from tests.schedule.campaign import run_cases

SOUGHT = (*SCHEDULE, *LOWERING, *ARITHMETIC, *CODE)
MOST = 2000
ENOUGH = 40


def cases_needed(fault: Fault, most: int = MOST, *, first: int = 0) -> tuple[int, str] | None:
    """The number of cases after which the fault is found, and how it showed; None if it is not within `most`."""
    done = 0
    with seeded(fault):
        while done < most:
            count = min(10 if done < 50 else 50, most - done)
            for number, line in enumerate(run_cases([(first + done + n, None) for n in range(count)])):
                found = line.get("wrong") or line.get("crashed")
                if found:
                    return done + number + 1, found.splitlines()[0][:90]
            done += count
    return None


def main() -> None:
    """Prints the number of cases of each fault; exit 1 if fewer than 40 are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--fault", default="")
    given = parser.parse_args()
    known = json.loads(given.state.read_text()) if given.state is not None and given.state.exists() else {}
    for fault in (f for f in SOUGHT if given.fault in f.name):
        if fault.name not in known:
            start = time.perf_counter()
            found = cases_needed(fault, given.most, first=given.first)
            known[fault.name] = [*(found or (None, "")), round(time.perf_counter() - start, 1)]
            if given.state is not None:
                given.state.write_text(json.dumps(known, indent=1))
        needed, how, seconds = known[fault.name]
        print(f"{needed or 'not found':>9}  {fault.name}  ({how}; {seconds} s)", flush=True)
    numbers = sorted(k[0] for k in known.values() if k[0] is not None)
    print(f"{len(numbers)} of {len(known)} faults found within {given.most} cases", end="")
    if numbers:
        print(f"; half of them within {numbers[len(numbers) // 2]}, the last after {numbers[-1]}", end="")
    print()
    sys.exit(0 if given.fault or len(numbers) >= ENOUGH else 1)


if __name__ == "__main__":
    main()
