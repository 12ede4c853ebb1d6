"""From a Tensor IR program to Python source, and its compilation.

Memory is flat lists (plain mode) or `CheckedMemory` (checked mode); values are those of `tensorir.semantics`. A vector
expression is compiled once, in a loop over its lanes: a ramp is `base + stride * lane`, a broadcast its scalar. Scalar
parts are computed before that loop. Integer intervals say where no wrapping is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from tensorir import dtypes, semantics
from tensorir import expr as ir
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import InternalError, UserError
from tensorir.expr import Expr, Var
from tensorir.interpreter.memory import CheckedMemory, SanitizerError, poison, to_array, to_list
from tensorir.stmt import Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children, free_vars, walk_expr, walk_stmt

_MAX_DIM = 1 << 40
_MAX_DEPTH = 24  # nested parentheses in one line
_MAX_NEST = 15  # Python allows 20 nested loops in a function
_LITERAL_LANES = 4096


class NotSupportedError(UserError):
    """A program form that the interpreter cannot run."""


class Value(NamedTuple):
    """Python code of a value, the interval of an integer one, and how deeply its parentheses nest (0: a name)."""

    code: str
    lo: int = 0
    hi: int = 0
    depth: int = 0


@dataclass
class Program:
    """A compiled program: `function(*memories, *dims)` and in checked mode a monitor as the last argument."""

    source: str
    function: Callable[..., None]
    dims: tuple[Var, ...]
    written: frozenset[int]
    places: list[tuple[str, tuple[tuple[str, str], ...]]]
    filename: str

    def place(self, error: BaseException) -> tuple[str, ...]:
        """Where in the program an exception left it: block and loops with their values."""
        trace: TracebackType | None = error.__traceback__
        values: dict[str, Any] = {}
        line = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.filename:
                values.update(trace.tb_frame.f_locals)
                line = trace.tb_lineno
            trace = trace.tb_next
        if not 0 < line <= len(self.places):
            return ()
        block, loops = self.places[line - 1]
        shown = ", ".join(f"{name} = {values[code]}" for code, name in loops if code in values)
        where = f"in block {block}" if block else "in the program"
        return (f"{where}, at {shown}" if shown else where,)


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
    "copysign": __import__("math").copysign,
    "call_extern": call_extern, "outside_domain": outside_domain, "Memory": CheckedMemory,
}  # fmt: skip

_ROUND = {dtypes.float32: "F", dtypes.float16: "H", dtypes.bfloat16: "B"}


def _literal(value: bool | int | float) -> str:
    if isinstance(value, float):
        if value != value:
            return "NAN"
        if value - value != 0.0:
            return "INF" if value > 0 else "NINF"
    text = repr(value)
    return f"({text})" if text.startswith("-") else text


def _full(t: DType) -> tuple[int, int]:
    return (t.min_value, t.max_value) if not t.is_float else (0, 0)


def _identifier(name: str) -> str:
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return cleaned or "x"


@dataclass
class Compiler:
    """Collects the lines of one Python function."""

    checked: bool
    lines: list[tuple[int, str, tuple[str, tuple[tuple[str, str], ...]]]] = field(default_factory=list)
    indent: int = 1
    nest: int = 0
    counter: int = 0
    memo: dict[Expr, Value] = field(default_factory=dict)
    trail: list[tuple[Expr, Value | None]] = field(default_factory=list)
    counts: dict[Expr, int] = field(default_factory=dict)
    names: dict[Var, Value] = field(default_factory=dict)
    vectors: dict[Var, str] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=lambda: dict(_GLOBALS))
    lane: str = ""
    block: str = ""
    loops: tuple[tuple[str, str], ...] = ()
    init_only: frozenset[int] = frozenset()

    # ------------------------------------------------------------------------------------------------ lines and names

    def line(self, text: str) -> None:
        """Adds a line of the present statement."""
        self.lines.append((self.indent, text, (self.block, self.loops)))

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
            emit = _EMIT.get(type(e))
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
            return Value(_literal(lo), lo, lo)
        if t.min_value <= lo and hi <= t.max_value:
            return Value(f"({code})", lo, hi, depth + 1)
        mask = (1 << t.bits) - 1
        if t.kind == "int":
            half = 1 << (t.bits - 1)
            return Value(f"((({code}) + {half} & {mask}) - {half})", *_full(t), depth + 3)
        return Value(f"(({code}) & {mask})", *_full(t), depth + 2)

    def rounded(self, t: DType, code: str, depth: int) -> Value:
        """A float result computed in double precision, rounded to its type."""
        name = _ROUND.get(t.element)
        return Value(f"{name}({code})" if name else f"({code})", 0, 0, depth + 1)

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Code of the row-major position of an element."""
        if not indices:
            return "0"
        code, constant = "", 0
        for axis, index in enumerate(indices):
            value = self.memo[index]
            if axis:
                extent = self.value(buffer.shape[axis])
                if code:
                    code = f"({code}) * {extent.code}"
                if extent.lo == extent.hi:
                    constant *= extent.lo
                elif constant:
                    code = f"{code} + {constant} * {extent.code}" if code else f"{constant} * {extent.code}"
                    constant = 0
            if value.lo == value.hi:
                constant += value.lo
            else:
                code = f"{code} + {value.code}" if code else value.code
        if not code:
            return str(constant)
        return f"{code} + {constant}" if constant else code

    def index_codes(self, indices: tuple[Expr, ...]) -> str:
        """Codes of the indices, for the calls of checked memory."""
        return "".join(f", {self.memo[i].code}" for i in indices)

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
        _STMT[type(s)](self, s)

    @contextmanager
    def function(self) -> Iterator[None]:
        """A nested Python function, where loops would nest too deeply for one."""
        outer = self.nest
        name = self.fresh("part")
        with self.indented(f"def {name}():"):
            self.nest = 0
            yield
        self.line(f"{name}()")
        self.nest = outer


def _operands(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, ir.IfThenElse):
        return (e.condition,)
    if isinstance(e, ir.Let):
        return (e.value,)
    if isinstance(e, ir.Call) and (e.name == "address" or e.name.startswith("extern:")):
        return ()
    return children(e)


# ------------------------------------------------------------------------------------------------- expression classes


def _emit_var(c: Compiler, e: Var) -> Value:
    if e in c.vectors:
        return Value(f"{c.vectors[e]}[{c.lane}]", *_full(e.dtype), 1)
    if e not in c.names:
        raise InternalError(f"the variable {e.name} is used outside the statement that binds it")
    return c.names[e]


def _emit_const(c: Compiler, e: ir.Const) -> Value:
    bound = int(e.value) if not e.dtype.is_float else 0
    return Value(_literal(e.value), bound, bound)


def _interval(e: ir.Binary, x: Value, y: Value) -> tuple[int, int]:
    if isinstance(e, ir.Add):
        return x.lo + y.lo, x.hi + y.hi
    if isinstance(e, ir.Sub):
        return x.lo - y.hi, x.hi - y.lo
    products = (x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi)
    return min(products), max(products)


def _emit_arithmetic(c: Compiler, e: ir.Binary) -> Value:
    x, y, t = c.memo[e.a], c.memo[e.b], e.dtype
    code = f"{x.code} {_SYMBOL[type(e)]} {y.code}"
    depth = max(x.depth, y.depth)
    return c.rounded(t, code, depth) if t.is_float else c.integer(t, code, *_interval(e, x, y), depth)


def _emit_div(c: Compiler, e: ir.Div) -> Value:
    x, y = c.memo[e.a], c.memo[e.b]
    return c.rounded(e.dtype, f"divide({x.code}, {y.code})", max(x.depth, y.depth) + 1)


def _emit_whole_division(c: Compiler, e: ir.Binary) -> Value:
    x, y, t = c.memo[e.a], c.memo[e.b], e.dtype
    name, symbol, quotient, floors = _DIVISIONS[type(e)]
    depth = max(x.depth, y.depth) + 1
    if t.is_float:
        return Value(f"{name}_float({x.code}, {y.code}, {c.dtype(t)})", 0, 0, depth)
    simple = y.lo > 0 and (floors or x.lo >= 0)
    code = f"{x.code} {symbol} {y.code}" if simple else f"{name}({x.code}, {y.code})"
    if not simple:
        lo, hi = _full(t)
        return c.integer(t, code, lo, hi + 1 if quotient else hi, depth)
    if not quotient:
        return c.integer(t, code, 0, min(y.hi - 1, x.hi) if x.lo >= 0 else y.hi - 1, depth)
    ends = [p // q for p in (x.lo, x.hi) for q in (y.lo, y.hi)]
    return c.integer(t, code, min(ends), max(ends), depth)


def _emit_extreme(c: Compiler, e: ir.Binary) -> Value:
    x, y = c.atom(e.a), c.atom(e.b)
    symbol = "<" if isinstance(e, ir.Min) else ">"
    if e.dtype.is_float:
        return Value(f"({x.code} if {x.code} != {x.code} or {x.code} {symbol} {y.code} else {y.code})", 0, 0, 1)
    pick = min if isinstance(e, ir.Min) else max
    return Value(
        f"({x.code} if {x.code} {symbol} {y.code} else {y.code})", pick(x.lo, y.lo), pick(x.hi, y.hi), 1
    )


def _emit_bits(c: Compiler, e: ir.Binary) -> Value:
    x, y, t = c.memo[e.a], c.memo[e.b], e.dtype
    lo, hi = _full(t)
    if isinstance(e, ir.BitAnd) and min(x.lo, y.lo) >= 0:
        lo, hi = 0, min(x.hi, y.hi)
    return Value(f"({x.code} {_SYMBOL[type(e)]} {y.code})", lo, hi, max(x.depth, y.depth) + 1)


def _emit_shift(c: Compiler, e: ir.Binary) -> Value:
    x, y, t = c.memo[e.a], c.memo[e.b], e.dtype
    depth = max(x.depth, y.depth) + 1
    safe = 0 <= y.lo and y.hi < t.bits
    left = isinstance(e, ir.ShiftLeft)
    if safe and y.lo == y.hi:
        ends = (x.lo << y.lo, x.hi << y.lo) if left else (x.lo >> y.lo, x.hi >> y.lo)
    else:
        ends = (t.min_value << t.bits, t.max_value << t.bits) if left else _full(t)
    code = f"{x.code} {'<<' if left else '>>'} {y.code}"
    if not safe:
        code = f"shift_{'left' if left else 'right'}({x.code}, {y.code}, {t.bits})"
    return c.integer(t, code, *ends, depth)


def _emit_compare(c: Compiler, e: ir.Binary) -> Value:
    x, y = c.memo[e.a], c.memo[e.b]
    return Value(f"({x.code} {_SYMBOL[type(e)]} {y.code})", 0, 1, max(x.depth, y.depth) + 1)


def _emit_logic(c: Compiler, e: ir.Binary) -> Value:
    x, y = (c.atom(e.a), c.atom(e.b)) if c.checked else (c.memo[e.a], c.memo[e.b])
    return Value(f"({x.code} {_SYMBOL[type(e)]} {y.code})", 0, 1, max(x.depth, y.depth) + 1)


def _emit_not(c: Compiler, e: ir.Not) -> Value:
    x = c.memo[e.a]
    return Value(f"(not {x.code})", 0, 1, x.depth + 1)


def _emit_fma(c: Compiler, e: ir.Fma) -> Value:
    x, y, z = c.memo[e.a], c.memo[e.b], c.memo[e.c]
    depth = max(x.depth, y.depth, z.depth) + 1
    code = f"{'fma64' if e.dtype.bits == 64 else 'fma32'}({x.code}, {y.code}, {z.code})"
    return c.rounded(e.dtype, code, depth) if e.dtype.bits == 16 else Value(code, 0, 0, depth)


def _emit_select(c: Compiler, e: ir.Select) -> Value:
    x, y = (c.atom(e.a), c.atom(e.b)) if c.checked else (c.memo[e.a], c.memo[e.b])
    k = c.memo[e.condition]
    return Value(
        f"({x.code} if {k.code} else {y.code})", min(x.lo, y.lo), max(x.hi, y.hi), max(x.depth, y.depth, k.depth) + 1
    )


def _emit_if_then_else(c: Compiler, e: ir.IfThenElse) -> Value:
    condition = c.memo[e.condition]
    name = c.fresh("t")
    results = []
    for opening, side in ((f"if {condition.code}:", e.a), ("else:", e.b)):
        with c.indented(opening), c.scope():
            results.append(c.value(side))
            c.line(f"{name} = {results[-1].code}")
    return Value(name, min(r.lo for r in results), max(r.hi for r in results))


def _emit_cast(c: Compiler, e: ir.Cast) -> Value:
    x, s, t = c.memo[e.value], e.value.dtype, e.dtype
    code, depth = x.code, x.depth + 1
    if t.is_bool:
        return x if s.is_bool else Value(f"({code} != 0)", 0, 1, depth)
    if t.is_integer:
        if s.is_float:
            return Value(f"float_to_int({code}, {c.dtype(t)})", *_full(t), depth)
        return c.integer(t, f"int({code})" if s.is_bool else code, x.lo, x.hi, depth)
    if s.is_bool:
        return Value(f"(1.0 if {code} else 0.0)", 0, 0, depth)
    if s.is_integer:
        if t.bits == 64 or (-(1 << 24) <= x.lo and x.hi <= 1 << 24 and t.bits == 32):
            return Value(f"float({code})", 0, 0, depth)
        single = Value(f"int_to_f32({code})", 0, 0, depth)
        return single if t.bits == 32 else c.rounded(t, single.code, depth)
    if s.bits > 32 and t.bits < 64:
        single = Value(f"F({code})", 0, 0, depth)
        return single if t.bits == 32 else c.rounded(t, single.code, depth)
    return x if t.bits > s.bits else c.rounded(t, code, depth)


def _emit_let(c: Compiler, e: ir.Let) -> Value:
    bound = c.atom(e.value)
    with c.scope():
        c.remember(e.var, bound)
        return c.value(e.body)


def _emit_load(c: Compiler, e: ir.Load) -> Value:
    name, lohi = c.buffers.get(e.buffer), _full(e.buffer.dtype)
    if name is None:
        raise InternalError(f"the buffer {e.buffer.name} is read outside its allocation")
    if c.checked:
        if e.predicate is not None:
            return Value(f"{name}.load_if({c.memo[e.predicate].code}{c.index_codes(e.indices)})", *lohi, 2)
        return Value(f"{name}.load({c.index_codes(e.indices)[2:]})", *lohi, 2)
    code = f"{name}[{c.flat(e.buffer, e.indices)}]"
    if e.predicate is None:
        return Value(code, *lohi, 2)
    zero = "0.0" if e.dtype.is_float else "False" if e.dtype.is_bool else "0"
    return Value(f"({code} if {c.memo[e.predicate].code} else {zero})", *lohi, 3)


def _emit_ramp(c: Compiler, e: ir.Ramp) -> Value:
    base, stride, last = c.memo[e.base], c.memo[e.stride], e.lanes - 1
    ends = (0, stride.lo * last, stride.hi * last)
    code = f"{base.code} + {c.lane}" if stride.lo == stride.hi == 1 else f"{base.code} + {stride.code} * {c.lane}"
    return c.integer(e.dtype, code, base.lo + min(ends), base.hi + max(ends), max(base.depth, stride.depth) + 1)


def _emit_broadcast(c: Compiler, e: ir.Broadcast) -> Value:
    return c.memo[e.value]


_CALLS: dict[str, tuple[str, bool]] = {  # name in the source, and whether the result needs rounding
    "sqrt": ("sqrt", True), "floor": ("floor", False), "ceil": ("ceil", False), "trunc": ("trunc", False),
    "round": ("round_even", False), "copysign": ("copysign", False),
}  # fmt: skip


def _emit_call(c: Compiler, e: ir.Call) -> Value:
    if e.name == "isnan":
        x = c.atom(e.args[0]).code
        return Value(f"({x} != {x})", 0, 1, 1)
    if e.name == "isinf":
        x = c.atom(e.args[0]).code
        return Value(f"({x} == INF or {x} == NINF)", 0, 1, 1)
    if e.name in ("address", "prefetch", "barrier"):
        return Value("0")
    if e.name.startswith("extern:"):
        raise NotSupportedError(f"the extern {e.name[7:]} is called for a value", help="call it as a statement")
    if e.name not in semantics.PRIMITIVES:
        from tensorir.math_functions import expand  # large, and needed only here

        expanded = expand(e)
        c.count(expanded)
        return c.value(expanded)
    args = [c.memo[a] for a in e.args]
    depth = max(a.depth for a in args) + 1
    codes = ", ".join(a.code for a in args)
    t = e.args[0].dtype
    if e.name == "reinterpret":
        s, r = t.element, e.dtype.element
        return Value(f"{c.constant(f'{s}_as_{r}', semantics.reinterpreter(s, r))}({codes})", *_full(r), depth)
    if e.name == "abs":
        if t.is_float:
            return Value(f"abs({codes})", 0, 0, depth)
        return c.integer(t, f"abs({codes})", 0, max(abs(args[0].lo), abs(args[0].hi)), depth)
    name, rounds = _CALLS[e.name]
    code = f"{name}({codes})"
    return c.rounded(t, code, depth) if rounds else Value(code, 0, 0, depth)


_SYMBOL: dict[type, str] = {
    ir.Add: "+", ir.Sub: "-", ir.Mul: "*", ir.BitAnd: "&", ir.BitOr: "|", ir.BitXor: "^",
    ir.EQ: "==", ir.NE: "!=", ir.LT: "<", ir.LE: "<=", ir.And: "and", ir.Or: "or",
}  # fmt: skip

_DIVISIONS: dict[type, tuple[str, str, bool, bool]] = {  # function, operator, is a quotient, rounds down
    ir.FloorDiv: ("floor_div", "//", True, True),
    ir.FloorMod: ("floor_mod", "%", False, True),
    ir.TruncDiv: ("trunc_div", "//", True, False),
    ir.TruncMod: ("trunc_mod", "%", False, False),
}

_EMIT: dict[type, Callable[[Compiler, Any], Value]] = {
    Var: _emit_var, ir.Const: _emit_const,
    ir.Add: _emit_arithmetic, ir.Sub: _emit_arithmetic, ir.Mul: _emit_arithmetic, ir.Div: _emit_div,
    ir.FloorDiv: _emit_whole_division, ir.FloorMod: _emit_whole_division,
    ir.TruncDiv: _emit_whole_division, ir.TruncMod: _emit_whole_division,
    ir.Min: _emit_extreme, ir.Max: _emit_extreme,
    ir.BitAnd: _emit_bits, ir.BitOr: _emit_bits, ir.BitXor: _emit_bits,
    ir.ShiftLeft: _emit_shift, ir.ShiftRight: _emit_shift,
    ir.EQ: _emit_compare, ir.NE: _emit_compare, ir.LT: _emit_compare, ir.LE: _emit_compare,
    ir.And: _emit_logic, ir.Or: _emit_logic, ir.Not: _emit_not,
    ir.Fma: _emit_fma, ir.Select: _emit_select, ir.IfThenElse: _emit_if_then_else, ir.Cast: _emit_cast,
    ir.Let: _emit_let, ir.Load: _emit_load, ir.Ramp: _emit_ramp, ir.Broadcast: _emit_broadcast, ir.Call: _emit_call,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------- statement classes


def _stmt_seq(c: Compiler, s: Seq) -> None:
    for inner in s.stmts:
        c.stmt(inner)


def _stmt_store(c: Compiler, s: Store) -> None:
    name = c.buffers.get(s.buffer)
    if name is None:
        raise InternalError(f"the buffer {s.buffer.name} is written outside its allocation")
    roots = (*s.indices, s.value, s.predicate)
    lanes = max(r.dtype.lanes for r in roots if r is not None)
    with c.statement(*roots):
        if lanes > 1:
            _store_vector(c, s, name, lanes)
            return
        if s.predicate is not None:
            with c.indented(f"if {c.value(s.predicate).code}:"), c.scope():
                _store_scalar(c, s, name)
        else:
            _store_scalar(c, s, name)


def _store_scalar(c: Compiler, s: Store, name: str) -> None:
    for index in s.indices:
        c.value(index)
    value = c.value(s.value)
    if c.checked:
        c.line(f"{name}.store({value.code}{c.index_codes(s.indices)})")
    else:
        c.line(f"{name}[{c.flat(s.buffer, s.indices)}] = {value.code}")


def _store_vector(c: Compiler, s: Store, name: str, lanes: int) -> None:
    values, places = c.fresh("values"), c.fresh("places")
    c.hoist(*s.indices, s.value, s.predicate)
    contiguous = not c.checked and s.predicate is None and len(s.indices) == 1 and _is_contiguous(s.indices[0])
    if contiguous:
        base = s.indices[0].base  # type: ignore[attr-defined]
        start = c.temp(c.value(base))
        c.line(f"{values} = []")
        with c.lanes(lanes):
            c.line(f"{values}.append({c.value(s.value).code})")
        c.line(f"{name}[{start.code}:{start.code} + {lanes}] = {values}")
        return
    c.line(f"{values} = []")
    c.line(f"{places} = []")
    with c.lanes(lanes):
        if s.predicate is None:
            _append_lane(c, s, values, places, None)
        elif c.checked:
            _append_lane(c, s, values, places, c.value(s.predicate).code)
        else:
            with c.indented(f"if {c.value(s.predicate).code}:"), c.scope():
                _append_lane(c, s, values, places, None)
    if c.checked:
        c.line(f"{name}.store_lanes({values}, {places})")
        return
    place = c.fresh("p")
    with c.indented(f"for {place}, {place}_value in zip({places}, {values}):"):
        c.line(f"{name}[{place}] = {place}_value")


def _append_lane(c: Compiler, s: Store, values: str, places: str, condition: str | None) -> None:
    for index in s.indices:
        c.value(index)
    place = f"({c.index_codes(s.indices)[2:]},)" if c.checked else c.flat(s.buffer, s.indices)
    if condition is not None:
        place = f"{place} if {condition} else None"
    c.line(f"{places}.append({place})")
    c.line(f"{values}.append({c.value(s.value).code})")


def _is_contiguous(index: Expr) -> bool:
    return isinstance(index, ir.Ramp) and isinstance(index.stride, ir.Const) and index.stride.value == 1


def _stmt_let(c: Compiler, s: LetStmt) -> None:
    with c.statement(s.value):
        if s.value.dtype.lanes > 1:
            c.vectors[s.var] = c.vector(s.value)
        else:
            value = c.value(s.value)
            name = c.fresh(s.var.name)
            c.line(f"{name} = {value.code}")
            c.names[s.var] = Value(name, value.lo, value.hi)
    c.stmt(s.body)


def _stmt_if(c: Compiler, s: If) -> None:
    with c.statement(s.condition):
        condition = c.value(s.condition).code
    with c.indented(f"if {condition}:"):
        c.stmt(s.then)
    if s.otherwise is not None:
        with c.indented("else:"):
            c.stmt(s.otherwise)


def _stmt_allocate(c: Compiler, s: Allocate) -> None:
    with c.statement(*s.buffer.shape):
        extents = [c.temp(c.value(e)) for e in s.buffer.shape]
    name = c.fresh(s.buffer.name)
    t = s.buffer.dtype
    size = " * ".join(e.code for e in extents) or "1"
    memory = f"[{_literal(poison(t))}] * ({size})"
    if c.checked:
        shape = "(" + "".join(f"{e.code}, " for e in extents) + ")"
        zero = "0.0" if t.is_float else "False" if t.is_bool else "0"
        memory = f"Memory({s.buffer.name!r}, {shape}, {memory}, monitor, False, True, {zero})"
    c.line(f"{name} = {memory}")
    c.buffers[s.buffer] = name
    c.stmt(s.body)


def _stmt_evaluate(c: Compiler, s: Evaluate) -> None:
    call = s.value
    if not isinstance(call, ir.Call):
        return
    if call.name.startswith("extern:"):
        parts = []
        for argument in call.args:
            if isinstance(argument, ir.Call) and argument.name == "address":
                load = argument.args[0]
                assert isinstance(load, ir.Load)
                with c.statement(*load.buffer.shape):
                    shape = "(" + "".join(f"{c.value(e).code}, " for e in load.buffer.shape) + ")"
                parts.append(f"({c.buffers[load.buffer]}, {shape}, {c.dtype(load.buffer.dtype)})")
        c.line(f"call_extern({call.name[7:]!r}, [{', '.join(parts)}])")


def _stmt_for(c: Compiler, s: For) -> None:
    if s.kind == "thread" and not (s.thread or "").startswith("blockIdx"):
        raise NotSupportedError(
            f"the interpreter cannot run the loop {s.var.name} bound to {s.thread}",
            help="run the program before the loop is bound",
        )
    with c.statement(s.begin, s.extent):
        begin, extent = c.temp(c.value(s.begin)), c.temp(c.value(s.extent))
    if extent.lo <= 0 and _reduces_over(s.body, s.var):
        with c.indented(f"if {extent.code} <= 0:"):
            _only_init(c, s, begin)
        with c.indented("else:"):
            _loop(c, s, begin, extent)
    else:
        _loop(c, s, begin, extent)


def _loop(c: Compiler, s: For, begin: Value, extent: Value) -> None:
    if c.nest >= _MAX_NEST:
        with c.function():
            _loop(c, s, begin, extent)
        return
    name = c.fresh(s.var.name)
    limits = extent.code if begin.lo == begin.hi == 0 else f"{begin.code}, {begin.code} + {extent.code}"
    concurrent = c.checked and s.kind in ("parallel", "vectorized", "thread")
    outer = c.loops
    if concurrent:
        context, execution = c.fresh("context"), c.fresh("execution")
        c.line(f"{context} = monitor.context")
        c.line(f"{execution} = monitor.enter()")
    c.nest += 1
    with c.indented(f"for {name} in range({limits}):"):
        c.loops = (*outer, (name, s.var.name))
        c.names[s.var] = Value(name, begin.lo, max(begin.lo, begin.hi + extent.hi - 1))
        if concurrent:
            c.line(f"monitor.context = (*{context}, ({execution}, {name}))")
        c.stmt(s.body)
    c.nest -= 1
    c.loops = outer
    if concurrent:
        c.line(f"monitor.context = {context}")


def _reduces_over(s: Stmt, variable: Var) -> bool:
    """Whether `variable` steers only reduce variables of blocks with an init inside `s`, at least one."""
    found = False
    for inner in walk_stmt(s):
        if isinstance(inner, Block):
            for iteration, binding in zip(inner.iters, inner.bindings, strict=True):
                if any(e is variable for e in walk_expr(binding)):
                    if iteration.kind != "reduce" or inner.init is None:
                        return False
                    found = True
    return found


def _only_init(c: Compiler, s: For, begin: Value) -> None:
    """An empty reduction loop: its blocks run their inits alone, once for each iteration of the other loops."""
    outer = c.init_only
    c.init_only = outer | {id(s.var)}
    c.names[s.var] = begin
    _init_stmt(c, s.body)
    c.init_only = outer


def _init_stmt(c: Compiler, s: Stmt) -> None:
    if isinstance(s, For) and _reduces_over(s.body, s.var):
        with c.statement(s.begin):
            _only_init(c, s, c.temp(c.value(s.begin)))
        return
    if isinstance(s, Seq):
        for inner in s.stmts:
            _init_stmt(c, inner)
        return
    c.stmt(s)


def _conjuncts(e: Expr) -> list[Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, ir.And) else [e]


def _stmt_block(c: Compiler, s: Block) -> None:
    outer = c.block
    c.block = s.name
    if c.init_only:
        _block_init_only(c, s)
    else:
        with c.statement(*s.bindings, s.predicate):
            for iteration, binding in zip(s.iters, s.bindings, strict=True):
                c.value(binding)
                c.names[iteration.var] = c.atom(binding)
            always = isinstance(s.predicate, ir.Const) and s.predicate.value is True
            predicate = "" if always else c.value(s.predicate).code
        if predicate:
            with c.indented(f"if {predicate}:"):
                _block_body(c, s)
        else:
            _block_body(c, s)
    c.block = outer


def _block_init_only(c: Compiler, s: Block) -> None:
    if s.init is None:
        return
    skipped = c.init_only
    kept = [p for p in _conjuncts(s.predicate) if not any(id(e) in skipped for e in walk_expr(p))]
    with c.statement(*s.bindings, *kept):
        for iteration, binding in zip(s.iters, s.bindings, strict=True):
            c.value(binding)
            c.names[iteration.var] = c.atom(binding)
        condition = " and ".join(c.value(p).code for p in kept)
    c.init_only = frozenset()
    with c.indented(f"if {condition}:"):
        c.stmt(s.init)
    c.init_only = skipped


def _block_body(c: Compiler, s: Block) -> None:
    first: list[str] = []
    for iteration in s.iters:
        value = c.names[iteration.var]
        reduces = iteration.kind == "reduce" and s.init is not None
        if not (c.checked or reduces):
            continue
        with c.statement(iteration.begin, iteration.extent):
            begin = c.value(iteration.begin)
            if reduces:
                first.append(f"{value.code} == {begin.code}")
            if c.checked:
                end = f"{begin.code} + {c.value(iteration.extent).code}"
                with c.indented(f"if not {begin.code} <= {value.code} < {end}:"):
                    c.line(f"outside_domain({s.name!r}, {iteration.var.name!r}, {value.code})")
    if s.init is not None:
        if first:
            with c.indented(f"if {' and '.join(first)}:"):
                c.stmt(s.init)
        else:
            c.stmt(s.init)
    c.stmt(s.body)


_STMT: dict[type, Callable[[Compiler, Any], None]] = {
    Seq: _stmt_seq, Store: _stmt_store, LetStmt: _stmt_let, If: _stmt_if, Allocate: _stmt_allocate,
    Evaluate: _stmt_evaluate, For: _stmt_for, Block: _stmt_block,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- entry


def _finish(c: Compiler, head: str, filename: str) -> tuple[str, Any]:
    source = head + "\n" + "\n".join("  " * indent + text for indent, text, _ in c.lines) + "\n"
    exec(compile(source, filename, "exec"), c.globals)
    return source, c.globals["run"]


@lru_cache(maxsize=128)
def compile_program(func: Func, checked: bool) -> Program:
    """`func` as a Python function over memories and dimensions."""
    c = Compiler(checked)
    names = []
    for buffer in func.params:
        c.buffers[buffer] = c.fresh(buffer.name)
        names.append(c.buffers[buffer])
    dims: dict[int, Var] = {id(d): d for d in func.dims}
    for buffer in func.params:
        for extent in buffer.shape:
            dims.update((id(v), v) for v in free_vars(extent))
    for d in dims.values():
        c.names[d] = Value(c.fresh(d.name), 0, min(_MAX_DIM, d.dtype.max_value))
        names.append(c.names[d].code)
    if checked:
        names.append("monitor")
    c.stmt(func.body)
    if not c.lines:
        c.line("pass")
    filename = f"<tensorir {func.name} {id(func):x}>"
    source, function = _finish(c, f"def run({', '.join(names)}):", filename)
    places = [("", ()), *[place for _, _, place in c.lines]]
    stored = {id(s.buffer) for s in walk_stmt(func.body) if isinstance(s, Store)}
    first_output = len(func.params) - func.outputs
    written = frozenset(i for i, p in enumerate(func.params) if id(p) in stored or i >= first_output)
    return Program(source, function, tuple(dims.values()), written, places, filename)


@lru_cache(maxsize=1024)
def compile_expr(e: Expr) -> tuple[Callable[..., Any], tuple[Var, ...]]:
    """A function of the free variables of `e` (in first-met order), and those variables."""
    c = Compiler(False)
    variables = free_vars(e)
    names = []
    for v in variables:
        name = c.fresh(v.name)
        names.append(name)
        if v.dtype.lanes > 1:
            c.vectors[v] = name
        else:
            c.names[v] = Value(name, *_full(v.dtype))
    with c.statement(e):
        if e.dtype.lanes > 1:
            c.line(f"return {c.vector(e)}")
        else:
            c.line(f"return {c.value(e).code}")
    return _finish(c, f"def run({', '.join(names)}):", "<tensorir expression>")[1], variables
