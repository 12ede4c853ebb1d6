"""What the commands share: their common options, and the reading of shapes and input files.

`--shape x=1,3,224,224` fixes the shape of an input, `--input x=file.npy` gives its value; inputs without one are drawn
with a seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.status import Status

from tensorir.errors import UserError

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)]
TargetOption = Annotated[str, typer.Option("--target", help="What to compile for, as in 'llvm -mcpu=znver4'.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads a run uses; all cores unless given.", show_default=False)
]
OptLevelOption = Annotated[int, typer.Option("--opt-level", min=0, max=3, help="0 to 3.")]
PrecisionOption = Annotated[str, typer.Option("--precision", help="strict, default or bf16.")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=D,D,...", help="The shape of an input; repeat for more.", show_default=False),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME=FILE.npy", help="The value of an input; repeat for more.", show_default=False
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the inputs that are not given.")]


PIPED_WIDTH = 240
"""Columns of what goes to a file or another program: a row of a table is a line."""


def output_console() -> Console:
    """Standard output: as wide as the terminal, or as wide as rows need."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=PIPED_WIDTH)


def progress_line(text: str) -> Status:
    """A line on standard error that says what goes on, where that is a terminal."""
    return Console(stderr=True, highlight=False).status(text)


class OptionError(UserError):
    """A command-line option that cannot be understood, or does not fit the model."""


def require_file(path: Path) -> Path:
    """The path, which must be a file that can be read."""
    if path.is_dir():
        raise OptionError(f"{path} is a folder, not a model file")
    if not path.is_file():
        raise OptionError(f"there is no file {path}")
    return path


def compile_options(target: str, threads: int | None, shapes: Sequence[str] | None, **others: Any) -> dict[str, Any]:
    """The keyword arguments of `nestor.compile` for the common options; those left out keep its defaults."""
    options: dict[str, Any] = {"target": target, **others}
    if threads is not None:
        options["threads"] = threads
    if shapes:
        options["shapes"] = parse_shapes(shapes)
    return options


def parse_shapes(options: Iterable[str]) -> dict[str, tuple[int | str, ...]]:
    """`["x=1,3,n"]` as `{"x": (1, 3, "n")}`; `x=` is a scalar."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    for option in options:
        name, dims = _name_and_value("--shape", option, "x=1,3,224,224")
        shapes[name] = tuple(_dimension(option, dim.strip()) for dim in dims.split(",")) if dims.strip() else ()
    return shapes


def parse_shape_sets(options: Iterable[str]) -> list[dict[str, tuple[int | str, ...]]]:
    """Several sets of shapes: an input that is given n times has another shape in each of n sets, one that is given
    once has it in all. `["x=1,3", "x=8,3", "s=2"]` is `[{"x": (1, 3), "s": (2,)}, {"x": (8, 3), "s": (2,)}]`."""
    given: dict[str, list[tuple[int | str, ...]]] = {}
    for option in options:
        for name, shape in parse_shapes([option]).items():
            given.setdefault(name, []).append(shape)
    count = max(map(len, given.values()), default=1)
    for name, shapes in given.items():
        if len(shapes) not in (1, count):
            raise OptionError(
                f"--shape {name}: given {len(shapes)} times, but another input {count} times",
                help="give every input one shape, or one for each set",
            )
    return [{name: shapes[min(n, len(shapes) - 1)] for name, shapes in given.items()} for n in range(count)]


def read_inputs(options: Iterable[str]) -> dict[str, np.ndarray]:
    """`["x=file.npy"]` as `{"x": array}`."""
    arrays = {}
    for option in options:
        name, file = _name_and_value("--input", option, "x=file.npy")
        path = require_file(Path(file))
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise OptionError(f"--input {option}: {path} is not a .npy file: {error}") from error
        if not isinstance(arrays[name], np.ndarray):
            raise OptionError(f"--input {option}: {path} holds several arrays; one .npy file holds one input")
    return arrays


def make_inputs(specs: Sequence[Any], given: Mapping[str, np.ndarray], *, seed: int) -> dict[str, np.ndarray]:
    """A value for every input of an executable: the one given, or one drawn with the seed.

    `specs` are the executable's inputs (name, shape, dtype). A first dimension without a size takes that of the given
    inputs with the same symbol, or 1; any other must be given a size. Raises `OptionError` for unknown input names.
    """
    known = {spec.name for spec in specs}
    for name in given:
        if name not in known:
            raise OptionError(
                f"--input {name}: the model has no such input", help=f"its inputs are {', '.join(sorted(known))}"
            )
    sizes: dict[str, int] = {}
    for spec in specs:
        if spec.name in given:
            sizes.update({str(dim): size for dim, size in zip(spec.shape, given[spec.name].shape)})
    rng = np.random.default_rng(seed)
    return {
        spec.name: given[spec.name] if spec.name in given else _draw(rng, spec, _fixed_shape(spec, sizes))
        for spec in specs
    }


def describe(array: np.ndarray) -> str:
    """An array's dtype and shape, as in float32[1,3,224,224]."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _name_and_value(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise OptionError(f"{option} {text}: not of the form NAME=VALUE", help=f"for example {option} {example}")
    return name, value


def _dimension(option: str, text: str) -> int | str:
    if text.isdecimal():
        return int(text)
    if text.isidentifier():
        return text
    raise OptionError(
        f"--shape {option}: {text!r} is no dimension", help="a dimension is a number, or a name for one left open"
    )


def _fixed_shape(spec: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for axis, dim in enumerate(spec.shape):
        size = dim if isinstance(dim, int) else sizes.get(str(dim))
        if size is None and axis == 0:
            size = 1
        if size is None:
            raise OptionError(
                f"input {spec.name}: dimension {axis} ({dim}) has no size, so no value can be drawn for it",
                help=f"give the shape, as in --shape {spec.name}={_example(spec)}, or a value with --input",
            )
        shape.append(size)
    return tuple(shape)


def _example(spec: Any) -> str:
    return ",".join(
        str(dim) if isinstance(dim, int) else "1" if axis == 0 else "32" for axis, dim in enumerate(spec.shape)
    )


def _draw(rng: np.random.Generator, spec: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Seeded values by dtype: standard normal floats, integers 0 and 1, which index anything, either boolean."""
    import ml_dtypes  # noqa: F401  numpy knows bfloat16 by name from here on

    dtype = np.dtype(str(spec.dtype))
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    return np.asarray(rng.standard_normal(shape), dtype)
