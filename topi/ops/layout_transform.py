"""The change of a value's layout: the logical tensor stays, its elements are stored in another order."""

from __future__ import annotations

from typing import Any

from tensorir import te
from tensorir.layout import Layout
from tensorir.te import Tensor
from topi.op import op


@op("layout_transform")
def layout_transform(x: Tensor, /, *, layout: Layout) -> Tensor:
    """x stored in `layout`. On logical indices it is the identity; the group's result spec carries the layout."""
    return te.compute(x.shape, lambda *i: x[i], name="layout_transform")


@layout_transform.reference
def _reference(x: Any, *, layout: Layout) -> Any:
    return x


layout_transform.case([(3, 5)], layout=Layout.plain(2))
