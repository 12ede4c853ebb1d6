"""The index of ops, and finding ops by name and by ONNX operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx.defs
import pytest

from topi.op import Attribute, InputValue, OpError
from topi.registry import all_ops, find_onnx, get_op
from topi.write_index import index_text


def test_the_index_is_what_the_op_files_define() -> None:
    import topi.index

    assert Path(topi.index.__file__).read_text() == index_text(), "run python -m topi.write_index"


def test_an_op_file_loads_on_first_use() -> None:
    code = (
        "import sys; from topi.registry import get_op; get_op('relu');"
        "assert 'topi.ops.unary' in sys.modules and 'topi.ops.conv' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(OpError, match="no op is called 'sofmax'") as caught:
        get_op("sofmax")
    assert "softmax" in str(caught.value)


def test_onnx_operators_find_their_ops() -> None:
    assert [op.name for op, _ in find_onnx("Relu")] == ["relu"]
    assert [op.name for op, _ in find_onnx("Relu", "ai.onnx")] == ["relu"]
    assert {op.name for op, _ in find_onnx("Conv")} == {"conv1d", "conv2d", "conv3d"}
    assert sorted(entry.since for _, entry in find_onnx("Softmax")) == [1, 13]
    assert find_onnx("NoSuchOperator") == []


def test_every_onnx_attribute_is_an_attribute_of_the_op() -> None:
    for op in all_ops().values():
        for entry in op.onnx:
            assert set(entry.attrs) <= set(op.attrs), op.name


def test_operands_and_attributes_are_those_of_the_onnx_schemas() -> None:
    """apache/tvm#17991: a unary operator was registered as a binary one. For every entry and every schema version that
    it serves: the operands that the schema asks for fit the op, and the positions and attributes named exist."""
    schemas: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        schemas.setdefault((schema.domain, schema.name), []).append(schema)
    single, optional = (
        onnx.defs.OpSchema.FormalParameterOption.Single,
        onnx.defs.OpSchema.FormalParameterOption.Optional,
    )
    faults: list[object] = []
    for op in all_ops().values():
        for entry in op.onnx:
            history = schemas.get((entry.domain, entry.op_type), [])
            starts = [e.since for _, e in find_onnx(entry.op_type, entry.domain) if e.since > entry.since]
            served = [s for s in history if entry.since <= s.since_version < min(starts, default=1 << 30)]
            named = {a for s in history for a in s.attributes}
            sources = entry.attrs.values()
            faults += [(entry, a) for a in sources if isinstance(a, Attribute) and history and a.name not in named]
            for schema in served:
                values = {a.index for a in sources if isinstance(a, InputValue)}
                positions = range(len(schema.inputs)) if entry.inputs is None else entry.inputs
                tensors = [schema.inputs[p] for p in positions if p < len(schema.inputs) and p not in values]
                if any(t.option not in (single, optional) for t in tensors) or op.variadic:
                    continue
                needed = sum(t.option == single for t in tensors)
                if not op.required <= needed <= len(tensors) <= len(op.operands):
                    faults.append((op.name, entry.op_type, schema.since_version, needed, len(tensors)))
    assert not faults
