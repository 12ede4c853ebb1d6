"""What a lesson is: a schedule with its arguments, what it must compute, and the lines that had to change, if any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LESSONS: list[Lesson] = []


@dataclass(frozen=True, slots=True)
class Made:
    """A lesson carried out: the schedule, its arguments (inputs, then outputs), the numpy meaning of the outputs."""

    schedule: Any
    args: Sequence[Any]
    reference: Callable[..., Any]
    low: float = -1.0
    high: float = 1.0
    tolerance: float = 1e-4


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson: its function, and pairs (line as in TE, line here); none where only the imports differ."""

    name: str
    make: Callable[[], Made]
    changed: tuple[tuple[str, str], ...] = ()


def lesson(*changed: tuple[str, str]) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Decorator: registers a lesson with the lines that differ from TE's spelling."""

    def register(function: Callable[[], Made]) -> Callable[[], Made]:
        LESSONS.append(Lesson(function.__name__, function, changed))
        return function

    return register
