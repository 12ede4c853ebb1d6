"""What is legal Tensor IR, as one list; `verify(func)` holds a function to it.

    verify(func)                  what holds of every program
    verify(func, "blocks")        and of programs that schedules work on: no vectors
    verify(func, "flat")          and of what code generators read: no blocks, one index, constant registers

`EXPRESSIONS` and `STATEMENTS` say what holds of one node, a sentence and its test each; `_Walk` holds the rest:
what is in scope where. A program that breaks a rule is a fault of the pass that made it; `VerifyError` names the rule
and shows the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn

from tensorir.buffer import SCOPES, Buffer, Region
from tensorir.dtypes import bool_
from tensorir.errors import InternalError
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
    Const,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    Fma,
    IfThenElse,
    Let,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Reduce,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from tensorir.intrinsics import INTRINSICS
from tensorir.printer import expr_text, print_func
from tensorir.stmt import LOOP_KINDS, Allocate, Block, Evaluate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import children

Form = Literal["any", "blocks", "flat"]
Rule = tuple[tuple[type, ...], str, Callable[[Any], bool]]

_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod)
_BITWISE = (BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight)
_LOGICAL = (And, Or)
_COMPARISONS = (EQ, NE, LT, LE)


class VerifyError(InternalError):
    """A program that is not legal Tensor IR: the rule it breaks and the place."""


def _lanes(indices: Iterable[Expr], predicate: Expr | None) -> int:
    """The number of elements that an access touches."""
    lanes = [e.dtype.lanes for e in (*indices, *(() if predicate is None else (predicate,)))]
    return max(lanes, default=1)


def _lanes_agree(e: Load | Store) -> bool:
    lanes = _lanes(e.indices, e.predicate)
    return all(x.dtype.lanes in (1, lanes) for x in (*e.indices, *(() if e.predicate is None else (e.predicate,))))


def _mask_lanes(e: Load | Store) -> bool:
    return e.predicate is None or e.predicate.dtype == bool_.with_lanes(_lanes(e.indices, e.predicate))


def _fits(c: Const) -> bool:
    if c.dtype.is_bool:
        return isinstance(c.value, bool)
    if c.dtype.is_integer:
        whole = isinstance(c.value, int) and not isinstance(c.value, bool)
        return whole and c.dtype.min_value <= c.value <= c.dtype.max_value
    if not isinstance(c.value, float):
        return False
    return c.dtype.bits == 64 or c.value != c.value or float(c.dtype.numpy.type(c.value)) == c.value


def _is_extern(e: Call) -> bool:
    return e.name.startswith("extern:")


def _kinds_fit(e: Call) -> bool:
    return _is_extern(e) or all(a.dtype.kind in INTRINSICS[e.name].kinds for a in e.args)


def _call_type(e: Call) -> bool:
    if _is_extern(e):
        return e.dtype.lanes == 1
    if e.name == "reinterpret":
        (a,) = e.args
        return (a.dtype.bits, a.dtype.lanes) == (e.dtype.bits, e.dtype.lanes) and not e.dtype.is_bool
    return e.dtype == INTRINSICS[e.name].result(*[a.dtype for a in e.args])


def _is_constant_index(e: Expr) -> bool:
    if isinstance(e, Ramp):
        return isinstance(e.base, Const) and isinstance(e.stride, Const)
    return isinstance(e, Const) or (isinstance(e, Broadcast) and isinstance(e.value, Const))


EXPRESSIONS: tuple[Rule, ...] = (
    ((Const,), "a literal is a scalar", lambda e: e.dtype.lanes == 1),
    ((Const,), "a literal's value is one of its type", _fits),
    (
        (*_ARITHMETIC, *_BITWISE, *_LOGICAL, *_COMPARISONS, Div, Min, Max),
        "both operands have one type",
        lambda e: e.a.dtype == e.b.dtype,
    ),
    (
        (*_ARITHMETIC, *_BITWISE, *_LOGICAL, Div, Min, Max),
        "the result has the operands' type",
        lambda e: e.dtype == e.a.dtype,
    ),
    (_ARITHMETIC, "arithmetic is on numbers", lambda e: not e.dtype.is_bool),
    ((Div,), "`/` is on floats", lambda e: e.dtype.is_float),
    (_BITWISE, "bitwise operators are on integers", lambda e: e.dtype.is_integer),
    ((*_LOGICAL, Not), "logical operators are on bools", lambda e: e.a.dtype.is_bool and e.dtype == e.a.dtype),
    (_COMPARISONS, "a comparison is bool", lambda e: e.dtype == bool_.with_lanes(e.a.dtype.lanes)),
    ((Fma,), "fma is on floats", lambda e: e.dtype.is_float),
    (
        (Fma,),
        "all operands and the result have one type",
        lambda e: e.a.dtype == e.dtype and e.b.dtype == e.dtype and e.c.dtype == e.dtype,
    ),
    ((Select, IfThenElse), "both choices have the result's type", lambda e: e.a.dtype == e.dtype == e.b.dtype),
    (
        (Select, IfThenElse),
        "the condition is bool, one for all lanes or one a lane",
        lambda e: e.condition.dtype.is_bool and e.condition.dtype.lanes in (1, e.dtype.lanes),
    ),
    ((Cast,), "a cast keeps the lanes", lambda e: e.value.dtype.lanes == e.dtype.lanes),
    (
        (Let,),
        "the variable has its value's type, and the whole its body's",
        lambda e: e.var.dtype == e.value.dtype and e.dtype == e.body.dtype,
    ),
    ((Call,), "there is such an intrinsic", lambda e: _is_extern(e) or e.name in INTRINSICS),
    ((Call,), "an intrinsic has its operands", lambda e: _is_extern(e) or len(e.args) == INTRINSICS[e.name].arity),
    ((Call,), "an intrinsic's operands are of kinds it takes", _kinds_fit),
    ((Call,), "an intrinsic's result has the type that its operands give", _call_type),
    ((Call,), "what is addressed is an element", lambda e: e.name != "address" or isinstance(e.args[0], Load)),
    ((Load, Store), "there is one index a dimension", lambda e: len(e.indices) == len(e.buffer.shape)),
    ((Load, Store), "indices are integers", lambda e: all(i.dtype.is_integer for i in e.indices)),
    ((Load, Store), "indices and mask have one number of lanes, or are scalars", _lanes_agree),
    ((Load, Store), "a mask is bool, one a lane", _mask_lanes),
    (
        (Load,),
        "a load has its buffer's type, in the lanes of the indices",
        lambda e: e.dtype == e.buffer.dtype.with_lanes(_lanes(e.indices, e.predicate)),
    ),
    ((Ramp,), "a ramp is of scalars of one type", lambda e: e.base.dtype == e.stride.dtype == e.dtype.element),
    ((Ramp,), "a ramp is of integers", lambda e: e.dtype.is_integer),
    ((Broadcast,), "a broadcast is of a scalar", lambda e: e.value.dtype == e.dtype.element),
    ((Ramp, Broadcast), "a vector has at least two lanes", lambda e: e.lanes == e.dtype.lanes >= 2),
    ((Reduce,), "a reduction stands only in a compute", lambda e: False),
)

STATEMENTS: tuple[Rule, ...] = (
    (
        (Store,),
        "what is stored has the buffer's type, in the lanes of the indices",
        lambda s: s.value.dtype == s.buffer.dtype.with_lanes(_lanes(s.indices, s.predicate)),
    ),
    ((Seq,), "a sequence is empty or of several statements", lambda s: len(s.stmts) != 1),
    ((Seq,), "a sequence holds no sequence", lambda s: not any(isinstance(x, Seq) for x in s.stmts)),
    ((For,), f"a loop is one of {', '.join(LOOP_KINDS)}", lambda s: s.kind in LOOP_KINDS),
    ((For,), "a thread loop has its axis, and no other", lambda s: (s.kind == "thread") == (s.thread is not None)),
    (
        (For,),
        "a loop's bounds have the integer type of its variable",
        lambda s: s.var.dtype.is_integer and s.begin.dtype == s.var.dtype == s.extent.dtype,
    ),
    ((If,), "a condition is one bool", lambda s: s.condition.dtype == bool_),
    ((LetStmt,), "a variable has its value's type", lambda s: s.var.dtype == s.value.dtype),
    ((Allocate,), f"a scope is one of {', '.join(SCOPES)}", lambda s: s.buffer.scope in SCOPES),
    (
        (Allocate,),
        "dimensions are integers",
        lambda s: all(x.dtype.is_integer and x.dtype.lanes == 1 for x in s.buffer.shape),
    ),
    (
        (Evaluate,),
        "what is evaluated is called for its effect",
        lambda s: isinstance(s.value, Call) and (_is_extern(s.value) or INTRINSICS[s.value.name].effect),
    ),
    ((Block,), "there is one binding an iteration variable", lambda s: len(s.bindings) == len(s.iters)),
    (
        (Block,),
        "a binding and a domain have the integer type of their variable",
        lambda s: all(
            i.var.dtype.is_integer and i.begin.dtype == i.extent.dtype == i.var.dtype == b.dtype
            for i, b in zip(s.iters, s.bindings, strict=True)
        ),
    ),
    (
        (Block,),
        "an iteration is spatial, reduce or opaque",
        lambda s: all(i.kind in ("spatial", "reduce", "opaque") for i in s.iters),
    ),
    ((Block,), "a predicate is one bool", lambda s: s.predicate.dtype == bool_),
    (
        (Block,),
        "only a block that reduces has an init",
        lambda s: s.init is None or any(i.kind == "reduce" for i in s.iters),
    ),
    (
        (Block,),
        "a region has one range a dimension",
        lambda s: all(len(r.ranges) == len(r.buffer.shape) for r in (*s.reads, *s.writes)),
    ),
)

BLOCKS: tuple[Rule, ...] = (((Ramp, Broadcast), "there are no vectors before the blocks are lowered", lambda e: False),)

FLAT: tuple[Rule, ...] = (
    ((Block,), "no block is left", lambda s: False),
    ((For,), "loops are serial, parallel or bound to threads", lambda s: s.kind in ("serial", "parallel", "thread")),
    ((Allocate,), "a buffer has one dimension", lambda s: len(s.buffer.shape) == 1),
    (
        (Load, Store),
        "a register has a constant index",
        lambda e: e.buffer.scope != "register" or _is_constant_index(e.indices[0]),
    ),
    ((Call,), "an intrinsic is primitive", lambda e: _is_extern(e) or INTRINSICS[e.name].expand is None),
)

_FORMS: dict[str, tuple[Rule, ...]] = {"any": (), "blocks": BLOCKS, "flat": FLAT}

Table = dict[type, tuple[tuple[str, Callable[[Any], bool]], ...]]


def _table(form: Form) -> Table:
    """The rules of each class of nodes."""
    table: Table = {}
    for classes, sentence, test in (*EXPRESSIONS, *STATEMENTS, *_FORMS[form]):
        for cls in classes:
            table[cls] = (*table.get(cls, ()), (sentence, test))
    return table


_TABLES: dict[str, Table] = {form: _table(form) for form in ("any", "blocks", "flat")}  # type: ignore[arg-type]


def verify(func: Func, form: Form = "any") -> None:
    """Raises `VerifyError` unless `func` is legal Tensor IR of the form."""
    _Walk(func, form).run()


class _Walk:
    """One pass over a function: what is in scope, which expressions are known to be good."""

    def __init__(self, func: Func, form: Form) -> None:
        self.func, self.form = func, form
        self.rules = _TABLES[form]
        self.variables: set[int] = set()
        self.buffers: set[int] = set()
        self.good: set[int] = set()  # expressions whose own rules hold, wherever they stand
        self.inside: Block | None = None

    # ---------------------------------------------------------------------------------------------------- errors

    def fail(self, sentence: str, place: Any, e: Any = None) -> NoReturn:
        """Raises the error with the line of `place`, a statement."""
        lines = [f"{self.func.name}: not legal Tensor IR: {sentence}"]
        if e is not None:
            lines.append(f"  in {_short(expr_text(e) if isinstance(e, Expr) else repr(e))}")
        try:
            printed = print_func(self.func)
        except Exception as error:
            lines.append(f"  (and it cannot be printed: {error})")
        else:
            if place in printed.spans:
                lines.extend(_short(line, 400) for line in printed.excerpt(place).split("\n"))
        raise VerifyError("\n".join(lines))

    # ------------------------------------------------------------------------------------------------- functions

    def run(self) -> None:
        """The whole function."""
        f = self.func
        for dim in f.dims:
            if not dim.dtype.is_integer or dim.dtype.lanes != 1:
                self.fail(f"the dimension {dim.name} is an integer", f)
            self.bind(dim, f)
        for buffer in f.params:
            if id(buffer) in self.buffers:
                self.fail(f"the parameter {buffer.name} is there once", f)
            for extent in buffer.shape:
                self.expr(extent, f)
            if self.form == "flat" and len(buffer.shape) != 1:
                self.fail(f"the parameter {buffer.name} has one dimension", f)
            self.buffers.add(id(buffer))
        if not 0 <= f.outputs <= len(f.params):
            self.fail("the outputs are parameters", f)
        self.dims = set(self.variables)
        self.stmt(f.body)

    def bind(self, var: Var, place: Any) -> None:
        """A variable comes into scope; it is not there yet."""
        if id(var) in self.variables:
            self.fail(f"the variable {var.name} is defined once", place)
        self.variables.add(id(var))

    # ------------------------------------------------------------------------------------------------ statements

    def check(self, node: Any, place: Any) -> None:
        """The rules of one node."""
        for sentence, test in self.rules.get(type(node), ()):
            if not test(node):
                self.fail(sentence, place, node if isinstance(node, Expr) else None)

    def stmt(self, s: Stmt) -> None:
        """A statement and all in it."""
        self.check(s, s)
        _STATEMENT[type(s)](self, s)

    def exprs(self, s: Stmt, *exprs: Expr | None) -> None:
        """The expressions of a statement."""
        for e in exprs:
            if e is not None:
                self.expr(e, s)

    def buffer(self, b: Buffer, place: Any) -> None:
        """A buffer that is accessed."""
        if id(b) not in self.buffers:
            self.fail(f"the buffer {b.name} is a parameter or allocated around its use", place)

    def _store(self, s: Store) -> None:
        self.buffer(s.buffer, s)
        self.exprs(s, *s.indices, s.value, s.predicate)

    def _seq(self, s: Seq) -> None:
        for x in s.stmts:
            self.stmt(x)

    def _for(self, s: For) -> None:
        self.exprs(s, s.begin, s.extent)
        self.bind(s.var, s)
        self.stmt(s.body)
        self.variables.discard(id(s.var))

    def _if(self, s: If) -> None:
        self.exprs(s, s.condition)
        self.stmt(s.then)
        if s.otherwise is not None:
            self.stmt(s.otherwise)

    def _let(self, s: LetStmt) -> None:
        self.exprs(s, s.value)
        self.bind(s.var, s)
        self.stmt(s.body)
        self.variables.discard(id(s.var))

    def _allocate(self, s: Allocate) -> None:
        if id(s.buffer) in self.buffers:
            self.fail(f"the buffer {s.buffer.name} is allocated once", s)
        self.exprs(s, *s.buffer.shape)
        self.buffers.add(id(s.buffer))
        self.stmt(s.body)
        self.buffers.discard(id(s.buffer))

    def _evaluate(self, s: Evaluate) -> None:
        self.exprs(s, s.value)

    def _block(self, s: Block) -> None:
        if self.inside is not None:
            self.fail("a block holds no block", s)
        self.exprs(s, *s.bindings, s.predicate)
        for i in s.iters:
            self.exprs(s, i.begin, i.extent)
        outer, self.variables, self.inside = self.variables, set(self.dims), s
        for i in s.iters:
            if id(i.var) in outer:
                self.fail(f"the iteration variable {i.var.name} is the block's own", s)
            self.bind(i.var, s)
        for region in (*s.reads, *s.writes):
            self.region(region, s)
        if s.init is not None:
            self.stmt(s.init)
        self.stmt(s.body)
        self.variables, self.inside = outer, None

    def region(self, r: Region, s: Block) -> None:
        """A region of a block, in the block's own variables."""
        self.buffer(r.buffer, s)
        for item in r.ranges:
            self.exprs(s, item.begin, item.extent)
            if not item.begin.dtype.is_integer or item.extent.dtype != item.begin.dtype:
                self.fail("a range is of integers of one type", s, item.begin)

    # ----------------------------------------------------------------------------------------------- expressions

    def expr(self, root: Expr, place: Any) -> None:
        """A whole expression: the rules of each node, once, and what it speaks of, wherever it stands."""
        seen: set[int] = set()
        stack: list[Expr] = [root]
        while stack:
            e = stack.pop()
            key = id(e)
            if key in seen:
                continue
            seen.add(key)
            if isinstance(e, Var):
                if key not in self.variables:
                    self.unknown(e, place)
                continue
            if key not in self.good:
                self.check(e, place)
                self.good.add(key)
            if isinstance(e, Load):
                self.buffer(e.buffer, place)
            elif isinstance(e, Let):
                self.let(e, place)
                continue
            elif isinstance(e, Call) and e.name in INTRINSICS and INTRINSICS[e.name].effect and e is not root:
                self.fail("what has an effect is a statement", place, e)
            stack.extend(children(e))

    def let(self, e: Let, place: Any) -> None:
        """A let. Chains of lets are followed in a loop; only lets inside of other nodes recurse."""
        bound: list[Var] = []
        body: Expr = e
        while isinstance(body, Let):
            if id(body) not in self.good:
                self.check(body, place)
                self.good.add(id(body))
            self.expr(body.value, place)
            self.bind(body.var, place)
            bound.append(body.var)
            body = body.body
        self.expr(body, place)
        for var in bound:
            self.variables.discard(id(var))

    def unknown(self, v: Var, place: Any) -> None:
        """A variable that is not in scope."""
        where = "" if self.inside is None else ": a block speaks of its own variables and of dimensions"
        self.fail(f"the variable {v.name} is defined where it is used{where}", place)


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


_STATEMENT: dict[type, Callable[[_Walk, Any], None]] = {
    Store: _Walk._store,
    Seq: _Walk._seq,
    For: _Walk._for,
    If: _Walk._if,
    LetStmt: _Walk._let,
    Allocate: _Walk._allocate,
    Evaluate: _Walk._evaluate,
    Block: _Walk._block,
}
