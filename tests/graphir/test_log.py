"""What `exe.log` says: one readable line a decision, and nothing slower than chosen without a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nestor as nt
from graphir import compile as compiling
from graphir.builder import GraphBuilder
from graphir.ir import Graph
from tests.graphir.graphs import random


def network() -> Graph:
    """Two convolutions, one of stride 2, and a depthwise one."""
    b = GraphBuilder()
    y = b.input("x", (1, 16, 12, 12))
    for n, (channels, attrs) in enumerate(((16, {}), (32, {"strides": (2, 2)}), (32, {"groups": 32}))):
        inputs = int(y.shape[1].value) // int(attrs.get("groups", 1))  # type: ignore[attr-defined, call-overload]
        w = b.constant(random(channels, inputs, 3, 3, seed=n) / 5, f"w{n}")
        [y] = b.add("conv2d", [y, w], {"padding": (1, 1, 1, 1), **attrs}, name=f"conv{n}")
    return b.finish([y])


def test_a_decision_is_one_line_with_what_was_refused() -> None:
    log = nt.compile(network(), cache=False).log
    for name in ("conv0", "conv1", "conv2"):
        for of in ("layouts", "algorithms"):
            assert sum(line.startswith(f"{of}: {name} (") for line in log) <= 1, "\n".join(log)
    [first] = [line for line in log if line.startswith("algorithms: conv1 (conv2d) stays as it is; not by ")]
    assert "winograd" in first
    [second] = [line for line in log if line.startswith("layouts: conv1 (conv2d) by direct; not ")]
    assert "depthwise: not depthwise" in second
    assert any(line.startswith("layouts: conv2 (conv2d) by depthwise") for line in log)


def test_every_pass_says_its_time() -> None:
    executable = nt.compile(network(), cache=False)
    for name in ("infer", "simplify", "transposes", "fold_scales", "layouts", "fuse"):
        assert any(line.startswith(f"{name}: ") and line.endswith("MB") for line in executable.log), name


def fail(implementations: bool) -> Any:
    """A `kernel_of` that fails; with `implementations` for groups with one alone."""
    working = compiling.kernel_of

    def kernel_of(call: Any, target: Any) -> Any:
        if not implementations or any(n.implementation for n in call.spec.nodes):
            raise nt.UserError("planted")
        return working(call, target)

    return kernel_of


@pytest.mark.parametrize("implementations", [True, False])
def test_a_kernel_that_is_not_as_chosen_warns_and_is_right(
    monkeypatch: pytest.MonkeyPatch, implementations: bool
) -> None:
    [want] = nt.compile(network(), opt_level=0, cache=False).run({"x": random(1, 16, 12, 12)})
    monkeypatch.setattr(compiling, "kernel_of", fail(implementations))
    text = (
        "by depthwise failed, the generic schedule is taken: planted"
        if implementations
        else "runs unscheduled: planted"
    )
    with pytest.warns(nt.FallbackWarning, match=text):
        executable = nt.compile(network(), cache=False, precision="strict")
    np.testing.assert_allclose(executable.run({"x": random(1, 16, 12, 12)})[0], want, rtol=0, atol=1e-5)
    assert any(text in line for line in executable.log)


def test_a_user_can_make_it_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "kernel_of", fail(True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", nt.FallbackWarning)
        with pytest.raises(nt.FallbackWarning, match="the generic schedule is taken: planted"):
            nt.compile(network(), cache=False)
