"""The schedule primitives, one file each. Importing this package registers them as methods of stages."""

from schedule.primitives import (
    async_copy,
    bind,
    blockize,
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    compute_root,
    decompose_reduction,
    double_buffer,
    fuse,
    pad_dimension,
    parallel,
    partition,
    pragma,
    prefetch,
    reorder,
    reverse_compute_at,
    reverse_compute_inline,
    rfactor,
    set_scope,
    split,
    storage_align,
    tensorize,
    tile,
    transform_layout,
    unroll,
    vectorize,
)

__all__ = [
    "async_copy", "bind", "blockize", "cache_read", "cache_write", "compute_at", "compute_inline", "compute_root",
    "decompose_reduction", "double_buffer", "fuse", "pad_dimension", "parallel", "partition", "pragma", "prefetch",
    "reorder", "reverse_compute_at", "reverse_compute_inline", "rfactor", "set_scope", "split", "storage_align",
    "tensorize", "tile", "transform_layout", "unroll", "vectorize",
]  # fmt: skip
