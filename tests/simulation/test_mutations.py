"""The simulation can find bugs: each safeguard that is taken away is missed within a thousand seeds, most of them within a few."""

from __future__ import annotations

import pytest

from sandpool.simulation.mutations import MUTATIONS, mutated
from sandpool.simulation.run import caught_by

SEEDS = [*range(0, 500), *range(1_000, 1_500)]
"""Two leaders that get one claim two sandboxes, each in time to show its own, are rare: both prefer the same member for it."""


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_is_caught(mutation: str) -> None:
    assert caught_by(mutation, SEEDS) is not None


def test_an_unknown_mutation_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of"), mutated("spelling"):
        pass
