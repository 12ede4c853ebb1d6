"""Long float sums in chunks: what is declared, that schedules keep the bits, and that the error shrinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from targets.build import resolve
from tensorir.te import collect_operations, placeholder
from tests.topi.test_group import PACKED, make_spec, numbers, pack, run, spec, step
from topi import schedules
from topi.chunks import CHUNK, LONGEST, cut, find_chunk
from topi.group import GroupInput, GroupNode, GroupSpec, TensorSpec, choose_implementation, find_implementation
from topi.kinds import fusion_kind
from topi.op import Call
from topi.registry import get_op

TARGET = resolve("llvm")


@pytest.fixture(autouse=True, params=[0, 16_384], ids=["parallel", "by size"])
def _hand_off(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "HAND_OFF", request.param)


@pytest.mark.parametrize("extent", [1, 5, 128, 129, 592, 1000, 1333, 100_003])
@pytest.mark.parametrize("steps", [1, 9, 144, 1000])
def test_chunks_cover_the_extent_once(extent: int, steps: int) -> None:
    chunks = cut(extent, steps, "k")
    assert 1 <= chunks.size <= extent
    assert chunks.size * (chunks.count - 1) < extent <= chunks.size * chunks.count
    assert chunks.size == 1 or chunks.size * steps <= 2.5 * CHUNK


def chunk_stages(outputs: Any) -> int:
    return sum(find_chunk(op) is not None for op in collect_operations(outputs) if hasattr(op, "bodies"))


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "stages"),
    [
        ("matmul", [(3, LONGEST), (LONGEST, 5)], "float32", 0),
        ("matmul", [(3, LONGEST + 1), (LONGEST + 1, 5)], "float32", 1),
        ("matmul", [(3, 2000), (2000, 5)], "int32", 0),
        ("conv2d", [(1, 64, 9, 9), (4, 64, 3, 3)], "float32", 1),
        ("global_avg_pool", [(1, 4, 30, 30)], "float32", 1),
        ("sum", [(1_000_000,)], "float32", 2),
        ("max", [(1_000_000,)], "float32", 0),
    ],
)
def test_only_long_float_sums_are_cut(op: str, shapes: list[tuple[int, ...]], dtype: str, stages: int) -> None:
    made = get_op(op)(*[placeholder(s, dtype, "x") for s in shapes])
    assert chunk_stages([made]) == stages


@pytest.mark.parametrize(
    ("op", "shapes", "kind"),
    [
        ("matmul", [(3, 2000), (2000, 5)], "contraction"),
        ("conv2d", [(1, 64, 9, 9), (4, 64, 3, 3)], "contraction"),
        ("sum", [(5, 2000)], "reduction"),
        ("softmax", [(5, 2000)], "composite"),
    ],
)
def test_a_sum_of_chunks_counts_as_one_reduction(op: str, shapes: list[tuple[int, ...]], kind: str) -> None:
    assert fusion_kind([get_op(op)(*[placeholder(s, "float32", "x") for s in shapes])]) == kind


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got.astype(np.float64) - wanted).max() / np.abs(wanted).max())


def test_generic_groups_keep_the_bits_of_the_declaration() -> None:
    a, b, c = numbers(5, 1333), numbers(1333, 33, seed=1), numbers(33, seed=2)
    group = make_spec(
        [spec((5, 1333)), spec((1333, 33)), spec((33,))], [step("matmul", 0, 1), step("add", 3, 2), step("relu", 4)]
    )
    [z] = run(group, [a, b, c])
    assert relative_error(z, np.maximum(a.astype(np.float64) @ b + c, 0)) < 5e-7


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)])
def test_reductions_over_any_axes(axes: tuple[int, ...]) -> None:
    x = numbers(33, 40, 35, low=0.0)
    group = make_spec([spec(x.shape)], [step("exp", 0), step("sum", 1, axes=axes), step("sqrt", 2)])
    [z] = run(group, [x])
    assert relative_error(z, np.sqrt(np.exp(x.astype(np.float64)).sum(axes, keepdims=True))) < 5e-7


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
def test_rows_in_several_passes(op: str) -> None:
    x = numbers(8, 1500)
    if op == "softmax":
        [z] = run(make_spec([spec(x.shape)], [step(op, 0)]), [x])
        e = np.exp(x.astype(np.float64))
        assert relative_error(z, e / e.sum(-1, keepdims=True)) < 5e-7
        return
    scale, bias = numbers(1500, seed=1), numbers(1500, seed=2)
    group = make_spec([spec(x.shape), spec((1500,)), spec((1500,))], [step(op, 0, 1, 2)])
    [z] = run(group, [x, scale, bias])
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale + bias
    assert relative_error(z, wanted) < 1e-6


@pytest.mark.parametrize("size", [24, 31])
def test_means_of_packed_pictures(size: int) -> None:
    x = numbers(1, 20, size, size, low=0.5)
    group = make_spec([spec(x.shape, layout=PACKED)], [step("mean", 0, axes=(2, 3), to=PACKED)])
    [z] = run(group, [x])
    wanted = pack(x.astype(np.float64).mean((2, 3), keepdims=True), PACKED)
    assert relative_error(z, wanted) < 5e-7


# ------------------------------------------------------------------------------------------------------------- strict


def call_of(op: str, *shapes: tuple[int, ...]) -> Call:
    inputs = tuple(map(spec, shapes))
    definition = get_op(op)
    made = definition.infer([(i.shape, i.dtype) for i in inputs], {})
    outputs = tuple(spec(shape, str(t)) for shape, t in made)
    return Call(definition, inputs, outputs, {}, (False, *[True] * (len(shapes) - 1)))


@pytest.mark.parametrize(
    ("op", "shapes", "one_pass", "chunked"),
    [
        ("conv2d", [(1, 64, 9, 9), (32, 64, 3, 3)], "direct", "direct_in_chunks"),
        ("matmul", [(4, 2000), (2000, 48)], "packed", "packed_in_chunks"),
        ("conv2d", [(1, 32, 9, 9), (32, 32, 3, 3)], "direct", "direct"),
        ("matmul", [(4, 500), (500, 48)], "packed", "packed"),
    ],
)
def test_strict_takes_long_sums_in_chunks(op: str, shapes: list[tuple[int, ...]], one_pass: str, chunked: str) -> None:
    call = call_of(op, *shapes)
    found, _ = choose_implementation(call, TARGET)
    strict, reasons = choose_implementation(call, TARGET, "strict")
    assert found is not None and strict is not None
    assert (found.name, strict.name) == (one_pass, chunked)
    if chunked != one_pass:
        assert any("one after the other; precision=strict allows 512" in r for r in reasons)


def implemented(call: Call, name: str) -> GroupSpec:
    """A group of one node by an implementation, its operands in the layouts that it wants."""
    operands, results = find_implementation(call.op, name).layouts(call, TARGET)
    inputs = [
        TensorSpec(i.shape, i.dtype, layout or i.layout)
        for i, layout in zip(call.inputs, operands, strict=True)
        if i is not None
    ]
    outputs = tuple(TensorSpec(o.shape, o.dtype, layout) for o, layout in zip(call.outputs, results, strict=True))
    node = GroupNode(call.op.name, (), tuple(("in", n) for n in range(len(inputs))), outputs, name)
    given = tuple(GroupInput(i, n > 0) for n, i in enumerate(inputs))
    return GroupSpec(given, (node,), ((0, 0),))


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("conv2d", [(1, 64, 6, 5), (32, 64, 3, 3)]),  # chunks of one block of channels
        ("conv2d", [(1, 592, 3, 5), (16, 592, 1, 1), (16,)]),  # 37 blocks do not divide
        ("conv2d", [(1, 5, 12, 12), (16, 5, 11, 11)]),  # few channels, in plain layout
        ("matmul", [(3, 1333), (1333, 40)]),
        ("dense", [(2, 1024), (40, 1024), (40,)]),
    ],
)
def test_chunks_in_registers_keep_the_bits_of_the_declaration(op: str, shapes: list[tuple[int, ...]]) -> None:
    call = call_of(op, *shapes)
    name = "direct_in_chunks" if op == "conv2d" else "packed_in_chunks"
    assert find_implementation(call.op, name).applicable(call, TARGET) is None
    arrays = [numbers(*s, seed=n) for n, s in enumerate(shapes)]
    [z] = run(implemented(call, name), arrays)
    assert call.op.numpy is not None
    wanted = call.op.numpy(*[a.astype(np.float64) for a in arrays])
    layout = find_implementation(call.op, name).layouts(call, TARGET)[1][0]
    assert relative_error(z, pack(wanted, layout)) < 5e-7
