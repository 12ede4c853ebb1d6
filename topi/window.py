"""Sliding windows: the size, stride, dilation and padding arithmetic shared by convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorir.arith import simplify
from tensorir.expr import Const, Expr, as_expr, floordiv
from topi.op import OpError

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A window over spatial axes: kernel, strides, dilations, padding before and after, and the result's extents."""

    kernel: tuple[Expr, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Expr, ...]
    after: tuple[Expr, ...]
    result: tuple[Expr, ...]

    def input_index(self, axis: int, out: Expr, tap: Expr) -> Expr:
        """Input position (before padding is taken off: may be negative) of kernel element `tap` for result `out`."""
        return out * self.strides[axis] + tap * self.dilations[axis] - self.before[axis]


def _spread(values: Sequence[int] | None, rank: int, default: int, what: str, name: str) -> tuple[int, ...]:
    result = (default,) * rank if values is None or len(values) == 0 else tuple(int(v) for v in values)
    if len(result) != rank:
        raise OpError(f"{name}: {what} has {len(result)} values for {rank} spatial axes")
    return result


def make_window(
    name: str, extents: Sequence[Expr], kernel: Sequence[Expr], *, strides: Sequence[int] | None,
    dilations: Sequence[int] | None, padding: Sequence[int] | None, auto_pad: str = "NOTSET", ceil_mode: bool = False,
) -> Window:  # fmt: skip
    """The window for input extents. `padding` is (begin of each axis..., end of each axis...), ONNX's order. The result
    is floor((in + p0 + p1 - d*(k-1) - 1) / s) + 1 an axis (ceil with `ceil_mode`, a last window must start inside)."""
    rank = len(extents)
    s = _spread(strides, rank, 1, "strides", name)
    d = _spread(dilations, rank, 1, "dilations", name)
    if min(s + d, default=1) < 1:
        raise OpError(f"{name}: strides {s} and dilations {d} must be positive")
    pads = _spread(padding, 2 * rank, 0, "padding", name)
    if auto_pad not in AUTO_PADS:
        raise OpError(f"{name}: unknown auto_pad {auto_pad!r}", help=f"known values are {', '.join(AUTO_PADS)}")
    before: list[Expr] = []
    after: list[Expr] = []
    result: list[Expr] = []
    for axis in range(rank):
        reach = simplify((kernel[axis] - 1) * d[axis] + 1)
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            out = simplify(floordiv(extents[axis] + (s[axis] - 1), s[axis]))
            missing = simplify((out - 1) * s[axis] + reach - extents[axis])
            total = as_expr(max(0, int(missing.value))) if isinstance(missing, Const) else _at_least_zero(missing)
            small = simplify(floordiv(total, 2))
            large = simplify(total - small)
            low, high = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        else:
            low, high = as_expr(pads[axis]), as_expr(pads[rank + axis])
            if auto_pad == "VALID":
                low, high = as_expr(0), as_expr(0)
            room = simplify(extents[axis] + low + high - reach)
            if isinstance(room, Const) and room.value < 0:
                raise OpError(
                    f"{name}: spatial axis {axis}: the window reaches over {reach!r} elements, the padded input has "
                    f"{simplify(extents[axis] + low + high)!r}"
                )
            out = simplify(floordiv(room + (s[axis] - 1 if ceil_mode else 0), s[axis]) + 1)
            if ceil_mode and isinstance(out, Const) and isinstance(extents[axis], Const):
                if (int(out.value) - 1) * s[axis] >= int(_value(extents[axis])) + int(_value(low)):
                    out = as_expr(int(out.value) - 1)
        before.append(low)
        after.append(high)
        result.append(out)
    return Window(tuple(kernel), s, d, tuple(before), tuple(after), tuple(result))


def _value(e: Expr) -> int:
    return int(e.value) if isinstance(e, Const) else 0


def _at_least_zero(e: Expr) -> Expr:
    from tensorir.expr import const, maximum

    return simplify(maximum(e, const(0)))


def is_padded(window: Window) -> bool:
    """True unless no axis has padding."""
    return not all(isinstance(p, Const) and p.value == 0 for p in (*window.before, *window.after))


def inside(window: Window, axis: int, index: Expr, extent: Expr) -> list[Expr]:
    """The conditions under which an input index lies in the input: none where padding cannot reach."""
    conditions: list[Expr] = []
    if not (isinstance(window.before[axis], Const) and window.before[axis].value == 0):  # type: ignore[attr-defined]
        conditions.append(index >= 0)
    reach = (window.result[axis] - 1) * window.strides[axis] + (window.kernel[axis] - 1) * window.dilations[axis]
    last = simplify(reach - window.before[axis])
    if not (isinstance(last, Const) and isinstance(extent, Const) and last.value < extent.value):
        conditions.append(index < extent)
    return conditions
