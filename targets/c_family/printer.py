"""Kernels as C: one printer for all dialects, pure from program to text.

What a node means is Tensor IR's: integers wrap (so arithmetic on them is done unsigned), min and max keep NaN, every
conversion is defined. Indices, whose values are known to fit, are printed plainly. float16 and bfloat16 are held as
16-bit integers and converted by functions. A node used more than once becomes a variable; `IfThenElse` an `if`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from targets.c_family.dialect import RESERVED, Dialect
from targets.c_family.matrix import REGISTERS
from targets.c_family.prelude import prelude
from targets.c_family.program import DeviceKernel, DeviceProgram
from tensorir import dtypes, semantics
from tensorir import expr as ir
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import InternalError, UserError
from tensorir.expr import Const, Expr, Load, Ramp, Var
from tensorir.interpreter.kernels import is_asynchronous
from tensorir.intrinsics import SHUFFLES
from tensorir.matrix import SIZE, Tile, is_matrix, tiles
from tensorir.passes.accesses import bind_loops
from tensorir.passes.check_fragments import fragment_roles
from tensorir.passes.linear import IndexScope
from tensorir.passes.thread_axes import is_barrier
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children, rewrite_expr, stmt_exprs, walk_expr, walk_stmt

_DEEP = 10  # operations written in one line


def emit(program: DeviceProgram | Sequence[DeviceProgram], dialect: Dialect) -> str:
    """The source text of all kernels of a program, or of several programs of different names."""
    used: set[str] = set()
    vectors: set[tuple[str, int]] = set()
    kernels = []
    for each in (program,) if isinstance(program, DeviceProgram) else program:
        for kernel in each.kernels:
            kernels.append(_Writer(dialect, each.func, kernel, used, vectors).kernel_text())
    return prelude(used, dialect, vectors) + "\n" + "\n".join(kernels)


def type_name(t: DType) -> str:
    """The printed element type: 16-bit floats are their bits, bools bytes."""
    if t.is_float:
        return "u16" if t.bits == 16 else f"f{t.bits}"
    if t.is_bool:
        return "u8"
    return f"{'i' if t.kind == 'int' else 'u'}{t.bits}"


def _value_type(t: DType) -> str:
    return "bool" if t.is_bool else type_name(t)


def _is_half(t: DType) -> bool:
    return t.is_float and t.bits == 16


class _Writer:
    """Writes one kernel."""

    EXPRS: ClassVar[dict[type, Callable[[_Writer, Any], str]]] = {}

    def __init__(
        self, dialect: Dialect, func: Func, kernel: DeviceKernel, used: set[str], vectors: set[tuple[str, int]]
    ) -> None:
        self.dialect = dialect
        self.kernel = kernel
        self.used = used
        self.vectors = vectors
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[Any, str] = {}
        self.taken: set[str] = {kernel.name, *RESERVED}
        self.memo: dict[Expr, tuple[str, int]] = {}
        self.trail: list[tuple[Expr, tuple[str, int] | None]] = []
        self.counts: dict[Expr, int] = {}
        self.plain: set[Expr] = set()
        self.scope = IndexScope(func.dims)
        bind_loops(func.body, self.scope)
        self.shared: list[str] = []
        self.head: list[str] = []
        self.segments: dict[int, str] = {}
        self.narrow: set[Var] = set()
        self.roles = fragment_roles(kernel.body)
        self.tiled = {tile.buffer for s in walk_stmt(kernel.body) if is_matrix(s) for tile in tiles(s)}
        written = kernel.written
        read = {n.buffer for s in walk_stmt(kernel.body) for e in stmt_exprs(s) for n in walk_expr(e)
                if isinstance(n, Load)}  # fmt: skip
        self.orders_global = bool(written & read)

    # -------------------------------------------------------------------------------------------------- the kernel

    def kernel_text(self) -> str:
        d, kernel = self.dialect, self.kernel
        params = []
        for b in kernel.buffers:
            qualifier = "" if b in kernel.written else "const "
            params.append(f"{d.pointer['global']}{qualifier}{type_name(b.dtype)} *{self.name(b, b.name)}")
        params += [f"const {type_name(v.dtype)} {self.name(v, v.name)}" for v in kernel.scalars]
        x, y, z = kernel.block
        head = d.kernel.format(name=kernel.name, params=", ".join(params), x=x, y=y, z=z, threads=x * y * z)
        for axis in kernel.axes:
            tag = axis.thread or ""
            letter = tag[-1]
            phrase = d.index if tag.startswith("threadIdx") else d.group
            text = phrase.format(axis=letter, number="xyz".index(letter))
            t = self.loop_type(axis)
            self.line(f"const {t} {self.name(axis.var, axis.var.name)} = ({t}){text};")
        self.stmt(kernel.body)
        shared = [f"  {s}" for s in self.shared]
        return "\n".join([f"{head} {{", *shared, *self.head, *self.lines, "}", ""])

    def loop_type(self, loop: For) -> str:
        """The type of a loop variable: 32 bits where its values and its end fit."""
        low, high = self.scope.bounds(loop.var)
        if loop.var.dtype != dtypes.INDEX or low is None or high is None or low < -(1 << 31) or high >= (1 << 31) - 1:
            return type_name(loop.var.dtype)
        self.narrow.add(loop.var)
        return "i32"

    # ----------------------------------------------------------------------------------------------------- lines

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self, key: Any, stem: str) -> str:
        """A new name in C for a variable or buffer."""
        cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in stem) or "x"
        if cleaned[0].isdigit():
            cleaned = f"v{cleaned}"
        chosen, number = cleaned, 0
        while chosen in self.taken:
            number += 1
            chosen = f"{cleaned}_{number}"
        self.taken.add(chosen)
        if key is not None:
            self.names[key] = chosen
        return chosen

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(f"{opening} {{")
        self.indent += 1
        with self.forgetting():
            yield
        self.indent -= 1
        self.line("}")

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        mark = len(self.trail)
        yield
        while len(self.trail) > mark:
            key, old = self.trail.pop()
            if old is None:
                del self.memo[key]
            else:
                self.memo[key] = old

    def remember(self, e: Expr, text: str, depth: int) -> None:
        self.trail.append((e, self.memo.get(e)))
        self.memo[e] = (text, depth)

    @contextmanager
    def statement(self, *roots: Expr, indices: tuple[Expr, ...] = (), plain: tuple[Expr, ...] = ()) -> Iterator[None]:
        """Counts the uses of the nodes of one statement, and marks those that are indices."""
        outer_counts, outer_plain = self.counts, self.plain
        self.counts, self.plain = {}, set()
        for root in (*roots, *indices):
            self.counts[root] = self.counts.get(root, 0) + 1
            for n in walk_expr(root):
                for child in children(n):
                    self.counts[child] = self.counts.get(child, 0) + 1
                if isinstance(n, Load):
                    for i in n.indices:
                        self._mark_plain(i)
        for i in (*indices, *plain):
            self._mark_plain(i)
        with self.forgetting():
            yield
        self.counts, self.plain = outer_counts, outer_plain

    def _mark_plain(self, index: Expr) -> None:
        if not any(isinstance(n, (Load, ir.Call)) for n in walk_expr(index)):
            self.plain.update(walk_expr(index))

    # ------------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, Seq):
            for x in s.stmts:
                self.stmt(x)
        elif isinstance(s, For):
            self._loop(s)
        elif isinstance(s, If):
            with self.statement(s.condition, plain=_index_sides(s.condition)):
                condition = self.text(s.condition)
            with self.block(f"if ({bare(condition)})"):
                self.stmt(s.then)
            if s.otherwise is not None:
                with self.block("else"):
                    self.stmt(s.otherwise)
        elif isinstance(s, LetStmt):
            with self.statement(s.value):
                text = self.text(s.value)
                self.line(f"const {_value_type(s.value.dtype)} {self.name(s.var, s.var.name)} = {text};")
            self.stmt(s.body)
        elif isinstance(s, Allocate):
            self._allocate(s.buffer)
            self.stmt(s.body)
        elif isinstance(s, Store):
            self._store(s)
        elif is_matrix(s):
            self._matrix(s)
        elif is_barrier(s):
            self.line(self.dialect.barrier_global if self.orders_global else self.dialect.barrier)
        elif isinstance(s, Evaluate):
            self._evaluate(s)
        else:
            raise InternalError(f"the C printer cannot write a {type(s).__name__}")

    def _loop(self, s: For) -> None:
        with self.statement(indices=(s.begin, s.extent)):
            begin, extent = self.text(s.begin), self.text(s.extent)
        t = self.loop_type(s)
        name = self.name(s.var, s.var.name)
        if s.var in self.narrow:
            begin, extent = (
                str(e.value) if isinstance(e, Const) else x for e, x in ((s.begin, begin), (s.extent, extent))
            )
        zero = isinstance(s.begin, Const) and s.begin.value == 0
        end = extent if zero else f"{begin} + {extent}"
        with self.block(f"for ({t} {name} = {begin}; {name} < {end}; ++{name})"):
            self.stmt(s.body)

    def _allocate(self, buffer: Buffer) -> None:
        size = buffer.shape[0] if buffer.shape else ir.const(1)
        assert isinstance(size, Const), "check_limits refuses memory of unknown size"
        name, t, count = self.name(buffer, buffer.name), type_name(buffer.dtype), max(1, int(size.value))
        if buffer.scope == "shared":
            align = 32 if buffer in self.tiled else 16
            self.shared.append(self.dialect.shared.format(type=t, name=name, size=count, align=align))
        elif buffer.scope == "fragment":
            register = "f32" if self.roles.get(buffer, ("sum", False))[0] == "sum" else "u32"
            self.line(f"{register} {name}[{max(1, count // SIZE**2)}][{REGISTERS}];")
        else:
            self.line(f"{t} {name}[{count}]{self.dialect.align if count > 1 else ''};")

    def _store(self, s: Store) -> None:
        index = s.indices[0]
        if is_asynchronous(s):
            self._begin_copy(s)
            return
        if isinstance(index, Ramp):
            self._wide_copy(s, index)
            return
        roots = (s.value,) if s.predicate is None else (s.value, s.predicate)
        with self.statement(*roots, indices=s.indices):
            if s.predicate is None:
                self._store_scalar(s, index)
            else:
                condition = self.text(s.predicate)
                with self.block(f"if ({condition})"):
                    self._store_scalar(s, index)

    def _store_scalar(self, s: Store, index: Expr) -> None:
        place = self.text(index)
        value = self.text(s.value)
        self.line(f"{self.names[s.buffer]}[{bare(place)}] = {bare(value)};")

    def _begin_copy(self, s: Store) -> None:
        """An asynchronous copy, of an element or of several neighbours."""
        assert isinstance(s.value, ir.Call)
        load = s.value.args[0]
        nbytes = s.value.dtype.lanes * s.buffer.dtype.nbytes
        if not isinstance(load, Load) or load.buffer.scope != "global" or s.buffer.scope != "shared":
            raise UserError(f"{s.buffer.name} is copied asynchronously, but not from global to shared memory")
        if nbytes not in (4, 8, 16):
            raise UserError(
                f"{s.buffer.name} is copied asynchronously, {nbytes} bytes at once, but a copy takes 4, 8 or 16",
                help=f"split its last loop by {max(1, 4 // s.buffer.dtype.nbytes)} or more and vectorize it, where"
                " both sides are aligned",
            )
        starts = [i.base if isinstance(i, Ramp) else i for i in (s.indices[0], load.indices[0])]
        with self.statement(indices=tuple(starts)):
            to, start = (self.text(e) for e in starts)
        call = self.call(
            f"copy_async{nbytes}", f"{self.names[s.buffer]} + {to}", f"{self.names[load.buffer]} + {start}"
        )
        self.line(f"{call};")

    def _wide_copy(self, s: Store, index: Ramp) -> None:
        load = s.value
        if not (isinstance(load, Load) and isinstance(load.indices[0], Ramp) and s.predicate is None):
            raise InternalError("a vector statement for a GPU is a copy")
        source = load.indices[0]
        t, lanes = type_name(s.buffer.dtype), index.lanes
        self.vectors.add((t, lanes))
        with self.statement(indices=(index.base, source.base)):
            to, start = self.text(index.base), self.text(source.base)
        vector = self.dialect.vector.format(
            type=self.dialect.types[t] if self.dialect.name == "opencl" else t, lanes=lanes
        )
        pointer = self.dialect.pointer
        left = f"*({pointer[s.buffer.scope]}{vector} *)({self.names[s.buffer]} + {to})"
        right = f"*({pointer[load.buffer.scope]}const {vector} *)({self.names[load.buffer]} + {start})"
        self.line(f"{left} = {right};")

    def _matrix(self, s: Stmt) -> None:
        """A matrix instruction, a function of the prelude."""
        assert isinstance(s, Evaluate) and isinstance(s.value, ir.Call)
        if not self.dialect.warps:
            raise InternalError("matrix instructions are expanded where the target has none")
        parts, name = tiles(s), s.value.name
        with self.statement(indices=tuple(tile.first[0] for tile in parts)):
            if name == "mma_fill":
                args = [self._fragment(parts[0]), self.text(s.value.args[-1])]
            elif name == "mma_sync":
                layouts = ["col" if self.roles[tile.buffer][1] else "row" for tile in parts[1:]]
                name = "_".join(["mma_sync", *layouts])
                args = [self._fragment(tile) for tile in parts]
            else:
                fragment, memory = parts if name == "mma_load" else parts[::-1]
                role, turned = self.roles.get(fragment.buffer, ("sum", False))
                if name == "mma_load":
                    name = "mma_load_c" if role == "sum" else f"mma_load_{role.lower()}_{'col' if turned else 'row'}"
                place, stride = self._tile_of_memory(memory)
                args = [self._fragment(fragment), place] if name != "mma_store" else [place, self._fragment(fragment)]
                args.append(str(stride))
        self.line(f"{self.call(name, *args)};")

    def _fragment(self, tile: Tile) -> str:
        """The registers of a tile of a fragment."""
        first, stride = self._first(tile)
        number = (first // (SIZE * stride)) * (stride // SIZE) + (first % stride) // SIZE
        number = self.scope.simplify(number)
        text = str(number.value) if isinstance(number, Const) else bare(self.text(number))
        return f"{self.names[tile.buffer]}[{text}]"

    def _first(self, tile: Tile) -> tuple[Expr, int]:
        """Where a tile begins, and how far apart its rows are."""
        first, second = (_as_index(e[0]) for e in (tile.first, tile.second))
        stride = self.scope.form(self.scope.simplify(second)).minus(self.scope.form(self.scope.simplify(first)))
        if not stride.is_const:
            raise UserError(
                f"the rows of {tile.buffer.name}, of which a matrix instruction takes a tile, are a distance apart that"
                " is not constant",
                help=f"give {tile.buffer.name} a constant last dimension, or fetch tiles into shared memory first",
            )
        return first, stride.constant

    def _tile_of_memory(self, tile: Tile) -> tuple[str, int]:
        first, stride = self._first(tile)
        form = self.scope.form(self.scope.simplify(first))
        nbytes = tile.buffer.dtype.nbytes
        whole = all(k * nbytes % 32 == 0 for k in (form.constant, *form.terms.values()))
        if not whole or stride * nbytes % 16:
            raise UserError(
                f"a matrix instruction takes a tile of {tile.buffer.name} at [{first!r}] with rows {stride} elements"
                " apart, but a tile begins at a multiple of 32 bytes and its rows are a multiple of 16 bytes apart",
                help=f"give {tile.buffer.name} rows of a multiple of {32 // nbytes} elements (pad_dimension,"
                " storage_align)",
            )
        return f"{self.names[tile.buffer]} + {self.text(tile.first[0])}", stride

    def _evaluate(self, s: Evaluate) -> None:
        call = s.value
        if isinstance(call, ir.Call) and call.name.startswith("extern:"):
            raise UserError(
                f"{call.name[7:]} is a function of the host and cannot run in a kernel for {self.dialect.name}",
                help="leave this node on the CPU",
            )
        if isinstance(call, ir.Call) and call.name in ("copy_commit", "copy_wait"):
            what = f"wait_group {_number(call.args[0])}" if call.args else "commit_group"
            self.line(f'asm volatile("cp.async.{what};" ::: "memory");')
        # a prefetch is a wish

    # ------------------------------------------------------------------------------------------------ expressions

    def text(self, root: Expr) -> str:
        """The value of an expression, variables written before it as needed."""
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
            write = self.EXPRS.get(type(e))
            if write is None:
                raise InternalError(f"the C printer cannot write a {type(e).__name__}")
            if e.dtype.lanes != 1:
                raise InternalError("the C printer writes scalars; vectors are copies only")
            text = write(self, e)
            depth = 1 + max([self.memo[c][1] for c in _operands(e)], default=-1)
            depth = 0 if text.isidentifier() else depth
            if depth and (self.counts.get(e, 0) > 1 or depth > _DEEP):
                text, depth = self.variable(text, e.dtype), 0
            self.remember(e, text, depth)
        return self.memo[root][0]

    def variable(self, text: str, t: DType) -> str:
        name = self.name(None, "t")
        self.line(f"const {_value_type(t)} {name} = {bare(text)};")
        return name

    def of(self, e: Expr) -> str:
        return self.memo[e][0]

    def segment(self, lanes: int) -> str:
        """The mask of those threads of this one's warp that lie in its segment of so many lanes."""
        x, y, z = self.kernel.block
        count = x * y * z
        if count <= lanes or (lanes == 32 and count % 32 == 0):
            return f"0x{(1 << min(count, lanes)) - 1:x}u"
        if lanes not in self.segments:
            number, first, mask = self.name(None, "number"), self.name(None, "first"), self.name(None, "segment")
            whole = f"0x{(1 << lanes) - 1:x}u"
            if count % lanes:
                whole = f"({first} + {lanes} <= {count} ? {whole} : 0x{(1 << count % lanes) - 1:x}u)"
            self.head += [
                f"  const u32 {number} = threadIdx.x + {x} * (threadIdx.y + {y} * threadIdx.z);",
                f"  const u32 {first} = {number} & ~{lanes - 1}u;",
                f"  const u32 {mask} = {whole} << ({first} & 31u);",
            ]
            self.segments[lanes] = mask
        return self.segments[lanes]

    def call(self, name: str, *args: str) -> str:
        self.used.add(name)
        return f"{name}({', '.join(args)})"

    def reinterpreted(self, text: str, source: str, result: str) -> str:
        if source == result:
            return text
        known = self.dialect.bits.get((source, result))
        if known is not None:
            return f"{known}({text})"
        if source[0] in "iu" and result[0] in "iu":
            return f"({result})({text})"
        if source[0] == "f":
            return f"({result}){self.reinterpreted(text, source, 'u' + source[1:])}"
        return self.reinterpreted(f"({'u' + source[1:]})({text})", "u" + source[1:], result)


def _number(e: Expr) -> int:
    assert isinstance(e, Const)
    return int(e.value)


def _index_sides(e: Expr) -> tuple[Expr, ...]:
    """The operands of comparisons of indices in a condition: they are printed plainly."""
    found = []
    for n in walk_expr(e):
        if isinstance(n, ir.Compare) and n.a.dtype in (dtypes.INDEX, dtypes.int32):
            found += [n.a, n.b]
    return tuple(found)


def _operands(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, ir.IfThenElse):
        return (e.condition,)
    if isinstance(e, ir.Let):
        return (e.value,)
    if isinstance(e, Load) and e.predicate is not None:
        return (e.predicate,)
    if isinstance(e, ir.Call) and e.name in SHUFFLES:
        return e.args[:2]  # a lane that needs no value is free to get any
    if isinstance(e, ir.Call) and e.name == "pack4" and _is_row(e):
        return tuple(a.indices[0] for a in e.args if isinstance(a, Load))
    return children(e)


def _is_row(e: ir.Call) -> bool:
    """Whether four bytes packed are all plain elements of one buffer."""
    loads = [a for a in e.args if isinstance(a, Load) and a.predicate is None]
    return len(loads) == 4 and all(a.buffer is loads[0].buffer for a in loads)


def bare(text: str) -> str:
    """A text without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text


def literal(value: bool | int | float, t: DType, dialect: Dialect) -> str:
    """A constant in C."""
    if t.is_bool:
        return "true" if value else "false"
    if _is_half(t):
        return f"(u16)0x{semantics.to_bits(value, t):04x}"
    if t.is_float:
        if math.isnan(value) or math.isinf(value):
            bits = semantics.to_bits(value, t)
            if t.bits == 32:
                return f"{dialect.bits['u32', 'f32']}(0x{bits:08x}u)"
            return f"{dialect.bits['u64', 'f64']}(0x{bits:016x}u{dialect.long_suffix})"
        text = str(np.float32(value)) if t.bits == 32 else repr(float(value))
        text = text if "." in text or "e" in text else f"{text}.0"
        text = f"{text}f" if t.bits == 32 else text
        return f"({text})" if text.startswith("-") else text
    number = int(value)
    if t.bits == 64:
        if t.kind == "uint":
            return f"{number}u{dialect.long_suffix}"
        if number == -(1 << 63):
            return f"(-9223372036854775807{dialect.long_suffix} - 1)"
        text = f"{number}{dialect.long_suffix}"
    elif t.bits == 32:
        text = f"{number}u" if t.kind == "uint" else "(-2147483647 - 1)" if number == -(1 << 31) else str(number)
    else:
        return f"({type_name(t)}){number}" if number >= 0 else f"({type_name(t)})({number})"
    return f"({text})" if text.startswith("-") else text


# ------------------------------------------------------------------------------------------------ how nodes are written


def _on(cls: type) -> Callable[[Callable[[_Writer, Any], str]], Callable[[_Writer, Any], str]]:
    def attach(function: Callable[[_Writer, Any], str]) -> Callable[[_Writer, Any], str]:
        _Writer.EXPRS[cls] = function
        return function

    return attach


@_on(Var)
def _var(w: _Writer, e: Var) -> str:
    return f"(i64){w.names[e]}" if e in w.narrow else w.names[e]


@_on(Const)
def _const(w: _Writer, e: Const) -> str:
    return literal(e.value, e.dtype, w.dialect)


def _arithmetic(symbol: str) -> Callable[[_Writer, Any], str]:
    def write(w: _Writer, e: ir.Binary) -> str:
        a, b = w.of(e.a), w.of(e.b)
        if e.dtype.is_float or (e in w.plain and e.dtype.bits >= 32):
            return f"({a} {symbol} {b})"
        t = type_name(e.dtype)
        u = "u64" if e.dtype.bits == 64 else "u32"
        return f"({t})(({u}){a} {symbol} ({u}){b})"

    return write


_Writer.EXPRS[ir.Add] = _arithmetic("+")
_Writer.EXPRS[ir.Sub] = _arithmetic("-")
_Writer.EXPRS[ir.Mul] = _arithmetic("*")


@_on(ir.Div)
def _div(w: _Writer, e: ir.Div) -> str:
    return f"({w.of(e.a)} / {w.of(e.b)})"


def _as_index(e: Expr) -> Expr:
    """A narrowed index as it was: what is known of its variables is known of those."""

    def rule(n: Expr) -> Expr:
        if isinstance(n, ir.Cast) and n.dtype == dtypes.int32 and n.value.dtype == dtypes.INDEX:
            return n.value
        if isinstance(n, Const) and n.dtype == dtypes.int32:
            return ir.const(n.value)
        if isinstance(n, ir.Binary) and n.a.dtype == n.b.dtype == dtypes.INDEX != n.dtype == dtypes.int32:
            return type(n)(n.a, n.b, dtypes.INDEX)
        return n

    return rewrite_expr(e, rule) if e.dtype == dtypes.int32 else e


def _division(name: str) -> Callable[[_Writer, Any], str]:
    symbol = "/" if name.endswith("div") else "%"

    def write(w: _Writer, e: ir.Binary) -> str:
        a, b = w.of(e.a), w.of(e.b)
        t = type_name(e.dtype)
        if isinstance(e.b, Const) and int(e.b.value) > 0:
            low = w.scope.bounds(_as_index(e.a))[0] if e.dtype.bits >= 32 else None
            if e.dtype.kind == "uint" or name.startswith("trunc") or (low is not None and low >= 0):
                return f"({t})({a} {symbol} {b})" if e.dtype.bits < 32 else f"({a} {symbol} {b})"
        if e.dtype.kind == "uint":
            return w.call(f"u{name[5:]}_{t}", a, b)
        return w.call(f"{name}_{t}", a, b)

    return write


_Writer.EXPRS.update({
    ir.FloorDiv: _division("floordiv"), ir.FloorMod: _division("floormod"), ir.TruncDiv: _division("truncdiv"),
    ir.TruncMod: _division("truncmod"),
})  # fmt: skip


def _extremum(name: str, symbol: str) -> Callable[[_Writer, Any], str]:
    def write(w: _Writer, e: ir.Binary) -> str:
        a, b = w.of(e.a), w.of(e.b)
        if e.dtype.is_bool:
            return f"({a} {'&&' if symbol == '<' else '||'} {b})"
        return w.call(f"{name}_{type_name(e.dtype)}", a, b)

    return write


_Writer.EXPRS[ir.Min] = _extremum("least", "<")
_Writer.EXPRS[ir.Max] = _extremum("most", ">")


def _infix(symbol: str) -> Callable[[_Writer, Any], str]:
    return lambda w, e: f"({w.of(e.a)} {symbol} {w.of(e.b)})"


_Writer.EXPRS.update({
    ir.EQ: _infix("=="), ir.NE: _infix("!="), ir.LT: _infix("<"), ir.LE: _infix("<="), ir.And: _infix("&&"),
    ir.Or: _infix("||"),
})  # fmt: skip


def _bitwise(symbol: str) -> Callable[[_Writer, Any], str]:
    return lambda w, e: f"({type_name(e.dtype)})({w.of(e.a)} {symbol} {w.of(e.b)})"


_Writer.EXPRS.update({ir.BitAnd: _bitwise("&"), ir.BitOr: _bitwise("|"), ir.BitXor: _bitwise("^")})


def _shift(name: str) -> Callable[[_Writer, Any], str]:
    return lambda w, e: w.call(f"{name}_{type_name(e.dtype)}", w.of(e.a), w.of(e.b))


_Writer.EXPRS[ir.ShiftLeft] = _shift("shl")
_Writer.EXPRS[ir.ShiftRight] = _shift("shr")


@_on(ir.Not)
def _not(w: _Writer, e: ir.Not) -> str:
    return f"!{w.of(e.a)}" if w.of(e.a)[0] in "(!" or w.of(e.a).isidentifier() else f"!({w.of(e.a)})"


@_on(ir.Fma)
def _fma(w: _Writer, e: ir.Fma) -> str:
    return f"{w.dialect.math['fma', e.dtype.bits]}({w.of(e.a)}, {w.of(e.b)}, {w.of(e.c)})"


@_on(ir.Select)
def _select(w: _Writer, e: ir.Select) -> str:
    return f"({w.of(e.condition)} ? {w.of(e.a)} : {w.of(e.b)})"


@_on(ir.IfThenElse)
def _if_then_else(w: _Writer, e: ir.IfThenElse) -> str:
    condition = w.of(e.condition)
    name = w.name(None, "t")
    w.line(f"{_value_type(e.dtype)} {name};")
    with w.block(f"if ({condition})"):
        w.line(f"{name} = {w.text(e.a)};")
    with w.block("else"):
        w.line(f"{name} = {w.text(e.b)};")
    return name


@_on(ir.Let)
def _let(w: _Writer, e: ir.Let) -> str:
    w.names[e.var] = w.variable(w.of(e.value), e.value.dtype)
    return w.text(e.body)


@_on(Load)
def _load(w: _Writer, e: Load) -> str:
    if e.predicate is None:
        return _loaded(w, e)
    name = w.name(None, "t")
    zero = literal(False if e.dtype.is_bool else 0, e.dtype, w.dialect)
    w.line(f"{_value_type(e.dtype)} {name} = {zero};")
    with w.block(f"if ({w.of(e.predicate)})"):
        w.text(e.indices[0])
        w.line(f"{name} = {_loaded(w, e)};")
    return name


def _loaded(w: _Writer, e: Load) -> str:
    text = f"{w.names[e.buffer]}[{bare(w.of(e.indices[0]))}]"
    return f"({text} != 0)" if e.dtype.is_bool else text


@_on(ir.Cast)
def _cast(w: _Writer, e: ir.Cast) -> str:
    if isinstance(e.value, Var) and e.value in w.narrow and e.dtype == dtypes.int32:
        return w.names[e.value]
    return convert(w, w.of(e.value), e.value.dtype, e.dtype)


def convert(w: _Writer, text: str, source: DType, result: DType) -> str:
    """A value converted by the semantics page."""
    if source == result:
        return text
    if result.is_bool:
        return f"(({text} & 0x7fffu) != 0)" if _is_half(source) else f"({text} != 0)"
    if _is_half(source):
        wide = w.call("f32_of_f16" if source.kind == "float" else "f32_of_bf16", text)
        return convert(w, wide, dtypes.float32, result)
    if _is_half(result):
        if source != dtypes.float32:
            text = convert(w, text, source, dtypes.float32)
        return w.call("f16_of_f32" if result.kind == "float" else "bf16_of_f32", text)
    t = type_name(result)
    if source.is_float and result.is_integer:
        unsigned = result.kind == "uint" and result.bits == 64
        whole = w.call(f"{'uwhole' if unsigned else 'whole'}_{type_name(source)}", text)
        return whole if result.bits == 64 else f"({t}){whole}"
    return f"({t}){text}" if text[0] == "(" or text.isidentifier() else f"({t})({text})"


@_on(ir.Call)
def _call(w: _Writer, e: ir.Call) -> str:
    if e.name == "pack4" and (word := _packed_load(w, e)) is not None:
        return word
    args = [w.of(a) for a in _operands(e)]
    t = e.args[0].dtype if e.args else e.dtype
    match e.name:
        case "sqrt" | "floor" | "ceil" | "trunc":
            return f"{w.dialect.math[e.name, t.bits]}({args[0]})"
        case "round":
            return f"{w.dialect.math['rint', t.bits]}({args[0]})"
        case "abs" if t.is_float:
            return f"{w.dialect.math['fabs', t.bits]}({args[0]})"
        case "abs":
            u = "u64" if t.bits == 64 else "u32"
            return f"({type_name(t)})({args[0]} < 0 ? ({u})0 - ({u}){args[0]} : ({u}){args[0]})"
        case "copysign":
            return f"{w.dialect.math['copysign', t.bits]}({args[0]}, {args[1]})"
        case "isnan":
            return f"({args[0]} != {args[0]})"
        case "isinf":
            return f"({w.dialect.math['fabs', t.bits]}({args[0]}) == {literal(math.inf, t, w.dialect)})"
        case "reinterpret":
            return w.reinterpreted(args[0], type_name(t), type_name(e.dtype))
        case "pack4":
            parts = [f"((u32)(u8){a} << {8 * n})" for n, a in enumerate(args)]
            return f"({' | '.join(parts)})"
        case "dot4_i8" | "dot4_s8":
            return w.call(e.name, *args)
        case "shuffle" | "shuffle_down" if w.dialect.warps:
            return _shuffle(w, e)
    raise UserError(f"the intrinsic {e.name} cannot be used in a kernel for {w.dialect.name}")


def _packed_load(w: _Writer, e: ir.Call) -> str | None:
    """Four bytes of a buffer as one word, where they are neighbours and the first is known to be aligned."""
    if not _is_row(e):
        return None
    loads = [a for a in e.args if isinstance(a, Load)]
    forms = [w.scope.form(w.scope.simplify(_as_index(a.indices[0]))) for a in loads]
    first, buffer = forms[0], loads[0].buffer
    apart = [f.minus(first) for f in forms]
    aligned = first.constant % 4 == 0 and all(k % 4 == 0 for k in first.terms.values())
    if not aligned or any(not d.is_const or d.constant != n for n, d in enumerate(apart)):
        bytes_ = [f"(u32)(u8){_loaded(w, a)}" for a in loads]
        return f"({' | '.join(f'({b} << {8 * n})' for n, b in enumerate(bytes_))})"
    pointer = w.dialect.pointer[buffer.scope]
    return f"*({pointer}const u32 *)({w.names[buffer]} + {w.of(loads[0].indices[0])})"


def _shuffle(w: _Writer, e: ir.Call) -> str:
    width = e.args[3]
    assert isinstance(width, Const)
    lanes = int(width.value)
    name = "__shfl_down_sync" if e.name == "shuffle_down" else "__shfl_sync"
    value, selector = (w.of(a) for a in e.args[:2])
    selector = str(e.args[1].value) if isinstance(e.args[1], Const) else f"(int)({bare(selector)})"
    small = e.dtype.bits < 32
    call = f"{name}({w.segment(lanes)}, {f'(u32){value}' if small else value}, {selector}, {lanes})"
    if e.dtype.is_bool:
        return f"({call} != 0)"
    return f"({type_name(e.dtype)}){call}" if small else call
