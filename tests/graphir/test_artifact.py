"""Artifacts: what is saved is loaded, nothing else is, and damage of any byte is refused or harmless."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx import TensorProto, helper

from graphir import artifact
from graphir.artifact import ArtifactError, inspect, load, save
from graphir.compile import compile
from graphir.errors import InputError
from graphir.executor import Executable
from graphir.tensor_file import TensorFileError, read_tensors, tensor_file
from graphir.variants import Variants


def _onnx(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any], **weights: Any) -> bytes:
    infos = [
        [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in values.items()] for values in (inputs, outputs)
    ]
    graph = helper.make_graph(
        nodes, "model", *infos, [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _dense() -> bytes:
    random_ = np.random.default_rng(0)
    return _onnx(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Softmax", ["b"], ["y"], axis=-1),
            helper.make_node("Transpose", ["b"], ["z"], perm=[1, 0]),
        ],
        {"x": (TensorProto.FLOAT, ["n", 7])},
        {"y": (TensorProto.FLOAT, ["n", 5]), "z": (TensorProto.FLOAT, [5, "n"])},
        w=random_.standard_normal((7, 5), np.float32),
    )


def _conv() -> bytes:
    random_ = np.random.default_rng(0)
    return _onnx(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Flatten", ["r"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, [1, 3, 8, 9])},
        {"y": (TensorProto.FLOAT, None)},
        w=random_.standard_normal((17, 3, 3, 3), np.float32),
        b=random_.standard_normal(17, np.float32),
    )


def _branch() -> bytes:
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x", "x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [3])],
        )
        for name, op in (("then", "Add"), ("else", "Mul"))
    }
    return _onnx(
        [helper.make_node("If", ["c"], ["y"], then_branch=branches["then"], else_branch=branches["else"])],
        {"c": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, [3])},
        {"y": (TensorProto.FLOAT, [3])},
    )


def _loop() -> bytes:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "x"], ["w"]),
            helper.make_node("Identity", ["c"], ["again"]),
            helper.make_node("Mul", ["w", "w"], ["scan"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("scan", TensorProto.FLOAT, [3]),
        ],
    )
    return _onnx(
        [helper.make_node("Loop", ["n", "", "x"], ["y", "z"], body=body)],
        {"x": (TensorProto.FLOAT, [3])},
        {"y": (TensorProto.FLOAT, [3]), "z": (TensorProto.FLOAT, [4, 3])},
        n=np.int64(4),
    )


def _sort() -> bytes:
    return _onnx(
        [helper.make_node("TopK", ["x", "k"], ["y", "i"])],
        {"x": (TensorProto.FLOAT, [4, 7])},
        {"y": (TensorProto.FLOAT, [4, 3]), "i": (TensorProto.INT64, [4, 3])},
        k=np.array([3], np.int64),
    )


MODELS: dict[str, tuple[Callable[[], bytes], list[dict[str, np.ndarray]]]] = {
    "dense": (_dense, [{"x": np.random.default_rng(n).standard_normal((n, 7), np.float32)} for n in (1, 4, 9)]),
    "conv": (_conv, [{"x": np.random.default_rng(1).standard_normal((1, 3, 8, 9), np.float32)}]),
    "loop": (_loop, [{"x": np.array([1, -2, 3], np.float32)}]),
    "sort": (_sort, [{"x": np.random.default_rng(3).standard_normal((4, 7), np.float32)}]),
    "branch": (_branch, [{"c": np.array(c), "x": np.array([1, 2, 3], np.float32)} for c in (True, False)]),
}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Executable]:
    return {name: compile(make(), threads=2) for name, (make, _) in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_is_loaded(name: str, compiled: dict[str, Executable], tmp_path: Path) -> None:
    exe, path = compiled[name], tmp_path / "m ü.nst"
    save(exe, path)
    loaded = load(path)
    assert str(loaded.inputs) == str(exe.inputs) and str(loaded.outputs) == str(exe.outputs)
    assert loaded.threads == 2 and list(map(str, loaded.log)) == list(map(str, exe.log))
    for inputs in MODELS[name][1]:
        wanted, got = exe.run(inputs), loaded.run(inputs)
        assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted]
        for name_, array in exe.debug(inputs).items():
            assert loaded.debug(inputs)[name_].tobytes() == array.tobytes()
    assert [k.implementation for k in (x.group for x in loaded.plan.kernels)] == [
        k.group.implementation for k in exe.plan.kernels
    ]
    assert loaded.memory == exe.memory and len(loaded.profile(inputs).times) == len(exe.profile(inputs).times)


def test_saving_a_loaded_one_gives_the_same_bytes(compiled: dict[str, Executable], tmp_path: Path) -> None:
    compiled["conv"].save(tmp_path / "a.nst")
    load(tmp_path / "a.nst").save(tmp_path / "b.nst")
    with zipfile.ZipFile(tmp_path / "a.nst") as a, zipfile.ZipFile(tmp_path / "b.nst") as b:
        same = [n for n in a.namelist() if a.read(n) == b.read(n)]
        assert set(a.namelist()) - set(same) <= {"manifest.json", "graphs/0.txt"}


def test_another_process_runs_it_without_the_front_end(compiled: dict[str, Executable], tmp_path: Path) -> None:
    path, inputs = tmp_path / "m.nst", MODELS["dense"][1][1]
    save(compiled["dense"], path)
    np.save(tmp_path / "x.npy", inputs["x"])
    program = (
        "import sys, numpy as np; from graphir.artifact import load; exe = load(sys.argv[1])\n"
        "sys.stdout.buffer.write(exe.run([np.load(sys.argv[2])])[0].tobytes())\n"
        "assert not {'onnx', 'schedule.schedule', 'lark'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "x.npy"], capture_output=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == compiled["dense"].run(inputs)[0].tobytes()


def test_threads_can_be_chosen_when_loading(compiled: dict[str, Executable], tmp_path: Path) -> None:
    save(compiled["conv"], tmp_path / "m.nst")
    [inputs] = MODELS["conv"][1]
    one = load(tmp_path / "m.nst", threads=1)
    assert one.threads == 1 and one.run(inputs)[0].tobytes() == compiled["conv"].run(inputs)[0].tobytes()


def test_weights_are_safetensors_and_used_where_they_lie(compiled: dict[str, Executable], tmp_path: Path) -> None:
    path = tmp_path / "m.nst"
    save(compiled["conv"], path)
    with zipfile.ZipFile(path) as archive:
        tensors = safetensors.numpy.load(archive.read("weights.safetensors"))
    kept = [a for n, a in tensors.items() if not n.startswith("__pad")]
    assert sorted(a.nbytes for a in kept) == sorted(c.nbytes for c in compiled["conv"].constants)
    loaded = load(path)
    for constant in loaded.constants:
        assert constant.__array_interface__["data"][0] % 64 == 0
    roots = {id(_root(c)) for c in loaded.constants if c.nbytes}
    assert len(roots) == 1


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_it_is_inert_to_inspect(compiled: dict[str, Executable], tmp_path: Path, monkeypatch: Any) -> None:
    save(compiled["dense"], tmp_path / "m.nst")
    monkeypatch.setattr("targets.llvm.runtime.jit.load_all", lambda *a, **k: pytest.fail("machine code was loaded"))
    found = inspect(tmp_path / "m.nst")
    assert "input x: float32[n, 7]" in str(found) and "output z: float32[5, n]" in str(found)
    assert "softmax" in found.graphs[0] and found.manifest["format"] == artifact.FORMAT
    with zipfile.ZipFile(tmp_path / "m.nst") as archive:
        assert not [n for n in archive.namelist() if n.endswith((".pkl", ".py", ".pickle"))]


# -------------------------------------------------------------------------------------------------------- variants


def test_several_shapes_share_one_artifact(tmp_path: Path) -> None:
    model, path = _dense(), tmp_path / "m.nst"
    variants = [compile(model, shapes={"x": (n, 7)}) for n in (1, 16)]
    save([*variants, compile(model)], path)
    loaded = load(path)
    assert isinstance(loaded, Variants) and len(loaded.variants) == 3
    for n, number in ((16, 1), (1, 0), (5, 2)):
        x = np.random.default_rng(n).standard_normal((n, 7), np.float32)
        assert loaded.pick([x]) is loaded.variants[number]
        assert (
            loaded.run({"x": x})[0].tobytes()
            == (variants[number] if number < 2 else compile(model)).run([x])[0].tobytes()
        )
    first, second = (v.constants[0] for v in loaded.variants[:2])
    assert np.shares_memory(first, second)
    assert str(inspect(path)).count("input x") == 3
    loaded.save(tmp_path / "again.nst")
    assert len(load(tmp_path / "again.nst").variants) == 3  # type: ignore[union-attr]


def test_inputs_that_fit_no_variant_are_told_the_shapes(tmp_path: Path) -> None:
    model, path = _dense(), tmp_path / "m.nst"
    save([compile(model, shapes={"x": (n, 7)}) for n in (1, 16)], path)
    loaded = load(path)
    with pytest.raises(InputError, match=r"fit none of the shapes(.|\n)*x: float32\[1, 7\]; x: float32\[16, 7\]"):
        loaded.run([np.zeros((3, 7), np.float32)])
    with pytest.raises(InputError, match="'x' is missing"):
        loaded.run({})
    with pytest.raises(InputError, match="is float32, the array given is float64"):
        loaded.run([np.zeros((1, 7))])


def test_executables_that_do_not_belong_together_are_refused(compiled: dict[str, Executable], tmp_path: Path) -> None:
    for others in ([compiled["dense"], compiled["branch"]], [compiled["dense"], compile(_dense(), threads=1)], []):
        with pytest.raises(ArtifactError, match="differ in their inputs' names|no executable"):
            save(others, tmp_path / "m.nst")


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["dense", "branch"])
def test_random_damage_is_refused_or_harmless(name: str, compiled: dict[str, Executable], tmp_path: Path) -> None:
    exe, path = compiled[name], tmp_path / "m.nst"
    save(exe, path)
    good = path.read_bytes()
    inputs = MODELS[name][1][0]
    wanted = [a.tobytes() for a in exe.run(inputs)]
    chance = random.Random(0)
    refused = 0
    for number in range(500):
        bad = bytearray(good)
        if number % 50 == 49:
            bad = bad[: chance.randrange(len(bad))]
        else:
            bad[chance.randrange(len(bad))] ^= chance.randrange(1, 256)
        path.write_bytes(bad)
        try:
            loaded = load(path)
        except ArtifactError:
            refused += 1
            continue
        assert [a.tobytes() for a in loaded.run(inputs)] == wanted
    assert refused > 450


def _altered(path: Path, change: Callable[[dict[str, Any]], None], members: dict[str, bytes] | None = None) -> Path:
    """The artifact with another manifest (and other members), sealed and hashed as a careful forger would."""
    import hashlib

    with zipfile.ZipFile(path) as archive:
        contents = {n: archive.read(n) for n in archive.namelist()}
    contents.update(members or {})
    manifest = json.loads(contents.pop("manifest.json"))
    for n, data in contents.items():
        manifest["members"][n] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(manifest)
    text = json.dumps(manifest).encode()
    forged = path.with_name("forged.nst")
    with zipfile.ZipFile(forged, "w") as archive:
        for n, data in {**contents, "manifest.json": text}.items():
            archive.writestr(n, data)
        archive.comment = artifact.SEAL + hashlib.sha256(text).hexdigest().encode()
    return forged


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "in format 99(.|\n)*this one reads format 1(.|\n)*compile the model again"),
        ({"abi": "0"}, r"kernel ABI 0\)"),
        ({"target": "llvm -mtriple=aarch64-linux-gnu"}, "cannot run on this machine: code for .*aarch64"),
        ({"triple": "x86_64-apple-darwin"}, "it was made for darwin, this is linux"),
        ({"target": "llvm -mcpu=pentium"}, "cannot run on this machine: target llvm: unknown CPU 'pentium'"),
        ({"features": ["sse2", "avx1024"]}, "it needs avx1024"),
        ({"threads": 0}, "threads is 0"),
        ({"kernels": []}, "damaged"),
        ({"variants": []}, "damaged"),
        ({"variants": 3}, "damaged"),
        ({"target": None}, "cannot run on this machine|damaged"),
    ],
)
def test_foreign_and_old_ones_are_refused(
    change: dict[str, Any], message: str, compiled: dict[str, Executable], tmp_path: Path, monkeypatch: Any
) -> None:
    save(compiled["dense"], tmp_path / "m.nst")
    forged = _altered(tmp_path / "m.nst", lambda manifest: manifest.update(change))
    monkeypatch.setattr("graphir.executor.Executable.__init__", lambda *a, **k: pytest.fail("code was loaded"))
    with pytest.raises(ArtifactError, match=message):
        load(forged)


def test_a_cpu_without_a_feature_is_refused(compiled: dict[str, Executable], tmp_path: Path, monkeypatch: Any) -> None:
    from targets.llvm import machine
    from tensorir.target import Target

    save(compiled["dense"], tmp_path / "m.nst")
    monkeypatch.setattr(machine, "native_target", lambda: Target.parse("llvm -mcpu=x86-64"))
    with pytest.raises(ArtifactError, match=r"cannot run on this machine: (.|\n)*has no .*avx"):
        load(tmp_path / "m.nst")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["steps"][0].update(launch=99),
        lambda p: p["steps"][0]["slots"].pop(),
        lambda p: p["steps"][0]["slots"].__setitem__(0, ["input", 5]),
        lambda p: p["steps"][0].update(dims=["unknown"]),
        lambda p: p["arena"]["order"].append(0),
        lambda p: p["values"][0].update(shape=["__import__('os')"]),
        lambda p: p["values"][0].update(shape=["(" * 2000 + "1" + ")" * 2000]),
        lambda p: p["values"][0].update(dtype="float999"),
        lambda p: p["constants"][0].__setitem__(1, "absent"),
        lambda p: p.pop("inputs"),
        lambda p: p.update(inputs=[-1]),
        lambda p: p["symbols"][0].__setitem__(4, 7),
        lambda p: p["steps"].append({}),
    ],
)
def test_a_forged_plan_is_refused(
    change: Callable[[dict[str, Any]], None], compiled: dict[str, Executable], tmp_path: Path, monkeypatch: Any
) -> None:
    save(compiled["dense"], tmp_path / "m.nst")
    with zipfile.ZipFile(tmp_path / "m.nst") as archive:
        plan = json.loads(archive.read("plans/0.json"))
    change(plan)
    forged = _altered(tmp_path / "m.nst", lambda manifest: None, {"plans/0.json": json.dumps(plan).encode()})
    monkeypatch.setattr("graphir.executor.Executable.__init__", lambda *a, **k: pytest.fail("code was loaded"))
    with pytest.raises(ArtifactError, match="damaged"):
        load(forged)


def test_host_functions_of_others_need_leave(compiled: dict[str, Executable], tmp_path: Path) -> None:
    save(compiled["dense"], tmp_path / "m.nst")

    def call_system(manifest: dict[str, Any]) -> None:
        manifest["kernels"][0]["abi"]["externs"] = [["os:system", [["uint8", 1]]]]

    with pytest.raises(ArtifactError, match=r"calls the host function os:system(.|\n)*externs="):
        load(_altered(tmp_path / "m.nst", call_system))


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all" * 100])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.nst"
    path.write_bytes(content)
    for reader in (load, inspect):
        with pytest.raises(ArtifactError, match="m.nst is not an artifact"):
            reader(path)
    with pytest.raises(ArtifactError, match="there is no file"):
        load(tmp_path / "absent.nst")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b" " * 1000)
    with pytest.raises(ArtifactError, match="not stored plainly"):
        load(path)


def test_an_input_of_bfloat16_keeps_its_type(tmp_path: Path) -> None:
    """apache/tvm#11107: a saved model whose input is bfloat16 takes bfloat16 and refuses the bits as uint16."""
    node = helper.make_node("Add", ["x", "x"], ["y"])
    exe = compile(_onnx([node], {"x": (TensorProto.BFLOAT16, ["n"])}, {"y": (TensorProto.BFLOAT16, ["n"])}))
    save(exe, tmp_path / "m.nst")
    loaded = load(tmp_path / "m.nst")
    assert str(loaded.inputs[0]) == "x: bfloat16[n]" and str(loaded.outputs[0]) == "y: bfloat16[n]"
    x = np.array([1.5, -0.25, 3], ml_dtypes.bfloat16)
    [y] = loaded.run([x])
    assert y.dtype == x.dtype and y.tolist() == [3, -0.5, 6]
    with pytest.raises(InputError, match="x.*bfloat16.*uint16"):
        loaded.run([x.view(np.uint16)])


def test_members_nobody_vouches_for_are_refused(compiled: dict[str, Executable], tmp_path: Path) -> None:
    save(compiled["dense"], tmp_path / "m.nst")
    forged = _altered(tmp_path / "m.nst", lambda m: m["members"].pop("logs/0.txt"))
    with pytest.raises(ArtifactError, match="its members are not those of the manifest"):
        load(forged)


def test_what_cannot_be_saved_says_so(compiled: dict[str, Executable], tmp_path: Path) -> None:
    interpreted = compile(_branch(), target="reference")
    with pytest.raises(ArtifactError, match="reference has no machine code"):
        save(interpreted, tmp_path / "m.nst")
    with pytest.raises(ArtifactError, match="there is no folder"):
        save(compiled["dense"], tmp_path / "absent" / "m.nst")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file(compiled: dict[str, Executable], tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.nst"
    path.write_bytes(b"old")

    def no_room(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(artifact, "plan_json", no_room)
    with pytest.raises(OSError, match="no space left"):
        save(compiled["dense"], path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


# --------------------------------------------------------------------------------------------------- tensor files


def test_tensors_of_every_kind_survive() -> None:
    arrays = {
        "a": np.arange(7, dtype=np.int8),
        "none": np.zeros((0, 3), np.float32),
        "scalar": np.array(2.5),
        "b": np.array([[1.5, -0.0]], ml_dtypes.bfloat16),
        "t": np.array([True, False]),
    }
    data = np.frombuffer(b"".join(map(bytes, tensor_file(arrays))), np.uint8)
    found = read_tensors(data)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}',
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[60,68]}}',
        b'{"a":{"dtype":"F32","shape":[-2],"data_offsets":[8,0]}}',
        b'{"a":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}}',
        b'{"a":{"dtype":"F32","shape":["2"]}}',
    ],
)
def test_headers_that_lie_are_refused(header: bytes) -> None:
    data = np.frombuffer(len(header).to_bytes(8, "little") + header + bytes(64), np.uint8)
    with pytest.raises(TensorFileError):
        read_tensors(data)
    with pytest.raises(TensorFileError):
        read_tensors(data[:5])


def test_a_loaded_model_does_not_wake_the_code_generator(compiled: dict[str, Executable], tmp_path: Path) -> None:
    save(compiled["dense"], tmp_path / "m.nst")
    program = (
        "import sys, numpy as np, targets.llvm.runtime.compiler as compiler\n"
        "from graphir.artifact import load\n"
        "from targets.llvm.runtime import pool\n"
        "pool.compile_pool = compiler.compile_ir = None\n"
        "print(load(sys.argv[1]).run([np.ones((3, 7), np.float32)])[0].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "m.nst"], capture_output=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == b"(3, 5)\n", done.stderr.decode()
