"""Messages: what comes out is what went in, and what is no message is refused without leaving a file open."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from sandpool.node.runtimes.namespaces.forked import frames
from sandpool.node.runtimes.namespaces.forked.frames import Malformed, Refused

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, two:
        yield one, two


@pytest.mark.parametrize("size", [0, 100, frames.MOST_INLINE * 2, 1_000_000])
def test_messages_of_any_size_arrive_with_their_files(pair: Pair, size: int) -> None:
    message = {"text": "x" * size, "odd": "\udcff\u00fc\0"}
    reader, writer = os.pipe()
    frames.send(pair[0], message, [writer])
    os.close(writer)
    received = frames.receive(pair[1])
    assert received is not None
    assert received[0] == message
    (file,) = received[1]
    os.write(file, b"through")
    assert os.read(reader, 9) == b"through"
    assert not os.get_inheritable(file)
    os.close(file)
    os.close(reader)


def test_the_end_is_none(pair: Pair) -> None:
    pair[0].close()
    assert frames.receive(pair[1]) is None


def test_what_is_too_long_is_refused(pair: Pair) -> None:
    with pytest.raises(Refused, match="the limit is"):
        frames.send(pair[0], {"text": "x" * (frames.MOST_BYTES + 1)})


@pytest.mark.parametrize("packet", [b"nonsense", b"[1]", b"@", b"@99", b"@x", b"{" * 9000, b"\xff\xfe", b"1" * 40000])
def test_nonsense_is_malformed_and_its_files_are_closed(pair: Pair, packet: bytes) -> None:
    reader, writer = os.pipe()
    frames.send_packet(pair[0], packet, [writer])
    os.close(writer)
    with pytest.raises(Malformed):
        frames.receive(pair[1])
    assert os.read(reader, 1) == b""  # nobody holds the other end any more
    os.close(reader)


def test_a_long_message_cannot_claim_more_than_the_limit(pair: Pair) -> None:
    memory = os.memfd_create("x")
    frames.send_packet(pair[0], b"@99999999999", [memory])
    os.close(memory)
    with pytest.raises(Malformed):
        frames.receive(pair[1])


def test_doing_says_what_and_where() -> None:
    with pytest.raises(Refused) as caught, frames.doing("open the box", "Box"):
        os.open("/nowhere/x", os.O_RDONLY)
    assert (caught.value.reason, caught.value.message) == (
        "Box",
        "open the box: no such file or directory (/nowhere/x)",
    )
