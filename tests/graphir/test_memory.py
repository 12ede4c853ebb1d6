"""`exe.memory`: alias classes, results in place, formulas over symbols, and the picture of it all."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import nestor as nt
from graphir.builder import GraphBuilder
from graphir.errors import InputError
from graphir.executor import Executable
from graphir.ir import Graph
from graphir.memory import MemoryReport
from tests.graphir.graphs import random, run_levels

SIZES = (1, 2, 3, 7, 16, 33, 64, 150, 400)


def chain() -> Graph:
    """A product, a view of it, a function of that which may be written in its place, another product."""
    b = GraphBuilder()
    x = b.input("x", (64, 64))
    [y] = b.add("matmul", [x, x], outputs=["product"])
    [v] = b.add("reshape", [y], {"shape": (32, 128)}, outputs=["view"])
    [e] = b.add("exp", [v], outputs=["powers"])
    [m] = b.add("matmul", [e, b.constant(random(128, 64), "w")], outputs=["second"])
    [z] = b.add("softmax", [m], outputs=["z"])
    return b.finish([z])


def block_of(report: MemoryReport, name: str) -> int:
    """The number of the block that holds a value."""
    [found] = [n for n, b in enumerate(report.blocks) if name in [v.split("@")[0] for v in b.names]]
    return found


def test_views_and_results_in_place_are_one_block() -> None:
    g = chain()
    report = nt.compile(g, opt_level=2, disabled=["fuse"]).memory
    assert block_of(report, "product") == block_of(report, "view") == block_of(report, "powers")
    assert block_of(report, "second") != block_of(report, "product")
    assert len(report.blocks) == 2 and report.peak_live == report.arena == 64 * 64 * 4 + 32 * 64 * 4
    run_levels(g, {"x": random(64, 64) / 100}, 1e-4)


def test_nothing_is_written_in_place_of_what_is_still_read() -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 64))
    [y] = b.add("matmul", [x, x], outputs=["product"])
    [e] = b.add("exp", [y], outputs=["powers"])
    [m] = b.add("matmul", [e, y], outputs=["second"])
    g = b.finish([b.add("softmax", [m])[0]])
    report = nt.compile(g, opt_level=2, disabled=["fuse"]).memory
    assert block_of(report, "product") != block_of(report, "powers")
    run_levels(g, {"x": random(64, 64) / 100}, 1e-4)


def pyramid() -> Graph:
    """Images of any size, made smaller and larger again with values kept across: sizes that do not scale alike."""
    b = GraphBuilder()
    x = b.input("x", ("n", 8, "h", 16))
    kept, y = [], x
    for channels in (8, 16, 24):
        w = b.constant(random(channels, int(y.shape[1].value), 3, 3) / 9, "w")  # type: ignore[attr-defined]
        [y] = b.add("conv2d", [y, w], {"padding": (1, 1, 1, 1)})
        [y] = b.add("relu", [y])
        kept.append(y)
        [y] = b.add("max_pool2d", [y], {"kernel": (2, 1), "strides": (2, 1), "padding": (0, 0, 1, 0)})
    [s] = b.add("mean", [y], {"axes": (2, 3), "keepdims": True})
    [y] = b.add("multiply", [y, s])
    results = [b.add("mean", [k], {"axes": (1, 2), "keepdims": False})[0] for k in kept]
    [y] = b.add("mean", [y], {"axes": (2, 3), "keepdims": False})
    return b.finish([y, *results])


def test_formulas_hold_at_every_size_and_waste_little() -> None:
    executable = nt.compile(pyramid(), disabled=["fuse"])
    assert any(b.formula is not None and "h" in b.formula for b in executable.memory.blocks)
    for n in (1, 3, 32):
        for h in SIZES:
            report = executable.memory_at(n=n, h=h)
            assert report.ratio <= 1.15, f"n={n}, h={h}: {report}"
            together = [b for b in report.blocks if b.nbytes]
            for i, a in enumerate(together):
                for c in together[:i]:
                    apart = a.offset + a.nbytes <= c.offset or c.offset + c.nbytes <= a.offset
                    assert apart or a.end < c.start or c.end < a.start, (a, c)
    for h in (1, 7, 33):
        run_levels(pyramid(), {"x": random(2, 8, h, 16)}, 3e-5)


@pytest.mark.parametrize("name", ["text_detection", "voice_activity"])
def test_formulas_of_real_models_waste_little(name: str) -> None:
    path = Path.home() / ".cache" / "nestor" / "models" / f"{name}.onnx"
    if not path.exists():
        pytest.skip("the model is not fetched: python -m tests.models fetch")
    executable = nt.compile(path)
    names = [s.symbol.name for s in executable.plan.symbols]
    image = name == "text_detection"
    for size in SIZES:
        sizes = {n: size * 32 if image and number > 0 else size for number, n in enumerate(names)}
        assert executable.memory_at(**sizes).ratio <= 1.15, sizes


def test_a_size_that_the_data_decide_has_room_for_its_bound() -> None:
    """The indices of what is not zero: how many there are shows while running; their memory is that of the most."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        counted (float[n] x) => (float[1] y)
        {
            places = NonZero(x)
            floats = Cast <to = 1> (places)
            squares = Exp(floats)
            axes = Constant <value = int64[2] {0, 1}> ()
            total = ReduceSum <keepdims = 0> (squares, axes)
            shape = Constant <value = int64[1] {1}> ()
            y = Reshape(total, shape)
        }
    """)
    executable = nt.compile(nt.from_onnx(model), opt_level=2, disabled=["fuse"])
    assert executable.plan.late
    assert executable.memory_at(n=1000).arena >= 8 * 1000 and executable.memory_at(n=10).arena < 1000
    for x in (np.array([0, 3, 0, 2], np.float32), np.ones(5, np.float32), np.zeros(7, np.float32)):
        [want] = [np.exp(np.flatnonzero(x)).sum(dtype=np.float64)]
        np.testing.assert_allclose(executable.run({"x": x})[0], [want], rtol=1e-5)


def test_the_picture_in_text() -> None:
    report = nt.compile(chain(), opt_level=2, disabled=["fuse"]).memory
    text = str(report)
    assert text.splitlines()[0].startswith("host: arena 24576 bytes, 1.000 of the 24576 alive at once")
    assert "offset" in text and "product, view, powers" in text and "1..3" in text
    drawing = report.drawing().splitlines()
    assert drawing[0] == "host, 24576 bytes" and drawing[1].startswith("|") and "+" + "-" * 5 in drawing
    assert "a product, view, powers" in drawing and "b second" in drawing
    columns = {line.index("a") for line in drawing[1:3] if "a" in line}
    assert columns == {2} and all(len(line) <= 80 for line in drawing)


def test_the_picture_as_svg(tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    report = nt.compile(pyramid(), disabled=["fuse"]).memory_at(n=1, h=33)
    picture = report.svg(path)
    assert path.read_text() == picture and picture in report._repr_html_()
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text or "" for t in root.iter(f"{space}title")]
    assert len(titles) == len(report.blocks) and any("bytes at" in t for t in titles)
    frame, *rects = root.iter(f"{space}rect")
    for r in rects:
        x, y, w, h = (float(r.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= float(frame.attrib["x"]) - 0.1 and y >= float(frame.attrib["y"]) - 0.1
        assert x + w <= float(frame.attrib["x"]) + float(frame.attrib["width"]) + 0.2
        assert y + h <= float(frame.attrib["y"]) + float(frame.attrib["height"]) + 0.2


def test_a_plan_without_an_arena_draws_nothing() -> None:
    b = GraphBuilder()
    g = b.finish([b.add("relu", [b.input("x", (3,))])[0]])
    report = nt.compile(g).memory
    assert report.arena == 0 and report.drawing() == "" and ElementTree.fromstring(report.svg()) is not None


def test_a_wrong_symbol_is_named() -> None:
    executable: Executable = nt.compile(pyramid(), disabled=["fuse"])
    with pytest.raises(InputError, match=r"memory: width is no symbol of the model\nhelp: the symbols are n, h"):
        executable.memory_at(n=1, h=2, width=3)
    with pytest.raises(InputError, match="memory: h has no value"):
        executable.memory_at(n=1)


def test_the_poisoned_run_agrees_with_the_native_one() -> None:
    """The interpretation fills the arena with NaN first: nothing is read that was not written."""
    executable = nt.compile(pyramid(), disabled=["fuse"])
    x = random(2, 8, 9, 16)
    found = executable.debug([x])
    for info, y in zip(executable.outputs, executable.run([x]), strict=True):
        np.testing.assert_array_equal(found[info.name], y)
