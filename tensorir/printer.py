"""The text form of Tensor IR, with spans: `print_func(f)` gives the text and where each statement stands in it.

    func main(A: float32[8, 16], B: float32[16, 8], C: float32[8, 8]) outputs 1:
      for i in 0..8 parallel:
        for j in 0..8:
          for k in 0..16:
            block C(v_i: spatial in 0..8 = i, v_j: spatial in 0..8 = j, v_k: reduce in 0..16 = k):
              reads A[v_i, v_k], B[v_k, v_j]
              writes C[v_i, v_j]
              init:
                C[v_i, v_j] = 0.0
              C[v_i, v_j] = fma(A[v_i, v_k], B[v_k, v_j], C[v_i, v_j])

`tensorir.parser` reads it back to the same tree. Integer literals are int64 and literals with a point float32 unless
written with their type, as in int32(3) or float16(0.5); in a range they have the type of its variable. `alloc` and
`let` hold for the rest of their indented block. Dimension symbols stand in brackets after the name: `func f[n](...)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensorir import dtypes
from tensorir.buffer import AlignedBuffer, Buffer, Region
from tensorir.expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Broadcast,
    Call,
    Cast,
    Const,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    IfThenElse,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Reduce,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from tensorir.intrinsics import INTRINSICS
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children

KEYWORDS = frozenset(
    "func outputs attrs alloc let for in block reads writes init where if else and or not mask pragma True False None "
    "inf nan eval pass aligned".split()
)

_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")
_TYPE = re.compile(rf"({'|'.join(str(d) for d in dtypes.ALL_DTYPES)})(x[0-9]+)?")
_ATOM, _UNARY = 12, 11
_INFIX: dict[type, tuple[str, int]] = {
    Or: ("or", 1), And: ("and", 2), EQ: ("==", 4), NE: ("!=", 4), LT: ("<", 4), LE: ("<=", 4), BitOr: ("|", 5),
    BitXor: ("^", 6), BitAnd: ("&", 7), ShiftLeft: ("<<", 8), ShiftRight: (">>", 8), Add: ("+", 9), Sub: ("-", 9),
    Mul: ("*", 10), Div: ("/", 10), FloorDiv: ("//", 10), FloorMod: ("%", 10),
}  # fmt: skip
_FUNCTIONS: dict[type, str] = {
    TruncDiv: "truncdiv", TruncMod: "truncmod", Min: "min", Max: "max", Fma: "fma", Select: "select",
    IfThenElse: "if_then_else",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one printed line: `line` counts from 0, columns are half-open."""

    line: int
    begin: int
    end: int


@dataclass(slots=True)
class Printed:
    """Printed lines and the span of each statement and loop variable (keys are the nodes, by identity)."""

    lines: list[str] = field(default_factory=list)
    spans: dict[Any, Span] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join(self.lines)

    def excerpt(self, node: Any, note: str = "", *, context: int = 1) -> str:
        """The lines around a node with its span underlined, line numbers from 1 in front."""
        span = self.spans[node]
        first = max(0, span.line - context)
        width = len(str(span.line + 1 + context))
        out = []
        for number in range(first, min(len(self.lines), span.line + context + 1)):
            out.append(f"  {number + 1:>{width}} | {self.lines[number]}")
            if number == span.line:
                carets = " " * span.begin + "^" * max(1, span.end - span.begin)
                out.append(f"  {'':>{width}} | {carets}{' ' + note if note else ''}")
        return "\n".join(out)


class Namer:
    """Gives every variable and buffer one name that no other visible one has."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._keep: list[Any] = []
        self._taken: dict[str, int] = {}

    def name(self, thing: Var | Buffer) -> str:
        """The unique printed name of a variable or buffer."""
        known = self._names.get(id(thing))
        if known is not None:
            return known
        base = label(thing.name)
        candidate = base
        while candidate in self._taken:
            self._taken[base] += 1
            candidate = f"{base}_{self._taken[base]}"
        self._taken[candidate] = 0
        self._names[id(thing)] = candidate
        self._keep.append(thing)
        return candidate


def label(name: str) -> str:
    """A name as an identifier that is no word of the language."""
    base = _IDENTIFIER.sub("_", name) or "x"
    return f"_{base}" if base[0].isdigit() or base in KEYWORDS or _TYPE.fullmatch(base) else base


def literal(c: Const) -> str:
    """A literal as text that reads back to the same value and type."""
    t = c.dtype
    if t.is_bool:
        return "True" if c.value else "False"
    if t.is_integer:
        return str(c.value) if t == dtypes.INDEX else f"{t}({c.value})"
    value = float(c.value)
    if math.isnan(value) or math.isinf(value):
        return f"{t}({'nan' if math.isnan(value) else 'inf' if value > 0 else '-inf'})"
    text = repr(value) if t.bits == 64 else str(t.numpy.type(value))
    if "." not in text and "e" not in text:
        text += ".0"
    return text if t == dtypes.float32 else f"{t}({text})"


class Printer:
    """Prints expressions and statements with one naming."""

    def __init__(self) -> None:
        self.namer = Namer()
        self.out = Printed()
        self._indent = 0

    # ----------------------------------------------------------------------------------------------- expressions

    def expr(self, e: Expr) -> str:
        """The text of an expression (iterative, so that long sums print)."""
        done: dict[int, tuple[str, int]] = {}
        stack: list[Expr] = [e]
        while stack:
            top = stack[-1]
            if id(top) in done:
                stack.pop()
                continue
            pending = [c for c in children(top) if id(c) not in done]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            done[id(top)] = self._node(top, done)
        return done[id(e)][0]

    def _node(self, e: Expr, done: dict[int, tuple[str, int]]) -> tuple[str, int]:
        def text(x: Expr, level: int = 0) -> str:
            s, precedence = done[id(x)]
            return s if precedence >= level else f"({s})"

        infix = _INFIX.get(type(e))
        if infix is not None:
            symbol, level = infix
            lower = level + 1 if level == 4 else level
            return f"{text(e.a, lower)} {symbol} {text(e.b, level + 1)}", level  # type: ignore[attr-defined]
        function = _FUNCTIONS.get(type(e))
        if function is not None:
            return f"{function}({', '.join(text(c) for c in children(e))})", _ATOM
        if isinstance(e, Var):
            return self.namer.name(e), _ATOM
        if isinstance(e, Const):
            s = literal(e)
            return s, _UNARY if s.startswith("-") else _ATOM
        if isinstance(e, Load):
            mask = "" if e.predicate is None else f"{', ' if e.indices else ''}mask={text(e.predicate)}"
            return f"{self.namer.name(e.buffer)}[{', '.join(text(i) for i in e.indices)}{mask}]", _ATOM
        if isinstance(e, Not):
            return f"not {text(e.a, 3)}", 3
        if isinstance(e, Cast):
            return f"cast({text(e.value)}, {e.dtype})", _ATOM
        if isinstance(e, Let):
            return f"let({self._declared(e.var)} = {text(e.value)}, {text(e.body)})", _ATOM
        if isinstance(e, Ramp):
            return f"ramp({text(e.base)}, {text(e.stride)}, {e.lanes})", _ATOM
        if isinstance(e, Broadcast):
            return f"broadcast({text(e.value)}, {e.lanes})", _ATOM
        if isinstance(e, Call):
            return self._call(e, [text(a) for a in e.args]), _ATOM
        if isinstance(e, Reduce):
            axes = ", ".join(
                f"{self.namer.name(a.var)} in {self.expr(a.begin)}..+{self.expr(a.extent)}" for a in e.axes
            )
            where = "" if e.condition is None else f", where={text(e.condition)}"
            sources = ", ".join(text(s) for s in e.sources)
            which = "" if len(e.sources) == 1 else f"[{e.index}]"
            return f"{e.reducer.name}({sources}, axis=({axes}){where}){which}", _ATOM
        raise TypeError(f"no text form for {type(e).__name__}")

    def _call(self, e: Call, args: list[str]) -> str:
        if e.name == "reinterpret":
            return f"reinterpret({args[0]}, {e.dtype})"
        entry = INTRINSICS.get(e.name)
        if entry is not None and entry.arity == len(args) and entry.result(*[a.dtype for a in e.args]) == e.dtype:
            return f"{e.name}({', '.join(args)})"
        return f"call({', '.join([repr(e.name), str(e.dtype), *args])})"

    def _declared(self, v: Var) -> str:
        name = self.namer.name(v)
        return name if v.dtype == dtypes.INDEX else f"{name}: {v.dtype}"

    # ------------------------------------------------------------------------------------------------ statements

    def line(self, text: str, node: Any = None, *also: Any) -> None:
        """One line at the current indentation; `node` (and `also`) get it as their span."""
        pad = "  " * self._indent
        begin = len(pad)
        for n in (node, *also):
            if n is not None:
                self.out.spans.setdefault(n, Span(len(self.out.lines), begin, begin + len(text.rstrip(":"))))
        self.out.lines.append(pad + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Deeper by one level."""
        self._indent += 1
        yield
        self._indent -= 1

    def body(self, s: Stmt) -> None:
        """A statement as the content of an indented block."""
        with self.indented():
            self.stmt(s, last=True)

    def stmt(self, s: Stmt, *, last: bool) -> None:
        """A statement; `last` tells that nothing follows in its block, so that alloc and let need no indentation."""
        _STMTS[type(s)](self, s, last)

    def buffer(self, b: Buffer) -> str:
        """The declaration of a buffer."""
        scope = "" if b.scope == "global" else f" @{b.scope}"
        aligned = f" aligned({b.axis}, {b.factor}, {b.offset})" if isinstance(b, AlignedBuffer) else ""
        return f"{self.namer.name(b)}: {b.dtype}[{', '.join(self.expr(x) for x in b.shape)}]{scope}{aligned}"

    def region(self, r: Region) -> str:
        """A region: points as indices, ranges as begin:+extent."""
        parts = []
        for item in r.ranges:
            point = isinstance(item.extent, Const) and item.extent.value == 1 and item.extent.dtype == dtypes.INDEX
            parts.append(self.expr(item.begin) + ("" if point else f":+{self.expr(item.extent)}"))
        return f"{self.namer.name(r.buffer)}[{', '.join(parts)}]"

    def _seq(self, s: Seq, last: bool) -> None:
        if not s.stmts:
            self.line("pass", s)
        for number, child in enumerate(s.stmts):
            self.stmt(child, last=last and number == len(s.stmts) - 1)

    def _store(self, s: Store, last: bool) -> None:
        mask = "" if s.predicate is None else f"{', ' if s.indices else ''}mask={self.expr(s.predicate)}"
        indices = ", ".join(self.expr(i) for i in s.indices)
        self.line(f"{self.namer.name(s.buffer)}[{indices}{mask}] = {self.expr(s.value)}", s)

    def _for(self, s: For, last: bool) -> None:
        kind = "" if s.kind == "serial" else f" {s.kind}"
        thread = "" if s.thread is None else f" {s.thread!r}"
        pragmas = _pragmas(s.pragmas)
        domain = self._range(s.begin, s.extent, s.var)
        self.line(f"for {self._declared(s.var)} in {domain}{kind}{thread}{pragmas}:", s, s.var)
        self.body(s.body)

    def _range(self, begin: Expr, extent: Expr, var: Var) -> str:
        """A range of `var`: literals of its type are written bare."""

        def text(e: Expr, tight: bool = False) -> str:
            if isinstance(e, Const):
                return str(e.value) if e.dtype == var.dtype and (e.value >= 0 or not tight) else f"({literal(e)})"
            return self.expr(e) if isinstance(e, Var) or not tight else f"({self.expr(e)})"

        if isinstance(begin, Const) and begin.value == 0:
            return f"0..{text(extent)}"
        return f"{text(begin)}..+{text(extent, tight=True)}"

    def _if(self, s: If, last: bool) -> None:
        self.line(f"if {self.expr(s.condition)}:", s)
        self.body(s.then)
        if s.otherwise is not None:
            self.line("else:")
            self.body(s.otherwise)

    def _scoped(self, head: str, s: Any, last: bool) -> None:
        if last:
            self.line(head, s)
            self.stmt(s.body, last=True)
        else:
            self.line(head + ":", s)
            self.body(s.body)

    def _let(self, s: LetStmt, last: bool) -> None:
        value = self.expr(s.value)
        self._scoped(f"let {self._declared(s.var)} = {value}", s, last)

    def _allocate(self, s: Allocate, last: bool) -> None:
        self._scoped(f"alloc {self.buffer(s.buffer)}", s, last)

    def _evaluate(self, s: Evaluate, last: bool) -> None:
        self.line(f"eval {self.expr(s.value)}", s)

    def _block(self, s: Block, last: bool) -> None:
        bindings = [self.expr(b) for b in s.bindings]
        iters = ", ".join(
            f"{self.namer.name(i.var)}: {'' if i.var.dtype == dtypes.INDEX else f'{i.var.dtype} '}{i.kind} in "
            f"{self._range(i.begin, i.extent, i.var)} = {b}"
            for i, b in zip(s.iters, bindings, strict=True)
        )
        where = "" if isinstance(s.predicate, Const) and s.predicate.value else f" where {self.expr(s.predicate)}"
        self.line(f"block {label(s.name)}({iters}){where}{_pragmas(s.pragmas)}:", s)
        with self.indented():
            if s.reads:
                self.line(f"reads {', '.join(self.region(r) for r in s.reads)}")
            if s.writes:
                self.line(f"writes {', '.join(self.region(r) for r in s.writes)}")
            if s.init is not None:
                self.line("init:")
                self.body(s.init)
            self.stmt(s.body, last=True)

    def func(self, f: Func) -> None:
        """A whole function."""
        dims = f"[{', '.join(self._declared(d) for d in f.dims)}]" if f.dims else ""
        params = ", ".join(self.buffer(p) for p in f.params)
        attrs = f" attrs({', '.join(f'{k}={v!r}' for k, v in f.attrs)})" if f.attrs else ""
        self.line(f"func {label(f.name)}{dims}({params}) outputs {f.outputs}{attrs}:", f)
        self.body(f.body)


def _pragmas(pragmas: tuple[tuple[str, Any], ...]) -> str:
    return "".join(f" pragma {k}={v!r}" for k, v in pragmas)


_STMTS: dict[type, Any] = {
    Seq: Printer._seq,
    Store: Printer._store,
    For: Printer._for,
    If: Printer._if,
    LetStmt: Printer._let,
    Allocate: Printer._allocate,
    Evaluate: Printer._evaluate,
    Block: Printer._block,
}


def print_func(f: Func) -> Printed:
    """A function as lines with spans."""
    printer = Printer()
    printer.func(f)
    return printer.out


def func_text(f: Func) -> str:
    """The text of a function."""
    return print_func(f).text


def stmt_text(s: Stmt) -> str:
    """The text of a statement by itself."""
    printer = Printer()
    printer.stmt(s, last=True)
    return printer.out.text


def expr_text(e: Expr) -> str:
    """The text of an expression by itself."""
    return Printer().expr(e)
