"""The passes over Graph IR in order, each with its reason, and what runs them.

A pass is a pure function `run(graph, context) -> graph` that gives the same object back when nothing changed. Every
graph is verified before and after a pass; the log has the time of each pass and by how much memory grew in it, and
`NESTOR_LOG=debug` prints at once what each one did.
`NESTOR_DUMP=folder` (or `context.dumps`) keeps the text of the graph around every pass.
"""

from __future__ import annotations

import difflib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphir.constants import run_constants
from graphir.errors import PassError
from graphir.ir import CONTROL_OPS, Graph, with_nodes
from graphir.passes.algorithms import algorithms
from graphir.passes.common import common_nodes
from graphir.passes.dead import dead_nodes
from graphir.passes.fold_constants import fold_constants
from graphir.passes.fold_scales import fold_scales
from graphir.passes.fuse import fuse
from graphir.passes.guards import GUARDS
from graphir.passes.infer import infer_pass
from graphir.passes.layouts import layouts
from graphir.passes.simplify import simplify
from graphir.passes.transposes import transposes
from graphir.verify import verify_graph
from targets.build import resolve
from tensorir.errors import UserError
from tensorir.target import Target

ConstantRunner = Callable[[Graph, Target], Mapping[str, np.ndarray]]


@dataclass(slots=True)
class PassContext:
    """What passes may ask: the target, the levels, what is turned off; and where they say what they did.

    `disabled` holds names of passes and of fusion guards. `run_constants` runs the prologue graph. `dumps`, if a dict,
    receives (before, after) texts by pass name, numbered.
    """

    target: Target
    opt_level: int = 3
    precision: str = "default"
    disabled: frozenset[str] = frozenset()
    only_nodes: frozenset[str] | None = None
    run_constants: ConstantRunner | None = None
    log: list[str] = field(default_factory=list)
    dumps: dict[str, tuple[str, str]] | None = None
    times: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes by which the process was larger after each pass than before, where the system says."""
    passes_run: int = 0
    removed: dict[str, str] = field(default_factory=dict)
    """The pass that removed each value that was there before it."""

    def note(self, line: str) -> None:
        """A line for `exe.log`, printed at once under NESTOR_LOG=debug."""
        self.log.append(line)
        if log_level() == "debug":
            print(f"nestor: {line}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class GraphPass:
    """One entry: its function, the opt level from which it runs, and why it stands where it does."""

    name: str
    run: Callable[[Graph, PassContext], Graph]
    level: int
    reason: str
    branches: bool = False
    """True if the branches of control flow are left to the runner; a pass that must see both sides does them itself."""


PIPELINE: tuple[GraphPass, ...] = (
    GraphPass("infer", infer_pass, 0, "every later pass relies on exact shapes and on known content"),
    GraphPass("simplify", simplify, 1, "identities, casts, reshapes and transposes that cancel hide patterns", True),
    GraphPass("common_nodes", common_nodes, 1, "equal nodes over equal values are computed once", True),
    GraphPass("dead_nodes", dead_nodes, 1, "what no output needs is not compiled", True),
    GraphPass("fold_constants", fold_constants, 1, "scale folding wants constant weights and statistics", True),
    GraphPass("transposes", transposes, 3, "a bias behind a transpose can join its convolution only without it", True),
    GraphPass("fold_scales", fold_scales, 3, "a batch norm after a convolution costs nothing inside its weights", True),
    GraphPass(
        "algorithms", algorithms, 3, "another algorithm wants other layouts, and its weights join the prologue", True
    ),
    GraphPass("layouts", layouts, 3, "convolutions want packed channels; the choice must stand before fusion"),
    GraphPass("pack_constants", fold_constants, 1, "folded scales and packed weights are computed once, here", True),
    GraphPass(
        "common_after_layouts", common_nodes, 1, "two readers of one value may have asked for the same transform", True
    ),
    GraphPass("dead_after_layouts", dead_nodes, 1, "the nodes that folding left behind", True),
    GraphPass("fuse", fuse, 2, "one kernel for a contraction and what follows it: fewer trips to memory"),
)

PASSES: dict[str, GraphPass] = {p.name: p for p in PIPELINE}


def graph_pass(function: Callable[..., Graph] | None = None, *, name: str | None = None) -> Any:
    """Decorator of a user's pass: `f(graph)` or `f(graph, context)`. It can then be applied by name or as it is."""

    def attach(f: Callable[..., Graph]) -> Callable[..., Graph]:
        label = name or f.__name__
        takes_context = f.__code__.co_argcount > 1
        run = f if takes_context else (lambda graph, context: f(graph))
        PASSES[label] = GraphPass(label, run, 0, (f.__doc__ or "a user's pass").strip().splitlines()[0])
        f.__dict__["pass_name"] = label
        return f

    return attach if function is None else attach(function)


def run_pass(entry: GraphPass, graph: Graph, context: PassContext) -> Graph:
    """One pass, verified in and out, timed, logged and dumped."""
    verify_graph(graph, where=f"(before {entry.name})", types=False)
    start, resident = time.perf_counter(), resident_bytes()
    result = entry.run(graph, context)
    if entry.branches and isinstance(result, Graph):
        result = _in_branches(entry, result, context)
    seconds, grown = time.perf_counter() - start, resident_bytes() - resident
    context.times[entry.name] = context.times.get(entry.name, 0.0) + seconds
    context.memory[entry.name] = context.memory.get(entry.name, 0) + grown
    context.passes_run += 1
    if not isinstance(result, Graph):
        raise PassError(f"the pass {entry.name} gave {type(result).__name__} back, not a Graph")
    if result is not graph:
        verify_graph(result, where=entry.name)
        kept = _value_names(result)
        context.removed.update(dict.fromkeys(_value_names(graph) - kept, entry.name))
    change = "no change" if result is graph else f"{len(graph.nodes)} nodes to {len(result.nodes)}"
    context.note(f"{entry.name}: {change}, {seconds * 1e3:.1f} ms, {grown / 1e6:+.1f} MB")
    _dump(entry.name, graph, result, context)
    return result


def _value_names(graph: Graph) -> set[str]:
    """The names of the values that nodes make, without what says in which layout; those inside groups and branches
    too."""
    names = {v.name.split("@")[0] for node in graph.nodes for v in node.outputs}
    return names.union(*(_value_names(s) for node in graph.nodes for s in node.subgraphs))


def _in_branches(entry: GraphPass, graph: Graph, context: PassContext) -> Graph:
    """The graph with the pass run on the subgraphs of its control flow nodes."""
    nodes = []
    for node in graph.nodes:
        if node.op in CONTROL_OPS:
            made = tuple(_in_branches(entry, entry.run(s, context), context) for s in node.subgraphs)
            if any(a is not b for a, b in zip(made, node.subgraphs)):
                node = replace(node, subgraphs=made)
        nodes.append(node)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes)) else with_nodes(graph, nodes)


def run_pipeline(graph: Graph, context: PassContext) -> Graph:
    """All passes of the opt level that are not turned off."""
    unknown = context.disabled - set(PASSES) - set(guard_names())
    if unknown:
        raise PassError(
            f"no pass or fusion guard is called {min(unknown)!r}",
            help=f"the passes are {', '.join(PASSES)}; the guards are {', '.join(guard_names())}",
        )
    for entry in PIPELINE:
        if entry.level > context.opt_level:
            continue
        if entry.name in context.disabled:
            context.note(f"{entry.name}: turned off")
            continue
        graph = run_pass(entry, graph, context)
    return graph


def guard_names() -> tuple[str, ...]:
    """The names of the fusion guards."""
    return tuple(g.name for g in GUARDS)


def apply(graph: Graph, *names: Any, target: str | Target = "llvm", **options: Any) -> Graph:
    """The graph after these passes (names, or functions made with `@graph_pass`), in order. `options` are fields of
    `PassContext`. Raises `PassError` for an unknown name."""
    context = make_context(target, **options)
    for item in names:
        name = getattr(item, "pass_name", item)
        if name not in PASSES:
            near = difflib.get_close_matches(str(name), PASSES, 3)
            raise PassError(
                f"no pass is called {name!r}",
                help=f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(PASSES)}",
            )
        graph = run_pass(PASSES[name], graph, context)
    return graph


def make_context(target: str | Target, **options: Any) -> PassContext:
    """A context for a target; the prologue graph runs on kernels of this target's kind."""
    resolved = resolve_target(target)
    options.setdefault("run_constants", run_constants)
    if not isinstance(options.get("disabled", frozenset()), frozenset):
        options["disabled"] = frozenset(options["disabled"])
    return PassContext(resolved, **options)


def resolve_target(target: str | Target) -> Target:
    """The target with the facts of the machine at hand filled in. Raises `TargetError`."""
    return resolve(target)


def resident_bytes() -> int:
    """Bytes of memory that the process holds now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def log_level() -> str:
    """The value of NESTOR_LOG, in lower case."""
    return os.environ.get("NESTOR_LOG", "").lower()


# -------------------------------------------------------------------------------------------------------------- dumps


def _dump(name: str, before: Graph, after: Graph, context: PassContext) -> None:
    folder = os.environ.get("NESTOR_DUMP")
    if context.dumps is None and not folder:
        return
    label = f"{context.passes_run:02}-{name}"
    texts = repr(before), repr(after)
    if context.dumps is not None:
        context.dumps[label] = texts
    if folder:
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for when, text in zip(("before", "after"), texts):
                (place / f"{label}.{when}.txt").write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"NESTOR_DUMP={folder}: {error.strerror or error}", help="name a folder that can be written"
            ) from None


def diff_dumps(before: str, after: str) -> str:
    """What changed between two dumps, as a unified diff without unchanged parts."""
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=1))
