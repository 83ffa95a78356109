"""What containers wrote, read back: whole, in parts, while they write and after they ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from conformance.backends.subject import Subject, a_workload, ended
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, ContainerSpec, PodStatus, UnknownPod, Workload, WorkloadSpec
from support.node.streams import TestStreams


async def read(subject: Subject, work: Workload, **how: Any) -> bytes:
    return b"".join([text async for text in subject.backend.logs(work.uid, "main", **how)])


async def over(subject: Subject, command: str) -> Workload:
    work = a_workload(command=command)
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    return work


async def test_both_streams_are_logged_as_they_were_written(real: Subject) -> None:
    work = await over(real, "echo one; echo two >&2; printf three")
    assert sorted((await read(real, work)).splitlines()) == [b"one", b"three", b"two"]
    assert await read(real, await over_again(real, "printf 'a\\0b\\377c\\r\\n\\n  d'")) == b"a\0b\xffc\r\n\n  d"


async def over_again(subject: Subject, command: str) -> Workload:
    work = a_workload(2, command)
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    return work


async def test_the_last_lines_and_the_first_bytes(real: Subject) -> None:
    work = await over(real, "for i in 1 2 3 4 5; do echo line $i; done")
    assert await read(real, work, tail=2) == b"line 4\nline 5\n"
    assert await read(real, work, tail=0) == b""
    assert await read(real, work, tail=99) == b"line 1\nline 2\nline 3\nline 4\nline 5\n"
    assert await read(real, work, limit=9) == b"line 1\nli"
    assert await read(real, work, tail=3, limit=3) == b"lin"
    assert await read(real, work, limit=0) == b""


async def test_lines_can_have_their_time(real: Subject) -> None:
    before = datetime.now(UTC)
    work = await over(real, "echo one; echo two")
    lines = (await read(real, work, timestamps=True)).splitlines()
    assert [line.split(b" ", 1)[1] for line in lines] == [b"one", b"two"]
    times = [datetime.fromisoformat(line.split(b" ")[0].decode().replace("000Z", "+00:00")) for line in lines]
    assert before <= times[0] <= times[1] <= datetime.now(UTC)


async def test_only_what_was_written_since(real: Subject) -> None:
    work = await over(real, "echo one")
    now = datetime.now(UTC)
    assert await read(real, work, since=now - timedelta(hours=1)) == b"one\n"
    assert await read(real, work, since=now + timedelta(hours=1)) == b""


async def test_a_follower_gets_what_is_written_and_then_the_end(real: Subject) -> None:
    command = "echo first; read line; echo $line; exit 0"
    spec = ContainerSpec(name="main", image="host", command=("sh", "-c", command), stdin=True)
    work = replace(a_workload(), spec=WorkloadSpec(containers=(spec,)))
    await real.started(work)
    got, streams = b"", TestStreams(None)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(real.backend.attach(work.uid, "main", streams))
        async for text in real.backend.logs(work.uid, "main", follow=True):
            got += text
            if got == b"first\n":
                streams.feed(b"second\n")
    assert got == b"first\nsecond\n"


async def test_a_follower_of_one_that_ended_gets_all_and_the_end(real: Subject) -> None:
    work = await over(real, "echo all")
    async with asyncio.timeout(20):
        assert await read(real, work, follow=True) == b"all\n"


async def test_followers_of_a_pod_that_is_taken_away_come_to_an_end(real: Subject) -> None:
    work = a_workload(command="echo up; exec sleep 1000")
    await real.started(work)
    got = []
    async with asyncio.timeout(20):
        async for text in real.backend.logs(work.uid, "main", follow=True):
            got.append(text)
            await real.backend.stop_pod(work.uid, 0)
    assert got == [b"up\n"]


async def test_the_run_before(real: Subject) -> None:
    work = a_workload(command="echo run; exit 1")
    await real.backend.start_pod(work)
    await real.until(work.uid, ended)
    with pytest.raises(BackendError) as error:
        await read(real, work, previous=True)
    assert error.value.reason == "BadRequest"
    for run in (1, 2, 3):
        await real.backend.restart_container(work.uid, "main")
        await real.until(work.uid, partial(_ended_run, run))
        assert await read(real, work, previous=True) == b"run\n"
        assert await read(real, work) == b"run\n"


def _ended_run(run: int, seen: PodStatus | None) -> bool:
    return seen is not None and ended(seen) and seen.containers[0].restarts == run


async def test_what_has_not_begun_has_no_log(real: Subject) -> None:
    work = a_workload()
    spec = msgspec.structs.replace(work.spec.containers[0], image="nowhere")
    work = replace(work, spec=WorkloadSpec(containers=(spec,)))
    await real.backend.start_pod(work)
    with pytest.raises(BackendError) as error:
        await read(real, work)
    assert error.value.reason == "BadRequest"
    for uid, container in ((Uid("unknown"), "main"), (work.uid, "other")):
        with pytest.raises(UnknownPod):
            async for _ in real.backend.logs(uid, container):
                pass


async def test_much_output_is_kept_up_with_and_the_event_loop_goes_on(real: Subject) -> None:
    """Many short lines, and one long one: none is lost, and others are served meanwhile."""
    work = a_workload(command="seq 1 300000; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")
    await real.backend.start_pod(work)
    beats = 0
    while not ended(real.backend.pod_status(work.uid)):
        beats += 1
        await asyncio.sleep(0.001)
    text = await read(real, work)
    assert beats > 20
    lines = text.splitlines()
    assert len(lines) == 300002
    assert lines[299999] == b"300000"
    assert lines[300000] == b"x" * 1000000
    assert lines[-1] == b"end"
    assert await read(real, work, tail=2) == b"x" * 1000000 + b"\nend\n"
