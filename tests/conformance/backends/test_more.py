"""Probing, pausing, looking inside, and the process that ends in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from conformance.backends.subject import Subject, a_workload, ready
from sandpool.model.metadata import Uid
from sandpool.node.backend import Command, UnknownPod, Unsupported


class NoStreams:
    def __init__(self) -> None:
        self.out = b""

    async def read(self) -> bytes:
        return b""

    async def write(self, stream: int, data: bytes) -> None:
        self.out += data

    async def resized(self) -> tuple[int, int]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_probe_says_whether_it_works_and_leaves_nothing(subject: Subject) -> None:
    probe = await subject.backend.probe()
    assert probe.available
    assert list(subject.backend.list_pods()) == []


async def test_a_paused_pod_says_so_until_it_is_resumed(subject: Subject) -> None:
    work = a_workload()
    before = await subject.started(work)
    for _ in range(2):
        await subject.backend.pause(work.uid)
        assert subject.backend.pod_status(work.uid) == replace(before, paused=True)
    for _ in range(2):
        await subject.backend.resume(work.uid)
        assert subject.backend.pod_status(work.uid) == before


async def test_a_paused_pod_can_be_stopped(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    await subject.backend.pause(work.uid)
    await subject.backend.stop_pod(work.uid, 1)
    await subject.until(work.uid, lambda seen: seen is None)


async def test_a_command_runs_or_the_backend_says_that_it_cannot(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    with pytest.raises(UnknownPod):
        await subject.backend.exec(Uid("unknown"), "main", Command(("true",)), NoStreams())
    with pytest.raises(UnknownPod):
        await subject.backend.exec(work.uid, "other", Command(("true",)), NoStreams())
    streams, command = NoStreams(), Command(("sh", "-c", "echo hello; exit 4"))
    code, said = 4, b"hello\n"
    try:
        code = (await subject.backend.exec(work.uid, "main", command, streams)).code
    except Unsupported as error:
        said, named = b"", subject.backend.name in error.message
    else:
        named = True
    assert (code, streams.out, named) == (4, said, True)


async def test_logs_are_bytes_and_of_nothing_there_are_none(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    lines = [line async for line in subject.backend.logs(work.uid, "main", previous=False, follow=False)]
    assert all(isinstance(line, bytes) for line in lines)
    with pytest.raises(UnknownPod):
        async for _ in subject.backend.logs(Uid("unknown"), "main", previous=False, follow=False):
            pass


async def test_stats_are_never_negative(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    stats = await subject.backend.stats(work.uid)
    assert min(stats.cpu_seconds, stats.memory_bytes, stats.processes) >= 0


async def test_after_close_nothing_is_called_back(subject: Subject) -> None:
    await subject.backend.start_pod(a_workload())
    await subject.backend.close()
    told = len(subject.told)
    await subject.a_while()
    assert len(subject.told) == told


async def test_what_another_process_left_is_found_or_can_be_started_as_it_was(subject: Subject) -> None:
    work = a_workload()
    before = await subject.started(work)
    await subject.backend.close()
    await subject.open()
    found = subject.backend.pod_status(work.uid)
    if found is None:
        await subject.backend.start_pod(replace(work, was=before))
        found = await subject.until(work.uid, ready)
    assert found is not None
    assert found.address == before.address
    assert found.containers[0].restarts == 0
    if subject.backend.revives:
        assert found == before


async def test_a_pod_that_comes_back_does_not_take_the_address_of_another(subject: Subject) -> None:
    work = a_workload(1)
    before = await subject.started(work)
    await subject.backend.stop_pod(work.uid, 0)
    await subject.until(work.uid, lambda seen: seen is None)
    other = a_workload(2)
    await subject.backend.start_pod(replace(other, was=replace(before, uid=other.uid, key=other.key)))
    await subject.backend.start_pod(replace(work, was=before))
    one, two = await subject.until(other.uid, ready), await subject.until(work.uid, ready)
    assert one is not None
    assert two is not None
    assert one.address != two.address
