"""Compile LLVM IR text, load it, run it, in one or many threads: host, compiler, JIT, kernel ABI, pool, calls.

compiled = compile_ir(text, machine=host_machine())      # object, assembly, spills
function = NativeFunction(load(compiled), "kernel", data=3, dims=1, threads=2)
function([a, b, out], [n])
"""

from targets.llvm.runtime.abi import (
    CONTEXT_FIELDS,
    CONTEXT_LLVM_NAME,
    CONTEXT_LLVM_TYPE,
    ContextStruct,
    Status,
)
from targets.llvm.runtime.compiler import CompiledObject, compile_ir
from targets.llvm.runtime.context import Context
from targets.llvm.runtime.host import Host, Machine, available_cores, host, host_machine, target_machine, vector_bits
from targets.llvm.runtime.jit import Library, load
from targets.llvm.runtime.native import KernelError, NativeFunction, address_of
from targets.llvm.runtime.objects import Symbols, read_symbols
from targets.llvm.runtime.pool import Pool, compile_pool, process_pool
from targets.llvm.runtime.pool_ir import PoolSystem, pool_imports
from targets.llvm.runtime.spills import vector_spills

__all__ = [
    "CONTEXT_FIELDS",
    "CONTEXT_LLVM_NAME",
    "CONTEXT_LLVM_TYPE",
    "CompiledObject",
    "Context",
    "ContextStruct",
    "Host",
    "KernelError",
    "Library",
    "Machine",
    "NativeFunction",
    "Pool",
    "PoolSystem",
    "Status",
    "Symbols",
    "address_of",
    "available_cores",
    "compile_ir",
    "compile_pool",
    "host",
    "host_machine",
    "load",
    "pool_imports",
    "process_pool",
    "read_symbols",
    "target_machine",
    "vector_bits",
    "vector_spills",
]
