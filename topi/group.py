"""Fused groups: from a description of a few nodes to one scheduled function and its compiled kernel.

A group has at most one anchor (a contraction, reduction or composite op). Its implementation schedules the whole group;
groups without one use the injective or the reduction schedule of `topi.schedules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from targets.build import CompiledKernel, CudaRunner, OpenCLRunner, compile_device, compile_func, resolve
from tensorir.dtypes import DType
from tensorir.errors import InternalError
from tensorir.expr import Expr, Var
from tensorir.layout import Layout
from tensorir.printer import Printer
from tensorir.relayout import relayout_compute
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.te import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    Tensor,
    collect_operations,
    input_tensors,
    output_tensors,
    placeholder,
)
from tensorir.visit import free_vars, substitute
from topi.broadcast import same_extent
from topi.chunks import LONGEST
from topi.kinds import Kind, fusion_kind
from topi.op import AttrValue, Call, Implementation, Op, TensorSpec
from topi.registry import get_op


@dataclass(frozen=True, slots=True, eq=False)
class GroupInput:
    """A value that comes from outside the group; `constant` says that it is known at compile time."""

    spec: TensorSpec
    constant: bool = False


Reference = tuple[str, int, int] | tuple[str, int] | None
"""("in", i): external input i; ("node", n, o): result o of node n; None: an optional operand left out."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupNode:
    """One op application: attributes as sorted pairs, operands by reference, result specs, and the implementation's
    name if one was chosen."""

    op: str
    attrs: tuple[tuple[str, AttrValue], ...]
    inputs: tuple[Reference, ...]
    outputs: tuple[TensorSpec, ...]
    implementation: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupSpec:
    """A group as data: what it reads, its nodes in order, and which results it gives."""

    inputs: tuple[GroupInput, ...]
    nodes: tuple[GroupNode, ...]
    outputs: tuple[tuple[int, int], ...]

    def key(self) -> str:
        """A stable text of everything that decides the kernel's code; symbols are named by first use."""
        printer = Printer()
        renamed: dict[Var, Expr] = {}

        def dim(e: Expr) -> str:
            for v in free_vars(e):
                if v not in renamed:
                    renamed[v] = Var(f"d{len(renamed)}", v.dtype)
            return printer.expr(substitute(e, renamed))

        def value(v: Any) -> str:
            if isinstance(v, Expr):
                return dim(v)
            if isinstance(v, tuple):
                return "(" + ",".join(map(value, v)) + ")"
            return repr(v)

        def spec(s: TensorSpec) -> str:
            return f"{s.dtype}[{','.join(dim(d) for d in s.shape)}]{s.layout}"

        lines = [f"in {spec(i.spec)}{' const' if i.constant else ''}" for i in self.inputs]
        for n in self.nodes:
            attrs = ",".join(f"{k}={value(v)}" for k, v in n.attrs)
            lines.append(f"{n.op}({attrs}) {n.inputs} -> {';'.join(map(spec, n.outputs))} {n.implementation}")
        return "\n".join([*lines, f"out {self.outputs}"])

    def symbols(self) -> tuple[Var, ...]:
        """The dimension symbols in shapes and attributes, by first use: the `dims` of the kernel's ABI."""
        found: dict[Var, None] = {}

        def visit(item: Any) -> None:
            if isinstance(item, Expr):
                found.update(dict.fromkeys(free_vars(item)))
            elif isinstance(item, tuple):
                for part in item:
                    visit(part)

        for given in self.inputs:
            visit(given.spec.shape)
        for node in self.nodes:
            visit(tuple(v for _, v in node.attrs))
            visit(tuple(s.shape for s in node.outputs))
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A node of a composed group: its op, the call, its kind and its result tensors (physical)."""

    op: Op
    call: Call
    kind: Kind
    implementation: Implementation | None
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A composed group: te tensors over physical layouts. `anchor` is the part that decides the schedule, if any."""

    spec: GroupSpec
    inputs: tuple[Tensor, ...]
    parts: tuple[Part, ...]
    outputs: tuple[Tensor, ...]
    anchor: Part | None

    @property
    def args(self) -> tuple[Tensor, ...]:
        """Parameters of the kernel: inputs in order, then outputs."""
        return (*self.inputs, *self.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGroup:
    """The kernel of a group with how it came about."""

    kernel: CompiledKernel | OpenCLRunner | CudaRunner
    func: Func
    implementation: str
    config: Any
    log: tuple[str, ...] = field(default=())


def find_implementation(op: Op, name: str) -> Implementation:
    """The implementation of an op by name."""
    for candidate in op.implementations:
        if candidate.name == name:
            return candidate
    raise InternalError(f"{op.name} has no implementation {name}")


def choose_implementation(
    call: Call, target: Target, precision: str = "default"
) -> tuple[Implementation | None, list[str]]:
    """The cheapest implementation that serves the call on the target (None: the op's compute with the generic
    schedules), and why the others were refused."""
    reasons: list[str] = []
    best: tuple[float, Implementation] | None = None
    for candidate in call.op.implementations:
        if target.kind not in candidate.target_kinds:
            continue
        reason = candidate.applicable(call, target)
        if reason is None and candidate.accuracy == "bounded" and precision == "strict":
            reason = "precision=strict allows exact arithmetic only"
        if reason is None and candidate.terms is not None and precision == "strict":
            terms = candidate.terms(call)
            if terms > LONGEST:
                reason = f"it adds {terms} terms one after the other; precision=strict allows {LONGEST}"
        if reason is not None:
            reasons.append(f"{candidate.name}: {reason}")
            continue
        cost = candidate.cost(call, target)
        if best is None or cost < best[0]:
            best = (cost, candidate)
    return (None if best is None else best[1]), reasons


def compose(spec: GroupSpec, target: Target) -> Group:
    """The te tensors of a group over physical layouts."""
    inputs = tuple(
        placeholder(i.spec.layout.physical_shape(i.spec.shape), i.spec.dtype, f"in{n}")
        for n, i in enumerate(spec.inputs)
    )
    parts: list[Part] = []

    def resolve(reference: Reference) -> tuple[Tensor, TensorSpec, bool] | None:
        if reference is None:
            return None
        if reference[0] == "in":
            given = spec.inputs[reference[1]]
            return inputs[reference[1]], given.spec, given.constant
        _, number, output = reference  # type: ignore[misc]
        return parts[number].outputs[output], spec.nodes[number].outputs[output], False

    for node in spec.nodes:
        op = get_op(node.op)
        operands = [resolve(r) for r in node.inputs]
        attrs = dict(node.attrs)
        call = Call(
            op,
            tuple(None if o is None else o[1] for o in operands),
            node.outputs,
            attrs,
            tuple(o is not None and o[2] for o in operands),
        )
        chosen = None if node.implementation is None else find_implementation(op, node.implementation)
        tensors = [None if o is None else o[0] for o in operands]
        if chosen is not None:
            result = chosen.compute(call, target, *tensors)
        else:
            result = physical_compute(op, call, tensors)
        outputs = result if isinstance(result, tuple) else (result,)
        parts.append(Part(op, call, _kind_of(call), chosen, outputs))
    outputs = tuple(parts[n].outputs[o] for n, o in spec.outputs)
    anchors = [p for p in parts if p.kind in ("reduction", "contraction", "composite", "opaque")]
    if len(anchors) > 1:
        raise InternalError(f"a group has the anchors {', '.join(p.op.name for p in anchors)}")
    return Group(spec, inputs, tuple(parts), outputs, anchors[0] if anchors else None)


def _kind_of(call: Call) -> Kind:
    """The fusion kind of a call, from its logical compute."""
    return fusion_kind(logical_compute(call)[1])


def logical_compute(call: Call) -> tuple[list[Tensor | None], tuple[Tensor, ...]]:
    """Plain placeholders for the operands and the results of the op's compute on them."""
    tensors = [None if i is None else placeholder(i.shape, i.dtype, f"x{n}") for n, i in enumerate(call.inputs)]
    result = call.op(*tensors, **call.attrs)
    return tensors, result if isinstance(result, tuple) else (result,)


def physical_compute(op: Op, call: Call, tensors: Sequence[Tensor | None]) -> Any:
    """The op's compute on physical tensors: directly where every layout is plain, else re-written to the layouts."""
    specs = [*[i for i in call.inputs if i is not None], *call.outputs]
    if all(s.layout.is_plain for s in specs):
        return op(*tensors, **call.attrs)
    logical, results = logical_compute(call)
    stored: dict[Tensor, tuple[Tensor, Layout]] = {}
    for plain, physical, spec in zip(logical, tensors, call.inputs, strict=True):
        if plain is not None and physical is not None and spec is not None:
            stored[plain] = (physical, spec.layout)
    wanted = {id(t): s.layout for t, s in zip(results, call.outputs, strict=True)}
    operations = collect_operations(results)
    known = [*results, *(t for o in operations for t in input_tensors(o))]
    for operation in operations:
        if isinstance(operation, PlaceholderOp):
            continue
        if not isinstance(operation, ComputeOp):
            raise InternalError(f"{op.name} works on whole tensors and cannot read a packed layout")
        outputs = output_tensors(operation, known)
        layout = next((wanted[id(t)] for t in outputs if id(t) in wanted), None)
        if layout is None:
            layout = _stage_layout(outputs[0].shape, call.outputs[0])
        made = relayout_compute(operation, layout, stored)
        for plain, physical in zip(outputs, made if isinstance(made, tuple) else (made,), strict=True):
            stored[plain] = (physical, layout)
    made = tuple(stored[t][0] for t in results)
    return made if len(made) > 1 else made[0]


def _stage_layout(shape: Sequence[Expr], result: TensorSpec) -> Layout:
    """The layout of a stage on the way to a result: the result's own as far as the stage has its axes, so that both run
    over the same blocks; plain where an axis that is split has another extent."""
    rank = len(shape)
    dims = tuple(d for d in result.layout.dims if d.axis < rank)
    split = {d.axis for d in dims if d.extent is not None}
    if not all(same_extent(shape[a], result.shape[a]) for a in split):
        return Layout.plain(rank)
    outer = sum(d.extent is None for d in dims)
    more = tuple(d for d in Layout.plain(rank).dims if d.axis >= len(result.shape))  # the chunks of a long sum
    return Layout(rank, (*dims[:outer], *more, *dims[outer:]))


def lower_group(group: Group, target: Target, config: Any) -> Func:
    """The scheduled function of a composed group."""
    from topi import schedules

    anchor = group.anchor
    if anchor is not None and anchor.implementation is not None:
        schedule = anchor.implementation.schedule(group, target, config)
    elif anchor is not None and target.kind in anchor.op.schedules:
        schedule = anchor.op.schedules[target.kind](group, target)
    else:
        schedule = schedules.schedule_group(group, target)
    read = [t for t in group.inputs if any(t is i for i in schedule.inputs)]
    func = schedule.func([*group.spec.symbols(), *read, *group.outputs])
    return func if len(read) == len(group.inputs) else _with_all_inputs(func, group)


def _with_all_inputs(func: Func, group: Group) -> Func:
    """The function with the inputs among its parameters that it does not read: an operand of which only the shape
    matters, an empty one."""
    given = iter(func.params)
    outputs = func.params[len(func.params) - func.outputs :]
    read = {id(p) for p in func.params}
    inputs = [t if id(t) not in read else next(given) for t in group.inputs]
    return replace(func, params=(*inputs, *outputs))


def compile_group(spec: GroupSpec, target: Target, *, name: str) -> CompiledGroup:
    """The kernel `name` of a group: configurations are tried in the model's order, the first without spilled vectors
    is kept (else the one that spills least)."""
    if target.gpu and any(isinstance(o, ExternOp) for o in _operations(spec, target)):
        target = resolve("llvm")  # host work stays on the host
    group = compose(spec, target)
    anchor = group.anchor
    implementation = None if anchor is None else anchor.implementation
    configs: Sequence[Any] = (None,)
    if implementation is not None:
        configs = implementation.configs(group, target)
    log: list[str] = []
    best: CompiledGroup | None = None
    for config in configs:
        func = lower_group(group, target, config)
        if target.gpu:
            func = replace(func, name=name)
        kernel = compile_device(func, target) if target.gpu else compile_func(func, target, symbol=name)
        made = CompiledGroup(kernel, func, implementation.name if implementation else "generic", config, tuple(log))
        if len(configs) == 1 or kernel.spills == 0:  # counting spills takes the assembly: not where nothing hangs on it
            return made
        log.append(f"{name}: {config} spills {kernel.spills} vectors, next configuration")
        if best is None or kernel.spills < best.kernel.spills:
            best = made
    assert best is not None
    return best


def _operations(spec: GroupSpec, target: Target) -> tuple[Operation, ...]:
    return collect_operations(compose(spec, target).outputs)


def spec_of(shape: Sequence[Expr], dtype: DType, layout: Layout | None = None) -> TensorSpec:
    """A tensor spec; the layout defaults to plain."""
    return TensorSpec(tuple(shape), dtype, layout if layout is not None else Layout.plain(len(shape)))
