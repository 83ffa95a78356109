"""The process dies in the middle: what it started ends with it, or is found and ended by the next one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from integration.pods.conftest import World, a_pod, runs
from sandpool.node.runtimes.process.supervisor_client import MARK, reap

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from integration.pods.conftest import World, a_pod, runs

async def main():
    world = World(Path(sys.argv[1]))
    await world.open()
    for number in range(3):
        work = a_pod("(setsid sleep 1000 &); echo mine > /dev/null; exec sleep 1000", number)
        await world.backend.start_pod(work)
        await world.until(work, runs)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def started(folder: Path) -> list[psutil.Process]:
    """What carries the mark of a runtime in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").endswith(f":{folder / 'runtime'}"):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def victim(tmp_path: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"up\n"
    return process


def supervisors(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # some end by themselves meanwhile
            if "supervisor.py" in " ".join(process.cmdline()):
                found.append(process)
    return found


async def gone_by_themselves(folder: Path) -> None:
    async with asyncio.timeout(20):
        while started(folder):
            await asyncio.sleep(0.02)


async def test_everything_ends_when_the_process_is_killed(victim: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert len(started(tmp_path)) >= 6
    victim.kill()
    victim.wait()
    await gone_by_themselves(tmp_path)


async def test_what_outlived_everybody_is_ended_by_the_next_process(
    victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The supervisors are killed first, so nobody is left who could end the others."""
    before = started(tmp_path)
    for process in supervisors(before):
        process.send_signal(signal.SIGSTOP)  # so that none of them ends anything when its parent dies
    victim.kill()
    victim.wait()
    for process in supervisors(before):
        process.kill()
    assert started(tmp_path), "nothing was left to find"
    world = World(tmp_path)
    await world.open()
    try:
        await gone_by_themselves(tmp_path)
        work = a_pod(number=1)
        await world.backend.start_pod(work)
        await world.until(work, runs)
        assert supervisors(started(tmp_path))
    finally:
        await world.backend.close()
    assert started(tmp_path) == []


def test_only_what_carries_the_mark_is_ended(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "1000"], env={MARK: "another"})
    mine = subprocess.Popen(["sleep", "1000"], env={MARK: f"mine-{os.getpid()}"})
    try:
        assert reap(f"mine-{os.getpid()}") == 1
        assert mine.wait() == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
