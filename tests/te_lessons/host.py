"""A host function of the lesson on externs."""

from __future__ import annotations

from typing import Any


def sort(a: Any, out: Any) -> None:
    """Ascending order."""
    out[...] = a
    out.sort()
