"""The parts of a remote command that need no wire: what waits, sizes of terminals, how it ended."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sandpool.controlplane.apiserver.streams import remote_command
from sandpool.controlplane.apiserver.streams.pipe import ReceiveBuffer
from sandpool.controlplane.apiserver.streams.remote_command import MOST_SIZE, newest_size


@pytest.mark.parametrize(
    ("text", "size", "left"),
    [
        (b'{"Width":80,"Height":24}\n', (80, 24), b"\n"),
        (b'{"Height":1,"Width":2}{"Width":3,"Height":4}{"Wid', (3, 4), b'{"Wid'),
        (b'{"Width":0,"Height":24}', None, b""),
        (b'{"Width":70000,"Height":24}', None, b""),
        (b'{"Width":true,"Height":"x"}', None, b""),
        (b'[1]}nonsense}{"Width":5,"Height":6}', (5, 6), b""),
        (b"{" * (MOST_SIZE + 1), None, b""),
    ],
)
def test_sizes(text: bytes, size: tuple[int, int] | None, left: bytes) -> None:
    buffer = bytearray(text)
    assert newest_size(buffer) == size
    assert bytes(buffer) == left


def test_how_it_ended() -> None:
    assert msgspec.json.decode(remote_command.encoded_status(remote_command.exit_status(0), 4)) == {
        "metadata": {},
        "status": "Success",
    }
    failed = msgspec.json.decode(remote_command.encoded_status(remote_command.exit_status(3), 5))
    assert failed["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert (failed["status"], failed["reason"]) == ("Failure", "NonZeroExitCode")
    assert remote_command.encoded_status(remote_command.exit_status(0), 1) == b""
    assert (
        remote_command.encoded_status(remote_command.exit_status(3), 3)
        == b"command terminated with non-zero exit code: exit status 3"
    )
    wrong = msgspec.json.decode(remote_command.encoded_status(remote_command.failure_status("no such file"), 4))
    assert (wrong["code"], wrong["message"]) == (500, "Internal error occurred: no such file")


async def test_an_inbox_holds_back_whoever_feeds_it() -> None:
    buffer = ReceiveBuffer(10, lambda size: None)
    buffer.put(b"x" * 11)
    waiting = asyncio.create_task(buffer.room())
    await asyncio.sleep(0)
    assert buffer.full
    assert not waiting.done()
    assert await buffer.read() == b"x" * 11
    await waiting
    buffer.put(b"last")
    buffer.end()
    buffer.put(b"too late")
    assert [await buffer.read(), await buffer.read()] == [b"last", b""]


async def test_an_inbox_that_nobody_reads_holds_nothing() -> None:
    buffer = ReceiveBuffer(10, lambda size: None)
    buffer.put(b"x" * 11)
    waiting, reading = (
        asyncio.create_task(buffer.room()),
        asyncio.create_task(ReceiveBuffer(1, lambda size: None).read()),
    )
    buffer.discard()
    buffer.put(b"x" * 11)
    await waiting
    assert await buffer.read() == b""
    assert not buffer.full
    reading.cancel()
