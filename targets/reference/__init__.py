"""The `reference` target: a kernel whose call is the interpreter. It defines what every other target must give."""

from targets.reference.kernel import ReferenceKernel

__all__ = ["ReferenceKernel"]
