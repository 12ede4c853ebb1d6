"""Random schedules over a set of small programs, for tests of the primitives and of everything after them.

    for sample in random_schedules(seed, count): sample.schedule, sample.dims, sample.attempts

Each attempt is (primitive, accepted, message). Only calls that keep the bits stay: a reordering of a float reduction
is counted and taken back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from schedule import Schedule, ScheduleError, StageView, create_schedule
from tensorir import te
from tensorir.expr import Const, Var
from tensorir.layout import Layout
from tensorir.te import ComputeOp

Program = tuple[list[te.Tensor], dict[Var, int]]


def chain() -> Program:
    a = te.placeholder((13, 6), name="A")
    b = te.compute((13, 6), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((13, 6), lambda i, j: te.exp(b[i, j]) + b[i, j], name="C")
    return [te.compute((13, 6), lambda i, j: c[i, j] - a[i, j], name="D")], {}


def stencil() -> Program:
    a = te.placeholder((20,), name="A")
    b = te.compute((18,), lambda i: a[i] + a[i + 2], name="B")
    return [te.compute((14,), lambda i: b[i] * b[i + 4], name="C")], {}


def symbolic() -> Program:
    n = te.var("n")
    a = te.placeholder((n, 5), name="A")
    b = te.compute((n, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((n, 5), lambda i, j: b[i, j] * b[i, 4 - j], name="C")
    return [c], {n: 7}


def matmul() -> Program:
    a, b = te.placeholder((5, 6), name="A"), te.placeholder((6, 7), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [te.compute((5, 7), lambda i, j: te.maximum(c[i, j], 0.0), name="D")], {}


def int_convolution() -> Program:
    x, w = te.placeholder((8, 7), "int32", name="X"), te.placeholder((3, 3), "int32", name="W")
    r, q = te.reduce_axis(3, "r"), te.reduce_axis(3, "q")
    p = te.compute(
        (10, 9),
        lambda y, z: te.if_then_else(te.all(y >= 1, y < 9, z >= 1, z < 8), x[y - 1, z - 1], te.const(0, "int32")),
        name="P",
    )
    return [te.compute((8, 7), lambda y, z: te.sum(p[y + r, z + q] * w[r, q], axis=(r, q)), name="C")], {}


def softmax() -> Program:
    x = te.placeholder((4, 6), name="X")
    k, q = te.reduce_axis(6, "k"), te.reduce_axis(6, "q")
    top = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((4, 6), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((4,), lambda i: te.sum(e[i, q], axis=q), name="total")
    return [te.compute((4, 6), lambda i, j: e[i, j] / total[i], name="out")], {}


def two_outputs() -> Program:
    x = te.placeholder((5, 4), "float16", name="X")
    y, z = te.compute((5, 4), lambda i, j: (x[i, j] * x[i, j], x[i, j] + x[i, 3 - j]), name="YZ")
    return [te.compute((5, 4), lambda i, j: y[i, j].astype("float32") * z[i, j].astype("float32"), name="out")], {}


def weighted() -> Program:
    a, w = te.placeholder((5, 6), name="A"), te.placeholder((5, 6), name="W")
    k = te.reduce_axis(6, "k")
    product = te.compute((5, 6), lambda i, j: a[i, j] * w[i, j], name="product")
    return [te.compute((5,), lambda i: te.sum(product[i, k], axis=k), name="total")], {}


def diamond() -> Program:
    a = te.placeholder((6, 6), "int64", name="A")
    p = te.compute((6, 6), lambda i, j: a[i, j] * 3, name="P")
    q = te.compute((6, 6), lambda i, j: p[j, i] + 1, name="Q")
    return [te.compute((6, 6), lambda i, j: p[i, j] - q[i, j], name="R")], {}


PROGRAMS: tuple[Callable[[], Program], ...] = (
    chain, stencil, symbolic, matmul, int_convolution, softmax, two_outputs, weighted, diamond,
)  # fmt: skip

WEIGHTS = {
    "split": 10, "fuse": 8, "reorder": 6, "tile": 5, "unroll": 5, "vectorize": 6, "parallel": 5, "bind": 3, "pragma": 2,
    "prefetch": 2, "compute_at": 10, "compute_root": 3, "compute_inline": 4, "cache_write": 8, "cache_read": 4,
    "set_scope": 4,    "decompose_reduction": 6, "transform_layout": 4,
}  # fmt: skip


@dataclass
class Sample:
    """One random schedule and what was tried to make it."""

    program: str
    schedule: Schedule
    dims: dict[Var, int]
    attempts: list[tuple[str, bool, str]] = field(default_factory=list)


def random_schedules(seed: int, count: int, steps: int = 8, only: tuple[str, ...] | None = None) -> Iterator[Sample]:
    """`count` random schedules; `only` restricts the primitives."""
    rng = random.Random(seed)
    for _ in range(count):
        make = rng.choice(PROGRAMS)
        outputs, dims = make()
        sample = Sample(make.__name__, create_schedule(outputs), dims)
        for _ in range(rng.randint(1, steps)):
            names = [n for n in WEIGHTS if only is None or n in only]
            attempt(sample, rng, rng.choices(names, [WEIGHTS[n] for n in names])[0])
        yield sample


def attempt(sample: Sample, rng: random.Random, name: str) -> None:
    """One call of the primitive `name` with random arguments."""
    s = sample.schedule
    computed = [v for v in s.stages if isinstance(v.op, ComputeOp)]
    arguments = ARGUMENTS[name](s, rng, computed)
    if arguments is None:
        return
    view, args = arguments
    before = len(s.state.reassociated)
    try:
        getattr(view, name)(*args)
    except ScheduleError as error:
        sample.attempts.append((name, False, str(error)))
        return
    sample.attempts.append((name, True, ""))
    if len(s.state.reassociated) > before:
        s.undo()


Arguments = tuple[StageView, tuple[Any, ...]] | None


def _with_loops(rng: random.Random, views: list[StageView], least: int = 1) -> StageView | None:
    choices = [v for v in views if len(v.loops) >= least]
    return rng.choice(choices) if choices else None


def _one_loop(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    view = _with_loops(rng, views)
    return None if view is None else (view, (rng.choice(view.loops),))


def _free_loop(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    """Mostly a loop for which the annotation makes sense."""
    view = _with_loops(rng, views)
    if view is None:
        return None
    good = [x for x in view.loops if x.annotation == "serial" and x.kind == "spatial" and isinstance(x.extent, Const)]
    return view, (rng.choice(good or view.loops) if rng.random() < 0.9 else rng.choice(view.loops),)


def _split(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    found = _one_loop(s, rng, views)
    if found is None:
        return None
    size = rng.choice([1, 2, 3, 4, 5, 8, 16, 0 if rng.random() < 0.2 else 2])
    return found[0], (*found[1], size, None) if rng.random() < 0.7 else (*found[1], None, size)


def _fuse(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    view = _with_loops(rng, views, 2)
    if view is None:
        return None
    pairs = list(zip(view.loops, view.loops[1:]))
    good = [p for p in pairs if p[0].kind == p[1].kind and p[0].annotation == p[1].annotation == "serial"]
    return view, rng.choice(good or pairs)


def _reorder(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    view = _with_loops(rng, views, 2)
    if view is None:
        return None
    return view, tuple(rng.sample(view.loops, rng.randint(2, len(view.loops))))


def _tile(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    view = _with_loops(rng, views, 2)
    if view is None:
        return None
    serial = [x for x in view.loops if x.annotation == "serial"]
    first, second = rng.sample(serial if len(serial) > 1 else view.loops, 2)
    return view, (first, second, rng.choice([2, 3, 4]), rng.choice([2, 3, 4]))


def _bind(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    found = _free_loop(s, rng, views)
    return None if found is None else (found[0], (*found[1], "threadIdx.x"))


def _pragma(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    found = _one_loop(s, rng, views)
    return None if found is None else (found[0], (*found[1], "note", rng.randint(0, 9)))


def _prefetch(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    found = _one_loop(s, rng, views)
    return None if found is None else (found[0], (rng.choice(s.stages), *found[1], rng.randint(1, 9)))


def _compute_at(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    inner = [v for v in views if all(v.tensor is not o for o in s.outputs)]
    hosts = [v for v in views if v.loops]
    if not inner or not hosts:
        return None
    view = rng.choice(inner)
    later = [h for h in hosts if _position(s, h) > _position(s, view)] or hosts
    host = rng.choice(later)
    return view, (host, rng.choice(host.loops))


def _position(s: Schedule, view: StageView) -> int:
    return next(n for n, v in enumerate(s.stages) if v.tensor is view.tensor)


def _any_stage(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    return rng.choice(views), ()


def _cache_write(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    fresh = [v for v in views if not s.find_stage(v).history]
    return rng.choice(fresh if fresh and rng.random() < 0.8 else views), ("local",)


def _cache_read(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    return rng.choice(s.stages), ("local",)


def _set_scope(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    return rng.choice(views), (rng.choice(["local", "register", "global"]),)


def _decompose(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    reductions = [v for v in views if s.find_stage(v).reduction is not None and v.loops]
    view = rng.choice(reductions) if reductions else _with_loops(rng, views)
    return None if view is None else (view, (rng.choice(view.loops),))


def _transform_layout(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    fresh = [v for v in s.stages if not s.find_stage(v).history and s.find_stage(v).layouts[0] is None]
    view = rng.choice(fresh if fresh and rng.random() < 0.9 else s.stages)
    layout = Layout.plain(len(view.tensor.shape))
    for _ in range(rng.randint(0, 2)):
        layout = layout.split(rng.randrange(layout.rank), rng.choice([2, 3, 4]))
    return view, (layout.permute(rng.sample(range(len(layout.dims)), len(layout.dims))),)


ARGUMENTS: dict[str, Callable[[Schedule, random.Random, list[StageView]], Arguments]] = {
    "split": _split, "fuse": _fuse, "reorder": _reorder, "tile": _tile, "unroll": _free_loop, "vectorize": _free_loop,
    "parallel": _free_loop, "bind": _bind, "pragma": _pragma, "prefetch": _prefetch, "compute_at": _compute_at,
    "compute_root": _any_stage,
    "compute_inline": _any_stage, "cache_write": _cache_write, "cache_read": _cache_read, "set_scope": _set_scope,
    "decompose_reduction": _decompose, "transform_layout": _transform_layout,
}  # fmt: skip


def acceptance(samples: list[Sample]) -> dict[str, tuple[int, int]]:
    """(accepted, tried) of each primitive."""
    tried: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for sample in samples:
        for name, good, _ in sample.attempts:
            tried[name] += 1
            accepted[name] += good
    return {name: (accepted[name], tried[name]) for name in sorted(tried)}
