"""Integer arithmetic: canonical forms, bounds, proofs, regions."""

from tensorir.arith.analyzer import Analyzer, simplify
from tensorir.arith.interval import Interval

__all__ = ["Analyzer", "Interval", "simplify"]
