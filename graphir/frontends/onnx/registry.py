"""Converters: functions that turn an ONNX node into graph nodes, found by (domain, operator).

A converter gets the importer and the node and returns what stands for the node's outputs: values, or tuples of values
for sequences, whose lengths are known when compiling. `NotImplemented` hands the node back to topi's facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer


class Refined(Exception):
    """A node fits only where a symbol has one size: the import starts again with it fixed."""

    def __init__(self, symbol: str, size: int) -> None:
        super().__init__(f"{symbol} is {size}")
        self.symbol = symbol
        self.size = size


Converter = Callable[["_Importer", "OnnxNode"], Any]
_CONVERTERS: dict[tuple[str, str], Converter] = {}


def converter(*op_types: str, domain: str = "") -> Callable[[Converter], Converter]:
    """Decorator: the converter of these operators."""

    def attach(function: Converter) -> Converter:
        for op_type in op_types:
            _CONVERTERS[(domain, op_type)] = function
        return function

    return attach


def converters() -> dict[tuple[str, str], Converter]:
    """All that are registered; the importer loads their files."""
    return _CONVERTERS
