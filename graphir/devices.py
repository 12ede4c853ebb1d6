"""What an executable keeps on a device, and what a run owns there.

Constants are put on the device at their first use and stay. A run has one buffer, the device's arena, and hands parts
of it to kernels; nothing travels but what the plan copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from targets.build import open_driver
from tensorir.target import Target


@dataclass(frozen=True, slots=True)
class Span:
    """`nbytes` bytes from `start` on of a buffer of a device."""

    buffer: Any
    start: int
    nbytes: int


class DeviceMemory:
    """The constants of an executable on one device, and the device's driver; opened at the first use."""

    def __init__(self, target: Target, constants: Sequence[np.ndarray]) -> None:
        self.target = target
        self._host = constants
        self._constants: dict[int, Any] = {}

    @cached_property
    def driver(self) -> Any:
        """The driver of the device. Raises `UserError` if no device is here."""
        return open_driver(self.target)

    def constant(self, number: int) -> Any:
        """The buffer of a constant, which is put on the device the first time."""
        made = self._constants.get(number)
        if made is None:
            data = self._host[number]
            made = self.driver.allocate(data.nbytes)
            self.driver.upload(made, data)
            self._constants[number] = made
        return made

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants that are on the device."""
        return sum(self._host[n].nbytes for n in self._constants)


class DeviceFrame:
    """What one run in flight owns on a device: its arena, and the parts of it that kernels were given."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.arena: Any = None
        self.nbytes = -1
        self._parts: dict[tuple[int, int], Any] = {}

    def grow(self, nbytes: int) -> None:
        """An arena of at least this size."""
        if nbytes > self.nbytes:
            self._parts.clear()
            self.arena = self.memory.driver.allocate(nbytes)
            self.nbytes = nbytes

    def poison(self) -> None:
        """NaN in every float of the arena, so that a read before a write shows."""
        self.memory.driver.upload(self.arena, np.full(self.nbytes, 0xFF, np.uint8))

    def argument(self, span: Span) -> Any:
        """What a kernel is given for a span that starts where one may."""
        if span.buffer is not self.arena:
            return span.buffer if not span.start else self.memory.driver.part(span.buffer, span.start, span.nbytes)
        key = (span.start, span.nbytes)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self.memory.driver.part(self.arena, span.start, span.nbytes)
        return part

    def is_aligned(self, span: Span) -> bool:
        """False for a span that no kernel can be given: a slice that starts anywhere."""
        return span.start % self.memory.driver.alignment == 0

    def copy(self, target: Span, source: Span, nbytes: int) -> None:
        """From one place of the device to another."""
        self.memory.driver.copy(target.buffer, target.start, source.buffer, source.start, nbytes)

    def aside(self, span: Span) -> Span:
        """Memory of its own as large as a span."""
        return Span(self.memory.driver.allocate(span.nbytes), 0, span.nbytes)

    def upload(self, span: Span, data: np.ndarray) -> None:
        """Bytes of the host to a span."""
        self.memory.driver.upload(span.buffer, data, span.start)

    def download(self, data: np.ndarray, span: Span) -> None:
        """A span to bytes of the host; waits."""
        self.memory.driver.download(data, span.buffer, span.start)
