"""How each statement class is written in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorir import expr as ir
from tensorir.errors import InternalError
from tensorir.expr import Expr, Var
from tensorir.interpreter import kernels, threads
from tensorir.interpreter.memory import poison
from tensorir.interpreter.source import MAX_NEST, Compiler, Value, literal
from tensorir.matrix import expand, is_matrix, tiles
from tensorir.stmt import Allocate, Block, Evaluate, For, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import walk_expr, walk_stmt


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
    if c.block_memory and kernels.is_asynchronous(s):
        place = c.checked_flat(s.buffer, s.indices, "write") if c.checked else c.flat(s.buffer, s.indices)
        c.line(f"{kernels.COPIES}.begin({name}, {value.code}, {place}, {c.site('asynchronous copy', s)})")
        return
    if c.checked:
        place = c.checked_flat(s.buffer, s.indices, "write")
        c.line(f"{name}.store({value.code}, {place}, {c.site('write', s)})")
    else:
        c.line(f"{name}[{c.flat(s.buffer, s.indices)}] = {value.code}")


def _store_vector(c: Compiler, s: Store, name: str, lanes: int) -> None:
    values, places = c.fresh("values"), c.fresh("places")
    c.hoist(*s.indices, s.value, s.predicate)
    begun = bool(c.block_memory) and kernels.is_asynchronous(s)
    contiguous = (
        not begun and not c.checked and s.predicate is None and len(s.indices) == 1 and _is_contiguous(s.indices[0])
    )
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
            _append_lane(c, s, values, places)
        elif c.checked:
            c.value(s.predicate)
            _append_lane(c, s, values, places, c.atom(s.predicate).code)
        else:
            with c.indented(f"if {c.value(s.predicate).code}:"), c.scope():
                _append_lane(c, s, values, places)
    if begun:
        place = c.fresh("p")
        with (
            c.indented(f"for {place}, {place}_value in zip({places}, {values}):"),
            c.indented(f"if {place} is not None:"),
        ):
            c.line(f"{kernels.COPIES}.begin({name}, {place}_value, {place}, {c.site('asynchronous copy', s)})")
        return
    if c.checked:
        c.line(f"{name}.store_lanes({values}, {places}, {c.site('write', s)})")
        return
    place = c.fresh("p")
    with c.indented(f"for {place}, {place}_value in zip({places}, {values}):"):
        c.line(f"{name}[{place}] = {place}_value")


def _append_lane(c: Compiler, s: Store, values: str, places: str, condition: str = "") -> None:
    for index in s.indices:
        c.value(index)
    place = c.checked_flat(s.buffer, s.indices, "write", condition) if c.checked else c.flat(s.buffer, s.indices)
    if condition:
        place = f"{place} if {condition} else None"
    c.line(f"{places}.append({place})")
    c.line(f"{values}.append({c.value(s.value).code})")


def _is_contiguous(index: Expr) -> bool:
    return isinstance(index, ir.Ramp) and isinstance(index.stride, ir.Const) and index.stride.value == 1


def _stmt_binder(c: Compiler, s: Stmt) -> None:
    """Lets and allocations one inside the other, without recursion: a program may have hundreds."""
    while isinstance(s, (LetStmt, Allocate)) and not threads.is_leaf(c, s):
        if isinstance(s, LetStmt):
            _bind_let(c, s)
        else:
            _bind_buffer(c, s)
        s = s.body
    c.stmt(s)


def _bind_let(c: Compiler, s: LetStmt) -> None:
    with c.statement(s.value):
        if s.value.dtype.lanes > 1:
            c.vectors[s.var] = c.vector(s.value)
        else:
            value = c.value(s.value)
            name = c.fresh(s.var.name)
            c.line(f"{name} = {value.code}")
            c.names[s.var] = Value(name, value.lo, value.hi)


def _stmt_if(c: Compiler, s: If) -> None:
    if threads.depends(c, s.condition):
        threads.guard(c, s)
        return
    with c.statement(s.condition):
        condition = c.value(s.condition).code
    with c.indented(f"if {condition}:"):
        c.stmt(s.then)
    if s.otherwise is not None:
        with c.indented("else:"):
            c.stmt(s.otherwise)


def _bind_buffer(c: Compiler, s: Allocate) -> None:
    with c.statement(*s.buffer.shape):
        extents = [c.temp(c.value(e)) for e in s.buffer.shape]
    private = threads.private_axes(c, s.buffer)
    extents = [*[extent for _, _, extent in private], *extents]
    name = c.fresh(s.buffer.name)
    t = s.buffer.dtype
    size = " * ".join(e.code for e in extents) or "1"
    memory = f"[{literal(poison(t))}] * ({size})"
    if c.checked:
        shape = "(" + "".join(f"{e.code}, " for e in extents) + ")"
        memory = f"Memory({s.buffer.name!r}, {shape}, {memory}, monitor, written=False, shared=True"
        memory += f", scope={s.buffer.scope!r}, nbytes={t.nbytes})"
    if c.block_memory and s.buffer.scope == "shared":
        kernels.write_shared(c, name, memory)
    else:
        c.line(f"{name} = {memory}")
    c.buffers[s.buffer] = name
    c.private[s.buffer] = private


def _stmt_evaluate(c: Compiler, s: Evaluate) -> None:
    call = s.value
    if not isinstance(call, ir.Call):
        return
    if call.name == "barrier" and c.block_memory:
        kernels.write_barrier(c)
    if call.name == "copy_commit" and c.block_memory:
        c.line(f"{kernels.COPIES}.commit()")
    if call.name == "copy_wait" and c.block_memory:
        with c.statement(call.args[0]):
            c.line(f"{kernels.COPIES}.wait({c.value(call.args[0]).code})")
    if is_matrix(s):
        _matrix(c, s)
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


def _matrix(c: Compiler, s: Evaluate) -> None:
    """A matrix instruction, element by element; in thread form the lanes of a warp meet and their first does it."""
    if not c.block_memory:
        c.stmt(expand(s))
        return
    places = []
    with c.statement(*[i for tile in tiles(s) for indices in (tile.first, tile.second) for i in indices]):
        for tile in tiles(s):
            for indices in (tile.first, tile.second):
                for i in indices:
                    c.value(i)
                places.append(c.flat(tile.buffer, indices))
    with kernels.first_lane(c, f"({''.join(f'{p}, ' for p in places)})", f"a matrix instruction {s.value.name}"):  # type: ignore[attr-defined]
        c.stmt(expand(s))


def _stmt_for(c: Compiler, s: For) -> None:
    if s.kind == "thread" and c.thread_form and (s.thread or "").startswith("threadIdx"):
        kernels.write_kernel(c, s)
        return
    if s.kind == "thread" and not (s.thread or "").startswith("blockIdx"):
        threads.bind(c, s)
        return
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
    if c.nest >= MAX_NEST:
        with c.function():
            _loop(c, s, begin, extent)
        return
    name = c.fresh(s.var.name)
    limits = extent.code if begin.lo == begin.hi == 0 else f"{begin.code}, {begin.code} + {extent.code}"
    concurrent = c.checked and s.kind in ("parallel", "vectorized", "thread")
    outer, around = c.loops, c.concurrent
    if concurrent:
        context, execution = c.fresh("context"), c.fresh("execution")
        c.line(f"{context} = monitor.context")
        c.line(f"{execution} = monitor.enter()")
    c.nest += 1
    with c.indented(f"for {name} in range({limits}):"):
        c.loops = (*outer, (name, s.var.name))
        c.names[s.var] = Value(name, begin.lo, max(begin.lo, begin.hi + extent.hi - 1))
        if concurrent:
            shown = (f"the {s.kind} loop", s.var.name)
            c.concurrent = (*around, (s.var, s.kind))
            c.line(f"monitor.context = (*{context}, ({execution}, {name}, {shown!r}))")
        c.stmt(s.body)
    c.nest -= 1
    c.loops, c.concurrent = outer, around
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
        with _combining_lanes(c, s):
            if predicate:
                with c.indented(f"if {predicate}:"):
                    _block_body(c, s)
            else:
                _block_body(c, s)
    c.block = outer


@contextmanager
def _combining_lanes(c: Compiler, s: Block) -> Iterator[None]:
    """In checked mode the accesses of a block stand outside the vectorized loops that steer only its reduce variables:
    their lanes hold partial values that are combined, so that they do not race."""
    lanes = [
        place
        for place, (var, kind) in enumerate(c.concurrent)
        if c.checked and kind == "vectorized" and var is not None and _steers_only_reduction(s, var)
    ]
    if not lanes:
        yield
        return
    context = c.fresh("context")
    c.line(f"{context} = monitor.context")
    kept = "".join(f"{context}[{n}], " for n in range(len(c.concurrent)) if n not in lanes)
    c.line(f"monitor.context = ({kept})")
    around = c.concurrent
    c.concurrent = tuple(entry for n, entry in enumerate(around) if n not in lanes)
    yield
    c.concurrent = around
    c.line(f"monitor.context = {context}")


def _steers_only_reduction(s: Block, variable: Var) -> bool:
    kinds = {
        iteration.kind
        for iteration, binding in zip(s.iters, s.bindings, strict=True)
        if any(e is variable for e in walk_expr(binding))
    }
    return kinds == {"reduce"}


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
            extent = c.value(iteration.extent)
            certain = value.lo >= begin.hi and value.hi < begin.lo + extent.lo
            if c.checked and not certain:
                end = f"{begin.code} + {extent.code}"
                with c.indented(f"if not {begin.code} <= {value.code} < {end}:"):
                    c.line(f"outside_domain({s.name!r}, {iteration.var.name!r}, {value.code})")
    if s.init is not None:
        if first:
            with c.indented(f"if {' and '.join(first)}:"):
                c.stmt(s.init)
        else:
            c.stmt(s.init)
    c.stmt(s.body)


def _leafwise(write: Callable[[Compiler, Any], None]) -> Callable[[Compiler, Any], None]:
    """Under thread loops the statement runs for one thread after the other, where it is a leaf."""

    def write_leaf(c: Compiler, s: Stmt) -> None:
        if threads.is_leaf(c, s):
            threads.over_threads(c, s)
        else:
            write(c, s)

    return write_leaf


Compiler.STMTS.update({
    Seq: _stmt_seq, If: _stmt_if, Allocate: _stmt_binder,
    Store: _leafwise(_stmt_store), LetStmt: _leafwise(_stmt_binder), Evaluate: _leafwise(_stmt_evaluate),
    For: _leafwise(_stmt_for), Block: _leafwise(_stmt_block),
})  # fmt: skip
