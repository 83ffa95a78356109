"""How `sandpool load` ends: with 1 if a claim failed, with 0 if claims only waited."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.cli import load_run
from sandpool.cli.main import run
from sandpool.load.counts import Counts
from sandpool.load.machine import conditions
from sandpool.load.record import ClaimRecord
from sandpool.load.run import Outcome
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
    monkeypatch.setattr(load_run, "_run", lambda *_: Outcome(found, records))
    assert run(["load", "rate", "--fresh", "--rate", "5", "--for", "1s"]) == code
    told = capsys.readouterr()
    assert "1 of 3 ready" in told.out
    assert "1 of them were not sent" in told.out
    assert ("1 of 3 claims failed" in told.err) is bool(code)
