"""When sandboxes were last used, written to a real store beside real controllers, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from sandpool.kube.errors import Unavailable
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Uid
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import parse
from sandpool.router.activity import LAST_ACTIVITY, Activity, Rhythm
from sandpool.router.ports import Target
from sandpool.router.values import Admitted
from support.api.counting_api import CountingApi
from support.api.flaky_api import FlakyApi
from support.api.local_parts import running
from support.simulated.control_plane import START, ControlPlane, a_control_plane

pytestmark = pytest.mark.looptime


async def a_claimed_sandbox(plane: ControlPlane) -> Sandbox:
    await plane.template()
    await plane.pool(1)
    await plane.filled(1)
    await plane.claim("mine")
    await plane.served(["mine"])
    await asyncio.sleep(30)  # the pool is full again, and everything is at rest
    bound = (await plane.get_claim("mine")).status.sandbox
    assert bound is not None
    return await plane.user.get(SANDBOXES, bound.name, "default")


def target_of(sandbox: Sandbox, uid: str = "") -> Target:
    meta = sandbox.metadata
    return Target(meta.namespace, meta.name, Uid(uid or meta.uid), meta.name, "10.0.0.1")


def an_admission(target: Target) -> Admitted:
    async def nowhere() -> None:
        raise AssertionError

    return Admitted(target, "admin", b"/", nowhere, "pool")  # type: ignore[arg-type]


async def noted(plane: ControlPlane, sandbox: Sandbox) -> datetime | None:
    found = await plane.user.get(SANDBOXES, sandbox.metadata.name, "default")
    text = found.metadata.annotations.get(LAST_ACTIVITY)
    return None if text is None else parse(text)


async def test_a_use_is_noted_and_wakes_no_controller() -> None:
    async with a_control_plane() as plane:
        sandbox = await a_claimed_sandbox(plane)
        activity = Activity(plane.user, plane.clock)
        async with running(activity):
            plane.clear()
            used = plane.clock.now()
            activity.used(target_of(sandbox))
            await asyncio.sleep(10)
            assert await noted(plane, sandbox) == used.replace(microsecond=0)
            await asyncio.sleep(30)
        assert {name: plane.reconciles(name) for name in ("claim", "sandbox", "pool", "template")} == {
            "claim": 0, "sandbox": 0, "pool": 0, "template": 0,
        }  # fmt: skip
        assert plane.distant.writes == 0


async def test_at_most_one_write_in_an_interval_and_the_last_use_counts() -> None:
    async with a_control_plane() as plane:
        sandbox = await a_claimed_sandbox(plane)
        api = CountingApi(plane.user)
        activity = Activity(api, plane.clock, Rhythm(delay=5, interval=60))
        async with running(activity):
            for _ in range(240):  # four minutes of one use a second
                activity.used(target_of(sandbox))
                await asyncio.sleep(1)
            last = plane.clock.now() - timedelta(seconds=1)
            await asyncio.sleep(61)
        assert api.count("patch", "sandboxes") == 5
        assert await noted(plane, sandbox) == last.replace(microsecond=0)


async def test_a_stream_counts_while_it_carries_something() -> None:
    async with a_control_plane() as plane:
        sandbox = await a_claimed_sandbox(plane)
        activity = Activity(plane.user, plane.clock)
        carried = 0
        admitted = an_admission(target_of(sandbox))
        admitted.flow.count = lambda: carried
        async with running(activity):
            activity.begins(admitted)
            for _ in range(10):
                await asyncio.sleep(60)
                carried += 1
            await asyncio.sleep(100)
            busy = await noted(plane, sandbox)
            await asyncio.sleep(600)  # open, and silent
            assert await noted(plane, sandbox) == busy
            ended = plane.clock.now()
            activity.ends(admitted)
            await asyncio.sleep(100)
            assert await noted(plane, sandbox) == ended.replace(microsecond=0)
        assert busy is not None
        assert timedelta(seconds=590) < busy - START < timedelta(seconds=700)


async def test_another_sandbox_of_the_same_name_is_not_marked() -> None:
    async with a_control_plane() as plane:
        sandbox = await a_claimed_sandbox(plane)
        api = CountingApi(plane.user)
        activity = Activity(api, plane.clock)
        absent = Target("default", "absent", Uid("u-1"), "absent", "10.0.0.1")
        async with running(activity):
            activity.used(target_of(sandbox, uid="00000000-0000-4000-8000-ffffffffffff"))
            activity.used(absent)
            await asyncio.sleep(60)
        assert api.count("patch", "sandboxes") == 2
        assert api.count("patch", "sandboxes", "ok") == 0
        assert await noted(plane, sandbox) is None


async def test_what_cannot_be_written_is_written_after_a_later_use() -> None:
    async with a_control_plane() as plane:
        sandbox = await a_claimed_sandbox(plane)
        api = FlakyApi(plane.user)

        async def down(verb: str, plural: str) -> None:
            raise Unavailable("not now")

        api.before = down
        activity = Activity(api, plane.clock)
        async with running(activity):
            activity.used(target_of(sandbox))
            await asyncio.sleep(30)
            assert await noted(plane, sandbox) is None
            api.before = FlakyApi(plane.user).before
            activity.used(target_of(sandbox))
            await asyncio.sleep(60)
            assert await noted(plane, sandbox) is not None


async def test_what_waits_is_bounded() -> None:
    async with a_control_plane() as plane:
        api = CountingApi(plane.user)
        activity = Activity(api, plane.clock, Rhythm(most=10))
        async with running(activity):
            for number in range(100):
                activity.used(Target("default", f"box-{number}", Uid(f"u-{number}"), "", ""))
            await asyncio.sleep(300)
        assert api.count("patch", "sandboxes") == 10
