"""Products, reductions and norms of transformers at odd sizes: machine code and interpreter give the same bits, the
right ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphir.builder import GraphBuilder
from graphir.compile import compile as compile_graph
from graphir.ir import Value
from graphir.reference import evaluate
from tests.honesty.test_kernels import check_kernels, kernels_of

Build = Callable[[GraphBuilder, list[Value]], Value]


def _linear(b: GraphBuilder, x: list[Value]) -> Value:
    [y] = b.add("add", [b.add("matmul", x[:2])[0], x[2]])
    return b.add("add", [x[3], b.add("tanh", [y])[0]])[0] if len(x) > 3 else b.add("tanh", [y])[0]


def _one(op: str, **attrs: object) -> Build:
    return lambda b, x: b.add(op, x, attrs)[0]


LAYERS: dict[str, tuple[Build, tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "rows of all batches": (_linear, ((2, 5, 13, 40), (40, 70), (70,), (2, 5, 13, 70)), (1, 2)),
    "one row a batch": (_linear, ((19, 1, 24), (24, 50), (50,)), (1, 2)),
    "a leading one": (_linear, ((1, 29, 24), (24, 130), (130,), (1, 29, 130)), (1, 2)),
    "large weights": (_linear, ((21, 512), (512, 1100), (1100,)), (1, 2)),
    "packed at run time": (_linear, ((3, 7, 20), (20, 33), (33,)), ()),
    "batches": (_linear, ((2, 3, 9, 17), (2, 3, 17, 21), (21,)), ()),
    "softmax of a row": (_one("softmax"), ((3, 5, 49),), ()),
    "softmax of 64": (_one("softmax"), ((3, 64),), ()),
    "softmax of a long row": (_one("softmax"), ((3, 333),), ()),
    "log softmax": (_one("log_softmax"), ((3, 197),), ()),
    "layer norm": (_one("layer_norm"), ((7, 96), (96,), (96,)), ()),
    "layer norm of a long row": (_one("layer_norm"), ((3, 5, 391), (391,), (391,)), ()),
    "rms norm": (_one("rms_norm"), ((5, 80), (80,)), ()),
    "mean": (_one("mean", axes=(-1,)), ((5, 300),), ()),
    "product": (_one("prod", axes=(1,), keepdims=False), ((5, 33),), ()),
    "largest of all": (_one("max", axes=(0,), keepdims=False), ((1000,),), ()),
}


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_of_a_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, shapes, constants = LAYERS[name]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    b = GraphBuilder()
    values = [b.constant(a, f"w{n}") if n in constants else b.input(f"x{n}", a.shape) for n, a in enumerate(arrays)]
    graph = b.finish([build(b, values)], ["y"])
    made: list[object] = []
    seen = kernels_of(monkeypatch, lambda: made.append(compile_graph(graph)))
    assert not any(s.implementation == "unscheduled" for _, s in seen.values())
    assert check_kernels(seen) == []
    given = {f"x{n}": a for n, a in enumerate(arrays) if n not in constants}
    want = evaluate(graph, given)["y"]
    poisoned = np.full(want.shape, np.nan, np.float32)
    made[0].run(given, outputs=[poisoned])  # type: ignore[attr-defined]
    np.testing.assert_allclose(poisoned, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("op", ["softmax", "max", "sum"])
def test_reductions_meet_nan_and_infinity_as_numpy_does(op: str) -> None:
    x = np.random.default_rng(0).standard_normal((8, 70)).astype(np.float32)
    x[0, 69], x[1, 3], x[2, 40], x[3] = np.nan, np.inf, -np.inf, -0.0
    x[4, 5], x[5] = 300.0, -np.inf
    b = GraphBuilder()
    attrs = {} if op == "softmax" else {"axes": (-1,)}
    graph = b.finish([b.add(op, [b.input("x0", x.shape)], attrs)[0]], ["y"])
    with np.errstate(all="ignore"):
        want = evaluate(graph, {"x0": x})["y"]
    for level in range(4):
        [y] = compile_graph(graph, opt_level=level).run([x])
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
