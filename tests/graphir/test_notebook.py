"""What a notebook sees of a graph."""

from __future__ import annotations

import re
from html import unescape

import nestor as nt
from nestor import sym


def example() -> nt.Graph:
    """relu(x) + x."""
    x = sym.Variable("x")
    return nt.from_symbol(sym.relu(x) + x, shapes={"x": (2, 3)})


def text_of(page: str) -> str:
    """A page without its tags."""
    return unescape(re.sub("<[^>]*>", "", page))


def test_a_graph_shows_its_picture_and_its_text() -> None:
    page = example()._repr_html_()
    assert page.startswith("<svg")
    assert "relu" in text_of(page.partition("<details>")[2])


def test_the_lines_that_a_pass_changed_are_marked() -> None:
    before = example()
    after = before.apply("fuse")
    marked = "".join(re.findall(r'<span style="background[^>]*>(.*)</span>', after.changes_html(before)))
    assert "group" in text_of(marked)
    assert "background" not in before.changes_html(before)
