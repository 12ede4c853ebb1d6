"""The error types of the whole house: a user's mistake is not a bug.

A `UserError` says what is wrong, where, why, and what to do; everything else that escapes is an `InternalError`,
which asks for a report.
"""

from __future__ import annotations

import linecache

from tensorir.origin import user_line


class NestorError(Exception):
    """Root of every error that Nestor raises on purpose."""


class UserError(NestorError):
    """A mistake of the user's: one message with what, where, why and what to do.

    `message` is the first line, `notes` are further lines (program text with carets, legal places), `help` is the
    way out.
    """

    def __init__(self, message: str, *, notes: tuple[str, ...] = (), help: str | None = None) -> None:
        self.message = message
        self.notes = notes
        self.help = help
        lines = [message, *self._place(), *notes]
        if help is not None:
            lines.append(f"help: {help}")
        super().__init__("\n".join(lines))

    def _place(self) -> tuple[str, ...]:
        """Lines that say where the mistake stands, for the mistakes of programs."""
        return ()


class ProgramError(UserError):
    """A mistake in a program that the user writes in Python: the message shows the user's own line."""

    def _place(self) -> tuple[str, ...]:
        place = user_line()
        text = "" if place is None else linecache.getline(*place).strip()
        return (f"  at {place[0]}:{place[1]}: {text}",) if place is not None and text else ()


class ExpressionError(ProgramError, TypeError):
    """An expression that cannot be built: wrong dtype, truth value of a symbolic comparison, bad index."""


class ComputeError(ProgramError):
    """A compute declaration that has no meaning: wrong shape, reduction not outermost, read out of bounds."""


class InternalError(NestorError):
    """A fault of Nestor itself: please report it with the text of this message."""
