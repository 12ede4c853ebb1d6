"""The on-disk cache: kernels by what they are made from (`graphir.model_cache` keeps whole models above them).

A kernel's key is its group, the target and a digest of the sources that make kernels, so it is looked up before any
schedule code runs. Entries are files below the user's cache folder, written aside and renamed, so that several
processes may share it; each carries its own digest, and a damaged one is a miss. When the folder grows beyond its
bound, what was used least recently goes.

    NESTOR_CACHE        the folder, or "off"       (default: $XDG_CACHE_HOME/nestor, ~/.cache/nestor)
    NESTOR_CACHE_SIZE   the bound, as in 500M, 2G  (default 2G)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphir.stored import KernelAbi, StoredGroup, StoredKernel, abi_of, vector_bits_of
from targets.build import CompiledKernel
from targets.llvm.machine import machine_of
from tensorir.errors import UserError
from tensorir.target import Target
from topi.group import CompiledGroup, GroupSpec, compile_group
from topi.op import Op
from topi.registry import get_op

KERNEL_SOURCES = ("tensorir", "schedule", "topi", "targets")
KINDS = {"kernels": ".nk", "models": ".nst"}
"""The folders of entries, with how their files end."""
DEFAULT_BOUND = 2 << 30
KEPT_SHARE = 0.8
"""The share of the bound that stays when entries are dropped."""
_MAGIC = b"nestor kernel 1\n"
_ROOT = Path(__file__).resolve().parent.parent


class CacheError(UserError):
    """A cache setting that cannot be understood."""


# ------------------------------------------------------------------------------------------------------- the folder


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds: entries and bytes by kind."""

    folder: Path
    bound: int
    entries: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        total = sum(size for _, size in self.entries.values())
        lines = [f"{self.folder}: {_size_text(total)} of at most {_size_text(self.bound)}"]
        lines += [f"  {kind}: {count}, {_size_text(size)}" for kind, (count, size) in self.entries.items()]
        return "\n".join(lines)


class Cache:
    """A folder of entries. No method raises for what the file system does: an entry that cannot be read is absent, one
    that cannot be written is not kept."""

    def __init__(self, folder: Path, bound: int = DEFAULT_BOUND) -> None:
        self.folder = folder
        self.bound = bound
        self._known_size: int | None = None

    def path(self, kind: str, key: str) -> Path:
        """Where the entry of a key lies."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / kind / digest[:2] / f"{digest[2:]}{KINDS[kind]}"

    def find(self, kind: str, key: str) -> Path | None:
        """The file of an entry, marked as used now; None if there is none."""
        path = self.path(kind, key)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def keep(self, kind: str, key: str, write: Callable[[Path], object]) -> None:
        """Makes an entry: `write` writes a file, which then takes its place whole."""
        path = self.path(kind, key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            os.close(handle)
            temporary = Path(name)
            try:
                write(temporary)
                size = temporary.stat().st_size
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            self._grown(size)

    def drop(self, kind: str, key: str) -> None:
        """Removes an entry if it is there."""
        with contextlib.suppress(OSError):
            self.path(kind, key).unlink()

    def files(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """Every entry, and what was left over of entries that were never finished."""
        for kind in KINDS:
            for path in (self.folder / kind).glob("??/*"):
                with contextlib.suppress(OSError):
                    found = path.stat()
                    if stat.S_ISREG(found.st_mode):
                        yield kind, path, found
            for path in (self.folder / kind).glob("??/.new-*"):
                with contextlib.suppress(OSError):
                    yield kind, path, path.stat()

    def info(self) -> CacheInfo:
        """Entries and bytes by kind."""
        entries = {kind: (0, 0) for kind in KINDS}
        for kind, path, found in self.files():
            if path.suffix == KINDS[kind]:
                count, size = entries[kind]
                entries[kind] = count + 1, size + found.st_size
        return CacheInfo(self.folder, self.bound, entries)

    def clear(self) -> int:
        """Removes every entry; how many."""
        removed = 0
        for _, path, _ in self.files():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        self._known_size = None
        return removed

    def _grown(self, size: int) -> None:
        """Drops old entries if the cache may be too large; the folder is looked through rarely."""
        if self._known_size is None:
            self._known_size = sum(found.st_size for _, _, found in self.files())
        else:
            self._known_size += size
        if self._known_size > self.bound:
            self.shrink()

    def shrink(self) -> None:
        """Drops what was used least recently until the cache is well within its bound, and files left unfinished."""
        found = sorted(self.files(), key=lambda f: f[2].st_mtime)
        total = sum(f.st_size for _, _, f in found)
        now = time.time()
        for _, path, facts in found:
            unfinished = path.name.startswith(".new-")
            if (unfinished and now - facts.st_mtime < 3600) or (not unfinished and total <= KEPT_SHARE * self.bound):
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                total -= facts.st_size
        self._known_size = total


@functools.cache
def _opened(setting: str, size: str, home: str) -> Cache | None:
    bound = _parse_size(size) if size else DEFAULT_BOUND
    if setting.lower() in ("off", "0", "none"):
        return None
    folder = Path(setting) if setting else Path(home) / "nestor"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        return None  # others may write machine code there
    return Cache(folder, bound)


def user_cache() -> Cache | None:
    """The cache that the environment names; None where it is off, or no safe folder can be had."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return _opened(os.environ.get("NESTOR_CACHE", ""), os.environ.get("NESTOR_CACHE_SIZE", ""), home)


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise CacheError(f"NESTOR_CACHE_SIZE is {text!r}", help="write a number of bytes, as in 500M or 2G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


def _size_text(nbytes: int) -> str:
    size, unit = float(nbytes), "bytes"
    for larger in ("KB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


# ------------------------------------------------------------------------------------------------------------- keys


@functools.cache
def source_digest(packages: Sequence[str]) -> str | None:
    """A digest of the source files of these packages, or None if one of them changed after this process began: then
    what runs is not what the files say."""
    digest = hashlib.sha256()
    began = _process_start()
    for package in packages:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.suffix in (".py", ".lark"):
                if path.stat().st_mtime > began:
                    return None
                digest.update(f"{path.relative_to(_ROOT)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _process_start() -> float:
    """When this process began; infinity where that cannot be told."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def is_ours(op: Op) -> bool:
    """True if every fact of an op stands in our own sources: the digest covers it."""
    functions = [op.compute, *op.schedules.values()]
    for i in op.implementations:
        functions += [i.applicable, i.layouts, i.compute, i.schedule, i.configs, i.cost]
    return all(_module(f).startswith("topi.") for f in functions)


def _module(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__module__", None) or ""


# ---------------------------------------------------------------------------------------------------------- kernels


def find_or_compile(
    spec: GroupSpec, symbols: Sequence[str], target: Target, *, name: str
) -> tuple[CompiledGroup | StoredGroup, tuple[int, ...]]:
    """The kernel `name` of a group, from the cache or compiled and kept; its dimensions as positions in `symbols`."""
    cache, key = user_cache(), _kernel_key(spec, target, name)
    if cache is None or key is None:
        return _compile(spec, symbols, target, name)
    path = cache.find("kernels", key)
    if path is not None:
        try:
            return _read_kernel(path.read_bytes(), lambda: compile_group(spec, target, name=name))
        except (OSError, ValueError, KeyError, TypeError):
            cache.drop("kernels", key)
    group, positions = _compile(spec, symbols, target, name)
    data = _kernel_bytes(group, positions)
    cache.keep("kernels", key, lambda file: file.write_bytes(data))
    return group, positions


def is_to_be_compiled(spec: GroupSpec, target: Target, name: str) -> bool:
    """True for a kernel that may be compiled elsewhere, being made of our own sources alone, and that no cache has."""
    cache, key = user_cache(), _kernel_key(spec, target, name)
    return key is not None and (cache is None or cache.find("kernels", key) is None)


def compiled_bytes(spec: GroupSpec, symbols: Sequence[str], target: Target, *, name: str) -> bytes:
    """A kernel, compiled, as the cache keeps it."""
    return _kernel_bytes(*_compile(spec, symbols, target, name))


def adopt_bytes(spec: GroupSpec, target: Target, data: bytes, *, name: str) -> tuple[StoredGroup, tuple[int, ...]]:
    """A kernel from what `compiled_bytes` made, kept in the cache."""
    cache, key = user_cache(), _kernel_key(spec, target, name)
    if cache is not None and key is not None:
        cache.keep("kernels", key, lambda file: file.write_bytes(data))
    return _read_kernel(data, lambda: compile_group(spec, target, name=name))


def _compile(
    spec: GroupSpec, symbols: Sequence[str], target: Target, name: str
) -> tuple[CompiledGroup, tuple[int, ...]]:
    group = compile_group(spec, target, name=name)
    return group, tuple(symbols.index(v.name) for v in group.func.dims)


def _kernel_key(spec: GroupSpec, target: Target, name: str) -> str | None:
    """The key of a kernel; None for one that must not be kept."""
    sources = source_digest(KERNEL_SOURCES)
    if sources is None or target.kind != "llvm" or not all(is_ours(get_op(n.op)) for n in spec.nodes):
        return None
    return "\n".join([name, str(target), machine_of(target).key, sources, spec.key()])


def _kernel_bytes(group: CompiledGroup, positions: Sequence[int]) -> bytes:
    kernel = group.kernel
    assert isinstance(kernel, CompiledKernel)
    header = {
        "symbol": kernel.symbol,
        "dims": list(positions),
        "abi": abi_of(kernel).json(),
        "implementation": group.implementation,
        "config": str(group.config),
        "spills": kernel.spills,
        "vector_bits": vector_bits_of(kernel),
        "log": list(map(str, group.log)),
    }
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + kernel.object
    return _MAGIC + hashlib.sha256(body).digest() + body


def _read_kernel(data: bytes, again: Callable[[], CompiledGroup]) -> tuple[StoredGroup, tuple[int, ...]]:
    """What `_kernel_bytes` wrote. Raises `ValueError` and the like for anything else."""
    start = len(_MAGIC)
    digest, body = data[start : start + 32], data[start + 32 :]
    if data[:start] != _MAGIC or hashlib.sha256(body).digest() != digest:
        raise ValueError("the entry is damaged")
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    abi = KernelAbi.from_json(header["abi"])
    kernel = StoredKernel(header["symbol"], body[8 + length :], abi, header["spills"], header["vector_bits"], again)
    group = StoredGroup(kernel, header["implementation"], header["config"], tuple(header["log"]))
    return group, tuple(header["dims"])
