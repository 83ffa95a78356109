"""A server that is away: one line at first, then counts, and a sum at the end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sandpool.kube.errors import InternalError, Unreachable
from sandpool.loop.outage import EVERY, QUIET, Outage
from support.clocks.manual_clock import ManualClock


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = [(record.message, record.keys) for record in caplog.records]  # type: ignore[attr-defined]
    caplog.clear()
    return found


def test_one_line_however_many_calls_fail(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(clock.monotonic)
    with caplog.at_level(logging.INFO, "sandpool"):
        for _ in range(700):
            outage.failed(Unreachable("no route"))
        assert said(caplog) == [("calls to the API server fail", {"error": "Unreachable: no route"})]
        clock.advance(EVERY)
        for _ in range(20):
            outage.failed(InternalError("etcd"))
        counted = {"error": "InternalError: etcd", "failures": 701, "seconds": EVERY}
        assert said(caplog) == [("calls to the API server still fail", counted)]
        outage.end()
        outage.end()
        assert said(caplog) == [("calls to the API server failed", {"failures": 720, "seconds": EVERY})]
    assert not any(record.exc_info for record in caplog.records)


def test_a_minute_without_a_failure_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(clock.monotonic)
    with caplog.at_level(logging.INFO, "sandpool"):
        outage.failed(Unreachable("a"))
        clock.advance(QUIET + 1)
        outage.failed(Unreachable("b"))
    words = ["calls to the API server fail", "calls to the API server failed", "calls to the API server fail"]
    assert [line for line, _ in said(caplog)] == words
    assert outage.failures == 1
