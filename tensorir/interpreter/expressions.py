"""How each expression class is written in Python."""

from __future__ import annotations

from tensorir import expr as ir
from tensorir import semantics
from tensorir.errors import InternalError
from tensorir.expr import Var
from tensorir.interpreter import kernels
from tensorir.interpreter.source import Compiler, NotSupportedError, Value, full_interval, literal
from tensorir.intrinsics import SHUFFLES


def _emit_var(c: Compiler, e: Var) -> Value:
    if e in c.vectors:
        return Value(f"{c.vectors[e]}[{c.lane}]", *full_interval(e.dtype), 1)
    if e not in c.names:
        raise InternalError(f"the variable {e.name} is used outside the statement that binds it")
    return c.names[e]


def _emit_const(c: Compiler, e: ir.Const) -> Value:
    bound = int(e.value) if not e.dtype.is_float else 0
    return Value(literal(e.value), bound, bound)


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
        lo, hi = full_interval(t)
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
    return Value(f"({x.code} if {x.code} {symbol} {y.code} else {y.code})", pick(x.lo, y.lo), pick(x.hi, y.hi), 1)


def _emit_bits(c: Compiler, e: ir.Binary) -> Value:
    x, y, t = c.memo[e.a], c.memo[e.b], e.dtype
    lo, hi = full_interval(t)
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
        ends = (t.min_value << t.bits, t.max_value << t.bits) if left else full_interval(t)
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
            return Value(f"float_to_int({code}, {c.dtype(t)})", *full_interval(t), depth)
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
    name, lohi = c.buffers.get(e.buffer), full_interval(e.buffer.dtype)
    if name is None:
        raise InternalError(f"the buffer {e.buffer.name} is read outside its allocation")
    condition = "" if e.predicate is None else (c.atom(e.predicate) if c.checked else c.memo[e.predicate]).code
    if c.checked:
        code = f"{name}.load({c.checked_flat(e.buffer, e.indices, 'read', condition)}, {c.site('read', e)})"
    else:
        code = f"{name}[{c.flat(e.buffer, e.indices)}]"
    if e.predicate is None:
        return Value(code, *lohi, 2)
    zero = "0.0" if e.dtype.is_float else "False" if e.dtype.is_bool else "0"
    return Value(f"({code} if {condition} else {zero})", *lohi, 3)


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
    if e.name == "async_copy":
        return c.memo[e.args[0]]
    if e.name in SHUFFLES:
        return _emit_shuffle(c, e)
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
        return Value(f"{c.constant(f'{s}_as_{r}', semantics.reinterpreter(s, r))}({codes})", *full_interval(r), depth)
    if e.name in ("pack4", "dot4_i8", "dot4_s8"):
        call = f"{c.constant(e.name, getattr(semantics, e.name))}({codes})"
        return Value(call, *full_interval(e.dtype.element), depth)
    if e.name == "abs":
        if t.is_float:
            return Value(f"abs({codes})", 0, 0, depth)
        return c.integer(t, f"abs({codes})", 0, max(abs(args[0].lo), abs(args[0].hi)), depth)
    name, rounds = _CALLS[e.name]
    code = f"{name}({codes})"
    return c.rounded(t, code, depth) if rounds else Value(code, 0, 0, depth)


def _emit_shuffle(c: Compiler, e: ir.Call) -> Value:
    value, lane, valid, width = e.args
    if not c.block_memory:
        raise NotSupportedError("a shuffle stands outside of a kernel in thread form")
    if isinstance(value, ir.Load):
        name = c.buffers[value.buffer]
        place = (
            c.checked_flat(value.buffer, value.indices, "read") if c.checked else c.flat(value.buffer, value.indices)
        )
        brought = f"{name}.peek({place})" if c.checked else f"{name}[{place}]"
    else:
        brought = c.memo[value].code
    down = e.name == "shuffle_down"
    return kernels.write_shuffle(c, brought, c.memo[lane].code, c.memo[valid].code, c.memo[width].code, down, e.dtype)


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

Compiler.EXPRS.update({
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
})  # fmt: skip
