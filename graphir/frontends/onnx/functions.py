"""Operators that are functions of others: those a model defines itself, and those whose ONNX schema has a body.

An operator that Nestor lacks is imported as its body, in a scope of its own, with the node's attributes in place of
the body's references to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphir.errors import ModelError
from graphir.ir import Value

if TYPE_CHECKING:
    import onnx

    from graphir.frontends.onnx.importer import OnnxNode, _Importer

FunctionKey = tuple[str, str, str]


def model_functions(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """The functions that a model defines, by (domain, name, overload)."""
    return {(f.domain, f.name, f.overload): f for f in model.functions}


def has_schema_function(op_type: str, opset: int, domain: str) -> bool:
    """True if the ONNX schema of an operator in force under `opset` has a body."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_function(
    node: onnx.NodeProto, operands: Sequence[Value | None], opset: int, domain: str
) -> onnx.FunctionProto | None:
    """The body of an operator's schema for a node with these operands, if there is one."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    made = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            types = [_type_of(v).SerializeToString() for v in operands if v is not None]
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), types
            )
            if text:
                made.ParseFromString(text)
                return _with_formals(made, schema, node, opset)
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        text = schema.get_function_with_opset_version(max(versions)) if versions else b""
        if text:
            made.ParseFromString(text)
            return _with_formals(made, schema, node, opset)
    return None


def _with_formals(function: onnx.FunctionProto, schema: Any, node: onnx.NodeProto, opset: int) -> onnx.FunctionProto:
    """A body with its formal operands and opset named, where the schema leaves that out."""
    if not function.input:
        function.input.extend(i.name for i in schema.inputs)
    if not function.output:
        function.output.extend(o.name for o in schema.outputs)
    kept = {a.name for a in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in kept and attribute.default_value.type:
            function.attribute_proto.add().CopyFrom(attribute.default_value)
    if not function.opset_import:
        function.opset_import.add(domain="", version=opset)
    return function


def _type_of(v: Value) -> onnx.TypeProto:
    import onnx

    from graphir import dims

    element = onnx.helper.np_dtype_to_tensor_dtype(v.dtype.numpy)
    shape = [dims.constant(d) for d in v.shape]
    return onnx.helper.make_tensor_type_proto(element, shape)


def expand(importer: _Importer, node: OnnxNode, function: onnx.FunctionProto) -> list[Any]:
    """A node imported as the body of its function."""
    import onnx

    given = {a.name: a for a in node.proto.attribute}
    for default in function.attribute_proto:
        given.setdefault(default.name, default)
    opsets = {
        **importer.opsets,
        **{("" if e.domain == "ai.onnx" else e.domain): e.version for e in function.opset_import},
    }
    inner = importer.function_scope(opsets)
    for number, formal in enumerate(function.input):
        inner.scope[formal] = node.inputs[number] if number < len(node.inputs) else None
    for index, proto in enumerate(function.node):
        copy = onnx.NodeProto()
        copy.CopyFrom(proto)
        copy.name = f"{node.name}/{proto.name or f'{proto.op_type}_{index}'}"
        _resolve(copy, given)
        inner.node(copy, index)
    wanted = [o for o in function.output][: len(node.outputs)]
    made = []
    for output, name in zip(wanted, node.outputs):
        if output not in inner.scope and name:
            raise ModelError(f"node {node.name}: the body of {node.op_type} does not define its output {output}")
        made.append(inner.scope.get(output))
    return made


def _resolve(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    """Puts the caller's attributes where a body's node refers to them; an absent one leaves the node's default."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name)
            if source is None:
                continue
            name = attribute.name
            attribute.CopyFrom(source)
            attribute.name = name
        for sub in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
            for inner in sub.node:
                _resolve(inner, given)
        kept.append(attribute)
    copies = [type(a).FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(copies)
