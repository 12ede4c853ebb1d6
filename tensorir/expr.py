"""Expressions of Tensor IR: nodes that hold data only, and the operators that build them.

Nodes are immutable and hashed by identity. `==` and the other comparisons BUILD expressions; the truth value of an
expression raises. Inside the compiler compare with `is` or `tensorir.equality.structural_equal`.
Every node carries its `dtype` (with lanes), so that no visitor has to recompute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import numpy as np

from tensorir import dtypes
from tensorir.dtypes import DType, dtype_of, promote
from tensorir.errors import ExpressionError

if TYPE_CHECKING:
    from tensorir.buffer import Buffer
    from tensorir.reducer import Reducer


class Operators:
    """Python operators on anything that stands for an expression."""

    __slots__ = ()

    def __add__(self, other: Any) -> Expr:
        return add(self, other)

    def __radd__(self, other: Any) -> Expr:
        return add(other, self)

    def __sub__(self, other: Any) -> Expr:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Expr:
        return sub(other, self)

    def __mul__(self, other: Any) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Expr:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Expr:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return div(other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> Expr:
        return floormod(self, other)

    def __rmod__(self, other: Any) -> Expr:
        return floormod(other, self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __and__(self, other: Any) -> Expr:
        return bitwise_and(self, other)

    def __rand__(self, other: Any) -> Expr:
        return bitwise_and(other, self)

    def __or__(self, other: Any) -> Expr:
        return bitwise_or(self, other)

    def __ror__(self, other: Any) -> Expr:
        return bitwise_or(other, self)

    def __xor__(self, other: Any) -> Expr:
        return bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Expr:
        return bitwise_xor(other, self)

    def __invert__(self) -> Expr:
        return bitwise_not(self)

    def __lshift__(self, other: Any) -> Expr:
        return shift_left(self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return shift_left(other, self)

    def __rshift__(self, other: Any) -> Expr:
        return shift_right(self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return shift_right(other, self)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return equal(self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return not_equal(self, other)

    def __lt__(self, other: Any) -> Expr:
        return less(self, other)

    def __le__(self, other: Any) -> Expr:
        return less_equal(self, other)

    def __gt__(self, other: Any) -> Expr:
        return less(other, self)

    def __ge__(self, other: Any) -> Expr:
        return less_equal(other, self)

    def __bool__(self) -> bool:
        raise ExpressionError(
            f"the truth value of the expression {self!r} is not known while the program is being built",
            help="use te.select(condition, a, b) for `if`, te.all(a, b) for `and` and a < x < b, te.any(a, b) for `or`,"
            " te.logical_not(a) for `not`, te.maximum and te.minimum for max and min",
        )

    __hash__ = object.__hash__  # by identity, without a Python call: nodes are dictionary keys everywhere

    def __abs__(self) -> Expr:
        return absolute(self)

    def __pow__(self, other: Any) -> Expr:
        return power(self, other)

    def __rpow__(self, other: Any) -> Expr:
        return power(other, self)

    def __round__(self, digits: int | None = None) -> Expr:
        if digits is not None:
            raise ExpressionError("round: an expression is rounded to whole numbers only", help="leave the digits out")
        return rounded(self)

    def __float__(self) -> float:
        raise self._no_number("float", 'te.cast(x, "float32") converts it; te.exp, te.sqrt, ... take it as it is')

    def __int__(self) -> int:
        raise self._no_number("int", 'te.cast(x, "int32") converts it')

    def __index__(self) -> int:
        raise self._no_number(
            "index",
            "only tensors are indexed by expressions: pass the values of a list or an array in a te.placeholder; in"
            " place of range(n) use te.reduce_axis(n)",
        )

    def _no_number(self, wanted: str, help: str) -> ExpressionError:
        as_expr(self)
        what = "a whole number" if wanted != "float" else "a number"
        return ExpressionError(
            f"Python wants {what} here, but the value of the expression {self!r} is not known while the program is"
            " being built",
            help=help,
        )

    def __iter__(self) -> Any:
        raise ExpressionError(
            f"the expression {self!r} is one value and cannot be iterated over or unpacked",
            help="a sum over an axis is te.sum(value, axis=k) with k = te.reduce_axis(extent)",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Expr:
        """numpy's operators on a numpy scalar and an expression; its functions are refused."""
        operator = _UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        if operator is None:
            raise ExpressionError(
                f"numpy.{ufunc.__name__} computes numbers, and the value of {self!r} is not known while the program is"
                " being built",
                help=f"use te.{ufunc.__name__}" if ufunc.__name__ in _TE_NAMES else "use the functions of te",
            )
        return operator(*inputs)  # type: ignore[no-any-return]

    def astype(self, dtype: DType | str) -> Expr:
        """This value converted to `dtype` by the cast rules of the semantics page."""
        return cast(self, dtype)


class Expr(Operators):
    """Base of all expression nodes. Subclasses are frozen dataclasses with a `dtype` field."""

    __slots__ = ()
    dtype: DType

    def __repr__(self) -> str:
        from tensorir.printer import expr_text  # the printer imports this module

        return expr_text(self)


_Node = TypeVar("_Node")


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[_Node]) -> type[_Node]:
    """Class decorator of every IR node: frozen, slotted, compared and hashed by identity, repr kept."""
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


# --------------------------------------------------------------------------------------------------------- leaves


@node
class Var(Expr):
    """A named scalar: loop variable, dimension, block variable or let-bound value. Identity is the variable."""

    name: str
    dtype: DType = dtypes.INDEX


@node
class Const(Expr):
    """A literal: `value` is a Python bool, int or float already representable in `dtype` (scalar)."""

    value: bool | int | float
    dtype: DType


# ------------------------------------------------------------------------------------------------------ operators


@node
class Binary(Expr):
    """Base of binary operators; both operands have the same dtype."""

    a: Expr
    b: Expr
    dtype: DType


class Add(Binary):
    """a + b; integers wrap."""

    __slots__ = ()


class Sub(Binary):
    """a - b; integers wrap."""

    __slots__ = ()


class Mul(Binary):
    """a * b; integers wrap."""

    __slots__ = ()


class Div(Binary):
    """IEEE division of floats."""

    __slots__ = ()


class FloorDiv(Binary):
    """Integer division rounded to minus infinity (floats: floor(a / b) by numpy's rule)."""

    __slots__ = ()


class FloorMod(Binary):
    """Remainder with the sign of the divisor."""

    __slots__ = ()


class TruncDiv(Binary):
    """Integer division rounded to zero."""

    __slots__ = ()


class TruncMod(Binary):
    """Remainder with the sign of the dividend (floats: fmod)."""

    __slots__ = ()


class Min(Binary):
    """Smaller operand; NaN if either is NaN."""

    __slots__ = ()


class Max(Binary):
    """Larger operand; NaN if either is NaN."""

    __slots__ = ()


class BitAnd(Binary):
    """Bitwise and of integers."""

    __slots__ = ()


class BitOr(Binary):
    """Bitwise or of integers."""

    __slots__ = ()


class BitXor(Binary):
    """Bitwise exclusive or of integers."""

    __slots__ = ()


class ShiftLeft(Binary):
    """a << b; amounts outside [0, bits) give 0."""

    __slots__ = ()


class ShiftRight(Binary):
    """a >> b, arithmetic for signed; amounts outside [0, bits) give 0, or -1 for a negative signed a."""

    __slots__ = ()


class Compare(Binary):
    """Base of comparisons: dtype is bool, operands share a dtype of their own."""

    __slots__ = ()


class EQ(Compare):
    """a == b."""

    __slots__ = ()


class NE(Compare):
    """a != b; true if either is NaN."""

    __slots__ = ()


class LT(Compare):
    """a < b."""

    __slots__ = ()


class LE(Compare):
    """a <= b."""

    __slots__ = ()


class And(Binary):
    """Logical and of bools; both sides are evaluated (no side effects exist in expressions)."""

    __slots__ = ()


class Or(Binary):
    """Logical or of bools."""

    __slots__ = ()


@node
class Not(Expr):
    """Logical not of a bool."""

    a: Expr
    dtype: DType = dtypes.bool_


@node
class Fma(Expr):
    """a * b + c with one rounding. Made only when a compute becomes its block, or by an author; never by a pass."""

    a: Expr
    b: Expr
    c: Expr
    dtype: DType


@node
class Select(Expr):
    """`condition ? a : b`; both sides may be evaluated, so both must be safe to evaluate."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType


@node
class IfThenElse(Expr):
    """`condition ? a : b`; only the chosen side is evaluated, so it may guard a load."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType


@node
class Cast(Expr):
    """Conversion by the semantics page (float to integer wraps through a wide integer; NaN and infinity give 0)."""

    value: Expr
    dtype: DType


@node
class Let(Expr):
    """`value` bound to `var` inside `body`."""

    var: Var
    value: Expr
    body: Expr
    dtype: DType


@node
class Call(Expr):
    """A named intrinsic of `tensorir.intrinsics` (exp, sqrt, isnan, reinterpret, ...)."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@node
class Load(Expr):
    """`buffer[indices]`; with a vector index it is a vector load. Lanes whose `predicate` is false give 0."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: DType
    predicate: Expr | None = None


@node
class Ramp(Expr):
    """The vector base, base + stride, ..., of `lanes` integers."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: DType


@node
class Broadcast(Expr):
    """A scalar repeated in every lane."""

    value: Expr
    lanes: int
    dtype: DType


@node
class Reduce(Expr):
    """A reduction over `axes`; only the outermost expression of a compute may be one. `index` picks the output of a
    reducer with several values; where `condition` is false the element is left out."""

    reducer: Reducer
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr | None
    index: int
    dtype: DType


@node
class IterVar(Operators):
    """An iteration variable: `var` runs over begin .. begin + extent. Kinds: spatial, reduce, opaque.

    It stands for its variable wherever an expression is wanted.
    """

    var: Var
    begin: Expr
    extent: Expr
    kind: str

    def __repr__(self) -> str:
        return f"{self.var.name}: {self.kind} {self.begin!r}..+{self.extent!r}"

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.var.name


# -------------------------------------------------------------------------------------------------------- builders


def const(value: Any, dtype: DType | str | None = None) -> Const:
    """A literal of `dtype` (default: bool for bool, the index type for int, float32 for float).

    Integers wrap into the type, floats round to it. Raises `ExpressionError` for NaN in an integer type.
    """
    if isinstance(value, np.generic):
        if dtype is None:
            dtype = dtype_of(value.dtype)
        value = value.item() if value.dtype.kind != "V" else float(value)
    if dtype is None:
        dtype = dtypes.bool_ if isinstance(value, bool) else dtypes.INDEX if isinstance(value, int) else dtypes.float32
    t = dtype_of(dtype)
    if t.lanes != 1:
        raise ExpressionError(f"a literal is a scalar, not {t}", help="wrap it in a broadcast")
    if t.is_bool:
        return Const(bool(value), t)
    if t.is_integer:
        if isinstance(value, float):
            if value != int(value):
                raise ExpressionError(f"the literal {value!r} is not a whole number, but {t} is wanted")
            value = int(value)
        value = int(value) & ((1 << t.bits) - 1)
        if t.kind == "int" and value >> (t.bits - 1):
            value -= 1 << t.bits
        return Const(value, t)
    with np.errstate(over="ignore"):
        return Const(float(np.float64(value)) if t.bits == 64 else float(t.numpy.type(value)), t)


def as_expr(value: Any, dtype: DType | None = None) -> Expr:
    """`value` as an expression: expressions as they are, an IterVar as its variable, a 0-d tensor as its element,
    Python and numpy scalars as literals of `dtype` (or of their natural type)."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, IterVar):
        return value.var
    if isinstance(value, (bool, int, float, np.generic)):
        return const(value, dtype)
    scalar_element = getattr(value, "scalar_element", None)
    if scalar_element is not None:
        return scalar_element()
    shown = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
    raise ExpressionError(
        f"{shown} of type {type(value).__name__} cannot stand in an expression",
        help=_INSTEAD.get(type(value).__name__, "use numbers, axes, elements of tensors, and what te makes of them"),
    )


_INSTEAD = {
    "NoneType": "does the function return its value on every path?",
    "str": "write the Python variable that holds the axis or the tensor, without quotes",
    "slice": "a read takes one element: give an index for each dimension",
    "ellipsis": "a read takes one element: give an index for each dimension",
    "ndarray": "declare it with te.placeholder(shape, dtype) and pass the array when the kernel is called",
    "function": "call the function",
}


_TE_NAMES = frozenset((
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
    "ceil", "trunc", "isnan", "isinf",
))  # fmt: skip


def _is_literal(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def _literal_type(value: bool | int | float, other: DType) -> DType:
    """The type a Python literal takes beside an operand of type `other`."""
    if other.is_bool:
        return dtypes.bool_ if isinstance(value, bool) else dtypes.INDEX if isinstance(value, int) else dtypes.float32
    if isinstance(value, float) and other.is_integer:
        return dtypes.float32
    return other.element


def match_types(a: Any, b: Any, op: str) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype: literals follow the other operand, others are promoted."""
    if _is_literal(a) and not _is_literal(b):
        y = as_expr(b)
        x: Expr = const(a, _literal_type(a, y.dtype))
    elif _is_literal(b) and not _is_literal(a):
        x = as_expr(a)
        y = const(b, _literal_type(b, x.dtype))
    else:
        x, y = as_expr(a), as_expr(b)
    if x.dtype == y.dtype:
        return x, y
    try:
        t = promote(x.dtype, y.dtype)
    except ExpressionError as error:
        raise ExpressionError(f"{op}: {error.message}", help=error.help) from None
    return cast(x, t), cast(y, t)


def _fold(cls: type, x: Expr, y: Expr) -> Expr | None:
    """Folds whole-number literals, so that index arithmetic stays small; floats are left to the simplifier."""
    if not (isinstance(x, Const) and isinstance(y, Const) and x.dtype.is_integer):
        return None
    p, q = int(x.value), int(y.value)
    fold = _INTEGER_FOLDS.get(cls)
    if fold is None or (q == 0 and cls in (FloorDiv, FloorMod, TruncDiv, TruncMod)):
        return None
    result = fold(p, q)
    return const(result, dtypes.bool_ if issubclass(cls, Compare) else x.dtype)


def _trunc_div(p: int, q: int) -> int:
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


_INTEGER_FOLDS: dict[type, Any] = {
    Add: lambda p, q: p + q,
    Sub: lambda p, q: p - q,
    Mul: lambda p, q: p * q,
    FloorDiv: lambda p, q: p // q,
    FloorMod: lambda p, q: p % q,
    TruncDiv: _trunc_div,
    TruncMod: lambda p, q: p - q * _trunc_div(p, q),
    Min: min,
    Max: max,
    EQ: lambda p, q: p == q,
    NE: lambda p, q: p != q,
    LT: lambda p, q: p < q,
    LE: lambda p, q: p <= q,
}


def _is_const(x: Expr, value: int) -> bool:
    return isinstance(x, Const) and x.dtype.is_integer and x.value == value


def _arithmetic(cls: type, a: Any, b: Any, op: str, *, allow_bool: bool = False) -> Expr:
    x, y = match_types(a, b, op)
    if x.dtype.is_bool and not allow_bool:
        raise ExpressionError(
            f"{op}: operands are bool", help="cast them to a number with .astype(...) or use the logical operators"
        )
    folded = _fold(cls, x, y)
    return folded if folded is not None else cls(x, y, x.dtype)


def add(a: Any, b: Any) -> Expr:
    """a + b."""
    x, y = match_types(a, b, "add")
    if x.dtype.is_integer:
        if _is_const(x, 0):
            return y
        if _is_const(y, 0):
            return x
    return _arithmetic(Add, x, y, "add")


def sub(a: Any, b: Any) -> Expr:
    """a - b."""
    x, y = match_types(a, b, "sub")
    if x.dtype.is_integer and _is_const(y, 0):
        return x
    return _arithmetic(Sub, x, y, "sub")


def mul(a: Any, b: Any) -> Expr:
    """a * b."""
    x, y = match_types(a, b, "mul")
    if x.dtype.is_integer:
        if _is_const(x, 1) or _is_const(y, 0):
            return y
        if _is_const(y, 1) or _is_const(x, 0):
            return x
    return _arithmetic(Mul, x, y, "mul")


def div(a: Any, b: Any) -> Expr:
    """a / b of floats; integers must choose `//` (floor) or `truncdiv`."""
    x, y = match_types(a, b, "div")
    if not x.dtype.is_float:
        raise ExpressionError(
            f"div: `/` of {x.dtype} operands is ambiguous",
            help="use // (floor), te.truncdiv(a, b) (toward zero), or cast to a float first",
        )
    return Div(x, y, x.dtype)


def floordiv(a: Any, b: Any) -> Expr:
    """a // b, rounded to minus infinity."""
    x, y = match_types(a, b, "floordiv")
    if x.dtype.is_integer and _is_const(y, 1):
        return x
    return _arithmetic(FloorDiv, x, y, "floordiv")


def floormod(a: Any, b: Any) -> Expr:
    """a % b, with the sign of b."""
    x, y = match_types(a, b, "floormod")
    if x.dtype.is_integer and _is_const(y, 1):
        return const(0, x.dtype) if x.dtype.lanes == 1 else _zeros(x)
    return _arithmetic(FloorMod, x, y, "floormod")


def _zeros(x: Expr) -> Expr:
    return Broadcast(const(0, x.dtype.element), x.dtype.lanes, x.dtype)


def truncdiv(a: Any, b: Any) -> Expr:
    """a / b of integers, rounded to zero as C does."""
    return _arithmetic(TruncDiv, a, b, "truncdiv")


def truncmod(a: Any, b: Any) -> Expr:
    """Remainder with the sign of a, as C's % (fmod for floats)."""
    return _arithmetic(TruncMod, a, b, "truncmod")


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two values; NaN if either is NaN."""
    return _arithmetic(Min, a, b, "min", allow_bool=True)


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two values; NaN if either is NaN."""
    return _arithmetic(Max, a, b, "max", allow_bool=True)


def neg(a: Any) -> Expr:
    """-a (floats: the sign bit flips, so -(0.0) is -0.0)."""
    x = as_expr(a)
    if x.dtype.is_float:
        return (
            mul(x, const(-1.0, x.dtype.element))
            if x.dtype.lanes == 1
            else Mul(x, Broadcast(const(-1.0, x.dtype.element), x.dtype.lanes, x.dtype), x.dtype)
        )
    return sub(const(0, x.dtype.element), x)


def absolute(a: Any) -> Expr:
    """abs(a)."""
    x = as_expr(a)
    return x if x.dtype.kind in ("uint", "bool") else Call("abs", (x,), x.dtype)


def power(a: Any, b: Any) -> Expr:
    """a ** b."""
    x, y = match_types(a, b, "pow")
    if x.dtype.is_bool:
        raise ExpressionError("pow: not defined on bool", help="cast to a number first, with .astype('int32')")
    return Call("pow", (x, y), x.dtype)


def rounded(a: Any) -> Expr:
    """round(a), half to even."""
    x = as_expr(a)
    return Call("round", (x,), x.dtype) if x.dtype.is_float else x


def _bitwise(cls: type, logical: type, a: Any, b: Any, op: str) -> Expr:
    x, y = match_types(a, b, op)
    if x.dtype.is_bool:
        if cls is BitXor:
            return NE(x, y, dtypes.bool_.with_lanes(x.dtype.lanes))
        return logical(x, y, x.dtype)
    if not x.dtype.is_integer:
        raise ExpressionError(
            f"{op}: needs integers or bools, not {x.dtype}", help="cast to an integer first, with .astype('int32')"
        )
    return cls(x, y, x.dtype)


def bitwise_and(a: Any, b: Any) -> Expr:
    """a & b (logical and on bools)."""
    return _bitwise(BitAnd, And, a, b, "and")


def bitwise_or(a: Any, b: Any) -> Expr:
    """a | b (logical or on bools)."""
    return _bitwise(BitOr, Or, a, b, "or")


def bitwise_xor(a: Any, b: Any) -> Expr:
    """a ^ b (inequality on bools)."""
    return _bitwise(BitXor, Or, a, b, "xor")


def bitwise_not(a: Any) -> Expr:
    """~a (logical not on bools)."""
    x = as_expr(a)
    if x.dtype.is_bool:
        return logical_not(x)
    if not x.dtype.is_integer:
        raise ExpressionError(
            f"invert: needs an integer or bool, not {x.dtype}", help="cast to an integer first, with .astype('int32')"
        )
    return bitwise_xor(x, const(-1, x.dtype.element))


def _shift(cls: type, a: Any, b: Any, op: str) -> Expr:
    x, y = match_types(a, b, op)
    if not x.dtype.is_integer:
        raise ExpressionError(
            f"{op}: needs integers, not {x.dtype}", help="cast to an integer first, with .astype('int32')"
        )
    return cls(x, y, x.dtype)


def shift_left(a: Any, b: Any) -> Expr:
    """a << b."""
    return _shift(ShiftLeft, a, b, "shift_left")


def shift_right(a: Any, b: Any) -> Expr:
    """a >> b."""
    return _shift(ShiftRight, a, b, "shift_right")


def _compare(cls: type, a: Any, b: Any, op: str) -> Expr:
    x, y = match_types(a, b, op)
    folded = _fold(cls, x, y)
    return folded if folded is not None else cls(x, y, dtypes.bool_.with_lanes(x.dtype.lanes))


def equal(a: Any, b: Any) -> Expr:
    """The comparison a == b."""
    return _compare(EQ, a, b, "equal")


def not_equal(a: Any, b: Any) -> Expr:
    """The comparison a != b."""
    return _compare(NE, a, b, "not_equal")


def less(a: Any, b: Any) -> Expr:
    """The comparison a < b."""
    return _compare(LT, a, b, "less")


def less_equal(a: Any, b: Any) -> Expr:
    """The comparison a <= b."""
    return _compare(LE, a, b, "less_equal")


def logical_and(*conditions: Any) -> Expr:
    """True where every condition is; literals fold."""
    result: Expr | None = None
    for condition in conditions:
        x = as_condition(condition)
        if isinstance(x, Const):
            if not x.value:
                return x
            continue
        result = x if result is None else And(result, x, promote(result.dtype, x.dtype))
    return result if result is not None else const(True)


def logical_or(*conditions: Any) -> Expr:
    """True where any condition is; literals fold."""
    result: Expr | None = None
    for condition in conditions:
        x = as_condition(condition)
        if isinstance(x, Const):
            if x.value:
                return x
            continue
        result = x if result is None else Or(result, x, promote(result.dtype, x.dtype))
    return result if result is not None else const(False)


def logical_not(condition: Any) -> Expr:
    """The opposite of a bool."""
    x = as_condition(condition)
    return const(not x.value) if isinstance(x, Const) else Not(x, x.dtype)


def as_condition(value: Any) -> Expr:
    """`value` as a bool expression; a number is compared with zero."""
    x = as_expr(value)
    return x if x.dtype.is_bool else not_equal(x, const(0, x.dtype.element))


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`condition ? a : b` where both sides are safe to evaluate."""
    c = as_condition(condition)
    x, y = match_types(a, b, "select")
    if isinstance(c, Const):
        return x if c.value else y
    return Select(c, x, y, x.dtype)


def if_then_else(condition: Any, a: Any, b: Any) -> Expr:
    """`condition ? a : b`, evaluating only the chosen side: use it to guard a read."""
    c = as_condition(condition)
    x, y = match_types(a, b, "if_then_else")
    if isinstance(c, Const):
        return x if c.value else y
    return IfThenElse(c, x, y, x.dtype)


def cast(value: Any, dtype: DType | str) -> Expr:
    """`value` converted to `dtype`; a scalar going to a vector type is broadcast."""
    x = as_expr(value)
    t = dtype_of(dtype)
    if x.dtype == t:
        return x
    if x.dtype.lanes == 1 and t.lanes > 1:
        return Broadcast(cast(x, t.element), t.lanes, t)
    if t.lanes == 1 and x.dtype.lanes > 1:
        t = t.with_lanes(x.dtype.lanes)
        if x.dtype == t:
            return x
    if isinstance(x, Const):
        if t.is_bool:
            return const(bool(x.value))
        if t.is_float:
            number = float(x.value)
            if t.bits == 16:  # every conversion to a 16-bit float goes through float32
                with np.errstate(over="ignore"):
                    number = float(np.float32(number))
            return const(number, t) if not (x.dtype.is_integer and abs(int(x.value)) > 1 << 53) else Cast(x, t)
        if not x.dtype.is_float:
            return const(int(x.value), t)
    return Cast(x, t)


def fma(a: Any, b: Any, c: Any) -> Expr:
    """a * b + c rounded once, by the author's wish."""
    x, y = match_types(a, b, "fma")
    z, x = match_types(c, x, "fma")
    z, y = match_types(z, y, "fma")
    if not x.dtype.is_float:
        raise ExpressionError(f"fma: needs floats, not {x.dtype}", help="write a * b + c for integers")
    return Fma(x, y, z, x.dtype)


def broadcast(value: Any, lanes: int) -> Expr:
    """A scalar in every one of `lanes` lanes; a vector of that many lanes as it is."""
    x = as_expr(value)
    return x if lanes == 1 or x.dtype.lanes == lanes else Broadcast(x, lanes, x.dtype.with_lanes(lanes))


def ramp(base: Any, stride: Any, lanes: int) -> Expr:
    """The vector base + stride * (0 .. lanes)."""
    x, y = match_types(base, stride, "ramp")
    return x if lanes == 1 else Ramp(x, y, lanes, x.dtype.with_lanes(lanes))


def load(buffer: Buffer, indices: Sequence[Any], predicate: Expr | None = None) -> Load:
    """`buffer[indices]`; the dtype has the lanes of the indices."""
    exprs = tuple(as_expr(i) for i in indices)
    lanes = 1
    for i in exprs:
        lanes = max(lanes, i.dtype.lanes)
    if predicate is not None:
        lanes = max(lanes, predicate.dtype.lanes)
    return Load(buffer, exprs, buffer.dtype.with_lanes(lanes), predicate)


_UFUNCS = {
    "add": add, "subtract": sub, "multiply": mul, "divide": div, "floor_divide": floordiv, "remainder": floormod,
    "maximum": maximum, "minimum": minimum, "equal": equal, "not_equal": not_equal, "less": less,
    "less_equal": less_equal, "greater": lambda a, b: less(b, a), "greater_equal": lambda a, b: less_equal(b, a),
    "bitwise_and": bitwise_and, "bitwise_or": bitwise_or, "bitwise_xor": bitwise_xor, "left_shift": shift_left,
    "right_shift": shift_right,
}  # fmt: skip
"""What numpy's operators on a numpy scalar and an expression mean."""
