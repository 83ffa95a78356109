"""Who is killed for kernel memory that the kernel charges to nobody."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import SandboxPlan
from sandpool.node.runtimes.namespaces.lock_owners import LOCK_BYTES, UNREAD, descendants, lock_bytes, owner
from sandpool.node.runtimes.namespaces.open_directories import (
    MOST_READ,
    NAME_BYTES,
    estimate,
    listed_bytes,
    listing_bytes,
)
from sandpool.node.runtimes.namespaces.uncharged_memory import (
    GROWTH_EACH,
    Growth,
    UnchargedMemoryGuard,
    unreclaimable,
    worst,
)

MIB = 1 << 20
LINES = """1: POSIX  ADVISORY  WRITE 100 fd:00:12345 0 EOF
1: -> POSIX  ADVISORY  WRITE 200 fd:00:12345 0 EOF
2: FLOCK  ADVISORY  READ 100 00:30:7 0 EOF
3: OFDLCK ADVISORY  WRITE -1 00:30:8 0 0
4: POSIX  ADVISORY  READ 300 00:30:9 128 128
"""


def test_the_owner_of_a_lock_is_in_its_line() -> None:
    assert [owner(line) for line in LINES.splitlines()] == [100, 200, 100, -1, 300]
    assert owner("") is None
    assert owner("5: POSIX") is None


def test_locks_count_for_the_sandbox_of_their_process(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.write_text(LINES)
    assert lock_bytes({100: "a", 200: "a", 300: "b"}, str(locks)) == {"a": 3 * LOCK_BYTES, "b": LOCK_BYTES}
    assert lock_bytes({}, str(locks)) == {}
    assert lock_bytes({100: "a"}, str(tmp_path / "none")) == {}


def test_locks_that_are_not_read_count_for_those_who_have_the_newest(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.write_text(LINES * 10)
    found = lock_bytes({100: "a", 300: "b"}, str(locks), enough=9)
    assert found == {"a": 6 * LOCK_BYTES * UNREAD, "b": 3 * LOCK_BYTES * UNREAD}


def test_processes_belong_to_the_sandbox_of_their_init() -> None:
    parents = {1: 0, 10: 1, 100: 10, 101: 100, 102: 101, 200: 10, 201: 200, 7: 8, 8: 7, 300: 299}
    assert descendants(parents, {100: "a", 200: "b"}) == {100: "a", 101: "a", 102: "a", 200: "b", 201: "b"}


def test_listings_are_estimated_by_the_size_of_open_directories(tmp_path: Path) -> None:
    for name in range(2000):
        (tmp_path / f"{name:0200}").touch()
    before = listing_bytes(os.getpid())
    kept = [os.open(tmp_path, os.O_RDONLY) for _ in range(10)]
    try:
        held = listing_bytes(os.getpid()) - before
    finally:
        for file in kept:
            os.close(file)
    assert held >= 10 * 1000 * NAME_BYTES
    with pytest.raises(OSError):
        listing_bytes(0)


def test_names_count_also_if_the_directory_says_that_it_is_small(tmp_path: Path) -> None:
    """As that of an overlay does, of names that are in lower layers."""
    for name in range(100):
        (tmp_path / f"{name:0200}").touch()
    small = tmp_path / "small"
    small.mkdir()
    paths = [str(tmp_path)] * 30 + [str(small)] * 30
    assert listed_bytes(paths, {path: os.stat(path) for path in paths}) == 30 * (100 * (200 + 72) + 72 + len("small"))


def test_of_very_many_open_files_some_are_looked_at(tmp_path: Path) -> None:
    """And count for the others."""
    files = tmp_path / "7" / "fd"
    files.mkdir(parents=True)
    for number in range(2 * MOST_READ):
        os.symlink("/dev/null", files / str(number))
    assert listing_bytes(7, str(tmp_path)) == 0


def test_ordinary_directories_count_for_nothing() -> None:
    assert estimate(4096) == 0
    assert estimate(1 << 20) == 2 * MIB


def test_the_sandbox_with_the_most_of_the_tenant_with_the_most_is_killed() -> None:
    tenants = {"a1": "a", "a2": "a", "b1": "b"}
    assert worst({"a1": 20 * MIB, "a2": 25 * MIB, "b1": 40 * MIB}, tenants, 32 * MIB) == "a2"
    assert worst({"a1": 5 * MIB, "a2": 5 * MIB, "b1": 32 * MIB}, tenants, 32 * MIB) is None
    assert worst({}, {}, 0) is None


def test_the_machine_is_searched_when_its_count_has_grown() -> None:
    growth = Growth(10)
    assert [growth.reached(now, 0) for now in (100, 110, 90, 100, 101)] == [False, False, False, False, True]
    growth.searched(101)
    assert not growth.reached(111, 0)
    assert growth.reached(112, 0)
    assert not growth.reached(101 + GROWTH_EACH, 1)
    assert growth.reached(112 + GROWTH_EACH, 1)


def test_the_count_is_one_line_of_the_kernels() -> None:
    assert unreclaimable("MemTotal:       24684100 kB\nSUnreclaim:        53124 kB\n") == 53124 * 1024
    assert unreclaimable("") == 0


@dataclass(eq=False)
class Sandbox:
    plan: SandboxPlan
    pids: tuple[int, ...]
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def kill_for_memory(self) -> None:
        self.ended.set()


async def test_whoever_holds_too_much_is_killed(tmp_path: Path) -> None:
    for name in range(2000):
        (tmp_path / f"{name:0200}").touch()
    idle = Sandbox(SandboxPlan("idle", "idle", tmp_path, tenant="a"), (1 << 30,))
    holder = Sandbox(SandboxPlan("holder", "holder", tmp_path, tenant="b"), (os.getpid(),))
    guard = UnchargedMemoryGuard(lambda: [idle, holder], most=4 * MIB, growth=Growth(-MIB))
    kept = [os.open(tmp_path, os.O_RDONLY) for _ in range(10)]
    try:
        guard.wake()
        async with asyncio.timeout(20):
            await holder.ended.wait()
    finally:
        await guard.close()
        for file in kept:
            os.close(file)
    assert not idle.ended.is_set()
