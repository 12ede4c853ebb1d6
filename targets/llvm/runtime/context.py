"""The context of a run: the pool, the allocator, the error slot and the thread count that a kernel is given."""

from __future__ import annotations

import ctypes

from targets.llvm.runtime.abi import ContextStruct
from targets.llvm.runtime.host import host
from targets.llvm.runtime.pool import Pool, process_pool


class Context:
    """One run's context. Two runs at the same time need two contexts; one after the other may share one.

    `threads` counts the calling thread; None means every core of the process.
    """

    __slots__ = ("struct", "address", "pool")

    def __init__(self, threads: int | None = None, *, pool: Pool | None = None, profile: int = 0) -> None:
        self.pool = process_pool() if pool is None else pool
        self.struct = ContextStruct(
            parallel_for=self.pool.parallel_for,
            pool=self.pool.handle,
            alloc=self.pool.alloc,
            free=self.pool.free,
            profile=profile,
            threads=host().cores if threads is None else max(threads, 1),
        )
        self.address = ctypes.addressof(self.struct)

    def take_error(self) -> tuple[int, int]:
        """(code, detail) of the run's first error, and an empty slot for the next run."""
        error = self.struct.error_code, self.struct.error_detail
        self.struct.error_code = 0
        self.struct.error_detail = 0
        return error
