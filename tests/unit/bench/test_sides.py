"""Who gets which load and which flags on Kubernetes: the same, where they mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.contenders import FLOOR, GO, GO_DEFAULTS, TITLES
from bench.kube import BURST, BURSTS, OVERLOAD, Size
from bench.scenarios import FULL, plain
from bench.sides import OUR_FLAGS, SHIPPED_FLAGS, TUNED_FLAGS, definitions_of
from bench.standard import scenarios

from kube import build
from sandpool.load.series import OURS
from support.kube.server import CRDS


@pytest.mark.parametrize("side", TITLES)
def test_every_side_has_its_loads(side: str) -> None:
    expected = {OURS: [BURST, BURSTS, OVERLOAD], GO: [BURST, BURSTS], GO_DEFAULTS: [BURST], FLOOR: []}
    assert list(Size().scenarios_of(side)) == expected[side]


def test_bursts_wait_for_a_full_pool_on_every_side() -> None:
    assert Size().scenarios()[BURSTS].load[-2:] == ("--every", "full")
    assert Size().title(BURSTS) == "5 bursts of 300, each on a full pool of 600"


@pytest.mark.parametrize("flags", [OUR_FLAGS, TUNED_FLAGS, SHIPPED_FLAGS])
def test_nobody_can_lose_a_lease(flags: tuple[str, ...]) -> None:
    assert "--leader-elect=false" in flags


def test_the_go_controller_has_the_flags_of_its_own_guide() -> None:
    """200, 150 and 2 workers, and its connections; ours have the same workers."""
    workers = {flag for flag in TUNED_FLAGS if "-workers=" in flag}
    assert {flag.rpartition("=")[2] for flag in workers} == {"200", "150", "2"}
    assert workers == {flag for flag in OUR_FLAGS if "-workers=" in flag}
    assert {"--api-connections=4", "--separate-watch-connection=true"} <= set(TUNED_FLAGS)


def test_everybody_has_definitions_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert definitions_of(OURS) == definitions_of(FLOOR) == CRDS
    with pytest.raises(FileNotFoundError, match=r"run `python tests/kube/build.py agent-sandbox-controller`"):
        definitions_of(GO)
    built = build.cache_folder() / f"agent-sandbox-crds-{build.AGENT_SANDBOX}"
    built.mkdir(parents=True)
    assert definitions_of(GO) == definitions_of(GO_DEFAULTS) == built


def test_the_standard_set_measures_everything_often_enough() -> None:
    repeats = {each.name: each.repeats for each in scenarios(FULL)}
    assert repeats == {
        **dict.fromkeys([each.name for each in plain(FULL)], 5),
        **{"local-burst-real": 3, "local-pool-10000": 3},
        **{"local-refill": 5, "local-refill-real": 3, "local-rollout": 3, "local-memory": 2, "local-rate": 2},
        **{"local-overload": 2, "local-overload-real": 2},
    }
    assert len(repeats) == 17
