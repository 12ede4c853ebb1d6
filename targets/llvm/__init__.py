"""The CPU backend: Tensor IR to LLVM IR, and the runtime that compiles, loads and runs it."""
