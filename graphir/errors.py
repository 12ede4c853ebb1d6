"""Mistakes that a user of Graph IR can make, each a sentence with what, where, why and the way out."""

from __future__ import annotations

from tensorir.errors import UserError


class GraphError(UserError):
    """A graph that is not well formed, or a node that cannot be what it says."""


class ShapeError(GraphError):
    """Operands that do not fit: names the node, the op, the operand shapes and the original name."""


class ModelError(UserError):
    """A model file that cannot be read."""


class UnsupportedError(UserError):
    """Operators of a model that Nestor lacks, all at once; `missing` maps each to the names of its nodes. `inputs` are
    the inputs of the model whose values would have to be known."""

    def __init__(
        self, message: str, *, missing: dict[str, list[str]], help: str | None = None, inputs: tuple[str, ...] = ()
    ) -> None:
        self.missing = missing
        self.inputs = inputs
        notes = tuple(
            f"  {op}: {', '.join(nodes[:5])}{', ...' if len(nodes) > 5 else ''}" for op, nodes in missing.items()
        )
        super().__init__(message, notes=notes, help=help)


class InputError(UserError):
    """An array handed to an executable that does not fit the model's input or output; names it."""


class NonFiniteError(UserError):
    """A run stopped at a node that makes a NaN or an infinity of finite inputs: `node` is its name, `index` where."""

    def __init__(self, message: str, *, notes: tuple[str, ...], node: str, index: tuple[int, ...]) -> None:
        self.node = node
        self.index = index
        super().__init__(message, notes=notes)


class FallbackWarning(UserWarning):
    """A kernel that could not be built as chosen and runs by a slower program. Where speed is promised make it an
    error: `warnings.simplefilter("error", nestor.FallbackWarning)`."""


class PassError(UserError):
    """A pass asked for by a name that does not exist, or used wrongly."""
