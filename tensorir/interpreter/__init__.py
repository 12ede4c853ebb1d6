"""The interpreter: the meaning of a Tensor IR program at any stage, compiled to Python source.

interpret(func, [a, b, c])                     # runs it; outputs are written in place
interpret(func, [a, b, c], mode="checked")     # also finds bad accesses, undefined reads and races
"""

from tensorir.interpreter.compiler import Program, compile_program
from tensorir.interpreter.memory import SanitizerError
from tensorir.interpreter.run import evaluate, interpret

__all__ = ["Program", "SanitizerError", "compile_program", "evaluate", "interpret"]
