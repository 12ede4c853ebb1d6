"""Fusion: which nodes become one kernel, and every guard refusing with its reason."""

from __future__ import annotations

import numpy as np
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from graphir.ir import Graph
from graphir.passes.guards import GUARDS
from tensorir import dtypes
from tests.graphir.graphs import context, ops, random, run_levels


def fused(graph: Graph, **options: object) -> tuple[list[str], list[str]]:
    """The ops after fusion, and the log."""
    from graphir.passes.fuse import fuse

    where = context(**options)
    return ops(fuse(graph, where)), where.log


def test_an_epilogue_joins_its_anchor_and_a_pool_does_not() -> None:
    sym = nt.sym
    net = sym.relu(sym.conv2d(sym.Variable("x"), channels=4, kernel_size=(3, 3)))
    g = nt.from_symbol(sym.max_pool2d(net), shapes={"x": (1, 3, 8, 8)})
    found, log = fused(g)
    assert found == ["group[conv2d+relu]", "max_pool2d"]
    assert any(line.startswith("fuse: max_pool2d") for line in log)


def test_chains_prologues_and_moves_fuse() -> None:
    b = GraphBuilder()
    x = b.input("x", ("n", 6))
    [y] = b.add("exp", [x])
    [y] = b.add("transpose", [y], {"axes": (1, 0)})
    [y] = b.add("multiply", [y, y])
    [y] = b.add("sum", [y], {"axes": (0,)})
    [y] = b.add("sqrt", [y])
    g = b.finish([y])
    assert fused(g)[0] == ["group[exp+transpose+multiply+sum+sqrt]"]
    run_levels(g, {"x": random(5, 6)})


def test_a_diamond_fuses_when_its_last_reader_is_inside() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    [y] = b.add("matmul", [x, b.constant(random(8, 5), "w")])
    [s] = b.add("sigmoid", [y])
    g = b.finish([b.add("multiply", [y, s])[0]])
    assert fused(g)[0] == ["group[matmul+sigmoid+multiply]"]
    run_levels(g, {"x": random(4, 8)})


def test_a_join_that_would_make_a_cycle_is_refused() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 4))
    [a] = b.add("exp", [x])
    [m] = b.add("matmul", [a, b.constant(random(4, 4), "w")])
    g = b.finish([b.add("add", [a, m])[0]])
    found, log = fused(g, disabled=frozenset({"outputs"}))
    assert found == ["exp", "group[matmul+add]"]
    run_levels(g, {"x": random(4, 4)})


def test_a_diamond_with_broadcast_and_dense_in_both_orders() -> None:
    """apache/tvm#11704: d * m + unsqueeze(m), operands in both orders."""
    for swap in (False, True):
        b = GraphBuilder()
        x0, x1, x2 = b.input("x0", (1, 2)), b.input("x1", (1, 2)), b.input("x2", (1, 2))
        [d] = b.add("dense", [x2, b.constant(random(2, 2), "w")])
        [m] = b.add("maximum", [x0, x1])
        [e] = b.add("unsqueeze", [m], {"axes": (1,)})
        [p] = b.add("multiply", [m, d] if swap else [d, m])
        g = b.finish([b.add("add", [e, p] if swap else [p, e])[0]])
        run_levels(g, {f"x{i}": random(1, 2, seed=i) for i in range(3)})


def refusals() -> dict[str, tuple[Graph, dict[str, object]]]:
    """For each guard a graph in which it refuses."""
    sym = nt.sym
    x = sym.Variable("x")
    conv = sym.conv2d(x, channels=4, kernel_size=(1, 1))
    shapes = {"x": (2, 3, 4, 4)}
    made: dict[str, tuple[Graph, dict[str, object]]] = {}
    training = sym.relu(sym.batch_norm(x, training=True))
    made["training"] = (nt.from_symbol(training, shapes=shapes), {})
    made["outputs"] = (nt.from_symbol([conv, sym.relu(conv)], shapes=shapes), {})
    b = GraphBuilder()
    [y] = b.add("sum", [b.input("x", (3, 4))], {"axes": (1,), "keepdims": True})
    made["shapes"] = (b.finish([b.add("add", [y, b.constant(random(3, 5), "c")])[0]]), {})
    b = GraphBuilder()
    [y] = b.add("matmul", [b.input("x", (3, 4)), b.constant(random(4, 5), "w")])
    made["attributes"] = (b.finish([b.add("cast", [y], {"dtype": dtypes.float64})[0]]), {})
    b = GraphBuilder()
    [y] = b.add("matmul", [b.input("x", (3, 4)), b.constant(random(4, 5), "w")])
    for i in range(8):
        [y] = b.add("add", [y, b.input(f"z{i}", (3, 5))])
    made["registers"] = (b.finish([y]), {})
    b = GraphBuilder()
    [y] = b.add("exp", [b.input("x", (1, 5))])
    made["parallelism"] = (b.finish([b.add("multiply", [y, b.constant(random(40, 5), "c")])[0]]), {})
    b = GraphBuilder()
    y = b.input("x", (3, 4))
    for _ in range(30):
        [y] = b.add("relu", [y])
    made["size"] = (b.finish([y]), {})
    b = GraphBuilder()
    inner = GraphBuilder("branch")
    y = inner.input("inside", (3,))
    branch = inner.finish([inner.add("exp", [y])[0]], ["e"])
    x = b.input("x", (3,))
    [chosen] = b.add("if", [b.input("k", (), "bool"), x], subgraphs=(branch, branch))
    made["control_flow"] = (b.finish([b.add("relu", [chosen])[0]]), {})
    made["profile"] = (nt.from_symbol(sym.relu(conv), shapes=shapes), {"only_nodes": frozenset({"other"})})
    return made


@pytest.mark.parametrize("name", [g.name for g in GUARDS])
def test_each_guard_refuses_with_its_reason_and_can_be_turned_off(name: str) -> None:
    graph, options = refusals()[name]
    found, log = fused(graph, **options)
    assert any(f"[{name}]" in line for line in log), "\n".join(log)
    if name in ("shapes", "outputs", "training", "control_flow"):
        return  # what remains is refused since one kernel cannot do it
    loose, log = fused(graph, disabled=frozenset({name}), **options)
    assert not any(f"[{name}]" in line for line in log)
    assert len(loose) < len(found)


def test_the_reason_is_in_the_log_of_the_executable() -> None:
    graph, _ = refusals()["registers"]
    executable = nt.compile(graph, opt_level=2)
    assert any("[registers] the epilogue would read" in line for line in executable.log)


def test_guards_turned_off_keep_the_values() -> None:
    for name in ("registers", "parallelism", "size"):
        graph, _ = refusals()[name]
        inputs = {v.name: random(*[int(repr(d)) for d in v.shape], seed=i) for i, v in enumerate(graph.inputs)}
        strict, loose = nt.compile(graph, opt_level=2), nt.compile(graph, opt_level=2, disabled=[name])
        for a, b in zip(strict.run(inputs), loose.run(inputs)):
            assert a.tobytes() == b.tobytes()


def test_scatter_like_sums_finish_before_they_are_gathered() -> None:
    """pytorch/pytorch#171493: a whole sum, gathered by each element."""
    b = GraphBuilder()
    f = b.input("f", (64, 1))
    seg = b.constant(np.zeros((64,), np.int64), "seg")
    [u] = b.add("add", [b.add("multiply", [f, f])[0], b.constant(np.array(0.01, np.float32), "c")])
    [total] = b.add("sum", [u], {"axes": (0,), "keepdims": True})
    [back] = b.add("gather", [total, seg])
    g = b.finish([b.add("divide", [u, back])[0]])
    run_levels(g, {"f": np.ones((64, 1), np.float32)})
