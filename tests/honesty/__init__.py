"""The honesty test: the last Tensor IR of every kernel, at a small shape, does what its machine code does."""
