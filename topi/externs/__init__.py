"""Bodies of opaque ops, compiled by numba and called from generated code by the name "topi.externs.file:function"."""
