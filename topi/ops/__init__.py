"""One file an op, or a table a family."""
