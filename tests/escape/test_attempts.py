"""Each attempt fails in a sandbox; and succeeds without one, or the test would prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from escape.conftest import ROOT, RUNS, Lines, Run
from support.escape.backends import BACKENDS
from support.escape.hostile import ATTEMPTS, Attempt
from support.escape.scenarios import SCENARIOS

PLAIN = [pytest.param(run, marks=run.marks, id=run.id) for run in RUNS if not run.isolates]


def outcome(lines: Lines, name: str) -> dict[str, Any]:
    found = [line for line in lines if line.get("attempt") == name]
    assert found, f"it was never tried: {lines[-1]}"
    return found[0]


def capable(number: int) -> bool:
    """Whether this process, and so what it starts, has a capability."""
    status = Path("/proc/self/status").read_text()
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(held, 16) >> number & 1)


HELD = [
    pytest.param(run, name, marks=run.marks, id=f"{run.id}-{name}")
    for run in RUNS
    if run.isolates
    for name, one in ATTEMPTS.items()
    if BACKENDS[run.backend].tries(own_kernel_only=one.only_own_kernel)
]


@pytest.mark.parametrize(("run", "name"), HELD)
def test_it_is_held(run: Run, name: str, lines: Lines) -> None:
    """What a kernel of the sandbox's own says to an attempt on a kernel is no evidence; what happens outside is."""
    said = outcome(lines, name)
    assert said["outside"] == ""
    assert not said.get("broken"), said["why"]
    if not (ATTEMPTS[name].own_kernel and BACKENDS[run.backend].own_kernel):
        assert said["escaped"] == ""


@pytest.mark.parametrize("name", [name for name, one in ATTEMPTS.items() if not one.elsewhere])
@pytest.mark.parametrize("run", PLAIN)
def test_without_isolation_it_succeeds(run: Run, name: str, lines: Lines) -> None:
    one, said = ATTEMPTS[name], outcome(lines, name)
    assert not said.get("broken"), said["why"]
    if said["escaped"] or said["outside"]:
        return
    if said.get("absent"):
        pytest.skip(f"not on this machine: {said['why']}")
    _excused(one)
    pytest.fail(f"it was held without isolation: {said['why']}")


def _excused(one: Attempt) -> None:
    if one.privileged and not ROOT:
        pytest.skip("without isolation only root succeeds")
    if one.capability is not None and not capable(one.capability):
        pytest.skip(f"on this machine root has not capability {one.capability}")


def test_what_is_not_tried_without_isolation_is_proven_otherwise() -> None:
    for one in ATTEMPTS.values():
        assert not one.elsewhere or any(name in one.elsewhere for name in (*SCENARIOS, "the other calls")), one.name
