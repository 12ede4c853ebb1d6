"""A lowered program as kernels and what the host does around them.

The host's part is a tree of steps: launches in order, workspaces, loops and conditions that hold kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from targets.c_family.dialect import RESERVED
from tensorir.buffer import Buffer
from tensorir.expr import Const, Expr, Load, Var, const
from tensorir.matrix import is_matrix, tiles
from tensorir.passes.thread_axes import BLOCK_AXES, THREAD_AXES, map_kernels, peel_axes
from tensorir.stmt import Allocate, For, Func, If, LetStmt, Seq, Stmt, Store
from tensorir.visit import free_vars, stmt_exprs, walk_expr, walk_stmt


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """One kernel: what a thread does, its pointers and scalars in the order of its parameters, and its launch.
    `grid` and `block` are extents along x, y and z. `written` are the buffers that it stores to."""

    name: str
    axes: tuple[For, ...]
    body: Stmt
    buffers: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    written: frozenset[Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Run a kernel."""

    kernel: DeviceKernel


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """Global memory for `buffer` while the steps run."""

    buffer: Buffer
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HostLoop:
    """The steps once for each value of `var`."""

    var: Var
    begin: Expr
    extent: Expr
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HostIf:
    """One of two lists of steps."""

    condition: Expr
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HostLet:
    """The steps with a value under a name."""

    var: Var
    value: Expr
    steps: tuple[Step, ...]


Step = Launch | Workspace | HostLoop | HostIf | HostLet


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProgram:
    """A function for a device."""

    func: Func
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[DeviceKernel, ...]:
        """All kernels, in the order in which they first run."""
        return tuple(_kernels(self.steps))


def _kernels(steps: tuple[Step, ...]) -> Iterator[DeviceKernel]:
    for step in steps:
        if isinstance(step, Launch):
            yield step.kernel
        elif isinstance(step, HostIf):
            yield from _kernels(step.then)
            yield from _kernels(step.otherwise)
        else:
            yield from _kernels(step.steps)


def device_program(flat: Func) -> DeviceProgram:
    """The kernels and steps of a function lowered for a GPU."""
    found: list[Stmt] = []

    def collect(s: Stmt) -> Stmt:
        found.append(s)
        return s

    map_kernels(flat.body, collect)
    kernels = {id(s): _kernel(flat, s, n, len(found)) for n, s in enumerate(found)}
    return DeviceProgram(flat, _steps(flat.body, kernels))


def _steps(s: Stmt, kernels: dict[int, DeviceKernel]) -> tuple[Step, ...]:
    if id(s) in kernels:
        return (Launch(kernels[id(s)]),)
    if isinstance(s, Seq):
        return tuple(step for x in s.stmts for step in _steps(x, kernels))
    if isinstance(s, Allocate):
        return (Workspace(s.buffer, _steps(s.body, kernels)),)
    if isinstance(s, LetStmt):
        return (HostLet(s.var, s.value, _steps(s.body, kernels)),)
    if isinstance(s, For):
        return (HostLoop(s.var, s.begin, s.extent, _steps(s.body, kernels)),)
    if isinstance(s, If):
        otherwise = () if s.otherwise is None else _steps(s.otherwise, kernels)
        return (HostIf(s.condition, _steps(s.then, kernels), otherwise),)
    raise TypeError(f"{type(s).__name__} is no step of the host")


def _kernel(flat: Func, s: Stmt, number: int, count: int) -> DeviceKernel:
    axes, body = peel_axes(s)
    own = {x.buffer for x in walk_stmt(body) if isinstance(x, Allocate)}
    bound = {x.var for x in walk_stmt(s) if isinstance(x, (For, LetStmt))}
    buffers: dict[Buffer, None] = {}
    scalars: dict[Var, None] = {}
    written: set[Buffer] = set()
    for x in walk_stmt(body):
        if isinstance(x, Store):
            buffers.setdefault(x.buffer)
            written.add(x.buffer)
        if is_matrix(x):
            written.add(tiles(x)[0].buffer)
        for e in (*stmt_exprs(x), *(a.extent for a in axes)):
            for n in walk_expr(e):
                if isinstance(n, Load):
                    buffers.setdefault(n.buffer)
            for v in free_vars(e):
                if v not in bound:
                    scalars.setdefault(v)
    order = {p: i for i, p in enumerate(flat.params)}
    params = sorted((b for b in buffers if b not in own), key=lambda b: order.get(b, len(order)))
    sizes = {a.thread: a.extent for a in axes}
    one = const(1)
    grid = tuple(sizes.get(tag, one) for tag in BLOCK_AXES)
    block = tuple(_size(sizes.get(tag, one)) for tag in THREAD_AXES)
    stem = re.sub(r"\W", "_", flat.name, flags=re.ASCII)
    stem = f"kernel_{stem}" if stem in RESERVED or not stem.isidentifier() else stem
    name = stem if count == 1 else f"{stem}_{number}"
    return DeviceKernel(name, axes, body, tuple(params), tuple(scalars), grid, block, frozenset(written - own))  # type: ignore[arg-type]


def _size(e: Expr) -> int:
    assert isinstance(e, Const), "check_limits refuses thread extents that are not constants"
    return int(e.value)
