"""The controllers under seeded faults: some seeds always, many more in the long suite."""

from __future__ import annotations

import pytest

from sandpool.simulation.faults import Fault
from sandpool.simulation.run import ENOUGH, run_many, run_seed

ALWAYS = range(0, 12)
LONG = [*range(12, 200), *range(1_000, 3_000)]


@pytest.mark.parametrize("chunk", range(0, len(ALWAYS), 6))
def test_no_invariant_is_violated(chunk: int) -> None:
    summary = run_many(ALWAYS[chunk : chunk + 6])
    assert summary.passed, "\n".join(f"seed {seed}\n{story}" for seed, story in summary.reports.items())


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(0, len(LONG), 300))
def test_no_invariant_is_violated_in_many_more(chunk: int) -> None:
    summary = run_many(LONG[chunk : chunk + 300])
    assert summary.passed, "\n".join(f"seed {seed}\n{story}" for seed, story in summary.reports.items())


@pytest.mark.long
def test_every_kind_of_fault_strikes() -> None:
    """Small runs suffice to see that none is switched off."""
    struck: set[str] = set()
    for seed in range(5_000, 5_000 + ENOUGH):
        struck |= set(run_seed(seed).counts)
        if struck >= {fault.value for fault in Fault}:
            return
    pytest.fail(f"never struck: {sorted({fault.value for fault in Fault} - struck)}")
