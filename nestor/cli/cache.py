"""`nestor cache info|clear`: what the on-disk cache of kernels and models holds, and emptying it."""

from __future__ import annotations

import typer

from nestor.cli.options import OptionError

cache = typer.Typer(help="The on-disk cache of kernels and models.", no_args_is_help=True)


@cache.command()
def info() -> None:
    """Say where the cache is and what it holds."""
    from graphir.cache import user_cache

    found = user_cache()
    typer.echo("the cache is off: see NESTOR_CACHE" if found is None else str(found.info()))


@cache.command()
def clear() -> None:
    """Remove every entry."""
    from graphir.cache import user_cache

    found = user_cache()
    if found is None:
        raise OptionError("the cache is off", help="NESTOR_CACHE names its folder")
    typer.echo(f"{found.clear()} files removed from {found.folder}")
