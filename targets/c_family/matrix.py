"""Matrix instructions in CUDA: the functions that kernels call, over PTX's `wmma` for tiles of 16 x 16 x 16.

A fragment is eight registers of each lane: pairs of float16 for an operand, float32 for the sum. No header of CUDA's is
needed, so that NVRTC alone compiles them.
"""

from __future__ import annotations

REGISTERS = 8
_SHAPE = "sync.aligned.{layout}.m16n16k16"


def function_text(name: str) -> str | None:
    """The function `name` without its qualifiers: mma_fill, mma_load_c, mma_load_a_row (b, col), mma_store,
    mma_sync_row_row (col); None if it is none of them."""
    words = name.split("_")
    match words:
        case ["mma", "fill"]:
            return f"void {name}(f32 *d, f32 x) {{\n  for (int i = 0; i < {REGISTERS}; ++i) d[i] = x;\n}}"
        case ["mma", "load", "c"]:
            return _load(name, "c", "row", "f32", "f32", "f")
        case ["mma", "load", "a" | "b" as operand, layout]:
            return _load(name, operand, layout, "u32", "f16", "r")
        case ["mma", "store"]:
            asm = f"wmma.store.d.{_SHAPE.format(layout='row')}.f32 [%0], {_list(1)}, %{1 + REGISTERS};"
            sums = ", ".join(f'"f"(d[{i}])' for i in range(REGISTERS))
            return (
                f"void {name}(f32 *p, const f32 *d, int stride) {{\n"
                f'  asm volatile("{asm}" : : "l"(p), {sums}, "r"(stride) : "memory");\n}}'
            )
        case ["mma", "sync", a, b]:
            n = REGISTERS
            asm = f"wmma.mma.sync.aligned.{a}.{b}.m16n16k16.f32.f32 {_list(0)}, {_list(n)}, {_list(2 * n)}, {_list(0)};"
            sums = ", ".join(f'"+f"(d[{i}])' for i in range(n))
            operands = ", ".join(f'"r"({x}[{i}])' for x in "ab" for i in range(n))
            return (
                f"void {name}(f32 *d, const u32 *a, const u32 *b) {{\n"
                f'  asm volatile("{asm}" : {sums} : {operands});\n}}'
            )
    return None


def _load(name: str, operand: str, layout: str, register: str, element: str, kind: str) -> str:
    memory = "u16" if element == "f16" else "f32"
    n = REGISTERS
    asm = f"wmma.load.{operand}.{_SHAPE.format(layout=layout)}.{element} {_list(0)}, [%{n}], %{n + 1};"
    outputs = ", ".join(f'"={kind}"(f[{i}])' for i in range(n))
    return (
        f"void {name}({register} *f, const {memory} *p, int stride) {{\n"
        f'  asm volatile("{asm}" : {outputs} : "l"(p), "r"(stride) : "memory");\n}}'
    )


def _list(first: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(REGISTERS)) + "}"
