"""Who gets which load and which flags on Kubernetes: the same, where they mean the same."""

from __future__ import annotations

import pytest
from bench.contenders import FLOOR, GO, GO_DEFAULTS, TITLES
from bench.kube import BURST, BURSTS, OVERLOAD, Size
from bench.scenarios import FULL, plain
from bench.series import OURS
from bench.sides import SHARED_FLAGS, SHIPPED_FLAGS
from bench.standard import parts


@pytest.mark.parametrize("side", TITLES)
def test_every_side_has_its_loads(side: str) -> None:
    expected = {OURS: [BURST, BURSTS, OVERLOAD], GO: [BURST, BURSTS], GO_DEFAULTS: [BURST], FLOOR: []}
    assert list(Size().loads_of(side)) == expected[side]


def test_bursts_wait_for_a_full_pool_on_every_side() -> None:
    assert Size().loads()[BURSTS][-2:] == ("--every", "full")
    assert Size().title(BURSTS) == "5 bursts of 300, each on a full pool of 600"


@pytest.mark.parametrize("flags", [SHARED_FLAGS, SHIPPED_FLAGS])
def test_nobody_can_lose_a_lease(flags: tuple[str, ...]) -> None:
    assert "--leader-elect=false" in flags


def test_the_standard_set_measures_everything_often_enough() -> None:
    repeats = {part.name: part.repeats for part in parts(FULL)}
    assert repeats == {
        **dict.fromkeys([each.name for each in plain(FULL)], 5),
        **{"local-burst-real": 3, "local-pool-10000": 3},
        **{"local-refill": 5, "local-refill-real": 3, "local-rollout": 3, "local-memory": 2, "local-rate": 2},
        **{"local-overload": 2, "local-overload-real": 2},
    }
    assert len(repeats) == 17
