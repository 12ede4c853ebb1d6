"""Statements of the flat form as LLVM blocks.

Loops count in a phi and test at the bottom. Small constant allocations are stack slots in the entry block, where
`sroa` turns register tiles into registers; others come from the context and are freed on every path, the failing ones
too. A parallel loop becomes an internal function over a part of its range, with what it uses in a closure:

    i32 body(ptr context, ptr closure, i64 begin, i64 end)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from targets.llvm import casts
from targets.llvm.expressions import ExprEmitter, is_whole_register
from targets.llvm.runtime.abi import CONTEXT_FIELDS, CONTEXT_LLVM_NAME, CONTEXT_LLVM_TYPE, Status
from targets.llvm.text import FunctionWriter, ModuleWriter, literal, memory_type, register_type, suffix, vector_of
from tensorir import dtypes
from tensorir import expr as ir
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import Expr, Var
from tensorir.stmt import Allocate, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.target import Target
from tensorir.visit import stmt_exprs, walk_expr, walk_stmt

#: Stack of one function: a bigger buffer, or one beyond the total, comes from the context's allocator.
LARGEST_SLOT = 32 << 10
STACK_TOTAL = 128 << 10

_FAIL = f"""
define internal i32 @nestor.fail(ptr %context, i32 %code, i64 %detail) noinline cold {{
  %error = getelementptr {CONTEXT_LLVM_NAME}, ptr %context, i32 0, i32 {CONTEXT_FIELDS["error_code"]}
  %claim = cmpxchg ptr %error, i32 0, i32 %code acq_rel acquire
  %won = extractvalue {{ i32, i1 }} %claim, 1
  br i1 %won, label %first, label %out
first:
  %where = getelementptr {CONTEXT_LLVM_NAME}, ptr %context, i32 0, i32 {CONTEXT_FIELDS["error_detail"]}
  store i64 %detail, ptr %where
  br label %out
out:
  ret i32 %code
}}"""


class FuncEmitter:
    """Emits one Tensor IR function, and the bodies of its parallel loops, into a module."""

    def __init__(self, module: ModuleWriter, func: Func, target: Target, symbol: str) -> None:
        self.module = module
        self.func = func
        self.target = target
        self.symbol = symbol
        self.externs: list[str] = []
        self.noalias = bool(dict(func.attrs).get("noalias", False))
        self._bodies = 0
        self._enter(FunctionWriter(module))

    def _enter(self, writer: FunctionWriter) -> None:
        self.w = writer
        self.x = ExprEmitter(writer, self.target)
        self._stack_bytes = 0
        self._heap: list[str] = []

    # -- the kernel

    def emit(self) -> None:
        """The exported function."""
        self.module.define_type(CONTEXT_LLVM_TYPE)
        w = self.w
        bound: list[tuple[Var | Buffer, str, str]] = []
        for position, buffer in enumerate(self.func.params):
            slot = f"getelementptr ptr, ptr %data, i64 {position}"
            bound.append((buffer, "ptr", w.op(f"load ptr, ptr {w.op(slot)}, align 8")))
        for position, var in enumerate(self.func.dims):
            value = w.op(f"load i64, ptr {w.op(f'getelementptr i64, ptr %dims, i64 {position}')}, align 8")
            value = casts.convert(w, value, dtypes.int64, var.dtype, self.target)
            bound.append((var, register_type(var.dtype), value))
        close = self.open(self.symbol, "define", ("ptr %context", "ptr %data", "ptr %dims"), bound)
        self.statement(self.func.body)
        close()

    def open(
        self, name: str, define: str, parameters: tuple[str, ...], bound: list[tuple[Var | Buffer, str, str]]
    ) -> Callable[[], None]:
        """Begin the body of the function `name` where `bound` variables and buffers have been loaded; the result ends
        it. Where the program says that its buffers do not alias, the body is a function of its own, because LLVM takes
        that promise on parameters only."""
        header = f"{define} i32 @{name}({', '.join(parameters)}) alignstack(64) nounwind"
        if self.noalias and any(isinstance(what, Buffer) for what, _, _ in bound):
            given = ", ".join([*parameters, *(f"{t} {value}" for _, t, value in bound)])
            self.w.do(f"ret i32 {self.w.op(f'call i32 @{name}.inner({given})')}")
            self.w.finish(header)
            named = [(what, t, f"%a{i}") for i, (what, t, _) in enumerate(bound)]
            taken = [f"{t}{' noalias' if isinstance(what, Buffer) else ''} {value}" for what, t, value in named]
            header = f"define internal i32 @{name}.inner({', '.join([*parameters, *taken])}) alignstack(64) nounwind"
            self._enter(FunctionWriter(self.module, in_parallel=self.w.in_parallel))
            bound = named
        for what, _, value in bound:
            if isinstance(what, Buffer):
                self.x.buffers[what] = value
            else:
                self.x.bind(what, value)

        def close() -> None:
            self.w.do("ret i32 0")
            self.w.finish(header)

        return close

    # -- statements

    def statement(self, s: Stmt) -> None:
        """One statement and all it holds."""
        rule = _STATEMENTS.get(type(s))
        if rule is None:
            raise InternalError(f"{type(s).__name__} does not belong to the flat form")
        rule(self, s)
        self.x.end_statement()

    def region(self, s: Stmt) -> None:
        """A statement whose values are not valid after it."""
        self.x.push()
        self.statement(s)
        self.x.pop()

    def fail_if(self, condition: str, code: str, detail: str) -> None:
        """Leave the function with a status where `condition` holds, giving back what it allocated."""
        w = self.w
        failed, go_on = w.new_label("failed"), w.new_label("ok")
        w.branch(condition, failed, go_on)
        w.begin(failed)
        w.module.helper("nestor.fail", _FAIL)
        status = w.op(f"call i32 @nestor.fail(ptr %context, i32 {code}, i64 {detail})") if detail else code
        for pointer in reversed(self._heap):
            self.free(pointer)
        w.do(f"ret i32 {status}")
        w.begin(go_on)

    def context_field(self, name: str) -> str:
        """A pointer field of the context."""
        place = self.w.op(f"getelementptr {CONTEXT_LLVM_NAME}, ptr %context, i32 0, i32 {CONTEXT_FIELDS[name]}")
        return self.w.op(f"load ptr, ptr {place}, align 8")

    def free(self, pointer: str) -> None:
        """Give memory back to the context."""
        self.w.do(f"call void {self.context_field('free')}(ptr %context, ptr {pointer})")


def _seq(f: FuncEmitter, s: Seq) -> None:
    for inner in s.stmts:
        f.statement(inner)


def _store(f: FuncEmitter, s: Store) -> None:
    if len(s.indices) != 1:
        raise InternalError(f"{s.buffer.name} is written with {len(s.indices)} indices; the flat form has one")
    x, w, element, (index,) = f.x, f.w, s.buffer.dtype, s.indices
    lanes = max(index.dtype.lanes, s.value.dtype.lanes, 1 if s.predicate is None else s.predicate.dtype.lanes)
    if s.value.dtype.element != element:
        raise InternalError(f"{s.buffer.name} holds {element}, but {s.value.dtype} is stored")
    if lanes == 1:
        _store_scalar(f, s, index)
        return
    dtype = element.with_lanes(lanes)
    value = x.value(s.value)
    if s.value.dtype.lanes == 1:
        value = x.splat(value, element, lanes)
    value = x.to_memory(value, dtype)
    mask = None if s.predicate is None else x.mask(s.predicate, lanes)
    ramp = x.as_ramp(index) if index.dtype.lanes > 1 else None
    stored = memory_type(dtype)
    if ramp is not None and ramp[1] == 1 and mask is None:
        w.do(f"store {stored} {value}, ptr {x.address(s.buffer, ramp[0])}, align {element.nbytes}")
        return
    kind = suffix(DType("uint", dtype.bits, lanes)) if dtype.is_bool else suffix(dtype)
    if ramp is not None and ramp[1] == 1 and mask is not None and is_whole_register(s.buffer, ramp[0], lanes):
        place = f"ptr {x.address(s.buffer, ramp[0])}, align {element.nbytes}"
        old = w.op(f"load {stored}, {place}")
        chosen = w.op(f"select {vector_of('i1', lanes)} {mask}, {stored} {value}, {stored} {old}")
        w.do(f"store {stored} {chosen}, {place}")
        return
    bits = (vector_of("i1", lanes), mask or literal(True, dtypes.bool_.with_lanes(lanes)))
    if ramp is not None and ramp[1] == 1:
        where = ("ptr", x.address(s.buffer, ramp[0], inbounds=False))
        name = f"llvm.masked.store.{kind}.p0"
    else:
        where = (vector_of("ptr", lanes), x.addresses(s.buffer, index))
        name = f"llvm.masked.scatter.{kind}.v{lanes}p0"
    w.intrinsic(name, "void", [(stored, value), where, bits], ("", f"align {element.nbytes}"))


def _store_scalar(f: FuncEmitter, s: Store, index: Expr) -> None:
    x, w, element = f.x, f.w, s.buffer.dtype
    after = ""
    if s.predicate is not None and not (isinstance(s.predicate, ir.Const) and s.predicate.value):
        inside, after = w.new_label("store"), w.new_label("stored")
        w.branch(x.value(s.predicate), inside, after)
        w.begin(inside)
        x.push()
    value = x.to_memory(x.value(s.value), element)
    w.do(f"store {memory_type(element)} {value}, ptr {x.address(s.buffer, index)}, align {element.nbytes}")
    if after:
        x.pop()
        w.jump(after)
        w.begin(after)


def _for(f: FuncEmitter, s: For) -> None:
    if s.kind not in ("serial", "parallel"):
        raise InternalError(f"a {s.kind} loop does not belong to the flat form of a CPU")
    if isinstance(s.extent, ir.Const) and s.extent.value <= 0:
        return
    if isinstance(s.extent, ir.Const) and s.extent.value == 1:
        f.x.push()
        f.x.bind(s.var, f.x.value(s.begin))
        f.statement(s.body)
        f.x.pop()
        return
    if s.kind == "parallel" and not f.w.in_parallel:
        _parallel(f, s)
        return
    begin, extent = f.x.value(s.begin), f.x.value(s.extent)
    t = register_type(s.var.dtype)
    end = extent if begin == "0" else f.w.op(f"add {t} {begin}, {extent}")
    f.x.end_statement()
    never_empty = isinstance(s.extent, ir.Const)
    _count(f, s.var, begin, end, never_empty, lambda: f.statement(s.body))


def _count(f: FuncEmitter, var: Var, begin: str, end: str, never_empty: bool, body: Callable[[], None]) -> None:
    """`for var in begin .. end` around what `body` emits."""
    w, x, t = f.w, f.x, register_type(var.dtype)
    inside, after = w.new_label("loop"), w.new_label("after")
    less = "slt" if var.dtype.kind == "int" else "ult"
    if never_empty:
        w.jump(inside)
    else:
        w.branch(w.op(f"icmp {less} {t} {begin}, {end}"), inside, after)
    counter = w.begin_loop(inside, t, begin)
    x.push()
    x.bind(var, counter.name)
    body()
    x.pop()
    following = w.op(f"add {'nsw' if var.dtype.kind == 'int' else 'nuw'} {t} {counter.name}, 1")
    w.close_loop(counter, following)
    w.branch(w.op(f"icmp {less} {t} {following}, {end}"), inside, after)
    w.begin(after)


def _if(f: FuncEmitter, s: If) -> None:
    w = f.w
    if isinstance(s.condition, ir.Const):
        chosen = s.then if s.condition.value else s.otherwise
        if chosen is not None:
            f.region(chosen)
        return
    condition = f.x.value(s.condition)
    f.x.end_statement()
    then, after = w.new_label("then"), w.new_label("after")
    otherwise = after if s.otherwise is None else w.new_label("else")
    w.branch(condition, then, otherwise)
    w.begin(then)
    f.region(s.then)
    w.jump(after)
    if s.otherwise is not None:
        w.begin(otherwise)
        f.region(s.otherwise)
        w.jump(after)
    w.begin(after)


def _let(f: FuncEmitter, s: LetStmt) -> None:
    value = f.x.value(s.value)
    f.x.end_statement()
    f.x.push()
    f.x.bind(s.var, value)
    f.statement(s.body)
    f.x.pop()


def _allocate(f: FuncEmitter, s: Allocate) -> None:
    x, w, buffer = f.x, f.w, s.buffer
    if buffer.scope in ("shared", "warp"):
        raise InternalError(f"{buffer.name}: {buffer.scope} memory does not belong to the flat form of a CPU")
    size = _constant_elements(buffer)
    nbytes = None if size is None else size * buffer.dtype.nbytes
    small = nbytes is not None and nbytes <= LARGEST_SLOT and f._stack_bytes + nbytes <= STACK_TOTAL
    if small or (buffer.scope == "register" and size is not None):
        assert size is not None and nbytes is not None
        f._stack_bytes += nbytes
        x.buffers[buffer] = w.slot(memory_type(buffer.dtype), max(size, 1), 64)
        f.statement(s.body)
        return
    if nbytes is not None:
        wanted = str(max(nbytes, 64))
    else:
        wanted = str(buffer.dtype.nbytes)
        for extent in buffer.shape:
            wanted = w.op(f"mul i64 {wanted}, {x.index(extent)}")
        wanted = w.intrinsic("llvm.smax.i64", "i64", [("i64", wanted), ("i64", "64")])
    pointer = w.op(f"call ptr {f.context_field('alloc')}(ptr %context, i64 {wanted})")
    f.fail_if(w.op(f"icmp eq ptr {pointer}, null"), str(int(Status.OUT_OF_MEMORY)), wanted)
    x.buffers[buffer] = pointer
    x.end_statement()
    f._heap.append(pointer)
    x.push()
    f.statement(s.body)
    x.pop()
    f._heap.pop()
    f.free(pointer)


def _constant_elements(buffer: Buffer) -> int | None:
    sizes = [int(e.value) if isinstance(e, ir.Const) else None for e in buffer.shape]
    return None if any(n is None for n in sizes) else math.prod(n for n in sizes if n is not None)


def _evaluate(f: FuncEmitter, s: Evaluate) -> None:
    call = s.value
    if not isinstance(call, ir.Call):
        f.x.value(call)
        return
    if call.name == "prefetch":
        load = call.args[0]
        if not isinstance(load, ir.Load):
            raise InternalError("prefetch: the operand is not an element of a buffer")
        pointer = f.x.address(load.buffer, load.indices[0], inbounds=False)
        f.w.intrinsic("llvm.prefetch.p0", "void", [("ptr", pointer), ("i32", "0"), ("i32", "3"), ("i32", "1")])
        return
    if call.name.startswith("extern:"):
        _extern(f, call)
        return
    if call.name == "barrier":
        raise InternalError("a barrier does not belong to the flat form of a CPU")
    f.x.value(call)


def _extern(f: FuncEmitter, call: ir.Call) -> None:
    """A call of host code: its address is handed in by the caller, as one more data pointer after the buffers.

    The host function is `i32 f(const i64* arguments)`, whose arguments are addresses and dimensions in order.
    """
    x, w, name = f.x, f.w, call.name.removeprefix("extern:")
    if w.in_parallel:
        raise InternalError(f"the extern {name} is called inside a parallel loop")
    if name not in f.externs:
        f.externs.append(name)
    slots = w.slot("i64", max(len(call.args), 1), 64)
    for position, argument in enumerate(call.args):
        value = casts.convert(w, x.value(argument), argument.dtype, dtypes.int64, f.target)
        w.do(f"store i64 {value}, ptr {w.op(f'getelementptr i64, ptr {slots}, i64 {position}')}, align 8")
    number = len(f.func.params) + f.externs.index(name)
    function = w.op(f"load ptr, ptr {w.op(f'getelementptr ptr, ptr %data, i64 {number}')}, align 8")
    status = w.op(f"call i32 {function}(ptr {slots})")
    failed = w.op(f"icmp ne i32 {status}, 0")
    f.fail_if(failed, str(int(Status.EXTERN_FAILED)), str(f.externs.index(name)))


# -------------------------------------------------------------------------------------------------- parallel loops


def _parallel(f: FuncEmitter, s: For) -> None:
    vars_, buffers = _captured(f, s)
    fields = [*(register_type(v.dtype) for v in vars_), *("ptr" for _ in buffers)]
    values = [*(f.x.find_var(v) for v in vars_), *(f.x.buffers[b] for b in buffers)]
    layout = f"{{ {', '.join(_closure_field(t) for t in fields)} }}" if fields else "{ i64 }"
    w = f.w
    closure = w.slot(layout, 1, 64)
    for position, (t, value) in enumerate(zip(fields, values, strict=True)):
        place = w.op(f"getelementptr {layout}, ptr {closure}, i32 0, i32 {position}")
        w.do(f"store {t} {value}, ptr {place}")
    begin, extent = f.x.index(s.begin), f.x.index(s.extent)
    end = w.op(f"add i64 {begin}, {extent}")
    f._bodies += 1
    name = f"{f.symbol}.body{f._bodies}"
    status = w.op(
        f"call i32 {f.context_field('parallel_for')}(ptr %context, ptr @{name}, ptr {closure}, i64 {begin}, i64 {end})"
    )
    f.x.end_statement()
    f.fail_if(w.op(f"icmp ne i32 {status}, 0"), status, "")
    _parallel_body(f, s, name, layout, list(zip(vars_, fields, strict=False)), buffers)


def _closure_field(t: str) -> str:
    return "i8" if t == "i1" else t


def _parallel_body(
    f: FuncEmitter, s: For, name: str, layout: str, vars_: list[tuple[Var, str]], buffers: list[Buffer]
) -> None:
    outer = (f.w, f.x, f._stack_bytes, f._heap)
    f._enter(FunctionWriter(f.module, in_parallel=True))
    w = f.w
    bound: list[tuple[Var | Buffer, str, str]] = []
    fields: list[tuple[Var | Buffer, str]] = [*vars_, *((b, "ptr") for b in buffers)]
    for position, (what, t) in enumerate(fields):
        place = w.op(f"getelementptr {layout}, ptr %closure, i32 0, i32 {position}")
        bound.append((what, t, w.op(f"load {t}, ptr {place}")))
    parameters = ("ptr %context", "ptr %closure", "i64 %begin", "i64 %end")
    close = f.open(name, "define internal", parameters, bound)
    begin = casts.convert(f.w, "%begin", dtypes.int64, s.var.dtype, f.target)
    end = casts.convert(f.w, "%end", dtypes.int64, s.var.dtype, f.target)
    _count(f, s.var, begin, end, False, lambda: f.statement(s.body))
    close()
    f.w, f.x, f._stack_bytes, f._heap = outer


def _captured(f: FuncEmitter, s: For) -> tuple[list[Var], list[Buffer]]:
    """The variables and buffers from outside that the loop's body uses, in first-met order."""
    vars_: dict[Var, None] = {}
    buffers: dict[Buffer, None] = {}
    seen: set[int] = set()
    for stmt in walk_stmt(s.body):
        if isinstance(stmt, Store):
            buffers[stmt.buffer] = None
        for e in stmt_exprs(stmt):
            if id(e) in seen:
                continue
            seen.add(id(e))
            for node in walk_expr(e):
                if isinstance(node, Var):
                    vars_[node] = None
                elif isinstance(node, ir.Load):
                    buffers[node.buffer] = None
    return (
        [v for v in vars_ if v is not s.var and f.x.find_var(v) is not None],
        [b for b in buffers if b in f.x.buffers],
    )


_STATEMENTS: dict[type, Callable[..., None]] = {
    Seq: _seq,
    Store: _store,
    For: _for,
    If: _if,
    LetStmt: _let,
    Allocate: _allocate,
    Evaluate: _evaluate,
}
