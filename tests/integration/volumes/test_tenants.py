"""Tenants share the threads of volumes: the slow work of one does not delay another's pods."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sandpool.model.metadata import Uid
from sandpool.node.pods.directories import PodDirectories
from sandpool.node.pods.threads import Threads
from sandpool.node.volumes import kinds
from sandpool.node.volumes.spec import EmptyDir, VolumeOptions, VolumeSpec
from sandpool.node.volumes.store import VolumeStore

EMPTY = [VolumeSpec("v", EmptyDir())]


async def test_volumes_that_are_slow_to_make_delay_only_their_own_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, real = threading.Event(), kinds.make_volume

    def slow(roots: Any, options: Any, uid: str, *rest: Any) -> Any:
        if uid.startswith("red"):
            assert go.wait(60)
        return real(roots, options, uid, *rest)

    monkeypatch.setattr(kinds, "make_volume", slow)
    store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=()))
    red = [asyncio.create_task(store.make(f"red-{number}", EMPTY, tenant="red")) for number in range(20)]
    try:
        async with asyncio.timeout(30):
            for _ in range(3):
                await asyncio.sleep(0)
            assert set(await store.make("blue-1", EMPTY, tenant="blue")) == {"v"}
            await store.remove("blue-1")
        assert not any(task.done() for task in red)
    finally:
        go.set()
        await asyncio.gather(*red)
        await store.close()


async def test_what_a_pod_left_is_emptied_a_few_files_at_a_time(tmp_path: Path) -> None:
    directory = PodDirectories(tmp_path / "pods").of(Uid("red-1"))
    directory.make()
    for number in range(1_000):
        (directory.sandbox / str(number)).touch()
    threads = Threads("test", 1)
    red, blue = threads.of("red"), threads.of("blue")
    try:
        removal = asyncio.create_task(red.empty(await red.run(directory.remove)))
        await asyncio.sleep(0)
        left = await blue.run(lambda: len(list((tmp_path / "pods" / ".trash").rglob("*"))))
        assert left > 500
        await removal
        assert list((tmp_path / "pods").iterdir()) == [tmp_path / "pods" / ".trash"]
        assert list((tmp_path / "pods" / ".trash").iterdir()) == []
    finally:
        threads.close()
