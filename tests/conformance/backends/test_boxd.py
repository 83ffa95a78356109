"""The daemon inside: where a backend has it, that it answers; where not, that the backend says so."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from conformance.backends.subject import Subject, a_workload, ended
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, UnknownPod, Unsupported
from sandpool.wire.paths import HEALTH

WITH_BOXD = ("namespaces",)


async def ask(connection: socket.socket) -> bytes:
    reader, writer = await asyncio.open_connection(sock=connection)
    writer.write(f"GET {HEALTH} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n".encode())
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_boxd_answers_or_is_said_to_be_missing(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    if subject.name not in WITH_BOXD:
        with pytest.raises(Unsupported):
            await subject.backend.connect(work.uid, "main")
        return
    for _ in range(2):  # the first one starts it
        connection = await subject.backend.connect(work.uid, "main")
        assert not connection.getblocking()
        head, _, body = (await ask(connection)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert isinstance(json.loads(body), dict)


async def test_there_is_no_boxd_where_nothing_runs(subject: Subject) -> None:
    with pytest.raises(UnknownPod):
        await subject.backend.connect(Uid("00000000-0000-4000-8000-00000000dead"), "main")
    work = a_workload()
    await subject.started(work)
    with pytest.raises(UnknownPod):
        await subject.backend.connect(work.uid, "no-such-container")


async def test_there_is_no_boxd_in_a_container_that_has_ended(real: Subject) -> None:
    work = a_workload(command="exit 0")
    await real.backend.start_pod(work)
    await real.until(work.uid, ended)
    with pytest.raises(UnknownPod):
        await real.backend.connect(work.uid, "main")


async def test_boxd_of_a_paused_pod_is_refused_until_it_is_resumed(real: Subject) -> None:
    if real.name not in WITH_BOXD:
        pytest.skip("this backend has no boxd")
    work = a_workload()
    await real.started(work)
    await real.backend.pause(work.uid)
    with pytest.raises(BackendError, match="resume it first"):
        await real.backend.connect(work.uid, "main")
    await real.backend.resume(work.uid)
    assert b" 200 " in await ask(await real.backend.connect(work.uid, "main"))
