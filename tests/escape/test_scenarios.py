"""Attempts that are driven from outside, by theme; and what a whole run leaves behind, which is nothing."""

from __future__ import annotations

import pytest

from escape.conftest import RUNS, Lines, Run
from support.escape.backends import BACKENDS, ONLY_OWN_KERNEL
from support.escape.scenarios import SCENARIOS

PLAYED = [
    pytest.param(run, name, marks=run.marks, id=f"{run.id}-{name}")
    for run in RUNS
    if run.isolates
    for name in SCENARIOS
    if BACKENDS[run.backend].plays(name)
]
ALL = [pytest.param(run, marks=run.marks, id=run.id) for run in RUNS]


@pytest.mark.parametrize(("run", "name"), PLAYED)
def test_nobody_gets_out(run: Run, name: str, lines: Lines) -> None:
    found = [line for line in lines if line.get("scenario") == name]
    assert found, f"it never ran: {lines[-1]}"
    assert found[0]["wrong"] == ""


@pytest.mark.parametrize("run", ALL)
def test_nothing_is_left(run: Run, lines: Lines) -> None:
    """Of the pods, while the backend still runs, to the exact count; and of everything, when it has ended."""
    assert [line["wrong"] for line in lines if "census" in line] == [""]
    assert lines[-1]["end"] == 0, lines[-1]["said"]
    assert lines[-1]["left"] == []


def test_what_is_left_out_is_known() -> None:
    """A scenario that is not played somewhere is one that there is; and each kind of kernel has its own."""
    for kind in BACKENDS.values():
        assert kind.without.keys() <= SCENARIOS.keys()
    assert set(ONLY_OWN_KERNEL) <= SCENARIOS.keys()
