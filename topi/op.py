"""What an operator is: one object per op, made by the decorator `@op`, holding every fact about it.

    @op("leaky_relu", onnx=[Onnx("LeakyRelu", attrs={"alpha": attribute("alpha", 0.01)})])
    def leaky_relu(x: Tensor, /, *, alpha: float = 0.01) -> Tensor:
        return te.compute(x.shape, lambda *i: te.select(x[i] < 0, x[i] * alpha, x[i]), name="leaky_relu")

    @leaky_relu.reference
    def _(x, *, alpha=0.01): return np.where(x < 0, x * alpha, x)

    leaky_relu.case(shapes=[(2, 3)], alpha=0.2)

Tensor operands are the positional-only parameters (a `None` default makes one optional, `*tensors` takes any number);
attributes are keyword-only. Shape and dtype of the results are read from the compute; so is the fusion kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tensorir.dtypes import DType, dtype_of
from tensorir.errors import UserError
from tensorir.expr import Expr
from tensorir.layout import Layout
from tensorir.target import Target
from tensorir.te import Tensor, placeholder

AttrValue = Any
"""An attribute: bool, int, float, str, DType, an integer `Expr` (a dimension), or tuples of these; always hashable."""


class OpError(UserError):
    """An operator used with operands or attributes it cannot take; names the op and what is wrong."""


# ------------------------------------------------------------------------------------------- where ONNX facts come from


@dataclass(frozen=True, slots=True)
class Attribute:
    """A parameter that comes from the ONNX attribute `name`; absent means `default`."""

    name: str
    default: AttrValue = None
    convert: Callable[[Any], AttrValue] | None = None


@dataclass(frozen=True, slots=True)
class InputValue:
    """A parameter that comes from the VALUE of ONNX input `index` (a constant, or integers whose symbolic content is
    known); absent or empty means `default`."""

    index: int
    default: AttrValue = None
    convert: Callable[[Any], AttrValue] | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A parameter that this ONNX operator always sets to `value`."""

    value: AttrValue


Source = Attribute | InputValue | Fixed
"""Where a parameter of an op comes from in an ONNX node."""


def attribute(name: str, default: AttrValue = None, convert: Callable[[Any], AttrValue] | None = None) -> Attribute:
    """Short spelling of `Attribute`."""
    return Attribute(name, default, convert)


def input_value(index: int, default: AttrValue = None, convert: Callable[[Any], AttrValue] | None = None) -> InputValue:
    """Short spelling of `InputValue`."""
    return InputValue(index, default, convert)


@dataclass(frozen=True, slots=True)
class Onnx:
    """How one ONNX operator becomes this op: `since` is the schema version from which this entry holds (the entry with
    the largest `since` not above the model's schema version is taken). `inputs` are the ONNX input positions that are
    our tensor operands in order (None: all of them). `attrs` says where each of our attributes comes from. `rank`, if
    given, is the rank operand 0 must have for this op to be the one meant (Conv is conv1d, conv2d or conv3d)."""

    op_type: str
    since: int = 1
    attrs: Mapping[str, Source] = field(default_factory=dict)
    inputs: tuple[int, ...] | None = None
    domain: str = ""
    rank: int | None = None


# ------------------------------------------------------------------------------------------------------------- the op


@dataclass(frozen=True, slots=True)
class Case:
    """One test input of an op: operand shapes and dtypes, attribute values, the range of random numbers. A dimension
    given by a name is symbolic: `test` runs the case at several sizes of it."""

    shapes: tuple[tuple[Any, ...] | None, ...]
    dtypes: tuple[str, ...]
    attrs: Mapping[str, AttrValue]
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """Shape (of LOGICAL dimensions), dtype and layout of a value."""

    shape: tuple[Expr, ...]
    dtype: DType
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One application of an op inside a group: logical operand and result specs and attributes. `constant` tells which
    operands are known at compile time."""

    op: Op
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]
    attrs: Mapping[str, AttrValue]
    constant: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """One way to compute an op on a target (core: operators and groups).

    applicable   None if it can serve the call, else the reason why not
    layouts      the layouts it wants: (one per operand or None, one per result)
    compute      the te compute over PHYSICAL tensors: compute(call, target, *physical operands) -> physical result(s)
    schedule     schedule(group, target, config) -> Schedule: schedules the whole fused group with this call as anchor
    configs      candidate configurations, best first by the analytical model; the first that builds without spills is
                 taken
    cost         seconds by the analytical model
    accuracy     "exact" (same arithmetic as the op's compute up to re-association of sums) or "bounded"
    terms        how many terms it adds one after the other: precision=strict refuses long sums in one pass
    """

    name: str
    target_kinds: tuple[str, ...]
    applicable: Callable[[Call, Target], str | None]
    layouts: Callable[[Call, Target], tuple[tuple[Layout | None, ...], tuple[Layout, ...]]]
    compute: Callable[..., Any]
    schedule: Callable[..., Any]
    configs: Callable[..., Sequence[Any]]
    cost: Callable[[Call, Target], float]
    accuracy: Literal["exact", "bounded"] = "exact"
    terms: Callable[[Call], int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm:
    """Another op that computes the same with less work and other rounding (core: another algorithm is no schedule).

    applicable   None if it can stand for the call on the target, else the reason why not
    op, attrs    the op in place of the call's, and its attributes
    operands     operand number -> (op, attributes) applied to that operand first; constants go through it once
    cost         seconds by the analytical model, to be held against the implementations of the call's own op
    """

    name: str
    applicable: Callable[[Call, Target], str | None]
    op: str
    attrs: Callable[[Call], Mapping[str, AttrValue]]
    operands: Callable[[Call], Mapping[int, tuple[str, Mapping[str, AttrValue]]]]
    cost: Callable[[Call, Target], float]


ScaleRule = Literal["through", "weight"]

AxisUse = Literal["axis", "axes", "named", "each", "unset"]
"""How an attribute speaks of the axes of the operands: by the number of one; by the numbers of several, None for all of
them in order; by numbers that must be given; by one entry for each axis; or by what must be false for the others to say
it all."""


class Op:
    """An operator. Call it on tensors to get the compute's tensors; other methods attach facts to it."""

    def __init__(
        self,
        name: str,
        compute: Callable[..., Any],
        *,
        onnx: Sequence[Onnx] = (),
        view: bool = False,
        in_place: Sequence[int] = (),
        scale: ScaleRule | None = None,
        training: bool = False,
        bounded: Sequence[Onnx] = (),
        axis_attrs: Mapping[str, AxisUse] | None = None,
    ) -> None:
        self.name = name
        self.compute = compute
        self.onnx = tuple(onnx)
        self.bounded = tuple(bounded)
        """ONNX operators whose results have a size that the data decide: the op's results have the largest size, the
        last one says how many elements hold. `find_onnx` leaves them out: a graph would have to define symbols."""
        self.view = view
        """The result has the elements of operand 0 in the same order: it may share its memory."""
        self.in_place = tuple(in_place)
        """Operands whose memory the (first) result may overwrite when nobody else needs them."""
        self.scale = scale
        self.training = training
        self.axis_attrs = None if axis_attrs is None else dict(axis_attrs)
        """Given for an op that treats every axis alike but for what these attributes say: on operands of its rank
        transposed alike, with these attributes following, it gives the transposed results."""
        self.implementations: list[Implementation] = []
        self.algorithms: list[Algorithm] = []
        self.schedules: dict[str, Callable[..., Any]] = {}
        self.cases: list[Case] = []
        self.numpy: Callable[..., Any] | None = None
        parameters = inspect.signature(compute).parameters.values()
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.operands = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
        self.required = sum(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in parameters)
        self.attrs = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        self.__doc__ = compute.__doc__
        self.__name__ = name

    def __repr__(self) -> str:
        return f"op {self.name}"

    def __call__(self, *tensors: Tensor | None, **attrs: AttrValue) -> Any:
        unknown = [a for a in attrs if a not in self.attrs]
        if unknown:
            raise OpError(
                f"{self.name}: unknown attribute {unknown[0]!r}", help=f"it has {', '.join(self.attrs) or 'none'}"
            )
        missing = [a for a, default in self.attrs.items() if default is inspect.Parameter.empty and a not in attrs]
        if missing:
            raise OpError(f"{self.name}: the attribute {missing[0]!r} is not given")
        if not self.variadic and not self.required <= len(tensors) <= len(self.operands):
            raise OpError(f"{self.name}: takes {self.required} to {len(self.operands)} operands, not {len(tensors)}")
        return self.compute(*tensors, **attrs)

    def infer(
        self, inputs: Sequence[tuple[Sequence[Any], DType | str] | None], attrs: Mapping[str, AttrValue]
    ) -> tuple[tuple[tuple[Expr, ...], DType], ...]:
        """Shapes and dtypes of the results for operand (shape, dtype) pairs, read from the compute."""
        tensors = [None if i is None else placeholder(i[0], i[1], f"in{n}") for n, i in enumerate(inputs)]
        result = self(*tensors, **attrs)
        results = result if isinstance(result, tuple) else (result,)
        return tuple((t.shape, t.dtype) for t in results)

    def schedule(self, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the schedule of groups anchored at this op on targets of `kind`: f(group, target) -> Schedule."""

        def attach(function: Callable[..., Any]) -> Callable[..., Any]:
            self.schedules[kind] = function
            return function

        return attach

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the numpy meaning, called with arrays (float64 where the op is float) and the attributes."""
        self.numpy = function
        return function

    def implementation(self, made: Implementation) -> Implementation:
        """Adds an implementation."""
        self.implementations.append(made)
        return made

    def algorithm(self, made: Algorithm) -> Algorithm:
        """Adds another algorithm."""
        self.algorithms.append(made)
        return made

    def case(
        self,
        shapes: Sequence[tuple[Any, ...] | None],
        dtypes: Sequence[str] | str = "float32",
        *,
        low: float = -2.0,
        high: float = 2.0,
        tolerance: float = 1e-5,
        **attrs: AttrValue,
    ) -> None:
        """Adds a test input. A dimension is a size, or a name: then it is symbolic and runs at several sizes."""
        names = (dtypes,) * len(shapes) if isinstance(dtypes, str) else tuple(dtypes)
        self.cases.append(Case(tuple(shapes), tuple(str(dtype_of(n)) for n in names), attrs, low, high, tolerance))

    def test(self, targets: Sequence[str] = ("reference", "llvm"), *, vary: bool = True, seed: int = 0) -> Any:
        """Runs the cases over targets and schedules, and with `vary` over more shapes: the compute against the
        reference, every schedule against the compute bit for bit. Gives a report; raises `OpTestError` with each
        failure."""
        from topi.op_test import test_op  # loads compilers, which defining an op does not need

        return test_op(self, targets, vary=vary, seed=seed)


_OPS: dict[str, Op] = {}


def op(
    name: str,
    *,
    onnx: Sequence[Onnx] = (),
    view: bool = False,
    in_place: Sequence[int] = (),
    scale: ScaleRule | None = None,
    training: bool = False,
    bounded: Sequence[Onnx] = (),
    axis_attrs: Mapping[str, AxisUse] | None = None,
) -> Callable[[Callable[..., Any]], Op]:
    """Decorator: makes and registers the op `name` from its compute. A second definition replaces the first, so that a
    notebook cell can be run again."""

    def make(compute: Callable[..., Any]) -> Op:
        made = Op(
            name, compute, onnx=onnx, view=view, in_place=in_place, scale=scale, training=training, bounded=bounded,
            axis_attrs=axis_attrs,
        )  # fmt: skip
        _OPS[name] = made
        return made

    return make


def registered_ops() -> dict[str, Op]:
    """The ops defined so far in this process (op files load on first use: see `topi.registry`)."""
    return _OPS
