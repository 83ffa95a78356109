"""Pulls of one tenant: how many at once, how slowly, and how much of the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.node.images import store as module
from sandpool.node.images.image import Credential
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.pull_slots import PullSlots
from support.clocks.hasty_clock import Hasty
from support.images.files import file, make_image
from support.images.small_registry import SmallRegistry, small_registry
from support.images.store import image_store, layers

ALLOWED = ("127.0.0.1:*",)
IMAGE = make_image([file("a", "one")])


def offer(registry: SmallRegistry, image: object = IMAGE) -> str:
    registry.blobs |= image.blobs  # type: ignore[attr-defined]
    registry.manifests["tool", "1"] = (image.media_type, image.manifest)  # type: ignore[attr-defined]
    return f"{registry.address}/tool:1"


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """A registry that takes connections and says nothing."""
    asked: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0) as server:
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
        finally:
            for writer in asked:
                writer.transport.abort()


async def test_a_tenant_leaves_pulls_to_others(tmp_path: Path) -> None:
    said: list[str] = []
    options = ImageOptions(registries=ALLOWED, pulls=4)
    async with (
        silent() as (nobody, asked),
        small_registry() as registry,
        image_store(tmp_path / "i", options) as store,
    ):
        greedy = [
            asyncio.create_task(store.take(f"{nobody}/tool:{n}", holder=f"g{n}", tenant="greedy", progress=said.append))
            for n in range(10)
        ]
        async with asyncio.timeout(30):
            while len(said) < 7:
                await asyncio.sleep(0.01)
            await store.take(offer(registry), holder="m", tenant="modest")
        assert len(asked) <= 3
        assert set(said) == {"waiting: namespace greedy has 3 pulls under way"}
        for task in greedy[:8]:  # those who wait and those who have begun: whoever is left has a place
            task.cancel()
        async with asyncio.timeout(30):
            while len(asked) < 5:
                await asyncio.sleep(0.01)
        for task in greedy:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, NodeError):
                await task
        assert not store.pull_slots.shares.held


async def test_who_has_the_most_gives_way_to_a_tenant_that_has_nothing(tmp_path: Path) -> None:
    """A registry that is just fast enough would keep its places for days."""
    async with (
        silent() as (nobody, asked),
        small_registry() as registry,
        image_store(tmp_path / "i", ImageOptions(registries=ALLOWED, pulls=4)) as store,
    ):
        taken = []
        async with asyncio.timeout(30):
            for n, tenant in enumerate(
                ["greedy", "greedy", "greedy", "second"]
            ):  # one after the other: the newest counts
                taken.append(asyncio.create_task(store.take(f"{nobody}/tool:{n}", holder=f"g{n}", tenant=tenant)))
                while len(asked) <= n:
                    await asyncio.sleep(0.01)
            await store.take(offer(registry), holder="m", tenant="modest")
            with pytest.raises(NodeError, match="gave way to another namespace's"):
                await taken[2]
        assert [task.done() for task in taken] == [False, False, True, False]
        for task in taken:
            task.cancel()
        await asyncio.wait(taken)
        assert not store.pull_slots.shares.held
        assert not store.pull_slots.taken


async def test_slow_pulls_of_many_tenants_give_way_to_one_that_has_nothing(tmp_path: Path) -> None:
    """Nobody has more than the others, and all places are taken: a registry that says nothing must not keep one."""
    options = ImageOptions(registries=ALLOWED, pulls=3, silence=600.0, patience=600.0)
    async with (
        silent() as (nobody, asked),
        small_registry() as registry,
        image_store(tmp_path / "i", options, Hasty()) as store,
        asyncio.timeout(60),
    ):
        taken = [
            asyncio.create_task(store.take(f"{nobody}/tool:{n}", holder=f"g{n}", tenant=f"slow-{n}")) for n in range(3)
        ]
        while len(asked) < 3:
            await asyncio.sleep(0.01)
        for n in range(3):
            await store.take(offer(registry), holder=f"m{n}", tenant=f"modest-{n}")
        gone = [task for task in taken if task.done()]
        assert len(gone) == 1, "no more than needed"
        with pytest.raises(
            NodeError, match="gave way to another namespace's, because all places are taken and this one is too slow"
        ):
            await gone[0]
        for task in taken:
            task.cancel()
        await asyncio.wait(taken)
        assert not store.pull_slots.shares.held


async def test_layers_of_one_tenant_are_not_all_that_is_unpacked() -> None:
    """And of two who have all places, the one with more gives way to a third."""
    places, order = PullSlots(ImageOptions().unpackers, SystemClock()), list[str]()

    async def unpack(tenant: str) -> None:
        async with places.acquire(tenant, order.append):
            order.append(tenant)
            await asyncio.Event().wait()

    greedy = [asyncio.create_task(unpack("greedy")) for _ in range(10)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(unpack(tenant)) for tenant in ("modest", "late")]
    async with asyncio.timeout(30):
        while "late" not in order:
            await asyncio.sleep(0)
    assert [said for said in order if "waiting" not in said] == ["greedy", "greedy", "modest", "late"]
    for task in (*greedy, *others):
        task.cancel()
    await asyncio.wait((*greedy, *others))
    assert isinstance(greedy[1].exception(), NodeError)
    assert not places.shares.held


async def test_who_is_not_wanted_any_more_while_it_gives_way_is_cancelled() -> None:
    places = PullSlots(2, SystemClock())

    async def hold(tenant: str) -> None:
        async with places.acquire(tenant, lambda words: None):
            await asyncio.Event().wait()

    first, second = asyncio.create_task(hold("a")), asyncio.create_task(hold("b"))
    await asyncio.sleep(0)
    places.giving_way[second] = "it must"
    second.cancel()
    second.cancel()
    await asyncio.wait((second,))
    assert second.cancelled()
    first.cancel()
    await asyncio.wait((first,))
    assert not places.shares.held


class Leaping(SystemClock):
    """Hours pass between two looks."""

    at = 0.0

    def monotonic(self) -> float:
        self.at += 3600.0
        return self.at


async def test_a_layer_that_drips_is_given_up(tmp_path: Path) -> None:
    async with (
        small_registry() as registry,
        image_store(tmp_path / "i", ImageOptions(registries=ALLOWED, attempts=1), Leaping()) as store,
    ):
        with pytest.raises(NodeError, match="is received too slowly"):
            await store.take(offer(registry), holder="a")
    assert layers(tmp_path / "i") == []


@pytest.mark.parametrize("left", [0, 8 << 20], ids=["before it begins", "while it is unpacked"])
async def test_pulls_leave_room_on_the_disk(tmp_path: Path, left: int) -> None:
    """Of an image that is small as it is sent, and large when it is unpacked."""
    bomb = make_image([file("a", bytes(64 << 20))])
    disk = os.statvfs(tmp_path)
    options = ImageOptions(registries=ALLOWED, leave=disk.f_bavail * disk.f_frsize - left)
    async with small_registry() as registry, image_store(tmp_path / "i", options) as store:
        with pytest.raises(NodeError, match="no space left in"):
            await store.take(offer(registry, bomb), holder="a")
    assert layers(tmp_path / "i") == []


async def test_names_that_never_answer_keep_nobody_from_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of the event loop, of which there are few, also find images that are here, and measure disks."""
    answer, asked, original = threading.Event(), list[str](), socket.getaddrinfo

    def lookup(host: Any, *arguments: Any, **more: Any) -> Any:
        if not str(host).endswith(".example"):
            return original(host, *arguments, **more)
        asked.append(host)
        answer.wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    number = (os.cpu_count() or 1) + 4
    options = ImageOptions(registries=(*ALLOWED, "public"), pulls=2 * number, attempts=1)
    async with small_registry() as registry, image_store(tmp_path / "i", options) as store:
        name = offer(registry)
        await store.take(name, holder="m", tenant="modest")
        greedy = [
            asyncio.create_task(store.take(f"r{n}.example/tool:1", holder=f"g{n}", tenant="greedy"))
            for n in range(number)
        ]
        try:
            async with asyncio.timeout(30):
                while len(asked) < number:
                    await asyncio.sleep(0.01)
            modest = asyncio.create_task(store.take(name, holder="again", tenant="modest"))
            done, _ = await asyncio.wait({modest}, timeout=30)
        finally:
            answer.set()
        await modest
        assert done
        assert {type(each) for each in await asyncio.gather(*greedy, return_exceptions=True)} == {NodeError}


async def test_slow_work_of_one_tenant_leaves_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, logins with patterns that take long to compare."""
    go = threading.Event()

    def slow(credentials: Any, name: object) -> Any:
        assert go.wait(60)
        return credentials

    monkeypatch.setattr(module, "matching", slow)
    login = Credential("127.0.0.1:1", "somebody", "word")
    async with image_store(tmp_path / "i", ImageOptions(allowed_directories=(tmp_path,))) as store:
        greedy = [
            asyncio.create_task(
                store.take("127.0.0.1:1/tool:1", holder=f"g{n}", tenant="greedy", policy="Never", credentials=[login])
            )
            for n in range(50)
        ]
        try:
            async with asyncio.timeout(30):
                for _ in range(3):
                    await asyncio.sleep(0)
                image = await store.take(f"dir:{tmp_path}", holder="modest", tenant="modest")
            assert image.rootfs.layers == (tmp_path,)
            assert not any(task.done() for task in greedy)
        finally:
            go.set()
            await asyncio.gather(*greedy, return_exceptions=True)
