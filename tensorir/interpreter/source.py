"""Python source being written: lines, names, and the values of expressions already computed.

Memory is flat lists (plain mode) or `CheckedMemory` (checked mode); values are those of `tensorir.semantics`. A vector
expression is compiled once, in a loop over its lanes: a ramp is `base + stride * lane`, a broadcast its scalar. Scalar
parts are computed before that loop. Integer intervals say where no wrapping is needed. How each node is written stands
in `expressions` and `statements`, which fill the two tables of the class.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from tensorir import dtypes, semantics
from tensorir import expr as ir
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import UserError
from tensorir.expr import Expr, Load, Var
from tensorir.interpreter.memory import CheckedMemory, SanitizerError, to_array, to_list
from tensorir.intrinsics import SHUFFLES
from tensorir.stmt import Stmt, Store
from tensorir.visit import children, walk_expr

_MAX_DEPTH = 24  # nested parentheses in one line
MAX_NEST = 15  # Python allows 20 nested loops in a function

Place = tuple[str, tuple[tuple[str, str], ...]]
"""Where a line comes from: the block, and the Python and the program's name of each loop around."""


class NotSupportedError(UserError):
    """A program form that the interpreter cannot run."""


class Value(NamedTuple):
    """Python code of a value, the interval of an integer one, and how deeply its parentheses nest (0: a name)."""

    code: str
    lo: int = 0
    hi: int = 0
    depth: int = 0


def call_extern(function: str, buffers: Sequence[tuple[Any, tuple[int, ...], DType]]) -> None:
    """Calls "module:function" on the buffers as numpy arrays and takes back what it wrote."""
    module, _, name = function.partition(":")
    target = getattr(importlib.import_module(module), name)
    lists = [b.values if isinstance(b, CheckedMemory) else b for b, _, _ in buffers]
    arrays = [to_array(v, t).reshape(shape) for v, (_, shape, t) in zip(lists, buffers, strict=True)]
    target(*arrays)
    for array, values, (buffer, _, t) in zip(arrays, lists, buffers, strict=True):
        values[:] = to_list(array, t)
        if isinstance(buffer, CheckedMemory):
            buffer.written[:] = b"\1" * len(values)


def outside_domain(block: str, name: str, value: int) -> None:
    """Raises the error of a block variable that left its domain."""
    raise SanitizerError(f"block {block}: its variable {name} is {value}, outside its domain")


_GLOBALS: dict[str, Any] = {
    "INF": semantics.INF, "NINF": -semantics.INF, "NAN": semantics.NAN,
    "F": semantics.round_f32, "H": semantics.round_f16, "B": semantics.round_bf16,
    "divide": semantics.divide, "fma32": semantics.fma_f32, "fma64": semantics.fma_f64,
    "floor_div": semantics.floor_div, "floor_mod": semantics.floor_mod,
    "trunc_div": semantics.trunc_div, "trunc_mod": semantics.trunc_mod,
    "shift_left": semantics.shift_left, "shift_right": semantics.shift_right,
    "sqrt": semantics.sqrt, "floor": semantics.floor, "ceil": semantics.ceil, "trunc": semantics.trunc,
    "round_even": semantics.round_even, "float_to_int": semantics.float_to_int, "int_to_f32": semantics.int_to_f32,
    "floor_div_float": semantics.floor_div_float, "floor_mod_float": semantics.floor_mod_float,
    "trunc_div_float": semantics.trunc_div_float, "trunc_mod_float": semantics.trunc_mod_float,
    "copysign": math.copysign,
    "call_extern": call_extern, "outside_domain": outside_domain, "Memory": CheckedMemory,
}  # fmt: skip

_ROUND = {dtypes.float32: "F", dtypes.float16: "H", dtypes.bfloat16: "B"}


def literal(value: bool | int | float) -> str:
    if isinstance(value, float):
        if value != value:
            return "NAN"
        if value - value != 0.0:
            return "INF" if value > 0 else "NINF"
    text = repr(value)
    return f"({text})" if text.startswith("-") else text


def full_interval(t: DType) -> tuple[int, int]:
    return (t.min_value, t.max_value) if not t.is_float else (0, 0)


def _identifier(name: str) -> str:
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return cleaned or "x"


@dataclass(frozen=True)
class ThreadState:
    """The thread loops around: by tag the Python name and the extent of each axis, the variables that stand for them,
    conditions on them, and whether the present statement is already inside loops over the threads."""

    axes: tuple[tuple[str, Value, Value], ...] = ()
    variables: frozenset[int] = frozenset()
    guards: tuple[str, ...] = ()
    inside: bool = False


@dataclass
class Compiler:
    """Collects the lines of one Python function."""

    EXPRS: ClassVar[dict[type, Callable[[Compiler, Any], Value]]] = {}
    STMTS: ClassVar[dict[type, Callable[[Compiler, Any], None]]] = {}

    checked: bool
    lines: list[tuple[int, str, Place]] = field(default_factory=list)
    indent: int = 1
    nest: int = 0
    counter: int = 0
    memo: dict[Expr, Value] = field(default_factory=dict)
    trail: list[tuple[Expr, Value | None]] = field(default_factory=list)
    counts: dict[Expr, int] = field(default_factory=dict)
    names: dict[Var, Value] = field(default_factory=dict)
    vectors: dict[Var, str] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    private: dict[Buffer, tuple[tuple[str, Value, Value], ...]] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=lambda: dict(_GLOBALS))
    lane: str = ""
    sites: list[Callable[[], str]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    concurrent: tuple[tuple[Var | None, str], ...] = ()
    block: str = ""
    loops: tuple[tuple[str, str], ...] = ()
    init_only: frozenset[int] = frozenset()
    threads: ThreadState = field(default_factory=lambda: ThreadState())
    thread_form: bool = False
    block_memory: str = ""
    kernel_loops: int = 0
    barriers: int = 0

    # ------------------------------------------------------------------------------------------------ lines and names

    def line(self, text: str) -> None:
        """Adds a line of the present statement."""
        self.lines.append((self.indent, text, (self.block, self.loops)))

    def site(self, what: str, access: Load | Store) -> int:
        """The number of an access, by which checked memory can tell of it."""
        block = f" in block {self.block}" if self.block else ""
        self.sites.append(lambda: f"{what} of {_access_text(access)}{block}")
        self.widths.append(max((i.dtype.lanes for i in access.indices), default=1))
        return len(self.sites) - 1

    def fresh(self, stem: str) -> str:
        """A new Python name."""
        self.counter += 1
        return f"{_identifier(stem)}_{self.counter}"

    def constant(self, stem: str, value: Any) -> str:
        """A name for a Python object."""
        name = f"{stem}__g"
        self.globals.setdefault(name, value)
        return name

    def dtype(self, t: DType) -> str:
        """A name for an element type."""
        return self.constant(str(t.element), t.element)

    def temp(self, value: Value, stem: str = "t") -> Value:
        """The value under a name of its own, so that it is computed once."""
        if value.depth == 0:
            return value
        name = self.fresh(stem)
        self.line(f"{name} = {value.code}")
        return Value(name, value.lo, value.hi)

    @contextmanager
    def indented(self, opening: str) -> Iterator[None]:
        """An indented suite; never empty."""
        self.line(opening)
        self.indent += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten afterwards."""
        mark = len(self.trail)
        yield
        while len(self.trail) > mark:
            key, old = self.trail.pop()
            if old is None:
                del self.memo[key]
            else:
                self.memo[key] = old

    def remember(self, e: Expr, value: Value) -> None:
        """Binds a node to its value in the present scope."""
        self.trail.append((e, self.memo.get(e)))
        self.memo[e] = value

    @contextmanager
    def statement(self, *roots: Expr | None) -> Iterator[None]:
        """A statement's expressions: how often each node is used; values live as long as the statement."""
        outer = self.counts
        self.counts = {}
        for root in roots:
            if root is not None:
                self.count(root)
        with self.scope():
            yield
        self.counts = outer

    def count(self, root: Expr) -> None:
        """Adds the uses of every node under `root`."""
        counts = self.counts
        counts[root] = counts.get(root, 0) + 1
        for e in walk_expr(root):
            for child in children(e):
                counts[child] = counts.get(child, 0) + 1

    # ---------------------------------------------------------------------------------------------------- expressions

    def value(self, root: Expr) -> Value:
        """The value of an expression; in a lane loop, of the present lane."""
        stack = [root]
        while stack:
            e = stack[-1]
            if e in self.memo:
                stack.pop()
                continue
            pending = [c for c in _operands(e) if c not in self.memo]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            emit = self.EXPRS.get(type(e))
            if emit is None:
                raise NotSupportedError(f"the interpreter cannot evaluate a {type(e).__name__} here")
            result = emit(self, e)
            if result.depth and (self.counts.get(e, 0) > 1 or result.depth > _MAX_DEPTH):
                result = self.temp(result)
            self.remember(e, result)
        return self.memo[root]

    def atom(self, e: Expr) -> Value:
        """The value of a node already computed, under a name."""
        value = self.memo[e]
        if value.depth:
            value = self.temp(value)
            self.remember(e, value)
        return value

    def integer(self, t: DType, code: str, lo: int, hi: int, depth: int) -> Value:
        """An integer result computed without bounds, wrapped where the interval says that it may be needed."""
        if lo == hi and t.min_value <= lo <= t.max_value:
            return Value(literal(lo), lo, lo)
        if t.min_value <= lo and hi <= t.max_value:
            return Value(f"({code})", lo, hi, depth + 1)
        mask = (1 << t.bits) - 1
        if t.kind == "int":
            half = 1 << (t.bits - 1)
            return Value(f"((({code}) + {half} & {mask}) - {half})", *full_interval(t), depth + 3)
        return Value(f"(({code}) & {mask})", *full_interval(t), depth + 2)

    def rounded(self, t: DType, code: str, depth: int) -> Value:
        """A float result computed in double precision, rounded to its type."""
        name = _ROUND.get(t.element)
        return Value(f"{name}({code})" if name else f"({code})", 0, 0, depth + 1)

    def places(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[tuple[Value, Value]]:
        """Index and extent of each axis; a buffer of which each thread has its own has the threads' axes first."""
        private = [(index, extent) for _, index, extent in self.private.get(buffer, ())]
        return [*private, *[(self.memo[i], self.value(x)) for i, x in zip(indices, buffer.shape, strict=True)]]

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Code of the row-major position of an element."""
        code, constant = "", 0
        for axis, (index, extent) in enumerate(self.places(buffer, indices)):
            if axis:
                if code:
                    code = f"({code}) * {extent.code}"
                if extent.lo == extent.hi:
                    constant *= extent.lo
                elif constant:
                    code = f"{code} + {constant} * {extent.code}" if code else f"{constant} * {extent.code}"
                    constant = 0
            if index.lo == index.hi:
                constant += index.lo
            else:
                code = f"{code} + {index.code}" if code else index.code
        if not code:
            return str(constant)
        return f"{code} + {constant}" if constant else code

    def checked_flat(self, buffer: Buffer, indices: tuple[Expr, ...], what: str, condition: str = "") -> str:
        """The position of an element, after a comparison of the indices with the extents where that is not certain."""
        for index in indices:
            self.atom(index)
        places = self.places(buffer, indices)
        tests = [
            f"0 <= {index.code} < {extent.code}"
            for index, extent in places
            if not (index.lo >= 0 and index.hi < extent.lo)
        ]
        if tests:
            test = f"not ({' and '.join(tests)})"
            with self.indented(f"if {condition} and {test}:" if condition else f"if {test}:"):
                shown = "".join(f"{index.code}, " for index, _ in places)
                self.line(f"{self.buffers[buffer]}.outside({what!r}, ({shown}))")
        return self.flat(buffer, indices)

    # ------------------------------------------------------------------------------------------------------- vectors

    def hoist(self, *roots: Expr | None) -> None:
        """Computes the scalar parts of vector expressions before their lane loop. What a Let binds or an IfThenElse
        guards stays inside."""
        seen: set[int] = set()
        stack = [r for r in roots if r is not None]
        while stack:
            e = stack.pop()
            if id(e) in seen or isinstance(e, (Var, ir.Const)):
                continue
            seen.add(id(e))
            if e.dtype.lanes == 1:
                if not isinstance(e, ir.Let):
                    self.value(e)
                    self.atom(e)
            elif isinstance(e, ir.Let):
                stack.append(e.value)
            elif isinstance(e, ir.IfThenElse):
                stack.append(e.condition)
            else:
                stack.extend(children(e))

    @contextmanager
    def lanes(self, count: int) -> Iterator[None]:
        """A loop over the lanes of a vector."""
        lane = self.fresh("lane")
        outer = self.lane
        with self.scope(), self.indented(f"for {lane} in range({count}):"):
            self.lane = lane
            yield
        self.lane = outer

    def vector(self, e: Expr) -> str:
        """A Python list of the lanes of a vector expression."""
        name = self.fresh("v")
        self.hoist(e)
        self.line(f"{name} = []")
        with self.lanes(e.dtype.lanes):
            self.line(f"{name}.append({self.value(e).code})")
        return name

    # ---------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt) -> None:
        """Compiles a statement."""
        self.STMTS[type(s)](self, s)

    @contextmanager
    def function(self) -> Iterator[None]:
        """A nested Python function, where loops would nest too deeply for one."""
        outer = self.nest
        name, start = self.fresh("part"), len(self.lines)
        with self.indented(f"def {name}():"):
            self.nest = 0
            yield
        waits = any(text.startswith("yield") or " = yield " in text for _, text, _ in self.lines[start:])
        self.line(f"yield from {name}()" if waits else f"{name}()")
        self.nest = outer


def _access_text(access: Load | Store) -> str:
    from tensorir.printer import expr_text  # needed only in messages

    return expr_text(Load(access.buffer, access.indices, access.buffer.dtype))


def _operands(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, ir.IfThenElse):
        return (e.condition,)
    if isinstance(e, ir.Let):
        return (e.value,)
    if isinstance(e, ir.Call) and (e.name == "address" or e.name.startswith("extern:")):
        return ()
    if isinstance(e, ir.Call) and e.name in SHUFFLES and isinstance(e.args[0], Load):
        return (*e.args[0].indices, *e.args[1:])  # whether the value was ever written is asked by the lane that gets it
    return children(e)
