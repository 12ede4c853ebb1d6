"""Intrinsics: the named functions that expressions may call, as one table.

A *primitive* intrinsic is implemented by the interpreter and by every code generator. Any other one is *expanded*:
a Tensor IR expression (usually a polynomial) that the pass `expand_intrinsics` puts in its place, so that interpreter,
constant folding and code generators compute the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorir import dtypes
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import ExpressionError
from tensorir.expr import Call, Expr, as_expr, match_types


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One entry: `kinds` are the accepted operand kinds, `result` maps operand types to the result type, `expand`
    gives the expression in its place (None for a primitive)."""

    name: str
    arity: int
    kinds: tuple[str, ...]
    result: Callable[..., DType]
    expand: Callable[..., Expr] | None = None
    effect: bool = False


INTRINSICS: dict[str, Intrinsic] = {}
FLOATS = ("float", "bfloat")
NUMBERS = ("float", "bfloat", "int", "uint")


def _same(t: DType, *_: DType) -> DType:
    return t


def _bool_like(t: DType, *_: DType) -> DType:
    return dtypes.bool_.with_lanes(t.lanes)


def register(intrinsic: Intrinsic) -> Intrinsic:
    """Adds an intrinsic to the table."""
    INTRINSICS[intrinsic.name] = intrinsic
    return intrinsic


def expander(name: str) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    """Decorator: the function gives the expression that stands for calls of the intrinsic `name`."""

    def attach(function: Callable[..., Expr]) -> Callable[..., Expr]:
        old = INTRINSICS[name]
        INTRINSICS[name] = Intrinsic(old.name, old.arity, old.kinds, old.result, function, old.effect)
        return function

    return attach


for _name in ("sqrt", "floor", "ceil", "trunc", "round"):  # round: half to even
    register(Intrinsic(_name, 1, FLOATS, _same))
register(Intrinsic("abs", 1, NUMBERS, _same))
register(Intrinsic("copysign", 2, FLOATS, _same))
register(Intrinsic("isnan", 1, FLOATS, _bool_like))
register(Intrinsic("isinf", 1, FLOATS, _bool_like))
for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "rsqrt",
):  # fmt: skip
    register(Intrinsic(_name, 1, FLOATS, _same))
register(Intrinsic("pow", 2, NUMBERS, _same))


register(Intrinsic("pack4", 4, ("int", "uint"), lambda t, *_: dtypes.uint32.with_lanes(t.lanes)))
for _name in ("dot4_i8", "dot4_s8"):
    register(Intrinsic(_name, 3, ("int", "uint"), lambda t, *_: dtypes.int32.with_lanes(t.lanes)))


def call(name: str, *args: Any) -> Expr:
    """A call of the intrinsic `name`, checked against the table. Raises `ExpressionError`."""
    entry = INTRINSICS[name]
    if len(args) == 2:
        operands: tuple[Expr, ...] = match_types(args[0], args[1], name)
    else:
        operands = tuple(as_expr(a) for a in args)
    if len(operands) != entry.arity:
        raise ExpressionError(f"{name}: takes {entry.arity} operands, not {len(operands)}")
    for operand in operands:
        if operand.dtype.kind not in entry.kinds:
            raise ExpressionError(
                f"{name}: not defined on {operand.dtype}",
                help=f"cast the operand to one of the kinds {', '.join(entry.kinds)} first",
            )
    return Call(name, operands, entry.result(*[o.dtype for o in operands]))


def _unary(name: str) -> Callable[[Any], Expr]:
    def build(x: Any) -> Expr:
        return call(name, x)

    build.__name__ = name
    build.__doc__ = f"{name} of a float expression, elementwise."
    return build


sqrt = _unary("sqrt")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
round_ = _unary("round")
isnan = _unary("isnan")
isinf = _unary("isinf")
exp = _unary("exp")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
log = _unary("log")
log2 = _unary("log2")
log1p = _unary("log1p")
tanh = _unary("tanh")
sigmoid = _unary("sigmoid")
erf = _unary("erf")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
rsqrt = _unary("rsqrt")


def abs_(x: Any) -> Expr:
    """Absolute value; the lowest signed integer stays itself (wraps)."""
    e = as_expr(x)
    return e if e.dtype.kind in ("uint", "bool") else call("abs", e)


def pow_(x: Any, y: Any) -> Expr:
    """x to the power y; integer powers wrap and negative integer exponents follow numpy: see the semantics page."""
    return call("pow", x, y)


def copysign(x: Any, y: Any) -> Expr:
    """The magnitude of x with the sign of y."""
    return call("copysign", x, y)


def reinterpret(x: Any, dtype: DType | str) -> Expr:
    """The same bits as another type of the same width."""
    e, t = as_expr(x), dtype_of(dtype)
    if e.dtype.bits != t.bits or e.dtype.is_bool or t.is_bool:
        raise ExpressionError(f"reinterpret: {e.dtype} and {t} have different widths", help="use .astype to convert")
    return e if e.dtype == t else Call("reinterpret", (e,), t.with_lanes(e.dtype.lanes))


register(Intrinsic("reinterpret", 1, NUMBERS, _same))
register(Intrinsic("address", 1, ("bool", *NUMBERS), lambda t: dtypes.uint64))
register(Intrinsic("prefetch", 1, ("bool", *NUMBERS), lambda t: dtypes.int32, None, True))
register(Intrinsic("barrier", 0, (), lambda: dtypes.int32, None, True))

SHUFFLES = ("shuffle", "shuffle_down")
"""Values of other lanes of a warp: shuffle(value, lane, valid, width) and shuffle_down(value, distance, valid, width).
The threads of a block in order of their number (x runs fastest) form segments of `width` lanes, a power of two; all
threads of a segment come together, and each gets the value that the lane `lane` of its segment (or the lane `distance`
above its own) brings, where `valid` holds; elsewhere the result means nothing. They exist in kernels in thread form."""

for _name in SHUFFLES:
    register(Intrinsic(_name, 4, ("bool", *NUMBERS), _same))


register(Intrinsic("async_copy", 1, ("bool", *NUMBERS), _same))
register(Intrinsic("copy_commit", 0, (), lambda: dtypes.int32, None, True))
register(Intrinsic("copy_wait", 1, ("int",), lambda *_: dtypes.int32, None, True))
"""`async_copy(x)` is x. In a kernel in thread form a store of it to shared memory is only begun: it is done once its
thread has made what it began since the last time a group (copy_commit) and waited until at most so many of its groups
are not done (copy_wait)."""

MATRIX = {"mma_fill": 3, "mma_load": 4, "mma_store": 4, "mma_sync": 8}
"""The matrix instructions (see `tensorir.matrix`) and how many operands they take."""

for _name, _arity in MATRIX.items():
    register(Intrinsic(_name, _arity, ("bool", *NUMBERS), lambda *_: dtypes.int32, None, True))


def async_copy(x: Any) -> Expr:
    """x, which a GPU copies from global to shared memory while its threads go on."""
    return call("async_copy", x)


def pack4(a: Any, b: Any, c: Any, d: Any) -> Expr:
    """Four values of one 8-bit type as the bytes of a uint32, `a` the lowest."""
    operands = tuple(as_expr(x) for x in (a, b, c, d))
    if any(x.dtype.bits != 8 or x.dtype.is_bool or x.dtype != operands[0].dtype for x in operands):
        found = ", ".join(str(x.dtype) for x in operands)
        raise ExpressionError(f"pack4: takes four values of one 8-bit type, not {found}")
    return call("pack4", *operands)


def dot4_i8(total: Any, a: Any, b: Any) -> Expr:
    """`total` (int32) plus the products of the four uint8 in `a` with the four int8 in `b` (both packed as uint32 by
    `pack4`); exact but for int32 wrapping, the same on every target."""
    return _dot4("dot4_i8", total, a, b)


def dot4_s8(total: Any, a: Any, b: Any) -> Expr:
    """As `dot4_i8`, but the bytes of `a` are int8 too."""
    return _dot4("dot4_s8", total, a, b)


def _dot4(name: str, *given: Any) -> Expr:
    operands = tuple(as_expr(x) for x in given)
    for operand, wanted in zip(operands, (dtypes.int32, dtypes.uint32, dtypes.uint32), strict=True):
        if operand.dtype.element != wanted:
            raise ExpressionError(
                f"{name}: takes int32, uint32 and uint32, not {operand.dtype}", help="pack bytes with te.pack4"
            )
    return call(name, *operands)
