"""Random computes: small chains of stages over random types, shapes, index maps, operations and reductions.

    outputs, dims = random_program(random.Random(7))

Every stage reads the one before it and perhaps others and fresh inputs, by shifted, strided, reversed, divided, summed,
guarded and loaded indices. Every expression has a meaning for all values, so any schedule must keep the bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tensorir import te
from tensorir.dtypes import DType, dtype_of
from tensorir.expr import Expr, Var, const

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 20, 33)
FLOATS = ("float32",) * 8 + ("float16", "bfloat16", "float64")
INTEGERS = ("int32",) * 3 + ("int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64")
LARGEST = 240

Size = int | Var
Axis = tuple[Any, Size]  # an index and its extent


def random_program(rng: random.Random) -> tuple[list[te.Tensor], dict[Var, int]]:
    """The outputs of a random program, and the sizes of its symbols."""
    return _Maker(rng).program()


def _fits(shape: Sequence[Size], most: int = LARGEST) -> bool:
    return prod(s if isinstance(s, int) else 8 for s in shape) <= most


class _Maker:
    """Makes one program; `n` is the symbolic first dimension of all tensors, if there is one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.n = te.var("n") if rng.random() < 0.15 else None
        self.made: list[te.Tensor] = []
        self.inputs: list[te.Tensor] = []
        self.count = 0
        self.sizes = rng.sample(SIZES, 4)
        self.dtypes = [rng.choice(FLOATS if rng.random() < 0.65 else INTEGERS) for _ in range(2)]
        self.axes: list[Axis] = []

    def program(self) -> tuple[list[te.Tensor], dict[Var, int]]:
        for number in range(self.rng.choice((1, 2, 2, 3, 3, 4))):
            self.stage(number)
        outputs = [self.made[-1]]
        others = [t for t in self.made[:-1] if isinstance(t.op, te.ComputeOp) and t.op is not self.made[-1].op]
        if others and self.rng.random() < 0.1:
            outputs.append(self.rng.choice(others))
        return outputs, {} if self.n is None else {self.n: self.rng.choice((1, 2, 5, 7, 8, 17))}

    def shape(self) -> tuple[Size, ...]:
        """A new shape, or that of an earlier tensor with its axes exchanged."""
        rng = self.rng
        known = [t for t in self.made if t.shape]
        if known and rng.random() < 0.5:
            sizes: list[Size] = [self.size(s) for s in rng.choice(known).shape]
            first = 1 if self.n is not None else 0
            return (*sizes[:first], *rng.sample(sizes[first:], len(sizes) - first))
        while True:
            shape: tuple[Size, ...] = tuple(rng.choice(self.sizes) for _ in range(rng.choice((1, 1, 2, 2, 2, 3))))
            if self.n is not None:
                shape = (self.n, *shape[1:])
            if _fits(shape):
                return shape

    def size(self, extent: Expr) -> Size:
        return self.n if extent is self.n and self.n is not None else int(extent.value)  # type: ignore[attr-defined]

    def stage(self, number: int) -> None:
        rng = self.rng
        shape = self.shape()
        dtype = dtype_of(rng.choice(self.dtypes))
        before = self.made[-1] if self.made else None
        kind = rng.choices(("plain", "reduce", "two", "argmax"), (60, 32, 5, 3))[0]
        ks: list[te.IterVar] = []
        if kind in ("reduce", "argmax"):
            for name in ("r", "q")[: 1 if kind == "argmax" else rng.choice((1, 1, 2))]:
                extent = rng.choice([z for z in SIZES if _fits((*shape, z), 1500)])
                ks.append(te.reduce_axis(extent, f"{name}{number}"))

        def at(indices: Sequence[Expr]) -> None:
            self.axes = [*zip(indices, shape), *((k.var, int(k.extent.value)) for k in ks)]  # type: ignore[attr-defined]

        def body(*indices: Expr) -> Any:
            at(indices)
            first = None if before is None else self.cast(self.read(before), dtype)
            if kind == "plain":
                return self.whole(dtype, first)
            if kind == "two":
                return self.whole(dtype, first), self.whole(dtype_of(rng.choice(self.dtypes)), None)
            if kind == "argmax":
                return te.argmax(ks[0], self.whole(dtype, first), axis=ks[0])
            return self.reduction(dtype, first, tuple(ks))

        names = "ijlm"[: len(shape)]
        function = eval(f"lambda {', '.join(names)}: body({', '.join(names)})", {"body": body})  # named indices
        made = te.compute(shape, function, name=f"T{number}")
        self.made += made if isinstance(made, tuple) else [made]

    def reduction(self, dtype: DType, first: Expr | None, ks: tuple[te.IterVar, ...]) -> Expr:
        rng = self.rng
        if dtype.is_bool or rng.random() < 0.05:
            fold = rng.choice((te.all, te.any))
            return fold(self.condition(dtype), axis=ks)  # type: ignore[no-any-return]
        how = rng.choices((te.sum, te.max, te.min, te.prod), (60, 15, 15, 10))[0]
        value = self.whole(dtype, first)
        if how is te.sum and rng.random() < 0.7:
            value = self.leaf(dtype, first) * self.leaf(dtype)
        where = self.condition(dtype) if rng.random() < 0.06 else None
        return how(value, axis=ks, where=where)

    # ------------------------------------------------------------------------------------------------------ expressions

    def whole(self, dtype: DType, first: Expr | None) -> Expr:
        """An expression that holds `first`."""
        depth = self.rng.choice((0, 1, 1, 2, 2, 3))
        if first is None:
            return self.expr(dtype, depth)
        return first if depth == 0 else self.operation(dtype, first, depth - 1)

    def expr(self, dtype: DType, depth: int) -> Expr:
        if depth == 0 or self.rng.random() < 0.15:
            return self.leaf(dtype)
        return self.operation(dtype, self.expr(dtype, depth - 1), depth - 1)

    def leaf(self, dtype: DType, first: Expr | None = None) -> Expr:
        """A read, a constant, or an index."""
        rng = self.rng
        if first is not None:
            return first
        draw = rng.random()
        if draw < 0.1:
            return const(rng.choice((0, 1, 2, 3, 5, 7)), dtype)
        if draw < 0.15 and self.axes:
            return self.cast(rng.choice(self.axes)[0], dtype)
        if draw < 0.5 and self.made:
            return self.cast(self.read(rng.choice(self.made)), dtype)
        inputs = [t for t in self.inputs if t.dtype is dtype]
        if inputs and rng.random() < 0.5:
            return self.read(rng.choice(inputs))
        return self.read(self.input(dtype))

    def input(self, dtype: DType) -> te.Tensor:
        """A new placeholder, mostly of a shape that fits the indices at hand."""
        rng = self.rng
        extents = [e for _, e in self.axes if isinstance(e, int)]
        chosen = rng.sample(extents, min(len(extents), rng.choice((1, 2, 2, 3))))
        shape: list[Size] = [e + rng.choice((0, 0, 0, 1, 3)) for e in chosen] or [rng.choice(self.sizes)]
        while not _fits(shape, 600):
            shape.pop()
        if self.n is not None and rng.random() < 0.7:
            shape[0] = self.n
        self.count += 1
        self.inputs.append(te.placeholder(tuple(shape or [3]), str(dtype), name=f"X{self.count}"))
        return self.inputs[-1]

    def cast(self, value: Expr, dtype: DType) -> Expr:
        return value if value.dtype is dtype else te.cast(value, dtype)

    def operation(self, dtype: DType, a: Expr, depth: int) -> Expr:
        """One operation on `a`."""
        rng = self.rng

        def b() -> Expr:
            return self.expr(dtype, depth)

        if rng.random() < 0.1:
            pair = (a, b()) if rng.random() < 0.5 else (b(), a)
            return te.select(self.condition(dtype, depth), *pair)
        if rng.random() < 0.06:
            other = dtype_of(rng.choice(FLOATS + INTEGERS))
            return self.cast(self.cast(a, other), dtype)
        both: dict[str, Callable[[], Expr]] = {
            "add": lambda: a + b(),
            "sub": lambda: a - b(),
            "mul": lambda: a * b(),
            "min": lambda: te.minimum(a, b()),
            "max": lambda: te.maximum(b(), a),
            "rsub": lambda: b() - a,
        }
        floats: dict[str, Callable[[], Expr]] = {
            "div": lambda: a / b(),
            "neg": lambda: -a,
            "abs": lambda: te.abs(a),
            "sqrt": lambda: te.sqrt(te.abs(a)),
            "exp": lambda: te.exp(te.minimum(a, const(3, dtype))),
            "tanh": lambda: te.tanh(a),
            "floor": lambda: te.floor(a),
            "multiply_add": lambda: te.fma(a, self.leaf(dtype), self.leaf(dtype)),
        }
        divisor = const(rng.choice((1, 2, 3, 4, 7, 8, -3, -4) if dtype.kind == "int" else (1, 2, 3, 4, 7, 8)), dtype)
        integers: dict[str, Callable[[], Expr]] = {
            "floordiv": lambda: te.floordiv(a, divisor),
            "floormod": lambda: te.floormod(a, divisor),
            "truncdiv": lambda: te.truncdiv(a, divisor),
            "truncmod": lambda: te.truncmod(a, divisor),
            "floordiv_by": lambda: te.floordiv(a, b()),
            "floormod_by": lambda: te.floormod(a, b()),
            "and": lambda: a & b(),
            "or": lambda: a | b(),
            "xor": lambda: a ^ b(),
            "left": lambda: a << const(rng.choice((0, 1, 3, 5)), dtype),
            "right": lambda: a >> const(rng.choice((0, 1, 3, 5)), dtype),
            "right_by": lambda: a >> b(),
        }
        mine = floats if dtype.is_float else integers
        table = both if rng.random() < 0.6 else mine
        return table[rng.choice(list(table))]()

    def condition(self, dtype: DType, depth: int = 0) -> Expr:
        """A comparison of values or of indices."""
        rng = self.rng
        if self.axes and rng.random() < 0.5:
            index, extent = rng.choice(self.axes)
            limit = rng.randint(0, extent) if isinstance(extent, int) else extent - rng.randint(0, 2)
            made = rng.choice((index < limit, index >= limit, te.equal(index, limit)))
        else:
            a, b = self.expr(dtype, depth), self.expr(dtype, depth)
            made = rng.choice((te.less, te.less_equal, te.equal, te.not_equal))(a, b)
        return te.logical_not(made) if rng.random() < 0.15 else made

    # ------------------------------------------------------------------------------------------------------------ reads

    def read(self, tensor: te.Tensor) -> Expr:
        """The element of a tensor at random indices inside it; now and then guarded and shifted beyond its ends."""
        rng = self.rng
        indices: list[Any] = []
        guards: list[Expr] = []
        free = list(self.axes)
        rng.shuffle(free)
        for extent in tensor.shape:
            size = self.size(extent)
            if not isinstance(size, int):
                indices.append(self.symbolic_index())
                continue
            if size >= 3 and rng.random() < 0.03:
                indices.append(self.loaded_index())
                continue
            index, guarded = self.index(free, size)
            indices.append(index)
            if guarded:
                guards += [index >= 0, index < size]
        value = tensor(*indices)
        if guards:
            return te.if_then_else(te.all(*guards), value, const(rng.choice((0, 1)), tensor.dtype))
        return value

    def symbolic_index(self) -> Any:
        mine = [i for i, e in self.axes if e is self.n]
        if not mine:
            return const(0, "int64") if self.n is None else self.n - 1
        return mine[0] if self.rng.random() < 0.8 else self.n - 1 - mine[0]  # type: ignore[operator]

    def loaded_index(self) -> Any:
        """An index that is loaded; the values of such an input lie in 0..3."""
        known = [(i, e) for i, e in self.axes if isinstance(e, int)]
        if not known:
            return const(0, "int64")
        index, extent = self.rng.choice(known)
        self.count += 1
        return te.cast(te.placeholder((extent,), "int32", name=f"at{self.count}")[index], "int64")

    def index(self, free: list[Axis], size: int) -> tuple[Any, bool]:
        """An index into `size` elements, and whether it may leave them."""
        rng = self.rng
        known = [n for n, (_, e) in enumerate(free) if isinstance(e, int)]
        if not known or rng.random() < 0.05:
            return const(rng.randrange(size), "int64"), False
        exact = [n for n in known if free[n][1] == size]
        index, extent = free.pop(rng.choice(exact) if exact and rng.random() < 0.7 else rng.choice(known))
        if rng.random() < 0.12:
            return index - rng.choice((0, 1, 2)) + rng.choice((0, 1)), True
        forms: list[Callable[[], Any]] = []
        if extent <= size:
            offset = rng.randint(0, size - extent)
            forms += [lambda: index + offset] * 5 + [lambda: size - 1 - offset - index]
        for step in (2, 3):
            if extent > 1 and step * (extent - 1) < size:
                forms.append(lambda step=step: step * index)
            if (extent - 1) // step < size:
                forms.append(lambda step=step: index // step)
            if step <= size:
                forms.append(lambda step=step: index % step)
        for other, e in free:
            if isinstance(e, int) and extent + e - 2 < size:
                forms += [lambda other=other: index + other] * 2
                break
        if not forms:
            return index % size, False
        return rng.choice(forms)(), False
