"""How long the thread pool takes to hand a region to a second thread and get it back. Not asserted anywhere.

    python -m tests.bench.handoff

The loop is inside LLVM IR, so Python is not measured. `empty` is a region of two parts that do nothing (the caller may
take the second part back); in `both` each part waits for the other, so the worker must have woken, run and answered.
`gap` is the serial work of the caller between two regions. Microseconds, less the cost of reading the clock.
"""

from __future__ import annotations

import time

import numpy as np

from targets.llvm.runtime import (
    CONTEXT_LLVM_TYPE,
    NativeFunction,
    compile_ir,
    host,
    host_machine,
    load,
)
from targets.llvm.runtime.jit import process_symbol

_CLOCK = 1 if "linux" in host().triple else 6

#: data: i64[samples] nanoseconds of each region, i64[16] meeting points. dims: samples, gap in ns, 1 to meet.
BENCH = (
    CONTEXT_LLVM_TYPE
    + f"""
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() {{
  %time = alloca {{ i64, i64 }}
  %r = call i32 @clock_gettime(i32 {_CLOCK}, ptr %time)
  %s = load i64, ptr %time
  %at = getelementptr {{ i64, i64 }}, ptr %time, i32 0, i32 1
  %ns = load i64, ptr %at
  %m = mul i64 %s, 1000000000
  %t = add i64 %m, %ns
  ret i64 %t
}}
define internal i32 @empty(ptr %ctx, ptr %points, i64 %begin, i64 %end) {{
  ret i32 0
}}
define internal i32 @both(ptr %ctx, ptr %points, i64 %begin, i64 %end) {{
entry:
  %length = sub i64 %end, %begin
  %alone = icmp ne i64 %length, 1
  br i1 %alone, label %single, label %meet
single:
  ret i32 300
meet:
  %own_at = mul i64 %begin, 8
  %other_at = sub i64 8, %own_at
  %own = getelementptr i64, ptr %points, i64 %own_at
  %other = getelementptr i64, ptr %points, i64 %other_at
  %old = load i64, ptr %own
  %mine = add i64 %old, 1
  store atomic i64 %mine, ptr %own release, align 8
  br label %wait
wait:
  %theirs = load atomic i64, ptr %other acquire, align 8
  %there = icmp sge i64 %theirs, %mine
  br i1 %there, label %out, label %wait
out:
  ret i32 0
}}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {{
entry:
  %parallel_for = load ptr, ptr %ctx
  %samples = load ptr, ptr %data
  %at_points = getelementptr ptr, ptr %data, i64 1
  %points = load ptr, ptr %at_points
  %n = load i64, ptr %dims
  %at_gap = getelementptr i64, ptr %dims, i64 1
  %gap = load i64, ptr %at_gap
  %at_meet = getelementptr i64, ptr %dims, i64 2
  %meet = load i64, ptr %at_meet
  %is_meet = icmp ne i64 %meet, 0
  %body = select i1 %is_meet, ptr @both, ptr @empty
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %next]
  %from = call i64 @now()
  %until = add i64 %from, %gap
  br label %idle
idle:
  %t0 = call i64 @now()
  %early = icmp slt i64 %t0, %until
  br i1 %early, label %idle, label %region
region:
  %status = call i32 %parallel_for(ptr %ctx, ptr %body, ptr %points, i64 0, i64 2)
  %t1 = call i64 @now()
  %ns = sub i64 %t1, %t0
  %p = getelementptr i64, ptr %samples, i64 %i
  store i64 %ns, ptr %p
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 0
fail:
  ret i32 %status
}}
"""
)


def main() -> None:
    compiled = compile_ir(BENCH, machine=host_machine(), passes="O1")
    library = load(compiled, imports={"clock_gettime": process_symbol("clock_gettime")})
    print(host())
    print(f"{'gap us':>8} {'empty min':>10} {'median':>8} {'both min':>10} {'median':>8} {'serial':>8}")
    for gap_us, count in ((0, 200_000), (20, 20_000), (100, 5_000), (1_000, 500), (5_000, 100)):
        row = []
        for threads, meet in ((2, 0), (2, 1), (1, 0)):
            function = NativeFunction(library, "kernel", data=2, dims=3, threads=threads)
            samples = np.zeros(count, np.int64)
            points = np.zeros(16, np.int64)
            function([samples, points], [count, gap_us * 1000, meet])
            row.append((samples.min() / 1000, float(np.median(samples)) / 1000))
        serial = row[2][0]
        values = [max(value - serial, 0.0) for pair in row[:2] for value in pair]
        print(f"{gap_us:8} {values[0]:10.2f} {values[1]:8.2f} {values[2]:10.2f} {values[3]:8.2f} {serial:8.2f}")
    before = time.process_time()
    time.sleep(0.5)
    print(f"idle over the next 0.5 s: {(time.process_time() - before) / 0.5:.1%} of a core")


if __name__ == "__main__":
    main()
