"""`my_op.test()`: the cases of one op over targets and schedules, and over more shapes than its author wrote down.

Each case runs its compute in the checked interpreter against the reference; then every schedule of every target (the
op's own and the generic one, on one and two threads) must give the same bits. Cases whose shapes hold names,
`my_op.case([("n", 8)])`, are compiled once with that dimension symbolic and run at several sizes. Shapes are varied:
every size of a case becomes 1, a prime and one more than a vector, wherever the reference accepts them.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from targets.build import build, compile_func, resolve
from targets.kernel import Kernel, NativeRunner
from tensorir.dtypes import DType, dtype_of
from tensorir.errors import UserError
from tensorir.expr import Var
from tensorir.interpreter import interpret
from tensorir.stmt import Func
from tensorir.target import Target
from tensorir.te import Tensor, create_func, placeholder
from topi import schedules
from topi.group import GroupInput, GroupNode, GroupSpec, Reference, compose, lower_group, spec_of
from topi.op import Case, Op, OpError

SIZES = (1, 3, 7, 17)
"""What dimensions become: those of a name in a case, and every size of a case in turn."""
INTERPRETED = 100_000
"""Arrays of more elements than this, all together, only run compiled."""


class OpTestError(OpError):
    """An op that is wrong somewhere: each failure with its case."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong: the case, the target and the schedule, and what happened."""

    case: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.case}, {self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a test did."""

    op: str
    runs: int
    cases: int
    skipped: int

    def __str__(self) -> str:
        skipped = f"; {self.skipped} varied shapes that the reference refuses" if self.skipped else ""
        return f"{self.op}: {self.runs} runs of {self.cases} cases agree with the reference{skipped}"

    __repr__ = __str__


def test_op(op: Op, targets: Sequence[str] = ("reference", "llvm"), *, vary: bool = True, seed: int = 0) -> Report:
    """Runs the cases of an op. Raises `OpTestError` with every failure, the simplest first."""
    if not op.cases:
        raise OpTestError(f"{op.name}: there is no case", help=f"add one: {op.name}.case([(4, 8)])")
    if op.numpy is None:
        raise OpTestError(f"{op.name}: there is no reference", help=f"decorate its numpy meaning: @{op.name}.reference")
    runner = _Runner(op, [resolve(t) for t in targets], seed)
    cases = 0
    for case in op.cases:
        for given in _sized(case):
            runner.case(given, required=True)
            cases += 1
        if vary and not any(isinstance(e, str) for s in case.shapes for e in s or ()):
            for given in _varied(case):
                cases += runner.case(given, required=False)
        for name in _names(case):
            runner.dynamic(case, name)
    if runner.failures:
        shown = [str(f) for f in runner.failures]
        more = f"and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise OpTestError(
            f"{op.name}: {len(shown)} of {runner.runs} runs fail", notes=tuple([*shown[:8], *([more] if more else [])])
        )
    return Report(op.name, runner.runs, cases, runner.skipped)


# -------------------------------------------------------------------------------------------------------------- cases


def _names(case: Case) -> list[str]:
    return sorted({e for s in case.shapes for e in s or () if isinstance(e, str)})


def _sized(case: Case) -> Iterator[Case]:
    """The case with each name of a dimension replaced by sizes."""
    names = _names(case)
    for sizes in itertools.product(SIZES[:3], repeat=len(names)):
        yield _with_sizes(case, dict(zip(names, sizes, strict=True)))


def _with_sizes(case: Case, sizes: Mapping[Any, int]) -> Case:
    shapes = tuple(None if s is None else tuple(sizes.get(e, e) for e in s) for s in case.shapes)
    return replace(case, shapes=shapes)


def _varied(case: Case) -> Iterator[Case]:
    """The case with every size in turn, wherever it stands, replaced by others."""
    if any(dtype_of(t).is_integer for t in case.dtypes[1:]):
        return  # indices, which belong to the sizes
    present = {e for s in case.shapes for e in s or ()}
    for old in sorted(present):
        for new in SIZES:
            if new != old:
                yield _with_sizes(case, {old: new})


def case_text(case: Case) -> str:
    """Shapes and attributes of a case, for messages."""
    shapes = ", ".join("None" if s is None else f"({', '.join(map(str, s))})" for s in case.shapes)
    attrs = "".join(f", {k}={v!r}" for k, v in case.attrs.items())
    return f"case [{shapes}]{attrs}"


def _array(shape: Sequence[int], dtype: DType, case: Case, rng: np.random.Generator) -> np.ndarray:
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return np.asarray(rng.integers(int(case.low), int(case.high), shape, endpoint=True)).astype(dtype.numpy)
    return np.asarray(rng.uniform(case.low, case.high, shape)).astype(dtype.numpy)


def _poisoned(shape: Sequence[int], dtype: DType) -> np.ndarray:
    return np.full(shape, np.nan if dtype.is_float else True if dtype.is_bool else 77).astype(dtype.numpy)


# --------------------------------------------------------------------------------------------------------------- runs


class _Runner:
    """Runs cases and keeps what fails."""

    def __init__(self, op: Op, targets: Sequence[Target], seed: int) -> None:
        self.op = op
        self.targets = targets
        self.seed = seed
        self.runs = 0
        self.skipped = 0
        self.failures: list[Failure] = []

    def arrays(self, case: Case) -> list[np.ndarray | None]:
        """The inputs of a case, the same in every run."""
        rng = np.random.default_rng(zlib.crc32(self.op.name.encode()) + self.seed)
        return [
            None if s is None else _array(s, dtype_of(t), case, rng)
            for s, t in zip(case.shapes, case.dtypes, strict=True)
        ]

    def wanted(self, case: Case, arrays: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...]:
        """The reference's answer, floats in float64."""
        assert self.op.numpy is not None
        wide = [None if a is None else a.astype(np.float64) if dtype_of(a.dtype).is_float else a for a in arrays]
        with np.errstate(all="ignore"):
            result = self.op.numpy(*wide, **case.attrs)
        return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))

    def case(self, case: Case, *, required: bool) -> bool:
        """One case of constant sizes; a varied one is left out where the reference refuses it."""
        text = case_text(case)
        given = self.arrays(case)
        try:
            wanted = self.wanted(case, given)
        except Exception as error:  # noqa: BLE001 - the reference is a user's
            if required:
                self.fail(text, "reference", f"{type(error).__name__}: {error}")
            else:
                self.skipped += 1
            return False
        made = self.attempt(text, "compute", lambda: self.tensors(case, {}))
        if made is None:
            return False
        inputs, outputs = made
        arrays = [a for a in given if a is not None]
        before = len(self.failures)
        plain = self.interpreted(text, case, inputs, outputs, arrays, wanted)
        if len(self.failures) > before:
            return True  # no schedule of a wrong compute is right
        for target in self.targets:
            if target.kind == "reference":
                continue
            for name, func in self.scheduled(text, case, inputs, outputs, target):
                self.compiled(text, case, name, func, target, arrays, wanted, plain)
        return True

    def dynamic(self, case: Case, name: str) -> None:
        """A case with one named dimension symbolic: compiled once, run at several sizes."""
        others = {n: SIZES[1] for n in _names(case) if n != name}
        fixed = _with_sizes(case, others)
        text = case_text(fixed)
        symbol = Var(name)
        made = self.attempt(text, f"compute with symbolic {name}", lambda: self.tensors(fixed, {name: symbol}))
        if made is None:
            return
        inputs, outputs = made
        for target in self.targets:
            if target.kind == "reference":
                continue
            for schedule, func in self.scheduled(text, fixed, inputs, outputs, target):
                where = f"{target.kind}, {schedule} schedule, symbolic {name}"
                kernel = self.attempt(text, where, partial(build, func, target=target))
                for size in SIZES if kernel is not None else ():
                    sized = _with_sizes(fixed, {name: size})
                    given = self.arrays(sized)
                    wanted = self.wanted(sized, given)
                    results = [_poisoned(w.shape, t.dtype) for w, t in zip(wanted, outputs, strict=True)]
                    arrays = [a for a in given if a is not None]
                    self.runs += 1
                    at = f"{where} = {size}"
                    if self.attempt(text, at, partial(_done, kernel, *arrays, *results)):
                        self.compare(text, at, sized, results, wanted)

    def tensors(self, case: Case, symbols: Mapping[str, Var]) -> tuple[list[Tensor | None], tuple[Tensor, ...]]:
        """Placeholders and results of a case."""
        inputs = [
            None if s is None else placeholder(tuple(symbols.get(e, e) for e in s), t, f"in{n}")  # type: ignore[call-overload]
            for n, (s, t) in enumerate(zip(case.shapes, case.dtypes, strict=True))
        ]
        result = self.op(*inputs, **case.attrs)
        return inputs, result if isinstance(result, tuple) else (result,)

    def interpreted(
        self,
        text: str,
        case: Case,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        arrays: Sequence[np.ndarray],
        wanted: Sequence[np.ndarray],
    ) -> list[np.ndarray] | None:
        """The compute in the checked interpreter, held against the reference; None where it is too large or fails."""
        if sum(a.size for a in (*arrays, *wanted)) > INTERPRETED:
            return None
        results = self.attempt(text, "compute", lambda: [_poisoned(_constant(t), t.dtype) for t in outputs])
        if results is None:
            return None
        self.runs += 1
        program = create_func([*(t for t in inputs if t is not None), *outputs])
        check = partial(_done, interpret, program, [*arrays, *results], mode="checked", complete=True)
        run = self.attempt(text, "compute", check)
        return results if run is not None and self.compare(text, "compute", case, results, wanted) else None

    def scheduled(
        self, text: str, case: Case, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], target: Target
    ) -> Iterator[tuple[str, Func]]:
        """The op's own schedule and the generic one, as programs."""
        spec = _spec(self.op, case, inputs, outputs)
        group = self.attempt(text, f"{target.kind}, group", lambda: compose(spec, target))
        if group is None:
            return
        ways: dict[str, Callable[[], Func]] = {}
        if target.kind in self.op.schedules:
            own = self.op.schedules[target.kind]
            ways["own"] = lambda: own(group, target).func([*group.spec.symbols(), *group.inputs, *group.outputs])
            ways["generic"] = lambda: schedules.schedule_group(group, target).func(
                [*group.spec.symbols(), *group.inputs, *group.outputs]
            )
        else:
            ways["generic"] = lambda: lower_group(group, target, None)
        for name, way in ways.items():
            func = self.attempt(text, f"{target.kind}, {name} schedule", way)
            if func is not None:
                yield name, func

    def compiled(
        self,
        text: str,
        case: Case,
        name: str,
        func: Func,
        target: Target,
        arrays: Sequence[np.ndarray],
        wanted: Sequence[np.ndarray],
        plain: Sequence[np.ndarray] | None,
    ) -> None:
        """A schedule built for a target: the reference's values, and the interpreter's bits."""
        where = f"{target.kind}, {name} schedule"
        made = self.attempt(text, where, lambda: compile_func(func, target))
        for threads in (1, 2) if made is not None else ():
            results = [_poisoned(w.shape, p.dtype) for w, p in zip(wanted, func.params[-len(wanted) :], strict=True)]
            self.runs += 1
            at = f"{where}, {threads} thread{'s' if threads > 1 else ''}"

            def run(threads: int = threads, results: list[np.ndarray] = results) -> bool:
                Kernel(func, target, NativeRunner(made, threads=threads))(*arrays, *results)  # type: ignore[arg-type]
                return True

            if self.attempt(text, at, run) is None or not self.compare(text, at, case, results, wanted):
                return
            if plain is not None and any(a.tobytes() != b.tobytes() for a, b in zip(results, plain, strict=True)):
                self.fail(text, at, "the schedule changed bits of the compute's result")
                return

    def compare(
        self, text: str, where: str, case: Case, actual: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
    ) -> bool:
        """Shapes, and values within the case's tolerance (exactly for integers)."""
        what = difference(actual, wanted, case.tolerance)
        if what is not None:
            self.fail(text, where, what)
        return what is None

    def attempt(self, text: str, where: str, run: Callable[[], Any]) -> Any:
        """What `run` gives; None, and a failure, where it raises."""
        try:
            return run()
        except UserError as error:
            self.fail(text, where, f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - computes and schedules are a user's
            self.fail(text, where, f"{type(error).__name__}: {error}")
        return None

    def fail(self, case: str, where: str, what: str) -> None:
        """Keeps a failure."""
        self.failures.append(Failure(case, where, what))


def _done(run: Callable[..., None], *args: Any, **options: Any) -> bool:
    """True once `run` has returned."""
    run(*args, **options)
    return True


def _constant(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(e.value) for e in tensor.shape)  # type: ignore[attr-defined]


def difference(actual: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> str | None:
    """How results differ from the reference: a shape, or the first element beyond the tolerance; None if they agree."""
    if len(actual) != len(wanted):
        return f"{len(actual)} results, the reference has {len(wanted)}"
    for number, (a, w) in enumerate(zip(actual, wanted, strict=True)):
        which = "the result" if len(actual) == 1 else f"result {number}"
        if np.shape(a) != np.shape(w):
            return f"{which} has the shape {a.shape}, the reference {w.shape}"
        if dtype_of(a.dtype).is_float:
            bad = ~np.isclose(a.astype(np.float64), w, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            bad = a != w.astype(a.dtype)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            at = f"at {list(place)} " if place else ""
            return f"{which} is {a[place]} {at}where the reference has {w[place]}; {int(bad.sum())} of {a.size} differ"
    return None


def _spec(op: Op, case: Case, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> GroupSpec:
    """The group of one call in plain layouts."""
    present = [t for t in inputs if t is not None]
    given = tuple(GroupInput(spec_of(t.shape, t.dtype)) for t in present)
    places = iter(range(len(present)))
    references: tuple[Reference, ...] = tuple(None if t is None else ("in", next(places)) for t in inputs)
    results = tuple(spec_of(t.shape, t.dtype) for t in outputs)
    node = GroupNode(op.name, tuple(sorted(case.attrs.items())), references, results)
    return GroupSpec(given, (node,), tuple((0, n) for n in range(len(outputs))))


test_op.__test__ = False  # type: ignore[attr-defined]  # not a test of its own where a test file imports it
