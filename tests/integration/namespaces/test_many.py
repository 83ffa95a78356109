"""Many sandboxes, at once and one after the other: all work, and nothing of them is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Stdio
from support.node.sandboxes import FOREVER, Bench, execute, opened, shell, until

pytestmark = [pytest.mark.timeout(1500)]
IDLE = 1  # the fork-server
OTHERS: set[int] = set()  # that this worker had before, such as the one that commands are forked from


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(descendants(os.getpid()))


def counts() -> dict[str, int]:
    """Of the whole machine, as far as it is ours: descendants, mounts, open files, control groups."""
    return {
        "processes": len(set(descendants(os.getpid())) - OTHERS),
        "mounts": sum(map(ours, Path("/proc/self/mountinfo").read_text().splitlines())),
        "files": len(os.listdir("/proc/self/fd")),
        "groups": sum(
            len(names) for top, names, _ in os.walk("/sys/fs/cgroup") if top.endswith(f"/sandpool-many{os.getpid()}")
        ),
    }


def ours(mount: str) -> bool:
    """Other workers mount small disks of their own at the same time."""
    return "/popen-gw" not in mount or f"/popen-{os.environ.get('PYTEST_XDIST_WORKER', '')}/" in mount


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *descendants(child)]
    return found


async def one(bench: Bench) -> None:
    async with bench.container(FOREVER) as container:
        assert (await execute(container, "true")).code == 0


async def churn(bench: Bench, total: int, at_once: int) -> None:
    turns = asyncio.Semaphore(at_once)

    async def turn() -> None:
        async with turns:
            await one(bench)

    async with asyncio.TaskGroup() as group:
        for _ in range(total):
            group.create_task(turn())


@pytest.mark.parametrize("total", [20, pytest.param(2000, marks=pytest.mark.long)])
async def test_nothing_is_left_of_many_one_after_the_other(tmp_path: Path, total: int) -> None:
    async with opened(tmp_path, f"many{os.getpid()}") as bench:
        await churn(bench, 4, 4)
        server = (await bench.runtime.runtime_host.living_server()).pid
        await until(lambda: counts()["processes"] == IDLE)
        before, memory = counts(), resident(server)
        await churn(bench, total, 4)
        await until(lambda: counts()["processes"] == IDLE)
        assert counts() == before
        assert (await bench.runtime.runtime_host.living_server()).pid == server
        assert resident(server) < memory * 1.2


def resident(pid: int | None) -> int:
    """Pages of the fork-server, which must not grow by what it has forked."""
    return sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in [pid, *descendants(pid or 0)])


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.long)])
async def test_many_live_at_once(tmp_path: Path, count: int) -> None:
    async with opened(tmp_path, f"many{os.getpid()}") as bench:
        await one(bench)
        await until(lambda: counts()["processes"] == IDLE)
        before = counts()
        ready, go = asyncio.Semaphore(0), asyncio.Event()

        async def live() -> None:
            async with bench.sandbox() as sandbox:
                container = await sandbox.start(shell(FOREVER), Stdio())
                ready.release()
                await go.wait()
                assert (await execute(container, "true")).code == 0

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(live())
            for _ in range(count):
                await ready.acquire()
            await until(lambda: counts()["processes"] == IDLE + 3 * count)  # a shim, an init and a command
            assert counts()["mounts"] == before["mounts"]
            go.set()
        await until(lambda: counts()["processes"] == IDLE)
        assert counts() == before
