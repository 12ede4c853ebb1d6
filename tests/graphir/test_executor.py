"""Executables: what a run takes and gives, memory, profiles, concurrency, aliases."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from graphir.errors import GraphError, InputError
from graphir.ir import Graph
from tensorir import dtypes
from tensorir.errors import UserError
from tests.graphir.graphs import random, run_levels


def two_inputs() -> Graph:
    b = GraphBuilder()
    x, k = b.input("x", ("n", 3)), b.input("k", (3,), "int32")
    [c] = b.add("cast", [k], {"dtype": dtypes.float32})
    return b.finish([b.add("add", [x, c])[0]], ["y"])


X, K = random(2, 3), np.array([1, 2, 3], np.int32)


@pytest.fixture(scope="module")
def exe() -> object:
    return nt.compile(two_inputs())


BAD_INPUTS = [
    ({"x": X}, "the input 'k' is missing"),
    ({"x": X, "k": K, "z": X}, "no input called 'z'"),
    ({"x": X, "kk": K}, "the input 'k' is missing"),
    ([X], "1 inputs are given, the model takes 2"),
    (X, "inputs are given as ndarray"),
    ({"x": X.astype(np.float64), "k": K}, "the input 'x' is float32, the array given is float64"),
    ({"x": X, "k": K.astype(np.int64)}, "the input 'k' is int32, the array given is int64"),
    ({"x": X[0], "k": K}, "the input 'x' has 2 dimensions, the array given has 1"),
    ({"x": random(2, 4), "k": K}, "the input 'x' has size 4 along axis 1, not 3"),
    ({"x": X, "k": K[:2]}, "the input 'k' has size 2 along axis 0, not 3"),
    ({"x": [[1.0, 2.0, 3.0]], "k": K}, "the input 'x' is list, not a numpy array"),
    ({"x": X.astype(">f4"), "k": K}, "the input 'x' is float32, the array given is >f4"),
]


@pytest.mark.parametrize(("inputs", "message"), BAD_INPUTS)
def test_bad_inputs_are_named(exe: object, inputs: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        exe.run(inputs)  # type: ignore[attr-defined]
    assert message in str(caught.value)


def test_inputs_by_name_in_order_and_not_contiguous(exe: object) -> None:
    expected = X + K.astype(np.float32)
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = X
    for inputs in ({"k": K, "x": X}, [X, K], [wide[:, ::2], K], [np.asfortranarray(X), K]):
        [y] = exe.run(inputs)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(y, expected)


def test_outputs_given_are_written_and_checked(exe: object) -> None:
    run = exe.run  # type: ignore[attr-defined]
    out = np.full((2, 3), np.nan, np.float32)
    assert run([X, K], outputs=[out])[0] is out
    np.testing.assert_array_equal(out, X + K.astype(np.float32))
    assert run([X, K], outputs={"y": out})[0] is out
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    inputs = X.copy()
    for outputs, message in [
        ([], "0 output arrays are given, the model has 1 outputs"),
        ([np.zeros((3, 3), np.float32)], "the output 'y' has shape (2, 3), the array given (3, 3)"),
        ([np.zeros((2, 3))], "the output 'y' is float32, the array given is float64"),
        ([read_only], "the output 'y' cannot be written in place"),
        ([np.zeros((3, 2), np.float32).T], "the output 'y' cannot be written in place"),
        ([[0.0]], "the output 'y' is given list"),
        ({"z": out}, "the output 'y' is missing"),
        ([inputs], "the output 'y' shares memory with 'x'"),
    ]:
        with pytest.raises(InputError) as caught:
            run([inputs, K], outputs=outputs)
        assert message in str(caught.value)


def test_fresh_outputs_every_run(exe: object) -> None:
    a, b = exe.run([X, K])[0], exe.run([X, K])[0]  # type: ignore[attr-defined]
    assert not np.shares_memory(a, b)


def test_names_shapes_and_types_of_inputs_and_outputs(exe: object) -> None:
    assert [str(i) for i in exe.inputs] == ["x: float32[n, 3]", "k: int32[3]"]  # type: ignore[attr-defined]
    assert [str(o) for o in exe.outputs] == ["y: float32[n, 3]"]  # type: ignore[attr-defined]


def test_one_compile_serves_every_size() -> None:
    sym = nt.sym
    net = sym.dense(sym.flatten(sym.relu(sym.conv2d(sym.Variable("x"), channels=8, kernel_size=(3, 3)))), units=3)
    g = nt.from_symbol(net, shapes={"x": ("n", 4, 6, 6)})
    from graphir.reference import evaluate

    executable = nt.compile(g)
    for n in (1, 3, 7, 0, 2):
        x = random(n, 4, 6, 6, seed=n)
        [y] = executable.run([x])
        assert y.shape == (n, 3)
        if n:
            np.testing.assert_allclose(y, list(evaluate(g, {"x": x}).values())[0], atol=1e-5)


def test_the_lower_bound_of_a_symbol_sizes_no_buffer() -> None:
    """apache/tvm#18663: a 3x3 convolution whose batch is at least 1 and otherwise open, run with batch 2 and 5."""
    from graphir.ir import Symbol

    b = GraphBuilder(symbols=[Symbol("n", 1)])
    x = b.input("x", ("n", 3, 6, 6))
    [y] = b.add("conv2d", [x, b.constant(random(16, 3, 3, 3), "w")], {"padding": (1, 1, 1, 1)})
    [y] = b.add("relu", [y])
    [y] = b.add("conv2d", [y, b.constant(random(3, 16, 3, 3) / 9, "v")], {"padding": (1, 1, 1, 1)})
    g = b.finish([b.add("add", [y, x])[0]])
    for n, executable in zip((2, 5, 1, 3), run_levels(g, {"x": random(2, 3, 6, 6)}, 2e-5).values(), strict=True):
        alone = np.concatenate([executable.run([random(n, 3, 6, 6)[i : i + 1]])[0] for i in range(n)])
        assert executable.run([random(n, 3, 6, 6)])[0].tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_product_and_a_sum_of_halves_round_twice_in_one_kernel_too(dtype: str) -> None:
    """modular/modular#6159: x * y + z of halves has the same bits in one kernel as in two, those of numpy."""
    half = dtypes.dtype_of(dtype).numpy
    b = GraphBuilder()
    x, y, z = (b.input(name, ("n",), dtype) for name in "xyz")
    [p] = b.add("multiply", [x, y])
    g = b.finish([b.add("add", [p, z])[0]])
    values = [random(37, seed=i).astype(half) for i in range(3)]
    for level in range(4):
        [found] = nt.compile(g, opt_level=level).run(values)
        assert found.dtype == half and found.tobytes() == (values[0] * values[1] + values[2]).tobytes()


def test_two_inputs_with_one_symbol_must_agree() -> None:
    b = GraphBuilder()
    x, y = b.input("x", ("n", 2)), b.input("y", ("n", 2))
    executable = nt.compile(b.finish([b.add("add", [x, y])[0]]))
    executable.run([random(3, 2), random(3, 2)])
    with pytest.raises(InputError, match="the input 'y' has size 4 along axis 0, not n = 3"):
        executable.run([random(3, 2), random(4, 2)])


def test_a_symbol_that_no_input_defines() -> None:
    from graphir import dims

    b = GraphBuilder()
    x = b.input("x", (dims.parse("2*n"),))
    with pytest.raises(GraphError, match="the dimension n cannot be read from any input"):
        nt.compile(b.finish([b.add("relu", [x])[0]]))


def test_bounds_of_a_symbol_are_checked_at_the_door() -> None:
    from graphir.ir import Symbol

    b = GraphBuilder(symbols=[Symbol("n", 1, 4)])
    executable = nt.compile(b.finish([b.add("relu", [b.input("x", ("n",))])[0]]))
    executable.run([random(4)])
    for size in (0, 5):
        with pytest.raises(InputError, match=f"size {size} along axis 0, not n .1 to 4."):
            executable.run([random(size)])


def test_options_that_do_not_exist() -> None:
    g = two_inputs()
    for options, message in [
        ({"opt_level": 4}, "opt_level is 4"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"threads": 0}, "threads is 0"),
        ({"target": "lvm"}, "unknown target 'lvm'"),
    ]:
        with pytest.raises(UserError) as caught:
            nt.compile(g, **options)
        assert message in str(caught.value)


# ------------------------------------------------------------------------------------------------- aliases and outputs


def test_a_view_shares_the_lifetime_of_what_it_views() -> None:
    """apache/tvm#20190: (x + 0.25 seen through a view of it) + (x + 0.125) is 2 x + 0.375."""
    views: list[tuple[str, dict[str, object]]] = [
        ("reshape", {"shape": (5, 8)}), ("identity", {}), ("cast", {"dtype": dtypes.float32}),
        ("squeeze", {"axes": ()}), ("slice", {"starts": (0,), "ends": (5,)}),
    ]  # fmt: skip
    for view, attrs in views:
        b = GraphBuilder()
        x = b.input("x", (5, 8))
        quarter, eighth = (b.constant(np.array(c, np.float32), f"c{c}") for c in (0.25, 0.125))
        [src] = b.add("add", [x, quarter])
        [left] = b.add(view, [src], attrs)
        [right] = b.add("add", [x, eighth])
        g = b.finish([b.add("add", [left, right])[0]])
        for executable in run_levels(g, {"x": random(5, 8)}).values():
            np.testing.assert_array_equal(executable.run([np.full((5, 8), 4, np.float32)])[0], np.float32(8.375))


def test_two_views_of_one_input_are_never_written_in_place() -> None:
    """apache/tvm#19577: x seen twice as a column, u * v beside v."""
    b = GraphBuilder()
    x = b.input("x", (4,))
    u, v = (b.add("unsqueeze", [x], {"axes": (1,)})[0] for _ in range(2))
    [m] = b.add("multiply", [u, v])
    g = b.finish([b.add("concat", [m, v], {"axis": 1})[0]])
    made = run_levels(g, {"x": np.array([1, 2, 3, 4], np.float32)})
    [out] = made[3].run([np.array([1, 2, 3, 4], np.float32)])
    assert out.tolist() == [[1, 1], [4, 2], [9, 3], [16, 4]]


def test_results_are_written_in_place_where_nobody_else_needs_the_operand() -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 64))
    [y] = b.add("matmul", [x, x])
    [y] = b.add("transpose", [y], {"axes": (1, 0)})
    [e] = b.add("exp", [y])
    [z] = b.add("matmul", [e, x])
    g = b.finish([z])
    executable = nt.compile(g, opt_level=2, disabled=["fuse"])
    assert len(executable.memory.blocks) == 2, executable.memory
    run_levels(g, {"x": random(64, 64) / 100}, 1e-4)


def test_the_same_value_returned_twice_and_inputs_and_constants_returned() -> None:
    """hidet-org/hidet#381: one mean returned twice."""
    b = GraphBuilder()
    x = b.input("x", (2, 3))
    c = b.constant(random(4), "c")
    [m] = b.add("mean", [x], {"axes": (1,), "keepdims": False})
    [r] = b.add("reshape", [m], {"shape": (2, 1)})
    [v] = b.add("reshape", [x], {"shape": (3, 2)})
    g = b.finish([m, m, r, x, x, v, c], [f"o{i}" for i in range(7)])
    run_levels(g, {"x": random(2, 3)})


def test_an_intermediate_of_a_fusible_pattern_as_output() -> None:
    """microsoft/onnxruntime#4110, #32416: outputs inside a pattern."""
    b = GraphBuilder()
    x = b.input("x", (4, 4))
    [y] = b.add("matmul", [x, b.constant(random(4, 4), "w")])
    [c] = b.add("cast", [y], {"dtype": dtypes.float32})
    [z] = b.add("multiply", [c, b.constant(np.ones((), np.float32), "one")])
    [r] = b.add("relu", [z])
    g = b.finish([y, z, r], ["y", "z", "r"])
    run_levels(g, {"x": random(4, 4)})


def test_sizes_of_zero_and_no_dimensions() -> None:
    """apache/tvm#19578: (4, 0) times (0, 4), sums over nothing, sums of all."""
    b = GraphBuilder()
    x, y = b.input("x", (4, 0)), b.input("y", (0, 4))
    [p] = b.add("matmul", [x, y])
    [s] = b.add("sum", [y], {"axes": (0,), "keepdims": False})
    [t] = b.add("sum", [p], {"axes": (0, 1), "keepdims": False})
    [r] = b.add("relu", [t])
    run_levels(b.finish([p, s, r, b.add("relu", [x])[0]], list("psrx")), {"x": random(4, 0), "y": random(0, 4)})


# ------------------------------------------------------------------------------------ debug, profile, memory, threads


def test_debug_gives_every_stored_value_by_its_name() -> None:
    b = GraphBuilder()
    x = b.input("x", (3, 4))
    [y] = b.add("exp", [x], outputs=["middle"])
    [z] = b.add("relu", [y], outputs=["z"])
    g = b.finish([z])
    executable = nt.compile(g, opt_level=0)
    found = executable.debug([random(3, 4)], ["middle"])
    np.testing.assert_allclose(found["middle"], np.exp(random(3, 4)), rtol=1e-6)
    with pytest.raises(InputError, match="no value or node of the model is called 'nothing'"):
        executable.debug([random(3, 4)], ["nothing"])


def test_debug_and_native_runs_agree_bit_by_bit() -> None:
    sym = nt.sym
    net = sym.max_pool2d(sym.relu(sym.conv2d(sym.Variable("x"), channels=20, kernel_size=(3, 3))))
    executable = nt.compile(nt.from_symbol(net, shapes={"x": ("n", 3, 9, 9)}))
    x = random(2, 3, 9, 9)
    [y] = executable.run([x])
    assert executable.debug([x])[executable.outputs[0].name].tobytes() == y.tobytes()


def test_profile_and_memory_print() -> None:
    executable = nt.compile(two_inputs(), opt_level=0)
    text = str(executable.profile([X, K]))
    assert "cast" in text and "add" in text and "us" in text
    assert "alive at once" in str(executable.memory)
    assert "launch 0 cast(input1, arena0)" in str(executable.plan)


def test_many_threads_share_one_executable() -> None:
    """octoml/tvm2onnx#45: several threads run one executable."""
    b = GraphBuilder()
    y = b.input("x", ("n", 32))
    w = b.constant(random(32, 32) / 6, "w")
    for _ in range(4):
        [y] = b.add("tanh", [b.add("matmul", [y, w])[0]])
    executable = nt.compile(b.finish([y]), threads=2)
    inputs = [random(1 + i % 5, 32, seed=i) for i in range(20)]
    expected = [executable.run([x])[0] for x in inputs]
    wrong: list[int] = []

    def work(start: int) -> None:
        for i in range(60):
            k = (start + i) % len(inputs)
            if executable.run([inputs[k]])[0].tobytes() != expected[k].tobytes():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_keep_the_bits() -> None:
    sym = nt.sym
    net = sym.softmax(sym.dense(sym.flatten(sym.conv2d(sym.Variable("x"), channels=32, kernel_size=(3, 3))), units=10))
    g = nt.from_symbol(net, shapes={"x": (2, 16, 12, 12)})
    x = random(2, 16, 12, 12)
    results = [nt.compile(g, threads=t).run([x])[0].tobytes() for t in (1, 2, 3)]
    assert results[0] == results[1] == results[2]


def test_the_reference_target_runs_the_same_plan() -> None:
    g = two_inputs()
    [a] = nt.compile(g, target="reference").run([X, K])
    [b] = nt.compile(g).run([X, K])
    assert a.tobytes() == b.tobytes()


def test_equal_groups_are_compiled_once() -> None:
    b = GraphBuilder()
    y = b.input("x", ("n", 8))
    z = b.input("z", ("m", 8))
    w = b.constant(random(8, 8), "w")
    for _ in range(3):
        [y] = b.add("matmul", [y, w])
    [z] = b.add("matmul", [z, w])
    executable = nt.compile(b.finish([y, z], ["y", "z"]), opt_level=1)
    assert len(executable.plan.kernels) == 1
    x, v = random(2, 8), random(5, 8, seed=1)
    got_y, got_z = executable.run([x, v])
    np.testing.assert_allclose(got_y, x @ random(8, 8) @ random(8, 8) @ random(8, 8), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got_z, v @ random(8, 8), rtol=1e-5, atol=1e-5)


def test_a_sum_of_halves_reshaped_permuted_and_added() -> None:
    """hidet-org/hidet#100: sum, reshape, transpose, add, relu of float16."""
    b = GraphBuilder()
    x, c = b.input("x", (3, 1, 20, 8), "float16"), b.input("c", (1, 8, 1, 1), "float16")
    [y] = b.add("sum", [x], {"axes": (0,), "keepdims": False})
    [y] = b.add("reshape", [y], {"shape": (1, 1, 4, 5, 8)})
    [y] = b.add("transpose", [y], {"axes": (0, 1, 4, 2, 3)})
    [y] = b.add("reshape", [y], {"shape": (1, 8, 4, 5)})
    [y] = b.add("relu", [b.add("add", [y, c])[0]])
    halves = {"x": random(3, 1, 20, 8).astype(np.float16), "c": random(1, 8, 1, 1).astype(np.float16)}
    run_levels(b.finish([y]), halves, 2e-3)


def test_nodes_without_operands() -> None:
    """hidet-org/hidet#263: a kernel without inputs."""
    b = GraphBuilder()
    x = b.input("x", ("n", 4))
    [steps] = b.add("arange", [], {"start": 0, "count": x.shape[0], "step": 2, "dtype": dtypes.int64})
    [numbers] = b.add("cast", [steps], {"dtype": dtypes.float32})
    [column] = b.add("unsqueeze", [numbers], {"axes": (1,)})
    g = b.finish([b.add("add", [x, column])[0], steps], ["y", "steps"])
    run_levels(g, {"x": random(5, 4)})
