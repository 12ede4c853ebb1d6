"""The ONNX front end: `from_onnx` makes a graph of a model, `unsupported` lists what Nestor lacks for it."""

from graphir.frontends.onnx.importer import from_onnx, unsupported

__all__ = ["from_onnx", "unsupported"]
