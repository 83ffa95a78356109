"""What a reconcile leaves behind for people: its span, and how long it took."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.errors import Conflict
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.outcome import Done
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.span_recorder import SpanRecorder
from support.simulated.loop_cluster import START

pytestmark = pytest.mark.looptime


async def test_a_span_ends_as_its_reconcile_does() -> None:
    spans, story = SpanRecorder(), ReconcileHistory()

    async def reconcile(key: str) -> Done:
        with spans.span("patch"):
            await asyncio.sleep(0.25)
        if key == "slow":
            await asyncio.sleep(60)
        if len(spans.spans) == 2:
            raise Conflict("not yet")
        return Done()

    limits = Limits(workers=1, timeout=5.0)
    controller: Controller[str] = Controller(
        "test", reconcile, LoopClock(START), Metrics(), story, limits, tracer=spans
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        for key in ("k", "slow"):
            controller.wake(key, "test")
            await asyncio.sleep(3)
        controller.stop()
    ended = [(span.name, span.inside, span.failed, span.attributes.get("key")) for span in spans.spans]
    assert ended[:5] == [
        ("reconcile", "", "Conflict", "k"),
        ("patch", "reconcile", "", None),
        ("reconcile", "", "", "k"),
        ("patch", "reconcile", "", None),
        ("reconcile", "", "CancelledError", "slow"),  # its own time limit
    ]
    assert [entry.took for entry in story.of(("test", "k"))] == [0.25, 0.25]
    assert story.of(("test", "slow"))[0].took == 5.0
