"""The sanitiser reports nothing in the scheduled program of any op: every small case, all that may be parallel so."""

from __future__ import annotations

import pytest

from tensorir.interpreter import interpret
from tensorir.te import create_func
from tests.topi.test_ops import TARGET, computed, iterations, operands, poisoned, spec_of_call
from topi import schedules
from topi.group import compose, lower_group
from topi.registry import all_ops

SMALL = 1500
"""The most iterations of a case that runs here."""


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_scheduled_ops_are_clean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "HAND_OFF", 0)
    op = all_ops()[name]
    for case in op.cases:
        inputs, outputs = computed(op, case)
        if iterations(create_func([*inputs, *outputs])) > SMALL:
            continue
        func = lower_group(compose(spec_of_call(op, case, inputs, outputs), TARGET), TARGET, None)
        arrays = [a for a in operands(op, case) if a is not None]
        interpret(func, [*arrays, *(poisoned(t) for t in outputs)], mode="checked", complete=True)
