"""Kernels in LLVM IR text for the tests of the runtime."""

from __future__ import annotations

from targets.llvm.runtime import CONTEXT_LLVM_TYPE, NativeFunction, compile_ir, host_machine, load

#: data: f32[n] x, i64[n] part. x[i] += 1 and part[i] = where the part that did it begins.
INCREMENT = (
    CONTEXT_LLVM_TYPE
    + """
define internal i32 @body(ptr %ctx, ptr %closure, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %closure
  %at_part = getelementptr ptr, ptr %closure, i64 1
  %part = load ptr, ptr %at_part
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%i1, %loop]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %w = fadd float %v, 1.0
  store float %w, ptr %p
  %q = getelementptr i64, ptr %part, i64 %i
  store i64 %begin, ptr %q
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %n = load i64, ptr %dims
  %parallel_for = load ptr, ptr %ctx
  %r = call i32 %parallel_for(ptr %ctx, ptr @body, ptr %data, i64 0, i64 %n)
  ret i32 %r
}
"""
)

#: data: i64[n] codes. The part that meets the first non-zero code returns it, with the index as detail.
FAIL = (
    CONTEXT_LLVM_TYPE
    + """
define internal i32 @body(ptr %ctx, ptr %codes, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%i1, %next]
  %p = getelementptr i64, ptr %codes, i64 %i
  %code = load i64, ptr %p
  %bad = icmp ne i64 %code, 0
  br i1 %bad, label %fail, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
fail:
  %status = trunc i64 %code to i32
  %slot = getelementptr %nestor.context, ptr %ctx, i32 0, i32 7
  %c = cmpxchg ptr %slot, i32 0, i32 %status acq_rel acquire
  %won = extractvalue { i32, i1 } %c, 1
  br i1 %won, label %detail, label %failed
detail:
  %at = getelementptr %nestor.context, ptr %ctx, i32 0, i32 9
  store i64 %i, ptr %at
  br label %failed
failed:
  ret i32 %status
}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %n = load i64, ptr %dims
  %codes = load ptr, ptr %data
  %parallel_for = load ptr, ptr %ctx
  %r = call i32 %parallel_for(ptr %ctx, ptr @body, ptr %codes, i64 0, i64 %n)
  ret i32 %r
}
"""
)

#: data: i64[rows * columns] x. A region over rows, and inside it one over the columns of each row: x += 1.
#: The inner one must come as one part; else the status is 301.
NESTED = (
    CONTEXT_LLVM_TYPE
    + """
%closure = type { ptr, i64 }
define internal i32 @inner(ptr %ctx, ptr %row, i64 %begin, i64 %end) {
entry:
  %whole = icmp eq i64 %begin, 0
  br i1 %whole, label %loop, label %split
split:
  ret i32 301
loop:
  %i = phi i64 [%begin, %entry], [%i1, %loop]
  %p = getelementptr i64, ptr %row, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define internal i32 @outer(ptr %ctx, ptr %closure, i64 %begin, i64 %end) {
entry:
  %parallel_for = load ptr, ptr %ctx
  %x = load ptr, ptr %closure
  %at_columns = getelementptr %closure, ptr %closure, i32 0, i32 1
  %columns = load i64, ptr %at_columns
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%i1, %next]
  %offset = mul i64 %i, %columns
  %row = getelementptr i64, ptr %x, i64 %offset
  %r = call i32 %parallel_for(ptr %ctx, ptr @inner, ptr %row, i64 0, i64 %columns)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %fail, label %next
fail:
  ret i32 %r
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %closure = alloca %closure
  %x = load ptr, ptr %data
  store ptr %x, ptr %closure
  %rows = load i64, ptr %dims
  %at_columns = getelementptr i64, ptr %dims, i64 1
  %columns = load i64, ptr %at_columns
  %to_columns = getelementptr %closure, ptr %closure, i32 0, i32 1
  store i64 %columns, ptr %to_columns
  %parallel_for = load ptr, ptr %ctx
  %r = call i32 %parallel_for(ptr %ctx, ptr @outer, ptr %closure, i64 0, i64 %rows)
  ret i32 %r
}
"""
)

#: data: i64[16] meeting points. A two-part region in which each part waits for the other: both must run at once.
RENDEZVOUS = (
    CONTEXT_LLVM_TYPE
    + """
define internal i32 @body(ptr %ctx, ptr %points, i64 %begin, i64 %end) {
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
  %old = atomicrmw add ptr %own, i64 1 seq_cst
  %mine = add i64 %old, 1
  br label %wait
wait:
  %theirs = load atomic i64, ptr %other acquire, align 8
  %there = icmp sge i64 %theirs, %mine
  br i1 %there, label %out, label %wait
out:
  ret i32 0
}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %points = load ptr, ptr %data
  %parallel_for = load ptr, ptr %ctx
  %r = call i32 %parallel_for(ptr %ctx, ptr @body, ptr %points, i64 0, i64 2)
  ret i32 %r
}
"""
)

#: data: i64[16] points. The caller's part ends when the worker has begun; the worker's part goes on for 200,000 steps.
LATE = (
    CONTEXT_LLVM_TYPE
    + """
define internal i32 @body(ptr %ctx, ptr %points, i64 %begin, i64 %end) {
entry:
  %begun = getelementptr i64, ptr %points, i64 8
  %first = icmp eq i64 %begin, 0
  br i1 %first, label %wait, label %work
wait:
  %there = load atomic i64, ptr %begun acquire, align 8
  %yet = icmp ne i64 %there, 0
  br i1 %yet, label %out, label %wait
work:
  store atomic i64 1, ptr %begun release, align 8
  br label %step
step:
  %i = phi i64 [0, %work], [%i1, %step]
  %i1 = add i64 %i, 1
  store volatile i64 %i1, ptr %points
  %more = icmp slt i64 %i1, 200000
  br i1 %more, label %step, label %out
out:
  ret i32 0
}
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %points = load ptr, ptr %data
  %parallel_for = load ptr, ptr %ctx
  %r = call i32 %parallel_for(ptr %ctx, ptr @body, ptr %points, i64 0, i64 2)
  ret i32 %r
}
"""
)


def build(text: str, *, data: int, dims: int = 0, threads: int | None = None) -> NativeFunction:
    """Compile and load `text` for this machine; its function is `kernel`."""
    compiled = compile_ir(text, machine=host_machine(), passes="O1")
    return NativeFunction(load(compiled), "kernel", data=data, dims=dims, threads=threads)
