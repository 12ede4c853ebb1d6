"""`s.explain_bounds()`: what each attached stage computes, who asks for it, and what memory that takes.

B, at loop i_o of C:
  i: i_o * 8 .. +12 of 0 .. +40
    C reads B[i] on i_o * 8 .. +8
    C reads B[i + 4] on i_o * 8 + 4 .. +8
  allocated float32[12], declared float32[40]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.region import read_ranges
from schedule.state import AtLoop, Stage
from tensorir.arith import Analyzer
from tensorir.buffer import Buffer, Range
from tensorir.expr import Expr, const
from tensorir.passes.compact_buffers import compact_buffers
from tensorir.passes.decompose_reductions import decompose_reductions
from tensorir.passes.lower_blocks import lower_blocks
from tensorir.passes.sink_allocations import sink_allocations
from tensorir.stmt import Allocate, Func
from tensorir.visit import walk_stmt

if TYPE_CHECKING:
    from schedule.analysis import Placed
    from schedule.schedule import Schedule


def explain_bounds(schedule: Schedule) -> str:
    """The text, stages in program order."""
    sizes = _allocated(schedule.func())
    lines: list[str] = []
    for placed in schedule.analysis.placed:
        stage = placed.stage
        lines.append(f"{stage.name}, {_where(stage, placed)}:")
        lines += _axes(schedule, placed)
        for buffer in stage.buffers:
            if buffer.name in sizes:
                found = sizes[buffer.name]
                now, declared = _shape(found), _shape(buffer)
                lines.append(f"  allocated {now}" + (f", declared {declared}" if now != declared else ""))
    return "\n".join(lines)


def _where(stage: Stage, placed: Placed) -> str:
    at = stage.place
    if not isinstance(at, AtLoop):
        return "at root"
    return f"{'at the end of' if at.after else 'at'} loop {at.loop.name} of {placed.path[-1][0].name}"


def _axes(schedule: Schedule, placed: Placed) -> list[str]:
    stage = placed.stage
    analyzer = Analyzer()
    for _, loop in placed.path:
        analyzer.bind(loop.var, const(0), loop.extent)
    fixed = [loop.var for _, loop in placed.path]
    reads: list[tuple[str, list[Range | None]]] = []
    if isinstance(stage.place, AtLoop) and not stage.place.after:
        for user in schedule.analysis.consumers[id(stage)]:
            found = schedule.analysis.of(user)
            texts = [r for r in found.body.reads if any(r.tensor is t for t in stage.outputs)]
            ranges = read_ranges(stage, found, fixed, len(stage.outputs[0].shape), analyzer)
            for read, item in zip(texts, ranges, strict=True):
                indices = "..." if read.indices is None else ", ".join(repr(i) for i in read.indices)
                reads.append((f"{user.name} reads {read.tensor.name}[{indices}]", item))
    lines = []
    for number, (axis, (begin, extent)) in enumerate(zip(stage.axes, placed.domain, strict=True)):
        if axis.kind != "spatial":
            continue
        whole = f"{axis.begin!r} .. +{axis.extent!r}"
        lines.append(f"  {axis.name}: {_span(begin, extent, analyzer)} of {whole}")
        for text, item in reads:
            part = item[number]
            if part is None:
                lines.append(f"    {text} at places that are not known: the whole axis")
            else:
                lines.append(f"    {text} on {_span(part.begin, part.extent, analyzer)}")
    return lines


def _span(begin: Expr, extent: Expr, analyzer: Analyzer) -> str:
    return f"{analyzer.simplify(begin)!r} .. +{analyzer.simplify(extent)!r}"


def _shape(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(repr(s) for s in buffer.shape)}]"


def _allocated(func: Func) -> dict[str, Buffer]:
    """The buffers by name as lowering will allocate them."""
    for step in (sink_allocations, decompose_reductions, lower_blocks, compact_buffers):
        func = step(func)
    return {s.buffer.name: s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate)}
