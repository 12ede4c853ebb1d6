"""Named arrays in the safetensors form, laid out so that they can be used where they lie.

    8 bytes: length of the header | header: JSON, padded with spaces | the data, without holes

Every array starts at a multiple of 64 bytes: the room between two is an array of bytes of its own (`__pad0`, ...), as
the form allows no holes. Reading makes views into the buffer that is given, no copies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import ml_dtypes
import numpy as np

from tensorir.errors import UserError

ALIGNMENT = 64
PADDING = "__pad"
DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorFileError(UserError):
    """Bytes that are not a safetensors file, or an array that cannot be one's part."""


def tensor_file(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The parts of the file, one after the other."""
    entries: dict[str, object] = {}
    at = 0
    for number, (name, array) in enumerate(arrays.items()):
        if array.dtype not in _NAMES:
            raise TensorFileError(f"{name}: {array.dtype} cannot be stored as safetensors")
        end = at + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, end]}
        at = -(-end // ALIGNMENT) * ALIGNMENT
        if at != end:
            entries[f"{PADDING}{number}"] = {"dtype": "U8", "shape": [at - end], "data_offsets": [end, at]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    yield len(header).to_bytes(8, "little") + header
    for array in arrays.values():
        if array.nbytes:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            yield b"\0" * (-array.nbytes % ALIGNMENT)


def read_tensors(data: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays in these bytes, as read-only views, without the padding. Raises `TensorFileError`."""
    try:
        length = int.from_bytes(data[:8].tobytes(), "little")
        if len(data) < 8 or length > len(data) - 8:
            raise ValueError("the header is cut short")
        entries = json.loads(data[8 : 8 + length].tobytes().decode())
        body = data[8 + length :]
        found: dict[str, np.ndarray] = {}
        for name, entry in entries.items():
            if name == "__metadata__" or name.startswith(PADDING):
                continue
            dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])), entry["data_offsets"]
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(body):
                raise ValueError(f"{name} lies outside the data")
            if math.prod(shape) * dtype.itemsize != end - begin:
                raise ValueError(f"{name} has {end - begin} bytes for {entry['dtype']}{list(shape)}")
            array = body[begin:end].view(dtype).reshape(shape)
            array.flags.writeable = False
            found[name] = array
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TensorFileError(f"these are not safetensors: {type(error).__name__}: {error}") from None
