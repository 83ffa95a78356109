"""A pod says which of its limits this machine does not hold."""

from __future__ import annotations

import pytest

from sandpool.node.runtimes.contract import Limits, without


@pytest.mark.parametrize(
    ("limits", "held", "missing"),
    [
        (Limits(), (), []),
        (Limits(cpu=1, memory=2), ("cpu", "memory"), []),
        (Limits(cpu=1, memory=2), (), ["cpu", "memory"]),
        (Limits(memory=2), ("cpu",), ["memory"]),
        (Limits(cpu=0.5), ("memory",), ["cpu"]),
    ],
)
def test_what_is_asked_for_and_not_held(limits: Limits, held: tuple[str, ...], missing: list[str]) -> None:
    assert without(limits, held) == missing
