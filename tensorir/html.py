"""Programs as highlighted HTML for notebooks, the lines that a change touched marked."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Sequence

from tensorir.printer import func_text
from tensorir.stmt import Func

_WORDS = (
    "func|outputs|for|in|block|reads|writes|init|if|else|let|alloc|where|spatial|reduce|opaque|pass|and|or|not"
)  # fmt: skip
_KINDS = "parallel|vectorized|unrolled|serial|thread"
_TOKEN = re.compile(
    rf"(?P<comment>#.*)|(?P<text>\"[^\"]*\")|(?P<type>\b(?:float|bfloat|int|uint)\d+(?:x\d+)?\b|\bbool\b)"
    rf"|(?P<kind>\b(?:{_KINDS})\b)|(?P<word>\b(?:{_WORDS})\b)|(?P<number>\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)"
)
_STYLE = {
    "comment": "color:#6a737d",
    "text": "color:#0a7a3c",
    "type": "color:#6f42c1",
    "kind": "color:#b3430c;font-weight:bold",
    "word": "color:#0b5cad",
    "number": "color:#a0522d",
}
_MARK = "background:rgba(255,200,0,0.28)"
_PRE = "font-family:monospace;line-height:1.35;white-space:pre;overflow-x:auto"


def highlight_line(line: str) -> str:
    """One line with its tokens coloured."""
    parts: list[str] = []
    position = 0
    for match in _TOKEN.finditer(line):
        parts.append(html.escape(line[position : match.start()]))
        style = _STYLE[match.lastgroup or "word"]
        parts.append(f'<span style="{style}">{html.escape(match.group())}</span>')
        position = match.end()
    parts.append(html.escape(line[position:]))
    return "".join(parts)


def changed_lines(before: Sequence[str], after: Sequence[str]) -> frozenset[int]:
    """The numbers of the lines of `after` that are not in `before`."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return frozenset(n for tag, _, _, begin, end in matcher.get_opcodes() if tag != "equal" for n in range(begin, end))


def text_html(lines: Sequence[str], changed: frozenset[int] = frozenset()) -> str:
    """Lines as HTML, those in `changed` marked."""
    shown = []
    for number, line in enumerate(lines):
        coloured = highlight_line(line)
        shown.append(f'<span style="{_MARK}">{coloured}</span>' if number in changed else coloured)
    return f'<pre style="{_PRE}">' + "\n".join(shown) + "</pre>"


def func_html(func: Func, before: Func | None = None) -> str:
    """A program as HTML; what differs from `before` is marked."""
    lines = func_text(func).splitlines()
    return text_html(lines, frozenset() if before is None else changed_lines(func_text(before).splitlines(), lines))
