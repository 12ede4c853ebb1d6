"""ONNX operators that become several nodes, or none, and need no more of the importer than values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.builder import CONTENT_LIMIT
from graphir.errors import ShapeError, UnsupportedError
from graphir.frontends.onnx.early import aligned
from graphir.frontends.onnx.registry import converter
from graphir.frontends.onnx.tensors import require_sizes
from graphir.ir import Value
from tensorir import dtypes
from tensorir.errors import UserError
from tensorir.expr import Expr, const

if TYPE_CHECKING:
    from graphir.frontends.onnx.importer import OnnxNode, _Importer

# ----------------------------------------------------------------------------------------------- values known here


@converter("Constant")
def _constant(importer: _Importer, node: OnnxNode) -> list[Value]:
    attrs = node.attrs
    name = node.outputs[0]
    if "value" in attrs:
        data = attrs["value"]
    elif "value_float" in attrs:
        data = np.array(attrs["value_float"], np.float32)
    elif "value_floats" in attrs:
        data = np.array(attrs["value_floats"], np.float32)
    elif "value_int" in attrs:
        data = np.array(attrs["value_int"], np.int64)
    elif "value_ints" in attrs:
        data = np.array(attrs["value_ints"], np.int64)
    else:
        kind = next(iter(attrs), "nothing")
        raise UnsupportedError(
            f"node {node.name}: a Constant of {kind} is not a tensor", missing={"Constant": [node.name]}
        )
    return [importer.builder.constant(np.asarray(data), name)]


@converter("ConstantOfShape")
def _constant_of_shape(importer: _Importer, node: OnnxNode) -> list[Value]:
    data = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    shape = importer.known(node.operand(0), node, "the shape")
    sizes = dims.constants(dims.as_dims(shape))
    if sizes is not None:
        require_sizes(sizes, data.dtype, f"node {node.name} (ConstantOfShape)")
        return [importer.builder.constant(np.full(sizes, data[0]), node.outputs[0])]
    attrs = {"shape": shape, "value": data[0].item(), "dtype": dtypes.dtype_of(data.dtype)}
    return importer.add("full", [], attrs, node)


@converter("Shape")
def _shape(importer: _Importer, node: OnnxNode) -> list[Value]:
    shape = node.operand(0).shape
    part = shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return [importer.builder.integers(part, (const(len(part)),), dtypes.int64, node.outputs[0], node.origins)]


@converter("Size")
def _size(importer: _Importer, node: OnnxNode) -> list[Value]:
    total = dims.product(node.operand(0).shape)
    return [importer.builder.integers((total,), (), dtypes.int64, node.outputs[0], node.origins)]


@converter("Range")
def _range(importer: _Importer, node: OnnxNode) -> list[Value]:
    known = [importer.known(node.operand(i), node, w) for i, w in enumerate(("start", "limit", "step"))]
    start, limit, step = (v[0] if isinstance(v, tuple) else v for v in known)
    dtype = node.operand(0).dtype
    if dtype.is_float or not any(isinstance(x, Expr) for x in (start, limit, step)):
        data = np.arange(start, limit, step).astype(dtype.numpy)
        return [importer.builder.constant(data, node.outputs[0])]
    if isinstance(step, Expr):
        raise UnsupportedError(f"node {node.name}: Range with a symbolic step", missing={"Range": [node.name]})
    span = dims.as_dim(limit) - dims.as_dim(start)
    count = dims.canonical((span + (step - 1)) // step if step > 0 else (span + (step + 1)) // step)
    size = dims.constant(count)
    if size is not None and size <= CONTENT_LIMIT:
        values = [dims.canonical(dims.as_dim(start) + i * step) for i in range(size)]
        return [importer.builder.integers(values, (const(size),), dtype, node.outputs[0], node.origins)]
    return importer.add("arange", [], {"start": start, "count": count, "step": step, "dtype": dtype}, node)


# --------------------------------------------------------------------------------------------- nothing when inferring


@converter("Identity")
def _identity(importer: _Importer, node: OnnxNode) -> Any:
    return [node.operand(0)] if node.operand(0).content is not None else NotImplemented


@converter("Dropout")
def _dropout(importer: _Importer, node: OnnxNode) -> list[Value]:
    training = node.input(2)
    ratio = 0.5 if node.input(1) is None else importer.data(node.operand(1))
    if training is not None and importer.known(training, node, "training_mode") and ratio != 0:
        raise UnsupportedError(
            f"node {node.name}: Dropout in training mode is random", missing={"Dropout": [node.name]}
        )
    x = node.operand(0)
    made = [x]
    if len(node.outputs) > 1 and node.outputs[1]:
        attrs = {"shape": x.shape, "value": True, "dtype": dtypes.bool_}
        made += importer.builder.add("full", [], attrs, name=f"{node.name}.mask", outputs=[node.outputs[1]])
    return made


# ---------------------------------------------------------------------------------------------- several nodes for one


@converter("Gemm")
def _gemm(importer: _Importer, node: OnnxNode) -> list[Value]:
    """alpha * A' B' + beta * C."""
    add = importer.builder.add
    a, b, c = node.operand(0), node.operand(1), node.input(2)
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    origins = node.origins

    def step(op: str, inputs: Sequence[Value], last: bool, **attrs: Any) -> Value:
        outputs = [node.outputs[0]] if last else None
        return add(op, inputs, attrs, name=node.name, origins=origins, outputs=outputs)[0]

    def scalar(value: float) -> Value:
        return importer.builder.constant(np.array(value, a.dtype.numpy), f"{node.name}.scale")

    if node.attrs.get("transA"):
        a = step("transpose", [a], False, axes=(1, 0))
    has_bias = c is not None and beta != 0.0
    if node.attrs.get("transB"):
        if has_bias and c is not None and alpha == beta == 1.0 and c.rank == 1 and dims.same(c.shape[0], b.shape[0]):
            return [step("dense", [a, b, c], True)]
        result = step("dense", [a, b], alpha == 1.0 and not has_bias)
    else:
        result = step("matmul", [a, b], alpha == 1.0 and not has_bias)
    if alpha != 1.0:
        result = step("multiply", [result, scalar(alpha)], not has_bias)
    if has_bias:
        assert c is not None
        if beta != 1.0:
            c = step("multiply", [c, scalar(beta)], False)
        result = step("add", [result, c], True)
    return [result]


@converter("BatchNormalization")
def _batch_normalization(importer: _Importer, node: OnnxNode) -> list[Value]:
    """By the given statistics, or by the batch's where training_mode (opset 14) or its forerunners ask for it."""
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    training = bool(node.attrs.get("training_mode", 0))
    if node.version < 7 and not node.attrs.get("is_test", 0) and len(node.outputs) > 1:
        training = True
    if training:
        attrs = {"epsilon": epsilon, "momentum": float(node.attrs.get("momentum", 0.9))}
        return importer.add("batch_norm_training", node.inputs, attrs, node)
    if any(node.outputs[1:]):
        raise UnsupportedError(
            f"node {node.name}: statistics are asked of a BatchNormalization that does not train",
            missing={"BatchNormalization": [node.name]},
        )
    node.outputs = node.outputs[:1]
    return importer.add("batch_norm", node.inputs, {"epsilon": epsilon}, node)


@converter("Cast", "CastLike")
def _cast(importer: _Importer, node: OnnxNode) -> list[Value]:
    import onnx

    if node.op_type == "CastLike":
        dtype = node.operand(1).dtype
    else:
        to = node.attrs["to"]
        try:
            found = onnx.helper.tensor_dtype_to_np_dtype(to) if isinstance(to, int) else to.lower()
            dtype = dtypes.dtype_of(found)
        except (UserError, KeyError, ValueError):
            name = to if isinstance(to, str) else onnx.TensorProto.DataType.Name(to)
            raise UnsupportedError(
                f"node {node.name}: Cast to {name}, which Nestor does not have", missing={"Cast": [node.name]}
            ) from None
    x = node.operand(0)
    return [x] if x.dtype == dtype and x.content is not None else importer.add("cast", [x], {"dtype": dtype}, node)


@converter("BitCast")
def _bit_cast(importer: _Importer, node: OnnxNode) -> list[Value]:
    """The bits of every element as another type of the same width."""
    import onnx

    dtype = dtypes.dtype_of(onnx.helper.tensor_dtype_to_np_dtype(node.attrs["to"]))
    return importer.add("bit_cast", [node.operand(0)], {"dtype": dtype}, node)


@converter("EyeLike")
def _eye_like(importer: _Importer, node: OnnxNode) -> list[Value]:
    import onnx

    attrs: dict[str, Any] = {"k": int(node.attrs.get("k", 0))}
    if "dtype" in node.attrs:
        attrs["dtype"] = dtypes.dtype_of(onnx.helper.tensor_dtype_to_np_dtype(node.attrs["dtype"]))
    return importer.add("eye_like", [node.operand(0)], attrs, node)


@converter("Pow")
def _pow(importer: _Importer, node: OnnxNode) -> Any:
    """The result has the base's type; an integer base with a float exponent is computed in the exponent's type. Squares
    and cubes of floats are products, as in other engines: a power in float64 costs fifty times as much."""
    base, exponent = node.operand(0), node.operand(1)
    known = importer.builder.constants.get(exponent)
    if known is not None and known.size == 1 and exponent.rank <= base.rank and base.dtype.is_float:
        power = float(known.reshape(-1)[0])
        if power in (2.0, 3.0):
            square = importer.add("multiply", [base, base], {}, node, last=power == 2.0)
            return square if power == 2.0 else importer.add("multiply", [square[0], base], {}, node)
    if node.version < 7:
        return importer.add("power", aligned(importer, node), {}, node)
    if base.dtype == exponent.dtype or base.dtype.is_float == exponent.dtype.is_float:
        return NotImplemented
    if base.dtype.is_float:
        [exponent] = importer.builder.add("cast", [exponent], {"dtype": base.dtype})
        return importer.add("power", [base, exponent], {}, node)
    [wide] = importer.builder.add("cast", [base], {"dtype": exponent.dtype})
    [made] = importer.builder.add("power", [wide, exponent])
    return importer.add("cast", [made], {"dtype": base.dtype}, node)


@converter("MaxPool")
def _max_pool(importer: _Importer, node: OnnxNode) -> Any:
    """With a second output, the places of the largest elements."""
    if not any(node.outputs[1:]):
        return NotImplemented
    x, attrs = node.operand(0), node.attrs
    made: dict[str, Any] = {"kernel": attrs["kernel_shape"], "column_major": bool(attrs.get("storage_order", 0))}
    for ours, name in (
        ("strides", "strides"),
        ("padding", "pads"),
        ("dilations", "dilations"),
        ("auto_pad", "auto_pad"),
    ):
        if name in attrs:
            made[ours] = attrs[name]
    made["ceil_mode"] = bool(attrs.get("ceil_mode", 0))
    return importer.add(f"max_pool_places{x.rank - 2}d", [x], made, node)


@converter("Optional", "OptionalGetElement")
def _optional(importer: _Importer, node: OnnxNode) -> list[Any]:
    """An optional that is there is the value itself."""
    if not node.inputs or node.inputs[0] is None:
        raise UnsupportedError(f"node {node.name}: an empty optional", missing={node.op_type: [node.name]})
    return [node.inputs[0]]


@converter("OptionalHasElement")
def _has_element(importer: _Importer, node: OnnxNode) -> list[Value]:
    there = bool(node.inputs) and node.inputs[0] is not None
    return [importer.builder.constant(np.array(there), node.outputs[0])]


@converter("Split")
def _split(importer: _Importer, node: OnnxNode) -> list[Value]:
    """One slice for each piece, so that each can be fused with its reader."""
    x = node.operand(0)
    axis = int(node.attrs.get("axis", 0)) % max(x.rank, 1)
    sizes = node.attrs.get("split")
    if node.input(1) is not None:
        sizes = importer.known(node.operand(1), node, "the sizes")
    if sizes is None:
        count = int(node.attrs.get("num_outputs", len(node.outputs)))
        piece = dims.canonical((x.shape[axis] + (count - 1)) // count)
        sizes = [piece] * (count - 1)
        sizes.append(dims.canonical(x.shape[axis] - piece * (count - 1)))
    if len(sizes) != len(node.outputs) or any((dims.constant(dims.as_dim(s)) or 0) < 0 for s in sizes):
        raise ShapeError(
            f"node {node.name}: Split into sizes {tuple(sizes)} for {len(node.outputs)} outputs",
            help="there is one size for each output, none of them negative",
        )
    made: list[Value] = []
    start: Expr = const(0)
    for size, name in zip(sizes, node.outputs, strict=True):
        end = dims.canonical(start + dims.as_dim(size))
        attrs = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (1,)}
        outputs = [name or f"{node.name}:{len(made)}"]
        made += importer.builder.add("slice", [x], attrs, name=node.name, origins=node.origins, outputs=outputs)
        start = end
    if dims.constant(start) is not None and not dims.same(start, x.shape[axis]):
        raise ShapeError(
            f"node {node.name}: Split into sizes {tuple(sizes)}, which do not add up to {dims.text(x.shape[axis])} "
            f"of {x!r} on axis {axis}"
        )
    return made


@converter("Pad")
def _pad(importer: _Importer, node: OnnxNode) -> list[Value]:
    x = node.operand(0)
    pads = node.attrs.get("pads", node.attrs.get("paddings"))
    if pads is None:
        pads = importer.known(node.operand(1), node, "the pads")
    axes = list(range(x.rank))
    if node.input(3) is not None:
        axes = [a % x.rank for a in importer.known(node.operand(3), node, "the axes")]
    before: list[Any] = [0] * x.rank
    after: list[Any] = [0] * x.rank
    for n, axis in enumerate(axes):
        before[axis], after[axis] = pads[n], pads[n + len(axes)]
    attrs: dict[str, Any] = {"before": before, "after": after, "mode": node.attrs.get("mode", "constant")}
    inputs = [x]
    if "value" in node.attrs:
        attrs["constant"] = float(node.attrs["value"])
    value = node.input(2)
    if value is not None:
        data = importer.data(value)
        if data is not None and data.size == 1 and x.dtype.is_float:
            attrs["constant"] = float(data.reshape(-1)[0])
        elif data is None or bool(np.any(data != 0)):
            inputs.append(value if value.rank == 0 else importer.builder.add("reshape", [value], {"shape": ()})[0])
    return importer.add("pad", inputs, attrs, node)


@converter("Trilu")
def _trilu(importer: _Importer, node: OnnxNode) -> list[Value]:
    k = 0 if node.input(1) is None else importer.known(node.operand(1), node, "the diagonal")
    k = k[0] if isinstance(k, tuple) else k
    return importer.add("trilu", [node.operand(0)], {"k": k, "upper": bool(node.attrs.get("upper", 1))}, node)


@converter("OneHot")
def _one_hot(importer: _Importer, node: OnnxNode) -> list[Value]:
    depth = importer.known(node.operand(1), node, "the depth")
    depth = depth[0] if isinstance(depth, tuple) else depth
    attrs = {"depth": int(depth), "axis": int(node.attrs.get("axis", -1))}
    return importer.add("one_hot", [node.operand(0), node.operand(2)], attrs, node)
