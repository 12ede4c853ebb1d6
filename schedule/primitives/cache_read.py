"""cache_read: readers read from a copy in another memory."""

from __future__ import annotations

import dataclasses
from typing import Any

from schedule.bodies import map_loads, own_reads
from schedule.edit import Edit, primitive
from schedule.primitives.set_scope import require_scope
from schedule.state import Stage, new_stage
from tensorir.expr import Expr, IterVar, Load, Var, const
from tensorir.origin import python_origin
from tensorir.te import ComputeOp, ExternOp, ScanOp, Tensor


@primitive
def cache_read(edit: Edit, scope: str = "local", readers: Any = None) -> Tensor:
    """Copies the tensor into a new one of the scope `scope`, which `readers` (default: all) read in its place.

        for i in 0..8: C[i] = A[i] + A[7 - i]
        # AL = s.cache_read(A, "local", [C])
        for i in 0..8: A_local[i] = A[i]
        for i in 0..8: C[i] = A_local[i] + A_local[7 - i]

    The copy is a stage of its own: attach it with compute_at to copy only what is needed there.
    """
    stage = edit.stage
    source = stage.key
    chosen = _readers(edit, source, readers)

    require_scope(edit, scope)
    edit.require(len(stage.outputs) == 1, f"{stage.name} has {len(stage.outputs)} outputs; cache_read takes one tensor")
    for reader in chosen:
        edit.require(
            not isinstance(reader.op, (ExternOp, ScanOp)),
            f"{reader.name} is no compute and reads the whole of {stage.name}",
            help="name the readers that are computes",
        )  # fmt: skip

    name = edit.state.unused_name(f"{stage.name}_{scope}")
    axes = tuple(IterVar(Var(f"i{n}"), const(0), extent, "spatial") for n, extent in enumerate(source.shape))
    point: tuple[Expr, ...] = tuple(a.var for a in axes)
    copy = ComputeOp(name, python_origin(), axes, (), (Load(source, point, source.dtype),), True)
    tensor = Tensor(name, source.shape, source.dtype, "global", copy, 0)
    cache = new_stage(name, copy, (tensor,), tuple(Var(a.name) for a in axes), False)
    place = edit.state.first_place(stage)  # a copy of what a step of a scan makes belongs to the step
    cache = dataclasses.replace(cache, buffers=(dataclasses.replace(tensor, scope=scope),), place=place)
    edit.state = edit.state.with_new_stage(cache, before=chosen[0])
    for reader in chosen:
        assert isinstance(reader.op, ComputeOp)
        new_op = map_loads(
            reader.op, lambda load: Load(tensor, load.indices, load.dtype) if load.buffer is source else load
        )
        edit.state = edit.state.with_stage(reader, dataclasses.replace(reader, op=new_op))

    return tensor


def _readers(edit: Edit, source: Tensor, readers: Any) -> list[Stage]:
    """The reader stages in program order."""
    reading = [s for s in edit.state.stages if any(r.tensor is source for r in own_reads(s.op))]
    if readers is None:
        chosen = [s for s in reading if not isinstance(s.op, (ExternOp, ScanOp))]
    else:
        items = readers if isinstance(readers, (tuple, list)) else (readers,)
        wanted = [edit.schedule.find_stage(r) for r in items]
        for stage in wanted:
            edit.require(
                any(stage is s for s in reading), f"{stage.name} does not read {source.name}",
                help=f"its readers are {', '.join(s.name for s in reading) or 'none'}",
            )  # fmt: skip
        chosen = [s for s in reading if any(s is w for w in wanted)]
    edit.require(bool(chosen), f"nothing reads {source.name}", help="an output has no readers; use cache_write for it")
    return chosen
