"""Whether an output is what the suite expects: shape, dtype and values."""

from __future__ import annotations

from typing import Any

import numpy as np

Fault = tuple[str, str]
"""A status (wrong, shape or dtype) and a sentence."""


def compare(expected: Any, actual: Any, rtol: float, atol: float, where: str = "output") -> Fault | None:
    """None where the two are equal within tolerance, integers and strings exactly; NaN equals NaN."""
    if expected is None or actual is None:
        return None if expected is actual else ("wrong", f"{where}: None against a value")
    if isinstance(expected, dict):
        return None if expected == actual else ("wrong", f"{where}: maps differ")
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(expected) != len(actual):
            return ("shape", f"{where}: a sequence of {len(expected)} is expected")
        faults = (compare(e, a, rtol, atol, f"{where}[{n}]") for n, (e, a) in enumerate(zip(expected, actual)))
        return next((f for f in faults if f is not None), None)
    return _compare_arrays(np.asarray(expected), np.asarray(actual), rtol, atol, where)


def _compare_arrays(expected: np.ndarray, actual: np.ndarray, rtol: float, atol: float, where: str) -> Fault | None:
    if expected.shape != actual.shape:
        return ("shape", f"{where}: shape {actual.shape}, expected {expected.shape}")
    if expected.dtype.kind in "OUS" or actual.dtype.kind in "OUS":
        same = _strings(expected) == _strings(actual)
        return None if same else ("wrong", f"{where}: strings differ")
    if expected.dtype != actual.dtype:
        return ("dtype", f"{where}: dtype {actual.dtype}, expected {expected.dtype}")
    if expected.dtype.kind in "biu":
        if np.array_equal(expected, actual):
            return None
        count = int((expected != actual).sum())
        return ("wrong", f"{where}: {count} of {expected.size} integers differ")
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, 2.0**-6)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    good = np.isclose(actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    if good.all():
        return None
    with np.errstate(all="ignore"):
        furthest = np.nanmax(np.abs(actual.astype(wide) - expected.astype(wide)))
    return ("wrong", f"{where}: {int((~good).sum())} of {good.size} differ, by at most {furthest:g}")


def _strings(array: np.ndarray) -> list[str]:
    return [x.decode() if isinstance(x, bytes) else str(x) for x in array.ravel()]
