"""LSTM, GRU and RNN: one product with the inputs of all steps, then a loop over the recurrent part.

    x [T, B, I]  ->  p = dense(x, W, Wb + Rb) [T, B, gates*H];   loop over t carrying h (and c): p[t], h -> h', c'

Each direction is a loop of its own, the backward one from the end. Steps past a sequence's length keep its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.builder import GraphBuilder
from graphir.errors import UnsupportedError
from graphir.frontends.onnx.control_flow import add_loop, always, body_importer
from graphir.frontends.onnx.registry import Refined, converter
from graphir.ir import Value
from tensorir import dtypes
from tensorir.expr import Expr, Var

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softsign": "softsign", "Softplus": "softplus"}
WITH_ALPHA = {"LeakyRelu": ("leaky_relu", 0.01), "ThresholdedRelu": ("thresholded_relu", 1.0), "Elu": ("elu", 1.0)}
WITH_BETA = {"HardSigmoid": (0.2, 0.5), "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0)}

Activation = Callable[["_Cell", Value], Value]


@dataclass(slots=True)
class _Cell:
    """The body of a direction's loop under construction: its builder, its sizes, its activations."""

    builder: GraphBuilder
    hidden: int
    dtype: Any
    activations: list[Activation]
    clip: float | None

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        return self.builder.add(name, list(inputs), attrs)[0]

    def gate(self, x: Value, number: int) -> Value:
        """The part of a gate in a product of all gates."""
        if dims.constant(x.shape[-1]) == self.hidden:
            return x
        start, end = number * self.hidden, (number + 1) * self.hidden
        return self.op("slice", x, starts=(start,), ends=(end,), axes=(x.rank - 1,), steps=(1,))

    def activate(self, which: int, x: Value) -> Value:
        """Activation number `which`, its operand clipped if the node says so."""
        if self.clip is not None:
            x = self.op("clip", x, low=-self.clip, high=self.clip)
        return self.activations[which](self, x)

    def scalar(self, value: float) -> Value:
        return self.builder.constant(np.array(value, self.dtype.numpy), "scalar")


@converter("LSTM", "GRU", "RNN")
def _recurrent(importer: _Importer, node: OnnxNode) -> list[Any]:
    attrs = node.attrs
    x, recurrence = node.operand(0), node.operand(2)
    direction = str(attrs.get("direction", "forward")).lower()
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if backwards is None:
        raise UnsupportedError(
            f"node {node.name}: unknown direction {direction!r}", missing={node.op_type: [node.name]}
        )
    hidden = int(attrs.get("hidden_size") or dims.constant(recurrence.shape[-1]) or 0)
    batch_first = bool(attrs.get("layout", 0))
    add = importer.builder.add
    if batch_first:
        [x] = add("transpose", [x], {"axes": (1, 0, 2)})
    batch = x.shape[1]
    states = []
    for index in (5, 6) if node.op_type == "LSTM" else (5,):
        state = node.input(index)
        if state is not None and batch_first:
            [state] = add("transpose", [state], {"axes": (1, 0, 2)})
        states.append(state)
    activations = _activations(node, len(backwards))
    sequences, finals = [], []
    for d, backward in enumerate(backwards):
        first = [_initial(importer, s, d, batch, hidden, x) for s in states]
        made = _direction(importer, node, x, d, backward, hidden, first, activations[d])
        sequences.append(add("unsqueeze", [made[-1]], {"axes": (1,)})[0])
        finals.append([add("unsqueeze", [v], {"axes": (0,)})[0] for v in made[:-1]])
    results = [_joined(importer, sequences, 1)]
    results += [_joined(importer, list(parts), 0) for parts in zip(*finals)]
    if batch_first:
        orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
        results = [add("transpose", [v], {"axes": o})[0] for v, o in zip(results, orders)]
    return results[: len(node.outputs)]


def _joined(importer: _Importer, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else importer.builder.add("concat", parts, {"axis": axis})[0]


def _initial(importer: _Importer, state: Value | None, d: int, batch: Expr, hidden: int, x: Value) -> Value:
    """The first state [B, H] of a direction, one row for all if it has one; zeros if the node does not give it."""
    if state is not None:
        first = _part(importer, state, d)
        if dims.same(first.shape[0], batch):
            return first
        if (size := dims.constant(first.shape[0])) is not None and isinstance(batch, Var):
            raise Refined(batch.name, size)
        return importer.builder.add("expand", [first], {"shape": (batch, hidden)})[0]
    size = dims.constant(batch)
    if size is not None:
        return importer.builder.constant(np.zeros((size, hidden), x.dtype.numpy), "zeros")
    [zeros] = importer.builder.add("full", [], {"shape": (batch, hidden), "value": 0.0, "dtype": x.dtype})
    return zeros


def _part(importer: _Importer, v: Value, d: int, start: int | None = None, end: int | None = None) -> Value:
    """Element d of a value along axis 0, and of that the rows start to end; a constant of a constant."""
    data = importer.data(v)
    if data is not None:
        return importer.builder.constant(np.ascontiguousarray(data[d][start:end]), f"{v.name}.{d}")
    bounds: dict[str, Any] = {"starts": (d,), "ends": (d + 1,), "axes": (0,), "steps": (1,)}
    [piece] = importer.builder.add("slice", [v], bounds)
    [piece] = importer.builder.add("squeeze", [piece], {"axes": (0,)})
    if start is not None:
        bounds = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (1,)}
        [piece] = importer.builder.add("slice", [piece], bounds)
    return piece


def _direction(
    importer: _Importer, node: OnnxNode, x: Value, d: int, backward: bool, hidden: int, first: Sequence[Value],
    activations: list[Activation],
) -> list[Value]:  # fmt: skip
    """The last states [B, H] of one direction, then the hidden states of all steps [T, B, H]."""
    builder = importer.builder
    gates = GATES[node.op_type]
    reset_after = node.op_type == "GRU" and bool(node.attrs.get("linear_before_reset", 0))
    bias = node.input(3)
    inputs = [x, _part(importer, node.operand(1), d)]
    recurrent_bias = None
    if bias is not None:
        of_input = _part(importer, bias, d, 0, gates * hidden)
        recurrent_bias = _part(importer, bias, d, gates * hidden, 2 * gates * hidden)
        if not reset_after:  # there the bias of the candidate is inside the reset
            [of_input] = builder.add("add", [of_input, recurrent_bias], {})
            recurrent_bias = None
        inputs.append(of_input)
    [product] = builder.add("dense", inputs, {}, name=f"{node.name}.inputs", origins=node.origins)
    lengths = node.input(4)
    inner = body_importer(importer, f"{node.name}.{d}", first, [product])
    cell = _Cell(inner.builder, hidden, x.dtype, activations, node.attrs.get("clip"))
    iteration, _, *state, now = inner.builder.inputs
    captured = {"recurrence": _part(importer, node.operand(2), d)}
    if recurrent_bias is not None:
        captured["bias"] = recurrent_bias
    peephole = node.input(7)
    if peephole is not None:
        for n, gate in enumerate("iof"):
            captured[gate] = _part(importer, peephole, d, n * hidden, (n + 1) * hidden)
    inside = {name: _capture(importer, inner, v) for name, v in captured.items()}
    made = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}[node.op_type](cell, node, inside, now, state)
    shown = made[0]
    if lengths is not None:
        steps = x.shape[0]
        at = iteration
        if backward:
            last = inner.builder.integers((dims.canonical(steps - 1),), (), dtypes.int64, "last")
            at = cell.op("subtract", last, iteration)
        limits = _capture(importer, inner, lengths)
        wide = cell.op("cast", limits, dtype=dtypes.int64)
        alive = cell.op("unsqueeze", cell.op("less", at, wide), axes=(1,))
        made = [cell.op("where", alive, new, old) for new, old in zip(made, state)]
        shown = cell.op("where", alive, shown, cell.scalar(0.0))
    outputs = [always(inner), *made, shown]
    names = [f"{node.name}.{d}:{n}" for n in range(len(outputs) - 1)]
    return add_loop(
        importer, node, inner, outputs=outputs, names=names, trips=x.shape[0], carried=first, scanned=[product],
        reverse=[backward, backward],
    )  # fmt: skip


def _capture(importer: _Importer, inner: _Importer, v: Value) -> Value:
    """What stands for a value of the outer graph inside the loop."""
    importer.scope.setdefault(v.name, v)
    return inner.lookup(v.name, "the loop")


def _lstm(cell: _Cell, node: OnnxNode, given: Mapping[str, Value], now: Value, state: Sequence[Value]) -> list[Value]:
    h, c = state
    total = cell.op("add", cell.op("dense", h, given["recurrence"]), now)
    i, o, f, g = (cell.gate(total, n) for n in range(4))
    if "i" in given:
        i = cell.op("add", i, cell.op("multiply", given["i"], c))
        f = cell.op("add", f, cell.op("multiply", given["f"], c))
    i = cell.activate(0, i)
    f = cell.op("subtract", cell.scalar(1.0), i) if node.attrs.get("input_forget", 0) else cell.activate(0, f)
    fresh = cell.op("add", cell.op("multiply", f, c), cell.op("multiply", i, cell.activate(1, g)))
    if "o" in given:
        o = cell.op("add", o, cell.op("multiply", given["o"], fresh))
    return [cell.op("multiply", cell.activate(0, o), cell.activations[2](cell, fresh)), fresh]


def _gru(cell: _Cell, node: OnnxNode, given: Mapping[str, Value], now: Value, state: Sequence[Value]) -> list[Value]:
    [h] = state
    weight, bias, hidden = given["recurrence"], given.get("bias"), cell.hidden
    if node.attrs.get("linear_before_reset", 0):
        product = cell.op("dense", h, weight, *([] if bias is None else [bias]))
        z = cell.activate(0, cell.op("add", cell.gate(now, 0), cell.gate(product, 0)))
        r = cell.activate(0, cell.op("add", cell.gate(now, 1), cell.gate(product, 1)))
        inner = cell.op("multiply", r, cell.gate(product, 2))
    else:

        def rows(start: int, end: int) -> Value:
            return cell.op("slice", weight, starts=(start * hidden,), ends=(end * hidden,), axes=(0,), steps=(1,))

        product = cell.op("dense", h, rows(0, 2))
        z = cell.activate(0, cell.op("add", cell.gate(now, 0), cell.gate(product, 0)))
        r = cell.activate(0, cell.op("add", cell.gate(now, 1), cell.gate(product, 1)))
        inner = cell.op("dense", cell.op("multiply", r, h), rows(2, 3))
    candidate = cell.activate(1, cell.op("add", cell.gate(now, 2), inner))
    kept = cell.op("multiply", z, h)
    return [cell.op("add", cell.op("multiply", cell.op("subtract", cell.scalar(1.0), z), candidate), kept)]


def _rnn(cell: _Cell, node: OnnxNode, given: Mapping[str, Value], now: Value, state: Sequence[Value]) -> list[Value]:
    [h] = state
    return [cell.activate(0, cell.op("add", cell.op("dense", h, given["recurrence"]), now))]


def _activations(node: OnnxNode, directions: int) -> list[list[Activation]]:
    """The functions of each direction; their parameters are taken from the node's lists in order."""
    defaults = DEFAULTS[node.op_type]
    names = [str(n) for n in node.attrs.get("activations") or defaults * directions]
    if len(names) != len(defaults) * directions:
        names = list(defaults * directions)
    alphas, betas = (list(node.attrs.get(f"activation_{w}") or ()) for w in ("alpha", "beta"))
    made = [_activation(node, n, alphas, betas) for n in names]
    return [made[d * len(defaults) : (d + 1) * len(defaults)] for d in range(directions)]


def _activation(node: OnnxNode, name: str, alphas: list[float], betas: list[float]) -> Activation:
    known = {n.lower(): n for n in (*PLAIN, *WITH_ALPHA, *WITH_BETA)}.get(name.lower())
    if known in PLAIN:
        return lambda cell, x: cell.op(PLAIN[known], x)
    if known in WITH_ALPHA:
        op, default = WITH_ALPHA[known]
        alpha = float(alphas.pop(0)) if alphas else default
        return lambda cell, x: cell.op(op, x, alpha=alpha)
    if known is None:
        raise UnsupportedError(f"node {node.name}: the activation {name}", missing={node.op_type: [node.name]})
    default_alpha, default_beta = WITH_BETA[known]
    alpha = float(alphas.pop(0)) if alphas else default_alpha
    beta = float(betas.pop(0)) if betas else default_beta
    if known == "HardSigmoid":
        return lambda cell, x: cell.op("hard_sigmoid", x, alpha=alpha, beta=beta)
    if known == "Affine":
        return lambda cell, x: cell.op("add", cell.op("multiply", x, cell.scalar(alpha)), cell.scalar(beta))
    return lambda cell, x: cell.op(
        "multiply", cell.scalar(alpha), cell.op("tanh", cell.op("multiply", x, cell.scalar(beta)))
    )
