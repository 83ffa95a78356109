"""What `sandpool load` chooses by itself, and how it ends: with 1 if a claim failed, with 0 if claims only waited."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.cli import load as load_command
from sandpool.cli.exits import Exit
from sandpool.cli.main import run
from sandpool.load.counts import Counts
from sandpool.load.machine import conditions
from sandpool.load.record import ClaimRecord
from sandpool.load.run import Outcome, Plan
from sandpool.load.summary import Used, summarise

SERVED = ClaimRecord(name="a", sent=0.0, answered=0.1, ready=0.2)
UNSENT = ClaimRecord(name="b", turned_away=True)
TOLD = ClaimRecord(name="c", sent=0.1, throttled=2, turned_away=True)
UNANSWERED = ClaimRecord(name="d", sent=0.1, error="create: no answer in time")


@pytest.mark.parametrize(
    ("records", "code"), [([SERVED, UNSENT, TOLD], 0), ([SERVED, UNSENT, UNANSWERED], 1)], ids=["waited", "failed"]
)
def test_a_claim_that_only_waited_is_no_failure(
    records: list[ClaimRecord], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    around = {**conditions(), "cluster": "x", "backend": None, "durable": None, "note": ""}
    found: dict[str, Any] = {**summarise(records, Counts(), Used(0.0)), "conditions": around, "left_behind": []}
    monkeypatch.setattr(load_command, "measure", lambda *_: Outcome(found, records))
    assert run(["load", "rate", "--fresh", "--rate", "5", "--for", "1s"]) == code
    told = capsys.readouterr()
    assert "1 of 3 ready" in told.out
    assert "1 of them were not sent" in told.out
    assert ("1 of 3 claims failed" in told.err) is bool(code)


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        (("rate", "--rate", "10"), 100),
        (("rate", "--rate", "250"), 500),
        (("rate", "--rate", "2500"), 1000),
        (("poisson", "--rate", "2500"), 1000),
        (("ramp", "--start", "800"), 1000),
        (("rate", "--rate", "2500", "--pool-size", "5000"), 5000),
    ],
)
def test_a_rate_past_capacity_does_not_make_the_pool_larger(
    flags: tuple[str, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []

    def noted(where: Any, plan: Plan, quiet: bool) -> Outcome:
        chosen.append(plan.settings.wanted.size)
        raise Exit(1, "enough")

    monkeypatch.setattr(load_command, "measure", noted)
    assert run(["load", flags[0], "--fresh", *flags[1:]]) == 1
    assert chosen == [size]
