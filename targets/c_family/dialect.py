"""In what the dialects differ: a few names and phrases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect of C for kernels.

    `types` spells the element types i8 .. f64; `index` and `group` are the expressions of thread and block indices
    with {axis} and {number} to fill in; `kernel` opens a kernel ({name}, {params}, {threads}); `function` begins a
    function of the prelude; `pointer` is the qualifier of each scope's pointers; `shared` declares shared memory
    ({type}, {name}, {size}, {align}); `barrier` and `barrier_global` wait (the second also orders global memory);
    `long_suffix` ends 64-bit literals; `math` names functions by (name, bits); `bits` names reinterpretations
    (from, to); `warps` says that lanes of a warp can exchange values and multiply matrices.
    """

    name: str
    header: str
    types: Mapping[str, str]
    index: str
    group: str
    kernel: str
    function: str
    pointer: Mapping[str, str]
    shared: str
    barrier: str
    barrier_global: str
    long_suffix: str
    math: Mapping[tuple[str, int], str]
    bits: Mapping[tuple[str, str], str]
    vector: str
    align: str
    warps: bool = False


_MATH = ("sqrt", "floor", "ceil", "trunc", "rint", "fabs", "copysign", "fma")

OPENCL = Dialect(
    name="opencl",
    header="#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#pragma OPENCL FP_CONTRACT OFF\n",
    types={
        "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int", "u32": "uint", "i64": "long",
        "u64": "ulong", "f32": "float", "f64": "double",
    },
    index="get_local_id({number})",
    group="get_group_id({number})",
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({params})",
    function="static inline ",
    pointer={"global": "__global ", "shared": "__local ", "local": "__private ", "register": "__private "},
    shared="__local {type} {name}[{size}] __attribute__((aligned({align})));",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    barrier_global="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    long_suffix="L",
    math={(n, b): n for n in _MATH for b in (32, 64)},
    bits={
        ("f32", "u32"): "as_uint", ("u32", "f32"): "as_float", ("f64", "u64"): "as_ulong", ("u64", "f64"): "as_double",
    },
    vector="{type}{lanes}",
    align=" __attribute__((aligned(16)))",
)  # fmt: skip

CUDA = Dialect(
    name="cuda",
    header="",
    types={
        "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short", "i32": "int",
        "u32": "unsigned int", "i64": "long long", "u64": "unsigned long long", "f32": "float", "f64": "double",
    },
    index="threadIdx.{axis}",
    group="blockIdx.{axis}",
    kernel='extern "C" __global__ void __launch_bounds__({threads})\n{name}({params})',
    function="static __device__ __forceinline__ ",
    pointer={"global": "", "shared": "", "local": "", "register": ""},
    shared="__shared__ __align__({align}) {type} {name}[{size}];",
    barrier="__syncthreads();",
    barrier_global="__syncthreads();",
    long_suffix="LL",
    math={(n, b): n + ("f" if b == 32 else "") for n in _MATH for b in (32, 64)},
    bits={
        ("f32", "u32"): "__float_as_uint", ("u32", "f32"): "__uint_as_float",
        ("f64", "u64"): "(u64)__double_as_longlong", ("u64", "f64"): "__longlong_as_double",
    },
    vector="wide_{type}x{lanes}",
    align=" __align__(16)",
    warps=True,
)  # fmt: skip

RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if int long register return "
    "short signed sizeof static struct switch typedef union unsigned void volatile while bool true false half uint "
    "uchar ushort ulong kernel global local constant private t i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 dot4 class new "
    "delete this template namespace operator public private protected virtual try catch throw using inline asm "
    "sqrt floor ceil trunc rint fabs copysign fma barrier main threadIdx blockIdx exp log pow sin cos tan min max abs "
    "event image sampler vec_step pipe".split()
)
"""Names that no kernel, buffer or variable may have in either dialect."""
