"""The command `nestor`: its subcommands, and what becomes of an error.

A user's mistake is one readable message on standard error and exit code 2. An internal error is a short message that
asks for a report, with the traceback in a file, and exit code 70; `NESTOR_DEBUG=1` lets the traceback through. A check
that finds a wrong number exits with 1.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import NoReturn

import typer

from nestor.cli.bench import bench
from nestor.cli.cache import cache
from nestor.cli.check import check
from nestor.cli.compile import compile_model
from nestor.cli.demo import demo
from nestor.cli.doctor import doctor
from nestor.cli.ops import ops
from nestor.cli.profile import profile
from nestor.cli.run import run
from nestor.cli.show import show
from tensorir.errors import UserError

EXIT_USER_ERROR = 2
EXIT_INTERNAL_ERROR = 70

app = typer.Typer(
    name="nestor",
    help="A two-level tensor compiler: compile, run and check models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo)
app.command("compile")(compile_model)
app.command("run")(run)
app.command("check")(check)
app.command("bench")(bench)
app.command("profile")(profile)
app.command("show")(show)
app.command("ops")(ops)
app.command("doctor")(doctor)
app.add_typer(cache, name="cache")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line; leaves with its exit code."""
    try:
        app(args=list(arguments) if arguments is not None else None)
    except UserError as error:
        print(f"nestor: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has left: `nestor show m.onnx | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("NESTOR_DEBUG"):
            raise
        print(_report_request(error), file=sys.stderr)
        sys.exit(EXIT_INTERNAL_ERROR)
    sys.exit(0)


def _report_request(error: Exception) -> str:
    """Writes the traceback with the versions to a file; the text that asks for it to be sent."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="nestor-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as report:
        print("command:", *sys.argv, file=report)
        print("python:", sys.version.replace("\n", " "), "on", platform.platform(), file=report)
        for package in ("nestor-compiler", "numpy", "llvmlite", "onnx"):
            print(f"{package}: {_version(package)}", file=report)
        report.write("".join(traceback.format_exception(error)))
    first_line = str(error).partition("\n")[0] or "no message"
    return (
        f"nestor: internal error: {type(error).__name__}: {first_line}\n"
        "This is a fault of Nestor, not yours. Please report it with the file\n"
        f"  {report.name}\n"
        "NESTOR_DEBUG=1 prints the traceback here."
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
