"""Attributes of nodes as text and back: one literal form, used by the printer and by JSON.

Numbers, strings, bools, None and tuples are Python literals; a dimension with symbols is `dim("2*n")`, a dtype
`dtype("float32")`, a layout `layout("...")`; infinities and NaN are `float("inf")` and so on.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from graphir import dims
from graphir.errors import GraphError
from tensorir.dtypes import DType, dtype_of
from tensorir.expr import Const, Expr
from tensorir.layout import Layout


def canonical_attr(value: Any) -> Any:
    """An attribute as it is kept: lists are tuples, dimensions canonical and constants plain ints, numpy scalars
    Python numbers. Raises `GraphError` for anything that is not data."""
    if isinstance(value, (tuple, list)):
        return tuple(canonical_attr(v) for v in value)
    if isinstance(value, Expr):
        value = dims.canonical(value)
        return int(value.value) if isinstance(value, Const) else value
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, DType, Layout)):
        return value
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
        return tuple(value.tolist())
    raise GraphError(f"{value!r} cannot be an attribute", help="attributes are numbers, strings, dtypes, dimensions")


def attr_text(value: Any) -> str:
    """The literal form of an attribute."""
    if isinstance(value, tuple):
        inner = ", ".join(attr_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Expr):
        known = dims.constant(value)
        return str(known) if known is not None else f'dim("{dims.text(value)}")'
    if isinstance(value, DType):
        return f'dtype("{value}")'
    if isinstance(value, Layout):
        return f'layout("{value}")'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def parse_layout(source: str) -> Layout:
    """A layout from its canonical text over the axes A, B, C, ..."""
    return Layout.parse(source, logical="".join(sorted({c for c in source if c.isupper()})))


def parse_attr(source: str) -> Any:
    """An attribute from its literal form; raises `GraphError` showing it."""
    try:
        return _value(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError) as error:
        raise GraphError(f"{source!r} is not an attribute: {error}") from None


def _value(tree: ast.AST) -> Any:
    match tree:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(_value(e) for e in elements)
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str() as text)]):
            match name:
                case "dim":
                    return dims.parse(text)
                case "dtype":
                    return dtype_of(text)
                case "layout":
                    return parse_layout(text)
                case "float":
                    return float(text)
    return ast.literal_eval(tree)
