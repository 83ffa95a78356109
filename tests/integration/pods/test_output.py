"""Logs and attached ones under load: rotation while somebody reads, readers that stop, disks that are slow."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from integration.pods.conftest import QUICK, World, a_pod, gone, over, runs
from sandpool.base.clock import SystemClock
from sandpool.node.backend import BackendError
from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.pipes import PipeReader, pipe
from sandpool.node.pods.run import Output
from sandpool.node.pods.threads import Threads
from support.node.streams import TestStreams


async def test_a_follower_reads_across_rotations(world: World) -> None:
    """It keeps up, so it sees every line, although most files are gone by then."""
    count = 3000
    work = a_pod(
        f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; [ $((i % 100)) = 0 ] && sleep 0.01; done"
    )
    await world.backend.start_pod(work)
    await world.until(work, lambda seen: runs(seen) or over(seen))
    got = await world.logs(work, follow=True)
    assert got.splitlines() == [b"line %d" % number for number in range(1, count + 1)]
    left = await world.logs(work)
    assert 0 < len(left) < len(got)
    assert got.endswith(left)
    assert len(list((world.folder / "pods" / work.uid / "logs" / "main").iterdir())) == 3


async def test_a_reader_that_stops_holds_nothing_up(world: World) -> None:
    work = a_pod("seq 1 50000")
    await world.backend.start_pod(work)
    reader = world.backend.logs(work.uid, "main", follow=True)
    await world.until(work, lambda seen: runs(seen) or over(seen))
    first = await anext(reader)
    await world.until(work, over)
    rest = b"".join([text async for text in reader])
    assert (first + rest).endswith(b"\n50000\n")
    await world.backend.stop_pod(work.uid, 0)
    await world.until(work, gone)


async def test_one_who_is_attached_and_does_not_read_is_left_behind(tmp_path: Path) -> None:
    """First it slows the container, as a terminal would; after a while the container goes on without it."""
    world = World(tmp_path, replace(QUICK, stall=0.2))
    await world.open()
    try:
        work = a_pod("read line; head -c 2000000 /dev/zero; exit 3", stdin=True)
        await world.backend.start_pod(work)
        await world.until(work, runs)
        deaf, good = TestStreams(None), TestStreams(None)
        deaf.gate.clear()
        one = asyncio.create_task(world.backend.attach(work.uid, "main", deaf))
        two = asyncio.create_task(world.backend.attach(work.uid, "main", good))
        good.feed(b"go\n")
        assert (await two).code == 3
        assert len(good.text) == 2000000
        await world.until(work, over)
        deaf.gate.set()
        with pytest.raises(BackendError) as error:
            await one
        assert error.value.reason == "SlowReader"
    finally:
        await world.backend.close()


class SlowDisk(LogWriter):
    """Takes nothing until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0, 1 << 20, 3)
        self.let_go = threading.Event()

    def write(self, time: bytes, stream: int, data: bytes) -> None:
        assert self.let_go.wait(20)
        super().write(time, stream, data)


async def test_a_slow_disk_slows_the_one_who_writes_and_nobody_else(tmp_path: Path) -> None:
    threads = Threads("test", 3)  # one namespace has all but one
    slow = SlowDisk(tmp_path / "one")
    reading, writing = pipe()
    os.set_blocking(writing, False)
    outputs = [Output({1: PipeReader(reading)}, slow, SystemClock(), threads, 1.0)]
    pumps = [asyncio.create_task(outputs[0].run())]
    taken = 0
    async with asyncio.timeout(20):
        for _ in range(100):  # the pipe and one chunk, and no more, however long one tries
            with suppress(BlockingIOError):
                taken += os.write(writing, b"x" * 65536)
            await asyncio.sleep(0)
        assert taken < 5 * 65536
        quick, told = pipe()
        other = LogWriter(tmp_path / "two", 0, 1 << 20, 3)
        outputs.append(Output({1: PipeReader(quick)}, other, SystemClock(), threads, 1.0))
        pumps.append(asyncio.create_task(outputs[1].run()))
        os.write(told, b"quick\n")
        os.close(told)
        await pumps[1]
        assert (tmp_path / "two" / "0-1.log").read_bytes().endswith(b" stdout F quick\n")
        assert not pumps[0].done()
        os.close(writing)
        slow.let_go.set()
        await pumps[0]
    text = (tmp_path / "one" / "0-1.log").read_bytes()
    assert text.count(b"x") == taken
    threads.close()


async def test_an_endless_line_is_kept_within_bounds(world: World) -> None:
    work = a_pod("head -c 5000000 /dev/zero | tr '\\0' y")
    await world.backend.start_pod(work)
    await world.until(work, over)
    files = list((world.folder / "pods" / work.uid / "logs" / "main").iterdir())
    assert sum(path.stat().st_size for path in files) < 3 * (20_000 + 100_000)
    text = await world.logs(work)
    assert text == b"y" * len(text)
