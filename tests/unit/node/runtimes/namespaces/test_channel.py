"""The main process's end of a socket: nobody waits for a slow reader, and nonsense ends the channel."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from sandpool.node.runtimes.namespaces.channel import MOST_QUEUED, Channel
from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused


class Heard:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ended = asyncio.Event()
        self.came = asyncio.Event()

    def __call__(self, message: Message, files: list[int]) -> None:
        for file in files:
            os.close(file)
        self.messages.append(message)
        self.came.set()


def opened() -> tuple[Channel, Heard, socket.socket]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    heard = Heard()
    return Channel(ours, heard, heard.ended.set), heard, its


async def test_messages_wait_for_a_slow_reader_in_order() -> None:
    channel, _, its = opened()
    with its:
        for number in range(200):
            channel.send({"number": number, "padding": "x" * 20_000}, [0])

        def read() -> list[int]:
            found = []
            for _ in range(200):
                received = frames.receive(its)
                assert received is not None
                found.append(received[0]["number"])
                for file in received[1]:
                    os.close(file)
            return found

        assert await asyncio.to_thread(read) == list(range(200))
        channel.close()


async def test_what_waits_is_bounded_and_closed() -> None:
    channel, _, its = opened()

    def flood() -> None:
        for _ in range(MOST_QUEUED * 20):
            channel.send({"padding": "x" * 30_000})

    with its, pytest.raises(Refused, match="does not answer"):
        flood()
    channel.close()
    channel.close()
    with pytest.raises(Refused):
        channel.send({})


async def test_messages_are_heard_until_the_end() -> None:
    channel, heard, its = opened()
    frames.send(its, {"word": 1}, [0])
    await heard.came.wait()
    its.close()
    await heard.ended.wait()
    assert (heard.messages, channel.open) == ([{"word": 1}], False)


async def test_nonsense_ends_it() -> None:
    channel, heard, its = opened()
    with its:
        its.send(b"\0\0\0")
        await heard.ended.wait()
        assert not channel.open
        assert its.recv(1) == b""
