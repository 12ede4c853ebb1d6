"""What each stage computes once its inlined producers stand in it, and which elements it reads.

    B[i] = A[i] + 1 (inlined), C[i] = B[i] * 2   ->   C[i] = (A[i] + 1) * 2

Whether the update of a sum of products is a fused multiply-add is decided by what the author wrote, before inlining:
inlining never forms one, so it keeps the bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from schedule.state import Inlined, Stage, State
from tensorir.expr import Expr, Load, Mul, Reduce, Var, const, if_then_else
from tensorir.te import ComputeOp, ExternOp, Operation, ScanOp, Tensor
from tensorir.visit import rewrite_expr, substitute, walk_expr


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One read of `tensor`: at `indices` over the reader's axis variables, or the whole of it (None)."""

    tensor: Tensor
    indices: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The operation of a stage with its inlined producers in it, its reads, and the stages it was made from."""

    op: Operation
    reads: tuple[Read, ...]


def map_loads(op: ComputeOp, rule: Callable[[Load], Expr]) -> ComputeOp:
    """`op` with every load replaced by `rule` of it; `op` itself when nothing changes."""
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        return rule(e) if isinstance(e, Load) else e

    bodies = tuple(rewrite_expr(b, visit, memo) for b in op.bodies)
    if all(a is b for a, b in zip(bodies, op.bodies, strict=True)):
        return op
    return dataclasses.replace(op, bodies=bodies, fma=op.fma and _is_product_sum(op))


def _is_product_sum(op: ComputeOp) -> bool:
    first = op.bodies[0]
    return isinstance(first, Reduce) and isinstance(first.sources[0], Mul)


def own_reads(op: Operation) -> tuple[Read, ...]:
    """Every read of an operation, in order of appearance."""
    if isinstance(op, (ExternOp, ScanOp)):
        return tuple(Read(t, None) for t in op.inputs)
    if not isinstance(op, ComputeOp):
        return ()
    reads: list[Read] = []
    bodies = op.bodies[:1] if isinstance(op.bodies[0], Reduce) else op.bodies
    seen: set[int] = set()
    for body in bodies:
        for e in walk_expr(body):
            if isinstance(e, Load) and id(e) not in seen:
                seen.add(id(e))
                assert isinstance(e.buffer, Tensor)
                reads.append(Read(e.buffer, e.indices))
    return tuple(reads)


class Bodies:
    """The bodies of the stages of any state, remembered by what they are made of."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, ...], tuple[Body, tuple[object, ...]]] = {}

    def all(self, state: State) -> dict[int, Body]:
        """The body of each stage by the id of its record."""
        result: dict[int, Body] = {}
        by_tensor: dict[int, Stage] = {id(t): s for s in state.stages for t in s.outputs}
        for stage in state.stages:
            result[id(stage)] = self._body(stage, by_tensor, result)
        return result

    def _body(self, stage: Stage, by_tensor: dict[int, Stage], done: dict[int, Body]) -> Body:
        own = self._remember((id(stage.op),), (stage.op,), lambda: Body(stage.op, own_reads(stage.op)))
        inlined: dict[int, tuple[Stage, Body]] = {}
        for read in own.reads:
            producer = by_tensor.get(id(read.tensor))  # none for the state of a scan
            if producer is not None and isinstance(producer.place, Inlined):
                inlined[id(read.tensor)] = (producer, done[id(producer)])
        if not inlined or not isinstance(stage.op, ComputeOp):
            return own
        bodies = tuple(body for _, body in inlined.values())
        op = stage.op

        def make() -> Body:
            new = map_loads(op, lambda load: _inline(load, inlined))
            return Body(new, own_reads(new))

        return self._remember((id(op), *(id(b) for b in bodies)), (op, *bodies), make)

    def _remember(self, key: tuple[int, ...], alive: tuple[object, ...], make: Callable[[], Body]) -> Body:
        if key not in self._done:
            self._done[key] = (make(), alive)
        return self._done[key][0]


def _inline(load: Load, inlined: dict[int, tuple[Stage, Body]]) -> Expr:
    found = inlined.get(id(load.buffer))
    if found is None:
        return load
    _, body = found
    assert isinstance(body.op, ComputeOp) and isinstance(load.buffer, Tensor)
    mapping: dict[Var, Expr] = {a.var: i for a, i in zip(body.op.axes, load.indices, strict=True)}
    return substitute(body.op.bodies[load.buffer.index], mapping)


def both(first: Expr, second: Expr) -> Expr:
    """Whether both hold, where the second may read memory that is there only if the first holds."""
    return if_then_else(first, second, const(False))
