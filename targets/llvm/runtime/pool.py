"""The thread pool of this process: its code compiled once, its workers shared by every kernel.

The pool is LLVM IR (`pool_ir.py`). A parallel region leases the workers it wants; busy ones are left alone and the
region runs on fewer. Workers start when a region first asks for them, are detached, and take no signals. The code and
the memory that they run on are never freed, so that a worker may be anywhere when the process exits. A forked child
finds the pool empty and starts its own workers. On Linux (x86-64, aarch64) threads sleep on a futex; on other POSIX
systems on a condition variable, which makes waking slower. There is no pool for systems without POSIX threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading

from targets.llvm.runtime import jit
from targets.llvm.runtime.abi import CONTEXT_LLVM_TYPE
from targets.llvm.runtime.compiler import CompiledObject, compile_ir
from targets.llvm.runtime.host import Machine, available_cores, host_machine
from targets.llvm.runtime.pool_ir import MAX_WORKERS, PoolSystem, pool_imports, pool_ir
from tensorir.errors import InternalError

#: How long a waiting thread spins before it sleeps, where it has a core to itself.
SPIN_NS = 300_000


class Pool:
    """A pool's addresses, for `Context`. `handle` stays the same over a fork."""

    __slots__ = ("handle", "parallel_for", "alloc", "free", "key", "object", "_count", "_library", "_pid", "_reset")

    def __init__(self, *, cores: int | None = None, spin_ns: int = SPIN_NS, system: PoolSystem | None = None) -> None:
        machine = host_machine()
        system = PoolSystem.of(machine.triple) if system is None else system
        imports = {name: jit.process_symbol(name) for name in pool_imports(system)}
        self.key = pool_key(machine, system)
        self.object = _offered.get(self.key) or compile_pool(machine, system).object
        self._library = jit.load(self.object, imports=imports)
        _never_unload.append(self._library)
        address = self._library.address
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32)(
            address("nestor_pool_create")
        )
        handle = create(available_cores() if cores is None else cores, spin_ns, MAX_WORKERS)
        if handle is None:
            raise InternalError("no memory for the thread pool")
        self.handle: int = handle
        self.parallel_for = address("nestor_parallel_for")
        self.alloc = address("nestor_alloc")
        self.free = address("nestor_free")
        self._reset = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("nestor_pool_reset"))
        self._count = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address("nestor_pool_count"))
        self._pid = os.getpid()
        _pools.append(self)

    @property
    def workers(self) -> int:
        """The number of worker threads started so far."""
        return self._count(self.handle)

    def ensure_process(self) -> None:
        """Empty the pool if this is a child that was forked since."""
        if self._pid != os.getpid():
            self._reset(self.handle)
            self._pid = os.getpid()


def compile_pool(machine: Machine, system: PoolSystem) -> CompiledObject:
    """The pool's object for `machine`; an exported library links the same one."""
    return compile_ir(pool_ir(system, CONTEXT_LLVM_TYPE), machine=machine, passes="O1")


def pool_key(machine: Machine, system: PoolSystem) -> str:
    """Names the code of a pool: equal keys, equal objects."""
    text = f"{machine.key}|{pool_ir(system, CONTEXT_LLVM_TYPE)}"
    return hashlib.sha256(text.encode()).hexdigest()


def offer_object(key: str, image: bytes) -> None:
    """An object to use in place of compiling the pool, if its key is the one wanted: waking the code generator takes
    more time and memory than all else a process does that only loads kernels."""
    _offered[key] = image


def process_pool() -> Pool:
    """The pool of this process, made when first asked for."""
    global _process_pool
    pool = _process_pool
    if pool is None:
        with _lock:
            if _process_pool is None:
                _process_pool = Pool()
            pool = _process_pool
    pool.ensure_process()
    return pool


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for pool in _pools:
        pool.ensure_process()


_offered: dict[str, bytes] = {}
_lock = threading.Lock()
_process_pool: Pool | None = None
_pools: list[Pool] = []
_never_unload: list[jit.Library] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
