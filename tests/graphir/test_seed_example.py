"""data -> conv2d -> batch_norm -> relu -> max_pool2d becomes one convolution kernel and a pool; JSON shows it."""

from __future__ import annotations

import json

import pytest

import nestor as nt
from graphir.errors import GraphError, ShapeError
from tests.graphir.graphs import ops, random, run_levels


def network() -> object:
    sym = nt.sym
    net = sym.conv2d(sym.Variable("data"), channels=64, kernel_size=(3, 3), padding=(1, 1), name="conv")
    return sym.max_pool2d(sym.relu(sym.batch_norm(net, name="bn"), name="relu"), pool_size=(2, 2), name="pool")


def test_one_convolution_kernel_and_a_pool() -> None:
    g = nt.from_symbol(network(), shapes={"data": (1, 3, 32, 32)})
    assert [n["op"] for n in json.loads(g.json())["nodes"] if n["op"] != "null"] == [
        "conv2d", "batch_norm", "relu", "max_pool2d",
    ]  # fmt: skip
    made = run_levels(g, {"data": random(1, 3, 32, 32)}, 2e-5)
    after = json.loads(made[3].graph.json())
    kernels = [n for n in after["nodes"] if n["op"] != "null"]
    assert [n["op"] for n in kernels] == ["group", "max_pool2d"]
    [inside] = kernels[0]["subgraphs"]
    assert [n["op"] for n in inside["nodes"] if n["op"] != "null"] == ["conv2d", "relu"]
    assert len(made[3].plan.kernels) == 2
    assert any("bn (batch_norm) folded into conv" in line for line in made[3].log)
    assert not any("failed" in line for line in made[3].log)


def test_parameters_given_and_drawn() -> None:
    weight = random(64, 3, 3, 3)
    g = nt.from_symbol(network(), shapes={"data": (1, 3, 8, 8)}, params={"conv_weight": weight})
    assert g.params()["conv_weight"] is weight
    again = nt.from_symbol(network(), shapes={"data": (1, 3, 8, 8)}, params={"conv_weight": weight})
    assert repr(g) == repr(again)


def test_mistakes_in_networks() -> None:
    sym = nt.sym
    with pytest.raises(ShapeError, match="the variable data has no shape"):
        nt.from_symbol(network())
    with pytest.raises(GraphError, match="no variable called 'dat'"):
        nt.from_symbol(network(), shapes={"data": (1, 3, 8, 8), "dat": (1,)})
    with pytest.raises(GraphError, match="channels is not given"):
        sym.conv2d(sym.Variable("x"))
    with pytest.raises(nt.UserError, match="no op is called 'conv2dd'"):
        sym.conv2dd(sym.Variable("x"))
    with pytest.raises(ShapeError, match="node bad.*matmul"):
        nt.from_symbol(sym.matmul(sym.Variable("a", (2, 3)), sym.Variable("b", (4, 5)), name="bad"))


def test_symbols_have_operators_and_several_outputs() -> None:
    sym = nt.sym
    x = sym.Variable("x", (2, 6))
    parts = sym.split(x, axis=1, sizes=(2, 4))
    net = [parts[0] * 2.0 + 1.0, -parts[1] / 4.0, 1.0 - parts[0]]
    g = nt.from_symbol(net)
    assert ops(g).count("split") == 1
    run_levels(g, {"x": random(2, 6)})
