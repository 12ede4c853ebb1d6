"""The thread pool as LLVM IR, so that the same code serves this process and an exported library.

Protocol. Each worker has a slot: a mailbox that a caller fills, an answer that the worker fills, and a lease that
makes one caller at a time its owner. `ticket` is odd while a job is posted and not yet claimed:

    caller                                     worker
    lease: 0 -> 1                              spin on ticket, then sleep on it (futex)
    fill the mailbox; ticket: t -> t+1 (odd)   claim: ticket t+1 -> t+2
    wake the worker if it sleeps               run its part
    run the own part                           status; done = t+2; wake the caller if it sleeps
    not claimed yet? take it back, run it
    wait until done = t+2 (spin, then futex)
    lease: 1 -> 0

Both sides announce sleep before they look a last time, and both announce work before they look for sleepers, all
sequentially consistent: one of the two sees the other. Taking an unclaimed part back means that a caller never waits
for a worker that has not begun, however many threads fight for however few cores. Spinning is bounded by the clock,
never by counting pauses; a thread beyond the number of cores does not spin at all.

With `futex=False` the two sleeping functions use one mutex and one condition variable of the pool instead: any POSIX
system, slower. A forked child has the slots but no threads: `nestor_pool_reset` makes it an empty pool again.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

#: Most workers of one pool. A region asking for more runs on this many and the caller.
MAX_WORKERS = 255

#: Bytes of a pool's memory: a header and the slots.
POOL_BYTES = 256 + 256 * MAX_WORKERS

_FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}
#: The instruction of a waiting loop: its declaration and its call. Intrinsics, since inline assembly needs a parser.
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"),
}
_NO_PAUSE = ("", 'fence syncscope("singlethread") seq_cst')


@dataclass(frozen=True, slots=True)
class PoolSystem:
    """What the pool's text depends on: the processor, and how the system sleeps and tells the time."""

    arch: str
    futex: bool
    monotonic_clock: int = 1
    set_mask: int = 2

    @classmethod
    def of(cls, triple: str) -> PoolSystem:
        """The system behind an LLVM triple."""
        arch = triple.split("-")[0]
        arch = "aarch64" if arch == "arm64" else arch
        if "linux" in triple:
            return cls(arch, futex=arch in _FUTEX_SYSCALL)
        return cls(arch, futex=False, monotonic_clock=6, set_mask=3)


def pool_imports(system: PoolSystem) -> tuple[str, ...]:
    """The C library functions that the pool needs."""
    common = (
        "pthread_create",
        "pthread_detach",
        "pthread_sigmask",
        "posix_memalign",
        "free",
        "clock_gettime",
        "sched_yield",
    )
    if system.futex:
        return (*common, "syscall")
    mutex = ("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock")
    return (*common, *mutex, "pthread_cond_init", "pthread_cond_wait", "pthread_cond_broadcast")


def pool_ir(system: PoolSystem, context_type: str) -> str:
    """The module. It defines nestor_pool_create, nestor_pool_reset, nestor_parallel_for, nestor_alloc, nestor_free."""
    declarations, pause = _PAUSE.get(system.arch, _NO_PAUSE)
    if system.futex:
        sleeping = _FUTEX.substitute(syscall=_FUTEX_SYSCALL[system.arch])
        init = ""
    else:
        sleeping = _CONDITION
        init = _CONDITION_INIT
    return _POOL.substitute(
        context_type=context_type,
        declarations=declarations,
        pause=pause,
        clock=system.monotonic_clock,
        set_mask=system.set_mask,
        sleeping=sleeping,
        init=init,
        workers=MAX_WORKERS,
        pool_bytes=POOL_BYTES,
        worker_bytes=256 * MAX_WORKERS,
    )


_FUTEX = Template("""
declare i64 @syscall(i64, ...)

; sleep while *word = expected (may return early); 128 = FUTEX_WAIT_PRIVATE
define internal void @sleep_while(ptr %pool, ptr %word, i32 %expected) {
  %r = call i64 (i64, ...) @syscall(i64 $syscall, ptr %word, i32 128, i32 %expected, ptr null)
  ret void
}

; wake whoever sleeps on word; 129 = FUTEX_WAKE_PRIVATE
define internal void @wake(ptr %pool, ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 $syscall, ptr %word, i32 129, i32 1, ptr null)
  ret void
}
""")

_CONDITION = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @sleep_while(ptr %pool, ptr %word, i32 %expected) {
  %mutex = getelementptr %pool, ptr %pool, i32 0, i32 6
  %cond = getelementptr %pool, ptr %pool, i32 0, i32 7
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %check
check:
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %expected
  br i1 %same, label %wait, label %out
wait:
  %w = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %check
out:
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @wake(ptr %pool, ptr %word) {
  %mutex = getelementptr %pool, ptr %pool, i32 0, i32 6
  %cond = getelementptr %pool, ptr %pool, i32 0, i32 7
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %cond)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
"""

_CONDITION_INIT = """
  %mutex = getelementptr %pool, ptr %pool, i32 0, i32 6
  %cond = getelementptr %pool, ptr %pool, i32 0, i32 7
  %mi = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %ci = call i32 @pthread_cond_init(ptr %cond, ptr null)
"""

_POOL = Template("""
$context_type

; 0 count of started workers, 1 growing (a lock that nobody waits for), 2 cores, 3 limit, 4 spin in ns,
; 6 mutex, 7 condition
%pool = type { i32, i32, i32, i32, i64, [40 x i8], [64 x i8], [64 x i8], [64 x i8] }

; 128 bytes written by the caller: 0 ticket, 2 context, 3 body, 4 closure, 5 begin, 6 end
;  64 bytes written by the worker: 8 done, 9 status, 10 the caller sleeps, 11 the worker sleeps
;  64 bytes between callers: 13 lease, 14 index, 15 pool
%worker = type { i32, i32, ptr, ptr, ptr, i64, i64, [80 x i8],
                 i32, i32, i32, i32, [48 x i8],
                 i32, i32, ptr, [48 x i8] }

$declarations
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

$sleeping

define internal i64 @now_ns() {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 $clock, ptr %time)
  %s = load i64, ptr %time
  %at_ns = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %ns = load i64, ptr %at_ns
  %s_ns = mul i64 %s, 1000000000
  %sum = add i64 %s_ns, %ns
  ret i64 %sum
}

define ptr @nestor_alloc(ptr %context, i64 %bytes) {
  %result = alloca ptr
  store ptr null, ptr %result
  %r = call i32 @posix_memalign(ptr %result, i64 64, i64 %bytes)
  %ok = icmp eq i32 %r, 0
  %memory = load ptr, ptr %result
  %value = select i1 %ok, ptr %memory, ptr null
  ret ptr %value
}

define void @nestor_free(ptr %context, ptr %memory) {
  call void @free(ptr %memory)
  ret void
}

; a pool with no workers yet; null when there is no memory
define ptr @nestor_pool_create(i32 %cores, i64 %spin_ns, i32 %limit) {
  %pool = call ptr @nestor_alloc(ptr null, i64 $pool_bytes)
  %none = icmp eq ptr %pool, null
  br i1 %none, label %fail, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 256, i1 false)
  %at_cores = getelementptr %pool, ptr %pool, i32 0, i32 2
  store i32 %cores, ptr %at_cores
  %at_limit = getelementptr %pool, ptr %pool, i32 0, i32 3
  %many = icmp ugt i32 %limit, $workers
  %most = select i1 %many, i32 $workers, i32 %limit
  store i32 %most, ptr %at_limit
  %at_spin = getelementptr %pool, ptr %pool, i32 0, i32 4
  store i64 %spin_ns, ptr %at_spin
  call void @nestor_pool_reset(ptr %pool)
  ret ptr %pool
fail:
  ret ptr null
}

; forget all workers: for a forked child, where they do not exist
define void @nestor_pool_reset(ptr %pool) {
  %workers = getelementptr i8, ptr %pool, i64 256
  call void @llvm.memset.p0.i64(ptr %workers, i8 0, i64 $worker_bytes, i1 false)
  %growing = getelementptr %pool, ptr %pool, i32 0, i32 1
  store i32 0, ptr %growing
$init
  store atomic i32 0, ptr %pool seq_cst, align 4
  ret void
}

; the number of started workers
define i32 @nestor_pool_count(ptr %pool) {
  %count = load atomic i32, ptr %pool acquire, align 4
  ret i32 %count
}

; start workers until there are `wanted`, or the system has no more threads to give
define internal void @grow(ptr %pool, i32 %wanted_any) cold noinline {
  %thread = alloca i64
  %mask = alloca [16 x i64]
  %saved = alloca [16 x i64]
  %at_growing = getelementptr %pool, ptr %pool, i32 0, i32 1
  %claim = cmpxchg ptr %at_growing, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %claim, 1
  br i1 %mine, label %begin, label %out
begin:
  ; workers take no signals but those that a fault of their own raises (SIGILL, TRAP, BUS, FPE, SEGV)
  call void @llvm.memset.p0.i64(ptr %mask, i8 -1, i64 128, i1 false)
  store i64 -1241, ptr %mask
  %m = call i32 @pthread_sigmask(i32 $set_mask, ptr %mask, ptr %saved)
  %at_limit = getelementptr %pool, ptr %pool, i32 0, i32 3
  %limit = load i32, ptr %at_limit
  %over = icmp ugt i32 %wanted_any, %limit
  %wanted = select i1 %over, i32 %limit, i32 %wanted_any
  br label %next
next:
  %count = load i32, ptr %pool
  %more = icmp ult i32 %count, %wanted
  br i1 %more, label %start, label %end
start:
  %slot = add i32 %count, 1
  %worker = getelementptr %worker, ptr %pool, i32 %slot
  %at_index = getelementptr %worker, ptr %worker, i32 0, i32 14
  store i32 %count, ptr %at_index
  %at_pool = getelementptr %worker, ptr %worker, i32 0, i32 15
  store ptr %pool, ptr %at_pool
  %r = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker_main, ptr %worker)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %started, label %refused
started:
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  store atomic i32 %slot, ptr %pool release, align 4
  br label %next
refused:
  store i32 %count, ptr %at_limit
  br label %end
end:
  %u = call i32 @pthread_sigmask(i32 $set_mask, ptr %saved, ptr null)
  store atomic i32 0, ptr %at_growing seq_cst, align 4
  br label %out
out:
  ret void
}

; the first error of a run keeps the slot
define internal void @record(ptr %context, i32 %status) cold noinline {
  %slot = getelementptr %nestor.context, ptr %context, i32 0, i32 7
  %r = cmpxchg ptr %slot, i32 0, i32 %status acq_rel acquire
  ret void
}

define internal i32 @run_part(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %end) {
  %status = call i32 %body(ptr %context, ptr %closure, i64 %begin, i64 %end)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %out, label %failed
failed:
  call void @record(ptr %context, i32 %status)
  br label %out
out:
  ret i32 %status
}

; the part in a worker's mailbox
define internal i32 @run_mailbox(ptr %worker) {
  %at_context = getelementptr %worker, ptr %worker, i32 0, i32 2
  %context = load ptr, ptr %at_context
  %at_body = getelementptr %worker, ptr %worker, i32 0, i32 3
  %body = load ptr, ptr %at_body
  %at_closure = getelementptr %worker, ptr %worker, i32 0, i32 4
  %closure = load ptr, ptr %at_closure
  %at_begin = getelementptr %worker, ptr %worker, i32 0, i32 5
  %begin = load i64, ptr %at_begin
  %at_end = getelementptr %worker, ptr %worker, i32 0, i32 6
  %end = load i64, ptr %at_end
  %status = call i32 @run_part(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %end)
  ret i32 %status
}

; One step of bounded spinning; true when the time is over. The clock is read at each 32nd step only (deadline 0: not
; yet). At each 256th the core is offered to others: where the system put worker and caller on one core, the spinner
; would otherwise keep away the thread that it waits for.
define internal i1 @spun(ptr %steps, ptr %deadline, i64 %budget) {
  $pause
  %n = load i32, ptr %steps
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %steps
  %low = and i32 %n1, 31
  %look = icmp eq i32 %low, 0
  br i1 %look, label %offer, label %go_on
offer:
  %byte = and i32 %n1, 255
  %yields = icmp eq i32 %byte, 0
  br i1 %yields, label %yield, label %clock
yield:
  %y = call i32 @sched_yield()
  br label %clock
clock:
  %now = call i64 @now_ns()
  %at = load i64, ptr %deadline
  %new = icmp eq i64 %at, 0
  br i1 %new, label %begin, label %compare
begin:
  %until = add i64 %now, %budget
  store i64 %until, ptr %deadline
  %no_budget = icmp eq i64 %budget, 0
  ret i1 %no_budget
compare:
  %over = icmp sgt i64 %now, %at
  ret i1 %over
go_on:
  ret i1 false
}

define internal ptr @worker_main(ptr %worker) {
  %steps = alloca i32
  %deadline = alloca i64
  %at_index = getelementptr %worker, ptr %worker, i32 0, i32 14
  %index = load i32, ptr %at_index
  %at_pool = getelementptr %worker, ptr %worker, i32 0, i32 15
  %pool = load ptr, ptr %at_pool
  %at_cores = getelementptr %pool, ptr %pool, i32 0, i32 2
  %cores = load i32, ptr %at_cores
  %at_spin = getelementptr %pool, ptr %pool, i32 0, i32 4
  %spin = load i64, ptr %at_spin
  %number = add i32 %index, 1
  %has_core = icmp slt i32 %number, %cores
  %budget = select i1 %has_core, i64 %spin, i64 0
  %at_done = getelementptr %worker, ptr %worker, i32 0, i32 8
  %at_status = getelementptr %worker, ptr %worker, i32 0, i32 9
  %at_caller_sleeps = getelementptr %worker, ptr %worker, i32 0, i32 10
  %at_sleeps = getelementptr %worker, ptr %worker, i32 0, i32 11
  br label %wait
wait:
  store i32 0, ptr %steps
  store i64 0, ptr %deadline
  br label %look
look:
  %ticket = load atomic i32, ptr %worker acquire, align 4
  %odd = trunc i32 %ticket to i1
  br i1 %odd, label %claim, label %spin_on
spin_on:
  %over = call i1 @spun(ptr %steps, ptr %deadline, i64 %budget)
  br i1 %over, label %sleep, label %look
sleep:
  %s1 = atomicrmw xchg ptr %at_sleeps, i32 1 seq_cst
  %last = load atomic i32, ptr %worker seq_cst, align 4
  %last_odd = trunc i32 %last to i1
  br i1 %last_odd, label %awake, label %asleep
asleep:
  call void @sleep_while(ptr %pool, ptr %worker, i32 %last)
  br label %awake
awake:
  store atomic i32 0, ptr %at_sleeps seq_cst, align 4
  br label %wait
claim:
  %claimed = add i32 %ticket, 1
  %c = cmpxchg ptr %worker, i32 %ticket, i32 %claimed seq_cst seq_cst
  %won = extractvalue { i32, i1 } %c, 1
  br i1 %won, label %run, label %wait
run:
  %status = call i32 @run_mailbox(ptr %worker)
  store i32 %status, ptr %at_status
  %d = atomicrmw xchg ptr %at_done, i32 %claimed seq_cst
  %caller_sleeps = load atomic i32, ptr %at_caller_sleeps seq_cst, align 4
  %must_wake = icmp ne i32 %caller_sleeps, 0
  br i1 %must_wake, label %wake_caller, label %wait
wake_caller:
  call void @wake(ptr %pool, ptr %at_done)
  br label %wait
}

; wait until the worker's `done` is `target`
define internal void @join(ptr %pool, ptr %worker, i32 %target, i64 %budget) {
  %steps = alloca i32
  %deadline = alloca i64
  store i32 0, ptr %steps
  store i64 0, ptr %deadline
  %at_done = getelementptr %worker, ptr %worker, i32 0, i32 8
  %at_caller_sleeps = getelementptr %worker, ptr %worker, i32 0, i32 10
  br label %look
look:
  %done = load atomic i32, ptr %at_done acquire, align 4
  %ready = icmp eq i32 %done, %target
  br i1 %ready, label %out, label %spin_on
spin_on:
  %over = call i1 @spun(ptr %steps, ptr %deadline, i64 %budget)
  br i1 %over, label %sleep, label %look
sleep:
  %s1 = atomicrmw xchg ptr %at_caller_sleeps, i32 1 seq_cst
  br label %check
check:
  %last = load atomic i32, ptr %at_done seq_cst, align 4
  %last_ready = icmp eq i32 %last, %target
  br i1 %last_ready, label %awake, label %asleep
asleep:
  call void @sleep_while(ptr %pool, ptr %at_done, i32 %last)
  br label %check
awake:
  store atomic i32 0, ptr %at_caller_sleeps seq_cst, align 4
  br label %out
out:
  ret void
}

define i32 @nestor_parallel_for(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %end) {
  %length = sub i64 %end, %begin
  %some = icmp sgt i64 %length, 0
  br i1 %some, label %choose, label %empty
empty:
  ret i32 0
choose:
  %at_threads = getelementptr %nestor.context, ptr %context, i32 0, i32 5
  %threads = load i32, ptr %at_threads
  %at_region = getelementptr %nestor.context, ptr %context, i32 0, i32 6
  %region = load i32, ptr %at_region
  %nested = icmp ne i32 %region, 0
  %threads64 = zext i32 %threads to i64
  %parts = call i64 @llvm.umin.i64(i64 %threads64, i64 %length)
  %alone = icmp ult i64 %parts, 2
  %is_serial = or i1 %nested, %alone
  br i1 %is_serial, label %serial, label %parallel
serial:
  %status = call i32 @run_part(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %end)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %empty, label %failed
failed:
  %at_error = getelementptr %nestor.context, ptr %context, i32 0, i32 7
  %error = load atomic i32, ptr %at_error acquire, align 4
  ret i32 %error
parallel:
  %parts32 = trunc i64 %parts to i32
  %helpers = sub i32 %parts32, 1
  %result = call i32 @fork_join(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %length, i32 %helpers)
  ret i32 %result
}

define internal i32 @fork_join(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %length, i32 %wanted) noinline {
  %leased = alloca [$workers x ptr]
  %leased_count = alloca i32
  %failed = alloca i32
  %cursor = alloca i64
  %i = alloca i32
  store i32 0, ptr %leased_count
  store i32 0, ptr %failed
  %at_region = getelementptr %nestor.context, ptr %context, i32 0, i32 6
  %at_context_pool = getelementptr %nestor.context, ptr %context, i32 0, i32 1
  %pool = load ptr, ptr %at_context_pool
  %at_limit = getelementptr %pool, ptr %pool, i32 0, i32 3
  %limit = load i32, ptr %at_limit
  %over = icmp ugt i32 %wanted, %limit
  %helpers = select i1 %over, i32 %limit, i32 %wanted
  %started = load atomic i32, ptr %pool acquire, align 4
  %few = icmp ult i32 %started, %helpers
  br i1 %few, label %grow_first, label %lease_begin
grow_first:
  call void @grow(ptr %pool, i32 %helpers)
  br label %lease_begin

lease_begin:
  %count = load atomic i32, ptr %pool acquire, align 4
  store i32 0, ptr %i
  br label %lease_next
lease_next:
  %li = load i32, ptr %i
  %have = load i32, ptr %leased_count
  %in_range = icmp ult i32 %li, %count
  %wants = icmp ult i32 %have, %helpers
  %goes_on = and i1 %in_range, %wants
  br i1 %goes_on, label %lease_try, label %leased_all
lease_try:
  %li1 = add i32 %li, 1
  store i32 %li1, ptr %i
  %lw = getelementptr %worker, ptr %pool, i32 %li1
  %at_lease = getelementptr %worker, ptr %lw, i32 0, i32 13
  %taken = load atomic i32, ptr %at_lease monotonic, align 4
  %is_free = icmp eq i32 %taken, 0
  br i1 %is_free, label %lease_claim, label %lease_next
lease_claim:
  %lc = cmpxchg ptr %at_lease, i32 0, i32 1 seq_cst seq_cst
  %lease_won = extractvalue { i32, i1 } %lc, 1
  br i1 %lease_won, label %lease_keep, label %lease_next
lease_keep:
  %at_leased = getelementptr [$workers x ptr], ptr %leased, i32 0, i32 %have
  store ptr %lw, ptr %at_leased
  %have1 = add i32 %have, 1
  store i32 %have1, ptr %leased_count
  br label %lease_next

leased_all:
  %n = load i32, ptr %leased_count
  %parts = add i32 %n, 1
  %parts64 = zext i32 %parts to i64
  %base = udiv i64 %length, %parts64
  %covered = mul i64 %base, %parts64
  %rest = sub i64 %length, %covered
  %own_extra = icmp ne i64 %rest, 0
  %own_extra64 = zext i1 %own_extra to i64
  %own_length = add i64 %base, %own_extra64
  %own_end = add i64 %begin, %own_length
  store i64 %own_end, ptr %cursor
  %at_cores = getelementptr %pool, ptr %pool, i32 0, i32 2
  %cores = load i32, ptr %at_cores
  %at_spin = getelementptr %pool, ptr %pool, i32 0, i32 4
  %spin = load i64, ptr %at_spin
  %fits = icmp ule i32 %parts, %cores
  %budget = select i1 %fits, i64 %spin, i64 0
  store i32 1, ptr %at_region
  store i32 0, ptr %i
  br label %post_next

post_next:
  %pi = load i32, ptr %i
  %post_more = icmp ult i32 %pi, %n
  br i1 %post_more, label %post, label %own
post:
  %pi1 = add i32 %pi, 1
  store i32 %pi1, ptr %i
  %at_pw = getelementptr [$workers x ptr], ptr %leased, i32 0, i32 %pi
  %pw = load ptr, ptr %at_pw
  %part64 = zext i32 %pi1 to i64
  %extra = icmp ult i64 %part64, %rest
  %extra64 = zext i1 %extra to i64
  %part_length = add i64 %base, %extra64
  %part_begin = load i64, ptr %cursor
  %part_end = add i64 %part_begin, %part_length
  store i64 %part_end, ptr %cursor
  %at_p_context = getelementptr %worker, ptr %pw, i32 0, i32 2
  store ptr %context, ptr %at_p_context
  %at_p_body = getelementptr %worker, ptr %pw, i32 0, i32 3
  store ptr %body, ptr %at_p_body
  %at_p_closure = getelementptr %worker, ptr %pw, i32 0, i32 4
  store ptr %closure, ptr %at_p_closure
  %at_p_begin = getelementptr %worker, ptr %pw, i32 0, i32 5
  store i64 %part_begin, ptr %at_p_begin
  %at_p_end = getelementptr %worker, ptr %pw, i32 0, i32 6
  store i64 %part_end, ptr %at_p_end
  %old_ticket = load atomic i32, ptr %pw monotonic, align 4
  %new_ticket = add i32 %old_ticket, 1
  %px = atomicrmw xchg ptr %pw, i32 %new_ticket seq_cst
  %at_p_sleeps = getelementptr %worker, ptr %pw, i32 0, i32 11
  %p_sleeps = load atomic i32, ptr %at_p_sleeps seq_cst, align 4
  %must_wake = icmp ne i32 %p_sleeps, 0
  br i1 %must_wake, label %post_wake, label %post_next
post_wake:
  call void @wake(ptr %pool, ptr %pw)
  br label %post_next

own:
  %own_status = call i32 @run_part(ptr %context, ptr %body, ptr %closure, i64 %begin, i64 %own_end)
  store i32 %own_status, ptr %failed
  store i32 0, ptr %i
  br label %revoke_next

; take back what no worker has begun
revoke_next:
  %ri = load i32, ptr %i
  %revoke_more = icmp ult i32 %ri, %n
  br i1 %revoke_more, label %revoke, label %join_begin
revoke:
  %ri1 = add i32 %ri, 1
  store i32 %ri1, ptr %i
  %at_rw = getelementptr [$workers x ptr], ptr %leased, i32 0, i32 %ri
  %rw = load ptr, ptr %at_rw
  %r_ticket = load atomic i32, ptr %rw acquire, align 4
  %r_odd = trunc i32 %r_ticket to i1
  br i1 %r_odd, label %revoke_try, label %revoke_next
revoke_try:
  %r_next = add i32 %r_ticket, 1
  %rc = cmpxchg ptr %rw, i32 %r_ticket, i32 %r_next seq_cst seq_cst
  %revoked = extractvalue { i32, i1 } %rc, 1
  br i1 %revoked, label %run_revoked, label %revoke_next
run_revoked:
  %r_status = call i32 @run_mailbox(ptr %rw)
  %at_r_status = getelementptr %worker, ptr %rw, i32 0, i32 9
  store i32 %r_status, ptr %at_r_status
  %at_r_done = getelementptr %worker, ptr %rw, i32 0, i32 8
  store atomic i32 %r_next, ptr %at_r_done release, align 4
  br label %revoke_next

join_begin:
  store i32 0, ptr %i
  br label %join_next
join_next:
  %ji = load i32, ptr %i
  %join_more = icmp ult i32 %ji, %n
  br i1 %join_more, label %join_one, label %finish
join_one:
  %ji1 = add i32 %ji, 1
  store i32 %ji1, ptr %i
  %at_jw = getelementptr [$workers x ptr], ptr %leased, i32 0, i32 %ji
  %jw = load ptr, ptr %at_jw
  %target = load atomic i32, ptr %jw acquire, align 4
  call void @join(ptr %pool, ptr %jw, i32 %target, i64 %budget)
  %at_j_status = getelementptr %worker, ptr %jw, i32 0, i32 9
  %j_status = load i32, ptr %at_j_status
  %before = load i32, ptr %failed
  %either = or i32 %before, %j_status
  store i32 %either, ptr %failed
  %at_j_lease = getelementptr %worker, ptr %jw, i32 0, i32 13
  store atomic i32 0, ptr %at_j_lease release, align 4
  br label %join_next

finish:
  store i32 0, ptr %at_region
  %any = load i32, ptr %failed
  %ok = icmp eq i32 %any, 0
  br i1 %ok, label %good, label %bad
good:
  ret i32 0
bad:
  %at_error = getelementptr %nestor.context, ptr %context, i32 0, i32 7
  %error = load atomic i32, ptr %at_error acquire, align 4
  ret i32 %error
}
""")
