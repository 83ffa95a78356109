from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.errors import ConfigError, Unavailable
from sandpool.loop.events import EventRecorder, Kind, NullEvents, Restraint
from sandpool.model.core import ConfigMap, Event
from sandpool.model.kinds import CONFIG_MAPS, EVENTS
from sandpool.telemetry.metrics import Metrics
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, put

pytestmark = pytest.mark.looptime


class Desk:
    def __init__(self, api: FlakyApi, about: ConfigMap, restraint: Restraint) -> None:
        self.api = api
        self.about = about
        self.metrics = Metrics()
        self.recorder = EventRecorder(
            api,
            LoopClock(START),
            self.metrics,
            random.Random(1).random,
            controller="sandpool/test",
            instance="one",
            restraint=restraint,
        )

    def emit(self, message: str = "Bound to sandbox x", about: ConfigMap | None = None) -> None:
        self.recorder.emit(CONFIG_MAPS, about or self.about, Kind.NORMAL, "Bound", message, "Bind")

    async def events(self) -> list[Event]:
        return list((await self.api.list(EVENTS, "default")).items)

    def count(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value("sandpool_events_total", {"outcome": outcome})


@asynccontextmanager
async def a_desk(restraint: Restraint = Restraint()) -> AsyncIterator[Desk]:
    async with a_cluster() as api:
        desk = Desk(api, await put(api, "a"), restraint)
        task = asyncio.create_task(desk.recorder.run())
        try:
            yield desk
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_an_event_says_what_about_whom() -> None:
    async with a_desk() as desk:
        desk.emit()
        await asyncio.sleep(1)
        (event,) = await desk.events()
        assert (event.type, event.reason, event.message, event.action) == (
            "Normal", "Bound", "Bound to sandbox x", "Bind",
        )  # fmt: skip
        assert event.involved_object.kind == "ConfigMap"
        assert event.involved_object.uid == desk.about.metadata.uid
        assert event.involved_object.namespace == "default"
        assert (event.reporting_component, event.reporting_instance) == ("sandpool/test", "one")
        assert event.count == 1
        assert event.first_timestamp == event.last_timestamp == START
        assert event.metadata.name.startswith("a.")


async def test_repetitions_raise_a_count_on_one_event() -> None:
    async with a_desk() as desk:
        for _ in range(5):
            desk.emit()  # five at once: one write
        await asyncio.sleep(60)
        desk.emit()
        await asyncio.sleep(1)
        (event,) = await desk.events()
        assert event.count == 6
        assert event.last_timestamp == START + timedelta(seconds=60)
        assert (desk.count("created"), desk.count("counted")) == (1, 1)
        assert desk.api.calls.count("create events") == 1


async def test_a_repetition_much_later_is_news_again() -> None:
    async with a_desk(Restraint(same_for=600)) as desk:
        desk.emit()
        await asyncio.sleep(601)
        desk.emit()
        await asyncio.sleep(1)
        assert [event.count for event in await desk.events()] == [1, 1]


async def test_an_event_that_expired_on_the_server_is_created_anew() -> None:
    async with a_desk() as desk:
        desk.emit()
        await asyncio.sleep(1)
        (event,) = await desk.events()
        await desk.api.delete(EVENTS, event.metadata.name, "default")
        desk.emit()
        await asyncio.sleep(1)
        assert [event.count for event in await desk.events()] == [1]


async def test_each_object_has_its_own_limit() -> None:
    async with a_desk(Restraint(burst=3)) as desk:
        other = await put(desk.api, "b")
        for n in range(10):
            desk.emit(f"message {n}")
        desk.emit("quiet", about=other)
        await asyncio.sleep(1)
        assert len(await desk.events()) == 4
        assert desk.count("limited") == 7
        await asyncio.sleep(300)
        desk.emit("later")
        await asyncio.sleep(1)
        assert len(await desk.events()) == 5


async def test_a_failing_server_costs_events_not_reconciles() -> None:
    async with a_desk(Restraint(waiting=5, burst=100)) as desk:

        async def down(verb: str, plural: str) -> None:
            if plural == "events" and verb == "create":
                raise Unavailable("down")

        desk.api.before = down
        for n in range(8):
            desk.emit(f"message {n}")
        assert desk.count("dropped") == 3
        await asyncio.sleep(1)
        assert desk.count("failed") == 5


async def test_a_server_that_hangs_does_not_stop_the_next_event() -> None:
    async with a_desk(Restraint(timeout=10)) as desk:
        hangs = [True]

        async def hang(verb: str, plural: str) -> None:
            if verb == "create" and hangs:
                hangs.pop()
                await asyncio.Event().wait()

        desk.api.before = hang
        desk.emit("first")
        desk.emit("second")
        await asyncio.sleep(11)
        assert [event.message for event in await desk.events()] == ["second"]


async def test_flush_writes_what_waits_but_not_for_ever() -> None:
    async with a_cluster() as api:
        desk = Desk(api, await put(api, "a"), Restraint())
        desk.emit("last words")
        await desk.recorder.flush(5)
        assert [event.message for event in await desk.events()] == ["last words"]

        async def hang(verb: str, plural: str) -> None:
            await asyncio.Event().wait()

        api.before = hang
        desk.emit("too late")
        desk.emit("too late as well")
        await desk.recorder.flush(5)
        assert asyncio.get_running_loop().time() == 5


async def test_null_events_do_nothing() -> None:
    async with a_cluster() as api:
        about = await put(api, "a")
        NullEvents().emit(CONFIG_MAPS, about, Kind.WARNING, "R", "m")
        assert "create events" not in api.calls


async def test_credentials_that_cannot_be_renewed_now_do_not_end_it() -> None:
    async with a_desk() as desk:

        async def fail(verb: str, plural: str) -> None:
            raise ConfigError("exec plugin login: failed with exit code 1; run it by hand")

        desk.api.before = fail
        desk.emit()
        await asyncio.sleep(1)
        assert desk.count("failed") == 1
