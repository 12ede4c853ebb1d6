"""LLVM IR text: how types and literals are spelled, and the writer of one function.

In registers a bool is `i1` and the 16-bit floats are `i16` (their arithmetic converts, see `casts.py`); in memory a
bool is one byte holding 0 or 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import numpy as np

from tensorir.dtypes import DType


@cache
def register_type(dtype: DType) -> str:
    """The LLVM type of a value of `dtype`."""
    return vector_of(_element(dtype), dtype.lanes)


@cache
def memory_type(dtype: DType) -> str:
    """The LLVM type that a value of `dtype` is stored as."""
    return vector_of("i8" if dtype.is_bool else _element(dtype), dtype.lanes)


@cache
def integer_type(dtype: DType) -> str:
    """The LLVM integer type with the width and lanes of `dtype`."""
    return vector_of(f"i{dtype.bits}", dtype.lanes)


def vector_of(element: str, lanes: int) -> str:
    """`element` itself for one lane, else the vector type."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _element(dtype: DType) -> str:
    if dtype.is_bool:
        return "i1"
    if dtype.is_float and dtype.bits >= 32:
        return "float" if dtype.bits == 32 else "double"
    return f"i{dtype.bits}"


def suffix(dtype: DType) -> str:
    """How intrinsic names spell a type: f32, v16f32, i8, v8i1."""
    if dtype.is_bool:
        name = "i1"
    elif dtype.is_float and dtype.bits >= 32:
        name = f"f{dtype.bits}"
    else:
        name = f"i{dtype.bits}"
    return name if dtype.lanes == 1 else f"v{dtype.lanes}{name}"


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant of `dtype`, splat over its lanes."""
    text = _scalar_literal(value, dtype)
    return text if dtype.lanes == 1 else f"splat ({_element(dtype)} {text})"


def _scalar_literal(value: bool | int | float, dtype: DType) -> str:
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    if dtype.bits == 16:
        return str(int(np.asarray(value, dtype.numpy).view(np.uint16)))
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


class ModuleWriter:
    """The functions and declarations of one module."""

    __slots__ = ("_declarations", "_functions", "_helpers", "_types")

    def __init__(self) -> None:
        self._declarations: dict[str, None] = {}
        self._functions: list[str] = []
        self._helpers: dict[str, str] = {}
        self._types: list[str] = []

    def declare(self, text: str) -> None:
        """A `declare` line, once."""
        self._declarations[text] = None

    def define_type(self, text: str) -> None:
        """A named type."""
        self._types.append(text)

    def helper(self, name: str, text: str) -> str:
        """An internal function that generated code calls, once. Gives its name."""
        self._helpers[name] = text
        return name

    def add_function(self, text: str) -> None:
        """A finished function."""
        self._functions.append(text)

    def text(self) -> str:
        """The module."""
        parts = [*self._types, *self._functions, *self._helpers.values(), *self._declarations]
        return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class Counter:
    """A loop counter whose phi is not complete yet."""

    name: str
    type: str
    first: str
    line: int


class FunctionWriter:
    """One function being written: instructions go to the current block, stack slots to the entry block."""

    __slots__ = ("_blocks", "_count", "_lines", "_slots", "in_parallel", "label", "module")

    def __init__(self, module: ModuleWriter, *, in_parallel: bool = False) -> None:
        self.module = module
        self.in_parallel = in_parallel
        self.label = "entry"
        self._lines: list[str] = []
        self._slots: list[str] = []
        self._count = 0
        self._blocks = 0

    def op(self, text: str) -> str:
        """An instruction with a result; gives the result's name."""
        name = f"%v{self._count}"
        self._count += 1
        self._lines.append(f"  {name} = {text}")
        return name

    def begin_loop(self, label: str, t: str, first: str) -> Counter:
        """Start the block of a loop with a counter of type `t` that is `first` at entry from the current block."""
        before = self.label
        self.begin(label)
        name = f"%v{self._count}"
        self._count += 1
        self._lines.append("")  # the phi is written when its second value is known
        return Counter(name, t, f"[ {first}, %{before} ]", len(self._lines) - 1)

    def close_loop(self, counter: Counter, following: str) -> None:
        """The value of the counter in the next iteration, which comes from the current block."""
        pairs = f"{counter.first}, [ {following}, %{self.label} ]"
        self._lines[counter.line] = f"  {counter.name} = phi {counter.type} {pairs}"

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def slot(self, element: str, count: int, align: int) -> str:
        """Stack memory that lives as long as the function."""
        name = f"%s{self._count}"
        self._count += 1
        self._slots.append(f"  {name} = alloca [{count} x {element}], align {align}")
        return name

    def new_label(self, name: str) -> str:
        """A label not used yet."""
        self._blocks += 1
        return f"{name}.{self._blocks}"

    def begin(self, label: str) -> None:
        """Start the block `label`; the one before must have ended in a branch or return."""
        self._lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        """Branch always."""
        self._lines.append(f"  br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """Branch on an i1."""
        self._lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}")

    def intrinsic(self, name: str, result: str, args: list[tuple[str, str]], attributes: tuple[str, ...] = ()) -> str:
        """A call of the LLVM intrinsic `name` on (type, value) pairs; `attributes[i]` stands before argument i."""
        self.module.declare(f"declare {result} @{name}({', '.join(t for t, _ in args)})")
        given = ", ".join(
            f"{t} {attributes[i]}{' ' if attributes[i] else ''}{v}" if i < len(attributes) else f"{t} {v}"
            for i, (t, v) in enumerate(args)
        )
        call = f"call {result} @{name}({given})"
        if result == "void":
            self.do(call)
            return ""
        return self.op(call)

    def finish(self, header: str) -> None:
        """Close the function under `define` line `header` and add it to the module."""
        entry = [f"{header} {{", "entry:", *self._slots, *self._lines, "}"]
        self.module.add_function("\n".join(entry))
