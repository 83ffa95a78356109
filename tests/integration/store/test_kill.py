"""kill -9 of a process that writes: whatever it said was acknowledged is there."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store

WRITER = """
import asyncio, pathlib, sys
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds

async def write(store, name):
    record = store.get(name)
    revision = record.revision if record else 0
    while True:
        made = await store.put(name, revision, lambda r: b"%d " % r + bytes(700))
        revision = made.revision
        sys.stdout.write(f"{name} {revision}\\n")
        sys.stdout.flush()

async def main():
    bounds = Bounds(window=50, checkpoint=200_000, wal=400_000)
    store = await Store.open(SqliteLog(pathlib.Path(sys.argv[1]), bounds))
    await asyncio.gather(*(write(store, f"core/pods/default/{n}") for n in range(10)))

asyncio.run(main())
"""


async def acknowledged_until_killed(path: Path, lines: int) -> dict[str, int]:
    """Lets a process write until it has acknowledged so many writes, then kills it in the midst of the next."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    found = {}
    for _ in range(lines):
        name, revision = (await process.stdout.readline()).decode().split()
        found[name] = int(revision)
    process.send_signal(signal.SIGKILL)
    for line in (await process.stdout.read()).decode().splitlines(keepends=True):
        if line.endswith("\n"):
            name, revision = line.split()
            found[name] = int(revision)
    assert await process.wait() == -signal.SIGKILL
    return found


async def rounds(path: Path, count: int) -> None:
    newest = 0
    for number in range(count):
        acknowledged = await acknowledged_until_killed(path, 150 + 37 * number)
        store = await Store.open(SqliteLog(path))
        assert store.revision >= max(acknowledged.values()) > newest
        for name, revision in acknowledged.items():
            record = store.get(name)
            assert record is not None
            assert record.revision >= revision
            assert record.value == b"%d " % record.revision + bytes(700)
        newest = store.revision
        await store.close()


async def test_every_acknowledged_write_survives_a_kill(tmp_path: Path) -> None:
    await rounds(tmp_path / "store.db", 4)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_acknowledged_write_survives_many_kills(tmp_path: Path) -> None:
    await rounds(tmp_path / "store.db", 40)
