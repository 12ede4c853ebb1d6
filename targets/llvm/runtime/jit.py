"""Objects loaded into this process: separate namespaces, alive as long as the Python object is.

One ORC JIT a process links objects only (it compiles nothing). Each `Library` has its own namespace, so that equal
symbol names in two kernels never meet. A kernel imports nothing but the few memory functions that LLVM may call by
itself; anything else undefined is refused by name before linking.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from targets.llvm.runtime.compiler import CompiledObject
from targets.llvm.runtime.host import host_machine
from targets.llvm.runtime.objects import Symbols, read_symbols
from tensorir.errors import InternalError

#: Library calls that LLVM may make out of plain loops, copies and fills; resolved from the process.
MEMORY_FUNCTIONS = ("memcpy", "memmove", "memset")

_numbers = itertools.count()
_engine_lock = threading.Lock()


class Library:
    """A loaded object. Addresses are valid while this object lives: whoever calls one must hold the library."""

    __slots__ = ("_tracker", "symbols", "__weakref__")

    def __init__(self, tracker: llvm.orcjit.ResourceTracker, symbols: frozenset[str]) -> None:
        self._tracker = tracker
        self.symbols = symbols

    def address(self, symbol: str) -> int:
        """The address of an exported function."""
        if symbol not in self.symbols:
            raise InternalError(f"the library has no symbol {symbol!r}; it has {', '.join(sorted(self.symbols))}")
        return self._tracker[symbol]


def load(compiled: CompiledObject | bytes, *, imports: Mapping[str, int] | None = None) -> Library:
    """Load an object. `imports` (symbol to address) is for the runtime's own objects; kernels have none."""
    return load_all([compiled], imports=imports)


def load_all(objects: Sequence[CompiledObject | bytes], *, imports: Mapping[str, int] | None = None) -> Library:
    """Load objects into one library; their exported symbols must differ."""
    builder = llvm.JITLibraryBuilder()
    defined: set[str] = set()
    undefined: set[str] = set()
    for compiled in objects:
        image = compiled if isinstance(compiled, bytes) else compiled.object
        found = read_symbols(image) if isinstance(compiled, bytes) else compiled.symbols
        if twice := defined & found.defined:
            raise InternalError(f"two objects define {', '.join(sorted(twice))}")
        defined |= found.defined
        undefined |= found.undefined
        builder.add_object_img(image)
    symbols = Symbols(frozenset(defined), frozenset(undefined))
    known = dict(imports or {})
    unknown = sorted(symbols.undefined - known.keys() - set(MEMORY_FUNCTIONS))
    if unknown:
        raise InternalError(
            f"a kernel imports nothing, but this one needs {', '.join(unknown)}: "
            "an operation was left to a library call; it must be written out in Tensor IR"
        )
    for name in sorted(symbols.undefined):
        builder.import_symbol(name, known[name] if name in known else process_symbol(name))
    for name in symbols.defined:
        builder.export_symbol(name)
    try:
        tracker = builder.link(_engine(), f"nestor.{os.getpid()}.{next(_numbers)}")
    except RuntimeError as error:
        raise InternalError(f"the JIT could not load an object: {error}") from None
    return Library(tracker, symbols.defined)


@functools.cache
def process_symbol(name: str) -> int:
    """The address of a C library function in this process."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    if address is None:
        raise InternalError(f"the process has no function {name!r}")
    return address


def _engine() -> llvm.orcjit.LLJIT:
    with _engine_lock:
        return _make_engine()


@functools.cache
def _make_engine() -> llvm.orcjit.LLJIT:
    return llvm.create_lljit_compiler(host_machine().handle, use_jit_link=True, suppress_errors=True)
