"""Vector registers spilled to the stack inside loops, counted in assembly text.

A register tile that does not fit makes the code generator move vectors to and from the stack in the hot loop, which
can cost two thirds of the speed; such a tile is rejected and the next one taken. Counted is every instruction that
names both a vector register (ymm or zmm; q or v on aarch64) and a stack slot, moves and folded operands alike:

    .LBB0_2:
        vmovups 64(%rsp), %zmm3              ; counted
        vfmadd231ps 128(%rsp), %zmm1, %zmm2  ; counted
        vmovups (%rdi), %zmm4                ; not the stack
        vmovups %zmm4, 64(%rsp,%rdi)         ; an array of the program that lies there
        jne .LBB0_2
"""

from __future__ import annotations

import re
from typing import Literal

_LABEL = re.compile(r"^([.\w$]+):")
_X86_JUMP = re.compile(r"^\s+j\w+\s+([.\w$]+)\s*(?:#.*)?$")
_ARM_JUMP = re.compile(r"^\s+(?:b(?:\.\w+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?([.\w$]+)\s*(?://.*)?$")
_FRAME_COPY = re.compile(r"^\s+movq\s+%rsp,\s*%(rbp|rbx)\b")
_X86_VECTOR = re.compile(r"%[yz]mm\d+")
_ARM_SPILL = re.compile(r"^\s+(?:ld|st)[ru]?[rp]\s+[qv]\d+.*\[(?:sp|x29)\b")


def vector_spills(assembly: str, *, loops: Literal["innermost", "any"] = "innermost") -> int:
    """The number of instructions with vector stack traffic in the innermost loops (or in any loop) of `assembly`.

    `assembly` is what LLVM prints (AT&T syntax on x86-64). A loop is the span of a backward jump.
    """
    lines = assembly.splitlines()
    spans = _loop_spans(lines)
    if loops == "innermost":
        spans = [span for span in spans if not any(_holds(span, other) for other in spans)]
    in_loop: set[int] = set()
    for first, last in spans:
        in_loop.update(range(first, last + 1))
    frame: set[str] = set()
    count = 0
    for number, line in enumerate(lines):
        if "@function" in line or line.startswith("\t.globl"):
            frame = {"rsp"}
        elif copy := _FRAME_COPY.match(line):
            frame.add(copy[1])
        if number in in_loop and _is_spill(line, frame):
            count += 1
    return count


def _is_spill(line: str, frame: set[str]) -> bool:
    if _ARM_SPILL.match(line):
        return True
    if not _X86_VECTOR.search(line):
        return False
    return any(f"(%{register})" in line for register in frame | {"rsp"})


def _loop_spans(lines: list[str]) -> list[tuple[int, int]]:
    """(first line, last line) of each loop; jumps back to one label make one loop."""
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif jump := _X86_JUMP.match(line) or _ARM_JUMP.match(line):
            start = labels.get(jump[1])
            if start is not None:
                ends[start] = number
    return list(ends.items())


def _holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    """True if the head of one loop lies in another: its end may lie behind, where a guard jumps back first."""
    return outer[0] < inner[0] <= outer[1]
