"""A cache runs behind its server: what the next news may change waits for it, and not for longer."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.base.clock import LoopClock
from sandpool.loop.cache import Cache
from sandpool.model.kinds import SANDBOXES
from sandpool.model.sandbox import Sandbox
from sandpool.router.directory import Directory
from support.clocks.manual_clock import START, ManualClock
from support.network.gate_parts import POOL, GateParts, a_sandbox, admitted, refused

pytestmark = pytest.mark.looptime


async def test_a_claim_that_was_just_bound_is_waited_for() -> None:
    clock = LoopClock(START)
    parts = GateParts(a_sandbox(owner=POOL), patience=2.0, clock=clock)
    asked = asyncio.create_task(parts.ask())
    await asyncio.sleep(0.5)
    parts.becomes(a_sandbox(owner=POOL, revision=2))  # news, but not the news
    await asyncio.sleep(0.5)
    parts.becomes(a_sandbox(revision=3))
    assert admitted(await asked).target.name == "box"
    assert clock.monotonic() == pytest.approx(1.0)


async def test_what_does_not_come_is_not_waited_for_longer() -> None:
    clock = LoopClock(START)
    parts = GateParts(a_sandbox(owner=POOL), patience=2.0, clock=clock)
    assert refused(await parts.ask()).body["code"] == "NOT_CLAIMED"
    assert refused(await parts.ask(sandbox="absent")).body["code"] == "NOT_FOUND"
    assert clock.monotonic() == pytest.approx(4.0)


async def test_what_is_final_is_told_at_once() -> None:
    clock = LoopClock(START)
    gone = {"type": "Finished", "status": "True", "reason": "PodFailed", "message": ""}
    parts = GateParts(a_sandbox(conditions=(gone,)), patience=2.0, clock=clock)
    assert refused(await parts.ask()).status == 410
    assert clock.monotonic() == 0


async def test_one_cache_for_each_namespace() -> None:
    caches: dict[str, Cache[Sandbox]] = {name: Cache(SANDBOXES) for name in ("red", "blue", "late")}
    caches["red"].replace([a_sandbox(namespace="red")], a_sandbox().metadata.revision)
    caches["blue"].replace([], a_sandbox().metadata.revision)
    directory = Directory(caches, ManualClock())
    assert (directory.holds("red"), directory.holds("blue"), directory.holds("green")) == (True, False, False)

    async def found(namespace: str) -> object:
        key = a_sandbox(namespace=namespace).metadata.key
        return await directory.judged(key, lambda sandbox: sandbox)

    assert await found("red") == a_sandbox(namespace="red")
    assert await found("blue") is None
    assert await found("green") is None
    assert getattr(await found("late"), "status", None) == 503
