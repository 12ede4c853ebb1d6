"""The command line: one file a command, `options` for what they share, `app` for how they are called."""

from nestor.cli.app import main

__all__ = ["main"]
