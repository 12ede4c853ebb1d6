"""Artifacts: a compiled model in one file, inert to look at, verified before any of its machine code is loaded.

    save(exe, "m.nst")        load("m.nst")        inspect("m.nst")

The file is a zip archive, nothing in it compressed:

    manifest.json         format, versions, target and CPU features, the ABI; size and SHA-256 of every other member
    plans/0.json          the plan of each variant (a set of input shapes): see `graphir.plan_json`
    graphs/0.txt          the graph of each variant as text, for people; logs/0.txt what the passes said
    objects/kernels.bin   machine code of every kernel, one object after the other
    objects/entry0.o      machine code of each variant's entry
    objects/pool.o        machine code of the thread pool, used if it is the one this version would make
    weights.safetensors   the constants, as the kernels want them

The comment of the archive holds the SHA-256 of the manifest. There is no pickle; nothing is imported by name but the
host functions of Nestor's own ops and those the caller allows.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphir.errors import GraphError
from graphir.executor import Executable, _aligned_bytes
from graphir.groups import GraphKernel
from graphir.ir import Graph
from graphir.plan import Launch, Plan
from graphir.plan_json import plan_from_json, plan_json
from graphir.stored import KernelAbi, StoredGroup, StoredKernel, abi_of, vector_bits_of
from graphir.tensor_file import TensorFileError, read_tensors, tensor_file
from graphir.variants import Variants
from targets.llvm.machine import machine_of, require_runnable
from targets.llvm.runtime import CONTEXT_FIELDS, CONTEXT_LLVM_TYPE, process_pool
from targets.llvm.runtime.pool import offer_object
from tensorir.errors import UserError
from tensorir.target import Target

FORMAT = 1
"""Raised whenever the meaning of what is stored changes."""
MANIFEST, WEIGHTS, KERNELS, POOL = "manifest.json", "weights.safetensors", "objects/kernels.bin", "objects/pool.o"
SEAL = b"nestor artifact, manifest sha256 "
TRUSTED = "topi."
"""Host functions below this package may be called by an artifact."""
_DATE = (1980, 1, 1, 0, 0, 0)


class ArtifactError(UserError):
    """A file that is no artifact, is damaged, or was made for another machine or version."""


@functools.cache
def abi_digest() -> str:
    """Names the form of kernel calls: objects made for another one must not run."""
    text = f"{CONTEXT_LLVM_TYPE}|{sorted(CONTEXT_FIELDS.items())}|i32(context, data, dims)"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def nestor_version() -> str:
    """The version of this compiler."""
    from importlib import metadata

    try:
        return metadata.version("nestor-compiler")
    except metadata.PackageNotFoundError:
        return "source"


# ------------------------------------------------------------------------------------------------------------- saving


def save(exe: Executable | Sequence[Executable], path: str | os.PathLike[str]) -> None:
    """Writes an executable as an artifact, or several of one model for other shapes, which share kernels and weights.

    The file appears whole or not at all. Raises `ArtifactError` for what cannot be stored: another target than `llvm`,
    a host function defined in a notebook, executables that do not belong together.
    """
    target = Path(path)
    variants = (exe,) if isinstance(exe, Executable) else tuple(exe)
    _require_saveable(variants)
    folder = target.parent if target.parent != Path() else Path(".")
    if not folder.is_dir():
        raise ArtifactError(f"cannot save {target}: there is no folder {folder}")
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            text = json.dumps(_add_members(_Members(archive), variants), indent=1).encode()
            _write(archive, MANIFEST, [text])
            archive.comment = SEAL + hashlib.sha256(text).hexdigest().encode()
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _require_saveable(variants: Sequence[Executable]) -> None:
    if not variants:
        raise ArtifactError("there is no executable to save")
    first = variants[0]
    for exe in variants:
        if exe.target.kind != "llvm" or exe.entry_object is None:
            raise ArtifactError(
                f"an executable for the target {exe.target.kind} has no machine code to save", help="compile for llvm"
            )
        same = [i.name for i in exe.inputs] == [i.name for i in first.inputs]
        if not same or str(exe.target) != str(first.target) or exe.threads != first.threads:
            raise ArtifactError(
                "the executables to save together differ in their inputs' names, target or threads",
                help="compile one model with several shapes=, all else equal",
            )
        _require_named_externs(exe.plan)


def _add_members(members: _Members, variants: Sequence[Executable]) -> dict[str, Any]:
    """Everything but the manifest, which is given back."""
    machine = machine_of(variants[0].target)
    names = _add_weights(members, variants)
    facts, numbers = _add_kernels(members, [v.plan for v in variants])
    members.add(POOL, [process_pool().object])
    entries: list[dict[str, Any]] = []
    for n, exe in enumerate(variants):
        entry: dict[str, Any] = {
            "plan": f"plans/{n}.json",
            "graph": f"graphs/{n}.txt",
            "log": f"logs/{n}.txt",
            "entry": f"objects/entry{n}.o",
        }
        assert exe.entry_object is not None
        members.add(entry["plan"], [json.dumps(plan_json(exe.plan, names[n]), separators=(",", ":")).encode()])
        members.add(entry["graph"], [str(exe.graph).encode()])
        members.add(entry["log"], ["\n".join(map(str, exe.log)).encode()])
        members.add(entry["entry"], [exe.entry_object])
        entries.append({**entry, "kernels": numbers[n]})
    return {
        "format": FORMAT,
        "nestor": nestor_version(),
        "llvm": machine.key.partition("|")[0],
        "abi": abi_digest(),
        "target": str(variants[0].target),
        "triple": machine.triple,
        "features": sorted(variants[0].target.features),
        "threads": variants[0].threads,
        "pool": process_pool().key,
        "kernels": facts,
        "variants": entries,
        "members": members.facts,
    }


class _Members:
    """Writes members and keeps their sizes and digests."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.facts: dict[str, dict[str, Any]] = {}

    def add(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        digest = hashlib.sha256()
        size = 0

        def watched() -> Iterable[bytes | memoryview]:
            nonlocal size
            for part in parts:
                digest.update(part)
                size += len(part)
                yield part

        _write(self.archive, name, watched())
        self.facts[name] = {"size": size, "sha256": digest.hexdigest()}


def _write(archive: zipfile.ZipFile, name: str, parts: Iterable[bytes | memoryview]) -> None:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=True) as file:
        for part in parts:
            file.write(part)


def _add_weights(members: _Members, variants: Sequence[Executable]) -> list[list[str]]:
    """Every different constant once; the name of each variant's constants, in order."""
    stored: dict[str, np.ndarray] = {}
    known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    names: list[list[str]] = []
    for exe in variants:
        names.append([])
        for v, data in zip(exe.plan.constants, exe.constants):
            content = (str(data.dtype), data.shape, hashlib.sha256(np.ascontiguousarray(data).tobytes()).digest())
            if content not in known:
                plain = v.name not in stored and not v.name.startswith("__")
                known[content] = v.name if plain else f"{v.name}#{len(stored)}"
                stored[known[content]] = data
            names[-1].append(known[content])
    members.add(WEIGHTS, tensor_file(stored))
    return names


def _add_kernels(members: _Members, plans: Sequence[Plan]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Every different kernel once; and the numbers of each plan's kernels."""
    facts: list[dict[str, Any]] = []
    objects: list[bytes] = []
    known: dict[tuple[str, bytes], int] = {}
    at = 0
    for k in (k for plan in plans for k in plan.kernels):
        kernel: Any = k.group.kernel  # compiled here, or stored
        if (k.name, kernel.object) in known:
            continue
        known[k.name, kernel.object] = len(facts)
        facts.append(
            {
                "name": k.name,
                "symbol": kernel.symbol,
                "at": at,
                "size": len(kernel.object),
                "dims": list(k.dims),
                "abi": abi_of(kernel).json(),
                "implementation": k.group.implementation,
                "config": str(k.group.config),
                "spills": kernel.spills,
                "vector_bits": vector_bits_of(kernel),
            }
        )
        objects.append(kernel.object)
        at += len(kernel.object)
    members.add(KERNELS, objects)
    return facts, [[known[k.name, _code(k)] for k in plan.kernels] for plan in plans]


def _code(k: GraphKernel) -> bytes:
    kernel: Any = k.group.kernel
    return kernel.object


def _require_named_externs(plan: Plan) -> None:
    for k in plan.kernels:
        for name in (e.name for e in abi_of(k.group.kernel).externs):
            module = name.partition(":")[0]
            if module == "__main__" or not module:
                raise ArtifactError(
                    f"{k.name} calls the host function {name}, which only this session knows, so it cannot be saved",
                    help="put the function into a module that the other side can import",
                )


# ------------------------------------------------------------------------------------------------------------ loading


@dataclass(frozen=True, slots=True)
class Artifact:
    """What an artifact says about itself, its members verified. `text` is the graph of a variant."""

    path: Path
    manifest: dict[str, Any]
    plans: tuple[dict[str, Any], ...]
    graphs: tuple[str, ...]
    logs: tuple[str, ...]

    def __str__(self) -> str:
        m = self.manifest
        lines = [
            f"{self.path.name}: artifact of Nestor {m['nestor']}, format {m['format']}",
            f"target {m['target']}",
            f"needs {m['triple']} with {', '.join(m['features'])}",
            f"{len(m['kernels'])} kernels, {m['members'][KERNELS]['size']} bytes of machine code, "
            f"{m['members'][WEIGHTS]['size']} bytes of weights",
        ]
        for plan in self.plans:
            for kind, names in (("input", None), ("output", plan["output_names"])):
                for number, at in enumerate(plan[f"{kind}s"]):
                    v = plan["values"][at]
                    name = v["name"] if names is None else names[number]
                    lines.append(f"  {kind} {name}: {v['dtype']}[{', '.join(map(str, v['shape']))}]")
        return "\n".join(lines)


def inspect(path: str | os.PathLike[str]) -> Artifact:
    """What an artifact says about itself; every member is verified, no machine code is loaded. Raises
    `ArtifactError`."""
    reader = _Reader(Path(path))
    with reader:
        return reader.artifact()


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, externs: Sequence[str] = ()
) -> Executable | Variants:
    """The executable that an artifact holds, or the variants, where it holds several. `threads` replaces the number it
    was compiled with; `externs` names host functions outside Nestor that it may call.

    Raises `ArtifactError` before any of its code is loaded: for a file that is not an artifact or is damaged, of
    another version, or of a machine that this one cannot stand in for.
    """
    reader = _Reader(Path(path))
    with reader:
        manifest = reader.manifest()
        target = reader.require_here(manifest)
        made = reader.executables(manifest, target, threads, frozenset(externs))
        return made[0] if len(made) == 1 else Variants(made)


class _Reader:
    """An artifact being read. Everything that may go wrong with damaged bytes ends in an `ArtifactError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive: zipfile.ZipFile | None = None
        self.size = 0

    def __enter__(self) -> _Reader:
        if not self.path.is_file():
            raise ArtifactError(f"there is no file {self.path}")
        self.size = self.path.stat().st_size
        try:
            self.archive = zipfile.ZipFile(self.path)
        except Exception as error:  # noqa: BLE001 - zipfile raises many kinds for damaged bytes
            raise self.damaged(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self.archive is not None:
            self.archive.close()

    def damaged(self, reason: object) -> ArtifactError:
        """The refusal of a file that does not hold what it must."""
        text = f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason)
        return ArtifactError(f"{self.path} is not an artifact, or it is damaged: {text}", help="save it again")

    def read(self, name: str) -> np.ndarray:
        """The bytes of a member, at a cache line."""
        assert self.archive is not None
        try:
            info = self.archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or not 0 <= info.file_size <= self.size:
                raise ValueError(f"{name} is not stored plainly")
            data = _aligned_bytes(info.file_size)
            with self.archive.open(info) as file:
                if _read_into(file, data) != info.file_size:
                    raise ValueError(f"{name} is cut short")
            return data
        except Exception as error:  # noqa: BLE001 - zipfile raises many kinds for damaged bytes
            raise self.damaged(error) from None

    def manifest(self) -> dict[str, Any]:
        """The manifest, as it was sealed, of this version."""
        assert self.archive is not None
        text = self.read(MANIFEST).tobytes()
        seal = SEAL + hashlib.sha256(text).hexdigest().encode()
        if self.archive.comment != seal:
            raise self.damaged("the manifest is not the one that was sealed")
        try:
            found = json.loads(text)
            version, made_by = found["format"], found["nestor"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.damaged(error) from None
        if version != FORMAT or found.get("abi") != abi_digest():
            raise ArtifactError(
                f"{self.path} was made by Nestor {made_by} in format {version} "
                f"(kernel ABI {found.get('abi')}); this one reads format {FORMAT} (kernel ABI {abi_digest()})",
                help="compile the model again with this version",
            )
        names = sorted(self.archive.namelist())
        try:
            if names != sorted([MANIFEST, *found["members"]]):
                raise self.damaged("its members are not those of the manifest")
        except (TypeError, KeyError) as error:
            raise self.damaged(error) from None
        return found

    def require_here(self, manifest: dict[str, Any]) -> Target:
        """The target, if this machine can run code for it."""
        from targets.llvm.runtime import host

        try:
            target = Target.parse(manifest["target"])
            theirs, ours = str(manifest["triple"]).split("-"), host().triple.split("-")
            if theirs[2:] != ours[2:]:
                raise UserError(f"it was made for {'-'.join(theirs[2:])}, this is {'-'.join(ours[2:])}")
            require_runnable(target)
            if missing := sorted(set(manifest["features"]) - target.features):
                raise UserError(f"it needs {', '.join(missing)}, which its target does not name")
        except UserError as error:
            raise ArtifactError(
                f"{self.path} cannot run on this machine: {error.message}", help="compile the model on such a machine"
            ) from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self.damaged(error) from None
        return target

    def member(self, manifest: dict[str, Any], name: str) -> np.ndarray:
        """A member whose size and digest are those of the manifest."""
        try:
            facts = manifest["members"][name]
            size, digest = facts["size"], facts["sha256"]
        except (KeyError, TypeError) as error:
            raise self.damaged(error) from None
        data = self.read(name)
        if len(data) != size or hashlib.sha256(data.data).hexdigest() != digest:
            raise self.damaged(f"{name} is not what was saved")
        return data

    def artifact(self) -> Artifact:
        """The verified texts."""
        manifest = self.manifest()
        try:
            read = {name: self.member(manifest, name) for name in manifest["members"]}
            plans = tuple(json.loads(read[v["plan"]].tobytes()) for v in manifest["variants"])
            graphs = tuple(read[v["graph"]].tobytes().decode() for v in manifest["variants"])
            logs = tuple(read[v["log"]].tobytes().decode() for v in manifest["variants"])
            return Artifact(self.path, manifest, plans, graphs, logs)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.damaged(error) from None

    def executables(
        self, manifest: dict[str, Any], target: Target, threads: int | None, allowed: frozenset[str]
    ) -> list[Executable]:
        """The executables: everything verified first, then the machine code loaded."""
        read = {name: self.member(manifest, name) for name in manifest["members"]}
        try:
            kernels = _kernels(manifest["kernels"], read[KERNELS].tobytes())
            data = read_tensors(read[WEIGHTS])
            found = [self.variant(v, kernels, data, read) for v in manifest["variants"]]
            wanted = manifest["threads"] if threads is None else threads
            if wanted is not None and (type(wanted) is not int or wanted < 1):
                raise ValueError(f"threads is {wanted!r}")
            if not found or POOL not in read:
                raise ValueError("it holds no plan, or no thread pool")
        except (GraphError, TensorFileError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self.damaged(error.message if isinstance(error, UserError) else error) from None
        except IndexError as error:
            raise self.damaged(error) from None
        for k in kernels:
            for name in (e.name for e in abi_of(k.group.kernel).externs):
                if not name.startswith(TRUSTED) and name not in allowed:
                    raise ArtifactError(
                        f"{self.path} calls the host function {name}, which is not part of Nestor",
                        help=f"if you trust it, load it with externs=[{name!r}]",
                    )
        offer_object(str(manifest.get("pool")), read[POOL].tobytes())
        return [
            Executable(graph, plan, target, threads=wanted, log=log, entry=entry) for graph, plan, entry, log in found
        ]

    def variant(
        self,
        facts: dict[str, Any],
        kernels: Sequence[GraphKernel],
        data: Mapping[str, np.ndarray],
        read: Mapping[str, np.ndarray],
    ) -> tuple[Graph, Plan, bytes, list[str]]:
        """What one variant is made of."""
        if any(type(n) is not int or n < 0 for n in facts["kernels"]):
            raise ValueError("a kernel has no number")
        own = [kernels[n] for n in facts["kernels"]]
        plan, tensors = plan_from_json(json.loads(read[facts["plan"]].tobytes()), own)
        constants = {}
        for v, name in zip(plan.constants, tensors):
            if data[name].dtype != v.dtype.numpy or data[name].nbytes != _constant(v.nbytes):
                raise ValueError(f"the weight {name} does not fit the plan")
            constants[v] = data[name]
        entry, log = read[facts["entry"]].tobytes(), read[facts["log"]].tobytes().decode().splitlines()
        nodes = tuple(i.node for i in plan.walk() if isinstance(i, Launch))
        symbols = tuple(s.symbol for s in plan.symbols)
        graph = Graph(plan.name, plan.inputs, plan.outputs, nodes, constants, symbols, plan.output_names)
        return graph, plan, entry, log


def _kernels(facts: Sequence[dict[str, Any]], objects: bytes) -> tuple[GraphKernel, ...]:
    made: list[GraphKernel] = []
    for f in facts:
        begin, size = f["at"], f["size"]
        if not 0 <= begin <= begin + size <= len(objects):
            raise ValueError(f"the code of {f['name']} lies outside the file")
        abi = KernelAbi.from_json(f["abi"])
        dims = tuple(map(int, f["dims"]))
        if len(dims) != abi.sizes:
            raise ValueError(f"{f['name']} does not say where its dimensions come from")
        code = objects[begin : begin + size]
        kernel = StoredKernel(str(f["symbol"]), code, abi, int(f["spills"]), int(f["vector_bits"]))
        group = StoredGroup(kernel, str(f["implementation"]), str(f["config"]))
        made.append(GraphKernel(str(f["name"]), group, dims, ""))
    return tuple(made)


def _constant(e: Any) -> int:
    from graphir import dims

    known = dims.constant(e)
    if known is None:
        raise ValueError("a constant has no fixed size")
    return known


def _read_into(file: IO[bytes], data: np.ndarray) -> int:
    view = data.data
    at = 0
    while at < len(view):
        part = file.read(min(len(view) - at, 1 << 20))
        if not part:
            break
        view[at : at + len(part)] = part
        at += len(part)
    if file.read(1):
        return -1
    return at
