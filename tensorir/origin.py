"""Where something came from: a line of the user's Python, or a node of a model file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("tensorir", "schedule", "targets", "topi", "graphir", "nestor")
_ROOT = str(Path(__file__).resolve().parent.parent)
_INSIDE = tuple(f"{_ROOT}/{p}/" for p in _PACKAGES)


@dataclass(frozen=True, slots=True)
class Origin:
    """`kind` is "python" (file and line in `place`) or "node" (the model's node name, op and index in `place`)."""

    kind: str
    place: str

    def __str__(self) -> str:
        return self.place


def python_origin() -> tuple[Origin, ...]:
    """The innermost line outside Nestor's own packages that led here; empty if there is none."""
    place = user_line()
    return () if place is None else (Origin("python", f"{place[0]}:{place[1]}"),)


def user_line() -> tuple[str, int] | None:
    """File and line number of that line."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_INSIDE):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None
