"""Events are deleted an hour after they were last reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from sandpool.base.clock import LoopClock
from sandpool.controlplane.event_expiry import EACH, EventExpiry, last_reported
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Deleted
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import Unavailable
from sandpool.model import kinds
from sandpool.model.times import micro, seconds
from support.api.local_objects import START, Bench
from support.api.local_parts import running

pytestmark = pytest.mark.looptime


async def world() -> tuple[Bench, LoopClock]:
    store = await Store.open(MemoryLog())
    clock = LoopClock(START)
    uids = iter(range(1, 1000))
    b = Bench(store, Objects(store, clock.now, lambda: f"uid-{next(uids)}"))
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
    return b, clock


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, **fields}


async def test_after_an_hour() -> None:
    b, clock = await world()
    async with running(EventExpiry(b.store, b.objects, clock)):
        await b.create(kinds.EVENTS, event("first"))
        await clock.sleep(1800)
        await b.create(kinds.EVENTS, event("second"))
        await clock.sleep(1799)
        assert b.names_of(kinds.EVENTS) == ["first", "second"]
        await clock.sleep(62)
        assert b.names_of(kinds.EVENTS) == ["second"]
        await clock.sleep(1800)
        assert b.names_of(kinds.EVENTS) == []
    await b.store.close()


async def test_told_again_lives_longer() -> None:
    b, clock = await world()
    async with running(EventExpiry(b.store, b.objects, clock)):
        await b.create(kinds.EVENTS, event("e"))
        await clock.sleep(3000)
        await b.patch(kinds.EVENTS, "e", {"count": 2, "lastTimestamp": seconds(clock.now())})
        await clock.sleep(3500)
        assert b.names_of(kinds.EVENTS) == ["e"]
        await clock.sleep(200)
        assert b.names_of(kinds.EVENTS) == []
    await b.store.close()


async def test_what_was_there_before_the_start() -> None:
    b, clock = await world()
    await b.create(kinds.EVENTS, event("old"))
    await clock.sleep(5000)
    await b.create(kinds.EVENTS, event("new"))
    async with running(EventExpiry(b.store, b.objects, clock)):
        await clock.sleep(1)
        assert b.names_of(kinds.EVENTS) == ["new"]
    await b.store.close()


async def test_own_lifetime_and_many() -> None:
    b, clock = await world()
    async with running(EventExpiry(b.store, b.objects, clock, timedelta(seconds=10))):
        for index in range(700):
            await b.create(kinds.EVENTS, event(f"e{index}"))
        await clock.sleep(9)
        assert len(b.names_of(kinds.EVENTS)) == 700
        await clock.sleep(2)
        assert b.names_of(kinds.EVENTS) == []
    await b.store.close()


async def test_other_kinds_stay() -> None:
    b, clock = await world()
    async with running(EventExpiry(b.store, b.objects, clock)):
        await b.create(kinds.CONFIG_MAPS, {"metadata": {"name": "c"}})
        await clock.sleep(10_000)
        assert b.names_of(kinds.CONFIG_MAPS) == ["c"]
    await b.store.close()


async def test_too_much_room_goes_to_the_oldest_of_the_fullest_namespace() -> None:
    """An hour of a busy tenant is more than memory should hold, and no reason to drop the Events of another."""
    b, clock = await world()
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "quiet"}})
    async with running(EventExpiry(b.store, b.objects, clock, most=100_000)):
        quiet = event("q") | {"involvedObject": {"namespace": "quiet"}}
        await b.create(kinds.EVENTS, quiet, namespace="quiet")
        for number in range(900):
            await b.create(kinds.EVENTS, event(f"e{number:04}", message="x" * 500))
            await clock.sleep(1)
        assert b.store.get("core/events/quiet/q") is not None
        kept = b.names_of(kinds.EVENTS)
        assert kept == [f"e{number:04}" for number in range(900 - len(kept), 900)]
        size = sum(len(record.value) + EACH for record in b.store.scan("core/events/").records)
        assert 90_000 <= size <= 100_000 * 9 / 8 + 2000
    await b.store.close()


async def test_events_that_finalizers_hold_are_not_deleted_again_and_again() -> None:
    """They stay, so there was too much forever: every new Event of anybody was followed by a delete of each of them."""
    b, clock = await world()
    delete, deletes = b.objects.delete, 0

    async def counting(*arguments: Any, **named: Any) -> Deleted:
        nonlocal deletes
        deletes += 1
        return await delete(*arguments, **named)

    b.objects.delete = counting  # type: ignore[method-assign]
    async with running(EventExpiry(b.store, b.objects, clock, most=100_000)):
        for number in range(300):
            held = event(f"e{number:04}", message="x" * 500)
            held["metadata"]["finalizers"] = ["example.com/stay"]
            await b.create(kinds.EVENTS, held)
            await clock.sleep(1)
        for number in range(50):
            await b.create(kinds.EVENTS, event(f"f{number:04}"))
            await clock.sleep(1)
        assert len(b.names_of(kinds.EVENTS)) == 350
    assert deletes <= 350
    await b.store.close()


async def test_room_is_made_again_when_the_disk_takes_deletes_again() -> None:
    b, clock = await world()
    for number in range(400):
        await b.create(kinds.EVENTS, event(f"e{number:04}", message="x" * 500))
    delete, refused = b.objects.delete, 0

    async def full(*arguments: Any, **named: Any) -> Deleted:
        nonlocal refused
        refused += 1
        if refused <= 300:
            raise Unavailable("the disk is full")
        return await delete(*arguments, **named)

    b.objects.delete = full  # type: ignore[method-assign]
    async with running(EventExpiry(b.store, b.objects, clock, most=100_000)):
        await clock.sleep(30)
        assert sum(len(record.value) + EACH for record in b.store.scan("core/events/").records) <= 100_000 * 9 / 8
        assert b.names_of(kinds.EVENTS)[-1] == "e0399"
    await b.store.close()


def test_last_told() -> None:
    def reported(**fields: str) -> str:
        parts = {"metadata": f'{{"creationTimestamp":"{seconds(START)}"}}', **fields}
        text = ",".join(f'"{key}":{value}' for key, value in parts.items())
        return seconds(last_reported(f"{{{text}}}".encode(), START + timedelta(hours=10)))

    later = START + timedelta(hours=2)
    assert reported() == seconds(START)
    assert reported(lastTimestamp=f'"{seconds(later)}"') == seconds(later)
    assert reported(eventTime=f'"{micro(later)}"', lastTimestamp="null") == seconds(later)
    assert reported(series=f'{{"count":2,"lastObservedTime":"{micro(later)}"}}') == seconds(later)
    future = seconds(START + timedelta(hours=99))
    assert reported(lastTimestamp=f'"{future}"') == seconds(START + timedelta(hours=10))


async def test_told_often_is_scheduled_once() -> None:
    b, clock = await world()
    expiry = EventExpiry(b.store, b.objects, clock)
    async with running(expiry):
        await b.create(kinds.EVENTS, event("e"))
        for count in range(2, 300):
            await b.patch(kinds.EVENTS, "e", {"count": count, "lastTimestamp": seconds(clock.now())})
        await clock.sleep(1)
        assert len(expiry.due) == 1
    await b.store.close()


async def test_events_that_others_delete_leave_the_schedule() -> None:
    b, clock = await world()
    expiry = EventExpiry(b.store, b.objects, clock)
    async with running(expiry):
        for number in range(900):
            await b.create(kinds.EVENTS, event(f"e{number}"))
            await b.delete(kinds.EVENTS, f"e{number}")
        await clock.sleep(1)
        assert len(expiry.due) < 600
        await b.create(kinds.EVENTS, event("last"))
        await clock.sleep(3700)
        assert b.names_of(kinds.EVENTS) == []
    await b.store.close()


async def test_long_overdue_and_the_disk_is_full() -> None:
    """Tried again after a while, not again and again: its time was up hours ago."""
    b, clock = await world()
    await b.create(kinds.EVENTS, event("e"))
    await clock.sleep(5 * 3600)
    attempts = 0
    delete = b.objects.delete

    async def refused(*arguments: Any, **named: Any) -> Deleted:
        nonlocal attempts
        attempts += 1
        if attempts <= 5:
            raise Unavailable("the disk is full")
        return await delete(*arguments, **named)

    b.objects.delete = refused  # type: ignore[method-assign]
    async with running(EventExpiry(b.store, b.objects, clock)):
        await clock.sleep(12)
        assert attempts == 3
        await clock.sleep(60)
        assert b.names_of(kinds.EVENTS) == []
    await b.store.close()


def test_a_time_that_cannot_be_read_counts_from_the_creation() -> None:
    """Such Events are refused now; a store may still hold one."""
    value = msgspec.json.encode(
        {"metadata": {"creationTimestamp": seconds(START)}, "lastTimestamp": "2020-02-30T00:00:00Z"}
    )
    assert last_reported(value, START + timedelta(hours=5)) == START
