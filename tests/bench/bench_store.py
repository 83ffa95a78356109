"""What the store costs: durable writes, fan-out to watchers, memory per object. Prints; asserts nothing about time."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
import tracemalloc
from operator import itemgetter
from pathlib import Path

import uvloop

from sandpool.controlplane.store.log import Commit, MemoryLog
from sandpool.controlplane.store.sqlite_file import connect, create
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import NullObserver, Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.metadata import NO_REVISION, Revision

PREFIX = "agents.x-k8s.io/sandboxes/"
BODY = b"x" * 2_700


def encode(revision: Revision) -> bytes:
    return b'{"resourceVersion":"%d","rest":"%b"}' % (revision, BODY)


def key(index: int) -> str:
    return f"{PREFIX}default/sandbox-{index:05d}"


class Counted(NullObserver):
    def __init__(self) -> None:
        self.commits = self.writes = 0

    def committed(self, commit: Commit) -> None:
        self.commits += 1
        self.writes += commit.writes


async def overwrite(store: Store, name: str, times: int) -> None:
    record = store.newest(name)
    revision = record.revision if record else NO_REVISION
    for _ in range(times):
        revision = (await store.put(name, revision, encode)).revision


async def durable(writers: int, writes: int, bounds: Bounds) -> dict[str, float]:
    """So many writers, each of its own key, each waiting for its write before the next."""
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder:
        store = await Store.open(SqliteLog(Path(folder) / "store.db", bounds), observer=counted)
        began = time.perf_counter()
        await asyncio.gather(*(overwrite(store, key(index), writes // writers) for index in range(writers)))
        seconds = time.perf_counter() - began
        await store.close()
    return {"rate": counted.writes / seconds, "per_commit": counted.writes / counted.commits}


def bare_sqlite(writes: int) -> float:
    """The same rows in the same table by a plain loop without store, thread or futures: what the disk alone allows."""
    with tempfile.TemporaryDirectory() as folder:
        create(Path(folder) / "store.db")
        connection = connect(Path(folder) / "store.db", 5.0)
        began = time.perf_counter()
        for revision in range(1, writes + 1):
            row = (revision, key(revision % 300), max(0, revision - 300), 1, 0, encode(Revision(revision)), 0, 0)
            connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        seconds = time.perf_counter() - began
        connection.close()
    return writes / seconds


async def fan_out(watchers: int, writes: int) -> dict[str, float]:
    """Microseconds from the write to every watcher, all in one process; the memory log, so no disk in the numbers."""
    store = await Store.open(MemoryLog())
    delivered = wakes = 0

    async def follow() -> None:
        nonlocal delivered, wakes
        watcher = store.watch(PREFIX, NO_REVISION)
        seen = 0
        while seen < writes:
            seen += len(await watcher.changes())
            wakes += 1
        delivered += seen

    followers = [asyncio.create_task(follow()) for _ in range(watchers)]
    await asyncio.sleep(0)
    began = time.perf_counter()
    await asyncio.gather(*(overwrite(store, key(index), writes // 10) for index in range(10)))
    await asyncio.gather(*followers)
    seconds = time.perf_counter() - began
    await store.close()
    return {"microseconds": seconds / delivered * 1e6, "per_wake": delivered / wakes}


async def memory(objects: int) -> dict[str, float]:
    """Bytes per object beyond its JSON: freshly created, after each was updated 3 times, and loaded from the file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        gc.collect()
        tracemalloc.start()
        store = await Store.open(SqliteLog(path))
        await asyncio.gather(*(store.put(key(index), NO_REVISION, encode) for index in range(objects)))
        values = sum(len(record.value) for record in store.scan(PREFIX).records)
        found["created"] = _traced() / objects - values / objects
        await asyncio.gather(*(overwrite(store, key(index), 3) for index in range(objects)))
        found["updated_3_times"] = _traced() / objects - values / objects
        await store.close()
        tracemalloc.stop()
        del store
        gc.collect()
        tracemalloc.start()
        store = await Store.open(SqliteLog(path))
        found["loaded"] = _traced() / objects - values / objects
        await store.close()
        tracemalloc.stop()
        began = time.perf_counter()
        store = await Store.open(SqliteLog(path))
        found["open_seconds"] = time.perf_counter() - began
        await store.close()
    return found


def _traced() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure() -> dict[str, object]:
    """Each rate is the best of three runs that alternate, so that a busy moment of the machine does not decide."""
    bare, single, groups = 0.0, 0.0, {writers: {"rate": 0.0} for writers in (1, 50, 300)}
    for _ in range(3):
        bare = max(bare, bare_sqlite(2_000))
        single = max(single, uvloop.run(durable(300, 3_000, Bounds(writes=1)))["rate"])
        for writers, best in groups.items():
            again = uvloop.run(durable(writers, 30_000 if writers > 1 else 2_000, Bounds()))
            groups[writers] = max(best, again, key=itemgetter("rate"))
    return {
        "bare_sqlite_commit_per_write": bare,
        "one_commit_per_write": single,
        "writers": {str(n): g | {"ratio": g["rate"] / single} for n, g in groups.items()},
        "fan_out_100": uvloop.run(fan_out(100, 5_000)),
        "memory_10000": uvloop.run(memory(10_000)),
    }


def show(found: dict[str, object]) -> None:
    print(f"bare SQLite, commit per write {found['bare_sqlite_commit_per_write']:>9,.0f} writes/s")
    print(f"300 writers, commit per write {found['one_commit_per_write']:>9,.0f} writes/s")
    for writers, group in found["writers"].items():  # type: ignore[attr-defined]
        print(
            f"{writers:>3} writers, grouped          {group['rate']:>9,.0f} writes/s"
            f"  {group['ratio']:>5.1f} times  {group['per_commit']:>6.1f} writes per commit"
        )
    fan: dict[str, float] = found["fan_out_100"]  # type: ignore[assignment]
    print(f"fan-out to 100 watchers       {fan['microseconds']:>9.2f} us per delivery  {fan['per_wake']:.1f} per wake")
    held: dict[str, float] = found["memory_10000"]  # type: ignore[assignment]
    for name in ("created", "updated_3_times", "loaded"):
        print(f"memory beyond JSON, {name:<16} {held[name]:>6,.0f} bytes per object of 10,000")
    print(f"opening 10,000 objects and their history   {held['open_seconds']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments, _ = parser.parse_known_args()
    found = measure()
    if arguments.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)


if __name__ == "__main__":
    main()
