"""Pulls of one tenant: how many at once, how slowly, and how much of the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandpool.local.errors import NodeError
from sandpool.local.images.options import ImageOptions
from sandpool.loop.clock import SystemClock
from support.image_files import file, make_image
from support.image_store import image_store, layers
from support.small_registry import SmallRegistry, small_registry

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
        assert not store._places.shares.held


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
        with pytest.raises(NodeError, match="comes too slowly"):
            await store.take(offer(registry), holder="a")
    assert layers(tmp_path / "i") == []


@pytest.mark.parametrize("left", [0, 8 << 20], ids=["before it begins", "while it is unpacked"])
async def test_pulls_leave_room_on_the_disk(tmp_path: Path, left: int) -> None:
    """Of an image that is small as it is sent, and large when it is unpacked."""
    bomb = make_image([file("a", bytes(64 << 20))])
    disk = os.statvfs(tmp_path)
    options = ImageOptions(registries=ALLOWED, leave=disk.f_bavail * disk.f_frsize - left)
    async with small_registry() as registry, image_store(tmp_path / "i", options) as store:
        with pytest.raises(NodeError, match="no space is left for it"):
            await store.take(offer(registry, bomb), holder="a")
    assert layers(tmp_path / "i") == []
