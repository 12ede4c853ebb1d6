"""The index of ops, and finding ops by name and by ONNX operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from topi.op import OpError
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
