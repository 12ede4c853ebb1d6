"""A process that compiles kernels: `python -m graphir.worker`, fed groups as JSON over a pipe.

A message is its length in 8 bytes, then that many bytes. In come requests {"name", "target", "symbols", "spec"}; out go
replies: one byte, 0 before a kernel as the cache keeps it, 1 before the text of the error with its traceback. The
process ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import IO, Any

from graphir import dims
from graphir.attrs import attr_text, parse_attr, parse_layout
from tensorir.dtypes import dtype_of
from tensorir.layout import Layout
from topi.group import GroupInput, GroupNode, GroupSpec, Reference
from topi.op import TensorSpec

MADE, FAILED = b"\0", b"\1"


# -------------------------------------------------------------------------------------------------------- specs as data


def spec_json(spec: GroupSpec) -> dict[str, Any]:
    """A group as data."""
    return {
        "inputs": [[_tensor_json(i.spec), i.constant] for i in spec.inputs],
        "nodes": [
            {
                "op": n.op,
                "attrs": [[name, attr_text(value)] for name, value in n.attrs],
                "inputs": n.inputs,
                "outputs": [_tensor_json(t) for t in n.outputs],
                "implementation": n.implementation,
            }
            for n in spec.nodes
        ],
        "outputs": spec.outputs,
    }


def spec_from_json(data: dict[str, Any]) -> GroupSpec:
    """The group that `spec_json` wrote."""
    nodes = tuple(
        GroupNode(
            n["op"],
            tuple((name, parse_attr(text)) for name, text in n["attrs"]),
            tuple(map(_reference, n["inputs"])),
            tuple(map(_tensor, n["outputs"])),
            n["implementation"],
        )
        for n in data["nodes"]
    )
    inputs = tuple(GroupInput(_tensor(t), constant) for t, constant in data["inputs"])
    return GroupSpec(inputs, nodes, tuple((n, o) for n, o in data["outputs"]))


def _tensor_json(t: TensorSpec) -> list[Any]:
    return [[dims.text(d) for d in t.shape], str(t.dtype), None if t.layout.is_plain else str(t.layout)]


def _tensor(data: Sequence[Any]) -> TensorSpec:
    shape, dtype, layout = data
    plain = Layout.plain(len(shape))
    return TensorSpec(tuple(map(dims.parse, shape)), dtype_of(dtype), plain if layout is None else parse_layout(layout))


def _reference(data: Sequence[Any] | None) -> Reference:
    if data is None:
        return None
    return ("in", int(data[1])) if data[0] == "in" else ("node", int(data[1]), int(data[2]))


# ------------------------------------------------------------------------------------------------------------ messages


def write_message(file: IO[bytes], data: bytes) -> None:
    """Sends one message."""
    file.write(len(data).to_bytes(8, "little") + data)
    file.flush()


def read_message(file: IO[bytes]) -> bytes | None:
    """The next message, None at the end."""
    length = file.read(8)
    if len(length) < 8:
        return None
    size = int.from_bytes(length, "little")
    data = file.read(size)
    return data if len(data) == size else None


def reply_to(request: bytes) -> bytes:
    """The kernel of one request, or its error."""
    from graphir.cache import compiled_bytes
    from tensorir.target import Target

    try:
        asked = json.loads(request)
        target = Target.parse(asked["target"])
        return MADE + compiled_bytes(spec_from_json(asked["spec"]), asked["symbols"], target, name=asked["name"])
    except BaseException:
        return FAILED + traceback.format_exc().encode()


def main() -> None:
    """Serves requests until there are no more."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    while (request := read_message(sys.stdin.buffer)) is not None:
        write_message(replies, reply_to(request))


if __name__ == "__main__":
    main()
