"""The kernel ABI: what a compiled function receives, and the status that it returns.

    i32 kernel(const Context* context, void* const* data, const i64* dims)

`data` holds one pointer a buffer, `dims` one value a symbolic dimension. The result is 0, or the code of the first
error. `Context` is laid out as below, in C terms; this file is the only place that says so, as a ctypes structure for
Python and as an LLVM type for the emitter.

    offset  field
     0      i32 (*parallel_for)(Context*, body, void* closure, i64 begin, i64 end)
     8      void* pool                  the thread pool of the process
    16      void* (*alloc)(Context*, i64 bytes)     64-byte aligned, null when there is no memory
    24      void  (*free)(Context*, void*)
    32      i64* profile                null, or counters whose meaning the caller and the plan agree on
    40      i32 threads                 wanted, the calling thread included
    44      i32 in_region               non-zero inside a region that was split: a nested one runs serially
    48      i32 error_code              0, or the first error of the run
    52      i32 (reserved)
    56      i64 error_detail            what the code is about: an index, a size, the number of an extern

`parallel_for` splits the range into at most `threads` even, contiguous parts, calls `i32 body(Context*, void* closure,
i64 begin, i64 end)` once for each, and returns 0 or the first error. It never waits for a busy worker: with none free
it runs on fewer threads. A body that knows a detail claims the slot before it returns its code:

    %won = cmpxchg ptr %error_code, i32 0, i32 CODE acq_rel acquire     ; if it succeeded: store the detail
"""

from __future__ import annotations

import ctypes
from enum import IntEnum


class Status(IntEnum):
    """What a kernel may return. Codes from 256 on are free for whoever emits the kernel."""

    OK = 0
    OUT_OF_MEMORY = 1  # detail: the bytes wanted
    OUT_OF_BOUNDS = 2  # detail: the index
    DIVISION_BY_ZERO = 3
    EXTERN_FAILED = 4  # detail: the number of the extern in the plan


CONTEXT_LLVM_NAME = "%nestor.context"
CONTEXT_LLVM_TYPE = f"{CONTEXT_LLVM_NAME} = type {{ ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32, i64 }}"

#: Field name to its index in the LLVM type, for `getelementptr`.
CONTEXT_FIELDS = {
    "parallel_for": 0,
    "pool": 1,
    "alloc": 2,
    "free": 3,
    "profile": 4,
    "threads": 5,
    "in_region": 6,
    "error_code": 7,
    "error_detail": 9,
}


class ContextStruct(ctypes.Structure):
    """The same layout for Python."""

    _fields_ = [
        ("parallel_for", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("alloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
        ("profile", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        ("in_region", ctypes.c_int32),
        ("error_code", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("error_detail", ctypes.c_int64),
    ]
