"""Host detection, compiling, symbols, spills, loading and calling."""

from __future__ import annotations

import ctypes
import gc
import struct

import numpy as np
import pytest

from targets.llvm.runtime import (
    CONTEXT_FIELDS,
    CONTEXT_LLVM_NAME,
    CONTEXT_LLVM_TYPE,
    ContextStruct,
    address_of,
    available_cores,
    compile_ir,
    host,
    host_machine,
    load,
    read_symbols,
    target_machine,
    vector_bits,
    vector_spills,
)
from tensorir.errors import InternalError, UserError
from tests.targets.llvm.runtime_kernels import INCREMENT, build

AARCH64 = "aarch64-unknown-linux-gnu"
X86 = "x86_64-unknown-linux-gnu"

SCALE = """
define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
  %at = alloca i64
  store i64 0, ptr %at
  %p = load ptr, ptr %data
  %n = load i64, ptr %dims
  br label %loop
loop:
  %i = load i64, ptr %at
  %e = getelementptr float, ptr %p, i64 %i
  %v = load float, ptr %e
  %w = fmul float %v, FACTOR
  store float %w, ptr %e
  %i1 = add i64 %i, 1
  store i64 %i1, ptr %at
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}"""


def test_host_is_complete() -> None:
    here = host()
    assert here.cores >= 1 and here.cores == available_cores()
    assert here.vector_bits in (128, 256, 512)
    assert here.line_bytes in (32, 64, 128, 256)
    assert str(here.cores) in str(here)


def test_vector_bits_follow_features() -> None:
    assert vector_bits(X86, "+sse2,-avx,-avx512f") == 128
    assert vector_bits(X86, "+avx2,-avx512f") == 256
    assert vector_bits(X86, "+avx2,+avx512f") == 512
    assert vector_bits(AARCH64, "+neon") == 128


def test_machines_are_made_once() -> None:
    assert host_machine() is host_machine()
    assert target_machine(AARCH64) is target_machine(AARCH64)
    assert host_machine().key != host_machine(0).key


def test_unknown_triple_is_a_user_error() -> None:
    with pytest.raises(UserError, match="unknown target triple 'abacus-unknown-linux'.*\n.*help: this machine is"):
        target_machine("abacus-unknown-linux")


def test_bad_text_shows_the_line() -> None:
    with pytest.raises(InternalError, match=r">\s+3 \|   %y = fadd float %x, 1\.0"):
        compile_ir(
            "define i32 @kernel() {\n  ; below: %x is not defined\n  %y = fadd float %x, 1.0\n  ret i32 0\n}",
            machine=host_machine(),
        )


@pytest.mark.parametrize("passes", ["none", "sroa", "O1"])
def test_passes_keep_the_meaning(passes: str) -> None:
    compiled = compile_ir(SCALE.replace("FACTOR", "3.0"), machine=host_machine(), passes=passes)
    assert ("alloca" in compiled.optimised) == (passes == "none")
    assert "kernel" in compiled.assembly
    assert compiled.llvm.count("FACTOR") == 0


def test_wide_vectors_stay_wide() -> None:
    text = """
    define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {
      %p = load ptr, ptr %data
      %v = load <16 x float>, ptr %p, align 4
      %w = fadd <16 x float> %v, %v
      store <16 x float> %w, ptr %p, align 4
      ret i32 0
    }"""
    wide = compile_ir(text, machine=target_machine(X86, "sapphirerapids", ""))
    assert "%zmm" in wide.assembly
    narrow = compile_ir(text, machine=target_machine(X86, "haswell", ""))
    assert "%ymm" in narrow.assembly and "%zmm" not in narrow.assembly


def test_equal_names_in_two_libraries_do_not_meet() -> None:
    two, three = (build(SCALE.replace("FACTOR", factor), data=1, dims=1) for factor in ("2.0", "3.0"))
    x = np.ones(5, np.float32)
    two([x], [5])
    three([x], [5])
    np.testing.assert_array_equal(x, 6)


def test_libraries_come_and_go() -> None:
    compiled = compile_ir(SCALE.replace("FACTOR", "2.0"), machine=host_machine())
    kept = load(compiled)
    for _ in range(50):
        load(compiled.object)
    gc.collect()
    assert kept.address("kernel")
    with pytest.raises(InternalError, match="no symbol 'other'; it has kernel"):
        kept.address("other")


def test_a_library_call_is_refused_by_name() -> None:
    text = """
    declare float @expf(float)
    define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) {
      %p = load ptr, ptr %data
      %v = load float, ptr %p
      %w = frem float %v, 3.0
      %e = call float @expf(float %w)
      store float %e, ptr %p
      ret i32 0
    }"""
    with pytest.raises(InternalError, match="imports nothing, but this one needs expf, fmodf"):
        load(compile_ir(text, machine=host_machine()))


def test_memory_functions_are_allowed() -> None:
    text = """
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) {
      %p = load ptr, ptr %data
      %n = load i64, ptr %dims
      call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
      ret i32 0
    }"""
    compiled = compile_ir(text, machine=host_machine())
    assert compiled.symbols.undefined == {"memset"}
    x = np.zeros(1000, np.uint8)
    build(text, data=1, dims=1)([x], [999])
    assert (x[:999] == 7).all() and x[999] == 0


@pytest.mark.parametrize("triple", [X86, AARCH64, "arm64-apple-macosx13.0.0"])
def test_symbols_of_each_object_format(triple: str) -> None:
    text = """
    declare i32 @elsewhere()
    define internal i32 @hidden() noinline {
      ret i32 1
    }
    define i32 @kernel() {
      %a = call i32 @elsewhere()
      %b = call i32 @hidden()
      %c = add i32 %a, %b
      ret i32 %c
    }"""
    symbols = read_symbols(compile_ir(text, machine=target_machine(triple)).object)
    assert symbols.defined == {"kernel"}
    assert symbols.undefined == {"elsewhere"}


def test_an_unknown_object_is_refused() -> None:
    with pytest.raises(InternalError, match="unknown format"):
        read_symbols(b"not an object")


def chains(count: int, width: int) -> str:
    """A loop that keeps `count` vector accumulators alive: more than there are registers must spill."""
    lines = ["define i32 @kernel(ptr %ctx, ptr %data, ptr %dims) alignstack(64) {", "entry:"]
    vector = f"<{width} x float>"
    lines += ["  %p = load ptr, ptr %data", "  %n = load i64, ptr %dims", "  br label %loop", "loop:"]
    lines.append("  %i = phi i64 [0, %entry], [%i1, %loop]")
    lines += [f"  %a{k} = phi {vector} [zeroinitializer, %entry], [%b{k}, %loop]" for k in range(count)]
    lines += [f"  %q = getelementptr {vector}, ptr %p, i64 %i", f"  %x = load {vector}, ptr %q, align 4"]
    for k in range(count):
        lines.append(f"  %b{k} = call {vector} @llvm.fma({vector} %x, {vector} %a{(k + 1) % count}, {vector} %a{k})")
    lines += [
        "  %i1 = add i64 %i, 1",
        "  %more = icmp slt i64 %i1, %n",
        "  br i1 %more, label %loop, label %out",
        "out:",
    ]
    for k in range(count):
        lines += [f"  %s{k} = getelementptr {vector}, ptr %p, i64 {k}", f"  store {vector} %b{k}, ptr %s{k}, align 4"]
    lines += ["  ret i32 0", "}"]
    body = "\n".join(lines).replace("@llvm.fma(", f"@llvm.fma.v{width}f32(")
    return f"declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})\n{body}"


@pytest.mark.parametrize(
    ("triple", "cpu", "width", "fits", "spills"),
    [(X86, "znver4", 16, 20, 40), (X86, "haswell", 8, 10, 24), (AARCH64, "neoverse-n1", 4, 20, 44)],
)
def test_spills_are_counted_where_tiles_do_not_fit(triple: str, cpu: str, width: int, fits: int, spills: int) -> None:
    machine = target_machine(triple, cpu, "")
    assert compile_ir(chains(fits, width), machine=machine).spills == 0
    assert compile_ir(chains(spills, width), machine=machine).spills >= 4


def test_spills_outside_the_innermost_loop_are_told_apart() -> None:
    assembly = "\n".join(
        [
            "\t.type\tkernel,@function",
            "kernel:",
            "\tmovq\t%rsp, %rbp",
            "\tvmovups\t%zmm0, 64(%rsp)",
            ".LBB0_1:",
            "\tvmovups\t-64(%rbp), %zmm1",
            ".LBB0_2:",
            "\tvfmadd231ps\t128(%rsp), %zmm1, %zmm2",
            "\tvmovups\t(%rdi), %zmm4",
            "\tmovq\t8(%rsp), %rax",
            "\tjne\t.LBB0_2",
            "\tjne\t.LBB0_1",
            "\tretq",
        ]
    )
    assert vector_spills(assembly) == 1
    assert vector_spills(assembly, loops="any") == 2


def test_a_loop_whose_guard_jumps_back_around_an_inner_loop_is_no_innermost_one() -> None:
    """LLVM puts the rest of the outer loop, which adds a finished tile to its total, in front of its head."""
    assembly = "\n".join(
        [
            "kernel:",
            ".LBB0_8:",
            "\tvaddps\t128(%rsp), %zmm1, %zmm2",
            ".LBB0_5:",
            "\tjge\t.LBB0_8",
            ".LBB0_6:",
            "\tvfmadd231ps\t(%rdi), %zmm1, %zmm2",
            "\tjne\t.LBB0_6",
            "\tjmp\t.LBB0_5",
        ]
    )
    assert vector_spills(assembly) == 0
    assert vector_spills(assembly, loops="any") == 1


def test_rbp_is_no_stack_slot_where_it_is_an_ordinary_register() -> None:
    assembly = "\n".join(["kernel:", ".LBB0_1:", "\tvmovups\t(%rbp,%rax), %zmm1", "\tjne\t.LBB0_1"])
    assert vector_spills(assembly) == 0


def test_the_context_layout_is_the_same_for_python_and_llvm() -> None:
    machine = host_machine()
    text = (
        CONTEXT_LLVM_TYPE
        + "\n"
        + "\n".join(
            f"define i64 @at_{name}() {{\n  %p = getelementptr {CONTEXT_LLVM_NAME}, ptr null, i32 0, i32 {index}\n"
            "  %o = ptrtoint ptr %p to i64\n  ret i64 %o\n}"
            for name, index in CONTEXT_FIELDS.items()
        )
    )
    library = load(compile_ir(text, machine=machine))
    for name in CONTEXT_FIELDS:
        offset = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(f"at_{name}"))()
        assert offset == getattr(ContextStruct, name).offset
    assert ctypes.sizeof(ContextStruct) == 64


def test_addresses_of_arrays() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    frozen = base.copy()
    frozen.flags.writeable = False
    for array in (base, base[1:, 2:], base.T, np.empty(0), np.float64(3).reshape(()), frozen, base.view(np.recarray)):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_the_number_of_buffers_is_checked() -> None:
    function = build(INCREMENT, data=2, dims=1)
    with pytest.raises(struct.error):
        function([np.zeros(3, np.float32)], [3])
    with pytest.raises(struct.error):
        function([np.zeros(3, np.float32), np.zeros(3, np.int64)], [])
    x = np.zeros(3, np.float32)
    function([x, np.zeros(3, np.int64)], [3])
    np.testing.assert_array_equal(x, 1)
