"""Real models for the demo, the command line and the tests, with inputs that mean something.

Two kinds. **Light models**: the classifier graphs that the `onnx` package ships have constants for weights, so their
output does not depend on their input. `light_model` fills such a graph with seeded random weights; calibrated
batch-norm statistics and layer scales (`data/light_calibration.npz`, written by `tests/models/calibrate.py`) keep the
activations near unit variance, so that errors and answers mean something. **The file-type model**: the trained
network of the `magika` package tells what kind of file some bytes are. Only its model file and its configuration are
used; the package itself is not imported.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensorir.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
CALIBRATION = Path(__file__).parent / "data" / "light_calibration.npz"
FILE_TYPE_MODEL = "standard_v3_3"


class ModelNotAvailable(UserError):
    """A model that is asked for by name and is not on this machine."""


def light_model(name: str, *, seed: int = 0, calibration: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """The classifier graph `name` of the `onnx` package with seeded weights: float32[1,3,224,224] to float32[1,1000].

    `calibration` maps "set:<tensor>" to the values of a tensor and "mul:<tensor>" to a scale for it, per leading index
    or for the whole; without it, the stored one is used. Raises `ModelNotAvailable` for an unknown name.
    """
    from onnx import helper, numpy_helper

    if name not in LIGHT_MODELS:
        raise ModelNotAvailable(
            f"no light model is called {name!r}", help=f"the known ones are {', '.join(LIGHT_MODELS)}"
        )
    model = _load_light(name)
    graph = model.graph
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in sizes]
    shapes = {node.output[0]: tuple(int(size) for size in sizes[node.input[0]]) for node in fills}
    alias = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type in ("Unsqueeze", "Reshape") and node.input[0] in shapes
    }
    roles: dict[str, tuple[str, int]] = {}
    for node in graph.node:
        for position, name_in in enumerate(node.input):
            tensor_name = alias.get(name_in, name_in)
            if tensor_name in shapes:
                roles.setdefault(tensor_name, (node.op_type, position))
    rng = np.random.default_rng(seed)
    weights = {tensor: _draw(rng, shape, *roles.get(tensor, ("", 0))) for tensor, shape in shapes.items()}
    for key, value in (_stored_calibration(name) if calibration is None else calibration).items():
        how, tensor = key.split(":", 1)
        tensor = alias.get(tensor, tensor)
        if how == "set":
            weights[tensor] = value.astype(np.float64)
        elif value.ndim:
            weights[tensor] = weights[tensor] * value.reshape((-1,) + (1,) * (weights[tensor].ndim - 1))
        else:
            weights[tensor] = weights[tensor] * float(value)
    made = [numpy_helper.from_array(value.astype(np.float32), tensor) for tensor, value in weights.items()]
    kept_nodes = [node for node in graph.node if not (node.op_type == "ConstantOfShape" and node.output[0] in shapes)]
    used = {tensor for node in kept_nodes for tensor in node.input}
    dropped = ({node.input[0] for node in fills} - used) | set(weights)
    kept_initializers = [tensor for tensor in graph.initializer if tensor.name not in dropped]
    # in this version of the format, initializers are listed among the inputs
    inputs = [value for value in graph.input if value.name not in dropped]
    inputs += [helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in made]
    _replace(graph.node, kept_nodes)
    _replace(graph.initializer, kept_initializers + made)
    _replace(graph.input, inputs)
    return model


def image(seed: int = 0, *, shape: tuple[int, int, int, int] = (1, 3, 224, 224)) -> np.ndarray:
    """A blocky random picture, float32, about zero mean and unit variance; height and width are multiples of 8."""
    rng = np.random.default_rng(seed)
    blocks = np.kron(rng.standard_normal(shape[:2] + (8, 8)), np.ones((shape[2] // 8, shape[3] // 8)))
    return (blocks + 0.3 * rng.standard_normal(shape)).astype(np.float32)


def data_inputs(model: onnx.ModelProto) -> list[str]:
    """The names of the inputs that have no initializer, in order."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in initialized]


def file_type_model() -> Path:
    """The path of the file-type model: int32[n,2048] to float32[n,214] probabilities."""
    return _magika_folder() / "models" / FILE_TYPE_MODEL / "model.onnx"


def file_type_labels() -> list[str]:
    """The names of the file types, in the order of the model's output."""
    return list(_file_type_config()["target_labels_space"])


def file_type_features(content: bytes) -> np.ndarray:
    """The file-type model's input for a file's bytes, int32[1,2048].

    The first and the last kilobyte, without the white space around them, as integers; what is missing is filled with
    a padding token.
    """
    config = _file_type_config()
    block, padding = config["block_size"], config["padding_token"]
    head, tail = content[:block].lstrip(), content[-block:].rstrip()
    if len(content) <= block:
        head = tail = content.strip()
    head, tail = head[: config["beg_size"]], tail[-config["end_size"] :]
    features = np.full(config["beg_size"] + config["end_size"], padding, np.int32)
    features[: len(head)] = np.frombuffer(head, np.uint8)
    features[len(features) - len(tail) :] = np.frombuffer(tail, np.uint8)
    return features[None]


def _load_light(name: str) -> onnx.ModelProto:
    import onnx

    package = importlib.util.find_spec("onnx")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.is_file():
        raise ModelNotAvailable(
            f"the installed onnx package ships no light model {name!r}: {path} is missing",
            help="install onnx from its wheel: pip install --force-reinstall onnx",
        )
    return onnx.load(path)


def _stored_calibration(name: str) -> dict[str, np.ndarray]:
    with np.load(CALIBRATION) as archive:
        prefix = f"{name}|"
        return {key.removeprefix(prefix): archive[key] for key in archive.files if key.startswith(prefix)}


def _draw(rng: np.random.Generator, shape: tuple[int, ...], op: str, position: int) -> np.ndarray:
    """Seeded values for one tensor by its use: He's rule for weights, zero biases, scales near one."""
    values = rng.standard_normal(shape)
    if op in ("Conv", "Gemm", "MatMul"):
        return values * np.sqrt(2.0 / int(np.prod(shape[1:]))) if position == 1 else 0 * values
    if op == "BatchNormalization":
        return {1: 1 + 0.1 * values, 2: 0.1 * values, 3: 0 * values, 4: 0 * values + 1}[position]
    if op == "Mul":
        return 1 + 0.1 * values
    return 0.1 * values


def _replace(field: object, values: list) -> None:
    del field[:]  # type: ignore[attr-defined]
    field.extend(values)  # type: ignore[attr-defined]


def _magika_folder() -> Path:
    package = importlib.util.find_spec("magika")
    if package is None or package.origin is None:
        raise ModelNotAvailable(
            "the file-type model is not installed: it comes in the package magika",
            help="pip install 'nestor-compiler[demo]', or pip install magika==1.0.3",
        )
    folder = Path(package.origin).parent
    if not (folder / "models" / FILE_TYPE_MODEL / "model.onnx").is_file():
        raise ModelNotAvailable(
            f"the installed package magika has no model {FILE_TYPE_MODEL}", help="pip install magika==1.0.3"
        )
    return folder


def _file_type_config() -> dict:
    path = _magika_folder() / "models" / FILE_TYPE_MODEL / "config.min.json"
    return json.loads(path.read_text(encoding="utf-8"))
