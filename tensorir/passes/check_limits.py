"""Refuses what a device cannot run, by the names of the loops and buffers that ask too much.

Threads of a block and along each axis, blocks along each axis, bytes of shared memory; and what every device needs:
block axes that do not depend on threads, shared and local memory of a known size.
"""

from __future__ import annotations

from tensorir.expr import Const
from tensorir.passes.thread_axes import ThreadError, literal, map_kernels, peel_axes
from tensorir.stmt import Allocate, For, Func, Stmt
from tensorir.target import Target
from tensorir.visit import walk_stmt

MAX_BLOCKS = {"blockIdx.x": (1 << 31) - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
MAX_THREADS_Z = 64


class LimitError(ThreadError):
    """A kernel that asks for more than a device has."""


def check_limits(func: Func, target: Target) -> Func:
    """`func` itself. Raises `LimitError`."""

    def kernel(s: Stmt) -> Stmt:
        axes, body = peel_axes(s)
        _check_axes(axes, target)
        _check_memory(body, target)
        return s

    map_kernels(func.body, kernel)
    return func


def require_grid(sizes: tuple[int, int, int], name: str) -> None:
    """Raises `LimitError` for a grid too large for CUDA devices; for extents known only at a call."""
    for axis, size in zip("xyz", sizes, strict=True):
        most = MAX_BLOCKS[f"blockIdx.{axis}"]
        if size > most:
            raise LimitError(
                f"{name}: {size} blocks along blockIdx.{axis}, the most is {most}",
                help="bind the long loop to blockIdx.x, which takes 2147483647",
            )


def _check_axes(axes: tuple[For, ...], target: Target) -> None:
    total = 1
    threads = []
    for axis in axes:
        size = literal(axis.extent)
        tag = axis.thread or ""
        if tag in MAX_BLOCKS:
            if size is not None and size > MAX_BLOCKS[tag]:
                raise LimitError(
                    f"the loop {axis.var.name} is bound to {tag} and runs over {size} blocks,"
                    f" the most is {MAX_BLOCKS[tag]}",
                    help="bind it to blockIdx.x, which takes 2147483647",
                )
            continue
        if size is None:
            raise LimitError(
                f"the loop {axis.var.name} is bound to {tag} and runs to {axis.extent!r}, which is not a constant",
                help=f"split it by a constant and bind the inner loop to {tag}",
            )
        if tag == "threadIdx.z" and size > MAX_THREADS_Z:
            raise LimitError(
                f"the loop {axis.var.name} is bound to {tag} and runs over {size} threads, the most is {MAX_THREADS_Z}",
                help="bind it to threadIdx.x, or split it",
            )
        total *= size
        threads.append(f"{axis.var.name} ({tag}, {size})")
    if total > target.max_threads:
        raise LimitError(
            f"a block has {total} threads, {' x '.join(threads)}, but {target} takes {target.max_threads}",
            help="split one of these loops by a smaller factor",
        )


def _check_memory(body: Stmt, target: Target) -> None:
    total = 0
    parts = []
    for s in walk_stmt(body):
        if not isinstance(s, Allocate):
            continue
        size = 1
        for extent in s.buffer.shape:
            if not isinstance(extent, Const):
                raise LimitError(
                    f"{s.buffer.name} in {s.buffer.scope} memory has {extent!r} elements, which is not a constant",
                    help="split the loop that it is computed at by a constant, or keep it in global memory at root",
                )
            size *= int(extent.value)
        if s.buffer.scope == "shared":
            total += size * s.buffer.dtype.nbytes
            parts.append(f"{s.buffer.name} {size * s.buffer.dtype.nbytes}")
    if total > target.shared_bytes:
        raise LimitError(
            f"a block needs {total} bytes of shared memory ({', '.join(parts)}),"
            f" but {target} has {target.shared_bytes}",
            help="use smaller tiles",
        )
