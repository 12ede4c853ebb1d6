"""Random schedules over a set of small programs, for tests of the primitives and of everything after them.

    for sample in random_schedules(seed, count): sample.schedule, sample.dims, sample.attempts
    sample = random_case(seed)      # over more programs: these, a scan, and random computes

Each attempt is (primitive, accepted, message). Half of the calls that change the rounding of a float sum are counted
and taken back (of a random compute, all); the others stay, and such a schedule is compared within a tolerance.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from schedule import (
    Schedule,
    ScheduleError,
    StageView,
    TensorIntrinsic,
    Window,
    create_schedule,
    tensor_intrinsic,
)
from schedule.state import AtLoop, AtRoot
from tensorir import te
from tensorir.expr import Const, Load, Max, Mul, Reduce, Var
from tensorir.layout import Layout
from tensorir.stmt import Stmt, seq
from tensorir.te import ComputeOp
from tests.schedule.random_computes import random_program

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


def int_matmul() -> Program:
    a, b = te.placeholder((6, 9), "int32", name="A"), te.placeholder((9, 8), "int32", name="B")
    bias = te.placeholder((8,), "int32", name="bias")
    k = te.reduce_axis(9, "k")
    c = te.compute((6, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((6, 8), lambda i, j: c[i, j] + bias[j], name="D")
    return [te.compute((6, 8), lambda i, j: te.maximum(d[i, j], te.const(0, "int32")), name="E")], {}


def row_statistics() -> Program:
    x = te.placeholder((7, 10), name="X")
    k, q = te.reduce_axis(10, "k"), te.reduce_axis(10, "q")
    y = te.compute((7, 10), lambda i, j: te.abs(x[i, j]) + 0.5, name="Y")
    where, top = te.compute((7,), lambda i: te.argmax(k, y[i, k], axis=k), name="top")
    low = te.compute((7,), lambda i: te.min(y[i, q], axis=q), name="low")
    z = te.compute((7,), lambda i: top[i] - low[i], name="Z")
    return [te.compute((7,), lambda i: z[i] * te.cast(where[i], "float32"), name="out"), low], {}


def shifted() -> Program:
    a = te.placeholder((24, 5), name="A")
    b = te.compute((24, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((20, 5), lambda i, j: b[i + 3, j] * 2.0, name="C")
    d = te.compute((5, 20), lambda i, j: c[j, i] - 1.0, name="D")
    return [te.compute((5, 20), lambda i, j: d[i, j] * d[i, j], name="E")], {}


PROGRAMS: tuple[Callable[[], Program], ...] = (
    chain, stencil, symbolic, matmul, int_convolution, softmax, two_outputs, weighted, diamond, int_matmul,
    row_statistics, shifted,
)  # fmt: skip

WEIGHTS = {
    "split": 10, "fuse": 8, "reorder": 6, "tile": 5, "unroll": 5, "vectorize": 6, "parallel": 5, "bind": 3, "pragma": 2,
    "prefetch": 2, "compute_at": 10, "compute_root": 3, "compute_inline": 4, "cache_write": 8, "cache_read": 4,
    "set_scope": 4, "decompose_reduction": 6, "transform_layout": 4, "reverse_compute_at": 8,
    "reverse_compute_inline": 5, "rfactor": 8, "storage_align": 4, "pad_dimension": 4, "double_buffer": 14,
    "partition": 3, "blockize": 4, "tensorize": 9,
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


def running_product() -> Program:
    x, state = te.placeholder((6, 9), name="X"), te.placeholder((6, 9), name="state")
    first = te.compute((1, 9), lambda _, i: x[0, i], name="first")
    half = te.compute((6, 9), lambda t, i: state[t - 1, i] * 0.5, name="half")
    update = te.compute((6, 9), lambda t, i: half[t, i] + x[t, i], name="update")
    total = te.scan(first, update, state, inputs=[x], name="total")
    return [te.compute((6, 9), lambda t, i: total[t, i] + 1.0, name="out")], {}


def random_case(seed: int, steps: int = 12, only: tuple[str, ...] | None = None) -> Sample:
    """The random schedule of one seed, of a program above or of a random compute; `only` restricts the primitives."""
    rng = random.Random(seed)
    draw = rng.random()
    if draw < 0.42:
        make = rng.choice(PROGRAMS)
    elif draw < 0.45:
        make = running_product
    else:
        make = partial(random_program, rng)
    outputs, dims = make()
    sample = Sample(getattr(make, "__name__", "random_program"), create_schedule(outputs), dims)
    names = [n for n in WEIGHTS if only is None or n in only]
    for _ in range(rng.randint(1, steps)):
        attempt(sample, rng, rng.choices(names, [WEIGHTS[n] for n in names])[0])
    return sample


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
    # what a random compute does with a float sum may enlarge any difference, so there its order is kept
    back = len(s.state.reassociated) > before and (sample.program == "random_program" or rng.random() < 0.5)
    sample.attempts.append((name, True, "taken back" if back else ""))
    if back:
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
    if found is None:
        return None
    read = [r.tensor for r in s.analysis.bodies[id(s.find_stage(found[0]))].reads]
    source = rng.choice(read) if read and rng.random() < 0.9 else rng.choice(s.stages)
    return found[0], (source, *found[1], rng.randint(1, 9))


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
    if not reductions and rng.random() < 0.9:
        return None
    view = rng.choice(reductions) if reductions else _with_loops(rng, views)
    return None if view is None else (view, (rng.choice(view.loops),))


def _transform_layout(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    fresh = [v for v in s.stages if not s.find_stage(v).history and s.find_stage(v).layouts[0] is None]
    view = rng.choice(fresh if fresh and rng.random() < 0.9 else s.stages)
    layout = Layout.plain(len(view.tensor.shape))
    for _ in range(rng.randint(0, 2)):
        layout = layout.split(rng.randrange(layout.rank), rng.choice([2, 3, 4]))
    return view, (layout.permute(rng.sample(range(len(layout.dims)), len(layout.dims))),)


def _reverse_compute_at(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    pairs = []
    for view in views:
        read = {id(r.tensor) for r in s.analysis.bodies[id(s.find_stage(view))].reads}
        pairs += [(view, h) for h in views if id(h.tensor) in read and h.loops]
    if not pairs:
        return None
    good = [p for p in pairs if isinstance(s.find_stage(p[1]).place, AtRoot)]
    view, host = rng.choice(good if good and rng.random() < 0.9 else pairs)
    loops = host.loops
    first = next((n for n, x in enumerate(loops) if x.kind == "reduce"), len(loops))
    return view, (host, rng.choice(loops[:first] if first and rng.random() < 0.9 else loops))


def _reverse_compute_inline(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    good = []
    for view in views:
        stage = s.find_stage(view)
        if stage.history or stage.reduction is not None or not isinstance(stage.place, AtRoot):
            continue
        makers = [s.find_stage(r.tensor) for r in s.analysis.bodies[id(stage)].reads]
        if any(_is_plain_maker(s, m) for m in makers):
            good.append(view)
    if not good and rng.random() < 0.9:
        return None
    return rng.choice(good if good and rng.random() < 0.9 else views), ()


def _is_plain_maker(s: Schedule, maker: Any) -> bool:
    users = s.analysis.consumers.get(id(maker), ())
    at_root = isinstance(maker.place, AtRoot) and isinstance(maker.op, ComputeOp)
    return at_root and maker.reduction is None and not maker.is_output and len(users) == 1


def _rfactor(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    reductions = [v for v in views if s.find_stage(v).reduction is not None and v.loops]
    if not reductions and rng.random() < 0.9:
        return None
    view = rng.choice(reductions) if reductions and rng.random() < 0.95 else _with_loops(rng, views)
    if view is None:
        return None
    good = [x for x in view.loops if x.kind == "reduce" and x.annotation == "serial"]
    return view, (rng.choice(good or view.loops), rng.choice([0, 0, 1, -1]))


def _axis_and_number(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    inner = [v for v in views if not s.find_stage(v).is_output and v.tensor.shape]
    view = rng.choice(inner if inner and rng.random() < 0.95 else views)
    rank = len(view.tensor.shape)
    return view, (rng.randrange(max(1, rank - 1)), rng.choice([2, 4, 8]), rng.choice([0, 0, 1]))


def _pad_dimension(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    inner = [v for v in views if not s.find_stage(v).is_output and not s.find_stage(v).history and v.tensor.shape]
    view = rng.choice(inner if inner and rng.random() < 0.95 else views)
    return view, (rng.randrange(max(1, len(view.tensor.shape))), rng.choice([2, 4, 8]))


def _double_buffer(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    attached = [v for v in views if isinstance(s.find_stage(v).place, AtLoop) and s.find_stage(v).double is None]
    if not attached and rng.random() < 0.9:
        return None
    return rng.choice(attached if attached and rng.random() < 0.95 else views), ()


def _partition(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    found = _free_loop(s, rng, views)
    return None if found is None else (found[0], (*found[1], rng.random() < 0.7))


def _blockize(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    view = _with_loops(rng, views)
    if view is None:
        return None
    first = rng.randrange(len(view.loops)) if rng.random() < 0.3 else len(view.loops) - 1
    return view, (view.loops[first],)


def _tensorize(s: Schedule, rng: random.Random, views: list[StageView]) -> Arguments:
    """The innermost loop and the intrinsic that may be it; now and then another one."""
    fits = []
    for view in views:
        loops, body = view.loops, getattr(view.op, "bodies", (None,))[0]
        size = loops[-1].extent if loops else None
        if not isinstance(size, Const) or not 1 < size.value <= 10 or loops[-1].annotation != "serial":
            continue
        if isinstance(body, Reduce) and loops[-1].kind == "reduce" and isinstance(body.sources[0], Mul):
            fits.append((view, (loops[-1], dot_intrinsic(int(size.value), str(body.dtype)))))
        elif loops[-1].kind == "spatial" and isinstance(body, Max):
            fits.append((view, (loops[-1], relu_intrinsic(int(size.value), str(body.dtype)))))
        elif loops[-1].kind == "spatial" and isinstance(body, Load):
            fits.append((view, (loops[-1], copy_intrinsic(int(size.value), str(body.dtype)))))
    if fits and rng.random() < 0.95:
        return rng.choice(fits)
    view = _with_loops(rng, views)
    if view is None or rng.random() < 0.8:
        return None
    return view, (rng.choice(view.loops), dot_intrinsic(rng.randint(2, 9), "float32"))


@cache
def dot_intrinsic(size: int, dtype: str) -> TensorIntrinsic:
    """c[0] += the products of `size` pairs."""
    a, b = (te.placeholder((size,), dtype, name=n) for n in "ab")
    k = te.reduce_axis(size, "k")
    c = te.compute((1,), lambda i: te.sum(a[k] * b[k], axis=k), name="c")

    def implement(a: Window, b: Window, c: Window) -> Stmt:
        def step(k: Var) -> Stmt:
            value = c[0] + a[k] * b[k] if "int" in dtype else te.fma(a[k], b[k], c[0])
            return c.store(0, value=value)

        return a.loop(0, step, kind="serial")

    return tensor_intrinsic([a, b], c, implement, f"dot_{size}_{dtype}")


@cache
def relu_intrinsic(size: int, dtype: str) -> TensorIntrinsic:
    """b = max(a, 0) of `size` elements, as lanes."""
    a = te.placeholder((size,), dtype, name="a")
    b = te.compute((size,), lambda i: te.maximum(a[i], te.const(0, dtype)), name="b")

    def implement(a: Window, b: Window) -> Stmt:
        return b.loop(0, lambda i: b.store(i, value=te.maximum(a[i], te.const(0, dtype))))

    return tensor_intrinsic([a], b, implement, f"relu_{size}_{dtype}")


@cache
def copy_intrinsic(size: int, dtype: str) -> TensorIntrinsic:
    """b = a of `size` elements, one after the other."""
    a = te.placeholder((size,), dtype, name="a")
    b = te.compute((size,), lambda i: a[i], name="b")

    def implement(a: Window, b: Window) -> Stmt:
        return seq(*[b.store(i, value=a[i]) for i in range(size)])

    return tensor_intrinsic([a], b, implement, f"copy_{size}_{dtype}")


ARGUMENTS: dict[str, Callable[[Schedule, random.Random, list[StageView]], Arguments]] = {
    "split": _split, "fuse": _fuse, "reorder": _reorder, "tile": _tile, "unroll": _free_loop, "vectorize": _free_loop,
    "parallel": _free_loop, "bind": _bind, "pragma": _pragma, "prefetch": _prefetch, "compute_at": _compute_at,
    "compute_root": _any_stage,
    "compute_inline": _any_stage, "cache_write": _cache_write, "cache_read": _cache_read, "set_scope": _set_scope,
    "decompose_reduction": _decompose, "transform_layout": _transform_layout,
    "reverse_compute_at": _reverse_compute_at, "reverse_compute_inline": _reverse_compute_inline, "rfactor": _rfactor,
    "storage_align": _axis_and_number, "pad_dimension": _pad_dimension, "double_buffer": _double_buffer,
    "partition": _partition, "blockize": _blockize, "tensorize": _tensorize,
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


def pairs(samples: list[Sample]) -> Counter[tuple[str, str]]:
    """How often each primitive was accepted, and stayed, with another one before it on the same schedule."""
    found: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        names = [name for name, good, message in sample.attempts if good and not message]
        found.update({(a, b) for n, b in enumerate(names) for a in names[:n]})
    return found
