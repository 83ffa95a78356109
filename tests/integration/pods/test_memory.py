"""What pods were given of ConfigMaps and Secrets is not kept longer than it is needed. Nobody collects circles meanwhile: a server does that seldom."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace
from typing import Any

import pytest

from integration.pods.conftest import World, a_pod, gone, over, runs
from integration.pods.test_over import reclaimed
from sandpool.base.errors import NodeError
from sandpool.node.backend import PodStatus, Workload
from sandpool.node.images.image import Credential
from sandpool.node.volumes.spec import Content, VolumeSpec

pytestmark = pytest.mark.usefixtures("no_collector")


class Files(dict[str, bytes]):
    """Of a volume: something that can be seen to be gone."""


class Values(dict[str, str]):
    """Of a container."""


class Login(Credential):
    """Without slots."""


class Given:
    """What a pod was given, as long as anybody has it."""

    def __init__(self, work: Workload) -> None:
        files, values, login = Files(k=b"x" * 1000), Values(A="x"), Login("r.example", "u", "p")
        self.files, self.values = weakref.ref(files), weakref.ref(values)
        self.login = weakref.ref(login)
        self._work: Workload | None = replace(
            work, volumes=(VolumeSpec("v", Content(files)),), env={"main": values}, credentials=(login,)
        )

    async def start(self, world: World) -> None:
        work, self._work = self._work, None
        assert work is not None
        await world.backend.start_pod(work)

    @property
    def left(self) -> set[str]:
        return {name for name in ("files", "values", "login") if getattr(self, name)() is not None}


async def at_last(given: Given, left: set[str]) -> None:
    """Frames of tasks that have ended are gone a few turns later."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert given.left == left


async def test_a_pod_that_runs_does_not_keep_what_was_written(world: World) -> None:
    """Variables and logins it may need again."""
    work = a_pod()
    given = Given(work)
    await given.start(world)
    await world.until(work, runs)
    await at_last(given, {"values", "login"})
    assert next((world.folder / "volumes" / "pods" / work.uid / "v").iterdir()).read_bytes() == b"x" * 1000


async def test_volumes_that_could_not_be_made_are_made_of_the_same(world: World, monkeypatch: Any) -> None:
    times, make = [1, 2, 3], world.volumes.make

    async def fails(*args: Any, **named: Any) -> Any:
        if times.pop():
            raise NodeError("DiskFull", "no room")
        return await make(*args, **named)

    times[0] = 0
    monkeypatch.setattr(world.volumes, "make", fails)
    work = a_pod("cat $FILE")
    await Given(work).start(world)
    await world.until(work, over)
    assert (world.folder / "volumes" / "pods" / work.uid / "v" / "k").read_bytes() == b"x" * 1000
    assert times == []


async def test_a_restarted_container_has_its_variables(world: World) -> None:
    work = a_pod("echo A is $A")
    given = Given(work)
    await given.start(world)
    await world.until(work, over)
    await world.backend.restart_container(work.uid, "main")

    def again(seen: PodStatus | None) -> bool:
        return over(seen) and seen is not None and seen.containers[0].restarts == 1

    await world.until(work, again)
    assert await world.logs(work) == b"A is x\n"


async def test_a_pod_that_is_over_keeps_nothing(world: World) -> None:
    work = a_pod("exit 0")
    given = Given(work)
    await given.start(world)
    await world.until(work, over)
    await world.backend.reclaim(work)
    await world.until(work, reclaimed)
    await at_last(given, set())


async def test_pods_that_come_and_go(world: World) -> None:
    pods: list[weakref.ref[Any]] = []
    for number in range(10):
        work = a_pod("exit 0" if number % 2 else "exec sleep 1000", number)
        given = Given(work)
        await given.start(world)
        pods.append(weakref.ref(world.backend.pods[work.uid]))
        await world.until(work, over if number % 2 else runs)
        if number % 3:
            await world.backend.reclaim(work)
            await world.until(work, reclaimed)
        await world.backend.stop_pod(work.uid, 0)
        await world.until(work, gone)
        await at_last(given, set())
    assert [pod() for pod in pods if pod() is not None] == []
