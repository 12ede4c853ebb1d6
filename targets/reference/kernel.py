"""A program behind the interface of a kernel, run by the interpreter."""

from __future__ import annotations

import numpy as np

from tensorir.interpreter import compile_program, interpret
from tensorir.stmt import Func


class ReferenceKernel:
    """`kernel(*arrays)` runs `func` on one array a parameter, outputs last and written in place.

    `mode` is "plain" or "checked" (accesses out of bounds, undefined reads and races raise).
    """

    def __init__(self, func: Func, *, mode: str = "plain") -> None:
        self.func = func
        self.mode = mode

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.func.name

    @property
    def python(self) -> str:
        """The Python source that the interpreter runs."""
        return compile_program(self.func, self.mode == "checked").source

    def __call__(self, *arrays: np.ndarray) -> None:
        interpret(self.func, arrays, mode=self.mode)
