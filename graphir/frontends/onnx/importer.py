"""From an ONNX model to a graph.

Each node is bound by the facts in topi's op files (`topi.op.Onnx`): the schema version in force chooses the entry, and
each attribute of ours comes from an ONNX attribute, from the value of an ONNX input, or is fixed. ONNX operators that
become several nodes, or none, have a converter in `converters.py`. Initialisers are constants, a dimension's name is a
symbol, and small integers carry symbolic content, so shape arithmetic leaves no nodes behind.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir import dims
from graphir.builder import GraphBuilder
from graphir.errors import GraphError, ModelError, ShapeError, UnsupportedError
from graphir.executor import TensorInfo
from graphir.frontends.onnx import bounded as _bounded  # noqa: F401 (these register their converters)
from graphir.frontends.onnx import control_flow as _control_flow  # noqa: F401
from graphir.frontends.onnx import converters as _converters  # noqa: F401
from graphir.frontends.onnx import early as _early  # noqa: F401
from graphir.frontends.onnx import recurrent as _recurrent  # noqa: F401
from graphir.frontends.onnx import sequences as _sequences  # noqa: F401
from graphir.frontends.onnx import signal as _signal  # noqa: F401
from graphir.frontends.onnx.functions import FunctionKey, expand, has_schema_function, model_functions, schema_function
from graphir.frontends.onnx.load import load_model
from graphir.frontends.onnx.registry import Refined, converters
from graphir.frontends.onnx.tensors import tensor_array
from graphir.ir import Graph, Value
from tensorir.dtypes import dtype_of
from tensorir.errors import UserError
from tensorir.expr import Expr, Var
from tensorir.origin import Origin
from topi.index import ONNX_INDEX
from topi.op import Attribute, Fixed, InputValue, Onnx, Op
from topi.registry import find_onnx

if TYPE_CHECKING:
    import onnx

DEFAULT_DOMAINS = ("", "ai.onnx")


def from_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    params: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """The graph of an ONNX model (a path, bytes or a ModelProto).

    `shapes` gives the shape of inputs by name, each dimension a size, a symbol's name, or None to keep the model's.
    `params` gives inputs that are to be constants, or other data for initialisers, by name. Raises `ModelError`,
    `UnsupportedError` (all missing ops at once) or `ShapeError`.
    """
    loaded = load_model(model)
    missing = _missing(loaded)
    if missing:
        count = sum(len(v) for v in missing.values())
        raise UnsupportedError(
            f"the model uses {len(missing)} operator{'s' if len(missing) > 1 else ''} that Nestor does not have, "
            f"in {count} node{'s' if count > 1 else ''}:",
            missing=missing,
            help=_nearest(missing)
            + "define them with @nt.op, or export the model without them; `nestor ops` lists what there is",
        )
    fixed: dict[str, int] = {}
    while True:
        importer = _Importer(
            _opsets(loaded), GraphBuilder(loaded.graph.name or "main"), functions=model_functions(loaded)
        )
        try:
            return importer.model(loaded, shapes or {}, params or {}, fixed)
        except Refined as found:
            fixed[found.symbol] = found.size


def unsupported(model: Any) -> dict[str, list[str]]:
    """Every operator of a model that Nestor lacks, with the names of its nodes; empty if it has them all."""
    return _missing(load_model(model))


def model_signature(
    model: Any, params: Mapping[str, np.ndarray]
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs that a model takes at run time and its outputs, as the model declares them; "?" where it does not."""
    graph = load_model(model).graph
    known = {t.name for t in graph.initializer} | set(params)
    inputs = tuple(_declared(v) for v in graph.input if v.name not in known)
    return inputs, tuple(_declared(v) for v in graph.output)


def _declared(info: onnx.ValueInfoProto) -> TensorInfo:
    import onnx

    tensor = info.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return TensorInfo(info.name, tuple(shape), onnx.TensorProto.DataType.Name(tensor.elem_type).lower())


# -------------------------------------------------------------------------------------------------- what is supported


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    found = {("" if e.domain == "ai.onnx" else e.domain): e.version for e in model.opset_import}
    return found or {"": 1}


@cache
def schema_version(op_type: str, opset: int, domain: str) -> int | None:
    """The version of the operator's schema in force under `opset`; None where the onnx package knows none."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op_type, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return None


def candidates(op_type: str, version: int, domain: str) -> list[tuple[Op, Onnx]]:
    """The ops that serve an operator of this schema version, each with the entry in force."""
    best: dict[str, tuple[Op, Onnx]] = {}
    for definition, entry in find_onnx(op_type, domain):
        known = best.get(definition.name)
        if entry.since <= version and (known is None or known[1].since < entry.since):
            best[definition.name] = (definition, entry)
    return list(best.values())


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The node's own name, or one made of its op and place."""
    return node.name or f"{node.op_type}_{index}"


def _nearest(missing: Mapping[str, Sequence[str]]) -> str:
    """Which operators may have been meant."""
    known = [op for domain, op in [*converters(), *ONNX_INDEX] if domain == ""]
    found = {op: difflib.get_close_matches(op, known, 1) for op in missing}
    meant = [f"did you mean {near[0]} for {op}?" for op, near in found.items() if near]
    return "".join(f"{m} " for m in meant)


def _missing(model: onnx.ModelProto) -> dict[str, list[str]]:
    opsets, known, functions = _opsets(model), converters(), model_functions(model)
    missing: dict[str, list[str]] = {}

    def visit(graph: onnx.GraphProto | onnx.FunctionProto, prefix: str) -> None:
        for index, node in enumerate(graph.node):
            domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
            name = prefix + node_name(node, index)
            opset = opsets.get(domain, 1)
            version = schema_version(node.op_type, opset, domain)
            if (node.domain, node.op_type, node.overload) in functions:
                pass
            elif (domain, node.op_type) not in known and has_schema_function(node.op_type, opset, domain):
                pass
            elif version is None and not any(True for _ in find_onnx(node.op_type, domain)):
                missing.setdefault(f"{domain}.{node.op_type}" if domain else node.op_type, []).append(name)
            elif (domain, node.op_type) not in known and not candidates(node.op_type, version or 1 << 30, domain):
                missing.setdefault(f"{domain}.{node.op_type}" if domain else node.op_type, []).append(name)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g, f"{name}/")
                for sub in attribute.graphs:
                    visit(sub, f"{name}/")

    visit(model.graph, "")
    for function in model.functions:
        visit(function, f"{function.name}/")
    return missing


# ------------------------------------------------------------------------------------------------------------- import


@dataclass(slots=True)
class OnnxNode:
    """What a converter sees of one node."""

    name: str
    op_type: str
    version: int
    inputs: list[Value | None]
    attrs: dict[str, Any]
    outputs: list[str]
    origins: tuple[Origin, ...]
    proto: Any = None

    def input(self, index: int) -> Value | None:
        """Operand `index`, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int) -> Value:
        """Operand `index`, which must be there."""
        value = self.input(index)
        if value is None:
            raise ModelError(f"node {self.name}: {self.op_type} needs operand {index}, which is left out")
        return value


_NOWHERE = OnnxNode("", "", 0, [], {}, [], ())


@dataclass(slots=True)
class Captures:
    """The values of outer scopes that a subgraph reads: by name, what stands for them inside."""

    inside: dict[str, Value] = field(default_factory=dict)
    outside: dict[str, Value] = field(default_factory=dict)


class _Importer:
    """One graph or subgraph being imported. A subgraph's importer has a `parent` and its own builder."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        builder: GraphBuilder,
        parent: _Importer | None = None,
        functions: Mapping[FunctionKey, onnx.FunctionProto] | None = None,
    ) -> None:
        self.opsets = opsets
        self.functions: dict[FunctionKey, onnx.FunctionProto] = dict(functions or {})
        if parent is not None:
            self.functions = parent.functions
        self.builder = builder
        self.parent = parent
        self.scope: dict[str, Any] = {}
        self.captures = Captures()

    # -- the pieces of a model

    def model(
        self,
        model: onnx.ModelProto,
        shapes: Mapping[str, Sequence[Any]],
        params: Mapping[str, np.ndarray],
        fixed: Mapping[str, int],
    ) -> Graph:
        graph = model.graph
        names = [v.name for v in graph.input]
        for name in shapes:
            if name not in names:
                raise ModelError(
                    f"shapes: the model has no input called {name!r}", help=f"its inputs are {', '.join(names)}"
                )
        given = dict(params)
        self.initializers(graph, given)
        for info in graph.input:
            if info.name in self.scope:
                continue
            if info.name in given:
                self.scope[info.name] = self.builder.constant(np.asarray(given.pop(info.name)), info.name)
                continue
            self.input(info, shapes.get(info.name), fixed)
        if given:
            raise ModelError(
                f"params: the model has no input or initialiser called {next(iter(given))!r}",
                help=f"its inputs are {', '.join(names)}",
            )
        self.nodes(graph)
        outputs = [self.lookup(v.name, f"the graph output {v.name}") for v in graph.output]
        for v, info in zip(outputs, graph.output):
            if not isinstance(v, Value):
                raise UnsupportedError(
                    f"the output {info.name} is a sequence; Nestor gives tensors", missing={"sequence": [info.name]}
                )
        return self.builder.finish(outputs, [v.name for v in graph.output])

    def initializers(self, graph: onnx.GraphProto, given: dict[str, np.ndarray]) -> None:
        for tensor in graph.initializer:
            if tensor.name in given:
                data = np.asarray(given.pop(tensor.name))
            else:
                data = tensor_array(tensor, f"the initialiser {tensor.name}")
            self.scope[tensor.name] = self.builder.constant(_supported(data, tensor.name), tensor.name)
        if graph.sparse_initializer:
            raise ModelError("the model has sparse initialisers, which Nestor does not read", help="export them dense")

    def input(self, info: onnx.ValueInfoProto, wanted: Sequence[Any] | None, known: Mapping[str, int]) -> None:
        import onnx

        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            what = (kind or "value without type").removesuffix("_type")
            raise UnsupportedError(
                f"the input {info.name} is a {what}; Nestor takes tensors", missing={what: [info.name]}
            )
        tensor = info.type.tensor_type
        try:
            dtype = dtype_of(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (UserError, KeyError, ValueError):
            raise ModelError(
                f"the input {info.name} has element type {onnx.TensorProto.DataType.Name(tensor.elem_type)}, "
                "which Nestor does not have"
            ) from None
        shape: list[Any]
        if tensor.HasField("shape"):
            shape = [_dimension(d, info.name, axis) for axis, d in enumerate(tensor.shape.dim)]
            if wanted is not None and len(wanted) != len(shape):
                raise ModelError(
                    f"shapes: the input {info.name} has {len(shape)} dimensions, but {len(wanted)} sizes are given"
                )
        elif wanted is None:
            raise ModelError(f"the model does not say the shape of its input {info.name}", help="give it in shapes=")
        else:
            shape = [None] * len(wanted)
        for axis, size in enumerate(wanted or ()):
            if size is None:
                continue
            fixed = shape[axis]
            if isinstance(fixed, int) and isinstance(size, int) and fixed != size:
                raise ModelError(
                    f"shapes: dimension {axis} of the input {info.name} is {fixed} in the model, not {size}"
                )
            shape[axis] = dims.symbol(size) if isinstance(size, str) else size
        shape = [known.get(d.name, d) if isinstance(d, Var) else d for d in shape]
        self.scope[info.name] = self.builder.input(info.name, shape, dtype)

    def nodes(self, graph: onnx.GraphProto) -> None:
        for index, proto in enumerate(graph.node):
            self.node(proto, index)

    def lookup(self, name: str, by: str) -> Value:
        """The value called `name` in this scope or an outer one; from outside it becomes a captured input, a constant a
        constant."""
        if name in self.scope:
            return self.scope[name]
        if self.parent is None:
            raise ModelError(
                f"{by} reads {name!r}, which nothing defines", help="the model is damaged; export it again"
            )
        outer = self.parent.lookup(name, by)
        made = tuple(map(self.captured, outer)) if isinstance(outer, tuple) else self.captured(outer, name)
        self.scope[name] = made
        return made

    def captured(self, outer: Value, name: str | None = None) -> Value:
        """What stands here for a value of the scope around."""
        assert self.parent is not None
        name = name or outer.name
        if outer in self.parent.builder.constants:
            made = self.builder.constant(self.parent.builder.constants[outer], name, like=outer)
        elif outer.content is not None:
            made = self.builder.integers(outer.content, outer.shape, outer.dtype, name, outer.origins)
        elif self.builder is self.parent.builder:
            made = outer
        else:
            made = replace(outer, name=self.builder.unique(name))
            self.captures.inside[name] = made
            self.captures.outside[name] = outer
        return made

    def child(self, name: str) -> _Importer:
        """An importer of a subgraph with a builder of its own."""
        return _Importer(self.opsets, GraphBuilder(name, tuple(self.builder.symbols.values())), self)

    def subgraph(self, graph: onnx.GraphProto, name: str) -> tuple[list[Value], _Importer]:
        """A subgraph without inputs imported on its own: its output values and its importer."""
        inner = self.child(name)
        inner.initializers(graph, {})
        inner.nodes(graph)
        return [inner.lookup(v.name, f"the output {v.name} of {name}") for v in graph.output], inner

    def inline(self, graph: onnx.GraphProto, given: Mapping[str, Any] | None = None) -> list[Any]:
        """A subgraph imported in place, its inputs being `given`: its output values."""
        inner = _Importer(self.opsets, self.builder, self)
        inner.scope.update(given or {})
        inner.initializers(graph, {})
        inner.nodes(graph)
        return [inner.lookup(v.name, f"the output {v.name} of a subgraph") for v in graph.output]

    def function_scope(self, opsets: Mapping[str, int]) -> _Importer:
        """An importer of a function's body: same graph, a scope that sees nothing outside."""
        return _Importer(opsets, self.builder, None, self.functions)

    # -- one node

    def node(self, proto: onnx.NodeProto, index: int) -> None:
        domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
        name = node_name(proto, index)
        opset = self.opsets.get(domain, 1)
        version = schema_version(proto.op_type, opset, domain) or opset
        inputs = [self.lookup(i, f"node {name}") if i else None for i in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        _require_attribute_types(proto, name, version)
        attrs = {a.name: _attribute(a) for a in proto.attribute}
        origin = Origin("node", f"{name} ({proto.op_type}, node {index})")
        node = OnnxNode(name, proto.op_type, version, inputs, attrs, list(proto.output), (origin,), proto)
        own = self.functions.get((proto.domain, proto.op_type, proto.overload))
        converter = converters().get((domain, proto.op_type))
        made: Any = NotImplemented
        if own is not None:
            made = expand(self, node, own)
        elif converter is not None:
            made = converter(self, node)
        if made is NotImplemented:
            made = self.bind(node, domain)
        for output, value in zip(proto.output, made):
            _require_possible(value, name)
            if not output:
                continue
            if output in self.scope:
                raise ModelError(
                    f"node {name} defines {output!r}, which is defined already",
                    help="the model is damaged: every name has one definition; export it again",
                )
            self.scope[output] = value
        for output in proto.output[len(made) :]:
            if output:
                raise UnsupportedError(
                    f"node {name}: output {output} of {proto.op_type} is asked for, but Nestor does not compute it",
                    missing={proto.op_type: [name]},
                )

    def bind(self, node: OnnxNode, domain: str) -> list[Value]:
        """The node by topi's facts; where several ops serve the operator, the first whose operands fit."""
        found = candidates(node.op_type, node.version, domain)
        rank = node.inputs[0].rank if node.inputs and node.inputs[0] is not None else None
        found = [c for c in found if c[1].rank is None or c[1].rank == rank] or found
        first: UserError | None = None
        for definition, entry in found:
            try:
                attrs = self.attributes(node, entry)
                inputs = list(node.inputs)
                if entry.inputs is not None:
                    inputs = [node.input(i) for i in entry.inputs]
                while inputs and inputs[-1] is None:
                    inputs.pop()
                mark = self.builder.checkpoint()
                made = self.add(definition.name, inputs, attrs, node)
                if not any(node.outputs[len(made) :]):
                    return made
                self.builder.restore(mark)  # an output is asked for that only the schema's function gives
                node.outputs = [o for o in node.outputs if o in node.proto.output]
            except (ShapeError, GraphError) as error:
                first = first or error
        function = schema_function(node.proto, node.inputs, self.opsets.get(domain, 1), domain)
        if function is not None:
            return expand(self, node, function)
        if first is not None:
            raise first
        raise UnsupportedError(
            f"node {node.name}: Nestor does not have {node.op_type}", missing={node.op_type: [node.name]}
        )

    def attributes(self, node: OnnxNode, entry: Onnx) -> dict[str, Any]:
        """Our attributes by an entry's facts; those that are absent and have no default are left to the op."""
        made: dict[str, Any] = {}
        for ours, source in entry.attrs.items():
            value: Any
            if isinstance(source, Fixed):
                made[ours] = source.value
                continue
            if isinstance(source, Attribute):
                value = node.attrs.get(source.name)
            else:
                value = self.input_value(node, source)
            if value is None:
                if source.default is not None:
                    made[ours] = source.default
                continue
            made[ours] = source.convert(value) if source.convert is not None else value
        return made

    def input_value(self, node: OnnxNode, source: InputValue) -> Any:
        """The elements of operand `source.index` as Python numbers or dimensions; None if it is left out or empty."""
        value = node.input(source.index)
        if value is None:
            return None
        return self.known(value, node, f"operand {source.index}")

    def try_known(self, value: Value) -> Any:
        """What is known of a value when compiling, as `known` gives it, or None."""
        if value.content is None and self.data(value) is None:
            return None
        return self.known(value, _NOWHERE, "a value")

    def known(self, value: Value, node: OnnxNode, what: str) -> Any:
        """What is known of a value when compiling: a number or dimension for 0-d, a tuple of them for 1-d, an array
        otherwise. Raises `UnsupportedError` where it is known only at run time."""
        if value.content is not None and value.rank <= 1:
            items = tuple(_number(c) for c in value.content)
            return items[0] if value.rank == 0 else items
        data = self.data(value)
        if data is None:
            raise UnsupportedError(
                f"node {node.name}: {node.op_type} needs {what} ({value.name}) when compiling, "
                "but it is known only at run time",
                missing={node.op_type: [node.name]},
                help="give it as a constant, for example with params=",
                inputs=self.leaves(value),
            )
        if data.ndim == 0:
            return data.item()
        return tuple(data.tolist()) if data.ndim == 1 else data

    def leaves(self, value: Value) -> tuple[str, ...]:
        """The names of the model's inputs that decide a value; empty where other things do too."""
        found: dict[str, None] = {}
        stack, seen = [value], set()
        maker = {v: n for n in self.builder.nodes for v in n.outputs}
        while stack:
            v = stack.pop()
            if v in seen or v in self.builder.constants:
                continue
            seen.add(v)
            if v in maker:
                stack.extend(maker[v].operands)
                continue
            outside = [self.captures.outside[n] for n, inside in self.captures.inside.items() if inside is v]
            if outside and self.parent is not None:
                names = self.parent.leaves(outside[0])
            elif self.parent is None or self.parent.builder is self.builder:
                names = (v.name,) if v in self.builder.inputs else ()
            else:
                names = ()  # what a loop carries
            if not names:
                return ()
            found.update(dict.fromkeys(names))
        return tuple(found)

    def data(self, value: Value) -> np.ndarray | None:
        """The elements of a value that depends on constants only; None otherwise."""
        if value in self.builder.constants:
            return self.builder.constants[value]
        if value.content is not None and (numbers := dims.constants(value.content)) is not None:
            sizes = dims.constants(value.shape)
            return None if sizes is None else np.array(numbers, value.dtype.numpy).reshape(sizes)
        from graphir.reference import evaluate_node

        for node in self.builder.nodes:
            if value in node.outputs:
                operands = [None if v is None else self.data(v) for v in node.inputs]
                if node.subgraphs or any(v is not None and d is None for v, d in zip(node.inputs, operands)):
                    return None
                return evaluate_node(node, operands, {})[node.outputs.index(value)]
        return None

    def add(
        self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], node: OnnxNode, *, last: bool = True
    ) -> list[Value]:
        """A graph node for an ONNX node; with `last` its outputs take the ONNX names."""
        outputs = [o or f"{node.name}:{i}" for i, o in enumerate(node.outputs)] if last else None
        return list(self.builder.add(op, inputs, attrs, name=node.name, origins=node.origins, outputs=outputs))


def _number(e: Expr) -> int | Expr:
    known = dims.constant(e)
    return e if known is None else known


def _supported(data: np.ndarray, name: str) -> np.ndarray:
    try:
        dtype_of(data.dtype)
    except UserError:
        raise ModelError(f"the initialiser {name} has element type {data.dtype}, which Nestor does not have") from None
    return data


def _dimension(d: Any, name: str, axis: int) -> Any:
    """A dimension of a graph input: a size, or the symbol of its name; one without a usable name gets its own."""
    if d.HasField("dim_value") and d.dim_value >= 0:
        return int(d.dim_value)
    if d.dim_param and re.search(r"\w", d.dim_param) and d.dim_param not in ("None", "unk", "unknown", "-1"):
        return dims.symbol(d.dim_param)
    return dims.symbol(f"{name}_{axis}")


def _require_attribute_types(proto: onnx.NodeProto, name: str, version: int) -> None:
    """Refuses an attribute of another type than the operator's schema says."""
    import onnx

    domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
    if not proto.attribute or not onnx.defs.has(proto.op_type, version, domain):
        return
    wanted: dict[str, Any] = dict(onnx.defs.get_schema(proto.op_type, version, domain).attributes)
    kinds = onnx.AttributeProto.AttributeType
    for a in proto.attribute:
        if a.type and a.name in wanted and not a.ref_attr_name and a.type != wanted[a.name].type.value:
            raise ModelError(
                f"node {name}: the attribute {a.name} of {proto.op_type} is of type {kinds.Name(a.type)}, "
                f"not {kinds.Name(wanted[a.name].type.value)}",
                help="the model is damaged; export it again",
            )


def _require_possible(value: Any, name: str) -> None:
    """Refuses a result whose bytes no address can count."""
    if isinstance(value, Value):
        sizes = dims.constants(value.shape)
        if sizes is not None and math.prod(sizes) * value.dtype.bits >= 1 << 66:
            raise ShapeError(
                f"node {name}: its result has the shape {dims.shape_text(value.shape)}, more than any memory holds",
                help="check the sizes, pads and scales that the model asks for",
            )


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """An ONNX attribute as Python data: bytes as str, lists as tuples, tensors as arrays, graphs as they are."""
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case onnx.TensorProto():
            return tensor_array(value, f"the tensor of attribute {attribute.name}")
        case int() | float() | str() | onnx.GraphProto():
            return value
    return tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value)
