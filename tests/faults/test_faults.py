"""Every seeded fault is found by the checks that stand beside it, and these pass on the code as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorir.errors import NestorError
from tests.faults.fault import Fault, seeded
from tests.faults.faults import FAULTS

CHECKS = {getattr(c, "__name__", str(n)): c for n, c in enumerate(c for f in FAULTS for c in f.checks)}


def is_found(fault: Fault) -> bool:
    """Whether a check fails as a test fails or as the compiler's own checks fail; other errors are no finding."""
    with seeded(fault):
        for check in fault.checks:
            try:
                check()
            except (AssertionError, NestorError):
                return True
    return False


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_checks_pass_without_faults(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "_"))
def test_fault_is_found(fault: Fault) -> None:
    assert is_found(fault), f"nothing found: {fault.name}"


def test_there_are_many_faults() -> None:
    assert len(FAULTS) >= 25
    assert len({f.name for f in FAULTS}) == len(FAULTS)
