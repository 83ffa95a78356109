"""After a pod, a close or a crash, the machine is as it was."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from conformance.backends.subject import Subject, a_workload, ended, gone, ready
from sandpool.node.backend import Command
from sandpool.node.volumes.spec import EmptyDir, VolumeSpec
from support.node.streams import TestStreams


def marked(word: str) -> list[int]:
    """Processes of this machine, in whichever namespace, that have the word in their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if word in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def files_of(subject: Subject) -> list[Path]:
    return [path for path in (subject.folder / "pods").rglob("*") if not path.is_dir()]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def word(tmp_path: Path) -> str:
    return f"left-{os.getpid()}-{tmp_path.name}"


async def test_a_pod_that_is_gone_left_no_process_no_file_and_no_descriptor(real: Subject, word: str) -> None:
    warm = a_workload(99)  # what a backend makes once, it has made then
    await real.started(warm)
    await real.backend.stop_pod(warm.uid, 0)
    await real.until(warm.uid, gone)
    before = descriptors()
    hiding = f"(setsid sh -c 'sleep 1000 # {word}' {word} </dev/null >/dev/null 2>&1 &); echo x > /tmp/{word}; exec sleep 1000"
    work = a_workload(command=hiding)
    await real.started(work)
    await real.backend.exec(work.uid, "main", Command(("sh", "-c", f"sleep 1000 & : {word}")), TestStreams())
    await real.backend.stop_pod(work.uid, 0)
    await real.until(work.uid, gone)
    Path(f"/tmp/{word}").unlink(missing_ok=True)
    assert marked(word) == []
    assert files_of(real) == []
    assert descriptors() == before


async def test_what_a_container_left_behind_ends_with_it(real: Subject, word: str) -> None:
    work = a_workload(command=f"(setsid sh -c 'sleep 1000; :' {word} </dev/null &); exit 0")
    await real.backend.start_pod(work)
    await real.until(work.uid, ended)
    async with asyncio.timeout(10):
        while marked(word):
            await asyncio.sleep(0.01)


async def test_close_ends_everything(real: Subject, word: str) -> None:
    works = [a_workload(number, f"sleep 1000; : {word}") for number in range(1, 6)]
    await asyncio.gather(*(real.started(work) for work in works))
    await real.backend.close()
    assert marked(word) == []
    assert list(real.backend.list_pods()) == []


async def test_thirty_pods_come_and_go_at_once(real: Subject) -> None:
    works = [a_workload(number, f"echo {number}; exec sleep 1000") for number in range(1, 31)]
    await asyncio.gather(*(real.started(work) for work in works))

    async def visit(number: int) -> None:
        work = works[number - 1]
        streams = TestStreams()
        assert (await real.backend.exec(work.uid, "main", Command(("echo", str(number))), streams)).code == 0
        assert streams.text == f"{number}\n".encode()
        await real.backend.stop_pod(work.uid, 0)
        await real.until(work.uid, gone)

    await asyncio.gather(*(visit(number) for number in range(1, 31)))
    assert list(real.backend.list_pods()) == []
    assert files_of(real) == []


async def test_pods_that_are_stopped_while_they_start_leave_nothing(real: Subject) -> None:
    works = [a_workload(number) for number in range(1, 21)]
    for turns, work in enumerate(works):
        await real.backend.start_pod(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        await real.backend.stop_pod(work.uid, 0)
    for work in works:
        await real.until(work.uid, gone)
    assert files_of(real) == []


async def test_an_empty_folder_outlives_the_process_and_not_the_pod(real: Subject) -> None:
    """What a pod wrote is there when it comes back; of one that does not come back nothing stays."""
    volumes = (VolumeSpec("data", EmptyDir()),)
    back, lost = replace(a_workload(1), volumes=volumes), replace(a_workload(2), volumes=volumes)
    await real.started(back)
    await real.started(lost)
    kept = real.folder / "volumes" / "pods"
    for work in (back, lost):
        (kept / work.uid / "data" / "file").write_text("mine")
    await real.backend.close()
    await real.open()
    await real.backend.start_pod(back)
    await real.until(back.uid, ready)
    async with asyncio.timeout(10):
        while (kept / lost.uid).exists() or (real.folder / "pods" / lost.uid).exists():
            await asyncio.sleep(0.01)
    assert (kept / back.uid / "data" / "file").read_text() == "mine"
    await real.backend.stop_pod(back.uid, 0)
    await real.until(back.uid, gone)
    assert not (kept / back.uid).exists()
