"""From a model to an executable: `compile` runs the passes, compiles each distinct group once, and plans the run."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphir.errors import FallbackWarning, ModelError, UnsupportedError
from graphir.executor import Executable
from graphir.groups import GraphKernel, group_call, kernel_nodes, kernel_of, unscheduled_kernel
from graphir.ir import Graph, Node
from graphir.model_cache import find_model, keep_model, model_key
from graphir.pipeline import PassContext, make_context, run_pipeline
from graphir.plan import make_plan
from graphir.specialise import SpecialisingExecutable
from graphir.workers import in_turn
from targets.build import require_backend
from tensorir.errors import NestorError, UserError
from tensorir.target import Target
from tensorir.te import create_func
from topi.group import CompiledGroup, compose

Progress = Callable[[int, int, str], None]
PRECISIONS = ("strict", "default", "bf16")


def compile(
    model: Any,
    target: str | Target = "llvm",
    threads: int | None = None,
    opt_level: int = 3,
    precision: str = "default",
    shapes: Mapping[str, Sequence[Any]] | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    progress: Progress | None = None,
    *,
    disabled: Sequence[str] = (),
    only_nodes: Sequence[str] | None = None,
    dumps: dict[str, tuple[str, str]] | None = None,
    cache: bool = True,
) -> Executable:
    """An executable of a model: a path, bytes or ModelProto of ONNX, a `Graph`, or a symbol expression.

    `threads` is the most threads of a run (all cores by default); `opt_level` 0 to 3; `precision` strict, default or
    bf16; `shapes` fixes dimensions of inputs; `params` gives inputs that are constants. `progress(done, total, name)`
    is called as kernels are compiled. `disabled` turns passes and fusion guards off by name; `only_nodes` restricts
    fusion to these nodes; `dumps` receives the texts around every pass. Without `cache` the model is compiled even if
    the user's cache holds it (its kernels may still come from there).
    """
    _require_choice("opt_level", opt_level, (0, 1, 2, 3))
    _require_choice("precision", precision, PRECISIONS)
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise UserError(f"threads is {threads!r}", help="give a whole number from 1 on")
    context = make_context(
        target,
        opt_level=opt_level,
        precision=precision,
        disabled=frozenset(disabled),
        only_nodes=None if only_nodes is None else frozenset(only_nodes),
        dumps=dumps,
    )
    require_backend(context.target)
    options: dict[str, Any] = {
        "threads": threads, "opt_level": opt_level, "precision": precision, "shapes": shapes, "params": params,
        "disabled": disabled, "only_nodes": only_nodes,
    }  # fmt: skip
    key = model_key(model, context.target, options) if cache and dumps is None else None
    kept = find_model(key, lambda: compile(model, context.target, cache=False, **options))
    if kept is not None:
        return kept
    try:
        graph = as_graph(model, shapes, params)
    except UnsupportedError as error:
        if not error.inputs:
            raise
        return _specialising(model, context.target, options, error.inputs)
    optimised = run_pipeline(graph, context)
    made = build_executable(optimised, context, threads=threads, progress=progress, source=graph)
    keep_model(key, made)
    return made


def _specialising(model: Any, target: Target, options: Mapping[str, Any], values_of: Sequence[str]) -> Executable:
    """An executable that compiles when it sees the values of these inputs."""
    from graphir.frontends.onnx.importer import model_signature

    params = dict(options["params"] or {})
    inputs, outputs = model_signature(model, params)

    def make(values: Mapping[str, np.ndarray]) -> Executable:
        return compile(model, target, **{**options, "params": {**params, **values}})

    return SpecialisingExecutable(inputs, outputs, values_of, make)


def as_graph(
    model: Any, shapes: Mapping[str, Sequence[Any]] | None = None, params: Mapping[str, np.ndarray] | None = None
) -> Graph:
    """The graph of whatever `compile` takes."""
    if isinstance(model, Graph):
        if params:
            raise ModelError("params: a Graph holds its constants", help="give params to from_onnx or from_symbol")
        return model.infer(shapes) if shapes else model
    from graphir.symbol import Symbol, from_symbol

    if isinstance(model, Symbol):
        return from_symbol(model, shapes=shapes, params=params)
    from graphir.frontends.onnx import from_onnx

    return from_onnx(model, shapes, params)


def build_executable(
    graph: Graph,
    context: PassContext,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    source: Graph | None = None,
) -> Executable:
    """Compiles the kernels of a graph that went through the passes, and plans its run."""
    share = context.opt_level >= 2
    start = time.perf_counter()
    nodes = list(kernel_nodes(graph, views=share))
    calls: dict[Node, Any] = {n: group_call(n, constants.__contains__) for n, constants in nodes}
    distinct = {call.spec.key(): call for call in calls.values()}
    made: dict[str, GraphKernel] = {}
    for number, call in enumerate(in_turn(list(distinct.values()), context.target, context.note)):
        if progress is not None:
            progress(number, len(distinct), call.label)
        key = call.spec.key()
        made[key] = _kernel(call, context)
        for line in made[key].group.log:
            context.note(line)
    if progress is not None:
        progress(len(distinct), len(distinct), "")
    keys = {n: call.spec.key() for n, call in calls.items()}
    seconds = time.perf_counter() - start
    context.note(f"kernels: {len(nodes)} launches of {len(distinct)} kernels, {seconds * 1e3:.0f} ms")
    devices = ("host", context.target.kind) if context.target.gpu else ("host",)
    plan = make_plan(graph, lambda node, _: made[keys[node]], share=share, devices=devices)
    for device, arena in zip(plan.devices, plan.arenas):
        for block, place in zip(arena.blocks, arena.placed):
            where = "by formula" if place.offset is None else f"at {place.offset}"
            of = "" if len(devices) == 1 else f" of {device}"
            context.note(f"memory: {', '.join(block.names)}: {where}{of}, alive {block.start} to {block.end}")
    return Executable(
        graph, plan, context.target, threads=threads, log=context.log, source=source, removed=context.removed
    )


def _kernel(call: Any, context: PassContext) -> GraphKernel:
    if context.target.kind == "reference":
        return _reference_kernel(call, context.target)
    try:
        return kernel_of(call, context.target)
    except NestorError as error:
        reason = _first_line(error)
    chosen = [n.implementation for n in call.spec.nodes if n.implementation is not None]
    if chosen:
        _fall_back(context, f"{call.label} by {chosen[0]} failed, the generic schedule is taken: {reason}")
        nodes = tuple(dataclasses.replace(n, implementation=None) for n in call.spec.nodes)
        call = dataclasses.replace(call, spec=dataclasses.replace(call.spec, nodes=nodes))
        try:
            return kernel_of(call, context.target)
        except NestorError as error:
            reason = _first_line(error)
    _fall_back(context, f"the generic schedule of {call.label} failed, it runs unscheduled: {reason}")
    return unscheduled_kernel(call, context.target)


def _fall_back(context: PassContext, what: str) -> None:
    """Says loudly that a kernel is not what was chosen."""
    context.note(f"kernels: {what}")
    warnings.warn(f"kernels: {what}", FallbackWarning, stacklevel=2)


def _first_line(error: NestorError) -> str:
    return str(error).splitlines()[0]


def _reference_kernel(call: Any, target: Target) -> GraphKernel:
    """The unscheduled program of a group, for the interpreter."""
    group = compose(call.spec, target)
    func = create_func(list(group.args), call.label)
    positions = tuple(call.symbols.index(v.name) for v in func.dims)
    name = f"{call.label}_{abs(hash(call.spec.key())):x}"
    return GraphKernel(name, CompiledGroup(None, func, "reference", None), positions, call.spec.key())  # type: ignore[arg-type]


def _require_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        raise UserError(f"{name} is {value!r}", help=f"it is one of {', '.join(map(str, allowed))}")
