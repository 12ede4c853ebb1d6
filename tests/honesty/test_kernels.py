"""For every kernel of every tested model: rebuilt at a small shape with the same implementation and configuration, its
last Tensor IR in the interpreter equals its machine code bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import graphir.compile
import nestor
from targets.build import resolve
from tensorir.dtypes import float32
from tensorir.expr import Const, const
from tensorir.layout import Layout
from tests.honesty.check import check_kernel
from tests.honesty.shrink import Limits, iterations, shrink, small_group, symbol_sizes
from tests.models import zoo
from tests.nestor.test_real_models import SHAPES
from topi.group import CompiledGroup, GroupInput, GroupNode, GroupSpec, compose, lower_group, spec_of

BUDGET = 250_000
"""The most block iterations of a rebuilt kernel, which the interpreter runs."""

Seen = dict[str, tuple[GroupSpec, CompiledGroup]]


def kernels_of(monkeypatch: pytest.MonkeyPatch, compile_model: Callable[[], Any]) -> Seen:
    """The groups that a compilation makes kernels of, with how each was made."""
    seen: Seen = {}
    make = graphir.compile.kernel_of

    def recording(call: Any, target: Any) -> Any:
        kernel = make(call, target)
        seen[call.spec.key()] = (call.spec, kernel.group)
        return kernel

    monkeypatch.setattr(graphir.compile, "kernel_of", recording)
    monkeypatch.setenv("NESTOR_CACHE", "off")
    compile_model()
    return seen


def check_kernels(seen: Mapping[str, tuple[GroupSpec, CompiledGroup]]) -> list[str]:
    """What is wrong with the kernels, one line each."""
    target = resolve("llvm")
    wrong: list[str] = []
    done: set[tuple[str, str]] = set()
    for spec, made in seen.values():
        label = " ".join(n.op for n in spec.nodes)
        try:
            small = small_group(spec, target, BUDGET)
            key = (small.key(), repr(made.config))
            if key in done:
                continue
            done.add(key)
            func = lower_group(compose(small, target), target, made.config)
            check_kernel(func, target, symbol_sizes(small))
        except Exception as error:
            wrong.append(f"{label} ({made.implementation} {made.config}): {type(error).__name__}: {error}"[:600])
    return wrong


@pytest.mark.parametrize("name", zoo.MODELS)
def test_kernels_of_a_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kernels_of(monkeypatch, lambda: nestor.compile(zoo.load(name), shapes=SHAPES[name] or None))
    assert seen
    assert check_kernels(seen) == []


# ------------------------------------------------------------------------------------------------- shrinking by itself


def _convolution() -> GroupSpec:
    layout = Layout.parse("NCHW16c", logical="NCHW")
    x = spec_of(tuple(map(const, (1, 72, 56, 56))), float32, layout)
    weight = spec_of(tuple(map(const, (128, 72, 3, 3))), x.dtype)
    result = spec_of(tuple(map(const, (1, 128, 56, 56))), x.dtype, layout)
    nodes = (
        GroupNode("conv2d", (("padding", (1, 1, 1, 1)),), (("in", 0), ("in", 1)), (result,)),
        GroupNode("add", (), (("node", 0, 0), ("in", 2)), (result,)),
    )
    return GroupSpec((GroupInput(x), GroupInput(weight, True), GroupInput(result)), nodes, ((1, 0),))


def test_shrink_keeps_what_matters() -> None:
    spec = _convolution()
    small = shrink(spec, Limits(16, 3, 30))
    shapes = [tuple(int(e.value) for e in i.spec.shape if isinstance(e, Const)) for i in small.inputs]
    assert shapes[0][:3] == (1, 24, 3) and shapes[0][3] <= 30  # 72 = 4 * 16 + 8 keeps its rest
    assert shapes[1] == (16, 24, 3, 3)
    assert shapes[2] == (1, 16, *shapes[0][2:])  # the other operand of the sum has the shape of the convolution
    assert [i.spec.layout for i in small.inputs] == [i.spec.layout for i in spec.inputs]
    target = resolve("llvm")
    assert iterations(small, target) < iterations(spec, target)
