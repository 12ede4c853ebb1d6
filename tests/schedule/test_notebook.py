"""What a notebook sees: highlighted programs with the last change marked, steps, signatures, completion."""

from __future__ import annotations

import inspect
import re
from html import unescape

from schedule import PRIMITIVES, create_schedule
from schedule.schedule import Schedule
from targets.build import build
from tensorir import te
from tensorir.html import changed_lines, highlight_line


def example() -> tuple[Schedule, te.Tensor]:
    """C = 2 A, split and vectorized."""
    a = te.placeholder((40,), name="A")
    c = te.compute((40,), lambda i: a[i] * 2.0, name="C")
    s = create_schedule(c)
    _, inner = s[c].split("i", factor=8)
    s[c].vectorize(inner)
    return s, c


def text_of(page: str) -> str:
    """A page without its tags."""
    return unescape(re.sub("<[^>]*>", "", page))


def test_a_schedule_shows_its_program_with_the_last_change_marked() -> None:
    s, _ = example()
    page = s._repr_html_()
    assert text_of(page) == str(s)
    marked = re.findall(r'<span style="background[^>]*>(.*)</span>', page)
    assert len(marked) == 1
    assert "vectorized" in marked[0]


def test_a_fresh_schedule_marks_nothing() -> None:
    a = te.placeholder((4,), name="A")
    assert "background" not in create_schedule(te.compute((4,), lambda i: a[i], name="C"))._repr_html_()


def test_steps_are_the_calls_with_their_programs() -> None:
    s, c = example()
    steps = s.steps()
    assert [call for call, _ in steps] == list(s.trace)
    assert len(steps) == 2
    assert str(steps[-1][1]) == str(s)
    assert "i_o" not in str(steps.first)
    assert "i_o" in str(steps[0][1])
    assert repr(steps).splitlines()[1].startswith("2  s[")
    assert steps._repr_html_().count("<details") == 3
    s.undo()
    assert len(s.steps()) == 1
    assert repr(create_schedule(c).steps()) == "no calls yet"


def test_primitives_have_their_real_signatures_and_are_completed() -> None:
    s, c = example()
    signature = inspect.signature(s[c].split)
    assert list(signature.parameters) == ["loop", "factor", "nparts"]
    assert s[c].split.__doc__ == PRIMITIVES["split"].__doc__
    assert set(PRIMITIVES) <= set(dir(s[c]))
    assert s._ipython_key_completions_() == ["A", "C"]


def test_kernels_show_their_program() -> None:
    s, _ = example()
    k = build(s, [*s.inputs, *s.outputs], target="reference")
    assert text_of(k._repr_html_()).startswith("main for reference")
    assert str(k.func) in text_of(k._repr_html_())


def test_text_is_escaped() -> None:
    assert text_of(highlight_line("if a < b & c:")) == "if a < b & c:"
    assert "<b" not in highlight_line("a <b")


def test_changed_lines() -> None:
    assert changed_lines(["a", "b", "c"], ["a", "x", "c", "d"]) == {1, 3}
