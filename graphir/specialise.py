"""Models whose shapes depend on the values of some inputs: compiled for the values that come, kept for the next time.

exe = nt.compile("slice.onnx")            # starts and ends are inputs
exe.run({"x": x, "starts": [1], "ends": [3]})     # compiled here, with starts and ends as constants
exe.run({"x": y, "starts": [1], "ends": [3]})     # runs at once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphir.debugging import StopAt
from graphir.errors import InputError, UnsupportedError
from graphir.executor import Executable, Profile, TensorInfo
from graphir.memory import MemoryReport

KEPT = 32
"""How many sets of values stay compiled; the one not used for longest goes first."""

VALUE_LIMIT = 4096
"""Inputs of more elements than this are not made constants."""


class SpecialisingExecutable(Executable):
    """An executable for each set of values of the inputs in `values_of`, behind one door."""

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        values_of: Sequence[str],
        make: Callable[[Mapping[str, np.ndarray]], Executable],
    ) -> None:
        self._infos = tuple(inputs)
        self._output_infos = tuple(outputs)
        self.values_of = list(values_of)
        self._make = make
        self._made: dict[tuple[Any, ...], Executable] = {}
        self.log = [f"specialise: compiled at the first run for the values of {', '.join(values_of)}"]

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, x)) for x in (self.inputs, self.outputs))
        return f"Executable({inputs} -> {outputs}; compiled for the values of {', '.join(self.values_of)})"

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs in order."""
        return self._infos

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs in order; a dimension that the values decide is "?"."""
        return self._output_infos

    @property
    def memory(self) -> MemoryReport:
        """The memory plan of the values that ran last."""
        return self._last().memory

    def memory_at(self, **sizes: int) -> MemoryReport:
        """The memory plan of the values that ran last, for these values of the symbols."""
        return self._last().memory_at(**sizes)

    def _last(self) -> Executable:
        """What was compiled for the values that ran last."""
        if not self._made:
            raise InputError("nothing is compiled yet", help="run the model once: its shapes depend on input values")
        return next(reversed(self._made.values()))

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], outputs: Any = None) -> list[np.ndarray]:
        """The outputs in graph order; compiles first where the values are new."""
        executable, rest = self.specialised(inputs)
        return executable.run(rest, outputs)

    def debug(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        names: Sequence[str] | None = None,
        *,
        stop_at: StopAt | None = None,
    ) -> dict[str, np.ndarray]:
        """The value of every stored node by name, or of the nodes named."""
        executable, rest = self.specialised(inputs)
        return executable.debug(rest, names, stop_at=stop_at)

    def explain(self, name: str) -> str:
        """What became of a value or node for the values that ran last."""
        return self._last().explain(name)

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any], repeats: int = 5) -> Profile:
        """The time of each kernel."""
        executable, rest = self.specialised(inputs)
        return executable.profile(rest, repeats)

    def save(self, *arguments: Any, **options: Any) -> Any:
        """Refused: what an artifact would hold depends on values."""
        raise UnsupportedError(
            "the shapes of this model depend on the values of inputs, so no one artifact holds it",
            missing={},
            help=f"compile it with params= for {', '.join(self.values_of)}, then save that",
        )

    def specialised(self, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Executable, dict[str, Any]]:
        """The executable for these inputs' values, and the inputs that it takes."""
        given = self._named(inputs)
        while True:
            values = {n: np.asarray(given[n]) for n in self.values_of}
            for name, value in values.items():
                if value.size > VALUE_LIMIT:
                    raise InputError(
                        f"the input {name!r} has {value.size} elements, and shapes depend on its values",
                        help=f"at most {VALUE_LIMIT} are looked at when compiling",
                    )
            key = tuple((n, v.dtype.str, v.shape, v.tobytes()) for n, v in values.items())
            found = self._made.pop(key, None)
            if found is None:
                found = self._make(values)
                if isinstance(found, SpecialisingExecutable):  # these values show that others matter too
                    self.values_of += [n for n in found.values_of if n not in self.values_of]
                    continue
                self.log += found.log
            self._made[key] = found
            if len(self._made) > KEPT:
                self._made.pop(next(iter(self._made)))
            return found, {n: a for n, a in given.items() if n not in values}

    def _named(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        names = [i.name for i in self._infos]
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        elif len(inputs) == len(names):
            given = dict(zip(names, inputs))
        else:
            raise InputError(f"{len(inputs)} inputs are given, the model takes {len(names)}")
        for name in self.values_of:
            if name not in given:
                raise InputError(f"the input {name!r} is missing", help=f"the inputs are {', '.join(names)}")
        return given
