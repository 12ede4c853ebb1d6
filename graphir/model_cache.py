"""Whole models in the on-disk cache, as artifacts.

A model's key is its bytes, the arguments of `compile` and a digest of all sources. One that is found can run at once;
its graph, and the programs of its kernels, are made again when somebody looks at them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from graphir.artifact import ArtifactError, load, save
from graphir.cache import KERNEL_SOURCES, is_ours, source_digest, user_cache
from graphir.executor import Executable
from graphir.stored import StoredGroup, StoredKernel
from targets.llvm.machine import machine_of
from tensorir.target import Target
from topi.group import CompiledGroup
from topi.op import registered_ops

MODEL_SOURCES = (*KERNEL_SOURCES, "graphir")


def model_key(model: Any, target: Target, arguments: Mapping[str, Any]) -> str | None:
    """The key of a whole model; None for one that must not be kept: not a file or bytes of ONNX, with data in further
    files, or with ops that are not ours."""
    sources = source_digest(MODEL_SOURCES)
    if sources is None or target.kind != "llvm" or not isinstance(model, (str, os.PathLike, bytes)):
        return None
    if not all(is_ours(op) for op in registered_ops().values()):
        return None
    try:
        digest = _content_digest(model)
    except OSError:
        return None  # the front end says what is wrong
    if digest is None:
        return None
    parts = [digest, str(target), machine_of(target).key, sources, np.__version__]
    parts += [f"{name}={_argument(value)}" for name, value in sorted(arguments.items())]
    return "\n".join(parts)


def _content_digest(model: str | os.PathLike[str] | bytes) -> str | None:
    """A digest of a model's bytes, read piece by piece; None if it may have data in other files."""
    digest = hashlib.sha256()
    mark, end = b"location", b""  # the key under which ONNX names another file
    with io.BytesIO(model) if isinstance(model, bytes) else open(model, "rb") as file:
        while piece := file.read(1 << 20):
            if mark in end + piece:
                return None
            digest.update(piece)
            end = piece[-len(mark) :]
    return digest.hexdigest()


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k!r}:{_argument(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, (set, frozenset)):
        return _argument(sorted(value))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "(" + ",".join(map(_argument, value)) + ")"
    return repr(value)


def find_model(key: str | None, again: Callable[[], Executable]) -> Executable | None:
    """The executable that was kept under a key. `again` compiles it anew, for who looks at its graph or programs."""
    cache = user_cache()
    path = None if cache is None or key is None else cache.find("models", key)
    if cache is None or key is None or path is None:
        return None
    try:
        found = load(path)
        assert isinstance(found, Executable)
    except (ArtifactError, OSError):
        cache.drop("models", key)
        return None
    made = functools.cache(again)
    found.remake = made
    for k in found.plan.kernels:
        assert isinstance(k.group.kernel, StoredKernel)
        k.group.kernel.again = functools.partial(_group_again, made, k.name)
    return found


def _group_again(made: Callable[[], Executable], name: str) -> CompiledGroup:
    [group] = [k.group for k in made().plan.kernels if k.name == name]
    return group.kernel.compiled() if isinstance(group, StoredGroup) else group


def keep_model(key: str | None, exe: Executable) -> None:
    """Keeps an executable under a key, where it can be saved."""
    cache = user_cache()
    if cache is None or key is None or sum(c.nbytes for c in exe.constants) > cache.bound // 2:
        return
    with contextlib.suppress(ArtifactError):
        cache.keep("models", key, lambda path: save(exe, path))
