"""Tensor IR: types, expressions, statements, the compute language, arithmetic, passes and the interpreter."""
