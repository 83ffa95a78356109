"""Electors and the event recorder against real servers, in real time, with short terms."""

from __future__ import annotations

import asyncio
import random

import pytest

from conformance.bodies import sandbox
from sandpool.base.clock import SystemClock
from sandpool.kube.api import Api
from sandpool.loop.errors import LeadershipLost
from sandpool.loop.events import EventRecorder, Kind
from sandpool.loop.lease import Elector, Terms
from sandpool.model.kinds import EVENTS, LEASES, SANDBOXES
from sandpool.model.metadata import Key
from sandpool.telemetry.metrics import Metrics
from support.network.loop_proxy import Proxy
from support.simulated.loop_follow import following

TERMS = Terms(duration=2.0, renew=1.5, retry=0.1)


def an_elector(api: Api, ns: str, identity: str) -> Elector:
    return Elector(
        api, SystemClock(), Metrics(), random.random, name="sandpool", namespace=ns, identity=identity, terms=TERMS
    )


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_acquire_renew_steal_and_release(api: Api, ns: str) -> None:
    one, two = an_elector(api, ns, "one"), an_elector(api, ns, "two")
    key = Key(ns, "sandpool")
    async with following(api, LEASES, ns) as follow:

        def holder() -> str | None:
            lease = follow.cache.get(key)
            return None if lease is None else lease.spec.holder_identity

        await one.acquire()
        assert one.leading
        holding, waiting = asyncio.create_task(one.hold()), asyncio.create_task(two.acquire())
        await follow.until(lambda: len(follow.steps) >= 4)  # made, then renewed three times
        assert holder() == "one"
        assert not waiting.done()

        await ended(holding)  # crashed: the other must wait for the lease to run out
        await waiting
        assert two.leading
        assert not one.leading
        await follow.until(lambda: holder() == "two")

        waiting = asyncio.create_task(one.acquire())
        await two.release()
        await waiting
        assert one.leading
        assert not two.leading
        lease = await api.get(LEASES, "sandpool", ns)
        assert lease.spec.holder_identity == "one"
        assert lease.spec.lease_transitions == 2
        await one.release()


async def test_a_holder_who_is_cut_off_loses_the_lease_before_another_gets_it(
    api: Api, cuttable: Api, proxy: Proxy, ns: str
) -> None:
    one, two = an_elector(cuttable, ns, "one"), an_elector(api, ns, "two")
    await one.acquire()
    waiting = asyncio.create_task(two.acquire())
    await proxy.shut()
    with pytest.raises(LeadershipLost):
        await one.hold()
    assert not two.leading
    await waiting
    assert two.leading
    await proxy.open()
    await two.release()


async def test_of_three_that_start_together_one_leads(api: Api, ns: str) -> None:
    electors = [an_elector(api, ns, f"e{n}") for n in range(3)]
    tasks = [asyncio.create_task(elector.acquire()) for elector in electors]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [elector.leading for elector in electors].count(True) == 1
    for task in tasks:
        await ended(task)


async def test_the_recorder_counts_what_repeats(api: Api, ns: str) -> None:
    about = await api.create(SANDBOXES, sandbox("a"), ns)
    recorder = EventRecorder(
        api, SystemClock(), Metrics(), random.random, controller="sandpool.dev/test", instance="one"
    )
    task = asyncio.create_task(recorder.run())
    async with following(api, EVENTS, ns) as follow:

        def counts() -> dict[str | None, int | None]:
            return {event.message: event.count for event in follow.cache}

        recorder.emit(SANDBOXES, about, Kind.NORMAL, "Bound", "bound to x", "Bind")
        await follow.until(lambda: counts() == {"bound to x": 1})
        recorder.emit(SANDBOXES, about, Kind.NORMAL, "Bound", "bound to x", "Bind")
        recorder.emit(SANDBOXES, about, Kind.NORMAL, "Bound", "bound to x", "Bind")
        await follow.until(lambda: counts() == {"bound to x": 3})
        recorder.emit(SANDBOXES, about, Kind.WARNING, "Failed", "no room", "Start")
        await follow.until(lambda: counts() == {"bound to x": 3, "no room": 1})
        (event,) = [event for event in follow.cache if event.message == "no room"]
        assert event.involved_object.uid == about.metadata.uid
        assert (event.type, event.reason) == ("Warning", "Failed")
    await ended(task)
