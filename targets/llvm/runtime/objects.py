"""The symbols of a relocatable object file: what it defines, and what it needs from elsewhere.

LLVM's code generator may call a library on its own account (`frem` becomes `fmodf`, a wide store loop `memset`), and
the JIT would resolve such a call from the process without a word. A kernel imports nothing, so the symbol table of
each object is read here and checked. ELF (Linux) and Mach-O (macOS), 64-bit little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tensorir.errors import InternalError

_SHT_SYMTAB = 2
_LC_SYMTAB = 2


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names of an object's global functions and variables, and of those it leaves undefined."""

    defined: frozenset[str]
    undefined: frozenset[str]


def read_symbols(image: bytes) -> Symbols:
    """The global symbols of an ELF or Mach-O object."""
    if image[:5] == b"\x7fELF\x02":
        return _read_elf(image)
    if image[:4] == b"\xcf\xfa\xed\xfe":
        return _read_macho(image)
    raise InternalError(f"an object file of unknown format, beginning with {image[:8].hex()}")


def _read_elf(image: bytes) -> Symbols:
    section_offset = struct.unpack_from("<Q", image, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, section_offset + i * entry_size) for i in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    for section in sections:
        kind, offset, size, link = section[1], section[4], section[5], section[6]
        if kind != _SHT_SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, 24):
            name_offset, info, _, section_index = struct.unpack_from("<IBBH", image, at)
            is_local = info >> 4 == 0
            if is_local or name_offset == 0:
                continue
            (undefined if section_index == 0 else defined).add(_text_at(image, names + name_offset))
    return Symbols(frozenset(defined), frozenset(undefined - {"_GLOBAL_OFFSET_TABLE_"}))


def _read_macho(image: bytes) -> Symbols:
    commands = struct.unpack_from("<I", image, 16)[0]
    at = 32
    defined: set[str] = set()
    undefined: set[str] = set()
    for _ in range(commands):
        command, size = struct.unpack_from("<II", image, at)
        if command == _LC_SYMTAB:
            symbol_offset, symbol_count, string_offset, _ = struct.unpack_from("<IIII", image, at + 8)
            for i in range(symbol_count):
                name_offset, kind = struct.unpack_from("<IB", image, symbol_offset + 16 * i)
                is_external = kind & 0x01
                if not is_external or name_offset == 0:
                    continue
                name = _text_at(image, string_offset + name_offset).removeprefix("_")
                (undefined if kind & 0x0E == 0 else defined).add(name)
        at += size
    return Symbols(frozenset(defined), frozenset(undefined))


def _text_at(image: bytes, offset: int) -> str:
    return image[offset : image.index(b"\0", offset)].decode()
