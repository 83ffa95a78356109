"""What the controller of a cluster tells on its loopback address."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from sandpool.model.metadata import Key
from sandpool.telemetry.pages import HISTORY_PATH, history_pages
from sandpool.telemetry.reconcile_history import Entry, ReconcileHistory


async def test_a_story_is_told_by_controller_and_key() -> None:
    story = ReconcileHistory()
    story.record(("claim", Key("n", "x")), Entry(datetime(2026, 1, 1, tzinfo=UTC), "r1", "new", "wrote", "done", 0.5))
    told = history_pages(story)[HISTORY_PATH]
    page = await told({"namespace": "n", "controller": "claim", "name": "x"})
    assert (page.status, page.content_type) == (200, "application/json")
    body = msgspec.json.decode(page.body)
    assert [(one["rid"], one["plan"], one["seconds"]) for one in body["entries"]] == [("r1", "wrote", 0.5)]
    other = await told({"namespace": "other", "controller": "claim", "name": "x"})
    assert msgspec.json.decode(other.body)["entries"] == []


async def test_who_asks_wrongly_is_told_how() -> None:
    told = history_pages(ReconcileHistory())[HISTORY_PATH]
    for query in ({}, {"namespace": "n", "controller": "kubelet", "name": "x"}, {"namespace": "n", "name": "x"}):
        page = await told(query)
        assert page.status == 400
        assert b"/stories?namespace=N&controller=C&name=X" in page.body
