"""What `exe.memory` shows: the plan of the memory of a run, as numbers, as text and as a picture.

A block of the arena is the memory of an alias class: a value, what is a view of it, and what is written in its place.
Across runs the time, in instructions of the plan; up run the bytes.

    host: arena 384 bytes, 1.000 of the 384 alive at once; constants 0 bytes
      offset  bytes  alive  values
         256    128  2..3   c: n*32
           0    256  0..2   a, b (in place): n*64

        |  ccc
        |aaaaa
        +-----
         0   3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from graphir import dims
from graphir.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from graphir.plan import Plan

FOREVER = 1 << 30
"""The end of a block that is shared with nobody."""

WIDTH, HEIGHT = 64, 16
"""Columns and rows of a picture in text, at most."""

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class MemoryBlock(NamedTuple):
    """A block of an arena: where it lies, how large it is, the values in it, the first and last instruction that needs
    it, and its size as a formula where that depends on symbols."""

    offset: int
    nbytes: int
    names: tuple[str, ...]
    start: int
    end: int
    formula: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """Bytes of the plan on one device: the arena, the largest sum of bytes alive together, the constants; and who lies
    where, over how many instructions."""

    device: str
    arena: int
    peak_live: int
    constants: int
    blocks: tuple[MemoryBlock, ...]

    @property
    def ratio(self) -> float:
        """The arena over the largest sum of live bytes."""
        return self.arena / self.peak_live if self.peak_live else 1.0

    @property
    def last(self) -> int:
        """The last instruction that needs memory."""
        return max(
            (b.end for b in self.blocks if b.end < FOREVER), default=max((b.start for b in self.blocks), default=0)
        )

    def __str__(self) -> str:
        head = (
            f"{self.device}: arena {self.arena} bytes, {self.ratio:.3f} of the {self.peak_live} alive at once; "
            f"constants {self.constants} bytes"
        )
        if not self.blocks:
            return head
        ordered = sorted(self.blocks, key=lambda b: (-b.offset, b.start))
        rows = [("offset", "bytes", "alive", "values")]
        for b in ordered:
            alive = "always" if b.end >= FOREVER else f"{b.start}..{b.end}"
            rows.append((str(b.offset), str(b.nbytes), alive, _values(b)))
        wide = [max(len(r[n]) for r in rows) for n in range(3)]
        lines = [f"  {o:>{wide[0]}}  {n:>{wide[1]}}  {a:<{wide[2]}}  {v}" for o, n, a, v in rows]
        return "\n".join([head, *lines])

    def drawing(self) -> str:
        """The blocks as letters: time to the right, bytes upwards."""
        if not self.arena:
            return ""
        last = self.last
        columns, rows = min(last + 1, WIDTH), min(len(self.blocks), HEIGHT)
        cells = [[" "] * columns for _ in range(rows)]
        keys = []
        for number, b in enumerate(sorted(self.blocks, key=lambda b: (b.start, b.offset))):
            letter = _LETTERS[number % len(_LETTERS)]
            keys.append(f"{letter} {_values(b)}")
            left, right = (min(t, last) * columns // (last + 1) for t in (b.start, b.end))
            low = b.offset * rows // self.arena
            high = max(-(-(b.offset + b.nbytes) * rows // self.arena), low + 1)
            for row in cells[low:high]:
                row[left : right + 1] = letter * (right + 1 - left)
        lines = [f"|{''.join(row)}" for row in reversed(cells)]
        axis = f" 0{last:>{columns - 1}}" if columns > 1 else " 0"
        return "\n".join([*lines, "+" + "-" * columns, axis, *keys])


def _values(b: MemoryBlock) -> str:
    named = list(dict.fromkeys(b.names))
    listed = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return listed if b.formula is None else f"{listed}: {b.formula} bytes"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of the plan on each device, the host first, and all of them together. `sizes` are the values of the symbols
    that it holds for."""

    devices: tuple[DeviceReport, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def arena(self) -> int:
        """Bytes of the arenas."""
        return sum(d.arena for d in self.devices)

    @property
    def peak_live(self) -> int:
        """The largest sums of bytes alive together."""
        return sum(d.peak_live for d in self.devices)

    @property
    def constants(self) -> int:
        """Bytes of constants; what is kept on two devices counts twice."""
        return sum(d.constants for d in self.devices)

    @property
    def blocks(self) -> tuple[MemoryBlock, ...]:
        """Every block of every arena."""
        return tuple(b for d in self.devices for b in d.blocks)

    @property
    def ratio(self) -> float:
        """The arenas over the largest sums of live bytes."""
        return self.arena / self.peak_live if self.peak_live else 1.0

    def __str__(self) -> str:
        at = [f"at {', '.join(f'{n}={v}' for n, v in self.sizes)}"] if self.sizes else []
        return "\n".join([*at, *map(str, self.devices)])

    def drawing(self) -> str:
        """The blocks of each device as a picture in text."""
        return "\n\n".join(f"{d.device}, {d.arena} bytes\n{d.drawing()}" for d in self.devices if d.arena)

    def svg(self, path: str | Path | None = None) -> str:
        """The blocks of each device as an SVG picture; written to `path` if given."""
        picture = _svg([d for d in self.devices if d.arena])
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(picture)
        return picture

    def _repr_html_(self) -> str:
        """The picture, and the numbers beside it."""
        return f"{self.svg()}<details><summary>numbers</summary><pre>{escape(str(self))}</pre></details>"


def memory_report(plan: Plan, constants: Sequence[np.ndarray], sizes: Mapping[str, int]) -> MemoryReport:
    """The report of a plan for these values of its symbols; a result whose size the data decide counts at its bound.

    Raises `InputError` for a symbol that the plan does not have or that has no value.
    """
    names = [s.symbol.name for s in plan.symbols]
    if set(sizes) != set(names):
        wrong = sorted(set(sizes) ^ set(names))
        raise InputError(
            f"memory: {wrong[0]} {'is no symbol of the model' if wrong[0] in sizes else 'has no value'}",
            help=f"the symbols are {', '.join(names)}" if names else "the model has no symbols",
        )
    values = dict(sizes)
    for name, bound in plan.late.items():
        values[name] = max(dims.evaluate(bound, values), 0)
    reports = []
    for number, (device, arena) in enumerate(zip(plan.devices, plan.arenas)):
        offsets, total = arena.layout(values)
        blocks = tuple(
            MemoryBlock(
                offset, dims.evaluate(b.nbytes, values), b.names, b.start, b.end,
                None if dims.constant(b.nbytes) is not None else dims.text(b.nbytes),
            )
            for offset, b in zip(offsets, arena.blocks)
        )  # fmt: skip
        used = range(len(constants)) if number == 0 else plan.constants_on(number)
        held = sum(constants[c].nbytes for c in used)
        reports.append(DeviceReport(device, total, arena.peak(values), held, blocks))
    return MemoryReport(tuple(reports), tuple(sizes.items()))


# ------------------------------------------------------------------------------------------------------------ picture

_PICTURE, _ROW, _MARGIN = 900, 320, 30
_COLOURS = ("#8ecae6", "#ffb703", "#b7e4c7", "#f4a5ae", "#cdb4db", "#ffd6a5", "#a0c4ff", "#d9d9d9")


def _svg(devices: Sequence[DeviceReport]) -> str:
    height = len(devices) * (_ROW + 2 * _MARGIN) or _MARGIN
    parts = []
    for number, d in enumerate(devices):
        top = number * (_ROW + 2 * _MARGIN) + _MARGIN
        across = (_PICTURE - 2 * _MARGIN) / (d.last + 1)
        title = f"{d.device}: {d.arena} bytes, {d.ratio:.3f} of the {d.peak_live} alive at once"
        parts.append(f'<text x="{_MARGIN}" y="{top - 8}">{escape(title)}</text>')
        frame = f'x="{_MARGIN}" y="{top}" width="{_PICTURE - 2 * _MARGIN}" height="{_ROW}"'
        parts.append(f'<rect {frame} fill="none" stroke="#999"/>')
        for place, b in enumerate(sorted(d.blocks, key=lambda b: (b.start, b.offset))):
            x, tall = _MARGIN + b.start * across, b.nbytes / d.arena * _ROW
            y = top + _ROW - (b.offset + b.nbytes) / d.arena * _ROW
            wide = (min(b.end, d.last) - b.start + 1) * across
            tip = f"{_values(b)}: {b.nbytes} bytes at {b.offset}"
            label = escape(b.names[0][: int(wide / 6)]) if b.names and tall > 12 and wide > 20 else ""
            parts.append(
                f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
                f'fill="{_COLOURS[place % len(_COLOURS)]}" stroke="#333" stroke-width="0.5"/>'
                f'<text x="{x + 3:.1f}" y="{y + 11:.1f}" font-size="9">{label}</text></g>'
            )
        parts.append(f'<text x="{_MARGIN}" y="{top + _ROW + 14}">instruction 0 to {d.last}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_PICTURE}" height="{height}" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}</svg>'
    )
