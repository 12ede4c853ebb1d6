"""Sums of products by subscripts: numpy.einsum's explicit and implicit forms, with an ellipsis for batch axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import te
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.broadcast import broadcast_shapes, is_one, same_extent
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.op import Onnx, OpError, attribute, op

BATCH = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _parse(equation: str, tensors: tuple[Tensor, ...]) -> tuple[list[list[str]], list[str]]:
    """The letter of every axis of every operand, and of the result; an ellipsis becomes numbered batch axes."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise OpError(f"einsum: {equation!r} has {len(terms)} operands, {len(tensors)} are given")
    if right.count(",") or not set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,->"):
        raise OpError(f"einsum: {equation!r} is not an equation such as 'ij,jk->ik'")
    operands: list[list[str]] = []
    most = 0
    for term, t in zip(terms, tensors, strict=True):
        letters = term.replace("...", "")
        free = len(t.shape) - len(letters)
        if free < 0 or (free > 0 and "..." not in term) or "." in letters:
            raise OpError(f"einsum: {term!r} of {equation!r} does not fit an operand of {len(t.shape)} dimensions")
        most = max(most, free)
        before, _, after = term.partition("...")
        batch = [f"...{n}" for n in range(-free, 0)] if "..." in term else []
        operands.append([*before, *batch, *after])
    batch = [f"...{n}" for n in range(-most, 0)]
    if arrow:
        before, dots, after = right.partition("...")
        return operands, [*before, *(batch if dots else []), *after]
    named = [c for axes in operands for c in axes if not c.startswith("...")]
    return operands, [*batch, *sorted(c for c in set(named) if named.count(c) == 1)]


@op("einsum", onnx=[Onnx("Einsum", 12, {"equation": attribute("equation")})])
def einsum(*tensors: Tensor, equation: str) -> Tensor:
    """The sum over every axis letter that the result lacks of the products of the operands."""
    operands, result = _parse(equation, tensors)
    extents: dict[str, Expr] = {}
    for axes, t in zip(operands, tensors, strict=True):
        for letter, extent in zip(axes, t.shape, strict=True):
            known = extents.get(letter)
            if known is None or is_one(known):
                extents[letter] = extent
            elif not is_one(extent) and not same_extent(known, extent):
                [extents[letter]] = broadcast_shapes("einsum", [(known,), (extent,)])
    unknown = [c for c in result if c not in extents]
    if unknown or len(set(result)) != len(result):
        raise OpError(f"einsum: the result of {equation!r} is not made of axes of the operands, each once")
    summed = [te.reduce_axis(extents[c], "k") for c in extents if c not in result]
    names = [c for c in extents if c not in result]

    def element(*point: Expr) -> Expr:
        place: dict[str, Expr] = dict(zip(result, point, strict=True))
        place.update({c: k.var for c, k in zip(names, summed, strict=True)})
        value: Expr | None = None
        for axes, t in zip(operands, tensors, strict=True):
            index = [const(0) if is_one(e) else place[c] for c, e in zip(axes, t.shape, strict=True)]
            read = wide(t(*index))
            value = read if value is None else value * read
        assert value is not None
        return value

    shape = [extents[c] for c in result]
    if not summed:
        return rounded(te.compute(shape, element, name="einsum"), tensors[0].dtype)
    return rounded(long_sum(shape, summed, lambda *i: (element(*i), None), "einsum"), tensors[0].dtype)


@einsum.reference
def _einsum(*arrays: Any, equation: str) -> Any:
    return np.einsum(equation, *arrays)


einsum.case([(3, 7), (7, 5)], equation="ij,jk->ik")
einsum.case([(2, 3, 7), (2, 7, 5)], equation="...ij, ...jk")
einsum.case([(5, 5)], equation="ii->i")
einsum.case([(5, 5)], equation="ii")
einsum.case([(2, 4, 3)], equation="bij->bji")
einsum.case([(3,), (5,)], equation="i,j")
einsum.case([(2, 3, 4), (2, 5, 4), (4,)], equation="bid,bjd,d->bij")
