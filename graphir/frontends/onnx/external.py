"""Weights in files beside a model: read only from inside the model's folder, and only as much as the model says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from graphir.errors import ModelError

if TYPE_CHECKING:
    import onnx


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model, subgraphs and functions included, whose data lies in another file."""
    stack: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while stack:
        graph = stack.pop()
        tensors = list(getattr(graph, "initializer", ()))
        for sparse in getattr(graph, "sparse_initializer", ()):
            tensors += [sparse.values, sparse.indices]
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                stack += [attribute.g, *attribute.graphs]
        yield from (t for t in tensors if t.data_location == t.EXTERNAL)


def load_external(model: onnx.ModelProto, path: Path | None) -> None:
    """Puts the data of external tensors into the model. Raises `ModelError` where it is missing, too short or outside
    the folder; no such file is opened."""
    for tensor in external_tensors(model):
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        if path is None:
            raise ModelError(
                f"the weight {tensor.name} lies in another file, {location!r}",
                help="give the path of the model, not its bytes",
            )
        tensor.raw_data = _read(tensor, entries, location, path)
        tensor.data_location = tensor.DEFAULT
        del tensor.external_data[:]


def _read(tensor: onnx.TensorProto, entries: dict[str, str], location: str, path: Path) -> bytes:
    folder = path.parent.resolve()
    if "\0" in location or len(location) > 4096:
        raise ModelError(f"{path}: the weight {tensor.name} is said to lie at {location[:60]!r}, which is no file name")
    whole = (folder / location).resolve() if location else folder
    if not location or Path(location).is_absolute() or not whole.is_relative_to(folder):
        raise ModelError(
            f"{path}: the weight {tensor.name} is said to lie at {location!r}, which is outside the model's folder",
            help="only files in the folder of the model are read; export the model again",
        )
    if not _is_file(whole):
        raise ModelError(
            f"{path} keeps the weight {tensor.name} in {location!r}, which is not there",
            help="put the data files in the folder of the model",
        )
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"{path}: the weight {tensor.name} has the shape {tuple(tensor.dims)}, with a negative size")
    wanted = _nbytes(tensor)
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", wanted))
    except ValueError:
        raise ModelError(f"{path}: the place of the weight {tensor.name} in {location!r} is not a number") from None
    size = whole.stat().st_size
    if offset < 0 or length < wanted or offset + length > size:
        raise ModelError(
            f"{path}: the weight {tensor.name} wants {wanted} bytes from byte {offset} of {location!r}, "
            f"which has {size}" + (f" (it is given {length})" if length != wanted else ""),
            help="the data file is cut short or belongs to another model; fetch or export it again",
        )
    with whole.open("rb") as file:
        file.seek(offset)
        return file.read(wanted)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def _nbytes(tensor: onnx.TensorProto) -> int:
    import onnx

    count = 1
    for d in tensor.dims:
        count *= d
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    bits = {"4": 4, "2": 2}.get(kind[-1], 8) if kind in ("INT4", "UINT4", "INT2", "UINT2") else None
    if kind == "FLOAT4E2M1":
        bits = 4
    if bits is not None:
        return (count * bits + 7) // 8
    return count * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
