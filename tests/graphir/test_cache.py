"""The cache: what is found is what would be compiled, nothing foreign or damaged is, and it stays within its bound."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphir import cache, groups, model_cache
from graphir.cache import Cache, CacheError, is_ours, source_digest, user_cache
from graphir.compile import compile
from graphir.stored import StoredKernel
from tensorir.te import Tensor
from topi.op import op, registered_ops
from topi.registry import get_op

X = np.linspace(-3, 3, 28, dtype=np.float32).reshape(4, 7)


def _model(*, scale: float = 2.0, op_type: str = "Tanh") -> bytes:
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "s"], ["a"]),
            helper.make_node(op_type, ["a"], ["b"]),
            helper.make_node("Softmax", ["b"], ["y"], axis=-1),
        ],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 7])],
        [onnx.numpy_helper.from_array(np.float32(scale), "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    """An empty cache that compilation uses; sources count as unchanged. No kernel of this process is remembered."""
    monkeypatch.setenv("NESTOR_CACHE", str(tmp_path / "cache"))
    for module in (cache, model_cache):
        monkeypatch.setattr(module, "source_digest", lambda packages: f"digest of {len(packages)}")
    monkeypatch.setattr(groups, "_COMPILED", {})
    found = user_cache()
    assert found is not None
    yield found


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What a new process would see."""
    return lambda: monkeypatch.setattr(groups, "_COMPILED", {})


@pytest.fixture
def no_schedules(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, nothing may be scheduled or compiled."""

    def forbid() -> None:
        monkeypatch.setattr(cache, "compile_group", lambda *a, **k: pytest.fail("a schedule ran"))

    return forbid


def test_kernels_come_back_before_any_schedule_runs(
    here: Cache, fresh: Callable[[], None], no_schedules: Callable[[], None]
) -> None:
    first = compile(_model(), cache=False)
    assert here.info().entries["kernels"][0] == len(first.plan.kernels) and here.info().entries["models"] == (0, 0)
    fresh()
    no_schedules()
    again = compile(_model(), cache=False)
    assert all(isinstance(k.group.kernel, StoredKernel) for k in again.plan.kernels)
    assert [k.group.kernel.object for k in again.plan.kernels] == [k.group.kernel.object for k in first.plan.kernels]
    assert [k.group.implementation for k in again.plan.kernels] == [k.group.implementation for k in first.plan.kernels]
    assert again.run([X])[0].tobytes() == first.run([X])[0].tobytes()


def test_a_stored_kernel_shows_its_program_again(here: Cache, fresh: Callable[[], None]) -> None:
    first = compile(_model(), cache=False)
    fresh()
    again = compile(_model(), cache=False)
    for a, b in zip(again.plan.kernels, first.plan.kernels):
        assert isinstance(a.group.kernel, StoredKernel)
        assert str(a.group.func) == str(b.group.func) and a.group.kernel.llvm == b.group.kernel.llvm
        assert a.group.kernel.spills == b.group.kernel.spills and "ret" in a.group.kernel.assembly


def test_models_come_back_whole(here: Cache, fresh: Callable[[], None], no_schedules: Callable[[], None]) -> None:
    first = compile(_model(), threads=2)
    assert here.info().entries["models"][0] == 1 and first.remake is None
    fresh()
    no_schedules()
    again = compile(_model(), threads=2)
    assert again.remake is not None and again.threads == 2
    assert again.run([X])[0].tobytes() == first.run([X])[0].tobytes()
    assert list(map(str, again.log)) == list(map(str, first.log)) and str(again.inputs) == str(first.inputs)


def test_a_kept_model_shows_its_graph_and_programs(here: Cache, fresh: Callable[[], None]) -> None:
    first = compile(_model())
    fresh()
    again = compile(_model())
    assert again.remake is not None
    assert str(again.graph) == str(first.graph) and str(again.source) == str(first.source)
    assert [str(k.group.func) for k in again.plan.kernels] == [str(k.group.func) for k in first.plan.kernels]


@pytest.mark.parametrize(
    "change",
    [
        {"opt_level": 1},
        {"precision": "strict"},
        {"threads": 1},
        {"shapes": {"x": (4, 7)}},
        {"disabled": ("fuse",)},
        {"target": "llvm -mcpu=x86-64"},
    ],
)
def test_other_arguments_are_other_models(here: Cache, change: dict[str, Any]) -> None:
    compile(_model())
    assert compile(_model(), **change).remake is None
    assert compile(_model()).remake is not None and compile(_model(), **change).remake is not None


def test_another_model_target_or_source_is_another_entry(
    here: Cache, fresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile(_model())
    assert compile(_model(scale=3.0)).remake is None
    fresh()
    other = compile(_model(op_type="Sigmoid"), cache=False)
    assert not all(isinstance(k.group.kernel, StoredKernel) for k in other.plan.kernels)
    fresh()
    for module in (cache, model_cache):
        monkeypatch.setattr(module, "source_digest", lambda packages: "changed")
    changed = compile(_model())
    assert changed.remake is None and not any(isinstance(k.group.kernel, StoredKernel) for k in changed.plan.kernels)


def test_damage_is_a_miss(here: Cache, fresh: Callable[[], None]) -> None:
    wanted = compile(_model()).run([X])[0].tobytes()
    chance = random.Random(0)
    for kind, path, _ in list(here.files()) * 10:
        if not path.exists():
            continue
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 + chance.randrange(255)
        path.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)
        fresh()
        assert compile(_model(), cache=kind == "models").run([X])[0].tobytes() == wanted


def test_ops_of_users_are_not_kept(here: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registered_ops(), "relu", get_op("relu"))  # so that it comes back

    @op("relu")
    def relu(x: Tensor, /) -> Tensor:
        return x

    assert not is_ours(relu) and is_ours(get_op("tanh")) and is_ours(get_op("conv2d"))
    assert compile(_model()).remake is None
    assert here.info().entries["models"][0] == 0


def test_models_with_data_elsewhere_are_not_kept(here: Cache, tmp_path: Path) -> None:
    model = onnx.load_from_string(_model())
    big = onnx.numpy_helper.from_array(np.full((7,), 2.0, np.float32), "s")
    del model.graph.initializer[:]
    model.graph.initializer.append(big)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    compile(path)
    assert here.info().entries["models"][0] == 0


def test_the_cache_can_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTOR_CACHE", "off")
    assert user_cache() is None
    compile(_model())
    unsafe = tmp_path / "open"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    monkeypatch.setenv("NESTOR_CACHE", str(unsafe))
    assert user_cache() is None  # anyone could put machine code there
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NESTOR_CACHE", str(tmp_path / "file" / "below"))
    assert user_cache() is None
    monkeypatch.setenv("NESTOR_CACHE_SIZE", "plenty")
    with pytest.raises(CacheError, match=r"NESTOR_CACHE_SIZE is 'plenty'(.|\n)*500M or 2G"):
        user_cache()


def test_sizes_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NESTOR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NESTOR_CACHE_SIZE", "3K")
    found = user_cache()
    assert found is not None and (found.folder, found.bound) == (tmp_path / "nestor", 3072)
    assert found.folder.stat().st_mode & 0o777 == 0o700


# ------------------------------------------------------------------------------------------------------- the folder


def test_what_was_used_least_recently_goes(tmp_path: Path) -> None:
    small = Cache(tmp_path, bound=10_000)
    for number in range(10):
        small.keep("kernels", f"k{number}", lambda path: path.write_bytes(bytes(1000)))
        os.utime(small.path("kernels", f"k{number}"), (number, number))
    assert small.find("kernels", "k0") is not None  # used now
    small.keep("models", "m", lambda path: path.write_bytes(bytes(1000)))
    left = {f"k{n}" for n in range(10) if small.path("kernels", f"k{n}").exists()}
    assert left == {"k0", *(f"k{n}" for n in range(4, 10))}
    info = small.info()
    assert info.entries == {"kernels": (7, 7000), "models": (1, 1000)}
    assert str(info).startswith(f"{tmp_path}: 7.8 KB of at most 9.8 KB")
    assert small.clear() == 8 and small.find("kernels", "k9") is None


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    mine = Cache(tmp_path)

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    mine.keep("kernels", "k", fail)
    assert mine.find("kernels", "k") is None and not list(mine.files())
    with pytest.raises(ValueError, match="a fault"):
        mine.keep("kernels", "k", lambda path: (_ for _ in ()).throw(ValueError("a fault")))


def test_unfinished_entries_are_cleaned_up_once_old(tmp_path: Path) -> None:
    mine = Cache(tmp_path)
    mine.keep("kernels", "k", lambda path: path.write_bytes(b"x"))
    folder = mine.path("kernels", "k").parent
    old, new = folder / ".new-old", folder / ".new-new"
    for path in (old, new):
        path.write_bytes(b"y")
    os.utime(old, (time.time() - 7200,) * 2)
    mine.shrink()
    assert not old.exists() and new.exists() and mine.find("kernels", "k") is not None


def test_processes_share_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from graphir.cache import Cache\n"
        "cache, mine = Cache(Path(sys.argv[1]), bound=200_000), sys.argv[2].encode()\n"
        "for n in range(300):\n"
        "    key = str(n % 7)\n"
        "    cache.keep('kernels', key, lambda path: path.write_bytes(mine * 10_000))\n"
        "    found = cache.find('kernels', str((n * 3) % 7))\n"
        "    data = found.read_bytes() if found and found.exists() else b''\n"
        "    assert data in (b'', b'a' * 10_000, b'b' * 10_000, b'c' * 10_000), data[:10]\n"
        "    if n % 50 == 0: cache.shrink()\n"
    )
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], cwd=root, stderr=subprocess.PIPE)
        for name in "abc"
    ]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()


# ------------------------------------------------------------------------------------------------------------ keys


def test_the_digest_covers_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ROOT", tmp_path)
    for name in ("one/a.py", "one/deep/b.py", "one/deep/g.lark", "two/c.py", "one/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))

    def digest(*packages: str) -> str | None:
        source_digest.cache_clear()
        return source_digest(packages)

    try:
        first = digest("one")
        assert first is not None and digest("one") == first and digest("one", "two") != first
        for name, differs in (("one/deep/b.py", True), ("one/deep/g.lark", True), ("one/notes.txt", False)):
            old = (tmp_path / name).read_text()
            (tmp_path / name).write_text("changed")
            os.utime(tmp_path / name, (1, 1))
            assert (digest("one") != first) == differs
            (tmp_path / name).write_text(old)
            os.utime(tmp_path / name, (1, 1))
        os.utime(tmp_path / "one/a.py")  # touched after this process began: what runs may be older
        assert digest("one") is None
    finally:
        source_digest.cache_clear()
