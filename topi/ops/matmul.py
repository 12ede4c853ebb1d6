"""Matrix products: numpy's matmul with broadcast batches, ONNX's Gemm, and the dense layer.

Fast code comes from `topi.implementations.matmul`, which packs the right operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorir import te
from tensorir.expr import Expr, const
from tensorir.te import Tensor
from topi.broadcast import broadcast_index, broadcast_shapes, read, same_extent
from topi.chunks import long_sum
from topi.halves import rounded, wide
from topi.op import Onnx, OpError, attribute, op


def _need_equal(name: str, a: Tensor, b: Tensor, k: Expr, rows: Expr) -> None:
    if a.dtype != b.dtype:
        raise OpError(f"{name}: operands are {a.dtype} and {b.dtype}")
    from tensorir.expr import Const

    if isinstance(k, Const) and isinstance(rows, Const) and not same_extent(k, rows):
        shapes = " and ".join("(" + ", ".join(map(repr, t.shape)) + ")" for t in (a, b))
        raise OpError(f"{name}: shapes {shapes} do not fit: {k!r} columns meet {rows!r} rows")


@op("matmul", onnx=[Onnx("MatMul", 1)], scale="weight")
def matmul(a: Tensor, b: Tensor, /) -> Tensor:
    """numpy.matmul: (..., M, K) x (..., K, N) with broadcast batches; 1-d operands are a row or a column."""
    if not a.shape or not b.shape:
        raise OpError("matmul: operands must have at least one dimension")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    k_left, k_right = a.shape[-1], b.shape[0] if column else b.shape[-2]
    _need_equal("matmul", a, b, k_left, k_right)
    batch = broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
    shape = [*batch, *([] if row else [a.shape[-2]]), *([] if column else [b.shape[-1]])]
    k = te.reduce_axis(k_left, "k")

    def element(*i: Expr) -> tuple[Expr, None]:
        lead = i[: len(batch)]
        m = [] if row else [i[len(batch)]]
        n = [] if column else [i[-1]]
        left = a(*broadcast_index(a.shape[:-2], lead), *m, k.var)
        right = b(*broadcast_index(b.shape[:-2], lead), k.var, *n)
        return wide(left) * wide(right), None

    return rounded(long_sum(shape, [k], element, "matmul"), a.dtype)


matmul.reference(np.matmul)
matmul.case([(3, 37), (37, 5)])
matmul.case([(2, 1, 3, 7), (4, 7, 5)])
matmul.case([(7,), (7, 5)])
matmul.case([(3, 7), (7,)])
matmul.case([(7,), (7,)])
matmul.case([(4, 0), (0, 4)])
matmul.case([(33, 64), (64, 48)], tolerance=3e-5)
matmul.case([(1, 1, 1, 1, 3, 3), (1, 8, 4, 4, 3, 1)])


@op("dense", scale="weight")
def dense(x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
    """x (..., K) times the transpose of weight (N, K), plus bias (N,)."""
    _need_equal("dense", x, weight, x.shape[-1], weight.shape[1])
    k = te.reduce_axis(x.shape[-1], "k")
    result = long_sum(
        (*x.shape[:-1], weight.shape[0]),
        [k],
        lambda *i: (wide(x(*i[:-1], k.var)) * wide(weight(i[-1], k.var)), None),
        "dense",
    )
    result = rounded(result, x.dtype)
    if bias is None:
        return result
    return te.compute(result.shape, lambda *i: result(*i) + bias(i[-1]), name="dense_bias")


@dense.reference
def _dense(x: Any, weight: Any, bias: Any = None) -> Any:
    return x @ weight.T if bias is None else x @ weight.T + bias


dense.case([(3, 37), (5, 37), (5,)])
dense.case([(2, 3, 20), (33, 20)])


@op(
    "gemm",
    onnx=[
        Onnx(
            "Gemm", 7,
            {
                "alpha": attribute("alpha", 1.0),
                "beta": attribute("beta", 1.0),
                "trans_a": attribute("transA", 0, bool),
                "trans_b": attribute("transB", 0, bool),
            },
        )
    ],
    scale="weight",
)  # fmt: skip
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, /, *, alpha: float = 1.0, beta: float = 1.0, trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:  # fmt: skip
    """alpha * A B + beta * C with A and B transposed on demand and C broadcast to (M, N)."""
    for t, what in ((a, "A"), (b, "B")):
        if len(t.shape) != 2:
            raise OpError(f"gemm: {what} has {len(t.shape)} dimensions, not 2")
    m, k_left = (a.shape[1], a.shape[0]) if trans_a else (a.shape[0], a.shape[1])
    k_right, n = (b.shape[1], b.shape[0]) if trans_b else (b.shape[0], b.shape[1])
    _need_equal("gemm", a, b, k_left, k_right)
    k = te.reduce_axis(k_left, "k")

    def element(i: Expr, j: Expr) -> tuple[Expr, None]:
        left = a(k.var, i) if trans_a else a(i, k.var)
        right = b(j, k.var) if trans_b else b(k.var, j)
        return wide(left) * wide(right), None

    result = rounded(long_sum((m, n), [k], element, "gemm"), a.dtype)
    if c is None and alpha == 1.0:
        return result

    def finish(i: Expr, j: Expr) -> Expr:
        value: Expr = result(i, j)
        if alpha != 1.0:
            value = value * const(alpha, value.dtype) if value.dtype.is_float else value * int(alpha)
        if c is None or beta == 0.0:
            return value
        added = read(c, (i, j))
        return value + (added if beta == 1.0 else added * const(beta, added.dtype))

    return te.compute((m, n), finish, name="gemm_bias")


@gemm.reference
def _gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, trans_a: bool = False,
    trans_b: bool = False,
) -> Any:  # fmt: skip
    result = alpha * (a.T if trans_a else a) @ (b.T if trans_b else b)
    return result if c is None else result + beta * c


gemm.case([(3, 37), (37, 5), (5,)])
gemm.case([(37, 3), (5, 37), (1, 5)], trans_a=True, trans_b=True, alpha=0.5, beta=2.0)
gemm.case([(3, 37), (17, 37), (3, 1)], trans_b=True)
