"""Groups: several nodes in one function, packed layouts, symbols; scheduled code gives the plain program's bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from targets.build import resolve
from targets.kernel import Kernel, NativeRunner
from tensorir.dtypes import dtype_of
from tensorir.interpreter import evaluate, interpret
from tensorir.layout import Layout
from tensorir.te import create_func, var
from topi import schedules
from topi.group import GroupInput, GroupNode, GroupSpec, TensorSpec, compile_group, compose
from topi.registry import get_op

TARGET = resolve("llvm")
PACKED = Layout.parse("NCHW16c", logical="NCHW")


@dataclass(frozen=True)
class Step:
    """A node of a test group: op, operands by number (inputs first, then earlier steps), attributes, layout."""

    op: str
    operands: tuple[int | None, ...]
    attrs: Mapping[str, Any]
    layout: Layout | None = None


def step(op: str, *operands: int | None, to: Layout | None = None, **attrs: Any) -> Step:
    return Step(op, operands, attrs, to)


def make_spec(inputs: Sequence[TensorSpec], steps: Sequence[Step], outputs: Sequence[int] | None = None) -> GroupSpec:
    """A group whose result types are inferred; `outputs` are numbers of steps, by default the last."""
    known: list[TensorSpec] = list(inputs)
    references: list[Any] = [("in", i) for i in range(len(inputs))]
    nodes: list[GroupNode] = []
    for s in steps:
        given = [None if o is None else (known[o].shape, known[o].dtype) for o in s.operands]
        made = get_op(s.op).infer(given, s.attrs)
        specs = tuple(TensorSpec(shape, t, s.layout or Layout.plain(len(shape))) for shape, t in made)
        operands = tuple(None if o is None else references[o] for o in s.operands)
        nodes.append(GroupNode(s.op, tuple(sorted(s.attrs.items())), operands, specs))
        known.append(specs[0])
        references.append(("node", len(nodes) - 1, 0))
    chosen = [len(steps) - 1] if outputs is None else outputs
    results = tuple((n, o) for n in chosen for o in range(len(nodes[n].outputs)))
    return GroupSpec(tuple(GroupInput(s) for s in inputs), tuple(nodes), results)


def spec(shape: Sequence[Any], dtype: str = "float32", layout: Layout | None = None) -> TensorSpec:
    from tensorir.buffer import as_shape

    return TensorSpec(as_shape(tuple(shape)), dtype_of(dtype), layout or Layout.plain(len(shape)))


def pack(a: np.ndarray, layout: Layout, fill: float = 0.0) -> np.ndarray:
    """The array in the memory order of a layout, padding lanes filled."""
    blocks = layout.block
    if a.ndim == 0:
        return a
    padded = np.pad(a, [(0, -s % b) for s, b in zip(a.shape, blocks, strict=True)], constant_values=fill)
    shape: list[int] = []
    places: list[tuple[int, int]] = []
    for axis, size in enumerate(padded.shape):
        parts = sorted((d for d in layout.dims if d.axis == axis), key=lambda d: -d.stride)
        for d in parts:
            shape.append(size // d.stride if d.extent is None else d.extent)
            places.append((axis, d.stride))
    order = [places.index((d.axis, d.stride)) for d in layout.dims]
    return np.ascontiguousarray(padded.reshape(shape).transpose(order))


def poison(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    return np.full(shape, np.nan if dtype.kind == "f" else 77, dtype)


def run(
    group: GroupSpec, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None, threads: int = 2
) -> list[np.ndarray]:
    """Runs the compiled group on logical arrays; also checks it bit for bit against the unscheduled program. Gives the
    physical results."""
    sizes = {v: (dims or {})[v.name] for v in group.symbols()}
    composed = compose(group, TARGET)
    given = [pack(a, i.spec.layout) for a, i in zip(arrays, group.inputs, strict=True)]
    shapes = [[int(evaluate(e, sizes)) for e in t.shape] for t in composed.outputs]
    types = [np.dtype(t.dtype.numpy) for t in composed.outputs]
    plain = [poison(s, t) for s, t in zip(shapes, types, strict=True)]
    interpret(create_func(list(composed.args)), [*given, *plain], sizes)
    compiled = compile_group(group, TARGET, name="kernel")
    results = [poison(s, t) for s, t in zip(shapes, types, strict=True)]
    Kernel(compiled.func, TARGET, NativeRunner(compiled.kernel, threads=threads))(*given, *results)
    for a, b in zip(results, plain, strict=True):
        assert a.tobytes() == b.tobytes(), "the schedule changed bits"
    return results


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


@pytest.fixture(autouse=True, params=[0, 16_384], ids=["parallel", "by size"])
def _hand_off(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "HAND_OFF", request.param)


# ------------------------------------------------------------------------------------------------------ several nodes


def test_add_and_relu() -> None:
    group = make_spec([spec((3, 37)), spec((37,))], [step("add", 0, 1), step("relu", 2)])
    x, y = numbers(3, 37), numbers(37, seed=1)
    [z] = run(group, [x, y])
    np.testing.assert_array_equal(z, np.maximum(x + y, 0))


def test_both_nodes_are_outputs() -> None:
    group = make_spec([spec((3, 37))], [step("exp", 0), step("relu", 1)], outputs=[0, 1])
    x = numbers(3, 37)
    y, z = run(group, [x])
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(z, y)


def test_matmul_with_bias_and_relu() -> None:
    group = make_spec(
        [spec((5, 19)), spec((19, 33)), spec((33,))], [step("matmul", 0, 1), step("add", 3, 2), step("relu", 4)]
    )
    a, b, c = numbers(5, 19), numbers(19, 33, seed=1), numbers(33, seed=2)
    [z] = run(group, [a, b, c])
    np.testing.assert_allclose(z, np.maximum(a.astype(np.float64) @ b + c, 0), rtol=1e-5, atol=1e-5)


def test_a_prologue_is_computed_inside_a_matmul() -> None:
    group = make_spec([spec((5, 19)), spec((19, 33))], [step("relu", 0), step("matmul", 2, 1)])
    a, b = numbers(5, 19), numbers(19, 33, seed=1)
    [z] = run(group, [a, b])
    np.testing.assert_allclose(z, np.maximum(a, 0).astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_transpose_then_softmax_then_scale() -> None:
    group = make_spec(
        [spec((5, 3, 21)), spec(())],
        [step("transpose", 0, axes=(1, 0, 2)), step("softmax", 2), step("multiply", 3, 1)],
    )
    x, s = numbers(5, 3, 21), np.array(3.0, np.float32)
    [z] = run(group, [x, s])
    e = np.exp(x.transpose(1, 0, 2).astype(np.float64))
    np.testing.assert_allclose(z, 3 * e / e.sum(-1, keepdims=True), rtol=2e-6)


def test_an_attention_mask_before_softmax() -> None:
    group = make_spec(
        [spec((2, 7, 33)), spec((2, 1, 33), "bool"), spec(())], [step("where", 1, 0, 2), step("softmax", 3)]
    )
    x, m = numbers(2, 7, 33), np.random.default_rng(1).integers(0, 2, (2, 1, 33)).astype(bool)
    [z] = run(group, [x, m, np.array(-1e9, np.float32)])
    e = np.where(m, np.exp(x.astype(np.float64)), 0)
    np.testing.assert_allclose(z, e / e.sum(-1, keepdims=True), rtol=2e-6, atol=1e-12)


def test_layer_norm_of_a_sum() -> None:
    group = make_spec(
        [spec((4, 50)), spec((4, 50)), spec((50,)), spec((50,))], [step("add", 0, 1), step("layer_norm", 4, 2, 3)]
    )
    x, y, s, b = numbers(4, 50), numbers(4, 50, seed=1), numbers(50, seed=2), numbers(50, seed=3)
    [z] = run(group, [x, y, s, b])
    t = (x + y).astype(np.float64)
    wanted = (t - t.mean(1, keepdims=True)) / np.sqrt(t.var(1, keepdims=True) + 1e-5) * s + b
    np.testing.assert_allclose(z, wanted, rtol=2e-5, atol=2e-6)


def test_a_reduction_with_prologue_and_epilogue() -> None:
    group = make_spec([spec((6, 45))], [step("exp", 0), step("sum", 1, axes=(0,)), step("log", 2)])
    x = numbers(6, 45)
    [z] = run(group, [x])
    np.testing.assert_allclose(z, np.log(np.exp(x.astype(np.float64)).sum(0, keepdims=True)), rtol=1e-5)


def test_a_group_of_scalars() -> None:
    group = make_spec([spec(()), spec((1, 1))], [step("add", 0, 1), step("sigmoid", 2)])
    [z] = run(group, [np.array(0.5, np.float32), np.full((1, 1), 1.0, np.float32)])
    np.testing.assert_allclose(z, [[1 / (1 + np.exp(-1.5))]], rtol=1e-6)


def test_inputs_that_are_not_read_stay_parameters() -> None:
    group = make_spec([spec((3, 4)), spec((0, 4))], [step("concat", 0, 1, axis=0)])
    x = numbers(3, 4)
    [z] = run(group, [x, np.zeros((0, 4), np.float32)])
    np.testing.assert_array_equal(z, x)


# ------------------------------------------------------------------------------------------------------------ symbols


@pytest.mark.parametrize("batch", [0, 1, 5, 40])
def test_a_symbolic_batch(batch: int) -> None:
    n = var("n")
    group = make_spec([spec((n, 3, 37)), spec((37,))], [step("add", 0, 1), step("softmax", 2)])
    x, y = numbers(batch, 3, 37), numbers(37, seed=1)
    [z] = run(group, [x, y], {"n": batch})
    e = np.exp((x + y).astype(np.float64))
    np.testing.assert_allclose(z, e / e.sum(-1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("size", [1, 15, 16, 33])
def test_a_symbolic_innermost_axis(size: int) -> None:
    n = var("n")
    flat = make_spec([spec((3, n)), spec((3, n))], [step("multiply", 0, 1)])
    x, y = numbers(3, size), numbers(3, size, seed=1)
    np.testing.assert_array_equal(run(flat, [x, y], {"n": size})[0], x * y)
    reduced = make_spec([spec((5, n))], [step("max", 0, axes=(0,), keepdims=False)])
    x = numbers(5, size)
    np.testing.assert_array_equal(run(reduced, [x], {"n": size})[0], x.max(0))
    rows = make_spec([spec((5, n))], [step("sum", 0, axes=(1,))])
    np.testing.assert_allclose(run(rows, [x], {"n": size})[0], x.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_keys_name_symbols_by_first_use() -> None:
    def key(n: Any, shape: tuple[Any, ...]) -> str:
        return make_spec([spec(shape)], [step("relu", 0)]).key()

    a, b, c = var("a"), var("b"), var("c")
    assert key(a, (a, 3)) == key(b, (b, 3))
    assert key(a, (a, a)) != key(a, (a, b))
    assert key(a, (a, 3)) != key(a, (a, 4))
    assert key(c, (c * 2, c)) == key(a, (a * 2, a))


def test_keys_tell_attributes_layouts_and_structure_apart() -> None:
    x = spec((1, 32, 4, 4))
    packed = spec((1, 32, 4, 4), layout=PACKED)
    texts = {
        make_spec([x], [step("leaky_relu", 0, alpha=0.1)]).key(),
        make_spec([x], [step("leaky_relu", 0, alpha=0.2)]).key(),
        make_spec([packed], [step("leaky_relu", 0, alpha=0.1)]).key(),
        make_spec([x, x], [step("add", 0, 0)]).key(),
        make_spec([x, x], [step("add", 0, 1)]).key(),
        make_spec([x], [step("relu", 0), step("exp", 1)], outputs=[0, 1]).key(),
        make_spec([x], [step("relu", 0), step("exp", 1)], outputs=[1]).key(),
    }
    assert len(texts) == 7


def test_a_symbol_that_only_an_attribute_names_is_a_dimension() -> None:
    s = var("s")
    group = make_spec([spec((10, 4))], [step("slice", 0, starts=(s,), ends=(s + 3,), axes=(0,))])
    assert [v.name for v in group.symbols()] == ["s"]
    compiled = compile_group(group, TARGET, name="kernel")
    assert [d.name for d in compiled.func.dims] == ["s"]


# ------------------------------------------------------------------------------------------------------------ layouts

CHANNELS = [32, 20]


def packed_result(group: GroupSpec, arrays: Sequence[np.ndarray], wanted: np.ndarray, **tolerance: float) -> None:
    """The group's packed result against a logical one; padding lanes are zero."""
    [z] = run(group, arrays)
    np.testing.assert_allclose(z, pack(wanted, PACKED), **(tolerance or {"rtol": 1e-6, "atol": 1e-6}))


@pytest.mark.parametrize("c", CHANNELS)
def test_elementwise_on_packed_channels(c: int) -> None:
    x, y = numbers(2, c, 5, 3), numbers(2, c, 5, 3, seed=1)
    given = spec(x.shape, layout=PACKED)
    group = make_spec([given, given], [step("add", 0, 1, to=PACKED), step("relu", 2, to=PACKED)])
    packed_result(group, [x, y], np.maximum(x + y, 0))


@pytest.mark.parametrize("c", CHANNELS)
def test_what_does_not_keep_zero_is_masked(c: int) -> None:
    x = numbers(1, c, 4, 5)
    group = make_spec([spec(x.shape, layout=PACKED)], [step("exp", 0, to=PACKED)])
    packed_result(group, [x], np.exp(x))


@pytest.mark.parametrize("c", CHANNELS)
def test_a_channel_vector_on_packed_channels(c: int) -> None:
    x, s = numbers(1, c, 4, 5), numbers(c, 1, 1, seed=1)
    group = make_spec([spec(x.shape, layout=PACKED), spec(s.shape)], [step("add", 0, 1, to=PACKED)])
    packed_result(group, [x, s], x + s)


@pytest.mark.parametrize("c", CHANNELS)
def test_squeeze_and_excite_gate_on_packed_channels(c: int) -> None:
    x, s = numbers(1, c, 4, 5), numbers(1, c, 1, 1, seed=1)
    group = make_spec([spec(x.shape, layout=PACKED), spec(s.shape, layout=PACKED)], [step("multiply", 0, 1, to=PACKED)])
    packed_result(group, [x, s], x * s)


@pytest.mark.parametrize("c", CHANNELS)
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pools_on_packed_channels(name: str, c: int) -> None:
    x = numbers(2, c, 9, 8)
    attrs = {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
    group = make_spec([spec(x.shape, layout=PACKED)], [step(name, 0, to=PACKED, **attrs)])
    wanted = get_op(name).numpy(x.astype(np.float64), **attrs)  # type: ignore[misc]
    packed_result(group, [x], wanted)


@pytest.mark.parametrize("c", CHANNELS)
def test_global_average_pool_on_packed_channels(c: int) -> None:
    x = numbers(2, c, 7, 7)
    group = make_spec([spec(x.shape, layout=PACKED)], [step("global_avg_pool", 0, to=PACKED)])
    packed_result(group, [x], x.astype(np.float64).mean((2, 3), keepdims=True))


@pytest.mark.parametrize(("c", "d"), [(32, 16), (20, 12), (16, 20), (32, 20)])
def test_concat_on_packed_channels(c: int, d: int) -> None:
    x, y = numbers(1, c, 3, 4), numbers(1, d, 3, 4, seed=1)
    group = make_spec(
        [spec(x.shape, layout=PACKED), spec(y.shape, layout=PACKED)], [step("concat", 0, 1, axis=1, to=PACKED)]
    )
    packed_result(group, [x, y], np.concatenate([x, y], 1))


@pytest.mark.parametrize("c", CHANNELS)
def test_transforms_between_layouts(c: int) -> None:
    x = numbers(1, c, 5, 7)
    there = make_spec([spec(x.shape)], [step("layout_transform", 0, to=PACKED, layout=PACKED)])
    packed_result(there, [x], x)
    plain = Layout.plain(4)
    back = make_spec([spec(x.shape, layout=PACKED)], [step("layout_transform", 0, to=plain, layout=plain)])
    np.testing.assert_array_equal(run(back, [x])[0], x)


@pytest.mark.parametrize("c", CHANNELS)
def test_batch_norm_and_leaky_relu_on_packed_channels(c: int) -> None:
    x = numbers(1, c, 4, 5)
    s, b, m, v = (numbers(c, seed=n, low=0.2) for n in range(4))
    group = make_spec(
        [spec(x.shape, layout=PACKED), *[spec((c,))] * 4],
        [step("batch_norm", 0, 1, 2, 3, 4, to=PACKED), step("leaky_relu", 5, to=PACKED)],
    )
    y = get_op("batch_norm").numpy(*[a.astype(np.float64) for a in (x, s, b, m, v)])  # type: ignore[misc]
    packed_result(group, [x, s, b, m, v], np.where(y < 0, y * np.float32(0.01), y), rtol=1e-5, atol=1e-5)
