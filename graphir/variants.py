"""One model compiled for several sets of shapes: a run goes to the first variant that its inputs fit.

save([compile(m, shapes={"x": (1, 3, 224, 224)}), compile(m, shapes={"x": (8, 3, 224, 224)})], "m.nst")
load("m.nst").run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphir.errors import InputError
from graphir.executor import Executable, Profile, TensorInfo

if TYPE_CHECKING:
    import os


class Variants:
    """Executables of one model, tried in order; each shares the others' weights where they are equal."""

    def __init__(self, variants: Sequence[Executable]) -> None:
        self.variants = tuple(variants)

    def __repr__(self) -> str:
        lines = [f"  {v!r}" for v in self.variants]
        return "\n".join([f"Variants of {len(lines)} sets of shapes:", *lines])

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs of the first variant."""
        return self.variants[0].inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of the first variant."""
        return self.variants[0].outputs

    @property
    def threads(self) -> int | None:
        """The most threads of a run."""
        return self.variants[0].threads

    def pick(self, inputs: Mapping[str, Any] | Sequence[Any]) -> Executable:
        """The first variant that the inputs fit. Raises `InputError`: the only reason where all agree on it, else the
        shapes that there are."""
        reasons: dict[str, InputError] = {}
        for variant in self.variants:
            error = variant.refusal(inputs)
            if error is None:
                return variant
            reasons.setdefault(error.message, error)
        if len(reasons) == 1:
            raise next(iter(reasons.values()))
        known = "; ".join(", ".join(map(str, v.inputs)) for v in self.variants)
        raise InputError("the inputs fit none of the shapes that the model was compiled for", help=f"those are {known}")

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], outputs: Any = None) -> list[np.ndarray]:
        """The outputs in graph order: see `Executable.run`."""
        return self.pick(inputs).run(inputs, outputs)

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        return self.run(list(arrays))

    def debug(
        self, inputs: Mapping[str, Any] | Sequence[Any], names: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Stored values by name: see `Executable.debug`."""
        return self.pick(inputs).debug(inputs, names)

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any], repeats: int = 5) -> Profile:
        """The time of each kernel: see `Executable.profile`."""
        return self.pick(inputs).profile(inputs, repeats)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all variants as one artifact."""
        from graphir.artifact import save  # artifacts are made of executables

        save(self.variants, path)
