"""The cases of the ONNX backend suite as files in a cache folder: models, inputs and expected outputs.

The node cases are made by `onnx.backend.test.case.node`; the simple, pytorch and light ones are files of the wheel.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
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
NOT_COUNTED = re.compile(r"^test_(bernoulli|image_decoder|gradient)")
"""Cases that neither onnxruntime nor the reference evaluator passes."""

Case = dict[str, Any]
"""kind, name, model (path), sets (folders), op, domain, expanded, training, types: as kept in the cache's index."""


def build_cache(cache: Path) -> list[Case]:
    """Writes every case below `cache`, once for each version of onnx; the records of all cases."""
    index = cache / "index.json"
    if index.is_file():
        data = json.loads(index.read_text())
        if data["onnx"] == onnx.__version__:
            found: list[Case] = data["cases"]
            return found
    cache.mkdir(parents=True, exist_ok=True)
    cases = [*_node_cases(cache), *_file_cases(), *_light_cases(cache)]
    index.write_text(json.dumps({"onnx": onnx.__version__, "cases": cases}))
    return cases


def load_set(case: Case, folder: str) -> tuple[list[Any], list[Any]]:
    """The inputs and the expected outputs of one data set."""
    model = onnx.load(case["model"], load_external_data=False)
    initialized = {t.name for t in model.graph.initializer}
    inputs = list(model.graph.input)
    if case["kind"] == "light":
        inputs = [v for v in inputs if v.name not in initialized]
    return _files(folder, "input", inputs), _files(folder, "output", list(model.graph.output))


def _files(folder: str, tag: str, infos: list[onnx.ValueInfoProto]) -> list[Any]:
    made: list[Any] = []
    while (path := Path(folder) / f"{tag}_{len(made)}.pb").exists():
        made.append(_from_file(path, infos[len(made)].type))
    return made


def _from_file(path: Path, kind: onnx.TypeProto) -> Any:
    raw = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(raw))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
    if kind.HasField("map_type"):
        return numpy_helper.to_dict(onnx.MapProto.FromString(raw))
    return numpy_helper.to_array(onnx.TensorProto.FromString(raw))


def _to_bytes(value: Any, kind: onnx.TypeProto, name: str) -> bytes:
    made: Any
    if isinstance(value, onnx.TensorProto):
        made = value
    elif kind.HasField("optional_type"):
        if value is None:
            made = onnx.OptionalProto(name=name)
        else:
            made = numpy_helper.from_optional(value if isinstance(value, list) else np.asarray(value), name)
    elif kind.HasField("sequence_type"):
        made = numpy_helper.from_list([np.asarray(v) for v in value], name)
    elif kind.HasField("map_type"):
        made = numpy_helper.from_dict(value, name)
    else:
        made = numpy_helper.from_array(np.asarray(value), name)
    return bytes(made.SerializeToString())


def _record(kind: str, name: str, model: onnx.ModelProto, path: Path, sets: list[Path], **facts: Any) -> Case:
    nodes = model.graph.node
    training = bool(re.search(r"_training(_|$)|trainning", name)) or any(
        a.name == "training_mode" and a.i == 1 for n in nodes for a in n.attribute
    )
    values = [*model.graph.input, *model.graph.output]
    types = {onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in values}
    return {
        "kind": kind,
        "name": name,
        "model": str(path),
        "sets": list(map(str, sets)),
        "training": training,
        "types": sorted(types),
        "expanded": False,
        "domain": "ai.onnx",
        **facts,
    }


def _node_cases(cache: Path) -> list[Case]:
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    made = []
    tests = load_model_tests(kind="node")
    base = {t.name: t.model.graph.node[0] for t in tests if "_expanded" not in t.name}
    for test in tests:
        match = re.match(r"(.*?)_expanded(_ver\d+)?$", test.name)
        expanded = match is not None and match.group(1) in base
        owner = base[match.group(1)] if match is not None and expanded else test.model.graph.node[0]
        folder = cache / "node" / test.name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "model.onnx"
        path.write_bytes(test.model.SerializeToString())
        sets = []
        for number, (inputs, outputs) in enumerate(test.data_sets):
            place = folder / f"test_data_set_{number}"
            place.mkdir(exist_ok=True)
            graph = test.model.graph
            for tag, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                for n, value in enumerate(values):
                    (place / f"{tag}_{n}.pb").write_bytes(_to_bytes(value, infos[n].type, infos[n].name))
            sets.append(place)
        facts = {"op": owner.op_type, "domain": owner.domain or "ai.onnx", "expanded": expanded}
        made.append(_record("node", test.name, test.model, path, sets, **facts))
    return made


def _data_folder() -> Path:
    return Path(onnx.backend.test.__file__).parent / "data"


def _file_cases() -> list[Case]:
    made = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for path in sorted((_data_folder() / kind).glob("*/model.onnx")):
            model = onnx.load(path)
            ops = Counter(n.op_type for n in model.graph.node)
            op = "+".join(sorted(ops)) if len(ops) <= 3 else path.parent.name
            sets = sorted(path.parent.glob("test_data_set*"))
            made.append(_record(kind, path.parent.name, model, path, sets, op=op))
    return made


def _light_cases(cache: Path) -> list[Case]:
    made = []
    for name in LIGHT_MODELS:
        path = _data_folder() / "light" / f"light_{name}.onnx"
        expected = path.with_name(f"light_{name}_output_0.pb")
        if not path.exists() or not expected.exists():
            continue
        model = onnx.load(path)
        initialized = {t.name for t in model.graph.initializer}
        folder = cache / "light" / name / "test_data_set_0"
        folder.mkdir(parents=True, exist_ok=True)
        for number, v in enumerate(v for v in model.graph.input if v.name not in initialized):
            shape = tuple(d.dim_value or 1 for d in v.type.tensor_type.shape.dim)
            size = int(np.prod(shape))
            data = (np.arange(size).reshape(shape) / size).astype(np.float32)
            (folder / f"input_{number}.pb").write_bytes(_to_bytes(data, v.type, v.name))
        (folder / "output_0.pb").write_bytes(expected.read_bytes())
        made.append(_record("light", f"light_{name}", model, path, [folder], op=f"light_{name}"))
    return made
