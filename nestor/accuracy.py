"""The judge of numbers: what the answer should be, and whether an answer is close enough.

The reference is independent of this compiler: the onnx package's own evaluator, run on a copy of the model in which
every float tensor (input, weight, constant, cast, in every subgraph and function) is widened to float64. A result is
right when its error against that is at most `factor` times onnxruntime's error, or at most `tolerance` of the largest
reference value. Where onnxruntime itself is far from the reference, one of the two is wrong about the model: then its
error is no measure. Integers, booleans and strings must be equal; NaN and infinity must stand in the same places.

    reports = judge(model, inputs, {"y": y})
    assert all(report.ok for report in reports), "\\n".join(report.reason for report in reports)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorir.errors import UserError

if TYPE_CHECKING:
    import onnx

FACTOR = 4.0
TOLERANCE = 1e-5
DISAGREEMENT = 0.05  # relative; where onnxruntime is further off than this, its error excuses nothing

# attributes that hold an element type, by op; the type of everything else follows from its inputs
_TYPE_ATTRIBUTES = {
    "Cast": ("to",),
    "Bernoulli": ("dtype",),
    "BlackmanWindow": ("output_datatype",),
    "DequantizeLinear": ("output_dtype",),
    "EyeLike": ("dtype",),
    "HammingWindow": ("output_datatype",),
    "HannWindow": ("output_datatype",),
    "MelWeightMatrix": ("output_datatype",),
    "RandomNormal": ("dtype",),
    "RandomNormalLike": ("dtype",),
    "RandomUniform": ("dtype",),
    "RandomUniformLike": ("dtype",),
    "SequenceEmpty": ("dtype",),
}


@dataclass(frozen=True, slots=True)
class OutputReport:
    """The verdict on one output.

    `max_abs_err` is the largest error over the finite elements, `max_ref` the largest finite reference value; both
    relative errors are the largest error over `max_ref`. `reason` is one sentence, also when `ok`.
    """

    name: str
    max_abs_err: float
    max_ref: float
    rel_err: float
    ort_rel_err: float | None
    ok: bool
    reason: str


def judge(
    model: onnx.ModelProto | str | Path,
    inputs: Mapping[str, np.ndarray],
    got: Mapping[str, Any],
    *,
    factor: float = FACTOR,
    tolerance: float = TOLERANCE,
) -> list[OutputReport]:
    """Judges outputs (any tensors of the main graph, by name) of a model against the reference and onnxruntime."""
    loaded = load_model(model)
    names = list(got)
    reference = reference_outputs(loaded, inputs, names)
    return compare(got, reference, onnxruntime_outputs(loaded, inputs, names), factor=factor, tolerance=tolerance)


def reference_outputs(
    model: onnx.ModelProto | str | Path, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None
) -> dict[str, Any]:
    """The outputs in float64 by the onnx reference evaluator; `outputs` may name any tensors of the main graph.

    A float output is float64 whatever its declared type; other types are as declared.
    """
    from onnx.reference import ReferenceEvaluator

    from nestor.reference_ops import CORRECTED_OPS

    loaded = load_model(model)
    names = list(outputs) if outputs is not None else [value.name for value in loaded.graph.output]
    feeds = {name: _widen_value(value) for name, value in inputs.items()}
    evaluator = ReferenceEvaluator(widened(loaded), new_ops=CORRECTED_OPS)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = evaluator.run(names, feeds)
    return dict(zip(names, values))


def onnxruntime_outputs(
    model: onnx.ModelProto | str | Path,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str] | None = None,
    *,
    threads: int = 2,
) -> dict[str, Any]:
    """The outputs by onnxruntime on the CPU; `outputs` may name any tensors of the main graph."""
    session = onnxruntime_session(model, outputs, threads=threads)
    names = list(outputs) if outputs is not None else [value.name for value in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, dict(inputs))))
    except Exception as error:  # onnxruntime's own classes share no base that could be named here
        reason = str(error).splitlines()[0]
        raise UserError(f"onnxruntime does not run the model on these inputs: {reason}") from error


def onnxruntime_session(
    model: onnx.ModelProto | str | Path, outputs: Sequence[str] | None = None, *, threads: int = 2
) -> Any:
    """An onnxruntime session of the model with `outputs` among its outputs; a `UserError` when it is not installed."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(
            "onnxruntime is not installed, and the comparison needs it",
            help="pip install 'nestor-compiler[demo]', or pip install onnxruntime",
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    source: str | bytes
    if outputs is None and isinstance(model, str | Path):
        source = str(model)  # a path, so that weights in files beside it are found
    else:
        loaded = load_model(model)
        source = (loaded if outputs is None else with_outputs(loaded, outputs)).SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def compare(
    got: Mapping[str, Any],
    ref: Mapping[str, Any],
    ort: Mapping[str, Any] | None = None,
    *,
    factor: float = FACTOR,
    tolerance: float = TOLERANCE,
) -> list[OutputReport]:
    """One report for each output of `ref`, and one for each that only `got` has; sequences element by element."""
    expected = _flattened(ref)
    results = _flattened(got)
    rivals = _flattened(ort) if ort is not None else {}
    reports = [
        _compare_one(name, results[name], value, rivals.get(name), factor, tolerance)
        if name in results
        else _refused(name, "the output is missing")
        for name, value in expected.items()
    ]
    return reports + [_refused(name, "the reference has no such output") for name in results if name not in expected]


def load_model(model: onnx.ModelProto | str | Path) -> onnx.ModelProto:
    """The model itself, or read from its path."""
    import onnx

    return onnx.load(model) if isinstance(model, str | Path) else model


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """A copy of the model that also gives the named tensors of its main graph as outputs."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    present = {value.name for value in copied.graph.output}
    typed = {value.name: value for value in [*copied.graph.value_info, *copied.graph.input]}
    for name in names:
        if name not in present:
            copied.graph.output.append(typed.get(name) or onnx.helper.make_empty_tensor_value_info(name))
            present.add(name)
    return copied


def node_outputs(model: onnx.ModelProto) -> list[str]:
    """The names of every node's outputs in the main graph, in order."""
    return [name for node in model.graph.node for name in node.output if name]


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in which every float16, bfloat16 and float32 tensor and type is float64."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    _widen_graph(copied.graph)
    for function in copied.functions:
        for node in function.node:
            _widen_node(node)
    return copied


def _widen_graph(graph: onnx.GraphProto) -> None:
    from onnx import TensorProto

    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in _narrow_types():
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        _widen_node(node)


def _widen_node(node: onnx.NodeProto) -> None:
    from onnx import AttributeProto, TensorProto, helper

    if node.op_type == "Constant" and node.attribute and node.attribute[0].name in ("value_float", "value_floats"):
        number = np.array(helper.get_attribute_value(node.attribute[0]), np.float64)
        node.attribute[0].CopyFrom(helper.make_attribute("value", _tensor(number)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", _tensor(np.zeros(1))))
    typed = _TYPE_ATTRIBUTES.get(node.op_type, ())
    for attribute in node.attribute:
        if attribute.name in typed and attribute.i in _narrow_types():
            attribute.i = TensorProto.DOUBLE
        elif attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.type == AttributeProto.TENSORS:
            for tensor in attribute.tensors:
                _widen_tensor(tensor)
        elif attribute.type == AttributeProto.GRAPH:
            _widen_graph(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                _widen_graph(graph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.data_type in _narrow_types():
        tensor.CopyFrom(_tensor(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _tensor(value: np.ndarray, name: str = "") -> onnx.TensorProto:
    from onnx import numpy_helper

    return numpy_helper.from_array(value, name)


def _narrow_types() -> tuple[int, ...]:
    from onnx import TensorProto

    return (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _widen_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_widen_value(element) for element in value]
    if value is None or not _is_float(value):
        return value
    return np.asarray(value).astype(np.float64)


def _is_float(value: Any) -> bool:
    """Whether an array holds floats, the ml_dtypes ones too."""
    dtype = np.asarray(value).dtype
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sequences as one entry an element: y[0], y[1], ..."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            flat[f"{name}: length"] = np.array(len(value))
            flat.update(_flattened({f"{name}[{index}]": element for index, element in enumerate(value)}))
        else:
            flat[name] = value
    return flat


def _refused(name: str, reason: str) -> OutputReport:
    return OutputReport(name, float("inf"), 0.0, float("inf"), None, False, reason)


def _compare_one(name: str, got: Any, ref: Any, ort: Any, factor: float, tolerance: float) -> OutputReport:
    if got is None or ref is None:
        same = got is None and ref is None
        return (
            OutputReport(name, 0.0, 0.0, 0.0, None, True, "both are empty") if same else _refused(name, "one is empty")
        )
    got, ref = np.asarray(got), np.asarray(ref)
    ort = None if ort is None else np.asarray(ort)
    if got.shape != ref.shape:
        return _refused(name, f"the shape is {list(got.shape)}, not {list(ref.shape)}")
    expected_dtype = ort.dtype if ort is not None else None if _is_float(ref) else ref.dtype
    if expected_dtype is not None and got.dtype != expected_dtype:
        return _refused(name, f"the dtype is {got.dtype}, not {expected_dtype}")
    if _is_float(got) != _is_float(ref):
        return _refused(name, f"the dtype is {got.dtype}, but the reference is {ref.dtype}")
    if not _is_float(ref):
        return _compare_exact(name, got, ref, ort)
    with np.errstate(all="ignore"):
        return _compare_floats(name, got, ref, ort, factor, tolerance)


def _compare_exact(name: str, got: np.ndarray, ref: np.ndarray, ort: np.ndarray | None) -> OutputReport:
    """Integers, booleans and strings: equal to the reference, or to onnxruntime where float rounding decided."""
    numeric = ref.dtype.kind in "iub"
    error, largest = 0.0, 0.0
    if numeric:  # as Python integers: no wrapping
        error, largest = _largest(np.asarray(got.astype(object) - ref.astype(object))), _largest(ref)
    wrong = int(np.count_nonzero(got != ref))
    if not wrong:
        return OutputReport(name, 0.0, largest, 0.0, None if ort is None else 0.0, True, "equal")
    relative = error / largest if largest else error
    if ort is not None and np.array_equal(got, ort):
        return OutputReport(name, error, largest, relative, relative, True, "equal to onnxruntime, not to float64")
    place = np.unravel_index(int(np.argmax(got != ref)), ref.shape)
    reason = (
        f"{wrong} of {ref.size} elements differ, first at {[int(i) for i in place]}: {got[place]}, not {ref[place]}"
    )
    return OutputReport(name, error, largest, relative, None, False, reason)


def _compare_floats(
    name: str, got: np.ndarray, ref: np.ndarray, ort: np.ndarray | None, factor: float, tolerance: float
) -> OutputReport:
    rounded = ref.astype(got.dtype).astype(np.float64)  # so that what overflows the output's type counts as infinite
    wide = got.astype(np.float64)
    rival = None if ort is None else ort.astype(np.float64)
    strange = _special_mismatch(wide, rounded)
    if strange is not None and rival is not None and _special_mismatch(wide, rival) is None:
        strange = None  # float32 itself overflows on the way, for onnxruntime in the same places
    finite = np.isfinite(wide) & np.isfinite(rounded)
    largest = _largest(ref[np.isfinite(rounded)])
    error = _largest((wide - ref)[finite])
    relative = error / largest if largest else error
    rival_error = None if rival is None else _largest((rival - ref)[finite & np.isfinite(rival)])
    rival_relative = None if rival_error is None else rival_error / largest if largest else rival_error
    if strange is not None:
        reason = f"{strange[1]} stands where the reference has {strange[2]}, first at {strange[0]}"
        return OutputReport(name, error, largest, relative, rival_relative, False, reason)
    within_tolerance = error <= tolerance * largest
    disagree = rival_relative is not None and rival_relative > DISAGREEMENT
    within_factor = rival_error is not None and not disagree and error <= factor * rival_error
    reason = f"error {relative:.2g} of max|ref|" + (f", onnxruntime's {rival_relative:.2g}" if ort is not None else "")
    if not (within_tolerance or within_factor):
        reason += f": above {tolerance:g}"
        if disagree:
            reason += ", and onnxruntime and the reference disagree about the model"
        elif ort is not None:
            reason += f" and {factor:g} times onnxruntime's"
    return OutputReport(name, error, largest, relative, rival_relative, within_tolerance or within_factor, reason)


def _special_mismatch(got: np.ndarray, ref: np.ndarray) -> tuple[list[int], float, float] | None:
    """The first place where only one is NaN or infinite, or both with different signs, with the two values."""
    special = ~(np.isfinite(got) & np.isfinite(ref))
    equal = (got == ref) | (np.isnan(got) & np.isnan(ref))
    wrong = special & ~equal
    if not wrong.any():
        return None
    place = np.unravel_index(int(np.argmax(wrong)), ref.shape)
    return _indices(place), float(got[place]), float(ref[place])


def _indices(place: Iterable[Any]) -> list[int]:
    return [int(index) for index in place]


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values))) if values.size else 0.0
