"""What a seeded fault is: one small change in one function, undone afterwards.

    with seeded(Fault("unroll skips its last copy", "tensorir.passes.unroll:_Unroller._unrolled",
                      "range(int(extent.value))", "range(int(extent.value) - 1)", checks)):
        ...

The function's source is taken, `old` (which stands in it exactly once) replaced by `new`, compiled in the module of the
function, and its code object exchanged, so that every reference to the function, in tables too, has the fault. The
cache on disk is off meanwhile.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any
from unittest import mock


@dataclass(frozen=True)
class Fault:
    """`place` is module:function, or module:class.method; one of `checks` at least must fail under the fault."""

    name: str
    place: str
    old: str
    new: str
    checks: tuple[Callable[[], None], ...]


def find_function(place: str) -> FunctionType:
    """The function at a place."""
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    found = inspect.unwrap(getattr(found, "__func__", found))
    assert isinstance(found, FunctionType), f"{place} is no function"
    return found


def changed_code(function: FunctionType, old: str, new: str) -> CodeType:
    """The code of the function with `old` replaced by `new`."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__qualname__} holds {old!r} {source.count(old)} times; update the fault"
    flags = __future__.annotations.compiler_flag
    module = compile(source.replace(old, new), f"<fault in {function.__qualname__}>", "exec", flags)
    codes = [c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == function.__name__]
    (code,) = codes
    assert code.co_freevars == function.__code__.co_freevars, f"{function.__qualname__} is a closure"
    return code


@contextmanager
def seeded(fault: Fault) -> Iterator[None]:
    """The code with the fault in it."""
    function = find_function(fault.place)
    right = function.__code__
    wrong = changed_code(function, fault.old, fault.new)
    forget()
    function.__code__ = wrong
    try:
        with mock.patch.dict(os.environ, {"NESTOR_CACHE": "off"}):
            yield
    finally:
        function.__code__ = right
        forget()


def forget() -> None:
    """Clears what the compiler remembers of earlier results."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("tensorir", "schedule", "topi", "graphir"):
            for thing in list(vars(module).values()):
                if isinstance(thing, _CACHED) and thing.__module__ == name and name not in _KEPT:
                    thing.cache_clear()

    compiled = sys.modules.get("graphir.groups")
    if compiled is not None:
        compiled._COMPILED.clear()


_CACHED = type(cache(len))
_KEPT = ("tensorir.dtypes", "tensorir.parser", "topi.registry")
