"""Reading a model file, with one clear sentence for each way in which it can fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphir.errors import ModelError
from graphir.frontends.onnx.external import load_external

if TYPE_CHECKING:
    import onnx


def load_model(source: Any) -> onnx.ModelProto:
    """The model in a path, bytes or a ModelProto. Raises `ModelError`."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        load_external(source, None)
        return _checked(source, "the model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        model = _parse(bytes(source), "the given bytes")
        load_external(model, None)
        return _checked(model, "the given bytes")
    path = Path(source)
    if not path.exists():
        raise ModelError(f"there is no file {path}", help="give the path of an .onnx file")
    if path.is_dir():
        raise ModelError(f"{path} is a directory", help="give the path of an .onnx file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    model = _parse(content, str(path))
    load_external(model, path)
    return _checked(model, str(path))


def _parse(content: bytes, what: str) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    if not content:
        raise ModelError(f"{what}: the file is empty", help="give an ONNX model")
    try:
        return onnx.load_model_from_string(content)
    except DecodeError:
        pass
    # a file cut short still starts as an ONNX model does: ir_version, then a string field or the graph
    if content[:1] == b"\x08" and len(content) > 2 and content[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42"):
        raise ModelError(f"{what}: the ONNX model is cut short or damaged", help="fetch or export it again")
    raise ModelError(f"{what} is not an ONNX model", help="an ONNX model is a protobuf file, usually called .onnx")


def _checked(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    import onnx

    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(f"{what} is not an ONNX model", help="an ONNX model is a protobuf file, usually called .onnx")
    if not model.graph.output:
        raise ModelError(f"{what}: the ONNX model is cut short or damaged: it has no outputs", help="export it again")
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{what} has format version {model.ir_version}, but the newest one known here is {onnx.IR_VERSION}",
            help="export the model for an older version, or update the onnx package",
        )
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise ModelError(
                f"{what} uses opset {entry.version}, but the newest one known here is {newest}",
                help="export the model with an older opset, or update the onnx package",
            )
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError(f"{what} does not say which opset it uses", help="export it again")
    return model
