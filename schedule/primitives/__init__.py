"""The schedule primitives, one file each. Importing this package registers them as methods of stages."""

from schedule.primitives import (
    bind,
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    compute_root,
    decompose_reduction,
    fuse,
    parallel,
    pragma,
    prefetch,
    reorder,
    set_scope,
    split,
    tile,
    transform_layout,
    unroll,
    vectorize,
)

__all__ = [
    "bind", "cache_read", "cache_write", "compute_at", "compute_inline", "compute_root", "decompose_reduction", "fuse",
    "parallel", "pragma", "prefetch", "reorder", "set_scope", "split", "tile", "transform_layout", "unroll",
    "vectorize",
]  # fmt: skip
