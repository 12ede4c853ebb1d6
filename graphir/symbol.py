"""The symbol API: networks written as expressions, weights made when left out.

    data = sym.Variable("data")
    net = sym.conv2d(data, channels=64, kernel_size=(3, 3), padding=(1, 1))
    net = sym.max_pool2d(sym.relu(sym.batch_norm(net)), pool_size=(2, 2), strides=(2, 2))
    g = from_symbol(net, shapes={"data": (1, 3, 224, 224)}, params={...})

`sym.<op>` is every op of topi under its own name; the names in `CLASSICAL` take the classical arguments and make their
weights. A weight that is left out is a parameter called `<name>_weight` (or _bias, _gamma, ...): its data comes from
`params`, else it is drawn from a fixed seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphir import dims
from graphir.builder import GraphBuilder
from graphir.errors import GraphError, ShapeError
from graphir.ir import Graph, Value
from tensorir.dtypes import dtype_of
from tensorir.origin import Origin, python_origin

_COUNTS: dict[str, itertools.count[int]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A node of a network not yet built: a variable, an op on other symbols, or one output of such."""

    op: str
    inputs: tuple[Symbol | None, ...]
    attrs: Mapping[str, Any]
    name: str
    output: int = 0
    origins: tuple[Origin, ...] = ()

    def __repr__(self) -> str:
        return f"Symbol({self.name}: {self.op})"

    def __getitem__(self, index: int) -> Symbol:
        """Output `index` of an op with several."""
        return _Output(self, index)

    def __add__(self, other: Any) -> Symbol:
        return apply("add", self, _operand(other))

    def __radd__(self, other: Any) -> Symbol:
        return apply("add", _operand(other), self)

    def __sub__(self, other: Any) -> Symbol:
        return apply("subtract", self, _operand(other))

    def __rsub__(self, other: Any) -> Symbol:
        return apply("subtract", _operand(other), self)

    def __mul__(self, other: Any) -> Symbol:
        return apply("multiply", self, _operand(other))

    def __rmul__(self, other: Any) -> Symbol:
        return apply("multiply", _operand(other), self)

    def __truediv__(self, other: Any) -> Symbol:
        return apply("divide", self, _operand(other))

    def __neg__(self) -> Symbol:
        return apply("negative", self)


def _Output(source: Symbol, index: int) -> Symbol:
    return Symbol("output", (source,), {"index": index}, f"{source.name}:{index}", index, source.origins)


def _operand(value: Any) -> Symbol:
    return value if isinstance(value, Symbol) else Symbol("scalar", (), {"value": float(value)}, _name("scalar", None))


def _name(op: str, given: str | None) -> str:
    if given is not None:
        return given
    return f"{op}{next(_COUNTS.setdefault(op, itertools.count()))}"


def Variable(name: str, shape: Sequence[Any] | None = None, dtype: str = "float32") -> Symbol:
    """An input or a parameter, by name. `shape` may be left out where `from_symbol` gives it."""
    attrs = {"shape": None if shape is None else tuple(shape), "dtype": dtype}
    return Symbol("variable", (), attrs, name, 0, python_origin())


def Group(symbols: Sequence[Symbol]) -> Symbol:
    """Several symbols as the outputs of one network."""
    return Symbol("outputs", tuple(symbols), {}, "outputs")


def apply(op: str, *inputs: Symbol | None, name: str | None = None, **attrs: Any) -> Symbol:
    """Any op of topi on symbols. Numbers among the operands are 0-d constants."""
    operands = tuple(None if i is None else _operand(i) for i in inputs)
    return Symbol(op, operands, attrs, _name(op, name), 0, python_origin())


# ------------------------------------------------------------------------------------------------- the classical names


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter that is made when left out: what its name ends in, its shape from the data's, how it is drawn."""

    suffix: str
    shape: Callable[[Sequence[int], Mapping[str, Any]], tuple[int, ...]]
    draw: str = "weight"


def _pair(value: Any, count: int = 2) -> tuple[int, ...]:
    return (int(value),) * count if isinstance(value, int) else tuple(int(v) for v in value)


def _pads(value: Any, count: int = 2) -> tuple[int, ...]:
    """Padding as begins then ends: one number, one a axis, or both given."""
    pads = _pair(value, count)
    return pads * 2 if len(pads) == count else pads


def _made(
    name: str, suffix: str, given: Symbol | None, weight: Weight, data: Symbol, attrs: Mapping[str, Any]
) -> Symbol:
    if given is not None:
        return given
    return Symbol("parameter", (data,), {"weight": weight, "attrs": dict(attrs)}, f"{name}_{suffix}")


def _conv_weight(shape: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    return (attrs["channels"], shape[1] // attrs["groups"], *attrs["kernel_size"])


def _conv(rank: int) -> Callable[..., Symbol]:
    op = f"conv{rank}d"

    def make(
        data: Symbol, weight: Symbol | None = None, bias: Symbol | None = None, *, channels: int = 0, kernel_size: Any
        = 1, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, use_bias: bool = True,
        name: str | None = None,
    ) -> Symbol:  # fmt: skip
        label = _name(op, name)
        facts = {"channels": channels, "kernel_size": _pair(kernel_size, rank), "groups": groups}
        if weight is None and channels < 1:
            raise GraphError(f"{label}: channels is not given", help=f"sym.{op}(data, channels=64, kernel_size=(3, 3))")
        w = _made(label, "weight", weight, Weight("weight", _conv_weight), data, facts)
        b = None
        if use_bias:
            b = _made(label, "bias", bias, Weight("bias", lambda s, a: (a["channels"],), "zeros"), data, facts)
        return apply(
            op, data, w, *([b] if b is not None else []), name=label, strides=_pair(strides, rank),
            padding=_pads(padding, rank), dilations=_pair(dilation, rank), groups=groups,
        )  # fmt: skip

    make.__doc__ = f"Convolution over {rank} spatial axes with `channels` results; weight and bias made when left out."
    return make


def dense(
    data: Symbol, weight: Symbol | None = None, bias: Symbol | None = None, *, units: int = 0, use_bias: bool = True,
    name: str | None = None,
) -> Symbol:  # fmt: skip
    """x W^T + b with `units` results; weight and bias made when left out."""
    label = _name("dense", name)
    if weight is None and units < 1:
        raise GraphError(f"{label}: units is not given", help="sym.dense(data, units=10)")
    w = _made(label, "weight", weight, Weight("weight", lambda s, a: (a["units"], s[-1])), data, {"units": units})
    operands = [data, w]
    if use_bias:
        weight_of = Weight("bias", lambda s, a: (a["units"],), "zeros")
        operands.append(_made(label, "bias", bias, weight_of, data, {"units": units}))
    return apply("dense", *operands, name=label)


def batch_norm(
    data: Symbol, gamma: Symbol | None = None, beta: Symbol | None = None, moving_mean: Symbol | None = None,
    moving_var: Symbol | None = None, *, epsilon: float = 1e-5, training: bool = False, name: str | None = None,
) -> Symbol:  # fmt: skip
    """Batch normalisation by channel with the given statistics, or with the batch's if `training`."""
    label = _name("batch_norm", name)
    channels = lambda s, a: (s[1],)  # noqa: E731
    made = [
        _made(label, suffix, given, Weight(suffix, channels, draw), data, {})
        for suffix, given, draw in (
            ("gamma", gamma, "positive"),
            ("beta", beta, "small"),
            ("moving_mean", moving_mean, "small"),
            ("moving_var", moving_var, "positive"),
        )
    ]
    op = "batch_norm_training" if training else "batch_norm"
    result = apply(op, data, *made, name=label, epsilon=epsilon)
    return result[0] if training else result


def _pool(op: str) -> Callable[..., Symbol]:
    def make(
        data: Symbol, *, pool_size: Any = 2, strides: Any = None, padding: Any = 0, ceil_mode: bool = False,
        name: str | None = None,
    ) -> Symbol:  # fmt: skip
        size = _pair(pool_size)
        attrs: dict[str, Any] = {"kernel": size, "strides": size if strides is None else _pair(strides)}
        attrs["padding"] = _pads(padding)
        if ceil_mode:
            attrs["ceil_mode"] = True
        return apply(op, data, name=name, **attrs)

    make.__doc__ = f"{op} over windows of `pool_size`."
    return make


def flatten(data: Symbol, *, name: str | None = None) -> Symbol:
    """All axes but the first as one."""
    return apply("flatten", data, name=name)


def concat(*data: Symbol, axis: int = 1, name: str | None = None) -> Symbol:
    """Joined along `axis`."""
    return apply("concat", *data, name=name, axis=axis)


CLASSICAL: dict[str, Callable[..., Any]] = {
    "Variable": Variable,
    "Group": Group,
    "conv1d": _conv(1),
    "conv2d": _conv(2),
    "conv3d": _conv(3),
    "dense": dense,
    "batch_norm": batch_norm,
    "max_pool2d": _pool("max_pool2d"),
    "avg_pool2d": _pool("avg_pool2d"),
    "flatten": flatten,
    "concat": concat,
}


class Namespace:
    """`sym`: the classical names, and every op of topi under its own."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in CLASSICAL:
            return CLASSICAL[name]
        if name.startswith("_"):
            raise AttributeError(name)
        from topi.registry import get_op

        definition = get_op(name)

        def make(*inputs: Any, name: str | None = None, **attrs: Any) -> Symbol:
            return apply(definition.name, *inputs, name=name, **attrs)

        make.__doc__ = definition.__doc__
        make.__name__ = name
        return make

    def __dir__(self) -> list[str]:
        from topi.index import INDEX

        return sorted({*CLASSICAL, *INDEX})


sym = Namespace()


# ----------------------------------------------------------------------------------------------------------- building


def from_symbol(
    net: Symbol | Sequence[Symbol],
    shapes: Mapping[str, Sequence[Any]] | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    *,
    seed: int = 0,
) -> Graph:
    """The graph of a network. `shapes` gives the shape of each variable, `params` the data of those that are constants;
    parameters made by the classical names and not in `params` are drawn from `seed`."""
    if isinstance(net, Symbol):
        outputs = [s for s in net.inputs if s is not None] if net.op == "outputs" else [net]
    else:
        outputs = list(net)
    building = _Building(dict(shapes or {}), dict(params or {}), np.random.default_rng(seed))
    values = [building.value(s) for s in outputs]
    unused = [n for n in (*building.shapes, *building.params) if n not in building.seen]
    if unused:
        raise GraphError(
            f"the network has no variable called {unused[0]!r}", help=f"it has {', '.join(sorted(building.seen))}"
        )
    return building.builder.finish(values, [s.name for s in outputs])


@dataclass(slots=True)
class _Building:
    shapes: dict[str, Sequence[Any]]
    params: dict[str, np.ndarray]
    rng: np.random.Generator
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    made: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def value(self, root: Symbol) -> Value:
        """The value of a symbol, everything below it built first."""
        stack = [root]
        while stack:
            symbol = stack[-1]
            if id(symbol) in self.made:
                stack.pop()
                continue
            waiting = [s for s in symbol.inputs if s is not None and id(s) not in self.made]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            self.made[id(symbol)] = self.build(symbol)
            stack.pop()
        return self.made[id(root)][0]

    def build(self, symbol: Symbol) -> tuple[Value, ...]:
        """One symbol whose inputs are built."""
        match symbol.op:
            case "variable":
                return (self.variable(symbol),)
            case "parameter":
                return (self.parameter(symbol),)
            case "scalar":
                return (self.builder.constant(np.array(symbol.attrs["value"], np.float32), symbol.name),)
            case "output":
                [source] = symbol.inputs
                assert source is not None
                results = self.made[id(source)]
                if symbol.output >= len(results):
                    raise GraphError(f"{source.name} has {len(results)} outputs, not output {symbol.output}")
                return (results[symbol.output],)
        inputs = [None if s is None else self.made[id(s)][0] for s in symbol.inputs]
        outputs = [symbol.name]
        origins = (Origin("node", symbol.name), *symbol.origins)
        return self.builder.add(symbol.op, inputs, symbol.attrs, name=symbol.name, origins=origins, outputs=outputs)

    def variable(self, symbol: Symbol) -> Value:
        self.seen.add(symbol.name)
        if symbol.name in self.params:
            return self.builder.constant(np.asarray(self.params[symbol.name]), symbol.name)
        shape = self.shapes.get(symbol.name, symbol.attrs["shape"])
        if shape is None:
            raise ShapeError(f"the variable {symbol.name} has no shape", help=f"give shapes={{{symbol.name!r}: (...)}}")
        return self.builder.input(symbol.name, shape, dtype_of(symbol.attrs["dtype"]))

    def parameter(self, symbol: Symbol) -> Value:
        self.seen.add(symbol.name)
        if symbol.name in self.params:
            return self.builder.constant(np.asarray(self.params[symbol.name]), symbol.name)
        [data] = symbol.inputs
        assert data is not None
        known = [dims.constant(d) for d in self.made[id(data)][0].shape]
        weight: Weight = symbol.attrs["weight"]
        try:
            shape = weight.shape(known, symbol.attrs["attrs"])  # type: ignore[arg-type]
        except TypeError:
            raise ShapeError(
                f"the shape of the parameter {symbol.name} depends on a symbolic dimension", help="give it in params="
            ) from None
        return self.builder.constant(_draw(self.rng, shape, weight.draw), symbol.name)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], how: str) -> np.ndarray:
    match how:
        case "zeros":
            data = np.zeros(shape)
        case "positive":
            data = rng.uniform(0.5, 1.5, shape)
        case "small":
            data = 0.1 * rng.standard_normal(shape)
        case _:
            data = rng.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))
    return data.astype(np.float32)
