"""Reads the text form of Tensor IR back: the inverse of `tensorir.printer`, from the grammar in `grammar.lark`.

    parse_func(text)            a function
    parse_stmt(text, env)       statements, their free names given by `env`
    parse_expr(text, env)       an expression

A name means one variable or buffer while it is in scope and may not be defined again there. Equal expressions of one
text are one node. The tree is built while the text is read, without recursion, so that long sums parse. A mistake
raises `ParseError` with the line, a caret and what was expected.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.indenter import DedentError, Indenter

from tensorir import dtypes
from tensorir.buffer import SCOPES, AlignedBuffer, Buffer, Range, Region
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import ExpressionError, UserError
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
    Compare,
    Const,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    IfThenElse,
    IterVar,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
    sub,
)
from tensorir.intrinsics import INTRINSICS
from tensorir.stmt import (
    LOOP_KINDS,
    Allocate,
    Block,
    Evaluate,
    For,
    Func,
    If,
    LetStmt,
    Seq,
    Stmt,
    Store,
    seq,
)

_OPERATORS: dict[str, type] = {
    "or": Or, "and": And, "==": EQ, "!=": NE, "<": LT, "<=": LE, "|": BitOr, "^": BitXor, "&": BitAnd,
    "<<": ShiftLeft, ">>": ShiftRight, "+": Add, "-": Sub, "*": Mul, "/": Div, "//": FloorDiv, "%": FloorMod,
}  # fmt: skip
_MIRRORED = {">": LT, ">=": LE}
_TWO_OPERANDS: dict[str, type] = {"truncdiv": TruncDiv, "truncmod": TruncMod, "min": Min, "max": Max}
_CHOICES: dict[str, type] = {"select": Select, "if_then_else": IfThenElse}
_LANES: dict[str, int] = {"ramp": 3, "broadcast": 2}
_ITER_KINDS = ("spatial", "reduce", "opaque")
_TERMINALS = {
    "_NL": "the end of the line", "_INDENT": "an indented block", "_DEDENT": "the end of the block",
    "$END": "the end of the text", "NAME": "a name", "INT": "a whole number", "FLOAT": "a number", "DTYPE": "a type",
    "STRING": "a string", "COMPARISON": "a comparison", "PRODUCT": "an operator", "PLUS": "'+'", "MINUS": "'-'",
    "SHIFT": "an operator", "BAR": "an operator", "CARET": "an operator", "AMPERSAND": "an operator",
    "OR": "an operator", "AND": "an operator", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'",
    "LBRACE": "'{'", "RBRACE": "'}'", "COLON": "':'", "COMMA": "','", "EQUAL": "'='", "AT": "'@scope'",
    "INF": "inf", "NAN": "nan",
}  # fmt: skip


class ParseError(UserError):
    """A text that is not a program: `line` and `column` (from 1) say where."""

    def __init__(
        self, message: str, *, line: int = 1, column: int = 1, notes: tuple[str, ...] = (), help: str | None = None
    ) -> None:
        super().__init__(message, notes=notes, help=help)
        self.line, self.column = line, column


def parse_func(text: str) -> Func:
    """The function that a text says. Raises `ParseError`."""
    return _read(text, "func", {})


def parse_stmt(text: str, env: Mapping[str, Var | Buffer] | None = None) -> Stmt:
    """The statements that a text says; `env` gives its free variables and buffers by name. Raises `ParseError`."""
    return _read(text, "program", env or {})


def parse_expr(text: str, env: Mapping[str, Var | Buffer] | None = None) -> Expr:
    """The expression that a text says; `env` gives its variables and buffers by name. Raises `ParseError`."""
    return _read(text, "expression", env or {})


_lock = threading.Lock()


def _read(text: str, start: str, env: Mapping[str, Var | Buffer]) -> Any:
    text = text if start == "expression" else text.strip("\n") + "\n"
    with _lock:
        parser, builder = _machine()
        builder.begin(text, env)
        try:
            return parser.parse(text, start=start)
        except UnexpectedToken as error:
            builder.fail(error.token, *_surprise(error))
        except UnexpectedCharacters as error:
            builder.fail_at(error.line, error.column, f"{error.char!r} means nothing here")
        except DedentError as error:
            raise ParseError(str(error), help="every block is indented by the same number of spaces") from None
        except ExpressionError as error:
            raise ParseError(error.message, help=error.help) from None
        finally:
            builder.begin("", {})


def _surprise(error: UnexpectedToken) -> tuple[str, str]:
    """What was met, and what could have stood there."""
    token = error.token
    kind = _TERMINALS.get(token.type) if token.type in ("_NL", "_INDENT", "_DEDENT", "$END") else None
    wanted = sorted({_TERMINALS.get(t, f"'{t.lower()}'") for t in error.accepts or error.expected})
    return f"{kind or repr(str(token))} is not expected here", "expected " + " or ".join(wanted)


class _Indentation(Indenter):
    """Turns deeper and shallower lines into tokens."""

    NL_type = "_NL"
    OPEN_PAREN_types = ["LPAR", "LSQB", "LBRACE"]
    CLOSE_PAREN_types = ["RPAR", "RSQB", "RBRACE"]
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 8


@cache
def _machine() -> tuple[Lark, _Builder]:
    builder = _Builder()
    grammar = Path(__file__).with_name("grammar.lark").read_text()
    parser = Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        postlex=_Indentation(),
        start=["func", "program", "expression"],
        maybe_placeholders=True,
        transformer=builder,
    )
    return parser, builder


@dataclass(slots=True)
class _Rest:
    """An `alloc` or `let` that holds for the rest of its block."""

    token: Token
    wrap: Callable[[Stmt], Stmt]


@dataclass(slots=True)
class _Head:
    """The first line of a statement that has a body; `names` go out of scope after it."""

    names: tuple[str, ...]
    data: Any
    token: Token | None = None


@dataclass(slots=True)
class _Declared:
    """A name with its type, not yet in scope."""

    token: Token
    dtype: DType


@v_args(inline=True)
class _Builder(Transformer):  # type: ignore[type-arg]
    """The actions of the grammar, called in the order of the text as each rule is complete."""

    def begin(self, text: str, env: Mapping[str, Var | Buffer]) -> None:
        """Forgets what was before."""
        self.lines = text.split("\n")
        self.scope: dict[str, Var | Buffer] = dict(env)
        self.nodes: dict[Any, Any] = {}

    # ---------------------------------------------------------------------------------------------------- errors

    def fail(self, token: Token, message: str, note: str = "", help: str | None = None) -> NoReturn:
        """A mistake at a token."""
        width = 1 if token.type.startswith(("_", "$")) else len(token)
        line, column = token.line or len(self.lines), token.column or 1
        if token.type in ("_NL", "$END") and not token.line:
            column = len(self.lines[-1]) + 1
        self.fail_at(line, column, message, note, width, help)

    def fail_at(
        self, line: int, column: int, message: str, note: str = "", width: int = 1, help: str | None = None
    ) -> NoReturn:
        """A mistake at a place, lines and columns from 1."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        number = f"{line}"
        notes = (
            f"  {number} | {text}",
            f"  {' ' * len(number)} | {' ' * (column - 1)}{'^' * max(1, width)}{' ' + note if note else ''}",
        )
        raise ParseError(f"line {line}: {message}", line=line, column=column, notes=notes, help=help)

    # ---------------------------------------------------------------------------------------------------- scopes

    def define(self, token: Token, thing: Var | Buffer) -> None:
        """Puts a name in scope."""
        name = str(token)
        if name in self.scope:
            self.fail(token, f"{name} is already defined here", help="give the second one another name")
        self.scope[name] = thing

    def leave(self, names: tuple[str, ...]) -> None:
        """Takes names out of scope."""
        for name in names:
            del self.scope[name]

    def find(self, token: Token, kind: type, what: str) -> Any:
        """The thing in scope that a name means."""
        thing = self.scope.get(str(token))
        if thing is None:
            known = sorted(n for n, t in self.scope.items() if isinstance(t, kind))
            self.fail(token, f"no {what} named {token}", help=f"known here: {', '.join(known) or 'none'}")
        if not isinstance(thing, kind):
            other = "buffer" if kind is Var else "variable"
            self.fail(token, f"{token} is a {other}, not a {what}")
        return thing

    def made(self, cls: type, *fields: Any) -> Any:
        """The node of these fields; the same one for the same fields."""
        key = (cls, *[id(f) if isinstance(f, (Expr, Buffer)) else _by_id(f) for f in fields])
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = (cls(*fields), fields)  # the fields are kept so that no id is used again
        return node[0]

    def variable_of(self, declared: _Declared, *domain: Expr) -> Var:
        """A new variable; the same one where name, type and domain are the same."""
        key = (Var, str(declared.token), declared.dtype, *map(id, domain))
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = (Var(str(declared.token), declared.dtype), domain)
        return node[0]

    # ------------------------------------------------------------------------------------------------- functions

    def func(self, head: _Head, body: Stmt) -> Func:
        name, params, dims, outputs, attrs = head.data
        self.leave(head.names)
        return Func(name, params, dims, body, outputs, attrs)

    def func_head(
        self,
        name: Token,
        dims: tuple[Var, ...] | None,
        buffers: tuple[tuple[Token, Buffer], ...] | None,
        outputs: Token,
        attrs: tuple[tuple[str, Any], ...] | None,
    ) -> _Head:
        for token, buffer in buffers or ():
            self.define(token, buffer)
        params = tuple(b for _, b in buffers or ())
        if int(outputs) > len(params):
            self.fail(outputs, f"{outputs} outputs of {len(params)} parameters")
        names = (*[d.name for d in dims or ()], *[b.name for b in params])
        return _Head(names, (str(name), params, dims or (), int(outputs), attrs or ()))

    def dims(self, *declared: _Declared) -> tuple[Var, ...]:
        variables = []
        for d in declared:
            variables.append(self.variable_of(d))
            self.define(d.token, variables[-1])
        return tuple(variables)

    def buffers(self, *found: tuple[Token, Buffer]) -> tuple[tuple[Token, Buffer], ...]:
        return found

    def buffer(
        self, name: Token, dtype: Token, shape: tuple[Expr, ...] | None, scope: Token | None, *aligned: Token | None
    ) -> tuple[Token, Buffer]:
        if scope is not None and str(scope) not in SCOPES:
            self.fail(scope, f"unknown scope {scope}", help=f"scopes are {', '.join(SCOPES)}")
        for extent in shape or ():
            if not extent.dtype.is_integer:
                self.fail(name, f"a dimension of {name} is {extent.dtype}, not an integer")
        where = "global" if scope is None else str(scope)
        fields = (str(name), shape or (), dtype_of(str(dtype)), where)
        numbers = [int(a) for a in aligned if a is not None]
        return name, self.made(AlignedBuffer, *fields, *numbers) if numbers else self.made(Buffer, *fields)

    def attrs(self, *found: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
        return found

    def attr(self, name: Token, value: Any) -> tuple[str, Any]:
        return str(name), value

    pragma = attr

    def decl(self, name: Token, dtype: Token | None) -> _Declared:
        return _Declared(name, dtypes.INDEX if dtype is None else dtype_of(str(dtype)))

    # ------------------------------------------------------------------------------------------------ statements

    def program(self, body: Stmt) -> Stmt:
        return body

    def items(self, *found: Stmt | _Rest) -> Stmt:
        rest: list[Stmt] = []
        for item in reversed(found):
            if isinstance(item, _Rest):
                if not rest:
                    self.fail(item.token, f"nothing follows the definition of {item.token}")
                rest = [item.wrap(seq(*reversed(rest)))]
                self.leave((str(item.token),))
            else:
                rest.append(item)
        return seq(*reversed(rest))

    def nothing(self) -> Stmt:
        return Seq(())

    def store(self, name: tuple[Token, Buffer], access: Any, value: Expr) -> Stmt:
        indices, predicate = self.check_access(name, access)
        return Store(name[1], indices, value, predicate)

    def for_stmt(self, head: _Head, body: Stmt) -> Stmt:
        self.leave(head.names)
        var, begin, extent, kind, thread, pragmas = head.data
        return For(var, begin, extent, kind, body, thread, pragmas)

    def for_head(
        self, declared: _Declared, domain: Any, kind: Token | None, thread: Token | None, *pragmas: tuple[str, Any]
    ) -> _Head:
        if kind is not None and str(kind) not in LOOP_KINDS:
            self.fail(kind, f"unknown kind of loop {kind}", help=f"kinds are {', '.join(LOOP_KINDS)}")
        begin, extent = self.domain(declared, domain)
        var = self.variable_of(declared, begin, extent)
        self.define(declared.token, var)
        tag = None if thread is None else ast.literal_eval(str(thread))
        data = (var, begin, extent, "serial" if kind is None else str(kind), tag, pragmas)
        return _Head((str(declared.token),), data)

    def domain(self, declared: _Declared, domain: tuple[str, Expr, Expr]) -> tuple[Expr, Expr]:
        """Begin and extent of a range, its literals in the type of its variable."""
        kind, begin, end = domain
        begin, end = (self.of_type(e, declared.dtype) for e in (begin, end))
        for e in (begin, end):
            if e.dtype != declared.dtype:
                self.fail(declared.token, f"{declared.token} is {declared.dtype} but its range is {e.dtype}")
        if kind == "over":
            return begin, end
        return begin, sub(end, begin)

    def of_type(self, e: Expr, dtype: DType) -> Expr:
        """A literal without a type of its own in another type."""
        untyped = isinstance(e, Const) and e.dtype == dtypes.INDEX and dtype.is_integer
        return self.constant(e.value, dtype) if untyped else e  # type: ignore[attr-defined]

    def range_to(self, begin: Expr, end: Expr) -> tuple[str, Expr, Expr]:
        return "to", begin, end

    def range_over(self, begin: Expr, extent: Expr) -> tuple[str, Expr, Expr]:
        return "over", begin, extent

    def if_stmt(self, condition: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
        return If(condition, then, otherwise)

    def let_head(self, declared: _Declared, value: Expr, *, within: bool = False) -> _Head:
        value = self.of_type(value, declared.dtype)
        if value.dtype != declared.dtype:
            self.fail(declared.token, f"{declared.token} is {declared.dtype} but its value is {value.dtype}")
        var = self.variable_of(declared) if within else self.variable_of(declared, value)
        self.define(declared.token, var)
        return _Head((str(declared.token),), (var, value), declared.token)

    def let_stmt(self, head: _Head, body: Stmt) -> Stmt:
        self.leave(head.names)
        return LetStmt(head.data[0], head.data[1], body)

    def let_rest(self, head: _Head) -> _Rest:
        assert head.token is not None
        return _Rest(head.token, lambda body: LetStmt(head.data[0], head.data[1], body))

    def alloc_head(self, declared: tuple[Token, Buffer]) -> _Head:
        self.define(*declared)
        return _Head((str(declared[0]),), declared[1], declared[0])

    def alloc_stmt(self, head: _Head, body: Stmt) -> Stmt:
        self.leave(head.names)
        return Allocate(head.data, body)

    def alloc_rest(self, head: _Head) -> _Rest:
        assert head.token is not None
        return _Rest(head.token, lambda body: Allocate(head.data, body))

    def evaluate(self, value: Expr) -> Stmt:
        return Evaluate(value)

    def block_head(
        self, name: Token, found: tuple[Any, ...] | None, predicate: Expr | None, *pragmas: tuple[str, Any]
    ) -> _Head:
        iters, bindings, names = [], [], []
        for declared, kind, domain, binding in found or ():
            if str(kind) not in _ITER_KINDS:
                self.fail(kind, f"unknown kind of iteration {kind}", help=f"kinds are {', '.join(_ITER_KINDS)}")
            begin, extent = self.domain(declared, domain)
            var = self.variable_of(declared, begin, extent)
            self.define(declared.token, var)
            iters.append(IterVar(var, begin, extent, str(kind)))
            bindings.append(self.of_type(binding, declared.dtype))
            names.append(str(declared.token))
        where = self.true() if predicate is None else predicate
        return _Head(tuple(names), (str(name), tuple(iters), tuple(bindings), where, pragmas))

    def iters(self, *found: Any) -> tuple[Any, ...]:
        return found

    def iter(self, name: Token, dtype: Token | None, kind: Token, domain: Any, binding: Expr) -> Any:
        return self.decl(name, dtype), kind, domain, binding

    def block(
        self,
        head: _Head,
        reads: tuple[Region, ...] | None,
        writes: tuple[Region, ...] | None,
        init: Stmt | None,
        body: Stmt,
    ) -> Stmt:
        self.leave(head.names)
        name, iters, bindings, predicate, pragmas = head.data
        return Block(name, iters, bindings, predicate, reads or (), writes or (), init, body, (), pragmas)

    def reads(self, *regions: Region) -> tuple[Region, ...]:
        return regions

    writes = reads

    def init(self, body: Stmt) -> Stmt:
        return body

    def region(self, name: tuple[Token, Buffer], extents: tuple[Range, ...] | None) -> Region:
        self.check_rank(name, len(extents or ()))
        return Region(name[1], extents or ())

    def extents(self, *found: Range) -> tuple[Range, ...]:
        return found

    def extent(self, begin: Expr, extent: Expr | None) -> Range:
        return Range(begin, self.constant(1, dtypes.INDEX) if extent is None else extent)

    # ----------------------------------------------------------------------------------------------- expressions

    def expression(self, e: Expr) -> Expr:
        return e

    def binary(self, a: Expr, op: Token, b: Expr) -> Expr:
        symbol = str(op)
        cls = _OPERATORS.get(symbol)
        if cls is None:
            cls, a, b = _MIRRORED[symbol], b, a
        return self.operands(op, cls, a, b)

    def operands(self, token: Token, cls: type, a: Expr, b: Expr) -> Expr:
        """A binary node; its operands have one type."""
        if a.dtype != b.dtype:
            message = f"{token}: the operands are {a.dtype} and {b.dtype}"
            self.fail(token, message, help="write cast(...), or the literal's type")
        result = dtypes.bool_.with_lanes(a.dtype.lanes) if issubclass(cls, Compare) else a.dtype
        return self.made(cls, a, b, result)

    def negate(self, a: Expr) -> Expr:
        return self.made(Not, a, a.dtype)

    def variable(self, token: Token) -> Expr:
        return self.find(token, Var, "variable")

    def constant(self, value: Any, dtype: DType) -> Const:
        key = (Const, repr(value), dtype)
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = (const(value, dtype), None)
        return node[0]

    def integer(self, *tokens: Token) -> Const:
        return self.whole(tokens[-1], int("".join(tokens)), dtypes.INDEX)

    def whole(self, token: Token, value: int, dtype: DType) -> Const:
        """An integer literal that fits its type."""
        if not dtype.min_value <= value <= dtype.max_value:
            self.fail(token, f"{value} does not fit {dtype}")
        return self.constant(value, dtype)

    def real(self, *tokens: Token) -> Const:
        return self.constant(float("".join(tokens)), dtypes.float32)

    def true(self) -> Const:
        return self.constant(True, dtypes.bool_)

    def false(self) -> Const:
        return self.constant(False, dtypes.bool_)

    def typed(self, name: Token, minus: Token | None, number: Token) -> Const:
        dtype = dtype_of(str(name))
        text = f"{minus or ''}{number}"
        if dtype.lanes != 1 or dtype.is_bool:
            self.fail(name, f"there are no literals of {dtype}", help="write True, False or broadcast(value, lanes)")
        if dtype.is_float:
            return self.constant(float(text), dtype)
        if number.type != "INT":
            self.fail(number, f"{text} is not a whole number, but {dtype} is wanted")
        return self.whole(number, int(text), dtype)

    def buffer_name(self, token: Token) -> tuple[Token, Buffer]:
        return token, self.find(token, Buffer, "buffer")

    def check_rank(self, name: tuple[Token, Buffer], count: int) -> None:
        """As many indices as dimensions."""
        token, buffer = name
        if count != buffer.rank:
            self.fail(token, f"{token} has {buffer.rank} dimensions but {count} indices")

    def check_access(self, name: tuple[Token, Buffer], access: Any) -> tuple[tuple[Expr, ...], Expr | None]:
        """Indices and mask of a load or a store."""
        indices, predicate = access or ((), None)
        self.check_rank(name, len(indices))
        for number, index in enumerate(indices):
            if not index.dtype.is_integer:
                self.fail(name[0], f"{name[0]}: index {number} is {index.dtype}, not an integer")
        if predicate is not None and not predicate.dtype.is_bool:
            self.fail(name[0], f"{name[0]}: the mask is {predicate.dtype}, not bool")
        return indices, predicate

    def load(self, name: tuple[Token, Buffer], access: Any) -> Expr:
        indices, predicate = self.check_access(name, access)
        buffer = name[1]
        lanes = max([1, *[i.dtype.lanes for i in indices], *([] if predicate is None else [predicate.dtype.lanes])])
        return self.made(Load, buffer, indices, buffer.dtype.with_lanes(lanes), predicate)

    def access(self, indices: tuple[Expr, ...], predicate: Expr | None = None) -> Any:
        return indices, predicate

    def masked(self, predicate: Expr) -> Any:
        return (), predicate

    def one(self, e: Expr) -> tuple[Expr, ...]:
        return (e,)

    def more(self, before: tuple[Expr, ...], e: Expr) -> tuple[Expr, ...]:
        return (*before, e)

    def call(self, name: Token, args: tuple[Expr, ...] | None) -> Expr:
        args, function = args or (), str(name)
        if function in _TWO_OPERANDS:
            self.arity(name, args, 2)
            return self.operands(name, _TWO_OPERANDS[function], *args)
        if function in _CHOICES:
            self.arity(name, args, 3)
            condition, a, b = args
            if not condition.dtype.is_bool:
                self.fail(name, f"{name}: the condition is {condition.dtype}, not bool")
            if a.dtype != b.dtype:
                self.fail(name, f"{name}: the operands are {a.dtype} and {b.dtype}")
            return self.made(_CHOICES[function], condition, a, b, a.dtype)
        if function == "fma":
            self.arity(name, args, 3)
            if args[0].dtype != args[1].dtype or args[1].dtype != args[2].dtype:
                self.fail(name, f"fma: the operands are {args[0].dtype}, {args[1].dtype} and {args[2].dtype}")
            return self.made(Fma, *args, args[0].dtype)
        if function in _LANES:
            self.arity(name, args, _LANES[function])
            return self.vector(name, args)
        entry = INTRINSICS.get(function)
        if entry is None:
            known = (*_TWO_OPERANDS, *_CHOICES, "fma", *_LANES, "cast", *INTRINSICS)
            self.fail(name, f"no function named {name}", help=f"functions are {', '.join(known)}")
        self.arity(name, args, entry.arity)
        return self.made(Call, function, args, entry.result(*[a.dtype for a in args]))

    def arity(self, name: Token, args: tuple[Expr, ...], wanted: int) -> None:
        """As many arguments as wanted."""
        if len(args) != wanted:
            self.fail(name, f"{name} takes {wanted} arguments, not {len(args)}")

    def vector(self, name: Token, args: tuple[Expr, ...]) -> Expr:
        """A ramp or a broadcast."""
        lanes = args[-1].value if isinstance(args[-1], Const) and args[-1].dtype.is_integer else 0
        if lanes < 2:
            self.fail(name, f"{name}: the number of lanes is a literal of at least 2")
        dtype = args[0].dtype.with_lanes(int(lanes))
        if str(name) == "broadcast":
            return self.made(Broadcast, args[0], int(lanes), dtype)
        if args[0].dtype != args[1].dtype:
            self.fail(name, f"ramp: the operands are {args[0].dtype} and {args[1].dtype}")
        return self.made(Ramp, args[0], args[1], int(lanes), dtype)

    def convert(self, name: Token, values: tuple[Expr, ...], dtype: Token) -> Expr:
        self.arity(name, (*values, *values[:1]), 2)
        value = values[0]
        if str(name) == "cast":
            return self.made(Cast, value, dtype_of(str(dtype)))
        if str(name) == "reinterpret":
            return self.made(Call, "reinterpret", (value,), dtype_of(str(dtype)))
        self.fail(name, f"{name} takes no type", help="cast and reinterpret do")

    def named_call(self, name: Token, function: Token, dtype: Token, args: tuple[Expr, ...] | None) -> Expr:
        if str(name) != "call":
            self.fail(name, f"{name} takes no string", help="call('name', type, arguments...) does")
        return self.made(Call, ast.literal_eval(str(function)), args or (), dtype_of(str(dtype)))

    def let_in(self, declared: _Declared, value: Expr) -> _Head:
        return self.let_head(declared, value, within=True)

    def let_expr(self, head: _Head, body: Expr) -> Expr:
        self.leave(head.names)
        var, value = head.data
        return self.made(Let, var, value, body, body.dtype)

    # ---------------------------------------------------------------------------------------------------- values

    def literal(self, *tokens: Token | None) -> Any:
        return ast.literal_eval("".join(t for t in tokens if t is not None))

    def value_true(self) -> bool:
        return True

    def value_false(self) -> bool:
        return False

    def value_none(self) -> None:
        return None

    def value_tuple(self, *values: Any) -> tuple[Any, ...]:
        return values

    def value_list(self, *values: Any) -> list[Any]:
        return [] if len(values) == 1 and values[0] is None else list(values)

    def value_dict(self, *entries: Any) -> dict[Any, Any]:
        return dict(e for e in entries if e is not None)

    def entry(self, key: Any, value: Any) -> tuple[Any, Any]:
        return key, value


def _by_id(field: Any) -> Any:
    """A key for one field of a node: expressions count by identity."""
    if isinstance(field, tuple):
        return tuple(id(f) if isinstance(f, (Expr, Buffer)) else f for f in field)
    return field
