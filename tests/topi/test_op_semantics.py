"""What ops give at the edges: NaN, ties, wrapping, empty tensors, windows of padding, and what they refuse to do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from targets.build import build, resolve
from tensorir import dtypes
from tensorir.errors import UserError
from tensorir.interpreter import interpret
from tensorir.te import create_func, placeholder, var
from topi.op import OpError
from topi.registry import get_op

TARGET = resolve("llvm")
NAN, INF = np.nan, np.inf


def run(name: str, *arrays: np.ndarray | None, **attrs: Any) -> Any:
    """The op's results by the checking interpreter; LLVM must give the same bits."""
    tensors = [None if a is None else placeholder(a.shape, str(dtypes.dtype_of(a.dtype)), "x") for a in arrays]
    result = get_op(name)(*tensors, **attrs)
    results = result if isinstance(result, tuple) else (result,)
    func = create_func([*[t for t in tensors if t is not None], *results])
    given = [a for a in arrays if a is not None]

    def outputs() -> list[np.ndarray]:
        shapes = [tuple(int(e.value) for e in t.shape) for t in results]
        return [np.full(s, 77, t.dtype.numpy) for s, t in zip(shapes, results, strict=True)]

    first, second = outputs(), outputs()
    interpret(func, [*given, *first], mode="checked")
    build(func, target=TARGET, threads=1)(*given, *second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return first[0] if len(first) == 1 else tuple(first)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


# ---------------------------------------------------------------------------------------------------------------- NaN


def test_nan_stays_in_maximum_minimum_relu_clip_and_sign() -> None:
    """apache/tvm#19579, #19572, #19540: NaN on either side."""
    x, y = f32(NAN, 1, NAN), f32(1, NAN, NAN)
    assert np.isnan(run("maximum", x, y)).all()
    assert np.isnan(run("minimum", x, y)).all()
    np.testing.assert_array_equal(run("relu", f32(NAN, -1, 2, -INF)), f32(NAN, 0, 2, 0))
    np.testing.assert_array_equal(run("clip", f32(NAN, -3, 3), low=-1.0, high=1.0), f32(NAN, -1, 1))
    np.testing.assert_array_equal(run("sign", f32(NAN, -3, 0, 3)), f32(NAN, -1, 0, 1))


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_wins_a_reduction_wherever_it_stands(name: str) -> None:
    """apache/tvm#19579: [NaN, 1] and [2, NaN]."""
    assert np.isnan(run(name, f32([NAN, 1], [2, NAN]), axes=(1,), keepdims=False)).all()


def test_nan_wins_a_pool() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    x[0, 0, 1, 1] = NAN
    np.testing.assert_array_equal(np.isnan(run("max_pool2d", x, kernel=(2, 2), strides=(2, 2)))[0, 0], [[1, 0], [0, 0]])


# --------------------------------------------------------------------------------------------------- empty and scalar


def test_reductions_of_nothing() -> None:
    """apache/tvm#19578: sum 0, product 1, maximum the lowest, minimum the highest."""
    x = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(run("sum", x, axes=(1,), keepdims=False), f32(0, 0))
    np.testing.assert_array_equal(run("prod", x, axes=(1,), keepdims=False), f32(1, 1))
    np.testing.assert_array_equal(run("max", x, axes=(1,), keepdims=False), f32(-INF, -INF))
    np.testing.assert_array_equal(run("min", x, axes=(1,), keepdims=False), f32(INF, INF))
    assert run("max", x.astype(np.int8), axes=(1,))[0, 0] == -128
    empty = np.zeros((4, 0), np.float32)
    np.testing.assert_array_equal(run("matmul", empty, empty.T.copy()), np.zeros((4, 4)))


def test_reducing_a_scalar_is_the_scalar() -> None:
    """apache/tvm#19676: max of a tensor without dimensions."""
    assert run("max", np.array(3.0, np.float32)) == 3
    assert run("sum", np.array(3.0, np.float32), axes=(), noop=True) == 3


@pytest.mark.parametrize(
    ("name", "wanted"), [("sum", [1, -2]), ("sum_square", [1, 4]), ("l1_norm", [1, 2]), ("l2_norm", [1, 2])]
)
def test_no_axes_with_noop_still_applies_the_element_function(name: str, wanted: list[float]) -> None:
    """microsoft/onnxruntime#19147, #25095, onnx/onnx#7140."""
    np.testing.assert_array_equal(run(name, f32(1, -2), axes=(), noop=True, keepdims=False), wanted)
    np.testing.assert_array_equal(run(name, f32(1, -2), noop=True, keepdims=False), wanted)


# --------------------------------------------------------------------------------------------------------------- ties


def test_arg_reductions_take_the_first_of_equals_or_the_last() -> None:
    """pytorch/pytorch#184893, #38922: ties, and an axis of size 1."""
    x = np.zeros((4, 9, 1), np.float32)
    np.testing.assert_array_equal(run("argmax", x, axis=2), np.zeros((4, 9, 1)))
    for n in range(1, 8):
        y = np.random.default_rng(n).integers(0, 2, (n, 33)).astype(np.int32)
        np.testing.assert_array_equal(run("argmax", y, axis=0, keepdims=False), y.argmax(0))
        np.testing.assert_array_equal(run("argmin", y, axis=0, keepdims=False), y.argmin(0))
        last = n - 1 - y[::-1].argmax(0)
        np.testing.assert_array_equal(run("argmax", y, axis=0, keepdims=False, last=True), last)


def test_arg_reductions_and_extremes_of_bools_take_the_first() -> None:
    """pytorch/pytorch#184893: bool (n, 32), n = 1..7, over axis 0."""
    for n in range(1, 8):
        y = np.random.default_rng(n).integers(0, 2, (n, 32)).astype(bool)
        np.testing.assert_array_equal(run("argmax", y, axis=0, keepdims=False), y.argmax(0))
        np.testing.assert_array_equal(run("argmin", y, axis=0, keepdims=False), y.argmin(0))
        np.testing.assert_array_equal(run("max", y, axes=(0,), keepdims=False), y.max(0))
        np.testing.assert_array_equal(run("min", y, axes=(0,), keepdims=False), y.min(0))


# ----------------------------------------------------------------------------------------------------------- integers


def test_integer_division_and_remainder() -> None:
    """onnx/onnx#7570, apache/tvm#20170: signs of quotients and remainders."""
    x, y = np.array([8, -8, 7, -7], np.int32), np.array([-3, 3, -2, 2], np.int32)
    np.testing.assert_array_equal(run("divide", x, y), [-2, -2, -3, -3])
    np.testing.assert_array_equal(run("floor_divide", x, y), [-3, -3, -4, -4])
    assert run("mod", np.array([-5], np.int32), np.array([3], np.int32))[0] == 1
    assert run("mod", np.array([-5], np.int32), np.array([3], np.int32), fmod=True)[0] == -2
    np.testing.assert_array_equal(run("mod", f32(-5.5), f32(3), fmod=True), f32(-2.5))


def test_kinds_that_an_op_cannot_take_are_named() -> None:
    """apache/tvm#18767, #20399: tanh of int16, and bool divided by bool: refused by op and kind, before any code."""
    with pytest.raises(UserError, match="tanh.*int16"):
        run("tanh", np.zeros(4, np.int16))
    with pytest.raises(UserError, match="bool"):
        run("divide", np.ones(4, bool), np.ones(4, bool))


def test_small_integers_wrap_before_they_are_widened() -> None:
    """pytorch/pytorch#105264: 128 + 128 of uint8."""
    x = np.array([128, 200], np.uint8)
    np.testing.assert_array_equal(run("add", x, x), np.array([0, 144], np.uint8))


def test_casts_of_floats_to_small_integers() -> None:
    """apache/tvm#19542: [300, NaN, inf, -inf, 50, -50] to int8."""
    x = f32(300, NAN, INF, -INF, 50, -50)
    np.testing.assert_array_equal(run("cast", x, dtype=dtypes.int8), [44, 0, 0, 0, 50, -50])


# -------------------------------------------------------------------------------------------------------------- moves


def test_negative_indices_count_from_the_end() -> None:
    """apache/tvm#19436, #20316: rows 0 and -1."""
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run("gather", x, np.array([0, -1])), x[[0, 2]])
    np.testing.assert_array_equal(run("gather_nd", x, np.array([[0, -1], [-3, 1]])), [4, 2])
    np.testing.assert_array_equal(run("gather_elements", x, np.array([[-1, 0, 1, 2]])), [[9, 2, 7, 12]])


def test_a_wrong_index_reads_inside_the_tensor() -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run("gather", x, np.array([99, -99])), [3, 0])


def test_slices_backward_empty_and_beyond_the_end() -> None:
    """apache/tvm#19532, #6263: (0, 5, -1) is empty; INT64 ends."""
    x = np.arange(10, dtype=np.float32)
    big = 2**63 - 1
    assert run("slice", x, starts=(0,), ends=(5,), steps=(-1,)).shape == (0,)
    np.testing.assert_array_equal(run("slice", x, starts=(-1,), ends=(-big - 1,), steps=(-1,)), x[::-1])
    np.testing.assert_array_equal(run("slice", x, starts=(-2,), ends=(big,)), x[-2:])
    np.testing.assert_array_equal(run("slice", x, starts=(-99,), ends=(99,), steps=(3,)), x[::3])


@pytest.mark.parametrize("start", [-2, 0, 3, -99, 99])
def test_a_slice_whose_start_is_known_at_run_time(start: int) -> None:
    """apache/tvm#20263: a start of -2."""
    s = var("s")
    x = placeholder((10,), "float32", "x")
    [(shape, _)] = get_op("slice").infer([((10,), "float32")], {"starts": (s,), "ends": (10,)})
    y = get_op("slice")(x, starts=(s,), ends=(10,))
    wanted = np.arange(10, dtype=np.float32)[start:]
    out = np.full(wanted.shape, NAN, np.float32)
    interpret(create_func([x, y]), [np.arange(10, dtype=np.float32), out], {s: start})
    np.testing.assert_array_equal(out, wanted)
    assert len(shape) == 1


def test_reshape_copies_zero_unless_told_otherwise() -> None:
    """apache/tvm#20151, #20174: [0, 3] of (2, 3); [0, 2] of (2, 0)."""
    x = np.zeros((2, 3), np.float32)
    assert run("reshape", x, shape=(0, 3)).shape == (2, 3)
    assert run("reshape", np.zeros((2, 0), np.float32), shape=(0, 2), allowzero=True).shape == (0, 2)


def test_prelu_slopes_of_several_shapes() -> None:
    """apache/tvm#18598: slopes of shapes (1,), (4, 1, 1) and (1, 4, 4, 4)."""
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 4)).astype(np.float32)
    for shape in [(1,), (4, 1, 1), (1, 4, 4, 4)]:
        slope = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(run("prelu", x, slope), np.where(x < 0, x * slope, x))


def test_matmul_broadcasts_batches_of_both_operands() -> None:
    """onnx-tool#30: (2, 3) times (4, 3, 5)."""
    a = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    b = np.random.default_rng(1).standard_normal((4, 3, 5)).astype(np.float32)
    np.testing.assert_allclose(run("matmul", a, b), a @ b, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- pooling


def test_padding_of_a_max_pool_is_never_an_element() -> None:
    """pytorch/pytorch#33382: all elements below 0, of int8 and float32."""
    x = np.full((1, 1, 3, 3), -5, np.int8)
    np.testing.assert_array_equal(run("max_pool2d", x, kernel=(3, 3), padding=(1, 1, 1, 1)), x)
    y = np.full((1, 1, 3, 3), -5, np.float32)
    np.testing.assert_array_equal(run("max_pool2d", y, kernel=(3, 3), padding=(1, 1, 1, 1)), y)


def test_windows_of_padding_only_are_refused() -> None:
    """tinygrad/tinygrad#7726: padding as wide as the kernel."""
    x = np.zeros((1, 1, 4, 4), np.float32)
    with pytest.raises(OpError, match="windows of padding only"):
        run("max_pool2d", x, kernel=(2, 2), padding=(2, 0, 0, 0))


# ------------------------------------------------------------------------------------------------------------ accuracy


def test_softplus_is_accurate_at_both_ends() -> None:
    """apache/tvm#18241, microsoft/onnxruntime#10491: at 100 and -12.3392."""
    y = run("softplus", f32(100, -12.3392, 0))
    np.testing.assert_allclose(y, [100, 4.3767584e-06, np.log(2)], rtol=1e-6)


def test_layer_norm_of_large_neighbours() -> None:
    """apache/tvm#19592: [80000 .. 80003]."""
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    y = run("layer_norm", f32([80000, 80001, 80002, 80003]), one, zero)
    np.testing.assert_allclose(y, [[-1.3416, -0.4472, 0.4472, 1.3416]], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_normalisations_of_halves_take_their_squares_in_float32(dtype: str) -> None:
    """microsoft/onnxruntime#29043: 300 squared is no float16; the mean of 70000 elements has no float16 count."""
    half = dtypes.dtype_of(dtype).numpy
    x = np.array([[[300, -300, 300, -300]]], half)
    one, zero = np.ones(1, half), np.zeros(1, half)
    sign = np.sign(x.astype(np.float32))
    for name, operands, attrs in [
        ("layer_norm", (np.ones(4, half),), {}),
        ("rms_norm", (np.ones(4, half),), {}),
        ("instance_norm", (one, zero), {}),
        ("group_norm", (one, zero), {"groups": 1}),
        ("mean_variance_norm", (), {"axes": (2,)}),
    ]:
        y = run(name, x, *operands, **attrs)
        assert y.dtype == half
        np.testing.assert_array_equal(y.astype(np.float32), sign, err_msg=name)
    np.testing.assert_array_equal(run("lp_norm", x).astype(np.float32), sign / 2)
    y, mean, variance = run("batch_norm_training", x / 2, one, zero, zero, zero, momentum=0.0)
    np.testing.assert_array_equal(y.astype(np.float32), sign)
    assert mean[0] == 0 and variance[0] == dtypes.dtype_of(dtype).numpy.type(22500)
    y = run("lrn", x.reshape(1, 4, 1), size=1, alpha=1.0, beta=0.5, bias=0.0)
    np.testing.assert_array_equal(y.astype(np.float32), sign.reshape(1, 4, 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_halves_are_taken_in_float32(dtype: str) -> None:
    """apache/tvm#12380, tile-ai/tvm#70: 2600 ones, which neither type can count one by one, in every kind of sum; each
    result is rounded once."""
    half = dtypes.dtype_of(dtype).numpy
    n = 2600

    def ones(*shape: int) -> np.ndarray:
        return np.ones(shape, half)

    row, square = ones(1, n), ones(1, 1, 52, 50)
    whole, root = np.float32(np.float32(n).astype(half)), np.float32(np.sqrt(np.float32(n)).astype(half))
    for name, operands, attrs, wanted in [
        ("sum", (row,), {"axes": (1,)}, whole),
        ("mean", (row,), {"axes": (1,)}, 1),
        ("sum_square", (row,), {"axes": (1,)}, whole),
        ("l1_norm", (row,), {"axes": (1,)}, whole),
        ("l2_norm", (row,), {"axes": (1,)}, root),
        ("log_sum", (row,), {"axes": (1,)}, np.float32(np.log(n))),
        ("log_sum_exp", (row - row,), {"axes": (1,)}, np.float32(np.log(n))),
        ("softmax", (row,), {}, np.float32(1 / n)),
        ("log_softmax", (row,), {}, -np.float32(np.log(n))),
        ("cumsum", (row[:, :300],), {"axis": 1}, None),
        ("matmul", (row, row.T.copy()), {}, whole),
        ("dense", (row, row), {}, whole),
        ("gemm", (row, row.T.copy()), {}, whole),
        ("einsum", (row, row), {"equation": "ik,jk->ij"}, whole),
        ("conv2d", (ones(1, n, 1, 1), ones(1, n, 1, 1)), {}, whole),
        ("conv_transpose2d", (ones(1, n, 1, 1), ones(n, 1, 1, 1)), {}, whole),
        ("avg_pool2d", (square,), {"kernel": (52, 50)}, 1),
        ("global_avg_pool", (square,), {}, 1),
        ("global_lp_pool", (square,), {}, root),
    ]:
        found = run(name, *operands, **attrs)
        assert found.dtype == half, name
        expected = np.arange(1, 301) if wanted is None else np.full(found.shape, wanted)
        np.testing.assert_array_equal(found, expected.astype(np.float32).astype(half).reshape(found.shape), name)


def test_softmax_of_bfloat16_compares_values_and_not_bits() -> None:
    """apache/tvm#12370: softmax over (1, 1000) bfloat16 with negative elements, whose bits are the larger integers."""
    x = np.random.default_rng(0).standard_normal((1, 1000)).astype(ml_dtypes.bfloat16)
    y = run("softmax", x, axis=-1).astype(np.float64)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max())
    np.testing.assert_allclose(y, e / e.sum(), rtol=0.02)
    assert run("max", x, axes=(1,))[0, 0] == x.max()


def test_sinh_and_cosh_just_below_overflow() -> None:
    """apache/tvm#19559: at 88.85, 89, 89.2 and -88.95."""
    wanted = [1.9321198e38, 2.2448064e38, 2.7418043e38]
    np.testing.assert_allclose(run("sinh", f32(88.85, 89, 89.2)), wanted, rtol=1e-5)
    np.testing.assert_allclose(run("sinh", f32(-88.95)), [-2.1353193e38], rtol=1e-5)
    np.testing.assert_allclose(run("cosh", f32(89)), [2.2448064e38], rtol=1e-5)


# --------------------------------------------------------------------------------------------------- quantised, resize


def test_dequantize_by_axis() -> None:
    """sonos/tract#2849: int8 (2, 3) with scales [0.5, 2, 10] along axis 1."""
    x = np.array([[1, 1, 1], [4, 4, 4]], np.int8)
    y = run("dequantize_linear", x, f32(0.5, 2, 10), np.array([0, 1, -1], np.int8), axis=1)
    np.testing.assert_array_equal(y, [[0.5, 0, 20], [2, 6, 50]])


def test_quantize_rounds_to_even_and_saturates() -> None:
    """apache/tvm#9028, #20126: ties, values beyond the type, no dimensions."""
    y = run("quantize_linear", f32(0.5, 1.5, 2.5, -1, 300), np.array(1.0, np.float32))
    np.testing.assert_array_equal(y, np.array([0, 2, 2, 0, 255], np.uint8))
    z = run("quantize_linear", np.array(-300.0, np.float32), np.array(1.0, np.float32), np.array(0, np.int8))
    assert z.shape == () and z == -128


def test_resize_uses_the_scale_that_was_asked_for() -> None:
    """apache/tvm#19570: 3x3 by 2.5: coordinates use 2.5, not 7/3."""
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    nearest = run("resize", x, scales=(2.5, 2.5))
    order = [0, 0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(nearest, x[np.ix_(order, order)])
    linear = run("resize", x, scales=(2.5, 2.5), mode="linear")
    np.testing.assert_allclose(linear[0], [0, 0.1, 0.5, 0.9, 1.3, 1.7, 2], atol=1e-6)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("add", [(2, 3), (4, 3)], {}, r"shapes \(2, 3\) and \(4, 3\) do not broadcast: axis -2 is 2 and 4"),
        ("matmul", [(2, 3), (4, 5)], {}, r"shapes \(2, 3\) and \(4, 5\) do not fit: 3 columns meet 4 rows"),
        ("softmax", [(2, 3)], {"axis": 2}, r"axis 2 does not exist: the operand has 2 dimensions"),
        ("transpose", [(2, 3)], {"axes": (0, 0)}, r"axes \(0, 0\) name one axis twice"),
        ("reshape", [(2, 3)], {"shape": (4, -1)}, r"6 elements of shape \(2, 3\) do not fit"),
        ("reshape", [(2, 3)], {"shape": (-1, -1)}, r"more than one -1"),
        ("squeeze", [(2, 3)], {"axes": (0,)}, r"axis 0 has size 2, not 1"),
        ("concat", [(2, 3), (3, 4)], {"axis": 1}, r"differ in axis 0: 2 and 3"),
        ("split", [(7,)], {"sizes": (3, 3)}, r"sizes \(3, 3\) do not add up to 7 on axis 0"),
        ("slice", [(7,)], {"starts": (0,), "ends": (3,), "steps": (0,)}, r"the step is 0"),
        ("conv2d", [(1, 3, 5, 5), (4, 2, 3, 3)], {}, r"data has 3 channels.*takes 2"),
        ("conv2d", [(1, 3, 2, 2), (4, 3, 3, 3)], {}, r"the window reaches over 3 elements, the padded input has 2"),
        ("conv2d", [(1, 3, 5), (4, 3, 3)], {}, r"data has 3 dimensions, not 4"),
        ("group_norm", [(1, 6, 2), (6,), (6,)], {"groups": 4}, r"6 channels do not divide into 4 groups"),
        ("leaky_relu", [(3,)], {"slope": 1.0}, r"unknown attribute 'slope'"),
        ("max_pool2d", [(1, 1, 4, 4)], {}, r"the attribute 'kernel' is not given"),
        ("add", [(3,)], {}, r"takes 2 to 2 operands, not 1"),
        ("pad", [(3,)], {"before": (1,), "after": (1,), "mode": "mirror"}, r"unknown mode 'mirror'"),
        ("resize", [(3,)], {"scales": (2.0,), "mode": "area"}, r"unknown mode 'area'"),
        ("resize", [(3,)], {}, r"needs either scales or sizes"),
    ],
)
def test_what_an_op_cannot_take_is_named(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OpError, match=message):
        get_op(name)(*[placeholder(s, "float32", "x") for s in shapes], **attrs)


def test_operands_of_two_types_are_refused() -> None:
    with pytest.raises(OpError, match="operands are float32 and int32"):
        run("add", f32(1), np.array([1], np.int32))


def test_mod_of_floats_has_the_sign_of_the_divisor() -> None:
    x, y = f32(5.5, -5.5, 5.5, -5.5, 6, -6), f32(2, 2, -2, -2, 3, 3)
    np.testing.assert_array_equal(run("mod", x, y), np.mod(x, y))
    np.testing.assert_array_equal(run("mod", x, y, fmod=True), np.fmod(x, y))
