"""Claims past capacity on one machine: what is told of a wait, how much is written for it, and who has to come back later."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from sandpool.app.controllers import ControllerOptions, Workers
from sandpool.cli.history import STORIES, HistoryEntry, RelatedObject, related_objects, text, timeline
from sandpool.controllers.claim.backlog import Bounds
from sandpool.controllers.claim.options import Options
from sandpool.kube.errors import TooManyRequests
from sandpool.model.codec import to_json
from sandpool.model.conditions import find
from sandpool.model.kinds import CLAIMS, POOLS
from sandpool.model.metadata import Key
from sandpool.model.reasons import Reason, Type
from sandpool.node.runtimes.fake import FakeOptions
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ControlPlane, a_control_plane

SLOW = FakeOptions(start=(20.0, 20.0), ready=(0.0, 0.0))
"""Each start takes twenty seconds."""

PATIENT = Bounds(wait=10_000.0)


def virtually(work: Callable[[ControlPlane], Awaitable[None]], options: Options, replicas: int = 2) -> None:
    async def main() -> None:
        chosen = ControllerOptions(workers=Workers(claim=400, sandbox=400), claim=options)
        async with a_control_plane(SLOW, chosen, inline=True) as plane:
            await plane.template()
            await plane.pool(replicas)
            await plane.filled(replicas)
            await asyncio.sleep(60)
            await work(plane)

    run_virtually(main())


async def said(plane: ControlPlane, name: str) -> str:
    claim = await plane.get_claim(name)
    ready = find(claim.status.conditions, Type.READY)
    return "" if ready is None or ready.reason != Reason.SANDBOX_MISSING else ready.message


def test_a_wait_is_told_after_a_while_and_then_seldom() -> None:
    async def work(plane: ControlPlane) -> None:
        names = [f"c{number}" for number in range(80)]
        for name in names:
            await plane.claim(name)
        await asyncio.sleep(1)
        assert {await said(plane, name) for name in names} == {""}, "a short wait is nobody's news"
        await asyncio.sleep(4)
        told = {name: text for name in names if "before it" in (text := await said(plane, name))}
        assert told, "those that only wait say their place"
        assert all("its turn" in text for text in told.values())
        behind = [name for name in told if int(name[1:]) > 40]  # older ones are tired of waiting meanwhile
        before = [(await plane.get_claim(name)).metadata.revision for name in behind]
        await asyncio.sleep(8)
        assert [(await plane.get_claim(name)).metadata.revision for name in behind] == before, "not again so soon"
        await asyncio.sleep(9)
        assert all([await said(plane, name) != told[name] for name in behind]), "but after a while"
        await asyncio.sleep(600)
        assert all([(await plane.get_claim(name)).status.sandbox is not None for name in names]), "every wait ends"

    virtually(work, Options(bounds=PATIENT))


def test_only_so_many_waits_are_told_in_a_second() -> None:
    async def work(plane: ControlPlane) -> None:
        for number in range(42):
            await plane.claim(f"c{number}")
        await asyncio.sleep(4.9)
        told = [number for number in range(2, 42) if await said(plane, f"c{number}")]
        assert 0 < len(told) <= 4, "at two a second from the second second on"

    virtually(work, Options(reports_per_second=1.0, bounds=PATIENT))


def test_who_would_wait_too_long_comes_back_later() -> None:
    async def work(plane: ControlPlane) -> None:
        served = await plane.claim("first")
        assert served.metadata.name == "first"
        await plane.claim("second")  # takes the last member
        for number in range(8):
            await plane.claim(f"c{number}")
        await asyncio.sleep(0.5)  # the controllers hear of it
        with pytest.raises(TooManyRequests) as told:
            await plane.claim("beyond")
        assert told.value.retry_after is not None
        assert 1 <= told.value.retry_after <= 30
        with pytest.raises(Exception, match="not found"):
            await plane.get_claim("beyond")
        await asyncio.sleep(300)
        assert (await plane.claim("later")).metadata.name == "later", "when the line has gone, it is taken in"

    virtually(work, Options(bounds=Bounds(waiting=9, wait=PATIENT.wait)))


def test_who_is_expected_to_wait_too_long_comes_back_later() -> None:
    """By the time alone: nobody is in line yet, but a start takes twenty seconds and a claim may wait for ten."""

    async def work(plane: ControlPlane) -> None:
        await plane.claim("first")
        await plane.claim("second")  # takes the last member
        for _ in range(3):
            with pytest.raises(TooManyRequests, match=r"is expected to wait 2. s, and may wait 10 s") as told:
                await plane.claim("beyond")
            assert told.value.retry_after is not None
            assert 1 <= told.value.retry_after <= 30
        assert {claim.metadata.name for claim in (await plane.user.list(CLAIMS, "default")).items} == {
            "first",
            "second",
        }
        assert (await plane.claim("own", env=[{"name": "A", "value": "b"}])).metadata.name == "own", (
            "waits for no member"
        )
        await asyncio.sleep(60)
        assert (await plane.claim("beyond")).metadata.name == "beyond", "when a member is ready, it is taken in"
        await plane.served(["first", "second", "beyond"])

    virtually(work, Options(bounds=Bounds(wait=10.0)))


def test_why_shows_the_place_and_the_turn_of_a_claim_that_waits() -> None:
    async def work(plane: ControlPlane) -> None:
        names = [f"c{number}" for number in range(80)]
        for name in names:
            await plane.claim(name)
        await asyncio.sleep(5)
        waits = [name for name in names if "before it" in await said(plane, name)]
        name = waits[-1]
        told = text(*await why(plane, name))
        line = next(line for line in told.splitlines() if line.startswith("  Ready False"))
        found = re.search(r"(\d+) claims are before it; its turn is expected in about (\d+) s", line)
        assert found is not None, told
        place, turn = map(int, found.groups())
        assert 0 < place < int(name[1:]), "of those that came before it, none that was served"
        assert turn > 20, "a start takes that long, and there are others before"
        assert "pool default/python\n" in told

    virtually(work, Options(bounds=PATIENT))


async def why(plane: ControlPlane, name: str) -> tuple[list[RelatedObject], list[HistoryEntry]]:
    """What `sandpool why claim/NAME` asks for, answered by this control plane."""
    pages = {
        CLAIMS.path("default", name): to_json(await plane.get_claim(name)),
        POOLS.path("default", "python"): to_json(await plane.get_pool()),
        f"{STORIES}/default/claim/{name}": {
            "entries": [entry.shown() for entry in plane.observability.history.of(("claim", Key("default", name)))]
        },
    }
    found = related_objects(pages.get, "claim", "default", name)
    return found, timeline(found)
