"""Expressions of the flat form as LLVM values.

A rule for each node class is a generator: it yields the operands that it wants and is sent their LLVM names. One loop
drives the generators, so that the depth of an expression never meets Python's recursion limit, and keeps what has been
computed: a value is emitted once in the scope where it is valid. Values that read memory are kept for one statement
only, since the next may write it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from targets.llvm import arithmetic, casts
from targets.llvm.text import FunctionWriter, literal, memory_type, register_type, suffix, vector_of
from tensorir import dtypes
from tensorir import expr as ir
from tensorir.arith import simplify
from tensorir.buffer import Buffer
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import Expr, Var
from tensorir.target import Target
from tensorir.visit import children, walk_expr

Rule = Generator[Expr, str, str]


class Scope:
    """Values computed in one region of the program: they are valid there and in what it encloses, unless that binds
    one of their variables anew (`isolated`)."""

    __slots__ = ("isolated", "of_memory", "pure", "vars")

    def __init__(self) -> None:
        self.isolated = False
        self.pure: dict[Expr, str] = {}
        self.of_memory: dict[Expr, str] = {}
        self.vars: dict[Var, str] = {}


class ExprEmitter:
    """Emits expressions into `writer`. `buffers` maps each buffer in reach to its pointer."""

    def __init__(self, writer: FunctionWriter, target: Target) -> None:
        self.writer = writer
        self.target = target
        self.buffers: dict[Buffer, str] = {}
        self.scopes: list[Scope] = [Scope()]
        self._reads: dict[Expr, bool] = {}
        self._ramps: dict[Expr, tuple[Expr, int] | None] = {}

    # -- scopes

    def push(self) -> None:
        """Enter a region."""
        self.scopes.append(Scope())

    def pop(self) -> None:
        """Leave a region: its values are forgotten."""
        self.scopes.pop()

    def bind(self, var: Var, value: str) -> None:
        """`var` is `value` from here to the end of the region."""
        if self.find_var(var) is not None:
            self.scopes[-1].isolated = True
        self.scopes[-1].vars[var] = value

    def end_statement(self) -> None:
        """Memory may change: values read from it are forgotten."""
        for scope in self.scopes:
            scope.of_memory.clear()

    def find_var(self, var: Var) -> str | None:
        """The value of a variable, None if it has none here."""
        for scope in reversed(self.scopes):
            if var in scope.vars:
                return scope.vars[var]
        return None

    def _find(self, e: Expr) -> str | None:
        if type(e) is ir.Const:
            return literal(e.value, e.dtype)
        if type(e) is Var:
            value = self.find_var(e)
            if value is None:
                raise InternalError(f"the variable {e.name} is used where it has no value")
            return value
        for scope in reversed(self.scopes):
            if e in scope.pure:
                return scope.pure[e]
            if e in scope.of_memory:
                return scope.of_memory[e]
            if scope.isolated:
                break
        return None

    # -- driving

    def value(self, e: Expr) -> str:
        """The LLVM name of the value of `e`."""
        found = self._find(e)
        if found is not None:
            return found
        stack: list[tuple[Expr, Rule]] = [(e, self._start(e))]
        sent: str | None = None
        while True:
            top, rule = stack[-1]
            try:
                wanted = rule.send(sent)  # type: ignore[arg-type]
            except StopIteration as stop:
                stack.pop()
                sent = stop.value
                scope = self.scopes[-1]
                (scope.of_memory if self.reads_memory(top) else scope.pure)[top] = sent  # type: ignore[assignment]
                if not stack:
                    return sent  # type: ignore[return-value]
                continue
            sent = self._find(wanted)
            if sent is None:
                stack.append((wanted, self._start(wanted)))

    def _start(self, e: Expr) -> Rule:
        rule = _RULES.get(type(e))
        if rule is None:
            raise InternalError(f"{type(e).__name__} does not belong to the flat form")
        return rule(self, e)

    def reads_memory(self, e: Expr) -> bool:
        """True if the value of `e` depends on memory."""
        known = self._reads
        if e in known:
            return known[e]
        stack = [e]
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            if isinstance(top, ir.Load) or (isinstance(top, ir.Call) and top.name not in _PURE_CALLS):
                known[top] = True
                continue
            below = children(top)
            pending = [c for c in below if c not in known]
            if pending:
                stack.extend(pending)
            else:
                known[top] = any(known[c] for c in below)
        return known[e]

    # -- addresses

    def index(self, e: Expr) -> str:
        """A scalar index as i64."""
        return casts.convert(self.writer, self.value(e), e.dtype, dtypes.int64, self.target)

    def pointer(self, buffer: Buffer) -> str:
        """The address of the first element."""
        if buffer not in self.buffers:
            raise InternalError(f"the buffer {buffer.name} is used where it does not exist")
        return self.buffers[buffer]

    def address(self, buffer: Buffer, index: Expr, *, inbounds: bool = True) -> str:
        """The address of one element. A literal added at the end of the index becomes a displacement."""
        pointer = self.pointer(buffer)
        element = memory_type(buffer.dtype)
        flag = "inbounds " if inbounds else ""
        offset = 0
        while type(index) is ir.Add and type(index.b) is ir.Const and index.dtype.bits == 64:
            offset += int(index.b.value)
            index = index.a
        if type(index) is ir.Const:
            offset, where = offset + int(index.value), "0"
        else:
            where = self.index(index)
        if where != "0":
            # Only the sum is known to lie inside the buffer, so a part of it must not claim to.
            flag_first = flag if offset == 0 else ""
            pointer = self.writer.op(f"getelementptr {flag_first}{element}, ptr {pointer}, i64 {where}")
        if offset:
            pointer = self.writer.op(f"getelementptr {element}, ptr {pointer}, i64 {offset}")
        return pointer

    def addresses(self, buffer: Buffer, index: Expr) -> str:
        """The vector of the addresses of a vector index."""
        lanes = index.dtype.lanes
        wide = casts.convert(self.writer, self.value(index), index.dtype, dtypes.int64.with_lanes(lanes), self.target)
        element = memory_type(buffer.dtype)
        return self.writer.op(f"getelementptr {element}, ptr {self.pointer(buffer)}, {vector_of('i64', lanes)} {wide}")

    def as_ramp(self, index: Expr) -> tuple[Expr, int] | None:
        """(base, stride) of a vector index whose lanes are a fixed stride apart, else None."""
        if index not in self._ramps:
            self._ramps[index] = self._find_ramp(index)
        return self._ramps[index]

    def _find_ramp(self, index: Expr) -> tuple[Expr, int] | None:
        if isinstance(index, ir.Ramp):
            return (index.base, int(index.stride.value)) if isinstance(index.stride, ir.Const) else None
        if isinstance(index, ir.Broadcast):
            return index.value, 0
        if isinstance(index, (ir.Add, ir.Sub)) and index.dtype.bits == 64:
            left, right = self.as_ramp(index.a), self.as_ramp(index.b)
            if left is None or right is None:
                return None
            if isinstance(index, ir.Add):
                return ir.add(left[0], right[0]), left[1] + right[1]
            return ir.sub(left[0], right[0]), left[1] - right[1]
        return None

    def splat(self, value: str, dtype: DType, lanes: int) -> str:
        """A scalar in every lane."""
        w, vector, element = self.writer, register_type(dtype.with_lanes(lanes)), register_type(dtype.element)
        first = w.op(f"insertelement {vector} poison, {element} {value}, i64 0")
        return w.op(f"shufflevector {vector} {first}, {vector} poison, {vector_of('i32', lanes)} zeroinitializer")

    def from_memory(self, value: str, dtype: DType) -> str:
        """A loaded value in its register form: any byte but 0 is true."""
        if not dtype.is_bool:
            return value
        return (
            self.writer.op(f"icmp ne {memory_type(dtype)} {value}, zeroinitializer")
            if dtype.lanes > 1
            else (self.writer.op(f"icmp ne i8 {value}, 0"))
        )

    def to_memory(self, value: str, dtype: DType) -> str:
        """A value as it is stored."""
        if not dtype.is_bool:
            return value
        return self.writer.op(f"zext {register_type(dtype)} {value} to {memory_type(dtype)}")

    def mask(self, predicate: Expr, lanes: int) -> str | None:
        """A vector predicate as i1 lanes; None where it is a literal true."""
        inner = predicate.value if isinstance(predicate, ir.Broadcast) else predicate
        if isinstance(inner, ir.Const) and inner.value:
            return None
        value = self.value(predicate)
        return value if predicate.dtype.lanes == lanes else self.splat(value, dtypes.bool_, lanes)


# ----------------------------------------------------------------------------------------------------------- rules


def _binary(op: str) -> Callable[[ExprEmitter, ir.Binary], Rule]:
    def rule(x: ExprEmitter, e: ir.Binary) -> Rule:
        a = yield e.a
        b = yield e.b
        return arithmetic.binary(x.writer, op, a, b, e.dtype, x.target)

    return rule


def _division(op: str) -> Callable[[ExprEmitter, ir.Binary], Rule]:
    def rule(x: ExprEmitter, e: ir.Binary) -> Rule:
        a = yield e.a
        b = yield e.b
        if e.dtype.is_float:
            return arithmetic.float_divide(x.writer, op, a, b, e.dtype, x.target)
        return arithmetic.divide(x.writer, op, a, b, e.dtype, _integer_literal(e.b))

    return rule


def _integer_literal(e: Expr) -> int | None:
    inner = e.value if isinstance(e, ir.Broadcast) else e
    return int(inner.value) if isinstance(inner, ir.Const) and inner.dtype.is_integer else None


def _is_number(e: Expr) -> bool:
    inner = e.value if isinstance(e, ir.Broadcast) else e
    return isinstance(inner, ir.Const) and inner.value == inner.value


def _extremum(op: str) -> Callable[[ExprEmitter, ir.Binary], Rule]:
    def rule(x: ExprEmitter, e: ir.Binary) -> Rule:
        a = yield e.a
        b = yield e.b
        number = "a" if _is_number(e.a) else "b" if _is_number(e.b) else ""
        return arithmetic.extremum(x.writer, op, a, b, e.dtype, x.target, number=number)

    return rule


def _compare(op: str) -> Callable[[ExprEmitter, ir.Binary], Rule]:
    def rule(x: ExprEmitter, e: ir.Binary) -> Rule:
        a = yield e.a
        b = yield e.b
        if e.a.dtype.is_bool and op in ("lt", "le"):  # false < true
            t, n = register_type(e.a.dtype), e.a.dtype
            inverse = x.writer.op(f"xor {t} {a}, {literal(True, n)}")
            return x.writer.op(f"{'and' if op == 'lt' else 'or'} {t} {inverse}, {b}")
        return arithmetic.compare(x.writer, op, a, b, e.a.dtype, x.target)

    return rule


def _shift(op: str) -> Callable[[ExprEmitter, ir.Binary], Rule]:
    def rule(x: ExprEmitter, e: ir.Binary) -> Rule:
        a = yield e.a
        b = yield e.b
        return arithmetic.shift(x.writer, op, a, b, e.dtype, _integer_literal(e.b))

    return rule


def _not(x: ExprEmitter, e: ir.Not) -> Rule:
    a = yield e.a
    return x.writer.op(f"xor {register_type(e.dtype)} {a}, {literal(True, e.dtype)}")


def _fma(x: ExprEmitter, e: ir.Fma) -> Rule:
    a = yield e.a
    b = yield e.b
    c = yield e.c
    return arithmetic.fused_multiply_add(x.writer, a, b, c, e.dtype, x.target)


def _select(x: ExprEmitter, e: ir.Select | ir.IfThenElse) -> Rule:
    condition = yield e.condition
    a = yield e.a
    b = yield e.b
    return arithmetic.select(x.writer, condition, e.condition.dtype.lanes, a, b, e.dtype)


def _if_then_else(x: ExprEmitter, e: ir.IfThenElse) -> Rule:
    if not (x.reads_memory(e.a) or x.reads_memory(e.b)):
        return (yield from _select(x, e))
    if e.condition.dtype.lanes > 1:
        loads = [n for side in (e.a, e.b) for n in walk_expr(side) if isinstance(n, ir.Load)]
        if any(n.predicate is None for n in loads):
            raise InternalError("a vector condition guards a load that has no predicate")
        return (yield from _select(x, e))
    condition = yield e.condition
    return (yield from _branches(x, condition, e.a, e.b, e.dtype))


def _branches(x: ExprEmitter, condition: str, a: Expr, b: Expr, dtype: DType) -> Rule:
    """`condition ? a : b`, each side computed in its own block."""
    w = x.writer
    yes, no, done = w.new_label("then"), w.new_label("else"), w.new_label("done")
    w.branch(condition, yes, no)
    results = []
    for label, side in ((yes, a), (no, b)):
        w.begin(label)
        x.push()
        value = yield side
        x.pop()
        results.append(f"[ {value}, %{w.label} ]")
        w.jump(done)
    w.begin(done)
    return w.op(f"phi {register_type(dtype)} {', '.join(results)}")


def _cast(x: ExprEmitter, e: ir.Cast) -> Rule:
    value = yield e.value
    return casts.convert(x.writer, value, e.value.dtype, e.dtype, x.target)


def _let(x: ExprEmitter, e: ir.Let) -> Rule:
    value = yield e.value
    x.push()
    x.bind(e.var, value)
    result = yield e.body
    x.pop()
    return result


def _ramp(x: ExprEmitter, e: ir.Ramp) -> Rule:
    element, t = e.dtype.element, register_type(e.dtype)
    one = register_type(element)
    base = yield e.base
    stride = yield e.stride
    w = x.writer
    steps = f"<{', '.join(f'{one} {lane}' for lane in range(e.lanes))}>"
    if isinstance(e.stride, ir.Const):
        steps = f"<{', '.join(f'{one} {_wrapped(lane * int(e.stride.value), element)}' for lane in range(e.lanes))}>"
        scaled = steps
    else:
        scaled = w.op(f"mul {t} {steps}, {x.splat(stride, element, e.lanes)}")
    if _integer_literal(e.base) == 0 and isinstance(e.stride, ir.Const):
        return steps
    return w.op(f"add {t} {x.splat(base, element, e.lanes)}, {scaled}")


def _wrapped(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value >> (dtype.bits - 1) else value


def _broadcast(x: ExprEmitter, e: ir.Broadcast) -> Rule:
    if isinstance(e.value, ir.Const):
        return literal(e.value.value, e.dtype)
    value = yield e.value
    return x.splat(value, e.value.dtype, e.lanes)


def _load(x: ExprEmitter, e: ir.Load) -> Rule:
    w, (index,) = x.writer, _one_index(e)
    element = e.buffer.dtype
    if e.dtype.lanes == 1:
        return (yield from _load_scalar(x, e, index))
    mask = None if e.predicate is None else x.mask(e.predicate, e.dtype.lanes)
    ramp = x.as_ramp(index) if index.dtype.lanes > 1 else (index, 0)
    stored = memory_type(e.dtype)
    zero = f"{stored} zeroinitializer"
    if ramp is not None and ramp[1] == 1:
        if mask is None:
            pointer = x.address(e.buffer, ramp[0])
            return x.from_memory(w.op(f"load {stored}, ptr {pointer}, align {element.nbytes}"), e.dtype)
        if is_whole_register(e.buffer, ramp[0], e.dtype.lanes):
            whole = w.op(f"load {stored}, ptr {x.address(e.buffer, ramp[0])}, align {element.nbytes}")
            bits = vector_of("i1", e.dtype.lanes)
            return x.from_memory(w.op(f"select {bits} {mask}, {stored} {whole}, {zero}"), e.dtype)
        pointer = x.address(e.buffer, ramp[0], inbounds=False)
        name = f"llvm.masked.load.{_memory_suffix(e.dtype)}.p0"
        args = [("ptr", pointer), (vector_of("i1", e.dtype.lanes), mask), _pair(zero)]
        return x.from_memory(w.intrinsic(name, stored, args, (f"align {element.nbytes}",)), e.dtype)
    if ramp is not None and ramp[1] in (2, -1) and mask is None and e.dtype.lanes > 2:
        return _load_shuffled(x, e, *ramp)
    if ramp is not None and ramp[1] == 0 and mask is None:
        scalar = memory_type(element)
        value = w.op(f"load {scalar}, ptr {x.address(e.buffer, ramp[0])}, align {element.nbytes}")
        return x.splat(x.from_memory(value, element), element, e.dtype.lanes)
    pointers = x.addresses(e.buffer, index) if index.dtype.lanes > 1 else _splat_pointer(x, e, index)
    name = f"llvm.masked.gather.{_memory_suffix(e.dtype)}.v{e.dtype.lanes}p0"
    args = [
        (vector_of("ptr", e.dtype.lanes), pointers),
        (vector_of("i1", e.dtype.lanes), mask or literal(True, dtypes.bool_.with_lanes(e.dtype.lanes))),
        _pair(zero),
    ]
    return x.from_memory(w.intrinsic(name, stored, args, (f"align {element.nbytes}",)), e.dtype)


def is_whole_register(buffer: Buffer, base: Expr, lanes: int) -> bool:
    """Whether all lanes from `base` on lie in a register buffer: then a mask selects values and not places, so that the
    buffer can become registers."""
    size = _integer_literal(buffer.shape[0])
    begin = _integer_literal(base)
    return buffer.scope == "register" and size is not None and begin is not None and 0 <= begin <= size - lanes


def _load_shuffled(x: ExprEmitter, e: ir.Load, base: Expr, stride: int) -> str:
    """A strided load as plain loads and a shuffle; they touch nothing beyond the first and the last lane."""
    w, n, stored, align = x.writer, e.dtype.lanes, memory_type(e.dtype), e.buffer.dtype.nbytes
    if stride == -1:
        only = w.op(f"load {stored}, ptr {x.address(e.buffer, base - (n - 1))}, align {align}")
        lanes, other = range(n - 1, -1, -1), "poison"
    else:
        # lanes 0, 2, ... of the first n elements, and of the n elements that end at the last lane's
        only = w.op(f"load {stored}, ptr {x.address(e.buffer, base)}, align {align}")
        other = w.op(f"load {stored}, ptr {x.address(e.buffer, base + (n - 1))}, align {align}")
        lanes = [2 * lane if 2 * lane < n else n + 2 * lane - (n - 1) for lane in range(n)]  # type: ignore[assignment]
    mask = f"<{n} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
    return x.from_memory(w.op(f"shufflevector {stored} {only}, {stored} {other}, {mask}"), e.dtype)


def _splat_pointer(x: ExprEmitter, e: ir.Load, index: Expr) -> str:
    vector = vector_of("ptr", e.dtype.lanes)
    pointer = x.address(e.buffer, index, inbounds=False)
    first = x.writer.op(f"insertelement {vector} poison, ptr {pointer}, i64 0")
    lanes = vector_of("i32", e.dtype.lanes)
    return x.writer.op(f"shufflevector {vector} {first}, {vector} poison, {lanes} zeroinitializer")


def _load_scalar(x: ExprEmitter, e: ir.Load, index: Expr) -> Rule:
    element = e.buffer.dtype
    if e.predicate is not None and not (isinstance(e.predicate, ir.Const) and e.predicate.value):
        condition = yield e.predicate
        return (
            yield from _branches(x, condition, ir.Load(e.buffer, e.indices, e.dtype), ir.const(0, e.dtype), e.dtype)
        )
    pointer = x.address(e.buffer, index)
    value = x.writer.op(f"load {memory_type(element)}, ptr {pointer}, align {element.nbytes}")
    return x.from_memory(value, element)


def _one_index(e: ir.Load) -> tuple[Expr, ...]:
    if len(e.indices) != 1:
        raise InternalError(f"{e.buffer.name} is read with {len(e.indices)} indices; the flat form has one")
    return e.indices


def _memory_suffix(dtype: DType) -> str:
    return suffix(DType("uint", dtype.bits, dtype.lanes)) if dtype.is_bool else suffix(dtype)


def _pair(text: str) -> tuple[str, str]:
    t, _, value = text.rpartition(" ")
    return t, value


def _call(x: ExprEmitter, e: ir.Call) -> Rule:
    if e.name == "address":
        load = e.args[0]
        assert isinstance(load, ir.Load)
        return x.writer.op(f"ptrtoint ptr {x.address(load.buffer, load.indices[0], inbounds=False)} to i64")
    if e.name == "pack4" and (word := _packed_load(x, e)) is not None:
        return word
    args: list[str] = []
    for a in e.args:
        args.append((yield a))
    rule = _CALLS.get(e.name)
    if rule is None:
        raise InternalError(f"the intrinsic {e.name} is not primitive: it must be expanded before code generation")
    return rule(x, e, args)


def _packed_load(x: ExprEmitter, e: ir.Call) -> str | None:
    """Four neighbouring bytes of memory, in each lane four after those of the lane before, as one load of words."""
    loads = [a for a in e.args if isinstance(a, ir.Load) and a.predicate is None]
    if len(loads) < 4 or any(a.buffer is not loads[0].buffer for a in loads):
        return None
    if loads[0].buffer.scope == "register":
        return None
    bases: list[Expr] = []
    for a in loads:
        ramp = x.as_ramp(a.indices[0]) if e.dtype.lanes > 1 else (a.indices[0], 4)
        if ramp is None or ramp[1] != 4:
            return None
        bases.append(ramp[0])
    for number, base in enumerate(bases):
        distance = simplify(ir.sub(base, bases[0]))
        if not (isinstance(distance, ir.Const) and distance.value == number):
            return None
    pointer = x.address(loads[0].buffer, bases[0])
    return x.writer.op(f"load {memory_type(e.dtype)}, ptr {pointer}, align 1")


def _rounding(x: ExprEmitter, e: ir.Call, args: list[str]) -> str:
    return arithmetic.rounding(x.writer, e.name, args[0], e.dtype, x.target)


_CALLS: dict[str, Callable[[ExprEmitter, ir.Call, list[str]], str]] = {
    "floor": _rounding,
    "ceil": _rounding,
    "trunc": _rounding,
    "round": _rounding,
    "sqrt": lambda x, e, args: arithmetic.square_root(x.writer, args[0], e.dtype, x.target),
    "abs": lambda x, e, args: arithmetic.absolute(x.writer, args[0], e.dtype),
    "copysign": lambda x, e, args: arithmetic.copy_sign(x.writer, args[0], args[1], e.dtype),
    "isnan": lambda x, e, args: arithmetic.is_nan(x.writer, args[0], e.args[0].dtype, x.target),
    "isinf": lambda x, e, args: arithmetic.is_infinite(x.writer, args[0], e.args[0].dtype, x.target),
    "pack4": lambda x, e, args: arithmetic.pack4(x.writer, args, e.args[0].dtype),
    "dot4_i8": lambda x, e, args: arithmetic.dot4(x.writer, args[0], args[1], args[2], e.dtype, x.target),
    "dot4_s8": lambda x, e, args: arithmetic.dot4_signed(x.writer, args[0], args[1], args[2], e.dtype),
    "reinterpret": lambda x, e, args: arithmetic.reinterpret(x.writer, args[0], e.args[0].dtype, e.dtype),
}
_PURE_CALLS = frozenset(_CALLS)

_RULES: dict[type, Callable[..., Rule]] = {
    ir.Add: _binary("add"),
    ir.Sub: _binary("sub"),
    ir.Mul: _binary("mul"),
    ir.Div: _binary("div"),
    ir.BitAnd: _binary("and"),
    ir.BitOr: _binary("or"),
    ir.BitXor: _binary("xor"),
    ir.And: _binary("and"),
    ir.Or: _binary("or"),
    ir.FloorDiv: _division("floordiv"),
    ir.FloorMod: _division("floormod"),
    ir.TruncDiv: _division("truncdiv"),
    ir.TruncMod: _division("truncmod"),
    ir.Min: _extremum("min"),
    ir.Max: _extremum("max"),
    ir.EQ: _compare("eq"),
    ir.NE: _compare("ne"),
    ir.LT: _compare("lt"),
    ir.LE: _compare("le"),
    ir.ShiftLeft: _shift("shift_left"),
    ir.ShiftRight: _shift("shift_right"),
    ir.Not: _not,
    ir.Fma: _fma,
    ir.Select: _select,
    ir.IfThenElse: _if_then_else,
    ir.Cast: _cast,
    ir.Let: _let,
    ir.Ramp: _ramp,
    ir.Broadcast: _broadcast,
    ir.Load: _load,
    ir.Call: _call,
}
