"""Dimensions: integer expressions over named symbols, in one canonical form, so that equal sizes are the same object.

    n = symbol("n")
    canonical(n * 4 + 4 - 4) is canonical(2 * n + 2 * n)      # True

The canonical form is a sum of products of atoms (symbols, and quotients, remainders, minima and maxima of canonical
forms) with whole coefficients, sorted by text. A symbol is a name: there is one variable for each name in a process.
Symbols stand for sizes, so they are never negative.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from tensorir import dtypes, expr
from tensorir.errors import ExpressionError, InternalError
from tensorir.expr import Const, Expr, Var, const
from tensorir.visit import walk_expr

Polynomial = dict[tuple[str, ...], int]
"""Product of atoms (by text, sorted) to its coefficient; the constant stands at the empty product."""

_SYMBOLS: dict[str, Var] = {}
_ATOMS: dict[str, Expr] = {}
_INTERNED: dict[str, Expr] = {}
_POLYNOMIALS: dict[int, tuple[Expr, Polynomial]] = {}


def symbol(name: str) -> Var:
    """The variable of this name; the name is made an identifier first."""
    clean = re.sub(r"\W", "_", name)
    if not clean or clean[0].isdigit():
        clean = f"d{clean}"
    if clean not in _SYMBOLS:
        _SYMBOLS[clean] = Var(clean, dtypes.INDEX)
    return _SYMBOLS[clean]


def as_dim(value: Any) -> Expr:
    """A dimension given as an int, a symbol name, an expression or its text."""
    if isinstance(value, str):
        return parse(value)
    whole = hasattr(value, "__index__") and not isinstance(value, expr.Operators)
    return canonical(expr.as_expr(int(value) if whole else value))


def as_dims(values: Iterable[Any]) -> tuple[Expr, ...]:
    """A shape with every dimension canonical."""
    return tuple(as_dim(v) for v in values)


def canonical(e: Expr) -> Expr:
    """The one object that stands for every expression equal to `e` (as far as the algebra here sees)."""
    return _build(polynomial(e))


def same(a: Expr, b: Expr) -> bool:
    """True if two dimensions are equal for every value of their symbols."""
    return canonical(a) is canonical(b)


def same_shape(a: Iterable[Expr], b: Iterable[Expr]) -> bool:
    """True if two shapes are equal, dimension by dimension."""
    x, y = tuple(a), tuple(b)
    return len(x) == len(y) and all(same(p, q) for p, q in zip(x, y, strict=True))


def constant(e: Expr) -> int | None:
    """The value of a dimension without symbols, else None."""
    c = canonical(e)
    return int(c.value) if isinstance(c, Const) else None


def constants(shape: Iterable[Expr]) -> tuple[int, ...] | None:
    """The sizes of a shape without symbols, else None."""
    sizes = [constant(d) for d in shape]
    return None if any(s is None for s in sizes) else tuple(s for s in sizes if s is not None)


def product(shape: Iterable[Expr]) -> Expr:
    """The number of elements of a shape."""
    result: Expr = const(1)
    for d in shape:
        result = result * d
    return canonical(result)


def symbols_of(e: Expr) -> tuple[Var, ...]:
    """The symbols in a dimension, in first-met order."""
    found: dict[str, Var] = {}
    for n in walk_expr(e):
        if isinstance(n, Var):
            found.setdefault(n.name, n)
    return tuple(found.values())


def is_nonnegative(e: Expr) -> bool:
    """True if a dimension is provably at least 0, symbols being sizes."""
    return all(c >= 0 and all(_atom_is_nonnegative(a) for a in m) for m, c in polynomial(e).items())


def text(e: Expr) -> str:
    """The canonical form as a Python expression over the symbols."""
    return _text(polynomial(e))


def shape_text(shape: Iterable[Expr]) -> str:
    """A shape as it is printed: [n, 3, 2*n]."""
    return f"[{', '.join(text(d) for d in shape)}]"


@cache
def _code(source: str) -> Any:
    return compile(source, "<dimension>", "eval")


_FUNCTIONS: dict[str, Any] = {
    "min": min,
    "max": max,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "truncmod": lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "select": lambda c, a, b: a if c else b,
    "__builtins__": {},
}


def evaluate(e: Expr, values: Mapping[str, int]) -> int:
    """The value of a dimension for given symbols."""
    known = constant(e)
    return known if known is not None else int(eval(_code(text(e)), _FUNCTIONS, dict(values)))


def evaluate_shape(shape: Iterable[Expr], values: Mapping[str, int]) -> tuple[int, ...]:
    """A shape for given symbols."""
    return tuple(evaluate(d, values) for d in shape)


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """A dimension with symbols replaced."""
    from tensorir.visit import substitute as replace

    mapping = {_SYMBOLS[n]: v for n, v in values.items() if n in _SYMBOLS}
    return canonical(replace(canonical(e), mapping))


def parse(source: str) -> Expr:
    """A dimension from its text; raises `ExpressionError` showing it."""
    try:
        return canonical(_from_ast(ast.parse(source.strip(), mode="eval").body, source))
    except SyntaxError:
        raise ExpressionError(
            f"{source!r} is not a dimension", help="write a size, a name, or a formula such as 2*n + 1"
        ) from None


_AST_BINARY: dict[type, Callable[[Any, Any], Expr]] = {
    ast.Add: expr.add,
    ast.Sub: expr.sub,
    ast.Mult: expr.mul,
    ast.FloorDiv: expr.floordiv,
    ast.Mod: expr.floormod,
}
_AST_COMPARE: dict[type, Callable[[Any, Any], Expr]] = {
    ast.Eq: expr.equal,
    ast.NotEq: expr.not_equal,
    ast.Lt: expr.less,
    ast.LtE: expr.less_equal,
}
_AST_CALLS: dict[str, Callable[..., Expr]] = {
    "min": expr.minimum,
    "max": expr.maximum,
    "truncdiv": expr.truncdiv,
    "truncmod": expr.truncmod,
    "select": expr.select,
}


def _from_ast(tree: ast.AST, source: str) -> Expr:
    match tree:
        case ast.Constant(value=int() as value):
            return const(value)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return expr.neg(_from_ast(operand, source))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _AST_BINARY:
            return _AST_BINARY[type(op)](_from_ast(left, source), _from_ast(right, source))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _AST_COMPARE:
            return _AST_COMPARE[type(op)](_from_ast(left, source), _from_ast(right, source))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _AST_CALLS:
            return _AST_CALLS[name](*(_from_ast(a, source) for a in args))
    raise ExpressionError(f"{source!r} is not a dimension", help="write a size, a name, or a formula such as 2*n + 1")


# ----------------------------------------------------------------------------------------------------- canonical form


def polynomial(e: Expr) -> Polynomial:
    """The canonical form of `e` as data (do not change it)."""
    known = _POLYNOMIALS.get(id(e))
    if known is not None and known[0] is e:
        return known[1]
    result = _RULES.get(type(e), _opaque)(e)
    _POLYNOMIALS[id(e)] = (e, result)
    return result


def _constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def _as_constant(p: Polynomial) -> int | None:
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


def _sum(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    result = dict(p)
    for m, c in q.items():
        total = result.get(m, 0) + scale * c
        if total:
            result[m] = total
        else:
            result.pop(m, None)
    return result


def _product(p: Polynomial, q: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for m, c in p.items():
        for n, d in q.items():
            key = tuple(sorted((*m, *n)))
            total = result.get(key, 0) + c * d
            if total:
                result[key] = total
            else:
                result.pop(key, None)
    return result


def _text(p: Polynomial) -> str:
    if not p:
        return "0"
    parts: list[str] = []
    for m in sorted(p, key=lambda m: (-len(m), m)):
        c = p[m]
        factors = [a if re.fullmatch(r"\w+(\(.*\))?", a) else f"({a})" for a in m]
        size = "*".join(([str(abs(c))] if abs(c) != 1 or not m else []) + factors)
        parts.append(("-" if c < 0 else "") + size if not parts else f" {'-' if c < 0 else '+'} {size}")
    return "".join(parts)


def _build(p: Polynomial) -> Expr:
    key = _text(p)
    if key in _INTERNED:
        return _INTERNED[key]
    result: Expr | None = None
    for m in sorted(p, key=lambda m: (-len(m), m)):
        term: Expr | None = None
        for a in m:
            term = _ATOMS[a] if term is None else expr.mul(term, _ATOMS[a])
        c = p[m]
        term = const(c) if term is None else expr.mul(term, const(c))
        result = term if result is None else expr.add(result, term)
    built = const(0) if result is None else result
    _INTERNED[key] = built
    _POLYNOMIALS[id(built)] = (built, p)
    return built


def _atom(key: str, e: Expr) -> Polynomial:
    _ATOMS.setdefault(key, e)
    return {(key,): 1}


def _atom_is_nonnegative(key: str) -> bool:
    e = _ATOMS[key]
    match e:
        case Var():
            return True
        case expr.FloorDiv():
            return is_nonnegative(e.a) and is_nonnegative(e.b)
        case expr.FloorMod():
            return is_nonnegative(e.b)
        case expr.Max():
            return is_nonnegative(e.a) or is_nonnegative(e.b)
        case expr.Min():
            return is_nonnegative(e.a) and is_nonnegative(e.b)
        case expr.Compare() | expr.And() | expr.Or() | expr.Not():
            return True
    return False


def _var(e: Any) -> Polynomial:
    return _atom(symbol(e.name).name, symbol(e.name))


def _quotient_atom(p: Polynomial, q: Polynomial) -> Polynomial:
    a, b = _build(p), _build(q)
    return _atom(f"{_paren(p)} // {_paren(q)}", expr.FloorDiv(a, b, a.dtype))


def _paren(p: Polynomial) -> str:
    source = _text(p)
    return source if re.fullmatch(r"\w+", source) else f"({source})"


def _floordiv(e: Any) -> Polynomial:
    return _divide(polynomial(e.a), polynomial(e.b))


def _divide(p: Polynomial, q: Polynomial) -> Polynomial:
    divisor = _as_constant(q)
    if divisor is None:
        exact = _exact_quotient(p, q)
        return exact if exact is not None else _quotient_atom(p, q)
    if divisor == 0:
        return _quotient_atom(p, q)
    if divisor < 0:
        return _divide({m: -c for m, c in p.items()}, _constant(-divisor))
    whole = {m: c // divisor for m, c in p.items() if m and c % divisor == 0}
    rest = {m: c for m, c in p.items() if m and c % divisor != 0}
    offset = p.get((), 0)
    whole = _sum(whole, _constant(offset // divisor))
    rest = _sum(rest, _constant(offset % divisor))
    value = _as_constant(rest)
    if value is not None:
        return _sum(whole, _constant(value // divisor))
    terms = [m for m in rest if m]
    if len(terms) == 1 and len(terms[0]) == 1 and rest[terms[0]] == 1:  # (x // a + k) // b is (x + k * a) // (a * b)
        inner = _ATOMS[terms[0][0]]
        if isinstance(inner, expr.FloorDiv) and (a := constant(inner.b)) is not None and a > 0:
            moved = _sum(polynomial(inner.a), _constant(rest.get((), 0) * a))
            return _sum(whole, _divide(moved, _constant(a * divisor)))
    return _sum(whole, _quotient_atom(rest, _constant(divisor)))


def _exact_quotient(p: Polynomial, q: Polynomial) -> Polynomial | None:
    if p == q:
        return _constant(1)
    if len(q) != 1:
        return None
    [(m, c)] = q.items()
    result: Polynomial = {}
    for n, d in p.items():
        left = list(n)
        for a in m:
            if a not in left:
                return None
            left.remove(a)
        if d % c:
            return None
        result[tuple(left)] = d // c
    return result


def _floormod(e: Any) -> Polynomial:
    p, q = polynomial(e.a), polynomial(e.b)
    divisor = _as_constant(q)
    if divisor is not None and divisor != 0:
        p = {m: c % divisor for m, c in p.items() if c % divisor}
        value = _as_constant(p)
        if value is not None:
            return _constant(value % divisor)
    elif divisor is None and _exact_quotient(p, q) is not None:
        return {}
    a, b = _build(p), _build(q)
    return _atom(f"{_paren(p)} % {_paren(q)}", expr.FloorMod(a, b, a.dtype))


def _truncated(name: str, cls: type, floored: Callable[[Any], Polynomial]) -> Callable[[Any], Polynomial]:
    def rule(e: Any) -> Polynomial:
        if is_nonnegative(e.a) and is_nonnegative(e.b):
            return floored(e)
        p, q = polynomial(e.a), polynomial(e.b)
        x, y = _as_constant(p), _as_constant(q)
        if x is not None and y is not None and y != 0:
            return _constant(int(_FUNCTIONS[name](x, y)))
        a, b = _build(p), _build(q)
        return _atom(f"{name}({_text(p)}, {_text(q)})", cls(a, b, a.dtype))

    return rule


def _extreme(name: str, cls: type, sign: int) -> Callable[[Any], Polynomial]:
    def rule(e: Any) -> Polynomial:
        p, q = polynomial(e.a), polynomial(e.b)
        if is_nonnegative(_build(_sum(p, q, -1))):
            return p if sign > 0 else q
        if is_nonnegative(_build(_sum(q, p, -1))):
            return q if sign > 0 else p
        if _text(q) < _text(p):
            p, q = q, p
        a, b = _build(p), _build(q)
        return _atom(f"{name}({_text(p)}, {_text(q)})", cls(a, b, a.dtype))

    return rule


def _compare(source: str, cls: type) -> Callable[[Any], Polynomial]:
    def rule(e: Any) -> Polynomial:
        p, q = polynomial(e.a), polynomial(e.b)
        below, above = _build(_sum(q, p, -1)), _build(_sum(p, q, -1))  # b - a and a - b
        at_least_one = expr.const(1)
        is_less = is_nonnegative(canonical(below - at_least_one))
        is_more = is_nonnegative(canonical(above - at_least_one))
        known: bool | None = None
        if cls is expr.LT:
            known = True if is_less else False if is_nonnegative(above) else None
        elif cls is expr.LE:
            known = True if is_nonnegative(below) else False if is_more else None
        else:
            equal = True if not _sum(p, q, -1) else False if is_less or is_more else None
            known = equal if equal is None or cls is expr.EQ else not equal
        if known is not None:
            return _constant(int(known))
        a, b = _build(p), _build(q)
        return _atom(f"({_text(p)} {source} {_text(q)})", cls(a, b, dtypes.bool_))

    return rule


def _logic(source: str, cls: type) -> Callable[[Any], Polynomial]:
    def rule(e: Any) -> Polynomial:
        p, q = polynomial(e.a), polynomial(e.b)
        absorbing = 0 if cls is expr.And else 1
        for x, y in ((p, q), (q, p)):
            value = _as_constant(x)
            if value is not None:
                return _constant(absorbing) if bool(value) == bool(absorbing) else y
        return _atom(f"({_text(p)} {source} {_text(q)})", cls(_condition(p), _condition(q), dtypes.bool_))

    return rule


def _condition(p: Polynomial) -> Expr:
    return expr.as_condition(_build(p))


def _not(e: Any) -> Polynomial:
    p = polynomial(e.a)
    value = _as_constant(p)
    return _constant(int(not value)) if value is not None else _sum(_constant(1), p, -1)


def _select(e: Any) -> Polynomial:
    c, p, q = polynomial(e.condition), polynomial(e.a), polynomial(e.b)
    value = _as_constant(c)
    if value is not None:
        return p if value else q
    if p == q:
        return p
    a, b = _build(p), _build(q)
    return _atom(f"select({_text(c)}, {_text(p)}, {_text(q)})", expr.Select(_condition(c), a, b, a.dtype))


def _cast(e: Any) -> Polynomial:
    if e.value.dtype.is_float or e.dtype.is_float:
        raise InternalError(f"a dimension cannot hold a float: {e!r}")
    return polynomial(e.value)


def _opaque(e: Expr) -> Polynomial:
    raise InternalError(f"a dimension cannot hold {type(e).__name__}")


_RULES: dict[type, Callable[[Any], Polynomial]] = {
    Const: lambda e: _constant(int(e.value)),
    Var: _var,
    expr.Add: lambda e: _sum(polynomial(e.a), polynomial(e.b)),
    expr.Sub: lambda e: _sum(polynomial(e.a), polynomial(e.b), -1),
    expr.Mul: lambda e: _product(polynomial(e.a), polynomial(e.b)),
    expr.FloorDiv: _floordiv,
    expr.FloorMod: _floormod,
    expr.TruncDiv: _truncated("truncdiv", expr.TruncDiv, _floordiv),
    expr.TruncMod: _truncated("truncmod", expr.TruncMod, _floormod),
    expr.Min: _extreme("min", expr.Min, -1),
    expr.Max: _extreme("max", expr.Max, 1),
    expr.EQ: _compare("==", expr.EQ),
    expr.NE: _compare("!=", expr.NE),
    expr.LT: _compare("<", expr.LT),
    expr.LE: _compare("<=", expr.LE),
    expr.And: _logic("and", expr.And),
    expr.Or: _logic("or", expr.Or),
    expr.Not: _not,
    expr.Select: _select,
    expr.IfThenElse: _select,
    expr.Cast: _cast,
}
