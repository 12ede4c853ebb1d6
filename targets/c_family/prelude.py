"""Functions that printed kernels call: where C has no operation with the meaning of Tensor IR's.

`prelude(names, dialect)` gives the text of the functions named and of those they need. Names end in their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from targets.c_family.dialect import Dialect
from targets.c_family.matrix import function_text

_TEXT = {
    "floordiv": """T floordiv_T(T a, T b) {
  if (b == 0) return 0;
  if (b == (T)-1) return (T)((U)0 - (U)a);
  T q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}""",
    "floormod": """T floormod_T(T a, T b) {
  if (b == 0 || b == (T)-1) return 0;
  T r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}""",
    "truncdiv": """T truncdiv_T(T a, T b) {
  if (b == 0) return 0;
  return b == (T)-1 ? (T)((U)0 - (U)a) : a / b;
}""",
    "truncmod": """T truncmod_T(T a, T b) {
  return (b == 0 || b == (T)-1) ? 0 : a % b;
}""",
    "udiv": "T udiv_T(T a, T b) { return b == 0 ? 0 : a / b; }",
    "umod": "T umod_T(T a, T b) { return b == 0 ? 0 : a % b; }",
    "shl": "T shl_T(T a, T b) { return (b >= 0 && b < BITS) ? (T)((U)a << b) : 0; }",
    "shr": "T shr_T(T a, T b) { return (b >= 0 && b < BITS) ? (T)(a >> b) : (a < 0 ? (T)-1 : 0); }",
    "least": "T least_T(T a, T b) { return (a != a || a < b) ? a : b; }",
    "most": "T most_T(T a, T b) { return (a != a || a > b) ? a : b; }",
    "whole": """i64 whole_T(T x) {
  return (x - x == 0 && x >= (T)-9223372036854775808.0 && x < (T)9223372036854775808.0) ? (i64)x : 0;
}""",
    "uwhole": """u64 uwhole_T(T x) {
  if (x - x != 0 || x < (T)-9223372036854775808.0 || x >= (T)18446744073709551616.0) return 0;
  return x < (T)9223372036854775808.0 ? (u64)(i64)x : (u64)(i64)(x - (T)9223372036854775808.0) + 0x8000000000000000u;
}""",
}

_SINGLE = {
    "f32_of_f16": """f32 f32_of_f16(u16 h) {
  u32 sign = (u32)(h & 0x8000u) << 16, magnitude = (u32)(h & 0x7fffu) << 13;
  u32 bits = BITS_OF_F32(F32_OF_BITS(magnitude) * 5.192296858534828e+33f);
  if (magnitude >= (0x7c00u << 13)) bits |= 0x7f800000u;
  return F32_OF_BITS(bits | sign);
}""",
    "f16_of_f32": """u16 f16_of_f32(f32 x) {
  u32 bits = BITS_OF_F32(x), sign = bits & 0x80000000u, m = bits ^ sign, r;
  if (m >= (143u << 23)) r = m > 0x7f800000u ? 0x7e00u : 0x7c00u;
  else if (m < (113u << 23)) r = BITS_OF_F32(F32_OF_BITS(m) + 0.5f) - 0x3f000000u;
  else r = (m + 0xc8000fffu + ((m >> 13) & 1u)) >> 13;
  return (u16)(r | (sign >> 16));
}""",
    "f32_of_bf16": "f32 f32_of_bf16(u16 h) { return F32_OF_BITS((u32)h << 16); }",
    "bf16_of_f32": """u16 bf16_of_f32(f32 x) {
  u32 bits = BITS_OF_F32(x), high = bits >> 16;
  return (u16)(x != x ? high | 0x40u : (bits + 0x7fffu + (high & 1u)) >> 16);
}""",
    "dot4_i8": """i32 dot4_i8(i32 total, u32 a, u32 b) {
  for (int shift = 0; shift < 32; shift += 8)
    total = (i32)((u32)total + (u32)((i32)((a >> shift) & 255u) * (i32)(i8)(u8)(b >> shift)));
  return total;
}""",
    "dot4_s8": """i32 dot4_s8(i32 total, u32 a, u32 b) {
  for (int shift = 0; shift < 32; shift += 8)
    total = (i32)((u32)total + (u32)((i32)(i8)(u8)(a >> shift) * (i32)(i8)(u8)(b >> shift)));
  return total;
}""",
}

_CUDA = {
    **{
        f"copy_async{n}": f"""void copy_async{n}(void *to, const void *from) {{
  asm volatile("cp.async.c{"g" if n == 16 else "a"}.shared.global [%0], [%1], {n};"
               : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}}"""
        for n in (4, 8, 16)
    },
    "dot4_i8": """i32 dot4_i8(i32 total, u32 a, u32 b) {
  i32 result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(total));
  return result;
}""",
    "dot4_s8": "i32 dot4_s8(i32 total, u32 a, u32 b) { return __dp4a((i32)a, (i32)b, total); }",
}
"""What CUDA has an instruction for."""

_UNSIGNED = {"i8": "u32", "i16": "u32", "i32": "u32", "u8": "u32", "u16": "u32", "u32": "u32"}


def prelude(names: Iterable[str], dialect: Dialect, vectors: Iterable[tuple[str, int]] = ()) -> str:
    """Type names, then the functions named, then the wide types, as they are used."""
    functions = []
    for name in sorted(set(names)):
        matrix = function_text(name)
        if matrix is not None:
            text = matrix
        elif name in _CUDA and dialect.name == "cuda":
            text = _CUDA[name]
        elif name in _SINGLE:
            text = _SINGLE[name]
        else:
            stem, t = name.rsplit("_", 1)
            bits = re.sub(r"\D", "", t)
            text = _TEXT[stem]
            text = text.replace("BITS", bits) if stem in ("shl", "shr") else text
            text = re.sub(r"\bT\b", t, text).replace("_T(", f"_{t}(")
            text = re.sub(r"\bU\b", _UNSIGNED.get(t, "u64"), text)
        to_bits, to_float = dialect.bits["f32", "u32"], dialect.bits["u32", "f32"]
        functions.append(dialect.function + text.replace("BITS_OF_F32", to_bits).replace("F32_OF_BITS", to_float))
    types = [f"typedef {spelling} {name};" for name, spelling in dialect.types.items()]
    wide: list[str] = []
    if dialect.name == "cuda":
        for t, lanes in sorted(set(vectors)):
            nbytes = lanes * int(t[1:]) // 8
            wide.append(f"struct __align__({nbytes}) wide_{t}x{lanes} {{ {t} v[{lanes}]; }};")
    return "\n".join([dialect.header + "\n".join(types), *wide, *functions]) + "\n"
